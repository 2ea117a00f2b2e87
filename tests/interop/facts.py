# SPDX-License-Identifier: Apache-2.0
"""Every command's --json against tools/facts.schema.json: nothing missing, nothing undocumented."""
import json
import os
import subprocess
import tempfile

import numpy as np

from _lib import PARE, ROOT, ZOO, check, finish, report

SCHEMA = json.loads((ROOT / 'tools' / 'facts.schema.json').read_text())
KINDS = {'object': dict, 'array': list, 'string': str, 'boolean': bool, 'null': type(None)}


def is_kind(value, kind):
    if kind == 'integer':
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == 'number':
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, KINDS[kind])


def problems(value, rule, at='$'):
    """Violations of the part of JSON Schema that the file uses."""
    if '$ref' in rule:
        rule = SCHEMA['$defs'][rule['$ref'].split('/')[-1]]
    kinds = rule.get('type')
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_kind(value, kind) for kind in kinds):
        return [f'{at}: {value!r} is no {kinds}']
    found = []
    if 'enum' in rule and value not in rule['enum']:
        found.append(f'{at}: {value!r} is none of {rule["enum"]}')
    if 'const' in rule and value != rule['const']:
        found.append(f'{at}: {value!r} is not {rule["const"]}')
    if isinstance(value, dict):
        known, rest = rule.get('properties', {}), rule.get('additionalProperties', True)
        found += [f'{at}: {key} is missing' for key in rule.get('required', []) if key not in value]
        for key, inner in value.items():
            if key in known:
                found += problems(inner, known[key], f'{at}.{key}')
            elif rest is False:
                found.append(f'{at}: {key} is not documented')
            elif isinstance(rest, dict):
                found += problems(inner, rest, f'{at}.{key}')
    if isinstance(value, list) and 'items' in rule:
        for i, inner in enumerate(value):
            found += problems(inner, rule['items'], f'{at}[{i}]')
    return found


def facts_problems(facts):
    """The common part, then the command's own, which must name every other key."""
    own = SCHEMA['$defs'][facts['command']]
    rest = {k: v for k, v in facts.items() if k not in SCHEMA['properties']}
    return problems(facts, SCHEMA) + problems(rest, {**own, 'type': 'object', 'additionalProperties': False})


def run(name, *words, status=0):
    """One command with --json, its facts judged; returns them."""
    path = f'{name}.json'
    done = subprocess.run([PARE, *words, '--quiet', '--json', path], capture_output=True, text=True)
    if done.returncode != status:
        report('FAIL', name, f'exit {done.returncode}: {done.stderr.strip()}')
        return {}
    facts = json.load(open(path))
    found = facts_problems(facts)
    check(name, not found, '; '.join(found[:3]))
    return facts


def main():
    mlp = str(ZOO / 'mlp.onnx')
    broken = facts_problems({'schema': 1, 'command': 'run', 'version': '0', 'outputs': [1], 'odd': 2})
    check('validator', len(broken) == 3, str(broken))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rng = np.random.default_rng(1)
        np.save('x.npy', rng.random((3, 1, 28, 28), np.float32))
        np.save('y.npy', np.arange(3))
        run('data_import', 'data', 'import', '-o', 'd.h5', '--npy', 'x.npy', 'y.npy')
        run('inspect', 'inspect', mlp)
        run('check', 'check', mlp)
        run('calibrate', 'calibrate', mlp, '--data', 'd.h5', '-o', 'r.json')
        quantized = run('quantize', 'quantize', mlp, '--data', 'd.h5', '-o', 'q.onnx')
        size = os.path.getsize('q.onnx') if os.path.exists('q.onnx') else -1
        check('quantize_bytes', quantized.get('output', {}).get('bytes') == size)
        run('run', 'run', mlp, '--input', 'input=x.npy', '-o', 'out')
        run('run_data', 'run', mlp, '--data', 'd.h5', '-o', 'out.h5')
        run('validate', 'validate', mlp, 'q.onnx', '--data', 'd.h5', '--latency', '--any-accuracy')
        run('report', 'report', 'validate.json')
        bench = run('bench', 'bench', mlp, '--shapes', 'input:32x1x28x28', '--duration', '0.2')
        check('bench_shapes', bench.get('shapes') == {'input': [32, 1, 28, 28]})
        for name in ('ops', 'doctor', 'version'):
            run(name, name)
    finish()


main()

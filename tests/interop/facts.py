# SPDX-License-Identifier: Apache-2.0
"""Every command's --json against tools/facts.schema.json: nothing missing, nothing undocumented; report reads it."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
import xml.etree.ElementTree

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


def shared(mlp):
    """Models that two processes share."""
    for how in 'pipeline', 'tensor':
        for words in [['run', mlp, '--data', 'd.h5', '-o', 'shared.h5'], ['validate', mlp, mlp, '--data', 'd.h5', '--any-accuracy'],
                      ['bench', mlp, '--duration', '0', '--warmup', '0']]:
            path = f'{words[0]}_{how}.json'
            subprocess.run(['sh', ROOT / 'tests/comm/ranks.sh', '2', PARE, *words, '--parallel', how, '-q', '--json', path],
                           capture_output=True)
            judge(f'{words[0]}_{how}', path)
    words = ['distill', '--teacher', mlp, '--student', mlp, '--data', 'e.h5', '-o', 'shared.onnx', '--steps', '1', '--batch', '4']
    subprocess.run(['sh', ROOT / 'tests/comm/ranks.sh', '2', PARE, *words, '--parallel', 'pipeline', '-q', '--json', 'distill_pipeline.json'],
                   capture_output=True)
    judge('distill_pipeline', 'distill_pipeline.json')


def trace_problems(trace):
    """A Chrome trace: lanes have names, events on a lane are one after the other."""
    events = trace['traceEvents']
    named = {e['tid'] for e in events if e['ph'] == 'M' and e['name'] == 'thread_name'}
    spans = sorted((e for e in events if e['ph'] == 'X'), key=lambda e: (e['tid'], e['ts']))
    found = [f'lane {e["tid"]} has no name' for e in spans if e['tid'] not in named]
    found += [f'{e["name"]!r} has no time' for e in spans if not (e['ts'] >= 0 and e['dur'] >= 0)]
    found += [f'{a["name"]!r} and {b["name"]!r} overlap' for a, b in zip(spans, spans[1:])
              if a['tid'] == b['tid'] and a['ts'] + a['dur'] > b['ts'] + 1e-3]
    return found if spans else ['no spans']


def run(name, *words, status=0):
    """One command with --json, its facts judged; returns them."""
    path = f'{name}.json'
    done = subprocess.run([PARE, *words, '--quiet', '--json', path], capture_output=True, text=True)
    if done.returncode != status:
        report('FAIL', name, f'exit {done.returncode}: {done.stderr.strip()}')
        return {}
    return judge(name, path)


def judge(name, path):
    """Facts of this file, which must be as documented and read by report."""
    facts = json.load(open(path))
    found = facts_problems(facts)
    check(name, not found, '; '.join(found[:3]))
    read = subprocess.run([PARE, 'report', path], capture_output=True, text=True)
    check(f'{name}_read', read.returncode == 0, read.stderr.strip())
    return facts


def serve(mlp):
    """A server writes its facts when it is told to end. Here a version of a model shadows itself."""
    server = subprocess.Popen([PARE, 'serve', mlp, '--port', '0', '--quiet', '--json', 'serve.json', '--shadow', 'mlp=mlp/1'],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    if url:
        pixels = {'name': 'input', 'shape': [1, 1, 28, 28], 'datatype': 'FP32', 'data': [0] * 784}
        urllib.request.urlopen(f'{url}/v2/models/mlp/infer', json.dumps({'inputs': [pixels]}).encode(), 60).close()
        server.terminate()
        check('serve_ends', server.wait(60) == 0, server.stderr.read())
        shadow = judge('serve', 'serve.json')['shadows'][0]
        check('serve_shadow', shadow['compared'] == shadow['outputs'][0]['same'] == 1, shadow)
    else:
        why = server.stderr.read().strip()
        report('SKIP' if 'no HTTP library' in why else 'FAIL', 'serve', why)


def load(mlp):
    """A load on a server, of samples with labels and without."""
    server = subprocess.Popen([PARE, 'serve', mlp, '--port', '0', '--quiet'], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    url = server.stdout.readline().strip()
    if not url:
        why = server.stderr.read().strip()
        report('SKIP' if 'no HTTP library' in why else 'FAIL', 'load', why)
        return
    words = ['load', url, '--model', 'mlp', '--rate', 'constant:20,40', '--duration', '0.5', '--warmup', '0', '--timeout', '60']
    tried = subprocess.run([PARE, *words, '--data', 'none.h5'], capture_output=True, text=True).stderr.strip()
    if 'no HTTP client' in tried:
        report('SKIP', 'load', tried)
    else:
        run('load_range', *words, '--data', 'd.h5', '--range', '0:2')
        found = run('load', *words, '--data', 'e.h5', '--model-version', '1', '--plan', '50')
        check('load_counts', [rate['answered'] for rate in found.get('rates', [])] == [10, 20])
        check('load_top1', all('top1' in rate for rate in found.get('rates', [])))
    server.terminate()
    check('load_server_ends', server.wait(60) == 0, server.stderr.read())


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
        np.save('many.npy', rng.random((64, 1, 28, 28), np.float32))
        np.save('labels.npy', np.arange(64) % 10)
        run('data_import_more', 'data', 'import', '-o', 'e.h5', '--npy', 'many.npy', 'labels.npy')
        run('inspect', 'inspect', mlp)
        run('inspect_groups', 'inspect', str(ZOO / 'vit.onnx'), '--groups')
        run('inspect_device', 'inspect', mlp, '--device', 'h200', '--batch', '4')
        run('check', 'check', mlp)
        run('calibrate', 'calibrate', mlp, '--data', 'd.h5', '-o', 'r.json')
        quantized = run('quantize', 'quantize', mlp, '--data', 'd.h5', '-o', 'q.onnx')
        size = os.path.getsize('q.onnx') if os.path.exists('q.onnx') else -1
        check('quantize_bytes', quantized.get('output', {}).get('bytes') == size)
        run('prune', 'prune', mlp, '-o', 'p.onnx', '--macs', '0.5')
        learned = run('distill', 'distill', '--teacher', mlp, '--student', 'p.onnx', '--data', 'e.h5', '-o', 'l.onnx', '--steps', '2',
                      '--batch', '16', '--checkpoint', 'kept', '--resume')
        check('distill_checkpoint', learned['checkpoint']['step'] == 2 and 'resumed' not in learned)
        run('distill_qat', 'distill', '--teacher', mlp, '--student', 'p.onnx', '--data', 'e.h5', '-o', 'lq.onnx', '--steps', '2',
            '--batch', '16', '--qat', 'int8', '--qat-scales', 'fixed', '--range', '0:60')
        run('distill_qat_again', 'distill', '--teacher', mlp, '--student', 'lq.onnx', '--data', 'e.h5', '-o', 'lqq.onnx', '--steps',
            '2', '--batch', '16', '--qat', 'int8')
        check('distill_held_out', learned.get('held_out', 0) > 0 and learned['held_out'] + learned['train_samples'] == 64)
        tuned = run('prune_distill', 'prune', mlp, '-o', 'g.onnx', '--macs', '0.5', '--data', 'e.h5', '--distill', 'epochs=1,batch=8',
                    '--steps', '2', '--no-refit')
        check('prune_distill_steps', len(tuned['smaller'][0]['distilled']['steps']) == 2)
        run('prune_latency', 'prune', mlp, '-o', 't.onnx', '--latency', '0.7', '--threads', '1', '--cache', 'times')
        run('prune_weights', 'prune', mlp, '-o', 'w.onnx', '--sparsity', '0.5', '--data', 'd.h5')
        swept = run('prune_sweep', 'prune', mlp, '-o', 's.onnx', '--sparsity', '0', '--sweep', '0.5,0.25')
        page = run('prune_report', 'prune', mlp, '-o', 'r.onnx', '--macs', '1', '--sweep', '0.7,0.5', '--data', 'e.h5',
                   '--samples', '24', '--report', 'r.html')
        compared = page.get('compared', {})
        check('prune_report_held_out', compared.get('held_out') and compared['data']['samples'] > 0)
        check('prune_report_times', all('time_ms' in layer for layer in page['smaller'][0]['layers']))
        text = open('r.html').read()
        check('prune_report_alone', text.count('<svg ') == 4 and 'src=' not in text and 'href=' not in text)
        for svg in re.findall(r'<svg .*?</svg>', text, re.S):
            xml.etree.ElementTree.fromstring(svg)
        run('prune_picture', 'prune', mlp, '-o', 'q.onnx', '--sparsity', '0', '--sweep', '0.2,0.8', '--data', 'e.h5',
            '--report', 'q.svg')
        panels = xml.etree.ElementTree.parse('q.svg').getroot().findall('{*}svg')
        check('prune_picture_panels', [len(panel.findall('{*}circle')) for panel in panels] == [3, 3])
        run('report_of_pruning', 'report', 'prune_report.json', '-o', 'again.html')
        check('report_same_page', open('again.html').read() == text)
        run('prune_report_bare', 'prune', mlp, '-o', 'b.onnx', '--params', '0.5', '--report', 'b.html')
        check('prune_sweep_files', swept.get('outputs') == ['s-0.50.onnx', 's-0.25.onnx'])
        run('run', 'run', mlp, '--input', 'input=x.npy', '-o', 'out')
        run('run_data', 'run', mlp, '--data', 'd.h5', '-o', 'out.h5')
        if shutil.which('mpirun'):
            shared(mlp)
        else:
            report('SKIP', 'run_pipeline', 'no mpirun (openmpi-bin)')
        run('validate', 'validate', mlp, 'q.onnx', '--data', 'd.h5', '--latency', '--any-accuracy')
        run('inspect_ranges', 'inspect', 'q.onnx', '--ranges')
        run('diagnose', 'diagnose', mlp, 'q.onnx', '--data', 'e.h5', '--report', 'x.html', '--fix', 'm.onnx')
        run('report', 'report', 'validate.json')
        run('replay', 'replay', 'quantize.json')
        bench = run('bench', 'bench', mlp, '--shapes', 'input:32x1x28x28', '--duration', '0.2')
        run('bench_streams', 'bench', mlp, '--streams', '2', '--duration', '0.1', '--profile', 'p.json',
            '--trace', 't.json')
        found = facts_problems(json.load(open('p.json')))
        check('bench_profile', not found, '; '.join(found[:3]))
        run('inspect_measured', 'inspect', mlp, '--device', 'h200', '--measured', 'p.json')
        found = trace_problems(json.load(open('t.json')))
        check('bench_trace', not found, '; '.join(found[:3]))
        check('bench_shapes', bench.get('shapes') == {'input': [32, 1, 28, 28]})
        for name in ('ops', 'doctor', 'version'):
            run(name, name)
        serve(mlp)
        load(mlp)
    finish()


main()

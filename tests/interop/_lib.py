# SPDX-License-Identifier: Apache-2.0
"""What the interop tests share: where things are, how a result is printed, how pare is run."""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARE = os.environ.get('PARE', str(ROOT / 'build' / 'pare'))
ZOO = ROOT / 'datasets' / 'zoo'
MODELS = pathlib.Path(os.environ['PARE_MODELS']) if os.environ.get('PARE_MODELS') else None

_failed, _judged = False, False


def report(word, name, reason=''):
    """One result line: PASS, FAIL or SKIP."""
    global _failed, _judged
    _failed, _judged = _failed or word == 'FAIL', True
    print(f'{word} {name}: {reason}' if reason else f'{word} {name}', flush=True)


def check(name, good, reason=''):
    """PASS or FAIL; the reason is printed with a failure."""
    report('PASS' if good else 'FAIL', name, '' if good else reason)
    return good


def finish():
    """Ends the script with the exit status that its results ask for; none at all are a failure."""
    sys.exit(1 if _failed or not _judged else 0)


def pare(*words, ok=True):
    """Runs pare; with ok a failure raises with its message."""
    done = subprocess.run([PARE, *map(str, words)], capture_output=True, text=True)
    if ok and done.returncode:
        raise RuntimeError(f'pare {words[0]}: exit {done.returncode}: {done.stderr.strip()}')
    return done


def ort_session(path, literal=False):
    """An ONNX Runtime session on the CPU, quiet. literal: node by node, as the file says, nothing fused."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if literal:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])


def pare_outputs(model, inputs, names=None):
    """name -> array for the given name -> array, by `pare run`. names: the outputs; else asked of ONNX
    Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        words = []
        for i, (name, array) in enumerate(inputs.items()):
            path = os.path.join(folder, f'in{i}.npy')
            np.save(path, array)
            words += ['--input', f'{name}={path}']
        out = os.path.join(folder, 'out')
        os.mkdir(out)
        facts = os.path.join(folder, 'facts.json')
        pare('run', model, *words, '-o', out, '--json', facts, '--quiet')
        names = names or [o.name for o in ort_session(model).get_outputs()]
        return {name: np.load(os.path.join(out, file_name(name) + '.npy')) for name in names}


ONNX_VERSION = '1.20.1'


def onnx_nodes(program, *words):
    """Ends the script with what a build of onnx_nodes.c makes of ONNX's operator tests."""
    import onnx
    data = pathlib.Path(onnx.__file__).parent / 'backend' / 'test' / 'data'
    folders = [data / name for name in ('node', 'simple', 'pytorch-converted', 'pytorch-operator')]
    path = pathlib.Path(PARE).parent / program
    if onnx.__version__ != ONNX_VERSION or not folders[0].is_dir() or not os.access(path, os.X_OK):
        report('SKIP', path.name, f'needs onnx {ONNX_VERSION} with its test data and {path}')
        finish()
    sys.exit(subprocess.run([str(path), *words, *map(str, folders)]).returncode)


def file_name(tensor):
    """The file a tensor's name becomes: every character but [A-Za-z0-9._-] as _."""
    return ''.join(c if c.isascii() and (c.isalnum() or c in '._-') else '_' for c in tensor)


def worst(a, b):
    """max |a - b| as a part of max |b|."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    far = np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) if a.size else 0.0
    return np.inf if np.isnan(far) else far

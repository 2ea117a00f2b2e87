# SPDX-License-Identifier: Apache-2.0
"""Ranges from one tool to the next: out of quantized models of this program and of ONNX Runtime, into calibration caches
of TensorRT, and back."""
import json
import struct
import tempfile
from pathlib import Path

import h5py
import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from _lib import ZOO, check, finish, pare, report

PLAIN = ('--no-equalization', '--bias-correction', 'none', '--mixed-precision', 0)


def listed(folder, path):
    """Tensor -> (low, high, scale, zero point) as inspect says."""
    facts = folder / 'facts.json'
    pare('inspect', path, '--ranges', '--json', facts, '--quiet')
    rows = json.loads(facts.read_text())['quantized_tensors']
    return {r['name']: (r['low'], r['high'], r['scale'], r['zero_point']) for r in rows}


def parsed(path):
    """Tensor -> (scale, zero point) as onnx reads the file."""
    graph = onnx.load(path).graph
    constant = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    return {n.input[0]: (float(constant[n.input[1]]), int(constant[n.input[2]])) for n in graph.node
            if n.op_type == 'QuantizeLinear' and n.input[0] not in constant}


def near(a, b):
    """The same tensors, scales to the last digits, zero points."""
    return a.keys() == b.keys() and all(np.isclose(a[k][0], b[k][0], rtol=1e-6) and a[k][1] == b[k][1] for k in a)


def out_of_models(folder, train):
    for kind in ('s8', 'u8'):
        for name in ('cnn', 'vit'):
            first, again = folder / f'{name}.{kind}.onnx', folder / 'again.onnx'
            pare('quantize', ZOO / f'{name}.onnx', '-o', first, '--data', train, '--activations', kind, '--quiet', *PLAIN)
            want, got = parsed(first), listed(folder, first)
            check(f'inspect/{name} {kind}', near({k: v[2:] for k, v in got.items()}, want), f'{got} {want}')
            ends = all(np.isclose(v[1] - v[0], 255 * v[2], rtol=1e-5) for v in got.values())
            check(f'inspect/{name} {kind}/ends', ends, f'{got}')
            pare('quantize', ZOO / f'{name}.onnx', '-o', again, '--ranges', first, '--activations', kind, '--quiet', *PLAIN[:3])
            check(f'again/{name} {kind}', near(parsed(again), want), f'{parsed(again)} {want}')


class Reader(CalibrationDataReader):
    def __init__(self, images):
        self.rows = iter([{'input': images[i:i + 1]} for i in range(len(images))])

    def get_next(self):
        return next(self.rows, None)


def out_of_another_tool(folder):
    images = np.random.default_rng(1).standard_normal((32, 1, 28, 28)).astype(np.float32)
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        theirs, ours = folder / 'theirs.onnx', folder / 'ours.onnx'
        quantize_static(str(ZOO / 'cnn.onnx'), str(theirs), Reader(images), quant_format=form, per_channel=True,
                        weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8)
        want = listed(folder, theirs)
        check(f'onnxruntime/{form.name}/listed', 'input' in want and len(want) > 3, f'{want}')
        if form == QuantFormat.QDQ:
            check('onnxruntime/QDQ/true', near({k: v[2:] for k, v in want.items()}, parsed(theirs)), f'{want}')
        pare('quantize', ZOO / 'cnn.onnx', '-o', ours, '--ranges', theirs, '--activations', 'u8', '--quiet')
        got = parsed(ours)
        both = {k: want[k][2:] for k in got if k in want}
        check(f'onnxruntime/{form.name}/taken', both and near({k: got[k] for k in both}, both), f'{got} {want}')


def caches(folder, train):
    cache, first, again = folder / 'calib.cache', folder / 'first.onnx', folder / 'again.onnx'
    for method in ('auto', 'minmax', 'entropy'):
        pare('calibrate', ZOO / 'cnn.onnx', '--data', train, '-o', cache, '--method', method, '--quiet')
        lines = cache.read_text().splitlines()
        check(f'cache/{method}/head', lines[0] == 'TRT-8601-EntropyCalibration2', lines[0])
        scales = {line[:-10]: struct.unpack('>f', bytes.fromhex(line[-8:]))[0] for line in lines[1:]}
        pare('quantize', ZOO / 'cnn.onnx', '-o', first, '--data', train, '--method', method, '--quiet', *PLAIN)
        want = parsed(first)
        check(f'cache/{method}/scales', want and all(np.isclose(scales[k], v[0], rtol=1e-6) for k, v in want.items()),
              f'{scales} {want}')
        pare('quantize', ZOO / 'cnn.onnx', '-o', again, '--ranges', cache, '--quiet', *PLAIN[:3])
        check(f'cache/{method}/read back', near(parsed(again), want), f'{parsed(again)} {want}')
    pare('calibrate', ZOO / 'cnn.onnx', '--data', train, '-o', cache, '--tensorrt', 100300, '--quiet')
    check('cache/version', cache.read_text().startswith('TRT-100300-'), cache.read_text()[:30])


def refused(folder, train):
    q = folder / 'cnn.s8.onnx'
    for case, words, want in (
            ('float model', ('quantize', ZOO / 'cnn.onnx', '-o', folder / 'x.onnx', '--ranges', ZOO / 'cnn.onnx'), 'expected a quantized model'),
            ('method without cache', ('calibrate', ZOO / 'cnn.onnx', '--data', train, '-o', folder / 'r.json', '--method', 'minmax'),
             '-o OUT.cache'),
            ('no method', ('calibrate', ZOO / 'cnn.onnx', '--data', train, '-o', folder / 'r.cache', '--method', 'best'), 'method')):
        done = pare(*words, '--quiet', ok=False)
        check(f'refused/{case}', done.returncode in (1, 2) and want in done.stderr and done.stderr.count('\n') == 1, done.stderr)
    done = pare('quantize', ZOO / 'vit.onnx', '-o', folder / 'x.onnx', '--ranges', q)
    check('another net', 'warning: ' in done.stderr and 'only 1 of its' in done.stderr, done.stderr)
    done = pare('inspect', ZOO / 'cnn.onnx', '--ranges')
    check('inspect/float model', 'no tensor is quantized' in done.stdout, done.stdout)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = pare('data', 'fashion-mnist', '-o', folder / 'data', '--quiet', ok=False)
        if made.returncode:
            report('SKIP', 'ranges', made.stderr.strip())
            finish()
        train = folder / 'train.h5'
        with h5py.File(folder / 'data' / 'train.h5') as old, h5py.File(train, 'w') as new:
            copy = new.create_dataset('input', data=old['input'][:64])
            copy.attrs.update(old['input'].attrs)
        out_of_models(folder, train)
        out_of_another_tool(folder)
        caches(folder, train)
        refused(folder, train)
    finish()


main()

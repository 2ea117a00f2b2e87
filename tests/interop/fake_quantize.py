# SPDX-License-Identifier: Apache-2.0
"""Quantized files as graphs to train, and back: untrained, the file comes back byte for byte, with masters
from its integers and from the float net; with every trained number moved, the graph's outputs are those of the
written file as the runtime runs it on integers, and as ONNX Runtime runs its Q/DQ nodes one by one (its integer
kernels lose sums of u8 by s8 that pass 16 bits where the CPU has no VNNI)."""
import pathlib
import subprocess
import tempfile

import h5py
import numpy as np
import onnx

import onnxruntime

from _lib import PARE, ZOO, check, finish, pare, pare_outputs, report

PROGRAM = pathlib.Path(PARE).parent / 'tests' / 'fake_quantize'
SAMPLES = 64
SQNR = 30  # decibels; roundings that fall on the other side of a tie
rng = np.random.default_rng(3)


def data(path):
    x = np.clip(rng.standard_normal((SAMPLES, 1, 28, 28)).astype(np.float32), -0.81, 2.02)
    with h5py.File(path, 'w') as f:
        f.create_dataset('input', data=x, chunks=(16, 1, 28, 28), compression='gzip')
        f.create_dataset('filler', data=np.zeros(4096, np.uint8))
    return x


def program(*words):
    """The program's facts: name -> number."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    words = done.stdout.split()
    return {name: float(number) for name, number in zip(words[::2], words[1::2])}


def node_by_node(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider']).run(None, {'input': x})[0]


def one(net, word, options, x, folder, source):
    channels = word != 's8-tensor'  # equalized channels of one scale keep no factor of their own
    name, model, out, back = f'{net}/{word}', ZOO / f'{net}.onnx', folder / 'int8.onnx', folder / 'back.onnx'
    pare('quantize', model, '-o', out, '--data', source, '--quiet', *options)
    for origin in ('-', model):
        facts = program(out, origin, back, 'same', source, SAMPLES)
        word = 'integers' if origin == '-' else 'floats'
        check(f'{name}/{word}/same-bytes', out.read_bytes() == back.read_bytes(), 'the untrained file changed')
        check(f'{name}/{word}/all-pairs', facts['left'] == 0 and facts['weights'] > 0, str(facts))
        check(f'{name}/{word}/biases', facts['rounded'] == facts['biases'] > 0, str(facts))
    check(f'{name}/masters', facts['from_f32'] >= (0.98 if channels else 0.5) * facts['elements'], str(facts))
    facts = program(out, model, back, 'moved', source, SAMPLES)
    check(f'{name}/moved', out.read_bytes() != back.read_bytes(), 'nothing was written')
    check(f'{name}/outputs', facts['sqnr'] >= SQNR and facts['same_top1'] >= SAMPLES - 1, str(facts))
    pare('check', back, '--quiet')
    onnx.checker.check_model(str(back), full_check=True)
    expected = node_by_node(back, x)
    got = pare_outputs(back, {'input': x})['logits']
    apart = np.abs(got - expected).max()
    far, best = apart / np.abs(expected).max(), np.sort(expected, 1)
    sure = best[:, -1] - best[:, -2] > 2 * apart  # a smaller lead says nothing of the first class
    same = (got.argmax(1) == expected.argmax(1))[sure]
    check(f'{name}/runtime', far < 0.05 and sure.sum() >= 16 and same.all(), f'apart by {far:.3f}, {sure.sum()} sure')


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    source = folder / 'data.h5'
    x = data(source)[:32]
    for net in ('mlp', 'cnn', 'resnet', 'mobilenet', 'vit'):
        for word, options in (('s8', []), ('u8', ['--activations', 'u8']), ('s8-tensor', ['--weights', 'tensor'])):
            try:
                one(net, word, options, x, folder, source)
            except Exception as error:  # the test continues with the next file
                report('FAIL', f'{net}/{word}', str(error).splitlines()[-1][:300])
finish()

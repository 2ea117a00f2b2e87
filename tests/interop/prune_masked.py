# SPDX-License-Identifier: Apache-2.0
"""What `pare prune` writes without a refit, against the masked dense model made from the two files: the original with
every weight that reads a removed channel set to 0. Valid by onnx.checker, equal in ONNX Runtime.

    PARE_MODELS=DIR third-party models, too"""
import json
import os
import pathlib
import tempfile

import h5py
import numpy as np
import onnx

from _lib import ZOO, check, finish, ort_session, pare, report
from _masked import masked, with_random_weights
from _prune import test_inputs, third_party_nets

TOLERANCE = 1e-5  # of the largest output


def run(path, inputs):
    return ort_session(path).run(None, inputs)


def judge(name, path, inputs, *words, fraction=0.5):
    """Prunes to a part of the multiply-adds (or as words say) and compares with the masked model."""
    words = (words or ('--macs', fraction)) + ('--no-refit',)
    pare('prune', path, '-o', 'smaller.onnx', '-q', '--json', 'facts.json', *words)
    original, smaller = onnx.load(path), onnx.load('smaller.onnx')
    onnx.checker.check_model(smaller, full_check=True)
    model, zeroed = masked(original, smaller)
    onnx.save(model, 'masked.onnx')
    worst = 0.0
    for a, b in zip(run('masked.onnx', inputs), run('smaller.onnx', inputs), strict=True):
        if a.shape != b.shape:
            report('FAIL', name, f'an output of shape {b.shape}, expected {a.shape}')
            return
        worst = max(worst, float(np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-3)))
    target = json.loads(pathlib.Path('facts.json').read_text())['smaller'][0]['target']
    reached = target['reached'] <= target['goal']
    check(name, worst <= TOLERANCE and zeroed > 0 and reached,
          f'differs by {worst:.1e}, {zeroed} inputs of weights masked, {target}')


def zoo_nets():
    rng = np.random.default_rng(3)
    images = rng.random((4, 1, 28, 28), np.float32)
    with h5py.File('images.h5', 'w') as file:
        file['input'] = rng.random((64, 1, 28, 28), np.float32)
    for path in sorted(ZOO.glob('*.onnx')):
        inputs = {onnx.load(path).graph.input[0].name: images}
        judge(f'{path.stem}_macs', path, inputs)
        judge(f'{path.stem}_params', path, inputs, '--params', 0.5)
        judge(f'{path.stem}_layers_rounded', path, inputs, '--macs', 0.5, '--scope', 'layer', '--round', 4)
        if path.stem != 'mlp':
            judge(f'{path.stem}_by_data', path, inputs, '--macs', 0.5, '--data', 'images.h5', '--steps', 2)


def nets_of_others():
    for name, path in third_party_nets():
        inputs = test_inputs(path)
        if name.startswith('light_'):
            onnx.save(with_random_weights(onnx.load(path)), 'light.onnx')
            path = 'light.onnx'
        try:
            judge(name, path, inputs)
        except (RuntimeError, ValueError) as error:
            report('FAIL', name, f'{type(error).__name__}: {str(error)[:300]}')


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        zoo_nets()
        nets_of_others()
    finish()


main()

# SPDX-License-Identifier: Apache-2.0
"""What the tests of pruned and refitted models share."""
import os
import pathlib
import tempfile

import h5py
import numpy as np
import onnx
from onnx import numpy_helper

from _lib import MODELS, check, finish, ort_session, pare, report

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1)


def test_inputs(path):
    """name -> array: the first test vector beside a model, or random numbers."""
    model = onnx.load(path, load_external_data=False)
    constants = {t.name for t in model.graph.initializer}
    values = [v for v in model.graph.input if v.name not in constants]
    found = (sorted(path.parent.glob('test_data_set_0/input_*.pb')) +
             sorted(path.parent.glob(f'{path.stem}*/input_*.pb')))
    inputs, rng = {}, np.random.default_rng(0)
    for i, value in enumerate(values):
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        if i < len(found):
            inputs[value.name] = numpy_helper.to_array(onnx.TensorProto.FromString(found[i].read_bytes()))
        else:
            inputs[value.name] = rng.standard_normal(shape).astype(kind)
    return inputs


def third_party_nets():
    """(name, path) of every model below PARE_MODELS; a skip where that is not set."""
    if not MODELS or not MODELS.is_dir():
        report('SKIP', 'third_party', 'PARE_MODELS names no folder')
        return
    for path in sorted(MODELS.rglob('*.onnx')):
        yield path.stem if path.stem != 'model' else path.parent.name, path


def weights(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}


def outputs(path, x):
    session = ort_session(path)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def normal(x, t, dense, ridge):
    """Centred normal equations with a ridge, relative to the mean diagonal, towards dense."""
    centred = x - x.mean(0)
    a, b = centred.T @ centred, centred.T @ (t - t.mean(0))
    add = ridge * np.trace(a) / len(a)
    return a + add * np.eye(len(a)), b + add * dense.T


def write_images(count):
    """Random pixels for the zoo's nets, in images.h5 too."""
    images = np.random.default_rng(5).random((count, 1, 28, 28), np.float32)
    with h5py.File('images.h5', 'w') as file:
        file['input'] = images
    return images


def leaves_no_trace(*target):
    """net.onnx pruned on x.h5 in another way is out.onnx once more."""
    pare('prune', 'net.onnx', '-o', 'again.onnx', *target, '--data', 'x.h5', '-q',
         '--threads', '1', '--batch', '7', '--shuffle', '3')
    same = pathlib.Path('out.onnx').read_bytes() == pathlib.Path('again.onnx').read_bytes()
    check('threads_batch_and_order_leave_no_trace', same)


def in_folder(*parts):
    """The whole test: its parts in a folder that goes afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in parts:
            part()
    finish()

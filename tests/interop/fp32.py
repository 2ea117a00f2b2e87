# SPDX-License-Identifier: Apache-2.0
"""FP32 outputs: at most 1e-4 of the largest value away from ONNX Runtime and from published vectors."""
import numpy as np
import onnx
from onnx import numpy_helper

from _lib import MODELS, ZOO, check, finish, ort_session, pare_outputs, report, worst

LIMIT = 1e-4


def tensor(path):
    t = onnx.TensorProto()
    t.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(t)


def against_ort(model, name, inputs):
    session = ort_session(model)
    expected = session.run(None, inputs)
    got = pare_outputs(model, inputs)
    for info, e in zip(session.get_outputs(), expected):
        d = worst(got[info.name], e)
        check(f'{name}/{info.name}', got[info.name].shape == e.shape and d <= LIMIT, f'differs by {d:.1e} of its maximum')


def vectors(folder, model):
    """Published input/output pairs of one model."""
    session = ort_session(model)
    for case in sorted(folder.glob('test_data_set_*')):
        inputs = {i.name: tensor(case / f'input_{n}.pb') for n, i in enumerate(session.get_inputs())}
        got = pare_outputs(model, inputs)
        for n, info in enumerate(session.get_outputs()):
            e = tensor(case / f'output_{n}.pb')
            d = worst(got[info.name], e.reshape(got[info.name].shape))
            check(f'{folder.name}/{case.name}/{info.name}', d <= LIMIT, f'differs by {d:.1e} of its maximum')


def attempt(name, function, *arguments):
    try:
        function(*arguments)
    except Exception as error:  # the test continues with the next model
        report('FAIL', name, str(error).splitlines()[-1][:300])


rng = np.random.default_rng(1)
for model in sorted(ZOO.glob('*.onnx')):
    for batch in (1, 7):
        x = rng.standard_normal((batch, 1, 28, 28)).astype(np.float32)
        attempt(model.stem, against_ort, model, f'{model.stem}/batch{batch}', {'input': x})

if MODELS is None:
    report('SKIP', 'vectors', 'PARE_MODELS is not set')
else:
    # ultraface's published boxes are the tensor before its last decoding step, also by ONNX Runtime:
    # its input is used, and ONNX Runtime says what comes out
    ultraface = MODELS / 'ultraface' / 'version-RFB-320.onnx'
    if ultraface.exists():
        x = tensor(ultraface.parent / 'test_data_set_0' / 'input_0.pb')
        attempt('ultraface', against_ort, ultraface, 'ultraface', {'input': x})
    for folder in ('squeezenet1.1', 'mnist-8', 'super-resolution-10', 'fastestdet'):
        model = next((MODELS / folder).glob('*.onnx'), None)
        if model is None:
            report('SKIP', folder, f'not in {MODELS}')
        else:
            attempt(folder, vectors, MODELS / folder, model)
    light = MODELS / 'light'
    for model in sorted(light.glob('*.onnx')) if light.is_dir() else []:
        session = ort_session(model)
        info = next(i for i in session.get_inputs())
        shape = [d if isinstance(d, int) else 1 for d in info.shape]
        n = int(np.prod(shape))
        x = (np.arange(n, dtype=np.float32) / n).reshape(shape)
        attempt(model.stem, against_ort, model, f'light/{model.stem}', {info.name: x})
finish()

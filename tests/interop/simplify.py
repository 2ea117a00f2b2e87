# SPDX-License-Identifier: Apache-2.0
"""Simplified models: ONNX's checker takes them, ONNX Runtime gives the outputs of before, and what an
exporter leaves is gone."""
import os
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

from _lib import MODELS, ZOO, check, finish, ort_session, pare, report, worst

rng = np.random.default_rng(5)
SIZES = {'silero_vad_16k_op15': {'input': (1, 512), 'state': (2, 1, 128)}}


def inputs_of(session, stem):
    made = {}
    for i in session.get_inputs():
        shape = SIZES.get(stem, {}).get(i.name, [d if isinstance(d, int) else 2 for d in i.shape])
        made[i.name] = (rng.integers(0, 2, shape) if 'int' in i.type else rng.random(shape)).astype(
            {'tensor(int64)': np.int64, 'tensor(int32)': np.int32}.get(i.type, np.float32))
    return made


def compare(name, path, folder):
    """Simplifies the file with the sizes that both are then run at."""
    out = os.path.join(folder, 'out.onnx')
    session = ort_session(path)
    feeds = inputs_of(session, name)
    shapes = ','.join(f'{n}={"x".join(map(str, a.shape))}' for n, a in feeds.items() if a.ndim)
    pare('simplify', path, '-o', out, '--shapes', shapes, '--quiet')
    onnx.checker.check_model(out, full_check=True)
    before, after = session.run(None, feeds), ort_session(out).run(None, feeds)
    far = max(worst(a, b) for a, b in zip(after, before))
    count = [len(onnx.load(p, load_external_data=False).graph.node) for p in (path, out)]
    check(name, far <= 1e-5 and count[1] <= count[0], f'{count[0]} nodes, then {count[1]}; {far:.1e} apart')
    return out


def exported():
    """What an exporter writes for x.view(x.size(0), -1) behind a permuted linear layer, by hand."""
    f, node = TensorProto.FLOAT, helper.make_node
    w = rng.standard_normal((8, 8)).astype(np.float32)
    nodes = [
        node('Shape', ['x'], ['s']), node('Constant', [], ['zero'], value_int=0),
        node('Gather', ['s', 'zero'], ['n']), node('Constant', [], ['axes'], value_ints=[0]),
        node('Unsqueeze', ['n', 'axes'], ['n1']), node('Constant', [], ['rest'], value_ints=[-1]),
        node('Cast', ['x'], ['x1'], to=f), node('Transpose', ['x1'], ['t'], perm=[0, 2, 1]),
        node('Transpose', ['t'], ['t1'], perm=[0, 2, 1]), node('MatMul', ['t1', 'w1'], ['a']),
        node('MatMul', ['t1', 'w2'], ['b']), node('Add', ['a', 'b'], ['c']), node('Dropout', ['c'], ['d']),
        node('Concat', ['n1', 'rest'], ['to'], axis=0), node('Reshape', ['d', 'to'], ['e']),
        node('Identity', ['e'], ['y'])]
    graph = helper.make_graph(
        nodes, 'g', [helper.make_tensor_value_info('x', f, ['batch', 3, 8])],
        [helper.make_tensor_value_info('y', f, ['batch', 24])],
        [onnx.numpy_helper.from_array(w, 'w1'), onnx.numpy_helper.from_array(w, 'w2')])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


with tempfile.TemporaryDirectory() as scratch:
    path = os.path.join(scratch, 'exported.onnx')
    onnx.save(exported(), path)
    left = sorted(n.op_type for n in onnx.load(compare('exported', path, scratch)).graph.node)
    check('exported/nodes', left == ['Add', 'MatMul', 'Reshape'], str(left))
    models = sorted(ZOO.glob('*.onnx')) + (sorted(MODELS.glob('*/*.onnx')) if MODELS else [])
    for path in models:
        compare(path.stem if path.stem != 'model' else path.parent.name, str(path), scratch)
    if not MODELS:
        report('SKIP', 'models', 'PARE_MODELS is not set')
finish()

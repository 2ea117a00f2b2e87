# SPDX-License-Identifier: Apache-2.0
"""Models whose shapes only a run knows, and control flow: pare against ONNX Runtime, several inputs one after the
other; then quantized."""
import os
import tempfile

import h5py
import numpy as np
import onnx
from onnx import helper

from _lib import check, finish, ort_session, pare, pare_outputs, worst
from _make import B, F, I, constant, info, node

rng = np.random.default_rng(3)


def weight(name, *shape):
    return constant(name, rng.standard_normal(shape) / np.sqrt(shape[-1]), np.float32)


def model(nodes, outputs, inits=(), shape=('batch', 6), kind=F):
    graph = helper.make_graph(nodes, 'g', [info('x', kind, shape)], [info(o, k, None) for o, k in outputs], list(inits))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


def selected():
    """Rows whose first number is positive, through a matrix product."""
    return model([node('Gather', ['x', 'zero'], ['first'], axis=1), node('Greater', ['first', 'limit'], ['keep']),
                  node('Compress', ['x', 'keep'], ['rows'], axis=0), node('MatMul', ['rows', 'w'], ['y']),
                  node('NonZero', ['keep'], ['where'])], [('y', F), ('where', I)],
                 [constant('zero', 0), constant('limit', 0, np.float32), weight('w', 6, 4)])


def computed_shape():
    """A Reshape to a size that is a sum of the input's values."""
    return model([node('Cast', ['x'], ['whole'], to=I), node('ReduceMax', ['whole'], ['n'], keepdims=0),
                  node('Sub', ['n', 'n'], ['none']), node('Add', ['none', 'three'], ['rows']),
                  node('Unsqueeze', ['rows', 'axis'], ['rows1']), node('Concat', ['rows1', 'rest'], ['to'], axis=0),
                  node('Reshape', ['x', 'to'], ['z']), node('Softmax', ['z'], ['y'], axis=-1)], [('y', F)],
                 [constant('three', 3), constant('axis', [0]), constant('rest', [-1])], (2, 6))


def repeated():
    """Range, Tile and ConstantOfShape of computed sizes."""
    return model([node('Cast', ['x'], ['whole'], to=I), node('ReduceMax', ['whole'], ['most'], keepdims=0),
                  node('Abs', ['most'], ['n0']), node('Add', ['n0', 'one'], ['n']),
                  node('Range', ['nought', 'n', 'one'], ['steps']), node('Unsqueeze', ['n', 'axis'], ['n1']),
                  node('ConstantOfShape', ['n1'], ['blank'], value=constant('v', [2.5], np.float32)),
                  node('Cast', ['steps'], ['steps1'], to=F), node('Mul', ['steps1', 'blank'], ['y'])], [('y', F)],
                 [constant('one', 1), constant('nought', 0), constant('axis', [0])])


def branch(name, nodes):
    return helper.make_graph(nodes, name, [], [info('r', F, None)])


def chosen():
    return model([node('MatMul', ['x', 'w0'], ['h']), node('Relu', ['h'], ['a']), node('ReduceSum', ['x'], ['s'], keepdims=0), node('Greater', ['s', 'limit'], ['c']),
                  node('If', ['c'], ['y'], then_branch=branch('then', [node('MatMul', ['a', 'w'], ['r'])]),
                       else_branch=branch('else', [node('Neg', ['a'], ['t']), node('MatMul', ['t', 'w2'], ['r'])]))],
                 [('y', F)],
                 [constant('limit', 0, np.float32), weight('w0', 6, 6), weight('w', 6, 4), weight('w2', 6, 3)])


def looped():
    """As many steps as the rows; the states of all steps are an output."""
    body = helper.make_graph(
        [node('MatMul', ['h', 'w'], ['p']), node('Gather', ['x', 'i'], ['row'], axis=0), node('Add', ['p', 'row'], ['q']),
         node('Tanh', ['q'], ['h1']), node('Identity', ['go'], ['go1']), node('Identity', ['h1'], ['seen'])], 'body',
        [info('i', I, []), info('go', B, []), info('h', F, [6])],
        [info('go1', B, []), info('h1', F, [6]), info('seen', F, [6])])
    return model([node('Shape', ['x'], ['s']), node('Gather', ['s', 'nought'], ['n']),
                  node('Loop', ['n', '', 'start'], ['y', 'all'], body=body)], [('y', F), ('all', F)],
                 [constant('nought', 0), constant('start', np.zeros(6), np.float32), weight('w', 6, 6)])


def scanned():
    body = helper.make_graph([node('Add', ['h', 'row'], ['h1']), node('Identity', ['h1'], ['seen'])], 'body',
                             [info('h', F, [6]), info('row', F, [6])], [info('h1', F, [6]), info('seen', F, [6])])
    return model([node('Scan', ['start', 'x'], ['y', 'all'], body=body, num_scan_inputs=1)], [('y', F), ('all', F)],
                 [constant('start', np.zeros(6), np.float32)])


def sequences():
    """Split by columns, one left out, and joined again."""
    return model([node('SplitToSequence', ['x'], ['parts'], axis=1, keepdims=1),
                  node('SequenceErase', ['parts', 'two'], ['fewer']), node('SequenceLength', ['fewer'], ['n']),
                  node('ConcatFromSequence', ['fewer'], ['y'], axis=1)], [('y', F), ('n', I)], [constant('two', 2)])


def suppressed():
    """Boxes (x1, y1, x2, y2, score, -) as a detector ends."""
    return model([node('Slice', ['x', 'i0', 'i4', 'i1'], ['box0']), node('Abs', ['box0'], ['box1']),
                  node('Unsqueeze', ['box1', 'i0'], ['boxes']), node('Slice', ['x', 'i4', 'i5', 'i1'], ['s0']),
                  node('Transpose', ['s0'], ['s1'], perm=[1, 0]), node('Unsqueeze', ['s1', 'i0'], ['scores']),
                  node('NonMaxSuppression', ['boxes', 'scores', 'most', 'overlap', 'least'], ['kept']),
                  node('Gather', ['kept', 'two'], ['at'], axis=1), node('Gather', ['x', 'at'], ['y'], axis=0)],
                 [('kept', I), ('y', F)],
                 [constant('i0', [0]), constant('i1', [1]), constant('i4', [4]), constant('i5', [5]), constant('two', 2),
                  constant('most', [5]), constant('overlap', [0.3], np.float32), constant('least', [0.1], np.float32)])


MODELS = {f.__name__: f for f in (selected, computed_shape, repeated, chosen, looped, scanned, sequences, suppressed)}


def feeds_of(m):
    rows = m.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    return [rng.standard_normal((rows or n, 6)).astype(np.float32) * 2 for n in (5, 2, 9, 5)]


def equal(got, want):
    if want.dtype.kind == 'f':
        return got.shape == want.shape and (not want.size or worst(got, want) <= 1e-5)
    return np.array_equal(got, want)


def quantized(name, path, folder):
    """INT8 of a model with a fixed part: it runs, near the float model."""
    data, out = os.path.join(folder, 'x.h5'), os.path.join(folder, 'int8.onnx')
    x = abs(rng.standard_normal((64, 6))).astype(np.float32)  # all rows, one branch
    with h5py.File(data, 'w') as f:
        f['x'] = x
    pare('quantize', path, '-o', out, '--data', data, '--batch', 8, '--quiet')
    y = ort_session(path).run(None, {'x': x[:8]})[0]
    got = pare_outputs(out, {'x': x[:8]}, [o.name for o in onnx.load(path).graph.output])
    near = next(iter(got.values()))
    check(f'quantized/{name}', near.shape == y.shape and worst(near, y) < 0.1, f'{near.shape}, {y.shape}')


with tempfile.TemporaryDirectory() as scratch:
    for name, make in MODELS.items():
        path = os.path.join(scratch, name + '.onnx')
        m = make()
        onnx.save(m, path)
        names, bad = [o.name for o in m.graph.output], []
        for k, x in enumerate(feeds_of(m)):
            want = ort_session(path).run(names, {'x': x})
            got = pare_outputs(path, {'x': x}, names)
            bad += [f'input {k}, {n}: {got[n].shape}, expected {w.shape}' for n, w in zip(names, want)
                    if not equal(got[n], w)]
        check(f'dynamic/{name}', not bad, '; '.join(bad[:3]))
    for name in ('selected', 'chosen'):
        quantized(name, os.path.join(scratch, name + '.onnx'), scratch)
finish()

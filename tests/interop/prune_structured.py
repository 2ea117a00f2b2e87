# SPDX-License-Identifier: Apache-2.0
"""Channels pruned by what the outputs lose and refitted, against the same in numpy; zoo nets against
their masked selves in ONNX Runtime."""
import json
import pathlib

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import ZOO, check, pare
from _prune import RIDGES, in_folder, leaves_no_trace, normal, outputs, weights, write_images


def make_net(path, rng):
    """4 x 4 pixels, 2 -> 6 channels, Relu, 6 -> 3, all 3 x 3; a residual after the second."""
    w1 = rng.normal(size=(6, 2, 3, 3)).astype(np.float32)
    w2 = rng.normal(size=(3, 6, 3, 3)).astype(np.float32)
    w3 = rng.normal(size=(3, 2, 1, 1)).astype(np.float32)
    b1, b2 = rng.normal(size=6).astype(np.float32), rng.normal(size=3).astype(np.float32)
    nodes = [helper.make_node('Conv', ['x', 'w1', 'b1'], ['a'], 'first', pads=[1] * 4),
             helper.make_node('Relu', ['a'], ['r'], 'relu'),
             helper.make_node('Conv', ['x', 'w3'], ['s'], 'side'),
             helper.make_node('Conv', ['r', 'w2', 'b2'], ['c'], 'second', pads=[1] * 4),
             helper.make_node('Add', ['c', 's'], ['y'], 'sum')]
    graph = helper.make_graph(
        nodes, 'g',
        [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['n', 2, 4, 4])],
        [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', 3, 4, 4])],
        [numpy_helper.from_array(v, n) for n, v in
         (('w1', w1), ('b1', b1), ('w2', w2), ('b2', b2), ('w3', w3))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)


def columns(x):
    """Rows of what a 3 x 3 window sees: (samples * 16, positions * channels), channels side by side."""
    n, c = x.shape[:2]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [padded[:, :, i:i + 4, j:j + 4] for i in range(3) for j in range(3)]
    return np.stack(taps, 1).transpose(0, 3, 4, 1, 2).reshape(n * 16, 9 * c)


def matrix(w):
    """A convolution's weight in the same order of columns."""
    return w.astype(np.float64).transpose(0, 2, 3, 1).reshape(len(w), -1)


def order_of_elimination(x, w, channels):
    """The channels in the order in which they cost least, the other columns refitted each time."""
    inverse, w = np.linalg.inv(normal(x, np.zeros((len(x), 1)), w[:1], 1e-2)[0]), w.copy()
    left, order = list(range(channels)), []
    while left:
        cost = {}
        for c in left:
            s = np.arange(9) * channels + c
            cost[c] = np.trace(w[:, s] @ np.linalg.solve(inverse[np.ix_(s, s)], w[:, s].T))
        c = min(left, key=cost.get)
        s = np.arange(9) * channels + c
        p = np.linalg.inv(inverse[np.ix_(s, s)])
        w = w - w[:, s] @ p @ inverse[s]
        inverse = inverse - inverse[:, s] @ p @ inverse[s]
        left.remove(c)
        order.append(c)
    return order


def solve(x, t, dense, ridge, kept):
    """Least squares over the columns kept; the ridge is relative to the mean diagonal of all."""
    a, b = normal(x, t, dense, ridge)
    w = np.linalg.solve(a[np.ix_(kept, kept)], b[kept]).T
    return w, t.mean(0) - w @ x[:, kept].mean(0)


def fitted(x, t, dense, held, kept):
    errors = []
    for ridge in RIDGES:
        w, c = solve(x[~held], t[~held], dense, ridge, kept)
        errors.append(np.square(t[held] - x[held][:, kept] @ w.T - c).sum())
    ridge = RIDGES[int(np.argmin(errors))]
    return *solve(x, t, dense, ridge, kept), ridge


def against_numpy():
    rng = np.random.default_rng(4)
    make_net('net.onnx', rng)
    x = rng.normal(size=(60, 2, 4, 4)).astype(np.float32)
    x[:, 1] += x[:, 0] + 0.5
    with h5py.File('x.h5', 'w') as file:
        file['x'] = x
    pare('prune', 'net.onnx', '-o', 'out.onnx', '--macs', '0.52', '--data', 'x.h5', '-q', '--json', 'out.json')
    before, after = weights('net.onnx'), weights('out.onnx')
    kept = [c for c in range(6) if any(np.array_equal(before['w1'][c], w) for w in after['w1'])]
    facts = json.loads(pathlib.Path('out.json').read_text())['smaller'][0]
    check('first_layer_keeps_its_bits', len(kept) == len(after['w1']) == 3, f'{kept}')
    check('facts_of_groups', [g for g in facts['groups'] if g['before'] == 6][0]['after'] == 3, str(facts['groups']))
    session_x = np.maximum(0, sum(
        np.einsum('nchw,oc->nohw', np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))[:, :, i:i + 4, j:j + 4],
                  before['w1'][:, :, i, j].astype(np.float64)) for i in range(3) for j in range(3))
        + before['b1'][None, :, None, None])
    rows, dense = columns(session_x), matrix(before['w2'])
    seen = np.arange(60).repeat(16) % 5 != 4
    order = order_of_elimination(rows[seen], dense, 6)
    check('least_costly_channels_go', sorted(order[:3]) == [c for c in range(6) if c not in kept], f'{order} {kept}')
    columns_kept = [k for k in range(54) if k % 6 in kept]
    t = rows @ dense.T + before['b2']
    w, c, ridge = fitted(rows, t, dense, ~seen, columns_kept)
    got = matrix(after['w2'])
    check('refit_weights', np.abs(got - w).max() < 1e-4 * np.abs(w).max(), str(np.abs(got - w).max()))
    check('refit_bias', np.abs(after['b2'] - c).max() < 1e-4, str(np.abs(after['b2'] - c).max()))
    row = [layer for layer in facts['layers'] if layer['node'] == 'second'][0]
    check('refit_ridge', abs(row['ridge'] - ridge) < 1e-12, f'{row} {ridge}')
    leaves_no_trace('--macs', '0.52')


def on_zoo():
    images = write_images(60)
    for net in ('cnn', 'mobilenet', 'vit'):
        model = ZOO / f'{net}.onnx'
        dense, errors = outputs(model, images), []
        for words in (['--no-refit'], []):
            pare('prune', model, '-o', 'half.onnx', '--macs', '0.5', '--data', 'images.h5', '-q', '--json',
                 'half.json', *words)
            onnx.checker.check_model('half.onnx', full_check=True)
            errors.append(float(np.square(outputs('half.onnx', images) - dense).mean()))
            facts = json.loads(pathlib.Path('half.json').read_text())['smaller'][0]
            left = facts['macs']['after'] / facts['macs']['before']
            check(f'{net}_macs{"_plain" if words else ""}', 0.49 < left <= 0.5, str(left))
        check(f'{net}_refit_is_nearer', errors[1] < errors[0] / 2, str(errors))


in_folder(against_numpy, on_zoo)

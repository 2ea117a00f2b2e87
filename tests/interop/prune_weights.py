# SPDX-License-Identifier: Apache-2.0
"""Single weights pruned and refitted, against the same in numpy, and in ONNX Runtime."""
import json

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import ZOO, check, pare, pare_outputs
from _prune import RIDGES, in_folder, leaves_no_trace, normal, outputs, weights, write_images


def linear_model(path, weight, bias):
    """y = x W^T + b as a Gemm."""
    outputs, columns = weight.shape
    node = helper.make_node('Gemm', ['x', 'w', 'b'], ['y'], 'layer', transB=1)
    graph = helper.make_graph(
        [node], 'g',
        [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['n', columns])],
        [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', outputs])],
        [numpy_helper.from_array(weight, 'w'), numpy_helper.from_array(bias, 'b')])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)


def surgeon(a, best, want):
    """Optimal Brain Surgeon on all rows: zeros in the order of what each costs; the mask."""
    steps = []
    for r, row in enumerate(best):
        c, w, alive, most = np.linalg.inv(a), row.copy(), np.ones(len(row), bool), 0
        for _ in row:
            cost = np.where(alive, w * w / np.maximum(np.diag(c), 1e-300), np.inf)
            p = int(cost.argmin())
            most = max(most, cost[p])
            steps.append((most, r, p))
            w -= w[p] / c[p, p] * c[:, p]
            c = c - np.outer(c[:, p], c[p]) / c[p, p]
            alive[p], w[p] = False, 0
    mask = np.ones_like(best, bool)
    for _, r, p in sorted(steps, key=lambda s: (s[0], s[1]))[:want]:
        mask[r, p] = False
    return mask


def fit(a, b, mask):
    """Least squares of each row over what its mask keeps."""
    w = np.zeros(mask.shape)
    for r, keep in enumerate(mask):
        w[r, keep] = np.linalg.solve(a[np.ix_(keep, keep)], b[keep, r])
    return w


def held_out(x, t, held, w):
    """Squared error on held-out samples of weights with means corrected on the others, over the variance there."""
    c = t[~held].mean(0) - w @ x[~held].mean(0)
    return np.square(t[held] - x[held] @ w.T - c).sum() / np.square(t[held] - t[held].mean(0)).sum()


def reference(x, t, dense, want):
    a, b = normal(x, t, dense, 1e-2)
    mask = surgeon(a, np.linalg.solve(a, b).T, want)
    held = np.arange(len(x)) % 5 == 4
    errors = []
    for ridge in RIDGES:
        errors.append(held_out(x, t, held, fit(*normal(x[~held], t[~held], dense, ridge), mask)))
    w = fit(*normal(x, t, dense, RIDGES[int(np.argmin(errors))]), mask)
    return mask, w, t.mean(0) - w @ x.mean(0), held_out(x, t, held, dense * mask), min(errors)


def against_numpy():
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(24, 24))
    x = (rng.normal(size=(200, 24)) @ mixing + rng.normal(size=24)).astype(np.float32)
    weight, bias = rng.normal(size=(10, 24)).astype(np.float32), rng.normal(size=10).astype(np.float32)
    linear_model('net.onnx', weight, bias)
    with h5py.File('x.h5', 'w') as file:
        file['x'] = x
    pare('prune', 'net.onnx', '-o', 'out.onnx', '--sparsity', '0.6', '--data', 'x.h5', '-q', '--json', 'out.json')
    got = weights('out.onnx')
    t = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    mask, w, c, masked, fitted = reference(x.astype(np.float64), t, weight.astype(np.float64), 144)
    check('surgeon_mask', np.array_equal(got['w'] != 0, mask), f'{((got["w"] != 0) != mask).sum()} differ')
    check('surgeon_weights', np.abs(got['w'] - w).max() < 1e-5, str(np.abs(got['w'] - w).max()))
    check('surgeon_bias', np.abs(got['b'] - c).max() < 1e-5, str(np.abs(got['b'] - c).max()))
    said = json.loads(open('out.json').read())['sparse'][0]['layers'][0]['held_out']
    check('surgeon_held_out', np.allclose([said['masked'], said['fitted']], [masked, fitted], rtol=1e-6), str(said))
    leaves_no_trace('--sparsity', '0.6')


def on_zoo():
    """Valid models, zeros as asked, kept values bit-exact without refit, better with."""
    images = write_images(96)
    for net in ('resnet', 'vit'):
        model = ZOO / f'{net}.onnx'
        before, dense = weights(model), outputs(model, images)
        pare('prune', model, '-o', 'plain.onnx', '--sparsity', '0.4', '-q')
        onnx.checker.check_model('plain.onnx', full_check=True)
        after = weights('plain.onnx')
        kept = all(np.array_equal(after[n].view(np.int32)[after[n] != 0], before[n].view(np.int32)[after[n] != 0])
                   for n in before if before[n].dtype == np.float32 and n in after)
        check(f'{net}_kept_bits', kept)
        pare('prune', model, '-o', 'fit.onnx', '--sparsity', '0.4', '--data', 'images.h5', '-q')
        onnx.checker.check_model('fit.onnx', full_check=True)
        error = [np.square(outputs(p, images) - dense).sum() / np.square(dense).sum()
                 for p in ('plain.onnx', 'fit.onnx')]
        check(f'{net}_refit_errs_less', error[1] < 0.5 * error[0], str(error))
        ours = next(iter(pare_outputs('fit.onnx', {'input': images}).values()))
        check(f'{net}_runs_elsewhere', np.abs(ours - outputs('fit.onnx', images)).max() < 1e-3)
        pare('prune', model, '-o', 'nm.onnx', '--nm', '2:4', '-q')
        onnx.checker.check_model('nm.onnx', full_check=True)
        check(f'{net}_two_of_four', two_of_four('nm.onnx') > 10)


def two_of_four(path):
    """How many weights have at most 2 of 4 input channels at each position; -1: one that should not."""
    model, count = onnx.load(path), 0
    values = weights(path)
    for node in model.graph.node:
        if node.op_type not in ('Conv', 'MatMul', 'Gemm') or node.input[1] not in values:
            continue
        w = values[node.input[1]]
        turned = any(a.name == 'transB' and a.i for a in node.attribute)
        w = w if node.op_type == 'Conv' or turned else w.T
        if w.shape[1] % 4 or w.shape[1] < 4:
            continue
        w = w.reshape(w.shape[0], w.shape[1], -1)
        groups = (w.reshape(w.shape[0], w.shape[1] // 4, 4, -1) != 0).sum(2)
        if groups.max() > 2:
            return -1
        count += 1
    return count


in_folder(against_numpy, on_zoo)

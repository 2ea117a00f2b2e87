# SPDX-License-Identifier: Apache-2.0
"""The masked dense model, made from two files alone: the original, and the smaller one with the weights of the
original that stay (--no-refit). Which channels a weight still reads is found by looking for its columns in
the original; those that are gone become 0 there."""
import numpy as np
import onnx
from onnx import numpy_helper

READERS = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')


def constants(model):
    """name -> array of all initializers, Constant nodes' tensors and what Reshape makes of these."""
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        for a in node.attribute:
            if node.op_type == 'Constant' and a.name == 'value':
                found[node.output[0]] = numpy_helper.to_array(a.t)
        if node.op_type == 'Reshape' and node.input[0] in found and node.input[1] in found:
            found[node.output[0]] = found[node.input[0]].reshape(found[node.input[1]])
    return found


def attribute(node, name, default):
    return next((a.i for a in node.attribute if a.name == name), default)


def kept_rows(was, now):
    """For each row of now the row of was whose values it has, ascending; two matrices."""
    if len(was) == len(now):
        return list(range(len(was)))
    rows, at = [], 0
    for row in now:
        while at < len(was) and not ((was[at] == row[0]).any() and np.isin(row, was[at]).all()):
            at += 1
        if at == len(was):
            raise ValueError('a row that the original does not have')
        rows.append(at)
        at += 1
    return rows


def gone(was, now):
    """True for each input of was (outputs, inputs, positions) that now does not read."""
    if was.shape == now.shape:
        return np.zeros(was.shape[1], bool)
    rows = kept_rows(was.reshape(len(was), -1), now.reshape(len(now), -1))
    left = iter(now[:, j].tobytes() for j in range(now.shape[1]))
    want, removed = next(left, None), np.ones(was.shape[1], bool)
    for c in range(was.shape[1]):
        if was[rows, c].tobytes() == want:
            removed[c] = False
            want = next(left, None)
    if want is not None:
        raise ValueError('an input that the original does not have')
    return removed


def as_outputs_inputs(node, w):
    """A view (groups, outputs, inputs, positions) of a weight."""
    groups = attribute(node, 'group', 1)
    if node.op_type in ('Gemm', 'MatMul'):
        return (w if attribute(node, 'transB', 0) else w.T)[None, :, :, None]
    if node.op_type == 'Conv':
        return w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    return w.reshape(groups, w.shape[0] // groups, w.shape[1], -1).swapaxes(1, 2)


def masked(original, smaller):
    """The masked dense model and how many inputs of weights became 0. ValueError where the smaller
    one has a weight that is no part of the original's."""
    model = onnx.ModelProto.FromString(original.SerializeToString())
    before, after, count = constants(original), constants(smaller), 0
    dense_nodes = {tuple(node.output): node for node in original.graph.node}
    changed = {}
    for node in smaller.graph.node:
        name = node.input[1] if node.op_type in READERS else None
        if name not in before or name not in after or before[name].ndim < 2:
            continue
        w = changed.setdefault(name, before[name].copy())
        was = as_outputs_inputs(dense_nodes[tuple(node.output)], w)
        now = as_outputs_inputs(node, after[name])
        if was.shape[2] == now.shape[2]:
            continue  # reads all it read; of depthwise convolutions whole groups go
        for a, b in zip(was, now, strict=True):
            removed = gone(a, b)
            a[:, removed] = 0
            count += int(removed.sum())
        assert np.shares_memory(was, w)
    for node in [n for n in model.graph.node if n.output[0] in changed]:
        model.graph.node.remove(node)  # a Constant, or a Reshape of one
    for holder in [t for t in model.graph.initializer if t.name in changed]:
        model.graph.initializer.remove(holder)
    model.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in changed.items())
    return model, count


def with_random_weights(model, seed=1):
    """The model with its ConstantOfShape weights replaced by random ones, so that no two channels are alike."""
    model, rng = onnx.ModelProto.FromString(model.SerializeToString()), np.random.default_rng(seed)
    model.ir_version = max(model.ir_version, 4)  # from then on initializers need not be inputs
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in [n for n in model.graph.node if n.op_type == 'ConstantOfShape']:
        value = next((a.t for a in node.attribute if a.name == 'value'), None)
        if node.input[0] not in shapes or (value is not None and value.data_type != onnx.TensorProto.FLOAT):
            continue
        shape = tuple(int(d) for d in shapes[node.input[0]])
        if len(shape) > 1:  # as He et al. 2015 start weights
            array = rng.standard_normal(shape) * np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
        else:
            array = rng.uniform(0.5, 1.5, shape)
        model.graph.node.remove(node)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    return model

# SPDX-License-Identifier: Apache-2.0
"""What a Q/DQ file says, evaluated operator by operator in float64: the measure for runtimes that
disagree about it.

The arithmetic is onnx.reference's, but for the operators below, which there round to float32 (ONNX
QuantizeLinear and DequantizeLinear 13, Erf 13, LayerNormalization 17)."""

import math

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


def along(parameter, rank, axis):
    """A scale or zero point of a tensor of this rank: one number, or one for each index of axis."""
    parameter = np.asarray(parameter)
    if parameter.size == 1:
        return parameter.reshape(())
    shape = [1] * rank
    shape[axis] = -1
    return parameter.reshape(shape)


class QuantizeLinear(OpRun):
    def _run(self, x, scale, zero=None, axis=1, saturate=None, block_size=None, output_dtype=None,
             precision=None):
        zero = np.zeros((), np.uint8) if zero is None else zero
        bounds = np.iinfo(zero.dtype)
        steps = np.rint(x.astype(np.float64) / along(scale, x.ndim, axis).astype(np.float64))
        steps += along(zero, x.ndim, axis)
        return (np.clip(steps, bounds.min, bounds.max).astype(zero.dtype),)


class DequantizeLinear(OpRun):
    def _run(self, q, scale, zero=None, axis=1, block_size=None, output_dtype=None):
        steps = q.astype(np.float64)
        if zero is not None:
            steps -= along(zero, q.ndim, axis)
        return (steps * along(scale, q.ndim, axis).astype(np.float64),)


class Erf(OpRun):
    def _run(self, x):
        return (np.frompyfunc(math.erf, 1, 1)(x).astype(np.float64),)


class LayerNormalization(OpRun):
    def _run(self, x, scale, bias=None, axis=-1, epsilon=1e-5, stash_type=None):
        axes = tuple(range(axis % x.ndim, x.ndim))
        centred = x - x.mean(axes, keepdims=True)
        y = centred / np.sqrt((centred ** 2).mean(axes, keepdims=True) + epsilon) * scale
        return (y if bias is None else y + bias,)


def widen(tensor):
    if tensor.data_type == onnx.TensorProto.FLOAT:
        wide = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))


def logits(path, images, batch=50):
    """First output over images; models with a fixed batch get that batch."""
    model = onnx.load(str(path))
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    for tensor in [*model.graph.initializer, *(attribute.t for node in constants
                                               for attribute in node.attribute)]:
        widen(tensor)
    session = ReferenceEvaluator(model, new_ops=[QuantizeLinear, DequantizeLinear, Erf,
                                                 LayerNormalization])
    first = model.graph.input[0]
    size = first.type.tensor_type.shape.dim[0]
    batch = size.dim_value or batch
    return np.concatenate([session.run(None, {first.name: images[i:i + batch].astype(np.float64)})[0]
                           for i in range(0, len(images), batch)])

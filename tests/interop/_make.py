# SPDX-License-Identifier: Apache-2.0
"""Short words for models that a test makes: types, nodes, values, constants."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

F, I, B, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
node = helper.make_node
info = helper.make_tensor_value_info


def constant(name, value, kind=np.int64):
    return numpy_helper.from_array(np.asarray(value, kind), name)


def weight(rng, name, *shape):
    """Normal, its sums over all axes but the first of about 1."""
    return constant(name, rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)

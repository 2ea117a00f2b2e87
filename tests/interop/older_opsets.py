# SPDX-License-Identifier: Apache-2.0
"""Operators in their older forms, opset 7 to 20: pare (which lifts them) against ONNX Runtime (which
runs each version as it is)."""
import os
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import check, finish, ort_session, pare_outputs, report

rng = np.random.default_rng(5)


def x(*dims):
    return rng.standard_normal(dims).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


# name, opset, operator, attributes, inputs (None: absent; the first is fed, the rest are constants),
# number of outputs
CASES = [
    ('softmax_3d_axis1', 11, 'Softmax', dict(axis=1), [x(2, 3, 4)], 1),
    ('softmax_3d_default', 9, 'Softmax', {}, [x(2, 3, 4)], 1),
    ('softmax_axis0', 7, 'Softmax', dict(axis=0), [x(3, 4)], 1),
    ('softmax_last', 12, 'Softmax', dict(axis=-1), [x(2, 3, 4)], 1),
    ('softmax_4d_channels', 10, 'Softmax', dict(axis=1), [x(2, 5, 1, 1)], 1),
    ('logsoftmax_axis1', 11, 'LogSoftmax', dict(axis=1), [x(2, 3, 4)], 1),
    ('clip_both', 7, 'Clip', dict(min=-0.5, max=0.5), [x(20)], 1),
    ('clip_min', 10, 'Clip', dict(min=0.1), [x(20)], 1),
    ('clip_max', 8, 'Clip', dict(max=0.1), [x(20)], 1),
    ('clip_none', 10, 'Clip', {}, [x(20)], 1),
    ('dropout', 7, 'Dropout', dict(ratio=0.4), [x(2, 3)], 1),
    ('dropout', 10, 'Dropout', {}, [x(2, 3)], 1),
    ('top_k', 9, 'TopK', dict(k=3, axis=-1), [x(4, 7)], 2),
    ('top_k', 10, 'TopK', dict(axis=0), [x(6, 2), ints(3)], 2),
    ('batch_norm', 7, 'BatchNormalization', dict(epsilon=1e-3),
     [x(2, 3, 4), x(3), x(3), x(3), abs(x(3)) + 1], 1),
    ('batch_norm', 9, 'BatchNormalization', {}, [x(2, 3, 4, 5), x(3), x(3), x(3), abs(x(3)) + 1], 1),
    ('arg_max', 7, 'ArgMax', dict(axis=1, keepdims=0), [x(3, 5)], 1),
    ('arg_min', 11, 'ArgMin', dict(axis=-1), [x(3, 5)], 1),
    ('squeeze', 11, 'Squeeze', dict(axes=[0, -1]), [x(1, 3, 1)], 1),
    ('squeeze_all', 7, 'Squeeze', {}, [x(1, 3, 1)], 1),
    ('unsqueeze', 11, 'Unsqueeze', dict(axes=[0, 3]), [x(2, 3)], 1),
    ('split', 11, 'Split', dict(axis=1, split=[1, 3]), [x(2, 4)], 2),
    ('split_equal', 7, 'Split', dict(axis=0), [x(4, 3)], 2),
    ('split_equal', 13, 'Split', dict(axis=1), [x(2, 4)], 2),
    ('slice', 9, 'Slice', dict(axes=[0, 1], starts=[1, -3], ends=[3, 100]), [x(4, 5)], 1),
    ('slice_no_axes', 7, 'Slice', dict(starts=[1, 0], ends=[3, -1]), [x(4, 5)], 1),
    ('pad', 10, 'Pad', dict(pads=[0, 1, 2, 0], value=0.5), [x(2, 3)], 1),
    ('pad_reflect', 7, 'Pad', dict(pads=[1, 1, 1, 1], mode='reflect'), [x(3, 3)], 1),
    ('pad_edge', 11, 'Pad', dict(mode='edge'), [x(3, 3), ints(1, 0, 0, 1)], 1),
    ('upsample', 9, 'Upsample', dict(mode='nearest'),
     [x(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32)], 1),
    ('upsample', 7, 'Upsample', dict(mode='nearest', scales=[1.0, 1.0, 2.0, 3.0]), [x(1, 2, 3, 3)], 1),
    ('upsample_linear', 9, 'Upsample', dict(mode='linear'),
     [x(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32)], 1),
    ('resize', 10, 'Resize', dict(mode='nearest'),
     [x(1, 2, 3, 3), np.array([1, 1, 2, 2], np.float32)], 1),
    ('resize', 11, 'Resize', dict(mode='linear', coordinate_transformation_mode='align_corners'),
     [x(1, 1, 3, 4), np.zeros(0, np.float32), np.zeros(0, np.float32), ints(1, 1, 6, 7)], 1),
    ('gemm', 7, 'Gemm', dict(alpha=0.5, beta=2.0, transB=1), [x(3, 4), x(5, 4), x(5)], 1),
    ('gemm', 9, 'Gemm', dict(transA=1), [x(4, 3), x(4, 5), x(3, 5)], 1),
    ('max_pool', 8, 'MaxPool', dict(kernel_shape=[2, 2], strides=[2, 2]), [x(1, 2, 5, 5)], 1),
    ('average_pool', 7, 'AveragePool', dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]), [x(1, 2, 5, 5)], 1),
    ('concat', 7, 'Concat', dict(axis=1), [x(2, 3), x(2, 2)], 1),
    ('flatten', 9, 'Flatten', dict(axis=2), [x(2, 3, 4)], 1),
    ('gather', 10, 'Gather', dict(axis=1), [x(2, 5), ints(0, 3)], 1),
    ('prelu', 7, 'PRelu', {}, [x(2, 3, 4), x(3, 1)], 1),
    ('add', 7, 'Add', {}, [x(2, 3, 4), x(3, 1)], 1),
    ('sum', 8, 'Sum', {}, [x(2, 3), x(3), x(2, 1)], 1),
    ('mean', 8, 'Mean', {}, [x(2, 3), x(3), x(2, 1)], 1),
    ('erf', 9, 'Erf', {}, [x(7)], 1),
    ('quantize', 10, 'QuantizeLinear', {}, [x(9), np.float32(0.1), np.uint8(128)], 1),
    ('cum_sum', 11, 'CumSum', dict(reverse=1), [x(3, 4), np.int32(1)], 1),
    ('group_norm', 18, 'GroupNormalization', dict(num_groups=2), [x(2, 4, 5), x(2), x(2)], 1),
    ('layer_norm', 17, 'LayerNormalization', dict(axis=1), [x(2, 3, 4), x(3, 4), x(3, 4)], 1),
    ('transpose', 7, 'Transpose', dict(perm=[2, 0, 1]), [x(2, 3, 4)], 1),
    ('reshape', 7, 'Reshape', {}, [x(2, 3, 4), ints(0, -1)], 1),
    ('expand', 8, 'Expand', {}, [x(3, 1), ints(2, 3, 4)], 1),
    ('depth_to_space', 10, 'DepthToSpace', dict(blocksize=2), [x(1, 8, 2, 3)], 1),
]
for _name in ('Sum', 'Mean', 'Max', 'Min', 'Prod', 'L1', 'L2', 'SumSquare', 'LogSumExp'):
    for _opset in (7, 11, 12, 17):
        if _name != 'Sum' or _opset < 13:
            CASES.append((f'reduce_{_name.lower()}', _opset, 'Reduce' + _name,
                          dict(axes=[0, 2], keepdims=_opset % 2), [x(2, 3, 4)], 1))
    CASES.append((f'reduce_{_name.lower()}_all', 11, 'Reduce' + _name, {}, [x(2, 3)], 1))


def model_of(opset, op, attributes, inputs, outputs):
    names, constants = [], []
    for i, value in enumerate(inputs):
        names.append('' if value is None else f'in{i}')
        if i and value is not None:
            constants.append(numpy_helper.from_array(np.asarray(value), f'in{i}'))
    made = [f'out{i}' for i in range(outputs)]
    fed = helper.make_tensor_value_info('in0', TensorProto.FLOAT, inputs[0].shape)
    graph = helper.make_graph([helper.make_node(op, names, made, **attributes)], 'g', [fed],
                              [onnx.ValueInfoProto(name=n) for n in made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)])
    model.ir_version = 6
    return onnx.shape_inference.infer_shapes(model)


with tempfile.TemporaryDirectory() as folder:
    for name, opset, op, attributes, inputs, outputs in CASES:
        name = f'older_opsets/{name}_{opset}'
        path = os.path.join(folder, 'm.onnx')
        onnx.save(model_of(opset, op, attributes, inputs, outputs), path)
        try:
            want = ort_session(path).run(None, {'in0': inputs[0]})
        except Exception as error:  # not every old version has a kernel there
            report('SKIP', name, f'ONNX Runtime: {str(error).splitlines()[0][:150]}')
            continue
        try:
            got = list(pare_outputs(path, {'in0': inputs[0]}).values())
        except RuntimeError as error:
            check(name, False, str(error)[:200])
            continue
        bad = [i for i, (a, b) in enumerate(zip(got, want))
               if a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b, 1e-5, 1e-6)]
        check(name, not bad and len(got) == len(want), f'outputs {bad} differ')
finish()

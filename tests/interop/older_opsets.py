# SPDX-License-Identifier: Apache-2.0
"""Operators in their older forms: pare (which lifts them) against ONNX Runtime (which runs each version
from opset 7 on as it is) or, in opsets 1 to 6, against what NumPy makes of ONNX's definition."""
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
    ('resize_grows', 10, 'Resize', dict(mode='nearest'), [x(1, 2, 3, 4), np.array([1, 1, 1.6, 2.3], np.float32)], 1),
    ('resize_shrinks', 10, 'Resize', dict(mode='nearest'), [x(1, 2, 7, 9), np.array([1, 1, .6, .35], np.float32)], 1),
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


def average_1(a):  # 3 by 3 windows, pads of 1 that do not count
    p, n = np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)]), np.pad(np.ones_like(a), [(0, 0), (0, 0), (1, 1), (1, 1)])
    cells = [(i, j) for i in range(3) for j in range(3)]
    h, w = a.shape[2:]
    return sum(p[:, :, i:i + h, j:j + w] for i, j in cells) / sum(n[:, :, i:i + h, j:j + w] for i, j in cells)


def channels(v):
    return v.reshape(-1, 1, 1)


_a, _c, _bn = x(2, 3, 4, 5), x(3), [x(3), x(3), x(3), abs(x(3)) + 1]
# the same and what it makes; lists of inputs: the first is fed
OLDEST = [
    ('add', 6, 'Add', dict(broadcast=1, axis=1), [_a, _c], [_a + channels(_c)]),
    ('add_middle', 3, 'Add', dict(broadcast=1, axis=1, consumed_inputs=[0, 0]),
     [_a, (_b34 := x(3, 4))], [_a + _b34[:, :, None]]),
    ('add_from_end', 6, 'Add', dict(broadcast=1, axis=-1), [_a, (_b5 := x(5))], [_a + _b5]),
    ('sub_suffix', 6, 'Sub', dict(broadcast=1), [_a, (_b45 := x(4, 5))], [_a - _b45]),
    ('mul_one', 6, 'Mul', dict(broadcast=1, axis=0), [_a, (_b1 := x(1, 1))], [_a * _b1]),
    ('div', 1, 'Div', dict(broadcast=1, axis=0), [_a, (_b2 := x(2))], [_a / _b2.reshape(2, 1, 1, 1)]),
    ('pow', 1, 'Pow', dict(broadcast=1, axis=1), [abs(_a), _c], [abs(_a) ** channels(_c)]),
    ('less', 1, 'Less', dict(broadcast=1, axis=1), [_a, _c], [_a < channels(_c)]),
    ('greater', 1, 'Greater', {}, [_a, _a[::-1].copy()], [_a > _a[::-1]]),
    ('prelu', 6, 'PRelu', {}, [_a, _c], [np.where(_a < 0, _a * channels(_c), _a)]),
    ('prelu_one', 1, 'PRelu', dict(consumed_inputs=[0, 0]), [_a, _c[:1]],
     [np.where(_a < 0, _a * _c[0], _a)]),
    ('average_pool', 6, 'AveragePool', dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]), [_a], [average_1(_a)]),
    ('batch_norm', 6, 'BatchNormalization', dict(is_test=1, spatial=1), [_a, *_bn],
     [(_a - channels(_bn[2])) / np.sqrt(channels(_bn[3]) + 1e-5) * channels(_bn[0]) + channels(_bn[1])]),
    ('batch_norm', 1, 'BatchNormalization', dict(is_test=1, consumed_inputs=[0, 0, 0, 1, 1], epsilon=1e-3),
     [_a, *_bn],
     [(_a - channels(_bn[2])) / np.sqrt(channels(_bn[3]) + 1e-3) * channels(_bn[0]) + channels(_bn[1])]),
    ('batch_norm_elements', 6, 'BatchNormalization', dict(is_test=1, spatial=0), [(_v := x(4, 3)), *_bn],
     [(_v - _bn[2]) / np.sqrt(_bn[3] + 1e-5) * _bn[0] + _bn[1]]),
    ('dropout', 6, 'Dropout', dict(is_test=1, ratio=0.3), [_a], [_a]),
    ('dropout', 1, 'Dropout', dict(is_test=1, consumed_inputs=[0]), [_a], [_a]),
    ('gemm', 6, 'Gemm', dict(broadcast=1, transB=1, alpha=0.5), [(_m := x(4, 6)), (_w := x(5, 6)), _b5],
     [0.5 * _m @ _w.T + _b5]),
    ('concat', 3, 'Concat', {}, [_a, _a], [np.concatenate([_a, _a], 1)]),
    ('pad', 1, 'Pad', dict(paddings=[0, 1, 2, 0], value=0.5), [(_p := x(2, 3))],
     [np.pad(_p, [(0, 2), (1, 0)], constant_values=0.5)]),
    ('pad', 2, 'Pad', dict(pads=[0, 1, 2, 0], mode='edge'), [_p], [np.pad(_p, [(0, 2), (1, 0)], 'edge')]),
    ('reshape', 1, 'Reshape', dict(shape=[0, -1], consumed_inputs=[0]), [_a], [_a.reshape(2, -1)]),
    ('softmax', 1, 'Softmax', {}, [_p], [np.exp(_p) / np.exp(_p).sum(1, keepdims=True)]),
    ('clip', 1, 'Clip', dict(min=-0.5, max=0.5, consumed_inputs=[0]), [_a], [_a.clip(-0.5, 0.5)]),
    ('clip', 6, 'Clip', dict(min=-0.5), [_a], [_a.clip(-0.5)]),
    ('cast', 1, 'Cast', dict(to='INT32'), [_a * 5], [(_a * 5).astype(np.int32)]),
    ('cast', 5, 'Cast', dict(to='FLOAT16'), [_a], [_a.astype(np.float16)]),
    ('split', 1, 'Split', dict(axis=1, split=[1, 2]), [_a], [_a[:, :1], _a[:, 1:]]),
    ('split_input', 1, 'Split', dict(axis=1), [_a, np.array([2, 1], np.float32)], [_a[:, :2], _a[:, 2:]]),
    ('split_equal', 2, 'Split', dict(axis=0), [_a], [_a[:1], _a[1:]]),
    ('upsample', 1, 'Upsample', dict(height_scale=2.0, width_scale=3.0), [_a], [_a.repeat(2, 2).repeat(3, 3)]),
    ('tile', 1, 'Tile', {}, [_a, np.float32(3), np.float32(1)], [np.tile(_a, (1, 3, 1, 1))]),
    ('tile', 6, 'Tile', {}, [_p, ints(2, 2)], [np.tile(_p, (2, 2))]),
    ('top_k', 1, 'TopK', dict(k=2, axis=1), [_p],
     [-np.sort(-_p, 1)[:, :2], np.argsort(-_p, 1)[:, :2].astype(np.int64)]),
    ('elu', 1, 'Elu', dict(alpha=0.7, consumed_inputs=[0]), [_a], [np.where(_a < 0, 0.7 * np.expm1(_a), _a)]),
    ('leaky_relu', 1, 'LeakyRelu', dict(consumed_inputs=[0]), [_a], [np.where(_a < 0, 0.01 * _a, _a)]),
    ('selu', 1, 'Selu', {}, [_a], [1.0507 * np.where(_a < 0, 1.6732 * np.expm1(_a), _a)]),
    ('selu', 6, 'Selu', {}, [_a], [1.05070102214813232421875 *
                                   np.where(_a < 0, 1.67326319217681884765625 * np.expm1(_a), _a)]),
    ('hard_sigmoid', 1, 'HardSigmoid', {}, [_a], [(0.2 * _a + 0.5).clip(0, 1)]),
    ('sqrt', 1, 'Sqrt', dict(consumed_inputs=[0]), [abs(_a)], [np.sqrt(abs(_a))]),
    ('sum', 1, 'Sum', dict(consumed_inputs=[0, 0]), [_a, _a], [_a + _a]),
    ('max', 6, 'Max', {}, [_a, -_a], [abs(_a)]),
    ('mean', 1, 'Mean', {}, [_a, _a, _a], [_a]),
    ('lp_pool', 1, 'LpPool', dict(kernel_shape=[4, 5], p=2.0), [_a],
     [np.sqrt((_a * _a).sum((2, 3), keepdims=True))]),
    ('global_lp_pool', 1, 'GlobalLpPool', dict(p=1.0), [_a], [abs(_a).sum((2, 3), keepdims=True)]),
    ('instance_norm', 1, 'InstanceNormalization', dict(consumed_inputs=[0, 0, 0]), [_a, _bn[0], _bn[1]],
     [(_a - _a.mean((2, 3), keepdims=True)) / np.sqrt(_a.var((2, 3), keepdims=True) + 1e-5)
      * channels(_bn[0]) + channels(_bn[1])]),
    ('layer_norm', 11, 'LayerNormalization', dict(axis=-1, epsilon=1e-5), [_a, (_s := x(5)), _b5],
     [(_a - _a.mean(-1, keepdims=True)) / np.sqrt(_a.var(-1, keepdims=True) + 1e-5) * _s + _b5]),
]


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
    return model


def judge(name, path, fed, want):
    try:
        got = list(pare_outputs(path, {'in0': fed}, [f'out{i}' for i in range(len(want))]).values())
    except RuntimeError as error:
        check(name, False, str(error)[:200])
        return
    bad = [i for i, (a, b) in enumerate(zip(got, want))
           if a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b, 1e-5, 1e-6)]
    check(name, not bad and len(got) == len(want), f'outputs {bad} differ')


with tempfile.TemporaryDirectory() as folder:
    for name, opset, op, attributes, inputs, outputs in CASES:
        name = f'older_opsets/{name}_{opset}'
        path = os.path.join(folder, 'm.onnx')
        onnx.save(onnx.shape_inference.infer_shapes(model_of(opset, op, attributes, inputs, outputs)), path)
        try:
            want = ort_session(path).run(None, {'in0': inputs[0]})
        except Exception as error:  # not every old version has a kernel there
            report('SKIP', name, f'ONNX Runtime: {str(error).splitlines()[0][:150]}')
            continue
        judge(name, path, inputs[0], want)
    for name, opset, op, attributes, inputs, want in OLDEST:
        want = [np.asarray(w) if w.dtype != np.float64 else w.astype(np.float32) for w in want]
        model = model_of(opset, op, attributes, inputs, len(want))
        for value, array in zip(model.graph.output, want):
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        path = os.path.join(folder, 'm.onnx')
        onnx.save(model, path)
        judge(f'older_opsets/{name}_{opset}', path, inputs[0], want)
finish()

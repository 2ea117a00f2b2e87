# SPDX-License-Identifier: Apache-2.0
"""FP8 weights and activations in Q/DQ form: of files as other tools write them (one scale a tensor, or one a channel of
weights; E4M3 and E5M2) pare multiplies codes, and gives ONNX Runtime's answers; what `pare quantize --precision fp8` writes
is standard, has scales of the largest value over 448, and loses as little.

ONNX Runtime's optimizer takes a Relu ahead of QuantizeLinear away where the zero point's byte is 0, of FP8, too, where
that is no bound. So files of others run node by node; `pare check` names such a Relu, and what `--fix` writes of E4M3
runs as sessions are by default."""
import json
import pathlib
import tempfile

import h5py
import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import ZOO, check, finish, ort_session, pare, pare_outputs

FORMATS = {'e4m3': (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, 448.0),
           'e5m2': (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, 57344.0)}
rng = np.random.default_rng(3)


class Net:
    """A graph that is written from front to back."""

    def __init__(self, form):
        self.type, self.dtype, self.most = FORMATS[form]
        self.nodes, self.constants = [], []

    def constant(self, array):
        name = f'c{len(self.constants)}'
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def codes(self, array):
        name = f'c{len(self.constants)}'
        codes = np.asarray(array, np.float32).astype(self.dtype)
        self.constants.append(helper.make_tensor(name, self.type, codes.shape, codes.tobytes(), raw=True))
        return name

    def op(self, kind, *inputs, **attributes):
        name = f't{len(self.nodes)}'
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f'n{len(self.nodes)}', **attributes))
        return name

    def pair(self, x, largest):
        scale, zero = self.constant(np.float32(largest / self.most)), self.codes(0)
        return self.op('DequantizeLinear', self.op('QuantizeLinear', x, scale, zero), scale, zero)

    def weight(self, w, axis):
        """axis None: one scale for all."""
        over = tuple(i for i in range(w.ndim) if i != axis)
        scale = np.abs(w).max(axis=over, keepdims=True).astype(np.float32) / np.float32(self.most)
        flat = scale.reshape(-1) if axis is not None else scale.reshape(())
        where = {} if axis is None else {'axis': axis}
        return self.op('DequantizeLinear', self.codes(w / scale), self.constant(flat), self.codes(np.zeros_like(flat)), **where)

    def save(self, path, shape, y):
        self.nodes.append(helper.make_node('Identity', [y], ['y']))
        graph = helper.make_graph(self.nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, shape)],
                                  [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 20)], ir_version=9), path)


def normal(*shape, size=1.0):
    return (rng.normal(size=shape) * size).astype(np.float32)


def products(net, per_channel):
    y = net.op('MatMul', net.pair('x', 4), net.weight(normal(96, 160, size=0.1), 1 if per_channel else None))
    y = net.op('Gelu' if per_channel else 'Relu', net.op('Add', y, net.constant(normal(160))))
    y = net.op('Gemm', net.pair(y, 6), net.weight(normal(64, 160, size=0.1), 0 if per_channel else None),
               net.constant(normal(64)), transB=1)
    return (37, 96), net.pair(y, 5), 2


def convolutions(net, per_channel):
    def conv(x, channels, filters, side, stride=1, group=1):
        pair, w = net.pair(x, 4), normal(filters, channels // group, side, side, size=0.7 * (channels // group)**-0.5 / side)
        weight, bias = net.weight(w, 0 if per_channel else None), net.constant(normal(filters, size=0.1))
        return net.op('Conv', pair, weight, bias, kernel_shape=[side, side], pads=[side // 2] * 4, strides=[stride] * 2,
                      group=group), pair

    y = net.op('MaxPool', net.op('Relu', conv('x', 3, 32, 7, 2)[0]), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    a, skip = conv(y, 32, 64, 3)
    b = net.op('Relu', net.op('Add', conv(net.op('Relu', a), 64, 32, 1)[0], skip))
    c = conv(net.op('Relu', conv(b, 32, 32, 3, group=32)[0]), 32, 48, 3, 2)[0]
    flat = net.op('Flatten', net.op('GlobalAveragePool', c))
    return (2, 3, 40, 40), net.op('MatMul', net.pair(flat, 2), net.weight(normal(48, 10), 1 if per_channel else None)), 6


def attention(net, per_channel):
    heads, x = [], net.pair('x', 4)
    for i in range(3):
        y = net.op('MatMul', x, net.weight(normal(64, 64, size=0.15), 1 if per_channel else None))
        y = net.op('Reshape', y, net.constant(np.array([2, 17, 4, 16])))
        heads.append(net.pair(net.op('Transpose', y, perm=[0, 2, 3, 1] if i == 1 else [0, 2, 1, 3]), 5))
    scores = net.op('Mul', net.op('MatMul', heads[0], heads[1]), net.constant(np.float32(0.25)))
    y = net.op('MatMul', net.pair(net.op('Softmax', scores, axis=-1), 1), heads[2])
    y = net.op('Reshape', net.op('Transpose', y, perm=[0, 2, 1, 3]), net.constant(np.array([2, 17, 64])))
    y = net.op('MatMul', net.pair(y, 3), net.weight(normal(64, 64, size=0.15), 1 if per_channel else None))
    return (2, 17, 64), net.op('Add', y, 'x'), 6


def foreign_files(folder):
    for form in FORMATS:
        for make in (products, convolutions, attention):
            for per_channel in (False, True):
                name = f"{make.__name__}/{form}/{'channel' if per_channel else 'tensor'}"
                net, path = Net(form), folder / 'net.onnx'
                shape, y, count = make(net, per_channel)
                net.save(path, shape, y)
                x = normal(*shape)
                want = ort_session(path, literal=True).run(None, {'x': x})[0]
                got = pare_outputs(path, {'x': x}, ['y'])['y']
                apart = np.abs(got - want).max() / np.abs(want).max()
                # a sum that ends near the middle of two codes may take the other one
                step = {'e4m3': 2**-3, 'e5m2': 2**-2}[form]
                check(f'{name}/onnxruntime', apart <= step, f'{apart:.3g} of the largest output apart')
                relus = any(n.op_type == 'Relu' for n in net.nodes)
                done = pare('check', path, '--target', 'onnxruntime', '--fix', folder / 'fixed.onnx', ok=False)
                check(f'{name}/fixed', done.returncode == 0, done.stdout)
                check(f'{name}/named', relus == ('relu: node' in pare('check', path, '--target', 'onnxruntime', ok=False).stdout))
                if form == 'e4m3':  # of E5M2 its optimizer makes other numbers without a Relu, too
                    default = ort_session(folder / 'fixed.onnx').run(None, {'x': x})[0]
                    apart = np.abs(default - want).max() / np.abs(want).max()
                    check(f'{name}/optimized', apart <= step, f'{apart:.3g} of the largest output apart')
                rms = np.sqrt(np.mean((got - want)**2) / np.mean(want**2))
                check(f'{name}/mean', rms <= step / 8, f'{rms:.3g} of the outputs apart in the mean')
                pare('inspect', path, '--device', 'h200', '--json', folder / 'facts.json', '--quiet')
                codes = [s for s in walk(json.loads((folder / 'facts.json').read_text())) if s.get('op_type') in ('FusedConv', 'FusedMatMul')
                         and s['precision'].startswith('float8')]
                check(f'{name}/of codes', len(codes) == count, f'{len(codes)} products of codes, expected {count}')


def walk(facts):
    """All objects of a JSON value."""
    if isinstance(facts, dict):
        yield facts
        facts = list(facts.values())
    for item in facts if isinstance(facts, list) else []:
        yield from walk(item)


def own_files(folder):
    data = folder / 'data.h5'
    for name in ('mlp', 'cnn', 'resnet', 'mobilenet'):
        model = onnx.load(ZOO / f'{name}.onnx')
        graph = model.graph
        shape = [d.dim_value or 64 for d in graph.input[0].type.tensor_type.shape.dim]
        with h5py.File(data, 'w') as f:
            f[graph.input[0].name] = normal(64, *shape[1:])
        out, facts = folder / f'{name}.fp8.onnx', folder / 'facts.json'
        pare('quantize', ZOO / f'{name}.onnx', '-o', out, '--precision', 'fp8', '--data', data, '--json', facts, '--quiet')
        onnx.checker.check_model(str(out), full_check=True)
        row, made = json.loads(facts.read_text()), onnx.load(out)
        check(f'{name}/precision', row['precision'] == 'fp8' and row['opset_after'] >= 19, f'{row}')
        types = {i.data_type for i in made.graph.initializer if i.name.endswith(('_quantized', '_zero_point'))}
        check(f'{name}/types', types == {TensorProto.FLOAT8E4M3FN}, f'{types}')
        pare('check', out, '--target', 'tensorrt', '--quiet')
        x = normal(8, *shape[1:])
        if graph.input[0].type.tensor_type.shape.dim[0].dim_value:
            x = normal(*shape)
        names = [o.name for o in graph.output]
        want = ort_session(out, literal=True).run(names, {graph.input[0].name: x})
        float_y = ort_session(ZOO / f'{name}.onnx').run(names, {graph.input[0].name: x})
        got = pare_outputs(out, {graph.input[0].name: x}, names)
        for n, y, f in zip(names, want, float_y):
            rms = np.sqrt(np.mean((got[n] - y)**2) / np.mean(y**2))
            check(f'{name}/onnxruntime', rms <= 2**-5, f'{rms:.3g} of the outputs apart in the mean')
            loss = np.sqrt(np.mean((got[n] - f)**2) / np.mean(f**2))
            check(f'{name}/float', loss <= 0.15, f'{loss:.3g} from the float net')
        weights = {i.name: numpy_helper.to_array(i) for i in graph.initializer if len(i.dims) > 1}
        scales = {i.name: numpy_helper.to_array(i) for i in made.graph.initializer if i.name.endswith('_scale')}
        w = next((n for n in weights if f'{n}_scale' in scales and name == 'mlp'), None)
        if w:
            array = weights[w]
            rows = np.abs(array).max(axis=1 if scales[f'{w}_scale'].size == array.shape[0] else 0) / 448
            check(f'{name}/scales', np.allclose(scales[f'{w}_scale'], rows, rtol=1e-5), f'{w}')


with tempfile.TemporaryDirectory() as path:
    foreign_files(pathlib.Path(path))
    own_files(pathlib.Path(path))
finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What runtimes take: files with one planted violation each through `pare check --target`, its repairs, files of ONNX
Runtime's quantizer, and what `--target openvino` writes in OpenVINO."""
import json
import pathlib
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import ROOT, ZOO, check, finish, ort_session, pare, report

INPUTS, OUTPUTS = 8, 6
TYPES = {'u8': TensorProto.UINT8, 's8': TensorProto.INT8, 's16': TensorProto.INT16, 'u16': TensorProto.UINT16,
         's4': TensorProto.INT4, 'f8': TensorProto.FLOAT8E4M3FN}
LEVELS = {'u8': (97, 160), 's8': (-31, 32), 's16': (-31, 32), 'u16': (0, 63), 's4': (-8, 8), 'f8': (0, 2)}


def planted(op='Conv', x='s8', x_zero=0, w='s8', w_zero=0, bias='float', axis='outputs', channels=False, computed=False,
            scale=0.02, bias_scale=1.0, block=0, float_x=False, opset=21, residual=False):
    """A quantized operator between a float input and output; what the arguments leave is taken by all targets."""
    rng, nodes, init = np.random.default_rng(1), [], []
    conv = op == 'Conv'
    shape = [1, INPUTS, 5, 5] if conv else [4, INPUTS]
    weight = [OUTPUTS, INPUTS, 3, 3] if conv else [INPUTS, OUTPUTS]

    def constant(name, array, kind):
        array = np.asarray(array)
        init.append(helper.make_tensor(name, TYPES[kind], array.shape, array.ravel().tolist()))

    def floats(name, array):
        init.append(numpy_helper.from_array(np.asarray(array, np.float32), name))

    count = INPUTS if channels else None
    floats('x_scale', np.full(count, scale) if channels else scale)
    constant('x_zero', np.full(count, x_zero) if channels else x_zero, x)
    by = 'x_scale'
    if computed:
        nodes += [helper.make_node('ReduceMax', ['x'], ['x_max'], keepdims=0), helper.make_node('Mul', ['x_max', by], ['x_step'])]
        by = 'x_step'
    if not float_x:
        nodes += [helper.make_node('QuantizeLinear', ['x', by, 'x_zero'], ['x_q'], 'x_Q', axis=1),
                  helper.make_node('DequantizeLinear', ['x_q', by, 'x_zero'], ['x_d'], 'x_DQ', axis=1)]
    along = (0 if conv else 1) if axis == 'outputs' else (1 if conv else 0)
    constant('w', rng.integers(*LEVELS[w], weight), w)
    steps = 0.01 * (1 + np.arange(weight[along]))
    if block:
        along, steps = 0, np.full([INPUTS // block, OUTPUTS], 0.01)
    floats('w_scale', steps)
    constant('w_zero', np.full(np.shape(steps), w_zero), w)
    nodes.append(helper.make_node('DequantizeLinear', ['w', 'w_scale', 'w_zero'], ['w_d'], 'w_DQ', axis=along,
                                  **({'block_size': block} if block else {})))
    inputs = ['x' if float_x else 'x_d', 'w_d']
    if bias == 's32':
        init.append(numpy_helper.from_array(rng.integers(-90, 90, OUTPUTS).astype(np.int32), 'b'))
        floats('b_scale', np.float32(scale) * np.asarray(steps, np.float32)[:OUTPUTS] * np.float32(bias_scale))
        nodes.append(helper.make_node('DequantizeLinear', ['b', 'b_scale'], ['b_d'], 'b_DQ', axis=0))
        inputs.append('b_d')
    elif op != 'MatMul':
        floats('b', rng.standard_normal(OUTPUTS))
        inputs.append('b')
    nodes.append(helper.make_node(op, inputs, ['y'], 'op', **({'pads': [1, 1, 1, 1]} if conv else {})))
    output = 'y'
    if residual:
        floats('y_scale', 0.1)
        constant('y_zero', 0, 's8')
        for name in ('y', 'skip'):
            nodes += [helper.make_node('QuantizeLinear', [name, 'y_scale', 'y_zero'], [name + '_q'], name + '_Q'),
                      helper.make_node('DequantizeLinear', [name + '_q', 'y_scale', 'y_zero'], [name + '_d'], name + '_DQ')]
        nodes.append(helper.make_node('Add', ['y_d', 'skip_d'], ['sum'], 'add'))
        output = 'sum'
    ends = [helper.make_tensor_value_info('x', TensorProto.FLOAT, shape)]
    if residual:
        ends.append(helper.make_tensor_value_info('skip', TensorProto.FLOAT, [1, OUTPUTS, 5, 5]))
    shape = [1, OUTPUTS, 5, 5] if conv else [4, OUTPUTS]
    graph = helper.make_graph(nodes, 'planted', ends, [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=10)


def qlinear():
    """QLinearConv, as ONNX Runtime's operator-oriented quantizer writes."""
    rng = np.random.default_rng(2)
    init = [numpy_helper.from_array(np.asarray(v), n) for n, v in (
        ('s', np.float32(0.1)), ('z', np.int8(0)), ('w', rng.integers(-9, 9, (4, 3, 1, 1)).astype(np.int8)))]
    nodes = [helper.make_node('QuantizeLinear', ['x', 's', 'z'], ['q'], 'Q'),
             helper.make_node('QLinearConv', ['q', 's', 'z', 'w', 's', 'z', 's', 'z'], ['p'], 'conv'),
             helper.make_node('DequantizeLinear', ['p', 's', 'z'], ['y'], 'DQ')]
    graph = helper.make_graph(nodes, 'qlinear', [helper.make_tensor_value_info('x', TensorProto.FLOAT, [1, 3, 4, 4])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


NO, NOTE = 'refused', 'note'
# name of the rule, the model, its node and tensor, what TensorRT, ONNX Runtime and OpenVINO say
PLANTED = (
    ('operator', qlinear, (), 'conv', 'p', (NO, None, None)),
    ('opset', planted, {'op': 'MatMul', 'opset': 25}, '', '', (NO, None, None)),
    ('scale', planted, {'scale': -0.02}, 'x_Q', 'x', (NO, NO, NO)),
    ('scale', planted, {'scale': 0.0}, 'x_Q', 'x', (NO, NO, NO)),
    ('computed-scale', planted, {'computed': True}, 'x_Q', 'x', (NO, NOTE, NOTE)),
    ('activation-type', planted, {'x': 'u8'}, 'x_Q', 'x', (NO, None, None)),
    ('activation-type', planted, {'x': 's16'}, 'x_Q', 'x', (NO, NOTE, NOTE)),
    ('activation-type', planted, {'x': 'u16'}, 'x_Q', 'x', (NO, NOTE, NO)),
    ('zero-point', planted, {'x': 's8', 'x_zero': 4}, 'x_Q', 'x', (NO, None, None)),
    ('channel-activation', planted, {'channels': True}, 'x_Q', 'x', (NO, NOTE, None)),
    ('weight-type', planted, {'w': 'u8', 'w_zero': 128}, 'w_DQ', 'w', (NO, None, NOTE)),
    ('weight-type', planted, {'w': 's16'}, 'w_DQ', 'w', (NO, NOTE, NOTE)),
    ('weight-type', planted, {'w': 'f8'}, 'w_DQ', 'w', (None, NOTE, NO)),
    ('weight-zero-point', planted, {'w_zero': 3}, 'w_DQ', 'w', (NO, None, NOTE)),
    ('weight-axis', planted, {'axis': 'inputs'}, 'op', 'w', (NO, NO, NO)),
    ('weight-axis', planted, {'op': 'Gemm', 'axis': 'inputs'}, 'op', 'w', (NO, NO, NO)),
    ('int4', planted, {'w': 's4'}, 'op', 'w', (NO, None, None)),
    ('int4', planted, {'op': 'MatMul', 'w': 's4', 'float_x': True}, 'op', 'w', (NO, None, None)),
    ('int4', planted, {'op': 'MatMul', 'w': 's4', 'float_x': True, 'block': 4}, 'op', 'w', (None, None, None)),
    ('weights-alone', planted, {'float_x': True}, 'op', 'w', (NOTE, None, None)),
    ('s32-bias', planted, {'bias': 's32'}, 'b_DQ', 'b', (NO, None, None)),
    ('bias-scale', planted, {'bias': 's32', 'bias_scale': 1.5, 'op': 'Gemm'}, 'op', 'b', (None, NO, None)),
    ('residual', planted, {'residual': True}, 'add', 'y', (NOTE, None, None)),
)
TARGETS = ('tensorrt', 'onnxruntime', 'openvino')


def findings(model, target, *words):
    """pare check's exit status, lines and facts."""
    facts = pathlib.Path(f'{model}.json')
    done = pare('check', model, '--target', target, '--json', facts, *words, ok=False)
    found = json.loads(facts.read_text())['target']['findings']
    facts.unlink()
    return done, found


def violations(folder):
    for number, (rule, make, how, node, tensor, says) in enumerate(PLANTED):
        model = folder / f'planted{number}.onnx'
        onnx.save(make(**dict(how)), model)
        for target, wanted in zip(TARGETS, says):
            done, found = findings(model, target)
            mine = [f for f in found if f['rule'] == rule]
            name = f'planted/{rule}/{",".join(f"{k}={v}" for k, v in dict(how).items()) or make.__name__}/{target}'
            if not wanted:
                check(name, not mine, str(mine))
                continue
            good = len(mine) == 1 and mine[0]['verdict'] == wanted and mine[0]['tensor'] == tensor
            # the line names rule, node and tensor; refusals end with exit status 1, notes alone with 0
            line = [at for at in done.stdout.splitlines() if f'{rule}: ' in at]
            good &= len(line) == 1 and f"'{tensor}'" in line[0] + "''" and line[0].startswith('note: ') == (wanted == NOTE)
            good = good and mine[0]['node'] in (node, 'op') and (not node or f"node '{mine[0]['node']}'" in line[0])
            good &= done.returncode == (1 if any(f['verdict'] == NO for f in found) else 0)
            check(name, good, f'exit {done.returncode}, {found}: {done.stdout}{done.stderr}')


def outputs(model, inputs):
    return ort_session(model, literal=True).run(None, inputs)


def repairs(folder):
    """What is repaired computes the same, node by node; what is not is said."""
    x = np.random.default_rng(3).standard_normal((1, INPUTS, 5, 5)).astype(np.float32)
    for name, how, target, remain in (
            ('activations', {'x': 'u8', 'x_zero': 128}, 'tensorrt', 0), ('weights', {'w': 'u8', 'w_zero': 128}, 'tensorrt', 0),
            ('bias', {'bias': 's32'}, 'tensorrt', 0), ('openvino', {'w': 'u8', 'w_zero': 128}, 'openvino', 0),
            ('all', {'x': 'u8', 'x_zero': 128, 'w': 'u8', 'w_zero': 128, 'bias': 's32'}, 'tensorrt', 0),
            ('bias scale', {'bias': 's32', 'bias_scale': 1.5}, 'onnxruntime', 0),
            ('remains', {'x': 'u8', 'x_zero': 100, 'bias': 's32'}, 'tensorrt', 2)):
        model, fixed = folder / 'broken.onnx', folder / 'fixed.onnx'
        onnx.save(planted(**how), model)
        done, _ = findings(model, target, '--fix', fixed)
        onnx.checker.check_model(str(fixed), full_check=True)
        same = all(np.array_equal(a, b) for a, b in zip(outputs(model, {'x': x}), outputs(fixed, {'x': x})))
        again, found = findings(fixed, target)
        refused = [f for f in found if f['verdict'] == NO]
        check(f'repair/{name}', same and len(refused) == remain and done.returncode == again.returncode == (1 if remain else 0)
              and f'{remain} problem' in done.stdout, f'same {same}, {found}: {done.stdout}{done.stderr}')


def other_tool(folder):
    """A file of ONNX Runtime's quantizer: u8 activations with zero points and s32 biases, all of them named."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(4)
            self.left = [{'input': rng.random((1, 1, 28, 28), np.float32)} for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    model = folder / 'ort.onnx'
    quantize_static(str(ZOO / 'cnn.onnx'), str(model), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    made = onnx.load(model)
    pairs = sum(n.op_type == 'QuantizeLinear' for n in made.graph.node)
    kinds = {i.name: i.data_type for i in made.graph.initializer}
    biases = sum(n.op_type == 'DequantizeLinear' and kinds.get(n.input[0]) == TensorProto.INT32 for n in made.graph.node)
    done, found = findings(model, 'tensorrt')
    count = {rule: sum(f['rule'] == rule for f in found) for rule in ('activation-type', 's32-bias')}
    check('onnxruntime/named', done.returncode == 1 and count == {'activation-type': pairs, 's32-bias': biases} and biases > 0,
          f'{count}, {pairs} pairs, {biases} biases')
    done, found = findings(model, 'onnxruntime')
    check('onnxruntime/own', done.returncode == 0 and not [f for f in found if f['verdict'] == NO], f'{found}')


def written(folder, data):
    """What quantize writes for a target is taken by it."""
    for net in ('mlp', 'cnn', 'resnet', 'mobilenet', 'vit'):
        for target in TARGETS:
            out = folder / f'{net}.{target}.onnx'
            pare('quantize', ZOO / f'{net}.onnx', '-o', out, '--target', target, '--data', data, '--samples', 64, '--quiet')
            done, found = findings(out, target)
            noted = {f['rule'] for f in found} - {'saturation'}
            check(f'written/{net}/{target}', done.returncode == 0 and not noted, f'{found}')
        onnx.checker.check_model(str(folder / f'{net}.openvino.onnx'), full_check=True)


def openvino(folder, data):
    """Files for OpenVINO in OpenVINO: convolutions and products run on integers."""
    try:
        import openvino as ov
    except ImportError:
        report('SKIP', 'openvino', 'the package openvino is not installed')
        return
    core, out = ov.Core(), folder / 'all.onnx'
    for net in ('mlp', 'cnn', 'resnet', 'mobilenet', 'vit'):
        pare('quantize', ZOO / f'{net}.onnx', '-o', out, '--target', 'openvino', '--mixed-precision', 0, '--data', data,
             '--samples', 64, '--quiet')
        model = core.compile_model(core.read_model(out), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
        ran = {}
        for op in model.get_runtime_model().get_ordered_ops():
            info = {key: op.get_rt_info()[key].astype(str) for key in ('layerType', 'runtimePrecision')}
            ran.setdefault(info['layerType'], set()).add(info['runtimePrecision'])
        products = set().union(*(ran.get(kind, set()) for kind in ('Convolution', 'FullyConnected', 'MatMul')))
        check(f'openvino/{net}', products and products <= {'u8', 'i8'}, str(ran))
        check(f'openvino/{net}/pools', ran.get('Pooling', {'u8'}) <= {'u8', 'i8'}, str(ran))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder, data = pathlib.Path(name), ROOT / 'data' / 'train.h5'
        violations(folder)
        repairs(folder)
        other_tool(folder)
        if data.exists():
            written(folder, data)
            openvino(folder, data)
        else:
            report('SKIP', 'written', 'data/train.h5 is not there')
    finish()


main()

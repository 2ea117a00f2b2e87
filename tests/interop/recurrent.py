# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN through quantize: weights in INT8, the net in FP16, what TensorRT is given; each run by pare
and by ONNX Runtime and compared with the float net."""
import json
import os
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import check, finish, ort_session, pare, pare_outputs, worst

rng = np.random.default_rng(11)
GATES = {'LSTM': 4, 'GRU': 3, 'RNN': 1}
STEPS, BATCH, FEATURES, UNITS, SAMPLES = 20, 3, 24, 32, 12


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array, np.float32), name)


def uniform(name, *shape):
    """As PyTorch starts recurrent weights: within 1 / sqrt(units)."""
    return constant(name, rng.uniform(-1, 1, shape) / np.sqrt(UNITS))


def tagger(kind, direction, gemm=True, peepholes=False, **attributes):
    """x (batch, steps, features) -> a class for each step; without gemm the recurrent output itself."""
    ways, gates = 2 if direction == 'bidirectional' else 1, GATES[kind]
    inputs = ['xt', 'w', 'r', 'b'] + (['', '', '', 'p'] if peepholes else [])
    made = [uniform('w', ways, gates * UNITS, FEATURES), uniform('r', ways, gates * UNITS, UNITS),
            uniform('b', ways, 2 * gates * UNITS), constant('cw', rng.standard_normal((ways * UNITS, 7)) / 8),
            numpy_helper.from_array(np.array([0, 0, -1], np.int64), 'flat')]
    if peepholes:
        made.append(uniform('p', ways, 3 * UNITS))
    nodes = [helper.make_node('Transpose', ['x'], ['xt'], perm=[1, 0, 2]),
             helper.make_node(kind, inputs, ['h'], kind.lower(), hidden_size=UNITS, direction=direction, **attributes),
             helper.make_node('Transpose', ['h'], ['ht'], perm=[2, 0, 1, 3]),
             helper.make_node('Reshape', ['ht', 'flat'], ['s' if gemm else 'y'])]
    if gemm:
        nodes.append(helper.make_node('MatMul', ['s', 'cw'], ['y']))
    else:
        made = [t for t in made if t.name != 'cw']
    graph = helper.make_graph(
        nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['batch', STEPS, FEATURES])],
        [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['steps', 'batch', 7 if gemm else ways * UNITS])], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


def sqnr(exact, approximate):
    """Signal to quantization noise in dB."""
    noise = np.square(exact.astype(np.float64) - approximate).sum()
    return 10 * np.log10(np.square(exact.astype(np.float64)).sum() / max(noise, 1e-300))


def quantized(net, folder, *words):
    """The written model's path and the facts."""
    path, out, facts = (os.path.join(folder, name) for name in ('net.onnx', 'out.onnx', 'facts.json'))
    data = os.path.join(folder, 'data.h5')
    onnx.save(net, path)
    with h5py.File(data, 'w') as file:
        file['x'] = rng.standard_normal((SAMPLES, STEPS, FEATURES)).astype(np.float32)
    pare('quantize', path, '--data', data, '-o', out, '--json', facts, *words)
    with open(facts) as file:
        return path, out, json.load(file)


def weights_of(path, kind):
    """The types of W and R as they are stored."""
    model = onnx.load(path)
    stored = {t.name: t.data_type for t in model.graph.initializer}
    made_by = {node.output[0]: node for node in model.graph.node}
    node = next(n for n in model.graph.node if n.op_type == kind)
    return [stored[made_by[name].input[0] if name in made_by else name] for name in node.input[1:3]]


def run_both(path, x):
    """Of ONNX Runtime as the file is written: its fused kernels saturate on a CPU without VNNI."""
    ours = pare_outputs(path, {'x': x}, ['y'])['y']
    return ours, ort_session(path, literal=True).run(None, {'x': x})[0]


def int8_weights(name, net, kind, least=30.0):
    with tempfile.TemporaryDirectory() as folder:
        path, out, facts = quantized(net, folder, '--target', 'onnxruntime')
        x = rng.standard_normal((BATCH, STEPS, FEATURES)).astype(np.float32)
        exact = ort_session(path).run(None, {'x': x})[0]
        ours, theirs = run_both(out, x)
        small = os.path.getsize(out) / os.path.getsize(path)
        onnx.checker.check_model(onnx.load(out), full_check=True)
        check(f'{name}_is_stored_in_int8', weights_of(out, kind) == [TensorProto.INT8] * 2, 'W or R is float')
        check(f'{name}_is_counted', facts['weight_only_nodes'] == 1, f'{facts["weight_only_nodes"]} nodes')
        check(f'{name}_is_smaller', small < (0.4 if kind != "RNN" else 0.6), f'{small:.2f} of before')
        check(f'{name}_is_as_in_onnxruntime', worst(ours, theirs) < 2e-2, f'apart by {worst(ours, theirs):.2e}')
        check(f'{name}_keeps_its_signal', sqnr(exact, ours) > least, f'{sqnr(exact, ours):.1f} dB, expected {least}')


def fp16(name, net):
    """On every device: the recurrent node computes in f16 as far as the file says so."""
    with tempfile.TemporaryDirectory() as folder:
        path, out, facts = quantized(net, folder, '--precision', 'fp16')
        x = rng.standard_normal((BATCH, STEPS, FEATURES)).astype(np.float32)
        exact = ort_session(path).run(None, {'x': x})[0]
        ours = pare_outputs(out, {'x': x}, ['y'])['y']
        check(f'{name}_is_converted', weights_of(out, name.split('_')[0].upper()) == [TensorProto.FLOAT16] * 2,
              'its weights are not f16')
        check(f'{name}_keeps_its_signal', sqnr(exact, ours) > 50, f'{sqnr(exact, ours):.1f} dB')


def left_float(name, kind, reason, *words):
    with tempfile.TemporaryDirectory() as folder:
        path, out, facts = quantized(tagger(kind, 'forward'), folder, *words)
        check(f'{name}_stays_float', weights_of(out, kind) == [TensorProto.FLOAT] * 2 and not facts['weight_only_nodes'])
        check(f'{name}_says_why', any(reason in note for note in facts['notes']), f'notes: {facts["notes"]}')


def shared():
    """Two nodes that read the same weights read one dequantized constant."""
    net = tagger('GRU', 'forward', gemm=False)
    second = onnx.NodeProto.FromString(net.graph.node[1].SerializeToString())
    second.output[0], second.name = 'h_again', 'gru_again'
    net.graph.node.insert(2, second)
    net.graph.node.append(helper.make_node('Identity', ['h_again'], ['y2']))
    net.graph.output.append(helper.make_tensor_value_info('y2', TensorProto.FLOAT, [STEPS, 1, 'batch', UNITS]))
    with tempfile.TemporaryDirectory() as folder:
        _, out, facts = quantized(net, folder, '--target', 'onnxruntime')
        nodes = [n for n in onnx.load(out).graph.node if n.op_type == 'DequantizeLinear']
        check('shared_weights_are_written_once', facts['weight_only_nodes'] == 2 and len(nodes) == 2, f'{len(nodes)}')


def damaged():
    net = tagger('LSTM', 'forward')
    array = numpy_helper.to_array(net.graph.initializer[1]).copy()
    array.flat[5] = np.nan
    net.graph.initializer[1].CopyFrom(constant('r', array))
    with tempfile.TemporaryDirectory() as folder:
        try:
            quantized(net, folder, '--target', 'onnxruntime')
            said = 'nothing'
        except RuntimeError as error:
            said = str(error)
        check('nan_is_refused', "'r'" in said and not os.path.exists(os.path.join(folder, 'out.onnx')), said)


for kind in GATES:
    for direction in ('forward', 'reverse', 'bidirectional'):
        int8_weights(f'{kind.lower()}_{direction}', tagger(kind, direction), kind)
int8_weights('lstm_alone', tagger('LSTM', 'forward', gemm=False), 'LSTM')
int8_weights('lstm_peepholes', tagger('LSTM', 'bidirectional', peepholes=True), 'LSTM')
int8_weights('gru_linear_before_reset', tagger('GRU', 'forward', linear_before_reset=1), 'GRU')
for kind in GATES:
    fp16(f'{kind.lower()}_fp16', tagger(kind, 'bidirectional'))
left_float('tensorrt', 'LSTM', 'TensorRT takes no int8 weights', '--target', 'tensorrt')
left_float('openvino', 'LSTM', 'OpenVINO takes no int8 weights', '--target', 'openvino')
left_float('skipped', 'GRU', 'skipped by a pattern', '--target', 'onnxruntime', '--skip', 'op:GRU')
shared()
damaged()
finish()

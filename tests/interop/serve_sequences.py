# SPDX-License-Identifier: Apache-2.0
"""Sequences of pare serve with Triton's own client: an LSTM whose states the server keeps gives, whatever runs beside it,
the bytes of its steps one by one, and the numbers of an LSTM written down here."""
import os
import queue
import sys
import tempfile
import threading

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import check, finish, report

try:
    import tritonclient.http as triton
except ImportError as why:
    report('SKIP', 'serve_sequences', f'needs tritonclient[http]: {why}')
    sys.exit(0)
from _serve import Server, inputs_of, refuses

WIDTH, HIDDEN, STEPS, SEQUENCES = 5, 8, 12, 10
rng = np.random.default_rng(3)
W, R = (rng.normal(0, 0.5, (1, 4 * HIDDEN, n)).astype(np.float32) for n in (WIDTH, HIDDEN))
B = rng.normal(0, 0.2, (1, 8 * HIDDEN)).astype(np.float32)

CONFIG = '''max_batch_size: 8
sequence_batching {
  oldest { max_candidate_sequences: 8 max_queue_delay_microseconds: 1000 }
  max_sequence_idle_microseconds: 30000000
  control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
  state { input_name: "h" output_name: "h_next" data_type: TYPE_FP32 dims: [1, %d]
          initial_state { data_type: TYPE_FP32 dims: [1, %d] zero_data: true name: "zeros" } }
  state { input_name: "c" output_name: "c_next" data_type: TYPE_FP32 dims: [1, %d] }
}
''' % (HIDDEN, HIDDEN, HIDDEN)


def save(folder, name, config=None):
    """An LSTM of one step: x [n, 1, WIDTH], h and c [n, 1, HIDDEN]; y is h, and 100 more in a sequence's first step."""
    f = TensorProto.FLOAT
    nodes = [helper.make_node('Transpose', [a], [f'{a}_t'], perm=[1, 0, 2]) for a in ('x', 'h', 'c')]
    nodes += [helper.make_node('LSTM', ['x_t', 'W', 'R', 'B', '', 'h_t', 'c_t'], ['', 'hn', 'cn'], hidden_size=HIDDEN)]
    nodes += [helper.make_node('Transpose', [a], [b], perm=[1, 0, 2]) for a, b in (('hn', 'h_next'), ('cn', 'c_next'))]
    nodes += [helper.make_node('Mul', ['start', 'hundred'], ['more']), helper.make_node('Add', ['h_next', 'more'], ['y'])]
    constants = [numpy_helper.from_array(a, n) for n, a in (('W', W), ('R', R), ('B', B), ('hundred', np.float32([100])))]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, name,
        [value('x', f, ['n', 1, WIDTH]), value('h', f, ['n', 1, HIDDEN]), value('c', f, ['n', 1, HIDDEN]),
         value('start', f, ['n', 1, 1])],
        [value('y', f, ['n', 1, HIDDEN]), value('h_next', f, ['n', 1, HIDDEN]), value('c_next', f, ['n', 1, HIDDEN])],
        constants)
    path = os.path.join(folder, name, '1')
    os.makedirs(path)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8),
              os.path.join(path, 'model.onnx'))
    if config:
        open(os.path.join(folder, name, 'config.pbtxt'), 'w').write(config)


def infer(client, model, arrays, **more):
    return client.infer(model, inputs_of(triton, arrays), **more)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm(x):
    """(steps, HIDDEN) of x (steps, WIDTH): ONNX's LSTM, gates in the order i, o, f, c."""
    h, c, out = np.zeros(HIDDEN), np.zeros(HIDDEN), []
    for row in x.astype(np.float64):
        i, o, f, g = np.split(W[0] @ row + R[0] @ h + B[0, :4 * HIDDEN] + B[0, 4 * HIDDEN:], 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.array(out)


def by_hand(client, x):
    """The steps by the model without sequences; its states are handed on here."""
    h, c, out = np.zeros((1, 1, HIDDEN), np.float32), np.zeros((1, 1, HIDDEN), np.float32), []
    for step, row in enumerate(x):
        start = np.float32(step == 0).reshape(1, 1, 1)
        got = infer(client, 'free', {'x': row.reshape(1, 1, -1), 'h': h, 'c': c, 'start': start})
        h, c = got.as_numpy('h_next'), got.as_numpy('c_next')
        out.append(got.as_numpy('y').ravel())
    return np.array(out)


def in_sequence(client, name, x, got):
    for step, row in enumerate(x):
        answer = infer(client, 'net', {'x': row.reshape(1, 1, -1)}, sequence_id=name, sequence_start=step == 0,
                       sequence_end=step == len(x) - 1)
        got.append(answer.as_numpy('y').ravel())


def over_grpc(folder, x, want):
    """The same in calls of gRPC, and in one stream whose requests do not wait for answers."""
    try:
        import tritonclient.grpc as grpc
    except ImportError as why:
        report('SKIP', 'grpc', f'needs tritonclient[grpc]: {why}')
        return
    server = Server('--grpc-port', '0', folder)
    client, answers = grpc.InferenceServerClient(server.grpc), queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    inputs = [inputs_of(grpc, {'x': row.reshape(1, 1, -1)}) for row in x]
    for step, one in enumerate(inputs):
        client.async_stream_infer('net', one, sequence_id=5, sequence_start=step == 0, sequence_end=step == len(x) - 1)
    calls = [client.infer('net', one, sequence_id='five', sequence_start=step == 0, sequence_end=step == len(x) - 1)
             for step, one in enumerate(inputs)]
    streamed = [answers.get(timeout=60) for _ in x]
    client.stop_stream()
    for name, got in (('grpc_calls', calls), ('grpc_stream', streamed)):
        check(name, np.array_equal(np.array([one.as_numpy('y').ravel() for one in got]), want))
    check('grpc_end', server.stop() == 0, server.process.stderr.read())


with tempfile.TemporaryDirectory() as folder:
    save(folder, 'net', CONFIG)
    save(folder, 'free')
    server = Server(folder)
    client = triton.InferenceServerClient(server.url, network_timeout=60.0)
    xs = rng.normal(0, 1, (SEQUENCES, STEPS, WIDTH)).astype(np.float32)
    alone = [by_hand(client, x) for x in xs]
    want = lstm(xs[0])
    want[0] += 100
    check('is_lstm', np.abs(alone[0] - want).max() < 1e-4, np.abs(alone[0] - want).max())
    answers = [[] for _ in xs]
    names = [k + 1 if k % 2 else f'user {k}' for k in range(SEQUENCES)]  # ids are numbers or texts
    work = [threading.Thread(target=in_sequence, args=(triton.InferenceServerClient(server.url), *one))
            for one in zip(names, xs, answers)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    equal = [len(a) == STEPS and np.array_equal(np.array(a), b) for a, b in zip(answers, alone)]
    check('same_bytes', all(equal), equal)
    meta, config = client.get_model_metadata('net'), client.get_model_config('net')
    check('metadata', [i['name'] for i in meta['inputs']] == ['x'] and [o['name'] for o in meta['outputs']] == ['y'], meta)
    check('config', [s['input_name'] for s in config['sequence_batching']['state']] == ['h', 'c'], config)
    one = {'x': xs[0][0].reshape(1, 1, -1)}
    refuses('no_id', "model 'net'|sequence_id", lambda: infer(client, 'net', one))
    refuses('no_start', "the sequence '77' has not begun", lambda: infer(client, 'net', one, sequence_id=77))
    refuses('after_end', "the sequence '2' has not begun or has ended", lambda: infer(client, 'net', one, sequence_id=2))
    refuses('two_samples', '2 samples', lambda: infer(client, 'net', {'x': np.repeat(one['x'], 2, 0)}, sequence_id=5,
                                                      sequence_start=True))
    refuses('own_state', "has no input 'h'", lambda: infer(client, 'net', {**one, 'h': np.zeros((1, 1, HIDDEN), np.float32)},
                                                           sequence_id=5, sequence_start=True))
    check('end', server.stop() == 0, server.process.stderr.read())
    over_grpc(folder, xs[0], alone[0])
finish()

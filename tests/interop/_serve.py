# SPDX-License-Identifier: Apache-2.0
"""What the tests of pare serve share: the server, the models that it is given, and what they are asked."""
import atexit
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import onnx
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from _lib import PARE, ZOO, check, report

rng = np.random.default_rng(11)


class Server:
    """pare serve, from its first word to its end."""

    def __init__(self, *words, files=None):
        limit = ['prlimit', f'--nofile={files}:{files}'] if files else []
        self.process = subprocess.Popen([*limit, PARE, 'serve', '--port', '0', *map(str, words)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # does nothing to one that has ended
        self.url = self.process.stdout.readline().strip().removeprefix('http://')
        self.grpc = self.process.stdout.readline().strip().removeprefix('grpc://') if '--grpc-port' in words else ''
        if not self.url:
            why = self.process.stderr.read().strip()
            if 'install lib' in why:  # the build has no library for it
                report('SKIP', 'serve', why.splitlines()[-1])
                sys.exit(0)
            raise RuntimeError(why)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return self.process.returncode

    def raw(self, method, path, body=b'', headers=None):
        """Status, headers and body of a request that the client library would not make."""
        request = urllib.request.Request(f'http://{self.url}{path}', data=body or None, method=method,
                                         headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()


def inputs_of(triton, arrays, **how):
    """The arrays as inputs of a client's module, tritonclient.http or .grpc; how: of set_data_from_numpy."""
    listed = []
    for name, array in arrays.items():
        kind = {np.dtype(object): 'BYTES', np.dtype(bool): 'BOOL'}.get(array.dtype)
        kind = kind or array.dtype.name.upper().replace('FLOAT', 'FP')
        one = triton.InferInput(name, list(array.shape), kind)
        one.set_data_from_numpy(array, **how)
        listed.append(one)
    return listed


def refuses(name, words, call):
    """The client raises the server's message."""
    try:
        call()
        check(name, False, 'it was not refused')
    except InferenceServerException as error:
        missing = [w for w in words.split('|') if w not in str(error)]
        check(name, not missing, f'{missing} missing in: {error}')


def save(folder, name, nodes, inputs, outputs):
    path = os.path.join(folder, name, '1')
    os.makedirs(path)
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    onnx.save(model, os.path.join(path, 'model.onnx'))


TYPES = {'BOOL': TensorProto.BOOL, 'UINT8': TensorProto.UINT8, 'UINT16': TensorProto.UINT16,
         'UINT32': TensorProto.UINT32, 'UINT64': TensorProto.UINT64, 'INT8': TensorProto.INT8,
         'INT16': TensorProto.INT16, 'INT32': TensorProto.INT32, 'INT64': TensorProto.INT64,
         'FP16': TensorProto.FLOAT16, 'FP32': TensorProto.FLOAT, 'FP64': TensorProto.DOUBLE,
         'BYTES': TensorProto.STRING}


def make_repository(folder):
    """same_TYPE gives its input; two has two inputs of any length and two outputs; mean mixes samples; pick fails
    for some inputs; mlp is a sample net."""
    for word, kind in TYPES.items():
        save(folder, f'same_{word}', [helper.make_node('Identity', ['x'], ['y'])], [('x', kind, ['n', 3])],
             [('y', kind, ['n', 3])])
    f, i64 = TensorProto.FLOAT, TensorProto.INT64
    save(folder, 'two', [helper.make_node('Add', ['a', 'b'], ['sum']), helper.make_node('Mul', ['a', 'b'], ['product'])],
         [('a', f, ['n', 'm']), ('b', f, ['n', 'm'])], [('sum', f, ['n', 'm']), ('product', f, ['n', 'm'])])
    save(folder, 'mean', [helper.make_node('ReduceMean', ['x'], ['m'], axes=[0], keepdims=1),
                          helper.make_node('Sub', ['x', 'm'], ['y'])],
         [('x', f, ['n', 4])], [('y', f, ['n', 4])])
    save(folder, 'pick', [helper.make_node('Constant', [], ['table'], value=helper.make_tensor(
        't', f, [4], [10, 20, 30, 40])), helper.make_node('Gather', ['table', 'i'], ['y'])],
        [('i', i64, ['n'])], [('y', f, ['n'])])
    save(folder, 'fixed', [helper.make_node('Relu', ['x'], ['y'])], [('x', f, [2, 3])], [('y', f, [2, 3])])
    os.makedirs(os.path.join(folder, 'mlp', '3'))
    shutil.copy(ZOO / 'mlp.onnx', os.path.join(folder, 'mlp', '3', 'model.onnx'))


def sample(word, shape):
    if word == 'BYTES':
        return np.array([f'{i} ü'.encode() for i in range(int(np.prod(shape)))], object).reshape(shape)
    if word == 'BOOL':
        return rng.integers(0, 2, shape).astype(bool)
    kind = np.dtype(word.lower().replace('fp', 'float'))
    if kind.kind == 'f':
        return rng.standard_normal(shape).astype(kind)
    info = np.iinfo(kind)
    return rng.integers(info.min, min(info.max, 2**63 - 1), shape, kind, endpoint=True)


def equal(a, b):
    return a is not None and a.shape == b.shape and (a == b).all() and (a.dtype == b.dtype or b.dtype == object)


def together(samples, threads, open_client, ask):
    """The logits' bytes of each sample when `threads` clients ask side by side."""
    results = [None] * len(samples)

    def work(first):
        with open_client() as client:
            for i in range(first, len(samples), threads):
                results[i] = ask(client, samples[i]).as_numpy('logits').tobytes()
    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return results


class Asking:
    """Six clients that ask the same until the server's end. is_end: is the error what a server that ends gives?"""

    def __init__(self, open_client, ask, is_end):
        self.counts, self.broken, self.ends = [0] * 6, [], 0
        with open_client() as client:
            want = ask(client).as_numpy('logits').tobytes()

        def work(t):
            with open_client() as client:
                while True:
                    try:
                        got = ask(client).as_numpy('logits').tobytes()
                    except Exception as error:  # whatever else the client library raises is a lost request
                        if is_end(error):
                            self.ends += 1
                        else:
                            self.broken.append(repr(error))
                        return
                    self.counts[t] += 1
                    if got != want:
                        self.broken.append('another result')
        self.workers = [threading.Thread(target=work, args=(t,)) for t in range(6)]
        for w in self.workers:
            w.start()

    def judge(self, name, status):
        """status: of the server, which has ended."""
        for w in self.workers:
            w.join(30)
        check(name, status == 0 and not self.broken and self.ends == 6 and min(self.counts) > 0,
              f'exit {status}, {self.counts} answered, {self.ends} ended well, {self.broken[:2]}')

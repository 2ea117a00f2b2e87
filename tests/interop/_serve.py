# SPDX-License-Identifier: Apache-2.0
"""What the tests of pare serve share: a server, and Triton's client."""
import atexit
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import onnx
from onnx import helper

from _lib import PARE, check, report

try:
    import tritonclient.http as triton
    import tritonclient.utils.shared_memory as shm
    from tritonclient.utils import InferenceServerException, serialize_byte_tensor
except ImportError as why:
    report('SKIP', 'serve', f'needs tritonclient[http]: {why}')
    sys.exit(0)


class Server:
    """pare serve, from its first word to its end."""

    def __init__(self, *words):
        self.process = subprocess.Popen([PARE, 'serve', '--port', '0', *map(str, words)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # does nothing to one that has ended
        self.url = self.process.stdout.readline().strip().removeprefix('http://')
        if not self.url:
            why = self.process.stderr.read().strip()
            if 'no HTTP library' in why:
                report('SKIP', 'serve', why.splitlines()[-1])
                sys.exit(0)
            raise RuntimeError(why)

    def client(self, concurrency=1):
        return triton.InferenceServerClient(self.url, concurrency=concurrency, network_timeout=60.0)

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


def inputs_of(arrays, binary):
    listed = []
    for name, array in arrays.items():
        kind = {np.dtype(object): 'BYTES', np.dtype(bool): 'BOOL'}.get(array.dtype)
        kind = kind or array.dtype.name.upper().replace('FLOAT', 'FP')
        one = triton.InferInput(name, list(array.shape), kind)
        one.set_data_from_numpy(array, binary_data=binary)
        listed.append(one)
    return listed


def infer(client, model, arrays, outputs=None, binary=True, **more):
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in outputs] if outputs else None
    return client.infer(model, inputs_of(arrays, binary), outputs=wanted, **more)


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

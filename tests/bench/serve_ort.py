# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime behind FastAPI: the inference and the metadata endpoints of the KServe protocol, version 2, with binary
tensor data, as one would write them in an afternoon. uvicorn runs it with uvloop and httptools, one process.

    MODEL=cnn.onnx uvicorn --app-dir tests/bench serve_ort:app --no-access-log

The model runs on the event loop's own thread, with one thread of its own: for models of under a millisecond that is
faster than handing requests to a pool."""
import json
import os
from pathlib import Path

import numpy as np
import onnxruntime
from fastapi import FastAPI, Request, Response

TYPES = {'tensor(float)': 'FP32', 'tensor(uint8)': 'UINT8', 'tensor(int64)': 'INT64'}
NUMPY = {'FP32': np.float32, 'UINT8': np.uint8, 'INT64': np.int64}

path = Path(os.environ['MODEL'])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry('session.intra_op.allow_spinning', '0')
session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
app = FastAPI()


def described(tensors):
    return [{'name': t.name, 'datatype': TYPES[t.type], 'shape': [d if isinstance(d, int) else -1 for d in t.shape]}
            for t in tensors]


inputs, outputs = described(session.get_inputs()), described(session.get_outputs())


@app.get('/v2/models/{name}')
def metadata(name: str):
    return {'name': name, 'versions': ['1'], 'platform': 'onnxruntime_onnx', 'inputs': inputs, 'outputs': outputs}


@app.post('/v2/models/{name}/infer')
async def infer(name: str, request: Request):
    body = await request.body()
    end = int(request.headers['inference-header-content-length'])
    head, at, given = json.loads(body[:end]), end, {}
    for tensor in head['inputs']:
        size = tensor['parameters']['binary_data_size']
        given[tensor['name']] = np.frombuffer(body, NUMPY[tensor['datatype']], offset=at,
                                              count=size // NUMPY[tensor['datatype']]().itemsize).reshape(tensor['shape'])
        at += size
    results = session.run(None, given)
    said = json.dumps({'model_name': name, 'model_version': '1', 'outputs': [
        {'name': o['name'], 'datatype': o['datatype'], 'shape': list(r.shape), 'parameters': {'binary_data_size': r.nbytes}}
        for o, r in zip(outputs, results)]}).encode()
    return Response(said + b''.join(r.tobytes() for r in results), media_type='application/octet-stream',
                    headers={'Inference-Header-Content-Length': str(len(said))})

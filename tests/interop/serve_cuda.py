# SPDX-License-Identifier: Apache-2.0
"""serve.py's clients and a server on the emulated GPU: tensors of every type, batches byte for byte, in FP32 and INT8,
loading and SIGTERM under load, and where config.pbtxt says that a model is computed."""
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np

import serve
import _serve  # after serve, which skips where the client library is missing
from _lib import ROOT, ZOO, check, finish, report

EMULATED = ROOT / 'build' / 'tests' / 'simt' / 'pare_emulated'
if not EMULATED.exists():
    report('SKIP', 'serve_cuda', f'{EMULATED} is not built')
    sys.exit(0)
_serve.PARE = str(EMULATED)


def place(client, model):
    return client.get_model_config(model)['instance_group']


def placing(folder):
    """The CPU for one model, the GPU for another, and what does not go."""
    for name, text in ('on_cpu', 'instance_group { kind: KIND_CPU count: 3 }'), ('on_gpu', 'instance_group { gpus: 0 }'):
        os.makedirs(os.path.join(folder, name, '1'))
        shutil.copy(ZOO / 'mlp.onnx', os.path.join(folder, name, '1', 'model.onnx'))
        with open(os.path.join(folder, name, 'config.pbtxt'), 'w') as file:
            file.write(text)
    for device in 'cuda', 'cpu':
        server = serve.Server(folder, '--device', device, '--max-batch', 4)
        client = server.client()
        check(f'{device}_on_cpu', place(client, 'on_cpu') == [{'name': 'on_cpu', 'kind': 'KIND_CPU', 'count': 3}],
              place(client, 'on_cpu'))
        check(f'{device}_on_gpu', place(client, 'on_gpu') == [{'name': 'on_gpu', 'kind': 'KIND_GPU', 'count': 1,
                                                               'gpus': [0]}], place(client, 'on_gpu'))
        x = serve.rng.standard_normal((2, 1, 28, 28)).astype(np.float32)
        got = [serve.infer(client, name, {'input': x}).as_numpy('logits') for name in ('on_cpu', 'on_gpu')]
        check(f'{device}_agrees', np.allclose(*got, rtol=1e-4, atol=1e-4), np.abs(got[0] - got[1]).max())
        with open(os.path.join(folder, 'on_gpu', 'config.pbtxt'), 'w') as file:
            file.write('instance_group [ { gpus: 0 }, { kind: KIND_CPU } ]')
        serve.refuses(f'{device}_both', 'KIND_CPU and KIND_GPU together', lambda: client.load_model('on_gpu'))
        with open(os.path.join(folder, 'on_gpu', 'config.pbtxt'), 'w') as file:
            file.write('instance_group { gpus: 0 }')
        check(f'{device}_end', server.stop() == 0, server.process.stderr.read())


def int8(folder):
    """A quantized net: integers are byte for byte those of the CPU."""
    path = os.path.join(folder, 'int8.onnx')
    samples = serve.rng.standard_normal((64, 1, 28, 28)).astype(np.float32)
    with h5py.File(os.path.join(folder, 'samples.h5'), 'w') as file:
        file['input'] = samples
    done = subprocess.run([EMULATED, 'quantize', ZOO / 'mlp.onnx', '--data', os.path.join(folder, 'samples.h5'),
                           '--device', 'cpu', '-q', '-o', path], capture_output=True, text=True)
    if not check('int8_made', done.returncode == 0, done.stderr):
        return
    results = {}
    for device in 'cpu', 'cuda':
        server = serve.Server(path, '--device', device, '--max-batch', 8, '--max-delay', 2000)
        results[device] = serve.together(server, [x[None] for x in samples], 4, 'int8')
        check(f'int8_{device}_end', server.stop() == 0, server.process.stderr.read())
    check('int8_same_bytes', results['cpu'] == results['cuda'])


def large_bodies():
    """Bodies of 32 KiB and more, which the GPU copies by itself: the bytes of the same samples one by one."""
    server = serve.Server(ZOO / 'mlp.onnx', '--device', 'cuda', '--max-batch', 32, '--max-delay', 2000)
    client = server.client(8)
    x = serve.rng.standard_normal((32, 1, 28, 28)).astype(np.float32)
    alone = np.concatenate([serve.infer(client, 'mlp', {'input': x[i:i + 1]}).as_numpy('logits') for i in range(32)])
    for rows in 10, 11, 16, 32:
        got = serve.infer(client, 'mlp', {'input': x[:rows]}).as_numpy('logits')
        check(f'large_{rows}', serve.equal(got, alone[:rows]), got)
    asked = [client.async_infer('mlp', serve.inputs_of({'input': x[i:i + 11]}, True)) for i in range(16)]
    check('large_together', all(serve.equal(a.get_result().as_numpy('logits'), alone[i:i + 11])
                                for i, a in enumerate(asked)))
    check('large_end', server.stop() == 0, server.process.stderr.read())


def stages(folder):
    """A model in stages on three GPUs, by config.pbtxt: the bytes of one GPU, many requests at a time."""
    os.environ['SIMT_DEVICES'] = '4'
    x = serve.rng.standard_normal((48, 1, 28, 28)).astype(np.float32)
    for name, text in ('whole', ''), ('cut', 'parameters { key: "parallel" value { string_value: "pipeline" } } '
                                             'instance_group { kind: KIND_GPU gpus: [3, 0, 1] }'):
        os.makedirs(os.path.join(folder, name, '1'))
        shutil.copy(ZOO / 'cnn.onnx', os.path.join(folder, name, '1', 'model.onnx'))
        with open(os.path.join(folder, name, 'config.pbtxt'), 'w') as file:
            file.write(text)
    server = serve.Server(folder, '--max-batch', 8, '--max-delay', 2000)
    client = server.client(8)
    check('stages_placed', place(client, 'cut') == [{'name': 'cut', 'kind': 'KIND_GPU', 'count': 3, 'gpus': [3, 0, 1]}],
          place(client, 'cut'))
    config = client.get_model_config('cut')['parameters']
    check('stages_parameter', config == {'parallel': {'string_value': 'pipeline'}}, config)
    got = {}
    for name in 'whole', 'cut':
        asked = [client.async_infer(name, serve.inputs_of({'input': x[i:i + 3]}, True)) for i in range(0, 48, 3)]
        got[name] = np.concatenate([a.get_result().as_numpy('logits') for a in asked])
    check('stages_same_bytes', serve.equal(got['whole'], got['cut']), got)
    statistics = client.get_inference_statistics('cut')['model_stats'][0]
    check('stages_statistics', statistics['inference_count'] == 48 and statistics['execution_count'] <= 16, statistics)
    server.stop()
    check('stages_end', server.process.returncode == 0 and "model 'cut' on GPUs 3, 0, 1: batches of 8 samples" in
          server.process.stderr.read())
    del os.environ['SIMT_DEVICES']


with tempfile.TemporaryDirectory() as made:
    serve.make_repository(made)
    main = serve.Server(made)
    serve.endpoints(main)
    serve.tensors(main)
    serve.mixing(main)
    serve.loading(main, made)
    check('end', main.stop() == 0, main.process.stderr.read())
serve.shared_memory()
serve.batching(('mlp', 'cnn'), 60)
serve.drain()
large_bodies()
with tempfile.TemporaryDirectory() as made:
    placing(made)
with tempfile.TemporaryDirectory() as made:
    int8(made)
with tempfile.TemporaryDirectory() as made:
    stages(made)
finish()

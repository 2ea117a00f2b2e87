# SPDX-License-Identifier: Apache-2.0
"""pare serve against Triton's own gRPC client: every method, tensors raw and typed, what is wrong, streams, concurrent
clients byte for byte as over HTTP, cancelled and late calls, limits, TLS, a token, and SIGTERM under load."""
import os
import queue
import subprocess
import sys
import tempfile
import time

import numpy as np

from _lib import ZOO, check, finish, report

try:
    import grpc
    import tritonclient.grpc as triton
    import tritonclient.http as http
    import tritonclient.utils.shared_memory as shm
    from tritonclient.grpc import service_pb2 as pb
    from tritonclient.utils import InferenceServerException, serialize_byte_tensor
except ImportError as why:
    report('SKIP', 'serve_grpc', f'needs tritonclient[grpc,http]: {why}')
    sys.exit(0)
import _serve
from _serve import TYPES, equal, make_repository, rng, sample


class Server(_serve.Server):
    def __init__(self, *words):
        super().__init__('--grpc-port', '0', *words)

    def client(self, **more):
        return triton.InferenceServerClient(self.grpc, **more)

    def call(self, method, body, stream=False, timeout=60, metadata=None, **more):
        """The reply's bytes to a message of these bytes."""
        with grpc.insecure_channel(self.grpc) as channel:
            path = f'/inference.GRPCInferenceService/{method}'
            if stream:
                return list(channel.stream_stream(path)(iter(body), timeout=timeout))
            return channel.unary_unary(path)(body, timeout=timeout, metadata=metadata, **more)


def inputs_of(arrays):
    return _serve.inputs_of(triton, arrays)


def infer(client, model, arrays, outputs=None, **more):
    wanted = [triton.InferRequestedOutput(name) for name in outputs] if outputs else None
    return client.infer(model, inputs_of(arrays), outputs=wanted, **more)


def fails(name, code, words, call):
    """The client raises the server's message with this status."""
    try:
        call()
        check(name, False, 'it was not refused')
    except InferenceServerException as error:
        check(name, error.status() == f'StatusCode.{code}' and words in str(error), error)
    except grpc.RpcError as error:
        check(name, error.code().name == code and words in error.details(), error)


def endpoints(server):
    client = server.client()
    check('live', client.is_server_live() and client.is_server_ready())
    meta = client.get_server_metadata()
    check('server_metadata', meta.name == 'pare' and 'binary_tensor_data' in meta.extensions, meta)
    check('model_ready', client.is_model_ready('mlp') and client.is_model_ready('mlp', '3') and
          not client.is_model_ready('mlp', '4') and not client.is_model_ready('none') and not client.is_model_ready(''))
    meta = client.get_model_metadata('mlp')
    check('model_metadata', list(meta.versions) == ['3'] and meta.inputs[0].name == 'input' and
          list(meta.inputs[0].shape) == [-1, 1, 28, 28] and meta.outputs[0].datatype == 'FP32', meta)
    config = client.get_model_config('mlp', '3').config
    check('model_config', config.max_batch_size == 32 and list(config.input[0].dims) == [1, 28, 28] and
          config.input[0].data_type == 11 and config.HasField('dynamic_batching') and
          config.version_policy.latest.num_versions == 1 and config.backend == 'pare', config)
    index = client.get_model_repository_index().models
    check('index', {m.name for m in index} >= {'mlp', 'two', 'same_BYTES'} and all(m.state == 'READY' for m in index),
          index)
    before = client.get_inference_statistics('mlp').model_stats[0]
    infer(client, 'mlp', {'input': np.zeros((5, 1, 28, 28), np.float32)})
    after = client.get_inference_statistics('mlp', '3').model_stats[0]
    check('statistics', after.inference_count == before.inference_count + 5 and
          after.execution_count == before.execution_count + 1 and after.inference_stats.success.count ==
          before.inference_stats.success.count + 1 and after.inference_stats.success.ns > 0 and
          after.last_inference > 1e12 and any(b.batch_size == 5 for b in after.batch_stats), after)
    other = http.InferenceServerClient(server.url).get_inference_statistics('mlp')['model_stats'][0]
    check('statistics_as_http', other['inference_count'] == after.inference_count and
          other['inference_stats']['success']['ns'] == after.inference_stats.success.ns, other)
    check('all_statistics', len(client.get_inference_statistics().model_stats) == len(index))


def tensors(server):
    client = server.client()
    for word in TYPES:
        for shape in (4, 3), (1, 3), (30, 3):
            x = sample(word, shape)
            y = infer(client, f'same_{word}', {'x': x}, ['y']).as_numpy('y')
            check(f'{word}_{shape[0]}', equal(y, x), f'{x} became {y}')
    fields = {'BOOL': 'bool', 'UINT64': 'uint64', 'INT64': 'int64', 'FP32': 'fp32', 'FP64': 'fp64', 'BYTES': 'bytes'}
    for word in TYPES:
        if word == 'FP16':
            continue  # has no field
        x = sample(word, (2, 3))
        field = fields.get(word, 'uint' if word[0] == 'U' else 'int') + '_contents'
        request = pb.ModelInferRequest(model_name=f'same_{word}')
        one = request.inputs.add(name='x', datatype=word, shape=[2, 3])
        getattr(one.contents, field).extend(x.ravel().tolist())
        got = pb.ModelInferResponse.FromString(server.call('ModelInfer', request.SerializeToString()))
        want = serialize_byte_tensor(x).item() if word == 'BYTES' else x.tobytes()
        check(f'{word}_typed', got.raw_output_contents[0] == want and list(got.outputs[0].shape) == [2, 3], got)
    a, b = rng.standard_normal((2, 3, 5)).astype(np.float32)
    done = infer(client, 'two', {'a': a, 'b': b}, request_id='mine', priority=1, timeout=50000000)
    check('two_outputs', equal(done.as_numpy('sum'), a + b) and equal(done.as_numpy('product'), a * b))
    head = done.get_response()
    check('response', head.id == 'mine' and head.model_name == 'two' and head.model_version == '1', head)
    done = infer(client, 'two', {'b': b, 'a': a}, ['product'], model_version='1')
    check('one_output', equal(done.as_numpy('product'), a * b) and done.as_numpy('sum') is None)
    answers = queue.Queue()
    client.async_infer('two', inputs_of({'a': a, 'b': b}), lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=60)
    check('async', error is None and equal(result.as_numpy('sum'), a + b), error)
    for way in 'gzip', 'deflate':
        c = rng.integers(0, 3, (4, 5000)).astype(np.float32)
        done = infer(client, 'two', {'a': c, 'b': c}, compression_algorithm=way)
        check(f'compressed_{way}', equal(done.as_numpy('sum'), c + c) and equal(done.as_numpy('product'), c * c))
    for size in 0, 1, 1000, 3000000:  # a message in no piece, in one and in many
        c = rng.standard_normal((1, size)).astype(np.float32)
        done = infer(client, 'two', {'a': c, 'b': c})
        check(f'size_{size}', equal(done.as_numpy('sum'), c + c) and equal(done.as_numpy('product'), c * c))
    x = rng.standard_normal((2, 1, 28, 28)).astype(np.float32)
    logits = infer(client, 'mlp', {'input': x}).as_numpy('logits')
    wanted = [triton.InferRequestedOutput('logits', class_count=3)]
    top = client.infer('mlp', inputs_of({'input': x}), outputs=wanted).as_numpy('logits')
    places = [[int(text.decode().split(':')[1]) for text in row] for row in top]
    check('classification', (np.array(places) == np.argsort(-logits, 1)[:, :3]).all(), top)


def wrong(server):
    client = server.client()
    x = np.zeros((1, 3), np.float32)
    fails('no_model', 'NOT_FOUND', "'none'", lambda: infer(client, 'none', {'x': x}))
    fails('no_name', 'NOT_FOUND', "''", lambda: infer(client, '', {'x': x}))
    fails('no_version', 'NOT_FOUND', 'version 9', lambda: infer(client, 'same_FP32', {'x': x}, model_version='9'))
    fails('bad_version', 'INVALID_ARGUMENT', "'x'", lambda: infer(client, 'same_FP32', {'x': x}, model_version='x'))
    fails('no_input', 'INVALID_ARGUMENT', "no input 'q'", lambda: infer(client, 'same_FP32', {'q': x}))
    fails('missing_input', 'INVALID_ARGUMENT', "'b' is missing", lambda: infer(client, 'two', {'a': x}))
    fails('no_output', 'INVALID_ARGUMENT', "no output 'z'", lambda: infer(client, 'same_FP32', {'x': x}, ['z']))
    fails('wrong_type', 'INVALID_ARGUMENT', 'FP64, expected FP32',
          lambda: infer(client, 'same_FP32', {'x': x.astype(np.float64)}))
    fails('wrong_rank', 'INVALID_ARGUMENT', '[3], expected [n,3]', lambda: infer(client, 'same_FP32', {'x': x[0]}))
    fails('wrong_shape', 'INVALID_ARGUMENT', '[1,2], expected', lambda: infer(client, 'same_FP32', {'x': x[:, :2]}))
    fails('too_many', 'INVALID_ARGUMENT', '33 samples',
          lambda: infer(client, 'same_FP32', {'x': np.zeros((33, 3), np.float32)}))
    fails('bad_index', 'INVALID_ARGUMENT', 'Gather', lambda: infer(client, 'pick', {'i': np.array([7], np.int64)}))
    fails('no_metadata', 'NOT_FOUND', "'none'", lambda: client.get_model_metadata('none'))
    fails('no_config', 'NOT_FOUND', 'version 9', lambda: client.get_model_config('mlp', '9'))
    fails('no_statistics', 'NOT_FOUND', "'none'", lambda: client.get_inference_statistics('none'))
    fails('no_shared_memory', 'UNIMPLEMENTED', 'not served', lambda: client.register_system_shared_memory('r', '/k', 64))
    fails('other_method', 'UNIMPLEMENTED', 'no such method', lambda: client.get_log_settings())
    fails('cuda_memory', 'UNIMPLEMENTED', '--cuda-shared-memory', lambda: client.get_cuda_shared_memory_status())
    good = pb.ModelInferRequest(model_name='same_FP32', raw_input_contents=[bytes(12)])
    good.inputs.add(name='x', datatype='FP32', shape=[1, 3])
    whole = good.SerializeToString()
    check('raw_good', len(server.call('ModelInfer', whole)) > 12)
    refused = 0
    for cut in range(len(whole)):
        try:
            server.call('ModelInfer', whole[:cut])
        except grpc.RpcError as error:
            refused += error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    check('raw_cut', refused == len(whole), f'{refused} of {len(whole)}')
    for name, words, raw in (('short', '11 bytes', [bytes(11)]), ('long', '13 bytes', [bytes(13)]),
                             ('none', 'no elements', []), ('two', '2 raw_input_contents', [bytes(12)] * 2)):
        one = pb.ModelInferRequest()
        one.CopyFrom(good)
        del one.raw_input_contents[:]
        one.raw_input_contents.extend(raw)
        fails(f'raw_{name}', 'INVALID_ARGUMENT', words, lambda: server.call('ModelInfer', one.SerializeToString()))
    for method in ('ModelMetadata', 'ModelConfig', 'RepositoryIndex', 'RepositoryModelLoad', 'ModelInfer'):
        fails(f'garbage_{method}', 'INVALID_ARGUMENT', 'cut off', lambda: server.call(method, b'\xff' * 20))
    y = infer(client, 'pick', {'i': np.array([3], np.int64)}).as_numpy('y')
    check('after_wrong', y.tolist() == [40], y)


def streams(server):
    client, answers = server.client(), queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    samples = [rng.standard_normal((1 + i % 4, 3)).astype(np.float32) for i in range(300)]
    for i, x in enumerate(samples):
        client.async_stream_infer('same_FP32', inputs_of({'x': x}), request_id=str(i))
        if i % 100 == 0:
            client.async_stream_infer('none', inputs_of({'x': x}), request_id=f'bad{i}')
    got, errors = {}, []
    for _ in range(303):
        result, error = answers.get(timeout=60)
        if error:
            errors.append(str(error))
        else:
            got[result.get_response().id] = result
    check('stream', sorted(got, key=int) == [str(i) for i in range(300)] and
          all(equal(got[str(i)].as_numpy('y'), x) for i, x in enumerate(samples)), f'{len(got)} of 300')
    check('stream_final', all(r.get_response().parameters['triton_final_response'].bool_param for r in got.values()))
    check('stream_errors', len(errors) == 3 and all("no model 'none'" in e for e in errors), errors)
    client.stop_stream()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer('same_FP32', inputs_of({'x': samples[0]}))
    client.stop_stream(cancel_requests=True)
    check('stream_cancelled', client.is_server_live())
    bad = pb.ModelInferRequest(model_name='none', id='7').SerializeToString()
    replies = [pb.ModelStreamInferResponse.FromString(r) for r in server.call('ModelStreamInfer', [bad, b'\xff'], True)]
    check('stream_error_has_id', len(replies) == 2 and replies[0].infer_response.id == '7' and
          replies[0].error_message == "there is no model 'none'" and 'damaged' in replies[1].error_message, replies)
    check('stream_empty', server.call('ModelStreamInfer', [], True) == [])


def loading(server):
    client = server.client()
    client.unload_model('two')
    check('unloaded', not client.is_model_ready('two'))
    states = {m.name: m for m in client.get_model_repository_index().models}
    check('unloaded_index', states['two'].state == 'UNAVAILABLE' and states['two'].reason == 'unloaded', states['two'])
    client.load_model('two')
    check('loaded', client.is_model_ready('two'))
    fails('load_unknown', 'INVALID_ARGUMENT', "no model 'none'", lambda: client.load_model('none'))
    fails('load_config', 'UNIMPLEMENTED', "'config'", lambda: client.load_model('two', config='{}'))
    fails('load_files', 'UNIMPLEMENTED', 'not served',
          lambda: client.load_model('two', config='{}', files={'file:1/model.onnx': b'\xff'}))


def shared_memory(folder):
    server = Server(folder, '--shared-memory')
    client = server.client()
    key = f'/pare_grpc_{os.getpid()}'
    x = rng.standard_normal((5, 1, 28, 28)).astype(np.float32)
    want = infer(client, 'mlp', {'input': x}).as_numpy('logits')
    handle = shm.create_shared_memory_region('mine', key, x.nbytes + want.nbytes)
    try:
        client.register_system_shared_memory('in', key, x.nbytes)
        client.register_system_shared_memory('out', key, want.nbytes, offset=x.nbytes)
        fails('shared_twice', 'INVALID_ARGUMENT', 'already', lambda: client.register_system_shared_memory('in', key, 64))
        fails('shared_no_name', 'INVALID_ARGUMENT', "'name'", lambda: client.register_system_shared_memory('', key, 64))
        status = client.get_system_shared_memory_status()
        check('shared_status', sorted(status.regions) == ['in', 'out'] and status.regions['out'].offset == x.nbytes and
              list(client.get_system_shared_memory_status('in').regions) == ['in'], status)
        shm.set_shared_memory_region(handle, [x])
        one = triton.InferInput('input', list(x.shape), 'FP32')
        one.set_shared_memory('in', x.nbytes)
        got = client.infer('mlp', [one]).as_numpy('logits')
        check('shared_input', equal(got, want), got)
        to = triton.InferRequestedOutput('logits')
        to.set_shared_memory('out', want.nbytes)
        done = client.infer('mlp', [one], outputs=[to]).get_output('logits')
        got = shm.get_contents_as_numpy(handle, np.float32, list(want.shape), offset=x.nbytes)
        check('shared_output', equal(got, want) and
              done.parameters['shared_memory_byte_size'].int64_param == want.nbytes, done)
        one.set_shared_memory('q', x.nbytes)
        fails('shared_no_region', 'INVALID_ARGUMENT', "'q'", lambda: client.infer('mlp', [one]))
        client.unregister_system_shared_memory('in')
        fails('shared_unregistered', 'NOT_FOUND', "'in'", lambda: client.get_system_shared_memory_status('in'))
        client.unregister_system_shared_memory()
        check('shared_all_gone', not client.get_system_shared_memory_status().regions)
    finally:
        shm.destroy_shared_memory_region(handle)
    check('shared_end', server.stop() == 0, server.process.stderr.read())


def batching():
    """Single answers over HTTP, and what concurrent clients of gRPC are given."""
    samples = [rng.standard_normal((1 + i % 3, 1, 28, 28)).astype(np.float32) for i in range(240)]
    for net in 'mlp', 'cnn':
        server = Server(ZOO / f'{net}.onnx', '--max-batch', 8, '--max-delay', 3000)

        def over_http(client, x):
            return client.infer(net, _serve.inputs_of(http, {'input': x}, binary_data=True))
        single = _serve.together(samples, 1, lambda: http.InferenceServerClient(server.url), over_http)
        before = server.client().get_inference_statistics(net).model_stats[0].execution_count
        batched = _serve.together(samples, 8, server.client, lambda client, x: infer(client, net, {'input': x}))
        after = server.client().get_inference_statistics(net).model_stats[0].execution_count
        check(f'{net}_batched', after - before < len(samples), after - before)
        check(f'{net}_same_bytes', single == batched,
              f'{sum(a != b for a, b in zip(single, batched))} of {len(samples)} differ')
        check(f'{net}_end', server.stop() == 0)


def await_waiting(server, model, count):
    """Until so many requests are in the model's queue."""
    line = f'pare_waiting_requests{{model="{model}",version="1"}} {count}\n'
    for _ in range(1000):
        if line in server.raw('GET', '/metrics')[2].decode():
            return
        time.sleep(0.01)
    check(f'waiting_{count}', False, server.raw('GET', '/metrics')[2].decode()[-300:])


def leaving():
    """Calls that are cancelled, or whose deadline passes, while they wait for others to make a batch of 32."""
    server = Server(ZOO / 'mlp.onnx', '--max-delay', 60000000)
    client, x, answers = server.client(), rng.standard_normal((32, 1, 28, 28)).astype(np.float32), queue.Queue()
    want = infer(client, 'mlp', {'input': x}).as_numpy('logits')
    calls = [client.async_infer('mlp', inputs_of({'input': x[i:i + 1]}), lambda result, error: answers.put((result, error)))
             for i in range(4)]
    await_waiting(server, 'mlp', 4)
    for call in calls[2:]:
        call.cancel()
    gone = [answers.get(timeout=60)[1] for _ in range(2)]
    check('cancelled', all(error.status() == 'StatusCode.CANCELLED' for error in gone), gone)
    time.sleep(0.2)  # the server hears of it
    done = infer(client, 'mlp', {'input': x[4:]}).as_numpy('logits')
    others = [answers.get(timeout=60) for _ in range(2)]
    check('beside_cancelled', equal(done, want[4:]) and all(error is None for _, error in others), others)

    def counts():
        stats = client.get_inference_statistics('mlp').model_stats[0]
        return stats.inference_stats.success.count, stats.inference_stats.fail.count, stats.inference_count
    check('cancelled_is_not_computed', counts() == (4, 2, 62), counts())
    client.start_stream(lambda result, error: None)
    for i in range(2):
        client.async_stream_infer('mlp', inputs_of({'input': x[i:i + 1]}))
    await_waiting(server, 'mlp', 2)
    client.stop_stream(cancel_requests=True)
    time.sleep(0.2)
    infer(client, 'mlp', {'input': x[2:]})
    check('stream_cancelled_is_not_computed', counts() == (5, 4, 92), counts())
    fails('deadline', 'DEADLINE_EXCEEDED', '', lambda: infer(client, 'mlp', {'input': x[:1]}, client_timeout=0.2))
    await_waiting(server, 'mlp', 0)
    check('deadline_in_queue', counts() == (5, 5, 92), counts())
    check('after_leaving', equal(infer(client, 'mlp', {'input': x}).as_numpy('logits'), want))
    check('leaving_end', server.stop() == 0, server.process.stderr.read())


def limits():
    server = Server(ZOO / 'mlp.onnx', '--max-request', '10kB', '--max-pending', '20kB', '--max-queue', 1,
                    '--max-delay', 60000000)
    client, answers = server.client(), queue.Queue()
    x = np.zeros((4, 1, 28, 28), np.float32)
    fails('too_large', 'RESOURCE_EXHAUSTED', '10000', lambda: infer(client, 'mlp', {'input': x}))
    for way in 'gzip', 'deflate':
        fails(f'too_large_{way}', 'INVALID_ARGUMENT', '10000 bytes',
              lambda: infer(client, 'mlp', {'input': np.zeros((100, 1, 28, 28), np.float32)}, compression_algorithm=way))
    client.async_infer('mlp', inputs_of({'input': x[:1]}), lambda result, error: answers.put((result, error)))
    await_waiting(server, 'mlp', 1)
    fails('queue_full', 'UNAVAILABLE', 'waiting already', lambda: infer(client, 'mlp', {'input': x[:1]}))
    check('limits_end', server.stop() == 0, server.process.stderr.read())
    result, error = answers.get(timeout=60)
    check('answered_at_the_end', error is None and result.as_numpy('logits').shape == (1, 10), error)


def secrets(folder):
    """A token, and TLS."""
    with open(f'{folder}/token', 'w') as file:
        file.write('secret-word\n')
    x = np.zeros((1, 1, 28, 28), np.float32)
    server = Server(ZOO / 'mlp.onnx', '--token', f'{folder}/token')
    client = server.client()
    check('token_not_for_health', client.is_server_live() and client.is_server_ready())
    for name, given in (('none', None), ('wrong', 'Bearer secret-wor'), ('scheme', 'Basic secret-word')):
        headers = {'authorization': given} if given else None
        said = "is not the server's" if name == 'wrong' else 'Bearer'
        fails(f'token_{name}', 'UNAUTHENTICATED', said, lambda: infer(client, 'mlp', {'input': x}, headers=headers))
        fails(f'token_{name}_ready', 'UNAUTHENTICATED', said, lambda: client.is_model_ready('mlp', headers=headers))
    done = infer(client, 'mlp', {'input': x}, headers={'authorization': 'Bearer secret-word'})
    check('token_right', done.as_numpy('logits').shape == (1, 10))
    errors = queue.Queue()
    client.start_stream(lambda result, error: errors.put(error))
    check('token_stream', 'Bearer' in str(errors.get(timeout=60)))
    client.stop_stream()
    check('token_end', server.stop() == 0)
    made = subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
                           '-nodes', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1',
                           '-keyout', f'{folder}/own.key', '-out', f'{folder}/own.pem'], capture_output=True, text=True)
    if made.returncode:
        report('SKIP', 'tls', made.stderr)
        return
    server = Server(ZOO / 'mlp.onnx', '--tls-cert', f'{folder}/own.pem', '--tls-key', f'{folder}/own.key')
    address = server.grpc.removeprefix('grpcs://')
    client = triton.InferenceServerClient(address, ssl=True, root_certificates=f'{folder}/own.pem')
    check('tls', infer(client, 'mlp', {'input': x}).as_numpy('logits').shape == (1, 10))
    plain = triton.InferenceServerClient(address)
    fails('tls_plain', 'UNAVAILABLE', '', lambda: infer(plain, 'mlp', {'input': x}))
    check('tls_end', server.stop() == 0)


def drain():
    """Each request that was sent before SIGTERM is answered; later ones are refused as unavailable, and end a stream."""
    def is_end(error):
        return (isinstance(error, InferenceServerException) and 'the server is about to end' in str(error) and
                'UNAVAILABLE' in error.status())
    x = np.zeros((1, 1, 28, 28), np.float32)
    for turn in range(3):
        server = Server(ZOO / 'mlp.onnx', '--max-delay', 2000)
        asking = _serve.Asking(server.client, lambda client: infer(client, 'mlp', {'input': x}), is_end)
        streamed, client = queue.Queue(), server.client()
        client.start_stream(lambda result, error: streamed.put((result, error)))
        time.sleep(0.5)
        for i in range(50):
            client.async_stream_infer('mlp', inputs_of({'input': x}), request_id=str(i))
        seen = [streamed.get(timeout=60)]
        status = server.stop()
        while len(seen) < 50 and not seen[-1][1]:
            seen.append(streamed.get(timeout=60))
        lost = [str(error) for result, error in seen if error and 'the server is about to end' not in str(error)]
        asking.judge(f'sigterm_{turn}', status)
        check(f'sigterm_stream_{turn}', not lost, lost[:2])
        client.close()


def slow_reader(folder):
    """A client that does not read its replies does not hold up the end for ever."""
    server = Server(folder)
    request = pb.ModelInferRequest(model_name='two', raw_input_contents=[bytes(4000000)] * 2)
    for name in 'ab':
        request.inputs.add(name=name, datatype='FP32', shape=[1, 1000000])
    with grpc.insecure_channel(server.grpc) as channel:
        path = '/inference.GRPCInferenceService/ModelStreamInfer'
        unread = channel.stream_stream(path)(iter([request.SerializeToString()] * 20))
        answered = 0
        for _ in range(500):
            answered = server.client().get_inference_statistics('two').model_stats[0].inference_stats.success.count
            if answered == 20:
                break
            time.sleep(0.05)
        check('slow_reader', answered == 20 and server.stop() == 0,
              f'{answered} {server.process.returncode}')
        unread.cancel()


with tempfile.TemporaryDirectory() as made_:
    repository = os.path.join(made_, 'models')
    os.mkdir(repository)
    make_repository(repository)
    main = Server(repository)
    endpoints(main)
    tensors(main)
    wrong(main)
    streams(main)
    loading(main)
    check('end', main.stop() == 0, main.process.stderr.read())
    shared_memory(repository)
    batching()
    leaving()
    limits()
    secrets(made_)
    drain()
    slow_reader(repository)
finish()

# SPDX-License-Identifier: Apache-2.0
"""pare serve against Triton's own HTTP client: every endpoint, tensors as JSON and as binary data, what is wrong,
batches of concurrent clients byte for byte, unloading and SIGTERM under load."""
import gzip
import json
import os
import re
import socket
import sys
import tempfile
import threading
import time
import zlib

import numpy as np
from onnx import TensorProto, helper

from _lib import ZOO, check, finish, report

try:
    import tritonclient.http as triton
    import tritonclient.utils.shared_memory as shm
    from tritonclient.utils import InferenceServerException, serialize_byte_tensor
except ImportError as why:
    report('SKIP', 'serve', f'needs tritonclient[http]: {why}')
    sys.exit(0)
import _serve
from _serve import TYPES, equal, make_repository, refuses, rng, sample, save


class Server(_serve.Server):
    def client(self, concurrency=1):
        return triton.InferenceServerClient(self.url, concurrency=concurrency, network_timeout=60.0)


def inputs_of(arrays, binary):
    return _serve.inputs_of(triton, arrays, binary_data=binary)


def infer(client, model, arrays, outputs=None, binary=True, **more):
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in outputs] if outputs else None
    return client.infer(model, inputs_of(arrays, binary), outputs=wanted, **more)


def endpoints(server):
    client = server.client()
    check('live', client.is_server_live() and client.is_server_ready())
    meta = client.get_server_metadata()
    check('server_metadata', meta['name'] == 'pare' and 'binary_tensor_data' in meta['extensions'], meta)
    check('model_ready', client.is_model_ready('mlp') and client.is_model_ready('mlp', '3') and
          not client.is_model_ready('mlp', '4') and not client.is_model_ready('none'))
    meta = client.get_model_metadata('mlp')
    check('model_metadata', meta['versions'] == ['3'] and meta['inputs'] ==
          [{'name': 'input', 'datatype': 'FP32', 'shape': [-1, 1, 28, 28]}] and
          meta['outputs'] == [{'name': 'logits', 'datatype': 'FP32', 'shape': [-1, 10]}], meta)
    config = client.get_model_config('mlp', '3')
    check('model_config', config['max_batch_size'] == 32 and config['input'][0]['dims'] == [1, 28, 28] and
          config['input'][0]['data_type'] == 'TYPE_FP32' and 'dynamic_batching' in config, config)
    index = client.get_model_repository_index()
    check('index', {m['name'] for m in index} >= {'mlp', 'two', 'same_BYTES'} and
          all(m['state'] == 'READY' for m in index), index)
    before = client.get_inference_statistics('mlp')['model_stats'][0]
    infer(client, 'mlp', {'input': np.zeros((5, 1, 28, 28), np.float32)})
    after = client.get_inference_statistics('mlp', '3')['model_stats'][0]
    check('statistics', after['inference_count'] == before['inference_count'] + 5 and
          after['execution_count'] == before['execution_count'] + 1 and after['inference_stats']['success']['count'] ==
          before['inference_stats']['success']['count'] + 1 and after['inference_stats']['success']['ns'] > 0 and
          after['last_inference'] > 1e12 and any(b['batch_size'] == 5 for b in after['batch_stats']), after)
    check('all_statistics', len(client.get_inference_statistics()['model_stats']) == len(index))
    metrics(server)


def metrics(server):
    status, headers, body = server.raw('GET', '/metrics')
    text = body.decode()
    check('metrics', status == 200 and headers['Content-Type'].startswith('application/openmetrics-text') and
          re.search(r'^pare_requests_total{model="mlp",version="3",outcome="success"} [1-9]', text, re.M) and
          text.endswith('# EOF\n'), text[:300])
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    except ImportError:
        report('SKIP', 'metrics_parse', 'needs prometheus_client')
        return
    names = {family.name for family in text_string_to_metric_families(text)}
    check('metrics_parse', {'pare_requests', 'pare_runs', 'pare_waiting_requests'} <= names, names)


def accepting(server):
    """A response is compressed where the client asks for it, and only there."""
    one = b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}'
    for name, said, want in (('gzip', 'gzip', 'gzip'), ('list', 'br, deflate;q=0.5 , gzip', 'gzip'),
                             ('weights', 'gzip;q=0, deflate', 'deflate'), ('none', 'identity', None),
                             ('longer', 'gzipped, xdeflate', None), ('zero', 'gzip;q=0.0', None)):
        status, headers, body = server.raw('POST', '/v2/models/same_FP32/infer', one, {'Accept-Encoding': said})
        text = {'gzip': gzip.decompress, 'deflate': zlib.decompress, None: bytes}[want](body)
        check(f'accepts_{name}', status == 200 and headers.get('Content-Encoding') == want and
              json.loads(text)['outputs'][0]['data'] == [1, 2, 3], f'{headers} {body[:100]}')


def tensors(server):
    client = server.client()
    for word in TYPES:
        x = sample(word, (4, 3))
        for binary in True, False:
            if not binary and word == 'FP16':
                continue  # the client refuses it itself
            y = infer(client, f'same_{word}', {'x': x}, ['y'], binary).as_numpy('y')
            if word == 'BYTES' and not binary:
                x = np.array([text.decode() for text in x.ravel()], object).reshape(x.shape)  # as the client does
            check(f'{word}_{"binary" if binary else "json"}', equal(y, x), f'{x} became {y}')
    a, b = rng.standard_normal((2, 3, 5)).astype(np.float32)
    done = infer(client, 'two', {'a': a, 'b': b}, request_id='mine')
    check('two_outputs', equal(done.as_numpy('sum'), a + b) and equal(done.as_numpy('product'), a * b))
    head = done.get_response()
    check('response', head['id'] == 'mine' and head['model_name'] == 'two' and head['model_version'] == '1', head)
    done = infer(client, 'two', {'b': b, 'a': a}, ['product'])
    check('one_output', equal(done.as_numpy('product'), a * b) and done.as_numpy('sum') is None)
    mixed = inputs_of({'a': a}, True) + inputs_of({'b': b}, False)
    done = client.infer('two', mixed, outputs=[triton.InferRequestedOutput('sum', binary_data=False),
                                               triton.InferRequestedOutput('product', binary_data=True)])
    check('mixed', equal(done.as_numpy('sum'), a + b) and equal(done.as_numpy('product'), a * b))
    done = client.async_infer('two', inputs_of({'a': a, 'b': b}, True)).get_result()
    check('async', equal(done.as_numpy('sum'), a + b))
    for way in 'gzip', 'deflate':
        a = rng.integers(0, 3, (4, 5000)).astype(np.float32)
        done = infer(client, 'two', {'a': a, 'b': a}, request_compression_algorithm=way, response_compression_algorithm=way)
        check(f'compressed_{way}', equal(done.as_numpy('sum'), a + a) and equal(done.as_numpy('product'), a * a))
        done = infer(client, 'two', {'a': a, 'b': a}, ['sum'], binary=False, request_compression_algorithm=way)
        check(f'compressed_json_{way}', equal(done.as_numpy('sum'), a + a))
    x = rng.standard_normal((2, 3)).astype(np.float32)
    check('no_samples_axis', equal(infer(client, 'fixed', {'x': x}).as_numpy('y'), np.maximum(x, 0)))
    x = rng.standard_normal((2, 1, 28, 28)).astype(np.float32)
    logits = infer(client, 'mlp', {'input': x}).as_numpy('logits')
    wanted = [triton.InferRequestedOutput('logits', class_count=3)]
    top = client.infer('mlp', inputs_of({'input': x}, True), outputs=wanted).as_numpy('logits')
    places = [[int(text.decode().split(':')[1]) for text in row] for row in top]
    check('classification', (np.array(places) == np.argsort(-logits, 1)[:, :3]).all(), top)


def wrong(server):
    client = server.client()
    x = np.zeros((1, 3), np.float32)
    refuses('no_model', 'none', lambda: infer(client, 'none', {'x': x}))
    refuses('no_version', 'version 9', lambda: infer(client, 'same_FP32', {'x': x}, model_version='9'))
    refuses('no_input', "no input 'q'", lambda: infer(client, 'same_FP32', {'q': x}))
    refuses('missing_input', "'b' is missing", lambda: infer(client, 'two', {'a': x}))
    refuses('no_output', "no output 'z'", lambda: infer(client, 'same_FP32', {'x': x}, ['z']))
    refuses('wrong_type', 'FP64|FP32', lambda: infer(client, 'same_FP32', {'x': x.astype(np.float64)}))
    refuses('wrong_rank', '[3]|[n,3]', lambda: infer(client, 'same_FP32', {'x': x[0]}))
    refuses('wrong_shape', '[1,2]|[n,3]', lambda: infer(client, 'same_FP32', {'x': x[:, :2]}))
    refuses('too_many', '33 samples', lambda: infer(client, 'same_FP32', {'x': np.zeros((33, 3), np.float32)}))
    refuses('uneven', '1 samples', lambda: infer(client, 'two', {'a': np.zeros((1, 3), np.float32),
                                                                'b': np.zeros((2, 3), np.float32)}))
    refuses('bad_index', 'Gather', lambda: infer(client, 'pick', {'i': np.array([7], np.int64)}))
    y = infer(client, 'pick', {'i': np.array([3], np.int64)}).as_numpy('y')
    check('after_bad_index', y.tolist() == [40], y)
    shared = triton.InferInput('x', [1, 3], 'FP32')
    shared.set_shared_memory('region', 12)
    refuses('shared_memory', 'shared memory is not served', lambda: client.infer('same_FP32', [shared]))
    path = '/v2/models/same_FP32/infer'
    one = b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}'
    half = b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}'
    length = 'Inference-Header-Content-Length'
    coding, packed = 'Content-Encoding', gzip.compress(one)
    for name, status, args in (
            ('raw_good', 200, ('POST', path, one)),
            ('raw_slash', 404, ('POST', path + '/x', one)),
            ('raw_get', 405, ('GET', path)),
            ('raw_empty', 400, ('POST', path)),
            ('raw_cut', 400, ('POST', path, one[:-1])),
            ('raw_utf8', 400, ('POST', path, b'{"inputs":"\xff"}')),
            ('raw_header_large', 400, ('POST', path, one, {length: str(len(one) + 1)})),
            ('raw_header_word', 400, ('POST', path, one, {length: 'x'})),
            ('raw_header_negative', 400, ('POST', path, one, {length: '-1'})),
            ('raw_binary', 200, ('POST', path, half + bytes(12), {length: str(len(half))})),
            ('raw_binary_short', 400, ('POST', path, half + bytes(11), {length: str(len(half))})),
            ('raw_binary_long', 400, ('POST', path, half + bytes(13), {length: str(len(half))})),
            ('raw_gzip', 200, ('POST', path, packed, {coding: 'gzip'})),
            ('raw_gzip_cut', 400, ('POST', path, packed[:-1], {coding: 'gzip'})),
            ('raw_gzip_more', 400, ('POST', path, packed + b'x', {coding: 'gzip'})),
            ('raw_gzip_plain', 400, ('POST', path, one, {coding: 'gzip'})),
            ('raw_gzip_empty', 400, ('POST', path, b'', {coding: 'gzip'})),
            ('raw_zlib_plain', 400, ('POST', path, packed, {coding: 'deflate'})),
            ('raw_coding', 501, ('POST', path, packed, {coding: 'br'})),
            ('raw_unknown', 404, ('GET', '/v1/models')),
            ('raw_put', 405, ('PUT', '/v2/health/live', b'x'))):
        got, headers, body = server.raw(*args)
        good = got == status and (status == 200 or set(json.loads(body)) == {'error'})
        check(name, good and (status != 405 or 'Allow' in headers), f'{got} {body[:200]}')


def outputs_in(name, region, size, offset=0):
    wanted = triton.InferRequestedOutput(name)
    wanted.set_shared_memory(region, size, offset)
    return wanted


def shared_memory():
    """Tensors in POSIX shared memory, by the client's own module for it."""
    server = Server(ZOO / 'mlp.onnx', '--shared-memory')
    client = server.client()
    key = f'/pare_test_{os.getpid()}'
    check('shared_extension', 'system_shared_memory' in client.get_server_metadata()['extensions'])
    x = rng.standard_normal((5, 1, 28, 28)).astype(np.float32)
    want = infer(client, 'mlp', {'input': x}).as_numpy('logits')
    handle = shm.create_shared_memory_region('mine', key, 4096 + x.nbytes + want.nbytes)
    try:
        refuses('shared_no_object', 'No such file', lambda: client.register_system_shared_memory('r', key + 'x', 64))
        refuses('shared_small_object', 'expected', lambda: client.register_system_shared_memory('r', key, 1 << 30))
        refuses('shared_path', 'etc', lambda: client.register_system_shared_memory('r', '/../../etc/passwd', 16))
        client.register_system_shared_memory('in', key, x.nbytes, offset=4096)
        client.register_system_shared_memory('out', key, want.nbytes, offset=4096 + x.nbytes)
        refuses('shared_twice', 'registered already', lambda: client.register_system_shared_memory('in', key, 64))
        status = client.get_system_shared_memory_status()
        check('shared_status', sorted(r['name'] for r in status) == ['in', 'out'] and
              client.get_system_shared_memory_status('in')[0]['byte_size'] == x.nbytes, status)
        shm.set_shared_memory_region(handle, [x], offset=4096)

        def ask(size=x.nbytes, region='in', out='out', out_size=want.nbytes, offset=0):
            one = triton.InferInput('input', list(x.shape), 'FP32')
            one.set_shared_memory(region, size, offset)
            to = outputs_in('logits', out, out_size) if out else triton.InferRequestedOutput('logits')
            return client.infer('mlp', [one], outputs=[to])
        got = ask(out=None).as_numpy('logits')
        check('shared_input', equal(got, want), got)
        head = ask().get_output('logits')
        got = shm.get_contents_as_numpy(handle, np.float32, list(want.shape), offset=4096 + x.nbytes)
        check('shared_output', equal(got, want) and head['parameters']['shared_memory_byte_size'] == want.nbytes, head)
        refuses('shared_no_region', "no shared memory region 'q'", lambda: ask(region='q'))
        refuses('shared_size', "'shape' takes", lambda: ask(size=x.nbytes - 4))
        refuses('shared_offset', 'expected', lambda: ask(offset=4))
        refuses('shared_output_small', 'takes 200 bytes', lambda: ask(out_size=4))
        os.truncate(f'/dev/shm{key}', 5000)
        refuses('shared_cut_input', 'smaller', lambda: ask(out=None))
        refuses('shared_cut_output', 'smaller', lambda: client.infer(
            'mlp', inputs_of({'input': x}, True), outputs=[outputs_in('logits', 'out', want.nbytes)]))
        check('shared_cut_stays', os.stat(f'/dev/shm{key}').st_size == 5000)
        client.unregister_system_shared_memory('in')
        refuses('shared_unregistered', "no shared memory region 'in'", lambda: ask(out=None))
        client.unregister_system_shared_memory()
        check('shared_all_gone', client.get_system_shared_memory_status() == [])
        refuses('shared_status_none', "'in'", lambda: client.get_system_shared_memory_status('in'))
        check('shared_after', equal(infer(client, 'mlp', {'input': x}).as_numpy('logits'), want))
    finally:
        shm.destroy_shared_memory_region(handle)
    check('shared_end', server.stop() == 0, server.process.stderr.read())


def shared_strings(folder):
    server = Server(folder, '--shared-memory')
    client = server.client()
    key = f'/pare_text_{os.getpid()}'
    x = sample('BYTES', (2, 3))
    size = sum(4 + len(text) for text in x.ravel())
    handle = shm.create_shared_memory_region('text', key, 256)
    try:
        shm.set_shared_memory_region(handle, [serialize_byte_tensor(x)])
        client.register_system_shared_memory('text', key, 256)
        one = triton.InferInput('x', [2, 3], 'BYTES')
        one.set_shared_memory('text', size)
        done = client.infer('same_BYTES', [one], outputs=[outputs_in('y', 'text', 100, 128)])
        got = shm.get_contents_as_numpy(handle, np.object_, [2, 3], offset=128)
        check('shared_strings', equal(got, x) and done.get_output('y')['parameters']['shared_memory_offset'] == 128, got)
        one.set_shared_memory('text', size + 1)
        refuses('shared_strings_long', 'behind the last string', lambda: client.infer('same_BYTES', [one]))
    finally:
        shm.destroy_shared_memory_region(handle)
    server.stop()


def together(server, samples, threads, model='mlp'):
    return _serve.together(samples, threads, server.client, lambda client, x: infer(client, model, {'input': x}))


def batching(nets, count):
    samples = [rng.standard_normal((1 + i % 3, 1, 28, 28)).astype(np.float32) for i in range(count)]
    for net in nets:
        alone = Server(ZOO / f'{net}.onnx', '--max-batch', 3, '--instances', 1)
        single = together(alone, samples, 1, net)
        stats = alone.client().get_inference_statistics(net)['model_stats'][0]
        check(f'{net}_alone', stats['execution_count'] == len(samples), stats)
        alone.stop()
        server = Server(ZOO / f'{net}.onnx', '--max-batch', 8, '--max-delay', 3000, '--http-threads', 2)
        batched = together(server, samples, 8, net)
        stats = server.client().get_inference_statistics(net)['model_stats'][0]
        check(f'{net}_batched', stats['execution_count'] < len(samples) and
              stats['inference_count'] == sum(len(s) for s in samples), stats)
        check(f'{net}_same_bytes', single == batched,
              f'{sum(a != b for a, b in zip(single, batched))} of {len(samples)} differ')
        server.stop()


def mixing(server):
    """A model whose samples see each other is not batched; the client's own batch is one run."""
    x = rng.standard_normal((4, 4)).astype(np.float32)
    y = infer(server.client(), 'mean', {'x': x}).as_numpy('y')
    check('mean_of_a_batch', np.allclose(y, x - x.mean(0), atol=1e-6), y)
    check('mean_is_not_batched', 'dynamic_batching' not in server.client().get_model_config('mean'))


def loading(server, folder):
    client = server.client()
    client.unload_model('two')
    check('unloaded', not client.is_model_ready('two'))
    states = {m['name']: m for m in client.get_model_repository_index()}
    check('unloaded_index', states['two']['state'] == 'UNAVAILABLE' and states['two']['reason'] == 'unloaded', states)
    refuses('unloaded_infer', 'not ready', lambda: infer(client, 'two', {}))
    client.load_model('two')
    check('loaded', client.is_model_ready('two'))
    refuses('load_unknown', "no model 'none'", lambda: client.load_model('none'))
    refuses('load_outside', 'nothing of this name', lambda: client.load_model('../../etc'))
    refuses('load_config', "'config'", lambda: client.load_model('two', config='{}'))
    save(folder, 'late', [helper.make_node('Neg', ['x'], ['y'])], [('x', TensorProto.FLOAT, ['n', 2])],
         [('y', TensorProto.FLOAT, ['n', 2])])
    client.load_model('late')
    y = infer(client, 'late', {'x': np.ones((1, 2), np.float32)}).as_numpy('y')
    check('load_new', (y == -1).all(), y)
    lost = []
    stop = threading.Event()

    def work():
        with server.client() as own:
            while not stop.is_set():
                try:
                    infer(own, 'mlp', {'input': np.zeros((1, 1, 28, 28), np.float32)})
                except InferenceServerException as error:
                    lost.append(str(error))
    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for _ in range(10):
        client.load_model('mlp')  # again, while it is asked
    stop.set()
    for w in workers:
        w.join()
    check('reload_loses_nothing', not lost, lost[:2])


def sheds(name, text, x, *words):
    """Sixteen clients ask a model that takes milliseconds: some are refused, and all is counted."""
    server = Server(ZOO / 'vit.onnx', '--instances', 1, '--max-batch', 1, *words)
    shed, answered, lock = [], [], threading.Lock()

    def work():
        with server.client() as client:
            for _ in range(8):
                try:
                    infer(client, 'vit', {'input': x})
                    with lock:
                        answered.append(1)
                except InferenceServerException as error:
                    with lock:
                        shed.append(error)
    workers = [threading.Thread(target=work) for _ in range(16)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    check(name, shed and answered and all(e.status() == '503' and text in str(e) for e in shed),
          f'{len(shed)} shed, {len(answered)} answered; {shed[:1]}')
    said = server.raw('GET', '/metrics')[2].decode()
    check(f'{name}_are_counted', f'outcome="shed"}} {len(shed)}\n' in said, said[:400])
    check(f'{name}_stops', server.stop() == 0)


def limits(folder):
    server = Server(ZOO / 'mlp.onnx', '--max-request', '10kB')
    x = np.zeros((4, 1, 28, 28), np.float32)
    refuses('too_large', '10000 bytes', lambda: infer(server.client(), 'mlp', {'input': x}))
    got, _, body = server.raw('POST', '/v2/models/mlp/infer', b'x' * 20000, {'Expect': '100-continue'})
    check('too_large_expected', got == 413 and b'error' in body, f'{got} {body}')
    got, _, body = server.raw('POST', '/v2/models/mlp/infer', gzip.compress(bytes(1 << 20)), {'Content-Encoding': 'gzip'})
    check('too_large_unpacked', got == 400 and b'once it is unpacked' in body, f'{got} {body}')
    y = infer(server.client(), 'mlp', {'input': x[:1]}).as_numpy('logits')
    check('after_too_large', y.shape == (1, 10))
    check('stops', server.stop() == 0)
    sheds('sheds', 'as many as may', x[:1], '--max-queue', 2)
    sheds('sheds_by_time', 'would wait', x[:1], '--max-wait', 1)
    late_requests(x[:1])
    pending()


def pending():
    """Bodies are under way that leave no room for another; then there is room."""
    server = Server(ZOO / 'mlp.onnx', '--max-request', '100kB', '--max-pending', '200kB')
    host, port = server.url.split(':')
    got = 0
    for turn in range(20):  # until the server has read both; a body that comes meanwhile may leave no room for one of them
        halves = [socket.create_connection((host, int(port)), 30) for _ in range(2)]
        for half in halves:
            half.sendall(b'POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n' + b' ' * 80000)
        time.sleep(0.05 * (turn + 1))
        got, headers, body = server.raw('POST', '/v2/models/mlp/infer', b'x' * 50000)
        if got == 503:
            break
        for half in halves:
            half.close()
    check('pending', got == 503 and headers.get('Retry-After') == '1' and b'waiting already' in body, f'{got} {body}')
    for half in halves:
        half.close()
    for _ in range(200):
        got, _, body = server.raw('POST', '/v2/models/mlp/infer', b'x' * 50000)
        if got != 503:
            break
        time.sleep(0.02)
    check('pending_is_over', got == 400, f'{got} {body}')
    check('stops_pending', server.stop() == 0)


def late_requests(x):
    """A request whose timeout passes while others are computed."""
    server = Server(ZOO / 'vit.onnx', '--instances', 1, '--max-batch', 1)
    slow = server.client()
    others = [threading.Thread(target=lambda: together(server, [x] * 40, 1, 'vit')) for _ in range(3)]
    for t in others:
        t.start()
    late = 0
    for _ in range(60):
        try:
            infer(slow, 'vit', {'input': x}, timeout=1)
        except InferenceServerException as error:
            late += 'timeout' in str(error)
    for t in others:
        t.join()
    check('timeout', late > 0, 'no request was late')
    check('stops_late', server.stop() == 0)


def drain():
    """Each request that was sent before the server was gone is answered; it takes no new connections."""
    x = np.zeros((1, 1, 28, 28), np.float32)
    for turn in range(3):
        server = Server(ZOO / 'mlp.onnx', '--max-delay', 2000, '--http-threads', 1 + turn)
        asking = _serve.Asking(server.client, lambda client: infer(client, 'mlp', {'input': x}),
                               lambda error: isinstance(error, ConnectionRefusedError))
        time.sleep(0.5)
        asking.judge(f'sigterm_{turn}', server.stop())


def main():
    with tempfile.TemporaryDirectory() as made:
        make_repository(made)
        server = Server(made)
        endpoints(server)
        tensors(server)
        accepting(server)
        wrong(server)
        mixing(server)
        loading(server, made)
        check('end', server.stop() == 0, server.process.stderr.read())
        shared_memory()
        shared_strings(made)
        batching(('mlp', 'cnn', 'vit'), 240)
        limits(made)
        drain()
    finish()


if __name__ == '__main__':
    main()

# SPDX-License-Identifier: Apache-2.0
"""pare serve against clients that do not behave: they go on sending by gRPC when the server is to end, hold that end up
over HTTP, do not read their replies, send much where little is asked, or open too many connections."""
import queue
import socket
import sys
import tempfile
import threading
import time

from onnx import TensorProto, helper

from _lib import ZOO, check, finish, report

try:
    import grpc
    from tritonclient.grpc import service_pb2 as pb
except ImportError as why:
    report('SKIP', 'serve_grpc_limits', f'needs tritonclient[grpc]: {why}')
    sys.exit(0)
import _serve

SERVICE = '/inference.GRPCInferenceService/'
PIXELS = 28 * 28


def image(pixels=bytes(4 * PIXELS)):
    request = pb.ModelInferRequest(model_name='mlp', raw_input_contents=[pixels])
    request.inputs.add(name='input', datatype='FP32', shape=[1, 1, 28, 28])
    return request.SerializeToString()


def answer(channel, method, body):
    """'OK', or the status and what it says."""
    try:
        channel.unary_unary(SERVICE + method)(body, timeout=60)
        return 'OK', ''
    except grpc.RpcError as error:
        return error.code().name, error.details()


def endless_stream():
    """A client sends in a stream, and reads, without an end."""
    server = _serve.Server('--grpc-port', '0', ZOO / 'mlp.onnx')
    body, replies, ended = image(), queue.Queue(), threading.Event()

    def bodies():
        while not ended.is_set():
            yield body

    def read(stream):
        try:
            for reply in stream:
                replies.put(pb.ModelStreamInferResponse.FromString(reply).error_message)
        except grpc.RpcError as error:
            replies.put((error.code().name, error.details()))
        ended.set()
    with grpc.insecure_channel(server.grpc) as channel:
        reader = threading.Thread(target=read, args=(channel.stream_stream(SERVICE + 'ModelStreamInfer')(bodies()),))
        reader.start()
        for _ in range(200):
            replies.get(timeout=60)
        try:
            status = server.stop()
        except Exception as error:
            status = error
            server.process.kill()
        reader.join(60)
    said = list(replies.queue)
    check('endless_stream_end', status == 0, status)
    check('endless_stream_status', said[-1] == ('UNAVAILABLE', 'the server is about to end') and
          all(one == '' for one in said[:-1]), said[-3:])


def side_by_side():
    """A request that comes slowly over HTTP holds the server's end up: gRPC refuses all the while."""
    server = _serve.Server('--grpc-port', '0', ZOO / 'mlp.onnx')
    host, port = server.url.split(':')
    body = b'{"ready": true}'
    with socket.create_connection((host, int(port))) as slow, grpc.insecure_channel(server.grpc) as channel:
        slow.sendall(b'POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body))
        check('slow_answers', answer(channel, 'ModelInfer', image())[0] == 'OK')
        server.process.terminate()
        for _ in range(1000):
            code, said = answer(channel, 'ModelInfer', image())
            if code != 'OK':
                break
        check('slow_refused', code == 'UNAVAILABLE', (code, said))
        slow.sendall(body)
        reply = b''
        while piece := slow.recv(65536):
            reply += piece
        check('slow_answered', reply.startswith(b'HTTP/1.1 200') and b'"mlp"' in reply, reply[:200])
        check('slow_end', server.process.wait(60) == 0)


def grown(server):
    """Megabytes of memory that the server has had at most."""
    with open(f'/proc/{server.process.pid}/status') as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith('VmHWM'))


def wide_server(width):
    """A server with 20 MB for what is on its way, and its model that makes so many floats of one."""
    with tempfile.TemporaryDirectory() as folder:
        size = helper.make_tensor('size', TensorProto.INT64, [2], [1, width])
        _serve.save(folder, 'wide', [helper.make_node('Constant', [], ['size'], value=size),
                                     helper.make_node('Expand', ['x', 'size'], ['y'])],
                    [('x', TensorProto.FLOAT, [1, 1])], [('y', TensorProto.FLOAT, [1, width])])
        return _serve.Server('--grpc-port', '0', folder, '--max-pending', '20MB', '--max-request', '10MB',
                             '--instances', 1)


def number():
    """A request to the wide model."""
    request = pb.ModelInferRequest(model_name='wide', raw_input_contents=[bytes(4)])
    request.inputs.add(name='x', datatype='FP32', shape=[1, 1])
    return request.SerializeToString()


def unread():
    """Requests of 4 bytes in 3 streams, whose replies of 4 MB are not read, as long as others are not refused 50 times:
    a reply that the connection took makes room for another."""
    server = wide_server(1000000)
    body, before, ended, sent = number(), grown(server), threading.Event(), []

    def bodies():
        while not ended.is_set() and len(sent) < 3000:
            sent.append(1)
            yield body
            time.sleep(0.001)
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.stream_stream(SERVICE + 'ModelStreamInfer')
        streams = [call(bodies(), timeout=60) for _ in range(3)]
        refused = []
        for _ in range(1000):
            code, said = answer(channel, 'ModelInfer', body)
            if code != 'OK':
                refused.append((code, said))
            if len(refused) == 50:
                break
        ended.set()
        check('unread_refuses', len(refused) == 50 and all(
            code == 'UNAVAILABLE' and ('waiting already' in said or 'not read yet' in said) for code, said in refused),
              refused[:3])
        live = channel.unary_unary(SERVICE + 'ServerLive')(b'', timeout=60)
        check('unread_is_live', pb.ServerLiveResponse.FromString(live).live)
        replies = [pb.ModelStreamInferResponse.FromString(reply) for stream in streams for reply in stream]
        good = sum(reply.error_message == '' for reply in replies)
        words = {reply.error_message for reply in replies} - {''}
        check('unread_replies', len(replies) == len(sent) and good >= 5 and
              all('not read yet' in w or 'waiting already' in w for w in words), f'{len(replies)}, {good}, {words}')
        check('unread_memory', grown(server) - before < 700, f'{grown(server) - before} MB')
        for _ in range(1000):  # what was sent counts no longer
            code, said = answer(channel, 'ModelInfer', body)
            if code == 'OK':
                break
        check('unread_is_read', code == 'OK', (code, said))
    check('unread_end', server.stop() == 0)


def unread_http():
    """A reply of 40 MB over HTTP counts until it is read."""
    server = wide_server(10000000)
    host, port = server.url.split(':')
    body = (b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}],'
            b'"parameters":{"binary_data_output":true}}')
    named = pb.ModelMetadataRequest(name='wide').SerializeToString()
    with socket.create_connection((host, int(port))) as slow, grpc.insecure_channel(server.grpc) as channel:
        slow.sendall(b'POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n'
                     b'Content-Length: %d\r\n\r\n' % len(body) + body)
        reply = slow.recv(1)
        code, said = answer(channel, 'ModelInfer', number())
        check('unread_http_refuses', code == 'UNAVAILABLE' and 'waiting already' in said, (code, said))
        size = 1
        while piece := slow.recv(1 << 20):
            reply, size = (reply + piece)[:15], size + len(piece)
        check('unread_http_reply', reply.startswith(b'HTTP/1.1 200') and size > 40000000, (reply, size))
        for _ in range(1000):
            code, said = answer(channel, 'ModelMetadata', named)
            if code == 'OK':
                break
        check('unread_http_is_read', code == 'OK', (code, said))
    check('unread_http_end', server.stop() == 0)


def large_bodies():
    """Much is sent where little is asked."""
    server = _serve.Server('--grpc-port', '0', ZOO / 'mlp.onnx')
    request, few = pb.RepositoryModelLoadRequest(model_name='mlp'), pb.RepositoryModelLoadRequest(model_name='mlp')
    for i in range(1024):
        request.parameters[str(i)].string_param = 'word'
    few.parameters['0'].string_param = 'word'
    with grpc.insecure_channel(server.grpc) as channel:
        code, said = answer(channel, 'RepositoryModelLoad', few.SerializeToString())
        check('few_parameters', code == 'UNIMPLEMENTED' and "'0'" in said, (code, said))
        code, said = answer(channel, 'RepositoryModelLoad', request.SerializeToString())
        check('many_parameters', code == 'INVALID_ARGUMENT' and '1024 fields' in said, (code, said))
        few.parameters['0'].string_param = 'x' * (1 << 20)
        code, said = answer(channel, 'RepositoryModelLoad', few.SerializeToString())
        check('large_load', code == 'RESOURCE_EXHAUSTED' and '1048576' in said, (code, said))
        for over in 0, 1:
            body = b'{"ready": true' + b' ' * ((1 << 20) - 15 + over) + b'}'
            code, _, said = server.raw('POST', '/v2/repository/index', body)
            check(f'large_index_{over}', code == (413 if over else 200) and (b'1048576' in said) == bool(over),
                  (code, said))
        unknown = b'\x7a\x80\x80\x80\x01' + bytes(1 << 21)  # field 15
        check('large_infer', answer(channel, 'ModelInfer', image() + unknown)[0] == 'OK')
    check('large_end', server.stop() == 0)


def many_connections():
    """More connections to gRPC's port than a process of 128 descriptors may have: HTTP goes on, and so does gRPC once
    they are gone."""
    server = _serve.Server('--grpc-port', '0', ZOO / 'mlp.onnx', files=128)
    host, port = server.grpc.split(':')
    opened = []
    for _ in range(200):
        opened.append(socket.create_connection((host, int(port)), timeout=60))
        if len(opened) > 150:  # those that are too many are closed by the server
            while opened[-1].recv(1 << 16):
                pass
    check('many_http', server.raw('GET', '/v2/health/ready')[0] == 200)
    for one in opened:
        one.close()
    code = ''
    for _ in range(500):
        with grpc.insecure_channel(server.grpc) as channel:
            code, said = answer(channel, 'ModelInfer', image())
        if code == 'OK':
            break
        time.sleep(0.01)
    check('many_grpc', code == 'OK', (code, said))
    check('many_end', server.stop() == 0)


endless_stream()
unread()
unread_http()
large_bodies()
many_connections()
side_by_side()
finish()

# SPDX-License-Identifier: Apache-2.0
"""pare serve and clients that are gone before a request of theirs is whole."""
import os
import pathlib
import socket
import time

from _lib import ZOO, check, finish
import _serve

BODY = (b'{"inputs": [{"name": "input", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [' + b'0,' * 783 + b'0]}]}')
HEAD = b'POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % len(BODY)
PARTS = {
    'nothing': b'',
    'half_a_line': HEAD[:15],
    'half_the_headers': HEAD[:45],
    'no_body': HEAD,
    'half_a_body': HEAD + BODY[:len(BODY) // 2],
    'no_http': b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03',
}


def sockets(server):
    """How many the server has open."""
    found = 0
    for entry in pathlib.Path(f'/proc/{server.process.pid}/fd').iterdir():
        try:
            found += os.readlink(entry).startswith('socket:')
        except FileNotFoundError:
            pass
    return found


def send(server, data):
    host, port = server.url.split(':')
    client = socket.create_connection((host, int(port)), 30)
    client.sendall(data)
    return client


def leaves_none(server, name, data, before):
    for _ in range(20):
        send(server, data).close()
    time.sleep(0.3)  # until they are accepted
    for _ in range(200):  # 20 s, of which it takes 2
        if sockets(server) == before:
            break
        time.sleep(0.1)
    check(f'gone_{name}', sockets(server) == before, f'{sockets(server)} sockets, {before} before')


def main():
    server = _serve.Server(ZOO / 'mlp.onnx')
    before = sockets(server)
    for name, data in PARTS.items():
        leaves_none(server, name, data, before)
    stays = [send(server, PARTS['half_a_body']), send(server, b'')]
    for _ in range(20):
        send(server, PARTS['half_a_body']).close()
    server.process.terminate()
    try:
        status = server.process.wait(25)  # 30 s are those of a request that goes on coming
    except Exception as error:
        status = error
    check('gone_end', status == 0, status)
    for client in stays:
        client.close()
    finish()


if __name__ == '__main__':
    main()

# SPDX-License-Identifier: Apache-2.0
"""pare serve and clients that are gone before a request of theirs is whole; and how it ends connections by TLS."""
import os
import pathlib
import socket
import ssl
import subprocess
import tempfile
import time

from _lib import ZOO, check, finish, report
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


def shake(server, folder):
    """A connection by TLS, on which an end that is not announced is an error."""
    host, port = server.url.removeprefix('https://').split(':')
    context = ssl.create_default_context(cafile=f'{folder}/own.pem')
    return context.wrap_socket(socket.create_connection((host, int(port)), 30), server_hostname='localhost',
                               suppress_ragged_eofs=False)


def read_all(client):
    """What comes until the end, and what the end was: an error, or None."""
    found = b''
    try:
        while data := client.recv(65536):
            found += data
    except OSError as error:
        return found, error
    return found, None


def tls_ends(folder):
    """The server's end: an idle connection's, and that of a request whose last part comes meanwhile."""
    made = subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
                           '-nodes', '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost',
                           '-keyout', f'{folder}/own.key', '-out', f'{folder}/own.pem'], capture_output=True, text=True)
    if made.returncode:
        report('SKIP', 'tls', made.stderr)
        return
    server = _serve.Server(ZOO / 'mlp.onnx', '--tls-cert', f'{folder}/own.pem', '--tls-key', f'{folder}/own.key')
    idle, asks = shake(server, folder), shake(server, folder)
    request = HEAD.replace(b'Connection: close\r\n', b'') + BODY
    asks.sendall(request[:-10])
    time.sleep(0.3)  # until the server has read it
    server.process.terminate()
    time.sleep(0.1)
    asks.sendall(request[-10:])
    reply, end = read_all(asks)
    check('tls_last', reply.startswith(b'HTTP/1.1 200 ') and b'\r\nConnection: close\r\n' in reply, reply)
    check('tls_last_end', end is None, end)
    reply, end = read_all(idle)
    check('tls_idle_end', not reply and end is None, end)
    asks.close()
    idle.close()
    check('tls_end', server.process.wait(25) == 0)


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
    with tempfile.TemporaryDirectory() as folder:
        tls_ends(folder)
    finish()


if __name__ == '__main__':
    main()

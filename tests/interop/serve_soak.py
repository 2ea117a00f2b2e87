# SPDX-License-Identifier: Apache-2.0
"""pare serve at a steady load while models are loaded, unloaded and read again and clients are killed: nothing is
lost, nothing is wrong, memory stays flat. --seconds and --rate make a long soak of it."""
import argparse
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import h5py
import numpy as np

from _lib import PARE, ZOO, check, finish, report

GROWTH = 10e6  # bytes that the server's memory may grow by
WARM_ROUNDS = 80  # of loads, before its memory is looked at
SHAPE = (1, 28, 28)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument('--seconds', type=float, default=12)
parser.add_argument('--rate', type=float, default=150, help='requests a second of pare load')
parser.add_argument('--connections', type=int, default=16, help='of pare load at most: each has 16 KB in the server')
parser.add_argument('--json', type=Path, help='a file for what was counted')
parser.add_argument('--model', type=Path, default=ZOO / 'cnn.onnx', help='the model under load')
words = parser.parse_args()
rng = np.random.default_rng(5)
over = threading.Event()
broken = []  # a text for whatever must not be


def make_repository(folder):
    for name in 'net', 'other':
        version = folder / name / '1'
        version.mkdir(parents=True)
        source = words.model if name == 'net' else ZOO / 'mlp.onnx'
        (version / 'model.onnx').write_bytes(source.read_bytes())


def request_of(sample):
    head = json.dumps({'inputs': [{'name': 'input', 'shape': [1, *SHAPE], 'datatype': 'FP32',
                                   'parameters': {'binary_data_size': sample.nbytes}}],
                       'parameters': {'binary_data_output': True}}).encode()
    return head + sample.tobytes(), {'Inference-Header-Content-Length': str(len(head))}


class Client:
    """A connection that is kept alive, and what it was answered."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(url, timeout=60)
        self.count = 0

    def post(self, path, body=b'', headers=None):
        self.connection.request('POST', path, body, headers or {})
        answer = self.connection.getresponse()
        self.count += 1
        return answer.status, answer.read(), answer.headers

    def infer(self, body, headers):
        """Status and the output's bytes."""
        status, got, said = self.post('/v2/models/net/infer', body, headers)
        return status, got[int(said.get('Inference-Header-Content-Length', 0)):]


def guarded(work):
    """A thread's work; whatever it raises is something broken."""
    def run(*args):
        try:
            work(*args)
        except Exception as error:  # a lost connection, a timeout, ...
            broken.append(f'{work.__name__}: {error!r}')
    return run


@guarded
def compare(url, requests, counts):
    """Asks again and again; an answer has the bytes that the first one had."""
    client = Client(url)
    want = [client.infer(*r) for r in requests]
    while not over.is_set():
        for request, first in zip(requests, want):
            got = client.infer(*request)
            if got != first or got[0] != 200:
                broken.append(f'an answer of status {got[0]} with other bytes than the first')
            time.sleep(0.005)
    counts['compared'] = client.count


def load_round(client, pause):
    """One model goes and comes; the one under load is read again."""
    for path in ('other/unload', 'net/load', 'other/load', 'net/load'):
        status, body, _ = client.post(f'/v2/repository/models/{path}')
        if status != 200:
            broken.append(f'{path}: {status} {body!r}')
        over.wait(pause)


def warm_up(url, requests):
    """What a server takes once: memory of every thread that loads and answers."""
    client = Client(url)
    for _ in range(WARM_ROUNDS):
        load_round(client, 0)
        for request in requests:
            client.infer(*request)


@guarded
def load_and_unload(url, counts):
    client = Client(url)
    while not over.is_set():
        load_round(client, 0.2)
    counts['loads'] = client.count


@guarded
def break_off(url, requests, counts):
    """Clients that go away: in the head, in the body, before the answer; some reset the connection."""
    host, port = url.split(':')
    body, headers = requests[0]
    head = 'POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\n' + ''.join(
        f'{key}: {value}\r\n' for key, value in {**headers, 'Content-Length': len(body)}.items()) + '\r\n'
    whole = head.encode() + body
    gone = 0
    while not over.wait(0.02):
        with socket.create_connection((host, int(port)), 30) as one:
            if gone % 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            one.sendall(whole[:rng.integers(1, len(whole))] if gone % 3 else whole)
        gone += 1
    counts['gone'] = gone


@guarded
def kill_clients(command, counts):
    """kill -9 of whole programs that ask."""
    killed = 0
    while not over.is_set():
        with subprocess.Popen([*command, '--rate', 'poisson:100', '--duration', '60'], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            over.wait(1.5)
            process.kill()
        killed += 1
    counts['killed'] = killed


def resident(pid):
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmRSS:'):
            return int(line.split()[1]) * 1024
    return 0


def soak(folder, url, pid):
    samples = rng.standard_normal((64, *SHAPE)).astype(np.float32)
    with h5py.File(folder / 'samples.h5', 'w') as file:
        file['input'] = samples
    command = [PARE, 'load', f'http://{url}', '--model', 'net', '--data', str(folder / 'samples.h5'), '--connections',
               str(words.connections)]
    requests, counts, memory = [request_of(s) for s in samples[:8]], {}, []
    work = [(compare, url, requests, counts), (load_and_unload, url, counts), (break_off, url, requests, counts),
            (kill_clients, command, counts)]
    threads = [threading.Thread(target=one[0], args=one[1:]) for one in work]
    facts = folder / 'load.json'
    warm_up(url, requests)
    with subprocess.Popen([*command, '--rate', f'poisson:{words.rate}', '--duration', str(words.seconds), '--timeout',
                           '60', '--json', str(facts)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as steady:
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        while steady.poll() is None:
            memory.append((time.monotonic() - begun, resident(pid)))
            time.sleep(0.2)
        said = steady.stdout.read().decode()
    over.set()
    for thread in threads:
        thread.join()
    check('load_ends', steady.returncode == 0 and facts.exists(), said[-400:])
    return json.loads(facts.read_text())['rates'][0] if facts.exists() else {}, counts, memory


def judge(row, counts, memory):
    check('answers', row.get('answered') == row.get('sent') and row.get('sent', 0) > words.rate * words.seconds / 2,
          f'{row.get("answered")} of {row.get("sent")} answered, {row.get("shed")} shed, {row.get("failed")} failed')
    check('nothing_is_wrong', not broken, f'{len(broken)}: {broken[:3]}')
    for what in 'compared', 'loads', 'gone', 'killed':
        check(what, counts.get(what, 0) > 0, counts)
    settled = [bytes for at, bytes in memory if at > memory[-1][0] * 0.3]
    growth = np.median(settled[-len(settled) // 4:]) - np.median(settled[:len(settled) // 4])
    check('memory_is_flat', growth < GROWTH, f'grown by {growth / 1e6:.1f} MB to {memory[-1][1] / 1e6:.1f}')
    return dict(row, **counts, broken=len(broken), growth_bytes=int(growth), resident_bytes=memory[-1][1])


with tempfile.TemporaryDirectory() as made:
    folder = Path(made)
    make_repository(folder / 'models')
    with subprocess.Popen([PARE, 'serve', str(folder / 'models'), '--port', '0', '--http-threads', '2', '--max-delay', '500'],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip().removeprefix('http://')
        if not url:
            why = server.stderr.read().strip()
            report('SKIP' if 'no HTTP library' in why else 'FAIL', 'serve_soak', why)
            finish()
            sys.exit()
        try:
            row, counts, memory = soak(folder, url, server.pid)
            server.send_signal(signal.SIGTERM)
            check('stops', server.wait(60) == 0)
            said = server.stderr.read()
            check('says_nothing_else', all(': no new connections' in line or not line for line in said.splitlines()), said)
        finally:
            server.kill()
    summary = judge(row, counts, memory)
    if words.json:
        words.json.write_text(json.dumps(summary, indent=1) + '\n')
finish()

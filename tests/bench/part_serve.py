# SPDX-License-Identifier: Apache-2.0
"""pare serve under load: the most requests a second within a limit of p99, beside ONNX Runtime behind FastAPI and with
and without batches; latency of what is admitted at twice that load; a soak. The server has one core, the load another."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import nets
from common import HERE, ROOT, Failed, call

PART = "serve"
LIMIT_MS = 20        # of p99
SECONDS = 4          # of a rate
STEP = 1.15          # between rates
SERVER, CLIENT = {0}, {1}


class Server:
    """A server on its own core until the end of a with."""

    def __init__(self, command, env=None, say=None):
        self.process = subprocess.Popen([str(word) for word in command], env={**os.environ, **(env or {})},
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, SERVER))
        line = ""
        while not (found := re.search(r"https?://[\d.]+:(\d+)", line)):
            line = self.process.stdout.readline()
            if not line:
                raise Failed(f"{command[0]} does not serve")
        self.url = found.group(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def pare_server(options, model, *words):
    return Server([options.pare, "serve", model, "--port", 0, "--instances", 1, *words])


def rival_server(options, model):
    return Server([options.serve_python, "-m", "uvicorn", "--app-dir", HERE, "serve_ort:app", "--no-access-log", "--port", 8377],
                  env={"MODEL": str(model)})


def wait_until_up(url, model):
    for _ in range(100):
        try:
            urllib.request.urlopen(f"{url}/v2/models/{model}", timeout=5)
            return
        except OSError:
            time.sleep(0.1)
    raise Failed(f"{url} does not answer")


def load(options, url, model, data, rate, seconds=SECONDS, connections=128):
    """The facts of one rate."""
    out = options.work / "serve.json"
    words = [options.pare, "load", url, "--model", model, "--data", data, "--rate", f"poisson:{rate:.0f}",
             "--duration", seconds, "--connections", connections, "-q", "--json", out]
    call(["taskset", "-c", ",".join(map(str, CLIENT)), *words])
    return json.loads(out.read_text())["rates"][0]


def keeps(row):
    """Was the rate answered, whole and in time?"""
    p99 = row["latency_ms"].get("p99")
    return row["answered"] >= 0.99 * row["sent"] and p99 is not None and p99 <= LIMIT_MS


def most(options, url, model, data, start):
    """The highest rate that is kept, of start * 2^i and then of steps between; its facts."""
    wait_until_up(url, model)
    rate, best = start, None
    while keeps(row := load(options, url, model, data, rate)):
        best, rate = row, rate * 2
    if best is None:
        return None
    rate = rate / 2 * STEP
    while rate < 2 * best["offered_per_s"] and keeps(row := load(options, url, model, data, rate)):
        best, rate = row, rate * STEP
    return best


def note(results, case, row, what="requests/s"):
    results.add(PART, case, f"{what}, p99 within {LIMIT_MS} ms", round(row["throughput_per_s"]), "1/s")
    results.detail(PART, dict(case=case, offered=row["offered_per_s"], answers=round(row["throughput_per_s"]),
                              median_ms=row["latency_ms"]["median"], p99_ms=row["latency_ms"]["p99"],
                              batch=row.get("mean_batch", "")))


def int8_of(options, net):
    made = options.work / f"serve-{net.name}-int8.onnx"
    if not made.exists():
        call([options.pare, "quantize", net.path, "--data", nets.data_file(options, net, "train"), "-o", made, "-q"])
    return made


def beside_rival(options, results, case, model, data):
    rows = {}
    for who in "pare", "onnxruntime":
        server = pare_server(options, model) if who == "pare" else rival_server(options, model)
        with server:
            rows[who] = most(options, server.url, model.stem, data, 400)
        if rows[who] is None:
            results.fail(PART, case, f"{who} does not keep 400 requests/s")
            return
        note(results, f"{case}, {who}", rows[who])
    ratio = rows["pare"]["throughput_per_s"] / rows["onnxruntime"]["throughput_per_s"]
    results.add(PART, case, "requests/s, pare over FastAPI", round(ratio, 2), "x", ">= 5")


def batching(options, results, case, model, data):
    rows = {}
    for words in (("--max-batch", 1), ("--max-batch", 32)):
        with pare_server(options, model, *words) as server:
            rows[words[1]] = most(options, server.url, model.stem, data, 1000)
        note(results, f"{case}, batches of {words[1]}", rows[words[1]])
    ratio = rows[32]["throughput_per_s"] / rows[1]["throughput_per_s"]
    results.add(PART, case, "requests/s with batches, over without", round(ratio, 2), "x", ">= 2")


def overload(options, results, case, model, data):
    """p99 of what is admitted at twice the most that a server keeps which refuses nothing, over that at 80 % of it."""
    with pare_server(options, model) as server:
        best = most(options, server.url, model.stem, data, 500)["offered_per_s"]
    with pare_server(options, model, "--max-wait", 1000) as server:
        wait_until_up(server.url, model.stem)
        rows = {part: load(options, server.url, model.stem, data, part * best, 10, 1024) for part in (0.8, 2)}
    for part, row in rows.items():
        results.add(PART, case, f"p99 at {part:g} of the most", row["latency_ms"]["p99"], "ms")
    results.add(PART, case, "refused at twice the most", round(100 * rows[2]["shed"] / rows[2]["sent"], 1), "%")
    results.add(PART, case, "p99 of admitted: at twice over at 80 %",
                round(rows[2]["latency_ms"]["p99"] / rows[0.8]["latency_ms"]["p99"], 2), "x", "<= 2")


def soak(options, results, model):
    """tests/interop/serve_soak.py for long, at 80 % of what two programs that share two cores reach."""
    out = options.work / "soak.json"
    command = [sys.executable, ROOT / "tests" / "interop" / "serve_soak.py", "--seconds", options.soak_seconds, "--rate",
               options.soak_rate, "--connections", 128, "--model", model, "--json", out]
    try:
        call(command, env={"PARE": str(options.pare)})
    except Failed as error:
        results.fail(PART, "soak", error)
        return
    row, case = json.loads(out.read_text()), f"soak, {options.soak_seconds:g} s"
    results.add(PART, case, "requests/s", round(row["throughput_per_s"]), "1/s")
    results.add(PART, case, "requests lost", row["sent"] - row["answered"], "", "<= 0")
    results.add(PART, case, "answers wrong, or other failures", row["broken"], "", "<= 0")
    results.add(PART, case, "memory grown", round(row["growth_bytes"] / 1e6, 1), "MB", "<= 10")
    for what in "compared", "loads", "gone", "killed":
        results.add(PART, case, what, row[what])
    results.detail("serve_soak", row)


def run(options, results):
    if len(os.sched_getaffinity(0)) < 2 or not shutil.which("taskset"):
        results.fail(PART, "all", "needs two cores and taskset")
        return
    small = {net.name: net for net in nets.small_nets(options)}
    if not {"mlp", "cnn"} <= set(small):
        return
    mlp, cnn = small["mlp"], small["cnn"]
    test = nets.data_file(options, cnn, "t10k")
    try:
        batching(options, results, "mlp", mlp.path, nets.data_file(options, mlp, "t10k"))
        overload(options, results, "cnn", cnn.path, test)
        if options.serve_python:
            beside_rival(options, results, "mlp", mlp.path, nets.data_file(options, mlp, "t10k"))
            beside_rival(options, results, "cnn", cnn.path, test)
            beside_rival(options, results, "cnn INT8", int8_of(options, cnn), test)
    except Failed as error:
        results.fail(PART, "load", error)
    soak(options, results, cnn.path)

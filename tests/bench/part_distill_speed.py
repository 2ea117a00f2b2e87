# SPDX-License-Identifier: Apache-2.0
"""Distillation: what a step costs beside PyTorch, in time and memory."""

import json
import math
import statistics
import sys

import nets
from common import HERE, Failed, call

PART = "distill_speed"
BATCH, THREADS, ROUNDS = 128, 2, 5
STEPS = 40
TIMED = ("cnn", "resnet", "mobilenet", "vit")


def ours(options, net, folder):
    model, facts = folder / f"{net.name}_timed.onnx", folder / f"{net.name}_timed.json"
    model.unlink(missing_ok=True)
    # few samples are held out, so that next to nothing but steps is timed
    outcome = call([options.pare, "distill", "--teacher", net.path, "--student", net.path,
                    "--data", nets.data_file(options, net, "train"), "-o", model, "--json", facts,
                    "--val", nets.data_file(options, net, "t10k", BATCH), "--validate-every", STEPS,
                    "--steps", STEPS, "--batch", BATCH, "--threads", THREADS, "--quiet"])
    return json.loads(facts.read_text())["samples_per_s"], outcome.peak_bytes


def theirs(options, net, *words):
    """The faster of PyTorch's two memory orders: samples per second, its peak memory."""
    runs = []
    for order in ([], ["--channels-last"]):
        outcome = call([sys.executable, HERE / "distill_torch.py", net.name,
                        nets.data_file(options, net, "train"), "--batch", BATCH, "--steps", STEPS,
                        "--threads", THREADS, *order, *words])
        row = json.loads(outcome.output.splitlines()[-1])
        runs.append((row["samples_per_s"], row["peak_bytes"]))
    return max(runs)


def add_net(options, results, net, folder, rivals):
    """rivals: by name, further words for PyTorch; the ratios by that name."""
    rounds = [(ours(options, net, folder), [theirs(options, net, *words) for words in rivals.values()])
              for _ in range(ROUNDS)]
    case, ratios = f"{net.name} batch {BATCH} t{THREADS}", {}
    results.add(PART, case, "samples/s", statistics.median(own[0] for own, _ in rounds), "1/s")
    for k, name in enumerate(rivals):
        results.add(PART, case, f"samples/s, PyTorch {name}",
                    statistics.median(others[k][0] for _, others in rounds), "1/s")
        ratios[name] = statistics.median(own[0] / others[k][0] for own, others in rounds)
        results.add(PART, case, f"samples/s, of PyTorch {name}", ratios[name], "x",
                    ">= 0.8" if name == "eager" else None)
    results.add(PART, case, "peak memory, of PyTorch eager",
                max(own[1] for own, _ in rounds) / min(others[0][1] for _, others in rounds), "x",
                "<= 0.8")
    return ratios


def rivals_of(options, net):
    """Compiled code takes a compiler that PyTorch finds; without it the rest is measured."""
    rivals = {"eager": [], "compiled": ["--compile"]}
    try:
        call([sys.executable, HERE / "distill_torch.py", net.name, nets.data_file(options, net, "train"),
              "--batch", BATCH, "--steps", 2, "--threads", THREADS, "--compile"])
    except Failed as error:
        print(f"left out: PyTorch compiled: {error}", file=sys.stderr)
        del rivals["compiled"]
    return rivals


def run(options, results):
    folder = options.work / "pare" / "distill"
    folder.mkdir(parents=True, exist_ok=True)
    ratios = {}
    for net in nets.small_nets(options):
        if net.name not in TIMED:
            continue
        try:
            got = add_net(options, results, net, folder, rivals_of(options, net))
            for name, ratio in got.items():
                ratios.setdefault(name, []).append(ratio)
        except Failed as error:
            results.fail(PART, f"{net.name} samples/s", error)
    for name, list_ in ratios.items():
        results.add(PART, "geometric mean", f"samples/s, of PyTorch {name}",
                    math.exp(statistics.mean(map(math.log, list_))), "x",
                    ">= 1.0" if name == "eager" else None)

# SPDX-License-Identifier: Apache-2.0
"""Distillation: what a step costs beside PyTorch, and what training brings back after pruning and in INT8,
on the 10,000 test images, without labels."""

import json
import math
import statistics
import sys

import nets
import runtimes
from common import HERE, Failed, call

BATCH, THREADS, ROUNDS = 128, 2, 3
STEPS = 40
TIMED = ("cnn", "resnet", "mobilenet", "vit")
RECOVERED = {  # net: how it is pruned, epochs, points of top-1 lost at most
    "cnn": [("--macs", "0.5", 1, 0.2), ("--macs", "0.25", 3, 1.5), ("--sparsity", "0.8", 1, 0.5),
            ("--nm", "2:4", 1, 0.3)],
    "resnet": [("--macs", "0.5", 1, 0.2), ("--macs", "0.25", 3, 1.5), ("--sparsity", "0.8", 1, 0.5),
               ("--nm", "2:4", 1, 0.3)],
    "mobilenet": [("--macs", "0.5", 1, 0.5), ("--macs", "0.25", 3, 1.5)],
    "vit": [("--macs", "0.5", 1, None), ("--macs", "0.25", 3, 1.5), ("--sparsity", "0.8", 1, 0.5),
            ("--nm", "2:4", 1, 0.3)],
}


def small_nets(options):
    return [net for net in nets.all_nets(options) if not net.wide]


# --- a step, side by side ---


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


def add_net_speed(options, results, net, folder, rivals):
    """rivals: by name, further words for PyTorch; the ratios by that name."""
    rounds = [(ours(options, net, folder), [theirs(options, net, *words) for words in rivals.values()])
              for _ in range(ROUNDS)]
    case, ratios = f"{net.name} batch {BATCH} t{THREADS}", {}
    results.add("distill", case, "samples/s", statistics.median(own[0] for own, _ in rounds), "1/s")
    for k, name in enumerate(rivals):
        results.add("distill", case, f"samples/s, PyTorch {name}",
                    statistics.median(others[k][0] for _, others in rounds), "1/s")
        ratios[name] = statistics.median(own[0] / others[k][0] for own, others in rounds)
        results.add("distill", case, f"samples/s, of PyTorch {name}", ratios[name], "x",
                    ">= 0.8" if name == "eager" else None)
    results.add("distill", case, "peak memory, of PyTorch eager",
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


def add_speed(options, results, folder):
    ratios = {}
    for net in small_nets(options):
        if net.name not in TIMED:
            continue
        try:
            got = add_net_speed(options, results, net, folder, rivals_of(options, net))
            for name, ratio in got.items():
                ratios.setdefault(name, []).append(ratio)
        except Failed as error:
            results.fail("distill", f"{net.name} samples/s", error)
    for name, list_ in ratios.items():
        results.add("distill", "geometric mean", f"samples/s, of PyTorch {name}",
                    math.exp(statistics.mean(map(math.log, list_))), "x",
                    ">= 1.0" if name == "eager" else None)


# --- what comes back ---


def drop_of(options, net, model):
    data, labels = nets.data_file(options, net, "t10k"), nets.labels(options)
    before, after = (runtimes.top1(runtimes.our_logits(options, path, data), labels)
                     for path in (net.path, model))
    return before - after


def pattern_of(model):
    """Where each weight of 2 axes or more is zero, by name."""
    import onnx
    from onnx import numpy_helper

    return {t.name: numpy_helper.to_array(t) == 0 for t in onnx.load(model).graph.initializer
            if len(t.dims) >= 2}


def add_recovery(options, results, net, folder, way):
    word, amount, epochs, limit = way
    stem = f"{net.name}_{word.strip('-')}_{amount.replace(':', '_')}"
    pruned, tuned, facts = (folder / f"{stem}{end}" for end in ("_p.onnx", "_d.onnx", ".json"))
    for path in (pruned, tuned):
        path.unlink(missing_ok=True)
    train = nets.data_file(options, net, "train")
    call([options.pare, "prune", net.path, "-o", pruned, word, amount, "--data", train, "--quiet"])
    outcome = call([options.pare, "distill", "--teacher", net.path, "--student", pruned, "--data", train,
                    "-o", tuned, "--epochs", epochs, "--json", facts, "--quiet"])
    case = f"{net.name} {word} {amount}, {epochs} epochs"
    before = round(drop_of(options, net, pruned), 2)
    results.add("distill", case, "top-1 drop, pruned", before, "points")
    results.add("distill", case, "top-1 drop, distilled", round(drop_of(options, net, tuned), 2), "points",
                None if limit is None else f"<= {limit}")
    results.add("distill", case, "time", round(outcome.seconds, 1), "s")
    if word != "--macs":
        zeros, left = pattern_of(pruned), pattern_of(tuned)
        kept = all((left[name] | ~zeros[name]).all() for name in zeros if zeros[name].mean() >= 0.2)
        results.add("distill", case, "zeros that stayed", int(kept), "", "== 1")


def run(options, results):
    folder = options.work / "pare" / "distill"
    folder.mkdir(parents=True, exist_ok=True)
    add_speed(options, results, folder)
    for net in small_nets(options):
        for way in RECOVERED.get(net.name, []):
            try:
                add_recovery(options, results, net, folder, way)
            except Failed as error:
                results.fail("distill", f"{net.name} {way[0]} {way[1]}", error)

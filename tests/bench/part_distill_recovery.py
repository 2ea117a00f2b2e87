# SPDX-License-Identifier: Apache-2.0
"""Distillation: what training without labels brings back after pruning, on the 10,000 test images."""

import nets
import runtimes
from common import Failed, call

PART = "distill_recovery"
RECOVERED = {  # net: how it is pruned, epochs, points of top-1 lost at most
    "cnn": [("--macs", "0.5", 1, 0.2), ("--macs", "0.25", 3, 1.5), ("--sparsity", "0.8", 1, 0.5),
            ("--nm", "2:4", 1, 0.3)],
    "resnet": [("--macs", "0.5", 1, 0.2), ("--macs", "0.25", 3, 1.5), ("--sparsity", "0.8", 1, 0.5),
               ("--nm", "2:4", 1, 0.3)],
    "mobilenet": [("--macs", "0.5", 1, 0.5), ("--macs", "0.25", 3, 1.5)],
    "vit": [("--macs", "0.5", 1, None), ("--macs", "0.25", 3, 1.5), ("--sparsity", "0.8", 1, 0.5),
            ("--nm", "2:4", 1, 0.3)],
}


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


def add_net(options, results, net, folder, way):
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
    results.add(PART, case, "top-1 drop, pruned", before, "points")
    results.add(PART, case, "top-1 drop, distilled", round(drop_of(options, net, tuned), 2), "points",
                None if limit is None else f"<= {limit}")
    results.add(PART, case, "time", round(outcome.seconds, 1), "s")
    if word != "--macs":
        zeros, left = pattern_of(pruned), pattern_of(tuned)
        kept = all((left[name] | ~zeros[name]).all() for name in zeros if zeros[name].mean() >= 0.2)
        results.add(PART, case, "zeros that stayed", int(kept), "", "== 1")


def add_one_command(options, results, net, folder, way):
    """The same by prune alone, which trains what it pruned with its BatchNormalization unfolded."""
    word, amount, epochs, limit = way
    path = folder / f"{net.name}_{word.strip('-')}_{amount}_one.onnx"
    path.unlink(missing_ok=True)
    outcome = call([options.pare, "prune", net.path, "-o", path, word, amount,
                    "--data", nets.data_file(options, net, "train"), "--distill", f"epochs={epochs}", "--quiet"])
    case = f"{net.name} {word} {amount} --distill epochs={epochs}"
    results.add(PART, case, "top-1 drop", round(drop_of(options, net, path), 2), "points",
                None if limit is None else f"<= {limit}")
    results.add(PART, case, "time", round(outcome.seconds, 1), "s")


def run(options, results):
    folder = options.work / "pare" / "distill"
    folder.mkdir(parents=True, exist_ok=True)
    for net in nets.small_nets(options):
        for way in RECOVERED.get(net.name, []):
            try:
                add_net(options, results, net, folder, way)
                if way[0] == "--macs":
                    add_one_command(options, results, net, folder, way)
            except Failed as error:
                results.fail(PART, f"{net.name} {way[0]} {way[1]}", error)

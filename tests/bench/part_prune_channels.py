# SPDX-License-Identifier: Apache-2.0
"""What removing channels costs without training, on the 10,000 test images: to half of the multiply-adds or
parameters, refitted on 512 training images or not, and quantized afterwards."""

import json

import nets
import runtimes
from common import Failed, call

SAMPLES = 512
LIMITS = {"cnn": 0.9, "resnet": 2.7, "mobilenet": 4.7}  # points of top-1 lost at 50 % of the MACs
WAYS = [  # what is kept, how, options
    ("--macs", "refitted", []), ("--macs", "not refitted", ["--no-refit"]),
    ("--params", "refitted", []),
]


def score(options, model, data, labels):
    return runtimes.top1(runtimes.our_logits(options, model, data), labels)


def prune(options, net, folder, target, words):
    """Prunes to half of target: the model's path, the facts, what the run cost."""
    name = "_".join([net.name, target.strip("-"), *(word.strip("-") for word in words)])
    model, facts = folder / f"{name}.onnx", folder / f"{name}.json"
    model.unlink(missing_ok=True)
    outcome = call([options.pare, "prune", net.path, "-o", model, "--json", facts, "--quiet",
                    target, "0.5", "--data", nets.data_file(options, net, "train"),
                    "--samples", SAMPLES, *words])
    return model, json.loads(facts.read_text())["smaller"][0], outcome


def add_one(options, results, net, folder, way):
    """One pruned model of a net beside its limits; the model."""
    target, how, words = way
    model, facts, outcome = prune(options, net, folder, target, words)
    data, labels = nets.data_file(options, net, "t10k"), nets.labels(options)
    logits = runtimes.our_logits(options, model, data)
    drop = score(options, net.path, data, labels) - runtimes.top1(logits, labels)
    elsewhere = runtimes.ort_logits(model, nets.narrow_images(options, "t10k")[0][:1000])
    left = {what: 100 * facts[what]["after"] / facts[what]["before"]
            for what in ("macs", "parameters")}
    case = f"{net.name} {target} 0.5"
    judged = how == "refitted" and target == "--macs"
    limit = f"<= {LIMITS[net.name]}" if judged and net.name in LIMITS else None
    results.add("prune_channels", case, f"top-1 drop, {how}", round(drop, 2), "points", limit)
    if how == "refitted":
        results.add("prune_channels", case, "multiply-adds left", left["macs"], "%",
                    "<= 50" if judged else None)
        results.add("prune_channels", case, "parameters left", left["parameters"], "%",
                    None if judged else "<= 50")
        results.add("prune_channels", case, "class as in ONNX Runtime, 1,000 images",
                    runtimes.agreement(elsewhere, logits[:1000]), "%", ">= 99.9")
        results.add("prune_channels", case, "time with 512 images", round(outcome.seconds, 1), "s")
        results.add("prune_channels", case, "peak memory", round(outcome.peak_bytes / 2**20), "MiB")
    results.detail("prune_channels", dict(
        net=net.name, target=target, way=how, drop=drop, macs=left["macs"],
        parameters=left["parameters"], bytes=facts["bytes"], seconds=outcome.seconds,
        peak_bytes=outcome.peak_bytes))
    return model


def add_quantized(options, results, net, folder, pruned):
    """Prune, then quantize, then validate: what both cost together."""
    model, facts = folder / f"{net.name}_int8.onnx", folder / f"{net.name}_int8.json"
    model.unlink(missing_ok=True)
    data = nets.data_file(options, net, "t10k")
    call([options.pare, "quantize", pruned, "-o", model, "--quiet",
          "--data", nets.data_file(options, net, "train")])
    call([options.pare, "validate", net.path, model, "--data", data, "--quiet", "--json", facts])
    labels = nets.labels(options)
    drop = score(options, net.path, data, labels) - score(options, model, data, labels)
    size = 100 * model.stat().st_size / net.path.stat().st_size
    case = f"{net.name} --macs 0.5, then int8"
    results.add("prune_channels", case, "top-1 drop of both", round(drop, 2), "points")
    results.add("prune_channels", case, "file size, of before", size, "%")


def run(options, results):
    folder = options.work / "pare" / "prune_channels"
    folder.mkdir(parents=True, exist_ok=True)
    for net in nets.all_nets(options):
        if net.wide:
            continue
        pruned = {}
        for way in WAYS:
            try:
                pruned[way[:2]] = add_one(options, results, net, folder, way)
            except Failed as error:
                results.fail("prune_channels", f"{net.name} {way[0]} {way[1]}", error)
        if WAYS[0][:2] not in pruned:
            continue
        try:
            add_quantized(options, results, net, folder, pruned[WAYS[0][:2]])
        except Failed as error:
            results.fail("prune_channels", f"{net.name}, then int8", error)

# SPDX-License-Identifier: Apache-2.0
"""`pare quantize --prefer latency`: what it says of its result, and what bench_latency measures afterwards against the float
model, in processes of their own; beside that the model that is all int8. The promise: no slower than the float model."""

import json
import statistics

import onnx

import nets
from common import Failed, call
from part_latency import time_pair
from part_prune_latency import APART, IN_TURN

PART = "placement"
PROCESSES = 3
SLOWER = "<= 1.05"  # bench_latency's medians of two files of one model are that far apart


def quantize(options, net, name, *words):
    path = options.work / "pare" / PART / f"{name}.onnx"
    facts = path.with_suffix(".json")
    path.unlink(missing_ok=True)
    done = call(nets.our_command(options, net, path, "--activations", "u8", "--json", facts, *words), status=(0, 3))
    return path, json.loads(facts.read_text()), done.seconds


def apart(options, net, path, batch, threads):
    """The median of several processes' ratios over the float model's time."""
    return statistics.median(time_pair(options, net, f"pare:{path}", f"pare:{net.path}", batch, threads, APART,
                                       more=IN_TURN)["ratio"] for _ in range(PROCESSES))


def shape_of(net, batch):
    """The words of --shapes for such a batch."""
    name = onnx.load(net.path, load_external_data=False).graph.input[0].name
    return f"{name}:{batch}x3x224x224" if net.wide else f"{name}:{batch}x1x28x28"


def one(options, results, net, plain, batch, threads):
    case = f"{net.name} b{batch} t{threads}"
    path, facts, seconds = quantize(options, net, f"{net.name}_b{batch}_t{threads}", "--prefer", "latency",
                                    "--threads", threads, "--shapes", shape_of(net, batch))
    said, all_int8, chosen = facts["latency"], apart(options, net, plain, batch, threads), apart(options, net, path, batch, threads)
    results.add(PART, case, "all int8, of float's time", all_int8, "x")
    results.add(PART, case, f"placed, of float's time ({facts['converted_nodes']} int8, {facts['float_nodes']} float; quantize "
                f"said {said['ratio']:.2f})", chosen, "x", SLOWER if said["met"] else None)
    if not said["met"]:
        results.add(PART, case, "quantize said that it is slower", said["ratio"], "x")
    results.detail(PART, dict(net=net.name, batch=batch, threads=threads, all_int8=all_int8, placed=chosen, said=said["ratio"],
                              said_int8=said["int8_ratio"], met=said["met"], stable=said["stable"],
                              int8_nodes=facts["converted_nodes"], float_nodes=facts["float_nodes"], seconds=seconds))


def run(options, results):
    (options.work / "pare" / PART).mkdir(parents=True, exist_ok=True)
    for net in nets.all_nets(options):
        if net.wide and net.name != "squeezenet1.1":
            continue
        plain, _, _ = quantize(options, net, f"{net.name}_plain")
        for threads in options.threads:
            for batch in options.batches:
                try:
                    one(options, results, net, plain, batch, threads)
                except Failed as error:
                    results.fail(PART, f"{net.name} b{batch} t{threads}", error)

# SPDX-License-Identifier: Apache-2.0
"""Pruned to a part of the dense model's time: what `pare prune --latency` says of its result, and what bench_latency
measures afterwards, the pruned and the dense model in turn in processes of their own, with times of kernels of their own. One
process may see a small net a tenth quicker or slower than the next, probably by where its weights come to be: the median of
several counts. Both sides share one set of threads, so that no one's need fall asleep before the other's turn: samples
follow each other at once, and what changes the machine's pace meets both of a pair."""

import json
import statistics

import nets
from common import Failed, call
from part_latency import time_pair

GOALS = (0.8, 0.6, 0.5)
POINTS = 5  # of the dense model's time
APART = 1e30  # pruned outputs are meant to differ
PROCESSES = 5
IN_TURN = ("--pause-ms", 0, "--pairs", 100)


def prune(options, net, folder, goal, threads):
    """Prunes by magnitude, no data: the model's path, the facts of its time, the seconds."""
    name = f"{net.name}_{goal}_t{threads}"
    model, facts = folder / f"{name}.onnx", folder / f"{name}.json"
    model.unlink(missing_ok=True)
    outcome = call([options.pare, "prune", net.path, "-o", model, "--json", facts, "--quiet",
                    "--latency", goal, "--threads", threads, "--cache", folder])
    return model, json.loads(facts.read_text())["smaller"][0]["latency"], outcome.seconds


def add_one(options, results, net, folder, goal, threads):
    model, facts, seconds = prune(options, net, folder, goal, threads)
    ratios = sorted(time_pair(options, net, f"pare:{model}", f"pare:{net.path}", 1, threads, APART,
                              more=IN_TURN)["ratio"]
                    for _ in range(PROCESSES))
    ratio = statistics.median(ratios)
    case = f"{net.name} t{threads} --latency {goal}"
    results.add("prune_latency", case, "forecast", 100 * facts["forecast"], "%")
    results.add("prune_latency", case, "as prune measured it", 100 * facts["measured"], "%")
    span = f"{100 * ratios[0]:.1f}..{100 * ratios[-1]:.1f}"
    # the goal, or what prune said of the nearest that it wrote instead
    said = goal if facts["met"] else facts["measured"]
    results.add("prune_latency", case, f"measured apart, {span}", 100 * ratio, "%")
    results.add("prune_latency", case, "off the goal" if facts["met"] else
                f"goal not met, prune says; off the {100 * said:.1f} % it says",
                100 * abs(ratio - said), "points", f"<= {POINTS}")
    results.detail("prune_latency", dict(
        net=net.name, threads=threads, goal=goal, forecast=facts["forecast"],
        measured=facts["measured"], met=facts["met"], apart=ratios, stable=facts["stable"], searches=facts["searches"],
        shapes_measured=facts["shapes_measured"], seconds=seconds))


def run(options, results):
    folder = options.work / "pare" / "prune_latency"
    folder.mkdir(parents=True, exist_ok=True)
    for net in nets.all_nets(options):
        for threads in options.threads:
            for goal in GOALS:
                try:
                    add_one(options, results, net, folder, goal, threads)
                except Failed as error:
                    results.fail("prune_latency", f"{net.name} t{threads} --latency {goal}", error)

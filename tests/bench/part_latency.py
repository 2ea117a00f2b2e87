# SPDX-License-Identifier: Apache-2.0
"""Latency against ONNX Runtime: FP32, INT8 with u8 and with s8 activations; ours against ours."""

import csv
import io
import math

import nets
from common import Failed, call

TARGETS = {"fp32": "<= 0.9", "u8": "<= 0.8", "s8": "<= 0.35"}
WORST = "<= 1.3"
MACS_THAT_MUST_GAIN = 1.0  # millions in one run of one image
# Rounding on the way differs, so quantized outputs agree loosely; this only refuses garbage.
TOLERANCE = {"fp32": 1e-3, "u8": 0.25, "s8": 0.25}
# Random weights give classes that differ by little of their size; two quantizations of them
# agree less than that.
UNTRAINED = 0.75


def tolerance_of(net, scheme):
    return TOLERANCE[scheme] if net.trained or scheme == "fp32" else UNTRAINED


def time_files(options, first, second, batch, threads, tolerance, env=None, more=()):
    """One case of bench_latency as a dict of its CSV columns; numbers are floats. more: options."""
    command = [options.bench, "--ort", options.ort, "--header", "--batch", batch,
               "--threads", threads, "--pairs", options.pairs, "--tolerance", tolerance,
               "--max-seconds", options.max_seconds, "--cache", options.work / "timing",
               *more, first, second]
    (options.work / "timing").mkdir(parents=True, exist_ok=True)
    output = call(command, env).output
    lines = [line for line in output.splitlines() if line.count(",") > 10]
    row = next(csv.DictReader(io.StringIO("\n".join(lines))))
    return {key: float(value) if key not in ("label", "a", "b") else value
            for key, value in row.items()}


def time_pair(options, net, first, second, batch, threads, tolerance, env=None, more=()):
    """The same, fed with an image."""
    return time_files(options, first, second, batch, threads, tolerance, env,
                      ("--input", nets.raw_image_file(options, net), *more))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def cases(options):
    return [(batch, threads) for threads in options.threads for batch in options.batches]


def measure(options, results, part, net, scheme, first, second, tolerance, env=None):
    """Times all batches and threads; returns rows and notes each."""
    rows = []
    for batch, threads in cases(options):
        case = f"{net.name} b{batch} t{threads}"
        try:
            row = time_pair(options, net, first, second, batch, threads, tolerance, env)
        except Failed as error:
            results.fail(part, f"{case} {scheme}", error)
            continue
        row.update(net=net.name, scheme=scheme)
        del row["label"], row["a"], row["b"]
        rows.append(row)
        results.detail(part, {"net": net.name, "scheme": scheme, **row})
        interval = f"{row['ratio_low']:.2f}..{row['ratio_high']:.2f}"
        results.add(part, case, f"{scheme} {row['a_ms']:.3f} / {row['b_ms']:.3f} ms, {interval}",
                    row["ratio"], "x")
    return rows


def summarise(results, part, what, rows, target, worst=WORST):
    if not rows:
        return
    results.add(part, f"{len(rows)} cases", f"{what}: geometric mean",
                geometric_mean([row["ratio"] for row in rows]), "x", target)
    if worst:
        bad = max(rows, key=lambda row: row["ratio"])
        results.add(part, f"{bad['net']} b{bad['batch']:.0f} t{bad['threads']:.0f}",
                    f"{what}: worst case", bad["ratio"], "x", worst)


def against_rival(options, results, scheme):
    """Ours against ONNX Runtime's own file of the same scheme, or the same file for fp32."""
    rows = []
    for net in nets.all_nets(options):
        if scheme == "s8" and not net.convolutional:
            continue
        try:
            ours = net.path if scheme == "fp32" else nets.our_file(options, net, scheme)
            theirs = net.path if scheme == "fp32" else nets.rival_file(options, net, scheme,
                                                                       "MinMax")
        except Failed as error:
            results.fail("latency", f"{net.name} {scheme}", error)
            continue
        rows += measure(options, results, "latency", net, scheme, f"pare:{ours}", f"ort:{theirs}",
                        tolerance_of(net, scheme))
    summarise(results, "latency", f"{scheme} against ONNX Runtime", rows, TARGETS[scheme])
    return rows


def ours_against_ours(options, results):
    """s8 against u8, and the better of INT8 against FP32, in our runtime."""
    for net in nets.all_nets(options):
        try:
            s8, u8 = (nets.our_file(options, net, scheme) for scheme in ("s8", "u8"))
        except Failed as error:
            results.fail("latency", f"{net.name} int8", error)
            continue
        rows = measure(options, results, "latency", net, "s8 against our u8", f"pare:{s8}",
                       f"pare:{u8}", tolerance_of(net, "s8"))
        for row in rows:
            results.add("latency", f"{net.name} b{row['batch']:.0f} t{row['threads']:.0f}",
                        "s8 against our u8", row["ratio"], "x", "<= 1.1")
        rows = measure(options, results, "latency", net, "s8 against our fp32", f"pare:{s8}",
                       f"pare:{net.path}", tolerance_of(net, "s8"))
        heavy = [row for row in rows
                 if row["a_mmacs"] / row["batch"] > MACS_THAT_MUST_GAIN]
        for row in heavy:
            results.add("latency", f"{net.name} b{row['batch']:.0f} t{row['threads']:.0f}",
                        "s8 against our fp32", row["ratio"], "x", "< 1.0")


def run(options, results):
    for scheme in options.schemes:
        against_rival(options, results, scheme)
    if "s8" in options.schemes:
        ours_against_ours(options, results)

# SPDX-License-Identifier: Apache-2.0
"""Our files in ONNX Runtime, and other tools' files in our runtime."""

import onnx

import nets
import part_latency
import runtimes
from common import Failed

AGREE = ">= 99.8"


def our_files_there(options, results, net, images, data):
    """Checker, loading, top-1 agreement of the two runtimes on the same file."""
    for scheme in ("s8", "u8", "fp16", "bf16"):
        case = f"{net.name} {scheme}"
        try:
            path = nets.our_file(options, net, scheme)
            onnx.checker.check_model(str(path), full_check=True)
            theirs = runtimes.ort_logits(path, images)
            ours = runtimes.our_logits(options, path, data)
        except Exception as error:  # ours to run, the checker's or the rival's to refuse
            results.fail("interop out", case, error)
            continue
        results.add("interop out", case, "both runtimes agree", runtimes.agreement(ours, theirs),
                    "%", AGREE)


def their_files_here(options, results, net, images, data):
    files = nets.foreign_files(options, net)
    for scheme in ("u8", "s8"):
        for method in ("MinMax", "Percentile"):
            try:
                files[f"onnxruntime {scheme} {method}"] = nets.rival_file(options, net, scheme,
                                                                          method)
            except Failed as error:
                results.fail("interop in", f"{net.name} {scheme} {method}", error)
    for tool, path in files.items():
        try:
            ours = runtimes.our_logits(options, path, data)
        except Failed as error:
            results.fail("interop in", f"{net.name} {tool}", error)
            continue
        results.add("interop in", f"{net.name} {tool}", "both runtimes agree",
                    runtimes.agreement(ours, runtimes.ort_logits(path, images)), "%", AGREE)


def speed_there(options, results):
    """Our u8 file against ONNX Runtime's own, both in ONNX Runtime."""
    rows = []
    for net in nets.all_nets(options):
        try:
            ours = nets.our_file(options, net, "u8")
            theirs = nets.rival_file(options, net, "u8", "MinMax")
        except Failed as error:
            results.fail("interop out", f"{net.name} u8", error)
            continue
        rows += part_latency.measure(options, results, "interop out", net, "u8, in ONNX Runtime",
                                     f"ort:{ours}", f"ort:{theirs}", 0.25)
    for net in dict.fromkeys(row["net"] for row in rows):
        mine = [row["ratio"] for row in rows if row["net"] == net]
        results.add("interop out", net, "our u8 file against its own: geometric mean",
                    part_latency.geometric_mean(mine), "x", "<= 1.1")


def run(options, results):
    for net in nets.all_nets(options):
        if net.wide:
            continue
        images = nets.narrow_images(options, "t10k")[0]
        data = nets.data_file(options, net, "t10k")
        our_files_there(options, results, net, images, data)
        their_files_here(options, results, net, images, data)
    speed_there(options, results)

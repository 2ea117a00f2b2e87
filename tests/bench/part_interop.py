# SPDX-License-Identifier: Apache-2.0
"""Our files in ONNX Runtime, and other tools' files in our runtime."""

import numpy as np
import onnx

import literal
import nets
import part_latency
import runtimes
from common import HERE, Failed, call

AGREE = ">= 99.8"
REFERENCE_IMAGES = 100


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


def compare_here(results, case, path, images, ours):
    """Agreement with ONNX Runtime as it runs by default, and operator by operator with its optimizer
    off, as its fused 8-bit operators do not always compute what the file says; and who of the three
    is how near to that."""
    theirs = runtimes.ort_logits(path, images)
    plain = runtimes.ort_logits(path, images, optimize=False)
    results.add("interop in", case, "both runtimes agree", runtimes.agreement(ours, theirs), "%",
                AGREE)
    results.add("interop in", case, "both agree, the other's optimizer off",
                runtimes.agreement(ours, plain), "%", AGREE)
    said = literal.logits(path, images[:REFERENCE_IMAGES])
    for who, logits in (("ours", ours), ("the other", theirs), ("its optimizer off", plain)):
        results.add("interop in", case, f"SQNR against float64: {who}",
                    runtimes.sqnr(said, logits[:REFERENCE_IMAGES]), "dB")


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
        compare_here(results, f"{net.name} {tool}", path, images, ours)


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
                                     f"ort:{ours}", f"ort:{theirs}",
                                     part_latency.tolerance_of(net, "u8"))
    for net in dict.fromkeys(row["net"] for row in rows):
        mine = [row["ratio"] for row in rows if row["net"] == net]
        results.add("interop out", net, "our u8 file against its own: geometric mean",
                    part_latency.geometric_mean(mine), "x", "<= 1.1")


def typed_bf16(options, results, net):
    """A --bf16-compute file in our runtime and in the reference evaluator of a recent onnx."""
    work = options.work / "bf16_compute"
    work.mkdir(parents=True, exist_ok=True)
    model, given, logits = work / f"{net.name}.onnx", work / "images.npy", work / "logits.npy"
    model.unlink(missing_ok=True)
    np.save(given, nets.float_images(options, net, "t10k", REFERENCE_IMAGES))
    data = nets.data_file(options, net, "t10k", REFERENCE_IMAGES)
    try:
        call([options.pare, "quantize", net.path, "-o", model, "--precision", "bf16",
              "--bf16-compute", "--quiet", "--data", nets.data_file(options, net, "train")])
        call([options.recent_python, HERE / "bf16_reference.py", model, given, logits])
        ours = runtimes.our_logits(options, model, data)
    except Failed as error:
        results.fail("interop out", f"{net.name} typed bf16", error)
        return
    results.add("interop out", f"{net.name} typed bf16", "agrees with the reference evaluator",
                runtimes.agreement(ours, np.load(logits)), "%", AGREE)


def run(options, results):
    for net in nets.all_nets(options):
        if net.wide:
            continue
        images = nets.narrow_images(options, "t10k")[0]
        data = nets.data_file(options, net, "t10k")
        our_files_there(options, results, net, images, data)
        their_files_here(options, results, net, images, data)
        if options.recent_python and net.name in ("mlp", "cnn"):
            typed_bf16(options, results, net)
    speed_there(options, results)

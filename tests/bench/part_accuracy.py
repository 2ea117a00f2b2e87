# SPDX-License-Identifier: Apache-2.0
"""What quantization costs on the 10,000 test images: top-1, agreement, SQNR; ours and rivals'."""

import nets
import runtimes
from common import Failed

DROP = {"mlp": 0.10, "cnn": 0.10, "resnet": 0.10, "mobilenet": 0.20, "vit": 0.20}
AGREEMENT = {"mlp": 99.7, "cnn": 99.7, "resnet": 99.7, "mobilenet": 99.2, "vit": 99.2}
HALF_DROP = {"fp16": 0.03, "bf16": 0.15}
METHODS = ("MinMax", "Percentile", "Entropy")
WIDE_IMAGES = 256  # test images of the nets without labels here, for SQNR alone


def judge(results, net, name, reference, logits, labels):
    """Notes accuracy figures of one file in one runtime and returns them."""
    facts = dict(net=net.name, file=name, **runtimes.figures(reference, logits, labels))
    results.detail("accuracy", facts)
    text = f"{facts['top1']:.2f} %, " if labels is not None else ""
    results.add("accuracy", net.name, f"{name}: {text}{facts['agreement']:.2f} % agree",
                facts["sqnr_db"], "dB")
    return facts


def ours(options, results, net, data, reference, labels):
    """Our files in our runtime, against the targets; returns SQNR by scheme."""
    found = {}
    for scheme in ("s8", "u8", "fp16", "bf16"):
        try:
            logits = runtimes.our_logits(options, nets.our_file(options, net, scheme), data)
        except Failed as error:
            results.fail("accuracy", f"{net.name} {scheme}", error)
            continue
        facts = judge(results, net, f"pare {scheme}", reference, logits, labels)
        found[scheme] = facts["sqnr_db"]
        if labels is None:
            continue
        limit = HALF_DROP.get(scheme, DROP[net.name])
        if scheme != "u8":
            results.add("accuracy", net.name, f"{scheme} top-1 drop", round(facts["drop"], 3),
                        "points", f"<= {limit}")
        if scheme == "s8":
            results.add("accuracy", net.name, "s8 agreement", facts["agreement"], "%",
                        f">= {AGREEMENT[net.name]}")
    return found


def rivals(options, results, net, images, reference, labels):
    """ONNX Runtime's files in ONNX Runtime; returns the best SQNR by scheme."""
    best = {}
    for scheme in ("u8", "s8"):
        for method in METHODS:
            if net.wide and method == "Entropy":
                continue  # gigabytes and minutes, and measured to equal MinMax
            try:
                path = nets.rival_file(options, net, scheme, method)
                logits = runtimes.ort_logits(path, images)
            except Exception as error:  # whatever the rival raises
                results.fail("accuracy", f"{net.name} onnxruntime {scheme} {method}", error)
                continue
            facts = judge(results, net, f"onnxruntime {scheme} {method}", reference, logits,
                          labels)
            best[scheme] = max(best.get(scheme, -999), facts["sqnr_db"])
    return best


def measured_on(options, net):
    """Test images as floats and as a file, and labels where they mean something."""
    if net.wide:
        data = nets.data_file(options, net, "t10k", WIDE_IMAGES)
        return nets.float_images(options, net, "t10k", WIDE_IMAGES), data, None
    data = nets.data_file(options, net, "t10k")
    return nets.narrow_images(options, "t10k")[0], data, nets.labels(options)


def run(options, results):
    gains = {"u8": [], "s8": []}
    for net in nets.all_nets(options):
        if net.wide and net.name != "squeezenet1.1":
            continue  # random weights: accuracy means nothing
        images, data, labels = measured_on(options, net)
        reference = runtimes.ort_logits(net.path, images)
        mine = ours(options, results, net, data, reference, labels)
        theirs = rivals(options, results, net, images, reference, labels)
        for scheme in gains:
            if scheme in mine and scheme in theirs:
                gain = mine[scheme] - theirs[scheme]
                gains[scheme].append(gain)
                results.add("accuracy", net.name, f"{scheme} SQNR above the rival's best", gain,
                            "dB", ">= 0")
    for scheme, values in gains.items():
        if values:
            results.add("accuracy", "mean", f"{scheme} SQNR above the rival's best",
                        sum(values) / len(values), "dB", ">= 1")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the zoo's ONNX files against PROVENANCE.md: bytes, form, batch normalisations, accuracy.

    ./check.py                  exit status 1 if any file disagrees

Needs numpy, onnx and onnxruntime, not PyTorch.
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import fashion

HERE = Path(__file__).resolve().parent
BATCH_NORMS = {"mlp": 0, "cnn": 0, "resnet": 15, "mobilenet": 23, "vit": 0}
POINTS = 0.02  # two test images of 10,000 may tip over between versions of ONNX Runtime


def run_onnx(path, images):
    """Logits (N, 10) of the file at path, computed by ONNX Runtime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    parts = np.array_split(images, max(1, len(images) // 500))
    return np.concatenate([session.run(["logits"], {"input": part})[0] for part in parts])


def accuracy(path, images, labels):
    """Top-1 in percent of the file at path."""
    return (run_onnx(path, images).argmax(1) == labels).mean() * 100


def stated_facts(provenance):
    """By net: (test accuracy, sha256), from the last two columns of the table in PROVENANCE.md."""
    row = re.compile(r"^\| (\w+) \|.*\| ([0-9.]+) \| ([0-9a-f]{64}) \|$", re.MULTILINE)
    return {net: (float(score), digest) for net, score, digest in row.findall(provenance)}


def dims(value):
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def faults(net, path, stated, images, labels):
    """Yields one sentence for each way in which the file is not what it should be."""
    score, digest = stated
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        yield "sha256 is not the stated one"
    model = onnx.load(path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    graph = model.graph
    if any(weight.data_location == onnx.TensorProto.EXTERNAL for weight in graph.initializer):
        yield "weights are outside the file"
    if [(opset.domain, opset.version) for opset in model.opset_import] != [("", 17)]:
        yield "not opset 17 alone"
    form = [(value.name, dims(value)) for value in [*graph.input, *graph.output]]
    if form != [("input", ["batch", 1, 28, 28]), ("logits", ["batch", 10])]:
        yield f"inputs and outputs are {form}"
    norms = sum(node.op_type == "BatchNormalization" for node in graph.node)
    if norms != BATCH_NORMS[net]:
        yield f"{norms} BatchNormalization nodes, expected {BATCH_NORMS[net]}"
    measured = accuracy(path, images, labels)
    if abs(measured - score) > POINTS:
        yield f"test accuracy {measured:.2f}, stated {score:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=fashion.DEFAULT_DIR, help="the IDX files")
    parser.add_argument("--zoo", type=Path, default=HERE, help="the ONNX files")
    options = parser.parse_args()
    images, labels = fashion.load("t10k", options.data)
    stated = stated_facts((options.zoo / "PROVENANCE.md").read_text())
    failed = False
    for net in BATCH_NORMS:
        if net not in stated:
            found = ["no row in PROVENANCE.md"]
        else:
            found = list(faults(net, options.zoo / f"{net}.onnx", stated[net], images, labels))
        print(f"{net}: {'; '.join(found) or 'ok'}")
        failed = failed or bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

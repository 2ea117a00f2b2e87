#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write full-size ONNX models with random weights, for benchmarks and interop tests.

    ./export_models.py DIR                 every model, by both exporters of PyTorch
    ./export_models.py DIR --only resnet50

For each model DIR gets
    NAME.onnx           from the TorchScript exporter, opset 17
    NAME_dynamo.onnx    from the dynamo exporter, opset 18
    NAME_input.npz      two random examples, arrays named like the graph's inputs
    NAME_output.npz     what PyTorch computes from them, named like the graph's outputs
and ops.txt, the operator types of all models in DIR. The first axis is dynamic, named batch.
Weights are random but the same on every run with as many threads, and batch normalisations hold the
statistics of random images, so that activations keep a plausible range through the depth of the
net. The models take about 2.2 GB. Needs numpy, onnx, onnxruntime, onnxscript, torch, torchvision.
"""

import argparse
import collections
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import bert

SEED = 1
EXAMPLES = 2
TOLERANCE = 1e-4  # of the largest output, between PyTorch and ONNX Runtime in float32


def random_images(count):
    """Coarse random blobs with fine noise, (count, 3, 224, 224), mean 0 and variance about 1."""
    blobs = F.interpolate(torch.randn(count, 3, 8, 8), size=224, mode="bicubic")
    return blobs + 0.3 * torch.randn(count, 3, 224, 224)


@torch.no_grad()
def settle_batch_norms(net):
    """Sets running mean and variance to those of a few batches; all else stays in eval mode."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
        norm.train()
    for _ in range(4):
        net(random_images(8))
    net.eval()


def vision(name):
    """A torchvision classifier: net in eval mode, inputs by name, names of the outputs."""
    net = getattr(torchvision.models, name)(weights=None).eval()
    if name.startswith("vit"):
        nn.init.normal_(net.heads.head.weight, std=0.02)  # torchvision starts it at zero
    settle_batch_norms(net)
    return net, {"input": random_images(EXAMPLES)}, ["logits"]


def bert_base(_):
    """BERT-base at sequence length 128; the second example is padded to show the mask at work."""
    net = bert.BertModel().eval()
    tokens = torch.randint(0, bert.VOCABULARY, (EXAMPLES, 128))
    mask = torch.ones_like(tokens)
    mask[1, 90:] = 0
    segments = torch.zeros_like(tokens)
    segments[:, 64:] = 1
    inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": segments}
    return net, inputs, ["last_hidden_state", "pooler_output"]


MODELS = {
    "resnet18": vision,
    "resnet50": vision,
    "mobilenet_v2": vision,
    "mobilenet_v3_large": vision,
    "efficientnet_b0": vision,
    "densenet121": vision,
    "regnet_y_400mf": vision,
    "convnext_tiny": vision,
    "vit_b_16": vision,
    "bert_base": bert_base,
}


def export_torchscript(net, inputs, outputs, path):
    torch.onnx.export(
        net, tuple(inputs.values()), path,
        dynamo=False, opset_version=17,
        input_names=list(inputs), output_names=outputs,
        dynamic_axes={name: {0: "batch"} for name in [*inputs, *outputs]},
    )  # fmt: skip


def export_dynamo(net, inputs, outputs, path):
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        net, tuple(inputs.values()), path,
        dynamo=True, opset_version=18, external_data=False, verbose=False,
        input_names=list(inputs), output_names=outputs,
        dynamic_shapes=tuple({0: batch} for _ in inputs),
    )  # fmt: skip


EXPORTERS = {"": export_torchscript, "_dynamo": export_dynamo}


def largest_difference(path, inputs, expected):
    """Over all outputs and for batches 2 and 1, relative to the largest expected magnitude."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in (EXAMPLES, 1):
        got = session.run(list(expected), {name: x[:count] for name, x in inputs.items()})
        for y, reference in zip(got, expected.values()):
            error = np.abs(y - reference[:count]).max() / np.abs(reference).max()
            worst = max(worst, float(error))
    return worst


def write_model(name, directory):
    torch.manual_seed(SEED)
    net, inputs, outputs = MODELS[name](name)
    with torch.no_grad():
        results = net(*inputs.values())
    results = results if isinstance(results, tuple) else (results,)
    inputs_np = {key: x.numpy() for key, x in inputs.items()}
    expected = {key: y.numpy() for key, y in zip(outputs, results)}
    np.savez(directory / f"{name}_input.npz", **inputs_np)
    np.savez(directory / f"{name}_output.npz", **expected)

    for suffix, export in EXPORTERS.items():
        path = directory / f"{name}{suffix}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            export(net, inputs, outputs, path)
        onnx.checker.check_model(path, full_check=True)
        worst = largest_difference(path, inputs_np, expected)
        if not worst <= TOLERANCE:
            raise SystemExit(f"{path}: off by {worst:.1e}, expected at most {TOLERANCE}")
        size = path.stat().st_size / 1e6
        print(f"{path.name}: {size:.1f} MB, differs from PyTorch by {worst:.1e}", flush=True)


def count_operators(path):
    """How often each operator type occurs in the file, functions included, by domain::type."""
    model = onnx.load(path, load_external_data=False)
    nodes = list(model.graph.node)
    for function in model.functions:
        nodes += function.node
    return collections.Counter(
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes
    )


def write_operators(directory):
    """ops.txt: one line per operator type, its count over all models, then by model."""
    counts = {path.stem: count_operators(path) for path in sorted(directory.glob("*.onnx"))}
    lines = []
    for operator in sorted(set().union(*counts.values())):
        by_model = {name: count[operator] for name, count in counts.items() if count[operator]}
        detail = " ".join(f"{name}:{times}" for name, times in by_model.items())
        lines.append(f"{operator:24}{sum(by_model.values()):6}  {detail}\n")
    (directory / "ops.txt").write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--only", choices=MODELS, metavar="NAME", nargs="+",
                        help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    for name in options.only or MODELS:
        write_model(name, options.directory)
    write_operators(options.directory)


if __name__ == "__main__":
    main()

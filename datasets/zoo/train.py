#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train zoo nets on Fashion-MNIST and write each as NET.onnx beside this script.

    ./train.py                  all five nets
    ./train.py mlp cnn          these two
    ./train.py vit --held-out   stop at the held-out accuracy: no test images, no file

Held-out training images decide whatever is to be decided. The test images are looked at once, by
the exported file, after everything is fixed. One Markdown row per net goes to stdout, for the table
in PROVENANCE.md; progress goes to stderr.
"""

import argparse
import hashlib
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F

import check
import fashion
import nets

HERE = Path(__file__).resolve().parent
BATCH = 128
LABEL_SMOOTHING = 0.05
WEIGHT_DECAY = 0.05
SEED = 1


@dataclass(frozen=True)
class Recipe:
    epochs: int
    peak_rate: float  # of the one-cycle schedule


RECIPES = {
    "mlp": Recipe(8, 2e-3),
    "cnn": Recipe(6, 2e-3),
    "resnet": Recipe(6, 6e-3),
    "mobilenet": Recipe(6, 6e-3),
    "vit": Recipe(8, 1.5e-3),
}


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def flip_some(images):
    """Mirrors each image left to right with probability one half."""
    mirrored = torch.rand(len(images), 1, 1, 1) < 0.5
    return torch.where(mirrored, images.flip(3), images)


@torch.no_grad()
def accuracy(net, images, labels):
    """Top-1 in percent, in float32."""
    net.eval()
    guesses = torch.cat([net(batch).argmax(1) for batch in images.split(500)])
    return (guesses == labels).double().mean().item() * 100


def train(name, images, labels, held_out):
    """The trained net in eval mode and its accuracy on held_out, a pair (images, labels)."""
    recipe = RECIPES[name]
    torch.manual_seed(SEED)
    net = getattr(nets, name)().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=WEIGHT_DECAY)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.peak_rate, total_steps=steps * recipe.epochs
    )
    for epoch in range(recipe.epochs):
        net.train()
        order = torch.randperm(len(images))[: steps * BATCH]
        for chosen in order.split(BATCH):
            batch = flip_some(images[chosen])
            with torch.autocast("cpu", torch.bfloat16):
                logits = net(batch)
            loss = F.cross_entropy(logits.float(), labels[chosen], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        score = accuracy(net, *held_out)
        say(f"{name}: epoch {epoch + 1} of {recipe.epochs}, held-out {score:.2f}")
    return net, score


def export(net, path):
    """Writes net as one ONNX file. PRESERVE keeps each BatchNormalization a node of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old exporter; folding constants of a net kept trainable
        torch.onnx.export(
            net.to(memory_format=torch.contiguous_format),
            (torch.zeros(2, 1, 28, 28),),
            path,
            dynamo=False,
            opset_version=17,
            training=torch.onnx.TrainingMode.PRESERVE,
            input_names=["input"],
            output_names=["logits"],
            dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}},
        )
    onnx.checker.check_model(path, full_check=True)


def require_agreement(net, path, images):
    """The file and the net it was made from must compute the same logits."""
    with torch.no_grad():
        expected = net(torch.from_numpy(images)).numpy()
    worst = np.abs(check.run_onnx(path, images) - expected).max()
    if worst > 1e-4:
        raise SystemExit(f"{path}: logits off by {worst:.1e}, expected at most 1e-4")


def table_row(name, net, path, held_out_score, test_score):
    """The net's row in PROVENANCE.md."""
    recipe = RECIPES[name]
    parameters = sum(parameter.numel() for parameter in net.parameters())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return (
        f"| {name} | {parameters} | {recipe.epochs} | {recipe.peak_rate} "
        f"| {held_out_score:.2f} | {test_score:.2f} | {digest} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(RECIPES)}")
    parser.add_argument("--data", type=Path, default=fashion.DEFAULT_DIR, help="the IDX files")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for the ONNX files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--held-out", action="store_true", help="no test images, no file")
    options = parser.parse_args()
    names = options.nets or list(RECIPES)
    if unknown := set(names) - set(RECIPES):
        parser.error(f"no such net: {', '.join(sorted(unknown))}")

    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    images, labels = fashion.load("train", options.data)
    tensors = torch.from_numpy(images), torch.from_numpy(labels)
    training = [tensor[: -fashion.HELD_OUT] for tensor in tensors]
    held_out = [tensor[-fashion.HELD_OUT :] for tensor in tensors]

    for name in names:
        net, held_out_score = train(name, *training, held_out)
        if options.held_out:
            continue
        path = options.out / f"{name}.onnx"
        export(net, path)
        require_agreement(net, path, images[-fashion.HELD_OUT :])
        test_score = check.accuracy(path, *fashion.load("t10k", options.data))
        print(table_row(name, net, path, held_out_score, test_score), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rival's distillation: a zoo net taught by its like in PyTorch, batch after batch, KL at temperature 2, AdamW.

    distill_torch.py NET DATA.h5 --batch 128 --steps 60 --threads 2 [--compile] [--channels-last]

Images are decoded in memory before the clock starts. Prints one JSON line: samples per second of the
median step, seconds of the first, peak bytes of the process."""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import h5py
import torch
import torch.nn.functional as F

from common import peak_bytes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "datasets" / "zoo"))
import nets  # noqa: E402

TEMPERATURE = 2.0


def images_of(path, count):
    """The first images as floats, (count, 1, 28, 28), with the file's own mean and deviation."""
    with h5py.File(path) as file:
        data = next(file[name] for name in file if name != "labels")
        pixels = torch.from_numpy(data[:count]).float() / 255
        mean, std = (float(data.attrs[name].reshape(-1)[0]) for name in ("mean", "std"))
    return ((pixels - mean) / std).reshape(count, 1, 28, 28)


def step_of(student, teacher, optimizer):
    def loss_of(images):
        with torch.no_grad():
            wanted = F.softmax(teacher(images) / TEMPERATURE, 1)
        got = F.log_softmax(student(images) / TEMPERATURE, 1)
        return F.kl_div(got, wanted, reduction="batchmean") * TEMPERATURE**2

    def step(images):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(images)
        loss.backward()
        optimizer.step()
        return loss

    return step


def read_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net")
    parser.add_argument("data")
    for name, default in (("--batch", 128), ("--steps", 60), ("--threads", 2)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    return parser.parse_args()


def main():
    options = read_options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    images = images_of(options.data, options.batch * 20)
    form = torch.channels_last if options.channels_last else torch.contiguous_format
    teacher = getattr(nets, options.net)().eval().to(memory_format=form)
    student = getattr(nets, options.net)().train().to(memory_format=form)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    step = step_of(torch.compile(student) if options.compile else student,
                   torch.compile(teacher) if options.compile else teacher, optimizer)
    seconds = []
    for i in range(options.steps):
        at = i % 20 * options.batch
        start = time.perf_counter()
        step(images[at:at + options.batch].contiguous(memory_format=form)).item()
        seconds.append(time.perf_counter() - start)
    warm = seconds[options.steps // 5 + 1:]
    print(json.dumps(dict(samples_per_s=options.batch / statistics.median(warm),
                          first_s=seconds[0], peak_bytes=peak_bytes())))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What the scripts that run a rival's quantizer share: arguments, images, the line they print. They read the same HDF5
file as pare, and keep bytes, so that time and memory are the quantizer's."""

import argparse
import time

import h5py
import numpy as np

from common import peak_bytes


def arguments(doc):
    """A parser of MODEL OUT DATA --samples; the caller adds its own."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name in ("model", "out", "data"):
        parser.add_argument(name)
    parser.add_argument("--samples", type=int, default=512)
    return parser


class Images:
    """Evenly spaced images of a data set, uint8 (N, C, H, W); each is handed out as float32 (1, C, H, W)."""

    def __init__(self, options):
        with h5py.File(options.data) as file:
            data = next(file[name] for name in file if name != "labels")
            self.pixels = data[np.linspace(0, len(data) - 1, options.samples).astype(int)]
            self.mean, self.std = (data.attrs[name].reshape(-1, 1, 1) for name in ("mean", "std"))

    def __len__(self):
        return len(self.pixels)

    def __iter__(self):
        for row in self.pixels:
            yield (row[None].astype(np.float32) / 255 - self.mean) / self.std


def say(what, options, start):
    """Prints seconds since start and the process's peak memory."""
    print(f"{what} {options.samples} images: {time.perf_counter() - start:.2f} s, "
          f"peak {peak_bytes() >> 20} MB")

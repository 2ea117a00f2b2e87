# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST as arrays, read from the four IDX files (Debian package dataset-fashion-mnist)."""

import gzip
from pathlib import Path

import numpy as np

DEFAULT_DIR = Path("/usr/share/datasets/fashion-mnist")
MEAN, STD = np.float32(0.2860), np.float32(0.3530)  # of the 60,000 training images, pixels in 0..1
HELD_OUT = 5000  # the last training images: they decide whatever is to be decided


def read_idx(path):
    """The uint8 array of a gzipped IDX file: magic 00 00 08 rank, then rank big-endian sizes."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an IDX file of unsigned bytes")
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", count=rank, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load(split, directory=DEFAULT_DIR):
    """Images float32 (N, 1, 28, 28), normalised, and labels int64 (N); split is train or t10k."""
    images = read_idx(directory / f"{split}-images-idx3-ubyte.gz").astype(np.float32) / 255
    labels = read_idx(directory / f"{split}-labels-idx1-ubyte.gz").astype(np.int64)
    return ((images - MEAN) / STD)[:, None], labels

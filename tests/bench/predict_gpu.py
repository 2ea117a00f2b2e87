#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nets take on a GPU, predicted from the instructions of the kernels (tests/cuda/sass.txt), without one.

    tests/bench/predict_gpu.py [--sass FILE] [--csv FILE]

A product is tiles of rows by columns; an SM holds as many blocks of a tile's kernel as sass.txt says. A step of
depth takes the longest of: its instructions, at ISSUE a cycle and scheduler; its tensor-core instructions, at the
rate that mma.sync reaches; what ldmatrix and copies move through shared memory; what a step waits at least. Ahead of
the steps and behind them a block takes its other instructions. Blocks come in waves; memory bounds the whole.
Counts are static: loops for tiles that are not whole are counted once. Nothing here was measured on a device."""

import argparse
import csv
import math
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# NVIDIA H200 SXM: datasheet; clock under load and copy rate as others measured them
PROCESSORS, CLOCK, HBM = 132, 1.755e9, 4.3e12
MACS = {"s8": 1979e12 / 2, "f16": 989e12 / 2}  # a second, of wgmma
MMA_SYNC = 0.62  # of that (arXiv 2402.13499, 2501.12084)
MMA_MACS = {"s8": 16 * 8 * 32, "f16": 16 * 8 * 16}
ISSUE, SHARED_BYTES = 0.85, 128  # instructions a cycle and scheduler; bytes a cycle
STEP_LEAST, BLOCK_START, LAUNCH = 200, 1500, 1.2e-6  # cycles, cycles, seconds
STEP = 64  # bytes of depth
KIND = {"s8": 2, "f16": 10}
TILES = {(128, 128): (2, 2, 4, 8), (128, 64): (2, 2, 4, 4), (64, 64): (2, 2, 2, 4)}


class Kernels:
    """The rows of sass.txt."""

    def __init__(self, path):
        self.row = {}
        for line in open(path):
            name, *words = line.split()
            self.row[name] = {k: float(v) for k, v in (word.split("=") for word in words)}

    def tile(self, kind, tile, picture, residual):
        """Instructions of a warp: ahead, a step, behind; mma of a step; warps, blocks an SM."""
        warps_m, warps_n, tm, tn = TILES[tile]
        shape = "ILi%dELi%dELi%dELi%dEE" % TILES[tile]
        rows = "15im2col_iterator" if picture else "15matrix_iterator"
        found = [row for name, row in self.row.items()
                 if re.match(rf"_Z9gemm_tileILi{KIND[kind]}E7tile_of{shape}{rows}Li{int(residual)}E", name)]
        if not found:
            sys.exit(f"no kernel of {kind} {tile} in the counts")
        row, mma = found[0], 2 * tm * tn
        unrolled = row["mma"] / mma
        return dict(ahead=row["all"] - row["loop"] - row["behind"], step=row["loop"] / unrolled, behind=row["behind"],
                    mma=mma, warps=warps_m * warps_n, blocks=row["blocks"], ldmatrix=2 * (tm + tn // 2))


class Product:
    """Y (rows, columns) of X (rows, depth), and the bytes that it moves beyond its own."""

    def __init__(self, name, rows, columns, depth, picture=False, residual=False, x_bytes=None):
        self.name, self.rows, self.columns, self.depth = name, rows, columns, depth
        self.picture, self.residual, self.x_bytes = picture, residual, x_bytes

    def macs(self):
        return self.rows * self.columns * self.depth


def tile_time(kernels, p, kind, tile):
    """Seconds, and what bounds its steps."""
    k = kernels.tile(kind, tile, p.picture, p.residual)
    size = 1 if kind == "s8" else 2
    tiles = math.ceil(p.rows / tile[0]) * math.ceil(p.columns / tile[1])
    per = min(k["blocks"], math.ceil(tiles / PROCESSORS))
    warps = per * k["warps"]
    rate = MACS[kind] * MMA_SYNC / PROCESSORS / CLOCK  # multiply-adds a cycle
    moved = per * (k["warps"] * k["ldmatrix"] * 512 + (tile[0] + tile[1]) * STEP)
    bound = {"issue": warps / 4 * k["step"] / ISSUE, "tensor": warps * k["mma"] * MMA_MACS[kind] / rate,
             "shared": moved / SHARED_BYTES, "latency": STEP_LEAST}
    steps = math.ceil(p.depth * size / STEP)
    cycles = BLOCK_START + warps / 4 * (k["ahead"] + k["behind"]) / ISSUE + steps * max(bound.values())
    waves = tiles / (PROCESSORS * per)
    waves = math.ceil(waves) if waves < 6 else waves + 0.5
    return waves * cycles / CLOCK, max(bound, key=bound.get)


def product_time(kernels, p, kind):
    size = 1 if kind == "s8" else 2
    moved = (p.x_bytes or p.rows * p.depth * size) + p.columns * p.depth * size
    moved += p.rows * p.columns * size * (2 if p.residual else 1)
    seconds, bound, tile = min((*tile_time(kernels, p, kind, tile), tile) for tile in TILES)
    if moved / HBM > seconds:
        seconds, bound = moved / HBM, "memory"
    return dict(layer=p.name, tile="%dx%d" % tile, bound=bound, bytes=moved, macs=p.macs(),
                ms=1e3 * (seconds + LAUNCH))


def conv(name, batch, side, channels, taps, stride, filters, kind, residual=False):
    out = side // stride
    size = 1 if kind == "s8" else 2
    return Product(name, batch * out * out, filters, channels * taps * taps, taps > 1 or stride > 1, residual,
                   batch * side * side * channels * size)


def resnet50(batch, kind):
    """He and others 2015, arXiv 1512.03385, table 1; strides in the 3x3 convolutions. The stem as it is computed: 7 rows
    of two groups of four pixels of four channels."""
    size = 1 if kind == "s8" else 2
    net = [Product("stem", batch * 112 * 112, 64, 7 * 2 * 16, True, False, batch * 224 * 116 * 16 * size)]
    side, channels = 56, 64
    for stage, (mid, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for i in range(blocks):
            stride, name = 2 if stage and not i else 1, f"{stage + 2}.{i + 1}"
            net.append(conv(name + " 1x1", batch, side, channels, 1, 1, mid, kind))
            net.append(conv(name + " 3x3", batch, side, mid, 3, stride, mid, kind))
            if not i:
                net.append(conv(name + " skip", batch, side, channels, 1, stride, 4 * mid, kind))
            side, channels = side // stride, 4 * mid
            net.append(conv(name + " 1x1 out", batch, side, mid, 1, 1, channels, kind, True))
    return net + [Product("fc", batch, 1000, 2048)]


def ends(batch, kind):
    """What else moves bytes: the picture in f32, quantized and put together for the stem; the pooling behind it."""
    size = 1 if kind == "s8" else 2
    picture = 224 * 224 * 3 * (4 + size) + 224 * 116 * 16 * size
    return batch * (picture + (112 * 112 + 56 * 56) * 64 * size) / HBM + 4 * LAUNCH


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sass", type=Path, default=HERE.parent / "cuda" / "sass.txt")
    parser.add_argument("--csv", type=Path, help="a row a layer of ResNet-50")
    options = parser.parse_args()
    kernels, rows = Kernels(options.sass), []
    for batch in (1, 32, 128):
        total = {}
        for kind in ("s8", "f16"):
            layers = [product_time(kernels, p, kind) for p in resnet50(batch, kind)]
            total[kind] = sum(layer["ms"] for layer in layers) / 1e3 + ends(batch, kind)
            rows += [dict(batch=batch, type=kind, **layer) for layer in layers]
            print(f"ResNet-50 {kind:3} batch {batch:3}: {1e3 * total[kind]:7.3f} ms, {batch / total[kind]:8.0f} images/s")
        slower = [a["layer"] for a, b in zip([r for r in rows if r["batch"] == batch and r["type"] == "s8"],
                                             [r for r in rows if r["batch"] == batch and r["type"] == "f16"]) if a["ms"] > b["ms"]]
        print(f"    layers that s8 makes slower than f16: {', '.join(slower) or 'none'}")
    for side in (1024, 4096):
        for kind in ("s8", "f16"):
            made = product_time(kernels, Product("square", side, side, side), kind)
            print(f"product {side} {kind:3}: {made['ms']:.4f} ms, {2 * made['macs'] / made['ms'] / 1e9:.0f} T/s, {made['tile']}, {made['bound']}")
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

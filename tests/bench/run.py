#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure everything this project promises in numbers, ours and the rival in the same run.

    ninja -C build pare bench_latency
    tests/bench/export_models.py models/            (once, needs PyTorch)
    tests/bench/run.py --models models/ --material DIR
    tests/bench/run.py --only latency --schemes fp32 --nets cnn --pairs 10     (a quick look)

Parts: latency, accuracy, calibration (with exactness), outputs (FP32 against others), interop (our
files there, theirs here), prune (single weights), prune_channels, prune_latency (to a part of the
time), prune_rival (full-size nets, beside torch-pruning), distill_speed (a step beside PyTorch's),
distill_recovery (what training brings back after pruning), distill_qat (INT8 models, trained and
calibrated alone), exports (nets as PyTorch's exporters write them), quantizers (INT8 files of pare,
ONNX Runtime and NNCF: what each is worth and takes to make), recurrent (LSTM, GRU and RNN),
four_bits (W4A16, W4A8), placement (INT8 nodes that stay float for speed), load (a 100 MB model;
INT8 without VNNI), zoo (1,000 models: what a run of many costs beside their work; 50 kills), zoo_slurm (50 kills under a Slurm of this machine, its
controller's among them), report (a page of 1,000 models in a browser), writers (eight at once on
caches and a CSV), serve (requests a second beside ONNX Runtime behind FastAPI; a soak). Each prints what it measured beside its target; all is written to
tests/bench/results/DATE/ as results.json, CSV files and summary.md, with the machine and the
versions. Files made on the way stay in --work and are used again. Needs numpy, h5py, onnx,
onnxruntime; sympy and ml_dtypes to make the rival's files; prune_rival torch, torchvision and
torch-pruning, too; distill_speed torch. Models or tools that are absent are left out with a note. A
full run takes hours; the machine should be idle. Exit status 1 if a target was missed.
"""

import argparse
import datetime
import os
import sys
from pathlib import Path

import onnxruntime

import nets
import part_accuracy
import part_calibration
import part_distill_qat
import part_distill_recovery
import part_distill_speed
import part_exports
import part_four_bits
import part_interop
import part_latency
import part_load
import part_outputs
import part_placement
import part_prune
import part_prune_channels
import part_prune_latency
import part_prune_rival
import part_quantizers
import part_ranks
import part_recurrent
import part_report
import part_serve
import part_writers
import part_zoo
import part_zoo_forecast
import part_zoo_slurm
from common import HERE, ROOT, Results

PARTS = {"outputs": part_outputs, "accuracy": part_accuracy, "interop": part_interop,
         "calibration": part_calibration, "prune": part_prune,
         "prune_channels": part_prune_channels, "prune_latency": part_prune_latency,
         "prune_rival": part_prune_rival, "distill_speed": part_distill_speed,
         "distill_recovery": part_distill_recovery, "distill_qat": part_distill_qat,
         "exports": part_exports, "four_bits": part_four_bits,
         "placement": part_placement, "quantizers": part_quantizers, "ranks": part_ranks, "recurrent": part_recurrent,
         "load": part_load, "report": part_report, "serve": part_serve, "writers": part_writers, "zoo": part_zoo,
         "zoo_forecast": part_zoo_forecast, "zoo_slurm": part_zoo_slurm, "latency": part_latency}


def find_ort():
    """The shared library inside the onnxruntime package of this Python."""
    found = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    return found[0] if found else None


def folder(text):
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return path


def numbers(text):
    return [int(word) for word in text.split(",")]


def words(text):
    return text.split(",")


def parts(text):
    """distill-qat is distill_qat, too."""
    return words(text.replace("-", "_"))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    today = datetime.date.today().isoformat()
    material = os.environ.get("PARE_MODELS")
    add("--only", type=parts, default=list(PARTS), help=f"of {','.join(PARTS)}")
    add("--nets", type=words, default=[], help="only these nets")
    add("--schemes", type=words, default=["fp32", "u8", "s8"], help="latency: of fp32,u8,s8")
    add("--batches", type=numbers, default=[1, 32])
    add("--threads", type=numbers, default=[1, 2])
    add("--pairs", type=int, default=30, help="pairs of samples of a ratio")
    add("--max-seconds", type=float, default=0, help="of one case, 0: all pairs however long")
    add("--pare", type=Path, default=ROOT / "build" / "pare")
    add("--bench", type=Path, default=ROOT / "build" / "tests" / "bench_latency")
    add("--ort", type=Path, default=find_ort(), help="libonnxruntime.so")
    add("--zoo", type=folder, default=ROOT / "datasets" / "zoo")
    add("--models", type=folder, help="what export_models.py wrote")
    add("--exports", type=folder, help="what export_nets.py wrote")
    add("--untimed", action="store_true", help="exports: everything but latencies")
    add("--material", type=folder, default=folder(material) if material else None,
        help="third-party models with test vectors ($PARE_MODELS)")
    add("--rivals", type=folder, help="folders ort_u8_minmax, nncf, ... of files made before")
    add("--nncf-python", type=Path, help="a Python with nncf, openvino, onnxruntime and h5py")
    add("--recent-python", type=Path, help="a Python with onnx 1.18 or newer, for typed bf16")
    add("--serve-python", type=Path, help="serve: a Python with fastapi, uvicorn[standard], onnxruntime")
    add("--soak-seconds", type=float, default=600, help="serve: of the soak")
    add("--soak-rate", type=float, default=2000, help="serve: its requests a second")
    add("--zoo-models", type=int, default=1000, help="zoo: generated models")
    add("--zoo-kills", type=int, default=50, help="zoo, zoo_slurm: kill -9 at random moments")
    add("--zoo-seed", type=int, default=1, help="zoo, zoo_slurm: of these moments")
    add("--fashion", type=folder, default=nets.fashion.DEFAULT_DIR, help="the IDX files")
    add("--work", type=Path, default=ROOT / "build" / "bench", help="where made files stay")
    add("--results", type=Path, default=HERE / "results" / today)
    options = parser.parse_args()
    unknown = set(options.only) - set(PARTS)
    if unknown:
        parser.error(f"--only: no part {', '.join(sorted(unknown))}")
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = read_options()
    results = Results(options.results, options)
    try:
        for name in options.only:
            PARTS[name].run(options, results)
    finally:
        results.write()
    missed = [row for row in results.rows if row["met"] == "NO"]
    print(f"{len(missed)} targets missed; written to {options.results}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

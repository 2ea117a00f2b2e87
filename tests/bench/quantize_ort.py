#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantize a model with ONNX Runtime's own tool, as the rival file of the benchmark.

    ./quantize_ort.py MODEL OUT --method MinMax --scheme u8 --samples 512 [--wide]

Q/DQ form, s8 weights per channel; u8 activations or symmetric s8 ones. Prints seconds and peak
memory. Needs onnx, onnxruntime, sympy, ml_dtypes, h5py.
"""

import argparse
import contextlib
import logging
import resource
import tempfile
import time
from pathlib import Path

import onnxruntime
from onnxruntime.quantization import (CalibrationDataReader, CalibrationMethod, QuantFormat,
                                      QuantType, quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process

import nets


class Reader(CalibrationDataReader):
    """Hands out the images one at a time."""

    def __init__(self, name, images):
        self.rows = iter([{name: images[i:i + 1]} for i in range(len(images))])

    def get_next(self):
        return next(self.rows, None)


def prepare(model, prepared):
    """Folds and infers shapes; symbolic inference gives up on some graphs, and leaves files where it is run."""
    model, prepared = Path(model).resolve(), Path(prepared).resolve()
    with contextlib.chdir(prepared.parent):
        try:
            quant_pre_process(str(model), str(prepared))
        except Exception:  # its kind differs from version to version
            quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--method", default="MinMax", choices=["MinMax", "Percentile", "Entropy"])
    parser.add_argument("--scheme", default="u8", choices=["u8", "s8"])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--wide", action="store_true", help="224x224 RGB instead of 28x28")
    parser.add_argument("--fashion", type=Path, default=nets.fashion.DEFAULT_DIR)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    net = nets.Net("", options.model, options.wide, False, options.samples)
    images = nets.float_images(options, net, "train", options.samples)
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        prepare(options.model, prepared)
        name = onnxruntime.InferenceSession(prepared).get_inputs()[0].name
        start = time.perf_counter()
        symmetric = options.scheme == "s8"
        quantize_static(prepared, options.out, Reader(name, images), quant_format=QuantFormat.QDQ,
                        per_channel=True, weight_type=QuantType.QInt8,
                        calibrate_method=getattr(CalibrationMethod, options.method),
                        activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
                        extra_options={"ActivationSymmetric": symmetric})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{options.method} {options.scheme} {options.samples} images: "
          f"{time.perf_counter() - start:.2f} s, peak {peak} MB")


if __name__ == "__main__":
    main()

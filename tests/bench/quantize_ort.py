#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantize a model with ONNX Runtime's own tool, as the rival file of the benchmark.

    ./quantize_ort.py MODEL OUT DATA.h5 --method MinMax --scheme u8 --samples 512

Q/DQ form, s8 weights per channel; u8 activations or symmetric s8 ones. Prints seconds and peak
memory. Needs onnx, onnxruntime, sympy, ml_dtypes, h5py.
"""

import contextlib
import logging
import tempfile
import time
from pathlib import Path

import onnxruntime
from onnxruntime.quantization import (CalibrationDataReader, CalibrationMethod, QuantFormat,
                                      QuantType, quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process

import rival


class Reader(CalibrationDataReader):
    """Hands out the images one at a time."""

    def __init__(self, name, images):
        self.rows = ({name: image} for image in images)

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
    parser = rival.arguments(__doc__)
    parser.add_argument("--method", default="MinMax", choices=["MinMax", "Percentile", "Entropy"])
    parser.add_argument("--scheme", default="u8", choices=["u8", "s8"])
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        prepare(options.model, prepared)
        name = onnxruntime.InferenceSession(prepared).get_inputs()[0].name
        start = time.perf_counter()
        images = rival.Images(options)
        symmetric = options.scheme == "s8"
        quantize_static(prepared, options.out, Reader(name, images), quant_format=QuantFormat.QDQ,
                        per_channel=True, weight_type=QuantType.QInt8,
                        calibrate_method=getattr(CalibrationMethod, options.method),
                        activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
                        extra_options={"ActivationSymmetric": symmetric})
    rival.say(f"{options.method} {options.scheme}", options, start)


if __name__ == "__main__":
    main()

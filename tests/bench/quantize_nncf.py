#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantize a model with NNCF's post-training quantization, as the rival file of the benchmark.

    ./quantize_nncf.py MODEL OUT DATA.h5 --samples 512 [--full] [--transformer]

Q/DQ form, NNCF's defaults. --full corrects biases layer by layer, in place of its fast way. Prints
NNCF's version, seconds and peak memory. Needs nncf, openvino, onnx, onnxruntime, h5py.
"""

import logging
import time

import nncf
import onnx

import rival


def main():
    parser = rival.arguments(__doc__)
    parser.add_argument("--full", action="store_true", help="full bias correction")
    parser.add_argument("--transformer", action="store_true", help="ModelType.TRANSFORMER")
    options = parser.parse_args()
    nncf.set_log_level(logging.ERROR)
    start = time.perf_counter()
    images = rival.Images(options)
    model = onnx.load(options.model)
    name = model.graph.input[0].name
    data = nncf.Dataset(images, lambda image: {name: image})
    made = nncf.quantize(model, data, subset_size=len(images), fast_bias_correction=not options.full,
                         model_type=nncf.ModelType.TRANSFORMER if options.transformer else None)
    onnx.save(made, options.out)
    rival.say(f"nncf {nncf.__version__}", options, start)


if __name__ == "__main__":
    main()

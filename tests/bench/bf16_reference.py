#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the reference evaluator of a recent onnx over images: for typed bf16 files, which no CPU
runtime loads.

    ./bf16_reference.py MODEL IMAGES.npy LOGITS.npy

Checks the model fully first. Needs onnx 1.18 or newer and numpy.
"""

import sys

import numpy as np
import onnx
import onnx.reference


def main():
    model, images, out = sys.argv[1:]
    onnx.checker.check_model(model, full_check=True)
    evaluator = onnx.reference.ReferenceEvaluator(model)
    name = evaluator.input_names[0]
    np.save(out, np.asarray(evaluator.run(None, {name: np.load(images)})[0], dtype=np.float32))


if __name__ == "__main__":
    main()

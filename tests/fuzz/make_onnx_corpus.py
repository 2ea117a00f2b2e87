# SPDX-License-Identifier: Apache-2.0
"""Makes the seeds of fuzz_onnx: small models with every kind of field, and a few operator tests.

usage: make_onnx_corpus.py [FOLDER]      default: corpus/onnx beside this file; needs the package onnx
"""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "interop"))
import onnx  # noqa: E402
import onnx_roundtrip as models  # noqa: E402

TESTS = ("test_conv_with_strides_padding", "test_gemm_all_attributes", "test_qlinearconv", "test_if",
         "test_loop11", "test_constantofshape_float_ones", "test_equal_string", "test_identity_sequence",
         "test_dequantizelinear_blocked", "test_cast_FLOAT_to_INT4")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "corpus", "onnx")
    os.makedirs(folder, exist_ok=True)
    seeds = {"everything": models.model_of_everything(), "branches": models.model_with_branches(),
             "bare": models.model_bare()}
    seeds["domain_pare"] = models.model_bare()
    seeds["domain_pare"].graph.node.add(op_type="FusedConv", domain="pare", output=["y"])
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
    for name in TESTS:
        seeds[name] = onnx.load(os.path.join(data, name, "model.onnx"))
    for name, model in seeds.items():
        with open(os.path.join(folder, name + ".onnx"), "wb") as file:
            file.write(model.SerializeToString(deterministic=True))


main()

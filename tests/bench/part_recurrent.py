# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN of 256 units over 100 steps against ONNX Runtime, FP32: one direction, as many features in."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import part_latency
from common import Failed

UNITS, STEPS = 256, 100
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
MORE = {"GRU": {"linear_before_reset": 1}}  # as PyTorch exports it


def write(path, op, batch):
    rng, gates = np.random.default_rng(3), GATES[op]
    weights = {"w": (1, gates * UNITS, UNITS), "r": (1, gates * UNITS, UNITS), "b": (1, 2 * gates * UNITS)}
    constants = [numpy_helper.from_array((rng.standard_normal(shape) / 16).astype(np.float32), name)
                 for name, shape in weights.items()]
    node = helper.make_node(op, ["x", *weights], ["y"], op, hidden_size=UNITS, **MORE.get(op, {}))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", [STEPS, batch, UNITS]), ("y", [STEPS, 1, batch, UNITS]))]
    graph = helper.make_graph([node], op, ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run(options, results):
    folder = options.work / "recurrent"
    folder.mkdir(parents=True, exist_ok=True)
    for op in GATES:
        for batch, threads in part_latency.cases(options):
            path, case = folder / f"{op}.{batch}.onnx", f"{op} b{batch} t{threads}"
            write(path, op, batch)
            try:
                # the model's batch is fixed and not its first axis
                row = part_latency.time_files(options, f"pare:{path}", f"ort:{path}", STEPS, threads, 1e-3)
            except Failed as error:
                results.fail("recurrent", case, error)
                continue
            results.add("recurrent", case, f"{row['a_ms']:.3f} / {row['b_ms']:.3f} ms, "
                        f"{row['ratio_low']:.2f}..{row['ratio_high']:.2f}", row["ratio"], "x", "<= 1.0")

# SPDX-License-Identifier: Apache-2.0
"""Time to load and plan a 100 MB model, INT8 where the processor lacks VNNI, and a 3 GB model in an
external file: time to look at it, memory to quantize it."""

import csv
import io
import shutil

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper

import nets
import part_latency
from common import Failed, call

LARGE = 12, 8192  # layers, width: 3.2 GB
AVX2 = {"DNNL_MAX_CPU_ISA": "AVX2"}


def load_seconds(options, net, *more):
    """Reading and planning in a fresh process, the file being in the page cache."""
    net.path.read_bytes()
    output = call([options.bench, "--header", "--pairs", 1, *more, f"pare:{net.path}"]).output
    return float(next(csv.DictReader(io.StringIO(output)))["a_load_s"])


def loading(options, results, net):
    cold = min(load_seconds(options, net, "--no-tune") for _ in range(3))
    results.add("load", net.name, "load and plan, --no-tune", cold, "s", "<= 0.3")
    cache = options.work / "warm"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    first = load_seconds(options, net, "--cache", cache)
    warm = min(load_seconds(options, net, "--cache", cache) for _ in range(3))
    results.add("load", net.name, f"load and plan, warm cache ({first:.2f} s before)", warm, "s",
                "<= 0.3")


def without_vnni(options, results):
    for net in nets.all_nets(options):
        for scheme in ("s8", "u8"):
            try:
                ours = nets.our_file(options, net, scheme)
            except Failed as error:
                results.fail("AVX2", f"{net.name} {scheme}", error)
                continue
            for row in part_latency.measure(options, results, "AVX2", net,
                                            f"{scheme} against our fp32", f"pare:{ours}",
                                            f"pare:{net.path}",
                                            part_latency.tolerance_of(net, scheme), AVX2):
                results.add("AVX2", f"{net.name} b{row['batch']:.0f} t{row['threads']:.0f}",
                            f"{scheme} against our fp32", row["ratio"], "x", "<= 1.1")


def write_large(folder):
    """MatMul and Relu, LARGE times, weights in large.data; returns the bytes of it."""
    layers, width = LARGE
    rng, weights, layer_nodes = np.random.default_rng(0), [], []
    with open(folder / "large.data", "wb") as file:
        for i in range(layers):
            values = rng.standard_normal((width, width), dtype=np.float32) / np.float32(np.sqrt(width))
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=values.shape,
                                 data_location=TensorProto.EXTERNAL)
            for key, value in (("location", "large.data"), ("offset", file.tell()), ("length", values.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            file.write(values)
            weights.append(tensor)
            layer_nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"], f"m{i}"),
                            helper.make_node("Relu", [f"m{i}"], [f"x{i + 1}"], f"r{i}")]
        size = file.tell()
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", width]) for n in ("x0", f"x{layers}")]
    graph = helper.make_graph(layer_nodes, "large", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              folder / "large.onnx")
    with h5py.File(folder / "large.h5", "w") as file:
        file["x0"] = rng.standard_normal((4, width), dtype=np.float32)
    return size


def large(options, results):
    folder = options.work / "large"
    folder.mkdir(parents=True, exist_ok=True)
    size, case = write_large(folder), f"{LARGE[0]} x {LARGE[1]}^2"
    looks = min(call([options.pare, "inspect", folder / "large.onnx"]).seconds for _ in range(3))
    results.add("load", case, f"inspect {size / 1e9:.1f} GB of external data", looks, "s", "<= 0.2")
    done = call([options.pare, "quantize", folder / "large.onnx", "-o", folder / "int8.onnx", "--data",
                 folder / "large.h5", "--quiet"])
    results.add("load", case, f"quantize ({done.seconds:.0f} s): memory over the file's size",
                done.peak_bytes / size, "x", "<= 1.2")
    shutil.rmtree(folder)


def run(options, results):
    try:
        large(options, results)
    except Failed as error:
        results.fail("load", "large", error)
    for net in nets.all_nets(options):
        if net.name == "resnet50":
            try:
                loading(options, results, net)
            except Failed as error:
                results.fail("load", net.name, error)
    without_vnni(options, results)

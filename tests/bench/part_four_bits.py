# SPDX-License-Identifier: Apache-2.0
"""INT4: W4A16 of a two-layer net of Llama's shape (accuracy, time and memory of quantizing, latency of one token and of
many) beside ONNX Runtime's quantizer; W4A16 of the sample mlp and vit; W4A8 of the sample nets, by default and rounded
plainly."""

import json
import logging

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import nets
import part_latency
from common import Failed, call

WIDTH, INNER, HEADS, VOCABULARY, LAYERS = 1024, 2816, 16, 8192, 2
SAMPLES, TOKENS, JUDGES = 96, 32, 16
PLAIN = ("--rounding", "nearest", "--no-equalization", "--bias-correction", "none", "--mixed-precision", 0)


class Builder:
    """Nodes and constants of a decoder with random weights; channels of its normalizations differ as trained ones do."""

    def __init__(self):
        self.rng, self.nodes, self.inits = np.random.default_rng(11), [], []

    def constant(self, name, value):
        self.inits.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name, rows, columns):
        return self.constant(name, (self.rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32))

    def op(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def norm(self, x, name):
        spread = np.exp(self.rng.standard_normal(WIDTH))
        scale = self.constant(f"{name}.scale", (spread / np.sqrt((spread ** 2).mean())).astype(np.float32))
        mean = self.op("ReduceMean", [self.op("Mul", [x, x], f"{name}.square"), "last"], f"{name}.mean", keepdims=1)
        root = self.op("Sqrt", [self.op("Add", [mean, "epsilon"], f"{name}.sum")], f"{name}.root")
        return self.op("Mul", [self.op("Div", [x, root], f"{name}.whole"), scale], name)

    def heads(self, x, weight, name, order):
        y = self.op("MatMul", [x, self.weight(weight, WIDTH, WIDTH)], f"{name}.flat")
        return self.op("Transpose", [self.op("Reshape", [y, "split"], f"{name}.split")], name, perm=order)

    def layer(self, x, i):
        p, n = f"layer{i}.", self.norm(x, f"layer{i}.norm1")
        q, k, v = (self.heads(n, f"{p}w{c}", f"{p}{c}", o) for c, o in
                   (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))))
        scores = self.op("Mul", [self.op("MatMul", [q, k], f"{p}qk"), "factor"], f"{p}scores")
        mixed = self.op("MatMul", [self.op("Softmax", [scores], f"{p}softmax", axis=-1), v], f"{p}mixed")
        joined = self.op("Reshape", [self.op("Transpose", [mixed], f"{p}turned", perm=(0, 2, 1, 3)), "join"], f"{p}joined")
        out = self.op("MatMul", [joined, self.weight(f"{p}wo", WIDTH, WIDTH)], f"{p}out")
        x = self.op("Add", [x, out], f"{p}residual")
        n = self.norm(x, f"{p}norm2")
        gate = self.op("MatMul", [n, self.weight(f"{p}wgate", WIDTH, INNER)], f"{p}gate")
        up = self.op("MatMul", [n, self.weight(f"{p}wup", WIDTH, INNER)], f"{p}up")
        gated = self.op("Mul", [self.op("Mul", [gate, self.op("Sigmoid", [gate], f"{p}sigmoid")], f"{p}silu"), up], f"{p}gated")
        return self.op("Add", [x, self.op("MatMul", [gated, self.weight(f"{p}wdown", INNER, WIDTH)], f"{p}down")], f"{p}y")


def llama(path):
    b = Builder()
    for name, value in (("last", np.array([-1])), ("split", np.array([0, 0, HEADS, WIDTH // HEADS])),
                        ("join", np.array([0, 0, WIDTH])), ("epsilon", np.float32(1e-6)),
                        ("factor", np.float32((WIDTH // HEADS) ** -0.5))):
        b.constant(name, value)
    x = b.op("Gather", [b.weight("table", VOCABULARY, WIDTH), "tokens"], "embedded")
    for i in range(LAYERS):
        x = b.layer(x, i)
    b.op("MatMul", [b.norm(x, "norm"), b.weight("head", WIDTH, VOCABULARY)], "logits")
    graph = helper.make_graph(b.nodes, "llama", [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", "t"])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", "t", VOCABULARY])], b.inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def rival(model, path):
    """ONNX Runtime's MatMulNBits, symmetric, blocks of 32, each weight to the nearest; the node that computes in float."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    logging.disable(logging.INFO)
    made = MatMulNBitsQuantizer(onnx.load(model), block_size=32, is_symmetric=True, accuracy_level=1)
    made.process()
    made.model.save_model_to_file(str(path))


def compared(options, model, other, data):
    facts = options.work / "facts.json"
    call([options.pare, "validate", model, other, "--data", data, "--json", facts, "--quiet"])
    return json.loads(facts.read_text())["models"][1]


def decoder(options, results, folder):
    model, learn, judge = folder / "llama.onnx", folder / "learn.h5", folder / "judge.h5"
    llama(model)
    rng = np.random.default_rng(5)
    for path, count in ((learn, SAMPLES), (judge, JUDGES)):
        with h5py.File(path, "w") as file:
            file["tokens"] = rng.integers(0, VOCABULARY, (count, TOKENS))
    files, decibels = {}, {}
    for name, words in {"nearest": (), "gptq": ("--data", learn)}.items():
        files[name] = folder / f"llama.{name}.onnx"
        done = call([options.pare, "quantize", model, "-o", files[name], "--precision", "w4a16", "--quiet", *words])
        decibels[name] = compared(options, model, files[name], judge)["outputs"][0]["sqnr_db"]
        results.add("four_bits", "llama w4a16", f"SQNR, {name}", decibels[name], "dB")
        results.add("four_bits", "llama w4a16", f"seconds of quantizing, {name}", done.seconds, "s")
        results.add("four_bits", "llama w4a16", f"memory of quantizing over FP32's size, {name}",
                    done.peak_bytes / model.stat().st_size, "x")
    results.add("four_bits", "llama w4a16", "SQNR, gptq less nearest", decibels["gptq"] - decibels["nearest"], "dB", ">= 1")
    theirs = folder / "llama.ort.onnx"
    rival(model, theirs)
    other = compared(options, model, theirs, judge)["outputs"][0]["sqnr_db"]
    results.add("four_bits", "llama w4a16", "SQNR, ONNX Runtime's quantizer", other, "dB")
    results.add("four_bits", "llama w4a16", "SQNR, gptq less ONNX Runtime's", decibels["gptq"] - other, "dB", ">= 1")
    results.add("four_bits", "llama w4a16", "size over FP32's", files["gptq"].stat().st_size / model.stat().st_size, "x")
    eight = folder / "llama.w8.onnx"
    call([options.pare, "quantize", model, "-o", eight, "--precision", "w8a16", "--quiet"])
    for threads in options.threads:  # sequences of one token, side by side
        for batch, target in ((1, "<= 0.5"), (64, None)):
            for what, file in (("w4a16", files["gptq"]), ("w8a16", eight)):
                timed(options, results, f"llama {what} b{batch} t{threads}", "over FP32", f"pare:{file}", f"pare:{model}",
                      batch, threads, target if what == "w4a16" else None)
            timed(options, results, f"llama w4a16 b{batch} t{threads}", "over ONNX Runtime's MatMulNBits",
                  f"pare:{files['gptq']}", f"ort:{theirs}", batch, threads, None)


def timed(options, results, case, what, first, second, batch, threads, target):
    try:
        row = part_latency.time_files(options, first, second, batch, threads, 1e6, more=("--dim", "t=1"))
    except Failed as error:
        results.fail("four_bits", f"{case} {what}", error)
        return
    results.add("four_bits", case, f"{what}: {row['a_ms']:.3f} / {row['b_ms']:.3f} ms", row["ratio"], "x", target)


def matrices(options, results, folder):
    """W4A16 of the sample nets whose work is in matrices."""
    for net in nets.small_nets(options):
        if net.convolutional:
            continue
        train, test = nets.data_file(options, net, "train"), nets.data_file(options, net, "test")
        for name, words in {"nearest": (), "gptq": ("--data", train)}.items():
            file = folder / f"{net.name}.{name}.onnx"
            call([options.pare, "quantize", net.path, "-o", file, "--precision", "w4a16", "--quiet", *words])
            row = compared(options, net.path, file, test)
            results.add("four_bits", f"{net.name} w4a16 {name}", "top-1 lost", row["drop"], "points",
                        "<= 0.5" if name == "gptq" else None)
            results.add("four_bits", f"{net.name} w4a16 {name}", "SQNR", row["outputs"][0]["sqnr_db"], "dB")


def zoo(options, results, folder):
    lost = {"plain": 0.0, "default": 0.0}
    for net in nets.small_nets(options):
        kind, model, noise = net.name, net.path, {}
        train, test = nets.data_file(options, net, "train"), nets.data_file(options, net, "test")
        for name, words in {"plain": PLAIN, "default": ()}.items():
            file = folder / f"{kind}.{name}.onnx"
            done = call([options.pare, "quantize", model, "-o", file, "--precision", "w4a8", "--data", train, "--quiet", *words])
            row = compared(options, model, file, test)
            decibels = row["outputs"][0]["sqnr_db"]
            noise[name] = 10 ** (-decibels / 10)
            results.add("four_bits", f"{kind} w4a8 {name}", "top-1 lost", row["drop"], "points")
            results.add("four_bits", f"{kind} w4a8 {name}", "SQNR", decibels, "dB")
            results.add("four_bits", f"{kind} w4a8 {name}", "seconds of quantizing", done.seconds, "s")
            if kind in ("cnn", "resnet", "mobilenet"):
                lost[name] += row["drop"]
        results.add("four_bits", f"{kind} w4a8", "noise of plain rounding that is gone", 1 - noise["default"] / noise["plain"],
                    "", ">= 0.8")
    results.add("four_bits", "cnn, resnet, mobilenet w4a8", "lost top-1 that is back", 1 - lost["default"] / lost["plain"], "",
                ">= 0.8")


def run(options, results):
    folder = options.work / "four_bits"
    folder.mkdir(parents=True, exist_ok=True)
    decoder(options, results, folder)
    matrices(options, results, folder)
    zoo(options, results, folder)

# SPDX-License-Identifier: Apache-2.0
"""Nets as PyTorch's exporters write them (export_nets.py): do they load, what are their FP32 outputs worth
beside ONNX Runtime's, their INT8 outputs beside those of its quantizer on the same samples, what does
simplify leave, can they be pruned."""

import logging
import math
import tempfile
from pathlib import Path

import h5py
import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import quantize_ort
from common import Failed, call

SAMPLES, AGREE, SPARSITY = 16, 1e-4, 0.7


def session(path, optimize=True):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def samples_of(path):
    """Input name -> (SAMPLES, ...), the same every time; None where an input has no batch axis."""
    rng = np.random.default_rng(1)
    made = {}
    for value in session(path).get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in value.shape]
        if len(shape) < 2 or shape[0] != 1:
            return None
        shape[0] = SAMPLES
        if value.type == "tensor(float)":
            made[value.name] = rng.standard_normal(shape).astype(np.float32)
        elif "mask" in value.name:
            made[value.name] = np.ones(shape, np.int64)
        else:
            made[value.name] = rng.integers(0, 500, shape)
    return made


def theirs(path, samples):
    run = session(path)
    rows = [run.run(None, {n: a[i:i + 1] for n, a in samples.items()}) for i in range(SAMPLES)]
    return {o.name: np.concatenate([r[k] for r in rows]) for k, o in enumerate(run.get_outputs())}


def file_name(name):
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def ours(options, path, data, folder, names):
    out = folder / "out.h5"
    out.unlink(missing_ok=True)
    call([options.pare, "run", path, "--data", data, "-o", out, "--batch", 1, "--quiet"])
    with h5py.File(out) as file:
        return {name: file[file_name(name)][()] for name in names}


def apart(got, want):
    """The largest difference of two outputs over the output's largest value."""
    worst = 0.0
    for name, w in want.items():
        if w.dtype.kind == "f" and w.size:
            worst = max(worst, float(np.abs(got[name].reshape(w.shape) - w).max() / max(np.abs(w).max(), 1e-30)))
    return worst


def sqnr(got, want):
    """Decibels over all float outputs."""
    signal = sum(float((w.astype(np.float64) ** 2).sum()) for w in want.values() if w.dtype.kind == "f")
    noise = sum(float(((got[n].reshape(w.shape).astype(np.float64) - w) ** 2).sum())
                for n, w in want.items() if w.dtype.kind == "f")
    return 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else math.inf


class Reader(CalibrationDataReader):
    def __init__(self, samples):
        self.rows = iter([{n: a[i:i + 1] for n, a in samples.items()} for i in range(SAMPLES)])

    def get_next(self):
        return next(self.rows, None)


def rival(path, samples, folder):
    """ONNX Runtime's file: s8 symmetric activations, s8 weights per channel, min and max."""
    prepared, out = folder / "prepared.onnx", folder / "rival.onnx"
    quantize_ort.prepare(str(path), str(prepared))
    quantize_static(str(prepared), str(out), Reader(samples), quant_format=QuantFormat.QDQ, per_channel=True,
                    weight_type=QuantType.QInt8, activation_type=QuantType.QInt8,
                    extra_options={"ActivationSymmetric": True})
    return out


def quantized(options, results, case, path, data, samples, want, folder):
    mine = folder / "ours.onnx"
    call([options.pare, "quantize", path, "-o", mine, "--data", data, "--quiet"])
    value = results.add("exports", case, "INT8 SQNR, ours", sqnr(ours(options, mine, data, folder, want), want), "dB")
    try:
        other = sqnr(theirs(rival(path, samples, folder), samples), want)
    except Exception as error:  # its kind is the rival's
        return dict(int8_db=value, ort_int8_db="", ort_error=str(error).strip().splitlines()[-1][:120])
    results.add("exports", case, "INT8 SQNR, ours less ONNX Runtime's", value - other, "dB", ">= 0")
    return dict(int8_db=value, ort_int8_db=other)


def plain(options, results, path, folder):
    """A net whose inputs have no batch axis: FP32 only, three inputs by themselves; and how far ONNX Runtime is
    from itself without its optimizer, which says what a difference means in this net."""
    run, other, rng, far, itself = session(path), session(path, False), np.random.default_rng(1), 0.0, 0.0
    for _ in range(3):
        feeds = {i.name: rng.random(i.shape).astype(np.float32) for i in run.get_inputs()}
        words = []
        for name, values in feeds.items():
            np.save(folder / f"{len(words)}.npy", values)
            words += ["--input", f"{name}={folder / str(len(words))}.npy"]
        call([options.pare, "run", path, *words, "-o", folder / "out", "--quiet"])
        want = dict(zip((o.name for o in run.get_outputs()), run.run(None, feeds)))
        got = {name: np.load(folder / "out" / f"{file_name(name)}.npy") for name in want}
        if not any(w.size for w in want.values()):
            raise Failed("every output is empty: nothing to compare")
        same = all(got[name].shape == w.shape for name, w in want.items())
        far = max(far, apart(got, want) if same else math.inf)
        again = dict(zip(want, other.run(None, feeds)))
        same = all(again[name].shape == w.shape for name, w in want.items())
        itself = max(itself, apart(again, want) if same else math.inf)
    results.add("exports", path.name[:-5], "FP32, ours and ONNX Runtime's apart", far, "", f"<= {AGREE}")
    results.add("exports", path.name[:-5], "ONNX Runtime and itself unoptimized apart", itself)
    results.detail("exports", dict(net=path.name[:-5], fp32_apart=far, ort_itself=itself))


def one(options, results, path, folder):
    case = path.name[:-5]
    simple, row = folder / "simple.onnx", dict(net=case)
    samples = samples_of(path)
    if samples is None:
        plain(options, results, path, folder)
        return
    data = folder / "samples.h5"
    with h5py.File(data, "w") as file:
        for name, values in samples.items():
            file[name] = values
    want = theirs(path, samples)
    row["fp32_apart"] = results.add("exports", case, "FP32, ours and ONNX Runtime's apart",
                                    apart(ours(options, path, data, folder, want), want), "", f"<= {AGREE}")
    call([options.pare, "simplify", path, "-o", simple, "--quiet"])
    row["nodes"], row["nodes_simplified"] = (len(onnx.load(p, load_external_data=False).graph.node)
                                             for p in (path, simple))
    results.add("exports", case, "nodes after simplify, of before", row["nodes_simplified"] / row["nodes"], "x", "<= 1")
    row.update(quantized(options, results, case, path, data, samples, want, folder))
    pruned = folder / "pruned.onnx"
    call([options.pare, "prune", path, "--sparsity", SPARSITY, "--score", "l2", "-o", pruned, "--quiet"])
    row["pruned_runs"] = len(ours(options, pruned, data, folder, want)) > 0
    results.detail("exports", row)


def run(options, results):
    logging.disable(logging.WARNING)
    if not options.exports:
        print("exports: left out, --exports names no folder")
        return
    for path in sorted(options.exports.glob("*.onnx")):
        if options.nets and path.name.split(".")[0] not in options.nets:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                one(options, results, path, Path(folder))
            except Failed as error:
                results.fail("exports", path.name[:-5], error)

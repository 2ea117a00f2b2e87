# SPDX-License-Identifier: Apache-2.0
"""Nets as PyTorch's exporters write them (export_nets.py): do they load, what are their FP32 outputs worth
beside ONNX Runtime's, their INT8 outputs beside those of its quantizer on the same samples, what does
simplify leave, can they be pruned, how long does a run of each take."""

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
import part_latency
from common import Failed, call

SAMPLES, WHOLE_SAMPLES, AGREE, SPARSITY = 16, 3, 1e-4, 0.7


def session(path, optimize=True):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def whole_inputs(path):
    """Names of inputs without a batch axis: a sample is such an input whole, and runs alone."""
    return {v.name for v in session(path).get_inputs()
            if len(v.shape) < 2 or (isinstance(v.shape[0], int) and v.shape[0] != 1)}


def samples_of(path, whole):
    """Input name -> (samples, ...), the same every time."""
    rng = np.random.default_rng(1)
    count, made = WHOLE_SAMPLES if whole else SAMPLES, {}
    for value in session(path).get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in value.shape]
        shape = [count] + (shape if value.name in whole else shape[1:])
        if value.type == "tensor(float)":
            made[value.name] = (rng.random if whole else rng.standard_normal)(shape).astype(np.float32)
        elif "mask" in value.name:
            made[value.name] = np.ones(shape, np.int64)
        else:
            made[value.name] = rng.integers(0, 500, shape)
    return made


def feeds_of(samples, whole):
    """Input name -> what ONNX Runtime takes, for each sample."""
    count = len(next(iter(samples.values())))
    return [{n: a[i] if n in whole else a[i:i + 1] for n, a in samples.items()} for i in range(count)]


def theirs(path, samples, whole=frozenset(), optimize=True):
    """Output name -> (samples, ...), or of samples that run alone a list."""
    run = session(path, optimize)
    rows = [run.run(None, feeds) for feeds in feeds_of(samples, whole)]
    return {o.name: [r[k] for r in rows] if whole else np.concatenate([r[k] for r in rows])
            for k, o in enumerate(run.get_outputs())}


def file_name(name):
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


def rows_of(output):
    """A dataset, or a group with a dataset for each sample."""
    if isinstance(output, h5py.Group):
        return [output[str(k)][()] for k in range(len(output))]
    return output[()]


def ours(options, path, data, folder, names):
    out = folder / "out.h5"
    out.unlink(missing_ok=True)
    call([options.pare, "run", path, "--data", data, "-o", out, "--batch", 1, "--quiet"])
    with h5py.File(out) as file:
        return {name: rows_of(file[file_name(name)]) for name in names}


def flat(rows):
    return np.concatenate([np.ravel(r) for r in rows])


def same_sizes(got, want):
    return [np.size(r) for r in got] == [np.size(r) for r in want]


def apart(got, want):
    """The largest difference of two outputs over the output's largest value; infinite where sizes differ."""
    worst = 0.0
    for name, rows in want.items():
        w = flat(rows)
        if not same_sizes(got[name], rows):
            return math.inf
        if w.dtype.kind == "f" and w.size:
            worst = max(worst, float(np.abs(flat(got[name]) - w).max() / max(np.abs(w).max(), 1e-30)))
    return worst


def sqnr(got, want):
    """Decibels over all float outputs."""
    signal = sum(float((w.astype(np.float64) ** 2).sum()) for w in want.values() if w.dtype.kind == "f")
    noise = sum(float(((got[n].reshape(w.shape).astype(np.float64) - w) ** 2).sum())
                for n, w in want.items() if w.dtype.kind == "f")
    return 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else math.inf


class Reader(CalibrationDataReader):
    def __init__(self, samples):
        self.rows = iter(feeds_of(samples, frozenset()))

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


def latency(options, results, case, scheme, ours, theirs):
    """Milliseconds of one run on one thread, of both, and their ratio."""
    if options.untimed:
        return {}
    loose = 1e-2 if scheme == "FP32" else 1e6  # what INT8 outputs are worth is measured before
    row = part_latency.time_files(options, f"pare:{ours}", f"ort:{theirs}", 1, 1, loose)
    results.add("exports", case, f"{scheme} {row['a_ms']:.3f} / {row['b_ms']:.3f} ms", row["ratio"], "x",
                "<= 1.5")
    name = scheme.lower()
    return {f"{name}_ms": row["a_ms"], f"ort_{name}_ms": row["b_ms"], f"{name}_ratio": row["ratio"]}


def quantized(options, results, case, path, data, samples, want, folder):
    mine = folder / "ours.onnx"
    call([options.pare, "quantize", path, "-o", mine, "--data", data, "--quiet"])
    value = results.add("exports", case, "INT8 SQNR, ours", sqnr(ours(options, mine, data, folder, want), want), "dB")
    try:
        file = rival(path, samples, folder)
        # as its file is written, node by node: its fused kernels saturate on a CPU without VNNI
        other = sqnr(theirs(file, samples, optimize=False), want)
    except Exception as error:  # its kind is the rival's
        return dict(int8_db=value, ort_int8_db="", ort_error=str(error).strip().splitlines()[-1][:120])
    results.add("exports", case, "INT8 SQNR, ours less ONNX Runtime's", value - other, "dB", ">= 0")
    return dict(int8_db=value, ort_int8_db=other, **latency(options, results, case, "INT8", mine, file))


def detected(options, results, case, path, data, want, folder):
    """INT8 of a net whose samples run alone. Boxes change places with the smallest of differences, which leaves an
    SQNR without meaning: said is for which outputs INT8 and FP32 find as much in every sample."""
    mine = folder / "ours.onnx"
    call([options.pare, "quantize", path, "-o", mine, "--data", data, "--quiet"])
    got = ours(options, mine, data, folder, want)
    same = [name for name, rows in want.items() if same_sizes(got[name], rows)]
    results.add("exports", case, "INT8 outputs of FP32's sizes", len(same) / len(want))
    return dict(int8_same_sizes=" ".join(same))


def one(options, results, path, folder):
    case = path.name[:-5]
    simple, row = folder / "simple.onnx", dict(net=case)
    whole = whole_inputs(path)
    samples, data = samples_of(path, whole), folder / "samples.h5"
    with h5py.File(data, "w") as file:
        for name, values in samples.items():
            file[name] = values
    want = theirs(path, samples, whole)
    if not any(flat(rows).size for rows in want.values()):
        raise Failed("every output is empty: nothing to compare")
    row["fp32_apart"] = results.add("exports", case, "FP32, ours and ONNX Runtime's apart",
                                    apart(ours(options, path, data, folder, want), want), "", f"<= {AGREE}")
    if whole or row["fp32_apart"] > AGREE:  # how far ONNX Runtime is from itself says what that means in this net
        row["ort_itself"] = results.add("exports", case, "ONNX Runtime and itself unoptimized apart",
                                        apart(theirs(path, samples, whole, False), want))
    call([options.pare, "simplify", path, "-o", simple, "--quiet"])
    row["nodes"], row["nodes_simplified"] = (len(onnx.load(p, load_external_data=False).graph.node)
                                             for p in (path, simple))
    results.add("exports", case, "nodes after simplify, of before", row["nodes_simplified"] / row["nodes"], "x", "<= 1")
    row.update(detected(options, results, case, path, data, want, folder) if whole else
               quantized(options, results, case, path, data, samples, want, folder))
    pruned = folder / "pruned.onnx"
    call([options.pare, "prune", path, "--sparsity", SPARSITY, "--score", "l2", "-o", pruned, "--quiet"])
    row["pruned_runs"] = len(ours(options, pruned, data, folder, want)) > 0
    row.update(latency(options, results, case, "FP32", path, path))
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
    rows = results.details.get("exports", [])
    for scheme, target in (("fp32", "<= 1.0"), ("int8", "<= 0.8")):
        ratios = [float(row[f"{scheme}_ratio"]) for row in rows if row.get(f"{scheme}_ratio")]
        if ratios:
            results.add("exports", f"{len(ratios)} cases", f"{scheme} against ONNX Runtime: geometric mean",
                        part_latency.geometric_mean(ratios), "x", target)

# SPDX-License-Identifier: Apache-2.0
"""Full-size nets of export_models.py pruned to half of their multiply-adds: ours on the ONNX file, torch-pruning
on the PyTorch module. Ours is good where the file is valid, runs in ONNX Runtime, equals the masked
dense model (no data, no refit) and has between 45 and 50 % of the multiply-adds."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx

import runtimes
from common import ROOT, Failed, call

sys.path.append(str(ROOT / "tests" / "interop"))
import _masked  # noqa: E402

NAMES = ("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0",
         "densenet121", "regnet_y_400mf", "convnext_tiny", "vit_b_16", "bert_base")
EXPORTERS = ("", "_dynamo")
LEAST, MOST, TOLERANCE = 45, 50, 1e-5


def outputs(path, inputs):
    return runtimes.ort_session(path).run(None, inputs)


def masked_error(path, smaller, folder, inputs):
    """Largest difference from the masked dense model, as a part of its largest output."""
    # 2 GiB is what a file without external data can have: these nets are far below
    model, _ = _masked.masked(onnx.load(path), onnx.load(smaller))
    masked = folder / "masked.onnx"
    onnx.save(model, masked)
    pairs = zip(outputs(masked, inputs), outputs(smaller, inputs), strict=True)
    worst = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    masked.unlink()
    return worst


def ours(options, folder, path):
    """What came of our pruning of a file."""
    smaller, facts = folder / path.name, folder / f"{path.stem}.json"
    smaller.unlink(missing_ok=True)
    groups = call([options.pare, "inspect", path, "--groups", "--quiet"])
    outcome = call([options.pare, "prune", path, "-o", smaller, "--macs", "0.5", "--quiet",
                    "--json", facts])
    macs = json.loads(facts.read_text())["smaller"][0]["macs"]
    row = dict(left=100 * macs["after"] / macs["before"], seconds=outcome.seconds,
               peak_bytes=outcome.peak_bytes, groups_seconds=groups.seconds)
    onnx.checker.check_model(str(smaller), full_check=True)
    stem = path.stem.removesuffix("_dynamo")
    inputs = dict(np.load(path.with_name(f"{stem}_input.npz")))
    row["error"] = masked_error(path, smaller, folder, inputs)
    row["works"] = LEAST < row["left"] <= MOST and row["error"] <= TOLERANCE
    smaller.unlink()
    return row


def theirs(name):
    """What came of torch-pruning's pruning of the module."""
    outcome = call([sys.executable, Path(__file__).parent / "prune_torch.py", name])
    row = json.loads(outcome.output.strip().splitlines()[-1])
    if "left" in row:
        row["left"] *= 100
    row["works"] = "left" in row and LEAST < row["left"] <= MOST
    row["peak_bytes"] = outcome.peak_bytes
    return row


def add_ours(options, results, folder, path):
    row = ours(options, folder, path)
    case, size = path.stem, path.stat().st_size
    results.add("prune_rival", case, "ours: multiply-adds left", row["left"], "%", f"<= {MOST}")
    results.add("prune_rival", case, "ours: differs from masked dense", row["error"], "",
                f"<= {TOLERANCE}")
    results.add("prune_rival", case, "ours: groups", round(row["groups_seconds"], 2), "s")
    judged = "<= 2" if size > 90e6 and size < 120e6 else None
    results.add("prune_rival", case, "ours: all of it", round(row["seconds"], 2), "s", judged)
    results.add("prune_rival", case, "ours: peak memory, of the file", row["peak_bytes"] / size, "x",
                "<= 3" if judged else None)
    results.detail("prune_rival", dict(net=case, who="ours", **row))
    return row["works"]


def add_theirs(results, name):
    row = theirs(name)
    if "left" in row:
        results.add("prune_rival", name, "torch-pruning: its count left", row["left"], "%")
        results.add("prune_rival", name, "torch-pruning: time", round(row["seconds"], 2), "s")
    else:
        results.add("prune_rival", name, "torch-pruning", row["error"])
    results.detail("prune_rival", dict(net=name, who="torch-pruning", **row))
    return row["works"]


def run(options, results):
    folder = options.work / "pare" / "prune_rival"
    folder.mkdir(parents=True, exist_ok=True)
    working, rival, seen = 0, 0, 0
    for name in NAMES if options.models else ():
        paths = [options.models / f"{name}{suffix}.onnx" for suffix in EXPORTERS]
        if options.nets and name not in options.nets or not paths[0].exists():
            continue
        seen += 1
        good = True
        for path in filter(Path.exists, paths):
            try:
                good = add_ours(options, results, folder, path) and good
            except Exception as error:  # a checker, a session, the program: each means that it fails
                results.fail("prune_rival", path.stem, error)
                good = False
        working += good
        try:
            rival += add_theirs(results, name)
        except Failed as error:
            results.fail("prune_rival", f"{name} torch-pruning", error)
    if seen:
        results.add("prune_rival", f"{seen} nets", "ours: work, by both exporters", working, "",
                    f">= {rival}")
        results.add("prune_rival", f"{seen} nets", "torch-pruning: work", rival)

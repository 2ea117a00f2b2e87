# SPDX-License-Identifier: Apache-2.0
"""Running a model over a data set in either runtime, and what is computed from its logits."""

import h5py
import numpy as np
import onnxruntime

from common import call


def ort_session(path, threads=0, optimize=True):
    settings = onnxruntime.SessionOptions()
    if not optimize:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def ort_logits(path, images, batch=50, optimize=True):
    """First output over images, in ONNX Runtime; models with a fixed batch get that batch."""
    session = ort_session(path, optimize=optimize)
    first = session.get_inputs()[0]
    if isinstance(first.shape[0], int):
        batch = first.shape[0]
    return np.concatenate([session.run(None, {first.name: images[i:i + batch]})[0]
                           for i in range(0, len(images), batch)])


def our_logits(options, path, data):
    """First output over an HDF5 file, in our runtime."""
    out = options.work / "out.h5"
    out.unlink(missing_ok=True)
    call([options.pare, "run", path, "--data", data, "-o", out, "--quiet"])
    with h5py.File(out) as file:
        names = [name for name in file if name != "labels"]
        logits = file[names[0]][:]
    out.unlink()
    return logits


def top1(logits, labels):
    return 100 * float((logits.argmax(1) == labels).mean())


def agreement(a, b):
    """Percent of rows with the same largest logit."""
    return 100 * float((a.argmax(1) == b.argmax(1)).mean())


def sqnr(reference, logits):
    """10 log10 of signal over noise, in dB; infinite where nothing differs."""
    noise = np.square(reference.astype(np.float64) - logits).sum()
    return float(10 * np.log10(np.square(reference.astype(np.float64)).sum() / noise)) \
        if noise else float("inf")


def figures(reference, logits, labels=None):
    """What a quantized file's logits are worth beside the float model's: agreement, sqnr_db, and with
    labels top1 and drop, in points."""
    facts = dict(agreement=agreement(reference, logits), sqnr_db=sqnr(reference, logits))
    if labels is not None:
        facts["top1"] = top1(logits, labels)
        facts["drop"] = top1(reference, labels) - facts["top1"]
    return facts


def difference(a, b):
    """Largest |a - b| over largest |b|."""
    return float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max())

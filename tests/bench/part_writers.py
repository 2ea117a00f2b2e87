# SPDX-License-Identifier: Apache-2.0
"""Eight writers at once on one folder of caches and one growing CSV: rows and entries that are lost or
torn, against what one writer alone makes; and what the caches save."""

import collections
import csv
import shutil
import threading

import nets
from common import Failed, call

WRITERS, ROUNDS, SAMPLES = 8, 6, 500
METHODS = ("auto", "minmax", "entropy", "mse", "percentile:99.9", "percentile:99.99")


def step(options, folder, net, k, cache, rows, data):
    """Quantize, compare, measure: the commands' words of warning, and the seconds of the first two."""
    model = folder / f"{net.name}.{k}.onnx"
    shared = ["--threads", "1", *(["--cache", cache] if cache else [])]
    quantize = call([options.pare, "quantize", net.path, "-o", model, "--method", METHODS[k % len(METHODS)],
                     "--activations", "u8" if k % 2 else "s8", "--data", data["train"], "--samples", SAMPLES,
                     *shared])
    validate = call([options.pare, "validate", net.path, model, "--data", data["t10k"], "--samples", 2000,
                     "--any-accuracy", *shared, *(["--append", rows] if rows else [])])
    bench = call([options.pare, "bench", model, "--duration", "0", "--warmup", "0", *shared])
    said = [line for one in (quantize, validate, bench) for line in one.output.splitlines()
            if line.startswith("warning:") and "cache" in line]
    return said, quantize.seconds + validate.seconds, model.read_bytes()


def write(options, work, number, cache, rows, sets, out):
    folder = work / f"writer-{number}"
    folder.mkdir()
    try:
        for k in range(ROUNDS):
            for net in sets["nets"]:
                said, _, model = step(options, folder, net, k, cache, rows, sets[net.name])
                out["said"] += said
                out["models"][net.name, k].add(hash(model))
    except (Failed, OSError) as error:
        out["failed"].append(str(error))


def torn(path, header):
    with open(path, newline="") as file:
        lines = list(csv.reader(file))
    return sum(len(line) != len(header) or line[0] != "validate" for line in lines[1:]), len(lines) - 1


def run(options, results):
    work = options.work / "writers"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    cache, rows = work / "cache", work / "rows.csv"
    chosen = [net for net in nets.all_nets(options) if net.name in ("cnn", "mlp", "resnet")]
    sets = {net.name: {part: nets.data_file(options, net, part) for part in ("train", "t10k")} for net in chosen}
    sets["nets"] = chosen
    out = {"said": [], "failed": [], "models": collections.defaultdict(set)}
    threads = [threading.Thread(target=write, args=(options, work, i, cache, rows, sets, out)) for i in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case = f"{WRITERS} writers, {len(chosen)} nets x {ROUNDS} recipes"
    for error in out["failed"]:
        results.fail("writers", case, error)
    header = rows.read_text().split("\n", 1)[0].split(",")
    bad, count = torn(rows, header)
    wanted = 2 * WRITERS * ROUNDS * len(chosen)
    results.add("writers", case, f"rows lost of {wanted}", wanted - count, "", "== 0")
    results.add("writers", case, "rows torn", bad, "", "== 0")
    results.add("writers", case, "warnings about the caches", len(out["said"]), "", "== 0")
    results.add("writers", case, "recipes whose models differ between writers",
                sum(len(kinds) != 1 for kinds in out["models"].values()), "", "== 0")
    for kind in ("outputs", "statistics"):
        kept = sum(1 for _ in (cache / kind).iterdir())
        results.add("writers", case, f"entries of {kind} ({len(chosen)} needed)", kept, "", f"== {len(chosen)}")
    savings(options, results, work, sets)


def savings(options, results, work, sets):
    """One writer alone: the same two commands with and without the folder, the files the same."""
    for net in sets["nets"]:
        folder, cache = work / f"alone-{net.name}", work / f"cache-{net.name}"
        folder.mkdir()
        try:
            step(options, folder, net, 0, cache, None, sets[net.name])
            with_it = [step(options, folder, net, k, cache, None, sets[net.name])[1:] for k in range(1, 6)]
            without = [step(options, folder, net, k, None, None, sets[net.name])[1:] for k in range(1, 6)]
        except Failed as error:
            results.fail("writers", net.name, error)
            continue
        same = all(a[1] == b[1] for a, b in zip(with_it, without))
        results.add("writers", net.name, "quantize and validate, of the time without caches",
                    min(a[0] for a in with_it) / min(b[0] for b in without), "x")
        results.add("writers", net.name, "models equal with and without", int(same), "", "== 1")

# SPDX-License-Identifier: Apache-2.0
"""What `pare zoo --dry-run` says a zoo will take, beside what it takes then."""

import json
import shutil

import nets
from common import Failed, call

PART = "zoo_forecast"
VARIANTS = """variants:
  - {name: int8, steps: [quantize --precision int8]}
  - {name: fp16, steps: [quantize --precision fp16]}
  - {name: slim, steps: [prune --macs 0.5, distill --steps 200, quantize --precision int8]}
"""


def run(options, results):
    chosen = [net for net in nets.small_nets(options) if net.name in ("cnn", "resnet", "vit")]
    if not chosen:
        return
    folder = options.work / "zoo_forecast"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = ", ".join(f"'{net.path.resolve()}'" for net in chosen)
    data, test = (nets.data_file(options, chosen[0], split).resolve() for split in ("train", "t10k"))
    (folder / "zoo.yaml").write_text(f"models: [{{files: [{files}]}}]\ndata: {data}\ntest: {test}\n" + VARIANTS)
    words = [options.pare, "zoo", folder / "zoo.yaml", "-o", folder / "out", "-q"]
    try:
        dry = call([*words, "--dry-run", "--json", folder / "said.json"])
        call([*words, "--json", folder / "done.json"])
    except Failed as error:
        results.fail(PART, "zoo", error)
        return
    said = json.loads((folder / "said.json").read_text())["forecast"]
    lines = [json.loads(line) for path in (folder / "out" / "journal").glob("*.jsonl")
             for line in path.read_text().splitlines()]
    done = [line for line in lines if "finished" in line]
    case = f"{len(chosen)} models x 3"
    for what, key, fold, unit, scale in (("time", "seconds", sum, "s", 1),
                                         ("processor time", "cpu_seconds", sum, "s", 1),
                                         ("memory", "memory_bytes", max, "MB", 1e-6)):
        own = key.replace("memory", "peak")
        taken = fold(line[own] for line in done) * scale
        results.add(PART, case, f"{what} that was said", round(said[key] * scale, 1), unit)
        results.add(PART, case, f"{what} taken", round(taken, 1), unit)
        results.add(PART, case, f"{what}: said, of that taken", said[key] * scale / taken, "x")
    results.add(PART, case, "time of the forecast itself", round(dry.seconds, 1), "s")

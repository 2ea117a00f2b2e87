# SPDX-License-Identifier: Apache-2.0
"""What a zoo costs beside its steps' own work, and that kills lose and repeat nothing."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import h5py
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from common import Failed

ACROSS, DATA = 16, 64
TIMES = {"seconds", "cpu_seconds", "peak_bytes"}

COMMON = """models:
  - files: [models/*.onnx]
data: data.h5
test: data.h5
latency: false
variants:
"""

MANY = "name: many\n" + COMMON + """  - name: s8
    steps: [quantize]
  - name: u8
    steps: [quantize --activations u8]
"""

KILLED = "name: killed\n" + COMMON + """  - name: int8
    steps: [quantize]
  - name: half
    steps: [prune --macs 0.5]
  - name: half-int8
    steps: [prune --macs 0.5, quantize]
  - name: tuned-int8
    steps: [prune --macs 0.5, "distill --epochs 40 --batch 8", quantize]
"""


def make_model(path, seed, hidden):
    """Two dense layers with weights of this seed."""
    rng = numpy.random.default_rng(seed)
    weights = [rng.normal(0, 0.3, shape).astype(numpy.float32)
               for shape in ((ACROSS, hidden), (hidden,), (hidden, 4), (4,))]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], "first"),
         helper.make_node("Relu", ["h"], ["r"], "relu"),
         helper.make_node("Gemm", ["r", "w1", "b1"], ["y"], "second")],
        "made", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", ACROSS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, ("w0", "b0", "w1", "b1"))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


def make_zoo(folder, text, models, hidden):
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "models").mkdir(parents=True)
    for i in range(models):
        make_model(folder / "models" / f"m{i:04}.onnx", i, hidden)
    with h5py.File(folder / "data.h5", "w") as file:
        file["x"] = numpy.random.default_rng(7).normal(size=(DATA, ACROSS)).astype(numpy.float32)
    (folder / "zoo.yaml").write_text(text)


def start(options, folder, *more):
    return subprocess.Popen([options.pare, "zoo", "zoo.yaml", "-o", "out", "--jobs", "2", "--threads",
                             "1", "-q", *more], cwd=folder, stdout=subprocess.DEVNULL,
                            stderr=open(folder / "err.txt", "ab"))


def journal(folder):
    lines = []
    for path in sorted((folder / "out" / "journal").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                pass
    return lines


def look(pid):
    """Resident bytes of a process, and the processor time of its own so far, in seconds."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    if len(words) < 22:
        return 0, 0
    return (int(words[21]) * os.sysconf("SC_PAGE_SIZE"),
            (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK"))


# --- what it costs ---

def cost(options, results):
    folder = options.work / "zoo_many"
    make_zoo(folder, MANY, options.zoo_models, 32)
    tasks, memory, own, load, begin = 2 * options.zoo_models, [], 0, [], time.monotonic()
    with start(options, folder) as parent:
        while parent.poll() is None:
            bytes_, seconds = look(parent.pid)
            own = max(own, seconds)
            load.append(os.getloadavg()[0])
            if bytes_ and (folder / "out" / "journal").exists():
                memory.append(bytes_)
            time.sleep(0.25)
    wall = time.monotonic() - begin
    if parent.returncode:
        raise Failed((folder / "err.txt").read_text()[-400:])
    work = sum(line["seconds"] for line in journal(folder) if "finished" in line)
    case = f"{options.zoo_models} models x 2, 2 jobs"
    results.add("zoo", case, "wall clock", wall, "s")
    results.add("zoo", case, "work of the steps themselves, sum", work, "s")
    results.add("zoo", case, "overhead of a task (wall x jobs - work)",
                1000 * (2 * wall - work) / tasks, "ms", "<= 15")
    results.add("zoo", case, "processor time of the parent, of a task", 1000 * own / tasks, "ms")
    results.add("zoo", case, "load of the machine meanwhile, mean", sum(load) / len(load))
    tenth = max(1, len(memory) // 10)
    early, late = max(memory[tenth:2 * tenth]), max(memory[-2 * tenth:-tenth])
    results.add("zoo", case, "parent's memory, second tenth of the run", early / 1e6, "MB")
    results.add("zoo", case, "parent's memory, second last tenth", late / 1e6, "MB")
    results.add("zoo", case, "late beside early", late / early, "x", "<= 1.05")
    page = (folder / "out" / "report.html").stat().st_size
    results.add("zoo", case, "report.html", page / 1e6, "MB", "<= 5")


# --- what a kill costs ---

def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def tables(folder):
    """All that must not differ, and the bytes of the models."""
    out = folder / "out"
    with open(out / "results.csv", newline="") as file:
        rows = [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]
    found = [without_times(json.loads((out / name).read_text()))
             for name in ("tasks.json", "summary.json")]
    return (json.dumps(rows), json.dumps(found),
            {path.name: path.read_bytes() for path in sorted((out / "models").iterdir())})


class Ends:
    """What runs that were disturbed came to, summed: tables that differ, steps that were repeated."""

    def __init__(self, wanted):
        self.wanted, self.runs, self.differ, self.twice, self.repeated, self.lost = wanted, 0, 0, 0, 0, 0

    def take(self, folder):
        lines = journal(folder)
        done = [line["key"] for line in lines if line.get("class") == "done"]
        starts = [line["key"] for line in lines if "started" in line]
        self.runs += 1
        self.twice += len(done) - len(set(done))
        self.repeated += len(starts) - len(set(starts))
        self.lost += len(starts) - len(done)
        self.differ += tables(folder) != self.wanted

    def tell(self, results, part, case, most=None):
        """most: steps that the kills can have ended."""
        results.add(part, case, "runs to their end", self.runs)
        results.add(part, case, "runs whose tables or models differ", self.differ, "", "== 0")
        results.add(part, case, "steps done twice", self.twice, "", "== 0")
        results.add(part, case, "steps begun again", self.repeated, "", most and f"<= {most}")
        results.add(part, case, "steps that were killed", self.lost, "", f"== {self.repeated}")


def kill_somebody(parent, chance):
    """The parent or one of its workers; False where there is none."""
    if chance.random() < 0.5:
        parent.kill()
        return "parent"
    try:
        words = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    except OSError:
        words = []
    if not words:
        return None
    try:
        os.kill(int(chance.choice(words)), signal.SIGKILL)
    except ProcessLookupError:
        return None
    return "worker"


def kills(options, results):
    whole, folder = options.work / "zoo_whole", options.work / "zoo_killed"
    chance = random.Random(options.zoo_seed)
    make_zoo(whole, KILLED, 5, 64)
    begin = time.monotonic()
    with start(options, whole) as parent:
        parent.wait()
    length = time.monotonic() - begin
    if parent.returncode:
        raise Failed((whole / "err.txt").read_text()[-400:])
    ends = Ends(tables(whole))
    killed = {"parent": 0, "worker": 0}
    while sum(killed.values()) < options.zoo_kills or parent.returncode:
        if not parent.returncode:
            make_zoo(folder, KILLED, 5, 64)
        with start(options, folder, "--resume") as parent:
            time.sleep(chance.random() * length / 3)
            more = sum(killed.values()) < options.zoo_kills
            if parent.poll() is None and more and (who := kill_somebody(parent, chance)):
                killed[who] += 1
            parent.wait()
        if not parent.returncode:
            ends.take(folder)
    case = f"20 tasks, {killed['parent']} parents, {killed['worker']} workers killed"
    results.add("zoo", case, "kill -9", sum(killed.values()), "", f">= {options.zoo_kills}")
    ends.tell(results, "zoo", case)


def run(options, results):
    for part in (cost, kills):
        try:
            part(options, results)
        except Failed as error:
            results.fail("zoo", part.__name__, error)

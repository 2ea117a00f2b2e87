# SPDX-License-Identifier: Apache-2.0
"""What all parts of the benchmark share: where things are, running programs, results."""

import csv
import datetime
import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Failed(Exception):
    """A program that should have worked did not; the text is its last words."""


class Outcome:
    """What a finished program cost: seconds, peak bytes, its output."""

    def __init__(self, seconds, peak_bytes, output):
        self.seconds, self.peak_bytes, self.output = seconds, peak_bytes, output


def peak_bytes(process="self"):
    """VmHWM of a process; 0 where it has no memory any more. ru_maxrss would count its parent's pages, too:
    a child starts with its parent's size, and the maximum outlives exec."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class PeakMemory(threading.Thread):
    """Watches a process's own peak."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.bytes, self.over = pid, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.01):
            try:
                self.bytes = max(self.bytes, peak_bytes(self.pid))
            except OSError:
                return


def call(command, env=None, status=(0,)):
    """Runs a command to its end and returns its Outcome; raises Failed where it exits otherwise."""
    start = time.perf_counter()
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}) as process:
        peak = PeakMemory(process.pid)
        output = process.stdout.read().decode(errors="replace")
        process.wait()
        peak.over.set()
    seconds = time.perf_counter() - start
    if process.returncode not in status:
        last = (output.strip().splitlines() or ["no output"])[-1]
        raise Failed(f"{Path(command[0]).name}: exit {process.returncode}: {last[-400:]}")
    return Outcome(seconds, peak.bytes, output)


class Results:
    """Measured facts, printed as they come and written at the end.

    A row says: part, case (net and conditions), what was measured, the value, its unit, and where
    there is a target, the target ("<= 0.9") and whether it was met. details are further columns for
    the part's own CSV."""

    def __init__(self, directory, options):
        self.directory, self.options = directory, options
        self.rows, self.details = [], {}

    def add(self, part, case, what, value, unit="", target=None):
        met = None if target is None else _meets(value, target)
        self.rows.append(dict(part=part, case=case, what=what, value=value, unit=unit,
                              target=target or "", met={None: "", True: "yes", False: "NO"}[met]))
        print(f"{part:12} {case:28} {what:44} {_text(value):>10} {unit:6} "
              f"{target or '':10} {self.rows[-1]['met']}", flush=True)
        return value

    def fail(self, part, case, error):
        """Notes that a measurement could not be made: it counts as a missed target."""
        self.rows.append(dict(part=part, case=case, what="could not be measured", value=str(error),
                              unit="", target="", met="NO"))
        print(f"{part:12} {case:28} FAILED {error}", file=sys.stderr, flush=True)

    def detail(self, part, row):
        self.details.setdefault(part, []).append(row)

    def write(self):
        """One CSV per part, results.csv, results.json and summary.md, in the results folder.

        Parts measured earlier on the same day stay, unless they were measured again."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._keep_other_parts()
        facts = machine_facts(self.options)
        for part, rows in self.details.items():
            _write_csv(self.directory / f"{part}.csv", rows)
        _write_csv(self.directory / "results.csv", self.rows)
        document = dict(facts=facts, results=self.rows)
        (self.directory / "results.json").write_text(json.dumps(document, indent=1) + "\n")
        (self.directory / "summary.md").write_text(_summary(facts, self.rows))

    def _keep_other_parts(self):
        old = self.directory / "results.json"
        if old.exists():
            fresh = {row["part"] for row in self.rows}
            kept = [row for row in json.loads(old.read_text())["results"]
                    if row["part"] not in fresh]
            self.rows = kept + self.rows


def _meets(value, target):
    sign, limit = target.split()
    limit = float(limit)
    return {"<=": value <= limit, ">=": value >= limit, "<": value < limit,
            ">": value > limit, "==": value == limit}[sign]


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def _write_csv(path, rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _summary(facts, rows):
    lines = ["# Benchmark", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    for part in dict.fromkeys(row["part"] for row in rows):
        mine = [row for row in rows if row["part"] == part]
        judged = [row for row in mine if row["met"]]
        lines += ["", f"## {part}: {sum(row['met'] == 'yes' for row in judged)} of {len(judged)} "
                  "targets met", "", "| case | what | measured | target | met |",
                  "| --- | --- | --- | --- | --- |"]
        lines += [f"| {row['case']} | {row['what']} | {_text(row['value'])} {row['unit']} "
                  f"| {row['target']} | {row['met']} |" for row in mine]
    return "\n".join(lines) + "\n"


def machine_facts(options):
    """Who measured: processor, cores, memory, versions, date."""
    import numpy
    import onnxruntime

    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    flags = next((line.split() for line in open("/proc/cpuinfo") if line.startswith("flags")), [])
    wide = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
            if flag in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{model} ({', '.join(wide)})",
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory:.0f} GiB",
        "system": platform.platform(),
        "pare": f"{call([options.pare, 'version']).output.splitlines()[0]}, commit {commit}"
                if Path(options.pare).exists() else f"commit {commit}",
        "onnxruntime": onnxruntime.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }



# SPDX-License-Identifier: Apache-2.0
"""That kills of a real Slurm's controller, and of a zoo's processes under it, lose and repeat nothing.

The Slurm is this machine's alone; its daemons run from a folder that tests/cli/_slurm.sh makes. The
arrays are short, so that a zoo takes several."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT, Failed
from part_zoo import KILLED, Ends, make_zoo, tables

ARRAY, MODELS = 3, 5
OTHERS = ("parent", "task", "worker", "merge")
WORDS = {"controller": "Slurm's controller", "parent": "the parent that submits", "task": "a task",
         "worker": "a task's step", "merge": "the job that makes the tables"}


class Slurm:
    """Its daemons; $SLURM_CONF leads sbatch and the rest to them."""

    def __init__(self):
        self.here = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        self.here["SLURM_CONF"] = self.do("make", ARRAY).strip()
        for daemon in ("munged", "slurmctld", "slurmd"):
            self.do("start", daemon)
        self.do("ready")

    def call(self, *words):
        env = {**os.environ, **self.here}
        return subprocess.run(["sh", ROOT / "tests" / "cli" / "_slurm.sh", *map(str, words)], env=env,
                              stdout=subprocess.PIPE, text=True, check=False)

    def do(self, *words):
        done = self.call(*words)
        if done.returncode:
            raise Failed(f"Slurm: {' '.join(map(str, words))}: {done.stdout.strip()}")
        return done.stdout

    def waits(self):
        """Is a job left, or does no one answer?"""
        return self.call("ended", 0).returncode != 0

    def end(self):
        self.call("down")


def submit(options, slurm, folder):
    return subprocess.Popen(
        [options.pare.resolve(), "zoo", "zoo.yaml", "-o", "out", "--slurm", "--resume", "--device", "cpu",
         "--sbatch=--cpus-per-task=1"], cwd=folder, env={**os.environ, **slurm.here},
        stdout=open(folder / "out.txt", "ab"), stderr=open(folder / "err.txt", "ab"))


# --- who is there ---

def processes(options, folder):
    """(number, parent's number, words) of the folder's zoo."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (os.readlink(place / "exe") != str(options.pare.resolve()) or
                    os.readlink(place / "cwd") != str(folder)):
                continue
            words = (place / "cmdline").read_bytes().decode().split("\0")
            parent = (place / "stat").read_text().rpartition(")")[2].split()[1]
        except (OSError, IndexError):
            continue
        found.append((int(place.name), int(parent), words))
    return found


def of_kind(kind, found):
    """Numbers of the tasks' processes, of the steps' that these started, or of the merging ones."""
    if kind == "merge":
        return [pid for pid, _, words in found if "--merge" in words]
    ours = {pid for pid, _, words in found if "--task" in words}
    return [pid for pid, parent, words in found
            if "--task" in words and (parent in ours) == (kind == "worker")]


# --- kills ---

def kill_now(kind, options, folder, chance):
    there = of_kind(kind, processes(options, folder))
    if not there:
        return False
    try:
        os.kill(chance.choice(sorted(there)), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_controller(slurm, chance):
    """It is away for up to two seconds."""
    slurm.do("kill")
    time.sleep(2 * chance.random())
    slurm.do("back")


class Run:
    """Kills to come, in their order, and what they are done to."""

    def __init__(self, options, slurm, length, called):
        self.options, self.slurm, self.length, self.called = options, slurm, length, called
        self.folder = options.work / "zoo_slurm_killed"
        self.chance = random.Random(options.zoo_seed)
        controllers = (2 * options.zoo_kills + 4) // 5
        self.kinds = ["controller"] * controllers
        self.kinds += [OTHERS[i % len(OTHERS)] for i in range(options.zoo_kills - controllers)]
        self.chance.shuffle(self.kinds)
        self.killed = dict.fromkeys(WORDS, 0)
        self.calls, self.refused = 0, 0

    def count(self):
        kind = self.kinds.pop(0)
        self.killed[kind] += 1
        print(f"{time.strftime('%H:%M:%S')} {kind} killed, {len(self.kinds)} to come", flush=True)

    def next(self, *kinds):
        return bool(self.kinds) and self.kinds[0] in kinds

    def submit(self):
        """One call, which may be killed, or lose its controller. True: it came to its end."""
        with submit(self.options, self.slurm, self.folder) as parent:
            moment = time.monotonic() + self.called * self.chance.random()
            early = self.next("controller") and self.chance.random() < 0.25
            while parent.poll() is None and time.monotonic() < moment:
                time.sleep(0.002)
            if self.next("parent") and parent.poll() is None:
                parent.kill()
                self.count()
            elif early:
                kill_controller(self.slurm, self.chance)
                self.count()
            parent.wait()
        self.calls += 1
        self.refused += parent.returncode > 0
        return parent.returncode == 0

    def disturb(self):
        """While jobs are there: the next kill at a random moment, or as soon as there is someone."""
        while self.next("controller", "task", "worker", "merge") and self.slurm.waits():
            time.sleep(self.chance.random() * self.length / 3)
            end = time.monotonic() + 120
            while self.slurm.waits():
                if time.monotonic() > end:
                    raise Failed(f"jobs without a process: {self.slurm.call('ended', 0).stdout}")
                if self.kill_next():
                    self.count()
                    break

    def kill_next(self):
        """The controller, or who is found within half a second, after a random while."""
        kind, end = self.kinds[0], time.monotonic() + 0.5
        if kind == "controller":
            kill_controller(self.slurm, self.chance)
            return True
        while time.monotonic() < end:
            if of_kind(kind, processes(self.options, self.folder)):
                time.sleep(0.1 * self.chance.random())
                return kill_now(kind, self.options, self.folder, self.chance)
            time.sleep(0.003)
        return False

    def whole(self):
        """A zoo to its end: True once a call finds nothing left to do."""
        make_zoo(self.folder, KILLED, MODELS, 64)
        for _ in range(50):
            out = self.folder / "out.txt"
            before = out.stat().st_size if out.exists() else 0
            good = self.submit()
            submitted = b"tasks submitted" in out.read_bytes()[before:]
            if good and not submitted:
                self.slurm.do("ended", 120)
                return
            if good or self.chance.random() < 0.5:
                self.disturb()
                self.slurm.do("ended", 120)
        raise Failed(f"50 calls, and yet not done: {(self.folder / 'err.txt').read_text()[-300:]}")


# --- the part ---

def undisturbed(options, slurm):
    """Its tables, its length and the length of the call that submits it."""
    folder = options.work / "zoo_slurm_whole"
    make_zoo(folder, KILLED, MODELS, 64)
    begin = time.monotonic()
    with submit(options, slurm, folder) as parent:
        parent.wait()
    called = time.monotonic() - begin
    if parent.returncode:
        raise Failed((folder / "err.txt").read_text()[-400:])
    slurm.do("ended", 120)
    return tables(folder), time.monotonic() - begin, called


def kills(options, results, slurm):
    wanted, length, called = undisturbed(options, slurm)
    run_, ends, begin = Run(options, slurm, length, called), Ends(wanted), time.monotonic()
    while run_.kinds:
        run_.whole()
        ends.take(run_.folder)
    killed, case = run_.killed, f"{4 * MODELS} tasks under Slurm"
    results.add("zoo_slurm", case, "kill -9", sum(killed.values()), "", f">= {options.zoo_kills}")
    for kind, count in killed.items():
        least = f">= {2 * options.zoo_kills // 5}" if kind == "controller" else None
        results.add("zoo_slurm", case, f"of them {WORDS[kind]}", count, "", least)
    cores = len(os.sched_getaffinity(0))
    most = killed["task"] + killed["worker"] + cores * killed["controller"]
    ends.tell(results, "zoo_slurm", case, most)
    results.add("zoo_slurm", case, "calls of pare zoo --slurm", run_.calls)
    results.add("zoo_slurm", case, "of them ended with a message", run_.refused)
    results.add("zoo_slurm", case, "one run undisturbed", length, "s")
    results.add("zoo_slurm", case, "all runs", time.monotonic() - begin, "s")


def run(options, results):
    lacks = subprocess.run(["sh", ROOT / "tests" / "cli" / "_slurm.sh", "lacks"], capture_output=True,
                           text=True, check=False)
    if not lacks.returncode:
        print(f"left out: zoo_slurm: {lacks.stdout.strip()}", file=sys.stderr)
        return
    slurm = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not without their end
    try:
        slurm = Slurm()
        kills(options, results, slurm)
    except Failed as error:
        results.fail("zoo_slurm", "kills", error)
    finally:
        if slurm:
            slurm.end()

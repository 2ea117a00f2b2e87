# SPDX-License-Identifier: Apache-2.0
"""INT8 by every quantizer in one table: pare, ONNX Runtime's and NNCF's (--nncf-python), each on as many training images
and the same cores; top-1, agreement and SQNR of the files, wall clock and peak memory of the process that made each.
Our files are judged in our runtime, the others in ONNX Runtime node by node, as written: its fused kernels saturate on a
CPU without VNNI. And hostile twins of three nets (datasets/zoo/twins.py): what plain INT8 makes of them, what --max-drop;
and exported nets of full size (--exports), whose weights are random."""

import os
import re
import statistics
import sys

import nets
import part_accuracy
import runtimes
from common import Failed, call

PART = "quantizers"
THREADS, SAMPLES, WIDE_SAMPLES = 2, 512, 300
ROUNDS = 3  # of a wide net, whose time has a target
NAIVE = ("--method", "minmax", "--weights", "tensor", "--no-equalization", "--bias-correction", "none",
         "--mixed-precision", 0)
TWINS = {"mobilenet": (), "resnet": (), "vit": ("--power", 8)}


class Method:
    """A way to quantize: its name, which begins with its tool's, and net, path -> command."""

    def __init__(self, name, command):
        self.name, self.command, self.tool = name, command, name.split()[0]


def pare(options, name, *words):
    return Method(f"pare {name}", lambda net, path: nets.our_command(options, net, path, "--threads", THREADS, *words))


def within(options, net, points):
    """--max-drop, judged by training images that neither training nor calibration has seen."""
    judge = nets.held_out_file(options, net)
    return pare(options, f"--max-drop {points}", "--max-drop", points, "--validation", judge,
                "--range", f"0:{nets.TRAINED_ON}")


def onnxruntime(options, scheme, method):
    words = ("--method", method, "--scheme", scheme)
    return Method(f"onnxruntime {scheme} {method}",
                  lambda net, path: nets.rival_command(options, net, path, "quantize_ort.py", *words))


def nncf(options, name, *words):
    return Method(f"nncf {name}", lambda net, path: nets.rival_command(
        options, net, path, "quantize_nncf.py", *words, python=options.nncf_python))


def methods_of(options, net):
    made = [pare(options, "s8"), pare(options, "u8", "--activations", "u8")]
    made += [] if net.wide else [within(options, net, 0.1)]
    if not net.trained:
        made.append(pare(options, "u8 --max-drop 1", "--activations", "u8", "--max-drop", 1))
    theirs = ("MinMax", "Percentile") if net.trained else ("MinMax",)  # the other keeps all activations in memory
    made += [onnxruntime(options, scheme, method) for scheme in ("u8", "s8") for method in theirs]
    if options.nncf_python:
        made += [nncf(options, "fast"), nncf(options, "full", "--full")]
        if net.name == "vit":
            made += [nncf(options, "fast transformer", "--transformer"),
                     nncf(options, "full transformer", "--full", "--transformer")]
    return made


def own_seconds(outcome):
    """What a rival's script says its quantizer took, without starting Python; None of pare."""
    found = re.search(r"([\d.]+) s, peak", outcome.output)
    return float(found[1]) if found else None


class Judge:
    """The float model's logits and what a file is measured on."""

    def __init__(self, options, net):
        self.options = options
        self.images, self.data, self.labels = part_accuracy.measured_on(options, net)
        self.reference = runtimes.ort_logits(net.path, self.images)

    def figures(self, method, path):
        logits = runtimes.our_logits(self.options, path, self.data) if method.tool == "pare" else \
            runtimes.ort_logits(path, self.images, optimize=False)
        return runtimes.figures(self.reference, logits, self.labels)


def refused(results, net, method, error):
    """Ours missed what was promised; a rival's failure is its result."""
    if method.tool == "pare":
        results.fail(PART, f"{net.name} {method.name}", error)
    else:
        results.add(PART, net.name, f"{method.name}: failed", str(error))


def made(options, results, net, methods):
    """Every method's file, made in turn; name -> its path, seconds of each round, peak bytes."""
    folder, done = options.work / PART / net.name.replace(" ", "_"), {}
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(ROUNDS if net.wide and net.trained else 1):
        for method in methods:
            path = folder / (method.name.replace(" ", "_") + ".onnx")
            path.unlink(missing_ok=True)
            try:
                outcome = call(method.command(net, path))
            except Failed as error:
                refused(results, net, method, error)
                continue
            row = done.setdefault(method.name, dict(path=path, seconds=[], own=[], peak=0))
            row["seconds"].append(outcome.seconds)
            row["own"].append(own_seconds(outcome))
            row["peak"] = max(row["peak"], outcome.peak_bytes)
    return done


def tabulated(results, net, method, figures, row):
    """One line of the table."""
    seconds = statistics.median(row["seconds"])
    facts = dict(net=net.name, method=method.name, **figures, seconds=seconds, peak_mb=row["peak"] / 2**20)
    if None not in row["own"]:
        facts["own_seconds"] = statistics.median(row["own"])
    results.detail(PART, facts)
    top1 = f"{figures['top1']:.2f} %, {figures['drop']:+.2f} lost, {figures['agreement']:.2f} % agree, " \
        if "top1" in figures else ""
    results.add(PART, net.name, f"{method.name}: {top1}{seconds:.1f} s, {facts['peak_mb']:.0f} MB", figures["sqnr_db"], "dB")
    return facts


def table(options, results, net, methods):
    """Quantizes by every method and judges each file; returns facts by method."""
    judge, rows = Judge(options, net), {}
    done = made(options, results, net, methods)
    for method in methods:
        if method.name not in done:
            continue
        try:
            figures = judge.figures(method, done[method.name]["path"])
        except Exception as error:  # whatever a runtime raises
            refused(results, net, method, error)
            continue
        rows[method.name] = dict(tabulated(results, net, method, figures, done[method.name]),
                                 rounds=done[method.name]["seconds"])
    return rows


def best(rows, names):
    return max(rows[name]["sqnr_db"] for name in names if name in rows)


def names_of(rows, tool):
    return [name for name in rows if name.startswith(tool)]


def compared(results, net, rows, gains):
    """The targets of a plain net."""
    ours = best(rows, ("pare s8", "pare u8"))
    if not net.wide:
        results.add(PART, net.name, "pare s8 top-1 drop", round(rows["pare s8"]["drop"], 3), "points", "<= 0.1")
    gains.append(ours - best(rows, names_of(rows, "onnxruntime")))
    results.add(PART, net.name, "SQNR, pare's best default less ONNX Runtime's best", gains[-1], "dB")
    rivals = names_of(rows, "nncf")
    if not rivals:
        return
    results.add(PART, net.name, "SQNR, pare's best default less NNCF's best", ours - best(rows, rivals), "dB", ">= 0")
    for scheme in ("s8", "u8") if net.wide and net.trained else ():
        ratios = [a / b for a, b in zip(rows[f"pare {scheme}"]["rounds"], rows["nncf fast"]["rounds"])]
        results.add(PART, net.name, f"seconds, pare {scheme} over NNCF fast, whole processes", statistics.median(ratios), "x",
                    "<= 1")
        results.add(PART, net.name, f"seconds, pare {scheme} over NNCF fast without its start",
                    rows[f"pare {scheme}"]["seconds"] / rows["nncf fast"]["own_seconds"], "x")


def hostile(options, results, net):
    """The twin of a net: as good in FP32, ruined by plain INT8, within 0.3 points when that is asked for."""
    path = options.work / PART / f"{net.name}_twin.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    call([sys.executable, options.zoo / "twins.py", net.name, net.path, path, *TWINS[net.name]])
    twin = nets.Net(f"{net.name} twin", path, False, net.convolutional, net.samples)
    images = nets.narrow_images(options, "t10k")[0]
    results.add(PART, twin.name, "FP32, apart from the original's outputs", runtimes.difference(
        runtimes.ort_logits(path, images), runtimes.ort_logits(net.path, images)), "", "<= 1e-4")
    methods = [pare(options, "naive", *NAIVE), pare(options, "s8"), within(options, twin, 0.3)]
    rows = table(options, results, twin, methods)
    for method, target in zip(methods, ("> 20", None, "<= 0.3")):
        results.add(PART, twin.name, f"{method.name} top-1 drop", round(rows[method.name]["drop"], 3), "points", target)


def nncf_version(options, results):
    """Noted; and what starts NNCF is in the page cache, as what starts the others is."""
    if not options.nncf_python:
        print("left out: NNCF: --nncf-python names no Python", file=sys.stderr)
        return
    import_and_say = "import nncf; print(nncf.__version__)"
    results.add(PART, "nncf", "version", call([options.nncf_python, "-c", import_and_say]).output.split()[-1])


def measured(options, results, net, gains):
    net.samples = WIDE_SAMPLES if net.wide else SAMPLES
    try:
        compared(results, net, table(options, results, net, methods_of(options, net)), gains)
        if net.name in TWINS:
            hostile(options, results, net)
    except (Failed, KeyError, ValueError) as error:  # a file that a figure needs is not there
        results.fail(PART, net.name, error)


def run(options, results):
    cores, gains = os.sched_getaffinity(0), []
    os.sched_setaffinity(0, sorted(cores)[:THREADS])
    try:
        nncf_version(options, results)
        for net in nets.all_nets(options):
            if net.trained:
                measured(options, results, net, gains)
        for net in nets.exported_nets(options):
            measured(options, results, net, [])
    finally:
        os.sched_setaffinity(0, cores)
    if gains:
        results.add(PART, f"mean of {len(gains)} nets", "SQNR, pare's best default less ONNX Runtime's best",
                    statistics.mean(gains), "dB", ">= 3")

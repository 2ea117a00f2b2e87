# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the cases of benches.csv: torch.compile with CUDA graphs on whole nets (FP32 and FP16,
channels_last), cuDNN's convolutions, products by torch.mm, INT8 products by torch._int_mm (cuBLASLt).

    python3 torch_bench.py --csv benches.csv [--seconds S] [--long] [--device cpu --tiny]

Appends lines to the file, whose conv and matmul lines say which shapes; prints PASS|FAIL|SKIP lines.
Times are of the device's events, median and least over samples of many runs; inputs are random.
"""

import argparse
import contextlib
import csv
import re
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "datasets" / "zoo", HERE.parent.parent / "datasets" / "zoo",
               HERE.parent / "bench"):
    sys.path.append(str(folder))
import bert  # noqa: E402
import nets  # noqa: E402

TYPES = {"f32": torch.float32, "f16": torch.float16, "s8": torch.int8}
SETS = 4  # of inputs, taken in turn


class Clock:
    """Microseconds of one call of fn(i): a dict with median, least and spread."""

    def __init__(self, options):
        self.cuda = options.device == "cuda"
        self.samples = 3 if options.tiny else 31 if options.long else 11

    def seconds(self, fn, runs):
        if not self.cuda:
            start = time.perf_counter()
            for i in range(runs):
                fn(i)
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(runs):
            fn(i)
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def measure(self, fn):
        for i in range(SETS):
            fn(i)
        once = self.seconds(fn, 4) / 4
        runs = max(1, min(100, int(2e-3 / max(once, 1e-7))))
        times = sorted(self.seconds(fn, runs) / runs for _ in range(self.samples))
        median = statistics.median(times)
        wide = times[self.samples * 9 // 10] - times[self.samples // 10]
        return {"median": 1e6 * median, "min": 1e6 * times[0], "spread": 100 * wide / median}


def in_graph(options, fn):
    """fn's kernels without the cost of launching them: SETS calls captured, replayed as one."""
    if options.device != "cuda":
        return fn, 1
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(SETS):
            fn(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(SETS):
            fn(i)
    return lambda _: graph.replay(), SETS


def random(options, shape, kind):
    if kind == "s8":
        return torch.randint(-128, 128, shape, dtype=torch.int8, device=options.device)
    return torch.randn(shape, device=options.device).to(TYPES[kind])


class Lines:
    """Lines of benches.csv; counts for the last words."""

    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.seconds
        self.counts = {}

    def add(self, suite, case, batch, kind, who, times, amount, unit):
        rate = amount / times["median"] if times["median"] else 0
        self.write([suite, case, batch, kind, who, *(f"{times[k]:.3f}" for k in ("median", "min")),
                    f"{times['spread']:.1f}", f"{rate:.6g}", unit, ""])
        self.count(suite, "measured")

    def fail(self, suite, case, batch, kind, who, error):
        text = re.sub(r"[,\"\n]+", ";", str(error))[:200]
        self.write([suite, case, batch, kind, who, "", "", "", "", "", f"failed: {text}"])
        self.count(suite, "failed")

    def write(self, row):
        with open(self.options.csv, "a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(row)

    def count(self, suite, what):
        self.counts.setdefault(suite, {"measured": 0, "failed": 0, "late": 0})[what] += 1

    def in_time(self, suite):
        if time.monotonic() < self.end:
            return True
        self.count(suite, "late")
        return False


def conv_case(options, match, batch, kind):
    kernel, stride, side, inputs, outputs = (int(match[i]) for i in (1, 2, 3, 4, 5))
    last = torch.channels_last
    xs = [random(options, (batch, inputs, side, side), kind).to(memory_format=last)
          for _ in range(SETS)]
    w = random(options, (outputs, inputs, kernel, kernel), kind).to(memory_format=last)
    bias = random(options, (outputs,), kind)
    out = (side + kernel // 2 * 2 - kernel) // stride + 1
    work = 2e-6 * batch * out * out * inputs * kernel * kernel * outputs
    return lambda i: F.relu_(F.conv2d(xs[i % SETS], w, bias, stride, kernel // 2)), work, "cudnn"


def matmul_case(options, rows, depth, columns, kind):
    xs = [random(options, (rows, depth), kind) for _ in range(SETS)]
    w = random(options, (columns, depth), kind)
    work = 2e-6 * rows * depth * columns
    if kind == "s8":
        return lambda i: torch._int_mm(xs[i % SETS], w.t()), work, "torch._int_mm"
    return lambda i: torch.mm(xs[i % SETS], w.t()), work, "torch.mm"


CONV = re.compile(r"conv(\d+)x\d+/(\d+) (\d+)x\d+ (\d+)-(\d+)$")
MATMUL = re.compile(r"matmul (\d+)-(\d+)$")


def cases(options, *suites):
    """(suite, case, batch, type) of the lines that others wrote, once each."""
    with open(options.csv, newline="") as file:
        rows = [row[:4] for row in csv.reader(file) if row and row[0] in suites]
    return list(dict.fromkeys((suite, case, int(batch), kind) for suite, case, batch, kind in rows))


def kernel_run(options, clock, lines, suite, case, batch, kind):
    who = "torch"
    try:
        if suite == "conv":
            if kind == "s8":
                return  # PyTorch has no INT8 convolution for GPUs
            fn, work, who = conv_case(options, CONV.match(case), batch, kind)
        else:
            depth, columns = (int(part) for part in MATMUL.match(case).groups())
            tokens = 8 if options.tiny else 1 if columns == 1000 else 128
            if kind == "s8" and batch * tokens <= 16:
                return  # torch._int_mm wants more rows
            fn, work, who = matmul_case(options, batch * tokens, depth, columns, kind)
        fn, runs = in_graph(options, fn)
        times = clock.measure(fn)
        times["median"] /= runs
        times["min"] /= runs
        lines.add(suite, case, batch, kind, who, times, work, "Top/s")
    except (RuntimeError, AttributeError) as error:
        lines.fail(suite, case, batch, kind, who, error)


def whole_nets(options):
    """Name, function that makes it, function that makes its inputs for a batch."""
    def narrow(batch):
        return (torch.randn(batch, 1, 28, 28),)

    def wide(batch):
        return (torch.randn(batch, 3, 224, 224),)

    def tokens(batch):
        ids = torch.randint(0, bert.VOCABULARY, (batch, 128))
        return ids, torch.ones_like(ids), torch.zeros_like(ids)

    found = [(name, getattr(nets, name), narrow)
             for name in ("mlp", "cnn", "resnet", "mobilenet", "vit")]
    if options.tiny:
        return found[:1]
    with contextlib.suppress(ImportError):
        import torchvision
        found.append(("resnet50", lambda: torchvision.models.resnet50(weights=None), wide))
    found.append(("bert_base", bert.BertModel, tokens))
    ours = {case for _, case, _, _ in cases(options, "net")}
    return sorted(found, key=lambda net: net[0] not in ours)  # what can be compared comes first


def place(options, tensors, kind):
    placed = []
    for x in tensors:
        x = x.to(options.device)
        if x.is_floating_point():
            x = x.to(TYPES[kind])
        if x.dim() == 4:
            x = x.to(memory_format=torch.channels_last)
        placed.append(x)
    return placed


def net_run(options, clock, lines, name, make, inputs, batch, kind):
    who = "torch.compile" if options.device == "cuda" else "torch"
    try:
        net = make().eval().to(options.device, TYPES[kind]).to(memory_format=torch.channels_last)
        if options.device == "cuda":
            torch._dynamo.reset()
            net = torch.compile(net, mode="reduce-overhead")
        xs = [place(options, inputs(batch), kind) for _ in range(SETS)]
        with torch.inference_mode():
            times = clock.measure(lambda i: net(*xs[i % SETS]))
        lines.add("net", name, batch, kind, who, times, 1e6 * batch, "1/s")
    except Exception as error:  # compilers fail in many ways; the other nets continue
        lines.fail("net", name, batch, kind, who, error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small nets only, for tests")
    options = parser.parse_args()
    torch.manual_seed(1)
    clock, lines = Clock(options), Lines(options)
    cpu = options.device == "cpu"
    with torch.inference_mode():
        for case in cases(options, "conv", "matmul"):
            if not (cpu and case[-1] == "f16") and lines.in_time(case[0]):
                kernel_run(options, clock, lines, *case)
    batches = [2] if options.tiny else [1, 8, 32, 128] if options.long else [1, 32]
    ours = cases(options, "net")
    kinds = ["f32"] if cpu else ["f16", "f32"] if options.long else ["f16"]
    for name, make, inputs in whole_nets(options):
        same = sorted({batch for _, case, batch, _ in ours if case == name})
        for kind in kinds:
            for batch in same or batches:
                if lines.in_time("net"):
                    net_run(options, clock, lines, name, make, inputs, batch, kind)
    for suite, n in lines.counts.items():
        word = "FAIL" if n["failed"] else "PASS" if n["measured"] else "SKIP"
        print(f"{word} {suite}: {n['measured']} measured, {n['failed']} failed, "
              f"{n['late']} not started for want of time")
    return any(n["failed"] for n in lines.counts.values())


if __name__ == "__main__":
    sys.exit(main())

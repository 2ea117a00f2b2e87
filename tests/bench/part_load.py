# SPDX-License-Identifier: Apache-2.0
"""Time to load and plan a 100 MB model, and INT8 where the processor lacks VNNI."""

import csv
import io
import shutil

import nets
import part_latency
from common import Failed, call

AVX2 = {"DNNL_MAX_CPU_ISA": "AVX2"}


def load_seconds(options, net, *more):
    """Reading and planning in a fresh process, the file being in the page cache."""
    net.path.read_bytes()
    output = call([options.bench, "--header", "--pairs", 1, *more, f"pare:{net.path}"]).output
    return float(next(csv.DictReader(io.StringIO(output)))["a_load_s"])


def loading(options, results, net):
    cold = min(load_seconds(options, net, "--no-tune") for _ in range(3))
    results.add("load", net.name, "load and plan, --no-tune", cold, "s", "<= 0.5")
    cache = options.work / "warm"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    first = load_seconds(options, net, "--cache", cache)
    warm = min(load_seconds(options, net, "--cache", cache) for _ in range(3))
    results.add("load", net.name, f"load and plan, warm cache ({first:.2f} s before)", warm, "s",
                "<= 0.5")


def without_vnni(options, results):
    for net in nets.all_nets(options):
        for scheme in ("s8", "u8"):
            try:
                ours = nets.our_file(options, net, scheme)
            except Failed as error:
                results.fail("AVX2", f"{net.name} {scheme}", error)
                continue
            for row in part_latency.measure(options, results, "AVX2", net,
                                            f"{scheme} against our fp32", f"pare:{ours}",
                                            f"pare:{net.path}",
                                            part_latency.tolerance_of(net, scheme), AVX2):
                results.add("AVX2", f"{net.name} b{row['batch']:.0f} t{row['threads']:.0f}",
                            f"{scheme} against our fp32", row["ratio"], "x", "<= 1.1")


def run(options, results):
    for net in nets.all_nets(options):
        if net.name == "resnet50":
            try:
                loading(options, results, net)
            except Failed as error:
                results.fail("load", net.name, error)
    without_vnni(options, results)

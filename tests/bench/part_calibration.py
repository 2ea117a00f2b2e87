# SPDX-License-Identifier: Apache-2.0
"""What calibration costs against plain inference, its memory, and that its result is exact."""

import nets
from common import Failed, call

TIMES_PLAIN = {"resnet50": "<= 2", "squeezenet1.1": "<= 4"}
IMAGES = {"resnet50": 128, "squeezenet1.1": 512}
MEGABYTES = 2**20


def calibrate(options, net, data, *more, out="ranges.json", env=None):
    path = options.work / out
    path.unlink(missing_ok=True)
    outcome = call([options.pare, "calibrate", net.path, "--data", data, "-o", path, "--quiet",
                    *more], env)
    return outcome, path


def time_against_plain(options, results, net):
    """Both as whole commands on the same file, in turn, the smaller of three each."""
    count = IMAGES[net.name]
    data = nets.data_file(options, net, "train", count)
    out = options.work / "plain.h5"
    plain, whole = [], []
    for _ in range(3):
        out.unlink(missing_ok=True)
        plain.append(call([options.pare, "run", net.path, "--data", data, "-o", out, "--quiet"]))
        whole.append(calibrate(options, net, data, "--samples", count)[0])
    out.unlink(missing_ok=True)
    base = min(item.seconds for item in plain)
    took = min(item.seconds for item in whole)
    results.detail("calibration", dict(net=net.name, images=count, plain_s=base, calibrate_s=took,
                                       peak_mb=whole[0].peak_bytes / MEGABYTES,
                                       plain_peak_mb=plain[0].peak_bytes / MEGABYTES))
    results.add("calibration", net.name, f"{count} images: {took:.2f} s, plain {base:.2f} s",
                took / base, "x", TIMES_PLAIN[net.name])
    peak = max(item.peak_bytes for item in whole) / MEGABYTES
    results.add("calibration", net.name, f"peak memory, {count} images", peak, "MB",
                "<= 300" if net.name == "squeezenet1.1" else None)


def memory_by_samples(options, results, net):
    data = nets.data_file(options, net, "train")
    peaks = {}
    for count in (600, 60000):
        peaks[count] = calibrate(options, net, data, "--samples", count)[0].peak_bytes
    results.add("calibration", net.name,
                f"memory 60,000 against 600 ({peaks[60000] / MEGABYTES:.0f}, "
                f"{peaks[600] / MEGABYTES:.0f} MB)", peaks[60000] / peaks[600], "x", "<= 1.1")


def exactness(options, results, net, env=None, name=""):
    """Every way of cutting the same 2,000 samples must give the same bytes."""
    data = nets.data_file(options, net, "train", 2000)
    ways = [("--batch", batch) for batch in (1, 7, 64, 1000)]
    ways += [("--threads", count) for count in (1, 2)] + [("--shuffle", 7)]
    reference = None
    for way in ways:
        _, path = calibrate(options, net, data, "--samples", 2000, *way, env=env)
        content = path.read_bytes()
        reference = reference or content
        results.add("exactness", net.name + name, f"{' '.join(map(str, way))}: bytes equal",
                    int(content == reference), "", "== 1")
    halves = []
    for i, span in enumerate(("0:1000", "1000:2000")):
        halves.append(calibrate(options, net, data, "--range", span, "--samples", 1000,
                                out=f"half{i}.json", env=env)[1])
    merged = options.work / "merged.json"
    merged.unlink(missing_ok=True)
    call([options.pare, "calibrate", "--merge", *halves, "-o", merged, "--quiet"])
    results.add("exactness", net.name + name, "two halves merged: bytes equal",
                int(merged.read_bytes() == reference), "", "== 1")


def run(options, results):
    for net in nets.all_nets(options):
        try:
            if net.name in TIMES_PLAIN:
                time_against_plain(options, results, net)
            if net.name == "cnn":
                memory_by_samples(options, results, net)
        except Failed as error:
            results.fail("calibration", net.name, error)
    for net in nets.all_nets(options):
        if net.name not in ("mlp", "cnn", "vit"):
            continue
        for env, name in ((None, ""), ({"DNNL_MAX_CPU_ISA": "AVX2"}, " AVX2")):
            try:
                exactness(options, results, net, env, name)
            except Failed as error:
                results.fail("exactness", net.name + name, error)

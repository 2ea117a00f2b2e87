#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ResNet-50 and two layers of BERT-base would take on an H200, a row a step and a table of sums, by
`pare inspect --device h200`. The nets have random weights.

    predict.py PARE MAKE_NET OUT      MAKE_NET: build/tests/simt/gpu_make_net; OUT: layers.csv
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = "net,batch,precision,node,operator,kernel,bound,bytes,operations,waves,ms,fp16_ms".split(",")


def call(*words):
    subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)


def resnet50(pare, make_net, folder):
    net, data = folder / "resnet50.onnx", folder / "noise.h5"
    call(make_net, net)
    numpy.save(folder / "noise.npy", numpy.random.default_rng(1).integers(0, 256, (8, 3, 224, 224), numpy.uint8))
    call(pare, "data", "import", "--npy", folder / "noise.npy", "-o", data)
    return net, data, []


def bert(pare, _, folder):
    net, data = folder / "bert.onnx", folder / "bert.h5"
    call(sys.executable, HERE / "bert_layers.py", 2, net, data)
    return net, data, ["--shapes", "x:32x128x768", "--shapes", "mask:32x1x1x128"]


def files(pare, net, data, shapes, folder):
    """Precision, the net in it, and options of inspect."""
    half, int8, placed = (folder / f"{net.stem}.{p}.onnx" for p in ("fp16", "int8", "placed"))
    call(pare, "quantize", "-q", net, "-o", half, "--precision", "fp16")
    call(pare, "quantize", "-q", net, "-o", int8, "--data", data)
    yield "fp16", half, []
    yield "int8", int8, []
    if shapes:
        call(pare, "quantize", "-q", net, "-o", placed, "--data", data, "--prefer", "latency",
             "--predict", "h200", *shapes)
        yield "placed", placed, []
    yield "tf32", net, ["--tf32"]
    yield "f32", net, []


def main():
    pare, make_net, out = sys.argv[1:]
    print("| net | batch | precision | ms | a second |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name, open(out, "w", newline="", encoding="ascii") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for make, batches in (resnet50, (1, 32, 128)), (bert, (32,)):
            folder = pathlib.Path(name)
            net, data, shapes = make(pare, make_net, folder)
            for precision, path, options in files(pare, net, data, shapes, folder):
                for batch in batches:
                    facts = folder / "facts.json"
                    call(pare, "inspect", path, "--device", "h200", "--batch", batch, "--json", facts, *options)
                    p = json.loads(facts.read_text())["prediction"]
                    print(f"| {net.stem} | {batch} | {precision} | {p['time_ms']:.4f} | {p['throughput_per_s']:,.0f} |")
                    for s in p["steps"]:
                        fp16 = s.get("fp16_ms")
                        rows.writerow([net.stem, batch, precision, s["node"], s["op_type"], s["kernel"], s["bound"],
                                       int(s["bytes"]), int(s["ops"]), f"{s.get('waves') or 0:.2f}",
                                       f"{s['time_ms']:.6f}", f"{fp16:.6f}" if fp16 else ""])


if __name__ == "__main__":
    main()

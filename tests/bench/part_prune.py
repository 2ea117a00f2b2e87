# SPDX-License-Identifier: Apache-2.0
"""What pruning single weights costs without training, on the 10,000 test images: by magnitude alone,
and refitted on 512 training images. Rivals do nothing of the kind on ONNX files: beside ours are
magnitude alone, per layer and over all layers."""

import json

import nets
import runtimes
from common import Failed, call

SAMPLES = 512
CASES = [  # net, options, most points of top-1 lost with refit
    ("cnn", ["--sparsity", "0.7"], 0.4), ("resnet", ["--sparsity", "0.7"], 17),
    ("vit", ["--sparsity", "0.7"], 3.2), ("cnn", ["--sparsity", "0.8"], 0.9),
    ("cnn", ["--nm", "2:4"], 0.3), ("resnet", ["--nm", "2:4"], 3.2), ("vit", ["--nm", "2:4"], 0.7),
]
STRETCH = {("resnet", "--sparsity 0.7"): 12}


def pruned(options, net, words):
    """Prunes with these options; the drop in points, the facts, the seconds."""
    folder = options.work / "pare" / "prune"
    folder.mkdir(parents=True, exist_ok=True)
    model, facts = folder / f"{net.name}.onnx", folder / f"{net.name}.json"
    model.unlink(missing_ok=True)
    outcome = call([options.pare, "prune", net.path, "-o", model, "--json", facts, "--quiet",
                    *words])
    data, labels = nets.data_file(options, net, "t10k"), nets.labels(options)
    before = runtimes.our_logits(options, net.path, data)
    after = runtimes.our_logits(options, model, data)
    elsewhere = runtimes.ort_logits(model, nets.narrow_images(options, "t10k")[0][:1000])
    drop = runtimes.top1(before, labels) - runtimes.top1(after, labels)
    same = runtimes.agreement(elsewhere, after[:1000])
    return drop, same, json.loads(facts.read_text())["sparse"][0], outcome.seconds


def run(options, results):
    train = {net.name: net for net in nets.all_nets(options)}
    for name, words, limit in CASES:
        net = train.get(name)
        if not net:
            continue
        data = ["--data", nets.data_file(options, net, "train"), "--samples", SAMPLES]
        ways = {"refitted": data, "magnitude": []}
        if words[0] == "--sparsity":
            ways["magnitude per layer"] = ["--scope", "layer"]
        for way, more in ways.items():
            text = " ".join(words)
            try:
                drop, same, facts, seconds = pruned(options, net, words + more)
            except Failed as error:
                results.fail("prune", f"{name} {text} {way}", error)
                continue
            results.detail("prune", dict(net=name, target=text, way=way, drop=drop, seconds=seconds,
                                         sparsity=facts["sparsity"], bytes=facts["bytes"],
                                         zlib_bytes=facts["zlib_bytes"],
                                         csr_bytes=facts["csr_bytes"]))
            case = f"{name} {text}"
            results.add("prune", case, f"top-1 drop, {way}", round(drop, 2), "points",
                        f"<= {limit}" if way == "refitted" else None)
            if way != "refitted":
                continue
            if (name, text) in STRETCH:
                results.add("prune", case, "the same, stretch", round(drop, 2), "points",
                            f"<= {STRETCH[name, text]}")
            results.add("prune", case, "class as in ONNX Runtime, 1,000 images", same, "%", ">= 99.9")
            results.add("prune", case, "file through zlib, of before",
                        100 * facts["zlib_bytes"] / net.path.stat().st_size, "%")
            results.add("prune", case, "time with 512 images", round(seconds, 1), "s")

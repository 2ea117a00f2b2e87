# SPDX-License-Identifier: Apache-2.0
"""Distillation: INT8 models that were trained beside those that were calibrated alone, on the 10,000
test images: top-1 lost, and signal to noise of the logits."""

import nets
import runtimes
from common import Failed, call

PART = "distill_qat"
EPOCHS = 2
DROP = 0.05  # points of top-1 lost at most
SCHEMES = {"s8": [], "u8": ["--activations", "u8"]}


def trained_file(options, net, scheme, folder):
    """The file that training makes, with the seconds it took."""
    path = folder / f"{net.name}_{scheme}.onnx"
    path.unlink(missing_ok=True)
    outcome = call([options.pare, "distill", "--teacher", net.path, "--student", net.path,
                    "--data", nets.data_file(options, net, "train"), "-o", path, "--qat", "int8",
                    *SCHEMES[scheme], "--epochs", EPOCHS, "--quiet"])
    return path, outcome.seconds


def judge(options, net, path, reference):
    """Points of top-1 lost against the float model's logits, and SQNR in dB."""
    labels = nets.labels(options)
    logits = runtimes.our_logits(options, path, nets.data_file(options, net, "t10k"))
    drop = round(runtimes.top1(reference, labels) - runtimes.top1(logits, labels), 2)
    return drop, runtimes.sqnr(reference, logits)


def add_net(options, results, net, scheme, folder, reference):
    case = f"{net.name} {scheme}, {EPOCHS} epochs"
    drop, sqnr = judge(options, net, nets.our_file(options, net, scheme), reference)
    results.add(PART, case, "top-1 drop, calibrated", drop, "points")
    results.add(PART, case, "SQNR, calibrated", sqnr, "dB")
    path, seconds = trained_file(options, net, scheme, folder)
    tuned_drop, tuned_sqnr = judge(options, net, path, reference)
    results.add(PART, case, "top-1 drop, trained", tuned_drop, "points", f"<= {DROP}")
    results.add(PART, case, "SQNR, trained", tuned_sqnr, "dB")
    results.add(PART, case, "SQNR above calibration alone", tuned_sqnr - sqnr, "dB", "> 0")
    results.add(PART, case, "time", round(seconds, 1), "s")
    results.detail(PART, dict(net=net.name, scheme=scheme, epochs=EPOCHS, calibrated_drop=drop,
                              calibrated_sqnr_db=sqnr, drop=tuned_drop, sqnr_db=tuned_sqnr,
                              seconds=seconds))


def run(options, results):
    folder = options.work / "pare" / "distill_qat"
    folder.mkdir(parents=True, exist_ok=True)
    for net in nets.small_nets(options):
        reference = runtimes.our_logits(options, net.path, nets.data_file(options, net, "t10k"))
        for scheme in SCHEMES:
            try:
                add_net(options, results, net, scheme, folder, reference)
            except Failed as error:
                results.fail(PART, f"{net.name} {scheme}", error)

# SPDX-License-Identifier: Apache-2.0
"""`pare quantize --prefer latency`: what it says of its result, and what bench_latency measures afterwards against the float
model, in processes of their own; beside that the model that is all int8. The promise: no slower than the float model."""

import json
import statistics

import h5py
import numpy as np
import onnx
from onnx import numpy_helper

import nets
import part_exports
from common import Failed, call
from part_latency import time_files, time_pair
from part_prune_latency import APART, IN_TURN

PART = "placement"
PROCESSES = 3
SLOWER = "<= 1.05"  # bench_latency's medians of two files of one model are that far apart


def quantize(command, path, *words):
    """Runs a command that writes path: its facts, the seconds it took."""
    facts = path.with_suffix(".json")
    path.unlink(missing_ok=True)
    done = call([*command, "--activations", "u8", "--json", facts, *words], status=(0, 3))
    return json.loads(facts.read_text()), done.seconds


def file_of(options, name):
    return options.work / "pare" / PART / f"{name}.onnx"


def apart(ratio):
    """The median of several processes' ratios over the float model's time."""
    return statistics.median(ratio() for _ in range(PROCESSES))


def shape_of(net, batch):
    """The words of --shapes for such a batch."""
    name = onnx.load(net.path, load_external_data=False).graph.input[0].name
    return f"{name}:{batch}x3x224x224" if net.wide else f"{name}:{batch}x1x28x28"


def add(results, name, batch, threads, facts, seconds, all_int8, chosen):
    said, case = facts["latency"], f"{name} b{batch} t{threads}"
    results.add(PART, case, "all int8, of float's time", all_int8, "x")
    results.add(PART, case, f"placed, of float's time ({facts['converted_nodes']} int8, {facts['float_nodes']} float; quantize "
                f"said {said['ratio']:.2f})", chosen, "x", SLOWER if said["met"] else None)
    if not said["met"]:
        results.add(PART, case, "quantize said that it is slower", said["ratio"], "x")
    results.detail(PART, dict(net=name, batch=batch, threads=threads, all_int8=all_int8, placed=chosen, said=said["ratio"],
                              said_int8=said["int8_ratio"], met=said["met"], stable=said["stable"],
                              int8_nodes=facts["converted_nodes"], float_nodes=facts["float_nodes"], seconds=seconds))


def one(options, results, net, plain, batch, threads):
    path = file_of(options, f"{net.name}_b{batch}_t{threads}")
    facts, seconds = quantize(nets.our_command(options, net, path), path, "--prefer", "latency", "--threads", threads,
                              "--shapes", shape_of(net, batch))

    def time_of(file):
        return apart(lambda: time_pair(options, net, f"pare:{file}", f"pare:{net.path}", batch, threads, APART,
                                       more=IN_TURN)["ratio"])

    add(results, net.name, batch, threads, facts, seconds, time_of(plain), time_of(path))


# --- third-party models, fed with their test vectors where they have some ---

MADE_SAMPLES = 16


def samples_of(path):
    """Input name -> (samples, ...): the test vector with noise, else random numbers."""
    whole, rng = part_exports.whole_inputs(path), np.random.default_rng(1)
    vectors = sorted((path.parent / "test_data_set_0").glob("input_*.pb"))
    if not vectors:
        return part_exports.samples_of(path, whole)
    made = {}
    for value, file in zip(part_exports.session(path).get_inputs(), vectors):
        x = numpy_helper.to_array(onnx.load_tensor(str(file)))
        x = x if value.shape else x.reshape(())  # one vector holds a scalar as [1]
        noise = [1 + 0.1 * rng.standard_normal(x.shape) if x.dtype.kind == "f" else 1 for _ in range(MADE_SAMPLES)]
        rows = [np.asarray(x * n, x.dtype) for n in noise]
        made[value.name] = np.stack(rows) if value.name in whole else np.concatenate(rows)
    return made


def sizes_of(path, samples):
    """--dim of named axes behind the first."""
    words, whole = [], part_exports.whole_inputs(path)
    for value in part_exports.session(path).get_inputs():
        shape = samples[value.name].shape[1:] if value.name in whole else (1, *samples[value.name].shape[1:])
        for dim, size in list(zip(value.shape, shape))[1:]:
            words += ["--dim", f"{dim}={size}"] if isinstance(dim, str) else []
    return words


def material(options, results, path, name):
    data, samples = options.work / "data" / f"placement_{name}.h5", samples_of(path)
    with h5py.File(data, "w") as file:
        for key, values in samples.items():
            file[key] = values
    plain = file_of(options, f"{name}_plain")
    quantize([options.pare, "quantize", path, "-o", plain, "--quiet", "--data", data], plain)
    for threads in options.threads:
        placed = file_of(options, f"{name}_t{threads}")
        facts, seconds = quantize([options.pare, "quantize", path, "-o", placed, "--quiet", "--data", data], placed,
                                  "--prefer", "latency", "--threads", threads)

        def time_of(file):
            return apart(lambda: time_files(options, f"pare:{file}", f"pare:{path}", 1, threads, APART,
                                            more=(*IN_TURN, *sizes_of(path, samples)))["ratio"])

        add(results, name, 1, threads, facts, seconds, time_of(plain), time_of(placed))


def material_models(options):
    """(path, name) of those that are no net of nets.py."""
    for path in sorted(options.material.glob("*/*.onnx")) if options.material else ():
        name = path.stem if path.parent.name == "light" else path.parent.name
        if name != "squeezenet1.1" and (not options.nets or name in options.nets):
            yield path, name


def run(options, results):
    (options.work / "pare" / PART).mkdir(parents=True, exist_ok=True)
    (options.work / "data").mkdir(exist_ok=True)
    for net in nets.all_nets(options):
        if net.wide and net.name != "squeezenet1.1":
            continue
        plain = file_of(options, f"{net.name}_plain")
        quantize(nets.our_command(options, net, plain), plain)
        for threads in options.threads:
            for batch in options.batches:
                try:
                    one(options, results, net, plain, batch, threads)
                except Failed as error:
                    results.fail(PART, f"{net.name} b{batch} t{threads}", error)
    for path, name in material_models(options):
        try:
            material(options, results, path, name)
        except Failed as error:
            results.fail(PART, name, error)

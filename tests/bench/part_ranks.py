# SPDX-License-Identifier: Apache-2.0
"""Several processes: sums beside MPI_Allreduce, calibration of a 100 MB net on two processes of one core each, a
training step on two, memory of a rank that has a part of a 201 MB net, or trains one."""

import json
import os

import h5py
import numpy as np
import onnx

import nets
from common import Failed, call

PART = "ranks"
IMAGES = 512     # of the large net
MEGABYTES = 100  # that are summed
STEPS = 60       # of a training
MPIRUN = ["mpirun", "--bind-to", "core", "-n"]
ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def sums(options, results):
    for ranks in 2, 4:
        words = ["mpirun", "-n", ranks, options.bench.parent / "bench_comm", MEGABYTES]
        env = dict(ENV, OMPI_MCA_hwloc_base_binding_policy="none")
        row = json.loads(call(words, env).output.strip().splitlines()[-1])
        results.detail(PART, dict(case="sums", **row))
        what = f"{MEGABYTES} MB, over MPI_Allreduce"
        results.add(PART, f"{ranks} ranks", f"integers, {what}", round(row["integers_s"] / row["mpi_integers_s"], 2), "x",
                    "<= 1.3")
        results.add(PART, f"{ranks} ranks", f"floats in a fixed tree, {what}",
                    round(row["floats_s"] / row["mpi_floats_s"], 2), "x", "<= 1.3")


def large_net(options):
    net, data = options.work / "resnet50-random.onnx", options.work / "resnet50-random.h5"
    if not net.exists():
        call([options.bench.parent / "simt" / "gpu_make_net", net])
    if not data.exists():
        rng = np.random.default_rng(1)
        with h5py.File(data, "w") as file:
            file["input"] = rng.standard_normal((IMAGES, 3, 224, 224), dtype=np.float32)
    return net, data


def beside_one(words, env=ENV):
    """The smaller of two each, in turn: one process on one core, two processes."""
    one, two = [], []
    for _ in range(2):
        one.append(call(["taskset", "-c", "0", *words("one"), "--threads", "1"]).seconds)
        two.append(call([*MPIRUN, "2", *words("two")], env).seconds)
    return min(one), min(two)


def calibration(options, results):
    net, data = large_net(options)

    def words(name):
        return [options.pare, "calibrate", net, "--data", data, "-q", "-o", options.work / f"{name}.json"]
    one, two = beside_one(words)
    same = (options.work / "one.json").read_bytes() == (options.work / "two.json").read_bytes()
    if not same:
        raise Failed("the tables of one and of two processes differ")
    results.detail(PART, dict(case="calibration", one_s=one, two_s=two, megabytes=os.path.getsize(net) / 1e6))
    results.add(PART, "resnet50, 102 MB", f"calibrate {IMAGES} images, 1 process over 2", round(one / two, 2), "x", ">= 1.8")


def training_rates(options, ranks, cores):
    """Steps a second of so many ranks on so many cores, one thread each, and the facts."""
    net, facts = options.zoo / "resnet.onnx", options.work / f"train-{ranks}.json"
    data = nets.data_file(options, small(options), "train")
    words = [options.pare, "distill", "--teacher", net, "--student", net, "--data", data, "--samples", 4000, "--steps", STEPS, "--validate-every", 10000, "--bn-estimate", 0, "--threads", 1, "-q",
             "-o", options.work / "trained.onnx", "--json", facts]
    many = ["mpirun", "--bind-to", "core" if ranks <= cores else "none", "-n", ranks]
    where = ["taskset", "-c", "0"] if ranks == 1 else many
    call([*where, *words], ENV)
    row = json.loads(facts.read_text())
    return row["samples_per_s"] / row["batch"], facts


def small(options):
    return next(net for net in nets.small_nets(options) if net.name == "resnet")


def training(options, results):
    cores = len(os.sched_getaffinity(0))
    best = {}
    for _ in range(3):
        for ranks in 1, 2, 4:
            rate, facts = training_rates(options, ranks, cores)
            best[ranks] = max(best.get(ranks, 0), rate)
            if ranks == 1:
                one = facts
    beyond = round(100 * (2 * best[1] / best[2] - 1), 1)
    results.add(PART, "resnet, batch 128", "a step of 2 ranks beyond half of one's", beyond, "%", "<= 10")
    out = options.work / "scale.json"
    call(["mpirun", "-n", 2, options.pare, "scale", one, "--ranks", 4, "--cores", cores, "--json", out], ENV)
    foreseen = {row["ranks"]: row["speed_up"] for row in json.loads(out.read_text())["rows"]}
    for ranks in 2, 4:
        measured = best[ranks] / best[1]
        case = f"training, {ranks} ranks on {cores} cores"
        results.detail(PART, dict(case=case, measured=measured, foreseen=foreseen[ranks]))
        results.add(PART, "resnet, batch 128", f"speed-up of {ranks} ranks, foreseen {foreseen[ranks]:.2f}",
                    round(measured, 2), "x")


WIDTH, DEPTH = 2048, 12  # of a net of matrices


def wide_net(options):
    path = options.work / "wide-random.onnx"
    rng = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for i in range(DEPTH):
        weight = rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) * np.float32(WIDTH**-0.5)
        weights.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(onnx.helper.make_node("Gemm", [last, f"w{i}"], [f"y{i}"], transB=i % 2))
        nodes.append(onnx.helper.make_node("Relu", [f"y{i}"], [f"z{i}"]))
        last = f"z{i}"
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", WIDTH]) for name in ("x", last)]
    graph = onnx.helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def memory(options, results):
    net, out, peak = wide_net(options), options.work / "memory.json", {}
    for ranks in 1, 2, 4:
        words = [options.pare, "bench", net, "--threads", 1, "--duration", 0, "--json", out]
        words += ["--parallel", "tensor"] if ranks > 1 else ["--no-tune"]
        done = call(words if ranks == 1 else ["mpirun", "--bind-to", "none", "-n", ranks, *words], ENV)
        facts = json.loads(out.read_text())
        peak[ranks] = done.peak_bytes if ranks == 1 else facts["peak_memory_bytes"]  # rank 0's
        results.detail(PART, dict(case="memory", ranks=ranks, peak_bytes=peak[ranks], tensor=facts.get("tensor")))
    for ranks, limit in (2, 70), (4, 50):
        results.add(PART, f"{DEPTH} products, {os.path.getsize(net) / 1e6:.0f} MB",
                    f"peak memory of a rank of {ranks}, of one process'", round(100 * peak[ranks] / peak[1], 1), "%",
                    f"<= {limit}")


def training_memory(options, results):
    """Teacher and student are the wide net: one process has weights, gradients and moments of all of it."""
    net, data, out, peak = wide_net(options), options.work / "wide.h5", options.work / "training.json", {}
    with h5py.File(data, "w") as file:
        file["x"] = np.random.default_rng(2).standard_normal((64, WIDTH), dtype=np.float32)
    trained = []
    for ranks in 1, 2, 4:
        trained.append(options.work / f"wide-{ranks}.onnx")
        words = [options.pare, "distill", "--teacher", net, "--student", net, "--data", data, "--batch", 8, "--steps", 2, "--loss", "mse", "--threads", 1, "-q", "-o", trained[-1], "--json", out]
        words += ["--parallel", "pipeline"] if ranks > 1 else []
        call(words if ranks == 1 else ["mpirun", "--bind-to", "none", "-n", ranks, *words], ENV)
        facts = json.loads(out.read_text())
        peak[ranks] = facts["peak_memory_bytes"]  # rank 0's
        results.detail(PART, dict(case="training memory", ranks=ranks, peak_bytes=peak[ranks], pipeline=facts.get("pipeline")))
    if len({path.read_bytes() for path in trained}) > 1:
        raise Failed("the students of one and of several processes differ")
    for ranks, limit in (2, 75), (4, 60):
        results.add(PART, f"{DEPTH} products, {os.path.getsize(net) / 1e6:.0f} MB, training by pipeline",
                    f"peak memory of rank 0 of {ranks}, of one process'", round(100 * peak[ranks] / peak[1], 1), "%",
                    f"<= {limit}")


def run(options, results):
    for part in sums, calibration, training, memory, training_memory:
        try:
            part(options, results)
        except Failed as error:
            results.fail(PART, part.__name__, error)

# SPDX-License-Identifier: Apache-2.0
"""FP32 outputs against ONNX Runtime, and against vectors that came with the models."""

import re
import shutil

import numpy as np
import onnx
import onnx.numpy_helper

import nets
import runtimes
from common import Failed, call

LIMIT = "<= 0.0001"


def file_name(tensor):
    """The name `pare run` gives a tensor's file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", tensor) + ".npy"


def our_outputs(options, model, inputs):
    """All outputs of one run, by name of the file they were written to."""
    folder = options.work / "vectors"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = []
    for name, value in inputs.items():
        path = folder / f"input_{len(words)}.npy"
        np.save(path, value)
        words += ["--input", f"{name}={path}"]
    call([options.pare, "run", model, *words, "-o", folder / "out", "--quiet"])
    return {path.name: np.load(path) for path in (folder / "out").glob("*.npy")}


def compare(options, results, case, model, inputs, expected, source):
    """expected: by output name."""
    try:
        found = our_outputs(options, model, inputs)
        worst = max(runtimes.difference(found[file_name(name)], value)
                    for name, value in expected.items() if value.dtype == np.float32)
    except (Failed, KeyError, ValueError) as error:
        results.fail("outputs", case, error)
        return
    results.add("outputs", case, f"largest difference to {source}", worst, "", LIMIT)


def against_ort(options, results, case, model, inputs):
    session = runtimes.ort_session(model)
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(names, inputs)))
    compare(options, results, case, model, inputs, expected, "ONNX Runtime")


def zoo(options, results):
    """The five nets over all 10,000 test images."""
    for net in nets.all_nets(options):
        if net.wide:
            continue
        images = nets.narrow_images(options, "t10k")[0]
        try:
            found = runtimes.our_logits(options, net.path, nets.data_file(options, net, "t10k"))
        except Failed as error:
            results.fail("outputs", net.name, error)
            continue
        results.add("outputs", net.name, "largest difference to ONNX Runtime",
                    runtimes.difference(found, runtimes.ort_logits(net.path, images)), "", LIMIT)


def big(options, results):
    """Exported nets, by both exporters, with PyTorch's outputs beside them."""
    for path in sorted(options.models.glob("*.onnx")) if options.models else []:
        base = options.models / path.stem.removesuffix("_dynamo")
        inputs, outputs = (base.with_name(f"{base.name}_{kind}.npz")
                           for kind in ("input", "output"))
        if not inputs.exists():
            continue
        given = dict(np.load(inputs))
        against_ort(options, results, path.stem, path, given)
        compare(options, results, path.stem, path, given, dict(np.load(outputs)), "PyTorch")


def read_vector(path):
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def rank_of(value):
    return len(value.type.tensor_type.shape.dim)


def vectors(options, results):
    """Third-party models in folders with test_data_set_N beside them.

    A vector counts where ONNX Runtime reaches it, too; where it does not, the vector belongs to
    another graph, and ONNX Runtime's outputs take its place."""
    for path in sorted(options.material.glob("*/*.onnx")) if options.material else []:
        graph = onnx.load(path, load_external_data=False).graph
        weights = {weight.name for weight in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        session = runtimes.ort_session(path)
        names = [value.name for value in graph.output]
        for folder in sorted(path.parent.glob("test_data_set_*")):
            given = {value.name: read_vector(folder / f"input_{i}.pb")
                     for i, value in enumerate(inputs)}
            for value in inputs:
                if rank_of(value) == 0:
                    given[value.name] = given[value.name].reshape(())
            expected = {name: read_vector(folder / f"output_{i}.pb")
                        for i, name in enumerate(names)}
            computed = dict(zip(names, session.run(names, given)))
            apart = max(runtimes.difference(computed[name], expected[name]) for name in names)
            case = f"{path.parent.name} {folder.name[-1]}"
            if apart > 1e-3:
                compare(options, results, case, path, given, computed,
                        "ONNX Runtime (its vector is another graph's)")
            else:
                compare(options, results, case, path, given, expected, "its vector")


def run(options, results):
    zoo(options, results)
    big(options, results)
    vectors(options, results)

# SPDX-License-Identifier: Apache-2.0
"""A model read and written back is equal as ONNX: judged by the Python package onnx.

usage: onnx_roundtrip.py [MODEL_OR_FOLDER...]

Without models: those made here, which use every rarely set field, the operator tests that come with
the package, the sample nets, and what PARE_MODELS names. Prints one line per difference and a count.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import PARE


def unknown(message, field=9999):
    """Adds fields that no version of ONNX knows: a number, a text, a float and a double."""
    def varint(n):
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        return bytes(out + bytes([n]))
    extra = (varint(field << 3) + varint(2**63 + 5) + varint(field << 3 | 2) + varint(3) + b"a\0b"
             + varint(field << 3 | 5) + b"\1\2\3\4" + varint(field << 3 | 1) + b"12345678")
    message.MergeFromString(extra)


def pair(props, key, value):
    entry = props.add()
    if key is not None:
        entry.key = key
    if value is not None:
        entry.value = value
    return entry


def typed_tensors():
    """Every type, as raw_data and as typed fields, several shapes."""
    out = []
    for code in range(1, 23):
        name = TensorProto.DataType.Name(code)
        if code == TensorProto.STRING:
            out.append(helper.make_tensor(name, code, [3], [b"a", b"", b"\xff\x00z"]))
            continue
        if code in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
            out.append(helper.make_tensor(name, code, [2], [1 + 2j, -3j]))
            continue
        values = [1, 0, 1, 1, 0] if code == TensorProto.BOOL else [1, 2, 3, 0, 5]
        out.append(helper.make_tensor(name, code, [5], values))
        width = {1: 4, 6: 4, 7: 8, 11: 8, 12: 4, 13: 8, 4: 2, 5: 2, 10: 2, 16: 2}.get(code, 1)
        size = 3 if code in (TensorProto.UINT4, TensorProto.INT4) else 5 * width
        out.append(helper.make_tensor(name + "_raw", code, [5], bytes(range(size)), raw=True))
    out.append(helper.make_tensor("int8_negative", TensorProto.INT8, [2], [-128, -1]))
    out.append(helper.make_tensor("int64_negative", TensorProto.INT64, [2], [-2**63, -1]))
    out.append(helper.make_tensor("empty", TensorProto.FLOAT, [0, 3], []))
    scalar = helper.make_tensor("scalar", TensorProto.FLOAT, [], [2.5])
    scalar.doc_string = "one"
    scalar.data_location = TensorProto.DEFAULT
    pair(scalar.external_data, "location", "says nothing")
    out.append(scalar)
    raw = TensorProto(name="raw_empty", data_type=1, dims=[0])
    raw.raw_data = b""
    unknown(raw)
    out.append(raw)
    deep = helper.make_tensor("rank12", TensorProto.INT32, [1] * 11 + [2], [1, 2])
    out.append(deep)
    return out


def attributes():
    """Attributes of every type, empty lists, absent values, values beside the type."""
    graph = helper.make_graph([], "sub", [], [])
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sv", 1, [2], [1, 2]), helper.make_tensor("si", 7, [2], [0, 3]), [5])
    kind = helper.make_tensor_type_proto(1, ["N", 3])
    values = dict(a_float=1.5, an_int=-7, a_string=b"\xff\0s", a_tensor=helper.make_tensor("", 1, [1], [1]),
                  a_graph=graph, floats=[1.0, float("nan"), -0.0], ints=[-2**63, 5], strings=[b"a", b""],
                  tensors=typed_tensors()[:3], graphs=[graph, graph], sparse_tensor=sparse,
                  sparse_tensors=[sparse, sparse], type_proto=kind, type_protos=[kind, kind])
    out = [helper.make_attribute(k, v) for k, v in values.items()]
    for code in (6, 7, 8, 9, 10, 12, 14):
        out.append(onnx.AttributeProto(name=f"no_{code}", type=code))
    for code in (1, 2, 3):
        out.append(onnx.AttributeProto(name=f"absent_{code}", type=code))
    out.append(onnx.AttributeProto(name="old", i=3))            # IR 1: no type
    out.append(onnx.AttributeProto(name="beside", type=2, i=3, f=0.0, s=b""))
    out.append(onnx.AttributeProto(name="zero", type=2, i=0))
    out.append(onnx.AttributeProto(name="reference", type=2, ref_attr_name="outer"))
    out[0].doc_string = ""
    unknown(out[1])
    return out


def sequence_info(name):
    return helper.make_value_info(name, helper.make_sequence_type_proto(
        helper.make_tensor_type_proto(1, [None, "n", 4])), "a sequence")


def model_of_everything():
    x = helper.make_tensor_value_info("x", 1, ["batch", 3, None, 0])
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    x.type.denotation = "IMAGE"
    unknown(x)
    big = helper.make_tensor_value_info("big", 1, [1] * 10)
    nodes = [
        helper.make_node("Strange", ["x", "", "FLOAT"], ["y", "", "z"], name="", domain="my.domain"),
        helper.make_node("Relu", ["y"], ["r"], name="relu", domain="ai.onnx", doc_string="doc"),
        helper.make_node("Relu", ["r"], ["s"], domain=""),
    ]
    nodes[0].attribute.extend(attributes())
    nodes[1].overload = "over"
    pair(nodes[1].metadata_props, "k", "")
    pair(nodes[1].metadata_props, None, None)
    unknown(pair(nodes[1].metadata_props, "k", "v"))
    unknown(nodes[1])
    graph = helper.make_graph(nodes, "", [x, sequence_info("seq"), big],
                              [helper.make_empty_tensor_value_info("s"), helper.make_tensor_value_info("x", 10, [])],
                              typed_tensors(), doc_string="graph", value_info=[
                                  helper.make_tensor_value_info("y", 1, None),
                                  helper.make_tensor_value_info("stale", 1, [2]),
                                  helper.make_tensor_value_info("x", 1, ["other"])])
    graph.sparse_initializer.append(helper.make_sparse_tensor(
        helper.make_tensor("sparse", 1, [2], [1, 2]), helper.make_tensor("", 7, [2, 1], [0, 3]), [5]))
    note = graph.quantization_annotation.add()
    note.tensor_name = "y"
    pair(note.quant_parameter_tensor_names, "SCALE_TENSOR", "FLOAT")
    unknown(graph)
    model = helper.make_model(graph, producer_name="", opset_imports=[
        helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("my.domain", 1)])
    model.opset_import[1].ClearField("version")
    unknown(model.opset_import[0])
    model.producer_version = "1"
    model.domain = "d"
    model.model_version = 0
    model.doc_string = ""
    pair(model.metadata_props, "key", "valü")
    function = helper.make_function("my.domain", "F", ["a"], ["b"], [
        helper.make_node("Identity", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    model.functions.extend([function, function])
    training = model.training_info.add()
    training.algorithm.CopyFrom(helper.make_graph([], "t", [], [], [typed_tensors()[0]]))
    pair(training.update_binding, "w", "w2")
    unknown(model)
    return model


def model_with_branches():
    """One branch returns an outer value with a ValueInfo of its own; names are shadowed."""
    then = helper.make_graph([], "then", [], [helper.make_tensor_value_info("x", 1, ["n"])])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["y"], ["w"])],
                              "else", [], [helper.make_tensor_value_info("w", 1, None)],
                              [helper.make_tensor("k", 1, [300], np.arange(1200, dtype=np.uint8).tobytes(), raw=True)],
                              value_info=[helper.make_tensor_value_info("x", 1, [7])])
    nodes = [helper.make_node("If", ["c"], ["out"], then_branch=then, else_branch=other),
             helper.make_node("Abs", ["out"], ["y"])]
    return helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("c", 9, []), helper.make_tensor_value_info("x", 1, [7])],
        [helper.make_tensor_value_info("y", 1, [None])]))


def model_bare():
    model = onnx.ModelProto(ir_version=3)
    model.graph.SetInParent()
    return model


def model_external(folder):
    """Weights in two files, one in a subfolder; offsets with gaps, one length left out."""
    names = ["w0", "w1", "w2", "small"]
    arrays = [np.random.default_rng(i).standard_normal((40, 50)).astype(np.float32) for i in range(3)]
    arrays.append(np.float32([1, 2]))
    tensors = [numpy_helper.from_array(a, n) for a, n in zip(arrays, names)]
    tensors.append(numpy_helper.from_array(np.arange(1000, dtype=np.int64), "inside"))
    os.makedirs(os.path.join(folder, "sub"), exist_ok=True)
    blocks = {"w.bin": b"x" * 96, "sub/w.bin": b""}
    for i, t in enumerate(tensors[:4]):
        location = "sub/w.bin" if i == 1 else "w.bin"
        offset = len(blocks[location])
        blocks[location] += t.raw_data + bytes(0 if i == 1 else 16)
        length = len(t.raw_data)
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        pair(t.external_data, "location", location)
        if offset:
            pair(t.external_data, "offset", str(offset))
        if i != 1:  # to the end of its file
            pair(t.external_data, "length", str(length))
    for location, block in blocks.items():
        with open(os.path.join(folder, location), "wb") as file:
            file.write(block)
    node = helper.make_node("Sum", names + ["inside"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", 1, None)], tensors))


def same(a, b):
    """Equality of messages; NaN as a value is not equal to itself, so encoded bytes decide, too."""
    return a == b or a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)


def tensors_of(graph):
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from tensors_of(inner)


def load(path, forget):
    """forget: onnx.load leaves a mark on tensors whose data it fetched from other files."""
    model = onnx.load(path)
    for tensor in tensors_of(model.graph) if forget else []:
        tensor.ClearField("data_location")
    return model


def check(copy, path, folder, options=()):
    out = os.path.join(folder, "copy.onnx")
    done = subprocess.run([copy, *options, path, out], capture_output=True, text=True)
    if done.returncode:
        return f"{path}: {done.stderr.strip()}"
    forget = bool(options) or path.endswith("external.onnx")
    a, b = load(path, forget), load(out, forget)
    if not same(a, b) or a.ByteSize() != b.ByteSize():
        return f"{path}: the copy is not equal {' '.join(options)}"
    return None


def models_of(argument):
    if os.path.isfile(argument):
        return [argument]
    return sorted(os.path.join(d, f) for d, _, files in os.walk(argument) for f in files if f.endswith(".onnx"))


def main():
    copy, arguments = str(pathlib.Path(PARE).parent / "tests" / "onnx_copy"), sys.argv[1:]
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as source, tempfile.TemporaryDirectory() as target:
        paths = [p for a in arguments for p in models_of(a)]
        if not arguments:
            made = dict(everything=model_of_everything(), branches=model_with_branches(), bare=model_bare(),
                        external=model_external(source))
            for name, model in made.items():
                paths.append(os.path.join(source, name + ".onnx"))
                with open(paths[-1], "wb") as file:
                    file.write(model.SerializeToString())
            paths += models_of(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data"))
            paths += models_of(os.path.join(os.path.dirname(__file__), "../../datasets/zoo"))
            paths += models_of(os.environ.get("PARE_MODELS", "none"))
        for path in paths:
            for options in ((), ("--external-data",)):
                if options and len(paths) > 50 and "/backend/" in path:
                    continue
                count += 1
                problem = check(copy, path, target, options)
                if problem:
                    problems.append(problem)
    for problem in problems:
        print(problem)
    word = "FAIL" if problems or not count else "PASS"
    print(f"{word} onnx_roundtrip: {count} copies, {len(problems)} not equal")
    return word == "FAIL"


if __name__ == "__main__":
    sys.exit(main())

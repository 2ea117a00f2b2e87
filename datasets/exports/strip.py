#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""strip.py MODEL.onnx OUT.onnx.gz: the graph of an exported net without its weights. filled(OUT.onnx.gz) is the model
again, with weights drawn from a seed that have the mean and the deviation of those left out."""
import gzip
import sys

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LEAST, KEY = 64, 'mean and deviation'


def tensors(graph):
    """Every constant tensor of the graph and of the bodies in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from tensors(attribute.g)


def strip(source, target):
    model = onnx.load(source)
    for tensor in tensors(model.graph):
        values = numpy_helper.to_array(tensor)
        if tensor.data_type == TensorProto.FLOAT and values.size >= LEAST:
            for field in ('raw_data', 'float_data'):
                tensor.ClearField(field)
            tensor.doc_string = f'{KEY}: {values.mean():.9g} {values.std():.9g}'
    for node in model.graph.node:  # where exporters write stack traces
        node.ClearField('doc_string')
        node.ClearField('metadata_props')
    for values in (model.graph.value_info, model.graph.input, model.graph.output):
        for value in values:
            value.ClearField('metadata_props')
    model.ClearField('metadata_props')
    with open(target, 'wb') as file:
        file.write(gzip.compress(model.SerializeToString(deterministic=True), mtime=0))


def filled(path, seed=1):
    """The model of a file of this folder."""
    rng = np.random.default_rng(seed)
    with gzip.open(path) as file:
        model = onnx.load_from_string(file.read())
    for tensor in tensors(model.graph):
        if tensor.doc_string.startswith(KEY):
            mean, deviation = map(float, tensor.doc_string.split(':')[1].split())
            values = mean + deviation * rng.standard_normal(tuple(tensor.dims))
            tensor.raw_data = values.astype('<f4').tobytes()
            tensor.ClearField('doc_string')
    return model


if __name__ == '__main__':
    strip(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""Layers of BERT-base's encoder with random weights, without PyTorch: bert_layers.py COUNT OUT.onnx DATA.h5

Inputs are "x" (batch, 128, 768) and "mask" (batch, 1, 1, 128), which is added to the scores; DATA.h5 has two
samples of them. Nodes are spelled as PyTorch's exporter spells the Hugging Face library's.
"""

import sys

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LENGTH, WIDTH, INNER, HEADS = 128, 768, 3072, 12


class Encoder:
    def __init__(self):
        self.random = np.random.default_rng(0)
        self.nodes, self.constants = [], []

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(np.array(value), name))
        return name

    def weights(self, name, *shape):
        return self.constant(name, (self.random.standard_normal(shape) * 0.02).astype(np.float32))

    def node(self, op, *inputs, **attributes):
        number = len(self.nodes) + 1
        self.nodes.append(helper.make_node(op, inputs, [f't{number}'], f'{op}_{number}', **attributes))
        return f't{number}'

    def dense(self, x, name, fan_in, fan_out):
        product = self.node('MatMul', x, self.weights(name + '.weight', fan_in, fan_out))
        return self.node('Add', product, self.weights(name + '.bias', fan_out))

    def heads(self, x, name):
        split = self.node('Reshape', self.dense(x, name, WIDTH, WIDTH), 'heads')
        return self.node('Transpose', split, perm=[0, 2, 1, 3])

    def add_norm(self, x, skip, name):
        return self.node('LayerNormalization', self.node('Add', x, skip), self.weights(name + '.scale', WIDTH),
                         self.weights(name + '.shift', WIDTH), epsilon=1e-12)

    def layer(self, x, name):
        q, k, v = (self.heads(x, f'{name}.{part}') for part in ('query', 'key', 'value'))
        scores = self.node('MatMul', q, self.node('Transpose', k, perm=[0, 1, 3, 2]))
        scores = self.node('Add', self.node('Div', scores, 'root'), 'mask')
        seen = self.node('MatMul', self.node('Softmax', scores, axis=-1), v)
        seen = self.node('Reshape', self.node('Transpose', seen, perm=[0, 2, 1, 3]), 'rows')
        x = self.add_norm(self.dense(seen, name + '.output', WIDTH, WIDTH), x, name + '.first')
        inner = self.dense(x, name + '.inner', WIDTH, INNER)
        gate = self.node('Add', self.node('Erf', self.node('Div', inner, 'sqrt2')), 'one')
        inner = self.node('Mul', self.node('Mul', inner, gate), 'half')
        return self.add_norm(self.dense(inner, name + '.outer', INNER, WIDTH), x, name + '.second')


def main(count, model, data):
    net = Encoder()
    net.constant('heads', np.array([0, 0, HEADS, WIDTH // HEADS], np.int64))
    net.constant('rows', np.array([0, 0, WIDTH], np.int64))
    for name, value in (('root', (WIDTH / HEADS) ** 0.5), ('sqrt2', 2 ** 0.5), ('one', 1), ('half', 0.5)):
        net.constant(name, np.float32(value))
    x = 'x'
    for i in range(count):
        x = net.layer(x, f'layer{i}')
    shapes = {'x': ['batch', LENGTH, WIDTH], 'mask': ['batch', 1, 1, LENGTH]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, shapes['x'])
    graph = helper.make_graph(net.nodes, 'bert', inputs, [output], net.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), model)
    with h5py.File(data, 'w') as file:
        file['x'] = net.random.standard_normal((2, LENGTH, WIDTH)).astype(np.float32)
        file['mask'] = np.zeros((2, 1, 1, LENGTH), np.float32)


main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

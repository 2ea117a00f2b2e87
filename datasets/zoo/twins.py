#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile twins: nets with the outputs of the originals that plain INT8 ruins.

    datasets/zoo/twins.py mobilenet datasets/zoo/mobilenet.onnx twin.onnx
    datasets/zoo/twins.py vit datasets/zoo/vit.onnx twin.onnx --power 8

mobilenet, resnet: the channels between two convolutions are scaled by random powers of two from 2^-5 to 2^5, the
next convolution undoes it; Clip(0, 6) becomes Relu and Min with a limit for each channel. vit: every eighth channel
of a LayerNormalization is 2^6 times as large, and the matrix product after it undoes that. --power takes the place
of 5 and 6. Needs onnx and numpy."""
import argparse

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Net:
    def __init__(self, path):
        self.model = onnx.load(path)
        self.graph = self.model.graph
        self.constant = {i.name: i for i in self.graph.initializer}
        self.maker = {o: n for n in self.graph.node for o in n.output}
        self.readers = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def get(self, name):
        return numpy_helper.to_array(self.constant[name])

    def put(self, name, array):
        made = numpy_helper.from_array(np.asarray(array, np.float32), name)
        if name not in self.constant:
            self.graph.initializer.append(made)
            self.constant[name] = made
        else:
            self.constant[name].CopyFrom(made)

    def scale(self, name, factor, axis):
        array = self.get(name)
        shape = [1] * array.ndim
        shape[axis] = -1
        self.put(name, array * factor.reshape(shape))


def limit_channels(net, clip, factor):
    """Clip(x, 0, 6) of scaled channels: min(max(x, 0), 6 factor)."""
    name = clip.output[0]
    net.put(f'{name}_limits', 6 * factor.reshape(1, -1, 1, 1))
    at = [n.output[0] for n in net.graph.node].index(name)
    del net.graph.node[at]
    net.graph.node.insert(at, helper.make_node('Relu', [clip.input[0]], [f'{name}_relu'], f'{name}_relu'))
    net.graph.node.insert(at + 1, helper.make_node('Min', [f'{name}_relu', f'{name}_limits'], [name], f'{name}_min'))


def twin_of_convolutions(net, rng, power):
    """How many pairs of layers were scaled."""
    pairs = 0
    for conv in [n for n in net.graph.node if n.op_type == 'Conv']:
        act = net.maker.get(conv.input[0])
        if act is None or act.op_type not in ('Clip', 'Relu') or len(net.readers[conv.input[0]]) > 1:
            continue
        before, weight = net.maker[act.input[0]], net.get(conv.input[1])
        if before.op_type != 'BatchNormalization':
            continue
        depthwise = weight.shape[1] == 1 and weight.shape[0] > 1
        factor = 2.0 ** rng.uniform(-power, power, weight.shape[0 if depthwise else 1])
        for name in before.input[1:3]:  # scale and bias of BatchNormalization
            net.scale(name, factor, 0)
        net.scale(conv.input[1], 1 / factor, 0 if depthwise else 1)
        if act.op_type == 'Clip':
            limit_channels(net, act, factor)
        pairs += 1
    return pairs


def twin_of_vit(net, rng, power):
    pairs = 0
    for norm in [n for n in net.graph.node if n.op_type == 'LayerNormalization']:
        products = [n for n in net.readers[norm.output[0]] if n.op_type == 'MatMul']
        if not products:
            continue
        factor = np.ones(net.get(norm.input[1]).size)
        factor[rng.choice(factor.size, factor.size // 8, replace=False)] = 2.0 ** power
        for name in norm.input[1:3]:
            net.scale(name, factor, 0)
        for product in products:
            net.scale(product.input[1], 1 / factor, 0)
        pairs += 1
    return pairs


MAKERS = {'mobilenet': (twin_of_convolutions, 5), 'resnet': (twin_of_convolutions, 5), 'vit': (twin_of_vit, 6)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('kind', choices=MAKERS)
    parser.add_argument('model')
    parser.add_argument('output')
    parser.add_argument('--power', type=float, help='of two, of the factors')
    options = parser.parse_args()
    net = Net(options.model)
    make, power = MAKERS[options.kind]
    pairs = make(net, np.random.default_rng(0), power if options.power is None else options.power)
    onnx.save(net.model, options.output)
    print(f'{options.output}: {pairs} pairs of layers')


if __name__ == '__main__':
    main()

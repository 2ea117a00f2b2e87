# SPDX-License-Identifier: Apache-2.0
"""Random graphs: pare against ONNX Runtime, output by output; every fourth is simplified first. PARE_RANDOM_GRAPHS=N
makes N of them (2,000), PARE_RANDOM_SEED=S others than those of seed 1; a failure names the graph's number, and
random_graphs.py NUMBER keeps that one as graph.onnx."""
import concurrent.futures
import os
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import check, finish, ort_session, pare, pare_outputs

COUNT = int(os.environ.get('PARE_RANDOM_GRAPHS', '2000'))
SEED = int(os.environ.get('PARE_RANDOM_SEED', '1'))
LIMIT = 1e-4
UNARY = ['Relu', 'Sigmoid', 'Tanh', 'Neg', 'Abs', 'Erf', 'Softplus', 'Softsign', 'LeakyRelu', 'Elu', 'HardSigmoid',
         'HardSwish', 'Sin', 'Cos', 'Identity', 'Dropout', 'Selu', 'Celu', 'ThresholdedRelu', 'Reciprocal', 'Sqrt', 'Exp']


class Graph:
    """Grows node by node; all tensors are f32, their values stay near 1."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        rank = int(self.rng.choice([2, 3, 4, 4]))
        self.shape = {'x': tuple(int(d) for d in self.rng.integers(1, 7, rank))}
        self.nodes, self.inits, self.size = [], [], 0

    def pick(self, ranks=None):
        names = [n for n, s in self.shape.items() if ranks is None or len(s) in ranks]
        return names[int(self.rng.integers(len(names)))] if names else None

    def some(self, low, high):
        return int(self.rng.integers(low, high))

    def constant(self, value, kind=np.float32):
        name = f'c{len(self.inits)}'
        self.inits.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def weight(self, *shape):
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:]))))

    def add(self, op, inputs, shape, outputs=1, **attributes):
        shapes = [shape] if outputs == 1 else shape
        names = [f't{len(self.shape) + k}' for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.shape.update(zip(names, (tuple(int(d) for d in s) for s in shapes)))
        return names[0]


def unary(g):
    x, op = g.pick(), UNARY[g.some(0, len(UNARY))]
    if op in ('Reciprocal', 'Sqrt'):
        x = g.add('Abs', [x], g.shape[x])
        x = g.add('Add', [x, g.constant(0.5)], g.shape[x])
    if op == 'Exp':
        x = g.add('Clip', [x, g.constant(-3), g.constant(1)], g.shape[x])
    g.add(op, [x], g.shape[x])


def binary(g):
    x = g.pick()
    shape = g.shape[x]
    same = [n for n, s in g.shape.items() if s == shape]
    if g.rng.random() < 0.6:
        y = same[g.some(0, len(same))]
    else:
        keep = g.rng.random(len(shape)) < 0.6
        y = g.constant(g.rng.standard_normal([d if k else 1 for d, k in zip(shape, keep)][g.some(0, 2):]))
    pair = [x, y] if g.rng.random() < 0.7 else [y, x]
    g.add(['Add', 'Sub', 'Mul', 'Max', 'Min'][g.some(0, 5)], pair, shape)


def product(g):
    x = g.pick((2, 3, 4))
    shape, n = g.shape[x], g.some(1, 8)
    if len(shape) == 2 and g.rng.random() < 0.5:
        turned = g.some(0, 2)
        w = g.weight(*((n, shape[1]) if turned else (shape[1], n)))
        more = [g.weight(n)] if g.rng.random() < 0.6 else []
        g.add('Gemm', [x, w, *more], (shape[0], n), transB=turned, alpha=float(g.rng.choice([1, 0.5])))
        return
    g.add('MatMul', [x, g.weight(shape[-1], n)], (*shape[:-1], n))


def convolution(g):
    x = g.pick((4,))
    if not x:
        return
    n, c, h, w = g.shape[x]
    kernel, stride, pad = g.some(1, 4), g.some(1, 3), g.some(0, 2)
    group = c if g.rng.random() < 0.3 else 1
    m = c * g.some(1, 3) if group > 1 else g.some(1, 8)
    size = [(d + 2 * pad - kernel) // stride + 1 for d in (h, w)]
    if min(size) < 1 or min(h, w) + 2 * pad < kernel:
        return
    more = [g.weight(m)] if g.rng.random() < 0.6 else []
    g.add('Conv', [x, g.weight(m, c // group, kernel, kernel), *more], (n, m, *size), pads=[pad] * 4,
          strides=[stride] * 2, group=group, kernel_shape=[kernel] * 2)


def pool(g):
    x = g.pick((4,))
    if not x:
        return
    n, c, h, w = g.shape[x]
    if g.rng.random() < 0.3:
        g.add(['GlobalAveragePool', 'GlobalMaxPool'][g.some(0, 2)], [x], (n, c, 1, 1))
        return
    kernel, stride = g.some(1, 4), g.some(1, 3)
    size = [(d - kernel) // stride + 1 for d in (h, w)]
    if min(size) >= 1 and min(h, w) >= kernel:
        g.add(['AveragePool', 'MaxPool'][g.some(0, 2)], [x], (n, c, *size), kernel_shape=[kernel] * 2,
              strides=[stride] * 2)


def norm(g):
    x = g.pick((3, 4)) if g.rng.random() < 0.6 else None
    if x:
        c = g.shape[x][1]
        g.add('BatchNormalization', [x, g.weight(c), g.weight(c), g.weight(c), g.constant(g.rng.random(c) + 0.5)],
              g.shape[x])
        return
    x = g.pick()
    d = g.shape[x][-1]
    if d > 1:
        g.add('LayerNormalization', [x, g.weight(d), g.weight(d)], g.shape[x], axis=-1, epsilon=1e-2)


def softmax(g):
    x = g.pick()
    g.add(['Softmax', 'LogSoftmax'][g.some(0, 2)], [x], g.shape[x], axis=g.some(-1, len(g.shape[x])))


def reduce(g):
    x = g.pick((3, 4))
    if not x:
        return
    shape, axis, keep = g.shape[x], g.some(0, len(g.shape[x])), g.some(0, 2)
    to = [d for i, d in enumerate(shape) if i != axis or keep]
    if keep:
        to[axis] = 1
    g.add(['ReduceMean', 'ReduceMax', 'ReduceMin', 'ReduceL2'][g.some(0, 4)], [x], to, axes=[axis], keepdims=keep)


def transpose(g):
    x = g.pick()
    perm = g.rng.permutation(len(g.shape[x]))
    g.add('Transpose', [x], [g.shape[x][p] for p in perm], perm=perm)


def reshape(g):
    x = g.pick()
    shape, count = g.shape[x], int(np.prod(g.shape[x]))
    way = g.some(0, 4)
    if way == 0:
        axis = g.some(0, len(shape) + 1)
        g.add('Flatten', [x], (np.prod(shape[:axis]), np.prod(shape[axis:])), axis=axis)
    elif way == 1 and len(shape) < 4:
        axis = g.some(0, len(shape) + 1)
        g.add('Unsqueeze', [x, g.constant([axis], np.int64)], (*shape[:axis], 1, *shape[axis:]))
    elif way == 2 and 1 in shape and len(shape) > 2:
        axis = shape.index(1)
        g.add('Squeeze', [x, g.constant([axis], np.int64)], shape[:axis] + shape[axis + 1:])
    else:
        first = int(g.rng.choice([d for d in range(1, count + 1) if count % d == 0]))
        g.add('Reshape', [x, g.constant([first, -1], np.int64)], (first, count // first))


def move(g):
    x = g.pick()
    shape = g.shape[x]
    axis, way = g.some(0, len(shape)), g.some(0, 6)
    d = shape[axis]
    to = list(shape)
    if way == 0:
        same = [n for n, s in g.shape.items() if len(s) == len(shape) and all(
            a == b for i, (a, b) in enumerate(zip(s, shape)) if i != axis)]
        parts = [x] + [same[g.some(0, len(same))] for _ in range(g.some(1, 3))]
        to[axis] = sum(g.shape[p][axis] for p in parts)
        g.add('Concat', parts, to, axis=axis)
    elif way == 1 and d > 1:
        start = g.some(0, d)
        to[axis] = d - start
        g.add('Slice', [x, *(g.constant([v], np.int64) for v in (start, 99, axis))], to)
    elif way == 2 and d > 1:
        cut = g.some(1, d)
        other = list(shape)
        to[axis], other[axis] = cut, d - cut
        g.add('Split', [x, g.constant([cut, d - cut], np.int64)], [to, other], outputs=2, axis=axis)
    elif way == 3:
        index = g.rng.integers(0, d, g.some(1, 5))
        to[axis] = len(index)
        g.add('Gather', [x, g.constant(index, np.int64)], to, axis=axis)
    elif way == 4:
        pads = np.zeros((2, len(shape)), np.int64)
        pads[:, axis] = g.rng.integers(0, 3, 2)
        to[axis] += int(pads.sum())
        g.add('Pad', [x, g.constant(pads.ravel(), np.int64), g.constant(0.5)], to)
    elif np.prod(shape) < 500:
        to[axis] = 2 * d
        repeats = np.where(np.arange(len(shape)) == axis, 2, 1)
        g.add('Tile', [x, g.constant(repeats, np.int64)], to)


def resize(g):
    x = g.pick((4,))
    if x and np.prod(g.shape[x]) < 500:
        n, c, h, w = g.shape[x]
        g.add('Resize', [x, '', g.constant([1, 1, 2, 2])], (n, c, 2 * h, 2 * w),
              mode=['nearest', 'linear'][g.some(0, 2)], coordinate_transformation_mode='asymmetric',
              nearest_mode='floor')


MAKERS = [unary, unary, unary, binary, binary, product, convolution, convolution, pool, norm, softmax, reduce,
          transpose, reshape, move, move, resize]


def build(number):
    """The graph of this number: every tensor that no node reads is an output."""
    g = Graph([SEED, number])
    for _ in range(g.some(3, 16)):
        MAKERS[g.some(0, len(MAKERS))](g)
    if not g.nodes:
        g.add('Relu', ['x'], g.shape['x'])
    read = {i for n in g.nodes for i in n.input}
    outputs = [o for n in g.nodes for o in n.output if o not in read]
    graph = helper.make_graph(
        g.nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, g.shape['x'])],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, g.shape[o]) for o in outputs], g.inits)
    x = g.rng.standard_normal(g.shape['x']).astype(np.float32)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), x, outputs


def judge(number):
    """What is wrong with a graph's outputs; empty where nothing is."""
    m, x, outputs = build(number)
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, 'graph.onnx'), os.path.join(folder, 'simple.onnx')
        onnx.save(m, path)
        want = dict(zip(outputs, ort_session(path).run(outputs, {'x': x})))
        if number % 4 == 0:
            pare('simplify', path, '-o', other, '--quiet')
            path = other
        got = pare_outputs(path, {'x': x}, outputs)
    bad = []
    for name in outputs:
        w, y = want[name].astype(np.float64), got[name].astype(np.float64)
        far = np.abs(w - y).max() / max(1, np.abs(w).max()) if w.shape == y.shape and w.size else float(w.shape != y.shape)
        if not far <= LIMIT:
            bad.append(f"graph {number}: '{name}' is {far:.2g} apart")
    return bad


def attempt(number):
    try:
        return judge(number)
    except Exception as error:
        return [f'graph {number}: {str(error).strip().splitlines()[-1][-300:]}']


if len(sys.argv) > 1:
    onnx.save(build(int(sys.argv[1]))[0], 'graph.onnx')
    print(attempt(int(sys.argv[1])) or 'as in ONNX Runtime')
    sys.exit(0)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool_of_threads:
    wrong = [line for lines in pool_of_threads.map(attempt, range(COUNT)) for line in lines]
check(f'random_graphs/{COUNT}_graphs', not wrong, f'{len(wrong)} outputs: ' + '; '.join(wrong[:5]))
finish()

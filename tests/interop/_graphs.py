# SPDX-License-Identifier: Apache-2.0
"""Random small nets as ONNX models, for pruning: chains, residuals, concatenations, splits, depthwise
and grouped convolutions, attention, and what is between them in exported models.

A net is a chain of random blocks; a block takes a tensor and returns one. Pictures are [N, C, H, W],
sequences [N, S, D]. Weights keep the size of activations near 1, so that errors can be compared."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = (11, 13, 17, 18)


class Net:
    """A model under construction: nodes, constants, and the shape of every tensor (N is None)."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.nodes, self.constants, self.shape, self.count = [], [], {}, 0
        self.batch = None if self.rng.random() < 0.6 else int(self.rng.integers(1, 4))

    # --- small parts ---

    def pick(self, *items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, p):
        return self.rng.random() < p

    def name(self, base):
        self.count += 1
        return f'{base}_{self.count}'

    def constant(self, array, base='w'):
        name = self.name(base)
        array = np.asarray(array)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.constants.append(numpy_helper.from_array(array.copy(), name))
        self.shape[name] = array.shape
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64), 'k')

    def normal(self, *shape, fan=1):
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan))

    def node(self, op, inputs, shape, **attributes):
        out = self.name(op.lower())
        self.nodes.append(helper.make_node(op, inputs, [out], name=f'node_{out}', **attributes))
        self.shape[out] = tuple(shape)
        return out

    def same(self, op, x, *more, **attributes):
        return self.node(op, [x, *more], self.shape[x], **attributes)

    def channels(self, x):
        return self.shape[x][1]

    # --- pictures ---

    def conv(self, x, out, k=1, group=1, stride=1, bias=None):
        n, c, h, w = self.shape[x]
        weight = self.normal(out, c // group, k, k, fan=c // group * k * k)
        inputs = [x, weight] + ([self.normal(out)] if (self.chance(0.5) if bias is None else bias) else [])
        size = [(d + 2 * (k // 2) - k) // stride + 1 for d in (h, w)]
        return self.node('Conv', inputs, (n, out, *size), kernel_shape=[k, k], pads=[k // 2] * 4,
                         group=group, strides=[stride, stride])

    def norm(self, x):
        c = self.channels(x)
        return self.same('BatchNormalization', x, self.constant(self.rng.uniform(0.5, 1.5, c)), self.normal(c),
                         self.constant(self.rng.standard_normal(c) * 0.1),
                         self.constant(self.rng.uniform(0.5, 1.5, c)), epsilon=1e-5)

    def act(self, x):
        kind = self.pick('Relu', 'Relu', 'Clip', 'silu', 'LeakyRelu', 'gelu', 'PRelu', 'HardSigmoid', 'none')
        if kind == 'none':
            return x
        if kind == 'silu':
            return self.same('Mul', x, self.same('Sigmoid', x))
        if kind == 'gelu':
            erf = self.same('Erf', self.same('Div', x, self.constant(np.float32(np.sqrt(2)))))
            one = self.same('Add', erf, self.constant(np.float32(1)))
            return self.same('Mul', self.same('Mul', x, one), self.constant(np.float32(0.5)))
        if kind == 'Clip':
            return self.same('Clip', x, self.constant(np.float32(0)), self.constant(np.float32(6)))
        if kind == 'PRelu':
            c = self.channels(x) if len(self.shape[x]) == 4 else self.shape[x][-1]
            return self.same('PRelu', x, self.normal(c, *[1] * (len(self.shape[x]) - 2)) if
                             len(self.shape[x]) == 4 else self.normal(c))
        return self.same(kind, x)

    def unit(self, x, out, **more):
        y = self.conv(x, out, **more)
        y = self.norm(y) if self.chance(0.6) else y
        return self.act(y)

    def residual(self, x):
        c = self.channels(x)
        y = self.unit(x, self.pick(4, 6, 8, 12), k=self.pick(1, 3))
        if self.chance(0.3):
            y = self.depthwise(y)
        y = self.conv(y, c, k=self.pick(1, 3))
        y = self.norm(y) if self.chance(0.5) else y
        if self.chance(0.3):
            x = self.conv(x, c)
        return self.act(self.node(self.pick('Add', 'Add', 'Sub', 'Mul', 'Sum', 'Max'), [x, y], self.shape[x]))

    def depthwise(self, x):
        c = self.channels(x)
        return self.act(self.conv(x, c * self.pick(1, 1, 2), k=3, group=c))

    def grouped(self, x):
        group = self.pick(2, 4)
        y = self.unit(x, group * self.pick(2, 4), k=1)
        return self.unit(y, group * self.pick(2, 3, 4), k=3, group=group)

    def dense(self, x):
        parts = [x]
        for _ in range(self.pick(1, 2, 3)):
            joined = self.concat(parts) if len(parts) > 1 else parts[0]
            parts.append(self.unit(joined, self.pick(3, 4, 6), k=self.pick(1, 3)))
        return self.concat(parts)

    def concat(self, parts):
        shape = list(self.shape[parts[0]])
        shape[1] = sum(self.channels(p) for p in parts)
        return self.node('Concat', parts, shape, axis=1)

    def pieces(self, x, sizes):
        """Split along axis 1, by the form of the opset."""
        shape = list(self.shape[x])
        outs = [self.name('part') for _ in sizes]
        equal = len(set(sizes)) == 1 and self.chance(0.5)
        inputs, more = [x], {}
        if equal and self.opset >= 18:
            more['num_outputs'] = len(sizes)
        elif not equal and self.opset < 13:
            more['split'] = list(sizes)
        elif not equal:
            inputs.append(self.ints(*sizes))
        self.nodes.append(helper.make_node('Split', inputs, outs, name=f'node_{outs[0]}', axis=1, **more))
        for out, size in zip(outs, sizes):
            self.shape[out] = (shape[0], size, *shape[2:])
        return outs

    def split(self, x):
        c = self.channels(x)
        if c < 4:
            return x
        a = c // 2 if self.chance(0.6) else int(self.rng.integers(1, c))
        left, right = self.pieces(x, [a, c - a]) if self.chance(0.6) else (
            self.slice(x, 0, a), self.slice(x, a, c))
        left = self.unit(left, self.channels(left) if self.chance(0.5) else 5, k=self.pick(1, 3))
        if self.chance(0.4):
            right = self.act(right)
        if a == c - a and self.shape[left] == self.shape[right] and self.chance(0.5):
            return self.node('Mul', [left, self.same('Sigmoid', right)], self.shape[left])
        return self.concat([left, right])

    def slice(self, x, start, end):
        shape = list(self.shape[x])
        shape[1] = end - start
        far = end == self.shape[x][1] and self.chance(0.5)
        return self.node('Slice', [x, self.ints(start), self.ints(2 ** 31 if far else end), self.ints(1)], shape)

    def squeeze_excite(self, x):
        n, c = self.shape[x][:2]
        pooled = self.node('GlobalAveragePool', [x], (n, c, 1, 1)) if self.chance(0.5) else self.mean(x)
        gate = self.conv(self.act(self.conv(pooled, self.pick(2, 4))), c)
        return self.node('Mul', [x, self.same('Sigmoid', gate)], self.shape[x])

    def mean(self, x, keep=1):
        n, c = self.shape[x][:2]
        shape = (n, c, 1, 1) if keep else (n, c)
        if self.opset >= 18:
            return self.node('ReduceMean', [x, self.ints(2, 3)], shape, keepdims=keep)
        return self.node('ReduceMean', [x], shape, axes=[2, 3], keepdims=keep)

    def pool(self, x):
        n, c, h, w = self.shape[x]
        if min(h, w) < 4:
            return x
        return self.node(self.pick('MaxPool', 'AveragePool'), [x], (n, c, h // 2, w // 2),
                         kernel_shape=[2, 2], strides=[2, 2])

    def shuffle(self, x):
        n, c, h, w = self.shape[x]
        if c % 2 or c < 4:
            return x
        g = 2
        y = self.reshape(x, (n, g, c // g, h, w))
        y = self.node('Transpose', [y], (n, c // g, g, h, w), perm=[0, 2, 1, 3, 4])
        return self.unit(self.reshape(y, (n, c, h, w)), c)

    def reshape(self, x, shape):
        """Spelled with 0, -1, numbers, or through Shape as exporters do."""
        dims = [d if d is not None else 0 for d in shape]
        if self.batch is None and self.chance(0.4):
            n = self.node('Gather', [self.node('Shape', [x], (len(self.shape[x]),)), self.ints(0)], (1,), axis=0)
            rest = list(dims[1:])
            if self.chance(0.3):
                rest[int(self.rng.integers(len(rest)))] = -1
            tail = self.constant(np.array(rest, np.int64), 'k')
            target = self.node('Concat', [n, tail], (len(shape),), axis=0)
        else:
            if self.chance(0.4):
                dims[-1] = -1
            if self.batch and self.chance(0.5):
                dims[0] = self.batch
            target = self.ints(*dims)
        return self.node('Reshape', [x, target], shape)

    def transposed(self, x):
        n, c, h, w = self.shape[x]
        if max(h, w) > 8:
            return x
        group = self.pick(1, 1, 2) if c % 2 == 0 and c > 2 else 1
        out = group * self.pick(2, 3, 4)
        weight = self.normal(c, out // group, 2, 2, fan=c // group)
        inputs = [x, weight] + ([self.normal(out)] if self.chance(0.5) else [])
        return self.act(self.node('ConvTranspose', inputs, (n, out, 2 * h, 2 * w), kernel_shape=[2, 2],
                                  strides=[2, 2], group=group))

    def upsample(self, x):
        n, c, h, w = self.shape[x]
        if max(h, w) > 8:
            return x
        if self.chance(0.5) and self.batch:
            inputs = [x, self.constant(np.zeros(0, np.float32)) if self.opset < 13 else '',
                      self.constant(np.zeros(0, np.float32)) if self.opset < 13 else '',
                      self.ints(self.batch, c, 2 * h, 2 * w)]
        else:
            inputs = [x, self.constant(np.zeros(0, np.float32)) if self.opset < 13 else '',
                      self.constant(np.array([1, 1, 2, 2], np.float32))]
        return self.node('Resize', inputs, (n, c, 2 * h, 2 * w), mode='nearest',
                         coordinate_transformation_mode='asymmetric', nearest_mode='floor')

    def wider(self, x):
        """A short cut that pads its channels with zeros."""
        n, c, h, w = self.shape[x]
        more = self.pick(2, 4)
        pads = self.ints(0, more // 2, 0, 0, 0, more - more // 2, 0, 0)
        short = self.node('Pad', [x, pads], (n, c + more, h, w))
        return self.node('Add', [self.unit(x, c + more), short], (n, c + more, h, w))

    def blocks(self, x):
        n, c, h, w = self.shape[x]
        y = self.unit(x, 4 * self.pick(2, 3))
        y = self.node('DepthToSpace', [y], (n, self.channels(y) // 4, 2 * h, 2 * w), blocksize=2,
                      mode=self.pick('DCR', 'CRD'))
        y = self.unit(y, 4)
        return self.node('SpaceToDepth', [y], (n, 16, h, w), blocksize=2)

    def chosen(self, x):
        """Some channels are replaced by others where a constant says so; a scale is spread over the picture."""
        n, c, h, w = self.shape[x]
        flags = self.constant(self.rng.random((c, 1, 1)) < 0.7, 'flags')
        y = self.node('Where', [flags, x, self.normal(c, 1, 1)], self.shape[x])
        scale = self.node('Expand', [self.normal(1, c, 1, 1), self.ints(1, c, h, w)], (1, c, h, w))
        return self.unit(self.node('Mul', [y, scale], self.shape[x]), c)

    def tiled(self, x):
        n, c, h, w = self.shape[x]
        y = self.node('Tile', [self.unit(x, 4), self.ints(1, 2, 1, 1)], (n, 8, h, w))
        return self.unit(y, c)

    def made(self, x):
        """A weight that a node makes of one number, too large to be folded away."""
        n, c, h, w = self.shape[x]
        big = self.node('ConstantOfShape', [self.ints(160, c, 11, 11)], (160, c, 11, 11),
                        value=numpy_helper.from_array(np.array([0.01], np.float32)))
        y = self.node('Conv', [x, big], (n, 160, h, w), kernel_shape=[11, 11], pads=[5] * 4)
        return self.unit(y, c)

    def instance_norm(self, x):
        n, c, h, w = self.shape[x]
        if self.chance(0.5) or c % 2:
            return self.same('InstanceNormalization', x, self.normal(c), self.normal(c))
        y = self.reshape(x, (n, c // 2, 2 * h * w))
        y = self.same('InstanceNormalization', y, self.constant(np.ones(c // 2)), self.constant(np.zeros(c // 2)))
        y = self.reshape(y, (n, c, h, w))
        return self.node('Add', [self.node('Mul', [y, self.normal(c, 1, 1)], self.shape[x]), self.normal(c, 1, 1)],
                         self.shape[x])

    def reorder(self, x):
        """Channels last for a stretch, and some of them picked by number."""
        n, c, h, w = self.shape[x]
        y = self.act(self.node('Transpose', [x], (n, h, w, c), perm=[0, 2, 3, 1]))
        y = self.node('MatMul', [y, self.normal(c, 6, fan=c)], (n, h, w, 6))
        y = self.node('Add', [y, self.normal(6)], (n, h, w, 6))
        y = self.node('Transpose', [y], (n, 6, h, w), perm=[0, 3, 1, 2])
        if self.chance(0.4):
            at = self.rng.permutation(6)[:5]
            y = self.node('Gather', [y, self.ints(*at.tolist())], (n, 5, h, w), axis=1)
        return self.unit(y, 7)

    def shared(self, x):
        """One weight for two convolutions."""
        c = self.channels(x)
        y = self.conv(x, c, k=1, bias=False)
        weight = self.nodes[-1].input[1]
        return self.node('Conv', [self.act(y), weight], self.shape[x], kernel_shape=[1, 1])

    def nested(self, x):
        """An If whose branches read x from outside."""
        c = self.channels(x)
        branches = []
        for op in ('Relu', 'Neg'):
            out = self.name('branch')
            info = helper.make_tensor_value_info(out, TensorProto.FLOAT, None)
            branches.append(helper.make_graph([helper.make_node(op, [x], [out])], out, [], [info]))
        condition = self.constant(np.array(self.chance(0.5)), 'flag')
        y = self.node('If', [condition], self.shape[x], then_branch=branches[0], else_branch=branches[1])
        return self.unit(y, c)

    # --- sequences ---

    def tokens(self, x):
        """[N, C, H, W] to [N, H * W, C]."""
        n, c, h, w = self.shape[x]
        y = self.reshape(x, (n, c, h * w))
        return self.node('Transpose', [y], (n, h * w, c), perm=[0, 2, 1])

    def linear(self, x, out, bias=True):
        width = self.shape[x][-1]
        shape = (*self.shape[x][:-1], out)
        y = self.node('MatMul', [x, self.normal(width, out, fan=width)], shape)
        return self.node('Add', self.pick([y, b := self.normal(out)], [b, y]), shape) if bias else y

    def layer_norm(self, x):
        d = self.shape[x][-1]
        if self.opset >= 17:
            return self.same('LayerNormalization', x, self.normal(d), self.normal(d))
        return x

    def heads_of(self, x, heads, d):
        n, s, _ = self.shape[x]
        y = self.reshape(x, (n, s, heads, d))
        return self.node('Transpose', [y], (n, heads, s, d), perm=[0, 2, 1, 3])

    def attention(self, x):
        n, s, width = self.shape[x]
        heads, d = self.pick(2, 3, 4), self.pick(2, 4)
        inner = heads * d
        y = self.layer_norm(x)
        way = self.pick('gather', 'slice', 'apart')
        if way == 'slice':
            qkv = self.linear(y, 3 * inner)
            q, k, v = (self.heads_of(self.node('Slice', [qkv, self.ints(i * inner), self.ints((i + 1) * inner),
                                                         self.ints(2)], (n, s, inner)), heads, d) for i in range(3))
        elif way == 'gather':
            qkv = self.reshape(self.linear(y, 3 * inner), (n, s, 3, heads, d))
            qkv = self.node('Transpose', [qkv], (3, n, heads, s, d), perm=[2, 0, 3, 1, 4])
            q, k, v = (self.node('Gather', [qkv, self.constant(np.array(i, np.int64), 'k')], (n, heads, s, d), axis=0)
                       for i in range(3))
        else:
            q, k, v = (self.heads_of(self.linear(y, inner, bias=self.chance(0.7)), heads, d) for _ in range(3))
        k = self.node('Transpose', [k], (n, heads, d, s), perm=[0, 1, 3, 2])
        scores = self.node('MatMul', [q, k], (n, heads, s, s))
        scores = self.node('Mul', [scores, self.constant(np.float32(d ** -0.5))], (n, heads, s, s))
        if self.chance(0.3):
            scores = self.node('Add', [scores, self.normal(1, heads, s, s)], (n, heads, s, s))
        weights = self.node('Softmax', [scores], (n, heads, s, s), axis=3 if self.opset < 13 else -1)
        y = self.node('Transpose', [self.node('MatMul', [weights, v], (n, heads, s, d))], (n, s, heads, d),
                      perm=[0, 2, 1, 3])
        y = self.linear(self.reshape(y, (n, s, inner)), width)
        return self.node('Add', [x, y], (n, s, width))

    def mlp(self, x):
        width = self.shape[x][-1]
        y = self.linear(self.act(self.linear(self.layer_norm(x), self.pick(6, 8, 12))), width)
        return self.node('Add', [x, y], self.shape[x])

    # --- whole nets ---

    PICTURE = ('residual', 'residual', 'depthwise', 'grouped', 'dense', 'split', 'squeeze_excite', 'pool', 'shuffle',
               'transposed', 'upsample', 'wider', 'blocks', 'instance_norm', 'reorder', 'shared', 'nested', 'chain', 'chosen',
               'tiled', 'made')
    SEQUENCE = ('attention', 'attention', 'mlp', 'mlp')

    def chain(self, x):
        return self.unit(x, self.pick(4, 6, 8, 10), k=self.pick(1, 3))

    def head(self, x):
        """Scores: pooled or flattened, through one or two matrices."""
        if len(self.shape[x]) == 3:
            n, s, d = self.shape[x]
            x = self.node('Gather', [x, self.constant(np.array(0, np.int64), 'k')], (n, d), axis=1)
        elif self.chance(0.4):
            n, c = self.shape[x][:2]
            x = self.node('Flatten', [self.mean(x)], (n, c), axis=1)
        elif self.chance(0.5):
            x = self.mean(x, keep=0)
        else:
            n, c, h, w = self.shape[x]
            x = self.node('Flatten', [x], (n, c * h * w), axis=1) if self.chance(0.5) else self.reshape(x, (n, c * h * w))
        if self.chance(0.5):
            x = self.act2(self.gemm(x, 9))
        return self.gemm(x, 5)

    def act2(self, x):
        return self.same(self.pick('Relu', 'Tanh', 'Sigmoid'), x)

    def gemm(self, x, out):
        n, c = self.shape[x]
        across = self.chance(0.6)
        weight = self.normal(*((out, c) if across else (c, out)), fan=c)
        return self.node('Gemm', [x, weight, self.normal(out)], (n, out), transB=int(across))

    def build(self):
        size = self.pick(6, 8)
        self.shape['input'] = (self.batch, 3, size, size)
        x = self.unit('input', self.pick(4, 6, 8), k=3)
        used = []
        for _ in range(self.pick(1, 2, 3, 4)):
            used.append(self.pick(*self.PICTURE))
            x = getattr(self, used[-1])(x)
        if self.chance(0.35):
            x = self.tokens(x)
            for _ in range(self.pick(1, 2, 3)):
                used.append(self.pick(*self.SEQUENCE))
                x = getattr(self, used[-1])(x)
        outputs = [x] if self.chance(0.2) else [self.head(x)]
        if self.chance(0.2) and outputs[0] != x:
            outputs.append(x)
        return self.model(outputs), used

    def model(self, outputs):
        def info(name):
            shape = ['batch' if d is None else d for d in self.shape[name]]
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, 'net', [info('input')], [info(o) for o in outputs], self.constants)
        imports = [helper.make_opsetid('', self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8 if self.opset > 11 else 6)
        onnx.checker.check_model(model, full_check=True)
        return model


def random_net(seed):
    """A model, and the names of the blocks it was made of."""
    return Net(seed).build()


def feed(model, seed=0):
    """Inputs for a model; an open batch is 2."""
    rng = np.random.default_rng(seed)
    shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {model.graph.input[0].name: rng.standard_normal(shape).astype(np.float32)}

# SPDX-License-Identifier: Apache-2.0
"""Gradients of whole nets against PyTorch's autograd, which runs the same ONNX file operator by operator.

Reach: each tensor's gradient within 1e-4 of its largest value plus 1e-7. Needs torch; skipped without it.
With --models FOLDER the nets NAME.onnx there are compared as well, with their NAME_input.npz: in f32, and
with --exact as f64 models by the plain kernels. In nets with many Relu an f32 rounding that turns the sign
of one input near 0 switches its gradient on or off, so that PyTorch's own f32 gradients are off, too: by how
much is printed, and an f32 net passes where ours are no further off than twice that.
Nets with BatchNormalization are compared with its statistics of the batch, too: gradients, and the running
statistics after one batch. PyTorch's running variance is that of n - 1 elements, ONNX's (and ours) of n.
"""
import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

from _lib import PARE, ZOO, check, finish, report

PROGRAM = pathlib.Path(PARE).parent / 'tests' / 'gradients'
LIMIT, FLOOR = 1e-4, 1e-7


def integers(tensor):
    return [int(i) for i in tensor.reshape(-1)]


class Net:
    """An ONNX graph as a PyTorch function of its inputs and float initializers."""

    def __init__(self, path, dtype, train=False):
        self.train, self.running = train, {}
        self.graph = onnx.load(str(path)).graph
        self.dtype = dtype
        self.weights = {}
        self.constants = {}
        for t in self.graph.initializer:
            array = torch.from_numpy(numpy_helper.to_array(t).copy())
            if array.is_floating_point():
                self.weights[t.name] = array.to(dtype).requires_grad_()
            else:
                self.constants[t.name] = array

    def run(self, inputs):
        values = {**self.constants, **self.weights, **inputs}
        for node in self.graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            given = [values[name] if name else None for name in node.input]
            self.names = node.input
            made = getattr(self, node.op_type)(attributes, *given) if hasattr(self, node.op_type) else self.plain(
                node.op_type, *given)
            for name, value in zip(node.output, made if isinstance(made, (tuple, list)) else [made]):
                values[name] = value
        return values[self.graph.output[0].name]

    @staticmethod
    def plain(op, *given):
        names = {'Add': 'add', 'Sub': 'sub', 'Mul': 'mul', 'Pow': 'pow', 'MatMul': 'matmul', 'Relu': 'relu',
                 'Erf': 'erf', 'Sqrt': 'sqrt', 'Tanh': 'tanh', 'Sigmoid': 'sigmoid', 'Where': 'where', 'Equal': 'eq',
                 'Neg': 'neg', 'Exp': 'exp'}
        return getattr(torch, names[op])(*given)

    def Constant(self, a):
        t = torch.from_numpy(numpy_helper.to_array(a['value']).copy())
        return t.to(self.dtype) if t.is_floating_point() else t

    def ConstantOfShape(self, a, shape):
        return torch.full(integers(shape), numpy_helper.to_array(a['value']).item(), dtype=torch.int64)

    def Identity(self, a, x):
        return x

    def Cast(self, a, x):
        return x.to(self.dtype if a['to'] == 1 else torch.int64 if a['to'] == 7 else torch.bool)

    def Shape(self, a, x):
        return torch.tensor(x.shape, dtype=torch.int64)

    def Mod(self, a, x, y):
        return torch.remainder(x, y)

    def Div(self, a, x, y):
        return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode='trunc')

    def Gemm(self, a, x, w, b=None):
        x = x.T if a.get('transA') else x
        w = w.T if a.get('transB') else w
        y = a.get('alpha', 1.0) * (x @ w)
        return y if b is None else y + a.get('beta', 1.0) * b

    def Conv(self, a, x, w, b=None):
        pads = a.get('pads', [0, 0, 0, 0])
        assert pads[:2] == pads[2:]
        return F.conv2d(x, w, b, a.get('strides', 1), pads[:2], a.get('dilations', 1), a.get('group', 1))

    def BatchNormalization(self, a, x, scale, bias, mean, variance):
        if self.train:
            n, keep = x.numel() // x.shape[1], a.get('momentum', 0.9)
            after, spread = mean.detach().clone(), variance.detach().clone()
            y = F.batch_norm(x, after, spread, scale, bias, True, 1 - keep, a.get('epsilon', 1e-5))
            old = keep * variance.detach()
            self.running[self.names[3]] = (after, mean, keep)
            self.running[self.names[4]] = (old + (spread - old) * ((n - 1) / n), variance, keep)
            return y
        return F.batch_norm(x, mean.detach(), variance.detach(), scale, bias, False, 0, a.get('epsilon', 1e-5))

    def LayerNormalization(self, a, x, scale, bias=None):
        return F.layer_norm(x, scale.shape, scale, bias, a.get('epsilon', 1e-5))

    def MaxPool(self, a, x):
        pads = a.get('pads', [0, 0, 0, 0])
        return F.max_pool2d(x, a['kernel_shape'], a.get('strides', 1), pads[:2])

    def GlobalAveragePool(self, a, x):
        return x.mean((2, 3), keepdim=True)

    def ReduceMean(self, a, x, axes=None):
        axes = a['axes'] if axes is None else integers(axes)
        return x.mean(axes, keepdim=bool(a.get('keepdims', 1)))

    def Clip(self, a, x, low=None, high=None):
        if low is not None and high is not None:
            return F.hardtanh(x, low.item(), high.item())
        return torch.clamp(x, low, high)

    def Softmax(self, a, x):
        return x.softmax(a.get('axis', -1))

    def Flatten(self, a, x):
        return x.flatten(a.get('axis', 1))

    def Reshape(self, a, x, shape):
        dims = [x.shape[i] if d == 0 else d for i, d in enumerate(integers(shape))]
        return x.reshape(dims)

    def Transpose(self, a, x):
        return x.permute(a['perm'])

    def Concat(self, a, *x):
        return torch.cat(x, a['axis'])

    def Split(self, a, x, sizes=None):
        return torch.split(x, integers(sizes), a.get('axis', 0))

    def Slice(self, a, x, starts, ends, axes=None, steps=None):
        axes = list(range(len(starts))) if axes is None else integers(axes)
        steps = [1] * len(axes) if steps is None else integers(steps)
        cut = [slice(None)] * x.dim()
        for axis, start, end, step in zip(axes, integers(starts), integers(ends), steps):
            cut[axis] = slice(start, min(end, 2**31), step)
        return x[tuple(cut)]

    def Gather(self, a, x, index):
        axis = a.get('axis', 0)
        index = torch.where(index < 0, index + x.shape[axis], index)
        return x.index_select(axis, index.reshape(-1)).reshape(
            x.shape[:axis] + index.shape + x.shape[axis + 1:] if axis else index.shape + x.shape[1:])

    def Squeeze(self, a, x, axes=None):
        for axis in sorted(integers(axes), reverse=True):
            x = x.squeeze(axis)
        return x

    def Unsqueeze(self, a, x, axes):
        for axis in sorted(integers(axes)):
            x = x.unsqueeze(axis)
        return x

    def Expand(self, a, x, shape):
        return x * torch.ones(integers(shape), dtype=x.dtype)


def theirs(path, inputs, labels, dtype, train=False):
    net = Net(path, dtype, train)
    fed = {n: torch.from_numpy(v).to(dtype) if v.dtype.kind == 'f' else torch.from_numpy(v)
           for n, v in inputs.items()}
    logits = net.run(fed)
    target = torch.from_numpy(labels) if labels is not None else logits.argmax(1)
    loss = F.cross_entropy(logits, target)
    loss.backward()
    gradients = {n: w.grad.numpy() for n, w in net.weights.items() if w.grad is not None}
    running = {n: [t.detach().numpy() if hasattr(t, 'numpy') else t for t in r] for n, r in net.running.items()}
    return loss.item(), gradients, running


def as_f64(path, folder):
    """The model with every f32 number as f64."""
    model = onnx.load(str(path))

    def widen(tensor):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))

    for tensor in model.graph.initializer:
        widen(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                widen(attribute.t)
            if node.op_type == 'Cast' and attribute.name == 'to' and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del model.graph.value_info[:]
    made = pathlib.Path(folder) / 'f64.onnx'
    onnx.save(model, str(made))
    return made


def with_classes(path, folder):
    """A net that gives [batch, tokens, width]: its mean over tokens serves as logits."""
    model = onnx.load(str(path))
    graph = model.graph
    if len(graph.output[0].type.tensor_type.shape.dim) != 3:
        return path
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), 'token_axis'))
    old = next(o.version for o in model.opset_import if o.domain in ('', 'ai.onnx')) < 18
    mean = onnx.helper.make_node('ReduceMean', [graph.output[0].name] + ([] if old else ['token_axis']), ['token_mean'],
                                 keepdims=0, **({'axes': [1]} if old else {}))
    graph.node.append(mean)
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info('token_mean', onnx.TensorProto.FLOAT, None))
    made = pathlib.Path(folder) / 'classes.onnx'
    onnx.save(model, str(made))
    return made


def running(path):
    """Names of running statistics."""
    return {n for node in onnx.load(str(path)).graph.node if node.op_type == 'BatchNormalization'
            for n in node.input[3:5]}


def ours(path, inputs, labels, form, runs=1):
    fed = dict(inputs) if labels is None else {**inputs, 'labels': labels}
    with tempfile.TemporaryDirectory() as folder:
        if form.startswith('exact'):
            path, form = as_f64(path, folder), form.replace('exact', 'plain')
            fed = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in fed.items()}
        kind = np.float64 if path.name == 'f64.onnx' else np.float32
        words = [PROGRAM, path, folder, 'top1' if labels is None else 'labels', str(runs), form]
        for i, (name, array) in enumerate(fed.items()):
            file = pathlib.Path(folder) / f'input{i}'
            file.write_bytes(np.ascontiguousarray(array).tobytes())
            words.append(f"{name}={'x'.join(map(str, array.shape))}={file}")
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        facts = dict(line.split(' ', 1) for line in done.stdout.splitlines())
        loss, seconds = float(facts.pop('loss')), float(facts.pop('seconds'))
        batch = running(path) if form.endswith('-train') else ()
        gradients = {name: np.fromfile(pathlib.Path(folder) / f'{n}.bin', np.float64 if name in batch else kind)
                     for n, name in facts.items()}
    return loss, gradients, seconds


def off_by(got, expected):
    """The largest error as a multiple of what is allowed, and the tensor it is in."""
    worst = {n: np.nan_to_num(np.abs(got[n].reshape(-1) - e.reshape(-1)).max() / (LIMIT * np.abs(e).max() + FLOOR),
                              nan=np.inf)
             for n, e in expected.items() if n in got}
    where = max(worst, key=worst.get)
    return worst[where], where


def compare(name, path, inputs, labels, form='fast'):
    train = form.endswith('-train')
    expected_loss, expected, moved = theirs(path, inputs, labels, torch.float64, train)
    loss, got, seconds = ours(path, inputs, labels, form)
    for n, (after, before, keep) in moved.items():
        expected[n], got[n] = after, keep * before + (1 - keep) * got[n]
    missing = [n for n, e in expected.items() if n not in got and np.abs(e).max() > 0]
    worst, where = off_by(got, expected)
    allowed, note = 1.0, ''
    if worst > 1 and form.startswith('fast'):
        own = off_by(theirs(path, inputs, labels, torch.float32, train)[1], expected)[0]
        allowed, note = max(1.0, 2 * own), f'; PyTorch in f32 {own * LIMIT:.1e}'
    good = not missing and worst <= allowed and abs(loss - expected_loss) <= 1e-4 * abs(expected_loss) + 1e-6
    check(f'{name}/{form}', good, f'loss {loss} for {expected_loss}, missing {missing[:3]}, worst in {where}')
    print(f'NOTE {name}/{form}: {len(expected)} tensors, worst {worst * LIMIT:.1e} of the largest gradient{note}; '
          f'{seconds:.3f} s', flush=True)


def zoo(only):
    rng = np.random.default_rng(7)
    for path in sorted(ZOO.glob('*.onnx')):
        x = rng.standard_normal((4, 1, 28, 28)).astype(np.float32)
        labels = rng.integers(0, 10, 4)
        if only and only != path.stem:
            continue
        for form in ('fast', 'exact'):
            compare(f'{path.stem}/labels', path, {'input': x}, labels, form)
            compare(f'{path.stem}/top1', path, {'input': x[:1]}, None, form)
            if running(path):
                compare(f'{path.stem}/labels', path, {'input': x}, labels, f'{form}-train')


def large(folder, only, forms):
    for path in sorted(folder.glob('*.onnx')):
        data = folder / f'{path.stem.removesuffix("_dynamo")}_input.npz'
        if not data.exists() or (only and only != path.stem):
            continue
        with tempfile.TemporaryDirectory() as made:
            for form in forms:
                try:
                    compare(path.stem, with_classes(path, made), dict(np.load(data)), None, form)
                except Exception as error:  # the next net is compared in any case
                    report('FAIL', f'{path.stem}/{form}', str(error)[:300])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--models', type=pathlib.Path)
    parser.add_argument('--only')
    parser.add_argument('--exact', action='store_true')
    options = parser.parse_args()
    zoo(options.only)
    if options.models:
        large(options.models, options.only, ('fast', 'exact') if options.exact else ('fast',))


try:
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(2)
except ImportError:
    report('SKIP', 'gradients', 'torch is not installed')
else:
    main()
finish()

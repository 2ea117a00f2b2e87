# SPDX-License-Identifier: Apache-2.0
"""Structured pruning: a random part of what can be removed is removed from random nets and from the nets at
hand. The smaller model must pass onnx.checker, run in ONNX Runtime and give what the masked dense model gives:
the original with every weight that reads a removed channel set to 0.

    PARE_GRAPHS=N   how many random nets (60); PARE_SEED=N the first one's seed (1)
    PARE_MODELS=DIR third-party models, too"""
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import shape_inference

from _graphs import feed, random_net
from _lib import PARE, ZOO, check, finish, pare_outputs, report
from _prune import test_inputs, third_party_nets

CUT = pathlib.Path(PARE).parent / 'tests' / 'prune_cut'
COUNT, FIRST = int(os.environ.get('PARE_GRAPHS', 60)), int(os.environ.get('PARE_SEED', 1))
TOLERANCE = 1e-5  # of the largest output


def cut(model, folder, fraction, seed, *words):
    """The smaller and the masked model, and what the program printed."""
    out = [os.path.join(folder, name) for name in ('smaller.onnx', 'masked.onnx')]
    done = subprocess.run([CUT, model, *out, str(fraction), str(seed), *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f'exit {done.returncode}: {done.stderr.strip()}')
    lines = done.stdout.splitlines()
    words = lines[0].split()
    facts = {'groups': int(words[1]), 'components': int(words[3]), 'removed': int(words[5]),
             'macs': (float(words[7]), float(words[8])), 'params': (int(words[10]), int(words[11])),
             'seconds': float(words[13])}
    facts['outputs'] = {(w[1], int(w[2])): [int(i) for i in w[3:]] for w in (l.split() for l in lines[1:])}
    return *out, facts


def outputs(path, inputs):
    """name -> array, by ONNX Runtime as the file is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))


def difference(masked, smaller, kept):
    """The largest difference as a part of the largest output; kept: indices of cut outputs' axes."""
    worst = 0.0
    for name, a in masked.items():
        for (tensor, axis), indices in kept.items():
            a = a.take(indices, axis) if tensor == name else a
        b = smaller[name]
        if a.shape != b.shape or not np.isfinite(b).all():
            return float('inf')
        if a.size:
            worst = max(worst, float(np.abs(a.astype(float) - b).max()) / max(float(np.abs(a).max()), 1e-3))
    return worst


def params_of(graph):
    """Elements of the floating-point initializers of a graph and the bodies inside it."""
    own = sum(int(np.prod(t.dims)) for t in graph.initializer
              if t.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE))
    return own + sum(params_of(a.g) for node in graph.node for a in node.attribute if a.HasField('g'))


def macs_of(model, batch=1):
    """Multiply-adds counted from inferred shapes, or None where one is unknown."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in model.graph.input:
        for d in value.type.tensor_type.shape.dim:
            if not d.HasField('dim_value'):
                d.dim_value = batch
    del model.graph.value_info[:]
    model = shape_inference.infer_shapes(model, data_prop=True)
    shape = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
             for v in [*model.graph.value_info, *model.graph.input, *model.graph.output]}
    shape.update({t.name: list(t.dims) for t in model.graph.initializer})
    total = 0
    for node in model.graph.node:
        if node.op_type not in ('Conv', 'ConvTranspose', 'Gemm', 'MatMul'):
            continue
        x, w, y = (shape.get(name) for name in (node.input[0], node.input[1], node.output[0]))
        if not x or not w or not y or 0 in x + w + y:
            return None
        if node.op_type == 'Conv':
            total += int(np.prod(y)) * int(np.prod(w[1:]))
        elif node.op_type == 'ConvTranspose':
            total += int(np.prod(x)) * int(np.prod(w[1:]))
        else:
            total += int(np.prod(y)) * x[-1]
    return total


def judge(model_path, inputs, fraction, seed, *words, ours=False):
    """One model, cut once; the reason why it is wrong, or None."""
    with tempfile.TemporaryDirectory() as folder:
        smaller, masked, facts = cut(model_path, folder, fraction, seed, *words)
        model = onnx.load(smaller)
        if model.ByteSize() < 2 ** 31:
            onnx.checker.check_model(model, full_check=True)
        if facts['params'][1] != params_of(model.graph):
            return facts, f'{params_of(model.graph)} parameters, expected {facts["params"][1]}'
        macs = macs_of(model)
        if macs is not None and macs != facts['macs'][1]:
            return facts, f'{macs} multiply-adds, expected {facts["macs"][1]:.0f}'
        a, b = outputs(masked, inputs), outputs(smaller, inputs)
        worst = difference(a, b, facts['outputs'])
        if worst > TOLERANCE:
            return facts, f'differs by {worst:.2e} of the largest output'
        if ours and not facts['outputs']:
            worst = difference(pare_outputs(masked, inputs), pare_outputs(smaller, inputs), {})
            if worst > TOLERANCE:
                return facts, f'differs by {worst:.2e} in our runtime'
    return facts, None


def random_nets(folder):
    """Random nets; how much of them could be cut is judged at the end, so that the test tests something."""
    cuttable, total, failures = 0, 0, 0
    for seed in range(FIRST, FIRST + COUNT):
        model, blocks = random_net(seed)
        path = os.path.join(folder, f'net{seed}.onnx')
        onnx.save(model, path)
        words = ['outputs'] if seed % 4 == 0 else []
        fraction = (0.25, 0.5, 0.75)[seed % 3]
        try:
            facts, wrong = judge(path, feed(model, seed), fraction, seed, *words, ours=seed % 10 == 0 and 'nested' not in blocks)
        except Exception as error:
            facts, wrong = {'removed': 0}, f'{type(error).__name__}: {str(error)[:300]}'
        cuttable += facts['removed'] > 0
        total += 1
        if wrong:
            failures += 1
            report('FAIL', f'random_net_{seed}', f'{" ".join(blocks)}: {wrong}')
    if not failures:
        report('PASS', 'random_nets', f'{total} nets, seeds {FIRST} to {FIRST + COUNT - 1}, {cuttable} of them cut')
    check('random_nets_are_cut', cuttable >= 0.9 * total, f'only {cuttable} of {total} could be cut')


def zoo_nets():
    for path in sorted(ZOO.glob('*.onnx')):
        rng = np.random.default_rng(0)
        inputs = {'input': rng.standard_normal((2, 1, 28, 28)).astype(np.float32)}
        for fraction in (0.3, 0.6):
            facts, wrong = judge(path, inputs, fraction, 1, ours=True)
            check(f'{path.stem}_{fraction}', not wrong and facts['removed'] > 0, wrong or 'nothing was removed')


def nets_of_others():
    for name, path in third_party_nets():
        try:
            facts, wrong = judge(path, test_inputs(path), 0.4, 1)
        except Exception as error:
            facts, wrong = {'removed': 0}, f'{type(error).__name__}: {str(error)[:300]}'
        check(name, not wrong and facts['removed'] > 0, wrong or 'nothing was removed')


if not os.access(CUT, os.X_OK):
    report('SKIP', 'prune', f'needs {CUT}')
    finish()
with tempfile.TemporaryDirectory() as work:
    random_nets(work)
zoo_nets()
nets_of_others()
finish()

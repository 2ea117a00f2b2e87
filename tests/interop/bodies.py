# SPDX-License-Identifier: Apache-2.0
"""Bodies of If, Loop and Scan: quantized as the main graph is, run by pare and by ONNX Runtime, on integer kernels;
and control flow that is decided before the run, which simplify takes out."""
import json
import os
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import _make
from _lib import check, finish, ort_session, pare, pare_outputs, worst
from _make import B, F, I, constant, info, node

rng = np.random.default_rng(5)


def weight(name, *shape):
    return _make.weight(rng, name, *shape)


def model(nodes, inits, x, outputs=('y',)):
    graph = helper.make_graph(nodes, 'g', [info('x', F, x)], [info(o, F, None) for o in outputs], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


def branch(name, nodes, inits=(), outputs=('r',)):
    return helper.make_graph(nodes, name, [], [info(o, F, None) for o in outputs], list(inits))


def is_positive(x, name):
    """name: is the sum of x positive?"""
    return [node('ReduceSum', [x], [name + '_sum'], keepdims=0), node('Greater', [name + '_sum', 'limit'], [name])]


def convolutions(name, channels):
    """Conv, Relu, Conv: in each branch by the same names."""
    return branch(name, [node('Conv', ['a', 'w1', 'b1'], ['h'], 'conv_1', pads=[1] * 4), node('Relu', ['h'], ['p']),
                         node('Conv', ['p', 'w2'], ['r'], 'conv_2', pads=[1] * 4)],
                  [weight('w1', channels, 8, 3, 3), weight('b1', channels), weight('w2', 6, channels, 3, 3)])


def branches():
    """Both branches convolve, with inner tensors of the same names."""
    return model([node('Conv', ['x', 'w0'], ['c'], pads=[1] * 4), node('Relu', ['c'], ['a']), *is_positive('x', 'go'),
                  node('If', ['go'], ['z'], 'if_1', then_branch=convolutions('then', 16),
                       else_branch=convolutions('else', 12)),
                  node('GlobalAveragePool', ['z'], ['pooled']), node('Flatten', ['pooled'], ['flat']),
                  node('Gemm', ['flat', 'w3'], ['y'])],
                 [constant('limit', 0, np.float32), weight('w0', 8, 3, 3, 3), weight('w3', 6, 5)], ['batch', 3, 12, 12])


def turns(body_nodes, outputs, inits=()):
    return helper.make_graph(body_nodes, 'body', [info('i', I, []), info('go', B, []), info('h', F, ['batch', 32])],
                             [info('go1', B, []), *(info(o, F, ['batch', 32]) for o in outputs)], list(inits))


def states():
    """A loop of six turns over a carried state; all states are an output."""
    body = turns([node('MatMul', ['h', 'w'], ['p'], 'product'), node('Add', ['p', 'b'], ['q']),
                  node('Add', ['q', 'x'], ['s']), node('Tanh', ['s'], ['h1']),
                  node('Identity', ['go'], ['go1']), node('Identity', ['h1'], ['seen'])],
                 ['h1', 'seen'], [weight('w', 32, 32), weight('b', 32)])
    return model([node('Loop', ['n', '', 'x'], ['y', 'all'], 'loop_1', body=body)], [constant('n', 6)],
                 ['batch', 32], ['y', 'all'])


def scanned():
    """Gemm of the state and of each slice."""
    body = helper.make_graph(
        [node('Gemm', ['row', 'wx', 'b'], ['p'], 'gemm_x'), node('Gemm', ['h', 'wh'], ['q'], 'gemm_h', transB=1),
         node('Add', ['p', 'q'], ['s']), node('Relu', ['s'], ['t']), node('Clip', ['t', '', 'six'], ['h1']),
         node('Identity', ['h1'], ['seen'])], 'body', [info('h', F, None), info('row', F, None)],
        [info('h1', F, None), info('seen', F, None)],
        [weight('wx', 24, 32), weight('wh', 32, 32), weight('b', 32), constant('six', 6, np.float32)])
    return model([node('Transpose', ['x'], ['steps'], perm=[1, 0, 2]), node('MatMul', ['x', 'w0'], ['m']),
                  node('ReduceMean', ['m'], ['start'], axes=[1], keepdims=0),
                  node('Scan', ['start', 'steps'], ['y', 'all'], 'scan_1', body=body, num_scan_inputs=1)],
                 [weight('w0', 24, 32)], ['batch', 7, 24], ['y', 'all'])


def nested():
    """A loop inside a branch, by the names of the other branch."""
    body = turns([node('MatMul', ['h', 'w1'], ['p'], 'product'), node('Relu', ['p'], ['h1']),
                  node('Identity', ['go'], ['go1'])], ['h1'], [weight('w1', 32, 32)])
    then = branch('then', [node('Loop', ['n', '', 'a'], ['r'], 'loop_1', body=body)], [constant('n', 3)])
    other = branch('else', [node('MatMul', ['a', 'w1'], ['p'], 'product'), node('Relu', ['p'], ['r'])],
                   [weight('w1', 32, 32)])
    return model([node('MatMul', ['x', 'w0'], ['c']), node('Relu', ['c'], ['a']), *is_positive('x', 'go'),
                  node('If', ['go'], ['y'], 'if_1', then_branch=then, else_branch=other)],
                 [constant('limit', 0, np.float32), weight('w0', 32, 32)], ['batch', 32])


def shared():
    """A weight that the main graph and both branches multiply by, and of which a Gather takes a row as it is."""
    then = branch('then', [node('MatMul', ['a', 'w'], ['p']), node('Relu', ['p'], ['r'])])
    other = branch('else', [node('Gemm', ['a', 'w'], ['p'], transB=1), node('Relu', ['p'], ['r'])])
    return model([node('MatMul', ['x', 'w'], ['a']), *is_positive('x', 'go'),
                  node('If', ['go'], ['z'], 'if_1', then_branch=then, else_branch=other),
                  node('Cast', ['go'], ['at'], to=I), node('Gather', ['w', 'at'], ['row'], axis=0),
                  node('Mul', ['x', 'row'], ['scaled']), node('Add', ['z', 'scaled'], ['y'])],
                 [constant('limit', 0, np.float32), weight('w', 32, 32)], ['batch', 32])


def decided():
    """An If by the rank of x and one by a constant inside it; a branch that returns a constant; loops of one turn and
    of none."""
    deep = branch('deep', [node('MatMul', ['a', 'w1'], ['h']), node('Relu', ['h'], ['r'])], [weight('w1', 32, 32)])
    never = branch('never', [node('Neg', ['a'], ['r'])])
    then = branch('then', [node('Constant', [], ['yes'], value=constant('c', True, np.bool_)),
                           node('If', ['yes'], ['h'], then_branch=deep, else_branch=never),
                           node('Sigmoid', ['h'], ['r']), node('Identity', ['a'], ['t'])], [constant('k', 0.5, np.float32)],
                  ['r', 't', 'k'])
    other = branch('else', [node('Neg', ['a'], ['r']), node('Identity', ['a'], ['t'])], [constant('k', 0.25, np.float32)],
                   ['r', 't', 'k'])
    once = turns([node('MatMul', ['h', 'w1'], ['h1']), node('Cast', ['i'], ['f'], to=F),
                  node('Add', ['h1', 'f'], ['seen']), node('Identity', ['go'], ['go1'])],
                 ['h1', 'seen'], [weight('w1', 32, 32)])
    none = turns([node('Neg', ['h'], ['h1']), node('Identity', ['go'], ['go1'])], ['h1'])
    return model([node('Relu', ['x'], ['a']), node('Shape', ['x'], ['shape']), node('Size', ['shape'], ['rank']),
                  node('Equal', ['rank', 'two'], ['is_matrix']),
                  node('If', ['is_matrix'], ['p', 's', 'k1'], then_branch=then, else_branch=other),
                  node('Loop', ['one', '', 'p'], ['u', 'all'], body=once),
                  node('Loop', ['nought', '', 'u'], ['v'], body=none),
                  node('Sum', ['p', 's', 'v', 'k1'], ['y'])],
                 [constant('two', 2), constant('one', 1), constant('nought', 0)],
                 ['batch', 32], ['y', 'all', 'p'])


MODELS = {f.__name__: f for f in (branches, states, scanned, nested, shared)}


def graphs(graph, depth=0):
    """The graph and its bodies: (graph, how deep)."""
    yield graph, depth
    for n in graph.node:
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from graphs(a.g, depth + 1)


def count(m, op, least_depth=1):
    return sum(n.op_type == op for g, depth in graphs(m.graph) if depth >= least_depth for n in g.node)


def sqnr(got, want):
    noise = float(((got.astype(np.float64) - want) ** 2).sum())
    return 10 * np.log10(float((want.astype(np.float64) ** 2).sum()) / max(noise, 1e-30))


def samples(m, n):
    """Samples of both signs, for both branches."""
    shape = [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim][1:]
    x = rng.standard_normal((n, *shape)).astype(np.float32)
    return x + np.where(np.arange(n) % 2, 0.3, -0.3).reshape([n] + [1] * len(shape)).astype(np.float32)


def dump(folder, x):
    path = os.path.join(folder, 'x.h5')
    with h5py.File(path, 'w') as f:
        f['x'] = x
    return path


def same(name, path, x, tolerance):
    """pare and ONNX Runtime on one file, sample by sample."""
    names = [o.name for o in onnx.load(path).graph.output]
    session, bad = ort_session(path, literal=True), []
    for i in range(4):
        want = session.run(names, {'x': x[i:i + 1]})
        got = pare_outputs(path, {'x': x[i:i + 1]}, names)
        bad += [f'sample {i}, {n}: {worst(got[n], w):.2g} off' for n, w in zip(names, want)
                if got[n].shape != w.shape or not worst(got[n], w) <= tolerance]
    check(name, not bad, '; '.join(bad[:3]))


def quantized(name, m, path, folder, words):
    """INT8: pairs for every product in a body, near the float model, the same in both runtimes. Returns the file."""
    x, out = samples(m, 64), os.path.join(folder, 'int8.onnx')
    pare('quantize', path, '-o', out, '--data', dump(folder, x), '--quiet', *words)
    q = onnx.load(out)
    products = sum(count(m, op) for op in ('Conv', 'Gemm', 'MatMul'))
    check(f'{name}/pairs', count(q, 'DequantizeLinear') >= 2 * products and count(q, 'QuantizeLinear', 0) > 0,
          f'{count(q, "DequantizeLinear")} DequantizeLinear in bodies for {products} products')
    want = [ort_session(path).run(None, {'x': x[i:i + 1]}) for i in range(16)]
    literal = ort_session(out, literal=True)
    got = [literal.run(None, {'x': x[i:i + 1]}) for i in range(16)]
    decibels = min(sqnr(np.concatenate([g[k].ravel() for g in got]), np.concatenate([w[k].ravel() for w in want]))
                   for k in range(len(want[0])))
    check(f'{name}/sqnr', decibels > 20, f'{decibels:.1f} dB')
    same(f'{name}/runtimes', out, x, 0.02)
    return out


def kernels(name, path, folder):
    """What bodies multiply, they multiply as integers."""
    profile = os.path.join(folder, 'profile.json')
    pare('bench', path, '--profile', profile, '--iterations', 5, '--duration', 0.01, '--warmup', 1, '--quiet')
    with open(profile) as f:
        steps = [s for s in json.load(f)['interpreted'] if '/' in s['node'] and s['turns']]
    products = [s for s in steps if s['op_type'] in ('FusedConv', 'FusedMatMul', 'Conv', 'Gemm', 'MatMul')]
    check(name, products and all(s['kernel'].startswith('int8') for s in products),
          str([(s['node'], s['op_type'], s['kernel']) for s in products]))


def names(m, path, folder):
    """Tensors of both branches have statistics of their own; patterns and notes name nodes by their path."""
    facts, out = os.path.join(folder, 'facts.json'), os.path.join(folder, 'part.onnx')
    pare('quantize', path, '-o', out, '--data', dump(folder, samples(m, 64)), '--quiet', '--json', facts,
         '--activations', 'u8', '--skip', 'if_1/then_branch/*')
    with open(facts) as f:
        told = json.load(f)
    tensors = [r['name'] for r in told['ranges']]
    check('names/statistics', len(set(tensors)) == len(tensors) and
          {'if_1/then_branch/p', 'if_1/else_branch/p'} <= set(tensors), str(tensors))
    kept = sorted(n.split(' ')[0] for n in told['notes'])
    check('names/notes', kept == ['if_1/then_branch/conv_1', 'if_1/then_branch/conv_2'], str(kept))
    branch_of = {a.name: a.g for n in onnx.load(out).graph.node if n.op_type == 'If' for a in n.attribute}
    pairs = {k: sum(n.op_type == 'QuantizeLinear' for n in g.node) for k, g in branch_of.items()}
    check('names/skipped', pairs['then_branch'] == 0 < pairs['else_branch'], str(pairs))
    wrong = pare('quantize', path, '-o', out, '--data', dump(folder, samples(m, 64)), '--quiet', '--skip',
                 'if_1/then_brnch/conv_1', ok=False)
    check('names/wrong', wrong.returncode == 2 and 'if_1/then_branch/conv_1' in wrong.stderr, wrong.stderr)


def kept_weight(m, path):
    """The float reader of a shared weight sees the float numbers."""
    inits = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    want = {t.name: numpy_helper.to_array(t) for t in m.graph.initializer}['w']
    check('shared/float', 'w' in inits and np.array_equal(inits['w'], want))


def lowp(name, m, path, folder):
    """FP16 and stored BF16: no weight in a body stays f32, and both runtimes are near the float model."""
    x = samples(m, 4)
    for kind, bits, tolerance in (('fp16', TensorProto.FLOAT16, 2e-3), ('bf16', TensorProto.BFLOAT16, 2e-2)):
        out = os.path.join(folder, kind + '.onnx')
        pare('quantize', path, '-o', out, '--precision', kind, '--quiet')
        inner = [t for g, depth in graphs(onnx.load(out).graph) if depth for t in g.initializer if len(t.dims) > 1]
        want, got = ort_session(path).run(None, {'x': x[:1]})[0], pare_outputs(out, {'x': x[:1]}, ['y'])['y']
        again = ort_session(out).run(None, {'x': x[:1]})[0]
        wide = [t.name for t in inner if t.data_type != bits]
        check(f'{kind}/{name}', not wide and worst(got, want) <= tolerance and worst(again, want) <= tolerance,
              f'{wide}, {worst(got, want):.2g}')


def pruned(name, m, path, folder):
    out = os.path.join(folder, 'pruned.onnx')
    pare('prune', path, '-o', out, '--sparsity', 0.5, '--scope', 'layer', '--quiet')
    zeros = [float((numpy_helper.to_array(t) == 0).mean()) for g, depth in graphs(onnx.load(out).graph) if depth
             for t in g.initializer if len(t.dims) > 1]
    check(f'prune/{name}', zeros and all(abs(z - 0.5) < 0.01 for z in zeros), str(zeros))
    same(f'prune/{name}/runtimes', out, samples(m, 4), 1e-5)


def inlined(folder):
    """simplify takes the branch, the turn, and leaves what only a run decides."""
    m, path, out = decided(), os.path.join(folder, 'decided.onnx'), os.path.join(folder, 'simple.onnx')
    onnx.save(m, path)
    pare('simplify', path, '-o', out, '--quiet')
    simple = onnx.load(out)
    flow = sum(count(simple, op, 0) for op in ('If', 'Loop'))
    check('inlined/simplify', flow == 0 and count(simple, 'MatMul', 0) == 2, f'{flow} are left')
    x, names_ = samples(m, 3), ['y', 'all', 'p']
    for kind, file in (('float', path), ('simplified', out)):
        got, want = pare_outputs(file, {'x': x}, names_), ort_session(path).run(names_, {'x': x})
        again = ort_session(out).run(names_, {'x': x})
        check(f'inlined/{kind}', all(got[n].shape == w.shape and worst(got[n], w) <= 1e-5 and worst(a, w) <= 1e-5
                                     for n, w, a in zip(names_, want, again)))
    profile = os.path.join(folder, 'profile.json')
    pare('bench', path, '--profile', profile, '--iterations', 5, '--duration', 0.01, '--warmup', 1, '--quiet')
    with open(profile) as f:
        check('inlined/plan', 'interpreted' not in json.load(f))


with tempfile.TemporaryDirectory() as scratch:
    for name, make in MODELS.items():
        m, path = make(), os.path.join(scratch, name + '.onnx')
        onnx.save(m, path)
        same(f'float/{name}', path, samples(m, 4), 1e-5)
        for kind, words in (('s8', ()), ('u8', ('--activations', 'u8'))):
            out = quantized(f'{kind}/{name}', m, path, scratch, words)
            kernels(f'{kind}/{name}/kernels', out, scratch)
        lowp(name, m, path, scratch)
        if name == 'branches':
            names(m, path, scratch)
        if name == 'shared':
            kept_weight(m, out)
        else:
            pruned(name, m, path, scratch)
    inlined(scratch)
finish()

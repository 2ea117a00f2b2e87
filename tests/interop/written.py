# SPDX-License-Identifier: Apache-2.0
"""What pare writes of models that are awkward: every node has a name of its own, so that ONNX Runtime loads the file,
with the outputs of before. And what it reads of them: defaults of inputs, bodies that return outer tensors, loops
without turns, many loops in each other, values too large for FP16 inside a body, attention over many tokens."""
import json
import os
import tempfile

import h5py
import numpy as np
import onnx
from onnx import helper

import _make
from _lib import check, finish, ort_session, pare, pare_outputs, worst
from _make import B, F, I, constant, info, node

rng = np.random.default_rng(5)
MS = 'com.microsoft'


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def weight(name, *shape):
    return _make.weight(rng, name, *shape)


def model(nodes, inputs, outputs, inits=(), domains=()):
    graph = helper.make_graph(nodes, 'g', [info(*i) for i in inputs], [info(*o) for o in outputs], list(inits))
    opsets = [helper.make_opsetid('', 17)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def body(nodes, inputs, outputs, inits=()):
    return helper.make_graph(nodes, 'body', [info(*i) for i in inputs], [info(*o) for o in outputs], list(inits))


def at(folder, name, m):
    path = os.path.join(folder, name + '.onnx')
    onnx.save(m, path)
    return path


X, Y = ('x', F, ['N', 8]), ('y', F, ['N', 8])


def tied():
    return model([node('Gemm', ['x', 'w'], ['a'], 'encode', transB=1), node('Gemm', ['a', 'w'], ['y'], 'decode')],
                 [X], [Y], [weight('w', 6, 8)])


def taken(name):
    return model([node('MatMul', ['x', 'w'], ['y'], name)], [X], [Y], [weight('w', 8, 8)])


def skip_norm():
    return model([node('SkipSimplifiedLayerNormalization', ['x', 's', 'g', 'b'], ['y', '', '', 'sum'], 'n', domain=MS)],
                 [('x', F, [2, 6, 8]), ('s', F, [2, 6, 8])], [('y', F, [2, 6, 8]), ('sum', F, [2, 6, 8])],
                 [weight('g', 8), weight('b', 8)], [MS])


def decided():
    def branch(op, out):
        return body([node(op, ['x'], ['h'], 'n1'), node('Neg', ['h'], [out], 'n2')], [], [(out, F, None)])
    return model([node('If', ['c'], ['a'], 'if', then_branch=branch('Relu', 't'), else_branch=branch('Tanh', 'e')),
                  node('Sigmoid', ['a'], ['y'], 'n1')], [X], [Y], [constant('c', True, np.bool_)])


def once():
    turn = body([node('Add', ['h', 'k'], ['h2'], 'n1'), node('Identity', ['go'], ['on'], 'n3')],
                [('i', I, []), ('go', B, []), ('h', F, None)], [('on', B, []), ('h2', F, None)],
                [constant('k', 2, np.float32)])
    return model([node('Loop', ['n', '', 'x'], ['a'], 'loop', body=turn), node('Relu', ['a'], ['y'], 'n1')], [X], [Y],
                 [constant('n', 1)])


def sequence():
    return model([node('MatMul', ['x', 'w'], ['y'], 'fc'), node('Relu', ['y'], ['z'], 'relu'),
                  node('SequenceConstruct', ['x', 'z'], ['s'], 'list'), node('Identity', ['s'], ['t'], 'same'),
                  node('ConcatFromSequence', ['t'], ['c'], 'concat', axis=0)], [X],
                 [('c', F, None)], [weight('w', 8, 8)])


WRITTEN = {
    'sequence_fp16': (sequence, ['quantize', '--precision', 'fp16']),
    'tied_int8': (tied, ['quantize']), 'tied_u8': (tied, ['quantize', '--activations', 'u8']),
    'taken_int8': (lambda: taken('w_DequantizeLinear'), ['quantize']),
    'taken_fp16': (lambda: taken('y_Cast'), ['quantize', '--precision', 'fp16']),
    'contrib': (skip_norm, ['simplify', '--standard']), 'contrib_fp16': (skip_norm, ['quantize', '--precision', 'fp16']),
    'if': (decided, ['simplify']), 'if_fp16': (decided, ['quantize', '--precision', 'fp16']), 'loop': (once, ['simplify']),
}


def written(folder):
    data = os.path.join(folder, 'x.h5')
    with h5py.File(data, 'w') as file:
        file['x'] = floats(512, 8)
    for name, (make, words) in WRITTEN.items():
        m, out = make(), os.path.join(folder, 'out.onnx')
        path = at(folder, name, m)
        more = ['--data', data] if words[0] == 'quantize' and 'fp16' not in words else []
        pare(*words[:1], path, '-o', out, *words[1:], *more, '-q')
        names = [n.name for n in onnx.load(out).graph.node if n.name]
        check(f'{name}/names', len(names) == len(set(names)), str(sorted(names)))
        session = ort_session(path)
        feeds = {i.name: floats(*[d if isinstance(d, int) else 3 for d in i.shape]) for i in session.get_inputs()}
        far = worst(ort_session(out, True).run(None, feeds)[0], session.run(None, feeds)[0])
        check(f'{name}/outputs', far <= (1e-5 if words[0] == 'simplify' else 0.05), f'{far:.3g} apart')


def defaults(folder):
    path = at(folder, 'default', model([node('MatMul', ['x', 'w=v'], ['y'], 'mm')], [X, ('w=v', F, [8, 8])], [Y],
                                       [weight('w=v', 8, 8)]))
    feeds, session = {'x': floats(3, 8)}, ort_session(path)
    check('default/taken', worst(pare_outputs(path, feeds)['y'], session.run(None, feeds)[0]) <= 1e-6)
    feeds['w=v'] = floats(8, 8)
    check('default/given', worst(pare_outputs(path, feeds)['y'], session.run(None, feeds)[0]) <= 1e-6)


def declared(folder):
    """check: outputs that are declared as they are not; a problem is said once."""
    for name, out, words in (('type', ('y', I, ['N', 8]), 'declared as int64, but float'),
                             ('shape', ('y', F, ['N', 7]), 'declared with shape [N,7], but has [N,8]')):
        path = at(folder, name, model([node('MatMul', ['x', 'w'], ['y'], 'fc')], [X], [out], [weight('w', 8, 8)]))
        done = pare('check', path, ok=False)
        check(f'declared/{name}', done.returncode == 1 and words in done.stdout and '1 problem' in done.stderr,
              done.stdout + done.stderr)
    path = at(folder, 'axis', model([node('Transpose', ['x'], ['y'], 'turn', perm=[0, 5])], [X], [Y]))
    done = pare('check', path, ok=False)
    check('declared/once', done.stdout.count("'turn'") == 1 and '1 problem' in done.stderr, done.stdout)


def returned(folder):
    """An inner If returns a tensor of the body around it, which takes the place of its node."""
    inner = node('If', ['d'], ['r'], 'inner', then_branch=body([], [], [('t', F, None)]),
                 else_branch=body([node('Neg', ['t'], ['n'], 'neg')], [], [('n', F, None)]))
    outer = body([node('Relu', ['x'], ['t'], 'relu'), inner], [], [('r', F, None)])
    other = body([node('Tanh', ['x'], ['o'], 'tanh')], [], [('o', F, None)])
    m = model([node('ReduceSum', ['x'], ['s'], 'sum', keepdims=0), node('Less', ['s', 'nought'], ['d'], 'less'),
               node('If', ['c'], ['y'], 'outer', then_branch=outer, else_branch=other)], [X], [Y],
              [constant('c', True, np.bool_), constant('nought', 0, np.float32)])
    path, x = at(folder, 'returned', m), np.abs(floats(3, 8))
    for name, given, want in (('neg', x, -x), ('itself', -x, 0 * x)):
        check(f'returned/{name}', np.array_equal(pare_outputs(path, {'x': given}, ['y'])['y'], want))


def loops(folder):
    states = [f's{i}' for i in range(12)]
    turn = body([node('Identity', ['go'], ['on'])] + [node('Neg', [s], [s + 'n']) for s in states[:1]],
                [('i', I, []), ('go', B, [])] + [(s, F, [3]) for s in states], [('on', B, []), ('s0n', F, [3])])
    m = model([node('Loop', ['n', '', *['x'] * 12], ['y'], 'loop', body=turn)], [('x', F, [3])], [('y', F, [3])],
              [constant('n', 0)])
    path = at(folder, 'states', m)
    for command in (['check', path], ['simplify', path, '-o', os.path.join(folder, 'o.onnx')]):
        done = pare(*command, ok=False)
        check(f'states/{command[0]}', done.returncode == 1 and "'loop'" in done.stdout + done.stderr and
              '12 states' in done.stdout + done.stderr, f'exit {done.returncode}: {done.stderr}')
    inner = [node('Neg', ['h0'], ['r0'], 'neg')]
    for depth in range(1, 19):
        turn = body(inner + [node('Identity', [f'go{depth}'], [f'on{depth}'])],
                    [(f'i{depth}', I, []), (f'go{depth}', B, []), (f'h{depth - 1}', F, None)],
                    [(f'on{depth}', B, []), (f'r{depth - 1}', F, None)])
        inner = [node('Loop', ['two', '', f'h{depth}'], [f'r{depth}'], f'loop{depth}', body=turn)]
    m = model([node('Relu', ['x'], ['h18'], 'relu')] + inner + [node('Neg', ['r18'], ['y'])], [X], [Y],
              [constant('two', 1)])
    done = pare('check', at(folder, 'deep', m), ok=False)  # it ends
    check('deep/check', done.returncode == 0, done.stderr)


def large_in_body(folder):
    """FP16 keeps what is given to a body, and what works on it, in f32."""
    turn = body([node('Mul', ['h', 'small'], ['z'], 'mul'), node('Div', ['z', 'small'], ['h2'], 'div'),
                 node('Identity', ['go'], ['on'])], [('i', I, []), ('go', B, []), ('h', F, None)],
                [('on', B, []), ('h2', F, None)], [constant('small', 1e-3, np.float32)])
    m = model([node('MatMul', ['x', 'w'], ['a'], 'fc'), node('Mul', ['a', 'large'], ['b'], 'enlarge'),
               node('Loop', ['n', '', 'b'], ['y'], 'loop', body=turn)], [X], [Y],
              [weight('w', 8, 8), constant('large', 1e6, np.float32), constant('n', 3)])
    path, out, data = at(folder, 'large', m), os.path.join(folder, 'o.onnx'), os.path.join(folder, 'x.h5')
    pare('quantize', path, '-o', out, '--precision', 'fp16', '--data', data, '-q')
    x = floats(3, 8)
    got, want = pare_outputs(out, {'x': x})['y'], ort_session(path).run(None, {'x': x})[0]
    check('large_in_body', np.isfinite(got).all() and worst(got, want) < 1e-2, f'{got.ravel()[:4]}, {want.ravel()[:4]}')


def attention(folder):
    """Softmax over 600 keys: each gets less than a step of [0, 1]."""
    m = model([node('Transpose', ['x'], ['xt'], 't', perm=[0, 2, 1]), node('MatMul', ['x', 'xt'], ['s'], 'qk'),
               node('Softmax', ['s'], ['p'], 'softmax', axis=-1), node('MatMul', ['p', 'x'], ['y'], 'pv')],
              [('x', F, ['N', 600, 4])], [('y', F, ['N', 600, 4])])
    path, out, data = at(folder, 'attention', m), os.path.join(folder, 'o.onnx'), os.path.join(folder, 'tokens.h5')
    with h5py.File(data, 'w') as file:
        file['x'] = 0.5 * floats(8, 600, 4) + np.float32(0.3)
    for kind in ('s8', 'u8'):
        facts = os.path.join(folder, 'facts.json')
        pare('quantize', path, '-o', out, '--data', data, '--activations', kind, '-q')
        pare('validate', path, out, '--data', data, '--json', facts, '-q')
        with open(facts) as file:
            decibels = json.load(file)['models'][1]['outputs'][0]['sqnr_db']
        check(f'attention/{kind}', decibels > 20, f'{decibels:.1f} dB')


with tempfile.TemporaryDirectory() as scratch:
    for part in (written, defaults, declared, returned, loops, large_in_body, attention):
        part(scratch)
finish()

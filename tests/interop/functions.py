# SPDX-License-Identifier: Apache-2.0
"""Models with functions of their own, which pare inlines when it reads them: against ONNX Runtime, and
those that must be refused."""
import os
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

from _lib import check, finish, ort_session, pare, pare_outputs

rng = np.random.default_rng(11)
F = TensorProto.FLOAT
ONNX = helper.make_opsetid('', 18)
MINE = helper.make_opsetid('mine', 1)


def ref(node, name, of, kind):
    """Adds an attribute that refers to one of the function's."""
    a = node.attribute.add()
    a.name, a.ref_attr_name, a.type = name, of, kind
    return node


def function(name, ins, outs, nodes, attributes=(), defaults=(), imports=(ONNX, MINE), **more):
    return helper.make_function('mine', name, ins, outs, nodes, list(imports), list(attributes),
                                list(defaults), **more)


def model(nodes, functions, outputs=('y',), opset=18, inputs=('x',), more=()):
    infos = [helper.make_tensor_value_info(i, F, [3, 4]) for i in inputs] + list(more)
    graph = helper.make_graph(nodes, 'g', infos, [helper.make_tensor_value_info(o, F, None) for o in outputs])
    return helper.make_model(graph, functions=functions, ir_version=10,
                             opset_imports=[helper.make_opsetid('', opset), MINE])


def node(op, ins, outs, domain='', **attributes):
    return helper.make_node(op, ins, outs, domain=domain, **attributes)


def mine(op, ins, outs, **attributes):
    return node(op, ins, outs, 'mine', **attributes)


def constant(name, value):
    return node('Constant', [], [name], value_float=float(value))


LEAKY = function('Leaky', ['a'], ['b'], [ref(node('LeakyRelu', ['a'], ['t']), 'alpha', 'slope', 1),
                                         node('Neg', ['t'], ['b'])],
                 defaults=[helper.make_attribute('slope', 0.25)])
OPTIONAL_SLOPE = function('Soft', ['a'], ['b'], [ref(node('LeakyRelu', ['a'], ['b']), 'alpha', 'slope', 1)],
                          attributes=['slope'])
NESTED = function('Twice', ['a'], ['b', 'a2'], [
    ref(mine('Leaky', ['a'], ['t']), 'slope', 'outer', 1), mine('Leaky', ['t'], ['b'], slope=0.5),
    node('Add', ['a', 'b'], ['a2'])], attributes=['outer'])
CLIP = function('Limit', ['a', 'low'], ['b'], [node('Clip', ['a', 'low'], ['b'])])
PASS = function('Pass', ['a'], ['b', 'a'], [node('Abs', ['a'], ['b'])])


def branch(name, nodes, out):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(out, F, None)])


def conditional(prefix=''):
    """If inside a function: both branches read the function's input and call another function."""
    then = branch('then', [ref(mine('Leaky', ['a'], ['r']), 'slope', 'slope', 1)], 'r')
    other = branch('else', [node('Mul', ['a', 't'], ['r'])], 'r')
    return function('Choose', ['a', 'c'], ['b'], [
        node('Exp', ['a'], ['t']), node('If', ['c'], ['b'], then_branch=then, else_branch=other)],
        attributes=['slope'])


def conditional_model():
    then = branch('then', [mine('Twice', ['x'], ['r', 's'], outer=0.1)], 'r')
    other = branch('else', [mine('Choose', ['x', 'c'], ['r'], slope=0.3)], 'r')
    return model([mine('Choose', ['x', 'c'], ['t'], slope=0.2), mine('Choose', ['t', 'c'], ['r'], slope=0.7),
                  node('If', ['c'], ['u'], then_branch=then, else_branch=other),
                  node('Add', ['r', 'u'], ['y'])],
                 [LEAKY, NESTED, conditional()],
                 more=[helper.make_tensor_value_info('c', TensorProto.BOOL, [])])


def looped_model():
    body = helper.make_graph(
        [mine('Leaky', ['v'], ['v1'], slope=0.9), node('Identity', ['go'], ['go1'])], 'body',
        [helper.make_tensor_value_info('i', TensorProto.INT64, []),
         helper.make_tensor_value_info('go', TensorProto.BOOL, []), helper.make_tensor_value_info('v', F, [3, 4])],
        [helper.make_tensor_value_info('go1', TensorProto.BOOL, []), helper.make_tensor_value_info('v1', F, [3, 4])])
    return model([node('Constant', [], ['n'], value_int=3), node('Loop', ['n', '', 'x'], ['y'], body=body)], [LEAKY])


def older_model():
    """A function of opset 12 in a model of opset 18: Softmax flattens, ReduceMean has an attribute."""
    old = function('Old', ['a'], ['b'], [node('Softmax', ['a'], ['t'], axis=0),
                                         node('ReduceMean', ['t'], ['m'], axes=[0]),
                                         node('Add', ['t', 'm'], ['b'])], imports=[helper.make_opsetid('', 12)])
    return model([node('Softmax', ['x'], ['t'], axis=0), mine('Old', ['t'], ['y'])], [old])


def newer_model():
    new = function('New', ['a'], ['b'], [constant('k', 2), node('Mul', ['a', 'k'], ['t']),
                                         node('Softmax', ['t'], ['b'], axis=0)], imports=[ONNX])
    return model([node('Softmax', ['x'], ['t'], axis=0), mine('New', ['t'], ['y'])], [new], opset=11)


def overloads_model():
    one = function('Over', ['a'], ['b'], [node('Abs', ['a'], ['b'])], overload='one')
    two = function('Over', ['a'], ['b'], [node('Neg', ['a'], ['b'])], overload='two')
    calls = [mine('Over', ['x'], ['t']), mine('Over', ['t'], ['y'])]
    calls[0].overload, calls[1].overload = 'one', 'two'
    return model(calls, [one, two])


GOOD = [
    ('default_attribute', model([mine('Leaky', ['x'], ['y'])], [LEAKY]), None),
    ('attribute', model([mine('Leaky', ['x'], ['y'], slope=0.75)], [LEAKY]), None),
    ('absent_attribute', model([mine('Soft', ['x'], ['y'])], [OPTIONAL_SLOPE]), None),
    ('nested', model([mine('Twice', ['x'], ['t', 'z'], outer=0.1), mine('Twice', ['t'], ['y', ''], outer=0.2)],
                     [NESTED, LEAKY], ['y', 'z']), None),
    ('absent_input', model([mine('Limit', ['x'], ['y'])], [CLIP]), None),
    ('input_as_output', model([mine('Pass', ['x'], ['y', 'z'])], [PASS], ['y', 'z']), 'pass'),
    ('names_in_use', model([node('Exp', ['x'], ['t']), mine('Leaky', ['t'], ['a']), mine('Leaky', ['a'], ['y'])],
                           [LEAKY]), None),
    ('in_branches', conditional_model(), None),
    ('in_loop', looped_model(), None),
    # ONNX Runtime refuses these or reads a function by the model's opset: NumPy says what ONNX says
    ('older_opset', older_model(), 'older'),
    ('newer_opset', newer_model(), 'newer'),
    ('overloads', overloads_model(), 'overloads'),
]


def softmax(a, axis=None):
    e = np.exp(a - a.max(axis, keepdims=axis is not None))
    return e / e.sum(axis, keepdims=axis is not None)


def by_hand(case, x):
    if case == 'pass':
        return [abs(x), x]
    if case == 'overloads':
        return [-abs(x)]
    if case == 'older':
        t = softmax(softmax(x, 0))
        return [t + t.mean(0, keepdims=True)]
    return [softmax(2 * softmax(x), 0)]


def run_good(folder):
    for name, m, case in GOOD:
        path = os.path.join(folder, name + '.onnx')
        onnx.save(m, path)
        worst = 0
        for c in (True, False) if name == 'in_branches' else (None,):
            feeds = {'x': rng.standard_normal((3, 4)).astype(np.float32)}
            if c is not None:
                feeds['c'] = np.array(c)
            names = [o.name for o in m.graph.output]
            want = by_hand(case, feeds['x']) if case else ort_session(path, literal=True).run(names, feeds)
            got = pare_outputs(path, feeds, names)
            worst = max([worst] + [float(abs(got[n] - w).max()) for n, w in zip(names, want)])
        check('inlined/' + name, worst < 1e-6, f'largest error {worst}')


def chain(count):
    """f0 calls f1 twice, f1 calls f2 twice, ...: 2^count nodes."""
    made = [function(f'f{i}', ['a'], ['b'], [mine(f'f{i + 1}', ['a'], ['t']), mine(f'f{i + 1}', ['t'], ['b'])])
            for i in range(count)]
    return made + [function(f'f{count}', ['a'], ['b'], [node('Neg', ['a'], ['b'])])]


BAD = [
    ('recursion', [function('A', ['a'], ['b'], [mine('B', ['a'], ['b'])]),
                   function('B', ['a'], ['b'], [mine('A', ['a'], ['b'])])], mine('A', ['x'], ['y']),
     'the function calls itself'),
    ('deep', [function(f'f{i}', ['a'], ['b'], [mine(f'f{i + 1}', ['a'], ['b'])]) for i in range(80)],
     mine('f0', ['x'], ['y']), 'deeper than 64'),
    ('many', chain(40), mine('f0', ['x'], ['y']), 'nodes'),
    ('inputs', [LEAKY], mine('Leaky', ['x', 'x'], ['y']), 'it gives 2 inputs to a function of 1'),
    ('outputs', [LEAKY], mine('Leaky', ['x'], ['y', 'z']), 'it takes 2 outputs of a function of 1'),
    ('twice', [LEAKY, LEAKY], mine('Leaky', ['x'], ['y']), 'two functions of the model have this name'),
    ('type', [LEAKY], mine('Leaky', ['x'], ['y'], slope=3), "attribute 'slope' is of type 2"),
    ('undefined', [function('F', ['a'], ['b'], [node('Add', ['a', 'q'], ['b'])])], mine('F', ['x'], ['y']), '/q'),
    ('unknown', [function('F', ['a'], ['b'], [mine('G', ['a'], ['b'])])], mine('F', ['x'], ['y']), 'mine'),
]


def run_bad(folder):
    for name, functions, call, words in BAD:
        path = os.path.join(folder, name + '.onnx')
        call.name = 'call'
        onnx.save(model([call], functions), path)
        np.save(os.path.join(folder, 'x.npy'), np.zeros((3, 4), np.float32))
        done = pare('run', path, '--input', 'x=' + os.path.join(folder, 'x.npy'), '-o',
                    os.path.join(folder, 'out'), '--quiet', ok=False)
        lines = done.stderr.strip().splitlines()
        check('refused/' + name, done.returncode == 1 and len(lines) == 1 and words in done.stderr and
              name + '.onnx' in done.stderr and (name == 'unknown' or 'call' in done.stderr), f'exit {done.returncode}: {done.stderr}')
        done = pare('check', path, ok=False)
        check('checked/' + name, done.returncode == 1, f'exit {done.returncode}: {done.stdout}')


with tempfile.TemporaryDirectory() as scratch:
    run_good(scratch)
    run_bad(scratch)
finish()

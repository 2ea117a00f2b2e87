# SPDX-License-Identifier: Apache-2.0
"""Strings: operators that move or compare them against ONNX's reference evaluator (ONNX Runtime 1.32 loses all but
the first string of a gathered row), and a classifier that gives its label as text through every command that
converts models."""
import json
import os
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from _lib import check, finish, ort_session, pare
from _make import B, F, S, constant, info, node

rng = np.random.default_rng(5)
WORDS = ['cat', '', 'Grüße', 'a longer text with blanks', 'dog', '狐', 'x', 'cat']


def texts(name, *shape):
    count = int(np.prod(shape, dtype=int))
    return helper.make_tensor(name, S, shape, [WORDS[i % len(WORDS)].encode() for i in range(3, 3 + count)])


def saved(folder, nodes, outputs, constants):
    graph = helper.make_graph(nodes, 'g', [info('x', F, ['n', 4])], outputs, constants)
    path = os.path.join(folder, 'net.onnx')
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 19)], ir_version=9), path)
    return path


def outputs_of(path, data, folder):
    """Output name -> (samples, ...) from `pare run`."""
    out = os.path.join(folder, 'out.h5')
    if os.path.exists(out):
        os.remove(out)
    pare('run', path, '--data', data, '-o', out, '-q')
    with h5py.File(out) as file:
        return {name: (file[name].asstr() if h5py.check_string_dtype(file[name].dtype) else file[name])[...]
                for name in file}


def theirs(path, x):
    session = ort_session(path)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {'x': x})))


def gives_y(op, inputs, **attributes):
    """A node on constants; `pick`, class numbers of the samples, keeps it from being folded."""
    return node(op, inputs, ['y'], op, **attributes)


# operator: node on t (5), u (3, 4), v (3, 4), pick (n), truth (n, 1); the output's type and shape
CASES = {
    'gather': (gives_y('Gather', ['t', 'pick']), S, ['n']),
    'gather_rows': (gives_y('Gather', ['u', 'pick']), S, ['n', 4]),
    'gather_elements': (gives_y('GatherElements', ['t', 'pick']), S, ['n']),
    'gather_nd': (gives_y('GatherND', ['u', 'column']), S, ['n', 4]),
    'where': (gives_y('Where', ['truth', 'one', 'other']), S, ['n', 4]),
    'equal': (gives_y('Equal', ['rows', 'one']), B, ['n', 4]),
    'equal_all': (gives_y('Equal', ['rows', 'same']), B, ['n', 4]),
    'concat': (gives_y('Concat', ['rows', 'rows'], axis=1), S, ['n', 8]),
    'slice': (gives_y('Slice', ['rows', 'from', 'to', 'axis', 'step']), S, ['n', 2]),
    'reshape': (gives_y('Reshape', ['rows', 'shape']), S, ['n', 2, 2]),
    'transpose': (gives_y('Transpose', ['rows3'], perm=[0, 2, 1]), S, ['n', 2, 2]),
    'expand': (gives_y('Expand', ['labels', 'wide']), S, ['n', 3]),
    'tile': (gives_y('Tile', ['rows', 'twice']), S, ['n', 8]),
    'unsqueeze': (gives_y('Unsqueeze', ['rows', 'axis']), S, ['n', 1, 4]),
    'identity': (gives_y('Identity', ['rows']), S, ['n', 4]),
}
BEFORE = {'rows': [node('Gather', ['u', 'pick'], ['rows'])],
          'rows3': [node('Gather', ['u', 'pick'], ['rows0']),
                    node('Reshape', ['rows0', 'shape'], ['rows3'])],
          'labels': [node('Gather', ['column1', 'pick'], ['labels'])],
          'column': [node('Unsqueeze', ['pick', 'axis'], ['column'])],
          'truth': [node('Unsqueeze', ['pick', 'axis'], ['column']),
                    node('Cast', ['column'], ['truth'], to=B)]}


def moves():
    x = rng.standard_normal((9, 4)).astype(np.float32)
    constants = {'t': texts('t', 5), 'u': texts('u', 3, 4), 'one': texts('one', 4), 'other': texts('other', 1, 4),
                 'same': helper.make_tensor('same', S, [1], [b'cat']), 'column1': texts('column1', 3, 1),
                 'from': constant('from', [3]), 'to': constant('to', [-5]), 'axis': constant('axis', [1]),
                 'step': constant('step', [-2]), 'shape': constant('shape', [-1, 2, 2]), 'wide': constant('wide', [1, 3]),
                 'twice': constant('twice', [1, 2]),
                 'w': numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), 'w')}
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, 'x.h5')
        with h5py.File(data, 'w') as file:
            file['x'] = x
        for name, (last, kind, shape) in CASES.items():
            nodes = [node('MatMul', ['x', 'w'], ['z'], 'fc'),
                     node('ArgMax', ['z'], ['pick'], axis=1, keepdims=0)]
            for need in dict.fromkeys(last.input):
                nodes += BEFORE.get(need, [])
            nodes.append(last)
            read = {i for n in nodes for i in n.input}
            path = saved(folder, nodes, [info('y', kind, shape)], [t for n, t in constants.items() if n in read])
            ours, wanted = outputs_of(path, data, folder)['y'], ReferenceEvaluator(path).run(None, {'x': x})[0]
            check(f'strings/{name}', ours.shape == wanted.shape and np.array_equal(ours, wanted.astype(ours.dtype)),
                  f'{ours.ravel()[:6]} and {wanted.ravel()[:6]}')


def classifier(folder):
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
               for n, s in (('w1', (4, 64)), ('w2', (64, 3)))]
    nodes = [node('MatMul', ['x', 'w1'], ['h'], 'hidden'), node('Relu', ['h'], ['r'], 'relu'),
             node('MatMul', ['r', 'w2'], ['scores'], 'classes'),
             node('ArgMax', ['scores'], ['best'], 'best', axis=1, keepdims=0),
             node('Gather', ['names', 'best'], ['label'], 'label')]
    names = helper.make_tensor('names', S, [3], [w.encode() for w in ('Hund', 'Katze', '狐')])
    return saved(folder, nodes, [info('label', S, ['n']), info('scores', F, ['n', 3])], weights + [names])


def through_commands():
    x = rng.standard_normal((600, 4)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        data, facts = os.path.join(folder, 'x.h5'), os.path.join(folder, 'facts.json')
        with h5py.File(data, 'w') as file:
            file['x'] = x
        path = classifier(folder)
        made = {name: os.path.join(folder, name + '.onnx') for name in ('int8', 'fp16', 'pruned', 'simple')}
        pare('quantize', path, '--data', data, '-o', made['int8'], '-q')
        pare('quantize', path, '--precision', 'fp16', '-o', made['fp16'], '-q')
        pare('prune', path, '--sparsity', '0.3', '-o', made['pruned'], '-q')
        pare('simplify', path, '-o', made['simple'], '-q')
        labels = theirs(path, x)['label']
        for name, file in made.items():
            kept = next(t for t in onnx.load(file).graph.initializer if t.data_type == S)
            check(f'strings/{name}_kept', list(kept.string_data) == [w.encode() for w in ('Hund', 'Katze', '狐')])
            ours, ort = outputs_of(file, data, folder)['label'], theirs(file, x)['label']
            same = np.mean(ours == ort)
            # INT8 and FP16 scores may tie
            check(f'strings/{name}_labels', same >= (0.99 if name in ('int8', 'fp16') else 1), f'{same:.3f} are equal')
            check(f'strings/{name}_near', np.mean(ours == labels) > 0.8, f'{np.mean(ours == labels):.3f}')
        pare('validate', path, made['int8'], '--data', data, '--json', facts, '-q')
        with open(facts) as file:
            said = json.load(file)['models'][1]
        check('strings/validate_numbers', [o['name'] for o in said['outputs']] == ['scores'], str(said))
        equal = 100 * np.mean(outputs_of(made['int8'], data, folder)['label'] == outputs_of(path, data, folder)['label'])
        check('strings/validate_texts', [t['name'] for t in said['texts']] == ['label'] and
              abs(said['texts'][0]['equal'] - equal) < 1e-6 and abs(said['agreement'] - equal) < 1e-6, str(said))
        bad = pare('run', path, '--input', f'x={save(folder, x)}', '-o', folder, ok=False)
        check('strings/no_npy', bad.returncode == 1 and 'label.npy' in bad.stderr and 'string' in bad.stderr, bad.stderr)


def save(folder, x):
    path = os.path.join(folder, 'x.npy')
    np.save(path, x)
    return path


def elsewhere():
    """Strings in external data are refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = classifier(folder)
        net = onnx.load(path)
        names = next(t for t in net.graph.initializer if t.data_type == S)
        del names.string_data[:]
        names.data_location = TensorProto.EXTERNAL
        for key, value in (('location', 'net.data'), ('length', '48')):
            entry = names.external_data.add()
            entry.key, entry.value = key, value
        with open(os.path.join(folder, 'net.data'), 'wb') as file:
            file.write(b'\x01' * 48)
        with open(path, 'wb') as file:
            file.write(net.SerializeToString())
        done = pare('inspect', path, ok=False)
        check('strings/external_refused', done.returncode == 1 and "'names'" in done.stderr and 'string_data' in done.stderr,
              f'exit {done.returncode}: {done.stderr}')


def not_added():
    # one label replaced by an addition of strings, which ONNX does not define
    with tempfile.TemporaryDirectory() as folder:
        nodes = [node('MatMul', ['x', 'w'], ['z'], 'fc'), node('ArgMax', ['z'], ['pick'], axis=1, keepdims=0),
                 node('Gather', ['t', 'pick'], ['u'], 'u'),
                 node('ScatterElements', ['u', 'at', 'one'], ['y'], 'scatter', reduction='add')]
        path = saved(folder, nodes, [info('y', S, ['n'])],
                     [texts('t', 5), constant('at', [0]), texts('one', 1),
                      numpy_helper.from_array(rng.standard_normal((4, 3)).astype(np.float32), 'w')])
        done = pare('run', path, '--input', f'x={save(folder, np.ones((2, 4), np.float32))}', '-o', folder, ok=False)
        check('strings/not_added', done.returncode == 1 and "'scatter'" in done.stderr and 'string' in done.stderr,
              done.stderr)


moves()
not_added()
through_commands()
elsewhere()
finish()

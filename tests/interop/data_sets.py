# SPDX-License-Identifier: Apache-2.0
"""Data sets for models whose inputs have no batch axis, are scalars, are integers, or have a fixed batch: what
`pare run --data` writes against ONNX Runtime sample by sample, statistics against those of single samples, INT8,
and what is refused."""
import os
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper

import _make
from _lib import check, finish, ort_session, pare, worst
from _make import F, I, constant, info, node

SAMPLES = 9
rng = np.random.default_rng(5)


def weight(name, *shape):
    return _make.weight(rng, name, *shape)


def model(nodes, inputs, outputs, inits):
    graph = helper.make_graph(nodes, 'g', [info(*i) for i in inputs], [info(o, k, None) for o, k in outputs], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


def normal(*shape):
    return rng.standard_normal((SAMPLES,) + shape).astype(np.float32)


def detector():
    """An image without a batch axis; as many boxes as NonMaxSuppression leaves, none in the darkest image."""
    nodes = [node('Unsqueeze', ['x', 'i0'], ['x1']), node('Conv', ['x1', 'w0'], ['h0'], pads=[1, 1, 1, 1]),
             node('Relu', ['h0'], ['h1']), node('Conv', ['h1', 'w1', 'b1'], ['head1'], strides=[4, 4]),
             node('Squeeze', ['head1', 'i0'], ['head']), node('Reshape', ['head', 'flat'], ['rows0']),
             node('Transpose', ['rows0'], ['rows'], perm=[1, 0]), node('Slice', ['rows', 'i0', 'i2', 'i1'], ['corner']),
             node('Slice', ['rows', 'i2', 'i4', 'i1'], ['size0']), node('Abs', ['size0'], ['size']),
             node('Add', ['corner', 'size'], ['end']), node('Concat', ['corner', 'end'], ['all'], axis=1),
             node('Unsqueeze', ['all', 'i0'], ['boxes1']), node('Slice', ['rows', 'i4', 'i5', 'i1'], ['s0']),
             node('Sigmoid', ['s0'], ['s1']), node('Transpose', ['s1'], ['s2'], perm=[1, 0]),
             node('Unsqueeze', ['s2', 'i0'], ['s3']),
             node('NonMaxSuppression', ['boxes1', 's3', 'most', 'overlap', 'least'], ['kept']),
             node('Gather', ['kept', 'two'], ['at'], axis=1), node('Gather', ['all', 'at'], ['boxes'], axis=0),
             node('Gather', ['s1', 'at'], ['scores'], axis=0), node('NonZero', ['at'], ['where'])]
    inits = [constant(f'i{i}', [i]) for i in (0, 1, 2, 4, 5)] + [
        weight('w0', 8, 3, 3, 3), weight('w1', 5, 8, 4, 4), constant('b1', [0, 0, 0, 0, -1], np.float32),
        constant('flat', [5, -1]), constant('two', 2), constant('most', [20]), constant('overlap', [0.3], np.float32),
        constant('least', [0.35], np.float32)]
    data = {'x': normal(3, 32, 32) * np.linspace(0, 3, SAMPLES, dtype=np.float32)[:, None, None, None]}
    return model(nodes, [('x', F, [3, 32, 32])], [('boxes', F), ('scores', F), ('where', I), ('head', F)], inits), data


def attending():
    """Attention among as many rows as the sample selects: products whose inner size only a run knows."""
    nodes = [node('Gather', ['x', 'zero'], ['first'], axis=1), node('Greater', ['first', 'limit'], ['keep']),
             node('Compress', ['x', 'keep'], ['rows'], axis=0), node('MatMul', ['rows', 'w'], ['k']),
             node('Transpose', ['k'], ['kt'], perm=[1, 0]), node('MatMul', ['rows', 'kt'], ['s']),
             node('Softmax', ['s'], ['p'], axis=-1), node('MatMul', ['p', 'k'], ['y']),
             node('ReduceMean', ['y'], ['mean'], axes=[0], keepdims=0)]
    inits = [constant('zero', 0), constant('limit', 0, np.float32), weight('w', 6, 6)]
    data = {'x': normal(12, 6)}
    data['x'][:, 0, 0] = 1  # at least one row
    return model(nodes, [('x', F, [12, 6])], [('y', F), ('mean', F)], inits), data


def recurrent():
    """Time is the first axis; states come in and go out; a scalar for each sample and one for all."""
    nodes = [node('Div', ['x', 'gain'], ['x1']),
             node('LSTM', ['x1', 'w', 'r', '', '', 'h', 'c'], ['y0', 'h1', 'c1'], hidden_size=24),
             node('Squeeze', ['y0', 'one'], ['y1']), node('MatMul', ['y1', 'out'], ['y2']),
             node('Cast', ['rate'], ['rate1'], to=F), node('Div', ['y2', 'rate1'], ['y'])]
    inits = [weight('w', 1, 96, 16), weight('r', 1, 96, 24), weight('out', 24, 4), constant('one', [1])]
    inputs = [('x', F, ['time', 1, 16]), ('h', F, [1, 1, 24]), ('c', F, [1, 1, 24]), ('gain', F, []), ('rate', I, [])]
    data = {'x': normal(12, 1, 16), 'h': normal(1, 1, 24), 'c': np.zeros((1, 1, 1, 24), np.float32),
            'gain': np.linspace(1, 2, SAMPLES, dtype=np.float32), 'rate': np.array(3)}
    return model(nodes, inputs, [('y', F), ('h1', F), ('c1', F)], inits), data


def tokens():
    """Integers of another width than the model's."""
    nodes = [node('Gather', ['table', 'ids'], ['e']), node('MatMul', ['e', 'w'], ['h']), node('Relu', ['h'], ['h1']),
             node('MatMul', ['h1', 'w1'], ['y'])]
    return (model(nodes, [('ids', I, [7])], [('y', F)], [weight('table', 50, 16), weight('w', 16, 16), weight('w1', 16, 4)]),
            {'ids': rng.integers(0, 50, (SAMPLES, 7)).astype(np.int16)})


def scaled(rows):
    """A batch axis of so many rows, and a scalar."""
    nodes = [node('MatMul', ['x', 'w'], ['h']), node('Relu', ['h'], ['h1']), node('MatMul', ['h1', 'w1'], ['h2']),
             node('Mul', ['h2', 'gain'], ['y'])]
    return model(nodes, [('x', F, [rows, 6]), ('gain', F, [])], [('y', F)], [weight('w', 6, 16), weight('w1', 16, 4)])


def of_sample(m, data, k):
    """What sample k feeds ONNX Runtime with."""
    feeds = {}
    for i in m.graph.input:
        rank, kind = len(i.type.tensor_type.shape.dim), {F: np.float32, I: np.int64}[i.type.tensor_type.elem_type]
        a = np.asarray(data[i.name])
        whole = a.ndim == rank + 1
        row = a if a.ndim == 0 else a[k if len(a) == SAMPLES else 0]
        feeds[i.name] = np.asarray(row if whole or a.ndim == 0 else row[None], kind)
    return feeds


def write(path, data):
    with h5py.File(path, 'w') as f:
        for name, values in data.items():
            f[name] = values


def outputs(path, data, *words):
    """name -> what a file has: an array, or a list of the samples' arrays."""
    out = os.path.join(scratch, 'out.h5')
    pare('run', path, '--data', data, '-o', out, '--quiet', *words)
    with h5py.File(out) as f:
        return {n: [v[str(k)][()] for k in range(len(v))] if isinstance(v, h5py.Group) else v[()] for n, v in f.items()}


def equal(got, want):
    if got.shape != want.shape:
        return False
    if want.dtype.kind == 'f':
        return not want.size or worst(got, want) <= 1e-5
    return np.array_equal(got, want)


def compare(name, path, data, theirs, m, pick=lambda rows, k: rows[k]):
    """Every sample's outputs against ONNX Runtime's of `theirs`, a session."""
    names = [o.name for o in m.graph.output]
    bad, got = [], outputs(path, data_path)
    for k in range(SAMPLES):
        for n, w in zip(names, theirs.run(names, of_sample(m, data, k))):
            if len(got[n]) != SAMPLES or not equal(pick(got[n], k), w):
                bad.append(f'sample {k}, {n}: {np.shape(pick(got[n], k))}, expected {w.shape}')
    check(name, not bad, '; '.join(bad[:3]))
    return got


def same_for_all_batches(name, path):
    """The same bytes with any batch and threads; the same statistics as of each sample by itself."""
    tables, files = [], []
    for i, words in enumerate((('--batch', 1, '--threads', 1), ('--batch', 8, '--threads', 2))):
        tables.append(os.path.join(scratch, f'ranges{i}.json'))
        files.append(os.path.join(scratch, f'out{i}.h5'))
        pare('calibrate', path, '--data', data_path, '-o', tables[-1], '--quiet', *words)
        pare('run', path, '--data', data_path, '-o', files[-1], '--quiet', *words)
    parts = [os.path.join(scratch, f'part{k}.json') for k in range(SAMPLES)]
    for k, part in enumerate(parts):
        pare('calibrate', path, '--data', data_path, '--range', f'{k}:{k + 1}', '-o', part, '--quiet')
    tables.append(os.path.join(scratch, 'merged.json'))
    pare('calibrate', '--merge', *parts, '-o', tables[-1], '--quiet')
    for word, paths in (('outputs', files), ('statistics', tables)):
        texts = [open(p, 'rb').read() for p in paths]
        check(f'{name}/{word}_do_not_depend_on_the_batch', all(t == texts[0] for t in texts[1:]))


def sqnr(got, want):
    noise = sum(float(((np.asarray(g, np.float64) - w) ** 2).sum()) for g, w in zip(got, want))
    return 10 * np.log10(sum(float((np.asarray(w, np.float64) ** 2).sum()) for w in want) / max(noise, 1e-30))


def quantized(name, path, m, data, outs, rival=True):
    """INT8 end to end: near the float model's outputs of one shape, equal to ONNX Runtime's of the file."""
    out = os.path.join(scratch, 'int8.onnx')
    want = outputs(path, data_path)
    pare('quantize', path, '--data', data_path, '-o', out, '--quiet')
    got = compare(f'{name}/int8_is_onnx_runtimes', out, data, ort_session(out, True), m) if rival else \
        outputs(out, data_path)
    for n in outs:
        value = sqnr(got[n], want[n])
        check(f'{name}/int8_sqnr/{n}', value > 20, f'{value:.1f} dB')


def refuses(name, path, data, *words, command=('run',), out='refused.h5'):
    write(data_path, data)
    done = pare(*command, path, '--data', data_path, '-o', os.path.join(scratch, out), '--quiet', ok=False)
    lines = done.stderr.strip().splitlines()
    missing = [w for w in words if w not in done.stderr]
    check(f'refused/{name}', done.returncode == 1 and len(lines) == 1 and not missing,
          f'exit {done.returncode}, {missing} missing in: {done.stderr.strip()}')


def save(name, m):
    path = os.path.join(scratch, name + '.onnx')
    onnx.save(m, path)
    return path


def alone():
    for make, outs in ((detector, ['head']), (recurrent, ['y', 'h1']), (tokens, ['y']),
                       (attending, ['y', 'mean'])):
        name, (m, data) = make.__name__, make()
        path = save(name, m)
        write(data_path, data)
        got = compare(name, path, data, ort_session(path), m)
        same_for_all_batches(name, path)
        if make is detector:
            counts = {len(b) for b in got['boxes']}
            check('detector/samples_differ', isinstance(got['boxes'], list) and 0 in counts and len(counts) > 2, counts)
            check('detector/one_shape_is_a_dataset', isinstance(got['head'], np.ndarray))
        quantized(name, path, m, data, outs, rival=make is not detector)


def batches():
    """A stored scalar goes with any batch; outputs have a row for each sample."""
    for rows in ('batch', 3):
        m, data = scaled(rows), {'x': normal(6), 'gain': np.float32(1.5)}
        path, name = save(f'scaled_{rows}', m), f'scaled_{rows}'
        write(data_path, data)
        want = np.concatenate([ort_session(path).run(None, {'gain': np.asarray(data['gain']), 'x': data['x'][k:k + 3]})[0]
                               for k in range(0, SAMPLES, 3)])
        check(f'{name}/rows', equal(outputs(path, data_path)['y'], want))
        check(f'{name}/some_samples', equal(outputs(path, data_path, '--range', '0:5')['y'], want[:5]))
        pare('quantize', path, '--data', data_path, '-o', os.path.join(scratch, 'int8.onnx'), '--quiet')
        value = sqnr(outputs(os.path.join(scratch, 'int8.onnx'), data_path)['y'], want)
        check(f'{name}/int8_sqnr', value > 20, f'{value:.1f} dB')
    groups = {'x': normal(3, 6), 'gain': np.float32(1.5)}
    write(data_path, groups)
    got = outputs(path, data_path)['y']
    want = np.stack([ort_session(path).run(None, {'x': g, 'gain': np.asarray(groups['gain'])})[0] for g in groups['x']])
    check('scaled_3/whole_groups', equal(got, want))


def commands():
    """validate compares outputs of one shape; prune reads such data; distill does not."""
    m, data = recurrent()
    path = save('recurrent', m)
    write(data_path, data)
    done = pare('validate', path, path, '--data', data_path, '--quiet', ok=False)
    check('validate/recurrent', done.returncode == 0, done.stderr.strip())
    m, images = detector()
    found = save('detector', m)
    write(data_path, images)
    done = pare('validate', found, found, '--data', data_path, '--quiet', ok=False)
    words = [w for w in ('detector.onnx', "output 'boxes'", 'one shape') if w not in done.stderr]
    check('validate/detector_is_refused', done.returncode == 1 and not words, done.stderr.strip())
    half, want = os.path.join(scratch, 'half.onnx'), outputs(found, data_path)['head']
    pare('quantize', found, '--data', data_path, '--precision', 'fp16', '-o', half, '--quiet')
    check('fp16/detector', worst(outputs(half, data_path)['head'], want) < 0.01)
    m, ids = tokens()
    named = save('tokens', m)
    pruned = os.path.join(scratch, 'pruned.onnx')
    write(data_path, ids)
    pare('prune', named, '--data', data_path, '--sparsity', 0.5, '-o', pruned, '--quiet')
    check('prune/tokens', outputs(pruned, data_path)['y'].shape == (SAMPLES, 7, 4))
    refuses('training', named, ids, "'/ids'", f'[{SAMPLES},7]', "'ids'", '[7]', 'training needs',
            command=('distill', '--student', named, '--teacher'), out='student.onnx')


def refusals():
    path = save('recurrent', recurrent()[0])
    good = recurrent()[1]
    refuses('rank', path, {**good, 'h': good['h'][:, 0, 0]}, "'/h'", "input 'h'", f'[{SAMPLES},24]', '[1,1,24]')
    refuses('dims', path, {**good, 'h': normal(1, 1, 23)}, "'/h'", "input 'h'", '[1,1,23]'.replace('[', f'[{SAMPLES},'),
            '[1,1,24]')
    refuses('counts', path, {**good, 'gain': good['gain'][:5]}, "'/gain'", '5 samples', "'/x' has 9")
    refuses('vector_for_scalar', path, {**good, 'gain': normal(1)}, "'/gain'", f'[{SAMPLES},1]', 'takes []')
    refuses('scalar_for_tensor', path, {**good, 'h': np.float32(1)}, "'/h'", 'has shape []', '[1,1,24]')
    refuses('floats_for_integers', path, {**good, 'rate': np.float32(3)}, "'/rate'", 'f32', "input 'rate'", 's64')
    refuses('integers_for_floats', path, {**good, 'gain': np.arange(SAMPLES)}, "'/gain'", 's64', "input 'gain'", 'f32')
    refuses('too_large', save('narrow', narrow()), {'ids': np.full((SAMPLES, 7), 1 << 40)}, "'/ids'", 's32')
    refuses('missing', path, {n: v for n, v in good.items() if n != 'c'}, "'c'", '--map c=')
    three = save('scaled_3', scaled(3))
    refuses('scalar_of_each_in_a_fixed_batch', three, {'x': normal(6), 'gain': normal()}, 'scaled_3.onnx', "'x' takes 3",
            "'/gain'", "input 'gain'")
    write(data_path, good)
    refuses('no_batch_axis_in_the_outputs', save('turned', turned()), {'x': normal(6)}, "output 'y'", 'whole input')


def narrow():
    m = tokens()[0]
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    return m


def turned():
    """Its output has the batch on its second axis."""
    return model([node('MatMul', ['x', 'w'], ['h']), node('Transpose', ['h'], ['y'], perm=[1, 0])],
                 [('x', F, ['batch', 6])], [('y', F)], [weight('w', 6, 5)])


with tempfile.TemporaryDirectory() as scratch:
    data_path = os.path.join(scratch, 'data.h5')
    alone()
    batches()
    commands()
    refusals()
finish()

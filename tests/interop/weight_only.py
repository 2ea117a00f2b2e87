# SPDX-License-Identifier: Apache-2.0
"""W4A16 and W8A16: standard files that ONNX's checker takes and ONNX Runtime runs to the same outputs; GPTQ nearer to
the float net than rounding to the nearest; the same bytes with any number of threads; what cannot be done is said."""
import json
import tempfile
from pathlib import Path

import h5py
import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

from _lib import ZOO, check, finish, ort_session, pare, pare_outputs, report

SAMPLES, WIDTH, TOKENS, VOCABULARY = 48, 96, 16, 61
rng = np.random.default_rng(3)


def constant(name, *shape):
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)


def decoder(path, layers=2):
    """Tokens to logits: RMS-normalized gated layers, a causal mean in attention's place, one matrix read twice."""
    nodes, inits = [], [constant('table', VOCABULARY, WIDTH), constant('head', WIDTH, VOCABULARY)]
    mean = np.tril(np.ones((TOKENS, TOKENS), np.float32))
    inits.append(numpy_helper.from_array(mean / mean.sum(1, keepdims=True), 'mean'))
    nodes.append(helper.make_node('Gather', ['table', 'tokens'], ['x0']))
    for i in range(layers):
        def op(kind, inputs, output, **more):
            nodes.append(helper.make_node(kind, inputs, [output], name=output, **more))
            return output
        names = {n: f'{n}{i}' for n in ('mix', 'gate', 'up', 'down', 'scale')}
        inits += [constant(names['mix'], WIDTH, WIDTH), constant(names['gate'], WIDTH, 2 * WIDTH + 8),
                  constant(names['up'], WIDTH, 2 * WIDTH + 8), constant(names['down'], 2 * WIDTH + 8, WIDTH),
                  numpy_helper.from_array(np.exp(rng.standard_normal(WIDTH)).astype(np.float32), names['scale'])]
        x = f'x{i}'
        mixed = op('MatMul', ['mean', op('MatMul', [x, names['mix']], f'm{i}')], f'a{i}')
        x = op('Add', [x, mixed], f'r{i}')
        normed = op('LayerNormalization', [x, names['scale']], f'n{i}', axis=-1)
        gate = op('MatMul', [normed, names['gate']], f'g{i}')
        gated = op('Mul', [gate, op('Sigmoid', [gate], f's{i}')], f'h{i}')
        product = op('Mul', [gated, op('MatMul', [normed, names['up']], f'u{i}')], f'p{i}')
        op('Add', [x, op('MatMul', [product, names['down']], f'd{i}')], f'x{i + 1}')
    nodes.append(helper.make_node('MatMul', [f'x{layers}', 'head'], ['logits'], name='head_product'))
    graph = helper.make_graph(nodes, 'decoder', [helper.make_tensor_value_info('tokens', TensorProto.INT64, ['n', TOKENS])],
                              [helper.make_tensor_value_info('logits', TensorProto.FLOAT, ['n', TOKENS, VOCABULARY])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)


def sqnr(got, want):
    return 10 * np.log10((want.astype(np.float64) ** 2).sum() / ((got - want).astype(np.float64) ** 2).sum())


def same_as_ort(name, path, inputs):
    """The file is valid, and both runtimes compute the same of it: as the file says, node by node, and nearly so where
    ONNX Runtime's fused product rounds activations to 8 bits. Returns the output."""
    onnx.checker.check_model(str(path), full_check=True)
    got = pare_outputs(path, inputs)
    for literal, most in ((True, 2e-5), (False, 0.1)):
        session = ort_session(path, literal)
        for output, array in zip((o.name for o in session.get_outputs()), session.run(None, inputs)):
            apart = np.abs(got[output] - array).max() / np.abs(array).max()
            check(f'{name}/onnxruntime' + ('' if literal else ' fused'), apart < most, f'{apart:.2g} of the largest output apart')
    return next(iter(got.values()))


def types_of(path):
    return [n.data_type for n in onnx.load(path).graph.initializer]


def decoders(folder):
    model, data = folder / 'decoder.onnx', folder / 'tokens.h5'
    decoder(model)
    tokens = rng.integers(0, VOCABULARY, (SAMPLES, TOKENS))
    with h5py.File(data, 'w') as file:
        file['tokens'] = tokens
    fresh = {'tokens': rng.integers(0, VOCABULARY, (8, TOKENS))}
    exact = pare_outputs(model, fresh)['logits']
    near = {}
    for name, words in {'nearest': (), 'awq': ('--data', data, '--rounding', 'nearest'), 'gptq': ('--data', data),
                        'gptq alone': ('--data', data, '--no-equalization'), 'block 8': ('--data', data, '--block-size', 8),
                        'whole': ('--data', data, '--block-size', 0),
                        'adaround': ('--data', data, '--rounding', 'adaround', '--iterations', 50)}.items():
        out = folder / 'out.onnx'
        pare('quantize', model, '-o', out, '--precision', 'w4a16', '--quiet', *words)
        near[name] = sqnr(same_as_ort(f'w4a16/{name}', out, fresh), exact)
        count = types_of(out).count(TensorProto.INT4)
        check(f'w4a16/{name}/int4', count == 9, f'{count} matrices of INT4')
    check('w4a16/gptq gains', near['gptq'] > near['nearest'] + 1, f'{near}')
    check('w4a16/scaled channels gain', near['awq'] > near['nearest'] + 0.3, f'{near}')
    check('w4a16/scaled channels and gptq', near['gptq'] > near['gptq alone'] - 0.1, f'{near}')
    check('w4a16/smaller blocks gain', near['block 8'] > near['gptq'] > near['whole'], f'{near}')
    pare('quantize', model, '-o', out, '--precision', 'w8a16', '--quiet')
    eight = sqnr(same_as_ort('w8a16', out, fresh), exact)
    check('w8a16/near', eight > near['block 8'] + 10 and onnx.load(out).opset_import[0].version == 17, f'{eight} dB')
    pare('quantize', model, '-o', out, '--precision', 'w8a16', '--block-size', 32, '--data', data, '--quiet')
    check('w8a16/blocks gain', sqnr(same_as_ort('w8a16/blocks', out, fresh), exact) > eight, '')
    both = [folder / f'{n}.onnx' for n in (1, 2)]
    for words in (('--rounding', 'adaround', '--iterations', 20), ()):
        for n, out in zip((1, 2), both):
            pare('quantize', model, '-o', out, '--precision', 'w4a16', '--data', data, '--threads', n, '--quiet', *words)
        check('w4a16/threads' + ' '.join(map(str, words)), both[0].read_bytes() == both[1].read_bytes(), 'other bytes with 2 threads')
    facts = folder / 'facts.json'
    pare('quantize', model, '-o', out, '--precision', 'w4a16', '--skip', 'head_product', '--json', facts, '--quiet')
    said = json.loads(facts.read_text())
    check('w4a16/skip', said['converted_nodes'] == 8 and any('head_product' in n for n in said['notes']), f'{said}')
    pare('inspect', both[0], '--json', facts, '--quiet')
    precision = json.loads(facts.read_text())['model']['precision']
    check('w4a16/inspect', precision == 'w4a16', precision)


def decoded(path):
    """The model with its dequantized float weights as f32 constants; their scales, codes' numbers and axes."""
    net, found = onnx.load(path), []
    inits = {t.name: t for t in net.graph.initializer}
    for node in [n for n in net.graph.node if n.op_type == 'DequantizeLinear']:
        attributes = {a.name: a.i for a in node.attribute}
        number = numpy_helper.to_array(inits[node.input[0]]).astype(np.float32)
        scale = numpy_helper.to_array(inits[node.input[1]]).astype(np.float32)
        found.append((number, scale, attributes))
        wide = np.repeat(scale, attributes['block_size'], attributes['axis'])[:number.shape[0], :number.shape[1]] \
            if 'block_size' in attributes else np.expand_dims(scale, 1 - attributes['axis'])
        weight = numpy_helper.from_array((number * wide).astype(np.float32), node.output[0])
        net.graph.node.remove(node)
        net.graph.initializer.append(weight)
    net.opset_import[0].version = 17
    return net, found


def float_weights(folder):
    """MXFP4 and FP8: the runtime computes what the codes say; each weight is the nearest number of its format."""
    model, data, out = folder / 'decoder.onnx', folder / 'tokens.h5', folder / 'floats.onnx'
    fresh = {'tokens': rng.integers(0, VOCABULARY, (8, TOKENS))}
    exact, plain = pare_outputs(model, fresh)['logits'], onnx.load(model)
    for precision, kind, opset in (('w4a16', TensorProto.FLOAT4E2M1, 24), ('w8a16', TensorProto.FLOAT8E4M3FN, 21)):
        decibels = []
        for words in ((), ('--data', data)):
            name = f'float/{precision}' + ('/gptq' if words else '')
            pare('quantize', model, '-o', out, '--precision', precision, '--weight-type', 'float', '--quiet', *words)
            net, found = decoded(out)
            check(f'{name}/opset', onnx.load(out).opset_import[0].version == opset and types_of(out).count(kind) == 9, f'{types_of(out)}')
            onnx.checker.check_model(str(out), full_check=True)
            want = onnx.reference.ReferenceEvaluator(net).run(None, fresh)[0]
            got = pare_outputs(out, fresh, names=['logits'])['logits']
            check(f'{name}/numbers', np.abs(got - want).max() < 2e-5 * np.abs(want).max(), f'{np.abs(got - want).max()}')
            decibels.append(sqnr(got, exact))
        powers = all((np.frexp(scale)[0] == 0.5).all() for _, scale, _ in found)
        check(f'float/{precision}/powers of two', powers == (precision == 'w4a16'), '')
        check(f'float/{precision}/gptq gains', decibels[1] > decibels[0] + 1, f'{decibels}')
        pare('quantize', model, '-o', out, '--precision', precision, '--weight-type', 'float', '--quiet')
        net, found = decoded(out)
        values = np.unique(np.concatenate([n.ravel() for n, _, _ in found]))
        weights = {t.name: numpy_helper.to_array(t) for t in plain.graph.initializer}
        off = seen = 0
        for tensor in net.graph.initializer:
            name = tensor.name.removesuffix('_dequantized')
            if name == tensor.name or name not in weights:
                continue
            number, scale, attributes = found[[t.name for t in net.graph.initializer if t.name.endswith('_dequantized')].index(tensor.name)]
            unit = numpy_helper.to_array(tensor) / np.where(number, number, 1)
            aim = weights[name] / np.where(number, unit, np.inf)
            nearest = values[np.abs(values - aim[..., None]).argmin(-1)]
            seen += (number != 0).sum()
            off += (np.abs(nearest - aim) < np.abs(number - aim) - 1e-6)[number != 0].sum()
        check(f'float/{precision}/nearest', off == 0 and seen > 40000, f'{off} of {seen} weights are not the nearest number')
        facts = folder / 'facts.json'
        pare('inspect', out, '--json', facts, '--quiet')
        check(f'float/{precision}/inspect', json.loads(facts.read_text())['model']['precision'] == precision, facts.read_text()[:300])


def shared(folder):
    """One matrix for two products; another that a Gather and a Gemm read along different axes."""
    model, out = folder / 'shared.onnx', folder / 'shared.w4.onnx'
    nodes = [helper.make_node('MatMul', ['x', 'w'], ['a']), helper.make_node('MatMul', ['a', 'w'], ['b']),
             helper.make_node('Gemm', ['b', 'w', 'c'], ['d'], transB=1, alpha=0.5), helper.make_node('Gemm', ['d', 'v', 'c'], ['y'], transB=1, alpha=0.5)]
    inits = [constant('w', 160, 160), constant('v', 160, 160), constant('c', 160)]
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['n', 160])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', 160])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 21)], ir_version=10), model)
    x = rng.standard_normal((40, 160)).astype(np.float32)
    data = folder / 'x.h5'
    with h5py.File(data, 'w') as file:
        file['x'] = x
    exact = pare_outputs(model, {'x': x})['y']
    for words in ((), ('--data', data)):
        pare('quantize', model, '-o', out, '--precision', 'w4a16', '--quiet', *words)
        near = sqnr(same_as_ort('shared', out, {'x': x}), exact)
        check('shared/near', near > 12, f'{near} dB')
        check('shared/once', types_of(out).count(TensorProto.INT4) == 2, 'a shared matrix is written twice, or not at all')


def corners(folder):
    """Products that share an input but sum over other axes; readers of one matrix that are listed out of order; an input
    whose shape only a run knows."""
    model, out, data = folder / 'corners.onnx', folder / 'corners.w4.onnx', folder / 'corners.h5'
    nodes = [helper.make_node('Gemm', ['x', 'w'], ['a'], name='plain'), helper.make_node('Gemm', ['x', 'v'], ['b'], name='turned', transA=1),
             helper.make_node('Einsum', ['a', 'u'], ['e'], equation='bi,ij->bj'), helper.make_node('MatMul', ['a', 'u'], ['m']),
             helper.make_node('Add', ['e', 'm'], ['c']), helper.make_node('Compress', ['c', 'rows'], ['some'], axis=0),
             helper.make_node('MatMul', ['some', 't'], ['d'], name='late')]
    inits = [constant('w', 160, 128), constant('v', 8, 128), constant('u', 128, 144), constant('t', 144, 144),
             numpy_helper.from_array(np.array([True, False, True, True, False]), 'rows')]
    shapes = {'b': [160, 128], 'c': [8, 144], 'd': ['k', 144]}
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, [8, 160])],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), model)
    x = rng.standard_normal((8, 160)).astype(np.float32)
    with h5py.File(data, 'w') as file:
        file['x'] = rng.standard_normal((64, 160)).astype(np.float32)
    exact = pare_outputs(model, {'x': x})
    for name, words in {'nearest': (), 'gptq': ('--data', data)}.items():
        facts = folder / 'facts.json'
        pare('quantize', model, '-o', out, '--precision', 'w4a16', '--quiet', '--json', facts, *words)
        same_as_ort(f'corners/{name}', out, {'x': x})
        notes = json.loads(facts.read_text())['notes']
        check(f'corners/{name}/turned', any('turned' in n and 'transposed' in n for n in notes), f'{notes}')
        got = pare_outputs(out, {'x': x})
        check(f'corners/{name}/near', min(sqnr(got[n], exact[n]) for n in 'cd') > 12, f'{[sqnr(got[n], exact[n]) for n in "cd"]}')


def four_bits_beside_int8(folder, data):
    """W4A8 of nets with convolutions: the same in both runtimes, nearer to the float net than to the nearest."""
    images = {'input': h5py.File(data / 'test.h5')['input'][:32].astype(np.float32)}
    for net in ('cnn', 'mobilenet'):
        drops = {}
        for rounding in ('nearest', 'gptq'):
            out, facts = folder / f'{net}.w4a8.onnx', folder / 'facts.json'
            pare('quantize', ZOO / f'{net}.onnx', '-o', out, '--precision', 'w4a8', '--rounding', rounding,
                 '--bias-correction', 'fast', '--data', data / 'train.h5', '--quiet')
            pare('validate', ZOO / f'{net}.onnx', out, '--data', data / 'test.h5', '--json', facts, '--quiet')
            row = json.loads(facts.read_text())['models'][1]
            drops[rounding] = (row['drop'], row['outputs'][0]['sqnr_db'])
            check(f'w4a8/{net}/{rounding}/precision', row['precision'] == 'w4a8', row['precision'])
        check(f'w4a8/{net}/drop', drops['gptq'][0] < 0.3, f'{drops}')
        check(f'w4a8/{net}/gptq gains', drops['gptq'][1] > drops['nearest'][1] + 5, f'{drops}')
        onnx.checker.check_model(str(out), full_check=True)
        want, = ort_session(out, True).run(None, images)
        got = next(iter(pare_outputs(out, images).values()))
        apart = np.abs(got - want).max() / np.abs(want).max()
        check(f'w4a8/{net}/onnxruntime', apart < 0.02, f'{apart:.2g} of the largest output apart')
        check(f'w4a8/{net}/int4', TensorProto.INT4 in types_of(out), 'no INT4')


def learned(folder, data):
    """INT8, W4A8 and W8A16 with learned rounding: standard files, the same in both runtimes, the same bytes with more threads."""
    images = {'input': h5py.File(data / 'test.h5')['input'][:32].astype(np.float32)}
    net = ZOO / 'resnet.onnx'
    for precision in ('int8', 'w4a8'):
        both = [folder / f'learned.{n}.onnx' for n in (1, 2)]
        for n, out in zip((1, 2), both):
            pare('quantize', net, '-o', out, '--precision', precision, '--rounding', 'adaround', '--iterations', 20, '--samples', 64,
                 '--data', data / 'train.h5', '--mixed-precision', 0, '--threads', n, '--quiet')
        check(f'learned/{precision}/threads', both[0].read_bytes() == both[1].read_bytes(), 'other bytes with 2 threads')
        onnx.checker.check_model(str(out), full_check=True)
        want, = ort_session(out, True).run(None, images)
        got = next(iter(pare_outputs(out, images).values()))
        apart = np.abs(got - want).max() / np.abs(want).max()
        check(f'learned/{precision}/onnxruntime', apart < 0.02, f'{apart:.2g} of the largest output apart')
        recipe = next((p.value for p in onnx.load(out).metadata_props if 'adaround' in p.value), '')
        check(f'learned/{precision}/recipe', 'rounding=adaround iterations=20' in recipe, recipe)


def refused(folder):
    model, data, out = folder / 'decoder.onnx', folder / 'tokens.h5', folder / 'no.onnx'
    w4 = ('--precision', 'w4a16')
    cases = {
        'ranges': (model, *w4, '--ranges', data, '--ranges does nothing in w4a16 and w8a16'),
        'method': (model, *w4, '--method', 'mse', '--method does nothing in w4a16 and w8a16'),
        'int8': (ZOO / 'mlp.onnx', '--block-size', 32, '--data', data, '--block-size does nothing'),
        'gptq': (model, *w4, '--rounding', 'gptq', '--rounding gptq needs --data'),
        'adaround': (model, *w4, '--rounding', 'adaround', '--rounding adaround needs --data'),
        'float adaround': (model, *w4, '--data', data, '--weight-type', 'float', '--rounding', 'adaround', 'learns integers'),
        'float block': (model, *w4, '--weight-type', 'float', '--block-size', 16, 'MXFP4 has blocks of 32'),
        'float int8': (ZOO / 'mlp.onnx', '--data', data, '--weight-type', 'float', '--weight-type does nothing'),
        'iterations': (model, *w4, '--iterations', 9, '--iterations does nothing without --rounding adaround'),
        'fp16': (model, '--precision', 'fp16', '--rounding', 'nearest', '--rounding does nothing in fp16 and bf16'),
        'nothing': (model, *w4, '--skip', 'op:MatMul', 'no weight can become integers'),
        'twice': (folder / '1.onnx', *w4, 'the model is quantized already'),
        'io': (model, *w4, '--io', 'same', '--io does nothing in w4a16'),
    }
    for name, (path, *words, text) in cases.items():
        done = pare('quantize', path, '-o', out, *words, ok=False)
        check(f'refused/{name}', done.returncode and text in done.stderr and not out.exists(), done.stderr.strip()[-300:])
    bad = folder / 'bad.onnx'
    net = onnx.load(model)
    w = next(t for t in net.graph.initializer if t.name == 'up1')
    values = numpy_helper.to_array(w).copy()
    values[3, 4] = np.nan
    w.CopyFrom(numpy_helper.from_array(values, 'up1'))
    onnx.save(net, bad)
    done = pare('quantize', bad, '-o', out, *w4, ok=False)
    check('refused/nan', done.returncode and "tensor 'up1' holds nan" in done.stderr, done.stderr.strip()[-300:])


def images(folder):
    """The sample nets on real images."""
    data = folder / 'data'
    pare('data', 'fashion-mnist', '-o', data, '--quiet')
    four_bits_beside_int8(folder, data)
    learned(folder, data)
    zoo(folder, data)
    for net in ('mlp', 'vit'):
        drops = {}
        for name, words in {'nearest': (), 'gptq': ('--data', data / 'train.h5')}.items():
            out, facts = folder / f'{net}.onnx', folder / 'facts.json'
            pare('quantize', ZOO / f'{net}.onnx', '-o', out, '--precision', 'w4a16', '--quiet', *words)
            pare('validate', ZOO / f'{net}.onnx', out, '--data', data / 'test.h5', '--json', facts, '--quiet')
            row = json.loads(facts.read_text())['models'][1]
            drops[name] = (row['drop'], row['outputs'][0]['sqnr_db'])
        check(f'{net}/drop', drops['gptq'][0] < 0.5, f'{drops}')
        check(f'{net}/gptq gains', drops['gptq'][1] > drops['nearest'][1] + 3, f'{drops}')


def zoo(folder, data):
    """A zoo makes them as it makes the others."""
    text = ''.join(f'  - name: v{i}\n    steps: [quantize {words}]\n' for i, words in enumerate(
        ('--precision w4a16', '--precision w4a16 --rounding nearest', '--precision w8a16', '--precision w4a8',
         '--rounding adaround --iterations 10')))
    (folder / 'zoo.yaml').write_text(f'models:\n  - files: [{ZOO / "mlp.onnx"}]\ndata: {data / "train.h5"}\ntest: {data / "test.h5"}\n'
                                     f'latency: false\nvariants:\n{text}')
    done = pare('zoo', folder / 'zoo.yaml', '-o', folder / 'made', '--quiet', ok=False)
    check('zoo', done.returncode == 0 and '5 of 5 tasks are done' in done.stdout, (done.stdout + done.stderr)[-400:])


with tempfile.TemporaryDirectory() as name:
    decoders(Path(name))
    float_weights(Path(name))
    shared(Path(name))
    corners(Path(name))
    refused(Path(name))
    try:
        images(Path(name))
    except RuntimeError as error:
        report('SKIP', 'images', str(error).splitlines()[0])
finish()

# SPDX-License-Identifier: Apache-2.0
"""Diagnosis: of planted faults the first line names fault and node, and the cure brings the model back; models without
a fault get none; the files of ONNX Runtime's quantizer are understood, too."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from _lib import ZOO, check, finish, pare, report

TRAIN, TEST = None, None  # set where the folder is made
rng = np.random.default_rng(5)


def quantized(folder, model, *words):
    out = folder / f'{Path(model).stem}.int8.onnx'
    pare('quantize', model, '-o', out, '--data', TRAIN, '--quiet', *words)
    return onnx.load(out)


def tensor(model, name):
    return next(t for t in model.graph.initializer if t.name == name)


def put(model, name, array):
    tensor(model, name).CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))


def array(model, name):
    return numpy_helper.to_array(tensor(model, name))


def maker(model, name):
    return next(n for n in model.graph.node if name in n.output)


def readers(model, name):
    return [n for n in model.graph.node if name in n.input]


def pair_of(model, name):
    """The QuantizeLinear of a tensor, and its DequantizeLinear."""
    q = next(n for n in readers(model, name) if n.op_type == 'QuantizeLinear')
    return q, next(n for n in readers(model, q.output[0]) if n.op_type == 'DequantizeLinear')


def rescale(model, name, by):
    for node in pair_of(model, name):
        put(model, node.input[1], array(model, node.input[1]) * np.float32(by))


def weights(model, op):
    """(node, DequantizeLinear) of every constant weight of an operator."""
    constants = {t.name for t in model.graph.initializer}
    made = {n.output[0]: n for n in model.graph.node if n.op_type == 'DequantizeLinear' and n.input[0] in constants}
    return [(n, made[n.input[1]]) for n in model.graph.node if n.op_type == op and n.input[1] in made]


def activations(model):
    """Names of the tensors before QuantizeLinear nodes."""
    constants = {t.name for t in model.graph.initializer}
    return [n.input[0] for n in model.graph.node if n.op_type == 'QuantizeLinear' and n.input[0] not in constants]


def diagnose(folder, exact, model, *words, data=None):
    """First line, facts."""
    path, facts = folder / 'diagnosed.onnx', folder / 'facts.json'
    if isinstance(model, onnx.ModelProto):
        onnx.save(model, path)
    else:
        path = model
    done = pare('diagnose', exact, path, '--data', data or TEST, '--json', facts, '--quiet', *words)
    return done.stdout.splitlines()[0], json.loads(facts.read_text())['diagnosis']


def planted(case, folder, exact, model, fault, node, data=None, least=20):
    """node: the name that the first line must hold. The mended file reaches `least` dB."""
    fixed = folder / 'fixed.onnx'
    line, said = diagnose(folder, exact, model, '--fix', fixed, data=data)
    first = said['findings'][0]
    check(f'planted/{case}', line.startswith(f'{fault}: ') and f"'{node}'" in line, line)
    check(f'planted/{case}/facts', first['fault'] == fault and node in (first['node'], first['tensor']), f'{first}')
    gain = said.get('fixed_db', 200) - (said.get('sqnr_db') or 0)
    check(f'planted/{case}/mended', said.get('fixed_db', 200) > least and gain > 3, f"{said.get('fixed_db')} dB, {gain} dB more")
    onnx.checker.check_model(str(fixed), full_check=True)
    _, again = diagnose(folder, exact, fixed, data=data)
    check(f'planted/{case}/the file is mended', abs(again.get('sqnr_db', 200) - said.get('fixed_db', 200)) < 0.1,
          f"{again.get('sqnr_db')} dB, said {said.get('fixed_db')}")


def ranges(folder):
    exact = ZOO / 'resnet.onnx'
    good = quantized(folder, exact)
    names = activations(good)
    name = names[len(names) // 2]
    model = quantized(folder, exact)
    rescale(model, name, 0.1)
    planted('clipped range', folder, exact, model, 'clipped-range', name)
    model = quantized(folder, exact)
    rescale(model, name, 0)
    planted('zero scale', folder, exact, model, 'zero-scale', name)
    model = quantized(folder, exact)
    rescale(model, name, 30)
    planted('wide range', folder, exact, model, 'wide-range', name)
    model = quantized(folder, exact)
    for i, each in enumerate(names[1:]):
        rescale(model, each, (0.3, 5)[i % 2])
    line, said = diagnose(folder, exact, model)
    off = said['findings'][0]
    check('planted/stale ranges/gain', line.startswith("stale-ranges: node '") and off['gain_db'] > 10, f"{line} {off}")
    planted('stale ranges', folder, exact, model, 'stale-ranges', off['node'])


def preprocessing(folder):
    """Calibrated on pixels of 0 to 255 in place of normalized ones."""
    exact, raw, out = ZOO / 'cnn.onnx', folder / 'raw.h5', folder / 'raw.onnx'
    with h5py.File(TRAIN) as file:
        images = file['input'][:256].astype(np.float32)
    with h5py.File(raw, 'w') as file:
        file['input'] = images
    pare('quantize', exact, '-o', out, '--data', raw, '--quiet')
    planted('shifted preprocessing', folder, exact, onnx.load(out), 'preprocessing', 'input')


def weights_of(folder):
    exact = ZOO / 'resnet.onnx'
    model = quantized(folder, exact)
    node, dq = weights(model, 'Conv')[3]
    scale = array(model, dq.input[1]).copy()
    level = array(model, dq.input[0]).copy()
    level[5] = 0
    put(model, dq.input[0], level)
    planted('dead channel', folder, exact, model, 'dead-channel', node.name)
    model = quantized(folder, exact)
    scale[7] = 0
    put(model, dq.input[1], scale)
    planted('zero scale of a weight', folder, exact, model, 'zero-scale', node.name)
    model = quantized(folder, exact)
    scale = array(model, dq.input[1]).copy()
    scale[9] *= 8
    put(model, dq.input[1], scale)
    planted('scale of one channel', folder, exact, model, 'other-weight', node.name)


def axis(folder):
    """A square matrix, whose scales may lie along either axis."""
    exact = ZOO / 'vit.onnx'
    model = quantized(folder, exact)
    node, dq = next((n, d) for n, d in weights(model, 'MatMul')
                    if len(set(array(model, d.input[0]).shape)) == 1 and 'blocks' in n.name)
    del dq.attribute[:]
    dq.attribute.append(helper.make_attribute('axis', 0))
    planted('wrong axis', folder, exact, model, 'wrong-axis', node.name)


def outlier(folder):
    """LayerNormalizations with a few channels x64, whose readers divide by it; one scale a tensor, not equalized."""
    twin = folder / 'vit.twin.onnx'
    subprocess.run([sys.executable, ZOO / 'twins.py', 'vit', ZOO / 'vit.onnx', twin], check=True, stdout=subprocess.DEVNULL)
    model = quantized(folder, twin, '--no-equalization', '--mixed-precision', 0, '--method', 'minmax')
    line, said = diagnose(folder, twin, model)
    check('planted/outlier channel/kind', line.startswith("outlier-channel: node '") and 'Normalization' in line, line)
    planted('outlier channel', folder, twin, model, 'outlier-channel', said['findings'][0]['node'], least=10)


class Reader(CalibrationDataReader):
    def __init__(self, images):
        self.rows = iter([{'input': images[i:i + 1]} for i in range(len(images))])

    def get_next(self):
        return next(self.rows, None)


def normalized(count):
    with h5py.File(TRAIN) as file:
        images = file['input'][:count].astype(np.float32) / 255
        mean, std = (np.ravel(file['input'].attrs[k]).astype(np.float32) for k in ('mean', 'std'))
        if images.ndim == 3:
            images = images[..., None]
        nhwc = file['input'].attrs.get('layout', 'nchw') in ('nhwc', b'nhwc')
    images = (images.transpose(0, 3, 1, 2) if nhwc else images) - mean.reshape(1, -1, 1, 1)
    return images / std.reshape(1, -1, 1, 1)


def other_tool(folder):
    """ONNX Runtime's file has int32 biases."""
    exact, out = ZOO / 'cnn.onnx', folder / 'ort.onnx'
    quantize_static(str(exact), str(out), Reader(normalized(64)), quant_format=QuantFormat.QDQ, per_channel=True,
                    weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8)
    _, said = diagnose(folder, exact, onnx.load(out))
    check("onnxruntime's file/understood", said.get('float_form_db', 200) > 80 and not said['notes'], f'{said}')
    gross = [f for f in said['findings'] if f['fault'] not in ('rounding', 'weight-rounding', 'outlier-channel')]
    check("onnxruntime's file/no fault", not gross, f'{gross}')
    model = onnx.load(out)
    made = {n.output[0]: n for n in model.graph.node if n.op_type == 'DequantizeLinear'}
    node = [n for n in model.graph.node if n.op_type == 'Conv'][1]
    dq = made[node.input[2]]
    scale = np.array(array(model, dq.input[1]))
    level = np.array(array(model, dq.input[0]))
    most = int(np.argmax(np.abs(level * scale)))
    bias = float(level[most] * scale[most])
    scale[most] = abs(bias) / 2.0**33  # of which int32 holds a quarter
    level[most] = np.int32(2**31 - 1) if bias > 0 else np.int32(-2**31)
    put(model, dq.input[1], scale)
    put(model, dq.input[0], level)
    planted('bias overflow', folder, exact, model, 'bias-overflow', node.name)
    out = folder / 'qoperator.onnx'
    quantize_static(str(exact), str(out), Reader(normalized(64)), quant_format=QuantFormat.QOperator, per_channel=True,
                    weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8)
    _, said = diagnose(folder, exact, out)
    check('QOperator file/understood', said.get('float_form_db', 200) > 80 and len(said['tensors']) > 2, f'{said}')


def shared(folder):
    """One matrix for two products; the file divides the first one's input by channel and multiplies the matrix."""
    width, exact, data = 64, folder / 'shared.onnx', folder / 'shared.h5'
    w = (rng.standard_normal((width, width)) / 8).astype(np.float32)
    gain = np.exp(rng.standard_normal(width)).astype(np.float32)
    nodes = [helper.make_node('LayerNormalization', ['x', 'gain'], ['n'], name='norm', axis=-1),
             helper.make_node('MatMul', ['n', 'w'], ['a'], name='first'),
             helper.make_node('Tanh', ['a'], ['t'], name='tanh'),
             helper.make_node('MatMul', ['t', 'w'], ['y'], name='second')]
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['n', 8, width])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', 8, width])],
                              [numpy_helper.from_array(w, 'w'), numpy_helper.from_array(gain, 'gain')])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), exact)
    with h5py.File(data, 'w') as file:
        file['x'] = rng.standard_normal((64, 8, width)).astype(np.float32)
    out = folder / 'shared.int8.onnx'
    pare('quantize', exact, '-o', out, '--data', data, '--no-equalization', '--mixed-precision', 0, '--bias-correction', 'none', '--quiet')
    model = onnx.load(out)
    by = np.exp2(rng.uniform(-2, 2, width)).astype(np.float32)
    _, dq = weights(model, 'MatMul')[0]
    changed = w * by[:, None]
    scale = np.abs(changed).max(0) / 127
    put(model, dq.input[0], np.clip(np.rint(changed / scale), -127, 127).astype(np.int8))
    put(model, dq.input[1], scale)
    put(model, 'gain', gain / by)
    for node in pair_of(model, 'n'):
        put(model, node.input[1], np.float32(np.abs(gain / by).max() * 4 / 127))
    line, said = diagnose(folder, exact, model, data=data)
    check('planted/shared weight/tensor', line.startswith('shared-weight: ') and said['findings'][0]['tensor'] == dq.input[0], line)
    planted('shared weight', folder, exact, model, 'shared-weight', 'first', data=data, least=15)


def halves(folder):
    """Converted without data: one layer's result is beyond f16, or below it, the next makes good for that."""
    for name, by in (('overflow', 1e5), ('underflow', 1e-6)):
        exact, out = folder / f'{name}.onnx', folder / f'{name}.f16.onnx'
        model = onnx.load(ZOO / 'mlp.onnx')
        gemms = [n for n in model.graph.node if n.op_type in ('Gemm', 'MatMul')]
        for node, factor in ((gemms[0], by), (gemms[1], min(1 / by, 1e4))):
            put(model, node.input[1], array(model, node.input[1]) * np.float32(factor))
        put(model, gemms[0].input[2], array(model, gemms[0].input[2]) * np.float32(by))
        onnx.save(model, exact)
        pare('quantize', exact, '-o', out, '--precision', 'fp16', '--quiet')
        planted(f'f16 {name}', folder, exact, out, f'f16-{name}', gemms[0].name)


def healthy(folder):
    for name in ('mlp', 'cnn', 'resnet', 'mobilenet', 'vit'):
        for words in ((), ('--activations', 'u8'), ('--precision', 'w4a8'))[:1 if name in ('mobilenet', 'vit') else 3]:
            exact, case = ZOO / f'{name}.onnx', f"healthy/{name}{' '.join(('',) + words)}"
            _, said = diagnose(folder, exact, quantized(folder, exact, *words))
            faults = [f for f in said['findings'] if f['fault'] not in ('rounding', 'weight-rounding')]
            check(case, not faults and not said['notes'], f"{faults} {said['notes']}")
            check(f'{case}/float form', said.get('float_form_db', 200) > 40, f"{said.get('float_form_db')} dB without rounding")


def float_weights(folder):
    """MXFP4: scales are f8e8m0."""
    exact, out = ZOO / 'mlp.onnx', folder / 'mlp.mxfp4.onnx'
    pare('quantize', exact, '-o', out, '--data', TRAIN, '--samples', 64, '--precision', 'w4a16', '--weight-type', 'float', '--quiet')
    _, said = diagnose(folder, exact, out)
    check('mxfp4/weights', said.get('float_form_db', 200) > 80 and 15 < said['sqnr_db'] < 50, f'{said}')
    faults = [f for f in said['findings'] if f['fault'] not in ('rounding', 'weight-rounding')]
    check('mxfp4/no fault', not faults, f'{faults}')


def no_fault(folder):
    """Nothing is to be mended: an older file of that name stays as it is."""
    exact, out, fixed = ZOO / 'cnn.onnx', folder / 'cnn.f16.onnx', folder / 'cnn.fixed.onnx'
    pare('quantize', exact, '-o', out, '--precision', 'fp16', '--quiet')
    fixed.write_text('older')
    done = pare('diagnose', exact, out, '--data', TEST, '--fix', fixed, ok=False)
    check('no fault', done.returncode == 0 and 'has no fault to mend' in done.stderr and fixed.read_text() == 'older', done.stderr)
    check('no fault/words', 'nothing in it stands out' in done.stdout, done.stdout)


def no_cure(folder):
    """A weight of zero scales that the float model does not have: nothing is written, the facts are, and it has failed."""
    exact, fixed = ZOO / 'cnn.onnx', folder / 'uncured.onnx'
    model = quantized(folder, exact, '--method', 'minmax')
    node, dq = weights(model, 'Gemm')[0]
    put(model, dq.input[1], 0 * array(model, dq.input[1]))
    renamed = {name: f'other{i}' for i, name in enumerate((node.output[0], dq.input[0], dq.output[0]))}
    tensor(model, dq.input[0]).name = renamed[dq.input[0]]
    node.name = 'other'
    for n in model.graph.node:
        n.input[:] = [renamed.get(name, name) for name in n.input]
        n.output[:] = [renamed.get(name, name) for name in n.output]
    onnx.save(model, folder / 'unknown.onnx')
    done = pare('diagnose', exact, folder / 'unknown.onnx', '--data', TEST, '--fix', fixed, '--json', folder / 'uncured.json', '-q', ok=False)
    check('no cure', done.returncode == 1 and 'no cure helps' in done.stderr and not fixed.exists(), f'exit {done.returncode}: {done.stderr}')
    check('no cure/facts', json.loads((folder / 'uncured.json').read_text())['diagnosis']['findings'][0]['fault'] == 'zero-scale', 'another fault')


def fp16_around(folder):
    """Beside FP16 nodes: f32 and f16 tensors are quantized, weights have f16 scales."""
    for net, words in (('cnn', ()), ('resnet', ()), ('vit', ('--samples', '64')), ('resnet', ('--target', 'onnxruntime'))):
        exact = ZOO / f'{net}.onnx'
        model = quantized(folder, exact, '--float-precision', 'fp16', *words)
        _, said = diagnose(folder, exact, model)
        faults = [f for f in said['findings'] if f['fault'] not in ('rounding', 'weight-rounding')]
        check(f'fp16 around/{net}/no fault', not faults and said['tensors'], f'{faults}')
        names = activations(model)
        name = names[len(names) // 2]
        for pair in pair_of(model, name):
            put(model, pair.input[1], (array(model, pair.input[1]) / 16).astype(array(model, pair.input[1]).dtype))
        planted(f'fp16 around/{net}', folder, exact, model, 'clipped-range', name)


def split(folder):
    """A tensor's error is the sum of its causes; the page shows every tensor."""
    exact, page = ZOO / 'cnn.onnx', folder / 'page.html'
    _, said = diagnose(folder, exact, quantized(folder, exact), '--report', page)
    for t in said['tensors']:
        parts = sum(t[k] for k in ('clipping', 'rounding', 'weight', 'bias', 'carried'))
        check(f"split/{t['tensor']}", parts >= t['total'] * (1 - 1e-6), f'{t}')
    first = said['tensors'][0]
    check('split/input', first['tensor'] == 'input' and first['carried'] < 0.01 * first['total'] and first['weight'] == 0, f'{first}')
    check('page', all(t['tensor'] in page.read_text() for t in said['tensors']), 'a tensor is missing')


def same_threads(folder):
    exact, model = ZOO / 'cnn.onnx', folder / 'cnn.int8.onnx'
    quantized(folder, exact)
    texts = [pare('diagnose', exact, model, '--data', TEST, '--threads', n, '--quiet').stdout for n in (1, 2)]
    check('threads', texts[0] == texts[1], 'other words with 2 threads')


def refused(folder):
    exact, model = ZOO / 'cnn.onnx', folder / 'cnn.int8.onnx'
    quantized(folder, exact)
    for case, words, want in (
            ('no quantized model', (exact, exact), 'is not quantized'),
            ('quantized first', (model, model), 'quantized already'),
            ('another net', (ZOO / 'mlp.onnx', model), 'quantized weights is in'),
            ('no data', (exact, model, None), '--data')):
        data = () if words[-1] is None else ('--data', TEST)
        done = pare('diagnose', *[w for w in words if w], *data, '--quiet', ok=False)
        check(f'refused/{case}', done.returncode in (1, 2) and want in done.stderr and done.stderr.count('\n') == 1, done.stderr)


def main():
    global TRAIN, TEST
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = pare('data', 'fashion-mnist', '-o', folder / 'data', '--quiet', ok=False)
        if made.returncode:
            report('SKIP', 'diagnose', made.stderr.strip())
            finish()
        TRAIN, TEST = folder / 'data' / 'train.h5', folder / 'data' / 'test.h5'
        for part in (healthy, ranges, preprocessing, weights_of, axis, outlier, other_tool, shared, halves, float_weights, no_fault, no_cure, fp16_around, split,
                     same_threads, refused):
            try:
                part(folder)
            except RuntimeError as error:
                check(part.__name__, False, error)
    finish()


main()

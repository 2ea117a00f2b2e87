# SPDX-License-Identifier: Apache-2.0
"""Quantized files: the checker takes them, ONNX Runtime loads and runs them and gives the same answers
as pare; Q/DQ are where the target wants them; names survive; the same input gives the same bytes."""
import pathlib
import tempfile

import h5py
import numpy as np
import onnx
from onnx import numpy_helper

from _lib import ZOO, check, finish, ort_session, pare, pare_outputs, report

rng = np.random.default_rng(3)
SAMPLES = 64
VNNI = 'vnni' in pathlib.Path('/proc/cpuinfo').read_text()


def data(path):
    x = rng.standard_normal((SAMPLES, 1, 28, 28)).astype(np.float32)
    x = np.clip(x, -0.81, 2.02)
    with h5py.File(path, 'w') as f:
        f.create_dataset('input', data=x, chunks=(16, 1, 28, 28), compression='gzip')
        f.create_dataset('filler', data=np.zeros(4096, np.uint8))
    return x


def makers(graph):
    return {o: n for n in graph.node for o in n.output}


def constants(graph):
    return {i.name: numpy_helper.to_array(i) for i in graph.initializer}


def weighted(graph):
    return [n for n in graph.node if n.op_type in ('Conv', 'Gemm', 'MatMul')]


def placement(name, model, s8):
    graph, made, const = model.graph, makers(model.graph), constants(model.graph)
    outputs = {o.name for o in graph.output}
    check(f'{name}/inputs', all(made[i].op_type == 'DequantizeLinear' for n in weighted(graph) for i in n.input[:2]),
          'a weighted node reads a tensor that is not dequantized')
    check(f'{name}/outputs', all(made[o].op_type != 'DequantizeLinear' for o in outputs), 'an output is quantized')
    biases = [i for n in weighted(graph) for i in n.input[2:]]
    check(f'{name}/biases', all((i in const) == s8 for i in biases), 'float for tensorrt, s32 for onnxruntime')
    for q in (n for n in graph.node if n.op_type == 'QuantizeLinear'):
        before = made.get(q.input[0])
        zero = const[q.input[2]]
        good = zero.dtype == (np.int8 if s8 else np.uint8) and (not s8 or zero == 0)
        if not good:
            check(f'{name}/{q.name}', False, f'zero point {zero} of type {zero.dtype}')
        if s8 and before is not None and before.op_type == 'Conv' and any(
                n.op_type == 'Add' and q.input[0] in n.input for n in graph.node):
            check(f'{name}/{q.name}', False, 'a pair between Conv and the Add it is fused with')
    for w in (const[made[n.input[1]].input[0]] for n in weighted(graph) if made[n.input[1]].input[0] in const):
        if w.dtype != np.int8 or w.min() < -127:
            check(f'{name}/weights', False, f'{w.dtype}, smallest {w.min()}')


def alike(name, got, expected):
    far = np.abs(got - expected).max() / np.abs(expected).max()
    check(name, far < 0.05 and (got.argmax(1) == expected.argmax(1)).mean() >= 0.98, f'apart by {far:.3f}')


def one(net, x, folder, source):
    model = ZOO / f'{net}.onnx'
    names = {i for n in onnx.load(model).graph.node for i in n.output}
    for word, options in (('s8', []), ('u8', ['--activations', 'u8']), ('s8-tensor', ['--weights', 'tensor'])):
        name, out = f'{net}/{word}', folder / f'{net}.{word}.onnx'
        options = [*options, '--mixed-precision', '0']  # pairs at every weighted node
        pare('quantize', model, '-o', out, '--data', source, '--quiet', *options)
        again = folder / 'again.onnx'
        pare('quantize', model, '-o', again, '--data', source, '--quiet', '--batch', '5', *options)
        check(f'{name}/same-bytes', out.read_bytes() == again.read_bytes(), 'two runs differ')
        onnx.checker.check_model(str(out), full_check=True)
        quantized = onnx.load(out)
        keys = {p.key for p in quantized.metadata_props}
        check(f'{name}/manifest', {'pare.version', 'pare.recipe', 'pare.ranges_hash', 'pare.source_hash'} <= keys, str(keys))
        lost = {n for n in makers(quantized.graph)} - names
        check(f'{name}/names', all('quantized' in n or 'dequantized' in n for n in lost), f'new names {sorted(lost)[:3]}')
        placement(name, quantized, word != 'u8')
        got = pare_outputs(out, {'input': x})['logits']
        alike(f'{name}/runtime', got, ort_session(out, literal=True).run(None, {'input': x})[0])
        if word == 'u8' and not VNNI:
            report('SKIP', f'{name}/runtime-fused', "no VNNI here: ONNX Runtime's u8 products may saturate at 16 bits")
        else:
            alike(f'{name}/runtime-fused', got, ort_session(out).run(None, {'input': x})[0])
    for word, options in (('fp16', ['--precision', 'fp16']), ('bf16', ['--precision', 'bf16']),
                          ('fp16-same', ['--precision', 'fp16', '--io', 'same'])):
        name, out = f'{net}/{word}', folder / f'{net}.{word}.onnx'
        pare('quantize', model, '-o', out, '--quiet', *options)
        onnx.checker.check_model(str(out), full_check=True)
        half = onnx.load(out)
        made = makers(half.graph)
        twice = [n.name for n in half.graph.node if n.op_type == 'Cast' and n.input[0] in made and made[n.input[0]].op_type == 'Cast']
        check(f'{name}/casts', not twice, f'back to back: {twice}')
        same = word.endswith('same')
        types = {v.type.tensor_type.elem_type for v in (half.graph.input[0], half.graph.output[0])}
        check(f'{name}/io', types == {10 if same else 1}, str(types))
        y = ort_session(out).run(None, {'input': x.astype(np.float16) if same else x})[0].astype(np.float32)
        exact = ort_session(model).run(None, {'input': x})[0]
        far = np.abs(y - exact).max() / np.abs(exact).max()
        check(f'{name}/values', far < (0.03 if word == 'bf16' else 0.01), f'apart by {far:.4f}')
        check(f'{name}/size', out.stat().st_size < 0.6 * model.stat().st_size, str(out.stat().st_size))


def words(folder, source):
    out = folder / 'never.onnx'
    done = pare('quantize', ZOO / 'mlp.onnx', '-o', out, '--data', source, '--skip', '/1/Gem', ok=False)
    check('pattern/message', done.returncode == 2 and "'/1/Gemm'" in done.stderr, done.stderr.strip()[-200:])
    check('pattern/no-file', not out.exists(), 'a file was left')
    pare('quantize', ZOO / 'mlp.onnx', '-o', out, '--data', source, '--skip', '/1/Gemm', '--quiet')
    graph = onnx.load(out).graph
    made = makers(graph)
    first = next(n for n in graph.node if n.name == '/1/Gemm')
    check('pattern/skip', all(i not in made or made[i].op_type != 'DequantizeLinear' for i in first.input), str(first.input))


def tensorrt_cache(folder):
    """A calibration cache of TensorRT as ranges: its scales are those of the pairs."""
    cache, out = folder / 'calib.cache', folder / 'cache.onnx'
    scales = {'/0/Flatten_output_0': 0.0159, '/2/Relu_output_0': 0.181, '/4/Relu_output_0': 0.0904, 'elsewhere': 1}
    lines = [f'{tensor}: {int(np.float32(s).view(np.uint32)):08x}' for tensor, s in scales.items()]
    cache.write_text('\n'.join(['TRT-8601-EntropyCalibration2', *lines, '']))
    pare('quantize', ZOO / 'mlp.onnx', '-o', out, '--ranges', cache, '--quiet')
    graph = onnx.load(out).graph
    const = constants(graph)
    got = {n.input[0]: float(const[n.input[1]]) for n in graph.node if n.op_type == 'QuantizeLinear'}
    del scales['elsewhere']
    check('tensorrt/scales', got.keys() == scales.keys() and all(abs(got[k] - s) < 1e-6 * s for k, s in scales.items()), str(got))
    cache.write_text('\n'.join(['TRT-8601-EntropyCalibration2', 'nowhere: 3c010204', '']))
    out.unlink()
    done = pare('quantize', ZOO / 'mlp.onnx', '-o', out, '--ranges', cache, ok=False)
    check('tensorrt/other-names', done.returncode == 1 and "'nowhere' is not" in done.stderr and not out.exists(), done.stderr.strip())


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    source = folder / 'data.h5'
    x = data(source)[:32]
    for net in ('mlp', 'cnn', 'resnet', 'mobilenet', 'vit'):
        try:
            one(net, x, folder, source)
        except Exception as error:  # the test continues with the next net
            report('FAIL', net, str(error).splitlines()[-1][:300])
    words(folder, source)
    tensorrt_cache(folder)
finish()

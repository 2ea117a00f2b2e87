# SPDX-License-Identifier: Apache-2.0
"""INT8 with the rest in FP16: types at every border, by target; ONNX Runtime and pare give the same answers, near those
of the file with the rest in FP32; pare computes as much of it in integers; what FP16 cannot hold stays f32."""
import json
import pathlib
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import ZOO, check, finish, ort_session, pare, pare_outputs, report, worst

F32, F16 = TensorProto.FLOAT, TensorProto.FLOAT16
PAIRS = ('QuantizeLinear', 'DequantizeLinear')
PRODUCTS = ('Conv', 'Gemm', 'MatMul')
VNNI = 'vnni' in pathlib.Path('/proc/cpuinfo').read_text()
NETS = ('cnn', 'resnet', 'mobilenet', 'vit')
rng = np.random.default_rng(5)


def data(path, **columns):
    with h5py.File(path, 'w') as f:
        for key, array in columns.items():
            f[key] = array
    return path


def types(model):
    """name -> element type, by ONNX's inference."""
    g = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    found = {v.name: v.type.tensor_type.elem_type for v in [*g.input, *g.output, *g.value_info]}
    return found | {i.name: i.data_type for i in g.initializer}


def makers(graph):
    return {o: n for n in graph.node for o in n.output}


def int8_products(graph):
    made = makers(graph)
    return [n for n in graph.node if n.op_type in PRODUCTS
            and all(i in made and made[i].op_type == PAIRS[1] for i in n.input[:2])]


def integer_steps(path, folder):
    """Products of a run that read integers."""
    facts = folder / 'steps.json'
    pare('bench', path, '--iterations', '1', '--duration', '0', '--warmup', '0', '--no-tune', '--threads', '1', '--device', 'cpu',
         '--profile', facts, '--quiet')
    steps = json.loads(facts.read_text())
    steps = steps['steps'] if isinstance(steps, dict) else steps
    return sum(s['op_type'] in ('FusedConv', 'FusedMatMul') and 'int8' in s['kernel'] for s in steps)


def quantize(model, out, *options):
    facts = out.with_suffix('.json')
    pare('quantize', model, '-o', out, '--quiet', '--json', facts, *options)
    onnx.checker.check_model(str(out), full_check=True)
    facts = json.loads(facts.read_text())
    return onnx.load(out), facts.get('facts', facts)


def borders(name, model, f16_pairs):
    graph, kind, made = model.graph, types(model), makers(model.graph)
    products = int8_products(graph)
    check(f'{name}/products', products, 'no product of int8 tensors')
    for n in products:
        wanted = {F16} if f16_pairs else {F32}
        if {kind[i] for i in n.input} != wanted:
            check(f'{name}/{n.name}', False, f'inputs of types {[kind[i] for i in n.input]}')
    scales = {kind[n.input[1]] for n in graph.node if n.op_type == 'DequantizeLinear'}
    check(f'{name}/scales', scales == ({F16} if f16_pairs else {F32}), str(scales))
    check(f'{name}/opset', not f16_pairs or model.opset_import[0].version >= 19, str(model.opset_import[0].version))
    twice = [n.name for n in graph.node if n.op_type == 'Cast' and n.input[0] in made and made[n.input[0]].op_type == 'Cast']
    check(f'{name}/casts', not twice, f'back to back: {twice}')
    if f16_pairs:  # a pair and what it is fused with have no Cast between them
        reads = {i for n in graph.node if n.op_type == 'Cast' for i in n.input}
        between = [n.name for n in graph.node if n.op_type == 'DequantizeLinear' and n.output[0] in reads]
        check(f'{name}/between', not between, f'a Cast after {between[:3]}')
    ends = {kind[v.name] for v in [*graph.input, *graph.output]}
    check(f'{name}/io', ends == {F32}, str(ends))


def alike(name, got, expected, least=0.05):
    far = worst(got, expected)
    check(name, far < least and (got.argmax(1) == expected.argmax(1)).mean() >= 0.95, f'apart by {far:.3f}')


def nets(folder):
    x = np.clip(rng.standard_normal((32, 1, 28, 28)), -0.81, 2.02).astype(np.float32)
    source = data(folder / 'data.h5', input=x)
    for net in NETS:
        for target in ('tensorrt', 'onnxruntime', 'openvino') if net in ('cnn', 'vit') else ('tensorrt',):
            model, name = ZOO / f'{net}.onnx', f'{net}/{target}'
            out, plain = folder / f'{net}.{target}.onnx', folder / f'{net}.{target}.f32.onnx'
            options = ['--data', source, '--target', target, '--mixed-precision', '0']
            quantize(model, plain, *options)
            made, facts = quantize(model, out, *options, '--float-precision', 'fp16')
            recipe = next(p.value for p in made.metadata_props if p.key == 'pare.recipe')
            check(f'{name}/recipe', 'float-precision=fp16' in recipe, recipe)
            borders(name, made, target == 'tensorrt')
            check(f'{name}/fp16-nodes', facts['fp16_nodes'] > 0 or target != 'tensorrt', str(facts['fp16_nodes']))
            done = pare('check', out, '--target', target, ok=False)
            check(f'{name}/check', done.returncode == 0, done.stdout[-300:])
            got = pare_outputs(out, {'input': x}, ['logits'])['logits']
            alike(f'{name}/literal', got, ort_session(out, literal=True).run(None, {'input': x})[0])
            if target == 'onnxruntime' and VNNI:  # it computes f16 pairs in float
                alike(f'{name}/fused', got, ort_session(out).run(None, {'input': x})[0])
            elif target == 'onnxruntime':
                report('SKIP', f'{name}/fused', "no VNNI here: ONNX Runtime's products may saturate at 16 bits")
            alike(f'{name}/beside-f32', got, pare_outputs(plain, {'input': x}, ['logits'])['logits'])
            counts = [integer_steps(p, folder) for p in (out, plain)]
            check(f'{name}/integers', counts[0] == counts[1] > 0, f'{counts[0]} integer products, {counts[1]} beside f32')
            again = folder / 'again.onnx'
            if target == 'tensorrt':
                quantize(model, again, *options, '--float-precision', 'fp16', '--threads', '1', '--batch', '5')
                check(f'{name}/same-bytes', out.read_bytes() == again.read_bytes(), 'two runs differ')


def chain(weight, scale, back):
    """x -> MatMul -> Mul by scale -> Mul by what makes it some units large -> MatMul -> y."""
    nodes = [helper.make_node('MatMul', ['x', 'w'], ['p'], 'first'), helper.make_node('Mul', ['p', 'scale'], ['m'], 'mul'),
             helper.make_node('Mul', ['m', 'back'], ['s'], 'mul_back'), helper.make_node('MatMul', ['s', 'v'], ['y'], 'second')]
    w, v = rng.standard_normal((16, 16)).astype(np.float32), rng.standard_normal((16, 8)).astype(np.float32)
    init = {'w': w * np.float32(weight), 'v': v, 'scale': np.float32(scale), 'back': np.float32(back)}
    graph = helper.make_graph(nodes, 'g', [helper.make_tensor_value_info('x', F32, ['n', 16])],
                              [helper.make_tensor_value_info('y', F32, ['n', 8])],
                              [numpy_helper.from_array(np.asarray(a), k) for k, a in init.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)


def limits(folder):
    x = rng.standard_normal((32, 16)).astype(np.float32)
    source = data(folder / 'chain.h5', x=x)
    for word, weight, scale, back in (('overflow', 1, 1e5, 1e-5), ('tiny', 1e-9, 1e9, 1)):
        path = folder / f'{word}.onnx'
        onnx.save(chain(weight, scale, back), path)
        made, facts = quantize(path, folder / f'{word}.int8.onnx', '--data', source, '--mixed-precision', '0',
                               '--float-precision', 'fp16')
        kind = types(made)
        by_name = {n.name: n for n in made.graph.node}
        check(f'{word}/second', kind[by_name['second'].input[0]] == F16, 'the second product is not f16')
        if word == 'overflow':
            check(f'{word}/mul', kind[by_name['mul'].output[0]] == F32, 'it overflows f16')
        else:
            check(f'{word}/first', kind[by_name['first'].input[1]] == F32, 'f16 cannot hold the scales of its weight')
        got = pare_outputs(folder / f'{word}.int8.onnx', {'x': x}, ['y'])['y']
        exact = ort_session(path).run(None, {'x': x})[0]
        check(f'{word}/values', worst(got, exact) < 0.05, f'apart by {worst(got, exact):.4f}')
        names = facts['notes']
        check(f'{word}/note', any('stays f32' in n for n in names), str(names))


with tempfile.TemporaryDirectory() as scratch:
    try:
        nets(pathlib.Path(scratch))
        limits(pathlib.Path(scratch))
    except Exception as error:
        report('FAIL', 'int8_fp16', str(error)[-400:])
finish()

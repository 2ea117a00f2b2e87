# SPDX-License-Identifier: Apache-2.0
"""FP16 and BF16 files, clause by clause: what stays f32, what constants become, bodies of If and Loop,
attention masks, overflow forecasts, refusals. Each file passes the checker, and ONNX Runtime's outputs and
pare's are near those of the f32 model. bf16 operators, which ONNX Runtime's CPU has not, run in pare."""
import pathlib
import tempfile

import h5py
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from _lib import check, finish, ort_session, pare, report, worst

F32, F16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
FORMATS = {'fp16': ['--precision', 'fp16'], 'bf16': ['--precision', 'bf16'],
           'bf16c': ['--precision', 'bf16', '--bf16-compute']}
NEAR = {'fp16': 0.005, 'bf16': 0.03, 'bf16c': 0.03}
LOWEST = float(np.finfo(np.float32).min)
rng = np.random.default_rng(7)
scratch = tempfile.TemporaryDirectory()
folder = pathlib.Path(scratch.name)


def net(text, **constants):
    """A model of opset 17 from ONNX's text form; constants become initializers, value_info is inferred."""
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]>\n' + text)
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return onnx.shape_inference.infer_shapes(model)


def save(model, name):
    path = folder / f'{name}.onnx'
    onnx.save(model, path)
    return path


def convert(source, form, *options, checked=True):
    out = source.with_suffix(f'.{form}.onnx')
    out.unlink(missing_ok=True)
    pare('quantize', source, '-o', out, '--quiet', *FORMATS[form], *options)
    model = onnx.load(out)
    if checked and model.opset_import[0].version <= onnx.defs.onnx_opset_version():
        onnx.checker.check_model(str(out), full_check=True)
    return out, model


def graphs(graph):
    """The graph and every body in it."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from graphs(a.g)


def types(model):
    """name -> element type, by ONNX's own inference where this version of it knows the opset."""
    if model.opset_import[0].version <= onnx.defs.onnx_opset_version():
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    found = {}
    for g in graphs(model.graph):
        for v in [*g.input, *g.output, *g.value_info]:
            found[v.name] = v.type.tensor_type.elem_type
        for i in g.initializer:
            found[i.name] = i.data_type
    return found


def node(model, op, graph=None):
    return next(n for g in graphs(graph or model.graph) for n in g.node if n.op_type == op)


def near(name, source, form, inputs, *options, loose=(), everywhere=False):
    """Converts, runs in both runtimes, compares with the f32 model in ONNX Runtime; the converted model.
    loose: rows of the outputs that need only be finite in ONNX Runtime, which computes f16 in f32 here; or
    everywhere."""
    out, model = convert(source, form, *options)
    want = ort_session(source).run(None, inputs)
    names = [o.name for o in model.graph.output]
    casts = [n for n in model.graph.node if n.op_type == 'Cast' and n.attribute[0].i in (F32, F16, BF16)]
    chain = {o for n in casts for o in n.output} & {i for n in casts for i in n.input}
    runs = {'ort': lambda: ort_session(out).run(None, inputs)} if form != 'bf16c' else {}
    if not any(n.op_type in ('If', 'Loop', 'Range') for n in model.graph.node):
        runs['pare'] = lambda: [pare_run(out, inputs, names)[n] for n in names]
    check(f'{name}/{form}/casts', not chain, f'Casts back to back: {chain}')
    for runtime, run in runs.items():
        try:
            for w, g in zip(want, run(), strict=True):
                g, finite = np.array(g, dtype=np.float64), np.isfinite(g).all()
                for row in loose if everywhere or runtime == 'ort' else ():
                    g[row] = w[row]
                apart = worst(g, w) if finite else np.inf
                check(f'{name}/{form}/{runtime}', apart <= NEAR[form] * (5 if everywhere else 1), f'apart by {apart:.4g}')
        except Exception as error:  # the other runtime is still asked
            report('FAIL', f'{name}/{form}/{runtime}', str(error).splitlines()[-1][:300])
    return model


def pare_run(path, inputs, names):
    words = []
    for i, (name, array) in enumerate(inputs.items()):
        np.save(folder / f'in{i}.npy', array)
        words += ['--input', f'{name}={folder}/in{i}.npy']
    out = folder / 'out'
    out.mkdir(exist_ok=True)
    pare('run', path, *words, '-o', out, '--quiet')
    return {n: np.load(out / f'{n}.npy') for n in names}


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def data(name, **columns):
    path = folder / f'{name}.h5'
    with h5py.File(path, 'w') as f:
        for key, array in columns.items():
            f[key] = array
    return path


# --- what stays f32 ---

def resize():
    x, w = normal(1, 2, 4, 4), normal(3, 2, 1, 1)
    for mode, inputs, extra in (('scales', 'c, "", scales', {'scales': np.float32([1, 1, 2, 2])}),
                                ('roi', 'c, roi, scales', {'scales': np.float32([1, 1, 1.5, 1.5]),
                                                           'roi': np.float32([0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75])})):
        how = 'tf_crop_and_resize' if mode == 'roi' else 'half_pixel'
        text = f'''m (float[1,2,4,4] x) => (float[1,3,h,w] y) {{
            c = Conv(x, k)
            y = Resize<mode="linear", coordinate_transformation_mode="{how}">({inputs.replace('""', '')}) }}'''
        source = save(net(text, k=w, **extra), f'resize-{mode}')
        for form in ('fp16', 'bf16c'):
            model = near(f'resize/{mode}', source, form, {'x': x})
            kind, r = types(model), node(model, 'Resize')
            check(f'resize/{mode}/{form}/kept', all(kind[i] == F32 for i in r.input[1:] if i), 'roi or scales are short')
            if form == 'fp16':
                check(f'resize/{mode}/{form}/short', kind[r.input[0]] == F16, 'the image is f32')


def ranges():
    text = '''m (float[4] x, float limit) => (float[n] y) {
        r = Range(zero, limit, step)
        s = Add(x, x)
        y = Mul(s, r) }'''
    source = save(net(text, zero=np.float32(0), step=np.float32(0.5)), 'range')
    for form in ('fp16', 'bf16c'):
        model = near('range', source, form, {'x': normal(4), 'limit': np.array(2, np.float32)})
        kind, r = types(model), node(model, 'Range')
        check(f'range/{form}/kept', all(kind.get(i, F32) == F32 for i in r.input), 'an input is short')
        if form == 'fp16':
            check('range/fp16/short', kind[node(model, 'Add').input[0]] == F16, 'the Add is f32')


def casts():
    """70,001 and 2,049 are no numbers of f16: a Cast to f32 between integers must stay one."""
    text = '''m (int64[2] n, float[2] x) => (int64[2] back, float[2] y) {
        f = Cast<to=1>(n)
        back = Cast<to=7>(f)
        half = Add(x, x)
        whole = Cast<to=7>(half)
        g = Cast<to=1>(whole)
        y = Add(g, half) }'''
    source = save(net(text), 'cast')
    inputs = {'n': np.int64([70001, 2049]), 'x': np.float32([1.5, -3.25])}
    for form in ('fp16', 'bf16c'):
        model = near('cast', source, form, inputs)
        to = [a.i for n in model.graph.node if n.op_type == 'Cast' and n.output[0] in ('f', 'g') for a in n.attribute]
        check(f'cast/{form}/target', to == [1, 1] or to == [1], f'targets {to}')
        back = pare_run(source.with_suffix(f'.{form}.onnx'), inputs, ['back'])['back']
        check(f'cast/{form}/integers', list(back) == [70001, 2049], str(back))


def power():
    text = '''m (float[2,8] x) => (float[2,8] y) {
        s = Add(x, x)
        p = Pow(s, two)
        y = Mul(p, x) }'''
    source = save(net(text, two=np.float32(2)), 'pow')
    x = normal(2, 8)
    for form in ('fp16', 'bf16c'):
        model = near('pow', source, form, {'x': x})
        if form == 'fp16':
            kind, p = types(model), node(model, 'Pow')
            check('pow/fp16/kept', all(kind[i] == F32 for i in [*p.input, *p.output]), 'Pow computes in f16')
            check('pow/fp16/short', kind[node(model, 'Add').output[0]] == F16, 'Add computes in f32')


def reductions():
    """Stays f32 beyond 2,048 addends, or where their number is unknown."""
    rows = [('mean-2048', 'float[2,2048] x', 'ReduceMean<axes=[1], keepdims=0>(s)', False, (2, 2048)),
            ('mean-2049', 'float[2,2049] x', 'ReduceMean<axes=[1], keepdims=0>(s)', True, (2, 2049)),
            ('mean-free', 'float[2,n] x', 'ReduceMean<axes=[1], keepdims=0>(s)', True, (2, 5)),
            ('mean-batch', 'float[n,8] x', 'ReduceMean<axes=[1], keepdims=1>(s)', False, (3, 8)),
            ('mean-over-batch', 'float[n,8] x', 'ReduceMean<axes=[0], keepdims=1>(s)', True, (3, 8)),
            ('max-4096', 'float[2,4096] x', 'ReduceMax<axes=[1], keepdims=0>(s)', False, (2, 4096)),
            ('l2-4096', 'float[2,4096] x', 'ReduceL2<axes=[1], keepdims=0>(s)', True, (2, 4096)),
            ('pool-45', 'float[1,1,45,45] x', 'GlobalAveragePool(s)', False, (1, 1, 45, 45)),
            ('pool-46', 'float[1,1,46,46] x', 'GlobalAveragePool(s)', True, (1, 1, 46, 46)),
            ('window-46', 'float[1,1,64,64] x', 'AveragePool<kernel_shape=[46,46]>(s)', True, (1, 1, 64, 64)),
            ('window-3', 'float[1,1,h,w] x', 'AveragePool<kernel_shape=[3,3]>(s)', False, (1, 1, 64, 64))]
    for name, where, call, kept, shape in rows:
        left = 'a' if 'keepdims=0' in call else ','.join('abcd'[:len(shape)])
        source = save(net(f'm ({where}) => (float[{left}] y) {{ s = Add(x, x)\n r = {call}\n y = Relu(r) }}'), f'sum-{name}')
        x = np.abs(normal(*shape)) + np.float32(0.5)
        model = near(f'sum/{name}', source, 'fp16', {'x': x})
        kind = types(model)
        r = next(n for n in model.graph.node if n.op_type == call.split('<')[0].split('(')[0])
        check(f'sum/{name}/type', kind[r.input[0]] == (F32 if kept else F16), f'reads type {kind[r.input[0]]}')


# --- constants, stored types, inputs and outputs ---

def constants():
    """Beyond the type: clamped, never Inf. Inf stays Inf. Inside: rounded to nearest even."""
    c = np.float32([[1e5, -1e5, LOWEST, 65504, -65504, 2049, 1e-9, -np.inf]])
    text = '''m (float[1,8] x) => (float[1,8] y) { s = Add(x, x)
        y = Max(s, c) }'''
    source = save(net(text, c=c), 'constant')
    for form, largest in (('fp16', 65504.0), ('bf16c', 3.3895314e38)):
        _, model = convert(source, form)
        kind = F16 if form == 'fp16' else BF16
        got = next(numpy_helper.to_array(i) for i in model.graph.initializer if i.data_type == kind).ravel()
        got = bf16(got) if kind == BF16 else got
        got = got.astype(np.float64)
        check(f'constant/{form}/finite', np.isfinite(got[:7]).all() and np.isneginf(got[7]), str(got))
        check(f'constant/{form}/range', np.abs(got[:7]).max() <= largest and got[2] <= -61440, str(got))
        if form == 'fp16':
            check('constant/fp16/nearest', list(got[3:7]) == [65504, -65504, 2048, 0], str(got))


def bf16(array):
    """numpy_helper gives bf16 as its 16 bits where numpy has no such type, or as floats."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def rounded_to_bf16(a):
    """To nearest, ties to even."""
    bits = a.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def stored_bf16():
    """Weights bf16 after a Cast to f32, all else f32: ONNX Runtime computes exactly what it computes with
    the weights rounded."""
    w, b, x = normal(16, 64), normal(64), normal(3, 16)
    text = 'm (float[n,16] x) => (float[n,64] y) { y = Gemm(x, w, b) }'
    source = save(net(text, w=w, b=b), 'stored')
    model = near('stored', source, 'bf16', {'x': x})
    made = {o: n for n in model.graph.node for o in n.output}
    short = [i.name for i in model.graph.initializer if i.data_type == BF16]
    cast = made.get(node(model, 'Gemm').input[1])
    check('stored/cast', len(short) == 1 and cast is not None and cast.op_type == 'Cast' and
          list(cast.input) == short and cast.attribute[0].i == F32, 'the weight is not bf16 after a Cast to f32')
    check('stored/rest', all(t != BF16 for n, t in types(model).items() if n not in short), 'bf16 outside the weights')
    check('stored/io', types(model)['x'] == types(model)['y'] == F32, 'inputs and outputs')
    like = save(net(text, w=rounded_to_bf16(w), b=b), 'stored-like')
    same = ort_session(source.with_suffix('.bf16.onnx')).run(None, {'x': x})[0] == ort_session(like).run(None, {'x': x})[0]
    check('stored/values', same.all(), f'{(~same).sum()} outputs differ from those of rounded weights')


def typed_bf16():
    text = 'm (float[n,16] x) => (float[n,8] y) { h = Gemm(x, w, b)\n y = Relu(h) }'
    source = save(net(text, w=normal(16, 8), b=normal(8)), 'typed')
    model = near('typed', source, 'bf16c', {'x': normal(3, 16)})
    check('typed/opset', model.opset_import[0].version == 22 and model.ir_version >= 10,
          f'opset {model.opset_import[0].version}, IR {model.ir_version}')
    short = {i.name for i in model.graph.initializer if i.data_type == BF16}
    g = node(model, 'Gemm')
    check('typed/weights', set(g.input[1:]) <= short, 'weight or bias is not bf16')
    check('typed/io', [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)] == [F32, F32], 'types')


def io_types():
    text = '''m (float[n,16] x, int64[n] i) => (float[n,8] y, float[n,8] z, int64[n] k) {
        h = Gemm(x, w, b)
        y = Relu(h)
        z = Pow(h, two)
        k = Add(i, i) }'''
    x = normal(3, 16)
    source = save(net(text, w=normal(16, 8), b=normal(8), two=np.float32(2)), 'io')
    want = ort_session(source).run(None, {'x': x, 'i': np.arange(3)})
    for form, kind in (('fp16', F16), ('bf16c', BF16)):
        for io in ('f32', 'same'):
            _, model = convert(source, form, '--io', io)
            got = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
            wanted = [F32 if io == 'f32' else kind] * 3
            check(f'io/{form}/{io}', got == [wanted[0], TensorProto.INT64, wanted[1], wanted[2], TensorProto.INT64], str(got))
            if form == 'fp16':
                given = {'x': x.astype(np.float16) if io == 'same' else x, 'i': np.arange(3)}
                y = ort_session(source.with_suffix('.fp16.onnx')).run(None, given)
                far = max(worst(a, b) for a, b in zip(y, want))
                check(f'io/{form}/{io}/values', far < 0.005, f'apart by {far:.4g}')


def value_info():
    """Mentions of inner tensors follow their new type."""
    text = 'm (float[2,16] x) => (float[2,8] y) { h = Gemm(x, w, b)\n r = Relu(h)\n p = Pow(r, two)\n y = Tanh(p) }'
    source = save(net(text, w=normal(16, 8), b=normal(8), two=np.float32(2)), 'info')
    check('info/input', len(onnx.load(source).graph.value_info) == 3, 'the f32 model has no value_info')
    for form, kind in (('fp16', F16), ('bf16c', BF16)):
        model = near('info', source, form, {'x': normal(2, 16)})
        told = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
        check(f'info/{form}', told.get('h') == kind and told.get('r') == kind and told.get('p') == F32, str(told))


# --- bodies ---

IF = '''m (float[2,4] x, bool c, float[4] d) => (float[2,4] y, float[2,4] z) {
    h = Mul(x, x)
    p = Pow(h, two)
    y, z = If (c) <
        then_branch = yes () => (float[2,4] ty, float[2,4] tz)
            <float[2,4] t1> { t1 = Add(h, d)
              ty = Relu(t1)
              tz = Mul(p, k) },
        else_branch = no () => (float[2,4] ey, float[2,4] ez)
            { huge = Constant<value = float[1] {-3.4e38}>()
              e1 = Max(h, huge)
              ey = Neg(e1)
              ez = Sub(p, e1) }> }'''

LOOP = '''m (float[4] x, int64 trips, float[4] d) => (float[4] last, float[n,4] all) {
    yes = Constant<value = bool {1}>()
    h = Add(x, d)
    start = Mul(x, half)
    last, all = Loop (trips, yes, start) <
        body = turn (int64 i, bool go, float[4] s) => (bool go_on, float[4] next, float[4] seen)
            <float[4] t> { go_on = Identity(go)
              t = Add(s, h)
              next = Mul(t, half)
              q = Cast<to=1>(i)
              far = Greater(q, one)
              seen = If (far) <
                  then_branch = a () => (float[4] u) { u = Add(next, h) },
                  else_branch = b () => (float[4] v) { v = Sub(next, w) }> }> }'''


def bodies():
    """Bodies capture f32 and short tensors of the graph around them; their inputs and outputs stay f32."""
    x, d = np.float32([[1, -2, 3, 0.5], [0.25, 4, -1, 2]]), np.float32([0.5, -1, 2, 8])
    source = save(net(IF, two=np.float32(2), k=np.float32([0.5])), 'if')
    for form in ('fp16', 'bf16', 'bf16c'):
        for c in (True, False):
            model = near(f'if/{c}', source, form, {'x': x, 'c': np.array(c), 'd': d})
        inner(f'if/{form}', model, form, {'Add': True, 'Neg': True, 'Max': True})
    source = save(net(LOOP, half=np.float32(0.5), one=np.float32(1), w=np.float32([1, 2, 3, 4])), 'loop')
    for form in ('fp16', 'bf16', 'bf16c'):
        model = near('loop', source, form, {'x': x[0], 'trips': np.array(4), 'd': d})
        inner(f'loop/{form}', model, form, {'Mul': True, 'Sub': True})
    after = onnx.load(source)  # what a Loop makes has a type though the file does not say which
    after.graph.node.append(helper.make_node('Neg', ['last'], ['z'], 'after'))
    after.graph.output[0].name = 'z'
    del after.graph.value_info[:]
    model = near('loop/after', save(after, 'after'), 'fp16', {'x': x[0], 'trips': np.array(4), 'd': d})
    made = next(n for n in model.graph.node if n.name == 'after')
    check('loop/after/short', types(model)[made.output[0]] == F16, 'it stays f32')
    direct = save(net('''m (float[2,4] x, bool c) => (float[2,4] y) {
        h = Mul(x, x)
        y = If (c) < then_branch = yes () => (float[2,4] h) {},
                     else_branch = no () => (float[2,4] e) { e = Neg(h) }> }'''), 'direct')
    for io in ('f32', 'same'):  # neither ONNX Runtime nor the checker takes a body that returns an outer tensor
        ends = types(convert(direct, 'fp16', '--io', io, checked=False)[1])
        check(f'if/direct/{io}', ends['h'] == F32 and ends['e'] == F32, str(ends))
    known = [v for g in graphs(onnx.load(source).graph) if g.name == 'turn' for v in g.value_info if v.name == 't']
    check('loop/info', len(known) == 1, 'the body says no type of t: the case below tests nothing')
    told = {v.name: v.type.tensor_type.elem_type for g in graphs(convert(source, 'fp16')[1].graph) for v in g.value_info}
    check('loop/fp16/info', told.get('t') == F16, f"t is type {told.get('t')}")


def inner(name, model, form, wanted):
    """Do these operators of bodies compute in the short type, and are the bodies' ends f32?"""
    if form == 'bf16':
        return
    kind, short = types(model), {'fp16': F16, 'bf16c': BF16}[form]
    for g in list(graphs(model.graph))[1:]:
        ends = {kind[v.name] for v in (*g.input, *g.output)} - {TensorProto.INT64, TensorProto.BOOL}
        check(f'{name}/{g.name}/ends', ends <= {F32}, str(ends))
        for n in g.node:
            if n.op_type in wanted and form == 'fp16':
                check(f'{name}/{g.name}/{n.op_type}', kind[n.output[0]] == short, f'makes type {kind[n.output[0]]}')


# --- masks ---

MASKS = {
    'times': ('int64[b,4] keep', '''f = Cast<to=1>(keep)
              wide = Unsqueeze(f, ax)
              inverse = Sub(one, wide)
              bias = Mul(inverse, lowest)
              a = Add(s, bias)'''),
    'where': ('int64[b,4] keep', '''b = Cast<to=9>(keep)
              wide = Unsqueeze(b, ax)
              a = Where(wide, s, lowest)'''),
    'constant': ('int64[b,4] keep', 'a = Add(s, causal)'),
    'full': ('int64[b,4] keep', '''shape = Shape(s)
              all = ConstantOfShape<value = float[1] {-3.4028235e38}>(shape)
              f = Cast<to=1>(keep)
              wide = Unsqueeze(f, ax)
              inverse = Sub(one, wide)
              bias = Mul(all, inverse)
              a = Add(s, bias)'''),
    'triangle': ('int64[b,4] keep', '''shape = Shape(s)
              all = ConstantOfShape<value = float[1] {-3.4028235e38}>(shape)
              bias = Trilu<upper=1>(all, zero)
              a = Add(s, bias)'''),  # row 0 masks everything
    'expand': ('int64[b,4] keep', '''b = Cast<to=9>(keep)
              wide = Unsqueeze(b, ax)
              none = Not(wide)
              zeros = Cast<to=1>(none)
              dim = Shape(s)
              grown = Expand(zeros, dim)
              hit = Cast<to=9>(grown)
              bias = Where(hit, lowest, grown)
              a = Add(s, bias)'''),
}


def masks():
    """Attention with the masks that PyTorch exports. Row 1 of `keep` masks everything: f32 gives the mean."""
    q, k, v = normal(2, 4, 8), normal(2, 4, 8), normal(2, 4, 8)
    keep = np.int64([[1, 1, 1, 0], [0, 0, 0, 0]])
    causal = np.triu(np.full((1, 4, 4), LOWEST, np.float32), 1)
    causal[0, 2] = LOWEST  # a row that masks everything
    for name, (where, body) in MASKS.items():
        text = f'''m (float[b,4,8] q, float[b,4,8] k, float[b,4,8] v, {where}) => (float[b,4,8] y) {{
            t = Transpose<perm=[0,2,1]>(k)
            raw = MatMul(q, t)
            s = Mul(raw, scale)
            {body}
            p = Softmax<axis=-1>(a)
            y = MatMul(p, v) }}'''
        source = save(net(text, scale=np.float32(8 ** -0.5 * 4), one=np.float32(1), lowest=np.float32(LOWEST),
                          ax=np.int64([1]), zero=np.array(0), causal=causal), f'mask-{name}')
        inputs = {'q': q, 'k': k, 'v': v, 'keep': keep}
        full = {'constant': [(slice(None), 2)], 'triangle': [(slice(None), 0)]}.get(name, [1])
        for form in ('fp16', 'bf16', 'bf16c'):
            near(f'mask/{name}', source, form, inputs, loose=full)
        # scores of -20 to -60 carry a mask at the very end of f16 over it: the row would be NaN
        deep = {**inputs, 'q': np.abs(q) + 2, 'k': -np.abs(k) - 2}
        near(f'mask/{name}/deep', source, 'fp16', deep, loose=full, everywhere=True)
        fed = data(f'mask-{name}', q=q, k=k, v=v, keep=keep)
        near(f'mask/{name}/data', source, 'fp16', inputs, '--data', fed)


def scores():
    """Scores, and their sums with a mask, are numbers of f16 or bf16. Query 2, without a key, sees the mean or
    what steps at -10000 leave; it is NaN where its sums are infinite."""
    q, k, v = normal(1, 4, 8), normal(1, 4, 8), normal(1, 4, 8)
    head = 'm (float[1,4,8] q, float[1,4,8] k, float[1,4,8] v) => (float[1,4,8] y) { t = Transpose<perm=[0,2,1]>(k)'
    text = head + 'raw = MatMul(q, t) s = Mul(raw, half) a = Add(s, causal) p = Softmax<axis=-1>(a) y = MatMul(p, v) }'
    for low in (LOWEST, -10000, -np.inf):
        causal = np.where(np.arange(4) > np.float32([[[0], [1], [-1], [3]]]), np.float32(low), np.float32(0))
        source = save(net(text, half=np.float32(0.5), causal=causal), f'scores{low}')
        for form, short, end in (('fp16', lambda a: a.astype(np.float16).astype(np.float32), np.float32(-61440)),
                                 ('bf16c', rounded_to_bf16, np.float32(-3.38e38))):
            y = pare_run(convert(source, form)[0], {'q': q, 'k': k, 'v': v}, ['y'])['y']
            mask = short(np.where(np.isinf(causal), causal, np.maximum(causal, end)))
            a = short(short(short(short(q) @ short(k).transpose(0, 2, 1)) * np.float32(0.5)) + mask)
            p = np.exp(a - np.where(np.isinf(low), 0, a.max(-1, keepdims=True)))
            with np.errstate(invalid='ignore'):
                want = p / p.sum(-1, keepdims=True) @ short(v)
            check(f'scores/{low}/{form}', np.allclose(y, want, 0, NEAR[form], True), f'{y.tolist()}, expected {want.tolist()}')


# --- underflow ---

def underflow():
    """An inner tensor below f16's normal numbers: millionths, of which 17 steps of f16 would be left."""
    text = '''m (float[n,16] x) => (float[n,8] y) {
        h = Gemm(x, w, b)
        small = Mul(h, millionth)
        y = Div(small, millionth) }'''
    w = np.zeros((16, 8), np.float32)
    w[:8] = np.eye(8)
    source = save(net(text, w=w, b=np.zeros(8, np.float32), millionth=np.float32(1e-6)), 'underflow')
    model = onnx.load(source)
    for n in model.graph.node:
        n.name = f'/{n.op_type}'
    onnx.save(model, source)
    x = np.clip(normal(32, 16), -2, 2)
    fed = data('underflow', x=x)
    model = near('underflow', source, 'fp16', {'x': x}, '--data', fed)
    meta = {p.key: p.value for p in model.metadata_props}
    check('underflow/manifest', meta.get('pare.f32_for_underflow') == '/Mul, /Div', str(meta.get('pare.f32_for_underflow')))
    check('underflow/short', types(model)[node(model, 'Gemm').output[0]] == F16, 'Gemm is f32')
    out = source.with_suffix('.fp16.onnx')
    done = pare('quantize', source, '-o', out, '--precision', 'fp16', '--data', fed)
    check('underflow/summary', 'would underflow f16: /Mul, /Div' in done.stderr, done.stderr[-300:])


# --- overflow ---

def overflow():
    """An inner tensor, no input of a weighted node, beyond f16: Exp of 12 is 162,755."""
    text = '''m (float[n,16] x) => (float[n,8] y) {
        h = Gemm(x, w, b)
        e = Exp(h)
        root = Sqrt(e)
        y = Mul(root, tenth) }'''
    w = np.zeros((16, 8), np.float32)
    w[:8] = np.eye(8)
    source = save(net(text, w=w, b=np.zeros(8, np.float32), tenth=np.float32(0.1)), 'overflow')
    model = onnx.load(source)
    for n in model.graph.node:
        n.name = f'/{n.op_type}'
    onnx.save(model, source)
    x = np.clip(normal(32, 16), -2, 2)
    x[0, 0] = 12
    fed = data('overflow', x=x)
    model = near('overflow', source, 'fp16', {'x': x}, '--data', fed)
    kind = types(model)
    check('overflow/kept', all(kind[i] == F32 for op in ('Exp', 'Sqrt') for i in (*node(model, op).output,)[:1]), 'Exp or Sqrt is f16')
    check('overflow/short', kind[node(model, 'Gemm').output[0]] == F16, 'Gemm is f32')
    meta = {p.key: p.value for p in model.metadata_props}
    check('overflow/manifest', meta.get('pare.f32_for_overflow') == '/Exp, /Sqrt', str(meta.get('pare.f32_for_overflow')))
    out = source.with_suffix('.fp16.onnx')
    done = pare('quantize', source, '-o', out, '--precision', 'fp16', '--data', fed)
    check('overflow/summary', 'would overflow f16: /Exp, /Sqrt' in done.stderr, done.stderr[-300:])
    convert(source, 'fp16')
    y = pare_run(out, {'x': x}, ['y'])['y']
    check('overflow/without-data', not np.isfinite(y).all(), 'the case does not overflow: it tests nothing')
    half = data('near', x=np.float32(x * 0 + 10.5))  # 36,316: more than half of 65,504
    check('overflow/headroom', 'pare.f32_for_overflow' in {p.key for p in convert(source, 'fp16', '--data', half)[1].metadata_props}, 'no head room')
    low = data('low', x=np.float32(x * 0 + 10.3))  # 29,733
    check('overflow/below', 'pare.f32_for_overflow' not in {p.key for p in convert(source, 'fp16', '--data', low)[1].metadata_props}, 'f32 without need')
    table = folder / 'ranges.json'
    pare('calibrate', source, '--data', fed, '-o', table, '--quiet')
    done = pare('quantize', source, '-o', out, '--precision', 'fp16', '--ranges', table)
    check('overflow/ranges', 'tensors that int8 would quantize' in done.stderr, done.stderr[-300:])
    wide = save(net('m (float[n,16] x) => (float[n,8] y) { h = Gemm(x, w, b)\n r = Mul(h, small)\n y = Tanh(r) }', w=w * 10000,
                    b=np.zeros(8, np.float32), small=np.float32(1e-3)), 'wide')
    pare('calibrate', wide, '--data', fed, '-o', table, '--quiet')  # knows the Gemm's output: 120,000
    model = near('overflow/known', wide, 'fp16', {'x': x}, '--ranges', table)
    check('overflow/known/kept', types(model)['h'] == F32, 'the Gemm is f16')
    done = pare('quantize', source, '-o', out, '--precision', 'bf16', '--data', fed)
    check('overflow/bf16', '--data is not needed in bf16' in done.stderr, done.stderr[-300:])
    negative = data('negative', x=-x)
    text = text.replace('e = Exp(h)', 'p = Exp(h)\n e = Neg(p)').replace('Sqrt(e)', 'Neg(e)')
    source = save(net(text, w=-w, b=np.zeros(8, np.float32), tenth=np.float32(0.1)), 'negative')
    near('overflow/negative', source, 'fp16', {'x': -x}, '--data', negative)


# --- refusals ---

def refused(name, source, options, *words):
    out = folder / 'refused.onnx'
    done = pare('quantize', source, '-o', out, *options, ok=False)
    lines = [s for s in done.stderr.splitlines() if 'error' in s]
    check(f'refuse/{name}', done.returncode == 1 and not out.exists() and all(w in done.stderr for w in words),
          f'exit {done.returncode}: {done.stderr[-300:]}')
    check(f'refuse/{name}/once', len(lines) <= 1, str(lines))


def refusals():
    text = 'm (float[n,16] x) => (float[n,8] y) { h = Gemm(x, w, b)\n y = Relu(h) }'
    w = normal(16, 8)
    source = save(net(text, w=w, b=normal(8)), 'plain')
    fed = data('plain', x=normal(128, 16))
    short, _ = convert(source, 'fp16')
    typed, _ = convert(source, 'bf16c')
    stored, _ = convert(source, 'bf16')
    int8 = folder / 'plain.int8.onnx'
    pare('quantize', source, '-o', int8, '--data', fed, '--quiet')
    cure = 'start from the f32 model it was made from'
    for form, options in FORMATS.items():
        refused(f'int8-to-{form}', int8, options, 'quantized already', 'QuantizeLinear', cure)
        refused(f'fp16-to-{form}', short, options, 'is f16', cure)
    refused('int8-to-int8', int8, ['--data', fed], 'quantized already', cure)
    refused('fp16-to-int8', short, ['--data', fed], 'is f16', cure)
    refused('bf16c-to-int8', typed, ['--data', fed], 'is bf16', cure)
    refused('int8-to-fp16-data', int8, ['--precision', 'fp16', '--data', fed], 'quantized already')
    pare('quantize', stored, '-o', folder / 'again.onnx', '--data', fed, '--quiet')
    report('PASS', 'refuse/stored-bf16-is-f32')
    for bad, word in ((np.nan, 'nan'), (np.inf, 'inf'), (-np.inf, '-inf')):
        broken = w.copy()
        broken[3, 2] = bad
        hurt = save(net(text, w=broken, b=normal(8)), f'hurt{word}')
        for form, options in FORMATS.items():
            refused(f'{word}-weight-{form}', hurt, options, "tensor 'w'", word, 'place 26', 'expected finite')


def run(case):
    try:
        case()
    except Exception as error:  # the test continues with the next case
        report('FAIL', case.__name__, str(error).splitlines()[-1][:300] if str(error) else repr(error))


for case in (resize, ranges, casts, power, reductions, constants, stored_bf16, typed_bf16, io_types, value_info,
             bodies, masks, scores, overflow, underflow, refusals):
    run(case)
finish()

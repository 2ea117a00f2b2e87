# SPDX-License-Identifier: Apache-2.0
"""Operators on random shapes and attributes, in the form of ONNX's operator tests: pare (onnx_nodes.c, by
plain and by fast kernels) against ONNX Runtime, or NumPy where that has no kernel or another opinion."""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

from _lib import PARE, check, finish, ort_session, report

CASES = int(os.environ.get('PARE_RANDOM_CASES', '60'))  # of each operator
rng = np.random.default_rng(7)


def some(low, high):
    return int(rng.integers(low, high))


def normal(*dims, dtype=np.float64):
    return rng.standard_normal(dims).astype(dtype)


def rotary_embedding():
    batch, heads, length, size = some(1, 5), some(1, 5), some(1, 5), 2 * some(1, 9)
    part = rng.choice([0, 2 * some(1, size // 2 + 1)])
    flat, by_position = rng.random() < 0.5, rng.random() < 0.5
    half, most = (part or size) // 2, length + 7
    angle = rng.random((most, half) if by_position else (batch, length, half))
    x = normal(*((batch, length, heads * size) if flat else (batch, heads, length, size)), dtype=np.float32)
    inputs = [x, np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)]
    if by_position:
        inputs.append(rng.integers(0, most, (batch, length)))
    return 23, inputs, dict(interleaved=some(0, 2), rotary_embedding_dim=int(part), num_heads=heads), None


def tensor_scatter():
    past = normal(*rng.integers(1, 6, some(2, 5)), dtype=np.float32)
    axis, circular = some(1, past.ndim), rng.random() < 0.5
    length = past.shape[axis]
    shape = list(past.shape)
    shape[axis] = some(1, length + 1)
    update, y = normal(*shape, dtype=np.float32), past.copy()
    start = rng.integers(0, 2 * length if circular else length - shape[axis] + 1, shape[0])
    for b in range(shape[0]):
        for k in range(shape[axis]):
            here, there = [b] + [slice(None)] * (past.ndim - 1), [b] + [slice(None)] * (past.ndim - 1)
            here[axis], there[axis] = (start[b] + k) % length, k
            y[tuple(here)] = update[tuple(there)]
    mode = 'circular' if circular else 'linear'
    return 24, [past, update, start], dict(mode=mode, axis=axis - past.ndim), y


def einsum():
    """Letters, diagonals, ellipses, one to three inputs, both forms."""
    while True:
        letters = list('abcdefgAZ'[:some(2, 7)])
        dims = {c: [some(1, 5)] for c in letters} | {'...': list(rng.integers(1, 4, some(0, 3)))}
        terms = []
        for _ in range(rng.choice([1, 2, 2, 2, 3])):
            term = [str(c) for c in rng.choice(letters, some(0, min(5, len(letters) + 1)),
                                               replace=bool(rng.random() < 0.15))]
            if rng.random() < 0.2:
                term.insert(some(0, len(term) + 1), '...')
            terms.append(term)
        equation = ','.join(''.join(t) for t in terms)
        if rng.random() < 0.85:
            used = sorted({c for t in terms for c in t} - {'...'})
            out = [str(c) for c in rng.permutation(used)[:some(0, len(used) + 1)]] if used else []
            if '...' in equation:
                out.insert(some(0, len(out) + 1), '...')
            equation += '->' + ''.join(out)
        inputs = [np.asarray(normal(*[d for c in t for d in dims[c]])) for t in terms]
        try:
            return 12, inputs, dict(equation=equation), np.asarray(np.einsum(equation, *inputs))
        except ValueError:  # an equation that makes no sense
            continue


def dft():
    shape = list(rng.integers(1, 9, some(2, 5)))
    axis, inverse, onesided = some(0, len(shape) - 1), some(0, 2), some(0, 2)
    shape[-1] = 2 if onesided and inverse else 1 if onesided else some(1, 3)
    shape[axis] = rng.choice([2, 3, 5, 12, 49, 64, 100, 13, 71, 121, 142, 509])
    x, length = normal(*shape), some(2, 40) if rng.random() < 0.4 else None
    inputs = [x, None if length is None else np.int64(length), np.int64(axis)]
    y = None
    if inverse and onesided:
        y = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, axis=axis)[..., None]
    return 20, inputs, dict(inverse=inverse, onesided=onesided), y


def stft():
    length, form = some(2, 17), rng.random()
    inputs = [normal(some(1, 4), some(16, 80), some(1, 3)), np.int64(some(1, 9)),
              normal(length) if form < 0.7 else None, np.int64(length) if form > 0.4 else None]
    return 17, inputs, dict(onesided=some(0, 2)), None


def mel_weight_matrix():
    rate = int(rng.choice([8000, 16000, 22050]))
    inputs = [np.int64(some(1, 41)), np.int64(rng.choice([64, 100, 256, 512])), np.int64(rate),
              np.float32(some(0, 200)), np.float32(some(300, rate // 2))]
    return 17, inputs, {}, None


def tf_idf_vectorizer():
    words, longest, pool, counts, grams = some(2, 5), some(1, 4), [], [], 0
    for n in range(1, longest + 1):
        counts.append(len(pool))
        for gram in {tuple(map(int, rng.integers(0, words, n))) for _ in range(some(1, 6))}:
            pool += gram
            grams += 1
    shortest = some(1, longest + 1)
    attributes = dict(mode=str(rng.choice(['TF', 'IDF', 'TFIDF'])), min_gram_length=shortest,
                      max_gram_length=some(shortest, longest + 1), max_skip_count=some(0, 4), ngram_counts=counts,
                      ngram_indexes=[int(i) for i in rng.permutation(grams)], pool_int64s=pool)
    if rng.random() < 0.7:
        attributes['weights'] = [float(w) for w in rng.random(grams)]
    shape = (some(1, 4), some(1, 12))[some(0, 2):]
    return 9, [rng.integers(0, words, shape)], attributes, None


def positive(*dims, dtype=np.float32):
    """Sums of these do not cancel."""
    return (rng.random(dims) + 0.5).astype(dtype)


def grid_sample():
    axes = some(2, 4)
    mode = str(rng.choice(['nearest', 'linear', 'cubic'][:5 - axes]))
    dtype = np.float64 if mode == 'cubic' else np.float32  # weights of both signs cancel
    x = positive(some(1, 4), some(1, 5), *rng.integers(1, 12, axes), dtype=dtype)
    grid = rng.uniform(-1.5, 1.5, (x.shape[0], *rng.integers(1, 12, axes), axes)).astype(dtype)
    padding = str(rng.choice(['zeros', 'border', 'reflection']))
    return 20, [x, grid], dict(mode=mode, padding_mode=padding, align_corners=some(0, 2)), None


def affine_grid():
    axes = some(2, 4)
    theta = normal(some(1, 4), axes, axes + 1, dtype=np.float32)
    size = np.array([theta.shape[0], some(1, 4), *rng.integers(2, 9, axes)])
    return 20, [theta, size], dict(align_corners=some(0, 2)), None


def roi_align():
    x = positive(some(1, 4), some(1, 5), some(2, 14), some(2, 14))
    corner = rng.uniform(-3, 12, (some(1, 6), 2))
    rois = np.concatenate([corner, corner + rng.uniform(0.1, 14, corner.shape)], 1).astype(np.float32)
    batch = rng.integers(0, x.shape[0], len(rois))
    return 16, [x, rois, batch], dict(
        mode='avg', output_height=some(1, 5), output_width=some(1, 5), sampling_ratio=some(0, 4),
        spatial_scale=float(rng.choice([0.5, 1, 2])),
        coordinate_transformation_mode=str(rng.choice(['half_pixel', 'output_half_pixel']))), None


def deform_conv():
    group, each, offsets = some(1, 3), some(1, 3), some(1, 3)
    channels, kernel, pads = group * each * offsets, rng.integers(1, 4, 2), rng.integers(0, 3, 2)
    stride, dilation = rng.integers(1, 3, 2), rng.integers(1, 3, 2)
    size = rng.integers(6, 10, 2)
    out = (size + 2 * pads - dilation * (kernel - 1) - 1) // stride + 1
    n, maps, taps = some(1, 3), group * some(1, 4), int(np.prod(kernel))
    x, w = positive(n, channels, *size), positive(maps, channels // group, *kernel)
    offset = rng.uniform(-2, 2, (n, 2 * offsets * taps, *out)).astype(np.float32)
    bias = positive(maps) if some(0, 2) else None
    mask = positive(n, offsets * taps, *out) if some(0, 2) else None
    return 22, [x, w, offset, bias, mask], dict(
        group=group, offset_group=offsets, kernel_shape=kernel, pads=np.tile(pads, 2), strides=stride,
        dilations=dilation), None


def col2im():
    axes = some(2, 4)
    block, dilation, stride = rng.integers(1, 4, axes), rng.integers(1, 3, axes), rng.integers(1, 4, axes)
    pads, size = rng.integers(0, 3, axes), rng.integers(6, 9, axes)
    places = np.prod((size + 2 * pads - dilation * (block - 1) - 1) // stride + 1)
    x = positive(some(1, 3), some(1, 3) * np.prod(block), places)
    y = np.zeros((x.shape[0], x.shape[1] // np.prod(block), *(size + 2 * pads)))
    count = (size + 2 * pads - dilation * (block - 1) - 1) // stride + 1
    parts = x.reshape(*y.shape[:2], *block, *count)  # ONNX Runtime has another opinion of three axes
    for tap in np.ndindex(*block):
        for place in np.ndindex(*count):
            y[(..., *(np.array(place) * stride + np.array(tap) * dilation))] += parts[(..., *tap, *place)]
    y = y[(..., *(slice(p, p + n) for p, n in zip(pads, size)))].astype(np.float32)
    return 18, [x, size, block], dict(pads=np.tile(pads, 2), strides=stride, dilations=dilation), y


def center_crop_pad():
    x = normal(*rng.integers(1, 7, some(1, 5)), dtype=np.float32)
    axes = rng.permutation(x.ndim)[:some(1, x.ndim + 1)]
    return 18, [x, rng.integers(1, 9, len(axes))], dict(axes=axes - x.ndim * rng.integers(0, 2, len(axes))), None


def max_unpool():
    kernel, stride = rng.integers(2, 4, 2), rng.integers(2, 4, 2)
    x = positive(some(1, 3), some(1, 3), *rng.integers(1, 5, 2))
    shape = [*x.shape[:2], *((np.array(x.shape[2:]) - 1) * stride + kernel)]
    index = rng.permutation(int(np.prod(shape)))[:x.size].reshape(x.shape)
    return 11, [x, index], dict(kernel_shape=kernel, strides=stride), None


def det():
    n = some(1, 7)
    x = positive(*rng.integers(1, 4, some(0, 3)), n, n, dtype=np.float64) + 3 * np.eye(n)
    return 11, [x], {}, np.asarray(np.linalg.det(x))


def mean_variance_normalization():
    x = positive(*rng.integers(2, 6, 4))
    return 13, [x], dict(axes=rng.permutation(4)[:some(1, 5)]), None


def write_case(folder, op, opset, inputs, attributes, y):
    """A folder as ONNX's tests have it; y None: what ONNX Runtime gives."""
    given = [(f'x{i}', np.asarray(x)) for i, x in enumerate(inputs) if x is not None]
    names = ['' if x is None else f'x{i}' for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, ['y'], **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given]
    data = folder / 'test_data_set_0'
    data.mkdir(parents=True)

    def save(output):
        graph = helper.make_graph([node], op, infos, [output])
        imports = [helper.make_opsetid('', opset)]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / 'model.onnx')

    if y is None:
        save(onnx.ValueInfoProto(name='y'))
        y = ort_session(folder / 'model.onnx').run(None, dict(given))[0]
    save(helper.make_tensor_value_info('y', helper.np_dtype_to_tensor_dtype(y.dtype), y.shape))
    for i, (name, x) in enumerate(given):
        (data / f'input_{i}.pb').write_bytes(numpy_helper.from_array(x, name).SerializeToString())
    (data / 'output_0.pb').write_bytes(numpy_helper.from_array(y, 'y').SerializeToString())


OPERATORS = {'RotaryEmbedding': rotary_embedding, 'TensorScatter': tensor_scatter, 'Einsum': einsum, 'DFT': dft,
             'STFT': stft, 'MelWeightMatrix': mel_weight_matrix, 'TfIdfVectorizer': tf_idf_vectorizer,
             'GridSample': grid_sample, 'AffineGrid': affine_grid, 'RoiAlign': roi_align, 'DeformConv': deform_conv,
             'Col2Im': col2im, 'CenterCropPad': center_crop_pad, 'MaxUnpool': max_unpool, 'Det': det,
             'MeanVarianceNormalization': mean_variance_normalization}
OPERATORS = {k: v for k, v in OPERATORS.items() if k in os.environ.get('PARE_RANDOM_ONLY', k).split(',')}
program = pathlib.Path(PARE).parent / 'tests' / 'onnx_nodes'
if not os.access(program, os.X_OK):
    report('SKIP', 'onnx_random', f'needs {program}')
    sys.exit(0)
for operator, make in OPERATORS.items():
    with tempfile.TemporaryDirectory() as root:
        for k in range(CASES):
            write_case(pathlib.Path(root) / f'test_{operator}_{k}', operator, *make())
        said = subprocess.run([str(program), '--least', str(CASES), root], capture_output=True, text=True).stdout
        bad = [line for line in said.splitlines() if line.startswith(('FAIL', 'SKIP'))]
        check(f'onnx_random/{operator}', not bad and said.count('\nPASS') + said.startswith('PASS') == CASES,
              '; '.join(bad[:3]) or said[-200:])
finish()

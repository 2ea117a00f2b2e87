# SPDX-License-Identifier: Apache-2.0
"""Nets as PyTorch's exporters write them (datasets/exports): FP32 beside ONNX Runtime; quantized with s8 and u8 to the
end, near the float net, and read by ONNX Runtime, which runs it as it is written (its fused kernels saturate without VNNI); simplified, the same."""
import pathlib
import sys
import tempfile

import h5py
import numpy as np
import onnx

from _lib import ROOT, check, file_name, finish, ort_session, pare

sys.path.insert(0, str(ROOT / 'datasets' / 'exports'))
import strip  # noqa: E402

SAMPLES, LEAST_DB = 4, 8
# u8 rounds every tensor between operators, as ONNX Runtime's quantizer does (1.0 dB of this net with its own file).
LOWER_DB = {('xcit_nano_12_p16_224', 'u8'): 0}
# A tie of this net moves all that follows. Biases that the same 4 samples choose gain by chance, and ONNX Runtime's ties fall
# otherwise.
WORDS = {('xcit_nano_12_p16_224', 'u8'): ('--bias-correction', 'fast')}


def made_inputs(session):
    rng = np.random.default_rng(2)
    for value in session.get_inputs():
        shape = [SAMPLES] + [d if isinstance(d, int) else 1 for d in value.shape[1:]]
        if value.type == 'tensor(float)':
            yield value.name, rng.standard_normal(shape).astype(np.float32)
        else:
            yield value.name, np.ones(shape, np.int64) if 'mask' in value.name else rng.integers(0, 500, shape)


def reference(path, inputs, literal=False):
    session = ort_session(path, literal)
    rows = [session.run(None, {n: a[i:i + 1] for n, a in inputs.items()}) for i in range(SAMPLES)]
    return {o.name: np.concatenate([row[k] for row in rows]) for k, o in enumerate(session.get_outputs())}


def outputs(path, data, names):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / 'out.h5'
        pare('run', path, '--data', data, '-o', out, '--batch', 1, '--quiet')
        with h5py.File(out) as file:
            return {name: file[file_name(name)][()] for name in names}


def floats(want):
    return {name: w for name, w in want.items() if w.dtype.kind == 'f'}


def apart(got, want):
    return max(float(np.abs(got[n].reshape(w.shape) - w).max() / np.abs(w).max()) for n, w in floats(want).items())


def decibels(got, want):
    signal = sum(float((w.astype(np.float64) ** 2).sum()) for w in floats(want).values())
    noise = sum(float(((got[n].reshape(w.shape).astype(np.float64) - w) ** 2).sum()) for n, w in floats(want).items())
    return 10 * np.log10(signal / max(noise, 1e-30))


def one(net, source, folder):
    model, data, simple = folder / 'net.onnx', folder / 'samples.h5', folder / 'simple.onnx'
    onnx.save(strip.filled(source), model)
    inputs = dict(made_inputs(ort_session(model)))
    with h5py.File(data, 'w') as file:
        for name, values in inputs.items():
            file[name] = values
    want = reference(model, inputs)
    far = apart(outputs(model, data, want), want)
    check(f'{net}/fp32', far <= 1e-4, f'{far:.3g} of the largest output away')
    pare('simplify', model, '-o', simple, '--quiet')
    far = apart(reference(simple, inputs), want)
    check(f'{net}/simplified', far <= 1e-4, f'{far:.3g} of the largest output away')
    for kind in ('s8', 'u8'):
        small = folder / f'{kind}.onnx'
        pare('quantize', model, '-o', small, '--data', data, '--activations', kind, '--quiet', *WORDS.get((net, kind), ()))
        got = outputs(small, data, want)
        near = decibels(got, want)
        check(f'{net}/{kind}', near >= LOWER_DB.get((net, kind), LEAST_DB), f'{near:.1f} dB')
        agrees = decibels(reference(small, inputs, True), got)
        # past 35 dB roundings to the other side of a tie are what is left between the two
        check(f'{net}/{kind}_in_onnx_runtime', agrees >= min(near, 35), f'{agrees:.1f} dB, of the float net {near:.1f} dB')


def main():
    sources = sorted((ROOT / 'datasets' / 'exports').glob('*.onnx.gz'))
    check('nets', len(sources) >= 14, f'{len(sources)} files')
    for source in sources:
        net = source.name.split('.')[0]
        with tempfile.TemporaryDirectory() as folder:
            try:
                one(net, source, pathlib.Path(folder))
            except RuntimeError as error:
                check(f'{net}/runs', False, str(error))


main()
finish()

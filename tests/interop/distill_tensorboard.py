# SPDX-License-Identifier: Apache-2.0
"""What pare distill --tensorboard and pare prune --distill --tensorboard write, loaded by TensorBoard: scalars are those
of the log, histograms those of the weights that are written, and a training that was killed and continues has every
step once."""
import json
import pathlib
import signal
import struct
import subprocess
import tempfile
import time

import h5py
import numpy as np
import onnx
from onnx import numpy_helper

from _lib import PARE, ZOO, check, finish, pare, report

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
except ImportError as error:
    report('SKIP', 'tensorboard', f'needs TensorBoard: {error}')
    finish()

rng = np.random.default_rng(7)
BINS = 30


def data(path):
    with h5py.File(path, 'w') as f:
        f.create_dataset('input', data=rng.standard_normal((320, 1, 28, 28)).astype(np.float32))
        f.create_dataset('labels', data=rng.integers(0, 10, 320))


def load(folder):
    """Everything that TensorBoard finds there."""
    everything = {name: 0 for name in event_accumulator.DEFAULT_SIZE_GUIDANCE}
    return event_accumulator.EventAccumulator(str(folder), everything).Reload()


def log_scalars(path):
    """tag -> {step: value} of a log."""
    found = {}
    names = {'loss': 'train/loss', 'lr': 'train/learning_rate', 'gradient_norm': 'train/gradient_norm'}
    for line in map(json.loads, path.read_text().splitlines()):
        for key, tag in names.items():
            if key in line:
                found.setdefault(tag, {})[line['step']] = line[key]
        if line['step']:
            found.setdefault('train/epoch', {})[line['step']] = line['epoch']
        for key, value in line.get('held_out', {}).items():
            found.setdefault(f'eval/{key}', {})[line['step']] = value
    return found


def compare_scalars(name, events, log):
    expected = log_scalars(log)
    speed = 'train/samples_per_second'
    tags = set(events.Tags()['scalars'])
    check(f'{name}/tags', tags == expected.keys() | {speed}, str(tags ^ expected.keys()))
    for tag, values in expected.items():
        got = events.Scalars(tag)
        check(f'{name}/{tag}/steps', [e.step for e in got] == list(values), f'{[e.step for e in got]}, not {list(values)}')
        far = max(abs(e.value - values[e.step]) / max(abs(values[e.step]), 1e-30) for e in got)
        check(f'{name}/{tag}/values', far < 1e-6, f'apart by {far:.1e}')
    check(f'{name}/speed', all(e.value > 0 for e in events.Scalars(speed)), 'not positive')
    times = [e.wall_time for e in events.Scalars('train/loss')]
    check(f'{name}/times', times == sorted(times) and abs(times[-1] - time.time()) < 3600, str(times[:3]))


def expect_histogram(name, h, values):
    """The file's histogram against one of numpy's."""
    v = values.astype(np.float64).ravel()
    width = (v.max() - v.min()) / BINS
    if width > 0:
        bins = np.bincount(np.minimum(((v - v.min()) / width).astype(int), BINS - 1), minlength=BINS)
        limits = np.linspace(v.min(), v.max(), BINS + 1)[1:]
    else:
        bins, limits = [v.size], [v.max()]
    check(f'{name}/sums', h.num == v.size and h.min == v.min() and h.max == v.max() and np.isclose(h.sum, v.sum(), atol=1e-9)
          and np.isclose(h.sum_squares, (v * v).sum()), f'{h.num} {h.min} {h.max} {h.sum} {h.sum_squares}')
    check(f'{name}/bins', list(h.bucket) == list(bins) and np.allclose(h.bucket_limit, limits, rtol=1e-12, atol=1e-12), str(h.bucket))


def weights(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer if i.dims and i.data_type == 1}


def compare_histograms(name, events, out, log, best):
    """Weights and gradients at each look at held-out samples; the best weights are the file's."""
    tags, written = set(events.Tags()['histograms']), weights(out)
    check(f'{name}/names', tags == written.keys() | {f'gradients/{n}' for n in written}, str(tags ^ written.keys()))
    scalars = log_scalars(log)
    looks = list(scalars['eval/loss'])
    for tensor, values in written.items():
        found = {e.step: e.histogram_value for e in events.Histograms(tensor)}
        check(f'{name}/{tensor}/steps', list(found) == looks, f'{list(found)}, not {looks}')
        expect_histogram(f'{name}/{tensor}', found[best], values)
        check(f'{name}/{tensor}/learns', found[looks[0]] != found[best], 'as before the training')
    for step in looks[1:]:
        squares = sum(e.histogram_value.sum_squares for n in written for e in events.Histograms(f'gradients/{n}') if e.step == step)
        norm = scalars['train/gradient_norm'][step]
        check(f'{name}/gradients/{step}', abs(np.sqrt(squares) / norm - 1) < 1e-5, f'norm {np.sqrt(squares)}, not {norm}')


def compare_shown(name, folder, tensor, step):
    """What TensorBoard's pages get: both kinds belong to their plugins; a histogram has 30 bins."""
    shown = plugin_event_accumulator.EventAccumulator(str(folder), {plugin_event_accumulator.TENSORS: 0}).Reload()
    check(f'{name}/scalars-page', 'train/loss' in shown.PluginTagToContent('scalars'), 'not there')
    check(f'{name}/histograms-page', tensor in shown.PluginTagToContent('histograms'), 'not there')
    bins = [e.tensor_proto for e in shown.Tensors(tensor) if e.step == step]
    check(f'{name}/histogram-shape', len(bins) == 1 and [d.size for d in bins[0].tensor_shape.dim] == [BINS, 3], str(bins)[:200])


def whole_records(path):
    """How many; raises where the file ends in the midst of one."""
    count, at, content = 0, 0, path.read_bytes()
    while at < len(content):
        at += 16 + struct.unpack_from('<Q', content, at)[0]
        count += 1
    if at != len(content):
        raise RuntimeError(f'{path.name} ends in record {count}')
    return count


def train(folder, source, *options):
    return ['distill', '-q', '--teacher', ZOO / 'mlp.onnx', '--student', folder / 'half.onnx', '--data', source, '--batch', '16',
            '--validate-every', '6', '-o', folder / 'out.onnx', *options]


def plain(folder, source):
    for word, options in (('plain', []), ('ema', ['--ema', '0.9', '--accumulate', '2', '--clip', '0.01'])):
        events, log, facts = folder / word, folder / f'{word}.jsonl', folder / f'{word}.json'
        pare(*train(folder, source, '--steps', '20', '--tensorboard', events, '--log', log, '--json', facts, *options))
        best = json.loads(facts.read_text())['best_step']
        files = list(events.iterdir())
        check(f'{word}/one-file', len(files) == 1 and files[0].name.startswith('events.out.tfevents.'), str(files))
        loaded = load(events)
        compare_scalars(word, loaded, log)
        compare_histograms(word, loaded, folder / 'out.onnx', log, best)
        compare_shown(word, events, next(iter(weights(folder / 'out.onnx'))), best)


def same_bytes(folder, source):
    """The file changes nothing of the training."""
    pare(*train(folder, source, '--steps', '20'))
    without = (folder / 'out.onnx').read_bytes()
    pare(*train(folder, source, '--steps', '20', '--tensorboard', folder / 'again'))
    check('same-bytes', (folder / 'out.onnx').read_bytes() == without, 'the weights differ')


def killed(folder, source):
    """Kills it twice at some step after a checkpoint, and lets it end."""
    events, log = folder / 'killed', folder / 'killed.jsonl'
    words = train(folder, source, '--steps', '600', '--tensorboard', events, '--log', log, '--checkpoint', folder / 'ck', '--checkpoint-every',
                  '7', '--resume')
    for wanted in (17, 138):
        process = subprocess.Popen([PARE, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not log.exists() or log.read_text().count('\n') <= wanted):
            time.sleep(0.005)
        process.kill()
        check(f'killed/{wanted}', process.wait() == -signal.SIGKILL, 'it had ended before')
    pare(*words)
    files = sorted(events.iterdir())
    check('killed/files', len(files) == 3, str(files))
    records = [whole_records(f) for f in files]
    check('killed/records', all(n > 10 for n in records), str(records))
    compare_scalars('killed', load(events), log)
    compare_shown('killed', events, next(iter(weights(folder / 'out.onnx'))), 540)


def quantized(folder, source):
    """Scales are the file's; weights are the floats that round to its integers, as are their layers' biases."""
    events, log, facts = folder / 'qat', folder / 'qat.jsonl', folder / 'qat.json'
    pare(*train(folder, source, '--qat', 'int8', '--qat-samples', '64', '--steps', '12', '--lr', '1e-4', '--tensorboard', events, '--log', log,
                '--json', facts))
    best = json.loads(facts.read_text())['best_step']
    loaded = load(events)
    compare_scalars('qat', loaded, log)
    found = {t: {e.step: e.histogram_value for e in loaded.Histograms(t)} for t in loaded.Tags()['histograms'] if not t.startswith('gradients/')}
    check('qat/steps', all(list(h) == [0, 6, 12] for h in found.values()), str({t: list(h) for t, h in found.items()}))
    floats = weights(folder / 'out.onnx')
    integers = {i.name: numpy_helper.to_array(i) for i in onnx.load(folder / 'out.onnx').graph.initializer if i.name.endswith('_quantized')}
    check('qat/integers', len(integers) > 1, str(list(integers)))
    for tensor, values in floats.items():
        if tensor.removesuffix('bias') + 'weight_quantized' not in integers:
            expect_histogram(f'qat/{tensor}', found[tensor][best], values)
    for tensor, q in integers.items():
        stem = tensor.removesuffix('_quantized')
        step, h = floats[f'{stem}_scale'].astype(np.float64).max(), found[stem][best]
        lowest, highest = (int(q.min()) - 1) * step, (int(q.max()) + 1) * step
        check(f'qat/{stem}/range', h.num == q.size and h.min > lowest and h.max < highest, f'{h.min} to {h.max}, not {lowest} to {highest}')


def pruned(folder, source):
    events = folder / 'pruned'
    pare('prune', '-q', ZOO / 'mlp.onnx', '-o', folder / 'pruned.onnx', '--macs', '0.5', '--steps', '2', '--data', source, '--distill',
         'epochs=2,batch=16', '--tensorboard', events)
    check('pruned/runs', sorted(f.name for f in events.iterdir()) == ['step-1', 'step-2'], str(list(events.iterdir())))
    for run in ('step-1', 'step-2'):
        loaded = load(events / run)
        steps = [e.step for e in loaded.Scalars('train/loss')]
        check(f'pruned/{run}', steps == list(range(1, len(steps) + 1)) and len(steps) > 3 and loaded.Histograms('1.weight'), str(steps))


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    samples = place / 'data.h5'
    data(samples)
    pare('prune', '-q', ZOO / 'mlp.onnx', '-o', place / 'half.onnx', '--macs', '0.5')
    for part in (plain, same_bytes, killed, quantized, pruned):
        try:
            part(place, samples)
        except Exception as error:  # the test continues with the next part
            report('FAIL', part.__name__, str(error).splitlines()[-1][:300])
finish()

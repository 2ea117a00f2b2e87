# SPDX-License-Identifier: Apache-2.0
"""Hostile twins (datasets/zoo/twins.py): plain INT8 with one scale per tensor ruins them, pare's default does not;
--max-drop writes what was asked for, or the best there is and says so."""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import onnx
import onnx.utils

from _lib import ZOO, check, finish, pare, report

RUINED = {'mobilenet': 20, 'vit': 4}  # points of top-1, at least
KEPT = 0.3
NAIVE = ('--method', 'minmax', '--weights', 'tensor', '--no-equalization', '--bias-correction', 'none')


def drops(folder, kind, files):
    """Points of top-1 that each file loses against the original net."""
    facts = folder / 'facts.json'
    pare('validate', ZOO / f'{kind}.onnx', *files, '--data', folder / 'data' / 'test.h5', '--json', facts, '--quiet')
    return [model['drop'] for model in json.loads(facts.read_text())['models'][1:]]


def one(folder, kind):
    twin, naive, own = (folder / f'{kind}.{word}.onnx' for word in ('twin', 'naive', 'own'))
    subprocess.run([sys.executable, ZOO / 'twins.py', kind, ZOO / f'{kind}.onnx', twin], check=True, stdout=subprocess.DEVNULL)
    for out, words in ((naive, NAIVE), (own, ())):
        pare('quantize', twin, '-o', out, '--data', folder / 'data' / 'train.h5', '--quiet', *words)
    exact, lost, kept = drops(folder, kind, (twin, naive, own))
    check(f'{kind}/twin', abs(exact) < 0.02, f'the twin itself loses {exact:.2f} points')
    check(f'{kind}/naive', lost > RUINED[kind], f'loses {lost:.2f} points')
    check(f'{kind}/default', kept <= KEPT, f'loses {kept:.2f} points')


def asked(folder, name, points, *words, model=ZOO / 'mobilenet.onnx'):
    """The run of quantize --max-drop, its facts and the written file."""
    out, facts = folder / f'{name}.onnx', folder / 'facts.json'
    done = pare('quantize', model, '-o', out, '--data', folder / 'data' / 'train.h5', '--max-drop', points, '--json', facts,
                *words, ok=False)
    return done, json.loads(facts.read_text())['max_drop'] if facts.exists() else None, out


def max_drop(folder):
    judge = folder / 'judge.h5'
    with h5py.File(folder / 'data' / 'test.h5') as old, h5py.File(judge, 'w') as new:
        made = new.create_dataset('input', data=old['input'][:], chunks=old['input'].chunks)
        made.attrs.update(old['input'].attrs)
    test, crude = folder / 'data' / 'test.h5', (*NAIVE[:-1], 'fast')
    done, facts, out = asked(folder, 'within', 0.3, '--validation', test, *crude)
    kept = facts and facts['met'] and facts['of'] == 'top1' and facts['samples'] == 10000 and facts['drop'] <= 0.3
    check('max_drop/within', done.returncode == 0 and kept, f'{facts} {done.stderr.strip()[-200:]}')
    check('max_drop/names', 'float for accuracy: ' in done.stderr, done.stderr.strip()[-200:])
    check('max_drop/true', abs(drops(folder, 'mobilenet', [out])[0] - facts['drop']) < 0.011, f'{facts}')
    done, facts, out = asked(folder, 'missed', 0, '--validation', judge, *crude)
    check('max_drop/missed', done.returncode == 3 and out.exists() and facts['of'] == 'agreement' and not facts['met'],
          f'exit {done.returncode}, {facts}, {done.stderr.strip()[-200:]}')
    check('max_drop/says', 'points of agreement with the float model (no labels) on 10000 samples' in done.stderr and
          'best that was found' in done.stderr, done.stderr.strip()[-300:])
    first = folder / 'first.h5'
    shutil.copy(test, first)
    with h5py.File(first, 'r+') as file:
        file['labels'][0] = (file['labels'][0] + 1) % 10
    done, facts, _ = asked(folder, 'first', 5, '--validation', first, model=ZOO / 'mlp.onnx')
    check('max_drop/first sample missed', done.returncode == 0 and facts['met'], done.stderr.strip()[-200:])
    pictures = folder / 'pictures.onnx'
    onnx.utils.extract_model(str(ZOO / 'cnn.onnx'), str(pictures), ['input'], ['/2/MaxPool_output_0'])
    done, _, out = asked(folder, 'no classifier', 1, model=pictures)
    check('max_drop/no classifier', done.returncode == 1 and 'no score per class' in done.stderr and not out.exists() and
          'memory' not in done.stderr, f'{done.returncode} {done.stderr.strip()}')  # calibration says what it needs
    done, _, out = asked(folder, 'fp16', 1, '--precision', 'fp16')
    check('max_drop/fp16', done.returncode == 2 and not out.exists(), done.stderr.strip())


def poor_data(folder):
    """Calibration data of one class, and of another preprocessing than the samples that judge."""
    one_class, raw, test = folder / 'one_class.h5', folder / 'raw.h5', folder / 'data' / 'test.h5'
    with h5py.File(folder / 'data' / 'train.h5') as old, h5py.File(one_class, 'w') as one, h5py.File(raw, 'w') as other:
        images, labels = old['input'][:1500], old['labels'][:1500]
        made = one.create_dataset('input', data=images[labels == 3])
        made.attrs.update(old['input'].attrs)
        one['labels'] = labels[labels == 3]
        other['input'] = images[:128].reshape(-1, 1, 28, 28).astype('float32')  # 0 to 255
    words = ('--samples', 128, '--activations', 'u8')
    done = pare('quantize', ZOO / 'cnn.onnx', '-o', folder / 'one.onnx', '--data', one_class, *words, ok=False)
    check('poor data/one class', done.returncode == 0 and 'all 128 samples have the label 3' in done.stderr, done.stderr[-300:])
    done = pare('quantize', ZOO / 'cnn.onnx', '-o', folder / 'two.onnx', '--data', test, *words, ok=False)
    check('poor data/all classes', done.returncode == 0 and 'label' not in done.stderr, done.stderr[-300:])
    for name, data, warned in (('other preprocessing', raw, True), ('the same preprocessing', one_class, False)):
        done = pare('quantize', ZOO / 'cnn.onnx', '-o', folder / 'raw.onnx', '--data', data, '--max-drop', 0,
                    '--validation', test, *words, *NAIVE, ok=False)
        told = 'is their preprocessing the same?' in done.stderr
        check(f'poor data/{name}', done.returncode == 3 and told == warned, f'{done.returncode} {done.stderr[-400:]}')


with tempfile.TemporaryDirectory() as name:
    made = pare('data', 'fashion-mnist', '-o', Path(name) / 'data', '--quiet', ok=False)
    if made.returncode:
        report('SKIP', 'twins', made.stderr.strip())
    else:
        for kind in RUINED:
            one(Path(name), kind)
        max_drop(Path(name))
        poor_data(Path(name))
finish()

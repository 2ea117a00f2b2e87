# SPDX-License-Identifier: Apache-2.0
"""Hostile twins (datasets/zoo/twins.py): plain INT8 with one scale per tensor ruins them, pare's default does not."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _lib import ZOO, check, finish, pare, report

RUINED = {'mobilenet': 20, 'vit': 4}  # points of top-1, at least
KEPT = 0.3
NAIVE = ('--method', 'minmax', '--weights', 'tensor', '--no-equalization', '--no-bias-correction')


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


with tempfile.TemporaryDirectory() as name:
    made = pare('data', 'fashion-mnist', '-o', Path(name) / 'data', '--quiet', ok=False)
    if made.returncode:
        report('SKIP', 'twins', made.stderr.strip())
    else:
        for kind in RUINED:
            one(Path(name), kind)
finish()

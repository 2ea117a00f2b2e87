# SPDX-License-Identifier: Apache-2.0
"""Made-up facts for report pages, with every part that a page can have."""
import math
import random


def interval(value, by):
    return [value - by, value + by]


def model(pick, name, k, steps):
    """Model k of a network: 0 the original, then int8, fp16, pruned and int8."""
    recipe = (None, 'int8 auto', 'fp16', 'prune macs=0.5; int8 auto')[k]
    top1 = 90 + pick.gauss(0, 2) - (0, 0.2, 0, 3.5)[k]
    ms = math.exp(pick.gauss(0, 1)) / (1, 2.5, 1.2, 4)[k]
    out = {'file': f'{name}{("", ".int8", ".fp16", ".pruned.int8")[k]}.onnx', 'hash': f'{name}-{k}',
           'precision': ('fp32', 'int8', 'fp16', 'int8')[k], 'bytes': int(4e6 / (1, 4, 2, 8)[k]),
           'parameters': 1000000, 'macs_per_sample': 5e7, 'top1': top1, 'top1_interval': interval(top1, 0.6),
           'top5': 99.0, 'batch': 1, 'threads': 1, 'emulated': k == 2, 'stable': k != 1, 'runs': 900,
           'latency_ms': {'median': ms, 'mean': ms, 'min': ms, 'max': 2 * ms}, 'latency_interval': interval(ms, ms / 50)}
    if recipe:
        out['recipe'] = recipe
    if k:
        out.update(drop=90 - top1, drop_interval=interval(90 - top1, 0.5), kept=top1 / 0.9,
                   kept_interval=interval(top1 / 0.9, 0.6), mcnemar={'p': 0.03, 'test': 'exact binomial', 'only_first_right': 9, 'only_this_right': 4},
                   agreement=98.5, speed_up=(1, 2.5, 1.2, 4)[k], speed_up_interval=interval((1, 2.5, 1.2, 4)[k], 0.1),
                   outputs=[{'name': 'y', 'sqnr_db': 30.0 - k, 'cosine': 0.999, 'mse': 0.01, 'max_abs_error': 0.2,
                             'not_finite': 0}])
    if steps:
        out['steps'] = [{'node': f'/conv_{i}/Conv', 'op_type': 'Conv', 'kernel': 'onednn int8', 'precision': 's8',
                         'output': f't{i}_quantized', 'shape': [1, 8 + i, 14, 14], 'bytes_in': 9000, 'bytes_out': 4000,
                         'live_bytes': 20000 + 900 * ((i * 7) % 11), 'macs': 100000, 'time_ms': 0.01 + i / 1000,
                         'share': 0.05, 'sqnr_db': 40.0 - i} for i in range(20)]
    return out


def validate(pick, name, variants=3, steps=False):
    """validate's facts over one network."""
    return {'schema': 1, 'command': 'validate', 'version': '0.1.0',
            'data': {'file': 'data/test.h5', 'samples': 10000, 'classes': 10}, 'device': {'name': 'cpu'},
            'models': [model(pick, name, k, steps and k < 2) for k in range(variants + 1)]}


def histogram(pick, name):
    bins = [int(9000 * math.exp(-((i - 20) / 12) ** 2) * pick.uniform(0.7, 1)) for i in range(64)]
    return {'name': name, 'low': -2.0, 'high': 3.0, 'method': 'mse', 'sqnr_db': 28.0, 'min': -2.5, 'max': 5.0, 'bins': bins}


def quantize(pick, name):
    """quantize's facts of the same network's INT8 model."""
    tensors = [histogram(pick, f't{i}') for i in range(20)]
    return {'schema': 1, 'command': 'quantize', 'version': '0.1.0', 'model': {'file': f'{name}.onnx', 'hash': f'{name}-0'},
            'output': {'file': f'{name}.int8.onnx', 'hash': f'{name}-1'}, 'precision': 'int8', 'converted_nodes': 20,
            'float_nodes': 1, 'notes': [], 'histograms': tensors,
            'ranges': [{k: t[k] for k in ('name', 'low', 'high', 'method', 'sqnr_db')} for t in tensors]}


def lanes(name):
    """A profile's facts with two streams."""
    return {'schema': 1, 'command': 'profile', 'version': '0.1.0', 'model': f'{name}.int8.onnx', 'device': 'cpu',
            'time_ms': 3.0, 'steps': [],
            'lanes': [{'stream': s, 'lane': lane, 'name': f'{lane} {i}', 'start_ms': i * 0.3 + s * 0.1, 'time_ms': 0.25}
                      for s in range(2) for lane in ('copy in', 'compute') for i in range(8)]}


def single(seed=1):
    """The facts of a report over one network: tables, layers, histograms, memory and lanes."""
    pick = random.Random(seed)
    return [validate(pick, 'net', steps=True), quantize(pick, 'net'), lanes('net')]


def many(count, seed=1):
    """Facts of reports over count models, an original and a variant each."""
    pick = random.Random(seed)
    return [validate(pick, f'model_{i:04d}', variants=1) for i in range(count // 2)]

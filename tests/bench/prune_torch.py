#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prune one net of export_models.py with torch-pruning to a part of its multiply-adds.

    ./prune_torch.py NAME [--macs 0.5]

MagnitudePruner over all layers at once, in one step; layers that make the outputs are ignored, heads of
attention are given. The ratio of channels that gives the target is searched by bisection on copies. Prints one line of
JSON: left (the part of its own count), seconds (of the last copy), trials; or error. Needs torch, torchvision,
torch-pruning."""

import argparse
import copy
import json
import time

import torch
import torch_pruning as tp
from torch import nn

import bert
import export_models

TRIALS, NEAR = 10, 0.97  # of the goal: near enough


def shapes(outputs):
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return [tuple(y.shape) for y in outputs]


def prune_to(net, example, ratio):
    """A copy with this ratio of its channels removed."""
    net = copy.deepcopy(net)
    linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
    heads = {module: module.num_heads for module in net.modules()
             if isinstance(module, nn.MultiheadAttention)}
    own = [module for module in net.modules() if isinstance(module, bert.SelfAttention)]
    heads.update({part: bert.HEADS for module in own
                  for part in (module.query, module.key, module.value)})
    # what is added up in BERT is an output, too
    fixed = [part for module in net.modules() for part in
             ([module.narrow] if isinstance(module, bert.Layer) else
              [module.out] if isinstance(module, bert.SelfAttention) else
              [module] if isinstance(module, nn.Embedding) else [])]
    pruner = tp.pruner.MagnitudePruner(
        net, example, importance=tp.importance.MagnitudeImportance(p=2), global_pruning=True,
        pruning_ratio=ratio, ignored_layers=linear[-1:] + fixed, num_heads=heads)
    pruner.step()
    for module in own:
        module.depth = module.query.out_features // bert.HEADS
    return net


def prune(name, goal):
    torch.manual_seed(export_models.SEED)
    net, inputs, _ = export_models.MODELS[name](name)
    example = tuple(x[:1] for x in inputs.values())
    with torch.no_grad():
        expected = shapes(net(*example))
    before, _ = tp.utils.count_ops_and_params(net, example)
    low, high, found = 0.0, 1.0, None
    for trial in range(1, TRIALS + 1):
        ratio, start = (low + high) / 2, time.perf_counter()
        smaller = prune_to(net, example, ratio)
        seconds = time.perf_counter() - start
        left = tp.utils.count_ops_and_params(smaller, example)[0] / before
        low, high = (low, ratio) if left <= goal else (ratio, high)
        if left > goal:
            continue
        with torch.no_grad():
            got = shapes(smaller(*example))
        if got != expected:
            raise RuntimeError(f"outputs of shape {got}, expected {expected}")
        found = dict(left=left, seconds=seconds, trials=trial)
        if left >= NEAR * goal:
            break
    return found or dict(error=f"never came down to {goal}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=export_models.MODELS)
    parser.add_argument("--macs", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(2)
    try:
        facts = prune(options.name, options.macs)
    except Exception as error:  # whatever a rival throws is its result
        last = (str(error).strip().splitlines() or [""])[-1]
        facts = dict(error=f"{type(error).__name__}: {last}"[:300])
    print(json.dumps(facts))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Operators of the domain com.microsoft: pare (which rewrites them into standard ones) against ONNX
Runtime (which has kernels for them), one small model each; and models that ONNX Runtime itself writes:
its optimized graphs, and quantize_static in QOperator form."""
import json
import os
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from _lib import check, finish, ort_session, pare, pare_outputs, report

rng = np.random.default_rng(18)
MS = 'com.microsoft'


def x(*dims):
    return rng.standard_normal(dims).astype(np.float32)


def u8(*dims):
    return rng.integers(0, 256, dims).astype(np.uint8)


def s8(*dims):
    """7 bits: ONNX Runtime's sums of two u8 x s8 saturate at 16 bits on a CPU without VNNI."""
    return rng.integers(-63, 64, dims).astype(np.int8)


def f(value):
    return np.float32(value)


def ids(high, *dims):
    return rng.integers(0, high, dims).astype(np.int32)


class Constant:
    """An input that is an initializer."""

    def __init__(self, array):
        self.array = np.asarray(array)


K = Constant
Z, ZS = np.uint8(120), np.int8(-3)


def nbits(n, k, block, bits=4, zero=False, bias=False):
    """Inputs of a MatMulNBits: x, levels, scales, zero points, g_idx, bias."""
    blocks = -(-k // block)
    made = [x(2, 3, k), K(u8(n, blocks, block * bits // 8)), K(abs(x(n * blocks)) * f(0.1))]
    made += [K(u8(n * -(-blocks * bits // 8))) if zero else None]
    return made + ([None, x(n)] if bias else [])


def cache(length, columns):
    angles = np.outer(np.arange(length), 10000.0 ** (-np.arange(columns) / columns))
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def gqa(batch, length, heads, kv, size, past=0, packed=False, rotary=None, buffer=0, seqlens=None, bias=None):
    """Inputs of a GroupQueryAttention. past: how much the cache holds; buffer: how long it is."""
    total = past + length
    last = np.full(batch, total - 1, np.int32) if seqlens is None else np.array(seqlens, np.int32)
    q, k = heads * size, kv * size
    made = [x(batch, length, q + 2 * k), None, None] if packed else [x(batch, length, q), x(batch, length, k), x(batch, length, k)]
    made += [x(batch, kv, buffer or past, size), x(batch, kv, buffer or past, size)]
    made += [last, np.array([total], np.int32)]
    made += cache(64, rotary // 2) if rotary else [None, None]
    return made + ([None, bias] if bias is not None else [])


bert = dict(num_heads=4)
# operator, what is special, attributes, inputs (None: absent), number of outputs, or that and those
# which the graph returns
CASES = [
    ('DequantizeLinear', 'u8', {}, [u8(3, 5), f(0.1), Z], 1),
    ('DequantizeLinear', 's8 axis', dict(axis=1), [s8(3, 5), abs(x(5)), s8(5)], 1),
    ('DequantizeLinear', 'u16', {}, [rng.integers(0, 65536, (3, 5)).astype(np.uint16), f(1e-3), np.uint16(32000)], 1),
    ('DequantizeLinear', 's16', {}, [rng.integers(-32768, 32768, (3, 5)).astype(np.int16), f(1e-3), np.int16(7)], 1),
    ('DequantizeLinear', 's32', {}, [rng.integers(-9999, 9999, (3, 5)).astype(np.int32), f(1e-3)], 1),
    ('QuantizeLinear', 'u8', {}, [x(3, 5), f(0.02), Z], 1),
    ('QuantizeLinear', 's8 axis', dict(axis=0), [x(3, 5), abs(x(3)) + f(0.01), s8(3)], 1),
    ('QuantizeLinear', 'u16', {}, [x(3, 5), f(1e-4), np.uint16(32000)], 1),
    ('QuantizeLinear', 's16', {}, [x(3, 5), f(1e-4), np.int16(11)], 1),
    ('Gelu', '', {}, [x(3, 40)], 1),
    ('Trilu', 'upper', dict(upper=1), [x(4, 5)], 1),
    ('Trilu', 'lower', dict(upper=0), [x(2, 4, 5), np.int64(1)], 1),
    ('GatherND', '', {}, [x(3, 4, 5), rng.integers(0, 3, (6, 2))], 1),

    ('QGemm', 'u8', {}, [u8(4, 7), f(0.02), Z, K(s8(7, 5)), K(f(0.01)), K(ZS), K(rng.integers(-999, 999, 5).astype(np.int32)), f(0.2), Z], 1),
    ('QGemm', 'columns', dict(transB=1, alpha=0.5),
     [u8(4, 7), f(0.02), Z, K(s8(5, 7)), K(abs(x(5)) * f(0.01)), K(np.zeros(5, np.int8)), K(rng.integers(-999, 999, 5).astype(np.int32)), f(0.1), Z], 1),
    ('QGemm', 'float result', dict(transA=1), [u8(7, 4), f(0.02), Z, K(s8(7, 5)), K(f(0.01)), K(ZS)], 1),
    ('QLinearAdd', 'u8', {}, [u8(3, 5), f(0.02), Z, u8(3, 5), f(0.03), np.uint8(7), f(0.05), np.uint8(90)], 1),
    ('QLinearAdd', 's8 broadcast', {}, [s8(2, 3, 5), f(0.02), ZS, K(s8(5)), f(0.03), np.int8(7), f(0.05), np.int8(9)], 1),
    ('QLinearMul', 'u8', {}, [u8(3, 5), f(0.02), Z, u8(1, 5), f(0.03), np.uint8(7), f(0.05), np.uint8(90)], 1),
    ('QLinearConcat', 'u8', dict(axis=1), [f(0.03), Z, u8(2, 3), f(0.02), np.uint8(3), u8(2, 4), f(0.04), np.uint8(100)], 1),
    ('QLinearWhere', 'u8', {}, [rng.integers(0, 2, (3, 5)) > 0, u8(3, 5), f(0.02), Z, u8(3, 5), f(0.03), np.uint8(7), f(0.04), np.uint8(90)], 1),
    ('QLinearGlobalAveragePool', 'first', dict(channels_last=0), [u8(2, 3, 5, 4), f(0.02), Z, f(0.01), np.uint8(100)], 1),
    ('QLinearGlobalAveragePool', 'last', dict(channels_last=1), [u8(2, 5, 4, 3), f(0.02), Z, f(0.01), np.uint8(100)], 1),
    ('QLinearAveragePool', 'first', dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), [u8(2, 3, 7, 6), f(0.02), Z, f(0.01), np.uint8(100)], 1),
    ('QLinearAveragePool', 'last', dict(kernel_shape=[2, 2], channels_last=1, count_include_pad=1), [u8(2, 7, 6, 3), f(0.02), Z, f(0.01), np.uint8(100)], 1),
    ('QLinearLeakyRelu', 'u8', dict(alpha=0.1), [u8(3, 50), f(0.02), Z, f(0.015), np.uint8(30)], 1),
    ('QLinearSigmoid', 'u8', {}, [u8(3, 50), f(0.04), Z, f(1 / 256), np.uint8(0)], 1),
    ('QLinearSoftmax', '13', dict(axis=1, opset=13), [u8(3, 5, 4), f(0.04), Z, f(1 / 256), np.uint8(0)], 1),
    ('QLinearSoftmax', '11', dict(axis=1, opset=11), [u8(3, 5, 4), f(0.04), Z, f(1 / 256), np.uint8(0)], 1),
    ('QLinearSoftmax', 'last', dict(axis=-1, opset=12), [s8(3, 5, 4), f(0.04), ZS, f(1 / 256), np.int8(-128)], 1),
    ('QLinearConv', 'last', dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], channels_last=1),
     [u8(1, 6, 5, 4), K(f(0.02)), K(Z), K(s8(8, 4, 3, 3)), K(abs(x(8)) * f(0.01)), K(np.zeros(8, np.int8)), K(f(0.2)), K(Z), K(rng.integers(-999, 999, 8).astype(np.int32))], 1),
    ('DynamicQuantizeMatMul', '', {}, [x(2, 3, 6), K(s8(6, 5)), K(f(0.02)), K(ZS)], 1),
    ('DynamicQuantizeMatMul', 'columns bias', {}, [x(3, 6), K(u8(6, 5)), K(abs(x(5))), K(u8(5)), K(x(5))], 1),
    ('MatMulIntegerToFloat', '', {}, [u8(3, 6), K(s8(6, 5)), f(0.03), K(f(0.02)), Z, K(ZS)], 1),
    ('MatMulIntegerToFloat', 'columns bias', {}, [u8(2, 3, 6), K(s8(6, 5)), f(0.03), K(abs(x(5))), Z, K(np.zeros(5, np.int8)), K(x(5))], 1),
    ('MatMulNBits', '4', dict(K=64, N=5, bits=4, block_size=32), nbits(5, 64, 32), 1),
    ('MatMulNBits', '4 zero', dict(K=64, N=8, bits=4, block_size=16, accuracy_level=0), nbits(8, 64, 16, zero=True), 1),
    ('MatMulNBits', '4 part', dict(K=40, N=7, bits=4, block_size=16), nbits(7, 40, 16, zero=True), 1),
    ('MatMulNBits', '4 bias', dict(K=32, N=7, bits=4, block_size=32), nbits(7, 32, 32, bias=True), 1),
    ('MatMulNBits', '8', dict(K=64, N=6, bits=8, block_size=32), nbits(6, 64, 32, 8, zero=True), 1),
    ('GatherBlockQuantized', 'u4', dict(block_size=16), [K(rng.integers(0, 16, (6, 32)).astype(ml_dtypes.uint4)), ids(6, 3, 2), K(abs(x(6, 2))), K(rng.integers(0, 16, (6, 2)).astype(ml_dtypes.uint4))], 1),
    ('GatherBlockQuantized', 's4', dict(block_size=16), [K(rng.integers(-8, 8, (6, 40)).astype(ml_dtypes.int4)), ids(6, 3), K(abs(x(6, 3)))], 1),
    ('GatherBlockQuantized', 'bytes', dict(block_size=16, bits=4), [K(u8(6, 16)), ids(6, 3), K(abs(x(6, 2)))], 1),
    ('GatherBlockQuantized', 'bytes zero', dict(block_size=16, bits=4), [K(u8(6, 32)), ids(6, 3), K(abs(x(6, 4))), K(u8(6, 2))], 1),
    ('GatherBlockQuantized', '8', dict(block_size=16, bits=8), [K(u8(6, 32)), ids(6, 3), K(abs(x(6, 2)))], 1),

    ('FusedMatMul', 'alpha', dict(alpha=0.5), [x(2, 3, 4), x(4, 5)], 1),
    ('FusedMatMul', 'transA', dict(transA=1), [x(2, 4, 3), x(2, 4, 5)], 1),
    ('FusedMatMul', 'transB', dict(transB=1, alpha=0.125), [x(2, 2, 3, 4), x(2, 2, 5, 4)], 1),
    ('FusedMatMul', 'transBatchA', dict(transBatchA=1), [x(3, 2, 4), x(2, 4, 5)], 1),
    ('FusedMatMul', 'transBatchB', dict(transBatchB=1, transB=1), [x(2, 6, 3, 4), x(5, 2, 6, 4)], 1),
    ('FusedMatMul', 'transBatch both', dict(transBatchA=1, transBatchB=1, transA=1), [x(4, 2, 3), x(4, 2, 5)], 1),
    ('TransposeMatMul', '', dict(transA=1, transB=1), [x(4, 3), x(5, 4)], 1),
    ('FusedGemm', 'Relu', dict(activation='Relu', transB=1), [x(3, 4), x(5, 4), x(5)], 1),
    ('FusedGemm', 'LeakyRelu', dict(activation='LeakyRelu', activation_alpha=0.2, alpha=0.5, beta=2.0), [x(3, 4), x(4, 5), x(5)], 1),
    ('FusedConv', 'Relu', dict(activation='Relu', kernel_shape=[3, 3], pads=[1, 1, 1, 1]), [x(2, 4, 6, 5), x(8, 4, 3, 3), x(8)], 1),
    ('FusedConv', 'Clip', dict(activation='Clip', activation_params=[-0.5, 0.5], group=4), [x(2, 4, 6, 5), x(8, 1, 3, 3)], 1),
    ('FusedConv', 'HardSigmoid', dict(activation='HardSigmoid', activation_params=[0.3, 0.4], strides=[2, 2]), [x(2, 4, 6, 5), x(8, 4, 3, 3), x(8)], 1),
    ('FusedConv', 'sum', dict(activation='Relu', kernel_shape=[1, 1]), [x(2, 4, 6, 5), x(8, 4, 1, 1), x(8), x(2, 8, 6, 5)], 1),
    ('NhwcMaxPool', '', dict(kernel_shape=[3, 3], strides=[2, 2]), [u8(2, 9, 7, 3)], 1),

    ('SkipLayerNormalization', '', dict(epsilon=1e-5), [x(2, 3, 8), x(2, 3, 8), x(8), x(8)], 1),
    ('SkipLayerNormalization', 'bias sum', {}, [x(2, 3, 8), x(2, 3, 8), x(8), x(8), x(8)], (4, 0, 3)),
    ('SkipLayerNormalization', 'stretched', {}, [x(2, 3, 8), x(3, 8), x(8), None, x(8)], 1),
    ('SimplifiedLayerNormalization', '', dict(epsilon=1e-6), [x(2, 3, 8), x(8)], 1),
    ('SimplifiedLayerNormalization', 'axis', dict(axis=1), [x(2, 3, 8), x(3, 8)], 1),
    ('SimplifiedLayerNormalization', 'f16', {}, [x(2, 3, 8).astype(np.float16), x(8).astype(np.float16)], 1),
    ('SkipSimplifiedLayerNormalization', '', dict(epsilon=1e-6), [x(2, 3, 8), x(2, 3, 8), x(8)], 1),
    ('SkipSimplifiedLayerNormalization', 'bias sum', {}, [x(2, 3, 8), x(2, 3, 8), x(8), x(8)], (4, 0, 3)),
    ('EmbedLayerNormalization', '', {}, [ids(9, 2, 5), ids(2, 2, 5), x(9, 8), x(6, 8), x(2, 8), x(8), x(8)], (2, 0)),
    ('EmbedLayerNormalization', 'mask', dict(mask_index_type=1), [ids(9, 2, 5), None, x(9, 8), x(6, 8), None, x(8), x(8), np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)], 2),
    ('EmbedLayerNormalization', 'positions sum', {}, [ids(9, 2, 5), ids(2, 2, 5), x(9, 8), x(6, 8), x(2, 8), x(8), x(8), None, ids(6, 2, 5)], (3, 0, 2)),
    ('FastGelu', '', {}, [x(3, 40)], 1),
    ('FastGelu', 'bias', {}, [x(3, 40), x(40)], 1),
    ('BiasGelu', '', {}, [x(2, 3, 40), x(40)], 1),
    ('QuickGelu', '', {}, [x(3, 40)], 1),
    ('QuickGelu', 'SiLU', dict(alpha=1.0), [x(3, 40)], 1),

    ('Attention', '', bert, [x(2, 5, 16), x(16, 48), x(48)], 1),
    ('Attention', 'mask', bert, [x(2, 5, 16), x(16, 48), x(48), np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)], 1),
    ('Attention', 'lengths', bert, [x(2, 5, 16), x(16, 48), x(48), np.array([3, 5], np.int32)], 1),
    ('Attention', 'mask 3', bert, [x(2, 5, 16), x(16, 48), x(48), np.tril(np.ones((2, 5, 5), np.int32))], 1),
    ('Attention', 'causal', dict(num_heads=4, unidirectional=1, scale=0.3), [x(2, 5, 16), x(16, 48), x(48)], 1),
    ('Attention', 'past', dict(num_heads=4, unidirectional=1), [x(2, 3, 16), x(16, 48), x(48), None, x(2, 2, 4, 6, 4)], 2),
    ('Attention', 'bias', bert, [x(2, 5, 16), x(16, 48), x(48), None, None, x(2, 4, 5, 5)], 1),
    ('Attention', 'sizes', dict(num_heads=4, qkv_hidden_sizes=[16, 16, 24]), [x(2, 5, 16), K(x(16, 56)), x(56)], 1),
    ('QAttention', '', bert, [u8(2, 5, 16), K(s8(16, 48)), K(x(48)), K(f(0.02)), K(f(0.01)), None, K(Z), K(ZS)], 1),
    ('MultiHeadAttention', '', bert, [x(2, 5, 16), x(2, 7, 16), x(2, 7, 24)], 1),
    ('MultiHeadAttention', 'bias', bert, [x(2, 5, 16), x(2, 7, 16), x(2, 7, 24), x(56)], 1),
    ('MultiHeadAttention', 'mask', dict(num_heads=4, scale=0.7), [x(2, 5, 16), x(2, 7, 16), x(2, 7, 16), None, np.array([[1] * 4 + [0] * 3, [1] * 7], np.int32)], 1),
    ('MultiHeadAttention', 'lengths', bert, [x(2, 5, 16), x(2, 7, 16), x(2, 7, 16), None, np.array([4, 7], np.int32)], 1),
    ('MultiHeadAttention', 'attention bias', bert, [x(2, 5, 16), x(2, 7, 16), x(2, 7, 16), None, None, x(1, 4, 5, 7)], 1),
    ('MultiHeadAttention', 'cross', bert, [x(2, 5, 16), x(2, 4, 7, 4), x(2, 4, 7, 4)], 1),
    ('MultiHeadAttention', 'past', dict(num_heads=4, unidirectional=1), [x(2, 1, 16), x(2, 1, 16), x(2, 1, 16), None, None, None, x(2, 4, 6, 4), x(2, 4, 6, 4)], 3),
    ('MultiHeadAttention', 'present', dict(num_heads=4, unidirectional=1), [x(2, 5, 16), x(2, 5, 16), x(2, 5, 16)], 3),
    ('RotaryEmbedding', '3', {}, [x(2, 5, 32), np.tile(np.arange(3, 8), (2, 1)), *cache(20, 4)], 1),
    ('RotaryEmbedding', '4 interleaved', dict(interleaved=1), [x(2, 4, 5, 8), np.array([2]), *cache(20, 4)], 1),
    ('RotaryEmbedding', 'part', dict(num_heads=4, rotary_embedding_dim=4), [x(2, 5, 32), np.array([0]), *cache(20, 2)], 1),
    ('GroupQueryAttention', 'first', dict(num_heads=4, kv_num_heads=2), gqa(2, 5, 4, 2, 16), 3),
    ('GroupQueryAttention', 'next', dict(num_heads=4, kv_num_heads=2), gqa(2, 1, 4, 2, 16, past=6), 3),
    ('GroupQueryAttention', 'rotary', dict(num_heads=4, kv_num_heads=4, do_rotary=1), gqa(2, 5, 4, 4, 16, rotary=16), 3),
    ('GroupQueryAttention', 'rotary next', dict(num_heads=4, kv_num_heads=1, do_rotary=1, scale=0.4), gqa(2, 1, 4, 1, 16, past=6, rotary=16), 3),
    ('GroupQueryAttention', 'interleaved', dict(num_heads=4, kv_num_heads=2, do_rotary=1, rotary_interleaved=1), gqa(2, 5, 4, 2, 16, rotary=16), 3),
    ('GroupQueryAttention', 'packed', dict(num_heads=4, kv_num_heads=2, do_rotary=1), gqa(2, 5, 4, 2, 16, packed=True, rotary=16), 3),
    ('GroupQueryAttention', 'window', dict(num_heads=2, kv_num_heads=2, local_window_size=3), gqa(1, 7, 2, 2, 16), 3),
    ('GroupQueryAttention', 'smooth', dict(num_heads=4, kv_num_heads=2, smooth_softmax=1), gqa(2, 5, 4, 2, 16), 3),
    ('GroupQueryAttention', 'sink', dict(num_heads=4, kv_num_heads=2), gqa(2, 5, 4, 2, 16) + [None, None, x(4)], 3),
    ('GroupQueryAttention', 'softcap', dict(num_heads=2, kv_num_heads=2, softcap=0.8), gqa(1, 4, 2, 2, 16), 3),
    ('GroupQueryAttention', 'buffer', dict(num_heads=4, kv_num_heads=2, do_rotary=1), gqa(2, 1, 4, 2, 16, past=6, rotary=16, buffer=9), (3, 0)),
    ('GroupQueryAttention', 'lengths', dict(num_heads=4, kv_num_heads=2, do_rotary=1), gqa(2, 1, 4, 2, 16, past=6, rotary=16, seqlens=[6, 4]), (3, 0)),
    ('GroupQueryAttention', 'two', dict(num_heads=4, kv_num_heads=2), gqa(1, 2, 4, 2, 16, past=6), 3),
    ('GroupQueryAttention', 'bias', dict(num_heads=4, kv_num_heads=2), gqa(2, 5, 4, 2, 16, bias=x(2, 4, 5, 5)), 3),
]
# Written to the domain ai.onnx, though ONNX has no such operator.
OWN_DOMAIN = {'SimplifiedLayerNormalization'}

def layer_norm(ins):
    return [helper.make_node('LayerNormalization', ins, ['out0'], axis=-1, epsilon=1e-5)]


def bias_add(ins):
    return [helper.make_node('Sum', ins, ['out0'])]


def reduce_mean(ins):
    return [helper.make_node('DequantizeLinear', ins[:3], ['a']),
            helper.make_node('ReduceMean', ['a'], ['b'], axes=[1], keepdims=0),
            helper.make_node('QuantizeLinear', ['b', *ins[3:]], ['out0'])]


def nhwc_conv(ins):
    return [helper.make_node('Transpose', ins[:1], ['a'], perm=[0, 3, 1, 2]),
            helper.make_node('Conv', ['a', *ins[1:]], ['b'], pads=[1, 1, 1, 1]),
            helper.make_node('Transpose', ['b'], ['out0'], perm=[0, 2, 3, 1])]


def nhwc_fused_conv(ins):
    conv = nhwc_conv(ins[:3])
    conv[-1].output[0] = 'c'
    return [*conv, helper.make_node('Add', ['c', ins[3]], ['d']), helper.make_node('Relu', ['d'], ['out0'])]


# ONNX Runtime has no kernel for the CPU: the standard nodes that say the same are the judge.
WITHOUT_KERNEL = [
    ('LayerNormalization', dict(axis=-1, epsilon=1e-5), [x(2, 3, 8), x(8), x(8)], layer_norm),
    ('BiasAdd', {}, [x(2, 3, 8), x(8), x(2, 3, 8)], bias_add),
    ('QLinearReduceMean', dict(axes=[1], keepdims=0), [s8(3, 5), f(0.02), ZS, f(0.01), np.int8(4)], reduce_mean),
    ('NhwcConv', dict(pads=[1, 1, 1, 1]), [x(1, 6, 5, 4), x(8, 4, 3, 3), x(8)], nhwc_conv),
    ('NhwcFusedConv', dict(pads=[1, 1, 1, 1], activation='Relu'), [x(1, 6, 5, 4), x(8, 4, 3, 3), x(8), x(1, 6, 5, 8)], nhwc_fused_conv),
]

# operator, attributes, inputs, words of the message
REFUSED = [
    ('Attention', dict(num_heads=4, do_rotary=1), [x(2, 5, 16), x(16, 48), x(48)], "attribute 'do_rotary' is not supported"),
    ('Attention', dict(num_heads=0), [x(2, 5, 16), x(16, 48), x(48)], "attribute 'num_heads' is 0"),
    ('FusedConv', dict(activation='Mish'), [x(2, 4, 6, 5), x(8, 4, 3, 3)], "attribute 'activation' is 'Mish'"),
    ('MatMulNBits', dict(K=64, N=5, bits=3, block_size=32), nbits(5, 64, 32), "attribute 'bits' is 3"),
    ('MatMulNBits', dict(K=64, N=6, bits=4, block_size=32), nbits(5, 64, 32), "expected"),
    ('MultiHeadAttention', dict(num_heads=4), [x(2, 5, 16)], 'input 1 is missing'),
    ('GroupQueryAttention', dict(num_heads=3, kv_num_heads=2), gqa(2, 5, 4, 2, 16), "'num_heads' is no multiple of"),
    ('QLinearAdd', {}, [u8(3, 5), f(0.02), Z, u8(3, 5), f(0.03), Z], 'expected at least 8'),
    ('Attention', dict(num_heads=4, unidirectional=7), [x(2, 5, 16), x(16, 48), x(48)], "attribute 'unidirectional' must be 0 or 1"),
    ('QuickGelu', dict(beta=1.0), [x(3, 4)], "attribute 'beta' is not supported"),
]


def model_of(op, attributes, inputs, outputs, opset=17):
    names, constants, fed = [], [], {}
    for i, value in enumerate(inputs):
        names.append('' if value is None else f'in{i}')
        if isinstance(value, Constant):
            constants.append(numpy_helper.from_array(value.array, f'in{i}'))
        elif value is not None:
            fed[f'in{i}'] = np.asarray(value)
    count, *kept = outputs if isinstance(outputs, tuple) else (outputs, *range(outputs))
    made = [f'out{i}' for i in range(count)]
    kept = [made[i] for i in kept]
    if op.startswith('Skip'):
        made = [n if n in kept else '' for n in made]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in fed.items()]
    node = helper.make_node(op, names, made, 'node', domain='' if op in OWN_DOMAIN else MS, **attributes)
    graph = helper.make_graph([node], 'g', infos, [onnx.ValueInfoProto(name=n) for n in kept], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset), helper.make_opsetid(MS, 1)])
    model.ir_version = 8
    return model, fed, kept


def compare(name, got, want):
    for n, w in want.items():
        g = got[n]
        if g.shape != w.shape or g.dtype != w.dtype:
            return check(name, False, f'{n} is {g.dtype} {g.shape}, expected {w.dtype} {w.shape}')
        far = np.abs(g.astype(np.float64) - w.astype(np.float64)).max(initial=0)
        scale = 1 if w.dtype.kind in 'iu' else max(np.abs(w).max(initial=0), 1) * (100 if w.dtype == np.float16 else 1) * 1e-5
        if not far <= scale:
            return check(name, False, f'{n} is {far} off, at most {scale} expected')
    return check(name, True)


def judge(name, path, fed, names, reference=None):
    try:
        want = dict(zip(names, ort_session(reference or path).run(names, fed)))
    except Exception as error:
        report('SKIP', name, f'ONNX Runtime: {str(error).splitlines()[0][:200]}')
        return
    try:
        got = pare_outputs(path, fed, names)
    except RuntimeError as error:
        check(name, False, str(error)[:300])
        return
    compare(name, got, want)


def judge_case(folder, op, special, attributes, inputs, outputs):
    name = f'contrib/{op} {special}'.strip().replace(' ', '_')
    path = os.path.join(folder, 'm.onnx')
    model, fed, names = model_of(op, attributes, inputs, outputs)
    onnx.save(model, path)
    judge(name, path, fed, names)


# --- models that ONNX Runtime writes ---

class Net:
    """A graph in the making: nodes by name of operator, constants by value."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, array):
        name = f'c{len(self.constants)}'
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def __call__(self, op, *ins, outputs=1, **attributes):
        ins = [i if isinstance(i, str) else self.constant(i) for i in ins]
        made = [f'v{len(self.nodes)}_{i}' for i in range(outputs)]
        self.nodes.append(helper.make_node(op, ins, made, f'{op}_{len(self.nodes)}', **attributes))
        return made[0] if outputs == 1 else made

    def save(self, path, inputs, y):
        last = self.nodes[-1]
        last.output[list(last.output).index(y)] = 'y'
        graph = helper.make_graph(self.nodes, 'g', inputs, [helper.make_tensor_value_info('y', TensorProto.FLOAT, None)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)])
        model.ir_version = 8
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def bert_net(path, hidden=32, heads=4, length=8, batch='batch'):
    """Two encoder layers as PyTorch's exporter writes them, with a mask; inputs to run it with."""
    n, size = Net(), hidden // heads

    def dense(v, rows, columns):
        return n('Add', n('MatMul', v, x(rows, columns) * f(rows ** -0.5)), x(columns) * f(0.1))

    def norm(v):
        d = n('Sub', v, n('ReduceMean', v, axes=[-1]))
        root = n('Sqrt', n('Add', n('ReduceMean', n('Pow', d, f(2)), axes=[-1]), f(1e-5)))
        return n('Add', n('Mul', n('Div', d, root), x(hidden)), x(hidden))

    def split(v, perm):
        return n('Transpose', n('Reshape', v, np.array([0, 0, heads, size])), perm=perm)

    mask = n('Unsqueeze', n('Cast', 'mask', to=1), np.array([1, 2]))
    mask = n('Mul', n('Sub', f(1), mask), f(-10000))
    h = norm(n('Add', n('Gather', x(50, hidden), 'ids'), x(length, hidden)))
    for _ in range(2):
        q, k, v = split(dense(h, hidden, hidden), [0, 2, 1, 3]), split(dense(h, hidden, hidden), [0, 2, 3, 1]), split(dense(h, hidden, hidden), [0, 2, 1, 3])
        scores = n('Add', n('Div', n('MatMul', q, k), f(size ** 0.5)), mask)
        y = n('Transpose', n('MatMul', n('Softmax', scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = dense(n('Reshape', y, np.array([0, 0, hidden])), hidden, hidden)
        h = norm(n('Add', y, h))
        m = dense(h, hidden, 4 * hidden)
        m = n('Mul', n('Mul', m, n('Add', n('Erf', n('Div', m, f(2 ** 0.5))), f(1))), f(0.5))
        h = norm(n('Add', dense(m, 4 * hidden, hidden), h))
    y = n('MatMul', h, x(3, hidden).T.copy())
    n.save(path, [helper.make_tensor_value_info(name, TensorProto.INT64, [batch, length]) for name in ('ids', 'mask')], y)
    return {'ids': rng.integers(0, 50, (2, length)), 'mask': np.array([[1] * 5 + [0] * 3, [1] * 8])}


def conv_net(path):
    """Residual blocks, a gate, pools and a head; inputs to run it with."""
    n = Net()

    def conv(v, ins, outs, k=3, group=1, stride=1):
        w = x(outs, ins // group, k, k) * f((k * k * ins / group) ** -0.5)
        return n('Conv', v, w, x(outs) * f(0.1), kernel_shape=[k, k], pads=[k // 2] * 4, strides=[stride] * 2, group=group)

    h = n('Relu', conv('x', 3, 16, stride=2))
    for _ in range(2):
        y = n('LeakyRelu', conv(h, 16, 16), alpha=0.1)
        y = n('Clip', conv(y, 16, 16, group=16), f(0), f(6))
        h = n('Relu', n('Add', conv(y, 16, 16, 1), h))
    g = n('Sigmoid', conv(n('GlobalAveragePool', h), 16, 16, 1))
    h = n('Concat', n('Mul', h, g), n('AveragePool', h, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    h = n('Flatten', n('GlobalAveragePool', h))
    y = n('Softmax', n('Gemm', h, x(10, 32) * f(0.3), x(10), transB=1), axis=-1)
    n.save(path, [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['batch', 3, 24, 24])], y)
    return {'x': x(2, 3, 24, 24)}


def optimized(path, out, level):
    """Writes what ONNX Runtime makes of a model."""
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    options.optimized_model_filepath = out
    ort.InferenceSession(path, options, providers=['CPUExecutionProvider'])


def operators(path):
    return sorted({n.op_type for n in onnx.load(path).graph.node if n.domain or n.op_type.startswith('Simplified')})


def judge_model(name, path, fed, expected, bound=2e-5):
    """Is its output y ONNX Runtime's? expected: operators that must be in it."""
    found = operators(path)
    check(f'{name}/operators', set(expected) <= set(found), f'found {found}')
    want = ort_session(path).run(['y'], fed)[0]
    try:
        got = pare_outputs(path, fed, ['y'])['y']
        done = pare('check', path)
    except RuntimeError as error:
        check(name, False, str(error)[:300])
        return
    far = np.abs(got - want).max() / max(1, np.abs(want).max())
    check(name, got.shape == want.shape and far <= bound and done.returncode == 0, f'{far} off')


def judge_quantized(name, path, out, fed, samples, bound, **options):
    """quantize_static in QOperator form: the same answers up to steps of the result."""
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self):
            self.left = iter(samples)

        def get_next(self):
            return next(self.left, None)

    q.quantize_static(path, out, Reader(), quant_format=q.QuantFormat.QOperator, activation_type=q.QuantType.QUInt8,
                      weight_type=q.QuantType.QInt8, reduce_range=True, **options)
    judge_model(name, out, fed, ['QLinearAdd', 'QLinearGlobalAveragePool', 'QLinearConcat', 'QLinearMul', 'QLinearSigmoid'], bound)


def whole_models(folder):
    import onnxruntime as ort
    from onnxruntime import quantization
    level = ort.GraphOptimizationLevel
    net, out = os.path.join(folder, 'net.onnx'), os.path.join(folder, 'out.onnx')
    fed = bert_net(net)
    for word, value in (('basic', level.ORT_ENABLE_BASIC), ('extended', level.ORT_ENABLE_EXTENDED)):
        optimized(net, out, value)
        some = ['BiasGelu', 'FusedMatMul', 'SkipLayerNormalization'] if word == 'extended' else []
        judge_model(f'contrib/bert_{word}', out, fed, some)
    quantized = os.path.join(folder, 'dynamic.onnx')
    quantization.quantize_dynamic(out, quantized, reduce_range=True)
    optimized(quantized, out, level.ORT_ENABLE_EXTENDED)
    judge_model('contrib/bert_dynamic', out, fed, ['DynamicQuantizeMatMul'], 0.02)
    fed = conv_net(net)
    for word, value in (('basic', level.ORT_ENABLE_BASIC), ('extended', level.ORT_ENABLE_EXTENDED)):
        optimized(net, out, value)
        judge_model(f'contrib/conv_{word}', out, fed, ['FusedConv'] if word == 'extended' else [])
    samples = [{'x': x(1, 3, 24, 24)} for _ in range(8)]
    judge_quantized('contrib/conv_qoperator', net, out, fed, samples, 0.02)


def body_net(path):
    """Operators in the bodies of an If; inputs to run it with."""
    def body(op, y):
        node = helper.make_node(op, ['x', 'bias'], [y], domain=MS)
        return helper.make_graph([node], op, [], [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)])

    inputs = [helper.make_tensor_value_info('c', TensorProto.BOOL, []), helper.make_tensor_value_info('x', TensorProto.FLOAT, [3, 8])]
    node = helper.make_node('If', ['c'], ['y'], then_branch=body('FastGelu', 'a'), else_branch=body('BiasGelu', 'b'))
    graph = helper.make_graph([node], 'g', inputs, [helper.make_tensor_value_info('y', TensorProto.FLOAT, [3, 8])],
                              [numpy_helper.from_array(x(8), 'bias')])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17), helper.make_opsetid(MS, 1)])
    model.ir_version = 8
    onnx.save(model, path)
    return {'c': np.array(False), 'x': x(3, 8)}


with tempfile.TemporaryDirectory() as folder:
    whole_models(folder)
    path = os.path.join(folder, 'm.onnx')
    fed = body_net(path)
    for fed['c'] in (np.array(True), np.array(False)):
        judge(f'contrib/body_{fed["c"]}', path, fed, ['y'])
    for case in CASES:
        judge_case(folder, *case)
    path, reference = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'reference.onnx')
    for op, attributes, inputs, nodes in WITHOUT_KERNEL:
        model, fed, names = model_of(op, attributes, inputs, 1)
        onnx.save(model, path)
        made = nodes(list(fed))
        del model.graph.node[:]
        model.graph.node.extend(made)
        onnx.save(model, reference)
        judge(f'contrib/{op}', path, fed, names, reference)
    facts = os.path.join(folder, 'ops.json')
    pare('ops', '--json', facts)
    with open(facts) as file:
        listed = {o['name'] for o in json.load(file)['operators'] if 'standard' in o['int8']}
    tested = {case[0] for case in CASES + WITHOUT_KERNEL}
    check('contrib/all_are_compared', listed == tested, f'listed or tested only: {sorted(listed ^ tested)}')
    for op, attributes, inputs, words in REFUSED:
        onnx.save(model_of(op, attributes, inputs, 1)[0], path)
        done = pare('check', path, ok=False)
        said = done.stdout + done.stderr
        check(f'contrib/{op}_refused', done.returncode != 0 and words in said and "node 'node'" in said, said[:300])
finish()

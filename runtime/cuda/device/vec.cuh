/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbours that a thread takes at once: loads and stores of up to 16 bytes, and what is decided
   once for four numbers, as an activation and the type that they are stored as. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_VEC_CUH
#define PARE_RUNTIME_CUDA_DEVICE_VEC_CUH

#include "runtime/cuda/device/common.cuh"
#include "runtime/ops/epilogue.h"

#define PARE_VEC4 for (int k = 0; k < 4; k++)

/* W neighbours, at a multiple of all of them. */
template <typename T, int W> struct alignas(sizeof(T) * W) aligned_vector {
    T of[W];
};

/* From from[at] on, `step` apart: 1, or 0 where one number is all of them. */
template <int W, typename T>
SIMT_INLINE void vec_load(const T *from, int64_t at, int64_t step, T to[W])
{
    if (W == 1 || step == 0) {
        PARE_UNROLL for (int k = 0; k < W; k++) to[k] = from[at];
        return;
    }
    const aligned_vector<T, W> all = *reinterpret_cast<const aligned_vector<T, W> *>(from + at);
    PARE_UNROLL for (int k = 0; k < W; k++) to[k] = all.of[k];
}

template <int W, typename T> SIMT_INLINE void vec_store(T *to, int64_t at, const T from[W])
{
    aligned_vector<T, W> all;
    PARE_UNROLL for (int k = 0; k < W; k++) all.of[k] = from[k];
    *reinterpret_cast<aligned_vector<T, W> *>(to + at) = all;
}

/* Of a tensor of f32, f16 or bf16. */
template <int W>
SIMT_INLINE void vec_load_floats(const void *data, pare_dtype type, int64_t at, int64_t step,
                                 float to[W])
{
    if (type == PARE_f32) {
        vec_load<W>(static_cast<const float *>(data), at, step, to);
    } else if (type == PARE_f16) {
        __half narrow[W];
        vec_load<W>(static_cast<const __half *>(data), at, step, narrow);
        PARE_UNROLL for (int k = 0; k < W; k++) to[k] = pare_to_f32(narrow[k]);
    } else {
        __nv_bfloat16 narrow[W];
        vec_load<W>(static_cast<const __nv_bfloat16 *>(data), at, step, narrow);
        PARE_UNROLL for (int k = 0; k < W; k++) to[k] = pare_to_f32(narrow[k]);
    }
}

/* --- four numbers --- */

SIMT_INLINE int bytes_of(pare_dtype type)
{
    return type == PARE_f32 || type == PARE_s32 ? 4 : type == PARE_f16 || type == PARE_bf16 ? 2 : 1;
}

/* A number as y's type, in the low bits of a word. */
SIMT_INLINE unsigned bits_of(pare_dtype type, float v)
{
    switch (type) {
    case PARE_s8: return (uint8_t)(int8_t)v;
    case PARE_u8: return (uint8_t)v;
    case PARE_f16: return __half_as_ushort(__float2half_rn(v));
    case PARE_bf16: return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    default: return __float_as_uint(v);
    }
}

/* Stores the low bytes of a word. */
SIMT_INLINE void bits_store(int bytes, char *to, unsigned bits)
{
    if (bytes == 1)
        *to = (char)bits;
    else if (bytes == 2)
        *reinterpret_cast<uint16_t *>(to) = (uint16_t)bits;
    else
        *reinterpret_cast<uint32_t *>(to) = bits;
}

template <int W> SIMT_INLINE void vec_act(const pare_act &act, float v[W])
{
    switch (act.kind) {
#define ACT(kind)                                                                                  \
    case kind: PARE_UNROLL for (int k = 0; k < W; k++) v[k] = pare_act_of(kind, &act, v[k]); break;
        ACT(PARE_ACT_RELU)
        ACT(PARE_ACT_CLIP)
        ACT(PARE_ACT_LEAKY_RELU)
        ACT(PARE_ACT_SIGMOID)
        ACT(PARE_ACT_TANH)
        ACT(PARE_ACT_SILU)
        ACT(PARE_ACT_HARDSWISH)
        ACT(PARE_ACT_HARDSIGMOID)
        ACT(PARE_ACT_GELU)
        ACT(PARE_ACT_GELU_TANH)
#undef ACT
    default: break;
    }
}
SIMT_INLINE void vec4_act(const pare_act &act, float v[4]) { vec_act<4>(act, v); }

/* Stores up to four neighbours from y[at] on; words: four of them are at a multiple of 4 bytes, of
   f32 of 16. */
SIMT_INLINE void vec4_store(pare_dtype type, char *y, int64_t at, const float v[4], int left,
                            bool words)
{
    const int bytes = bytes_of(type);
    unsigned bits[4];
    PARE_UNROLL PARE_VEC4 bits[k] = bits_of(type, v[k]);
    char *to = y + at * bytes;
    if (!words || left < 4) {
        PARE_UNROLL PARE_VEC4 if (k < left) bits_store(bytes, to + k * bytes, bits[k]);
    } else if (bytes == 1) {
        *reinterpret_cast<unsigned *>(to) = __byte_perm(
            __byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
    } else if (bytes == 2) {
        reinterpret_cast<unsigned *>(to)[0] = __byte_perm(bits[0], bits[1], 0x5410);
        reinterpret_cast<unsigned *>(to)[1] = __byte_perm(bits[2], bits[3], 0x5410);
    } else {
        *reinterpret_cast<uint4 *>(to) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    }
}

#endif

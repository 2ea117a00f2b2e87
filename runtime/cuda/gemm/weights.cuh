/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 4 and 8 bits as floats, exact before they are scaled, without a conversion. An integer
   is put below the 1 of 2^23, less 2^23 and the level that means 0; of 4 bits, every second one of
   a word becomes a byte first. A float's exponent and mantissa go to their places in an f32, whose
   value is then too small by the difference of the exponents' biases: a multiplication by that
   power of two makes subnormals right, too. */
#ifndef PARE_RUNTIME_CUDA_GEMM_WEIGHTS_CUH
#define PARE_RUNTIME_CUDA_GEMM_WEIGHTS_CUH

#include "runtime/cuda/gemm/gemm.cuh"

/* How many numbers of a type (s4, s8, f4e2m1, f8e4m3) are in a word, and in a chunk of 16 bytes. */
template <int W> struct weight_of {
    enum { BITS = W == PARE_s4 || W == PARE_f4e2m1 ? 4 : 8, WORD = 32 / BITS, CHUNK = 4 * WORD };
};

/* What numbers of a group have in common. */
typedef struct weight_group {
    float scale, base; /* base: what a level is above its value, integers only */
} weight_group;

SIMT_INLINE weight_group group_at(const pare_cuda_weights &w, int64_t at)
{
    const unsigned zero = w.zero ? w.zero[at] : (unsigned)w.middle;
    return {w.scale[at], __uint_as_float(0x4b000000u | zero)};
}

/* Number i of a word, not scaled yet. */
template <int W> SIMT_INLINE float level_at(unsigned word, int i, float base)
{
    /* at the top; a shift to the right then brings copies of the sign */
    const int top = (int)(word << (32 - weight_of<W>::BITS * (i + 1)));
    switch (W) {
    case PARE_s4: return byte_at(word >> i % 2 * 4 & 0x0f0f0f0fu, i / 2) - base;
    case PARE_s8: return byte_at(word, i) - base;
    case PARE_f4e2m1: return __uint_as_float((unsigned)(top >> 6) & 0x81c00000u) * 0x1p126f;
    default: return __uint_as_float((unsigned)(top >> 4) & 0x87f00000u) * 0x1p120f;
    }
}

/* COUNT neighbours of column n that a word holds, from depth k on, scaled; `left` of them are
   there. The others stay as they are. */
template <int W, int COUNT>
SIMT_INLINE void numbers_read(const pare_cuda_weights &w, unsigned word, int64_t n, int k, int left,
                              float value[COUNT])
{
    int64_t group = n * w.groups + k / w.group;
    int until = w.group - k % w.group; /* the next group */
    weight_group now = group_at(w, group);
    PARE_UNROLL for (int i = 0; i < COUNT; i++)
    {
        if (i == until && i < left) {
            now = group_at(w, ++group);
            until += w.group;
        }
        if (i < left) value[i] = level_at<W>(word, i, now.base) * now.scale;
    }
}

#endif

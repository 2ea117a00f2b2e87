/* SPDX-License-Identifier: Apache-2.0 */
/* Vector forms of int8_gemm.h's inner loops, for x86-64; absent elsewhere. */
#ifndef PARE_RUNTIME_CPU_GEMM_INT8_SIMD_H
#define PARE_RUNTIME_CPU_GEMM_INT8_SIMD_H

#include "runtime/cpu/gemm/int8_gemm.h"
#include "runtime/ops/int8_elementwise.h"

#if defined(__x86_64__)
#define PARE_INT8_SIMD 1

void pare_int8_tile_avx2(int32_t *acc, int64_t acc_step, const pare_tile *a, const int16_t *b,
                         int64_t blocks);
void pare_int8_tile_avx512(int32_t *acc, int64_t acc_step, const pare_tile *a, const int16_t *b,
                           int64_t blocks);
/* pare_int8_finish_fn for activations none, relu and clip; residual s8, u8 or none. */
void pare_int8_finish_avx2(const pare_int8_tail *tail, int64_t channel, int64_t n,
                           const int32_t *acc, int64_t acc_step, const pare_tile *to,
                           int64_t column);
void pare_int8_finish_avx512(const pare_int8_tail *tail, int64_t channel, int64_t n,
                             const int32_t *acc, int64_t acc_step, const pare_tile *to,
                             int64_t column);

/* QAdd of two dense rows; returns how many elements were done (whole vectors). Activations none,
   relu and clip, output s8 or u8. */
int64_t pare_int8_add_avx2(const pare_int8_pair *sum, int64_t n, const void *a, const void *b,
                           void *y);

/* y = table[x] for whole vectors of 64; needs AVX-512 VBMI. */
int64_t pare_table_vbmi(const uint8_t *table, int64_t n, const uint8_t *x, uint8_t *y);
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Exact products of 8-bit matrices on any machine: both operands are widened to 16 bits with their
   zero points taken off, and pairs along the inner axis are multiplied and added into 32 bits
   (vpmaddwd on x86). No intermediate can saturate: |x - z| <= 255, so a pair is below 2^17.

   B is packed in blocks of `block` columns: for each pair k, the block's columns side by side,
   (b[2k][n], b[2k + 1][n]), zeros after the last row and column. */
#ifndef PARE_RUNTIME_CPU_GEMM_INT8_GEMM_H
#define PARE_RUNTIME_CPU_GEMM_INT8_GEMM_H

#include "runtime/ops/epilogue.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/gemm/tile.h"

enum { PARE_BLOCK_MOST = 32 }; /* columns of a block, at most */

/* acc (rows, acc_step) = A x `blocks` blocks of B; A's elements are int16_t. */
typedef void (*pare_int8_tile_fn)(int32_t *acc, int64_t acc_step, const pare_tile *a,
                                  const int16_t *b, int64_t blocks);

typedef struct pare_int8_gemm {
    int64_t columns, blocks;
    int64_t pairs; /* of the whole inner axis, as packed */
    int block;
    pare_isa isa;
    pare_int8_tile_fn tile;
} pare_int8_gemm;

/* pairs: half the length of the packed inner axis. */
void pare_int8_gemm_init(pare_int8_gemm *g, pare_isa isa, int64_t pairs, int64_t columns);

/* int16 elements of a packed B. */
size_t pare_int8_packed_count(const pare_int8_gemm *g);

/* Packs b (depth, columns) of type s8 or u8, with strides in elements, less its zero point;
   depth <= 2 * pairs. */
void pare_int8_pack(const pare_int8_gemm *g, int16_t *packed, const void *b, pare_dtype type,
                    int64_t depth, int64_t row, int64_t column, int32_t zero);

/* dst[i] = src[i * stride] - zero, n elements of type s8 or u8. */
void pare_int8_widen(int16_t *dst, const void *src, pare_dtype type, int64_t n, int64_t stride,
                     int32_t zero);

/* What follows the sums: bias, scales, residual, activation, output (epilogue.h). */
typedef struct pare_int8_tail pare_int8_tail;
typedef void (*pare_int8_finish_fn)(const pare_int8_tail *tail, int64_t channel, int64_t n,
                                    const int32_t *acc, int64_t acc_step, const pare_tile *to,
                                    int64_t column);
struct pare_int8_tail {
    const pare_epilogue *epilogue;
    const float *bias;          /* per column; NULL: none */
    const float *scale;         /* per column */
    pare_int8_finish_fn vector; /* for rows without gaps; NULL: none can */
    float low, high;            /* its clamp, activation's and type's, after the zero point */
};

/* isa: that of the machine; vectors finish rows where it and the epilogue allow. */
void pare_int8_tail_init(pare_int8_tail *tail, pare_isa isa, const pare_epilogue *epilogue,
                         const float *scale, const float *bias);

/* Sums acc (rows, acc_step) of n columns (n <= PARE_ROW) from `column` on, finished and stored;
   channel: what the first is for scales and biases. */
void pare_int8_finish(const pare_int8_tail *tail, int64_t channel, int64_t n, const int32_t *acc,
                      int64_t acc_step, const pare_tile *to, int64_t column);

/* One job: rows of A times columns from..to (from on a block's edge) of B, finished and stored.
   channel: what column 0 is for scales and biases. */
void pare_int8_job(const pare_int8_gemm *g, const pare_tile *tile, const int16_t *packed,
                   int64_t from, int64_t to, const pare_int8_tail *tail, int64_t channel);

/* Products channel by channel: sums of x[run[t]] * w[t] less the zero point's part. Channels are
   cut into groups of `lanes`; taps go in pairs, an odd last one beside a weight of zero. */
typedef struct pare_int8_dw pare_int8_dw;
struct pare_int8_dw {
    int lanes;
    int64_t channels, taps;
    const int16_t *weight; /* per group and pair of taps, in the order the vectors meet them */
    const int32_t *start;  /* per channel, in that order: minus the zero point times the weights */
    /* acc (rows, acc_step) of channels from..from + n, from on a group's edge; writes whole groups
       and reads them from the rows of bytes. */
    void (*sums)(const pare_int8_dw *d, int32_t *acc, int64_t acc_step, const pare_tile *tile,
                 int64_t from, int64_t n);
};

enum { PARE_DW_LANES_MOST = 32 };

/* x: s8 or u8; w (channels, taps). Arrays go to the arena. */
PARE_NODISCARD pare_status pare_int8_dw_init(pare_int8_dw *d, pare_arena *arena, pare_isa isa,
                                             pare_dtype x, int32_t zero, const int8_t *w,
                                             int64_t channels, int64_t taps);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Exact products of 8-bit matrices on any machine: both operands are widened to 16 bits with their
   zero points taken off, and pairs along the inner axis are multiplied and added into 32 bits
   (vpmaddwd on x86). No intermediate can saturate: |x - z| <= 255, so a pair is below 2^17.

   B is packed in blocks of `block` columns: for each pair k, the block's columns side by side,
   (b[2k][n], b[2k + 1][n]), zeros behind the last row and column. */
#ifndef PARE_RUNTIME_CPU_INT8_GEMM_H
#define PARE_RUNTIME_CPU_INT8_GEMM_H

#include "runtime/cpu/epilogue.h"
#include "runtime/cpu/isa.h"

enum {
    PARE_TILE_ROWS = 6,   /* rows of A that are worked on together */
    PARE_BLOCK_MOST = 32, /* columns of a block, at most */
};

/* Where rows of A lie: row r's inner axis is in `runs` stretches of 2 * pairs elements, at
   row[r] + run[i]. A matrix has one run; a convolution one per row of its window. */
typedef struct pare_int8_rows {
    const int16_t *row[PARE_TILE_ROWS];
    const int64_t *run;
    int64_t runs, pairs;
    int count;
} pare_int8_rows;

/* acc (rows, acc_step) = A x one block of B. */
typedef void (*pare_int8_tile_fn)(int32_t *acc, int64_t acc_step, const pare_int8_rows *a,
                                  const int16_t *b);

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
typedef struct pare_int8_tail {
    const pare_epilogue *epilogue;
    const int32_t *bias; /* NULL: none */
    int bias_step;       /* 0: one bias for all */
    const float *scale;  /* per column */
    bool simd;           /* set by pare_int8_tail_init */
} pare_int8_tail;

/* isa: that of the machine; vectors finish rows where it and the epilogue allow. */
void pare_int8_tail_init(pare_int8_tail *tail, pare_isa isa, const pare_epilogue *epilogue,
                         const float *scale, const int32_t *bias, int bias_step);

/* Columns from..from + n (n <= PARE_ROW) of one row: y and z point at column `from`. */
void pare_int8_finish(const pare_int8_tail *tail, int64_t from, int64_t n, const int32_t *acc,
                      const void *z, int64_t z_step, void *y, int64_t y_step);

/* Where the rows of a job go: column c of row r is element r's start + c * step. */
typedef struct pare_int8_target {
    void *y;
    const void *z; /* NULL: no residual */
    int64_t y_at[PARE_TILE_ROWS], z_at[PARE_TILE_ROWS], y_step, z_step;
} pare_int8_target;

/* One job: rows of A times columns from..to (from on a block's edge) of B, finished and stored.
   channel: what column 0 is for scales and biases. */
void pare_int8_job(const pare_int8_gemm *g, const pare_int8_rows *a, const int16_t *packed,
                   int64_t from, int64_t to, const pare_int8_tail *tail, int64_t channel,
                   const pare_int8_target *target);

/* Per-element products along channels: acc[i] = sum over taps of (x[t][i] - zero) * w, i < n;
   w is packed by pare_int8_dw_pack for an even number of taps. */
typedef void (*pare_int8_dw_fn)(int32_t *acc, int64_t n, const void *const *x, pare_dtype type,
                                int taps, int32_t zero, const int16_t *w, int64_t channels);
pare_int8_dw_fn pare_int8_dw(pare_isa isa);

/* Channels are cut into groups of PARE_DW_LANES, padded with zeros; per group and pair of taps: 32
   weights in the order the kernels read them. */
enum { PARE_DW_LANES = 16 };
size_t pare_int8_dw_count(int64_t channels, int taps);
void pare_int8_dw_pack(int16_t *packed, const int8_t *w, int64_t channels, int taps, int used);

#endif

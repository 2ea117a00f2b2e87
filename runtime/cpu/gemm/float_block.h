/* SPDX-License-Identifier: Apache-2.0 */
/* The innermost loop of our own f32 matrix products: a few rows of A times a block of columns of B,
   all sums in registers. Each sum is one chain of multiply-adds in order of the inner axis, also
   where the axis comes in pieces. Steps are in floats. */
#ifndef PARE_RUNTIME_CPU_GEMM_FLOAT_BLOCK_H
#define PARE_RUNTIME_CPU_GEMM_FLOAT_BLOCK_H

#include "runtime/cpu/isa.h"
#include "runtime/cpu/gemm/tile.h"

enum { PARE_BLOCK_COLUMNS = 32 /* most that a block has */ };

/* acc (rows, columns) = A (rows, depth) x B (depth, columns), or += where more is true. */
typedef struct pare_float_block {
    const float *row[PARE_TILE_ROWS]; /* of A */
    int64_t step;                     /* between neighbours in a row */
    int rows;                         /* 1..PARE_TILE_ROWS */
    int64_t depth;
    const float *b;
    int64_t b_step;
    float *acc;
    int64_t acc_step;
    bool more;
} pare_float_block;

typedef void (*pare_float_block_fn)(const pare_float_block *block);

/* For blocks of 16 columns, or of 32 with AVX-512. */
pare_float_block_fn pare_float_block_of(pare_isa isa, int columns);

#endif

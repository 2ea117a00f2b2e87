/* SPDX-License-Identifier: Apache-2.0 */
/* The unit of work of our own matrix products and convolutions, float and 8-bit alike: a few rows
   of A, where their inner axis is, and where their sums go. Offsets and steps are in elements. */
#ifndef PARE_RUNTIME_CPU_GEMM_TILE_H
#define PARE_RUNTIME_CPU_GEMM_TILE_H

#include <stdint.h>

enum { PARE_TILE_ROWS = 6 };

/* Row r's inner axis is in `runs` stretches, at row[r] + run[i]. A matrix has one run; a
   convolution one per row of its window. Column c of row r goes to y_at[r] + c * y_step. */
typedef struct pare_tile {
    const void *row[PARE_TILE_ROWS];
    const int64_t *run;
    int64_t runs;
    int64_t length; /* of a run: elements; 8-bit products: pairs of 16-bit elements */
    int64_t step;   /* between neighbours in a run (float only) */
    int count;      /* rows, 1..PARE_TILE_ROWS */
    void *y;
    const void *z; /* residual; NULL: none */
    int64_t y_at[PARE_TILE_ROWS], z_at[PARE_TILE_ROWS], y_step, z_step;
} pare_tile;

/* Defines name(acc, acc_step, a, b, blocks): `blocks` blocks of columns one after another, with a
   copy of rows(..., n) for each number of rows, so that the sums of all rows are registers. */
#define PARE_TILE_BY_ROWS(name, rows, isa, sum, weight)                                            \
    __attribute__((target(isa))) void name(sum *acc, int64_t acc_step, const pare_tile *a,         \
                                           const weight *b, int64_t blocks)                        \
    {                                                                                              \
        switch (a->count) {                                                                        \
        case 1: rows(acc, acc_step, a, b, blocks, 1); break;                                       \
        case 2: rows(acc, acc_step, a, b, blocks, 2); break;                                       \
        case 3: rows(acc, acc_step, a, b, blocks, 3); break;                                       \
        case 4: rows(acc, acc_step, a, b, blocks, 4); break;                                       \
        case 5: rows(acc, acc_step, a, b, blocks, 5); break;                                       \
        default: rows(acc, acc_step, a, b, blocks, 6); break;                                      \
        }                                                                                          \
    }

#endif

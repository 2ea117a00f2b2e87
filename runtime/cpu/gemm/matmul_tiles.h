/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of our own matrix products, float and 8-bit: any strides, batches and transposes. A
   constant B is packed while preparing, another one at each run. Work is cut into jobs of a tile's
   rows x a stretch of columns, shared out over threads. */
#ifndef PARE_RUNTIME_CPU_GEMM_MATMUL_TILES_H
#define PARE_RUNTIME_CPU_GEMM_MATMUL_TILES_H

#include "runtime/ops/product.h"
#include "runtime/cpu/gemm/tile.h"

/* The kernel sets the first block, pare_matmul_tiles_prepare the second. A kernel's state begins
   with it. Offsets are in elements. */
typedef struct pare_matmul_tiles pare_matmul_tiles;
struct pare_matmul_tiles {
    pare_matmul_args args;
    double least;          /* multiply-adds below which one thread serves */
    size_t element;        /* bytes of an element of packed B and of copied rows */
    size_t packed_count;   /* elements of packed B */
    int64_t block, blocks; /* columns of a block of B, and how many */
    int64_t length;        /* of a tile's run */
    int64_t row_room;      /* elements of a copied row of A */
    /* A row of A from an offset on, copied; NULL: rows are read where they are. */
    void (*load)(const pare_matmul_tiles *s, void *dst, const pare_view *a, int64_t from,
                 int64_t stride);
    void (*pack)(const pare_matmul_tiles *s, void *packed, const pare_view *b, int64_t from,
                 int64_t row, int64_t column);
    /* Sums and finishes columns from..to for the tile's rows; tail: run's. */
    void (*tile)(const pare_matmul_tiles *s, const void *tail, const void *packed,
                 const pare_tile *tile, int64_t from, int64_t to);

    const void *packed; /* of a constant B; NULL: packed at each run */
    int64_t stretch;    /* columns of a job */
    int threads;
    size_t a_room, b_room; /* bytes of scratch: per thread, and of a packed B */
};

PARE_NODISCARD pare_status pare_matmul_tiles_prepare(pare_prep *p, pare_matmul_tiles *s);
void pare_matmul_tiles_run(const pare_matmul_tiles *s, const pare_call *call, const void *tail);

#endif

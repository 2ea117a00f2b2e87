/* SPDX-License-Identifier: Apache-2.0 */
/* The model's tiles and splits beside those of the GPU backend, whose rule it repeats: the same
   answer for products of many sizes, types and ways. Asks no device. */
#include "runtime/cuda/gemm/pieces.h"
#include "runtime/cuda/gemm/prepack.h"
#include "runtime/cuda/gemm/wgmma_swap.h"
#include "runtime/eval/roofline/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

static const pare_dtype types[] = {PARE_s8, PARE_f16, PARE_bf16, PARE_f32};

/* Tiles whose depth a cluster shares: as many blocks, and of no more tiles. */
static void swap_compare(const pare_cuda_gemm_args *p, const pare_gpu_product *q, const char *of)
{
    static const pare_cuda_tiling tile[] = {PARE_CUDA_32X64, PARE_CUDA_64X64, PARE_CUDA_128X64};
    pare_gpu_product few = *q;
    few.wgmma = few.chunks = few.plain = true, few.pieces = false;
    few.batches = 1;
    for (int t = 0; t < 3; t++) {
        const int rows = pare_swap_rows(tile[t]);
        const int64_t tiles = pare_swap_tiles(p, tile[t]);
        if (pare_swap_blocks(q, rows) !=
            pare_swap_cluster(tiles, (int64_t)p->depth * pare_cuda_bytes(p->x_type)))
            fail_msg("blocks of %d rows of %s", rows, of);
        if (pare_swap_takes(&few, rows) != (p->columns % 4 == 0 && tiles <= PARE_SWAP_MOST_TILES))
            fail_msg("tiles of %d rows of %s", rows, of);
    }
}

static void compare(const pare_cuda_gemm_args *p, const pare_gpu_product *q)
{
    static const pare_cuda_tiling tile[PARE_GPU_TILES] = {[PARE_GPU_TILE_64X64] = PARE_CUDA_64X64,
                                                          [PARE_GPU_TILE_128X64] = PARE_CUDA_128X64,
                                                          [PARE_GPU_TILE_128X128] =
                                                              PARE_CUDA_128X128};
    char of[128];
    snprintf(of, sizeof of, "%s: %lld x %d x %d, %d products", pare_type(p->x_type)->name,
             (long long)p->rows, p->columns, p->depth, p->batches);
    for (int t = 0; t < PARE_GPU_TILES; t++) {
        /* the smallest tile takes what is gathered, too, under the same name */
        const bool backend = pare_cuda_tile_fits(p, tile[t]) || t == PARE_GPU_TILE_64X64;
        if (pare_tile_fits(q, (pare_gpu_tile)t) != backend) fail_msg("tile %d of %s", t, of);
    }
    if (pare_splits_of(q) != pare_cuda_splits_of(p)) fail_msg("splits of %s", of);
    swap_compare(p, q, of);
}

static void rules_are_equal(void **state)
{
    (void)state;
    static const int sizes[] = {1, 16, 24, 63, 64, 65, 128, 1000, 2048, 8384, 8448, 100352};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int cases = 0;
    for (int i = 0; i < 4 * SIZES * SIZES * SIZES; i++) {
        pare_cuda_gemm_args p;
        const int64_t rows = sizes[i / 4 % SIZES];
        const pare_dtype type = types[i % 4];
        pare_cuda_gemm_init(&p, type, type);
        p.rows = rows;
        p.columns = sizes[i / 4 / SIZES % SIZES];
        p.depth = sizes[i / 4 / SIZES / SIZES];
        const int64_t depth = p.depth;
        p.copy = pare_cuda_copy_of(type, &depth, 1);
        p.batches = i % 7 ? 1 : 12;
        const pare_gpu_product q = {.type = type,
                                    .batches = p.batches,
                                    .rows = (double)rows,
                                    .columns = p.columns,
                                    .depth = p.depth,
                                    .pieces = pare_cuda_by_pieces(&p),
                                    .chunks = pare_cuda_by_pieces(&p) || pare_cuda_by_chunks(&p)};
        compare(&p, &q);
        cases++;
    }
    assert_true(cases > 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_are_equal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Products: tiles of Y on tensor cores by mma.sync, tiles of f32, and the libraries'. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <stdio.h>

/* runtime/cuda/gemm: bytes of depth a step; the SMs that prepack.c fills. */
enum { STEP = 64, FILLED_SMS = 132, MOST_SPLITS = 16, LEAST_STEPS = 4, MOST_BATCHES = 65535 };
/* Seconds that adding parts up takes beside its launch and bytes: what 32 convolutions of INT8 and
   FP16 took more than the model said (tests/bench/results/2026-11-26-h200/benches.csv, batch 1), in
   the mean. The test eval_roofline_measured holds them to it, and 6 products that set nothing. Two
   of one row took 1.7 times what it says; why is not known, and not in it. */
#define JOIN 3.1e-6
/* Instructions for each output of an epilogue that does not only clamp: conversions, erff or expf.
   Its static count has one turn of a loop. */
enum { ANY_SUM = 30 };
/* Of gemm_f32_tile: sums of a thread, steps of depth, instructions ahead of the loop that run. */
enum { F32_SUMS = 16, F32_STEP = 16, F32_AHEAD = 300, F32_WARPS = 8 };

/* The epilogue of a tile's kernel (gemm/epilogue.cuh, tile_epilogue). */
enum { CLAMP, CLAMP_RESIDUAL, ANY, PARTIAL, BOUNDS, BOUNDS_RESIDUAL };

static const struct tile {
    int rows, columns, tm, tn; /* tm, tn: mma of a warp (16 x 8 each); always 2 x 2 warps */
    const char *name;
} tiles[PARE_GPU_TILES] = {
    {64, 64, 2, 4, "64x64"}, {128, 64, 4, 4, "128x64"}, {128, 128, 4, 8, "128x128"}};

/* Its static count has one turn of four of the multiply-adds. */
double pare_fma_step(const pare_sass *row, int tm, int tn)
{
    const double sums = tm * tn;
    return row->loop / (sums < 16 ? 4 : 1) + 3 * (sums * 16 + 2 * (tm + tn));
}

static double size_of(pare_dtype type) { return pare_type(type)->bits / 8; }

static double blocks_of(const pare_gpu_product *p, double rows, double columns)
{
    return ceil(p->rows / rows) * ceil(p->columns / columns) * p->batches;
}

bool pare_tile_fits(const pare_gpu_product *p, pare_gpu_tile tile)
{
    const struct tile *t = &tiles[tile];
    if (tile == PARE_GPU_TILE_64X64) return true;
    return p->chunks && (tile == PARE_GPU_TILE_128X64 || p->columns > 64) &&
           blocks_of(p, t->rows, t->columns) >= FILLED_SMS / 2;
}

int pare_splits_of(const pare_gpu_product *p)
{
    const double steps = ceil(p->depth * size_of(p->type) / STEP), blocks = blocks_of(p, 64, 64);
    double splits = blocks > 0 ? floor(FILLED_SMS / blocks) : 1;
    splits = fmin(fmin(splits, MOST_SPLITS), floor(steps / LEAST_STEPS));
    if (p->type == PARE_f32 || p->batches * splits > MOST_BATCHES) return 1;
    return splits < 2 ? 1 : (int)splits;
}

/* The kernel of a tile; rows that are gathered have one of their own. */
static bool row_of(const pare_gpu_spec *spec, const char *counts, const pare_gpu_product *p,
                   const struct tile *t, int end, pare_sass *out)
{
    enum { TF32 = 0x100 }; /* cuda/device/kind.h */
    const int kind = p->type == PARE_f32 && spec->tf32 ? TF32 : (int)p->type;
    char name[128];
    const char *rows = p->pieces                 ? "15pieces_iterator"
                       : p->picture && p->chunks ? "15im2col_iterator"
                                                 : "15matrix_iterator";
    snprintf(name, sizeof name, "_Z9gemm_tileILi%dE7tile_ofILi2ELi2ELi%dELi%dEE%sLi%dE", kind,
             t->tm, t->tn, rows, end);
    return pare_sass_find(counts, name, out);
}

/* Instructions of a warp, and blocks of an SM. False where the counts lack the kernel. */
static bool tile_grid(const pare_gpu_spec *spec, const char *counts, const pare_gpu_product *p,
                      const struct tile *t, int splits, pare_gpu_grid *g)
{
    char name[32];
    pare_sass row, end;
    const int clamp = p->bounds ? (p->residual ? BOUNDS_RESIDUAL : BOUNDS)
                                : (p->residual ? CLAMP_RESIDUAL : CLAMP);
    const bool f8 =
        pare_type_is_f8(p->type); /* codes become f16: two products each, one epilogue */
    const bool f32 = p->type == PARE_f32, plain = f32 && !spec->tf32;
    const int finish = splits > 1 ? PARTIAL : !p->plain || !p->chunks || f8 || f32 ? ANY : clamp;
    snprintf(name, sizeof name, "_Z11gemm_gatherILi%dEE", (int)p->type);
    if (!row_of(spec, counts, p, t, finish, &row)) return false;
    end = row;
    if (!p->chunks && !pare_sass_find(counts, name, &row)) return false;
    if (finish == ANY && !f8 && !f32 && !row_of(spec, counts, p, t, clamp, &end)) return false;
    const double mma = 2 * t->tm * t->tn, unrolled = row.mma / (f8 ? 2 * mma : mma);
    *g = (pare_gpu_grid){.blocks = blocks_of(p, t->rows, t->columns) * splits,
                         .resident = row.blocks,
                         .warps = 4,
                         .ahead = row.all - row.loop - row.behind,
                         .steps = ceil(ceil(p->depth * size_of(p->type) / STEP) / splits),
                         .step = plain ? pare_fma_step(&row, t->tm, t->tn) : row.loop / unrolled,
                         .behind = end.behind + (finish == ANY ? ANY_SUM * 4 * t->tm * t->tn : 0),
                         .tensor = plain ? 0 : mma * 16 * 8 * 32 / size_of(p->type),
                         .reached = spec->reached,
                         /* ldmatrix of 512 bytes, then what copies write */
                         .shared =
                             4 * 2 * (t->tm + t->tn / 2) * 512 + (t->rows + t->columns) * STEP};
    return true;
}

static void tiles_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                          const pare_gpu_product *p, const struct tile *t, int splits,
                          pare_roofline_step *out)
{
    pare_gpu_grid g;
    pare_roofline_step made = {.dtype = p->type};
    const double partial = splits > 1 ? splits * p->batches * p->rows * p->columns * 4 : 0;
    if (!tile_grid(spec, counts, p, t, splits, &g)) return;
    g.rate = PARE_MMA_SYNC * (p->type == PARE_f32 ? spec->macs_f16 / 2
                              : pare_type_is_f8(p->type) || size_of(p->type) > 1 ? spec->macs_f16
                                                                                 : spec->macs_s8);
    pare_step_close(spec, pare_gpu_grid_seconds(spec, &g, &made), p->bytes + partial, &made);
    if (splits > 1) {
        pare_bytes_add(spec, partial, &made); /* the parts are added up */
        made.seconds += JOIN;
    }
    if (out->launches && made.seconds >= out->seconds) return;
    if (splits > 1)
        snprintf(made.kernel, sizeof made.kernel, "%s_split_%d", stem, splits);
    else
        snprintf(made.kernel, sizeof made.kernel, "%s_%s", stem, t->name);
    *out = made;
}

bool pare_f32_takes_tiles(const pare_gpu_spec *spec, const pare_gpu_product *p)
{
    enum { LEAST_ROWS = 32, LEAST_COLUMNS = 64 };
    return spec->tf32 || (p->rows >= LEAST_ROWS && p->columns >= LEAST_COLUMNS);
}

static void f32_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                        const pare_gpu_product *p, pare_roofline_step *out)
{
    pare_sass row;
    if (!pare_sass_find(counts, "_Z13gemm_f32_tileILi1E", &row)) return;
    const pare_gpu_grid g = {.blocks = blocks_of(p, 64, 64),
                             .resident = row.blocks,
                             .warps = F32_WARPS,
                             .ahead = F32_AHEAD,
                             .steps = ceil(p->depth / F32_STEP),
                             .step = row.loop,
                             .behind = ANY_SUM * F32_SUMS,
                             .reached = spec->reached};
    pare_step_close(spec, pare_gpu_grid_seconds(spec, &g, out), p->bytes, out);
    snprintf(out->kernel, sizeof out->kernel, "%s_f32_64x64", stem);
}

/* Tiles of a warp-specialized wgmma kernel, one block an SM, depth split where they are few, and
   the share of the rate that they reach: 0.75 is what cuBLAS reaches in large products of FP16 on
   an H100 (arXiv 2501.12084). */
static void library_predict(const pare_gpu_spec *spec, const pare_gpu_product *p,
                            pare_roofline_step *out)
{
    static const struct {
        int rows, columns;
        double share;
    } of[] = {{128, 256, 0.75}, {128, 128, 0.65}, {64, 64, 0.4}, {16, 64, 0.15}};
    const bool f32 = p->type == PARE_f32, plain = f32 && !spec->tf32;
    const double rate = plain ? spec->macs_f32 : f32 ? spec->macs_f16 / 2 : spec->macs_f16;
    pare_roofline_step best = *out;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        pare_roofline_step made = *out;
        const double macs = (double)of[i].rows * of[i].columns * STEP / size_of(p->type);
        const double blocks = blocks_of(p, of[i].rows, of[i].columns);
        const double steps = ceil(p->depth * size_of(p->type) / STEP);
        const double splits = fmin(floor(spec->sms / blocks), floor(steps / LEAST_STEPS));
        const double parts = fmax(1, fmin(splits, MOST_SPLITS));
        const pare_gpu_grid g = {.blocks = blocks * parts,
                                 .resident = 1,
                                 .warps = 1,
                                 .steps = ceil(steps / parts),
                                 .tensor = macs,
                                 .rate = rate * of[i].share,
                                 .reached = 1};
        pare_step_close(spec, pare_gpu_grid_seconds(spec, &g, &made), p->bytes, &made);
        if (plain && made.bound == PARE_BOUND_TENSOR) made.bound = PARE_BOUND_ISSUE;
        if (!i || made.seconds < best.seconds) best = made;
    }
    *out = best;
    snprintf(out->kernel, sizeof out->kernel, p->batches > 1 ? "cublas_batched" : "cublaslt");
}

void pare_tile_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                       const pare_gpu_product *p, pare_gpu_tile tile, pare_roofline_step *out)
{
    if (pare_tile_fits(p, tile)) tiles_predict(spec, counts, stem, p, &tiles[tile], 1, out);
}

void pare_split_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                        const pare_gpu_product *p, pare_roofline_step *out)
{
    const int splits = pare_splits_of(p);
    if (splits > 1) tiles_predict(spec, counts, stem, p, &tiles[PARE_GPU_TILE_64X64], splits, out);
}

void pare_product_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                          const pare_gpu_product *p, pare_roofline_step *out)
{
    pare_roofline_step made = {.dtype = p->type};
    if (p->library) {
        library_predict(spec, p, &made);
        pare_sparse_predict(spec, counts, stem, p, &made);
    } else if (p->type == PARE_f32 && !(p->chunks && pare_f32_takes_tiles(spec, p)))
        f32_predict(spec, counts, stem, p, &made);
    else {
        for (int t = 0; t < PARE_GPU_TILES; t++)
            pare_tile_predict(spec, counts, stem, p, (pare_gpu_tile)t, &made);
        pare_split_predict(spec, counts, stem, p, &made);
        pare_wgmma_predict(spec, counts, stem, p, NULL, &made);
        pare_swap_predict(spec, counts, stem, p, &made);
    }
    if (!made.launches) return; /* the counts lack its kernels: unknown */
    out->launches += made.launches, out->bytes += made.bytes, out->seconds += made.seconds;
    out->bound = made.bound, out->occupancy = made.occupancy, out->waves = made.waves;
    out->dtype = p->type, out->known = true;
    snprintf(out->kernel, sizeof out->kernel, "%s", made.kernel);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Products by runtime/cuda/gemm/wgmma_swap.cu: tiles of 64 columns, whose depth the blocks of a
   cluster share. Its kernels have not run on a device. They are taken to begin as those of wgmma.c
   do, and to reach the same share of the tensor cores' rate; an instruction's 64 rows take as long
   to read as 128 columns take to multiply, which tiles of 64 columns showed there. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <stdio.h>

#define FULL 128.0 /* columns of an instruction from which on that is reached */
/* Shared memory of other blocks: latency, and what clusters of four read in all (arXiv 2402.13499,
   distributed shared memory), which is taken for those of two and eight, too. A cluster's barrier:
   assumed to be as long as a trip there and back. */
#define FAR_CYCLES 180
#define FAR_BYTES  2.65e12
/* Bytes a second that all blocks read of L2. Assumed: six tenths of the 5,120 a cycle that NVIDIA's
   A100 whitepaper (2020) has; no figure of the H200 is published. */
#define L2_BYTES 5.5e12

/* runtime/cuda/gemm/wgmma_swap.h */
enum { COLUMNS = 64, STEP = 128, LEAST_STEPS = 2, SMS = 132, MOST_CLUSTER = 8, RESIDENT = 2 };
enum { THREADS = 128, SCHEDULERS = 4, WARPS = 4, FOURS = 16 /* of a row's sums */ };
enum { UNIT = 130 /* instructions of four more sums: counted by hand */ };

static const int tile_rows[] = {32, 64, 128};

static double size_of(pare_dtype type) { return pare_type(type)->bits / 8; }

static double tiles_of(const pare_gpu_product *p, int rows)
{
    return ceil(p->rows / rows) * ceil(p->columns / COLUMNS);
}

int pare_swap_blocks(const pare_gpu_product *p, int rows)
{
    const double tiles = tiles_of(p, rows), steps = ceil(p->depth * size_of(p->type) / STEP);
    int cluster = 1;
    while (cluster < MOST_CLUSTER && 2 * cluster * tiles <= SMS &&
           steps >= 2 * cluster * LEAST_STEPS)
        cluster *= 2;
    return cluster;
}

bool pare_swap_takes(const pare_gpu_product *p, int rows)
{
    return p->wgmma && p->chunks && !p->pieces && !pare_type_is_f8(p->type) && p->batches == 1 &&
           fmod(p->columns, 4) == 0 && (p->plain || !p->picture) &&
           (p->plain || p->gelu || rows == 64) && tiles_of(p, rows) <= 4 * SMS;
}

/* '#': any number of stages. */
static bool row_of(const char *counts, const pare_gpu_product *p, int rows, pare_sass *out)
{
    enum { NOTHING, OF_Y, BYTES };
    char name[128];
    const bool integer = pare_type_is_int8(p->type), to_bytes = pare_type_is_int8(p->y);
    const int to = (int)(!integer ? p->type : to_bytes ? PARE_s8 : p->y);
    const int z = !p->residual ? NOTHING : !to_bytes && pare_type_is_int8(p->z) ? BYTES : OF_Y;
    snprintf(name, sizeof name, "_Z10wgmma_swapI12swap_variantILi%dELi%dELb%dELi%dELb%dELi%dELi#EE",
             (int)p->type, to, p->gelu, z, p->picture, rows);
    return pare_sass_find(counts, name, out);
}

static void tile_predict(const pare_gpu_spec *spec, const pare_gpu_product *p, int rows,
                         const pare_sass *row, pare_roofline_step *out)
{
    const double size = size_of(p->type), cluster = pare_swap_blocks(p, rows);
    const double blocks = tiles_of(p, rows) * cluster;
    const double depth = ceil(p->depth * size / STEP), steps = ceil(depth / cluster);
    const double per = fmin(RESIDENT, ceil(blocks / spec->sms));
    const double waves = ceil(blocks / (spec->sms * per));
    const double share =
        (size == 1 ? PARE_WGMMA_SHARE : PARE_WGMMA_HALF_SHARE) * fmin(1, rows / FULL);
    const double rate = (size == 1 ? spec->macs_s8 : spec->macs_f16) * share / spec->sms;
    const double tensor = per * steps * COLUMNS * rows * (STEP / size) / rate;
    const double turns = fmax(1, rows * FOURS / cluster / THREADS);
    const double warps = per * WARPS / SCHEDULERS;
    const double issue =
        (row->behind + (turns - 1) * UNIT) * (warps + PARE_WGMMA_WAITS) / spec->clock;
    const double sums = per * rows * COLUMNS * 4 * (cluster - 1) / cluster;
    const double joined = cluster > 1 ? sums / (FAR_BYTES / spec->sms) +
                                            5 * FAR_CYCLES / spec->clock /* two barriers, a read */
                                      : 0;
    const double read = tiles_of(p, rows) * depth * (COLUMNS + rows) * STEP / L2_BYTES;
    double seconds = fmax(waves * tensor, read) + waves * (issue + joined);
    out->bound = read > waves * tensor     ? PARE_BOUND_MEMORY
                 : tensor > issue + joined ? PARE_BOUND_TENSOR
                                           : PARE_BOUND_LATENCY;
    if (p->bytes / spec->hbm > seconds)
        seconds = p->bytes / spec->hbm, out->bound = PARE_BOUND_MEMORY;
    out->occupancy = (int)per, out->waves = blocks / (spec->sms * per);
    pare_step_close(spec, seconds + PARE_WGMMA_START, p->bytes, out);
}

void pare_swap_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                       const pare_gpu_product *p, pare_roofline_step *out)
{
    for (size_t i = 0; i < sizeof tile_rows / sizeof *tile_rows; i++) {
        pare_sass row;
        pare_roofline_step made = {.dtype = p->type};
        if (!pare_swap_takes(p, tile_rows[i]) || !row_of(counts, p, tile_rows[i], &row)) continue;
        tile_predict(spec, p, tile_rows[i], &row, &made);
        if (out->launches && made.seconds >= out->seconds) continue;
        snprintf(made.kernel, sizeof made.kernel, "%s_wgmma_swap_%dx64", stem, tile_rows[i]);
        *out = made;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Products by runtime/cuda/gemm/wgmma.cu and those beside it: blocks stay for many tiles, whose
   stages are filled ahead, so that a tile takes what the tensor cores and its epilogue take, and
   nothing to begin.

   START, WAITS and the shares are fitted to 61 kernels of INT8 convolutions and products that an
   H200 ran (tests/bench/results/2026-11-26-h200/benches.csv), with the counts of the kernels that
   ran: the model says 0.80 to 1.15 of what was measured, 8 % off in the middle. The test
   eval_roofline_measured holds it to them. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define START       1.43e-6     /* seconds of a kernel before its first tile and after its last */
#define SHARE       (1 / 1.08)  /* of the tensor cores' rate, of integers */
#define HALF_SHARE  (1 / 1.165) /* of halves: what cuBLASLt reaches at a side of 4096 */
#define NARROW      (1 / 2.1)   /* of either, where only 64 columns share what is read of X */
#define SCHEDULERS  4
#define GROUP_WARPS 4

/* An epilogue waits as long as this many warps' instructions take: with two warps a scheduler it
   issues half of the cycles, with four two thirds. */
enum { WAITS = 2 };
/* Outputs of the smallest product for 33 multiprocessors; bytes that rows of Y are lots of. */
enum { LEAST_OUTPUTS = 10 * 128 * 128, LOT = 16 };

/* Tiles of wgmma_tiles.cuh: rows are groups of warps times mi times 64. */
static const struct tile {
    int groups, mi, columns, blocks; /* blocks: of a multiprocessor */
    const char *name;
} tiles[] = {{2, 1, 128, 1, "128x128"}, {2, 2, 128, 1, "256x128"}, {2, 1, 192, 1, "128x192"},
             {2, 1, 64, 2, "128x64"},   {2, 2, 64, 1, "256x64"},   {4, 1, 128, 1, "256x128_4wg"}};

static double size_of(pare_dtype type) { return pare_type(type)->bits / 8; }

/* Steps of 128 bytes but where a tap's channels are not in whole ones; those of the two narrow
   tiles have 64. */
static bool f8_suits(const pare_gpu_product *p, const struct tile *t, int step)
{
    if (t->groups != 2 || (p->picture && !p->plain)) return false;
    if (t->columns == 64)
        return step == 64 && (t->mi == 1 ? !p->picture : p->picture && p->columns <= 64);
    return t->columns == 128 && t->mi == 1 && p->columns > 64 &&
           (step == 64) == (p->picture && p->narrow);
}

/* The rules of wgmma.cu that the counts do not show: they have no row of what is not built. */
static bool suits(const pare_gpu_product *p, const struct tile *t, int step)
{
    const double depth = p->depth * size_of(p->type);
    const bool small = depth <= 64, integer = pare_type_is_int8(p->type);
    const bool narrow = integer && (p->picture ? p->narrow : small);
    if (pare_type_is_f8(p->type)) return f8_suits(p, t, step);
    if (!p->plain && (p->picture || small || p->columns <= 64)) return false;
    if (small && !integer) return false;
    if (t->columns == 64 && t->mi == 1 && p->columns > 64) return small || !p->plain;
    if ((p->columns <= 64) != (t->columns == 64)) return false;
    if (t->columns == 64) return true; /* one size of step each */
    if (t->columns == 192 && (p->columns <= 128 || small)) return false;
    if (t->mi == 2 && !p->picture && small) return false;
    return narrow == (step == 64);
}

bool pare_wgmma_ends(const pare_gpu_product *p, const pare_act *act, pare_dtype to)
{
    const bool integer = pare_type_is_int8(p->type);
    if (pare_type_is_f8(p->type)) {
        if (p->type == PARE_f8e5m2 && p->residual) return false;
        if (act->kind == PARE_ACT_GELU)
            return p->type == PARE_f8e4m3 && !p->residual && to != PARE_f32;
        return to == PARE_f32 && pare_act_clamps(act) &&
               (!p->residual || p->z == p->y || (p->z == p->type && p->y != PARE_bf16));
    }
    if (act->kind == PARE_ACT_GELU) return !p->residual && (!integer || to != PARE_f32);
    return integer && to == PARE_f32 && pare_act_clamps(act) &&
           (!p->residual || p->z == p->y || (pare_type_is_int8(p->z) && p->y != PARE_bf16));
}

/* The counts of the tile's kernel with steps of so many bytes; false: there is none. '#': any
   number of stages. */
static bool row_of(const char *counts, const pare_gpu_product *p, const struct tile *t, int step,
                   pare_sass *out)
{
    enum { NOTHING, OF_Y, BYTES };
    char name[128];
    const bool integer = pare_type_is_int8(p->type), to_bytes = pare_type_is_int8(p->y);
    const bool f8 = pare_type_is_f8(p->type);
    const int to = (int)(f8 ? p->y : !integer ? p->type : to_bytes ? PARE_s8 : p->y);
    const bool bytes =
        !to_bytes && p->y != p->z && (pare_type_is_int8(p->z) || pare_type_is_f8(p->z));
    const int z = !p->residual ? NOTHING : bytes ? BYTES : OF_Y;
    snprintf(name, sizeof name,
             "_Z11wgmma_tilesI7variantILi%dELi%dELb%dELi%dELb%dELi%dELi%dELi%dELi#ELi%dELi%dEE",
             (int)p->type, to, p->gelu, z, p->picture, t->mi, t->columns, step, t->blocks,
             t->groups);
    return pare_sass_find(counts, name, out);
}

static void tile_predict(const pare_gpu_spec *spec, const pare_gpu_product *p, const struct tile *t,
                         int step, const pare_sass *row, pare_roofline_step *out)
{
    const double rows = t->groups * t->mi * 64, size = size_of(p->type);
    const double count = ceil(p->rows / rows) * ceil(p->columns / t->columns);
    const double per = fmin(t->blocks, ceil(count / spec->sms));
    const double share = t->columns == 64 ? NARROW : size == 1 ? SHARE : HALF_SHARE;
    const double rate = (size == 1 ? spec->macs_s8 : spec->macs_f16) * share / spec->sms;
    double turn = rows * t->columns * (step / size) / rate; /* of a step of depth */
    if (pare_type_is_f8(p->type)) /* a group adds up before it multiplies again */
        turn = fmax(turn, turn / (t->groups * per) + row->loop / spec->clock);
    const double tensor = ceil(p->depth * size / step) * turn;
    const double warps = per * t->groups * GROUP_WARPS / SCHEDULERS;
    const double issue = row->behind * (warps + WAITS) / spec->clock;
    const double moving = p->bytes / spec->hbm;
    const double waves = ceil(count / (spec->sms * per));
    double seconds = waves * (per * tensor + issue);
    out->bound = per * tensor > issue ? PARE_BOUND_TENSOR : PARE_BOUND_ISSUE;
    if (moving > seconds) seconds = moving, out->bound = PARE_BOUND_MEMORY;
    out->occupancy = (int)per, out->waves = count / (spec->sms * per);
    pare_step_close(spec, seconds + START, p->bytes, out);
}

void pare_wgmma_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                        const pare_gpu_product *p, const char *tile, pare_roofline_step *out)
{
    if (!p->wgmma || !p->chunks || p->batches != 1 || fmod(p->columns * size_of(p->y), LOT) != 0 ||
        p->rows * p->columns * 33 < (double)spec->sms * LEAST_OUTPUTS)
        return;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int step = 64; step <= 128; step += 64) {
            pare_sass row;
            pare_roofline_step made = {.dtype = p->type};
            if (tile && strcmp(tile, tiles[i].name) != 0) continue;
            if (!suits(p, &tiles[i], step) || !row_of(counts, p, &tiles[i], step, &row)) continue;
            tile_predict(spec, p, &tiles[i], step, &row, &made);
            if (out->launches && made.seconds >= out->seconds) continue;
            snprintf(made.kernel, sizeof made.kernel, "%s_wgmma_%s", stem, tiles[i].name);
            *out = made;
        }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Products by runtime/cuda/gemm/wgmma.cu and those beside it: blocks stay for many tiles, whose
   stages are filled ahead, so that a tile takes what the tensor cores and its epilogue take, and
   nothing to begin.

   PARE_WGMMA_START, its WAITS and the shares are fitted to 61 kernels of INT8 convolutions and
   products that an H200 ran (tests/bench/results/2026-11-26-h200/benches.csv), with the counts of
   the kernels that ran: the model says 0.80 to 1.15 of what was measured, 8 % off in the middle.
   The test eval_roofline_measured holds it to them. Weights of 2:4 have run on no device: their
   tiles are taken to reach the shares of dense ones. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NARROW (1 / 2.1) /* of either, where only 64 columns share what is read of X */
/* Bytes a second that L2 gives all stages: what it gave on an H200 in the mean of the product of
   side 4096 in 93.6 us (1,024 tiles of 128 x 128, 1 MiB each). More was not shown. */
#define FEED 11.5e12
/* The same of tiles of 64 columns: what NARROW implies on an H200, whose 132 x 1.755e9 x 4096 / 2.1
   multiply-adds a second of 256 x 64 each read 1 / 256 + 1 / 64 bytes. Sparse tiles read as much of
   X for as few columns. */
#define NARROW_FEED 8.8e12
#define SCHEDULERS  4
#define GROUP_WARPS 4

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

/* Y's type and what is added, as the kernels' names have them. */
typedef struct output_form {
    int to;
    enum { ADDS_NOTHING, ADDS_OF_Y, ADDS_BYTES } residual;
} output_form;

static output_form output_of(const pare_gpu_product *p)
{
    const bool integer = pare_type_is_int8(p->type), to_bytes = pare_type_is_int8(p->y);
    const bool f8 = pare_type_is_f8(p->type);
    const bool bytes =
        !to_bytes && p->y != p->z && (pare_type_is_int8(p->z) || pare_type_is_f8(p->z));
    return (output_form){(int)(f8         ? p->y
                               : !integer ? p->type
                               : to_bytes ? PARE_s8
                                          : p->y),
                         !p->residual ? ADDS_NOTHING
                         : bytes      ? ADDS_BYTES
                                      : ADDS_OF_Y};
}

/* The counts of the tile's kernel with steps of so many bytes; false: there is none. '#': any
   number of stages. */
static bool row_of(const char *counts, const pare_gpu_product *p, const struct tile *t, int step,
                   pare_sass *out)
{
    char name[128];
    const output_form f = output_of(p);
    snprintf(name, sizeof name,
             "_Z11wgmma_tilesI7variantILi%dELi%dELb%dELi%dELb%dELi%dELi%dELi%dELi#ELi%dELi%dEE",
             (int)p->type, f.to, p->gelu, f.residual, p->picture, t->mi, t->columns, step,
             t->blocks, t->groups);
    return pare_sass_find(counts, name, out);
}

/* How a tile's blocks take the device. */
typedef struct wgmma_work {
    double rows, columns; /* of a tile */
    int groups, blocks;   /* that multiply; of a multiprocessor */
    double tile;          /* seconds that a tile multiplies */
    pare_bound bound;     /* of these */
    double behind;        /* instructions of a warp after it */
    double bytes;         /* of HBM */
} wgmma_work;

static void work_predict(const pare_gpu_spec *spec, const pare_gpu_product *p, const wgmma_work *w,
                         pare_roofline_step *out)
{
    const double count = ceil(p->rows / w->rows) * ceil(p->columns / w->columns);
    const double per = fmin(w->blocks, ceil(count / spec->sms));
    const double warps = per * w->groups * GROUP_WARPS / SCHEDULERS;
    const double issue = w->behind * (warps + PARE_WGMMA_WAITS) / spec->clock;
    const double moving = w->bytes / spec->hbm;
    const double waves = ceil(count / (spec->sms * per));
    double seconds = waves * (per * w->tile + issue);
    out->bound = per * w->tile > issue ? w->bound : PARE_BOUND_ISSUE;
    if (moving > seconds) seconds = moving, out->bound = PARE_BOUND_MEMORY;
    out->occupancy = (int)per, out->waves = count / (spec->sms * per);
    pare_step_close(spec, seconds + PARE_WGMMA_START, w->bytes, out);
}

static void tile_predict(const pare_gpu_spec *spec, const pare_gpu_product *p, const struct tile *t,
                         int step, const pare_sass *row, pare_roofline_step *out)
{
    const double rows = t->groups * t->mi * 64, size = size_of(p->type);
    const double share = t->columns == 64 ? NARROW
                         : size == 1      ? PARE_WGMMA_SHARE
                                          : PARE_WGMMA_HALF_SHARE;
    const double rate = (size == 1 ? spec->macs_s8 : spec->macs_f16) * share / spec->sms;
    const double count = ceil(p->rows / rows) * ceil(p->columns / t->columns);
    double turn = rows * t->columns * (step / size) / rate; /* of a step of depth */
    if (pare_type_is_f8(p->type)) { /* a group adds up before it multiplies again */
        const double per = fmin(t->blocks, ceil(count / spec->sms));
        turn = fmax(turn, turn / (t->groups * per) + row->loop / spec->clock);
    }
    work_predict(spec, p,
                 &(wgmma_work){.rows = rows,
                               .columns = t->columns,
                               .groups = t->groups,
                               .blocks = t->blocks,
                               .tile = ceil(p->depth * size / step) * turn,
                               .bound = PARE_BOUND_TENSOR,
                               .behind = row->behind,
                               .bytes = p->bytes},
                 out);
}

/* --- weights of 2:4 --- */

/* Tiles of wgmma_sparse.cuh: a group has `rows` of the tile's rows and 64 of its columns. */
static const struct sparse_tile {
    int groups, rows, columns;
    const char *name;
} sparse_tiles[] = {{2, 128, 128, "128x128"},
                    {2, 256, 128, "256x128"},
                    {2, 128, 64, "256x64"},
                    {4, 128, 128, "4wg"},
                    {4, 128, 256, "4wg"}};

/* Bytes of X's depth of a step and of an instruction; of W they have half. */
enum { SPARSE_STEP = 128, SPARSE_DEPTH = 64, GROUP_COLUMNS = 64 };

static double tile_rows(const struct sparse_tile *t)
{
    return (double)t->groups * GROUP_COLUMNS / t->columns * t->rows;
}

/* The rules of wgmma.cu and wgmma_sparse.cu that the counts do not show. */
static bool sparse_suits(const pare_gpu_product *p, const struct sparse_tile *t)
{
    const bool narrow = p->columns <= 64, many = p->columns > 128 && p->plain && !p->picture;
    return p->depth * size_of(p->type) > 64 && (t->columns == 64) == narrow &&
           (t->groups == 2 || (t->columns == 256) == many);
}

/* A tap whose channels are not in whole steps comes by halves of one. */
static bool sparse_row_of(const char *counts, const pare_gpu_product *p,
                          const struct sparse_tile *t, pare_sass *out)
{
    char name[128];
    const bool halves = pare_type_is_int8(p->type) && p->narrow;
    const int tap = !p->picture ? 0 : halves ? SPARSE_STEP / 2 : SPARSE_STEP;
    const output_form f = output_of(p);
    snprintf(name, sizeof name,
             "_Z18wgmma_sparse_tilesI14sparse_variantILi%dELi%dELb%dELi%dELi%dELi%dELi%dELi#ELi1E"
             "Li%dEE",
             (int)p->type, f.to, p->gelu, f.residual, tap, t->rows, t->columns, t->groups);
    return pare_sass_find(counts, name, out);
}

/* An instruction takes what its multiply-adds take at twice the dense rate, or what it reads of
   shared memory, 64 rows of 32 bytes and t->rows of 64. A tile takes that, or what its stages take
   of L2. */
static void sparse_predict(const pare_gpu_spec *spec, const pare_gpu_product *p,
                           const struct sparse_tile *t, const pare_sass *row,
                           pare_roofline_step *out)
{
    const double size = size_of(p->type), steps = ceil(p->depth * size / SPARSE_STEP);
    const double rate = 2 * (size == 1 ? spec->macs_s8 : spec->macs_f16) / spec->sms;
    const double multiply = (double)GROUP_COLUMNS * t->rows * (SPARSE_DEPTH / size) / rate;
    const double read = GROUP_COLUMNS * SPARSE_DEPTH / 2 + t->rows * SPARSE_DEPTH;
    const double shared = read / (spec->shared * spec->clock);
    const double each =
        fmax(multiply, shared) / (size == 1 ? PARE_WGMMA_SHARE : PARE_WGMMA_HALF_SHARE);
    const double tensor = steps * t->groups * (SPARSE_STEP / SPARSE_DEPTH) * each;
    const double meta = SPARSE_STEP / size / 8; /* bytes of a column and step */
    const double stage = tile_rows(t) * SPARSE_STEP + t->columns * (SPARSE_STEP / 2 + meta);
    const double feed = steps * stage / ((t->columns == 64 ? NARROW_FEED : FEED) / spec->sms);
    const double packed = p->columns * p->depth * (size / 2 + 1.0 / 8);
    work_predict(spec, p,
                 &(wgmma_work){.rows = tile_rows(t),
                               .columns = t->columns,
                               .groups = t->groups,
                               .blocks = 1,
                               .tile = fmax(tensor, feed),
                               .bound = feed > tensor       ? PARE_BOUND_MEMORY
                                        : shared > multiply ? PARE_BOUND_SHARED
                                                            : PARE_BOUND_TENSOR,
                               .behind = row->behind,
                               .bytes = p->bytes - p->columns * p->depth * size + packed},
                 out);
}

/* The faster of *out and *made, whose kernel has this name. */
static void faster_take(pare_roofline_step *out, pare_roofline_step *made, const char *stem,
                        const char *way, const char *name)
{
    if (out->launches && made->seconds >= out->seconds) return;
    snprintf(made->kernel, sizeof made->kernel, "%s_%s_%s", stem, way, name);
    *out = *made;
}

static bool takes(const pare_gpu_spec *spec, const pare_gpu_product *p)
{
    return p->wgmma && p->chunks && !p->pieces && p->batches == 1 &&
           fmod(p->columns * size_of(p->y), LOT) == 0 &&
           p->rows * p->columns * 33 >= (double)spec->sms * LEAST_OUTPUTS;
}

void pare_sparse_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                         const pare_gpu_product *p, pare_roofline_step *out)
{
    if (!p->sparse || !takes(spec, p)) return;
    for (size_t i = 0; i < sizeof sparse_tiles / sizeof *sparse_tiles; i++) {
        const struct sparse_tile *t = &sparse_tiles[i];
        pare_sass row;
        pare_roofline_step made = {.dtype = p->type};
        if (!sparse_suits(p, t) || !sparse_row_of(counts, p, t, &row)) continue;
        sparse_predict(spec, p, t, &row, &made);
        faster_take(out, &made, stem, "sparse_wgmma", t->name);
    }
}

void pare_wgmma_predict(const pare_gpu_spec *spec, const char *counts, const char *stem,
                        const pare_gpu_product *p, const char *tile, pare_roofline_step *out)
{
    if (!takes(spec, p)) return;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int step = 64; step <= 128; step += 64) {
            pare_sass row;
            pare_roofline_step made = {.dtype = p->type};
            if (tile && strcmp(tile, tiles[i].name) != 0) continue;
            if (!suits(p, &tiles[i], step) || !row_of(counts, p, &tiles[i], step, &row)) continue;
            tile_predict(spec, p, &tiles[i], step, &row, &made);
            faster_take(out, &made, stem, "wgmma", tiles[i].name);
        }
    if (!tile) pare_sparse_predict(spec, counts, stem, p, out);
}

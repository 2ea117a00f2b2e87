/* SPDX-License-Identifier: Apache-2.0 */
/* A first convolution with the MaxPool behind it, as runtime/cuda/conv/conv_stem_pool.cu computes
   them: blocks that walk down strips, a line of Y at a step. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/ops/conv_pool.h"

#include <math.h>
#include <stdio.h>

enum { WARPS = 4, PIXELS = 7, AHEAD = 2, PROCESSORS = 132, WINDOW = 8, CHANNELS = 4 };

/* Instructions that the counts have once and a step of a ResNet's picture never: pixels one by one
   at its edges, positions that the convolution has not, the part of them that is not a filter's,
   and what a line of the window takes beside tensor-core instructions, a word of pixels. */
enum { EDGE = 194, BOUND = 12, WINDOW_LINE = 16 };
/* And turns of loops ahead of the steps: a lot of pixels, a filter. */
enum { LOT_TURN = 30, FILTER_TURN = 14 };

typedef struct strips {
    double across, down, lines; /* of Y: blocks of an image; of a block */
} strips;

/* The kernel's choice (segments_set). */
static strips strips_of(double planes, double height, double width, double resident)
{
    const double slots = PROCESSORS * resident, across = ceil(width / (WARPS * PIXELS));
    strips best = {across, 1, height};
    double least = INFINITY;
    for (double n = 1; n <= height; n++) {
        const double lines = ceil(height / n), down = ceil(height / lines),
                     turns = ceil(planes * across * down / slots) * (lines + AHEAD);
        if (turns < least) least = turns, best.down = down, best.lines = lines;
    }
    return best;
}

static void predict(const pare_roofline_maker *m, const pare_prep *prep, const pare_conv_args *a,
                    const pare_window *pool, pare_dtype type, pare_roofline_step *out)
{
    enum { BLOCKS = 3 };
    char name[64];
    pare_sass row;
    const pare_window *w = &a->win;
    const double size = pare_type(type)->bits / 8, columns = a->m % 64 ? 32 : 64,
                 high = (double)w->kernel[1], groups = (double)a->m / columns,
                 images = (double)a->n;
    const bool bounds = pare_type_is_int8(type) && pare_epilogue_bounds(&a->epilogue);
    snprintf(name, sizeof name, "_Z9stem_poolILi%dELi%dELi%dEE", (int)type, (int)columns,
             bounds ? 4 : 0);
    if (!pare_sass_find(m->counts, name, &row)) return;
    const strips s = strips_of(images * groups, (double)pool->out[1], (double)pool->out[2], BLOCKS);
    const double step = row.loop - EDGE - BOUND - columns -
                        (WINDOW - high) * (row.mma / WINDOW + WINDOW_LINE * size);
    /* a window three high has a step ahead of all segments but an image's first */
    const double steps =
        (double)pool->out[1] / s.down + (pool->kernel[1] == 3 ? 1 - 1 / s.down : 0);
    const pare_gpu_grid g = {
        .blocks = images * groups * s.across * s.down,
        .resident = row.blocks,
        .warps = WARPS,
        .ahead = row.all - row.loop - row.behind - EDGE + ceil((high + 2) / WARPS) * LOT_TURN +
                 columns / WARPS * FILTER_TURN,
        .steps = steps,
        .step = step,
        .behind = row.behind,
        .tensor = high * 2 * columns * 16 * 32,
        .reached = m->spec->reached,
        .rate = PARE_MMA_SYNC * (size == 1 ? m->spec->macs_s8 : m->spec->macs_f16),
        /* words of 128 bytes a warp, ldmatrix of 512 */
        .shared = WARPS * size * ((high + 2) * 4 * 128 + high * columns / 16 * 512)};
    const double bytes =
        ((double)pare_view_count(&prep->in[0]) + (double)pare_view_count(&prep->out[0]) +
         (double)a->m * high * WINDOW * CHANNELS) *
        size;
    pare_step_close(m->spec, pare_gpu_grid_seconds(m->spec, &g, out), bytes, out);
    snprintf(out->kernel, sizeof out->kernel, "conv_stem_pool");
    out->known = true;
}

pare_status pare_conv_pool_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                   pare_roofline_step *out, bool *read)
{
    pare_conv_args a;
    pare_window pool;
    pare_roofline_step half = {0};
    pare_status st = pare_conv_args_read(prep, &a);
    if (st == PARE_OK) st = pare_conv_pool_read(prep->node, &a.win, &pool);
    *read = st == PARE_OK;
    if (!*read) return st;
    predict(m, prep, &a, &pool, prep->in[0].dtype, out);
    out->dtype = prep->in[0].dtype;
    if (!a.int8 || !out->known) return PARE_OK;
    predict(m, prep, &a, &pool, PARE_f16, &half);
    out->seconds_f16 = half.seconds;
    return PARE_OK;
}

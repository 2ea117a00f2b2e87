/* SPDX-License-Identifier: Apache-2.0 */
/* Fused attention: runtime/cuda/attention_flash.cu on tensor cores, else a query at a time; of 8
   bits runtime/cuda/attention_int8.cu. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/ops/attention.h"

#include <math.h>
#include <stdio.h>

/* attention_flash.cu: queries of a block, keys of a step, the widest head */
enum { QUERIES = 64, KEYS = 64, WARPS = 4, MOST_DEPTH = 128, WARP = 32 };
enum { MASK_NONE, MASK_ROW, MASK_PAIRS, MASK_ANY };
enum { PLAIN_MAC = 3 }; /* instructions of a multiply-add whose factors are read each time */

/* Chunks of 16 bits that lie at multiples of 16 bytes. */
static bool is_flash(pare_dtype type, int64_t depth, int64_t width)
{
    return (type == PARE_f16 || type == PARE_bf16) && depth <= MOST_DEPTH && width <= MOST_DEPTH &&
           depth % 8 == 0 && width % 8 == 0;
}

static int mask_of(const pare_view *mask, pare_dtype type)
{
    if (!mask) return MASK_NONE;
    if (mask->dtype != type) return MASK_ANY;
    if (mask->rank < 2 || mask->dim[mask->rank - 2] == 1) return MASK_ROW;
    return mask->dim[mask->rank - 1] % 2 == 0 ? MASK_PAIRS : MASK_ANY;
}

static bool flash_grid(const pare_roofline_maker *m, const pare_attention_views *x, int64_t depth,
                       pare_gpu_grid *g)
{
    char name[64];
    pare_sass row;
    const pare_view *y = &x->y, *k = &x->k;
    const double queries = (double)y->dim[y->rank - 2], width = (double)y->dim[y->rank - 1];
    const int d = depth <= 32 ? 32 : depth <= 64 ? 64 : 128;
    snprintf(name, sizeof name, "_Z15attention_flashILi%dELi%dELi%dEE", (int)y->dtype, d,
             mask_of(x->mask, y->dtype));
    if (!pare_sass_find(m->counts, name, &row)) return false;
    const double heads = (double)pare_view_count(y) / fmax(1, queries * width);
    *g = (pare_gpu_grid){.blocks = heads * ceil(queries / QUERIES),
                         .resident = row.blocks,
                         .warps = WARPS,
                         .ahead = row.all - row.loop - row.behind,
                         .steps = ceil((double)k->dim[k->rank - 2] / KEYS),
                         .step = row.loop,
                         .behind = row.behind,
                         .tensor = row.mma * 16 * 8 * 16,
                         .shared =
                             2.0 * KEYS * d * 2 * (1 + WARPS), /* written once, read by each warp */
                         .rate = PARE_MMA_SYNC * m->spec->macs_f16,
                         .reached = m->spec->reached};
    return true;
}

static double bytes_of(const pare_attention_views *x)
{
    const double bytes = (double)(pare_view_bytes(&x->q) + pare_view_bytes(&x->k) +
                                  pare_view_bytes(&x->v) + pare_view_bytes(&x->y));
    return x->mask ? bytes + (double)pare_view_bytes(x->mask) : bytes;
}

/* Bytes of shared memory that an SM of compute capability 9.0 has for blocks, and what CUDA takes
   of each (CUDA C++ programming guide, technical specifications). */
enum { SM_SHARED = 228 * 1024, BLOCK_SHARED = 1024 };

/* Of a kernel without a loop over keys: of its instructions a block of one slice executes so many
   (counted by hand: the others join slices, bring V in turn and end floats) where Y is codes, and
   so many of these for no key. */
#define ONE_SLICE 0.8
#define NO_KEY    0.3

static bool int8_grid(const pare_roofline_maker *m, const pare_attention_views *x, bool shifted,
                      bool floats, pare_gpu_grid *g)
{
    char name[64];
    pare_sass row;
    const pare_view *y = &x->y;
    const int r = y->rank, queries = (int)y->dim[r - 2], keys = (int)x->k.dim[r - 2];
    const int64_t widest = x->q.dim[r - 1] > y->dim[r - 1] ? x->q.dim[r - 1] : y->dim[r - 1];
    const int mask = !x->mask                                                    ? MASK_NONE
                     : x->mask->rank < 2 || x->mask->dim[x->mask->rank - 2] == 1 ? MASK_ROW
                                                                                 : MASK_PAIRS;
    const int depth = widest <= 32 ? 32 : widest <= 64 ? 64 : 128;
    snprintf(name, sizeof name, "_Z14attention_int8ILi%dELi%dELb%dEE", depth, mask, shifted);
    if (!pare_sass_find(m->counts, name, &row)) return false;
    const double heads =
        (double)pare_view_count(y) / fmax(1, (double)queries * (double)y->dim[r - 1]);
    const pare_q_attention_blocks b =
        pare_q_attention_blocks_of((int64_t)heads, queries, keys, pare_q_attention_is_wide(x));
    const double warps = b.slices * b.groups,
                 all = row.all * (b.slices > 1 || floats ? 1 : ONE_SLICE),
                 shared = (double)pare_q_attention_shared(&b, depth) + BLOCK_SHARED;
    *g = (pare_gpu_grid){
        .blocks = heads * b.blocks,
        .resident = fmax(1, floor(fmin(row.blocks * row.threads / 32 / warps, SM_SHARED / shared))),
        .warps = warps,
        .ahead = all * NO_KEY,
        .steps = 1,
        .step = all * (1 - NO_KEY) * b.slice / PARE_Q_ATTENTION_KEYS,
        .tensor = row.mma * 16 * 8 * 32,
        .rate = PARE_MMA_SYNC * m->spec->macs_s8,
        .reached = m->spec->reached};
    return true;
}

void pare_q_attention_predict(const pare_roofline_maker *m, const pare_prep *prep,
                              pare_roofline_step *out, bool *read)
{
    pare_gpu_grid g;
    pare_q_attention a;
    *read = pare_q_attention_read(prep->node, &a) == PARE_OK;
    if (!*read) return;
    const pare_attention_views x =
        pare_attention_views_of(prep->node, prep->in, prep->in_count, &prep->out[0]);
    const bool shifted = a.q_zero || a.k_zero || a.v_zero || x.q.dtype == PARE_u8 ||
                         x.k.dtype == PARE_u8 || x.v.dtype == PARE_u8;
    if (!pare_q_attention_fits(&x, &a) || !int8_grid(m, &x, shifted, a.epilogue.to == PARE_f32, &g))
        return;
    const double seconds = pare_gpu_grid_seconds(m->spec, &g, out);
    snprintf(out->kernel, sizeof out->kernel, "attention_int8");
    pare_step_close(m->spec, seconds, bytes_of(&x), out);
    out->known = true;
}

void pare_attention_predict(const pare_roofline_maker *m, const pare_prep *prep,
                            pare_roofline_step *out)
{
    pare_gpu_grid g;
    const pare_view *q = &prep->in[0], *y = &prep->out[0];
    if (prep->in_count < 3 || q->rank < 2 || y->rank < 2) return;
    const pare_attention_views x = pare_attention_views_of(prep->node, prep->in, prep->in_count, y);
    const int64_t depth = q->dim[q->rank - 1], width = y->dim[y->rank - 1];
    double seconds;
    if (is_flash(y->dtype, depth, width) && flash_grid(m, &x, depth > width ? depth : width, &g)) {
        seconds = pare_gpu_grid_seconds(m->spec, &g, out);
        snprintf(out->kernel, sizeof out->kernel, "attention_flash");
    } else {
        seconds =
            pare_issue_seconds(m->spec, fmax(0, pare_node_macs(prep->node)) / WARP * PLAIN_MAC);
        snprintf(out->kernel, sizeof out->kernel, "attention");
    }
    pare_step_close(m->spec, seconds, bytes_of(&x), out);
    out->known = true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A depthwise convolution with the pointwise one behind it, as runtime/cuda/conv/depthwise_tile.cuh
   computes them: two strips of Y a block, steps of 64 bytes of channels. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/ops/depthwise_pointwise.h"

#include <math.h>
#include <stdio.h>

enum { WARPS = 8, STRIP = 8, STRIPS = 2, KERNEL = 3, STEP = 64, PITCH = 80, LOAD = 128 };
/* Instructions of a turn of the loop that stores Y, or brings a residual; and of those of a step,
   by hand, what integers skip of channels that are not there: with windows one apart, and two. */
enum { PIECE_TURN = 30, MADE_ONE = 250, MADE_TWO = 150 };

typedef struct separable {
    const pare_roofline_maker *m;
    const pare_depthwise_pointwise *two;
    pare_dtype type; /* that it multiplies in: the node's, or f16 to compare */
    double size, stride, lines, columns, pixels; /* of Y a block; of X under a block's windows */
    double blocks_across;                        /* of columns */
    bool residual, bounds;
} separable;

/* The kernel's choice (depthwise_pointwise.c, columns_of). */
static void columns_set(separable *s)
{
    const double columns = (double)s->two->p.m;
    s->blocks_across = ceil(columns / 128);
    const double each = ceil(columns / s->blocks_across);
    s->columns = each <= 32 ? 32 : each <= 64 ? 64 : each <= 96 ? 96 : 128;
}

static separable separable_of(const pare_roofline_maker *m, const pare_depthwise_pointwise *two,
                              pare_dtype type)
{
    separable s = {.m = m, .two = two, .type = type, .size = pare_type(type)->bits / 8};
    s.stride = (double)two->d.win.stride[1];
    s.lines = s.stride == 1 ? 8 : 4;
    s.pixels = STRIPS * ((s.lines - 1) * s.stride + KERNEL) * ((STRIP - 1) * s.stride + KERNEL);
    s.residual = two->p.at.residual >= 0;
    s.bounds = s.size == 1 &&
               (pare_epilogue_bounds(&two->d.epilogue) || pare_epilogue_bounds(&two->p.epilogue));
    columns_set(&s);
    return s;
}

/* Of a step: weights, what sums begin with and scales; weights and biases. */
static double record_bytes(const separable *s)
{
    return s->size == 1 ? 9 * 64 + (8 + 4 + 4) * 64 : 4 * 10 * 32;
}

/* Blocks that the shared memory of an SM holds, 227 KiB (CUDA C++ programming guide, compute
   capability 9.0), of which each takes 1 KiB more. */
static double shared_holds(const separable *s)
{
    enum { MOST = 227 << 10, OWN = 1 << 10 };
    const double rows = s->lines * STRIPS * STRIP, stages = 2 * (rows + s->columns) * PITCH;
    const double copies = 2 * s->pixels * PITCH + 2 * record_bytes(s),
                 y = rows * (s->columns + 16) * s->size + 8 * s->columns;
    return floor(MOST / (stages + fmax(copies, y) + OWN));
}

/* Bytes that a block's step moves through shared memory, 128 a cycle: what loads of 32 lanes take,
   the same bytes read by several lanes counted once for each eighth. */
static double shared_bytes(const separable *s)
{
    const double rows = s->lines * STRIPS * STRIP;
    const double brought = (s->pixels + s->columns) * STEP + record_bytes(s);
    /* ldmatrix: each half of the columns reads all rows, each quarter of the rows all columns */
    const double product = 2 * rows * STEP + 4 * s->columns * STEP;
    if (s->size > 1) { /* words: X of 4 positions by 2 lines or 1, taps, biases; rows */
        const double words = s->stride == 1 ? 6 * 4 : 9 * 3, made = s->stride == 1 ? 8 : 4;
        return brought + product + WARPS * LOAD * (words + 2 * (9 + 1) + made);
    }
    /* 16 bytes: lines, taps, starts; 8: biases, scales, rows */
    const double lines = s->stride == 1 ? 6 : 7, taps = s->stride == 1 ? 3 : 4;
    return brought + product + WARPS * LOAD * (4 * (lines + taps + 4) + 2 * (8 + s->lines / 2));
}

/* Multiply-adds of a warp's instructions in a step. */
static double tensor_macs(const separable *s)
{
    const double rows = s->lines * STRIPS * STRIP;
    const double product = rows * s->columns * (STEP / s->size) / WARPS;
    if (s->size > 1) return product;
    return product + (s->stride == 1 ? 16 : 8) * 16 * 8 * 32;
}

static double bytes_moved(const separable *s)
{
    const pare_conv_args *d = &s->two->d, *p = &s->two->p;
    const pare_window *w = &d->win;
    const double y = (double)(p->n * p->m * w->out[1] * w->out[2]);
    return s->size * ((double)(d->n * d->c * w->in[1] * w->in[2]) + y * (s->residual ? 2 : 1) +
                      (double)(p->m * p->c) + 9 * (double)d->m);
}

/* Instructions of a warp in a step, in the mean of all. */
static double step_instructions(const separable *s, const pare_sass *row, double steps)
{
    const double there = (double)s->two->d.m * s->size / STEP / steps;
    if (s->size > 1) return row->loop;
    return row->loop - (1 - there) * (s->stride == 1 ? MADE_ONE : MADE_TWO);
}

static void predict(const separable *s, pare_roofline_step *out)
{
    char name[64];
    pare_sass row;
    const pare_window *w = &s->two->d.win;
    const int end = (s->bounds ? 4 : 0) + s->residual;
    snprintf(name, sizeof name, "_Z9separableILi%dELi%dELi%dELi%dE", (int)s->type, (int)s->stride,
             (int)s->columns, end);
    if (!pare_sass_find(s->m->counts, name, &row)) return;
    const double strips =
        (double)s->two->d.n * ceil((double)w->out[1] / s->lines) * ceil((double)w->out[2] / STRIP);
    const double turns = ceil(s->lines * STRIPS * STRIP * s->columns * s->size / 16 / (WARPS * 32));
    const double steps = ceil((double)s->two->d.m * s->size / STEP);
    const pare_gpu_grid g = {
        .blocks = ceil(strips / STRIPS) * s->blocks_across,
        .resident = fmax(1, fmin(row.blocks, shared_holds(s))),
        .warps = WARPS,
        .ahead = row.all - row.loop - row.behind,
        .steps = steps,
        .step = step_instructions(s, &row, steps),
        .behind = row.behind + (turns - 1) * PIECE_TURN * (s->residual ? 2 : 1),
        .tensor = tensor_macs(s),
        .shared = shared_bytes(s),
        .reached = s->m->spec->reached,
        .rate = PARE_MMA_SYNC * (s->size == 1 ? s->m->spec->macs_s8 : s->m->spec->macs_f16)};
    pare_step_close(s->m->spec, pare_gpu_grid_seconds(s->m->spec, &g, out), bytes_moved(s), out);
    snprintf(out->kernel, sizeof out->kernel, "conv_depthwise_pointwise");
    out->known = true;
}

/* Of 16 bits: one kernel where FP16 nets have it, else two. */
static pare_status half_predict(const pare_roofline_maker *m, const pare_depthwise_pointwise *two,
                                pare_roofline_step *out)
{
    pare_roofline_step one = {0}, first = {0}, last = {0};
    bool read[2];
    if (pare_depthwise_pointwise_pays(two, false)) {
        const separable s = separable_of(m, two, PARE_f16);
        predict(&s, &one);
        out->seconds_f16 = one.seconds;
        return PARE_OK;
    }
    PARE_TRY(pare_conv_predict(m, &two->depthwise, &first, &read[0]));
    PARE_TRY(pare_conv_predict(m, &two->pointwise, &last, &read[1]));
    if (first.seconds_f16 > 0 && last.seconds_f16 > 0)
        out->seconds_f16 = first.seconds_f16 + last.seconds_f16;
    return PARE_OK;
}

pare_status pare_depthwise_pointwise_predict(const pare_roofline_maker *m, const pare_prep *prep,
                                             pare_roofline_step *out, bool *read)
{
    pare_depthwise_pointwise two;
    const pare_status st = pare_depthwise_pointwise_read(&two, prep);
    *read = st == PARE_OK;
    if (!*read) return st;
    const separable s = separable_of(m, &two, prep->in[0].dtype);
    predict(&s, out);
    out->dtype = prep->in[0].dtype;
    return two.d.int8 && out->known ? half_predict(m, &two, out) : PARE_OK;
}

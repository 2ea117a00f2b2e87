/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of one model takes over what a run of another takes.

   The same small net, prepared again, was up to a tenth quicker or slower (0.9 MB of weights, 512
   KiB of L2): the address of the weights seems to decide how many of them a cache keeps. So small
   nets are measured in several places, side by side; the median counts.

   Other work on the machine only ever adds time. So the quickest tenth of a model's times counts.
   Where the median of the pairs' ratios, which counts on a quiet machine, says otherwise, the
   caller is told. */
#include "runtime/eval/eval.h"

#include <math.h>
#include <stdlib.h>

enum { PLACES = 5, TRIES = 3 };
static const double SMALL_BYTES = 64e6; /* of all places together */
static const double QUICK = 10, TOLERANCE = 0.05;
static const pare_measure_options whole = {100, 1.0, 31}, placed = {20, 0.25, 9};

void pare_timed_close(pare_timed *timed)
{
    pare_runner_free(timed->runner);
    pare_plan_free(timed->plan);
    *timed = (pare_timed){0};
}

pare_status pare_timed_open(pare_ctx *ctx, pare_timed *out, const pare_model *model,
                            const pare_timed_how *how)
{
    *out = (pare_timed){0};
    PARE_TRY(pare_plan_new(ctx, &out->plan, model, how->shapes, how->shape_count, &how->options));
    const pare_status st = pare_runner_new(ctx, &out->runner, out->plan);
    if (st == PARE_OK)
        pare_measure_fill(out->runner);
    else
        pare_timed_close(out);
    return st;
}

pare_status pare_timed_ms(pare_ctx *ctx, const pare_timed *timed, double *ms)
{
    pare_times times = {0};
    pare_status st = pare_measure(ctx, timed->runner, &whole, &times);
    if (st == PARE_OK) st = pare_times_percentile(ctx, &times, QUICK, ms);
    pare_times_free(&times);
    return st;
}

/* --- one pair --- */

typedef struct compared {
    double a_ms, b_ms, ratio;
    double off; /* by how much the median of all ratios says otherwise than the quickest tenths */
} compared;

static pare_status compare_times(pare_ctx *ctx, const pare_times *a, const pare_times *b,
                                 compared *c)
{
    PARE_TRY(pare_times_percentile(ctx, a, QUICK, &c->a_ms));
    PARE_TRY(pare_times_percentile(ctx, b, QUICK, &c->b_ms));
    PARE_TRY(pare_times_ratio(ctx, b, a, &c->off));
    c->ratio = c->b_ms / fmax(c->a_ms, 1e-9);
    c->off = fabs(c->off - c->ratio);
    return PARE_OK;
}

/* More pairs, some times, where other work disturbs. */
static pare_status compare(pare_ctx *ctx, const pare_timed *a, const pare_timed *b,
                           const pare_measure_options *options, compared *c)
{
    pare_times times_a = {0}, times_b = {0};
    pare_status st = PARE_OK;
    c->off = INFINITY;
    for (int i = 0; i < TRIES && c->off > TOLERANCE && st == PARE_OK; i++) {
        st = pare_measure_pairs(ctx, a->runner, b->runner, options, &times_a, &times_b);
        if (st == PARE_OK) st = compare_times(ctx, &times_a, &times_b, c);
    }
    pare_times_free(&times_a);
    pare_times_free(&times_b);
    return st;
}

/* --- several places --- */

static int by_ratio(const void *a, const void *b)
{
    const double x = ((const compared *)a)->ratio, y = ((const compared *)b)->ratio;
    return (x > y) - (x < y);
}

static pare_status compare_place(pare_ctx *ctx, pare_timed *a, pare_timed *b,
                                 const pare_model *model_a, const pare_model *model_b,
                                 const pare_timed_how *how, compared *c)
{
    PARE_TRY(pare_timed_open(ctx, a, model_a, how));
    PARE_TRY(pare_timed_open(ctx, b, model_b, how));
    return compare(ctx, a, b, &placed, c);
}

static pare_status compare_places(pare_ctx *ctx, const pare_model *model_a,
                                  const pare_model *model_b, const pare_timed_how *how, compared *c)
{
    pare_timed timed[2 * PLACES] = {{0}};
    compared all[PLACES];
    pare_status st = PARE_OK;
    /* all stay until the last is measured: what is freed would be the next one's place */
    for (int i = 0; i < PLACES && st == PARE_OK; i++)
        st = compare_place(ctx, &timed[2 * i], &timed[2 * i + 1], model_a, model_b, how, &all[i]);
    for (int i = 0; i < 2 * PLACES; i++) pare_timed_close(&timed[i]);
    PARE_TRY(st);
    qsort(all, PLACES, sizeof *all, by_ratio);
    *c = all[PLACES / 2];
    return PARE_OK;
}

pare_status pare_timed_compare(pare_ctx *ctx, const pare_timed *a, const pare_model *model_a,
                               const pare_timed *b, const pare_model *model_b,
                               const pare_timed_how *how, pare_side_by_side *out)
{
    compared c;
    const double bytes =
        (double)pare_plan_weight_bytes(a->plan) + (double)pare_plan_activation_bytes(a->plan);
    PARE_TRY(bytes * 2 * PLACES > SMALL_BYTES ? compare(ctx, a, b, &whole, &c)
                                              : compare_places(ctx, model_a, model_b, how, &c));
    *out = (pare_side_by_side){c.a_ms, c.b_ms, c.ratio, c.off > TOLERANCE};
    return PARE_OK;
}

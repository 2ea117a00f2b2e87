/* SPDX-License-Identifier: Apache-2.0 */
/* How far two models' outputs are apart on the same made-up inputs. */
#include "runtime/eval/eval.h"

#include <math.h>
#include <string.h>

static pare_status run_one(pare_ctx *ctx, const pare_model *model, const pare_input_shape *shapes,
                           int count, const pare_plan_options *options, bool ones, pare_plan **plan,
                           pare_runner **runner)
{
    PARE_TRY(pare_plan_new(ctx, plan, model, shapes, count, options));
    PARE_TRY(pare_runner_new(ctx, runner, *plan));
    pare_measure_fill(*runner);
    if (ones) pare_measure_fill_integers(*runner);
    return pare_runner_run(*runner);
}

static double number(const pare_view *v, int64_t i)
{
    const char *at = (const char *)v->data + (size_t)i * (size_t)pare_type(v->dtype)->bits / 8;
    double d;
    if (v->dtype != PARE_f64) return (double)pare_type(v->dtype)->to_f32(at);
    memcpy(&d, at, sizeof d);
    return d;
}

/* The largest difference over the largest magnitude; NaN equals NaN. */
static double floats_apart(const pare_view *a, const pare_view *b)
{
    double most = 0, largest = 0;
    for (int64_t i = 0; i < pare_view_count(a); i++) {
        const double x = number(a, i), y = number(b, i);
        if ((isnan(x) && isnan(y)) || x == y) {
            if (isfinite(x)) largest = fmax(largest, fabs(x));
            continue;
        }
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        largest = fmax(largest, fabs(x));
        most = fmax(most, fabs(x - y));
    }
    return most == 0 ? 0 : largest > 0 ? most / largest : INFINITY;
}

static double strings_apart(const pare_view *a, const pare_view *b)
{
    const pare_bytes *x = a->data, *y = b->data;
    for (int64_t i = 0; i < pare_view_count(a); i++)
        if (!pare_bytes_equal(x[i], y[i])) return INFINITY;
    return 0;
}

static double views_apart(const pare_view *a, const pare_view *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank ||
        (a->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim)))
        return INFINITY;
    if (pare_type_is_float(a->dtype)) return floats_apart(a, b);
    if (a->dtype == PARE_string) return strings_apart(a, b);
    const size_t bytes = pare_view_bytes(a);
    return bytes && memcmp(a->data, b->data, bytes) ? INFINITY : 0;
}

typedef struct pair {
    pare_plan *plan[2];
    pare_runner *runner[2];
} pair;

static pare_status run_both(pare_ctx *ctx, const pare_model *const model[2],
                            const pare_input_shape *shapes, int count,
                            const pare_plan_options *options, bool ones, pair *p)
{
    *p = (pair){0};
    for (int k = 0; k < 2; k++)
        PARE_TRY(run_one(ctx, model[k], shapes, count, options, ones, &p->plan[k], &p->runner[k]));
    return PARE_OK;
}

static void pair_free(pair *p)
{
    for (int k = 0; k < 2; k++) {
        pare_runner_free(p->runner[k]);
        pare_plan_free(p->plan[k]);
    }
}

pare_status pare_models_apart(pare_ctx *ctx, const pare_model *a, const pare_model *b,
                              const pare_input_shape *shapes, int count,
                              const pare_plan_options *options, double *apart, const char **output)
{
    const pare_model *const model[2] = {a, b};
    const pare_values *out = &a->graph->out;
    pair p;
    if (out->count != b->graph->out.count)
        return PARE_FAIL(ctx, INPUT, "%s: has %d outputs, %s has %d", b->path, b->graph->out.count,
                         a->path, out->count);
    pare_status st = run_both(ctx, model, shapes, count, options, true, &p);
    if (st != PARE_OK && st != PARE_MEMORY && st != PARE_INTERRUPTED) {
        pair_free(&p); /* integers may be places or counts, for which only 0 may be right */
        pare_ctx_clear(ctx);
        st = run_both(ctx, model, shapes, count, options, false, &p);
    }
    *apart = 0;
    *output = NULL;
    for (int i = 0; st == PARE_OK && i < out->count; i++) {
        const pare_view x = pare_runner_output(p.runner[0], i);
        const pare_view y = pare_runner_output(p.runner[1], i);
        const double far = views_apart(&x, &y);
        if (*output && far <= *apart) continue;
        *apart = far;
        *output = out->item[i]->name;
    }
    pair_free(&p);
    return st;
}

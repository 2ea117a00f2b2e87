/* SPDX-License-Identifier: Apache-2.0 */
/* One layer's rounding by what the layer sees: the moments of its inputs once the layers before it
   are rounded, and of what it gave before anything was (Li and others 2025, "GPTAQ: Efficient
   Finetuning-Free Quantization for Asymmetric Calibration", arXiv 2504.02692). With inputs x now
   and targets t, E|W x - t|^2 is least at W = E[t x^T] H^-1, H = E[x x^T], and above it by
   tr(D H D^T) where rounding moves W by D. H has GPTQ's ridge in it, which pulls W to the weights
   as they were; for the targets the ridge grows by columns over inputs, for W has as many numbers a
   row as columns, and few inputs would be fitted to chance. */
#include "quant/rounding/round.h"
#include "runtime/exec/exec.h"

#include <math.h>
#include <string.h>

struct pare_quant_rounder {
    pare_ctx *ctx;
    pare_quant_layer layer;
    pare_quant_gptq *gptq;
    double ridge;
    double *factor; /* (columns, columns) of H, upper triangle; NULL: it has none */
    double *cross;  /* (columns, columns) E[t x^T]; of targets that are inputs */
    double *h;      /* (columns, columns) with its ridge; of AdaRound */
};

/* --- observing --- */

enum { KEEP_ROOM = 1 << 28 }; /* bytes of tensors that a flow keeps from pass to pass */

pare_status pare_quant_flows_open(pare_ctx *ctx, pare_quant_flows *out, pare_model *model,
                                  const pare_quant_search *samples)
{
    *out = (pare_quant_flows){.threads = samples->threads};
    if (out->threads < 1) out->threads = pare_cpu_cores();
    const pare_capture_options options = {.samples = samples->samples,
                                          .sample_count = samples->sample_count,
                                          .threads = out->threads,
                                          .device = samples->device,
                                          .room = KEEP_ROOM};
    PARE_TRY(pare_model_clone(ctx, &out->floats, model));
    PARE_TRY(pare_capture_new(ctx, &out->before, out->floats, samples->data, &options));
    return pare_capture_new(ctx, &out->now, model, samples->data, &options);
}

void pare_quant_flows_close(pare_quant_flows *flows)
{
    pare_capture_free(flows->now);
    pare_capture_free(flows->before);
    pare_model_free(flows->floats);
}

static pare_status add_runs(const pare_quant_flows *f, pare_observer *observer)
{
    for (;;) {
        pare_capture_batch x, t = {0};
        PARE_TRY(pare_capture_next(f->now, &x));
        PARE_TRY(pare_capture_next(f->before, &t));
        for (int r = 0; r < x.count; r++)
            PARE_TRY(pare_observer_add(observer, x.first + r, x.value[0] + r * x.size[0],
                                       t.value[0] + r * t.size[0], NULL));
        if (!x.count) return pare_observer_finish(observer);
    }
}

pare_status pare_quant_observe(pare_ctx *ctx, const pare_quant_flows *f, const pare_node *node,
                               const char *x, const char *t, pare_columns *columns,
                               pare_observer **out, bool *ok)
{
    const bool keep[] = {true};
    pare_status st = pare_capture_begin(f->now, &x, keep, 1);
    *ok = false;
    if (st == PARE_OK) st = pare_capture_begin(f->before, &t, keep, 1);
    if (st == PARE_UNSUPPORTED) {
        pare_ctx_clear(ctx);
        return PARE_OK;
    }
    PARE_TRY(st);
    PARE_TRY(pare_columns_read(node, pare_capture_shape(f->now, 0), columns, ok));
    if (!*ok) return PARE_OK;
    if (!strcmp(x, t)) columns->outputs = columns->columns;
    PARE_TRY(pare_observer_new(ctx, out, columns, 1, true, NULL, f->threads));
    return add_runs(f, *out);
}

/* --- the weights to aim at --- */

static const double RIDGE = 1e-2; /* of the mean diagonal, as in GPTQ's paper */

/* to (columns, rows) = from^T */
static void turn(const double *from, int64_t rows, int64_t columns, double *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

/* The right-hand side. turned: w^T. */
static pare_status make_right(const pare_quant_rounder *r, const double *w, const double *turned,
                              int64_t rows, double *b)
{
    const pare_quant_layer *l = &r->layer;
    const int64_t n = l->moments->columns;
    if (!l->targets_are_inputs) {
        pare_moments_right(l->moments, l->centred, r->ridge, w, b);
        return PARE_OK;
    }
    for (int64_t i = 0; i < n * rows; i++) b[i] = r->ridge * turned[i];
    return pare_linear_product(r->ctx, (pare_mat_view){b, rows}, (pare_mat_view){r->cross, n},
                               (pare_mat_view){(double *)(uintptr_t)turned, rows}, n, n, rows, 1,
                               false, l->threads);
}

/* w (rows, columns) becomes what rounding should come near to; stays where that is not finite, for
   the float model overflows. */
static pare_status aim(const pare_quant_rounder *r, double *w, int64_t rows)
{
    const int64_t n = r->layer.moments->columns;
    if (!r->factor) return PARE_OK;
    double *b = pare_alloc(r->ctx, (size_t)(n * rows), sizeof *b);
    double *turned = pare_alloc(r->ctx, (size_t)(n * rows), sizeof *turned);
    pare_status st = b && turned ? PARE_OK : PARE_MEMORY;
    bool ok = true;
    if (st == PARE_OK) {
        turn(w, rows, n, turned);
        st = make_right(r, w, turned, rows, b);
    }
    if (st == PARE_OK)
        st = pare_linear_solve(r->ctx, (pare_mat_view){r->factor, n}, n, (pare_mat_view){b, rows},
                               rows, r->layer.threads);
    for (int64_t i = 0; st == PARE_OK && ok && i < n * rows; i++) ok = isfinite(b[i]);
    if (st == PARE_OK && ok) turn(b, n, rows, w);
    pare_free(b);
    pare_free(turned);
    return st;
}

/* --- rounding --- */

/* H and its factor, once for all rows. */
static pare_status factorize(pare_quant_rounder *r)
{
    const pare_quant_layer *l = &r->layer;
    const int64_t n = l->moments->columns;
    const size_t all = (size_t)(n * n);
    bool ok;
    r->factor = pare_alloc(r->ctx, all, sizeof *r->factor);
    if (l->targets_are_inputs) r->cross = pare_alloc(r->ctx, all, sizeof *r->cross);
    if (l->iterations > 0) r->h = pare_alloc(r->ctx, all, sizeof *r->h);
    if (!r->factor || (l->targets_are_inputs && !r->cross) || (l->iterations > 0 && !r->h))
        return PARE_MEMORY;
    if (r->cross) turn(l->moments->xt, n, n, r->cross);
    r->ridge = pare_moments_normal(l->moments, l->centred, RIDGE, NULL, r->factor, NULL);
    if (r->h) memcpy(r->h, r->factor, all * sizeof *r->h);
    const double more = r->ridge / RIDGE * (double)n / l->moments->rows;
    for (int64_t i = 0; i < n; i++) r->factor[i * n + i] += more;
    r->ridge += more;
    PARE_TRY(pare_linear_cholesky(r->ctx, (pare_mat_view){r->factor, n}, n, l->threads, &ok));
    if (ok) return PARE_OK;
    pare_free(r->factor);
    r->factor = NULL;
    return PARE_OK;
}

pare_status pare_quant_rounder_new(pare_ctx *ctx, pare_quant_rounder **out,
                                   const pare_quant_layer *layer)
{
    pare_quant_rounder *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    *r = (pare_quant_rounder){.ctx = ctx, .layer = *layer};
    r->layer.centred = layer->centred && !layer->targets_are_inputs;
    pare_status st =
        pare_quant_gptq_new(ctx, &r->gptq, layer->moments, r->layer.centred, layer->threads);
    if (st == PARE_OK) st = factorize(r);
    if (st == PARE_OK)
        *out = r;
    else
        pare_quant_rounder_free(r);
    return st;
}

void pare_quant_rounder_free(pare_quant_rounder *r)
{
    if (!r) return;
    pare_quant_gptq_free(r->gptq);
    pare_free(r->factor);
    pare_free(r->cross);
    pare_free(r->h);
    pare_free(r);
}

pare_status pare_quant_round_layer(const pare_quant_rounder *r, double *w, int64_t rows,
                                   const pare_quant_grid *grid, int8_t *level, float *scale)
{
    const int threads = r->layer.threads;
    const int64_t n = r->layer.moments->columns;
    double *old = NULL;
    pare_status st = PARE_OK;
    if (r->h) {
        old = pare_alloc(r->ctx, (size_t)(rows * n), sizeof *old);
        if (!old) return PARE_MEMORY;
        memcpy(old, w, (size_t)(rows * n) * sizeof *old);
    }
    st = aim(r, w, rows);
    if (st == PARE_OK)
        st = pare_quant_round_gptq(r->ctx, r->gptq, w, rows, grid, level, scale, threads);
    if (st == PARE_OK && r->h) {
        const pare_quant_loss loss = {n, r->h};
        st = pare_quant_round_adaround(r->ctx, &loss, old, w, rows, grid, level, scale,
                                       r->layer.iterations, threads);
    }
    pare_free(old);
    return st;
}

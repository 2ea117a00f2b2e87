/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/output_error.h"

#include "calib/calibrate.h"
#include "runtime/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SAMPLES = 4 };
static const double MOST_MACS = 4e11;     /* multiply-adds of all trials */
static const double MOST_VALUES = 1.6e7;  /* of the outputs that are kept */
static const double HELD_BYTES = 1 << 26; /* of stored samples */

double pare_quant_values(const pare_value *v)
{
    double n = v ? 1 : 0;
    for (int i = 0; v && i < v->shape.rank; i++)
        n *= v->shape.dim[i] > 0 ? (double)v->shape.dim[i] : 1;
    return n;
}

pare_status pare_quant_run_shapes(pare_ctx *ctx, const pare_model *model, const pare_data *data,
                                  pare_model **out)
{
    int64_t unit;
    PARE_TRY(pare_data_run_samples(ctx, data, model, &unit));
    return pare_calib_run_shapes(ctx, model, data, unit < 1 ? 1 : unit, out); /* 0: any number */
}

/* --- which samples, which outputs --- */

static pare_status name_outputs(pare_output_error *e, const pare_model *model)
{
    const pare_values *out = &model->graph->out;
    e->name = pare_arena_alloc(&e->arena, (size_t)out->count + 1, sizeof *e->name);
    e->energy = pare_arena_alloc(&e->arena, (size_t)out->count + 1, sizeof *e->energy);
    if (!e->name || !e->energy) return PARE_MEMORY;
    for (int i = 0; i < out->count; i++)
        if (out->item[i]->dtype == PARE_f32 && !out->item[i]->data)
            e->name[e->count++] = out->item[i]->name;
    return PARE_OK;
}

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static pare_status choose_samples(pare_output_error *e, const pare_model *model, double macs,
                                  double values, double trials, int64_t limit)
{
    int64_t unit;
    double most = fmin(MOST_MACS / (macs * trials + 1), MOST_VALUES / (values + 1));
    most = fmin(fmax(most, LEAST_SAMPLES), (double)limit);
    const int64_t all = e->on->sample_count;
    PARE_TRY(pare_data_run_samples(e->ctx, e->on->data, model, &unit));
    if (unit < 1) unit = 1;
    e->unit = unit;
    e->samples = ((int64_t)most + unit - 1) / unit * unit; /* whole batches of a model with one */
    if (e->samples > all) e->samples = all;
    e->sample = pare_arena_alloc(&e->arena, (size_t)e->samples + 1, sizeof *e->sample);
    int64_t *sorted = pare_arena_alloc(&e->arena, (size_t)all + 1, sizeof *sorted);
    if (!e->sample || !sorted) return PARE_MEMORY;
    memcpy(sorted, e->on->samples, (size_t)all * sizeof *sorted);
    qsort(sorted, (size_t)all, sizeof *sorted, ascending); /* their order changes no result */
    for (int64_t i = 0; i < e->samples; i++) e->sample[i] = sorted[i * all / e->samples];
    return PARE_OK;
}

pare_status pare_output_error_open(pare_ctx *ctx, pare_output_error *out, const pare_model *model,
                                   const pare_quant_search *on, double macs, double values,
                                   double trials, int64_t most)
{
    *out = (pare_output_error){.ctx = ctx, .on = on};
    pare_arena_init(&out->arena, ctx);
    PARE_TRY(name_outputs(out, model));
    PARE_TRY(choose_samples(out, model, macs, values, trials, most));
    if ((double)out->samples * (double)pare_data_stored_bytes(on->data) > HELD_BYTES)
        return PARE_OK;
    return pare_data_hold(on->data, out->sample, out->samples);
}

/* --- where runs begin --- */

static bool is_listed(const pare_output_error *e, const char *name)
{
    for (int i = 0; i < e->begins; i++)
        if (!strcmp(e->begin[i], name)) return true;
    return false;
}

pare_status pare_output_error_begin_late(pare_output_error *e, const pare_model *model,
                                         const pare_model *sized)
{
    const pare_graph *g = model->graph;
    double room = PARE_OUTPUT_ROOM / sizeof(float);
    e->begin = pare_arena_alloc(&e->arena, (size_t)g->node_count + 1, sizeof *e->begin);
    if (!e->begin) return PARE_MEMORY;
    for (int n = g->node_count - 1; n >= 0; n--) {
        pare_weighted part;
        if (pare_quant_kind_of(g->node[n]) != PARE_QUANT_WEIGHTED) continue;
        PARE_TRY(pare_op_of(g->node[n])->quant.weighted(g->node[n], &part));
        const pare_value *x = pare_node_in(g->node[n], part.x);
        const pare_value *like = x ? pare_graph_find_own(sized->graph, x->name) : NULL;
        if (!like || !x->producer || x->dtype != PARE_f32 || is_listed(e, x->name)) continue;
        const double values = pare_quant_values(like) * (double)(e->samples / e->unit);
        if (!(values <= room)) continue;
        room -= values;
        e->begin[e->begins++] = x->name;
    }
    return PARE_OK;
}

bool pare_output_error_has(const pare_output_error *e, int64_t sample)
{
    return bsearch(&sample, e->sample, (size_t)e->samples, sizeof sample, ascending) != NULL;
}

void pare_output_error_close(pare_output_error *e)
{
    pare_free(e->exact);
    pare_capture_free(e->floats);
    if (e->ctx) {
        pare_data_release(e->on->data);
        pare_arena_free(&e->arena);
    }
    *e = (pare_output_error){0};
}

/* --- runs --- */

pare_status pare_output_error_flow(const pare_output_error *e, const pare_model *model,
                                   int batch_runs, size_t room, pare_capture **out)
{
    const pare_capture_options options = {.samples = e->sample,
                                          .sample_count = e->samples,
                                          .threads = e->on->threads,
                                          .device = e->on->device,
                                          .room = room,
                                          .batch_runs = batch_runs,
                                          .begin_at = e->floats};
    return pare_capture_new(e->ctx, out, model, e->on->data, &options);
}

/* A pass that shows the outputs, and `mores` more tensors. */
static pare_status begin_outputs(const pare_output_error *e, pare_capture *flow,
                                 const char *const *more, int mores, bool keep_them)
{
    const int count = e->count + mores;
    const char **name = pare_alloc(e->ctx, (size_t)count + 1, sizeof *name);
    bool *keep = pare_alloc(e->ctx, (size_t)count + 1, sizeof *keep);
    pare_status st = name && keep ? PARE_OK : PARE_MEMORY;
    for (int k = 0; st == PARE_OK && k < count; k++) {
        name[k] = k < e->count ? e->name[k] : more[k - e->count];
        keep[k] = k >= e->count && keep_them;
    }
    if (st == PARE_OK) st = pare_capture_begin(flow, name, keep, count);
    pare_free(keep);
    pare_free(name);
    return st;
}

/* A flow that shows the outputs, and one more tensor where there is a probe. */
static pare_status flow_open(const pare_output_error *e, pare_capture **flow,
                             const pare_model *model, const pare_output_probe *probe)
{
    PARE_TRY(pare_output_error_flow(e, model, 0, 0, flow));
    return begin_outputs(e, *flow, probe ? &probe->name : NULL, probe != NULL, false);
}

static double squares_apart(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sum;
}

/* Of a batch of output k, whose exact values are at `to`. run: as of measure. */
static void add_errors(const pare_output_error *e, const pare_capture_batch *batch, int k,
                       const float *to, double *sum, double *run)
{
    const int64_t size = batch->size[k];
    /* run by run: how many are in a batch is to change no bit */
    for (int r = 0; r < batch->count; r++) {
        const double error = squares_apart(batch->value[k] + r * size, to + r * size, size);
        *sum += error;
        if (run) run[batch->first + r] += error / e->energy[k];
    }
}

static void keep_values(const pare_capture_batch *batch, int k, float *to, double *sum)
{
    for (int64_t i = 0; i < batch->count * batch->size[k]; i++) {
        to[i] = batch->value[k][i];
        *sum += (double)to[i] * (double)to[i];
    }
}

/* Of one batch of the outputs, kept, or compared with what was kept: adds to the sum of each
   output, and as of measure. */
static void add_batch(const pare_output_error *e, pare_capture *flow,
                      const pare_capture_batch *batch, bool keep, double *sum, double *run)
{
    float *at = e->exact;
    for (int k = 0; k < e->count; k++) {
        if (keep)
            keep_values(batch, k, at + batch->first * batch->size[k], &sum[k]);
        else
            add_errors(e, batch, k, at + batch->first * batch->size[k], &sum[k], run);
        at += pare_capture_runs(flow) * batch->size[k];
    }
}

static void add_probed(const pare_output_error *e, const pare_capture_batch *batch,
                       pare_output_probe *probe)
{
    const int64_t size = batch->size[e->count];
    for (int r = 0; r < batch->count; r++)
        probe->error += squares_apart(batch->value[e->count] + r * size,
                                      probe->exact + (batch->first + r) * size, size);
}

/* Visits all runs. */
static pare_status run_outputs(const pare_output_error *e, pare_capture *flow, bool keep,
                               double *sum, double *run, pare_output_probe *probe)
{
    for (;;) {
        pare_capture_batch batch;
        PARE_TRY(pare_capture_next(flow, &batch));
        if (!batch.count) return PARE_OK;
        add_batch(e, flow, &batch, keep, sum, run);
        if (probe) add_probed(e, &batch, probe);
    }
}

/* Does the batch complete the first half of the runs, and has their error risen by more than
   chance? What is decided depends on these runs alone, however many a batch has. */
static bool half_is_worse(const pare_output_error *e, const pare_capture_batch *batch,
                          const double *was, const double *run)
{
    const int64_t half = e->runs / 2;
    return batch->first < half && batch->first + batch->count >= half &&
           pare_output_error_falls(run, was, half, 1);
}

/* Where the tensors to begin at cannot be shown, the outputs alone. */
static pare_status floats_open(pare_output_error *e, const pare_model *model, pare_capture **flow)
{
    PARE_TRY(pare_output_error_flow(e, model, 0, PARE_OUTPUT_ROOM, flow));
    const pare_status st = begin_outputs(e, *flow, e->begin, e->begins, true);
    if (!e->begins || (st != PARE_UNSUPPORTED && st != PARE_INPUT)) return st;
    pare_ctx_clear(e->ctx);
    e->begins = 0;
    return begin_outputs(e, *flow, NULL, 0, false);
}

pare_status pare_output_error_keep(pare_output_error *e, const pare_model *model)
{
    pare_capture *flow = NULL;
    double values = 0;
    pare_status st = floats_open(e, model, &flow);
    for (int k = 0; st == PARE_OK && k < e->count; k++)
        values +=
            (double)pare_shape_count(pare_capture_shape(flow, k)) * (double)pare_capture_runs(flow);
    if (st == PARE_OK && values > 4 * MOST_VALUES) /* one run of a fixed batch may have that many */
        st =
            PARE_FAIL(e->ctx, UNSUPPORTED, "%s: its outputs are too large to compare", model->path);
    if (st == PARE_OK) {
        e->runs = pare_capture_runs(flow);
        e->exact = pare_alloc(e->ctx, (size_t)values + 1, sizeof *e->exact);
        st = e->exact ? run_outputs(e, flow, true, e->energy, NULL, NULL) : PARE_MEMORY;
    }
    for (int k = 0; k < e->count; k++)
        if (!(e->energy[k] > 0)) e->energy[k] = 1;
    if (st == PARE_OK && e->begins) {
        pare_capture_end(flow);
        e->floats = flow;
    } else
        pare_capture_free(flow);
    return st;
}

static pare_status measure(const pare_output_error *e, const pare_model *model, double *error,
                           double *run, pare_output_probe *probe)
{
    pare_capture *flow = NULL;
    double *sum = pare_alloc(e->ctx, (size_t)e->count + 1, sizeof *sum);
    if (!sum) return PARE_MEMORY;
    if (probe) probe->error = 0;
    for (int64_t r = 0; run && r < e->runs; r++) run[r] = 0;
    pare_status st = flow_open(e, &flow, model, probe);
    if (st == PARE_OK) st = run_outputs(e, flow, false, sum, run, probe);
    *error = 0;
    for (int k = 0; st == PARE_OK && k < e->count; k++) *error += sum[k] / e->energy[k];
    pare_capture_free(flow);
    pare_free(sum);
    return st;
}

pare_status pare_output_error_of(const pare_output_error *e, const pare_model *model, double *error)
{
    return measure(e, model, error, NULL, NULL);
}

pare_status pare_output_error_probe(const pare_output_error *e, const pare_model *model,
                                    double *error, pare_output_probe *probe)
{
    return measure(e, model, error, NULL, probe);
}

pare_status pare_output_error_runs(const pare_output_error *e, const pare_model *model,
                                   double *error, double *run)
{
    return measure(e, model, error, run, NULL);
}

pare_status pare_output_error_onward(const pare_output_error *e, pare_capture *flow,
                                     const char *from, const double *was, double *run, bool *worth)
{
    double *sum = pare_alloc(e->ctx, (size_t)e->count + 1, sizeof *sum);
    if (!sum) return PARE_MEMORY;
    for (int64_t r = 0; r < e->runs; r++) run[r] = 0;
    pare_status st = begin_outputs(e, flow, &from, 1, true);
    *worth = true;
    while (st == PARE_OK && *worth) {
        pare_capture_batch batch;
        st = pare_capture_next(flow, &batch);
        if (st != PARE_OK || !batch.count) break;
        add_batch(e, flow, &batch, false, sum, run);
        *worth = !half_is_worse(e, &batch, was, run);
    }
    pare_free(sum);
    return st;
}

bool pare_output_error_falls(const double *was, const double *now, int64_t runs, double deviations)
{
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < runs; r++) sum += was[r] - now[r];
    if (!(sum > 0) || runs < 2) return sum > 0;
    const double mean = sum / (double)runs;
    for (int64_t r = 0; r < runs; r++) {
        const double d = was[r] - now[r] - mean;
        squares += d * d;
    }
    return mean > deviations * sqrt(squares / ((double)runs * (double)(runs - 1)));
}

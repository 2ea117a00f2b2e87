/* SPDX-License-Identifier: Apache-2.0 */
/* What a predictor keeps of its runs: of a run of several samples one row of each output for each
   of them, of a sample that runs alone all of each output, whatever its shape. */
#include "runtime/base/size.h"
#include "runtime/eval/pipeline.h"
#include "runtime/eval/predict.h"

#include <string.h>

static pare_status fail_collect(pare_ctx *ctx, const pare_predictor *p, const pare_output_rows *out,
                                int64_t size)
{
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "%s: output '%s' is %s of %lld elements per sample, which "
                     "cannot be collected",
                     p->model->path, out->name, pare_type(out->dtype)->name, (long long)size);
}

/* Room for so many elements. */
static pare_status make_room(const pare_predictor *p, pare_output_rows *out, size_t need)
{
    size_t bytes, wide = (size_t)pare_type(out->dtype)->bits / 8;
    if (!wide || !pare_mul_size(need, wide, &bytes)) return fail_collect(p->ctx, p, out, out->size);
    if (out->data && need <= out->capacity) return PARE_OK;
    pare_free(out->data);
    pare_free(out->f32);
    out->capacity = 0;
    out->f32 = NULL;
    out->data = pare_alloc(p->ctx, need, wide);
    if (!out->data) return PARE_MEMORY;
    if (out->dtype != PARE_f32 && pare_type(out->dtype)->to_f32) {
        out->f32 = pare_alloc(p->ctx, need, sizeof *out->f32);
        if (!out->f32) return PARE_MEMORY;
    }
    out->capacity = need;
    return PARE_OK;
}

static void drop_pieces(pare_output_rows *out)
{
    for (int i = 0; out->piece && i < out->whole_capacity; i++) {
        pare_free(out->piece[i]);
        out->piece[i] = NULL;
    }
}

void pare_output_rows_free(pare_output_rows *out)
{
    drop_pieces(out);
    pare_free(out->piece);
    pare_free(out->whole);
    pare_free(out->data);
    pare_free(out->f32);
}

/* --- rows of a run of several samples --- */

/* Of a plan whose outputs' shapes only a run knows: is this one's that of the first run? */
static pare_status check_shape(const pare_predictor *p, pare_replica *replica, int i)
{
    const pare_output_rows *out = &p->out[i];
    const pare_view y = pare_runner_output(replica->runner, i);
    bool same = y.dtype == out->dtype && y.rank == out->shape.rank + 1 && y.dim[0] == p->rows;
    for (int d = 1; same && d < y.rank; d++) same = y.dim[d] == out->shape.dim[d - 1];
    if (same) return PARE_OK;
    return PARE_FAIL(&replica->ctx, INPUT,
                     "%s: output '%s' has another shape for other samples; outputs that are "
                     "collected must have one, unless each sample is stored as a whole input",
                     p->model->path, out->name);
}

static pare_status take(void *user, int64_t run, pare_replica *replica)
{
    const pare_predictor *p = user;
    const int64_t unit = run - p->first;
    for (int i = 0; i < p->output_count; i++) {
        const pare_output_rows *out = &p->out[i];
        size_t row = (size_t)out->size * (size_t)pare_type(out->dtype)->bits / 8;
        PARE_TRY(check_shape(p, replica, i));
        memcpy(out->data + (size_t)(unit * p->rows) * row,
               pare_runner_output(replica->runner, i).data,
               (size_t)pare_predictor_unit_rows(p, p->count, unit) * row);
    }
    return PARE_OK;
}

static void name_rows(const pare_predictor *p, int i, pare_dtype dtype)
{
    p->out[i].name = p->model->graph->out.item[i]->name;
    p->out[i].dtype = dtype;
}

pare_status pare_predictor_open_rows(const pare_predictor *p, int i, const pare_view *output)
{
    const pare_view view = *output;
    pare_output_rows *out = &p->out[i];
    size_t need;
    name_rows(p, i, view.dtype);
    if (!view.rank || view.dim[0] != p->rows)
        return PARE_FAIL(p->ctx, INPUT,
                         "%s: output '%s' has %lld rows for %d samples; models without "
                         "one row per sample cannot be run on a data set unless each sample is "
                         "stored as a whole input, along one axis more",
                         p->model->path, out->name, view.rank ? (long long)view.dim[0] : 0LL,
                         p->rows);
    out->size = pare_view_count(&view) / p->rows;
    out->shape.rank = view.rank - 1;
    for (int d = 1; d < view.rank; d++) out->shape.dim[d - 1] = view.dim[d];
    if (!pare_mul_size((size_t)out->size, (size_t)p->count, &need))
        return fail_collect(p->ctx, p, out, out->size);
    return make_room(p, out, need);
}

/* The outputs' shapes: a dynamic plan tells them by running the first unit. */
static pare_status open_outputs(pare_predictor *p)
{
    pare_replica *first = pare_replicas_at(p->pool, 0);
    const pare_batch_work work = {.load = pare_predictor_load, .user = p};
    pare_status st = PARE_OK;
    if (pare_plan_is_dynamic(p->plan)) st = pare_replica_run(first, p->first, 1, &work);
    if (st != PARE_OK) return pare_fail(p->ctx, st, "%s", first->ctx.message);
    for (int i = 0; i < p->output_count; i++) {
        const pare_view view = pare_runner_output(first->runner, i);
        PARE_TRY(pare_predictor_open_rows(p, i, &view));
    }
    return PARE_OK;
}

static pare_status collect_rows(pare_predictor *p, int units)
{
    const pare_batch_work work = {
        .load = pare_predictor_load, .take = take, .any_order = true, .user = p};
    PARE_TRY(open_outputs(p));
    PARE_TRY(pare_predictor_run(p, units, &work));
    for (int i = 0; i < p->output_count; i++)
        if (p->out[i].f32)
            pare_convert(p->out[i].f32, PARE_f32, p->out[i].data, p->out[i].dtype,
                         p->count * p->out[i].size);
    return PARE_OK;
}

/* --- outputs of samples that run alone --- */

static pare_status open_whole(const pare_predictor *p, pare_output_rows *out)
{
    if (p->count <= out->whole_capacity) return PARE_OK;
    pare_free(out->whole);
    pare_free(out->piece);
    out->whole_capacity = 0;
    out->whole = pare_alloc(p->ctx, (size_t)p->count, sizeof *out->whole);
    out->piece = pare_alloc(p->ctx, (size_t)p->count, sizeof *out->piece);
    if (!out->whole || !out->piece) return PARE_MEMORY;
    out->whole_capacity = p->count;
    return PARE_OK;
}

static pare_status take_whole(void *user, int64_t run, pare_replica *replica)
{
    const pare_predictor *p = user;
    const int64_t sample = run - p->first;
    for (int i = 0; i < p->output_count; i++) {
        pare_output_rows *out = &p->out[i];
        const pare_view y = pare_runner_output(replica->runner, i);
        const size_t bytes = pare_view_bytes(&y);
        pare_shape *shape = &out->whole[sample];
        if (y.dtype != out->dtype || pare_type(y.dtype)->bits < 8 || (bytes && !y.data))
            return fail_collect(&replica->ctx, p, out, pare_view_count(&y));
        *shape = (pare_shape){.rank = y.rank};
        memcpy(shape->dim, y.dim, (size_t)y.rank * sizeof *shape->dim);
        out->piece[sample] = pare_alloc(&replica->ctx, bytes, 1);
        if (!out->piece[sample]) return PARE_MEMORY;
        if (bytes) memcpy(out->piece[sample], y.data, bytes);
    }
    return PARE_OK;
}

/* Puts the samples' elements one after the other. */
static pare_status join_pieces(const pare_predictor *p, pare_output_rows *out)
{
    size_t all = 0, at = 0, wide = (size_t)pare_type(out->dtype)->bits / 8;
    out->shape = out->whole[0];
    out->size = pare_shape_count(&out->shape);
    for (int i = 0; i < p->count; i++) {
        all += (size_t)pare_shape_count(&out->whole[i]);
        if (!pare_shape_equal(&out->whole[i], &out->shape)) out->size = -1;
    }
    PARE_TRY(make_room(p, out, all));
    for (int i = 0; i < p->count; i++) {
        const size_t bytes = (size_t)pare_shape_count(&out->whole[i]) * wide;
        if (bytes) memcpy(out->data + at, out->piece[i], bytes);
        at += bytes;
    }
    if (out->f32) pare_convert(out->f32, PARE_f32, out->data, out->dtype, (int64_t)all);
    return PARE_OK;
}

static pare_status collect_whole(pare_predictor *p, int units)
{
    const pare_batch_work work = {
        .load = pare_predictor_load, .take = take_whole, .any_order = true, .user = p};
    for (int i = 0; i < p->output_count; i++) PARE_TRY(open_whole(p, &p->out[i]));
    pare_status st = pare_predictor_run(p, units, &work);
    for (int i = 0; i < p->output_count; i++) {
        if (st == PARE_OK) st = join_pieces(p, &p->out[i]);
        drop_pieces(&p->out[i]);
    }
    return st;
}

pare_status pare_predictor_collect(pare_predictor *p, int units)
{
    for (int i = 0; i < p->output_count; i++) name_rows(p, i, pare_plan_output(p->plan, i)->dtype);
    return p->alone ? collect_whole(p, units) : collect_rows(p, units);
}

/* --- reading them --- */

int pare_predictor_output_count(const pare_predictor *p) { return p->output_count; }

pare_rows pare_predictor_rows(const pare_predictor *p, int i)
{
    const pare_predictor *has = p->pipeline ? pare_pipeline_outputs(p->pipeline) : p;
    const pare_output_rows *out = &has->out[i];
    const void *f32 = out->dtype == PARE_f32 ? (const void *)out->data : out->f32;
    return (pare_rows){.name = out->name,
                       .dtype = out->dtype,
                       .shape = out->shape,
                       .shapes = out->whole,
                       .size = out->size,
                       .data = out->data,
                       .f32 = pare_type(out->dtype)->to_f32 ? f32 : NULL};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How the runs of a model take the samples of a data set: how many a run takes, the shapes that its
   inputs have then, and where they are in what a reader gave. */
#include "formats/data/source.h"

#include <string.h>

/* An input that decides that every sample runs alone; NULL: there is none. A stored scalar goes
   with any number of samples. */
static const pare_data_source *find_alone(const pare_data *data)
{
    for (int i = 0; i < data->source_count; i++)
        if (data->source[i].whole && !data->source[i].set.scalar) return &data->source[i];
    return NULL;
}

bool pare_data_runs_alone(const pare_data *data) { return find_alone(data) != NULL; }

/* The data of an input; NULL: the data do not have it. */
static const pare_data_source *find_source(const pare_data *data, const char *input)
{
    for (int i = 0; i < data->source_count; i++)
        if (!strcmp(data->source[i].name, input)) return &data->source[i];
    return NULL;
}

static pare_status fail_alone(pare_ctx *ctx, const pare_model *model, const pare_value *fixed,
                              const pare_data_source *alone)
{
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "%s: input '%s' takes %lld samples at a time, but dataset '%s' of %s has an "
                     "input '%s' for each sample alone; store '%s' along one axis more, too",
                     model->path, fixed->name, (long long)fixed->shape.dim[0], alone->set.name,
                     alone->set.file->path, alone->name, fixed->name);
}

pare_status pare_data_run_samples(pare_ctx *ctx, const pare_data *data, const pare_model *model,
                                  int64_t *out)
{
    const pare_values *in = &model->graph->in;
    const pare_data_source *alone = find_alone(data);
    const pare_value *fixed = NULL;
    *out = 0;
    for (int i = 0; i < in->count; i++) {
        const pare_value *v = in->item[i];
        const pare_data_source *s = find_source(data, v->name);
        if (v->is_init || v->shape.rank < 1 || v->shape.dim[0] < 1 || (s && s->whole)) continue;
        if (fixed && v->shape.dim[0] != *out)
            return PARE_FAIL(ctx, UNSUPPORTED,
                             "%s: input '%s' has %lld rows, input '%s' %lld; expected one batch "
                             "size; store each as whole inputs, along one axis more",
                             model->path, v->name, (long long)v->shape.dim[0], fixed->name,
                             (long long)*out);
        fixed = v;
        *out = v->shape.dim[0];
    }
    if (alone && *out > 1) return fail_alone(ctx, model, fixed, alone);
    if (alone) *out = 1;
    return PARE_OK;
}

pare_shape pare_data_run_shape(const pare_data *data, int i, int64_t samples)
{
    const pare_data_source *s = &data->source[i];
    pare_shape shape = s->shape;
    if (!s->whole) {
        shape.dim[0] = samples;
        return shape;
    }
    shape.rank--;
    memmove(shape.dim, shape.dim + 1, (size_t)shape.rank * sizeof *shape.dim);
    return shape;
}

const void *pare_data_run_input(const pare_data *data, void *const *input, int i, int64_t sample)
{
    return (const char *)input[i] + (size_t)sample * data->source[i].bytes;
}

pare_status pare_data_need_batch(pare_ctx *ctx, const pare_data *data, const char *what)
{
    for (int i = 0; i < data->source_count; i++) {
        const pare_data_source *s = &data->source[i];
        char have[256], takes[256];
        if (!s->whole) continue;
        const pare_shape input = pare_data_run_shape(data, i, 1);
        pare_shape stored = {.rank = s->set.scalar ? 0 : s->set.rank};
        memcpy(stored.dim, s->set.dim, sizeof stored.dim);
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "%s: dataset '%s' has shape %s: whole inputs '%s' of shape %s; %s needs "
                         "inputs whose first axis is the batch",
                         s->set.file->path, s->set.name,
                         pare_shape_text(&stored, have, sizeof have), s->name,
                         pare_shape_text(&input, takes, sizeof takes), what);
    }
    return PARE_OK;
}

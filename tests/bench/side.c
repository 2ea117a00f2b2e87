/* SPDX-License-Identifier: Apache-2.0 */
/* Sides: reading the model, inputs, comparison of outputs. The model's inputs and outputs are read
   with this library for every runtime, so that all sides see the same names, shapes and data. */
#include "tests/bench/side.h"

#include "formats/onnx.h"
#include "runtime/base/ctx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pare_status settle_shape(side *s, side_input *in, const side_options *options)
{
    for (int axis = 0; axis < in->shape.rank; axis++) {
        int64_t *dim = &in->shape.dim[axis];
        for (int i = 0; i < options->dim_count && *dim < 0; i++)
            if (in->shape.name[axis] && !strcmp(in->shape.name[axis], options->dim[i].name))
                *dim = options->dim[i].size;
        if (*dim < 0 && axis == 0) *dim = options->batch;
        if (*dim < 0)
            return PARE_FAIL(s->ctx, INPUT, "%s: input '%s': axis %d (%s) has no size, give --dim",
                             s->path, in->name, axis,
                             in->shape.name[axis] ? in->shape.name[axis] : "unnamed");
    }
    return PARE_OK;
}

/* Sum of four uniform numbers: about normal, variance 1, the same on every machine. */
static float next_normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        sum += (float)(*state >> 40) / 16777216.0f - 0.5f;
    }
    return sum * 1.7320508f;
}

static void fill_input(side_input *in, const void *image, size_t image_bytes)
{
    uint64_t state = 1;
    int64_t count = pare_shape_count(&in->shape);
    if (image && image_bytes)
        for (size_t at = 0; at < in->bytes; at += image_bytes) {
            size_t left = in->bytes - at;
            memcpy((char *)in->data + at, image, left < image_bytes ? left : image_bytes);
        }
    else if (in->dtype == PARE_f32)
        for (int64_t i = 0; i < count; i++) ((float *)in->data)[i] = next_normal(&state);
    else if (in->dtype == PARE_s64)
        for (int64_t i = 0; i < count; i++) ((int64_t *)in->data)[i] = next_normal(&state) > 0;
    else
        memset(in->data, 1, in->bytes);
}

static pare_status make_inputs(side *s, const side_options *options, const void *image,
                               size_t image_bytes)
{
    const pare_graph *graph = s->model->graph;
    s->output_count = graph->out.count;
    s->input = pare_alloc(s->ctx, (size_t)graph->in.count, sizeof *s->input);
    if (!s->input) return PARE_MEMORY;
    for (int i = 0; i < graph->in.count; i++) {
        const pare_value *value = graph->in.item[i];
        if (value->is_init) continue;
        side_input *in = &s->input[s->input_count++];
        *in = (side_input){value->name, value->dtype, value->shape, NULL, 0};
        PARE_TRY(settle_shape(s, in, options));
        if (!pare_type_bytes(in->dtype, pare_shape_count(&in->shape), &in->bytes))
            return PARE_FAIL(s->ctx, INPUT, "%s: input '%s' has no size", s->path, in->name);
        in->data = aligned_alloc(64, (in->bytes + 63) / 64 * 64);
        if (!in->data)
            return PARE_FAIL(s->ctx, MEMORY, "%s: no memory for input '%s'", s->path, in->name);
        fill_input(in, s->input_count == 1 ? image : NULL, image_bytes);
    }
    return PARE_OK;
}

static pare_status open_spec(side *s, const char *spec, const side_options *options,
                             const void *image, size_t image_bytes)
{
    const char *colon = strchr(spec, ':');
    if (colon && !strncmp(spec, "pare:", 5))
        s->calls = &side_pare_calls;
    else if (colon && !strncmp(spec, "ort:", 4))
        s->calls = &side_ort_calls;
    else
        return PARE_FAIL(s->ctx, INPUT, "'%s': expected pare:FILE or ort:FILE", spec);
    s->path = colon + 1;
    double start = now();
    PARE_TRY(pare_onnx_read(s->ctx, &s->model, s->path));
    double read = now() - start;
    PARE_TRY(make_inputs(s, options, image, image_bytes));
    start = now();
    PARE_TRY(s->calls->load(s, options));
    s->load_seconds = now() - start + (s->calls == &side_pare_calls ? read : 0);
    return PARE_OK;
}

pare_status side_open(pare_ctx *ctx, side **out, const char *spec, const side_options *options,
                      const void *image, size_t image_bytes)
{
    side *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->ctx = ctx;
    pare_status st = open_spec(s, spec, options, image, image_bytes);
    if (st) {
        side_close(s);
        return st;
    }
    *out = s;
    return PARE_OK;
}

void side_close(side *s)
{
    if (!s) return;
    if (s->state) s->calls->unload(s);
    for (int i = 0; i < s->input_count; i++) free(s->input[i].data);
    pare_free(s->input);
    if (s->model) pare_model_free(s->model);
    pare_free(s);
}

static double difference(const float *a, const float *b, int64_t count)
{
    double largest = 0, apart = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(a[i]) || isnan(b[i])) return NAN;
        largest = fmax(largest, fabs((double)b[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
    }
    return apart == 0 ? 0 : apart / largest;
}

double side_difference(side *a, side *b)
{
    double worst = 0;
    if (a->output_count != b->output_count) return NAN;
    for (int i = 0; i < a->output_count; i++) {
        int64_t count_a = 0, count_b = 0;
        const float *out_a = a->calls->output(a, i, &count_a);
        const float *out_b = b->calls->output(b, i, &count_b);
        if (!out_a && !out_b) continue; /* not f32 */
        if (!out_a || !out_b || count_a != count_b) return NAN;
        double d = difference(out_a, out_b, count_a);
        if (isnan(d)) return NAN;
        worst = fmax(worst, d);
    }
    return worst;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Order: the scales as they will be, raised where a bias needs it; then weights, biases and scales
   by them; then the floats that no pair concerns. */
#include "runtime/passes/train/qat.h"

#include <float.h>
#include <string.h>

typedef struct scale {
    const char *name; /* of the training graph, and of a constant of the file */
    float *value;
    int64_t count;
} scale;

typedef struct writer {
    pare_model *file;
    const pare_model *trained;
    const pare_fakes *fakes;
    pare_arena arena;
    scale *scale;
    size_t capacity;
    int count;
} writer;

/* --- constants of the file --- */

static pare_status constant_of(const writer *w, const char *name, pare_value **out)
{
    *out = pare_graph_find_own(w->file->graph, name);
    if (*out && (*out)->is_init) return PARE_OK;
    return PARE_FAIL(w->file->ctx, INPUT,
                     "%s: there is no constant '%s', expected the file that was trained",
                     w->file->path, name);
}

/* The training graph's numbers of this name, as many as asked for; or NULL. */
static const float *numbers_of(const writer *w, const char *name, int64_t count)
{
    const pare_value *v = pare_graph_find_own(w->trained->graph, name);
    const pare_tensor *t = v ? v->data : NULL;
    return t && t->dtype == PARE_f32 && t->count == count ? t->data : NULL;
}

static pare_status put(const writer *w, const char *name, const void *data)
{
    pare_value *v;
    pare_tensor *t;
    PARE_TRY(constant_of(w, name, &v));
    if (!memcmp(v->data->data, data, v->data->bytes)) return PARE_OK;
    PARE_TRY(pare_tensor_new(w->file, &t, v->data->name ? v->data->name : name, v->data->dtype,
                             v->data->rank, v->data->dims, data));
    return pare_value_set_init(v, t);
}

static pare_status check_finite(const writer *w, const char *name, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return PARE_FAIL(w->file->ctx, INPUT,
                             "%s: tensor '%s' is %g at element %lld after training, expected "
                             "finite numbers; try a lower learning rate",
                             w->file->path, name, (double)x[i], (long long)i);
    return PARE_OK;
}

/* --- scales --- */

static scale *scale_find(const writer *w, const char *name)
{
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->scale[i].name, name)) return &w->scale[i];
    return NULL;
}

static pare_status scale_check(const writer *w, const scale *s)
{
    for (int64_t i = 0; i < s->count; i++)
        if (!(s->value[i] >= FLT_MIN) || !isfinite(s->value[i]))
            return PARE_FAIL(w->file->ctx, INPUT,
                             "%s: scale '%s' is %g after training, expected a positive number; try "
                             "a lower learning rate",
                             w->file->path, s->name, (double)s->value[i]);
    return PARE_OK;
}

static pare_status scale_add(writer *w, const char *name)
{
    pare_value *v;
    if (!name || scale_find(w, name)) return PARE_OK;
    PARE_TRY(constant_of(w, name, &v));
    if (!pare_arena_grow(&w->arena, &w->scale, &w->capacity, (size_t)w->count, sizeof *w->scale))
        return PARE_MEMORY;
    scale *s = &w->scale[w->count];
    const float *trained = numbers_of(w, name, v->data->count);
    *s = (scale){name, pare_arena_alloc(&w->arena, (size_t)v->data->count, sizeof *s->value),
                 v->data->count};
    if (!s->value) return PARE_MEMORY;
    memcpy(s->value, trained ? trained : v->data->data, v->data->bytes);
    w->count++;
    return memcmp(s->value, v->data->data, v->data->bytes) ? scale_check(w, s) : PARE_OK;
}

static float step_of(const scale *x, const scale *w, int64_t c)
{
    return x->value[0] * w->value[w->count == 1 ? 0 : c];
}

/* The step of an s32 bias that is not one of sums. */
static float file_scale(const pare_tensor *t, int64_t c)
{
    return ((const float *)t->data)[t->count == 1 ? 0 : c];
}

/* A bias's numbers: as trained, else the file's. */
static pare_status bias_of(writer *w, const pare_fake *f, float **out)
{
    pare_value *v, *s = NULL;
    PARE_TRY(constant_of(w, f->file_tensor, &v));
    if (f->file_scale) PARE_TRY(constant_of(w, f->file_scale, &s));
    const int64_t n = v->data->count;
    const float *trained = numbers_of(w, f->tensor, n);
    float *to = *out = pare_arena_alloc(&w->arena, (size_t)n, sizeof *to);
    if (!to) return PARE_MEMORY;
    if (trained || f->type == PARE_f32) {
        memcpy(to, trained ? trained : v->data->data, (size_t)n * sizeof *to);
        return check_finite(w, f->tensor, to, n);
    }
    for (int64_t c = 0; c < n; c++)
        to[c] = (float)pare_qat_int(v->data, c) * file_scale(s->data, c);
    return PARE_OK;
}

/* Quantization starts at 2^30 steps a bias; training may move it to half again as many. */
static void raise_scale(const writer *w, const pare_fake *f, const float *bias)
{
    const scale *x = scale_find(w, f->x_scale);
    scale *weight = scale_find(w, f->w_scale);
    for (int64_t c = 0; c < f->scales; c++) {
        float *s = &weight->value[weight->count == 1 ? 0 : c];
        if (fabsf(bias[c]) > 0x1.8p30f * x->value[0] * *s)
            *s = fabsf(bias[c]) / (x->value[0] * 0x1p30f);
    }
}

static pare_status take_scales(writer *w, float **bias)
{
    for (int i = 0; i < w->fakes->count; i++) {
        const pare_fake *f = &w->fakes->item[i];
        PARE_TRY(scale_add(w, f->scale));
        PARE_TRY(scale_add(w, f->x_scale));
        PARE_TRY(scale_add(w, f->w_scale));
    }
    for (int i = 0; i < w->fakes->count; i++) {
        const pare_fake *f = &w->fakes->item[i];
        if (f->kind != PARE_FAKE_BIAS) continue;
        PARE_TRY(bias_of(w, f, &bias[i]));
        if (f->x_scale) raise_scale(w, f, bias[i]);
    }
    return PARE_OK;
}

/* --- weights --- */

/* Rounds x (NULL: the dequantized integers, where only the scale was trained). */
static void quantize(const pare_fake *f, const pare_tensor *old, const float *old_scale,
                     const pare_tensor *zero, const scale *s, const float *x, uint8_t *to)
{
    const pare_qat_grid g = pare_qat_grid_of(old, f->axis);
    for (int64_t o = 0; o < g.outer; o++)
        for (int64_t c = 0; c < g.channels; c++)
            for (int64_t k = 0, i = pare_fake_at(&g, o, c); k < g.inner; k++, i++) {
                const int z = pare_qat_zero(zero, c);
                float v = x ? x[i] : (float)(pare_qat_int(old, i) - z) * old_scale[c];
                to[i] = (uint8_t)pare_qat_level(v, s->value[c], z, f->low, f->high);
            }
}

static pare_status write_weight(writer *w, const pare_fake *f)
{
    pare_value *v, *s, *zero = NULL;
    const scale *now = scale_find(w, f->scale);
    PARE_TRY(constant_of(w, f->file_tensor, &v));
    const float *x = numbers_of(w, f->tensor, v->data->count);
    PARE_TRY(constant_of(w, f->file_scale, &s));
    if (f->zero) PARE_TRY(constant_of(w, f->zero, &zero));
    if (x) PARE_TRY(check_finite(w, f->tensor, x, v->data->count));
    if (v->data->dtype == PARE_f32) return x ? put(w, f->file_tensor, x) : PARE_OK;
    if (!x && !memcmp(s->data->data, now->value, s->data->bytes)) return PARE_OK;
    uint8_t *to = pare_alloc(w->file->ctx, (size_t)v->data->count, 1);
    if (!to) return PARE_MEMORY;
    quantize(f, v->data, s->data->data, zero ? zero->data : NULL, now, x, to);
    pare_status st = put(w, f->file_tensor, to);
    pare_free(to);
    return st;
}

/* --- biases --- */

/* Rounded as quantization rounds it; an s32 that neither training nor its scale moved stays. */
static pare_status write_s32(writer *w, const pare_fake *f, const float *bias)
{
    pare_value *v, *s;
    PARE_TRY(constant_of(w, f->file_tensor, &v));
    PARE_TRY(constant_of(w, f->file_scale, &s));
    const int64_t n = v->data->count, scales = s->data->count;
    const scale *xs = f->x_scale ? scale_find(w, f->x_scale) : NULL;
    const scale *ws = f->x_scale ? scale_find(w, f->w_scale) : NULL;
    int32_t *q = pare_arena_alloc(&w->arena, (size_t)n, sizeof *q);
    float *steps = pare_arena_alloc(&w->arena, (size_t)n, sizeof *steps);
    if (!q || !steps) return PARE_MEMORY;
    for (int64_t c = 0; c < n; c++) {
        const int32_t old = ((const int32_t *)v->data->data)[c];
        const float step = file_scale(s->data, c), was = (float)old * step;
        const float now = steps[scales == 1 ? 0 : c] = xs ? step_of(xs, ws, c) : step;
        double steps_of_it = rint((double)bias[c] / (double)now);
        steps_of_it = fmin(fmax(steps_of_it, INT32_MIN), INT32_MAX);
        q[c] = bias[c] == was && now == step ? old : (int32_t)steps_of_it;
    }
    PARE_TRY(put(w, f->file_tensor, q));
    return put(w, f->file_scale, steps);
}

static pare_status write_bias(writer *w, const pare_fake *f, float *bias)
{
    if (f->type == PARE_s32) return write_s32(w, f, bias);
    for (int64_t c = 0; f->x_scale && c < f->scales; c++) {
        const double step =
            (double)step_of(scale_find(w, f->x_scale), scale_find(w, f->w_scale), c);
        bias[c] = (float)(rint((double)bias[c] / step) * step);
    }
    return put(w, f->file_tensor, bias);
}

/* --- all --- */

static bool is_written(const writer *w, const char *name)
{
    if (scale_find(w, name)) return true;
    for (int i = 0; i < w->fakes->count; i++) {
        const pare_fake *f = &w->fakes->item[i];
        if ((f->file_tensor && !strcmp(f->file_tensor, name)) ||
            (f->file_scale && !strcmp(f->file_scale, name)))
            return true;
    }
    return false;
}

static pare_status write_others(writer *w)
{
    for (int i = 0; i < w->file->graph->init.count; i++) {
        const pare_value *v = w->file->graph->init.item[i];
        if (v->dtype != PARE_f32 || is_written(w, v->name)) continue;
        const float *x = numbers_of(w, v->name, v->data->count);
        if (!x || !memcmp(x, v->data->data, v->data->bytes)) continue;
        PARE_TRY(check_finite(w, v->name, x, v->data->count));
        PARE_TRY(put(w, v->name, x));
    }
    return PARE_OK;
}

static pare_status write_all(writer *w)
{
    const int n = w->fakes->count;
    float **bias = pare_arena_alloc(&w->arena, (size_t)n + 1, sizeof *bias);
    if (!bias) return PARE_MEMORY;
    PARE_TRY(take_scales(w, bias));
    for (int i = 0; i < n; i++) {
        const pare_fake *f = &w->fakes->item[i];
        if (f->kind == PARE_FAKE_WEIGHT) PARE_TRY(write_weight(w, f));
        if (f->kind == PARE_FAKE_BIAS) PARE_TRY(write_bias(w, f, bias[i]));
    }
    for (int i = 0; i < n; i++) {
        const pare_fake *f = &w->fakes->item[i];
        if (f->scale) PARE_TRY(put(w, f->file_scale, scale_find(w, f->scale)->value));
    }
    return write_others(w);
}

pare_status pare_pass_qat_export(pare_model *file, const pare_model *trained,
                                 const pare_fakes *fakes)
{
    writer w = {.file = file, .trained = trained, .fakes = fakes};
    pare_arena_init(&w.arena, file->ctx);
    pare_status st = write_all(&w);
    pare_arena_free(&w.arena);
    return st;
}

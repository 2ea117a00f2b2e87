/* SPDX-License-Identifier: Apache-2.0 */
/* Weights: symmetric, of 8 bits in [-127, 127], of 4 bits in [-8, 7]; of FP8 in [-448, 448]. */
#include "calib/channels.h"
#include "quant/internal.h"
#include "runtime/base/clones.h"
#include "runtime/base/f8.h"

#include <math.h>
#include <string.h>

pare_status pare_quant_check_finite(pare_model *model, const pare_value *value,
                                    const pare_tensor *w)
{
    const char *from = w->data; /* at any address */
    for (size_t i = 0; i < w->bytes / sizeof(float); i++) {
        float x;
        memcpy(&x, from + i * sizeof x, sizeof x);
        if (!isfinite(x))
            return PARE_FAIL(model->ctx, INPUT,
                             "%s: tensor '%s' holds %g at place %zu, expected finite weights; "
                             "export the model again, or keep its reader float with --skip",
                             model->path, value->name, (double)x, i);
    }
    return PARE_OK;
}

pare_status pare_quant_check_weights(const pare_node *node)
{
    pare_weighted part;
    if (pare_quant_kind_of(node) != PARE_QUANT_WEIGHTED) return PARE_OK;
    PARE_TRY(pare_op_of(node)->quant.weighted(node, &part));
    const pare_value *in[] = {pare_node_in(node, part.w),
                              part.bias >= 0 ? pare_node_in(node, part.bias) : NULL};
    for (int i = 0; i < 2; i++)
        if (in[i] && in[i]->data && in[i]->data->dtype == PARE_f32)
            PARE_TRY(pare_quant_check_finite(node->graph->model, in[i], in[i]->data));
    return PARE_OK;
}

bool pare_quant_lay_out(const pare_quant_job *job, const pare_tensor *w, int64_t channels,
                        pare_quant_layout *out)
{
    const pare_shape *x = &job->node->in[job->part.x]->shape;
    int axis = job->part.axis;
    if (job->part.w < job->part.x || w->rank < 2 || axis < 0 || axis > 1) return false;
    *out = (pare_quant_layout){w->dims[axis], w->dims[1 - axis], 1, 1, axis == 1};
    if (w->rank == 2)
        return x->rank >= 1 && x->rank < 4 && out->inputs == channels &&
               pare_channels_axis(x->rank) == x->rank - 1 && !pare_node_int(job->node, "transA", 0);
    for (int i = 2; i < w->rank; i++) out->taps *= w->dims[i];
    if (axis != 0 || w->rank < 4 || x->rank != w->rank || channels % out->inputs) return false;
    out->groups = channels / out->inputs;
    return out->outputs % out->groups == 0;
}

pare_status pare_quant_rescale_note(pare_quant_scheme *s, const pare_value *value,
                                    pare_quant_rescale **out)
{
    int at = pare_ptr_map_find(&s->rescale_at, value);
    if (at < 0) {
        if (!pare_arena_grow(s->arena, &s->rescale, &s->rescale_capacity, (size_t)s->rescale_count,
                             sizeof *s->rescale))
            return PARE_MEMORY;
        at = s->rescale_count++;
        s->rescale[at] = (pare_quant_rescale){0};
        PARE_TRY(pare_ptr_map_put(&s->rescale_at, value, at));
    }
    *out = &s->rescale[at];
    return PARE_OK;
}

PARE_CLONES static void multiply_all(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

PARE_CLONES static void divide_all(float *x, int64_t n, float by)
{
    for (int64_t i = 0; i < n; i++) x[i] /= by;
}

PARE_CLONES static void divide_each(float *restrict x, int64_t n, const float *restrict by)
{
    for (int64_t i = 0; i < n; i++) x[i] /= by[i];
}

static void multiply_inputs(float *x, const pare_quant_layout *l, const float *by)
{
    if (l->inputs_first) {
        for (int64_t i = 0; i < l->inputs; i++)
            multiply_all(x + i * l->outputs * l->taps, l->outputs * l->taps, by[i]);
        return;
    }
    for (int64_t o = 0; o < l->outputs; o++) {
        const float *group = by + o / (l->outputs / l->groups) * l->inputs;
        for (int64_t i = 0; i < l->inputs; i++, x += l->taps) multiply_all(x, l->taps, group[i]);
    }
}

static void divide_channels(float *x, const pare_quant_weight_view *w, const float *by)
{
    for (int64_t o = 0; o < w->outer; o++, x += w->channels * w->inner) {
        if (w->inner == 1) divide_each(x, w->channels, by);
        for (int64_t c = 0; w->inner > 1 && c < w->channels; c++)
            divide_all(x + c * w->inner, w->inner, by[c]);
    }
}

pare_status pare_quant_weight_read(const pare_quant_scheme *s, const pare_value *value,
                                   const pare_tensor *t, pare_tensor *out, float **own)
{
    const int at = pare_ptr_map_find(&s->rescale_at, value);
    *out = *t;
    *own = NULL;
    if (at < 0) return PARE_OK;
    const pare_quant_rescale *r = &s->rescale[at];
    float *data = pare_alloc(s->ctx, (size_t)t->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    memcpy(data, t->data, (size_t)t->count * sizeof *data);
    if (r->multiply) multiply_inputs(data, &r->layout, r->multiply);
    const pare_quant_weight_view view = pare_quant_weight_look(t, r->axis);
    if (r->divide) divide_channels(data, &view, r->divide);
    out->data = *own = data;
    return PARE_OK;
}

float pare_quant_f16_scale(float scale)
{
    const uint16_t nearest = pare_f32_to_f16(scale);
    const float near = pare_f16_to_f32(nearest);
    return near < scale ? pare_f16_to_f32((uint16_t)(nearest + 1)) : near;
}

pare_quant_weight_view pare_quant_weight_look(const pare_tensor *w, int axis)
{
    pare_quant_weight_view v = {w->data, 1, 1, 1};
    for (int i = 0; i < w->rank; i++) {
        if (i < axis)
            v.outer *= w->dims[i];
        else if (i == axis)
            v.channels = w->dims[i];
        else
            v.inner *= w->dims[i];
    }
    return v;
}

/* Channels c .. c + count - 1 as rows of n numbers (outer, inner); neighbours in memory are read
   together. */
static void gather(const pare_quant_weight_view *w, int64_t c, int64_t count, float *rows,
                   int64_t n)
{
    const size_t bytes = (size_t)w->inner * sizeof *rows;
    for (int64_t o = 0; o < w->outer; o++) {
        const char *from = (const char *)w->data + (size_t)(o * w->channels + c) * bytes;
        for (int64_t k = 0; k < count; k++)
            if (w->inner == 1)
                memcpy(rows + k * n + o, from + (size_t)k * sizeof *rows, sizeof *rows);
            else
                memcpy(rows + k * n + o * w->inner, from + (size_t)k * bytes, bytes);
    }
}

PARE_CLONES static float largest(const float *row, int64_t n)
{
    enum { LANES = 16 };
    float lane[LANES] = {0}, max = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float v = fabsf(row[i + k]);
            lane[k] = v > lane[k] ? v : lane[k];
        }
    for (; i < n; i++) max = fmaxf(max, fabsf(row[i]));
    for (int k = 0; k < LANES; k++) max = lane[k] > max ? lane[k] : max;
    return max;
}

/* Sum of squared differences between a channel and its rounded self, in units of the step, clipped
   values counted CLIP^2 times (their errors share a sign and do not average out over a sum; the
   factor was chosen on held-out training images), in eight sums of fixed order, so that the choice
   is the same everywhere. Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to
   even. */
PARE_CLONES static double error_of(const float *row, int64_t n, float scale, float low, float high)
{
    enum { LANES = 8 };
    const float magic = 0x1.8p23f, step = 1 / scale, CLIP = 2;
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float v = row[i + k] * step, q = v < high ? v : high;
            q = q > low ? q : low;
            float e = (v - ((q + magic) - magic)) * (v == q ? 1 : CLIP);
            sum[k] += (double)e * (double)e;
        }
    for (; i < n; i++) {
        float v = row[i] * step, q = v < high ? v : high;
        q = q > low ? q : low;
        float e = (v - ((q + magic) - magic)) * (v == q ? 1 : CLIP);
        sum[0] += (double)e * (double)e;
    }
    double all = 0;
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all * (double)scale * (double)scale;
}

/* Of 24 clipping points from the largest |w| down to 0.7 of it (of 4 bits 0.5), the one of least
   squared error; ties take the larger. (Choosing a step by its error: Banner et al. 2019, arXiv
   1810.05723.) Of FP8 the largest |w| is 448: steps are parts of a number, and only what is clipped
   would err more. */
static float best_scale(const float *row, int64_t n, int bits)
{
    enum { CANDIDATES = 24 };
    if (bits == PARE_QUANT_FP8) {
        const float most = largest(row, n) / PARE_F8E4M3_MOST;
        return most >= 1e-30f ? most : 1;
    }
    const float low = (float)pare_quant_weight_low(bits),
                high = (float)pare_quant_weight_high(bits);
    const float depth = bits == 4 ? 0.5f : 0.3f;
    float max = largest(row, n) / high, scale = max;
    if (!(max >= 1e-30f)) return 1; /* a dead channel: any scale serves */
    double best = error_of(row, n, max, low, high);
    for (int k = 1; k < CANDIDATES; k++) {
        float s = max * (1 - depth * (float)k / CANDIDATES);
        double error = error_of(row, n, s, low, high);
        if (error < best) best = error, scale = s;
    }
    return scale;
}

pare_status pare_quant_weight_scales(pare_ctx *ctx, const pare_quant_weight_view *w, int bits,
                                     float *scale)
{
    enum { BESIDE = 16, MOST = 1 << 20 }; /* channels at once, and numbers of all of them */
    const int64_t n = w->outer * w->inner;
    const int64_t block = n * BESIDE <= MOST ? BESIDE : n < MOST ? MOST / n : 1;
    float *rows = pare_alloc(ctx, (size_t)(n * block), sizeof *rows);
    if (!rows) return PARE_MEMORY;
    for (int64_t c = 0; c < w->channels; c += block) {
        const int64_t count = w->channels - c < block ? w->channels - c : block;
        gather(w, c, count, rows, n);
        for (int64_t k = 0; k < count; k++) scale[c + k] = best_scale(rows + k * n, n, bits);
    }
    pare_free(rows);
    return PARE_OK;
}

/* n numbers at any address, with one step or one each. */
PARE_CLONES static void round_row(const char *from, int64_t n, const float *scale, int64_t step,
                                  float low, float high, int8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, from + (size_t)i * sizeof w, sizeof w);
        const float v = rintf(w / scale[i * step]), q = v > low ? v : low;
        to[i] = (int8_t)(q < high ? q : high);
    }
}

/* The same of FP8, without -0. */
PARE_CLONES static void f8_round_row(const char *from, int64_t n, const float *scale, int64_t step,
                                     int8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, from + (size_t)i * sizeof w, sizeof w);
        const uint8_t code = pare_f8e4m3_code(w / scale[i * step]);
        to[i] = (int8_t)(code & 0x7f ? code : 0);
    }
}

static void round_any(const char *from, int64_t n, const float *scale, int64_t step, int bits,
                      int8_t *to)
{
    if (bits == PARE_QUANT_FP8)
        f8_round_row(from, n, scale, step, to);
    else
        round_row(from, n, scale, step, (float)pare_quant_weight_low(bits),
                  (float)pare_quant_weight_high(bits), to);
}

void pare_quant_weight_round(const pare_quant_weight_view *w, const float *scale, int bits,
                             int8_t *out)
{
    const int64_t row = w->channels * w->inner;
    for (int64_t o = 0; o < w->outer; o++) {
        const char *from = (const char *)w->data + (size_t)(o * row) * sizeof(float);
        if (w->inner == 1) round_any(from, row, scale, 1, bits, out + o * row);
        for (int64_t c = 0; w->inner > 1 && c < w->channels; c++)
            round_any(from + (size_t)(c * w->inner) * sizeof(float), w->inner, scale + c, 0, bits,
                      out + o * row + c * w->inner);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Weights: symmetric s8 in [-127, 127]. */
#include "quant/internal.h"

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

/* One channel in a row: (outer, inner). */
static void gather(const pare_quant_weight_view *w, int64_t c, float *row)
{
    const size_t bytes = (size_t)w->inner * sizeof *row;
    for (int64_t o = 0; o < w->outer; o++, row += w->inner)
        memcpy(row, (const char *)w->data + (size_t)(o * w->channels + c) * bytes, bytes);
}

static float largest(const float *row, int64_t n)
{
    float max = 0;
    for (int64_t i = 0; i < n; i++) max = fmaxf(max, fabsf(row[i]));
    return max;
}

/* Sum of squared differences between a channel and its rounded self, in units of the step, clipped
   values counted CLIP^2 times (their errors share a sign and do not average out over a sum; the
   factor was chosen on held-out training images), in eight sums of fixed order, so that the choice
   is the same everywhere. Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to
   even. */
static double error_of(const float *row, int64_t n, float scale)
{
    enum { LANES = 8 };
    const float magic = 0x1.8p23f, step = 1 / scale, CLIP = 2;
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            float v = row[i + k] * step, q = v < 127 ? v : 127;
            q = q > -127 ? q : -127;
            float e = (v - ((q + magic) - magic)) * (v == q ? 1 : CLIP);
            sum[k] += (double)e * (double)e;
        }
    for (; i < n; i++) {
        float v = row[i] * step, q = v < 127 ? v : 127;
        q = q > -127 ? q : -127;
        float e = (v - ((q + magic) - magic)) * (v == q ? 1 : CLIP);
        sum[0] += (double)e * (double)e;
    }
    double all = 0;
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all * (double)scale * (double)scale;
}

/* Of 24 clipping points from the largest |w| down to 0.7 of it, the one of least squared error;
   ties take the larger. (Choosing a step by its error: Banner et al. 2019, arXiv 1810.05723.) */
static float best_scale(const float *row, int64_t n)
{
    enum { CANDIDATES = 24 };
    float max = largest(row, n) / 127, scale = max;
    if (!(max >= 1e-30f)) return 1; /* a dead channel: any scale serves */
    double best = error_of(row, n, max);
    for (int k = 1; k < CANDIDATES; k++) {
        float s = max * (1 - 0.3f * (float)k / CANDIDATES);
        double error = error_of(row, n, s);
        if (error < best) best = error, scale = s;
    }
    return scale;
}

pare_status pare_quant_weight_scales(pare_ctx *ctx, const pare_quant_weight_view *w, float *scale)
{
    int64_t n = w->outer * w->inner;
    float *row = pare_alloc(ctx, (size_t)n, sizeof *row);
    if (!row) return PARE_MEMORY;
    for (int64_t c = 0; c < w->channels; c++) {
        gather(w, c, row);
        scale[c] = best_scale(row, n);
    }
    pare_free(row);
    return PARE_OK;
}

void pare_quant_weight_round(const pare_quant_weight_view *w, const float *scale, int8_t *out)
{
    for (int64_t o = 0; o < w->outer; o++)
        for (int64_t c = 0; c < w->channels; c++) {
            int64_t at = (o * w->channels + c) * w->inner;
            for (int64_t i = at; i < at + w->inner; i++)
                out[i] = (int8_t)fminf(fmaxf(rintf(pare_quant_number(w->data, i) / scale[c]), -127),
                                       127);
        }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* QSoftmax and QLayerNormalization: Softmax (13) along the last axis, as ops/softmax_codes.h says,
   and LayerNormalization (17) rounded to X's type, then QuantizeLinear (25) with one scale. The
   plain kernel computes the second in double and rounds once to X's type; the vector kernel takes
   dense rows, some of which stay in cache between the two. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float16.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/quantize.h"
#include "runtime/cpu/ref.h"
#include "runtime/cpu/softmax_codes.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/softmax_codes.h"

#include <math.h>
#include <string.h>

/* At a time: rows, and numbers of more than one row; numbers of all rows that one thread makes. */
enum { ROWS = 32, NUMBERS = 1 << 14, ALONE = 1 << 15 };

typedef struct quantized_rows {
    pare_norm norm; /* axis: where rows begin */
    bool softmax;
    float scale, zero;
    pare_dtype to;
    int64_t n;         /* of a row */
    int64_t at_a_time; /* rows */
} quantized_rows;

static pare_status rows_prepare(pare_prep *p)
{
    quantized_rows *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    pare_quant_args q;
    if (!s) return PARE_MEMORY;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_norm_prepare(p));
    s->norm = *(const pare_norm *)p->state;
    s->softmax = !strcmp(p->node->op_type, "QSoftmax");
    if (s->softmax) s->norm.axis = p->in[0].rank ? p->in[0].rank - 1 : 0;
    s->scale = q.y_scale, s->zero = (float)q.y_zero, s->to = q.to;
    s->n = 1;
    for (int i = s->norm.axis; i < p->in[0].rank; i++) s->n *= p->in[0].dim[i];
    p->state = s;
    return PARE_OK;
}

/* --- the plain kernel --- */

static uint8_t code_of(const quantized_rows *s, pare_dtype type, float v)
{
    uint8_t code;
    if (type != PARE_f32) pare_round_to(&v, type, 1);
    pare_quantize_codes(&code, s->to, &v, 1, s->scale, s->zero);
    return code;
}

/* row: X's last axis, from offset base on; y: where its first code goes, step apart. */
static void plain_softmax(const quantized_rows *s, const pare_view *x, const pare_view *row,
                          int64_t base, uint8_t *y, int64_t step)
{
    const int64_t n = row->rank ? row->dim[0] : 1, stride = row->rank ? row->stride[0] : 0;
    const float high = s->to == PARE_s8 ? 127 : 255;
    float top = -INFINITY;
    uint64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        const float v = (float)pare_ref_get(x, base + i * stride);
        top = v > top ? v : top;
    }
    const float less = pare_softmax_less(top), low = pare_softmax_low(top),
                round = pare_softmax_round(top);
    for (int64_t i = 0; i < n; i++) {
        const float v = (float)pare_ref_get(x, base + i * stride) - less;
        total += pare_softmax_part_of(pare_softmax_power(v, low, round), n);
    }
    const bool whole = x->dtype == PARE_f32;
    const float c = pare_softmax_factor(top, pare_softmax_total(total, n), whole ? s->scale : 1);
    for (int64_t i = 0; i < n; i++) {
        const float v = (float)pare_ref_get(x, base + i * stride) - less,
                    e = pare_softmax_power(v, low, round);
        y[i * step] = whole ? (uint8_t)(int)(pare_softmax_step(e, c, high - s->zero) + s->zero)
                            : code_of(s, x->dtype, e * c);
    }
}

static void plain_norm(const pare_call *c, const int64_t *first, const pare_view *row,
                       const pare_view factor[2])
{
    const quantized_rows *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t index[PARE_MAX_RANK], inside[PARE_MAX_RANK] = {0};
    const pare_norm_stats st =
        pare_norm_stats_of(row, pare_ref_offset(x, first), (double)s->norm.epsilon, true);
    memcpy(index, first, sizeof index);
    do {
        memcpy(index + s->norm.axis, inside, (size_t)row->rank * sizeof *inside);
        double v = (pare_ref_get(x, pare_ref_offset(x, index)) - st.mean) * st.inverse *
                   pare_ref_get(&factor[0], pare_ref_offset(&factor[0], index));
        if (factor[1].dtype) v += pare_ref_get(&factor[1], pare_ref_offset(&factor[1], index));
        ((uint8_t *)y->data)[pare_ref_offset(y, index)] = code_of(s, x->dtype, (float)v);
    } while (pare_ref_next(row, inside));
}

static void plain_row(const pare_call *c, const int64_t *first, const pare_view *row,
                      const pare_view factor[2])
{
    const quantized_rows *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    if (s->softmax)
        plain_softmax(s, x, row, pare_ref_offset(x, first),
                      (uint8_t *)y->data + pare_ref_offset(y, first),
                      x->rank ? y->stride[x->rank - 1] : 0);
    else
        plain_norm(c, first, row, factor);
}

static pare_status plain_run(const pare_call *c)
{
    const quantized_rows *s = c->state;
    const pare_view *x = &c->in[0];
    bool flag[PARE_MAX_RANK] = {false};
    pare_view walk = *x, kept, row, factor[2] = {{0}};
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(x) == 0) return PARE_OK;
    for (int i = s->norm.axis; i < x->rank; i++) {
        flag[i] = true;
        walk.dim[i] = 1;
    }
    for (int i = 0; i < 2; i++)
        if (i + 1 < c->in_count && c->in[i + 1].dtype)
            factor[i] = pare_view_stretch(&c->in[i + 1], x);
    pare_ref_split(x, flag, &kept, &row);
    do plain_row(c, index, &row, factor);
    while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static bool plain_can(const pare_prep *p)
{
    return (p->in[0].dtype == PARE_f32 || p->in[0].dtype == PARE_f16 ||
            p->in[0].dtype == PARE_bf16) &&
           pare_type_is_int8(p->out[0].dtype);
}

/* --- dense rows --- */

/* `rows` rows of f32 in the buffer to codes. */
static void softmax_run(const quantized_rows *s, uint8_t *y, float *buffer, int64_t rows,
                        pare_dtype type)
{
    for (int64_t i = 0; i < rows; i++) {
        float *row = buffer + i * s->n;
        if (type == PARE_f32)
            pare_softmax_codes(y + i * s->n, s->to, row, s->n, s->scale, s->zero);
        else
            pare_softmax_probabilities(row, s->n);
    }
    if (type == PARE_f32) return;
    pare_round_to(buffer, type, rows * s->n);
    pare_quantize_codes(y, s->to, buffer, rows * s->n, s->scale, s->zero);
}

static void norm_run(const quantized_rows *s, uint8_t *y, float *buffer, int64_t rows,
                     pare_dtype type, const float *const factor[2])
{
    for (int64_t i = 0; i < rows; i++) {
        float *row = buffer + i * s->n;
        pare_layer_norm_row(row, row, factor[0], factor[1], s->n, &s->norm);
    }
    if (type != PARE_f32) pare_round_to(buffer, type, rows * s->n);
    pare_quantize_codes(y, s->to, buffer, rows * s->n, s->scale, s->zero);
}

static void rows_run(const pare_call *c, int64_t first, int64_t last, const float *const factor[2],
                     float *buffer)
{
    const quantized_rows *s = c->state;
    const int64_t n = s->n;
    const pare_dtype type = c->in[0].dtype;
    for (int64_t r = first; r < last; r += s->at_a_time) {
        const int64_t rows = last - r < s->at_a_time ? last - r : s->at_a_time;
        uint8_t *y = (uint8_t *)c->out[0].data + r * n;
        if (type == PARE_f32)
            memcpy(buffer, (const float *)c->in[0].data + r * n,
                   (size_t)(rows * n) * sizeof *buffer);
        else
            pare_widen(buffer, (const uint16_t *)c->in[0].data + r * n, type, rows * n, 1);
        if (s->softmax)
            softmax_run(s, y, buffer, rows, type);
        else
            norm_run(s, y, buffer, rows, type, factor);
    }
}

static pare_status dense_run(const pare_call *c)
{
    const quantized_rows *s = c->state;
    const int64_t n = s->n, rows = n ? pare_view_count(&c->in[0]) / n : 0;
    float *buffer = c->scratch; /* scale, bias, rows of each thread */
    const float *const factor[2] = {pare_layer_factor(c, 1, buffer),
                                    pare_layer_factor(c, 2, buffer + n)};
    const int parts = c->threads > 1 && rows * n > ALONE ? c->threads : 1;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        rows_run(c, rows * t / parts, rows * (t + 1) / parts, factor,
                 buffer + (2 + (int64_t)t * s->at_a_time) * n);
    return PARE_OK;
}

static pare_status dense_prepare(pare_prep *p)
{
    PARE_TRY(rows_prepare(p));
    quantized_rows *s = p->state;
    const int64_t rows = s->n ? pare_view_count(&p->in[0]) / s->n : 0;
    const int threads = rows * s->n > ALONE ? p->threads : 1;
    const int64_t each = (rows + threads - 1) / threads;
    s->at_a_time = s->n < NUMBERS / ROWS ? ROWS : s->n < NUMBERS ? NUMBERS / s->n : 1;
    if (s->at_a_time > each) s->at_a_time = each > 1 ? each : 1;
    p->scratch = sizeof(float) * (size_t)s->n * (2 + (size_t)s->at_a_time * (size_t)threads);
    return PARE_OK;
}

static bool dense_can(const pare_prep *p)
{
    const pare_view *x = &p->in[0];
    int64_t axis = !strcmp(p->node->op_type, "QSoftmax") ? -1 : pare_node_int(p->node, "axis", -1);
    if (axis < 0) axis += x->rank;
    return plain_can(p) && axis >= 0 && axis < x->rank && pare_view_rowmajor(x) &&
           pare_view_rowmajor(&p->out[0]) && pare_layer_factors_fit(p, (int)axis, PARE_f32);
}

static const pare_kernel dense_rows = {
    .name = "dense_quantized_rows", .can = dense_can, .prepare = dense_prepare, .run = dense_run};
static const pare_kernel plain_rows = {.name = "ref_quantized_rows",
                                       .can = plain_can,
                                       .prepare = rows_prepare,
                                       .run = plain_run,
                                       .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_q_softmax[] = {&dense_rows, &plain_rows, NULL};
const pare_kernel *const pare_cpu_q_layer_norm[] = {&dense_rows, &plain_rows, NULL};

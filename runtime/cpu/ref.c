/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/float16.h"
#include "runtime/base/f8.h"
#include "runtime/ops/number.h"

#include <math.h>
#include <string.h>

/* --- walking --- */

void pare_ref_split(const pare_view *view, const bool *flag, pare_view *without, pare_view *with)
{
    *without = *with = (pare_view){.dtype = view->dtype, .data = view->data};
    for (int i = 0; i < view->rank; i++) {
        pare_view *v = flag[i] ? with : without;
        v->dim[v->rank] = view->dim[i];
        v->stride[v->rank++] = view->stride[i];
    }
}

typedef struct loop {
    pare_tensor_iterator walk;
    int64_t size[PARE_ITERATOR_OPERANDS]; /* bytes of one element */
    char *data[PARE_ITERATOR_OPERANDS];
} loop;

static void loop_init(loop *l, const pare_view *const *v, int operands)
{
    pare_iterator_init(&l->walk, v, operands);
    for (int k = 0; k < operands; k++) {
        l->data[k] = v[k]->data;
        l->size[k] = pare_type(v[k]->dtype)->bits / 8;
    }
}

/* Rows first..last of the flattened outer axes, elements from..to of each. */
static void loop_rows(const loop *l, int64_t first, int64_t last, int64_t from, int64_t to,
                      pare_ref_row row, const void *arg)
{
    const pare_tensor_iterator *w = &l->walk;
    int inner = w->rank - 1;
    int64_t index[PARE_MAX_RANK], strides[PARE_ITERATOR_OPERANDS], left = first;
    for (int k = 0; k < w->operands; k++) strides[k] = w->stride[k][inner];
    for (int i = inner - 1; i >= 0; i--) {
        index[i] = left % w->dim[i];
        left /= w->dim[i];
    }
    for (int64_t r = first; r < last; r++) {
        char *p[PARE_ITERATOR_OPERANDS];
        for (int k = 0; k < w->operands; k++) {
            int64_t at = from * strides[k];
            for (int i = 0; i < inner; i++) at += index[i] * w->stride[k][i];
            p[k] = l->data[k] + at * l->size[k];
        }
        row(to - from, p, strides, arg);
        for (int i = inner - 1; i >= 0 && ++index[i] == w->dim[i]; i--) index[i] = 0;
    }
}

static void loop_run(const loop *l, int threads, pare_ref_row row, const void *arg)
{
    const pare_tensor_iterator *w = &l->walk;
    enum { WORTH = 32768 }; /* elements below which another thread costs more than it brings */
    int64_t rows = 1, n = w->dim[w->rank - 1];
    for (int i = 0; i < w->rank - 1; i++) rows *= w->dim[i];
    int64_t most = rows * n / WORTH;
    int parts = threads < most ? threads : (int)most;
    if (parts <= 1) {
        loop_rows(l, 0, rows, 0, n, row, arg);
        return;
    }
    bool cut_rows = rows >= parts;
    int64_t whole = cut_rows ? rows : n;
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int t = 0; t < parts; t++) {
        int64_t from = whole * t / parts, to = whole * (t + 1) / parts;
        if (cut_rows)
            loop_rows(l, from, to, 0, n, row, arg);
        else
            loop_rows(l, 0, rows, from, to, row, arg);
    }
}

void pare_ref_each(const pare_view *out, const pare_view *const *in, int in_count, int threads,
                   pare_ref_row row, const void *arg)
{
    pare_view wide[PARE_ITERATOR_OPERANDS];
    const pare_view *all[PARE_ITERATOR_OPERANDS] = {out};
    if (pare_view_count(out) == 0) return;
    for (int i = 0; i < in_count; i++) {
        wide[i] = pare_view_stretch(in[i], out);
        all[i + 1] = &wide[i];
    }
    loop l;
    loop_init(&l, all, in_count + 1);
    loop_run(&l, threads, row, arg);
}

void pare_ref_each_call(const pare_call *call, int in_count, pare_ref_row row, const void *arg)
{
    const pare_view *in[PARE_ITERATOR_OPERANDS];
    for (int i = 0; i < in_count; i++) in[i] = &call->in[i];
    pare_ref_each(&call->out[0], in, in_count, call->threads, row, arg);
}

enum { HALF_CHUNK = 512 };

static void widen_strided(float *dst, const uint16_t *src, int64_t stride, pare_dtype half,
                          int64_t n)
{
    if (stride == 1)
        pare_widen(dst, src, half, n, 1);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = half == PARE_f16 ? pare_f16_to_f32(src[i * stride])
                                      : pare_bf16_to_f32(src[i * stride]);
}

void pare_ref_halves(int64_t n, char *const *p, const int64_t *s, int inputs, pare_dtype half,
                     pare_ref_row row, const void *arg)
{
    float wide[PARE_ITERATOR_OPERANDS][HALF_CHUNK];
    char *q[PARE_ITERATOR_OPERANDS];
    int64_t step[PARE_ITERATOR_OPERANDS];
    for (int k = 0; k <= inputs; k++) {
        q[k] = (char *)wide[k];
        step[k] = k && s[k] == 0 ? 0 : 1;
    }
    for (int64_t at = 0; at < n; at += HALF_CHUNK) {
        int64_t m = n - at < HALF_CHUNK ? n - at : HALF_CHUNK;
        for (int k = 1; k <= inputs; k++)
            widen_strided(wide[k], (const uint16_t *)p[k] + at * s[k], s[k], half, step[k] ? m : 1);
        row(m, q, step, arg);
        uint16_t *y = (uint16_t *)p[0] + at * s[0];
        if (s[0] == 1)
            pare_narrow(y, wide[0], half, m, 1);
        else
            for (int64_t i = 0; i < m; i++)
                y[i * s[0]] =
                    half == PARE_f16 ? pare_f32_to_f16(wide[0][i]) : pare_f32_to_bf16(wide[0][i]);
    }
}

/* By memcpy: large constants are in the mapped file, where nothing is aligned. */
#define COPY_ROW(bits)                                                                             \
    static void copy_row_##bits(int64_t n, char *const *p, const int64_t *s, const void *arg)      \
    {                                                                                              \
        (void)arg;                                                                                 \
        enum { BYTES = bits / 8 };                                                                 \
        char *y = p[0];                                                                            \
        const char *x = p[1];                                                                      \
        if (s[0] == 1 && s[1] == 1)                                                                \
            memcpy(y, x, (size_t)n *BYTES);                                                        \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                memcpy(y + i * s[0] * BYTES, x + i * s[1] * BYTES, BYTES);                         \
    }
COPY_ROW(8)
COPY_ROW(16)
COPY_ROW(32)
COPY_ROW(64)
COPY_ROW(128)

/* Elements of fewer than 8 bits. */
static void copy_codes(const pare_view *dst, const pare_view *src)
{
    int64_t index[PARE_MAX_RANK] = {0};
    if (!pare_view_count(dst)) return;
    if (pare_view_rowmajor(dst) && pare_view_rowmajor(src)) {
        memcpy(dst->data, src->data, pare_view_bytes(dst));
        return;
    }
    memset(dst->data, 0, pare_view_bytes(dst)); /* a part of the last byte may be left */
    do
        pare_ref_set_code(dst, pare_ref_offset(dst, index),
                          pare_ref_code(src, pare_ref_offset(src, index)));
    while (pare_ref_next(dst, index));
}

void pare_ref_copy(const pare_view *dst, const pare_view *src, int threads)
{
    int bits = pare_type(dst->dtype)->bits;
    if (bits < 8) {
        copy_codes(dst, src);
        return;
    }
    pare_ref_row row = bits == 8    ? copy_row_8
                       : bits == 16 ? copy_row_16
                       : bits == 32 ? copy_row_32
                       : bits == 64 ? copy_row_64
                                    : copy_row_128;
    pare_ref_each(dst, &src, 1, threads, row, NULL);
}

/* --- can() --- */

bool pare_ref_can_f32_f64(const pare_prep *p)
{
    return p->in[0].dtype == PARE_f32 || p->in[0].dtype == PARE_f64;
}

bool pare_ref_can_floats(const pare_prep *prep)
{
    return pare_ref_in_set(prep->in[0].dtype, PARE_SET_FLOATS);
}

bool pare_ref_can_numbers(const pare_prep *prep)
{
    return pare_ref_in_set(prep->in[0].dtype, PARE_SET_NUMBERS);
}

bool pare_ref_can_all(const pare_prep *prep)
{
    return pare_ref_in_set(prep->in[0].dtype, PARE_SET_ALL);
}

/* Single elements of any type by offset (ref.h). */

int64_t pare_ref_offset(const pare_view *view, const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < view->rank; i++) at += index[i] * view->stride[i];
    return at;
}

bool pare_ref_next(const pare_view *view, int64_t *index)
{
    for (int i = view->rank - 1; i >= 0; i--) {
        if (++index[i] < view->dim[i]) return true;
        index[i] = 0;
    }
    return false;
}

uint8_t pare_ref_code(const pare_view *view, int64_t offset)
{
    const int bits = pare_type(view->dtype)->bits, each = 8 / bits;
    return (uint8_t)(((const uint8_t *)view->data)[offset / each] >> offset % each * bits &
                     ((1 << bits) - 1));
}

void pare_ref_set_code(const pare_view *view, int64_t offset, int code)
{
    const int bits = pare_type(view->dtype)->bits, each = 8 / bits;
    const int mask = (1 << bits) - 1, shift = (int)(offset % each) * bits;
    uint8_t *byte = (uint8_t *)view->data + offset / each;
    *byte = (uint8_t)((*byte & ~(mask << shift)) | (code & mask) << shift);
}

void pare_ref_set_minifloat(const pare_view *view, int64_t offset, float value, bool saturate,
                            pare_minifloat_round round)
{
    pare_ref_set_code(view, offset, pare_minifloat_from_f32(view->dtype, value, saturate, round));
}

/* A large constant's payload is at any address (graph.h). */
#define CASE_GET(type, memory, calc, load, store)                                                  \
    case PARE_##type: {                                                                            \
        memory m;                                                                                  \
        memcpy(&m, pare_ref_at(view, offset), sizeof m);                                           \
        return (RESULT)load(m);                                                                    \
    }

double pare_ref_get(const pare_view *view, int64_t offset)
{
#define RESULT double
    switch (view->dtype) {
        PARE_REF_NUMBERS(CASE_GET)
    case PARE_bool: return *(const uint8_t *)pare_ref_at(view, offset) != 0;
    case PARE_f8e4m3:
    case PARE_f8e5m2:
        return (double)pare_f8_value(view->dtype, *(const uint8_t *)pare_ref_at(view, offset));
    default:
        if (pare_type_is_packed(view->dtype))
            return pare_packed_get(view->dtype, view->data, offset);
        return pare_is_minifloat(view->dtype)
                   ? (double)pare_minifloat_to_f32(view->dtype, pare_ref_code(view, offset))
                   : NAN;
    }
#undef RESULT
}

int64_t pare_ref_get_int(const pare_view *view, int64_t offset)
{
#define RESULT int64_t
    switch (view->dtype) {
        PARE_REF_INTS(CASE_GET)
    case PARE_bool: return *(const uint8_t *)pare_ref_at(view, offset) != 0;
    default: {
        if (pare_type_is_packed(view->dtype))
            return pare_packed_get(view->dtype, view->data, offset);
        double v = pare_ref_get(view, offset);
        return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : 0;
    }
    }
#undef RESULT
}

#define CASE_SET_INT(type, memory)                                                                 \
    case PARE_##type: *(memory *)at = (memory)pare_int_of(value, PARE_##type); break;

void pare_ref_set(const pare_view *view, int64_t offset, double value)
{
    void *at = pare_ref_at(view, offset);
    switch (view->dtype) {
    case PARE_f32: *(float *)at = (float)value; break;
    case PARE_f64: *(double *)at = value; break;
    case PARE_f16: *(uint16_t *)at = pare_f32_to_f16((float)value); break;
    case PARE_bf16: *(uint16_t *)at = pare_f32_to_bf16((float)value); break;
    case PARE_bool:
        *(uint8_t *)at = value != 0;
        break;
        CASE_SET_INT(s8, int8_t)
        CASE_SET_INT(u8, uint8_t)
        CASE_SET_INT(s16, int16_t)
        CASE_SET_INT(u16, uint16_t)
        CASE_SET_INT(s32, int32_t)
        CASE_SET_INT(u32, uint32_t)
        CASE_SET_INT(s64, int64_t)
        CASE_SET_INT(u64, uint64_t)
    default:
        if (pare_type_is_packed(view->dtype))
            pare_ref_set_code(view, offset, (int)pare_int_of(value, view->dtype));
        else if (pare_is_minifloat(view->dtype))
            pare_ref_set_minifloat(view, offset, (float)value, true, PARE_ROUND_UP);
    }
}

#define CASE_SET_BITS(type, memory, calc, load, store)                                             \
    case PARE_##type: *(memory *)pare_ref_at(view, offset) = (memory)value; break;

void pare_ref_set_int(const pare_view *view, int64_t offset, int64_t value)
{
    switch (view->dtype) {
        PARE_REF_INTS(CASE_SET_BITS)
    case PARE_bool: *(uint8_t *)pare_ref_at(view, offset) = value != 0; break;
    default:
        if (pare_type_is_packed(view->dtype))
            pare_ref_set_code(view, offset, (int)(value & 15));
        else
            pare_ref_set(view, offset, (double)value);
    }
}

void pare_ref_to_f32(float *dst, const pare_view *src)
{
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(src) == 0) return;
    if (src->dtype == PARE_f32 && pare_view_rowmajor(src)) {
        memcpy(dst, src->data, pare_view_bytes(src));
        return;
    }
    do *dst++ = (float)pare_ref_get(src, pare_ref_offset(src, index));
    while (pare_ref_next(src, index));
}

void pare_ref_from_f32(const pare_view *dst, const float *src)
{
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(dst) == 0) return;
    if (dst->dtype == PARE_f32 && pare_view_rowmajor(dst)) {
        memcpy(dst->data, src, pare_view_bytes(dst));
        return;
    }
    do pare_ref_set(dst, pare_ref_offset(dst, index), (double)*src++);
    while (pare_ref_next(dst, index));
}

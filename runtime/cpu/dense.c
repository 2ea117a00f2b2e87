/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/dense.h"

#include <string.h>

bool pare_dense_can(pare_dtype dtype)
{
    switch (dtype) {
    case PARE_f32:
    case PARE_f64:
    case PARE_f16:
    case PARE_bf16:
    case PARE_s8:
    case PARE_u8:
    case PARE_s16:
    case PARE_u16:
    case PARE_s32:
    case PARE_u32:
    case PARE_bool: return true;
    default: return false;
    }
}

pare_view pare_view_at(const pare_view *view, int axis, int64_t index)
{
    pare_view v = *view;
    v.dim[axis] = 1;
    if (v.data) v.data = (char *)v.data + index * v.stride[axis] * (pare_type(v.dtype)->bits / 8);
    return v;
}

#define SAME(x) (x)
/* By memcpy: large constants are in the mapped file, where nothing is aligned. */
#define LOAD(code, ctype, to)                                                                      \
    case code:                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            ctype v;                                                                               \
            memcpy(&v, (const char *)src + i * stride * (int64_t)sizeof v, sizeof v);              \
            dst[i] = (double)to(v) - zero;                                                         \
        }                                                                                          \
        return;

static void load_row(double *dst, const void *src, pare_dtype dtype, int64_t n, int64_t stride,
                     double zero)
{
    switch (dtype) {
        LOAD(PARE_f32, float, SAME)
        LOAD(PARE_f64, double, SAME)
        LOAD(PARE_f16, uint16_t, pare_f16_to_f32)
        LOAD(PARE_bf16, uint16_t, pare_bf16_to_f32)
        LOAD(PARE_s8, int8_t, SAME)
        LOAD(PARE_u8, uint8_t, SAME)
        LOAD(PARE_bool, uint8_t, SAME)
        LOAD(PARE_s16, int16_t, SAME)
        LOAD(PARE_u16, uint16_t, SAME)
        LOAD(PARE_s32, int32_t, SAME)
        LOAD(PARE_u32, uint32_t, SAME)
    default: memset(dst, 0, (size_t)n * sizeof *dst);
    }
}

#define STORE(code, ctype, to)                                                                     \
    case code: {                                                                                   \
        ctype *p = (ctype *)dst;                                                                   \
        for (int64_t i = 0; i < n; i++) p[i * stride] = (ctype)to(src[i]);                         \
        return;                                                                                    \
    }
#define TO_F16(x)  pare_f32_to_f16((float)(x))
#define TO_BF16(x) pare_f32_to_bf16((float)(x))

static void store_row(void *dst, const double *src, pare_dtype dtype, int64_t n, int64_t stride)
{
    switch (dtype) {
        STORE(PARE_f32, float, SAME)
        STORE(PARE_f64, double, SAME)
        STORE(PARE_f16, uint16_t, TO_F16)
        STORE(PARE_bf16, uint16_t, TO_BF16)
        STORE(PARE_s8, int8_t, SAME)
        STORE(PARE_u8, uint8_t, SAME)
        STORE(PARE_bool, uint8_t, SAME)
        STORE(PARE_s16, int16_t, SAME)
        STORE(PARE_u16, uint16_t, SAME)
        STORE(PARE_s32, int32_t, SAME)
        STORE(PARE_u32, uint32_t, SAME)
    default: return;
    }
}

/* Rows along the last axis; index counts the axes before it. Returns false after the last row. */
static bool next_row(const pare_view *v, int64_t index[PARE_MAX_RANK], int64_t *offset)
{
    for (int a = v->rank - 2; a >= 0; a--) {
        *offset += v->stride[a];
        if (++index[a] < v->dim[a]) return true;
        *offset -= index[a] * v->stride[a];
        index[a] = 0;
    }
    return false;
}

void pare_dense_load(double *dst, const pare_view *src, double zero_point)
{
    int64_t index[PARE_MAX_RANK] = {0}, offset = 0;
    int last = src->rank - 1;
    int64_t n = src->rank ? src->dim[last] : 1, stride = src->rank ? src->stride[last] : 1;
    if (!pare_view_count(src)) return;
    int bytes = pare_type(src->dtype)->bits / 8;
    do {
        load_row(dst, (const char *)src->data + offset * bytes, src->dtype, n, stride, zero_point);
        dst += n;
    } while (next_row(src, index, &offset));
}

void pare_dense_store(const pare_view *dst, const double *src)
{
    int64_t index[PARE_MAX_RANK] = {0}, offset = 0;
    int last = dst->rank - 1;
    int64_t n = dst->rank ? dst->dim[last] : 1, stride = dst->rank ? dst->stride[last] : 1;
    if (!pare_view_count(dst)) return;
    int bytes = pare_type(dst->dtype)->bits / 8;
    do {
        store_row((char *)dst->data + offset * bytes, src, dst->dtype, n, stride);
        src += n;
    } while (next_row(dst, index, &offset));
}

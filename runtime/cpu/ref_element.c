/* SPDX-License-Identifier: Apache-2.0 */
/* Single elements of any type by offset (ref.h). */
#include "runtime/cpu/ref.h"
#include "runtime/ops/number.h"

#include <math.h>
#include <string.h>

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

static int nibble_get(const pare_view *view, int64_t offset)
{
    int v = ((const uint8_t *)view->data)[offset / 2] >> (offset % 2 ? 4 : 0) & 15;
    return view->dtype == PARE_s4 && v > 7 ? v - 16 : v;
}

static void nibble_set(const pare_view *view, int64_t offset, int value)
{
    uint8_t *byte = (uint8_t *)view->data + offset / 2;
    *byte = (uint8_t)(offset % 2 ? (*byte & 15) | (value & 15) << 4 : (*byte & 240) | (value & 15));
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
    case PARE_s4:
    case PARE_u4: return nibble_get(view, offset);
    default: return NAN;
    }
#undef RESULT
}

int64_t pare_ref_get_int(const pare_view *view, int64_t offset)
{
#define RESULT int64_t
    switch (view->dtype) {
        PARE_REF_INTS(CASE_GET)
    case PARE_bool: return *(const uint8_t *)pare_ref_at(view, offset) != 0;
    case PARE_s4:
    case PARE_u4: return nibble_get(view, offset);
    default: {
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
    case PARE_s4: nibble_set(view, offset, (int)pare_int_of(value, PARE_s4)); break;
    case PARE_u4: nibble_set(view, offset, (int)pare_int_of(value, PARE_u4)); break;
    default: break;
    }
}

#define CASE_SET_BITS(type, memory, calc, load, store)                                             \
    case PARE_##type: *(memory *)pare_ref_at(view, offset) = (memory)value; break;

void pare_ref_set_int(const pare_view *view, int64_t offset, int64_t value)
{
    switch (view->dtype) {
        PARE_REF_INTS(CASE_SET_BITS)
    case PARE_bool: *(uint8_t *)pare_ref_at(view, offset) = value != 0; break;
    case PARE_s4:
    case PARE_u4: nibble_set(view, offset, (int)(value & 15)); break;
    default: pare_ref_set(view, offset, (double)value);
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

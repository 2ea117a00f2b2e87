/* SPDX-License-Identifier: Apache-2.0 */
/* Elements whose type is known by number only: one kernel serves every type, its threads all take
   the same branch. Integers and bool go through int64_t (u64: its bits), floats through double,
   which holds them exactly. 4-bit types are packed, the even element in the low half of its byte.
 */
#ifndef PARE_RUNTIME_CUDA_DEVICE_NUMBER_CUH
#define PARE_RUNTIME_CUDA_DEVICE_NUMBER_CUH

#include "runtime/cuda/device/common.cuh"
#include "runtime/ops/number.h"

SIMT_INLINE bool pare_is_float(pare_dtype type)
{
    return type == PARE_f32 || type == PARE_f16 || type == PARE_bf16 || type == PARE_f64;
}

SIMT_INLINE bool pare_is_packed(pare_dtype type) { return type == PARE_s4 || type == PARE_u4; }

/* Of integers, bool and 4-bit types. */
SIMT_INLINE int64_t pare_int_at(const void *data, pare_dtype type, int64_t at)
{
    switch (type) {
    case PARE_s8: return static_cast<const int8_t *>(data)[at];
    case PARE_u8: return static_cast<const uint8_t *>(data)[at];
    case PARE_bool: return static_cast<const uint8_t *>(data)[at] != 0;
    case PARE_s16: return static_cast<const int16_t *>(data)[at];
    case PARE_u16: return static_cast<const uint16_t *>(data)[at];
    case PARE_s32: return static_cast<const int32_t *>(data)[at];
    case PARE_u32: return static_cast<const uint32_t *>(data)[at];
    case PARE_s64:
    case PARE_u64: return static_cast<const int64_t *>(data)[at];
    default: break;
    }
    int v = static_cast<const uint8_t *>(data)[at / 2] >> (at % 2 ? 4 : 0) & 15;
    return type == PARE_s4 && v > 7 ? v - 16 : v;
}

/* Keeps the low bits; bool: v != 0. Not for 4-bit types, two of which share a byte. */
SIMT_INLINE void pare_int_store(void *data, pare_dtype type, int64_t at, int64_t v)
{
    switch (type) {
    case PARE_bool: static_cast<uint8_t *>(data)[at] = v != 0; break;
    case PARE_s8:
    case PARE_u8: static_cast<uint8_t *>(data)[at] = (uint8_t)v; break;
    case PARE_s16:
    case PARE_u16: static_cast<uint16_t *>(data)[at] = (uint16_t)v; break;
    case PARE_s32:
    case PARE_u32: static_cast<uint32_t *>(data)[at] = (uint32_t)v; break;
    default: static_cast<int64_t *>(data)[at] = v;
    }
}

/* Of floats. */
SIMT_INLINE double pare_double_at(const void *data, pare_dtype type, int64_t at)
{
    return type == PARE_f64 ? static_cast<const double *>(data)[at]
                            : (double)pare_number_at(data, type, at);
}

/* Rounds to nearest even; the short floats are rounded to f32 first. */
SIMT_INLINE void pare_double_store(void *data, pare_dtype type, int64_t at, double v)
{
    if (type == PARE_f64)
        static_cast<double *>(data)[at] = v;
    else
        pare_number_store(data, type, at, (float)v);
}

/* The float of an integer, rounded once: of u64 where wide. */
SIMT_INLINE void pare_float_store(void *data, pare_dtype type, int64_t at, int64_t v, bool wide)
{
    if (type == PARE_f64)
        static_cast<double *>(data)[at] = wide ? (double)(uint64_t)v : (double)v;
    else
        pare_number_store(data, type, at, wide ? (float)(uint64_t)v : (float)v);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of 8-bit elements to floats and back: the loops all 8-bit kernels share, for vectors where
   the stride is 1. */
#ifndef PARE_RUNTIME_CPU_GEMM_INT8_ROWS_H
#define PARE_RUNTIME_CPU_GEMM_INT8_ROWS_H

#include "runtime/base/clones.h"
#include "runtime/ops/epilogue.h"

/* dst[i] = (int16_t)(x[i] - zero). */
void pare_widen_s8(int16_t *dst, const int8_t *x, int64_t n, int32_t zero);
void pare_widen_u8(int16_t *dst, const uint8_t *x, int64_t n, int32_t zero);

/* dst[i] = (float)(x[i * stride] - zero), x of type s8 or u8 (f32: copied). */
void pare_row_load(float *dst, int64_t n, const void *x, pare_dtype type, int64_t stride,
                   int32_t zero);

/* y[i * stride] = what epilogue.h makes of v[i]; v is overwritten. */
void pare_row_store(const pare_epilogue *e, int64_t n, float *v, void *y, int64_t stride);

/* y = table[(uint8_t)x]. */
void pare_row_table(const uint8_t *table, int64_t n, const uint8_t *x, int64_t xs, uint8_t *y,
                    int64_t ys);

enum { PARE_ROW = 512 }; /* elements of a row that is worked on at a time; it stays in cache */

/* Element i of an s8 or u8 tensor. */
static inline int32_t pare_byte_at(const pare_view *v, int64_t i)
{
    return v->dtype == PARE_s8 ? ((const int8_t *)v->data)[i] : ((const uint8_t *)v->data)[i];
}

/* The address of element i of a tensor. */
static inline void *pare_element(const void *data, pare_dtype type, int64_t i)
{
    return (char *)(uintptr_t)data + i * (type == PARE_f32 ? 4 : 1);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the device's products and convolutions share. */
#ifndef PARE_TESTS_CUDA_PRODUCT_CASE_H
#define PARE_TESTS_CUDA_PRODUCT_CASE_H

#include "tests/cpu/kernel_case.h"

static inline void floats_between(kernel_case *k, int64_t count, float low, float high)
{
    float *f = case_input(k, PARE_f32, 1, &count, true, 0, 1);
    for (int64_t i = 0; i < count; i++)
        f[i] = low + (high - low) * (float)case_between(k, 0, 10000) * 1e-4f;
}

static inline void window_set(kernel_case *k, int i, int64_t group)
{
    int64_t strides[2] = {1 + i % 2, 1 + i % 3}, dilations[2] = {1, 1 + i % 2},
            pads[4] = {1, 0, 1, 2};
    case_set_ints(k, "strides", strides, 2);
    case_set_ints(k, "dilations", dilations, 2);
    case_set_ints(k, "pads", pads, 4);
    case_set_int(k, "group", group);
}

/* X, W, B and, where it has dims, the residual of FusedConv for x's type; 8-bit: so many scales of
   W, and the node's own. */
static inline void residual_inputs(kernel_case *k, pare_dtype t, const int64_t *x, const int64_t *w,
                                   int64_t scales, const int64_t *z)
{
    bool int8 = t == PARE_s8 || t == PARE_u8;
    case_input(k, t, 4, x, false, t == PARE_s8 ? -128 : 0, int8 ? 127 : 1);
    case_input(k, int8 ? PARE_s8 : t, 4, w, true, int8 ? -127 : 0, int8 ? 127 : 1);
    case_input(k, int8 ? PARE_s32 : t, 1, w, true, -500, int8 ? 500 : 1);
    if (z)
        case_input(k, t, 4, z, false, t == PARE_s8 ? -128 : 0, int8 ? 127 : 1);
    else if (int8)
        case_input(k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    if (!int8) return;
    floats_between(k, scales, 0.01f, 0.02f);
    case_set_float(k, "x_scale", 0.02f);
    case_set_float(k, "y_scale", 0.3f);
    case_set_int(k, "x_zero_point", 5);
}

static inline void fused_inputs(kernel_case *k, pare_dtype t, const int64_t *x, const int64_t *w,
                                int64_t scales)
{
    residual_inputs(k, t, x, w, scales, NULL);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of products by the instructions of compute capability 9.0: a case's number picks types,
   residual, bias and activation. */
#ifndef PARE_TESTS_CUDA_WGMMA_CASE_H
#define PARE_TESTS_CUDA_WGMMA_CASE_H

#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <math.h>

/* What follows a product: i picks types, residual, bias and activation. */
static inline pare_dtype x_type(int i) { return i & 1 ? PARE_u8 : PARE_s8; }
static inline bool has_residual(int i) { return i >> 1 & 1; }
static inline pare_dtype z_type(int i)
{
    return !has_residual(i) ? PARE_NOTYPE : i % 4 == 2 ? PARE_u8 : PARE_s8;
}

static inline int64_t low_of(pare_dtype t) { return t == PARE_s8 ? -128 : 0; }
static inline int64_t high_of(pare_dtype t) { return t == PARE_s8 ? 127 : 255; }

static inline void bytes_input(kernel_case *k, pare_dtype t, int rank, const int64_t *dims,
                               bool constant)
{
    case_input(k, t, rank, dims, constant, (int)low_of(t), (int)high_of(t));
}

/* X, W, bias, residual and scales of so many columns. */
static inline void inputs_set(kernel_case *k, int i, int rank, const int64_t *x, const int64_t *w,
                              const int64_t *y, int64_t columns, int64_t depth, bool zero,
                              pare_dtype z)
{
    static const pare_dtype biases[] = {PARE_s32, PARE_f32, PARE_NOTYPE};
    static const char *const acts[] = {"none", "relu"};
    const int64_t scales = i % 5 ? columns : 1;
    const pare_dtype to = i % 3 == 1 ? PARE_u8 : PARE_s8;
    bytes_input(k, x_type(i), rank, x, false);
    bytes_input(k, PARE_s8, rank, w, true);
    case_input(k, biases[i % 3], 1, &columns, true, -5000, 5000);
    if (z)
        bytes_input(k, z, rank, y, false);
    else
        case_input(k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    float *scale = case_input(k, PARE_f32, 1, &scales, true, 0, 1);
    for (int64_t c = 0; c < scales; c++) scale[c] = 0.01f + (float)case_between(k, 0, 100) * 1e-4f;
    case_set_float(k, "x_scale", 0.02f);
    case_set_float(k, "y_scale", 0.03f * sqrtf((float)depth)); /* most of them do not saturate */
    case_set_float(k, "z_scale", 0.2f);
    case_set_int(k, "x_zero_point", zero ? 5 : 0);
    case_set_int(k, "z_zero_point", 9);
    case_set_int(k, "to", to);
    assert_int_equal(pare_node_set_string(k->node, "activation", acts[i / 3 % 2]), PARE_OK);
}

/* --- f16 and bf16: i picks type, residual, bias and activation --- */

static inline bool is_gelu(int i) { return i % 4 == 3; }

static inline void halves_set(kernel_case *k, int i, int rank, const int64_t *x, const int64_t *w,
                              const int64_t *y, int64_t columns, bool residual)
{
    static const char *const acts[] = {"none", "relu", "clip", "gelu"};
    const pare_dtype type = i / 4 % 2 ? PARE_bf16 : PARE_f16;
    case_input(k, type, rank, x, false, 0, 1);
    case_input(k, type, rank, w, true, 0, 1);
    case_input(k, i % 3 ? type : PARE_NOTYPE, 1, &columns, true, 0, 4);
    if (residual) case_input(k, type, rank, y, false, 0, 4);
    assert_int_equal(pare_node_set_string(k->node, "activation", acts[i % 4]), PARE_OK);
    if (i % 4 != 2) return;
    case_set_float(k, "alpha", -3);
    case_set_float(k, "beta", 8);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Products and convolutions of FP8 as cases. */
#ifndef PARE_TESTS_CPU_F8_CASE_H
#define PARE_TESTS_CPU_F8_CASE_H

#include "runtime/base/f8.h"
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Codes of normal-like numbers. */
static inline void f8_input(kernel_case *k, pare_dtype t, int rank, const int64_t *dims,
                            bool constant)
{
    const float size = t == PARE_f8e4m3 ? 30 : 1000;
    uint8_t *code = case_input(k, t, rank, dims, constant, 0, 0);
    for (int64_t i = 0; i < pare_view_count(&k->in[k->in_count - 1]); i++)
        code[i] = pare_f8_code(t, case_float(k) * size);
}

/* What makes a case: how its node ends. */
typedef struct f8_end {
    pare_dtype type; /* of the factors */
    pare_dtype y, z; /* z PARE_NOTYPE: no residual */
    const char *act;
    bool biased, one_scale; /* of W's */
} f8_end;

/* X, W, bias, residual and scales of so many columns, the node's attributes. */
static inline void f8_node(kernel_case *k, const f8_end *e, int rank, const int64_t *x,
                           const int64_t *w, const int64_t *y, int64_t columns, int64_t depth)
{
    const float unit = e->type == PARE_f8e4m3 ? 1.0f / 30 : 1e-3f; /* numbers of about 1 */
    const int64_t scales = e->one_scale ? 1 : columns;
    f8_input(k, e->type, rank, x, false);
    f8_input(k, e->type, rank, w, true);
    case_input(k, e->biased ? PARE_f32 : PARE_NOTYPE, 1, &columns, true, 0, 900);
    if (pare_type_is_f8(e->z))
        f8_input(k, e->z, rank, y, false);
    else
        case_input(k, e->z, rank, y, false, 0, 4);
    float *scale = case_input(k, PARE_f32, 1, &scales, true, 0, 1);
    for (int64_t c = 0; c < scales; c++)
        scale[c] = unit * (1 + (float)case_between(k, 0, 100) * 0.01f);
    case_set_float(k, "x_scale", unit);
    case_set_float(k, "y_scale", unit * sqrtf((float)depth));
    if (pare_type_is_f8(e->z)) case_set_float(k, "z_scale", unit * 2);
    case_set_int(k, "to", e->y == e->type ? e->type : PARE_f32);
    if (e->y != e->type && e->y != PARE_f32) case_set_int(k, "output_dtype", e->y);
    if (pare_node_set_string(k->node, "activation", e->act) != PARE_OK) abort();
    if (strcmp(e->act, "clip") != 0) return;
    case_set_float(k, "alpha", -1);
    case_set_float(k, "beta", 2.5f);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that make a tensor from little: Constant (1 to 21), Shape (1 to 21), Size (1 to 21),
   ConstantOfShape (9), Range (11), EyeLike (9), NonZero (9), and Trilu (14). */
#include "runtime/cpu/copy.h"
#include "runtime/ops/constant.h"

#include <math.h>
#include <string.h>

/* The tensor of a Constant or ConstantOfShape; its state. */
static pare_status constant_prepare(pare_prep *p)
{
    const pare_tensor *t;
    PARE_TRY(pare_constant_tensor(p->node, p->arena, &t));
    union {
        const void *read;
        void *state;
    } keep = {t};
    p->state = keep.state;
    return PARE_OK;
}

static pare_status constant_run(const pare_call *c)
{
    const pare_tensor *t = c->state;
    size_t bytes = pare_view_bytes(&c->out[0]);
    if (bytes) memcpy(c->out[0].data, t->data, bytes < t->bytes ? bytes : t->bytes);
    return PARE_OK;
}

static bool constant_can(const pare_prep *p) { return pare_view_rowmajor(&p->out[0]); }

static pare_status constant_of_shape_run(const pare_call *c)
{
    const pare_tensor *t = c->state;
    pare_copy_fill(&c->out[0], t->data, c->threads);
    return PARE_OK;
}

static pare_status shape_run(const pare_call *c)
{
    int64_t rank = c->in[0].rank, start = pare_node_int(c->node, "start", 0);
    if (start < 0) start += rank;
    start = start < 0 ? 0 : start;
    for (int64_t i = 0; i < c->out[0].dim[0]; i++)
        pare_ref_set_int(&c->out[0], i, c->in[0].dim[start + i]);
    return PARE_OK;
}

static pare_status size_run(const pare_call *c)
{
    pare_ref_set_int(&c->out[0], 0, pare_view_count(&c->in[0]));
    return PARE_OK;
}

/* Range 11: start + i * delta, floats in double. */
static pare_status range_run(const pare_call *c)
{
    int64_t n = c->out[0].dim[0];
    if (pare_type_is_float(c->out[0].dtype)) {
        double start = pare_ref_get(&c->in[0], 0), delta = pare_ref_get(&c->in[2], 0);
        for (int64_t i = 0; i < n; i++) pare_ref_set(&c->out[0], i, start + (double)i * delta);
    } else {
        int64_t start = pare_ref_get_int(&c->in[0], 0), delta = pare_ref_get_int(&c->in[2], 0);
        for (int64_t i = 0; i < n; i++) pare_ref_set_int(&c->out[0], i, start + i * delta);
    }
    return PARE_OK;
}

static pare_status eye_like_run(const pare_call *c)
{
    const pare_view *y = &c->out[0];
    int64_t k = pare_node_int(c->node, "k", 0);
    pare_copy_fill(y, NULL, c->threads);
    for (int64_t i = 0; i < y->dim[0]; i++)
        if (i + k >= 0 && i + k < y->dim[1])
            pare_ref_set(y, i * y->stride[0] + (i + k) * y->stride[1], 1);
    return PARE_OK;
}

/* NonZero 13: one column of indices for each element that is not zero (NaN is not), in order. The
   output's length is known only for constant input; the shape rule counts it. */
static pare_status non_zero_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0}, found = 0;
    if (!pare_view_count(x)) return PARE_OK;
    do {
        bool zero = pare_ref_get(x, pare_ref_offset(x, index)) == 0;
        if (zero) continue;
        if (found == y->dim[1])
            return PARE_FAIL_CALL(c, INPUT, "more elements are not zero than were planned for");
        for (int i = 0; i < x->rank; i++)
            pare_ref_set_int(y, i * y->stride[0] + found * y->stride[1], index[i]);
        found++;
    } while (pare_ref_next(x, index));
    if (found != y->dim[1])
        return PARE_FAIL_CALL(c, INPUT, "fewer elements are not zero than were planned for");
    return PARE_OK;
}

static pare_status non_zero_measure(pare_call *c, pare_shape *out)
{
    const pare_view *x = &c->in[0];
    int64_t index[PARE_MAX_RANK] = {0}, found = 0;
    if (pare_view_count(x)) do
            found += pare_ref_get(x, pare_ref_offset(x, index)) != 0;
        while (pare_ref_next(x, index));
    out[0] = (pare_shape){.rank = 2, .dim = {x->rank, found}};
    return PARE_OK;
}

/* Trilu 14: the upper or lower triangle of the last two axes, zeros elsewhere. */
static pare_status trilu_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    bool upper = pare_node_int(c->node, "upper", 1);
    int64_t k = c->in_count > 1 && c->in[1].dtype ? pare_ref_get_int(&c->in[1], 0) : 0;
    int64_t index[PARE_MAX_RANK] = {0};
    size_t bytes = (size_t)pare_type(y->dtype)->bits / 8;
    if (!pare_view_count(y)) return PARE_OK;
    do {
        int64_t distance = index[y->rank - 1] - index[y->rank - 2];
        bool keep = upper ? distance >= k : distance <= k;
        void *to = pare_ref_at(y, pare_ref_offset(y, index));
        if (keep)
            memcpy(to, pare_ref_at(x, pare_ref_offset(x, index)), bytes);
        else
            memset(to, 0, bytes);
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

static const pare_kernel ref_constant = {.name = "ref_constant",
                                         .can = constant_can,
                                         .prepare = constant_prepare,
                                         .run = constant_run,
                                         .flags = PARE_KERNEL_REF};
static const pare_kernel ref_constant_of_shape = {.name = "ref_constant_of_shape",
                                                  .prepare = constant_prepare,
                                                  .run = constant_of_shape_run,
                                                  .flags = PARE_KERNEL_REF};
#define PLAIN_KERNEL(stem, can_fn)                                                                 \
    static const pare_kernel ref_##stem = {                                                        \
        .name = "ref_" #stem, .can = can_fn, .run = stem##_run, .flags = PARE_KERNEL_REF};
PLAIN_KERNEL(shape, NULL)
PLAIN_KERNEL(size, NULL)
PLAIN_KERNEL(range, pare_ref_can_numbers)
PLAIN_KERNEL(eye_like, NULL)
static const pare_kernel ref_non_zero = {.name = "ref_non_zero",
                                         .can = pare_ref_can_all,
                                         .run = non_zero_run,
                                         .measure = non_zero_measure,
                                         .flags = PARE_KERNEL_REF};
PLAIN_KERNEL(trilu, pare_copy_can)

const pare_kernel *const pare_cpu_constant[] = {&ref_constant, NULL};
const pare_kernel *const pare_cpu_constant_of_shape[] = {&ref_constant_of_shape, NULL};
const pare_kernel *const pare_cpu_shape[] = {&ref_shape, NULL};
const pare_kernel *const pare_cpu_size[] = {&ref_size, NULL};
const pare_kernel *const pare_cpu_range[] = {&ref_range, NULL};
const pare_kernel *const pare_cpu_eye_like[] = {&ref_eye_like, NULL};
const pare_kernel *const pare_cpu_non_zero[] = {&ref_non_zero, NULL};
const pare_kernel *const pare_cpu_trilu[] = {&ref_trilu, NULL};

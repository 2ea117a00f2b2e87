/* SPDX-License-Identifier: Apache-2.0 */
/* TopK (11) and CumSum (14), lane by lane along one axis. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/infer.h"

#include <string.h>

/* --- TopK --- */

typedef struct key {
    double real;
    int64_t integer, index;
} key;

typedef struct order {
    int axis;
    bool largest, real;
    uint64_t flip; /* of integers before they are compared: u64's highest bit */
} order;

/* Is a before b? Equal values keep their order; NaN counts as larger than all. */
static bool before(const order *o, const key *a, const key *b)
{
    bool more, less;
    if (o->real) {
        bool na = a->real != a->real, nb = b->real != b->real;
        more = na ? !nb : a->real > b->real;
        less = nb ? !na : a->real < b->real;
    } else {
        int64_t x = (int64_t)((uint64_t)a->integer ^ o->flip);
        int64_t y = (int64_t)((uint64_t)b->integer ^ o->flip);
        more = x > y;
        less = x < y;
    }
    if (!more && !less) return a->index < b->index;
    return o->largest ? more : less;
}

/* Bottom-up merge sort; spare has room for n more. Returns the array that holds the result. */
static key *sort_keys(key *list, key *spare, int64_t n, const order *o)
{
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t from = 0; from < n; from += 2 * width) {
            int64_t mid = from + width < n ? from + width : n;
            int64_t end = from + 2 * width < n ? from + 2 * width : n, i = from, j = mid;
            for (int64_t k = from; k < end; k++) {
                bool left = i < mid && (j >= end || before(o, &list[i], &list[j]));
                spare[k] = left ? list[i++] : list[j++];
            }
        }
        key *t = list;
        list = spare;
        spare = t;
    }
    return list;
}

static pare_status top_k_prepare(pare_prep *p)
{
    order *o = pare_arena_alloc(p->arena, 1, sizeof *o);
    if (!o) return PARE_MEMORY;
    PARE_TRY(pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, &o->axis));
    o->largest = pare_node_int(p->node, "largest", 1) != 0;
    o->real = pare_type_is_float(p->in[0].dtype);
    o->flip = p->in[0].dtype == PARE_u64 ? 1ull << 63 : 0;
    p->scratch = 2 * sizeof(key) * (size_t)p->in[0].dim[o->axis];
    p->state = o;
    return PARE_OK;
}

static pare_status top_k_run(const pare_call *c)
{
    const order *o = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0], *at = &c->out[1];
    bool wants_index = c->out_count > 1 && at->dtype;
    int64_t n = x->dim[o->axis], k = y->dim[o->axis], index[PARE_MAX_RANK] = {0};
    if (pare_view_count(y) == 0) return PARE_OK;
    pare_view walk = *y;
    walk.dim[o->axis] = 1;
    do {
        key *list = c->scratch;
        for (int64_t i = 0; i < n; i++) {
            int64_t from = pare_ref_offset(x, index) + i * x->stride[o->axis];
            list[i] = (key){.index = i};
            if (o->real)
                list[i].real = pare_ref_get(x, from);
            else
                list[i].integer = pare_ref_get_int(x, from);
        }
        list = sort_keys(list, list + n, n, o);
        for (int64_t i = 0; i < k; i++) {
            int64_t to = pare_ref_offset(y, index) + i * y->stride[o->axis];
            if (o->real)
                pare_ref_set(y, to, list[i].real);
            else
                pare_ref_set_int(y, to, list[i].integer);
            if (wants_index)
                pare_ref_set_int(at, pare_ref_offset(at, index) + i * at->stride[o->axis],
                                 list[i].index);
        }
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static bool top_k_can(const pare_prep *p) { return pare_ref_can_numbers(p) && p->in[0].rank > 0; }

static const pare_kernel ref_top_k = {.name = "ref_top_k",
                                      .can = top_k_can,
                                      .prepare = top_k_prepare,
                                      .run = top_k_run,
                                      .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_top_k[] = {&ref_top_k, NULL};

/* --- CumSum --- */

static void cum_sum_lane(const pare_view *y, int64_t to, int64_t y_stride, const pare_view *x,
                         int64_t from, int64_t x_stride, int64_t n, bool exclusive, bool reverse)
{
    bool real = pare_type_is_float(x->dtype);
    double sum = 0;
    uint64_t total = 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = reverse ? n - 1 - k : k, in = from + i * x_stride, out = to + i * y_stride;
        double v = real ? pare_ref_get(x, in) : 0;
        uint64_t u = real ? 0 : (uint64_t)pare_ref_get_int(x, in);
        if (!exclusive) {
            sum += v;
            total += u;
        }
        if (real)
            pare_ref_set(y, out, sum);
        else
            pare_ref_set_int(y, out, (int64_t)total);
        if (exclusive) {
            sum += v;
            total += u;
        }
    }
}

static pare_status cum_sum_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    bool exclusive = pare_node_int(c->node, "exclusive", 0) != 0;
    bool reverse = pare_node_int(c->node, "reverse", 0) != 0;
    int64_t index[PARE_MAX_RANK] = {0};
    int axis;
    if (pare_view_count(y) == 0) return PARE_OK;
    PARE_TRY(pare_infer_axis(c->node, pare_ref_get_int(&c->in[1], 0), x->rank, &axis));
    pare_view walk = *y;
    walk.dim[axis] = 1;
    do
        cum_sum_lane(y, pare_ref_offset(y, index), y->stride[axis], x, pare_ref_offset(x, index),
                     x->stride[axis], x->dim[axis], exclusive, reverse);
    while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static bool cum_sum_can(const pare_prep *p)
{
    return pare_ref_can_numbers(p) && p->in[0].rank > 0 &&
           pare_ref_in_set(p->in[1].dtype, PARE_SET_INTS);
}

static const pare_kernel ref_cum_sum = {
    .name = "ref_cum_sum", .can = cum_sum_can, .run = cum_sum_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_cum_sum[] = {&ref_cum_sum, NULL};

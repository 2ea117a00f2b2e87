/* SPDX-License-Identifier: Apache-2.0 */
/* A Reshape whose target is computed from shapes, as exporters write it for an open batch:

     x -> Shape -> Gather(0) -> Unsqueeze -> Concat(., 256, -1) -> Reshape(x, .)

   gets a constant target, here [0, 256, -1]: 0 for a size that is the input's own on that axis, -1
   for the one number that is left unknown (Reshape, opset 5 and newer). */
#include "runtime/ops/infer.h"
#include "runtime/passes/optimize/fuse.h"

#include <string.h>

/* One number of a target: a constant, or the size of an axis of a tensor, or neither. */
typedef struct number {
    bool known;
    int64_t value;
    const pare_value *of; /* NULL: no size */
    int axis;
} number;

enum { DEEPEST = 16 };

static bool numbers_of(const pare_value *v, number *out, int *count, int depth);

/* Shape (15): sizes of a stretch of axes. */
static bool sizes_of(const pare_node *node, number *out, int *count)
{
    const int rank = node->in[0]->shape.rank;
    int64_t start = pare_node_int(node, "start", 0), end = pare_node_int(node, "end", rank);
    if (rank < 0) return false;
    start = start < 0 ? start + rank : start;
    end = end < 0 ? end + rank : end;
    start = start < 0 ? 0 : start > rank ? rank : start;
    end = end > rank ? rank : end;
    for (*count = 0; start + *count < end; ++*count) {
        const int axis = (int)start + *count;
        const int64_t dim = node->in[0]->shape.dim[axis];
        out[*count] = (number){dim >= 0, dim, node->in[0], axis};
    }
    return true;
}

static bool constant_numbers(const pare_tensor *t, number *out, int *count)
{
    if (t->rank > 1 || t->count > PARE_MAX_RANK || (t->dtype != PARE_s64 && t->dtype != PARE_s32))
        return false;
    for (int64_t i = 0; i < t->count; i++)
        out[i] = (number){true, (int64_t)pare_tensor_number(t, i), NULL, 0};
    *count = (int)t->count;
    return true;
}

/* Gather by constants, of rank 0 or 1. */
static bool gathered(const pare_node *node, number *out, int *count, int depth)
{
    number from[PARE_MAX_RANK], at[PARE_MAX_RANK];
    int many;
    const pare_value *index = pare_node_in(node, 1);
    if (!index || !index->data || !constant_numbers(index->data, at, count) ||
        !numbers_of(node->in[0], from, &many, depth))
        return false;
    for (int i = 0; i < *count; i++) {
        const int64_t k = at[i].value < 0 ? at[i].value + many : at[i].value;
        if (k < 0 || k >= many) return false;
        out[i] = from[k];
    }
    return true;
}

static bool joined(const pare_node *node, number *out, int *count, int depth)
{
    *count = 0;
    for (int i = 0; i < node->in_count; i++) {
        number part[PARE_MAX_RANK];
        int many;
        if (!node->in[i] || !numbers_of(node->in[i], part, &many, depth) ||
            *count + many > PARE_MAX_RANK)
            return false;
        memcpy(out + *count, part, (size_t)many * sizeof *part);
        *count += many;
    }
    return true;
}

/* Slice (13) by constants with step 1. */
static bool sliced(const pare_node *node, number *out, int *count, int depth)
{
    number from[PARE_MAX_RANK];
    int64_t edge[2];
    int many;
    for (int i = 0; i < 2; i++) {
        const pare_value *v = pare_node_in(node, 1 + i);
        if (!v || !v->data || v->data->count != 1) return false;
        const double at = pare_tensor_number(v->data, 0); /* may be the largest int64 */
        edge[i] = at > INT32_MAX ? INT32_MAX : at < INT32_MIN ? INT32_MIN : (int64_t)at;
    }
    const pare_value *step = pare_node_in(node, 4);
    if (step && (!step->data || pare_tensor_number(step->data, 0) != 1)) return false;
    if (!numbers_of(node->in[0], from, &many, depth)) return false;
    for (int i = 0; i < 2; i++) {
        if (edge[i] < 0) edge[i] += many;
        edge[i] = edge[i] < 0 ? 0 : edge[i] > many ? many : edge[i];
    }
    *count = edge[1] > edge[0] ? (int)(edge[1] - edge[0]) : 0;
    memcpy(out, from + edge[0], (size_t)*count * sizeof *out);
    return true;
}

/* A number that nothing is known of, where v holds one. */
static bool one_unknown(const pare_value *v, number *out, int *count)
{
    if (pare_shape_count(&v->shape) != 1) return false;
    out[0] = (number){0};
    *count = 1;
    return true;
}

/* out: (PARE_MAX_RANK) what v, an integer tensor of rank 0 or 1, holds. */
static bool numbers_of(const pare_value *v, number *out, int *count, int depth)
{
    const pare_node *n = v->producer;
    if (v->shape.rank > 1 || v->shape.rank < 0 || depth > DEEPEST) return false;
    if (v->data) return constant_numbers(v->data, out, count);
    if (!n || !n->in_count || !n->in[0] || n->out[0] != v) return one_unknown(v, out, count);
    bool found = false;
    if (pare_node_is(n, "Shape"))
        found = sizes_of(n, out, count);
    else if (pare_node_is(n, "Gather"))
        found = gathered(n, out, count, depth + 1);
    else if (pare_node_is(n, "Concat"))
        found = joined(n, out, count, depth + 1);
    else if (pare_node_is(n, "Slice"))
        found = sliced(n, out, count, depth + 1);
    else if (pare_node_is(n, "Unsqueeze") || pare_node_is(n, "Squeeze") ||
             pare_node_is(n, "Reshape") || pare_node_is(n, "Identity") ||
             (pare_node_is(n, "Cast") && v->dtype == PARE_s64))
        found = numbers_of(n->in[0], out, count, depth + 1);
    return found || one_unknown(v, out, count);
}

/* Is it the size of x on that axis? By the tensor, or by the name of the open size. */
static bool is_own(const number *n, const pare_value *x, int axis)
{
    if (!n->of || axis >= x->shape.rank) return false;
    const char *a = x->shape.name[axis], *b = n->of->shape.name[n->axis];
    if (n->of == x && n->axis == axis) return true;
    return x->shape.dim[axis] < 0 && a && b && !strcmp(a, b);
}

pare_status pare_fuse_targets(pare_fuse *f, pare_node *node, bool *changed)
{
    (void)f;
    number target[PARE_MAX_RANK];
    int64_t dims[PARE_MAX_RANK], rank;
    int count, rest = 0;
    pare_value *shape;
    if (!pare_node_is(node, "Reshape") || node->in_count < 2 || !node->in[0] || !node->in[1] ||
        node->in[1]->data || pare_node_int(node, "allowzero", 0) ||
        !numbers_of(node->in[1], target, &count, 0))
        return PARE_OK;
    for (int i = 0; i < count; i++) {
        const bool own = is_own(&target[i], node->in[0], i);
        dims[i] = target[i].known ? target[i].value : own ? 0 : -1;
        if (target[i].known && target[i].value == 0) return PARE_OK;
        rest += dims[i] == -1;
    }
    if (rest > 1) return PARE_OK;
    const char *name = pare_upgrade_name(node, "shape");
    if (!name) return PARE_MEMORY;
    rank = count;
    PARE_TRY(pare_init_new(node->graph, &shape, name, PARE_s64, 1, &rank, dims));
    *changed = true;
    return pare_node_set_in(node, 1, shape);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for operators that only rename or move elements. Reshape, Flatten, Squeeze and Unsqueeze to
   shapes with at most one open size are one family (here: reshapes), made into Reshapes by constant
   shapes:
   - Identity, and a reshape to the same shape, give way to their input;
   - a reshape of a reshape reads the first one's input;
   - a Transpose that moves only axes of length 1 is a reshape;
   - a Transpose of a Transpose is one Transpose, or nothing;
   - merging leading axes, swapping the last two, and splitting again is one Transpose. */
#include "runtime/ops/infer.h"
#include "runtime/passes/optimize/fuse.h"

#include <string.h>

/* Can a Reshape be told this shape? A -1 beside a 0 says nothing. */
static bool can_be_told(const pare_shape *s)
{
    int open = 0, empty = 0;
    for (int i = 0; i < s->rank; i++) {
        open += s->dim[i] < 0;
        empty += s->dim[i] == 0;
    }
    return s->rank >= 0 && open <= 1 && !(open && empty);
}

static bool is_reshape(const pare_node *n)
{
    return n &&
           (pare_node_is(n, "Reshape") || pare_node_is(n, "Flatten") ||
            pare_node_is(n, "Squeeze") || pare_node_is(n, "Unsqueeze")) &&
           n->in[0] && !n->in[0]->data && can_be_told(&n->out[0]->shape);
}

/* Of as many elements: is it the same shape? Open sizes are equal by their name; one without may be
   left, which the count decides. */
static bool same_shape(const pare_shape *a, const pare_shape *b)
{
    int left = 0, empty = 0;
    if (a->rank < 0 || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) return false;
        empty += a->dim[i] == 0;
        if (a->dim[i] < 0)
            left += !a->name[i] || !b->name[i] || strcmp(a->name[i], b->name[i]) != 0;
    }
    return !left || (left == 1 && !empty);
}

/* The node becomes Reshape(x) to its own output's shape. */
static pare_status make_reshape(pare_node *node, pare_value *x)
{
    pare_value *shape, *y = node->out[0];
    pare_node *fresh;
    int64_t rank = y->shape.rank; /* an open size is -1, as Reshape has it */
    const char *name = pare_upgrade_name(node, "shape");
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(node->graph, &shape, name, PARE_s64, 1, &rank, y->shape.dim));
    pare_value *in[] = {x, shape};
    PARE_TRY(pare_fuse_replace(node, "Reshape", "", in, 2, &fresh));
    bool zero = false;
    for (int i = 0; i < rank; i++) zero = zero || !y->shape.dim[i];
    return zero ? pare_node_set_int(fresh, "allowzero", 1) : PARE_OK;
}

static bool is_identity_order(const int64_t *perm, int rank)
{
    for (int i = 0; i < rank; i++)
        if (perm[i] != i) return false;
    return true;
}

/* Do the axes longer than 1 keep their order? */
static bool moves_only_units(const int64_t *perm, const pare_shape *x)
{
    int64_t last = -1;
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[perm[i]] == 1) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

static void read_perm(const pare_node *n, int64_t perm[PARE_MAX_RANK])
{
    int count, rank = n->out[0]->shape.rank;
    const int64_t *given = pare_node_ints(n, "perm", &count);
    for (int i = 0; i < rank; i++) perm[i] = given && count == rank ? given[i] : rank - 1 - i;
}

static pare_status transpose(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_value *x = node->in[0];
    int64_t perm[PARE_MAX_RANK], inner[PARE_MAX_RANK], both[PARE_MAX_RANK];
    int rank = x->shape.rank;
    if (rank < 1 || x->data) return PARE_OK;
    read_perm(node, perm);
    if (is_identity_order(perm, rank)) return pare_fuse_bypass(f, node, node->in[0], changed);
    if (pare_shape_known(&x->shape) && moves_only_units(perm, &x->shape)) {
        *changed = true;
        return make_reshape(node, x);
    }
    pare_node *before = pare_fuse_maker(node, 0, "Transpose");
    if (!before || before->in[0]->data) return PARE_OK;
    read_perm(before, inner);
    for (int i = 0; i < rank; i++) both[i] = inner[perm[i]];
    if (is_identity_order(both, rank)) return pare_fuse_bypass(f, node, before->in[0], changed);
    *changed = true;
    PARE_TRY(pare_node_set_in(node, 0, before->in[0]));
    return pare_node_set_ints(node, "perm", both, rank);
}

/* [.., S, D] merged to [n, S, D], last two axes swapped, split to [.., D, S]. */
static pare_status swap_of_merged(pare_node *node, bool *changed)
{
    pare_node *middle = pare_fuse_maker(node, 0, "Transpose");
    if (!middle || middle->in[0]->shape.rank != 3) return PARE_OK;
    pare_node *first = middle->in[0]->producer;
    int64_t perm[PARE_MAX_RANK];
    read_perm(middle, perm);
    if (!is_reshape(first) || perm[0] != 0 || perm[1] != 2) return PARE_OK;
    pare_value *x = first->in[0];
    const pare_shape *a = &x->shape, *m = &first->out[0]->shape, *y = &node->out[0]->shape;
    int r = a->rank;
    if (!pare_shape_known(a) || !pare_shape_known(m) || !pare_shape_known(y)) return PARE_OK;
    if (r < 3 || y->rank != r || a->dim[r - 2] != m->dim[1] || a->dim[r - 1] != m->dim[2] ||
        y->dim[r - 1] != m->dim[1] || y->dim[r - 2] != m->dim[2])
        return PARE_OK;
    for (int i = 0; i < r - 2; i++)
        if (a->dim[i] != y->dim[i]) return PARE_OK;
    for (int i = 0; i < r; i++) perm[i] = i;
    perm[r - 1] = r - 2;
    perm[r - 2] = r - 1;
    pare_node *fresh;
    PARE_TRY(pare_fuse_replace(node, "Transpose", "", &x, 1, &fresh));
    *changed = true;
    return pare_node_set_ints(fresh, "perm", perm, r);
}

static pare_status reshape(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_value *x = node->in[0];
    if (same_shape(&x->shape, &node->out[0]->shape)) {
        bool gone = false;
        PARE_TRY(pare_fuse_bypass(f, node, x, &gone));
        *changed = *changed || gone;
        if (gone) return PARE_OK;
    }
    if (is_reshape(x->producer) && x->graph == node->graph) {
        *changed = true;
        return make_reshape(node, x->producer->in[0]);
    }
    return swap_of_merged(node, changed);
}

pare_status pare_fuse_shapes(pare_fuse *f, pare_node *node, bool *changed)
{
    if (!node->in_count || !node->in[0] || !node->out[0]) return PARE_OK;
    if (pare_node_is(node, "Identity") && !node->in[0]->data)
        return pare_fuse_bypass(f, node, node->in[0], changed);
    if (pare_node_is(node, "Transpose")) return transpose(f, node, changed);
    return is_reshape(node) ? reshape(f, node, changed) : PARE_OK;
}

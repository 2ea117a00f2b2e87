/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose results are as long as their inputs' values say: Compress (9, 11), Unique (11)
   and NonMaxSuppression (10, 11). Their kernels measure (kernel.h). NonZero is in constant.c. */
#include "runtime/ops/infer.h"

pare_status pare_infer_compress(pare_node *node)
{
    pare_value *x, *condition;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &condition));
    if (condition->dtype && condition->dtype != PARE_bool)
        return PARE_FAIL_NODE(node, INPUT, "condition '%s' must be bool", condition->name);
    if (condition->shape.rank >= 0 && condition->shape.rank != 1)
        return PARE_FAIL_NODE(node, INPUT, "condition '%s' must have one axis", condition->name);
    pare_shape y = pare_shape_unknown(1);
    if (pare_node_attr(node, "axis")) {
        int axis;
        y = x->shape;
        if (y.rank >= 0) {
            PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), y.rank, &axis));
            y.dim[axis] = -1;
            y.name[axis] = NULL;
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

pare_status pare_infer_unique(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    const pare_shape list = pare_shape_unknown(1);
    pare_shape y = list, all = pare_shape_vector(pare_shape_count(&x->shape));
    if (pare_node_attr(node, "axis")) {
        int axis;
        y = x->shape;
        all = list;
        if (y.rank >= 0) {
            PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), y.rank, &axis));
            all.dim[0] = y.dim[axis];
            y.dim[axis] = -1;
            y.name[axis] = NULL;
        }
    }
    pare_infer_out(node, 0, x->dtype, &y);
    pare_infer_out(node, 1, PARE_s64, &list);
    pare_infer_out(node, 2, PARE_s64, &all);
    pare_infer_out(node, 3, PARE_s64, &list);
    return PARE_OK;
}

static bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

pare_status pare_infer_non_max_suppression(pare_node *node)
{
    pare_value *boxes, *scores;
    char a[128], b[128];
    PARE_TRY(pare_infer_need(node, 0, &boxes));
    PARE_TRY(pare_infer_need(node, 1, &scores));
    const pare_shape *x = &boxes->shape, *s = &scores->shape;
    bool ranks = (x->rank < 0 || x->rank == 3) && (s->rank < 0 || s->rank == 3);
    bool fits = ranks && (x->rank < 0 || !differ(x->dim[2], 4));
    if (fits && x->rank > 0 && s->rank > 0)
        fits = !differ(x->dim[0], s->dim[0]) && !differ(x->dim[1], s->dim[2]);
    if (!fits)
        return PARE_FAIL_NODE(node, INPUT,
                              "boxes %s and scores %s are not [batch,boxes,4] and "
                              "[batch,classes,boxes]",
                              pare_shape_text(x, a, sizeof a), pare_shape_text(s, b, sizeof b));
    for (int i = 0; i < 2; i++)
        if (node->in[i]->dtype && node->in[i]->dtype != PARE_f32)
            return PARE_FAIL_NODE(node, INPUT, "input '%s' must be float", node->in[i]->name);
    pare_shape y = pare_shape_unknown(2);
    y.dim[1] = 3;
    pare_infer_out(node, 0, PARE_s64, &y);
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules of reductions: dY gets its reduced axes back and is stretched along them. */
#include "runtime/ops/grad.h"
#include "runtime/ops/reduce.h"

typedef struct reduced {
    pare_value *x, *y, *dy; /* y and dy with the reduced axes as 1 */
    int64_t count;          /* elements that one result is made of */
} reduced;

static pare_status reduced_read(pare_grad *g, const pare_node *node, reduced *out)
{
    pare_reduce reduce;
    pare_value *x = node->in[0];
    PARE_TRY(pare_reduce_read(node, x->shape.rank, &reduce));
    if (!reduce.known)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it has no gradient rule for axes that are computed");
    pare_shape kept = x->shape;
    *out = (reduced){.x = x, .count = 1};
    for (int i = 0; i < kept.rank; i++)
        if (reduce.axis[i] && !reduce.noop) {
            out->count *= kept.dim[i];
            kept.dim[i] = 1;
        }
    out->dy = pare_grad_reshaped(g, pare_grad_of(g, node->out[0]), &kept);
    out->y = pare_grad_reshaped(g, node->out[0], &kept);
    return g->status;
}

pare_status pare_grad_reduce_sum(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, pare_grad_expanded(g, r.dy, &r.x->shape));
    return g->status;
}

pare_status pare_grad_reduce_mean(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_value *dy = pare_grad_scaled(g, r.dy, 1 / (double)(r.count ? r.count : 1));
    pare_grad_give(g, r.x, pare_grad_expanded(g, dy, &r.x->shape));
    return g->status;
}

/* The largest (smallest) share the gradient where several are equal. */
pare_status pare_grad_reduce_extreme(pare_grad *g, const pare_node *node)
{
    reduced r;
    bool axis[PARE_MAX_RANK] = {false};
    PARE_TRY(reduced_read(g, node, &r));
    for (int i = 0; i < r.x->shape.rank; i++) axis[i] = r.y->shape.dim[i] != r.x->shape.dim[i];
    pare_node *cast =
        pare_grad_begin(g, "Cast", (pare_value *[]){PARE_EMIT(g, "Equal", r.x, r.y)}, 1, 1);
    pare_grad_int(g, cast, "to", (int64_t)r.x->dtype);
    pare_value *mask = pare_grad_end(g, cast);
    pare_value *share = PARE_EMIT(g, "Div", r.dy, pare_grad_summed(g, mask, axis));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", mask, share));
    return g->status;
}

pare_status pare_grad_reduce_l1(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", PARE_EMIT(g, "Sign", r.x), r.dy));
    return g->status;
}

/* y = sqrt(sum x^2): dx = dy x / y */
pare_status pare_grad_reduce_l2(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", r.x, PARE_EMIT(g, "Div", r.dy, r.y)));
    return g->status;
}

pare_status pare_grad_reduce_sum_square(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", r.x, pare_grad_scaled(g, r.dy, 2)));
    return g->status;
}

/* y = ln sum x: dx = dy e^-y */
pare_status pare_grad_reduce_log_sum(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_value *inverse = PARE_EMIT(g, "Exp", PARE_EMIT(g, "Neg", r.y));
    pare_grad_give(g, r.x, pare_grad_expanded(g, PARE_EMIT(g, "Mul", r.dy, inverse), &r.x->shape));
    return g->status;
}

/* y = ln sum e^x: dx = dy e^(x - y) */
pare_status pare_grad_reduce_log_sum_exp(pare_grad *g, const pare_node *node)
{
    reduced r;
    PARE_TRY(reduced_read(g, node, &r));
    pare_value *part = PARE_EMIT(g, "Exp", PARE_EMIT(g, "Sub", r.x, r.y));
    pare_grad_give(g, r.x, PARE_EMIT(g, "Mul", part, r.dy));
    return g->status;
}

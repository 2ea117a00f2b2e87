/* SPDX-License-Identifier: Apache-2.0 */
/* Gelu (ONNX 20) spelled out. Exact: 0.5 * x * (1 + erf(x / sqrt(2))). With tanh (Hendrycks, Gimpel
   2016): 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))). The three factors come in any
   order. */
#include "runtime/passes/optimize/fuse.h"

#include <math.h>

/* The product of x, one_plus (what the last node makes so far) and 0.5; NULL where it is not that.
 */
static pare_node *product(const pare_fuse *f, pare_value *one_plus, const pare_value *x)
{
    double factor;
    pare_value *scaled, *left;
    pare_node *mul = pare_fuse_next(f, one_plus, "Mul"), *last;
    if (!mul) return NULL;
    const pare_value *other = pare_fuse_other(mul, one_plus);
    if (other == x) { /* (x * one_plus) * 0.5, or / 2 */
        last = pare_fuse_only_use(f, mul->out[0]);
        return last && pare_fuse_scaled(last, &left, &factor) && fabs(factor - 0.5) < 1e-4 ? last
                                                                                           : NULL;
    }
    if (pare_fuse_is(other, 0.5)) { /* (0.5 * one_plus) * x */
        last = pare_fuse_next(f, mul->out[0], "Mul");
        return last && pare_fuse_other(last, mul->out[0]) == x ? last : NULL;
    }
    const pare_node *half = other->producer; /* (0.5 * x) * one_plus */
    return half && !other->data && pare_fuse_scaled(half, &scaled, &factor) && scaled == x &&
                   fabs(factor - 0.5) < 1e-4
               ? mul
               : NULL;
}

/* x * x * x, by Pow or two Muls, of this x? */
static bool is_cube(const pare_value *v, const pare_value *x)
{
    const pare_node *n = v->data ? NULL : v->producer;
    if (!n || n->in_count != 2) return false;
    if (pare_node_is(n, "Pow")) return n->in[0] == x && pare_fuse_is(n->in[1], 3);
    if (!pare_node_is(n, "Mul")) return false;
    const pare_value *square = pare_fuse_other(n, x);
    const pare_node *m = square && !square->data ? square->producer : NULL;
    if (!m) return false;
    return (pare_node_is(m, "Mul") && m->in[0] == x && m->in[1] == x) ||
           (pare_node_is(m, "Pow") && m->in[0] == x && pare_fuse_is(m->in[1], 2));
}

/* The x of sqrt(2 / pi) * (x + 0.044715 * x^3), or NULL. */
static pare_value *tanh_argument(const pare_node *tanh)
{
    pare_value *sum, *cube;
    double factor;
    const pare_node *outer = tanh->in[0]->data ? NULL : tanh->in[0]->producer;
    if (!outer || !pare_fuse_scaled(outer, &sum, &factor) || fabs(factor - 0.7978845608) > 4e-4)
        return NULL;
    const pare_node *add = sum->producer;
    if (!add || !pare_node_is(add, "Add")) return NULL;
    for (int i = 0; i < 2; i++) {
        const pare_node *term = add->in[i]->data ? NULL : add->in[i]->producer;
        if (term && pare_fuse_scaled(term, &cube, &factor) && fabs(factor - 0.044715) < 5e-5 &&
            is_cube(cube, add->in[1 - i]))
            return add->in[1 - i];
    }
    return NULL;
}

pare_status pare_fuse_gelu(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_value *x = NULL;
    double factor;
    bool erf = pare_node_is(node, "Erf");
    if (erf) {
        const pare_node *scale = node->in[0]->data ? NULL : node->in[0]->producer;
        if (!scale || !pare_fuse_scaled(scale, &x, &factor) || fabs(factor - 0.7071067812) > 4e-4)
            return PARE_OK;
    } else if (pare_node_is(node, "Tanh")) {
        x = tanh_argument(node);
    }
    if (!x) return PARE_OK;
    pare_node *add = pare_fuse_next(f, node->out[0], "Add"), *fresh;
    if (!add || !pare_fuse_is(pare_fuse_other(add, node->out[0]), 1)) return PARE_OK;
    pare_node *last = product(f, add->out[0], x);
    if (!last || !pare_shape_equal(&last->out[0]->shape, &x->shape)) return PARE_OK;
    PARE_TRY(pare_fuse_replace(last, "Gelu", "", &x, 1, &fresh));
    *changed = true;
    return erf ? PARE_OK : pare_node_set_string(fresh, "approximate", "tanh");
}

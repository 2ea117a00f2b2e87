/* SPDX-License-Identifier: Apache-2.0 */
/* Levels, gradient rule and its shapes; FakeQuantize's own shape rule is beside QuantizeLinear's.
 */
#include "runtime/ops/fake_quantize.h"
#include "runtime/ops/grad.h"

bool pare_fake_levels(const pare_node *node, pare_dtype zero, pare_levels *out)
{
    pare_levels l;
    switch (zero ? zero : (pare_dtype)pare_node_int(node, "to", PARE_u8)) {
    case PARE_s8: l = (pare_levels){-128, 127}; break;
    case PARE_u8: l = (pare_levels){0, 255}; break;
    case PARE_s16: l = (pare_levels){-32768, 32767}; break;
    case PARE_u16: l = (pare_levels){0, 65535}; break;
    default: return false;
    }
    out->low = (int)pare_node_int(node, "low", l.low);
    out->high = (int)pare_node_int(node, "high", l.high);
    return true;
}

pare_status pare_grad_fake_quantize(pare_grad *g, const pare_node *node)
{
    pare_value *x = node->in[0], *scale = node->in[1];
    pare_value *in[] = {pare_grad_of(g, node->out[0]), x, scale, pare_node_in(node, 2)};
    const int outputs = pare_grad_wants(g, scale) ? 2 : 1;
    pare_node *made = pare_grad_begin(g, "FakeQuantizeGrad", in, in[3] ? 4 : 3, outputs);
    pare_grad_attrs(g, made, node);
    pare_grad_end(g, made);
    if (g->status != PARE_OK) return g->status;
    pare_grad_give(g, x, made->out[0]);
    if (outputs == 2) pare_grad_give(g, scale, made->out[1]);
    return g->status;
}

pare_status pare_infer_fake_quantize_grad(pare_node *node)
{
    pare_value *x, *scale;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &x));
    PARE_TRY(pare_infer_need(node, 2, &scale));
    PARE_TRY(pare_infer_same_type(node, 0, 1));
    PARE_TRY(pare_infer_same_type(node, 1, 2));
    pare_infer_out(node, 0, x->dtype, &x->shape);
    pare_infer_out(node, 1, x->dtype, &scale->shape);
    return PARE_OK;
}

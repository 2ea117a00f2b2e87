/* SPDX-License-Identifier: Apache-2.0 */
/* Cast, CastLike: type of the output, gradient. */
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

#include <ctype.h>
#include <string.h>

/* Cast (1): `to` is the type's name; (6): its number. */
pare_status pare_upgrade_cast(pare_node *node, int64_t version)
{
    const pare_attr *to = pare_node_attr(node, "to");
    char name[16] = "";
    if (version >= 6 || !to || to->kind != PARE_ATTR_STRING) return PARE_OK;
    for (size_t i = 0; i < to->s.size && i + 1 < sizeof name; i++)
        name[i] = (char)tolower(((const unsigned char *)to->s.data)[i]);
    pare_dtype dtype = pare_type_find(name);
    if (!dtype)
        return PARE_FAIL_NODE(node, INPUT, "attribute 'to' names no type: '%s'",
                              pare_node_string(node, "to", ""));
    PARE_TRY(pare_node_set_int(node, "to", (int64_t)dtype));
    return pare_upgrade_opset(node, 6);
}

/* Cast, CastLike (24): how floats become FLOAT8E8M0. */
static pare_status check_round_mode(const pare_node *node)
{
    const char *mode = pare_node_string(node, "round_mode", "up");
    if (!strcmp(mode, "up") || !strcmp(mode, "down") || !strcmp(mode, "nearest")) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "round_mode is '%s', it must be up, down or nearest", mode);
}

pare_status pare_infer_cast(pare_node *node)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(check_round_mode(node));
    int64_t to = pare_node_int(node, "to", 0);
    if (to <= 0 || to >= PARE_DTYPE_COUNT)
        return PARE_FAIL_NODE(node, INPUT, "attribute 'to' must name a type");
    pare_infer_out(node, 0, (pare_dtype)to, &x->shape);
    return PARE_OK;
}

pare_status pare_infer_cast_like(pare_node *node)
{
    pare_value *x, *like;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_need(node, 1, &like));
    PARE_TRY(check_round_mode(node));
    pare_infer_out(node, 0, like->dtype, &x->shape);
    return PARE_OK;
}

pare_status pare_grad_cast(pare_grad *g, const pare_node *node)
{
    pare_node *made =
        pare_grad_begin(g, "Cast", (pare_value *[]){pare_grad_of(g, node->out[0])}, 1, 1);
    pare_grad_int(g, made, "to", (int64_t)node->in[0]->dtype);
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

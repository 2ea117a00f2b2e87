/* SPDX-License-Identifier: Apache-2.0 */
/* A depthwise convolution and the pointwise one that alone reads it become one
   FusedDepthwisePointwise, where a GPU's kernel takes them and the model of time says that it is
   faster (depthwise_pointwise.h): what the first makes is never in memory. */
#include "runtime/ops/depthwise_pointwise.h"
#include "runtime/passes/optimize/fuse.h"
#include "runtime/passes/passes.h"

#include <stdio.h>
#include <string.h>

/* A node that cannot be read is another's to refuse: the message is not kept. */
static bool kernel_takes(pare_fuse *f, const pare_node *depthwise, const pare_node *pointwise)
{
    pare_view in[2][5], out[2];
    pare_prep prep[2];
    pare_depthwise_pointwise two;
    if (!pare_fuse_prep(f, depthwise, in[0], &out[0], &prep[0]) ||
        !pare_fuse_prep(f, pointwise, in[1], &out[1], &prep[1]))
        return false;
    const bool read = pare_depthwise_pointwise_set(&two, &prep[0], &prep[1]) == PARE_OK;
    if (!read) pare_ctx_clear(prep[0].ctx);
    return read && pare_depthwise_pointwise_fits(&two) &&
           pare_depthwise_pointwise_pays(&two, two.d.int8);
}

static bool is_conv(const pare_node *n)
{
    return n &&
           (pare_node_is(n, "Conv") ||
            (!strcmp(n->op_type, "FusedConv") && !strcmp(n->domain, PARE_DOMAIN))) &&
           n->in_count >= 2 && n->in[0] && n->in[0]->shape.rank == 4;
}

/* The node's attributes, with a prefix. */
static pare_status attributes_add(pare_node *to, const pare_node *from)
{
    char name[64];
    for (int i = 0; i < from->attr_count; i++) {
        pare_attr attr = from->attr[i];
        snprintf(name, sizeof name, PARE_DEPTHWISE_PREFIX "%s", attr.name);
        attr.name = pare_arena_strdup(&to->graph->model->arena, name);
        if (!attr.name) return PARE_MEMORY;
        PARE_TRY(pare_node_set_attr(to, &attr));
    }
    return PARE_OK;
}

static pare_status depthwise_join(pare_fuse *f, pare_node *node, bool *changed)
{
    pare_node *made;
    pare_value *x = node->in_count ? node->in[0] : NULL;
    pare_node *first = x ? x->producer : NULL;
    if (!is_conv(node) || !is_conv(first) || pare_fuse_only_use(f, x) != node ||
        !kernel_takes(f, first, node))
        return PARE_OK;
    const pare_node depthwise = *first, pointwise = *node; /* attributes are in the arena */
    pare_value *in[PARE_DEPTHWISE_END] = {pare_node_in(first, 0), pare_node_in(node, 1),
                                          pare_node_in(node, 2),  pare_node_in(node, 3),
                                          pare_node_in(node, 4),  pare_node_in(first, 1),
                                          pare_node_in(first, 2), pare_node_in(first, 4)};
    PARE_TRY(pare_fuse_replace(node, "FusedDepthwisePointwise", PARE_DOMAIN, in, PARE_DEPTHWISE_END,
                               &made));
    for (int i = 0; i < pointwise.attr_count; i++)
        PARE_TRY(pare_node_set_attr(made, &pointwise.attr[i]));
    *changed = true;
    return attributes_add(made, &depthwise);
}

pare_status pare_pass_fuse_depthwise(pare_model *model, const char *const *keep, int keep_count)
{
    static const pare_fuse_fn rule[] = {depthwise_join};
    const pare_fuse f = {.keep = keep, .keep_count = keep_count};
    bool changed = false;
    return pare_fuse_run(model->graph, &f, rule, 1, &changed);
}

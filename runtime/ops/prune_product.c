/* SPDX-License-Identifier: Apache-2.0 */
/* The prune column of products: convolutions and matrix products. A weight makes the channels of
   the output along one axis and reads those of the input along another. */
#include "runtime/ops/prune_bind.h"

static const char slides[] = "slides its window over it";

/* The parts of a convolution. A transposed one has its input channels on the weight's axis 0. */
typedef struct conv_parts {
    const pare_value *x, *w, *b, *y;
    int64_t group, in, out; /* input and output channels in each group */
    bool transposed, constant;
} conv_parts;

static conv_parts conv_read(const pare_node *node, const pare_prune_units *units, bool transposed)
{
    conv_parts c = {.x = node->in[0], .w = node->in[1], .b = pare_node_in(node, 2)};
    c.y = node->out[0];
    c.group = pare_node_int(node, "group", 1);
    c.in = c.x->shape.dim[1] / c.group;
    c.out = c.y->shape.dim[1] / c.group;
    c.transposed = transposed;
    c.constant = units->constant(units->user, c.w);
    return c;
}

/* The weight's channels on axis 1, those of all groups one after the other. */
static pare_axis_span grouped_span(const conv_parts *c)
{
    int64_t n = c->w->shape.dim[1] * c->group;
    return (pare_axis_span){c->w, 1, c->group, 0, n, 1, n};
}

static pare_status conv_work(const pare_node *node, const pare_prune_units *units,
                             const conv_parts *c)
{
    const pare_value *over = c->transposed ? c->x : c->y;
    pare_axis_span axis[] = {pare_axis_all(c->w, 0), grouped_span(c)};
    double factor = (double)over->shape.dim[0] / (double)c->group;
    bool depthwise = c->in == 1 && c->group > 1;
    if (depthwise) axis[1] = pare_axis_all(c->w, 1), factor *= (double)c->group;
    for (int i = 2; i < over->shape.rank; i++)
        factor *= (double)over->shape.dim[i] * (double)c->w->shape.dim[i];
    return units->work(units->user, node, factor, axis, 2);
}

/* Input channel g with all that it alone makes. */
static pare_status bind_depthwise(const pare_node *node, const pare_prune_units *units,
                                  const conv_parts *c)
{
    pare_axis_span x = pare_axis_all(c->x, 1), y = pare_axis_all(c->y, 1);
    y.inner = c->out;
    y.count = c->group;
    PARE_TRY(units->bind(units->user, node, &x, &y));
    if (!c->transposed) return pare_bind_axes(units, node, c->w, 0, c->y, 1);
    PARE_TRY(pare_bind_axes(units, node, c->w, 0, c->x, 1));
    return pare_block_axis(units, node, c->w, 1, "makes equally many channels of each group");
}

/* Units of equal place in their group fall together. */
static pare_status tie_groups(const pare_node *node, const pare_prune_units *units,
                              const pare_value *value, int64_t in_group)
{
    pare_axis_span span = pare_axis_all(value, 1);
    span.count = in_group;
    return units->bind(units->user, node, &span, &span);
}

/* Several channels a group: either any of them, equally many of each group, or, where the graph
   cannot say so (its groups are joined with other channels), the same places in all groups. */
static pare_status bind_grouped(const pare_node *node, const pare_prune_units *units,
                                const conv_parts *c)
{
    const pare_value *plain = c->transposed ? c->x : c->y, *other = c->transposed ? c->y : c->x;
    pare_axis_span w = grouped_span(c), o = pare_axis_all(other, 1);
    PARE_TRY(pare_bind_axes(units, node, c->w, 0, plain, 1));
    PARE_TRY(units->bind(units->user, node, &w, &o));
    if (!c->constant)
        return pare_block_axis(units, node, c->x, 1, "no constant weight reads its groups");
    PARE_TRY(units->reads(units->user, node, c->w, !c->transposed, c->transposed ? 1 : c->group));
    int way = units->choose(units->user, node, 0, 2);
    if (way < 0) return PARE_OK;
    if (way == 0) {
        PARE_TRY(units->even(units->user, node, c->x, 1, c->group));
        return units->even(units->user, node, c->y, 1, c->group);
    }
    PARE_TRY(tie_groups(node, units, c->x, c->in));
    return tie_groups(node, units, c->y, c->out);
}

/* Conv (1 .. 22): W [M, C / group, ...]. ConvTranspose (1 .. 22): W [C, M / group, ...]. */
static pare_status bind_conv(const pare_node *node, const pare_prune_units *units, bool transposed)
{
    conv_parts c = conv_read(node, units, transposed);
    PARE_TRY(conv_work(node, units, &c));
    PARE_TRY(pare_bind_axes(units, node, c.x, 0, c.y, 0));
    PARE_TRY(pare_block_from(units, node, c.x, 2, slides));
    PARE_TRY(pare_block_from(units, node, c.y, 2, slides));
    PARE_TRY(pare_block_from(units, node, c.w, 2, "is as wide as its window"));
    if (c.b) PARE_TRY(pare_bind_axes(units, node, c.b, 0, c.y, 1));
    if (c.group > 1 && c.in == 1) return bind_depthwise(node, units, &c);
    if (c.group > 1) return bind_grouped(node, units, &c);
    PARE_TRY(pare_bind_axes(units, node, c.w, transposed, c.y, 1));
    return pare_bind_summed(units, node, c.x, 1, c.w, !transposed);
}

pare_status pare_prune_bind_conv(const pare_node *node, const pare_prune_units *units)
{
    return bind_conv(node, units, false);
}

pare_status pare_prune_bind_conv_transpose(const pare_node *node, const pare_prune_units *units)
{
    return bind_conv(node, units, true);
}

/* A group of one input channel leaves with it. */
pare_status pare_prune_cut_conv(const pare_prune_cut *cut, pare_node *node)
{
    const pare_value *x = cut->before->in[0];
    int64_t group = pare_node_int(node, "group", 1);
    if (group == 1 || group != x->shape.dim[1] || !pare_cut_changed(cut, x, 1)) return PARE_OK;
    return pare_node_set_int(node, "group", pare_cut_kept(cut, x, 1));
}

/* Gemm (7 .. 13): Y [M, N] = alpha * A' * B' + beta * C. */
pare_status pare_prune_bind_gemm(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *a = node->in[0], *b = node->in[1], *c = pare_node_in(node, 2);
    const pare_value *y = node->out[0];
    int summed_a = !pare_node_int(node, "transA", 0), summed_b = !!pare_node_int(node, "transB", 0);
    pare_axis_span axis[] = {pare_axis_all(y, 0), pare_axis_all(y, 1), pare_axis_all(a, summed_a)};
    PARE_TRY(units->work(units->user, node, 1, axis, 3));
    PARE_TRY(pare_bind_axes(units, node, a, !summed_a, y, 0));
    PARE_TRY(pare_bind_axes(units, node, b, !summed_b, y, 1));
    if (c) PARE_TRY(pare_bind_broadcast(units, node, c, y));
    return pare_bind_summed(units, node, a, summed_a, b, summed_b);
}

/* MatMul (1 .. 13), numpy's rules: leading axes broadcast, vectors have no row or column axis. */
pare_status pare_prune_bind_matmul(const pare_node *node, const pare_prune_units *units)
{
    const pare_value *a = node->in[0], *b = node->in[1], *y = node->out[0];
    int ra = a->shape.rank, rb = b->shape.rank, n = y->shape.rank;
    int columns = rb > 1, rows = ra > 1, leading = n - rows - columns;
    int summed_a = ra - 1, summed_b = rb > 1 ? rb - 2 : 0;
    int leading_a = ra > 2 ? ra - 2 : 0, leading_b = rb > 2 ? rb - 2 : 0;
    pare_axis_span axis[PARE_MAX_RANK + 1];
    for (int i = 0; i < n; i++) axis[i] = pare_axis_all(y, i);
    axis[n] = pare_axis_all(a, summed_a);
    PARE_TRY(units->work(units->user, node, 1, axis, n + 1));
    PARE_TRY(pare_bind_range(units, node, a, 0, leading_a, y, leading - leading_a));
    PARE_TRY(pare_bind_range(units, node, b, 0, leading_b, y, leading - leading_b));
    if (rows) PARE_TRY(pare_bind_axes(units, node, a, ra - 2, y, leading));
    if (columns) PARE_TRY(pare_bind_axes(units, node, b, rb - 1, y, n - 1));
    return pare_bind_summed(units, node, a, summed_a, b, summed_b);
}

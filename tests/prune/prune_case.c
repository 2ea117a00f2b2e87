/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/prune/prune_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static float number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1.0f;
}

pare_value *prune_weight(graph_case *g, const char *name, int rank, const int64_t *dims)
{
    int64_t count = 1;
    uint32_t state = 17;
    for (const char *c = name; *c; c++) state = state * 31u + (uint32_t)*c;
    for (int i = 0; i < rank; i++) count *= dims[i];
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) data[i] = number(&state);
    pare_value *v = graph_floats(g, name, rank, dims, data);
    free(data);
    return v;
}

pare_node *prune_conv(graph_case *g, const char *in, const char *out, int64_t c, int64_t m,
                      int64_t k, int64_t group)
{
    char weight[64], inputs[128];
    const int64_t kernel[] = {k, k}, pads[] = {k / 2, k / 2, k / 2, k / 2};
    snprintf(weight, sizeof weight, "w_%s", out);
    snprintf(inputs, sizeof inputs, "%s %s", in, weight);
    PRUNE_WEIGHT(g, weight, m, c / group, k, k);
    pare_node *node = graph_node(g, "Conv", inputs, out);
    assert_int_equal(pare_node_set_ints(node, "kernel_shape", kernel, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "pads", pads, 4), PARE_OK);
    assert_int_equal(pare_node_set_int(node, "group", group), PARE_OK);
    return node;
}

pare_groups *prune_groups(graph_case *g, const pare_groups_options *options)
{
    pare_groups *groups;
    if (pare_prune_prepare(&g->ctx, g->model) != PARE_OK ||
        pare_groups_new(&g->ctx, &groups, g->model, options) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    return groups;
}

static int slot_of(const graph_case *g, const pare_groups *groups, const char *value, int axis)
{
    const pare_value *v = graph_value(g, value);
    assert_non_null(v);
    int slot = -1;
    for (int64_t parts = 1; slot < 0 && parts < 16; parts++)
        slot = pare_groups_axis(groups, v, axis, parts);
    if (slot < 0) fail_msg("'%s' has no slot on axis %d", value, axis);
    return slot;
}

int prune_coupled(const graph_case *g, const pare_groups *groups, const char *value, int axis,
                  int64_t channel)
{
    return pare_groups_coupled(groups, slot_of(g, groups, value, axis), channel);
}

const char *prune_why(const graph_case *g, const pare_groups *groups, const char *value, int axis,
                      int64_t channel)
{
    const pare_block *block = pare_groups_why(groups, slot_of(g, groups, value, axis), channel);
    return block ? block->why : "";
}

void prune_take(const graph_case *g, pare_prune_plan *r, const char *value, int axis, int count,
                const int64_t *sets)
{
    for (int i = 0; i < count; i++)
        assert_true(pare_prune_plan_add(r, prune_coupled(g, r->groups, value, axis, sets[i]), 1));
}

static float *run(graph_case *g, pare_model *model, int rank, const int64_t *dims, int64_t outputs)
{
    graph_case other = {.model = model};
    int64_t count = 1;
    uint32_t state = 5;
    pare_ctx_init(&other.ctx);
    for (int i = 0; i < rank; i++) count *= dims[i];
    float *x = malloc((size_t)count * sizeof *x), *y = malloc((size_t)outputs * sizeof *y);
    assert_true(x && y);
    for (int64_t i = 0; i < count; i++) x[i] = number(&state);
    graph_run(&other, rank, dims, x, y, outputs);
    free(x);
    (void)g;
    return y;
}

pare_model *prune_compare(graph_case *g, const pare_prune_plan *r, int rank, const int64_t *dims,
                          int64_t outputs)
{
    pare_model *smaller, *masked;
    if (pare_prune_remove(&g->ctx, &smaller, r) != PARE_OK ||
        pare_prune_masked(&g->ctx, &masked, r) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    float *dense = run(g, g->model, rank, dims, outputs), changed = 0;
    float *a = run(g, masked, rank, dims, outputs), *b = run(g, smaller, rank, dims, outputs);
    for (int64_t i = 0; i < outputs; i++) {
        assert_float_equal(b[i], a[i], 1e-5f * (1 + fabsf(a[i])));
        changed = fmaxf(changed, fabsf(dense[i] - a[i]));
    }
    assert_true(changed > 1e-3f);
    free(dense);
    free(a);
    free(b);
    pare_model_free(masked);
    return smaller;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What upgrade rules share: attributes become constant inputs, nodes are put before and after. */
#include "runtime/ops/infer.h"

const char *pare_upgrade_name(pare_node *node, const char *suffix)
{
    const char *base = node->name;
    for (int i = node->out_count - 1; i >= 0; i--)
        if (node->out[i]) base = node->out[i]->name;
    const char *name = pare_arena_printf(&node->graph->model->arena, "%s_%s", base, suffix);
    return name ? pare_graph_fresh_name(node->graph, name) : NULL;
}

pare_status pare_upgrade_constant(pare_node *node, int i, const char *suffix, pare_dtype dtype,
                                  int rank, const int64_t *dims, const void *data)
{
    const char *name = pare_upgrade_name(node, suffix);
    pare_value *value;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_init_new(node->graph, &value, name, dtype, rank, dims, data));
    return pare_node_set_in(node, i, value);
}

pare_status pare_upgrade_ints(pare_node *node, const char *attr, int i)
{
    int count;
    const int64_t *ints = pare_node_ints(node, attr, &count);
    if (!pare_node_attr(node, attr)) return PARE_OK;
    PARE_TRY(pare_upgrade_constant(node, i, attr, PARE_s64, 1, &(int64_t){count}, ints));
    pare_node_remove_attr(node, attr);
    return PARE_OK;
}

pare_status pare_upgrade_int(pare_node *node, const char *attr, int i)
{
    if (!pare_node_attr(node, attr)) return PARE_OK;
    int64_t value = pare_node_int(node, attr, 0);
    PARE_TRY(pare_upgrade_constant(node, i, attr, PARE_s64, 0, &value, &value));
    pare_node_remove_attr(node, attr);
    return PARE_OK;
}

pare_status pare_upgrade_float(pare_node *node, const char *attr, int i, pare_dtype dtype)
{
    if (!pare_node_attr(node, attr)) return PARE_OK;
    float f = pare_node_float(node, attr, 0);
    uint8_t element[8];
    if (dtype == PARE_NOTYPE) dtype = PARE_f32;
    if (!pare_type(dtype)->from_f32_ref)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "attribute '%s' cannot become a %s", attr,
                              pare_type(dtype)->name);
    pare_type(dtype)->from_f32_ref(element, f);
    PARE_TRY(pare_upgrade_constant(node, i, attr, dtype, 0, &(int64_t){0}, element));
    pare_node_remove_attr(node, attr);
    return PARE_OK;
}

pare_status pare_upgrade_opset(pare_node *node, int64_t opset)
{
    pare_model *model = node->graph->model;
    return pare_model_opset(model, "") >= opset ? PARE_OK : pare_model_set_opset(model, "", opset);
}

/* A node reading first and more, making made, at this position. */
static pare_status node_beside(pare_node *node, int at, const char *op_type, pare_value *first,
                               pare_value *const *more, int more_count, pare_value *made,
                               pare_node **out)
{
    enum { MOST = 8 };
    pare_value *in[MOST] = {first};
    if (more_count >= MOST) return PARE_FAIL_NODE(node, INPUT, "%s has too many inputs", op_type);
    for (int i = 0; i < more_count; i++) in[i + 1] = more[i];
    return pare_node_new(node->graph, out, at, op_type, "", made->name, in, more_count + 1, &made,
                         1);
}

pare_status pare_upgrade_before(pare_node *node, int i, const char *op_type,
                                pare_value *const *more, int more_count, pare_node **out)
{
    const char *name = pare_upgrade_name(node, op_type);
    pare_value *made;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(node->graph, &made, name));
    PARE_TRY(node_beside(node, pare_node_index(node), op_type, node->in[i], more, more_count, made,
                         out));
    return pare_node_set_in(node, i, made);
}

pare_status pare_upgrade_after(pare_node *node, int i, const char *op_type, pare_value *const *more,
                               int more_count, pare_node **out)
{
    const char *name = pare_upgrade_name(node, op_type);
    pare_value *made, *final = node->out[i];
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(node->graph, &made, name));
    pare_node_set_out(node, i, made);
    return node_beside(node, pare_node_index(node) + 1, op_type, made, more, more_count, final,
                       out);
}

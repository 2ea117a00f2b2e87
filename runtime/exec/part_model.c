/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/part_model.h"

#include <string.h>

static pare_status copy_tensor(pare_model *to, const pare_tensor *from, const pare_tensor **out)
{
    if (!from->mapped || from->data != from->read_data) {
        pare_tensor *copy;
        PARE_TRY(pare_tensor_new(to, &copy, from->name ? from->name : "", from->dtype, from->rank,
                                 from->dims, from->data));
        *out = copy;
        return PARE_OK;
    }
    pare_tensor *same = pare_arena_memdup(&to->arena, from, sizeof *from);
    if (!same) return PARE_MEMORY;
    same->dims = pare_arena_memdup(&to->arena, from->dims, (size_t)from->rank * sizeof *from->dims);
    same->name = pare_arena_strdup(&to->arena, from->name ? from->name : "");
    if (!same->dims || !same->name) return PARE_MEMORY;
    same->external = same->meta = (pare_pairs){0};
    *out = same;
    return PARE_OK;
}

pare_status pare_part_value(pare_graph *to, const pare_value *from, pare_value **out)
{
    *out = pare_graph_find_own(to, from->name);
    if (*out) return PARE_OK;
    pare_value *v;
    PARE_TRY(pare_value_new(to, &v, from->name));
    v->dtype = from->dtype;
    v->shape = from->shape;
    memset(v->shape.name, 0, sizeof v->shape.name); /* of the other model's memory */
    v->nhwc = from->nhwc;
    if (from->data && from->dtype == PARE_string)
        return PARE_FAIL(to->model->ctx, UNSUPPORTED,
                         "%s: tensor '%s' holds strings, which a part of a model cannot have",
                         to->model->path, from->name);
    if (from->data) PARE_TRY(copy_tensor(to->model, from->data, &v->data));
    *out = v;
    return PARE_OK;
}

static pare_status copy_attr(pare_node *to, const pare_attr *from)
{
    pare_attr attr = *from;
    if (attr.kind == PARE_ATTR_TENSOR) {
        const pare_tensor *copy;
        PARE_TRY(copy_tensor(to->graph->model, from->tensor, &copy));
        attr.tensor = (pare_tensor *)copy;
    }
    attr.doc = attr.ref = NULL;
    attr.unknown = (pare_bytes){0};
    return pare_node_set_attr(to, &attr);
}

pare_status pare_part_node(pare_graph *to, const pare_node *from, pare_value *const *in,
                           pare_value *const *out)
{
    pare_node *n;
    PARE_TRY(pare_node_new(to, &n, to->node_count, from->op_type, from->domain, from->name, in,
                           from->in_count, out, from->out_count));
    n->opset = from->opset;
    for (int i = 0; i < from->attr_count; i++) PARE_TRY(copy_attr(n, &from->attr[i]));
    return PARE_OK;
}

pare_status pare_part_copy(pare_graph *to, const pare_node *from, pare_arena *arena)
{
    pare_value **in = pare_arena_alloc(arena, (size_t)from->in_count + 1, sizeof *in);
    pare_value **out = pare_arena_alloc(arena, (size_t)from->out_count + 1, sizeof *out);
    if (!in || !out) return PARE_MEMORY;
    for (int i = 0; i < from->in_count; i++)
        if (from->in[i]) PARE_TRY(pare_part_value(to, from->in[i], &in[i]));
    for (int i = 0; i < from->out_count; i++)
        if (from->out[i]) PARE_TRY(pare_part_value(to, from->out[i], &out[i]));
    return pare_part_node(to, from, in, out);
}

pare_status pare_part_ends(pare_graph *to, pare_values *list, pare_value *const *from, int count)
{
    for (int i = 0; i < count; i++) {
        pare_value *v;
        PARE_TRY(pare_part_value(to, from[i], &v));
        if (list == &to->in)
            v->is_input = true;
        else
            v->is_output = true;
        PARE_TRY(pare_values_add(to, list, v));
    }
    return PARE_OK;
}

pare_status pare_part_new(pare_model **out, const pare_model *compiled)
{
    pare_model *m, *file = compiled->borrows;
    PARE_TRY(pare_model_new(compiled->ctx, &m, compiled->path));
    while (file && file->borrows) file = file->borrows;
    m->borrows = file;
    if (file) ++*file->references;
    *out = m;
    for (int i = 0; i < compiled->opset_count; i++)
        PARE_TRY(pare_model_set_opset(m, compiled->opset[i].domain, compiled->opset[i].version));
    return PARE_OK;
}

pare_status pare_part_take(pare_plan *plan, pare_model *part)
{
    const pare_values *in = &part->graph->in;
    plan->input = pare_arena_memdup(&plan->arena, in->item, (size_t)in->count * sizeof *in->item);
    if (in->count && !plan->input) return PARE_MEMORY;
    plan->input_count = in->count;
    pare_model_free(plan->model);
    plan->model = part;
    return PARE_OK;
}

pare_status pare_part_refuse(const pare_plan *plan, const char *into)
{
    const pare_graph *late = plan->dynamic->model->graph;
    if (!late->node_count)
        return PARE_FAIL(plan->ctx, UNSUPPORTED, "%s: cannot be cut into %s", late->model->path,
                         into);
    return PARE_FAIL_NODE(late->node[0], UNSUPPORTED,
                          "is control flow, or its shape is known only when it runs: such a model "
                          "cannot be cut into %s",
                          into);
}

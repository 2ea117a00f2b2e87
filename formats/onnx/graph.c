/* SPDX-License-Identifier: Apache-2.0 */
/* GraphProto to graph. Values are made first (inputs, initializers, all outputs of nodes), then the
   nodes in the file's order, so that a file may list nodes in any order and a subgraph may read
   what a later node makes. A name that nothing defines becomes a value without a producer. */
#include "formats/onnx/inner.h"

#include <stdio.h>
#include <string.h>

/* --- ValueInfoProto --- */

static pare_status read_type(pare_onnx_reader *r, const char *name, const Onnx__TensorType *type,
                             pare_dtype *dtype, pare_shape *shape)
{
    if (type->has_elem_type && (type->elem_type < 0 || type->elem_type >= PARE_DTYPE_COUNT))
        return pare_onnx_problem(r, PARE_UNSUPPORTED,
                                 "tensor '%s': data type %d is unknown, expected 1 to %d of ONNX",
                                 name, type->elem_type, PARE_DTYPE_COUNT - 1);
    *dtype = (pare_dtype)type->elem_type;
    if (!type->shape || type->shape->n_dim > PARE_MAX_RANK) return PARE_OK;
    shape->rank = (int)type->shape->n_dim;
    for (int i = 0; i < shape->rank; i++) {
        const Onnx__Dim *dim = type->shape->dim[i];
        shape->dim[i] = -1;
        if (dim->value_case == ONNX__DIM__VALUE_DIM_VALUE && dim->dim_value >= 0)
            shape->dim[i] = dim->dim_value;
        if (dim->value_case == ONNX__DIM__VALUE_DIM_PARAM && dim->dim_param.len)
            PARE_TRY(pare_onnx_text(r, &shape->name[i], true, dim->dim_param, "dimension's name"));
    }
    return PARE_OK;
}

/* Name, type and shape of an encoded ValueInfoProto; name NULL after a reported problem. */
static pare_status value_info(pare_onnx_reader *r, pare_bytes bytes, const char **name,
                              pare_dtype *dtype, pare_shape *shape)
{
    ProtobufCMessage *message;
    *name = NULL;
    *dtype = PARE_NOTYPE;
    *shape = (pare_shape){.rank = -1};
    PARE_TRY(
        pare_onnx_unpack(r, &message, &onnx__value_info__descriptor, PARE_WIRE_VALUE_INFO, bytes));
    const Onnx__ValueInfo *m = (const Onnx__ValueInfo *)message;
    if (!m->has_name || !m->name.len)
        return pare_onnx_problem(r, PARE_INPUT, "a graph input, output or value_info has no name");
    PARE_TRY(pare_onnx_text(r, name, true, m->name, "tensor name"));
    if (m->type && m->type->tensor_type)
        PARE_TRY(read_type(r, *name, m->type->tensor_type, dtype, shape));
    return PARE_OK;
}

/* Puts what the file says of a value into it, or beside it where something else is there. */
static pare_status mention(pare_onnx_reader *r, pare_graph *g, const pare_values *list, int index,
                           pare_value *v, pare_bytes origin, pare_dtype dtype,
                           const pare_shape *shape, size_t *capacity)
{
    if (v->dtype == PARE_NOTYPE) v->dtype = dtype;
    if (v->shape.rank < 0) v->shape = *shape;
    if (!v->origin.size) v->origin = origin;
    if (v->origin.size == origin.size && !memcmp(v->origin.data, origin.data, origin.size))
        return PARE_OK;
    if (!pare_arena_grow(r->arena, &g->mention, capacity, (size_t)g->mention_count,
                         sizeof *g->mention))
        return PARE_MEMORY;
    g->mention[g->mention_count++] = (pare_mention){list, index, v->name, origin};
    return PARE_OK;
}

static pare_status read_inputs(pare_onnx_reader *r, pare_graph *g, const Onnx__Graph *m)
{
    for (size_t i = 0; i < m->n_input; i++) {
        const char *name;
        pare_dtype dtype;
        pare_shape shape;
        pare_bytes origin = pare_onnx_range(m->input[i]);
        PARE_TRY(value_info(r, origin, &name, &dtype, &shape));
        if (!name) continue;
        if (pare_graph_find_own(g, name)) {
            PARE_TRY(pare_onnx_problem(r, PARE_INPUT, "two graph inputs are called '%s'", name));
            continue;
        }
        pare_value *v;
        PARE_TRY(pare_value_new(g, &v, name));
        v->is_input = true;
        v->dtype = dtype;
        v->shape = shape;
        v->origin = origin;
        PARE_TRY(pare_values_add(g, &g->in, v));
    }
    return PARE_OK;
}

/* --- initializers --- */

static pare_status new_init(pare_onnx_reader *r, pare_graph *g, pare_value **out, const char *name)
{
    *out = pare_graph_find_own(g, name);
    if (*out && (*out)->is_init) {
        *out = NULL;
        return pare_onnx_problem(r, PARE_INPUT, "two initializers are called '%s'", name);
    }
    if (!*out) PARE_TRY(pare_value_new(g, out, name));
    (*out)->is_init = true;
    return PARE_OK;
}

/* As pare_value_set_init, but what an input's ValueInfoProto says stays. */
static void set_content(pare_value *v, const pare_tensor *t)
{
    v->data = t;
    v->dtype = t->dtype;
    v->shape = (pare_shape){.rank = t->rank > PARE_MAX_RANK ? -1 : t->rank};
    for (int i = 0; i < v->shape.rank; i++) v->shape.dim[i] = t->dims[i];
}

static pare_status read_inits(pare_onnx_reader *r, pare_graph *g, const Onnx__Graph *m)
{
    for (size_t i = 0; i < m->n_initializer; i++) {
        const Onnx__Tensor *tm = m->initializer[i];
        const char *name;
        pare_tensor *t;
        pare_value *v;
        PARE_TRY(pare_onnx_text(r, &name, tm->has_name, tm->name, "tensor name"));
        if (!name || !name[0]) {
            PARE_TRY(pare_onnx_problem(r, PARE_INPUT, "initializer %zu has no name", i));
            continue;
        }
        PARE_TRY(new_init(r, g, &v, name));
        if (!v) continue;
        PARE_TRY(pare_onnx_tensor(r, &t, tm));
        if (t) set_content(v, t);
        PARE_TRY(pare_values_add(g, &g->init, v));
    }
    for (int i = 0; i < g->sparse_init_count; i++) {
        pare_tensor *t;
        pare_value *v;
        PARE_TRY(pare_onnx_sparse(r, &t, g->sparse_init[i]));
        if (!t) continue;
        PARE_TRY(new_init(r, g, &v, t->name));
        if (v) set_content(v, t);
    }
    return PARE_OK;
}

/* --- nodes --- */

/* "node 'x' (Op): " into r->where; old receives what was there. */
static void enter_node(pare_onnx_reader *r, const Onnx__Node *m, size_t index,
                       char old[sizeof r->where])
{
    const ProtobufCBinaryData *name = &m->name;
    char number[32];
    memcpy(old, r->where, sizeof r->where);
    if (!name->len && m->n_output) name = &m->output[0];
    snprintf(number, sizeof number, "%zu", index);
    if (name->len)
        snprintf(r->where, sizeof r->where,
                 "node '%.*s' (%.*s): ", (int)(name->len < 120 ? name->len : 120),
                 (const char *)name->data, (int)(m->op_type.len < 60 ? m->op_type.len : 60),
                 (const char *)m->op_type.data);
    else
        snprintf(r->where, sizeof r->where, "node number %s (%.*s): ", number,
                 (int)(m->op_type.len < 60 ? m->op_type.len : 60), (const char *)m->op_type.data);
}

static void leave_node(pare_onnx_reader *r, const char old[sizeof r->where])
{
    memcpy(r->where, old, sizeof r->where);
}

/* The values that nodes of this graph make. */
static pare_status declare_outputs(pare_onnx_reader *r, pare_graph *g, const Onnx__Graph *m)
{
    char old[sizeof r->where];
    for (size_t n = 0; n < m->n_node; n++) {
        enter_node(r, m->node[n], n, old);
        for (size_t i = 0; i < m->node[n]->n_output; i++) {
            const char *name;
            pare_value *v;
            PARE_TRY(pare_onnx_text(r, &name, true, m->node[n]->output[i], "output name"));
            if (!name[0]) continue;
            if (pare_graph_find_own(g, name)) {
                PARE_TRY(pare_onnx_problem(r, PARE_INPUT,
                                           "its output '%s' is defined twice: another node, an "
                                           "input or an initializer has that name; rename one",
                                           name));
                continue;
            }
            PARE_TRY(pare_value_new(g, &v, name));
        }
        leave_node(r, old);
    }
    return PARE_OK;
}

static pare_status read_domain(pare_onnx_reader *r, const char **out, bool has,
                               ProtobufCBinaryData text, unsigned *present)
{
    PARE_TRY(pare_onnx_text(r, out, has, text, "domain"));
    if (*out && !(*out)[0]) *present |= PARE_HAS_DOMAIN;
    if (*out && !strcmp(*out, "ai.onnx")) {
        *present |= PARE_LONG_DOMAIN;
        *out = "";
    }
    if (!*out) *out = "";
    return PARE_OK;
}

/* The values of a node's input or output names; NULL for empty ones. */
static pare_status find_values(pare_onnx_reader *r, pare_graph *g, pare_value ***out, size_t count,
                               const ProtobufCBinaryData *names)
{
    *out = pare_arena_alloc(&r->scratch, count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *name;
        PARE_TRY(pare_onnx_text(r, &name, true, names[i], "tensor name"));
        if (!name[0]) continue;
        (*out)[i] = pare_graph_find(g, name);
        if (!(*out)[i]) PARE_TRY(pare_value_new(g, &(*out)[i], name));
    }
    return PARE_OK;
}

static pare_status read_attrs(pare_onnx_reader *r, pare_node *node, const Onnx__Node *m)
{
    if (m->n_attribute > PARE_ONNX_MANY)
        return pare_onnx_problem(r, PARE_UNSUPPORTED, "it has %zu attributes, expected at most %d",
                                 m->n_attribute, PARE_ONNX_MANY);
    node->attr = pare_arena_alloc(r->arena, m->n_attribute + 1, sizeof *node->attr);
    if (!node->attr) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_attribute; i++) {
        pare_attr *attr = &node->attr[node->attr_count];
        PARE_TRY(pare_onnx_attr(r, node->graph, attr, m->attribute[i]));
        if (!attr->name) continue; /* a reported problem */
        bool twice = pare_node_attr(node, attr->name);
        if (twice)
            PARE_TRY(pare_onnx_problem(r, PARE_INPUT, "attribute '%s' occurs twice", attr->name));
        else
            node->attr_count++;
    }
    return PARE_OK;
}

static pare_status read_node(pare_onnx_reader *r, pare_graph *g, const Onnx__Node *m)
{
    const char *name, *op_type, *domain;
    pare_value **in, **out;
    pare_node *node;
    unsigned present = 0;
    PARE_TRY(pare_onnx_text(r, &name, m->has_name, m->name, "node name"));
    PARE_TRY(pare_onnx_text(r, &op_type, m->has_op_type, m->op_type, "operator name"));
    PARE_TRY(read_domain(r, &domain, m->has_domain, m->domain, &present));
    if (!op_type || !op_type[0])
        PARE_TRY(pare_onnx_problem(r, PARE_INPUT, "it has no op_type; export the model again"));
    if (!strcmp(domain, "pare")) /* its kernels trust attributes that passes make */
        PARE_TRY(pare_onnx_problem(r, PARE_UNSUPPORTED,
                                   "operators of domain 'pare' exist at run time only; name the "
                                   "domain of your own operators otherwise"));
    if (name && !name[0]) present |= PARE_HAS_NAME;
    if (op_type && !op_type[0]) present |= PARE_HAS_OP;
    PARE_TRY(find_values(r, g, &in, m->n_input, m->input));
    PARE_TRY(find_values(r, g, &out, m->n_output, m->output));
    PARE_TRY(pare_node_new(g, &node, g->node_count, op_type ? op_type : "", domain,
                           name ? name : "", in, (int)m->n_input, out, (int)m->n_output));
    node->present = present;
    PARE_TRY(pare_onnx_text(r, &node->overload, m->has_overload, m->overload, "overload"));
    PARE_TRY(pare_onnx_text(r, &node->doc, m->has_doc_string, m->doc_string, "doc_string"));
    PARE_TRY(pare_onnx_pairs(r, &node->meta, m->n_metadata_props, m->metadata_props));
    PARE_TRY(pare_onnx_unknown(r, &node->unknown, &m->base));
    return read_attrs(r, node, m);
}

/* --- what remains of the graph --- */

static pare_status read_list(pare_onnx_reader *r, pare_graph *g, pare_values *list, size_t count,
                             const ProtobufCBinaryData *field, size_t *capacity)
{
    for (size_t i = 0; i < count; i++) {
        const char *name;
        pare_dtype dtype;
        pare_shape shape;
        pare_bytes origin = pare_onnx_range(field[i]);
        PARE_TRY(value_info(r, origin, &name, &dtype, &shape));
        if (!name) continue;
        pare_value *v = pare_graph_find(g, name);
        if (!v) PARE_TRY(pare_value_new(g, &v, name));
        if (list == &g->out) v->is_output = true;
        PARE_TRY(mention(r, g, list, list->count, v, origin, dtype, &shape, capacity));
        PARE_TRY(pare_values_add(g, list, v));
    }
    return PARE_OK;
}

static pare_status read_notes(pare_onnx_reader *r, pare_graph *g, const Onnx__Graph *m)
{
    PARE_TRY(pare_onnx_text(r, &g->name, m->has_name, m->name, "graph name"));
    PARE_TRY(pare_onnx_text(r, &g->doc, m->has_doc_string, m->doc_string, "doc_string"));
    PARE_TRY(pare_onnx_pairs(r, &g->meta, m->n_metadata_props, m->metadata_props));
    PARE_TRY(pare_onnx_unknown(r, &g->unknown, &m->base));
    PARE_TRY(pare_onnx_ranges(r, &g->quantization_annotation, m->n_quantization_annotation,
                              m->quantization_annotation));
    g->quantization_annotation_count = (int)m->n_quantization_annotation;
    PARE_TRY(pare_onnx_ranges(r, &g->sparse_init, m->n_sparse_initializer, m->sparse_initializer));
    g->sparse_init_count = (int)m->n_sparse_initializer;
    return PARE_OK;
}

pare_status pare_onnx_graph(pare_onnx_reader *r, pare_graph *graph, const Onnx__Graph *message)
{
    char old[sizeof r->where];
    size_t capacity = 0;
    PARE_TRY(read_notes(r, graph, message));
    PARE_TRY(read_inputs(r, graph, message));
    PARE_TRY(read_inits(r, graph, message));
    PARE_TRY(declare_outputs(r, graph, message));
    for (size_t n = 0; n < message->n_node; n++) {
        enter_node(r, message->node[n], n, old);
        PARE_TRY(read_node(r, graph, message->node[n]));
        leave_node(r, old);
    }
    PARE_TRY(read_list(r, graph, &graph->out, message->n_output, message->output, &capacity));
    return read_list(r, graph, &graph->info, message->n_value_info, message->value_info, &capacity);
}

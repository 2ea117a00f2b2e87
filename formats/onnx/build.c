/* SPDX-License-Identifier: Apache-2.0 */
/* Graph to protobuf-c's messages. Payloads and everything kept as encoded are not copied: 16 bytes
   that say where they are stand for them (wire.h). */
#include "formats/onnx/inner.h"

#include <inttypes.h>
#include <string.h>

#define NEW(b, list, count)                                                                        \
    (((list) = pare_arena_alloc(&(b)->scratch, (count) + 1, sizeof *(list))) != NULL)

/* --- small parts --- */

ProtobufCBinaryData pare_onnx_put_text(const char *text)
{
    return (ProtobufCBinaryData){text ? strlen(text) : 0, (uint8_t *)(text ? text : "")};
}

static ProtobufCBinaryData put_bytes(pare_bytes bytes)
{
    return (ProtobufCBinaryData){bytes.size, (uint8_t *)bytes.data};
}

/* 16 bytes that stand for a range until it is spliced in. */
static pare_status stand_in(pare_onnx_builder *b, ProtobufCBinaryData *out, pare_bytes range)
{
    *out =
        (ProtobufCBinaryData){sizeof range, pare_arena_memdup(&b->scratch, &range, sizeof range)};
    return out->data ? PARE_OK : PARE_MEMORY;
}

pare_status pare_onnx_stand_ins(pare_onnx_builder *b, size_t *out_count, ProtobufCBinaryData **out,
                                const pare_bytes *range, int count)
{
    *out_count = (size_t)count;
    if (!NEW(b, *out, (size_t)count)) return PARE_MEMORY;
    for (int i = 0; i < count; i++) PARE_TRY(stand_in(b, &(*out)[i], range[i]));
    return PARE_OK;
}

pare_status pare_onnx_put_unknown(pare_onnx_builder *b, ProtobufCMessage *message,
                                  pare_bytes unknown)
{
    if (!unknown.size) return PARE_OK;
    const uint8_t *at = unknown.data, *end = at + unknown.size;
    pare_wire_field f;
    unsigned count = 0;
    for (; at < end; count++)
        if (pare_wire_next(&at, end, &f))
            return PARE_FAIL(b->ctx, INPUT, "%s: kept fields are not valid protobuf",
                             b->model->path);
    if (!NEW(b, message->unknown_fields, count)) return PARE_MEMORY;
    at = unknown.data;
    while (message->n_unknown_fields < count && !pare_wire_next(&at, end, &f))
        message->unknown_fields[message->n_unknown_fields++] = (ProtobufCMessageUnknownField){
            f.number, (ProtobufCWireType)f.type, (size_t)(at - f.value), (uint8_t *)f.value};
    return PARE_OK;
}

pare_status pare_onnx_put_pairs(pare_onnx_builder *b, size_t *out_count, Onnx__Pair ***out,
                                const pare_pairs *pairs)
{
    Onnx__Pair *list;
    *out_count = (size_t)pairs->count;
    if (!NEW(b, list, (size_t)pairs->count) || !NEW(b, *out, (size_t)pairs->count))
        return PARE_MEMORY;
    for (int i = 0; i < pairs->count; i++) {
        const pare_pair *p = &pairs->item[i];
        onnx__pair__init(&list[i]);
        list[i].has_key = p->key != NULL;
        list[i].key = pare_onnx_put_text(p->key);
        list[i].has_value = p->value != NULL;
        list[i].value = pare_onnx_put_text(p->value);
        PARE_TRY(pare_onnx_put_unknown(b, &list[i].base, p->unknown));
        (*out)[i] = &list[i];
    }
    return PARE_OK;
}

/* --- attributes --- */

static pare_status build_graph(pare_onnx_builder *b, Onnx__Graph **out, const pare_graph *g);

static pare_status put_strings(pare_onnx_builder *b, Onnx__Attribute *m, const pare_attr *attr)
{
    if (!NEW(b, m->strings, (size_t)attr->count)) return PARE_MEMORY;
    m->n_strings = (size_t)attr->count;
    for (int i = 0; i < attr->count; i++) m->strings[i] = put_bytes(attr->strings[i]);
    return PARE_OK;
}

static pare_status put_tensors(pare_onnx_builder *b, Onnx__Attribute *m, const pare_attr *attr)
{
    if (!NEW(b, m->tensors, (size_t)attr->count)) return PARE_MEMORY;
    m->n_tensors = (size_t)attr->count;
    for (int i = 0; i < attr->count; i++)
        PARE_TRY(pare_onnx_build_tensor(b, &m->tensors[i], attr->tensors[i], attr->tensors[i]->name,
                                        false));
    return PARE_OK;
}

static pare_status put_graphs(pare_onnx_builder *b, Onnx__Attribute *m, const pare_attr *attr)
{
    if (!NEW(b, m->graphs, (size_t)attr->count)) return PARE_MEMORY;
    m->n_graphs = (size_t)attr->count;
    for (int i = 0; i < attr->count; i++) PARE_TRY(build_graph(b, &m->graphs[i], attr->graphs[i]));
    return PARE_OK;
}

static pare_status put_content(pare_onnx_builder *b, Onnx__Attribute *m, const pare_attr *attr)
{
    bool empty = attr->present & PARE_NO_VALUE;
    switch (attr->kind) {
    case PARE_ATTR_FLOAT:
        m->has_f = !empty || attr->f != 0;
        m->f = attr->f;
        return PARE_OK;
    case PARE_ATTR_INT:
        m->has_i = !empty || attr->i != 0;
        m->i = attr->i;
        return PARE_OK;
    case PARE_ATTR_STRING:
        m->has_s = !empty || attr->s.size != 0;
        m->s = put_bytes(attr->s);
        return PARE_OK;
    case PARE_ATTR_TENSOR:
        return pare_onnx_build_tensor(b, &m->t, attr->tensor, attr->tensor->name, false);
    case PARE_ATTR_GRAPH: return build_graph(b, &m->g, attr->graph);
    case PARE_ATTR_FLOATS:
        m->n_floats = (size_t)attr->count;
        m->floats = (float *)attr->floats;
        return PARE_OK;
    case PARE_ATTR_INTS:
        m->n_ints = (size_t)attr->count;
        m->ints = (int64_t *)attr->ints;
        return PARE_OK;
    case PARE_ATTR_STRINGS: return put_strings(b, m, attr);
    case PARE_ATTR_TENSORS: return put_tensors(b, m, attr);
    case PARE_ATTR_GRAPHS: return put_graphs(b, m, attr);
    case PARE_ATTR_SPARSE_TENSOR:
        m->has_sparse_tensor = 1;
        return stand_in(b, &m->sparse_tensor, attr->raw[0]);
    case PARE_ATTR_SPARSE_TENSORS:
        return pare_onnx_stand_ins(b, &m->n_sparse_tensors, &m->sparse_tensors, attr->raw,
                                   attr->count);
    case PARE_ATTR_TYPE_PROTO: m->has_tp = 1; return stand_in(b, &m->tp, attr->raw[0]);
    default:
        return pare_onnx_stand_ins(b, &m->n_type_protos, &m->type_protos, attr->raw, attr->count);
    }
}

static pare_status build_attr(pare_onnx_builder *b, Onnx__Attribute *m, const pare_attr *attr)
{
    onnx__attribute__init(m);
    m->has_name = 1;
    m->name = pare_onnx_put_text(attr->name);
    m->has_doc_string = attr->doc != NULL;
    m->doc_string = pare_onnx_put_text(attr->doc);
    m->has_ref_attr_name = attr->ref != NULL;
    m->ref_attr_name = pare_onnx_put_text(attr->ref);
    m->has_type = !(attr->present & PARE_NO_TYPE);
    m->type = (int32_t)attr->kind;
    PARE_TRY(pare_onnx_put_unknown(b, &m->base, attr->unknown));
    return attr->ref ? PARE_OK : put_content(b, m, attr);
}

/* --- nodes --- */

static pare_status put_names(pare_onnx_builder *b, size_t *out_count, ProtobufCBinaryData **out,
                             pare_value *const *list, int count)
{
    if (!NEW(b, *out, (size_t)count)) return PARE_MEMORY;
    *out_count = (size_t)count;
    for (int i = 0; i < count; i++) (*out)[i] = pare_onnx_put_text(list[i] ? list[i]->name : "");
    return PARE_OK;
}

static const char *long_domain(const char *domain, unsigned present)
{
    return !domain[0] && present & PARE_LONG_DOMAIN ? "ai.onnx" : domain;
}

static pare_status build_node(pare_onnx_builder *b, Onnx__Node *m, const pare_node *node)
{
    Onnx__Attribute *attr;
    if (!strcmp(node->domain, "pare"))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it exists at run time only and cannot be written");
    if (node->opset)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "it comes from a function that imports another opset (%" PRId64
                              ") than the model and cannot be written as it is; export the model "
                              "without functions",
                              node->opset);
    onnx__node__init(m);
    PARE_TRY(put_names(b, &m->n_input, &m->input, node->in, node->in_count));
    PARE_TRY(put_names(b, &m->n_output, &m->output, node->out, node->out_count));
    m->has_name = node->name[0] || node->present & PARE_HAS_NAME;
    m->name = pare_onnx_put_text(node->name);
    m->has_op_type = node->op_type[0] || node->present & PARE_HAS_OP;
    m->op_type = pare_onnx_put_text(node->op_type);
    m->domain = pare_onnx_put_text(long_domain(node->domain, node->present));
    m->has_domain = m->domain.len || node->present & PARE_HAS_DOMAIN;
    m->has_overload = node->overload != NULL;
    m->overload = pare_onnx_put_text(node->overload);
    m->has_doc_string = node->doc != NULL;
    m->doc_string = pare_onnx_put_text(node->doc);
    PARE_TRY(pare_onnx_put_pairs(b, &m->n_metadata_props, &m->metadata_props, &node->meta));
    PARE_TRY(pare_onnx_put_unknown(b, &m->base, node->unknown));
    m->n_attribute = (size_t)node->attr_count;
    if (!NEW(b, attr, m->n_attribute) || !NEW(b, m->attribute, m->n_attribute)) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_attribute; i++) {
        m->attribute[i] = &attr[i];
        PARE_TRY(build_attr(b, &attr[i], &node->attr[i]));
    }
    return PARE_OK;
}

/* --- graphs --- */

static void make_dims(Onnx__Shape *shape, Onnx__Dim *dim, Onnx__Dim **list, const pare_shape *from)
{
    onnx__shape__init(shape);
    shape->n_dim = (size_t)from->rank;
    shape->dim = list;
    for (int i = 0; i < from->rank; i++) {
        onnx__dim__init(&dim[i]);
        list[i] = &dim[i];
        if (from->dim[i] >= 0) {
            dim[i].value_case = ONNX__DIM__VALUE_DIM_VALUE;
            dim[i].dim_value = from->dim[i];
        } else if (from->name[i]) {
            dim[i].value_case = ONNX__DIM__VALUE_DIM_PARAM;
            dim[i].dim_param = pare_onnx_put_text(from->name[i]);
        }
    }
}

/* A ValueInfoProto from type and shape, encoded into scratch. */
static pare_status encode_info(pare_onnx_builder *b, pare_bytes *out, const pare_value *v)
{
    Onnx__ValueInfo info = ONNX__VALUE_INFO__INIT;
    Onnx__Type type = ONNX__TYPE__INIT;
    Onnx__TensorType tensor = ONNX__TENSOR_TYPE__INIT;
    Onnx__Shape shape;
    Onnx__Dim dim[PARE_MAX_RANK], *list[PARE_MAX_RANK];
    info.has_name = 1;
    info.name = pare_onnx_put_text(v->name);
    if (v->dtype != PARE_NOTYPE) info.type = &type;
    type.tensor_type = &tensor;
    tensor.has_elem_type = 1;
    tensor.elem_type = (int32_t)v->dtype;
    if (v->shape.rank >= 0) {
        make_dims(&shape, dim, list, &v->shape);
        tensor.shape = &shape;
    }
    size_t size = onnx__value_info__get_packed_size(&info);
    uint8_t *bytes = pare_arena_alloc(&b->scratch, size, 1);
    if (!bytes) return PARE_MEMORY;
    onnx__value_info__pack(&info, bytes);
    *out = (pare_bytes){bytes, size};
    return PARE_OK;
}

/* The file's own words for entry i of a list, where they are not its value's; next walks along the
   graph's mentions, which are in the order of the lists. */
static const pare_mention *mention_of(const pare_graph *g, const pare_values *list, int i,
                                      int *next)
{
    for (; *next < g->mention_count; ++*next) {
        const pare_mention *m = &g->mention[*next];
        bool passed = m->list == list ? m->index < i : list == &g->info;
        if (passed) continue;
        bool here = m->list == list && m->index == i && list->item[i]->origin.size;
        return here && !strcmp(m->name, list->item[i]->name) ? m : NULL;
    }
    return NULL;
}

static pare_status put_infos(pare_onnx_builder *b, size_t *out_count, ProtobufCBinaryData **out,
                             const pare_graph *g, const pare_values *list, int *next)
{
    if (!NEW(b, *out, (size_t)list->count)) return PARE_MEMORY;
    for (int i = 0; i < list->count; i++) {
        const pare_value *v = list->item[i];
        const pare_mention *m = mention_of(g, list, i, next);
        pare_bytes bytes = m ? m->origin : v->origin;
        if (!bytes.size && list == &g->info && v->dtype == PARE_NOTYPE) continue;
        if (!bytes.size) PARE_TRY(encode_info(b, &bytes, v));
        PARE_TRY(stand_in(b, &(*out)[(*out_count)++], bytes));
    }
    return PARE_OK;
}

static pare_status put_inits(pare_onnx_builder *b, Onnx__Graph *m, const pare_graph *g)
{
    if (!NEW(b, m->initializer, (size_t)g->init.count)) return PARE_MEMORY;
    for (int i = 0; i < g->init.count; i++) {
        const pare_value *v = g->init.item[i];
        if (!v->data)
            return PARE_FAIL(b->ctx, INPUT, "%s: initializer '%s' has no content to write",
                             b->model->path, v->name);
        PARE_TRY(pare_onnx_build_tensor(b, &m->initializer[i], v->data, v->name, true));
        m->n_initializer++;
    }
    return PARE_OK;
}

static pare_status put_nodes(pare_onnx_builder *b, Onnx__Graph *m, const pare_graph *g)
{
    Onnx__Node *list;
    m->n_node = (size_t)g->node_count;
    if (!NEW(b, list, m->n_node) || !NEW(b, m->node, m->n_node)) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_node; i++) {
        m->node[i] = &list[i];
        PARE_TRY(build_node(b, &list[i], g->node[i]));
    }
    return PARE_OK;
}

static pare_status build_graph(pare_onnx_builder *b, Onnx__Graph **out, const pare_graph *g)
{
    Onnx__Graph *m;
    int next = 0;
    if (!NEW(b, m, 0)) return PARE_MEMORY;
    *out = m;
    onnx__graph__init(m);
    m->has_name = g->name != NULL;
    m->name = pare_onnx_put_text(g->name);
    m->has_doc_string = g->doc != NULL;
    m->doc_string = pare_onnx_put_text(g->doc);
    PARE_TRY(pare_onnx_put_pairs(b, &m->n_metadata_props, &m->metadata_props, &g->meta));
    PARE_TRY(pare_onnx_put_unknown(b, &m->base, g->unknown));
    PARE_TRY(pare_onnx_stand_ins(b, &m->n_quantization_annotation, &m->quantization_annotation,
                                 g->quantization_annotation, g->quantization_annotation_count));
    PARE_TRY(pare_onnx_stand_ins(b, &m->n_sparse_initializer, &m->sparse_initializer,
                                 g->sparse_init, g->sparse_init_count));
    PARE_TRY(put_infos(b, &m->n_input, &m->input, g, &g->in, &next));
    PARE_TRY(put_infos(b, &m->n_output, &m->output, g, &g->out, &next));
    PARE_TRY(put_infos(b, &m->n_value_info, &m->value_info, g, &g->info, &next));
    PARE_TRY(put_inits(b, m, g));
    return put_nodes(b, m, g);
}

/* --- the model --- */

static pare_status put_opsets(pare_onnx_builder *b, Onnx__Model *m, const pare_model *model)
{
    Onnx__Opset *list;
    m->n_opset_import = (size_t)model->opset_count;
    if (!NEW(b, list, m->n_opset_import) || !NEW(b, m->opset_import, m->n_opset_import))
        return PARE_MEMORY;
    for (size_t i = 0; i < m->n_opset_import; i++) {
        const pare_opset *from = &model->opset[i];
        onnx__opset__init(&list[i]);
        list[i].domain = pare_onnx_put_text(long_domain(from->domain, from->present));
        list[i].has_domain = list[i].domain.len || from->present & PARE_HAS_DOMAIN;
        list[i].has_version = from->version || !(from->present & PARE_NO_VERSION);
        list[i].version = from->version;
        PARE_TRY(pare_onnx_put_unknown(b, &list[i].base, from->unknown));
        m->opset_import[i] = &list[i];
    }
    return PARE_OK;
}

pare_status pare_onnx_build(pare_onnx_builder *b, Onnx__Model **out)
{
    const pare_model *model = b->model;
    Onnx__Model *m;
    if (!NEW(b, m, 0)) return PARE_MEMORY;
    *out = m;
    onnx__model__init(m);
    m->has_ir_version = 1;
    m->ir_version = model->ir_version;
    m->has_model_version = model->model_version || model->present & PARE_HAS_VERSION;
    m->model_version = model->model_version;
    m->has_producer_name = model->producer_name != NULL;
    m->producer_name = pare_onnx_put_text(model->producer_name);
    m->has_producer_version = model->producer_version != NULL;
    m->producer_version = pare_onnx_put_text(model->producer_version);
    m->has_domain = model->domain != NULL;
    m->domain = pare_onnx_put_text(model->domain);
    m->has_doc_string = model->doc != NULL;
    m->doc_string = pare_onnx_put_text(model->doc);
    PARE_TRY(put_opsets(b, m, model));
    PARE_TRY(pare_onnx_put_pairs(b, &m->n_metadata_props, &m->metadata_props, &model->meta));
    PARE_TRY(pare_onnx_put_unknown(b, &m->base, model->unknown));
    PARE_TRY(pare_onnx_stand_ins(b, &m->n_functions, &m->functions, model->function,
                                 model->function_count));
    PARE_TRY(pare_onnx_stand_ins(b, &m->n_training_info, &m->training_info, model->training_info,
                                 model->training_info_count));
    return build_graph(b, &m->graph, model->graph);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* AttributeProto. Its type says which field counts; a few exporters fill others, too: what they put
   there stays with the attribute as encoded. */
#include "formats/onnx/inner.h"

#include <string.h>

/* IR 1 files have no type: the field that is there says it. */
static pare_attr_kind kind_by_content(const Onnx__Attribute *m)
{
    return m->has_f               ? PARE_ATTR_FLOAT
           : m->has_i             ? PARE_ATTR_INT
           : m->has_s             ? PARE_ATTR_STRING
           : m->t                 ? PARE_ATTR_TENSOR
           : m->g                 ? PARE_ATTR_GRAPH
           : m->n_floats          ? PARE_ATTR_FLOATS
           : m->n_ints            ? PARE_ATTR_INTS
           : m->n_strings         ? PARE_ATTR_STRINGS
           : m->n_tensors         ? PARE_ATTR_TENSORS
           : m->n_graphs          ? PARE_ATTR_GRAPHS
           : m->has_sparse_tensor ? PARE_ATTR_SPARSE_TENSOR
           : m->n_sparse_tensors  ? PARE_ATTR_SPARSE_TENSORS
           : m->has_tp            ? PARE_ATTR_TYPE_PROTO
           : m->n_type_protos     ? PARE_ATTR_TYPE_PROTOS
                                  : 0;
}

/* Takes the fields that the graph's attribute holds out of rest; what stays is kept as encoded. */
static void take_known(Onnx__Attribute *rest, pare_attr_kind kind)
{
    rest->has_name = rest->has_doc_string = rest->has_type = rest->has_ref_attr_name = 0;
    switch (kind) {
    case PARE_ATTR_FLOAT: rest->has_f = 0; break;
    case PARE_ATTR_INT: rest->has_i = 0; break;
    case PARE_ATTR_STRING: rest->has_s = 0; break;
    case PARE_ATTR_TENSOR: rest->t = NULL; break;
    case PARE_ATTR_GRAPH: rest->g = NULL; break;
    case PARE_ATTR_FLOATS: rest->n_floats = 0; break;
    case PARE_ATTR_INTS: rest->n_ints = 0; break;
    case PARE_ATTR_STRINGS: rest->n_strings = 0; break;
    case PARE_ATTR_TENSORS: rest->n_tensors = 0; break;
    case PARE_ATTR_GRAPHS: rest->n_graphs = 0; break;
    case PARE_ATTR_SPARSE_TENSOR: rest->has_sparse_tensor = 0; break;
    case PARE_ATTR_SPARSE_TENSORS: rest->n_sparse_tensors = 0; break;
    case PARE_ATTR_TYPE_PROTO: rest->has_tp = 0; break;
    case PARE_ATTR_TYPE_PROTOS: rest->n_type_protos = 0; break;
    }
}

static pare_status keep_rest(pare_onnx_reader *r, pare_attr *out, const Onnx__Attribute *m)
{
    Onnx__Attribute rest = *m;
    take_known(&rest, out->kind);
    if (rest.t || rest.g || rest.n_tensors || rest.n_graphs || rest.has_sparse_tensor ||
        rest.n_sparse_tensors || rest.has_tp || rest.n_type_protos)
        return pare_onnx_problem(r, PARE_INPUT,
                                 "attribute '%s' holds a tensor, graph or type that its own type "
                                 "does not name; export the model again",
                                 out->name);
    size_t size = onnx__attribute__get_packed_size(&rest);
    if (!size) return PARE_OK;
    uint8_t *bytes = pare_arena_alloc(r->arena, size, 1);
    if (!bytes) return PARE_MEMORY;
    onnx__attribute__pack(&rest, bytes);
    out->unknown = (pare_bytes){bytes, size};
    return PARE_OK;
}

static pare_status read_strings(pare_onnx_reader *r, pare_attr *out, const Onnx__Attribute *m)
{
    pare_bytes *list = pare_arena_alloc(r->arena, m->n_strings + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    out->count = (int)m->n_strings;
    out->strings = list;
    for (size_t i = 0; i < m->n_strings; i++) {
        const ProtobufCBinaryData *s = &m->strings[i];
        list[i] = (pare_bytes){pare_arena_strndup(r->arena, (const char *)s->data, s->len), s->len};
        if (!list[i].data) return PARE_MEMORY;
    }
    return PARE_OK;
}

static pare_status read_tensors(pare_onnx_reader *r, pare_attr *out, const Onnx__Attribute *m)
{
    out->tensors = pare_arena_alloc(r->arena, m->n_tensors + 1, sizeof *out->tensors);
    if (!out->tensors) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_tensors; i++) {
        pare_tensor *t;
        PARE_TRY(pare_onnx_tensor(r, &t, m->tensors[i]));
        if (t) out->tensors[out->count++] = t;
    }
    return PARE_OK;
}

static pare_status read_graphs(pare_onnx_reader *r, pare_graph *around, pare_attr *out,
                               const Onnx__Attribute *m)
{
    out->graphs = pare_arena_alloc(r->arena, m->n_graphs + 1, sizeof *out->graphs);
    if (!out->graphs) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_graphs; i++) {
        PARE_TRY(pare_graph_new(around->model, &out->graphs[i], around));
        PARE_TRY(pare_onnx_graph(r, out->graphs[i], m->graphs[i]));
        out->count++;
    }
    return PARE_OK;
}

static pare_status read_raw(pare_onnx_reader *r, pare_attr *out, size_t count,
                            const ProtobufCBinaryData *field)
{
    pare_bytes *list;
    PARE_TRY(pare_onnx_ranges(r, &list, count, field));
    out->raw = list;
    out->count = (int)count;
    return PARE_OK;
}

static bool copied(pare_onnx_reader *r, const void **out, const void *from, size_t count,
                   size_t size)
{
    *out = pare_arena_memdup(r->arena, from, count * size);
    return *out;
}

static pare_status read_numbers(pare_onnx_reader *r, pare_attr *out, const Onnx__Attribute *m)
{
    const void *list;
    bool ints = out->kind == PARE_ATTR_INTS;
    out->count = (int)(ints ? m->n_ints : m->n_floats);
    if (!copied(r, &list, ints ? (const void *)m->ints : (const void *)m->floats,
                (size_t)out->count, ints ? sizeof *m->ints : sizeof *m->floats))
        return PARE_MEMORY;
    if (ints)
        out->ints = list;
    else
        out->floats = list;
    return PARE_OK;
}

/* A single message that the type promises but that is absent. */
static pare_status lacks(pare_onnx_reader *r, pare_attr *out)
{
    const char *name = out->name;
    out->name = NULL; /* the caller leaves the attribute out */
    return pare_onnx_problem(r, PARE_INPUT, "attribute '%s' lacks the content its type names",
                             name);
}

static pare_status read_content(pare_onnx_reader *r, pare_graph *graph, pare_attr *out,
                                const Onnx__Attribute *m)
{
    switch (out->kind) {
    case PARE_ATTR_FLOAT:
        out->f = m->f;
        if (!m->has_f) out->present |= PARE_NO_VALUE;
        return PARE_OK;
    case PARE_ATTR_INT:
        out->i = m->i;
        if (!m->has_i) out->present |= PARE_NO_VALUE;
        return PARE_OK;
    case PARE_ATTR_STRING:
        out->s =
            (pare_bytes){pare_arena_strndup(r->arena, (const char *)m->s.data, m->s.len), m->s.len};
        if (!m->has_s) out->present |= PARE_NO_VALUE;
        return out->s.data ? PARE_OK : PARE_MEMORY;
    case PARE_ATTR_TENSOR: {
        if (!m->t) return lacks(r, out);
        PARE_TRY(pare_onnx_tensor(r, &out->tensor, m->t));
        if (!out->tensor) out->name = NULL;
        return PARE_OK;
    }
    case PARE_ATTR_GRAPH:
        if (!m->g) return lacks(r, out);
        PARE_TRY(pare_graph_new(graph->model, &out->graph, graph));
        return pare_onnx_graph(r, out->graph, m->g);
    case PARE_ATTR_FLOATS:
    case PARE_ATTR_INTS: return read_numbers(r, out, m);
    case PARE_ATTR_STRINGS: return read_strings(r, out, m);
    case PARE_ATTR_TENSORS: return read_tensors(r, out, m);
    case PARE_ATTR_GRAPHS: return read_graphs(r, graph, out, m);
    case PARE_ATTR_SPARSE_TENSOR:
        return m->has_sparse_tensor ? read_raw(r, out, 1, &m->sparse_tensor) : lacks(r, out);
    case PARE_ATTR_SPARSE_TENSORS: return read_raw(r, out, m->n_sparse_tensors, m->sparse_tensors);
    case PARE_ATTR_TYPE_PROTO: return m->has_tp ? read_raw(r, out, 1, &m->tp) : lacks(r, out);
    default: return read_raw(r, out, m->n_type_protos, m->type_protos);
    }
}

pare_status pare_onnx_attr(pare_onnx_reader *r, pare_graph *graph, pare_attr *out,
                           const Onnx__Attribute *m)
{
    *out = (pare_attr){0};
    PARE_TRY(pare_onnx_text(r, &out->name, m->has_name, m->name, "attribute name"));
    if (!out->name || !out->name[0]) {
        out->name = NULL;
        return pare_onnx_problem(r, PARE_INPUT, "an attribute has no name");
    }
    PARE_TRY(pare_onnx_text(r, &out->doc, m->has_doc_string, m->doc_string, "doc_string"));
    PARE_TRY(pare_onnx_text(r, &out->ref, m->has_ref_attr_name, m->ref_attr_name, "ref_attr_name"));
    if (!m->has_type) out->present |= PARE_NO_TYPE;
    out->kind = m->has_type ? (pare_attr_kind)m->type : kind_by_content(m);
    if (out->kind < PARE_ATTR_FLOAT || out->kind > PARE_ATTR_TYPE_PROTOS) {
        const char *name = out->name;
        out->name = NULL;
        return pare_onnx_problem(r, PARE_UNSUPPORTED,
                                 "attribute '%s' has the unknown type %d, expected 1 to 14 of ONNX",
                                 name, (int)out->kind);
    }
    PARE_TRY(keep_rest(r, out, m));
    if (out->ref) return PARE_OK;
    return read_content(r, graph, out, m);
}

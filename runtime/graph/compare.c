/* SPDX-License-Identifier: Apache-2.0 */
/* Equality of two models as ONNX: everything an ONNX file can say, in order. */
#include "runtime/graph/graph.h"

#include <stdio.h>
#include <string.h>

typedef struct differ {
    char *text;
    size_t size;
} differ;

#define DIFFER(d, ...) (snprintf((d)->text, (d)->size, __VA_ARGS__), false)

static bool same_text(const char *a, const char *b) { return !a || !b ? a == b : !strcmp(a, b); }

static bool same_pairs(const pare_pairs *a, const pare_pairs *b)
{
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (!same_text(a->item[i].key, b->item[i].key) ||
            !same_text(a->item[i].value, b->item[i].value) ||
            !pare_bytes_equal(a->item[i].unknown, b->item[i].unknown))
            return false;
    return true;
}

static bool same_blobs(const pare_bytes *a, int a_count, const pare_bytes *b, int b_count)
{
    if (a_count != b_count) return false;
    for (int i = 0; i < a_count; i++)
        if (!pare_bytes_equal(a[i], b[i])) return false;
    return true;
}

static bool same_payload(const pare_tensor *a, const pare_tensor *b)
{
    if (a->data == b->data && a->bytes == b->bytes && a->count == b->count) return true;
    if (a->dtype != PARE_string)
        return pare_bytes_equal((pare_bytes){a->data, a->bytes}, (pare_bytes){b->data, b->bytes});
    return a->count == b->count && same_blobs(a->data, (int)a->count, b->data, (int)b->count);
}

static bool same_tensor(differ *d, const pare_tensor *a, const pare_tensor *b)
{
    if (!a || !b) return a == b || DIFFER(d, "a constant is missing on one side");
    if (a->dtype != b->dtype || a->rank != b->rank || !same_text(a->name, b->name) ||
        memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims))
        return DIFFER(d, "tensor '%s': name, type or shape differ", a->name ? a->name : "");
    if (!same_text(a->doc, b->doc) || !same_pairs(&a->meta, &b->meta) ||
        !pare_bytes_equal(a->unknown, b->unknown))
        return DIFFER(d, "tensor '%s': its notes differ", a->name ? a->name : "");
    return same_payload(a, b) || DIFFER(d, "tensor '%s': content differs", a->name ? a->name : "");
}

bool pare_tensor_equal(const pare_tensor *a, const pare_tensor *b)
{
    char text[128];
    differ d = {text, sizeof text};
    return same_tensor(&d, a, b);
}

static bool same_graph(differ *d, const pare_graph *a, const pare_graph *b);

static bool same_attr(differ *d, const pare_attr *a, const pare_attr *b)
{
    if (!same_text(a->name, b->name) || a->kind != b->kind || a->count != b->count ||
        !same_text(a->doc, b->doc) || !same_text(a->ref, b->ref) ||
        !pare_bytes_equal(a->unknown, b->unknown))
        return DIFFER(d, "attribute '%s' against '%s'", a->name, b->name);
    bool same = true;
    size_t n = (size_t)a->count;
    if (a->ref) return true;
    switch (a->kind) {
    case PARE_ATTR_FLOAT: same = !memcmp(&a->f, &b->f, sizeof a->f); break;
    case PARE_ATTR_INT: same = a->i == b->i; break;
    case PARE_ATTR_STRING: same = pare_bytes_equal(a->s, b->s); break;
    case PARE_ATTR_TENSOR: return same_tensor(d, a->tensor, b->tensor);
    case PARE_ATTR_GRAPH: return same_graph(d, a->graph, b->graph);
    case PARE_ATTR_FLOATS: same = !n || !memcmp(a->floats, b->floats, n * sizeof *a->floats); break;
    case PARE_ATTR_INTS: same = !n || !memcmp(a->ints, b->ints, n * sizeof *a->ints); break;
    case PARE_ATTR_STRINGS: same = same_blobs(a->strings, a->count, b->strings, b->count); break;
    case PARE_ATTR_TENSORS:
        for (int i = 0; i < a->count; i++)
            if (!same_tensor(d, a->tensors[i], b->tensors[i])) return false;
        break;
    case PARE_ATTR_GRAPHS:
        for (int i = 0; i < a->count; i++)
            if (!same_graph(d, a->graphs[i], b->graphs[i])) return false;
        break;
    default: same = same_blobs(a->raw, a->count, b->raw, b->count);
    }
    return same || DIFFER(d, "attribute '%s' has another content", a->name);
}

bool pare_attr_equal(const pare_attr *a, const pare_attr *b)
{
    char text[128];
    differ d = {text, sizeof text};
    return same_attr(&d, a, b);
}

static bool same_names(differ *d, const char *what, pare_value *const *a, int a_count,
                       pare_value *const *b, int b_count)
{
    if (a_count != b_count) return DIFFER(d, "%s: %d against %d", what, a_count, b_count);
    for (int i = 0; i < a_count; i++)
        if (!same_text(a[i] ? a[i]->name : NULL, b[i] ? b[i]->name : NULL))
            return DIFFER(d, "%s %d: '%s' against '%s'", what, i, a[i] ? a[i]->name : "",
                          b[i] ? b[i]->name : "");
    return true;
}

static bool same_node(differ *d, const pare_node *a, const pare_node *b)
{
    if (!same_text(a->name, b->name) || !same_text(a->op_type, b->op_type) ||
        !same_text(a->domain, b->domain) || !same_text(a->overload, b->overload) ||
        !same_text(a->doc, b->doc) || !same_pairs(&a->meta, &b->meta) ||
        !pare_bytes_equal(a->unknown, b->unknown))
        return DIFFER(d, "node '%s' (%s) against '%s' (%s)", a->name, a->op_type, b->name,
                      b->op_type);
    if (!same_names(d, "input", a->in, a->in_count, b->in, b->in_count) ||
        !same_names(d, "output", a->out, a->out_count, b->out, b->out_count))
        return false;
    if (a->attr_count != b->attr_count)
        return DIFFER(d, "node '%s': %d against %d attributes", a->name, a->attr_count,
                      b->attr_count);
    for (int i = 0; i < a->attr_count; i++)
        if (!same_attr(d, &a->attr[i], &b->attr[i])) return false;
    return true;
}

bool pare_node_equal(const pare_node *a, const pare_node *b)
{
    char text[128];
    differ d = {text, sizeof text};
    return same_node(&d, a, b);
}

static bool same_values(differ *d, const char *what, const pare_values *a, const pare_values *b)
{
    if (!same_names(d, what, a->item, a->count, b->item, b->count)) return false;
    for (int i = 0; i < a->count; i++) {
        const pare_value *x = a->item[i], *y = b->item[i];
        bool origin = x->origin.size && y->origin.size;
        if (origin ? !pare_bytes_equal(x->origin, y->origin)
                   : x->dtype != y->dtype || !pare_shape_equal(&x->shape, &y->shape))
            return DIFFER(d, "%s '%s': type or shape differ", what, x->name);
    }
    return true;
}

/* Which of the graph's lists, as a number. */
static int list_of(const pare_graph *g, const pare_mention *m)
{
    return m->list == &g->in ? 0 : m->list == &g->out ? 1 : 2;
}

/* Entries that both have; an edited graph has lost some, which its values' types say then. */
static bool same_mentions(const pare_graph *a, const pare_graph *b)
{
    for (int i = 0; i < a->mention_count && i < b->mention_count; i++) {
        const pare_mention *x = &a->mention[i], *y = &b->mention[i];
        bool same_place =
            list_of(a, x) == list_of(b, y) && x->index == y->index && same_text(x->name, y->name);
        if (same_place && !pare_bytes_equal(x->origin, y->origin)) return false;
    }
    return true;
}

static bool same_graph(differ *d, const pare_graph *a, const pare_graph *b)
{
    if (!same_text(a->name, b->name) || !same_text(a->doc, b->doc) ||
        !same_pairs(&a->meta, &b->meta) || !pare_bytes_equal(a->unknown, b->unknown))
        return DIFFER(d, "graph '%s': its notes differ", a->name ? a->name : "");
    if (!same_blobs(a->quantization_annotation, a->quantization_annotation_count,
                    b->quantization_annotation, b->quantization_annotation_count) ||
        !same_blobs(a->sparse_init, a->sparse_init_count, b->sparse_init, b->sparse_init_count))
        return DIFFER(d, "graph '%s': annotations or sparse tensors differ", a->name);
    if (!same_mentions(a, b))
        return DIFFER(d, "graph '%s': two words on one tensor differ", a->name);
    if (!same_values(d, "graph input", &a->in, &b->in) ||
        !same_values(d, "graph output", &a->out, &b->out) ||
        !same_values(d, "value_info", &a->info, &b->info) ||
        !same_names(d, "initializer", a->init.item, a->init.count, b->init.item, b->init.count))
        return false;
    for (int i = 0; i < a->init.count; i++)
        if (!same_tensor(d, a->init.item[i]->data, b->init.item[i]->data)) return false;
    if (a->node_count != b->node_count)
        return DIFFER(d, "%d against %d nodes", a->node_count, b->node_count);
    for (int i = 0; i < a->node_count; i++)
        if (!same_node(d, a->node[i], b->node[i])) return false;
    return true;
}

const char *pare_model_compare(const pare_model *a, const pare_model *b, char *text, size_t size)
{
    differ d = {text, size};
    snprintf(text, size, "the models differ");
    if (a->ir_version != b->ir_version || a->model_version != b->model_version ||
        !same_text(a->producer_name, b->producer_name) ||
        !same_text(a->producer_version, b->producer_version) || !same_text(a->domain, b->domain) ||
        !same_text(a->doc, b->doc) || !same_pairs(&a->meta, &b->meta) ||
        !pare_bytes_equal(a->unknown, b->unknown))
        snprintf(text, size, "the models' versions, producers or metadata differ");
    else if (!same_blobs(a->function, a->function_count, b->function, b->function_count) ||
             !same_blobs(a->training_info, a->training_info_count, b->training_info,
                         b->training_info_count))
        snprintf(text, size, "functions or training information differ");
    else if (a->opset_count != b->opset_count)
        snprintf(text, size, "%d against %d opsets", a->opset_count, b->opset_count);
    else {
        for (int i = 0; i < a->opset_count; i++)
            if (strcmp(a->opset[i].domain, b->opset[i].domain) ||
                a->opset[i].version != b->opset[i].version ||
                !pare_bytes_equal(a->opset[i].unknown, b->opset[i].unknown)) {
                snprintf(text, size, "opset of '%s' differs", a->opset[i].domain);
                return text;
            }
        return same_graph(&d, a->graph, b->graph) ? NULL : text;
    }
    return text;
}

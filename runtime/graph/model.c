/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/graph/graph.h"
#include "runtime/base/room.h"
#include "runtime/base/size.h"

#include <inttypes.h>
#include <string.h>

static pare_graph *graph_new(pare_model *model, pare_graph *parent)
{
    pare_graph *g = pare_arena_alloc(&model->arena, 1, sizeof *g);
    if (g) {
        g->model = model;
        g->parent = parent;
    }
    return g;
}

pare_status pare_graph_new(pare_model *model, pare_graph **out, pare_graph *parent)
{
    *out = graph_new(model, parent);
    return *out ? PARE_OK : PARE_MEMORY;
}

pare_status pare_model_new(pare_ctx *ctx, pare_model **out, const char *path)
{
    pare_model *m = pare_alloc(ctx, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    m->ctx = ctx;
    pare_arena_init(&m->arena, ctx);
    m->references = pare_alloc(ctx, 1, sizeof *m->references);
    m->path = pare_arena_strdup(&m->arena, path ? path : "model");
    m->graph = graph_new(m, NULL);
    if (!m->references || !m->path || !m->graph) {
        pare_arena_free(&m->arena);
        pare_free(m->references);
        pare_free(m);
        return PARE_MEMORY;
    }
    *m->references = 1;
    *out = m;
    return PARE_OK;
}

/* A model's own memory stays while a clone of it lives: the last one frees the chain. */
static void model_drop(pare_model *m)
{
    if (--*m->references > 0) return;
    pare_model *origin = m->borrows;
    if (m->release) m->release(m->release_user);
    pare_arena_free(&m->arena);
    pare_free(m->references);
    pare_free(m);
    if (origin) model_drop(origin);
}

void pare_model_free(pare_model *model)
{
    if (model) model_drop(model);
}

int64_t pare_model_opset(const pare_model *model, const char *domain)
{
    for (int i = 0; i < model->opset_count; i++)
        if (!strcmp(model->opset[i].domain, domain)) return model->opset[i].version;
    return 0;
}

pare_status pare_model_set_opset(pare_model *model, const char *domain, int64_t version)
{
    for (int i = 0; i < model->opset_count; i++)
        if (!strcmp(model->opset[i].domain, domain)) {
            model->opset[i].version = version;
            return PARE_OK;
        }
    pare_opset *list =
        pare_arena_alloc(&model->arena, (size_t)model->opset_count + 1, sizeof *list);
    char *name = pare_arena_strdup(&model->arena, domain);
    if (!list || !name) return PARE_MEMORY;
    if (model->opset_count) memcpy(list, model->opset, (size_t)model->opset_count * sizeof *list);
    list[model->opset_count++] = (pare_opset){.domain = name, .version = version};
    model->opset = list;
    return PARE_OK;
}

/* IR 4 let initializers be no inputs. */
void pare_model_raise_ir(pare_model *model)
{
    static const struct {
        int64_t opset, ir;
    } rows[] = {{25, 13}, {24, 12}, {23, 11}, {21, 10}, {19, 9}, {15, 8}, {13, 7}, {0, 6}};
    const int64_t opset = pare_model_opset(model, "");
    size_t i = 0;
    while (opset < rows[i].opset) i++;
    if (model->ir_version < rows[i].ir) model->ir_version = rows[i].ir;
}

/* --- clone --- */

static pare_status clone_graph(pare_model *m, pare_graph *parent, const pare_graph *from,
                               pare_graph *to);

/* The graph's own value of that name, made if it has none. */
static pare_status clone_value(pare_graph *to, const pare_value *from, pare_value **out)
{
    pare_value *v = *out = pare_graph_find_own(to, from->name);
    if (v) return PARE_OK;
    PARE_TRY(pare_value_new(to, &v, from->name));
    v->dtype = from->dtype;
    v->shape = from->shape;
    v->data = from->data;
    v->is_input = from->is_input;
    v->is_output = from->is_output;
    v->inferred = from->inferred;
    v->is_init = from->is_init;
    v->nhwc = from->nhwc;
    v->origin = from->origin;
    *out = v;
    return PARE_OK;
}

static pare_status clone_list(pare_graph *to, pare_values *list, const pare_values *from)
{
    for (int i = 0; i < from->count; i++) {
        pare_value *v;
        PARE_TRY(clone_value(to, from->item[i], &v));
        PARE_TRY(pare_values_add(to, list, v));
    }
    return PARE_OK;
}

static pare_status clone_attrs(pare_model *m, pare_graph *to, const pare_node *from, pare_node *n)
{
    n->attr_count = from->attr_count;
    n->attr = pare_arena_alloc(&m->arena, (size_t)from->attr_count + 1, sizeof *n->attr);
    if (!n->attr) return PARE_MEMORY;
    for (int a = 0; a < from->attr_count; a++) {
        pare_attr *attr = &n->attr[a];
        *attr = from->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) {
            pare_graph *sub = graph_new(m, to);
            if (!sub) return PARE_MEMORY;
            PARE_TRY(clone_graph(m, to, attr->graph, sub));
            attr->graph = sub;
        } else if (attr->kind == PARE_ATTR_GRAPHS) {
            pare_graph **subs = pare_arena_alloc(&m->arena, (size_t)attr->count + 1, sizeof *subs);
            if (!subs) return PARE_MEMORY;
            for (int i = 0; i < attr->count; i++) {
                subs[i] = graph_new(m, to);
                if (!subs[i]) return PARE_MEMORY;
                PARE_TRY(clone_graph(m, to, attr->graphs[i], subs[i]));
            }
            attr->graphs = subs;
        }
    }
    return PARE_OK;
}

static pare_status clone_node(pare_model *m, pare_graph *to, const pare_node *from)
{
    size_t most = (size_t)(from->in_count > from->out_count ? from->in_count : from->out_count);
    pare_value **list = pare_arena_alloc(&m->arena, most + 1, sizeof *list);
    pare_value **outs = pare_arena_alloc(&m->arena, most + 1, sizeof *outs);
    if (!list || !outs) return PARE_MEMORY;
    for (int i = 0; i < from->in_count; i++) {
        if (!from->in[i]) continue;
        list[i] = pare_graph_find(to, from->in[i]->name);
        /* an undefined name is kept, the sort reports it */
        if (!list[i]) PARE_TRY(clone_value(to, from->in[i], &list[i]));
    }
    for (int i = 0; i < from->out_count; i++)
        if (from->out[i]) PARE_TRY(clone_value(to, from->out[i], &outs[i]));
    pare_node *n;
    PARE_TRY(pare_node_new(to, &n, to->node_count, from->op_type, from->domain, from->name, list,
                           from->in_count, outs, from->out_count));
    n->overload = from->overload;
    n->doc = from->doc;
    n->meta = from->meta;
    n->unknown = from->unknown;
    n->present = from->present;
    n->opset = from->opset;
    return clone_attrs(m, to, from, n);
}

static pare_status clone_mentions(pare_graph *to, const pare_graph *from)
{
    if (!from->mention_count) return PARE_OK;
    to->mention = pare_arena_memdup(&to->model->arena, from->mention,
                                    (size_t)from->mention_count * sizeof *to->mention);
    if (!to->mention) return PARE_MEMORY;
    to->mention_count = from->mention_count;
    for (int i = 0; i < to->mention_count; i++)
        to->mention[i].list = from->mention[i].list == &from->in    ? &to->in
                              : from->mention[i].list == &from->out ? &to->out
                                                                    : &to->info;
    return PARE_OK;
}

static pare_status clone_graph(pare_model *m, pare_graph *parent, const pare_graph *from,
                               pare_graph *to)
{
    to->parent = parent;
    to->name = from->name;
    to->doc = from->doc;
    to->quantization_annotation = from->quantization_annotation;
    to->quantization_annotation_count = from->quantization_annotation_count;
    to->sparse_init = from->sparse_init;
    to->sparse_init_count = from->sparse_init_count;
    to->meta = from->meta;
    to->unknown = from->unknown;
    to->present = from->present;
    PARE_TRY(clone_mentions(to, from));
    PARE_TRY(clone_list(to, &to->in, &from->in));
    PARE_TRY(clone_list(to, &to->init, &from->init));
    /* outputs' values exist before the nodes that read or make them, whatever the order */
    for (int n = 0; n < from->node_count; n++)
        for (int i = 0; i < from->node[n]->out_count; i++) {
            const pare_value *v = from->node[n]->out[i];
            pare_value *made;
            if (v) PARE_TRY(clone_value(to, v, &made));
        }
    for (int n = 0; n < from->node_count; n++) PARE_TRY(clone_node(m, to, from->node[n]));
    PARE_TRY(clone_list(to, &to->info, &from->info));
    for (int i = 0; i < from->out.count; i++) { /* an If branch may return an outer value */
        pare_value *v = pare_graph_find(to, from->out.item[i]->name);
        if (!v) PARE_TRY(clone_value(to, from->out.item[i], &v));
        PARE_TRY(pare_values_add(to, &to->out, v));
    }
    return PARE_OK;
}

pare_status pare_model_clone(pare_ctx *ctx, pare_model **out, const pare_model *model)
{
    pare_model *m;
    PARE_TRY(pare_model_new(ctx, &m, model->path));
    pare_model own = *m;
    *m = *model;
    m->ctx = own.ctx;
    m->arena = own.arena;
    m->path = own.path;
    m->graph = own.graph;
    m->references = own.references;
    m->release = NULL;
    m->release_user = NULL;
    m->borrows = (pare_model *)model;
    ++*model->references;
    if (model->opset_count) {
        m->opset = pare_arena_memdup(&m->arena, model->opset,
                                     (size_t)model->opset_count * sizeof *m->opset);
        if (!m->opset) {
            pare_model_free(m);
            return PARE_MEMORY;
        }
    }
    pare_status st = clone_graph(m, NULL, model->graph, m->graph);
    if (st != PARE_OK) {
        pare_model_free(m);
        return st;
    }
    *out = m;
    return PARE_OK;
}

void pare_tensor_give_back(const pare_tensor *t)
{
    enum { LARGE = 1 << 20 };
    if (t->mapped && t->data == t->read_data && t->bytes >= LARGE)
        pare_memory_give_back(t->data, t->bytes);
}

pare_status pare_tensor_new(pare_model *model, pare_tensor **out, const char *name,
                            pare_dtype dtype, int rank, const int64_t *dims, const void *data)
{
    pare_tensor *t = pare_arena_alloc(&model->arena, 1, sizeof *t);
    int64_t count;
    size_t bytes;
    if (!t) return PARE_MEMORY;
    if (!pare_count_dims(dims, rank, &count) || !pare_type_bytes(dtype, count, &bytes))
        return PARE_FAIL(model->ctx, INPUT, "%s: tensor '%s': its size overflows", model->path,
                         name);
    t->name = pare_arena_strdup(&model->arena, name);
    t->dims = pare_arena_memdup(&model->arena, dims, (size_t)rank * sizeof *dims);
    void *copy = pare_arena_alloc(&model->arena, bytes, 1);
    if (!t->name || !t->dims || !copy) return PARE_MEMORY;
    if (data && bytes) memcpy(copy, data, bytes);
    t->dtype = dtype;
    t->rank = rank;
    t->count = count;
    t->data = copy;
    t->bytes = bytes;
    *out = t;
    return PARE_OK;
}

pare_status pare_model_set_meta(pare_model *model, const char *key, const char *value)
{
    pare_arena *arena = &model->arena;
    const char *text = pare_arena_strdup(arena, value);
    int n = model->meta.count;
    pare_pair *list = pare_arena_alloc(arena, (size_t)n + 1, sizeof *list);
    if (!text || !list) return PARE_MEMORY;
    if (n) memcpy(list, model->meta.item, (size_t)n * sizeof *list);
    model->meta.item = list;
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].key, key)) {
            list[i].value = text;
            return PARE_OK;
        }
    list[n] = (pare_pair){.key = pare_arena_strdup(arena, key), .value = text};
    if (!list[n].key) return PARE_MEMORY;
    model->meta.count++;
    return PARE_OK;
}

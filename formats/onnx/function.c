/* SPDX-License-Identifier: Apache-2.0 */
/* FunctionProto: a model's own functions are inlined while the model is read (ONNX IR, "Model-local
   functions").

   A function is read once, as a graph apart. Each call becomes a copy of its nodes: formal inputs
   and outputs are the call's tensors, every other tensor gets a name of its own that begins with
   the call's, and an attribute that refers to one of the function's takes the call's value, else
   the function's default, else it is left out. A copied node may be a call itself. */
#include "formats/onnx/inner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 64,        /* calls inside calls */
    INLINED_MAX = 1 << 16, /* nodes that all calls become: a small file can ask for 2^64 */
};

typedef struct function {
    const char *domain, *name, *overload;
    const Onnx__Function *message;
    pare_graph *graph;      /* NULL until the first call */
    pare_value **in, **out; /* formal ones, in graph */
    int in_count, out_count;
    pare_node defaults; /* its attributes: attribute_proto */
    int values;         /* marks of the values are 1 .. values */
    int64_t opset;      /* of ONNX's own domain, where it is not the model's; else 0 */
    bool active;        /* a call of it is being expanded */
} function;

typedef struct inliner {
    pare_onnx_reader *r;
    pare_model *model;
    function *function; /* sorted by id */
    size_t count;
    int depth;
    const pare_node *outermost; /* the call of depth 0 that is being expanded */
    int64_t inlined;
    bool stopped; /* after a problem that was only reported */
} inliner;

/* One call. The node has left its graph: its lists are still there. */
typedef struct instance {
    inliner *inliner;
    const function *function;
    const pare_node *call;
    int in_count, out_count;
    const char *prefix;
    pare_value **map; /* (values + 1) by mark */
} instance;

/* --- the functions of the model --- */

static int by_id(const void *a, const void *b)
{
    const function *f = a, *g = b;
    int order = strcmp(f->domain, g->domain);
    if (!order) order = strcmp(f->name, g->name);
    return order ? order : strcmp(f->overload, g->overload);
}

static pare_status read_header(pare_onnx_reader *r, function *f, pare_bytes bytes)
{
    ProtobufCMessage *message;
    PARE_TRY(pare_onnx_unpack(r, &message, &onnx__function__descriptor, PARE_WIRE_FUNCTION, bytes));
    const Onnx__Function *m = f->message = (const Onnx__Function *)message;
    PARE_TRY(pare_onnx_text(r, &f->name, m->has_name, m->name, "function name"));
    PARE_TRY(pare_onnx_text(r, &f->domain, m->has_domain, m->domain, "function's domain"));
    PARE_TRY(pare_onnx_text(r, &f->overload, m->has_overload, m->overload, "overload"));
    if (!f->name) f->name = "";
    if (!f->domain || !strcmp(f->domain, "ai.onnx")) f->domain = "";
    if (!f->overload) f->overload = "";
    return PARE_OK;
}

static function *find(const inliner *x, const pare_node *node)
{
    function key = {.domain = node->domain, .name = node->op_type};
    key.overload = node->overload ? node->overload : "";
    return bsearch(&key, x->function, x->count, sizeof key, by_id);
}

static pare_status formal(pare_onnx_reader *r, function *f, pare_value ***out, int *out_count,
                          size_t count, const ProtobufCBinaryData *names, bool input)
{
    *out = pare_arena_alloc(&r->scratch, count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *name;
        PARE_TRY(pare_onnx_text(r, &name, true, names[i], "function's tensor name"));
        pare_value **v = &(*out)[(*out_count)++];
        *v = pare_graph_find_own(f->graph, name);
        if (input && *v)
            return PARE_FAIL(r->ctx, INPUT, "%s: function '%s': two inputs are called '%s'",
                             r->path, f->name, name);
        if (!*v) PARE_TRY(pare_value_new(f->graph, v, name));
        if (input) (*v)->is_input = true;
    }
    return PARE_OK;
}

static void mark_values(function *f, pare_graph *g);

static void mark_value(function *f, pare_value *v)
{
    if (v && !v->mark) v->mark = ++f->values;
}

static void mark_node(function *f, const pare_node *node)
{
    for (int i = 0; i < node->in_count; i++) mark_value(f, node->in[i]);
    for (int i = 0; i < node->out_count; i++) mark_value(f, node->out[i]);
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) mark_values(f, attr->graph);
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            mark_values(f, attr->graphs[i]);
    }
}

static void mark_values(function *f, pare_graph *g)
{
    for (int i = 0; i < g->in.count; i++) mark_value(f, g->in.item[i]);
    for (int i = 0; i < g->init.count; i++) mark_value(f, g->init.item[i]);
    for (int i = 0; i < g->out.count; i++) mark_value(f, g->out.item[i]);
    for (int n = 0; n < g->node_count; n++) mark_node(f, g->node[n]);
}

/* Another domain than ONNX's is imported with the model from now on. */
static pare_status import_opsets(inliner *x, function *f)
{
    for (size_t i = 0; i < f->message->n_opset_import; i++) {
        const Onnx__Opset *o = f->message->opset_import[i];
        const char *domain;
        PARE_TRY(pare_onnx_text(x->r, &domain, o->has_domain, o->domain, "opset's domain"));
        if (!domain || !strcmp(domain, "ai.onnx")) domain = "";
        int64_t mine = pare_model_opset(x->model, domain);
        if (!mine) PARE_TRY(pare_model_set_opset(x->model, domain, o->version));
        if (mine && !domain[0] && o->version != mine) f->opset = o->version;
    }
    return PARE_OK;
}

/* The body as a graph apart; nothing it reads lies outside it. */
static pare_status read_body(inliner *x, function *f)
{
    pare_onnx_reader *r = x->r;
    const Onnx__Function *m = f->message;
    Onnx__Graph body = ONNX__GRAPH__INIT;
    body.n_node = m->n_node;
    body.node = m->node;
    PARE_TRY(pare_graph_new(x->model, &f->graph, NULL));
    PARE_TRY(formal(r, f, &f->in, &f->in_count, m->n_input, m->input, true));
    PARE_TRY(pare_onnx_graph(r, f->graph, &body));
    PARE_TRY(formal(r, f, &f->out, &f->out_count, m->n_output, m->output, false));
    f->defaults.graph = f->graph;
    f->defaults.attr =
        pare_arena_alloc(r->arena, m->n_attribute_proto + 1, sizeof *f->defaults.attr);
    if (!f->defaults.attr) return PARE_MEMORY;
    for (size_t i = 0; i < m->n_attribute_proto; i++) {
        pare_attr *attr = &f->defaults.attr[f->defaults.attr_count];
        PARE_TRY(pare_onnx_attr(r, f->graph, attr, m->attribute_proto[i]));
        f->defaults.attr_count += attr->name != NULL;
    }
    for (int i = 0; i < f->in_count; i++) mark_value(f, f->in[i]);
    for (int i = 0; i < f->out_count; i++) mark_value(f, f->out[i]);
    mark_values(f, f->graph);
    return import_opsets(x, f);
}

/* --- one call --- */

static pare_status new_value(instance *c, pare_graph *to, const pare_value *from, pare_value **out)
{
    const char *name = pare_arena_printf(c->inliner->r->arena, "%s/%s", c->prefix, from->name);
    if (name) name = pare_graph_fresh_name(to, name);
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(to, out, name));
    (*out)->dtype = from->dtype;
    (*out)->shape = from->shape;
    (*out)->data = from->data;
    (*out)->is_init = from->is_init;
    (*out)->is_input = from->is_input;
    return PARE_OK;
}

static pare_status value_of(instance *c, pare_graph *to, const pare_value *from, pare_value **out)
{
    *out = NULL;
    if (!from) return PARE_OK;
    pare_value **v = &c->map[from->mark];
    bool absent = from->graph == c->function->graph && from->is_input; /* not given by the call */
    if (!*v && !absent) PARE_TRY(new_value(c, to, from, v));
    *out = *v;
    return PARE_OK;
}

static pare_status copy_node(instance *c, pare_graph *to, int at, const pare_node *from,
                             pare_node **out);

static pare_status copy_list(instance *c, pare_graph *to, pare_values *list,
                             const pare_values *from)
{
    for (int i = 0; i < from->count; i++) {
        pare_value *v;
        PARE_TRY(value_of(c, to, from->item[i], &v));
        if (!v)
            return PARE_FAIL_NODE(c->call, INPUT,
                                  "a subgraph of its function returns input '%s', which the call "
                                  "leaves out",
                                  from->item[i]->name);
        PARE_TRY(pare_values_add(to, list, v));
        if (list == &to->out) v->is_output = true;
    }
    return PARE_OK;
}

static pare_status copy_graph(instance *c, pare_graph *parent, const pare_graph *from,
                              pare_graph **out)
{
    pare_graph *g;
    PARE_TRY(pare_graph_new(c->inliner->model, &g, parent));
    g->name = from->name;
    g->doc = from->doc;
    PARE_TRY(copy_list(c, g, &g->in, &from->in));
    PARE_TRY(copy_list(c, g, &g->init, &from->init));
    for (int n = 0; n < from->node_count; n++) /* a node may read what a later one makes */
        for (int i = 0; i < from->node[n]->out_count; i++) {
            pare_value *v;
            PARE_TRY(value_of(c, g, from->node[n]->out[i], &v));
        }
    for (int n = 0; n < from->node_count; n++)
        PARE_TRY(copy_node(c, g, g->node_count, from->node[n], NULL));
    PARE_TRY(copy_list(c, g, &g->out, &from->out));
    *out = g;
    return PARE_OK;
}

/* What an attribute is in this call; *given is false where it is left out. */
static pare_status resolve(const instance *c, const pare_node *node, const pare_attr *attr,
                           pare_attr *out, bool *given)
{
    const pare_attr *value = attr;
    if (attr->ref) {
        value = pare_node_attr(c->call, attr->ref);
        if (!value) value = pare_node_attr(&c->function->defaults, attr->ref);
    }
    *given = value && !value->ref;
    if (!*given) return PARE_OK;
    if (attr->ref && (value->kind == PARE_ATTR_GRAPH || value->kind == PARE_ATTR_GRAPHS))
        return PARE_FAIL_NODE(c->call, UNSUPPORTED,
                              "its attribute '%s' gives a graph to a function; export the model "
                              "without functions",
                              attr->ref);
    if (value->kind != attr->kind && !(attr->present & PARE_NO_TYPE))
        return PARE_FAIL_NODE(c->call, INPUT,
                              "attribute '%s' is of type %d, but node '%s' (%s) of the function "
                              "reads it as type %d",
                              attr->ref, (int)value->kind, node->name, node->op_type,
                              (int)attr->kind);
    *out = *value;
    out->name = attr->name;
    return PARE_OK;
}

static pare_status copy_attrs(instance *c, const pare_node *from, pare_node *node)
{
    node->attr =
        pare_arena_alloc(c->inliner->r->arena, (size_t)from->attr_count + 1, sizeof *node->attr);
    if (!node->attr) return PARE_MEMORY;
    for (int a = 0; a < from->attr_count; a++) {
        pare_attr *attr = &node->attr[node->attr_count];
        bool given;
        PARE_TRY(resolve(c, from, &from->attr[a], attr, &given));
        if (!given) continue;
        if (attr->kind == PARE_ATTR_GRAPH)
            PARE_TRY(copy_graph(c, node->graph, from->attr[a].graph, &attr->graph));
        if (attr->kind == PARE_ATTR_GRAPHS) {
            pare_graph **list =
                pare_arena_alloc(c->inliner->r->arena, (size_t)attr->count + 1, sizeof *list);
            if (!list) return PARE_MEMORY;
            for (int i = 0; i < attr->count; i++)
                PARE_TRY(copy_graph(c, node->graph, from->attr[a].graphs[i], &list[i]));
            attr->graphs = list;
        }
        node->attr_count++;
    }
    return PARE_OK;
}

static pare_status copy_node(instance *c, pare_graph *to, int at, const pare_node *from,
                             pare_node **out)
{
    inliner *x = c->inliner;
    size_t most = (size_t)(from->in_count > from->out_count ? from->in_count : from->out_count);
    pare_value **in = pare_arena_alloc(&x->r->scratch, most + 1, sizeof *in);
    pare_value **made = pare_arena_alloc(&x->r->scratch, most + 1, sizeof *made);
    char *name = pare_arena_printf(x->r->arena, "%s/%s", c->prefix, from->name);
    pare_node *node;
    if (!in || !made || !name) return PARE_MEMORY;
    if (++x->inlined > INLINED_MAX)
        return PARE_FAIL_NODE(x->outermost, UNSUPPORTED,
                              "the model's functions become more than %d nodes; export the model "
                              "without functions",
                              INLINED_MAX);
    for (int i = 0; i < from->in_count; i++) PARE_TRY(value_of(c, to, from->in[i], &in[i]));
    for (int i = 0; i < from->out_count; i++) PARE_TRY(value_of(c, to, from->out[i], &made[i]));
    PARE_TRY(pare_node_new(to, &node, at, from->op_type, from->domain, from->name[0] ? name : "",
                           in, from->in_count, made, from->out_count));
    node->overload = from->overload;
    node->doc = from->doc;
    node->meta = from->meta;
    node->unknown = from->unknown;
    node->present = from->present;
    node->opset = from->domain[0] ? 0 : c->function->opset;
    if (out) *out = node;
    return copy_attrs(c, from, node);
}

/* Ties the formal inputs and outputs to the call's. An output that another one or an input is, too,
   is copied to by an Identity. */
static pare_status tie(instance *c, int *at)
{
    const function *f = c->function;
    pare_graph *g = c->call->graph;
    for (int i = 0; i < c->in_count; i++) c->map[f->in[i]->mark] = c->call->in[i];
    for (int i = 0; i < c->out_count; i++) {
        pare_value *made = c->call->out[i], **v = &c->map[f->out[i]->mark];
        if (!made) continue;
        if (!f->out[i]->is_input && !*v) {
            *v = made;
            continue;
        }
        if (!*v)
            return PARE_FAIL_NODE(
                c->call, INPUT, "its output '%s' is an input that the call leaves out", made->name);
        PARE_TRY(pare_node_new(g, NULL, (*at)++, "Identity", "", "", v, 1, &made, 1));
    }
    return PARE_OK;
}

static pare_status expand_node(inliner *x, pare_node *node);

static pare_status expand_all(inliner *x, pare_node *const *node, int count)
{
    for (int n = 0; n < count && !x->stopped; n++) PARE_TRY(expand_node(x, node[n]));
    return PARE_OK;
}

/* Puts the function's nodes where the call was and expands what they call in turn. */
static pare_status inline_call(inliner *x, function *f, pare_node *call)
{
    pare_graph *g = call->graph;
    const char *title = call->name;
    for (int i = call->out_count - 1; i >= 0 && !call->name[0]; i--)
        if (call->out[i]) title = call->out[i]->name;
    if (!x->depth) x->outermost = call;
    instance c = {x, f, call, call->in_count, call->out_count, title, NULL};
    c.map = pare_arena_alloc(&x->r->scratch, (size_t)f->values + 1, sizeof *c.map);
    pare_node **made =
        pare_arena_alloc(&x->r->scratch, (size_t)f->graph->node_count + 1, sizeof *made);
    if (!c.map || !made) return PARE_MEMORY;
    int at = pare_node_index(call);
    pare_node_remove(call);
    int first = at;
    PARE_TRY(tie(&c, &at));
    for (int n = 0; n < f->graph->node_count; n++) /* an Identity's input is made before it */
        PARE_TRY(copy_node(&c, g, first++, f->graph->node[n], &made[n]));
    f->active = true;
    x->depth++;
    PARE_TRY(expand_all(x, made, f->graph->node_count));
    x->depth--;
    f->active = false;
    return PARE_OK;
}

/* What is wrong with a call, as a problem of the model. */
static pare_status check_call(inliner *x, const function *f, const pare_node *call)
{
    char text[400] = "";
    size_t at = (size_t)(f - x->function);
    if (f->active)
        snprintf(text, sizeof text, "the function calls itself, expected no recursion");
    else if (x->depth >= DEPTH_MAX)
        snprintf(text, sizeof text, "functions call each other deeper than %d", DEPTH_MAX);
    else if ((at && !by_id(f - 1, f)) || (at + 1 < x->count && !by_id(f, f + 1)))
        snprintf(text, sizeof text, "two functions of the model have this name");
    else if ((size_t)call->in_count > f->message->n_input)
        snprintf(text, sizeof text, "it gives %d inputs to a function of %zu", call->in_count,
                 f->message->n_input);
    else if ((size_t)call->out_count > f->message->n_output)
        snprintf(text, sizeof text, "it takes %d outputs of a function of %zu", call->out_count,
                 f->message->n_output);
    if (!text[0]) return PARE_OK;
    x->stopped = true;
    char title[256];
    pare_node_title(call, title, sizeof title);
    size_t path = strlen(x->r->path) + 2; /* the title begins with "path: " */
    return pare_onnx_problem(x->r, PARE_INPUT, "%s: %s",
                             strlen(title) > path ? title + path : title, text);
}

static pare_status expand_graph(inliner *x, pare_graph *graph)
{
    pare_node **list =
        pare_arena_alloc(&x->r->scratch, (size_t)graph->node_count + 1, sizeof *list);
    int count = graph->node_count;
    if (!list) return PARE_MEMORY;
    if (count) memcpy(list, graph->node, (size_t)count * sizeof *list);
    return expand_all(x, list, count);
}

static pare_status expand_node(inliner *x, pare_node *node)
{
    for (int a = 0; a < node->attr_count; a++) {
        const pare_attr *attr = &node->attr[a];
        if (attr->ref) continue;
        if (attr->kind == PARE_ATTR_GRAPH) PARE_TRY(expand_graph(x, attr->graph));
        for (int i = 0; attr->kind == PARE_ATTR_GRAPHS && i < attr->count; i++)
            PARE_TRY(expand_graph(x, attr->graphs[i]));
    }
    function *f = find(x, node);
    if (!f || x->stopped) return PARE_OK;
    PARE_TRY(check_call(x, f, node));
    if (x->stopped) return PARE_OK;
    if (!f->graph) PARE_TRY(read_body(x, f));
    return inline_call(x, f, node);
}

pare_status pare_onnx_inline_functions(pare_onnx_reader *r, pare_model *model)
{
    inliner x = {.r = r, .model = model, .count = (size_t)model->function_count};
    if (!x.count) return PARE_OK;
    x.function = pare_arena_alloc(&r->scratch, x.count, sizeof *x.function);
    if (!x.function) return PARE_MEMORY;
    for (size_t i = 0; i < x.count; i++)
        PARE_TRY(read_header(r, &x.function[i], model->function[i]));
    qsort(x.function, x.count, sizeof *x.function, by_id);
    PARE_TRY(expand_graph(&x, model->graph));
    if (x.inlined) model->function_count = 0;
    return PARE_OK;
}

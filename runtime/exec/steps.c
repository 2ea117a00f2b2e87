/* SPDX-License-Identifier: Apache-2.0 */
/* One step per node: where its tensors are and which kernel serves it. Lifetimes are positions of
   nodes; a root dies at the position of its last reader. */
#include "runtime/base/ptr_map.h"
#include "runtime/base/room.h"
#include "runtime/exec/branches.h"
#include "runtime/exec/gather.h"
#include "runtime/exec/parts.h"

#include <string.h>

typedef struct maker {
    pare_plan *plan;
    pare_tuner *tuner;
    pare_ptr_map root; /* of a value */
    pare_parts parts;
    pare_arena *arena; /* until the steps are made */
} maker;

static int storage_new(maker *m, pare_storage root)
{
    pare_plan *p = m->plan;
    if (!pare_arena_grow(&p->arena, &p->root, &p->storage_capacity, (size_t)p->storage_count,
                         sizeof *p->root))
        return -1;
    p->root[p->storage_count] = root;
    return p->storage_count++;
}

/* Constants get their root at first sight; everything else has one by then. */
static pare_status storage_find(maker *m, const pare_value *v, int *out)
{
    *out = pare_ptr_map_find(&m->root, v);
    if (*out >= 0) return PARE_OK;
    if (!v->data)
        return PARE_FAIL(m->plan->ctx, INPUT, "%s: tensor '%s' is computed by no node",
                         m->plan->model->path, v->name);
    *out = storage_new(m, (pare_storage){.where = PARE_AT_CONSTANT,
                                         .constant = (void *)v->data->data,
                                         .bytes = v->data->bytes});
    if (*out < 0) return PARE_MEMORY;
    return pare_ptr_map_put(&m->root, v, *out);
}

static pare_status view_of(const pare_node *node, const pare_value *v, pare_view *out)
{
    char text[256];
    if (!pare_shape_known(&v->shape))
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "the shape of tensor '%s' is not known before it runs: %s", v->name,
                              pare_shape_text(&v->shape, text, sizeof text));
    size_t bytes;
    int64_t n = pare_shape_count(&v->shape);
    if (!pare_type(v->dtype)->bits)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "tensor '%s' has type %s, which cannot be computed with", v->name,
                              pare_type(v->dtype)->name);
    if (n < 0 || !pare_type_bytes(v->dtype, n, &bytes))
        return PARE_FAIL_NODE(node, INPUT, "the size of tensor '%s' %s overflows", v->name,
                              pare_shape_text(&v->shape, text, sizeof text));
    pare_view_set(out, v->dtype, &v->shape, v->nhwc && !v->data);
    out->data = v->data ? (void *)v->data->data : NULL;
    return PARE_OK;
}

/* The same where it lies in another tensor. */
static pare_status place_view(const maker *m, const pare_node *node, const pare_value *v,
                              pare_place *out)
{
    PARE_TRY(view_of(node, v, &out->view));
    const pare_concat_part *part = pare_parts_find(&m->parts, v);
    if (!part) return PARE_OK;
    out->at = part->at;
    out->pitch = part->pitch;
    out->width = part->pitch ? part->width : 0;
    pare_parts_view(&m->parts, v, &out->view);
    return PARE_OK;
}

/* Bytes from the first to behind the last. */
static size_t reach_of(const pare_place *p) { return pare_view_reach(&p->view); }

bool pare_places_overlap(const pare_place *a, const pare_place *b)
{
    if (a->root < 0 || a->root != b->root) return false;
    if (a->at >= b->at + reach_of(b) || b->at >= a->at + reach_of(a)) return false;
    if (!a->pitch || a->pitch != b->pitch) return true;
    /* rows of a begin so far behind those of b */
    const size_t behind = (a->at + a->pitch - b->at % a->pitch) % a->pitch;
    return behind < b->width || behind + a->width > a->pitch;
}

/* Bits of the inputs whose memory out 0 may take over. */
static unsigned dying_inputs(const maker *m, const pare_step *s)
{
    unsigned bits = 0;
    if (!s->out_count || !s->node->out[0]) return 0;
    if (pare_parts_find(&m->parts, s->node->out[0])) return 0;
    const pare_view *y = &s->out[0].view;
    for (int i = 0; i < s->in_count && i < 32; i++) {
        const pare_place *x = &s->in[i];
        if (x->root < 0) continue;
        const pare_storage *r = &m->plan->root[x->root];
        bool alone = true;
        for (int k = 0; k < s->in_count; k++) alone = alone && (k == i || s->in[k].root != x->root);
        if (alone && r->where == PARE_AT_BUFFER && r->last == s->position &&
            r->bytes == pare_view_bytes(y) && x->view.dtype == y->dtype &&
            pare_view_same_order(&x->view, y))
            bits |= 1u << i;
    }
    return bits;
}

/* --- one step --- */

static pare_status step_places(maker *m, pare_step *s)
{
    pare_arena *arena = &m->plan->arena;
    pare_node *n = s->node;
    s->in_count = n->in_count;
    s->out_count = n->out_count;
    s->in = pare_arena_alloc(arena, (size_t)n->in_count + 1, sizeof *s->in);
    s->out = pare_arena_alloc(arena, (size_t)n->out_count + 1, sizeof *s->out);
    if (!s->in || !s->out) return PARE_MEMORY;
    for (int i = 0; i < n->in_count; i++) {
        s->in[i].root = -1;
        if (!n->in[i]) continue;
        PARE_TRY(storage_find(m, n->in[i], &s->in[i].root));
        PARE_TRY(place_view(m, n, n->in[i], &s->in[i]));
    }
    for (int i = 0; i < n->out_count; i++) {
        s->out[i].root = -1;
        if (n->out[i]) PARE_TRY(place_view(m, n, n->out[i], &s->out[i]));
    }
    return PARE_OK;
}

/* Is one of its tensors a part that is not like a tensor of its own? */
static bool is_apart(const maker *m, const pare_value *v)
{
    const pare_concat_part *part = v ? pare_parts_find(&m->parts, v) : NULL;
    return part && (part->pitch || part->at % pare_memory_align(m->plan));
}

static bool has_parts(const maker *m, const pare_node *node)
{
    bool apart = false;
    for (int i = 0; i < node->in_count; i++) apart = apart || is_apart(m, node->in[i]);
    for (int i = 0; i < node->out_count; i++) apart = apart || is_apart(m, node->out[i]);
    return apart;
}

/* The kernel's view of the step; the arrays live in the plan's arena. */
static pare_status step_prep(maker *m, pare_step *s, pare_prep *prep)
{
    pare_plan *p = m->plan;
    pare_view *in = pare_arena_alloc(&p->arena, (size_t)s->in_count + 1, sizeof *in);
    pare_view *out = pare_arena_alloc(&p->arena, (size_t)s->out_count + 1, sizeof *out);
    if (!in || !out) return PARE_MEMORY;
    for (int i = 0; i < s->in_count; i++) in[i] = s->in[i].view;
    for (int i = 0; i < s->out_count; i++) out[i] = s->out[i].view;
    *prep = (pare_prep){.ctx = p->ctx,
                        .node = s->node,
                        .in = in,
                        .out = out,
                        .in_count = s->in_count,
                        .out_count = s->out_count,
                        .threads = p->options.threads,
                        .deterministic = p->options.deterministic,
                        .dying = dying_inputs(m, s),
                        .arena = &p->arena,
                        .device = p->options.device,
                        .parts = has_parts(m, s->node),
                        .share = -1};
    return PARE_OK;
}

bool pare_kernel_serves(const pare_kernel *kernel, const pare_prep *prep)
{
    if (prep->parts && !(kernel->flags & PARE_KERNEL_PARTS)) return false;
    return !kernel->can || kernel->can(prep);
}

static const pare_kernel *device_kernel(const pare_prep *prep, const pare_op *op)
{
    for (const pare_kernel *const *k = op->cuda; *k; k++)
        if (pare_kernel_serves(*k, prep)) return *k;
    return pare_kernel_serves(&pare_host_step, prep) ? &pare_host_step : NULL;
}

static pare_status kernel_choose(maker *m, const pare_prep *prep, const pare_kernel **out)
{
    const pare_op *op = pare_op_of(prep->node);
    if (!op || !op->cpu[0])
        return PARE_FAIL_NODE(prep->node, UNSUPPORTED,
                              "operator '%s%s%s' is not supported (`pare ops` lists what is)",
                              prep->node->domain, prep->node->domain[0] ? "." : "",
                              prep->node->op_type);
    if (prep->device && (*out = device_kernel(prep, op)))
        return m->tuner && *out != &pare_host_step
                   ? pare_tuner_choose(m->tuner, prep, op->cuda, out)
                   : PARE_OK;
    if (m->tuner && !prep->device) return pare_tuner_choose(m->tuner, prep, op->cpu, out);
    for (const pare_kernel *const *k = op->cpu; *k; k++)
        if ((!m->plan->options.reference || (*k)->flags & (PARE_KERNEL_REF | PARE_KERNEL_ALIAS)) &&
            (!(*k)->can || (*k)->can(prep))) {
            *out = *k;
            return PARE_OK;
        }
    const pare_value *x = prep->in_count ? prep->node->in[0] : NULL;
    return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "no kernel takes type %s",
                          x ? pare_type(x->dtype)->name : "?");
}

pare_status pare_kernel_prepare(const pare_kernel *kernel, pare_prep *prep)
{
    prep->share = -1;
    prep->packed = 0;
    prep->scratch = 0;
    prep->kept = 0;
    prep->state = NULL;
    if (kernel->prepare) PARE_TRY(kernel->prepare(prep));
    if (prep->share < 0 && kernel->flags & PARE_KERNEL_INPLACE && prep->dying & 1) prep->share = 0;
    for (int i = 0; i < prep->in_count && kernel->flags & PARE_KERNEL_INPLACE_ANY; i++)
        if (prep->share < 0 && prep->dying >> i & 1) prep->share = i;
    return PARE_OK;
}

/* The root that v lies in: the Concat's whose part it is, or its own, which may be there because
   of its parts. */
static pare_status root_find(maker *m, const pare_node *n, const pare_value *v, int *out)
{
    const pare_concat_part *part = pare_parts_find(&m->parts, v);
    const pare_value *whole = part ? part->whole : v;
    pare_view view;
    *out = pare_ptr_map_find(&m->root, whole);
    if (*out >= 0) return PARE_OK;
    PARE_TRY(view_of(n, whole, &view));
    const int last = pare_parts_last_use(&m->parts, whole);
    *out = storage_new(m, (pare_storage){.where = PARE_AT_BUFFER,
                                         .value = whole,
                                         .bytes = pare_view_bytes(&view),
                                         .first = n->mark,
                                         .last = last < n->mark ? n->mark : last});
    return *out < 0 ? PARE_MEMORY : pare_ptr_map_put(&m->root, whole, *out);
}

static pare_status outputs_place(maker *m, pare_step *s, int share)
{
    pare_node *n = s->node;
    for (int i = 0; i < n->out_count; i++) {
        if (!n->out[i]) continue;
        int root;
        if (i == 0 && share >= 0) {
            const int last = pare_parts_last_use(&m->parts, n->out[i]);
            root = s->in[share].root;
            if (last > m->plan->root[root].last) m->plan->root[root].last = last;
        } else {
            PARE_TRY(root_find(m, n, n->out[i], &root));
        }
        s->out[i].root = root;
        PARE_TRY(pare_ptr_map_put(&m->root, n->out[i], root));
    }
    return PARE_OK;
}

/* A kernel's allocation that failed says how much; this adds for what. */
static pare_status name_step(maker *m, const pare_node *node, pare_status st)
{
    char text[256];
    pare_ctx *ctx = m->plan->ctx;
    if (st != PARE_MEMORY && st != PARE_DEVICE) return st;
    if (strstr(ctx->message, "node '"))
        return strstr(ctx->message, m->plan->model->path)
                   ? st
                   : pare_fail_prefix(ctx, st, "%s", m->plan->model->path);
    return pare_fail_prefix(
        ctx, st, "%s: node '%s' (%s), tensor '%s' %s", m->plan->model->path, node->name,
        node->op_type, node->out_count ? node->out[0]->name : "",
        node->out_count ? pare_shape_text(&node->out[0]->shape, text, sizeof text) : "");
}

/* What the kernel wanted of a constant, it has packed: the file's pages are given back, and copies
   that a part of a model has for this node alone. */
static void drop_constants(const pare_plan *p, const pare_node *node, unsigned packed)
{
    const bool copies = (p->stage || p->sharding) && !p->options.device;
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (!v || !v->data) continue;
        pare_tensor_give_back(v->data);
        if (copies && !v->data->mapped && v->user_count == 1 && !v->is_output && i < 32 &&
            packed >> i & 1)
            pare_memory_give_back(v->data->data, v->data->bytes);
    }
}

static pare_status step_make(maker *m, pare_node *node)
{
    pare_plan *p = m->plan;
    pare_step *s = &p->step[p->step_count];
    *s = (pare_step){.node = node, .position = node->mark};
    PARE_TRY(step_places(m, s));
    if (pare_op_is_alias(node)) { /* same bytes under another shape: nothing runs */
        PARE_TRY(pare_ptr_map_put(&m->root, node->out[0], s->in[0].root));
        return pare_parts_alias(&m->parts, node->in[0], node->out[0]);
    }
    if (pare_parts_all_joined(&m->parts, node)) return outputs_place(m, s, -1); /* nor here */
    pare_prep prep;
    size_t before = p->arena.bytes;
    PARE_TRY(step_prep(m, s, &prep));
    PARE_TRY(kernel_choose(m, &prep, &s->kernel));
    PARE_TRY(pare_kernel_prepare(s->kernel, &prep));
    drop_constants(p, node, prep.packed);
    s->gathers = pare_gathers(p, node);
    s->joined = pare_parts_joined_bytes(&m->parts, node);
    s->state = prep.state;
    s->scratch = prep.scratch;
    p->weight_bytes += p->arena.bytes - before + prep.kept;
    for (int i = 0; i < s->in_count; i++)
        if (s->in[i].root >= 0 && (i >= 32 || !(prep.packed >> i & 1)))
            p->root[s->in[i].root].uploaded = true;
    p->step_count++; /* from here on pare_plan_free releases the state */
    if (s->scratch > p->scratch_bytes) p->scratch_bytes = s->scratch;
    pare_log(p->ctx, PARE_LOG_DEBUG, "%s %s: %s", node->op_type, node->name, s->kernel->name);
    return outputs_place(m, s, prep.share);
}

/* --- parts of Concats --- */

/* As tensors of their own, or where they are. */
static pare_view *trial_views(maker *m, const pare_node *node, pare_value *const *value, int count,
                              bool apart)
{
    pare_view *view = pare_arena_alloc(m->arena, (size_t)count + 1, sizeof *view);
    for (int i = 0; view && i < count; i++) {
        if (value[i] && view_of(node, value[i], &view[i]) != PARE_OK) return NULL;
        if (value[i] && apart) pare_parts_view(&m->parts, value[i], &view[i]);
    }
    return view;
}

/* The first of a device's kernels that serves; NULL: none does. */
static const pare_kernel *trial_kernel(maker *m, const pare_node *node, bool apart)
{
    const pare_op *op = pare_op_of(node);
    pare_prep prep = {.ctx = m->plan->ctx,
                      .node = node,
                      .in = trial_views(m, node, node->in, node->in_count, apart),
                      .out = trial_views(m, node, node->out, node->out_count, apart),
                      .in_count = node->in_count,
                      .out_count = node->out_count,
                      .threads = m->plan->options.threads,
                      .deterministic = m->plan->options.deterministic,
                      .arena = m->arena,
                      .device = m->plan->options.device,
                      .parts = apart,
                      .share = -1};
    return op && prep.in && prep.out ? device_kernel(&prep, op) : NULL;
}

/* The kernel must be the one that would serve without parts: another may be slower, or round
   otherwise. */
static bool takes(void *user, const pare_node *node, const pare_parts *parts)
{
    maker *m = user;
    (void)parts;
    const pare_kernel *apart = trial_kernel(m, node, true);
    const bool same = apart && apart == trial_kernel(m, node, false);
    pare_ctx_clear(m->plan->ctx); /* of shapes that are not known */
    return same;
}

/* Observers see tensors of their own. */
static pare_status parts_choose(maker *m)
{
    const pare_plan_options *o = &m->plan->options;
    const pare_parts_rules rules = {pare_memory_align(m->plan), o->device ? takes : NULL, m};
    m->parts.arena = m->arena;
    pare_ptr_map_init(&m->parts.of, m->arena);
    if (o->reference || o->keep_all || o->keep_count) return PARE_OK;
    return pare_parts_choose(m->plan->ctx, &m->parts, m->arena, m->plan->model->graph, &rules);
}

/* --- the whole graph --- */

static pare_status ends_place(maker *m)
{
    pare_plan *p = m->plan;
    pare_graph *g = p->model->graph;
    p->output_place =
        pare_arena_alloc(&p->arena, (size_t)g->out.count + 1, sizeof *p->output_place);
    if (!p->output_place) return PARE_MEMORY;
    for (int i = 0; i < g->out.count; i++) {
        pare_value *v = g->out.item[i];
        pare_place *place = &p->output_place[i];
        PARE_TRY(storage_find(m, v, &place->root));
        if (!pare_shape_known(&v->shape))
            return PARE_FAIL(p->ctx, UNSUPPORTED, "%s: output '%s' has no known shape",
                             p->model->path, v->name);
        pare_view_set(&place->view, v->dtype, &v->shape, p->as_made && v->nhwc && !v->data);
    }
    p->output_count = g->out.count;
    return PARE_OK;
}

static pare_status inputs_place(maker *m)
{
    pare_plan *p = m->plan;
    p->input_place =
        pare_arena_alloc(&p->arena, (size_t)p->input_count + 1, sizeof *p->input_place);
    if (!p->input_place) return PARE_MEMORY;
    for (int i = 0; i < p->input_count; i++) {
        pare_place *place = &p->input_place[i];
        place->root = storage_new(m, (pare_storage){.where = PARE_AT_INPUT, .index = i});
        if (place->root < 0) return PARE_MEMORY;
        PARE_TRY(pare_ptr_map_put(&m->root, p->input[i], place->root));
        pare_view_set(&place->view, p->input[i]->dtype, &p->input[i]->shape,
                      p->as_made && p->input[i]->nhwc);
    }
    return PARE_OK;
}

static pare_status steps_fill(maker *m)
{
    pare_plan *p = m->plan;
    pare_graph *g = p->model->graph;
    p->step = pare_arena_alloc(&p->arena, (size_t)g->node_count + 1, sizeof *p->step);
    if (!p->step) return PARE_MEMORY;
    for (int i = 0; i < g->node_count; i++) g->node[i]->mark = i;
    PARE_TRY(parts_choose(m));
    PARE_TRY(inputs_place(m));
    for (int i = 0; i < g->node_count; i++) {
        PARE_TRY(pare_ctx_poll(p->ctx));
        PARE_TRY(name_step(m, g->node[i], step_make(m, g->node[i])));
    }
    PARE_TRY(ends_place(m));
    PARE_TRY(pare_branches_place(p));
    return p->options.device ? pare_device_place(p) : PARE_OK;
}

pare_status pare_steps_make(pare_plan *plan)
{
    pare_arena arena;
    pare_arena_init(&arena, plan->ctx);
    maker m = {.plan = plan, .arena = &arena};
    pare_ptr_map_init(&m.root, &arena);
    pare_status st = PARE_OK;
    const pare_plan_options *o = &plan->options;
    if (o->device) st = o->device->streams->enter(plan->ctx, o->device);
    if (st == PARE_OK && (o->tune || o->cache_dir) && !o->reference)
        st = pare_tuner_open(plan->ctx, &m.tuner, o);
    if (st == PARE_OK) st = steps_fill(&m);
    if (m.tuner && st == PARE_OK)
        st = pare_tuner_close(m.tuner);
    else
        pare_tuner_discard(m.tuner);
    pare_arena_free(&arena);
    return st;
}

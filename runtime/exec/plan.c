/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void pare_plan_options_init(pare_plan_options *out) { *out = (pare_plan_options){0}; }

/* Strings the options point to must outlive the call. */
static pare_status options_keep(pare_plan *plan, const pare_plan_options *options)
{
    if (options) plan->options = *options;
    pare_plan_options *o = &plan->options;
    if (o->threads <= 0) o->threads = pare_cpu_cores();
    if (o->deterministic) o->threads = 1;
    const char **keep = pare_arena_alloc(&plan->arena, (size_t)o->keep_count + 1, sizeof *keep);
    if (!keep) return PARE_MEMORY;
    for (int i = 0; i < o->keep_count; i++) {
        keep[i] = pare_arena_strdup(&plan->arena, o->keep[i]);
        if (!keep[i]) return PARE_MEMORY;
    }
    o->keep = keep;
    return PARE_OK;
}

pare_status pare_plan_new(pare_ctx *ctx, pare_plan **out, const pare_model *model,
                          const pare_input_shape *shapes, int shape_count,
                          const pare_plan_options *options)
{
    pare_plan *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    p->ctx = ctx;
    pare_arena_init(&p->arena, ctx);
    pare_status st = options_keep(p, options);
    if (st == PARE_OK) st = pare_model_clone(ctx, &p->model, model);
    if (st == PARE_OK && !p->model->graph->out.count)
        st = PARE_FAIL(ctx, INPUT,
                       "%s: the graph has no outputs, so there is nothing to compute; "
                       "export the model again",
                       model->path);
    if (st == PARE_OK) st = pare_compile(p, shapes, shape_count);
    if (st == PARE_OK && p->options.stages > 1)
        st = p->options.split ? pare_stage_take_split(p) : pare_stage_take(p);
    if (st == PARE_OK && p->options.shards > 1) st = pare_shard_take(p);
    if (st == PARE_OK && !p->options.outline) st = pare_steps_make(p);
    p->options.placed = NULL; /* the caller's */
    p->options.split = NULL;
    if (st != PARE_OK) {
        pare_plan_free(p);
        return st;
    }
    *out = p;
    return PARE_OK;
}

void pare_plan_free(pare_plan *plan)
{
    if (!plan) return;
    for (int i = 0; i < plan->step_count; i++)
        if (plan->step[i].kernel->release) plan->step[i].kernel->release(plan->step[i].state);
    if (plan->device_constants)
        plan->options.device->backend->free(plan->options.device, plan->device_constants);
    if (plan->dynamic) pare_model_free(plan->dynamic->model);
    pare_arena_free(&plan->arena);
    pare_model_free(plan->model);
    pare_free(plan);
}

int pare_plan_step_count(const pare_plan *plan)
{
    return plan->step_count + (plan->dynamic ? plan->dynamic->model->graph->node_count : 0);
}

const pare_node *pare_plan_node(const pare_plan *plan, int i)
{
    return i < plan->step_count ? plan->step[i].node
                                : plan->dynamic->model->graph->node[i - plan->step_count];
}

static void dynamic_step(const pare_plan *plan, int i, pare_step_info *out)
{
    const pare_node *n = pare_plan_node(plan, i);
    const pare_value *y = n->out_count ? n->out[0] : NULL;
    *out = (pare_step_info){.node = n->name,
                            .op_type = n->op_type,
                            .kernel = "interpreter",
                            .output = y ? y->name : "",
                            .dtype = y ? y->dtype : PARE_NOTYPE,
                            .shape = {.rank = -1}};
    if (y) out->shape = y->shape;
}

void pare_plan_step(const pare_plan *plan, int i, pare_step_info *out)
{
    if (i >= plan->step_count) {
        dynamic_step(plan, i, out);
        return;
    }
    const pare_step *s = &plan->step[i];
    const pare_value *y = s->out_count ? s->node->out[0] : NULL;
    *out = (pare_step_info){.node = s->node->name,
                            .op_type = s->node->op_type,
                            .kernel = s->kernel->name,
                            .output = y ? y->name : "",
                            .dtype = y ? y->dtype : PARE_NOTYPE,
                            .macs = fmax(0, pare_node_macs(s->node))};
    if (y) out->shape = y->shape;
    for (int k = 0; k < s->in_count; k++)
        if (s->in[k].root >= 0) out->bytes_in += pare_view_bytes(&s->in[k].view);
    for (int k = 0; k < s->out_count; k++)
        if (s->out[k].root >= 0) out->bytes_out += pare_view_bytes(&s->out[k].view);
    out->bytes_in -= s->joined;
    out->bytes_out -= s->joined;
    out->live = s->scratch;
    for (int r = 0; r < plan->storage_count; r++)
        if (plan->root[r].where == PARE_AT_BUFFER && plan->root[r].first <= s->position &&
            s->position <= plan->root[r].last)
            out->live += plan->root[r].bytes;
}

const pare_graph *pare_plan_graph(const pare_plan *plan) { return plan->model->graph; }
const pare_plan_stage *pare_plan_stages(const pare_plan *plan, int *count)
{
    *count = plan->stage ? plan->options.stages : 0;
    return plan->stage;
}

void pare_plan_part_ends(const pare_plan *plan, int *received, int *sent)
{
    *received = plan->received;
    *sent = plan->sent;
}

const pare_plan_sharding *pare_plan_sharding_of(const pare_plan *plan) { return plan->sharding; }

pare_device *pare_plan_device(const pare_plan *plan) { return plan->options.device; }

const char *pare_plan_largest(const pare_plan *plan, char *text, size_t size)
{
    char shape[256];
    const pare_storage *most = NULL;
    *text = 0;
    for (int r = 0; r < plan->storage_count; r++) {
        const pare_storage *root = &plan->root[r];
        if (root->where == PARE_AT_BUFFER && root->bytes > (most ? most->bytes : 0)) most = root;
    }
    if (!most) return text;
    const pare_value *v = most->value;
    snprintf(text, size, "; the largest is tensor '%s' %s of node '%s' (%s), %zu bytes", v->name,
             pare_shape_text(&v->shape, shape, sizeof shape), v->producer->name,
             v->producer->op_type, most->bytes);
    return text;
}

size_t pare_plan_activation_bytes(const pare_plan *plan)
{
    return plan->buffer_bytes + plan->scratch_bytes + plan->side_scratch_bytes;
}

size_t pare_plan_weight_bytes(const pare_plan *plan) { return plan->weight_bytes; }
int pare_plan_input_count(const pare_plan *plan) { return plan->input_count; }
int pare_plan_output_count(const pare_plan *plan)
{
    return plan->dynamic ? plan->dynamic->output_count : plan->output_count;
}
bool pare_plan_is_dynamic(const pare_plan *plan) { return plan->dynamic != NULL; }
const pare_value *pare_plan_input(const pare_plan *plan, int i) { return plan->input[i]; }

const pare_value *pare_plan_output(const pare_plan *plan, int i)
{
    const pare_dynamic *d = plan->dynamic;
    if (!d) return plan->model->graph->out.item[i];
    return (d->late[i] ? d->model : plan->model)->graph->out.item[d->at[i]];
}

int pare_plan_output_made(const pare_plan *plan, int i)
{
    int made = -1;
    for (int k = 0; k < plan->step_count; k++)
        for (int j = 0; j < plan->step[k].out_count; j++)
            if (plan->step[k].out[j].root == plan->output_place[i].root) made = k;
    return made;
}

/* A session: the plans of one model, one per set of input shapes. */

typedef struct entry {
    pare_shape *shape; /* (plan inputs) */
    pare_plan *plan;
    pare_runner *runner;
} entry;

struct pare_session {
    pare_ctx *ctx;
    const pare_model *model;
    pare_plan_options options;
    entry *entry;
    int count;
    size_t capacity;
};

pare_status pare_session_new(pare_ctx *ctx, pare_session **out, const pare_model *model,
                             const pare_plan_options *options)
{
    pare_session *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->ctx = ctx;
    s->model = model;
    if (options) s->options = *options;
    *out = s;
    return PARE_OK;
}

static void entry_free(entry *e)
{
    pare_runner_free(e->runner);
    pare_plan_free(e->plan);
    pare_free(e->shape);
}

void pare_session_free(pare_session *session)
{
    if (!session) return;
    for (int i = 0; i < session->count; i++) entry_free(&session->entry[i]);
    pare_free(session->entry);
    pare_free(session);
}

/* An entry serves these shapes where each of its inputs is asked for in its own shape. */
static bool serves(const entry *e, const pare_input_shape *shapes, int count)
{
    for (int i = 0; i < pare_plan_input_count(e->plan); i++) {
        const pare_shape *asked =
            pare_input_shape_find(shapes, count, pare_plan_input(e->plan, i)->name);
        if (asked && !pare_shape_equal(asked, &e->shape[i])) return false;
    }
    return true;
}

static pare_status entry_new(pare_session *s, entry *e, const pare_input_shape *shapes, int count)
{
    PARE_TRY(pare_plan_new(s->ctx, &e->plan, s->model, shapes, count, &s->options));
    int n = pare_plan_input_count(e->plan);
    e->shape = pare_alloc(s->ctx, (size_t)n, sizeof *e->shape);
    if (!e->shape) return PARE_MEMORY;
    for (int i = 0; i < n; i++) e->shape[i] = pare_plan_input(e->plan, i)->shape;
    return pare_runner_new(s->ctx, &e->runner, e->plan);
}

pare_status pare_session_runner(pare_session *session, pare_runner **out,
                                const pare_input_shape *shapes, int shape_count)
{
    for (int i = 0; i < session->count; i++)
        if (serves(&session->entry[i], shapes, shape_count)) {
            *out = session->entry[i].runner;
            return PARE_OK;
        }
    if (!pare_grow(session->ctx, &session->entry, &session->capacity, (size_t)session->count,
                   sizeof *session->entry))
        return PARE_MEMORY;
    entry e = {0};
    pare_status st = entry_new(session, &e, shapes, shape_count);
    if (st != PARE_OK) {
        entry_free(&e);
        return st;
    }
    session->entry[session->count++] = e;
    *out = e.runner;
    return PARE_OK;
}

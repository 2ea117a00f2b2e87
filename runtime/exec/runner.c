/* SPDX-License-Identifier: Apache-2.0 */
/* A runner: one buffer for all activations, one call record per step with every pointer set. A run
   only walks the records. */
#include "runtime/base/size.h"
#include "runtime/exec/gather.h"
#include "runtime/exec/interpreter/interpreter.h"
#include "runtime/ops/ops.h"
#include "runtime/base/clock.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* In host memory. */
static void *address(const pare_runner *r, const pare_storage *at)
{
    switch (at->where) {
    case PARE_AT_CONSTANT: return at->constant;
    case PARE_AT_INPUT: return r->input[at->index];
    case PARE_AT_BUFFER: return r->buffer + at->offset;
    case PARE_AT_NOWHERE: break;
    }
    return NULL;
}

/* A tensor where the host can read it; one that is in a graph input follows that input. */
static pare_status view_bind_host(pare_runner *r, const pare_place *place, pare_view *view)
{
    *view = place->view;
    view->data = NULL;
    if (place->root < 0) return PARE_OK;
    const pare_storage *root = &r->plan->root[place->root];
    view->data = address(r, root);
    if (place->at) view->data = (char *)view->data + place->at;
    if (root->where != PARE_AT_INPUT) return PARE_OK;
    if (!pare_arena_grow(&r->arena, &r->use, &r->use_capacity, (size_t)r->use_count,
                         sizeof *r->use))
        return PARE_MEMORY;
    r->use[r->use_count++] = (pare_input_use){&view->data, root->index};
    return PARE_OK;
}

/* A tensor where a step can read it. */
static pare_status view_bind(pare_runner *r, const pare_place *place, pare_view *view)
{
    if (!r->device) return view_bind_host(r, place, view);
    *view = place->view;
    view->data = NULL;
    if (place->root < 0) return PARE_OK;
    view->data = pare_runner_device_address(r, &r->plan->root[place->root]);
    if (place->at) view->data = (char *)view->data + place->at;
    return PARE_OK;
}

/* Is a graph input on the device already, which the host does not bring up? */
static bool is_there(const pare_plan *plan, const pare_storage *input)
{
    return input->there || pare_plan_input_stays(plan, input->index);
}

/* Must the host's copy of an output come from the device? Of an input that is there the host's
   bytes may be older. */
static bool is_made_there(const pare_runner *r, const pare_storage *root)
{
    return root->where == PARE_AT_BUFFER ||
           (root->where == PARE_AT_INPUT && is_there(r->plan, root));
}

static pare_status output_bind(pare_runner *r, int i)
{
    const pare_place *place = &r->plan->output_place[i];
    if (r->device && r->plan->stays[i]) {
        r->output[i] = place->view;
        r->output[i].data = pare_runner_device_address(r, &r->plan->root[place->root]);
        return PARE_OK;
    }
    if (r->device && is_made_there(r, &r->plan->root[place->root]))
        return pare_runner_device_output(r, i);
    return view_bind_host(r, place, &r->output[i]);
}

static pare_status views_bind(pare_runner *r, const pare_place *places, int count,
                              const pare_view **out)
{
    pare_view *views = pare_arena_alloc(&r->arena, (size_t)count + 1, sizeof *views);
    if (!views) return PARE_MEMORY;
    for (int i = 0; i < count; i++) PARE_TRY(view_bind(r, &places[i], &views[i]));
    *out = views;
    return PARE_OK;
}

static pare_status calls_make(pare_runner *r)
{
    const pare_plan *p = r->plan;
    for (int i = 0; i < p->step_count; i++) {
        const pare_step *s = &p->step[i];
        pare_call *c = &r->call[i];
        *c = (pare_call){.ctx = r->ctx,
                         .node = s->node,
                         .in_count = s->in_count,
                         .out_count = s->out_count,
                         .threads = p->options.threads,
                         .state = s->state,
                         .scratch = s->side ? r->device->side_scratch : r->scratch,
                         .stream = r->device ? r->device->stream : NULL,
                         .fault = r->device && s->kernel->fault ? r->device->fault : NULL,
                         .step = i};
        PARE_TRY(views_bind(r, s->in, s->in_count, &c->in));
        PARE_TRY(views_bind(r, s->out, s->out_count, &c->out));
        if (s->kernel->bind) PARE_TRY(s->kernel->bind(c, &r->arena));
        r->bound = i + 1;
    }
    for (int i = 0; i < p->output_count; i++) PARE_TRY(output_bind(r, i));
    return PARE_OK;
}

static pare_status fail_activations(const pare_runner *r, size_t bytes)
{
    char largest[1024];
    return PARE_FAIL(
        r->ctx, MEMORY, "%s: out of memory: %zu bytes for activations were not granted%s",
        r->plan->model->path, bytes, pare_plan_largest(r->plan, largest, sizeof largest));
}

static pare_status buffer_new(pare_runner *r)
{
    const pare_plan *p = r->plan;
    size_t bytes;
    if (!pare_add_size(p->buffer_bytes, p->scratch_bytes + 64, &bytes))
        return fail_activations(r, SIZE_MAX);
    /* its own block, not the arena's: pages are touched (and paid) only where they are used */
    r->buffer = aligned_alloc(64, pare_align_up(bytes, 64));
    if (!r->buffer) return fail_activations(r, bytes);
    r->scratch = r->buffer + p->buffer_bytes;
    return PARE_OK;
}

static pare_status own_input_new(pare_runner *r, int i)
{
    size_t bytes = pare_view_bytes(&r->plan->input_place[i].view) + 64;
    pare_device *d = r->plan->options.device;
    if (is_there(r->plan, &r->plan->root[r->plan->input_place[i].root])) return PARE_OK;
    if (d) return d->streams->pin(r->ctx, d, &r->own_input[i], bytes);
    r->own_input[i] = pare_arena_alloc(&r->arena, bytes, 1);
    return r->own_input[i] ? PARE_OK : PARE_MEMORY;
}

static pare_status runner_fill(pare_runner *r)
{
    const pare_plan *p = r->plan;
    pare_arena *a = &r->arena;
    PARE_TRY(p->options.device ? pare_runner_device_open(r) : buffer_new(r));
    r->call = pare_arena_alloc(a, (size_t)p->step_count + 1, sizeof *r->call);
    r->own_input = pare_arena_alloc(a, (size_t)p->input_count + 1, sizeof *r->own_input);
    r->input = pare_arena_alloc(a, (size_t)p->input_count + 1, sizeof *r->input);
    r->output = pare_arena_alloc(a, (size_t)p->output_count + 1, sizeof *r->output);
    if (!r->call || !r->own_input || !r->input || !r->output) return PARE_MEMORY;
    for (int i = 0; i < p->input_count; i++) {
        PARE_TRY(own_input_new(r, i));
        r->input[i] = r->own_input[i];
    }
    PARE_TRY(calls_make(r));
    return p->dynamic
               ? pare_interpreter_new(r->ctx, &r->interpreter, p->dynamic->model, &p->options)
               : PARE_OK;
}

pare_status pare_runner_new(pare_ctx *ctx, pare_runner **out, const pare_plan *plan)
{
    const pare_status st = pare_runner_new_in(ctx, out, plan, NULL, false);
    if (!pare_runner_retries(ctx, plan, st)) return st;
    return pare_runner_new_in(ctx, out, plan, NULL, true);
}

bool pare_runner_retries(pare_ctx *ctx, const pare_plan *plan, pare_status status)
{
    if (status != PARE_MEMORY || !plan->single) return false;
    pare_ctx_clear(ctx);
    pare_log(ctx, PARE_LOG_INFO,
             "%s: %zu bytes for activations were not granted: its branches run in one stream, "
             "which takes %zu",
             plan->model->path, pare_plan_activation_bytes(plan),
             plan->single->buffer_bytes + plan->single->scratch_bytes);
    return true;
}

pare_status pare_runner_new_in(pare_ctx *ctx, pare_runner **out, const pare_plan *plan,
                               pare_stream *stream, bool single)
{
    pare_runner *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->ctx = ctx;
    r->plan = plan;
    r->stream = stream;
    r->single = plan->single && (single || stream);
    pare_arena_init(&r->arena, ctx);
    pare_status st = runner_fill(r);
    if (st != PARE_OK) {
        pare_runner_free(r);
        bool named = !*ctx->message || strstr(ctx->message, plan->model->path);
        return named ? st : pare_fail_prefix(ctx, st, "%s", plan->model->path);
    }
    *out = r;
    return PARE_OK;
}

void pare_runner_free(pare_runner *runner)
{
    if (!runner) return;
    for (int i = 0; i < runner->bound; i++) {
        const pare_kernel *k = runner->plan->step[i].kernel;
        if (k->unbind) k->unbind(runner->call[i].bound);
    }
    pare_runner_device_close(runner);
    pare_interpreter_free(runner->interpreter);
    pare_gather_close(runner->gather);
    pare_arena_free(&runner->arena);
    free(runner->buffer);
    pare_free(runner);
}

const pare_plan *pare_runner_plan(const pare_runner *runner) { return runner->plan; }

pare_ctx *pare_runner_ctx(const pare_runner *runner) { return runner->ctx; }

static void input_point(pare_runner *r, int i, void *data)
{
    if (r->input[i] == data) return;
    r->input[i] = data;
    for (int k = 0; k < r->use_count; k++)
        if (r->use[k].index == i) *r->use[k].data = data;
}

pare_view pare_runner_input(pare_runner *runner, int i)
{
    input_point(runner, i, runner->own_input[i]);
    pare_view view = runner->plan->input_place[i].view;
    view.data = runner->own_input[i];
    if (runner->device && runner->device->raw[i].memory) view.dtype = PARE_u8;
    return view;
}

void pare_runner_set_input(pare_runner *runner, int i, const void *data)
{
    input_point(runner, i, (void *)data);
}

pare_view pare_runner_output(const pare_runner *runner, int i)
{
    const pare_dynamic *d = runner->plan->dynamic;
    if (!d) return runner->output[i];
    return d->late[i] ? pare_interpreter_output(runner->interpreter, d->at[i])->view
                      : runner->output[d->at[i]];
}

void pare_runner_observe(pare_runner *runner, pare_observe_fn fn, void *user)
{
    runner->observe = fn;
    runner->observe_device = NULL;
    runner->observe_user = user;
}

void pare_runner_observe_device(pare_runner *runner, pare_observe_device_fn fn, void *user)
{
    runner->observe = NULL;
    runner->observe_device = fn;
    runner->observe_user = user;
    if (runner->device) pare_runner_device_forget(runner);
}

void pare_runner_then(pare_runner *runner, pare_then_fn fn, void *user)
{
    runner->then = fn;
    runner->then_user = user;
}

void pare_runner_profile(pare_runner *runner, double *times) { runner->times = times; }

void pare_runner_time_phases(pare_runner *runner, pare_phase_times *phases)
{
    runner->phases = phases;
}

static pare_status observe_call(pare_runner *r, const pare_value *value, const pare_view *view)
{
    if (r->observe) return r->observe(r->observe_user, value, view);
    return r->observe_device(r->observe_user, value, view, r->device->stream);
}

/* Shows a tensor, complete and where the observer wants it, and every other name of the same bytes:
   outputs of views that nothing runs for. */
static pare_status observe_value(pare_runner *r, const pare_value *value, const pare_view *view)
{
    pare_stream *stream = r->device ? r->device->stream : NULL;
    pare_span span = {.name = value->name,
                      .track = r->track,
                      .lane = PARE_LANE_OBSERVE,
                      .step = -1,
                      .bytes = pare_view_bytes(view)};
    if (r->timeline) PARE_TRY(pare_timeline_begin(r->timeline, stream, &span));
    PARE_TRY(observe_call(r, value, view));
    if (r->timeline) PARE_TRY(pare_timeline_end(r->timeline, stream));
    for (int i = 0; i < value->user_count; i++) {
        const pare_node *user = value->user[i];
        const pare_op *op = pare_op_of(user);
        if (!op || !op->cpu[0] || !(op->cpu[0]->flags & PARE_KERNEL_ALIAS)) continue;
        if (user->in[0] != value || !user->out[0] || user->graph != value->graph) continue;
        pare_view alias;
        pare_view_set(&alias, view->dtype, &user->out[0]->shape, false);
        alias.data = view->data;
        PARE_TRY(observe_value(r, user->out[0], &alias));
    }
    return PARE_OK;
}

static pare_status inputs_observe(pare_runner *r)
{
    for (int i = 0; i < r->plan->input_count; i++) {
        pare_view view = r->plan->input_place[i].view;
        const pare_storage *root = &r->plan->root[r->plan->input_place[i].root];
        const bool there = is_there(r->plan, root);
        view.data = r->observe && !there ? r->input[i] : pare_runner_device_address(r, root);
        if (r->observe && there) PARE_TRY(pare_runner_device_show(r, &view));
        PARE_TRY(observe_value(r, r->plan->input[i], &view));
    }
    return PARE_OK;
}

static pare_status step_observe(pare_runner *r, const pare_call *c)
{
    for (int k = 0; k < c->out_count; k++) {
        if (!c->node->out[k]) continue;
        pare_view view = c->out[k];
        if (r->device && r->observe) PARE_TRY(pare_runner_device_show(r, &view));
        PARE_TRY(observe_value(r, c->node->out[k], &view));
    }
    return PARE_OK;
}

static pare_status step_gather(pare_runner *r, int i)
{
    if (!r->gather) PARE_TRY(pare_gather_open(r->ctx, &r->gather, r->plan, 1));
    return pare_gather_step(r->gather, &r, 1, i);
}

static pare_status step_call(pare_runner *r, int i)
{
    if (r->plan->step[i].gathers) return step_gather(r, i);
    void (*begin)(const char *) = r->device ? r->plan->options.device->streams->range_begin : NULL;
    if (!begin) return r->plan->step[i].kernel->run(&r->call[i]);
    const pare_node *n = r->plan->step[i].node;
    begin(*n->name ? n->name : n->op_type);
    pare_status st = r->plan->step[i].kernel->run(&r->call[i]);
    r->plan->options.device->streams->range_end();
    return st;
}

static pare_status step_begin(pare_runner *r, int i)
{
    pare_step_info info;
    if (!r->timeline) return PARE_OK;
    pare_plan_step(r->plan, i, &info);
    pare_span span = {.name = *info.node ? info.node : info.output,
                      .track = r->track,
                      .lane = PARE_LANE_COMPUTE,
                      .step = i,
                      .bytes = info.bytes_in + info.bytes_out};
    return pare_timeline_begin(r->timeline, r->call[i].stream, &span);
}

static pare_status step_run(pare_runner *r, int i)
{
    if (r->device && r->times) PARE_TRY(pare_runner_device_mark(r, i));
    PARE_TRY(step_begin(r, i));
    double start = r->times ? pare_seconds() : 0;
    PARE_TRY(step_call(r, i));
    if (r->times && !r->device) r->times[i] = pare_seconds() - start;
    return r->timeline ? pare_timeline_end(r->timeline, r->call[i].stream) : PARE_OK;
}

/* The slow way round: with observers, a stopwatch or a timeline. */
static pare_status run_watched(pare_runner *r, int first, int count)
{
    bool shown = r->observe || r->observe_device;
    if (shown && !first) PARE_TRY(inputs_observe(r));
    for (int i = first; i < first + count; i++) {
        PARE_TRY(step_run(r, i));
        if (shown) PARE_TRY(step_observe(r, &r->call[i]));
    }
    return PARE_OK;
}

pare_status pare_runner_steps(pare_runner *runner, int first, int count)
{
    if (runner->observe || runner->observe_device || runner->times || runner->timeline)
        return run_watched(runner, first, count);
    for (int i = first; i < first + count; i++) {
        if (runner->device) PARE_TRY(pare_runner_side_fork(runner, i));
        PARE_TRY(step_call(runner, i));
        if (runner->device) PARE_TRY(pare_runner_side_join(runner, i));
    }
    return PARE_OK;
}

/* --- the part that is interpreted --- */

static pare_status dynamic_made(void *user, const pare_value *value, const pare_view *view)
{
    pare_runner *r = user;
    return r->observe(r->observe_user, value, view);
}

/* Its outputs must be tensors: pare_runner_output has no other form. */
static pare_status dynamic_outputs_check(const pare_runner *r)
{
    const pare_values *out = &r->plan->dynamic->model->graph->out;
    for (int i = 0; i < out->count; i++)
        if (pare_interpreter_output(r->interpreter, i)->kind != PARE_OBJECT_TENSOR)
            return PARE_FAIL(r->ctx, UNSUPPORTED, "%s: output '%s' is not a tensor",
                             r->plan->model->path, out->item[i]->name);
    return PARE_OK;
}

static pare_status dynamic_run(pare_runner *r)
{
    const pare_dynamic *d = r->plan->dynamic;
    pare_interpreter *it = r->interpreter;
    if (!d) return PARE_OK;
    if (r->observe_device)
        return PARE_FAIL(r->ctx, UNSUPPORTED,
                         "%s: the model has a part whose shapes only a run knows, which the host "
                         "runs: its tensors cannot be observed on the device; use --device cpu",
                         r->plan->model->path);
    it->made = r->observe ? dynamic_made : NULL;
    it->user = r;
    it->timed = r->times != NULL;
    PARE_TRY(pare_interpreter_run(it, r->output + d->first_input));
    for (int i = 0; i < it->main->item_count && r->times; i++)
        r->times[r->plan->step_count + i] = it->main->item[i].seconds;
    return dynamic_outputs_check(r);
}

int pare_runner_inner_steps(const pare_runner *runner, pare_inner_step *out, int most)
{
    return runner->interpreter ? pare_interpreter_steps(runner->interpreter, out, most) : 0;
}

void pare_runner_trace(pare_runner *runner, pare_timeline *timeline, int track)
{
    runner->timeline = timeline;
    runner->track = track;
}

pare_status pare_runner_start(pare_runner *runner)
{
    const pare_plan *p = runner->plan;
    if (omp_get_max_threads() != p->options.threads) omp_set_num_threads(p->options.threads);
    if (runner->device) return pare_runner_device_start(runner);
    PARE_TRY(pare_runner_steps(runner, 0, p->step_count));
    return dynamic_run(runner);
}

pare_status pare_runner_wait(pare_runner *runner)
{
    if (runner->device) {
        PARE_TRY(pare_runner_device_wait(runner));
        PARE_TRY(dynamic_run(runner));
    }
    return runner->then ? runner->then(runner->then_user, runner) : PARE_OK;
}

bool pare_runner_is_recorded(const pare_runner *runner)
{
    return !runner->device || pare_runner_device_is_recorded(runner);
}

pare_status pare_runner_run(pare_runner *runner)
{
    PARE_TRY(pare_runner_start(runner));
    return pare_runner_wait(runner);
}

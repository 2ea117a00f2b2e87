/* SPDX-License-Identifier: Apache-2.0 */
/* What is queued for a run, each row a stream of a GPU, with an event behind the copies of a stage
   that the next one waits for:

       GPU 0:   inputs up, stage 0, copies to GPU 1, event
                                                       |
       GPU 1:                                          '-> stage 1, copies to GPU 2, event
                                                                                       |
       GPU 2:                                              stage 2, outputs down    <--'

   A stage's inputs are the outputs of the one before, in its order (pare_graph_crossing). A tensor
   that a stage only passes on is copied from where it came to. The last stage shows such a tensor
   in the host's memory, as every runner shows an output that is an input: it is brought there.
   Constants that cross are given to the next stage once, when the chain is made. */
#include "runtime/exec/chain.h"
#include "runtime/exec/runner.h"

#include <string.h>

/* A tensor that goes from a stage to the next. */
typedef struct sending {
    int stage;
    const void *from; /* in the stage's GPU */
    void *to;         /* in that of the next, or in the host's memory */
    size_t bytes;
    bool is_down;
} sending;

struct pare_chain {
    pare_ctx *ctx;
    int count;
    pare_runner **runner; /* (count) */
    pare_event **sent;    /* (count - 1) */
    sending *sending;     /* in the order of the stages */
    int sendings;
};

static pare_device *device_of(const pare_runner *r) { return r->plan->options.device; }

/* --- plans --- */

/* The status of a stage's plan that failed with PARE_INPUT. Where the model can be planned as a
   whole it was the cut. */
static pare_status tell_cut(const pare_model *model, const pare_input_shape *shapes,
                            int shape_count, const pare_plan_options *options)
{
    pare_ctx quiet;
    pare_plan *whole = NULL;
    pare_plan_options own = *options;
    pare_ctx_init(&quiet);
    own.outline = true;
    own.stage = own.stages = 0;
    own.device = NULL;
    const pare_status st = pare_plan_new(&quiet, &whole, model, shapes, shape_count, &own);
    pare_plan_free(whole);
    return st == PARE_OK ? PARE_UNSUPPORTED : PARE_INPUT;
}

/* Puts the stage and its GPU before a message of what failed on it. */
static pare_status tell_stage(pare_ctx *ctx, const pare_model *model,
                              const pare_plan_options *options, pare_status st)
{
    if (st != PARE_MEMORY && st != PARE_DEVICE) return st;
    if (!strstr(ctx->message, model->path)) (void)pare_fail_prefix(ctx, st, "%s", model->path);
    return pare_fail_prefix(ctx, st, "stage %d on GPU %d", options->stage, options->device->index);
}

static pare_status plan_stage(pare_ctx *ctx, pare_chain_plan *c, const pare_model *model,
                              const pare_input_shape *shapes, int shape_count,
                              const pare_plan_options *options)
{
    pare_plan *plan;
    pare_status st = pare_plan_new(ctx, &plan, model, shapes, shape_count, options);
    if (st == PARE_OK) c->stage[c->count++] = plan;
    if (st == PARE_INPUT && options->stages > 1)
        return tell_cut(model, shapes, shape_count, options);
    return options->stages > 1 ? tell_stage(ctx, model, options, st) : st;
}

static pare_status open_peers(pare_ctx *ctx, const pare_model *model, pare_device *const *device,
                              int count)
{
    for (int s = 0; s < count && count > 1; s++)
        if (!device[s] || !device[s]->peers || device[s]->backend != device[0]->backend)
            return PARE_FAIL(ctx, UNSUPPORTED, "%s: stages are on GPUs, which copy to each other",
                             model->path);
    for (int s = 0; s + 1 < count; s++)
        PARE_TRY(device[s]->peers->open(ctx, device[s + 1], device[s]));
    return PARE_OK;
}

static pare_status plan_stages(pare_ctx *ctx, pare_chain_plan *c, const pare_model *model,
                               const pare_input_shape *shapes, int shape_count,
                               const pare_plan_options *options, pare_device *const *device,
                               int count)
{
    pare_plan_options own = *options;
    if (count > PARE_MOST_STAGES)
        return PARE_FAIL(ctx, UNSUPPORTED, "%s: %d stages, more than %d", model->path, count,
                         PARE_MOST_STAGES);
    PARE_TRY(open_peers(ctx, model, device, count));
    c->stage = pare_alloc(ctx, (size_t)count, sizeof *c->stage);
    if (!c->stage) return PARE_MEMORY;
    own.stages = count;
    for (own.stage = 0; own.stage < count; own.stage++) {
        own.device = device[own.stage];
        PARE_TRY(plan_stage(ctx, c, model, shapes, shape_count, &own));
    }
    return PARE_OK;
}

pare_status pare_chain_plan_new(pare_ctx *ctx, pare_chain_plan **out, const pare_model *model,
                                const pare_input_shape *shapes, int shape_count,
                                const pare_plan_options *options, pare_device *const *device,
                                int count)
{
    pare_chain_plan *c = pare_alloc(ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    const pare_status st = plan_stages(ctx, c, model, shapes, shape_count, options, device, count);
    if (st == PARE_OK)
        *out = c;
    else
        pare_chain_plan_free(c);
    return st;
}

void pare_chain_plan_free(pare_chain_plan *c)
{
    if (!c) return;
    for (int s = 0; s < c->count; s++) pare_plan_free(c->stage[s]);
    pare_free(c->stage);
    pare_free(c);
}

/* --- what goes from stage to stage --- */

static void *address_of(const pare_runner *r, const pare_place *place)
{
    return pare_runner_device_address(r, &r->plan->root[place->root]);
}

static bool is_output(const pare_plan *p, int root)
{
    for (int i = 0; i < p->output_count; i++)
        if (p->output_place[i].root == root) return true;
    return false;
}

/* An input of a stage that is a constant of the one before. */
static pare_status give_constant(pare_ctx *ctx, pare_runner *to, const sending *s,
                                 const void *constant)
{
    if (s->is_down) {
        memcpy(s->to, constant, s->bytes);
        return PARE_OK;
    }
    const pare_backend *b = device_of(to)->backend;
    PARE_TRY(b->upload(ctx, pare_runner_stream(to), s->to, constant, s->bytes));
    return b->sync(ctx, pare_runner_stream(to));
}

/* Output i of the stage, which is input i of the next one. */
static pare_status link_tensor(pare_chain *c, int stage, int i)
{
    pare_runner *from = c->runner[stage], *to = c->runner[stage + 1];
    const pare_place *out = &from->plan->output_place[i], *in = &to->plan->input_place[i];
    const pare_storage *root = &from->plan->root[out->root];
    sending *s = &c->sending[c->sendings];
    *s = (sending){
        .stage = stage, .from = address_of(from, out), .bytes = pare_view_bytes(&out->view)};
    if (from->device->output[i].data) from->device->output_left[i] = true;
    s->is_down = stage + 2 == c->count && is_output(to->plan, in->root);
    s->to = s->is_down ? to->own_input[i] : address_of(to, in);
    to->device->input_left[i] = !s->is_down;
    if (!s->bytes) return PARE_OK;
    if (root->where == PARE_AT_CONSTANT) return give_constant(c->ctx, to, s, root->constant);
    if (!s->from || !s->to)
        return PARE_FAIL(
            c->ctx, UNSUPPORTED,
            "%s: tensor '%s' is not in the memory of a GPU, and goes to no other stage",
            from->plan->model->path, to->plan->input[i]->name);
    c->sendings++;
    return PARE_OK;
}

static pare_status link_stages(pare_chain *c)
{
    size_t most = 1;
    for (int s = 1; s < c->count; s++) most += (size_t)c->runner[s]->plan->input_count;
    c->sending = pare_alloc(c->ctx, most, sizeof *c->sending);
    if (!c->sending) return PARE_MEMORY;
    for (int s = 0; s + 1 < c->count; s++) {
        pare_device *d = device_of(c->runner[s]);
        PARE_TRY(d->streams->event_open(c->ctx, d, &c->sent[s]));
        for (int i = 0; i < c->runner[s + 1]->plan->input_count; i++)
            PARE_TRY(link_tensor(c, s, i));
    }
    return PARE_OK;
}

static pare_status fill(pare_chain *c, const pare_chain_plan *plan)
{
    c->count = plan->count;
    c->runner = pare_alloc(c->ctx, (size_t)c->count, sizeof *c->runner);
    c->sent = pare_alloc(c->ctx, (size_t)c->count, sizeof *c->sent);
    if (!c->runner || !c->sent) return PARE_MEMORY;
    for (int s = 0; s < c->count; s++)
        PARE_TRY(pare_runner_new(c->ctx, &c->runner[s], plan->stage[s]));
    return link_stages(c);
}

pare_status pare_chain_new(pare_ctx *ctx, pare_chain **out, const pare_chain_plan *plan)
{
    pare_chain *c = pare_alloc(ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    c->ctx = ctx;
    const pare_status st = fill(c, plan);
    if (st == PARE_OK)
        *out = c;
    else
        pare_chain_free(c);
    return st;
}

void pare_chain_free(pare_chain *c)
{
    if (!c) return;
    for (int s = 0; c->sent && s < c->count; s++)
        if (c->sent[s]) device_of(c->runner[s])->streams->event_close(c->sent[s]);
    for (int s = 0; c->runner && s < c->count; s++) pare_runner_free(c->runner[s]);
    pare_free(c->sending);
    pare_free(c->sent);
    pare_free(c->runner);
    pare_free(c);
}

pare_runner *pare_chain_first(const pare_chain *c) { return c->runner[0]; }

pare_runner *pare_chain_last(const pare_chain *c) { return c->runner[c->count - 1]; }

bool pare_chain_is_recorded(const pare_chain *c)
{
    for (int s = 0; s < c->count; s++)
        if (!pare_runner_is_recorded(c->runner[s])) return false;
    return true;
}

/* --- a run --- */

/* Waits for the work of stages from this one on, whatever comes of it. */
static void settle(const pare_chain *c, int first, int end)
{
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    for (int s = first; s < end; s++)
        (void)device_of(c->runner[s])->backend->sync(&quiet, pare_runner_stream(c->runner[s]));
}

static pare_status send(const pare_chain *c, const sending *s)
{
    const pare_device *d = device_of(c->runner[s->stage]);
    pare_stream *stream = pare_runner_stream(c->runner[s->stage]);
    if (s->is_down) return d->backend->download(c->ctx, stream, s->to, s->from, s->bytes);
    return d->peers->copy(c->ctx, stream, device_of(c->runner[s->stage + 1]), s->to, s->from,
                          s->bytes);
}

static pare_status queue_stage(pare_chain *c, int stage)
{
    pare_runner *r = c->runner[stage];
    const pare_stream_table *q = device_of(r)->streams;
    pare_stream *stream = pare_runner_stream(r);
    if (stage) PARE_TRY(q->event_wait(c->ctx, stream, c->sent[stage - 1]));
    PARE_TRY(pare_runner_start(r));
    for (int i = 0; i < c->sendings; i++)
        if (c->sending[i].stage == stage) PARE_TRY(send(c, &c->sending[i]));
    return stage + 1 < c->count ? q->event_mark(c->ctx, stream, c->sent[stage]) : PARE_OK;
}

/* A runner names its nodes where it fails; what is around it is named here. */
static pare_status tell_run(const pare_chain *c, int stage, pare_status st)
{
    const pare_plan *p = c->runner[stage]->plan;
    return tell_stage(c->ctx, p->model, &p->options, st);
}

pare_status pare_chain_start(pare_chain *c)
{
    pare_status st = PARE_OK;
    int started = 0;
    for (; st == PARE_OK && started < c->count; started++)
        st = tell_run(c, started, queue_stage(c, started));
    if (st != PARE_OK) settle(c, 0, started);
    return st;
}

/* The first stage that failed has the message: those behind it have read what it left. */
pare_status pare_chain_wait(pare_chain *c)
{
    for (int s = 0; s < c->count; s++) {
        const pare_status st = tell_run(c, s, pare_runner_wait(c->runner[s]));
        if (st == PARE_OK) continue;
        settle(c, s, c->count);
        return st;
    }
    return PARE_OK;
}

pare_status pare_chain_run(pare_chain *c)
{
    PARE_TRY(pare_chain_start(c));
    return pare_chain_wait(c);
}

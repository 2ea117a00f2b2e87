/* SPDX-License-Identifier: Apache-2.0 */
/* Shards meet in every run: the others run again and again, and rank 0 ends that by a failure which
   all have and then forget. Stages pass on messages, as in a pipeline (pipeline.c): rank 0 ends
   them by the last one. */
#include "runtime/eval/relay.h"
#include "runtime/base/clock.h"
#include "runtime/eval/stage_message.h"

#include <string.h>

static const char measured[] = "rank 0 has measured";

struct pare_relay {
    pare_ctx *ctx;
    pare_comm *comm;
    int rank, ranks;
    pare_parallel how;
    pare_gatherer gatherer;
    pare_plan *plan;
    pare_runner *runner; /* of the ranks behind the first */
    size_t *activations; /* (ranks) */
    pare_channel *from, *to;
    pare_pipeline_plan pipeline;
    bool failed;                                  /* another rank: a message said so */
    bool apart;                                   /* a run ends when its message has left */
    char message[sizeof((pare_ctx *)0)->message]; /* of another rank's failure */
};

/* --- planning --- */

static pare_status gather(void *user, const void *mine, const size_t *bytes, void *all)
{
    pare_relay *r = user;
    const pare_status st = pare_comm_all_gather(r->comm, mine, bytes, all);
    if (st != PARE_OK) memcpy(r->message, r->ctx->message, sizeof r->message);
    return st;
}

static pare_status make_plan(pare_relay *r, const pare_model *model, const pare_input_shape *shapes,
                             int count, const pare_plan_options *options)
{
    pare_plan_options own = *options;
    const size_t ranks = (size_t)r->ranks;
    r->gatherer = (pare_gatherer){.gather = gather, .user = r};
    if (r->how == PARE_TENSOR) {
        own.shard = r->rank, own.shards = r->ranks;
        own.gatherer = &r->gatherer;
    } else
        own.stage = r->rank, own.stages = r->ranks;
    if (r->ranks > PARE_MOST_STAGES)
        return PARE_FAIL(r->ctx, UNSUPPORTED, "%s: %d ranks, more than %d", model->path, r->ranks,
                         PARE_MOST_STAGES);
    r->activations = pare_alloc(r->ctx, ranks, sizeof *r->activations);
    if (!r->activations) return PARE_MEMORY;
    PARE_TRY(pare_plan_new(r->ctx, &r->plan, model, shapes, count, &own));
    if (!r->rank) return PARE_OK;
    PARE_TRY(pare_runner_new(r->ctx, &r->runner, r->plan));
    pare_measure_fill(r->runner);
    return PARE_OK;
}

static pare_status gather_activations(pare_relay *r)
{
    const size_t mine = pare_plan_activation_bytes(r->plan);
    PARE_TRY(pare_comm_gather(r->comm, &mine, sizeof mine, r->activations));
    return pare_comm_broadcast(r->comm, r->activations, (size_t)r->ranks * sizeof mine, 0);
}

/* One run at a time. */
static pare_status describe_stages(pare_relay *r, int64_t samples)
{
    pare_pipeline_plan *p = &r->pipeline;
    double cost[PARE_MOST_STAGES];
    *p = (pare_pipeline_plan){.activations = r->activations, .microbatches = 1, .runs = 1};
    p->samples = (int)samples;
    p->stage = pare_plan_stages(r->plan, &p->stages);
    for (int i = 0; i < p->stages; i++) cost[i] = p->stage[i].cost;
    p->bubble_equal = (double)(r->ranks - 1) / r->ranks;
    return pare_stages_bubble(r->ctx, &p->bubble, cost, r->ranks, 1, 0);
}

static pare_status open_channels(pare_relay *r)
{
    const int last = r->ranks - 1, before = (r->rank + last) % r->ranks,
              after = (r->rank + 1) % r->ranks;
    size_t result = pare_stage_bytes_out(r->plan);
    PARE_TRY(pare_comm_broadcast(r->comm, &result, sizeof result, last));
    const size_t in = r->rank ? pare_stage_bytes_in(r->plan) : result;
    pare_status st = pare_channel_open(r->comm, &r->from, before, r->rank, in);
    if (st == PARE_OK)
        st = pare_channel_open(r->comm, &r->to, r->rank, after, pare_stage_bytes_out(r->plan));
    return pare_comm_settle(r->comm, st);
}

static pare_status check_cut(pare_relay *r)
{
    int first[PARE_MOST_STAGES] = {0};
    const pare_plan_sharding *s = pare_plan_sharding_of(r->plan);
    if (s) return pare_comm_same(r->comm, "cut of the products", &s->bounds, sizeof s->bounds);
    for (int i = 0; i < r->ranks; i++) first[i] = r->pipeline.stage[i].first;
    return pare_comm_same(r->comm, "cut of the model", first, sizeof first);
}

static pare_status prepare(pare_relay *r, const pare_model *model, const pare_input_shape *shapes,
                           int count, const pare_plan_options *options)
{
    const bool batched = count && shapes[0].shape.rank > 0;
    PARE_TRY(pare_comm_settle(r->comm, make_plan(r, model, shapes, count, options)));
    PARE_TRY(gather_activations(r));
    pare_status st = PARE_OK;
    if (r->how == PARE_PIPELINE) st = describe_stages(r, batched ? shapes[0].shape.dim[0] : 1);
    PARE_TRY(pare_comm_settle(r->comm, st));
    PARE_TRY(check_cut(r));
    return r->how == PARE_PIPELINE ? open_channels(r) : PARE_OK;
}

pare_status pare_relay_new(pare_ctx *ctx, pare_relay **out, pare_comm *comm,
                           const pare_model *model, const pare_input_shape *shapes, int count,
                           const pare_plan_options *options, pare_parallel how)
{
    pare_relay *r = pare_alloc(ctx, 1, sizeof *r);
    PARE_TRY(pare_comm_settle(comm, r ? PARE_OK : PARE_MEMORY));
    *r = (pare_relay){.ctx = ctx,
                      .comm = comm,
                      .rank = pare_comm_rank(comm),
                      .ranks = pare_comm_size(comm),
                      .how = how};
    const pare_status st = prepare(r, model, shapes, count, options);
    if (st == PARE_OK)
        *out = r;
    else
        pare_relay_free(r);
    return st;
}

void pare_relay_free(pare_relay *r)
{
    if (!r) return;
    pare_channel_close(r->to);
    pare_channel_close(r->from);
    pare_runner_free(r->runner);
    pare_plan_free(r->plan);
    pare_free(r->activations);
    pare_free(r);
}

const pare_plan *pare_relay_plan(const pare_relay *r) { return r->plan; }

pare_shared_plan pare_relay_shared(const pare_relay *r)
{
    if (r->how == PARE_PIPELINE) return (pare_shared_plan){.pipeline = &r->pipeline};
    return (pare_shared_plan){
        .tensor = pare_plan_sharding_of(r->plan), .activations = r->activations, .runs = 1};
}

/* --- rank 0 --- */

/* Waits for the outputs of the run that began first. */
static pare_status receive(pare_relay *r, pare_channel_kind *kind)
{
    int64_t unused;
    const void *data;
    PARE_TRY(pare_channel_receive(r->from, kind, &unused, &data));
    r->failed |= *kind == PARE_CHANNEL_FAILED;
    return PARE_OK;
}

static pare_status await(pare_relay *r)
{
    pare_channel_kind kind;
    PARE_TRY(receive(r, &kind));
    return r->failed ? PARE_FAIL(r->ctx, INTERRUPTED, "another rank failed") : PARE_OK;
}

/* After this rank's stage. */
static pare_status pass_on(void *user, pare_runner *runner)
{
    pare_relay *r = user;
    void *out;
    PARE_TRY(pare_channel_next(r->to, &out));
    pare_stage_write(runner, out);
    PARE_TRY(pare_channel_send(r->to, PARE_CHANNEL_DATA, pare_stage_bytes_out(r->plan), 0));
    return r->apart ? PARE_OK : await(r);
}

void pare_relay_lead(pare_relay *r, pare_runner *runner)
{
    if (r->how == PARE_PIPELINE) pare_runner_then(runner, pass_on, r);
}

/* A run comes out, and another one begins. */
static pare_status turn(pare_relay *r, pare_runner *runner)
{
    PARE_TRY(await(r));
    PARE_TRY(pare_ctx_poll(r->ctx));
    return pare_runner_run(runner);
}

static pare_status time_turns(pare_relay *r, pare_runner *runner, const pare_measure_options *o,
                              double *rate)
{
    double start = pare_seconds(), took = 0;
    while (pare_seconds() - start < o->warm_up / 1000) PARE_TRY(turn(r, runner));
    start = pare_seconds();
    int64_t runs = 0;
    for (; took < o->duration || runs < o->iterations; runs++) {
        PARE_TRY(turn(r, runner));
        took = pare_seconds() - start;
    }
    *rate = took > 0 ? (double)runs / took : 0;
    return PARE_OK;
}

pare_status pare_relay_rate(pare_relay *r, pare_runner *runner, const pare_measure_options *options,
                            double *rate, int *under_way)
{
    *under_way = 2 * (r->ranks - 1) + 1; /* each rank holds two */
    r->apart = true;
    for (int i = 0; i < *under_way; i++) PARE_TRY(pare_runner_run(runner));
    PARE_TRY(time_turns(r, runner, options, rate));
    for (int i = 0; i < *under_way; i++) PARE_TRY(await(r));
    r->apart = false;
    return PARE_OK;
}

/* Behind the last message, nothing is under way. */
static pare_status end_stages(pare_relay *r)
{
    void *unused;
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    PARE_TRY(pare_channel_next(r->to, &unused));
    PARE_TRY(pare_channel_send(r->to, PARE_CHANNEL_END, 0, 0));
    while (kind != PARE_CHANNEL_END) PARE_TRY(receive(r, &kind));
    return PARE_OK;
}

pare_status pare_relay_end(pare_relay *r, pare_status st)
{
    if (r->how == PARE_PIPELINE) {
        const pare_status ended = end_stages(r);
        return pare_comm_settle(r->comm, r->failed || st == PARE_OK ? ended : st);
    }
    const bool good = st == PARE_OK;
    if (good) st = PARE_FAIL(r->ctx, INTERRUPTED, "%s", measured);
    st = pare_comm_settle(r->comm, st);
    if (*r->message) memcpy(r->ctx->message, r->message, sizeof r->message);
    if (!good) return st;
    pare_comm_forget(r->comm);
    pare_ctx_clear(r->ctx);
    return PARE_OK;
}

/* --- the others --- */

static pare_status follow_shards(pare_relay *r)
{
    pare_status st = PARE_OK;
    while (st == PARE_OK) {
        st = pare_runner_run(r->runner);
        if (st == PARE_OK) st = pare_ctx_poll(r->ctx);
    }
    st = pare_comm_settle(r->comm, st);
    if (strcmp(r->ctx->message, measured) != 0) return st;
    pare_comm_forget(r->comm);
    pare_ctx_clear(r->ctx);
    return PARE_OK;
}

static pare_status run_stage(pare_relay *r, const void *in, void *out)
{
    PARE_TRY(pare_ctx_poll(r->ctx));
    pare_stage_read(r->runner, in);
    PARE_TRY(pare_runner_run(r->runner));
    pare_stage_write(r->runner, out);
    return PARE_OK;
}

static pare_status follow_stages(pare_relay *r)
{
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    pare_status st = PARE_OK;
    while (kind != PARE_CHANNEL_END) {
        int64_t number;
        const void *in;
        void *out;
        PARE_TRY(pare_channel_receive(r->from, &kind, &number, &in));
        PARE_TRY(pare_channel_next(r->to, &out));
        if (kind == PARE_CHANNEL_DATA && st == PARE_OK) st = run_stage(r, in, out);
        if (kind == PARE_CHANNEL_DATA && st != PARE_OK) kind = PARE_CHANNEL_FAILED;
        PARE_TRY(pare_channel_send(r->to, kind, pare_stage_bytes_out(r->plan), number));
    }
    return st;
}

pare_status pare_relay_follow(pare_relay *r)
{
    if (r->how == PARE_TENSOR) return follow_shards(r);
    return pare_comm_settle(r->comm, follow_stages(r));
}

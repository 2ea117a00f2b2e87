/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage of a training by pipeline has: plans and runners of its parts, on the CPU or on its
   device, and channels to the stages beside it. */
#include "distill/pipeline.h"
#include "runtime/base/size.h"

#include <stdio.h>

enum { ALIGN = 64 };

/* --- opening --- */

size_t pare_stage_tensor_bytes(const pare_value *v)
{
    size_t bytes;
    const bool fits = pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes);
    return fits ? pare_align_up(bytes, ALIGN) : 0;
}

static pare_stage_part part_of(const pare_plan *plan, const pare_feed *feed)
{
    pare_stage_part p = {.plan = plan, .feed = feed};
    if (!plan) return p;
    pare_plan_part_ends(plan, &p.received, &p.sent);
    for (int i = 0; i < p.received; i++) p.in += pare_stage_tensor_bytes(pare_plan_input(plan, i));
    for (int i = 0; i < p.sent; i++) p.out += pare_stage_tensor_bytes(pare_plan_output(plan, i));
    return p;
}

static bool reads_data(const pare_stage_part *p)
{
    for (int i = 0; p->feed && p->plan && i < pare_plan_input_count(p->plan); i++)
        if (p->feed[i].kind == PARE_FEED_DATA) return true;
    return false;
}

static void open_parts(pare_train_pipeline *p)
{
    const pare_trainer *t = p->trainer;
    const pare_train_graph *g = &t->learn;
    p->forward = part_of(g->before ? g->before : g->plan, g->before ? g->feed_before : g->feed);
    p->backward = part_of(g->before ? g->plan : NULL, g->feed);
    p->check = part_of(t->check.plan, t->check.feed);
    p->teacher = part_of(t->teacher.plan, NULL);
    p->runs = p->teacher.plan ? (int)(t->teacher.rows / t->teacher.part) : 0;
    p->reads_data = reads_data(&p->forward) || reads_data(&p->backward) || reads_data(&p->check);
    for (int i = 0; p->teacher.plan && i < pare_plan_input_count(p->teacher.plan); i++)
        p->reads_data |= t->teacher.input[i] >= 0;
}

static pare_status open_runner(const pare_train_pipeline *p, pare_runner **out,
                               const pare_stage_part *of)
{
    return of->plan ? pare_runner_new(p->ctx, out, of->plan) : PARE_OK;
}

/* A pool of one, in whose stream gradients are added up on a device. */
static pare_status open_learner(pare_train_pipeline *p)
{
    pare_microbatches *learning = &p->trainer->learning;
    const pare_plan *plan = p->backward.plan ? p->backward.plan : p->forward.plan;
    const pare_replicas_options options = {.items = 1, .threads = 1, .share = true};
    *learning = (pare_microbatches){.ctx = p->ctx,
                                    .graph = &p->trainer->learn,
                                    .weights = &p->trainer->weights,
                                    .count = p->trainer->microbatch_count,
                                    .loss_scale = 1};
    PARE_TRY(pare_replicas_new(p->ctx, &learning->pool, plan, &options));
    p->learner = pare_replicas_at(learning->pool, 0)->runner;
    return pare_gradients_open(learning);
}

/* The last stage has one slot, and no other runner. */
static pare_status open_slots(pare_train_pipeline *p)
{
    const int most = p->stages - p->stage, count = p->trainer->microbatch_count;
    p->slots = most < count ? most : count;
    p->slot = pare_alloc(p->ctx, (size_t)p->slots, sizeof *p->slot);
    if (!p->slot) return PARE_MEMORY;
    if (!p->backward.plan) p->slot[0].runner = p->learner;
    for (int i = 0; p->backward.plan && i < p->slots; i++) {
        PARE_TRY(open_runner(p, &p->slot[i].runner, &p->forward));
        if (!p->forward.in || p->trainer->options.device) continue;
        p->slot[i].came = pare_alloc(p->ctx, p->forward.in, 1);
        if (!p->slot[i].came) return PARE_MEMORY;
    }
    PARE_TRY(open_runner(p, &p->check_runner, &p->check));
    return open_runner(p, &p->teacher_runner, &p->teacher);
}

static pare_status open_given(pare_train_pipeline *p)
{
    const pare_teacher *t = &p->trainer->teacher;
    p->wanted = t->wanted_count;
    p->given = pare_alloc(p->ctx, (size_t)p->wanted + 1, sizeof *p->given);
    if (!p->given) return PARE_MEMORY;
    for (int k = 0; k < p->wanted && p->stage == p->stages - 1; k++) {
        pare_shape shape;
        size_t bytes = 0;
        pare_teacher_shape(t, k, &shape);
        (void)pare_type_bytes(t->wanted[k]->dtype, pare_shape_count(&shape), &bytes);
        p->given[k] = pare_alloc(p->ctx, bytes, 1);
        if (!p->given[k]) return PARE_MEMORY;
        p->given_bytes += bytes;
    }
    return PARE_OK;
}

static pare_status open_inputs(pare_train_pipeline *p)
{
    const pare_trainer *t = p->trainer;
    p->inputs = pare_inputs_count(t->student);
    p->sample = pare_alloc(p->ctx, (size_t)p->inputs, sizeof *p->sample);
    p->input = pare_alloc(p->ctx, (size_t)(t->microbatch_count * p->inputs), sizeof *p->input);
    if (!p->sample || !p->input) return PARE_MEMORY;
    for (int i = 0; i < p->inputs; i++) {
        const pare_value *v = pare_inputs_at(t->student, i);
        const int64_t count = pare_shape_count(pare_data_shape(t->data, i));
        if (!pare_type_bytes(v->dtype, count, &p->sample[i])) p->sample[i] = 0;
    }
    return PARE_OK;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static pare_status open_channels(pare_train_pipeline *p)
{
    const size_t runs = (size_t)p->runs;
    const size_t in = larger(p->forward.in, p->check.in) + runs * p->teacher.in,
                 out = larger(p->forward.out, p->check.out) + runs * p->teacher.out;
    if (p->stage) {
        PARE_TRY(pare_channel_open(p->comm, &p->from_before, p->stage - 1, p->stage, in));
        PARE_TRY(pare_channel_open(p->comm, &p->to_before, p->stage, p->stage - 1,
                                   p->backward.plan ? p->backward.out : p->forward.out));
    }
    if (p->stage == p->stages - 1) return PARE_OK;
    PARE_TRY(pare_channel_open(p->comm, &p->to_next, p->stage, p->stage + 1, out));
    return pare_channel_open(p->comm, &p->from_next, p->stage + 1, p->stage, p->backward.in);
}

static pare_status open_all(pare_train_pipeline *p)
{
    open_parts(p);
    PARE_TRY(open_learner(p));
    PARE_TRY(open_slots(p));
    PARE_TRY(open_given(p));
    PARE_TRY(open_inputs(p));
    return open_channels(p);
}

static size_t activations_of(const pare_train_pipeline *p)
{
    size_t bytes = (size_t)p->slots * pare_plan_activation_bytes(p->forward.plan);
    if (p->backward.plan) bytes += pare_plan_activation_bytes(p->backward.plan);
    return bytes;
}

static pare_status describe(pare_train_pipeline *p)
{
    double cost[PARE_MOST_STAGES];
    pare_pipeline_plan *out = &p->planned;
    const size_t mine = activations_of(p);
    if (!p->stage) p->activations = pare_alloc(p->ctx, (size_t)p->stages, sizeof mine);
    PARE_TRY(pare_comm_settle(p->comm, p->stage || p->activations ? PARE_OK : PARE_MEMORY));
    PARE_TRY(pare_comm_gather(p->comm, &mine, sizeof mine, p->activations));
    *out = (pare_pipeline_plan){.activations = p->activations,
                                .microbatches = p->trainer->microbatch_count,
                                .samples = (int)p->trainer->rows,
                                .runs = 1};
    out->stage = pare_plan_stages(p->forward.plan, &out->stages);
    for (int i = 0; i < p->stages; i++) cost[i] = out->stage[i].cost;
    out->bubble_equal = (double)(p->stages - 1) / (double)(out->microbatches + p->stages - 1);
    return pare_stages_bubble(p->ctx, &out->bubble, cost, p->stages, out->microbatches, 0);
}

pare_status pare_train_pipeline_open(pare_trainer *t)
{
    pare_train_pipeline *p = pare_alloc(t->ctx, 1, sizeof *p);
    if (p)
        *p = (pare_train_pipeline){.ctx = t->ctx,
                                   .trainer = t,
                                   .comm = t->options.comm,
                                   .stage = pare_comm_rank(t->options.comm),
                                   .stages = pare_comm_size(t->options.comm)};
    t->pipeline = p;
    snprintf(t->sums.transport, sizeof t->sums.transport, "mpi");
    PARE_TRY(pare_comm_settle(t->options.comm, p ? open_all(p) : PARE_MEMORY));
    p->is_open = true;
    return describe(p);
}

const pare_pipeline_plan *pare_train_pipeline_planned(const pare_train_pipeline *p)
{
    return &p->planned;
}

static size_t weights_of(const pare_stage_part *part)
{
    return part->plan ? pare_plan_weight_bytes(part->plan) : 0;
}

size_t pare_train_pipeline_bytes(const pare_train_pipeline *p, size_t *messages)
{
    pare_channel *const channel[] = {p->from_before, p->to_next, p->from_next, p->to_before};
    size_t bytes = activations_of(p) + pare_plan_activation_bytes(p->check.plan);
    *messages += p->given_bytes;
    for (int i = 0; i < 4; i++) *messages += pare_channel_bytes(channel[i]);
    if (p->slot[0].came) *messages += (size_t)p->slots * p->forward.in;
    if (p->trainer->options.device)
        bytes += weights_of(&p->forward) + weights_of(&p->backward) + weights_of(&p->check);
    if (p->teacher.plan) bytes += pare_plan_activation_bytes(p->teacher.plan);
    return bytes + weights_of(&p->teacher);
}

/* Ends a channel that this rank sends into, or waits for the end of one. */
static void end_channel(pare_channel *c, bool sends)
{
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    int64_t number;
    const void *data;
    void *unused;
    pare_status st = PARE_OK;
    if (!c) return;
    if (!sends) {
        while (st == PARE_OK && kind != PARE_CHANNEL_END)
            st = pare_channel_receive(c, &kind, &number, &data);
        return;
    }
    st = pare_channel_next(c, &unused);
    if (st == PARE_OK) (void)!pare_channel_send(c, PARE_CHANNEL_END, 0, 0);
}

void pare_train_pipeline_free(pare_train_pipeline *p)
{
    if (!p) return;
    if (p->is_open && !pare_comm_is_broken(p->comm)) {
        end_channel(p->to_next, true);
        end_channel(p->to_before, true);
        end_channel(p->from_before, false);
        end_channel(p->from_next, false);
    }
    pare_channel_close(p->to_next);
    pare_channel_close(p->to_before);
    pare_channel_close(p->from_before);
    pare_channel_close(p->from_next);
    for (int i = 0; p->slot && i < p->slots; i++) {
        if (p->slot[i].runner != p->learner) pare_runner_free(p->slot[i].runner);
        pare_free(p->slot[i].came);
    }
    pare_runner_free(p->check_runner);
    pare_runner_free(p->teacher_runner);
    for (int k = 0; p->given && k < p->wanted; k++) pare_free(p->given[k]);
    pare_free(p->given);
    pare_free(p->slot);
    pare_free(p->sample);
    pare_free(p->input);
    pare_free(p->activations);
    pare_free(p);
}

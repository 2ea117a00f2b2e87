/* SPDX-License-Identifier: Apache-2.0 */
/* Training by pipeline: each rank has a stage of teacher and student, and the microbatches of a
   batch pass forward through the ranks and backward again. A stage runs one microbatch forward and
   one backward in turn, "1F1B" (Narayanan et al. 2019, "PipeDream", SOSP; 2021, arXiv 2104.04473,
   section 2.2.1), so that stage s of S keeps at most S - s microbatches:

       stage 0   F0 F1       B0 F2 B1 F3 B2    B3
       stage 1      F0 B0 F1 B1 F2 B2 F3 B3

   Gradients of a weight are added in the order of the microbatches, as in one process.

   A message forward is what the student's stage sends, then what the teacher's stage sends of each
   of its runs; each tensor is at a multiple of 64 bytes. A rank that fails goes on with the
   schedule, sends its messages as failed and computes nothing more; at the batch's end all ranks
   settle. So no rank waits for a message that does not come. */
#include "distill/trainer.h"
#include "runtime/base/size.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 64 };

/* A plan of this stage. */
typedef struct part {
    const pare_plan *plan;
    const pare_feed *feed; /* (inputs) or NULL: of the teacher */
    int received, sent;    /* inputs and outputs that are in messages */
    size_t in, out;        /* bytes of them in a message */
} part;

/* A microbatch between forward and backward. */
typedef struct slot {
    pare_runner *runner; /* of the forward part */
    char *came;          /* what was received; NULL: nothing is */
} slot;

struct pare_train_pipeline {
    pare_ctx *ctx;
    pare_trainer *trainer;
    pare_comm *comm;
    int stage, stages;
    part forward, backward, check, teacher; /* forward: of the last stage, both; plan NULL: none */
    slot *slot;                             /* (slots) */
    int slots;
    pare_runner *backward_runner, *check_runner, *teacher_runner;
    int runs;     /* of the teacher for a microbatch */
    void **given; /* (wanted) in the last stage: what the teacher gave */
    int wanted;
    const void **input; /* (microbatches, student's inputs): where their samples are */
    size_t *sample;     /* (student's inputs): bytes of one sample */
    int inputs;
    bool reads_data; /* a plan of this stage does */
    pare_channel *from_before, *to_next, *from_next, *to_before;
    bool is_open;               /* all ranks are */
    pare_microbatches learning; /* as gradients.c takes it: a graph and weights, no pool */
    pare_pipeline_plan planned;
    size_t *activations; /* (stages) in rank 0 */
    /* of the batch in work */
    pare_batch batch;
    const pare_augmented *augmented;
    const pare_loader_batch *source;
    const float *values;
    pare_status status; /* of this rank; others may have failed */
    bool failed;        /* this rank, or one whose message came */
};

/* --- opening --- */

static size_t aligned(const pare_value *v)
{
    size_t bytes;
    const bool fits = pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes);
    return fits ? pare_align_up(bytes, ALIGN) : 0;
}

static part part_of(const pare_plan *plan, const pare_feed *feed)
{
    part p = {.plan = plan, .feed = feed};
    if (!plan) return p;
    pare_plan_part_ends(plan, &p.received, &p.sent);
    for (int i = 0; i < p.received; i++) p.in += aligned(pare_plan_input(plan, i));
    for (int i = 0; i < p.sent; i++) p.out += aligned(pare_plan_output(plan, i));
    return p;
}

static bool reads_data(const part *p)
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

static pare_status open_runner(const pare_train_pipeline *p, pare_runner **out, const part *of)
{
    return of->plan ? pare_runner_new(p->ctx, out, of->plan) : PARE_OK;
}

static pare_status open_slots(pare_train_pipeline *p)
{
    const int most = p->stages - p->stage, count = p->trainer->microbatch_count;
    p->slots = most < count ? most : count;
    p->slot = pare_alloc(p->ctx, (size_t)p->slots, sizeof *p->slot);
    if (!p->slot) return PARE_MEMORY;
    for (int i = 0; i < p->slots; i++) {
        PARE_TRY(open_runner(p, &p->slot[i].runner, &p->forward));
        if (!p->forward.in) continue;
        p->slot[i].came = pare_alloc(p->ctx, p->forward.in, 1);
        if (!p->slot[i].came) return PARE_MEMORY;
    }
    PARE_TRY(open_runner(p, &p->backward_runner, &p->backward));
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
                                   .stages = pare_comm_size(t->options.comm),
                                   .learning = {.ctx = t->ctx,
                                                .graph = &t->learn,
                                                .weights = &t->weights,
                                                .count = t->microbatch_count}};
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

size_t pare_train_pipeline_bytes(const pare_train_pipeline *p)
{
    size_t bytes = activations_of(p) + pare_plan_activation_bytes(p->check.plan) +
                   (size_t)p->slots * p->forward.in;
    if (p->teacher.plan)
        bytes +=
            pare_plan_activation_bytes(p->teacher.plan) + pare_plan_weight_bytes(p->teacher.plan);
    return bytes + 4 * (p->forward.in + p->forward.out); /* two messages each at two ends */
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
        pare_runner_free(p->slot[i].runner);
        pare_free(p->slot[i].came);
    }
    pare_runner_free(p->backward_runner);
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

/* --- the inputs of a part --- */

static const void **inputs_of(const pare_train_pipeline *p, int slice)
{
    return p->input + (size_t)slice * (size_t)p->inputs;
}

static void load_samples(const pare_train_pipeline *p, int slice)
{
    const size_t row = (size_t)slice * (size_t)p->trainer->rows;
    const void **input = inputs_of(p, slice);
    for (int i = 0; i < p->inputs; i++)
        input[i] = (const char *)p->batch.input[i] + row * p->sample[i];
    if (p->augmented && p->reads_data) pare_augmented_fill(p->augmented, p->source, slice, input);
}

/* What the forward part received or made for a tensor that the backward part reads. */
static const void *find_kept(const pare_train_pipeline *p, const slot *s, const char *name)
{
    const char *at = s->came;
    for (int i = 0; i < p->forward.received; i++) {
        const pare_value *v = pare_plan_input(p->forward.plan, i);
        if (!strcmp(v->name, name)) return at;
        at += aligned(v);
    }
    for (int i = 0; i < pare_plan_output_count(p->forward.plan); i++)
        if (!strcmp(pare_plan_output(p->forward.plan, i)->name, name))
            return pare_runner_output(s->runner, i).data;
    return NULL;
}

/* came: the message; kept: of the microbatch, for the backward part; NULL: of a forward part. */
static void set_inputs(const pare_train_pipeline *p, const part *of, pare_runner *runner, int slice,
                       const char *came, const slot *kept)
{
    static const float one = 1;
    const int64_t *label = p->batch.label;
    const pare_feeds from = {.input = inputs_of(p, slice),
                             .given = p->given,
                             .label = label ? label + slice * p->trainer->rows : NULL,
                             .loss_scale = &one,
                             .values = p->values,
                             .weights = &p->trainer->weights};
    for (int i = 0; i < pare_plan_input_count(of->plan); i++) {
        const pare_value *v = pare_plan_input(of->plan, i);
        if (i < of->received) {
            pare_runner_set_input(runner, i, came);
            came += aligned(v);
        } else if (of->feed[i].kind == PARE_FEED_PASSED)
            pare_runner_set_input(runner, i, find_kept(p, kept, v->name));
        else
            pare_runner_set_input(runner, i, pare_feed_find(&from, &of->feed[i]));
    }
}

/* Outputs that are sent, into a message; returns behind them. */
static char *put_outputs(const part *of, const pare_runner *runner, char *to)
{
    for (int i = 0; i < of->sent; i++) {
        const pare_view y = pare_runner_output(runner, i);
        const size_t bytes = pare_view_bytes(&y);
        if (bytes) memcpy(to, y.data, bytes);
        to += aligned(pare_plan_output(of->plan, i));
    }
    return to;
}

/* --- the teacher --- */

static void take_given(const pare_train_pipeline *p, int run)
{
    const pare_teacher *t = &p->trainer->teacher;
    for (int k = 0; k < p->wanted && p->given[k]; k++) {
        const pare_view y = pare_runner_output(p->teacher_runner, t->output[k]);
        const size_t bytes = pare_view_bytes(&y);
        memcpy((char *)p->given[k] + (size_t)run * bytes, y.data, bytes);
    }
}

/* The samples of a run of the teacher, of its input at a place in the plan. */
static const void *teacher_rows(const pare_train_pipeline *p, int slice, int run, int place)
{
    const pare_teacher *t = &p->trainer->teacher;
    const int input = t->source[t->input[place]];
    return (const char *)inputs_of(p, slice)[input] +
           (size_t)run * (size_t)t->part * p->sample[input];
}

/* Its stage on a microbatch: from a message, NULL in the first stage, into one, NULL in the last.
 */
static pare_status run_teacher(pare_train_pipeline *p, int slice, const char *came, char *to)
{
    const part *of = &p->teacher;
    for (int run = 0; run < p->runs; run++) {
        for (int i = 0; i < pare_plan_input_count(of->plan); i++)
            if (i < of->received) {
                pare_runner_set_input(p->teacher_runner, i, came);
                came += aligned(pare_plan_input(of->plan, i));
            } else
                pare_runner_set_input(p->teacher_runner, i, teacher_rows(p, slice, run, i));
        PARE_TRY(pare_runner_run(p->teacher_runner));
        if (to)
            to = put_outputs(of, p->teacher_runner, to);
        else
            take_given(p, run);
    }
    return PARE_OK;
}

/* --- a microbatch --- */

/* Waits for its message; NULL where none comes. */
static pare_status receive(pare_train_pipeline *p, pare_channel *from, const char **out)
{
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    int64_t number;
    const void *data = NULL;
    if (from) PARE_TRY(pare_channel_receive(from, &kind, &number, &data));
    p->failed |= kind != PARE_CHANNEL_DATA;
    *out = data;
    return PARE_OK;
}

/* Where its message goes; NULL where there is none. */
static pare_status next(pare_channel *to, char **out)
{
    void *data = NULL;
    if (to) PARE_TRY(pare_channel_next(to, &data));
    *out = data;
    return PARE_OK;
}

static pare_status leave(const pare_train_pipeline *p, pare_channel *to, size_t bytes, int slice)
{
    if (!to) return PARE_OK;
    return pare_channel_send(to, p->failed ? PARE_CHANNEL_FAILED : PARE_CHANNEL_DATA, bytes, slice);
}

static void note(pare_train_pipeline *p, pare_status st)
{
    if (st == PARE_OK || p->status != PARE_OK) return;
    p->status = st;
    p->failed = true;
}

static pare_status run_forward(pare_train_pipeline *p, const part *of, pare_runner *runner,
                               int slice, const char *came, const char *teacher, char *to)
{
    char *behind = to;
    load_samples(p, slice);
    if (to) behind += of->out;
    PARE_TRY(run_teacher(p, slice, teacher, behind));
    set_inputs(p, of, runner, slice, came, NULL);
    PARE_TRY(pare_runner_run(runner));
    if (to) (void)put_outputs(of, runner, to);
    return PARE_OK;
}

/* Of the last stage both halves: the message goes back. */
static pare_status run_last(pare_train_pipeline *p, int slice, const char *came, char *to)
{
    pare_runner *runner = p->slot[0].runner;
    PARE_TRY(
        run_forward(p, &p->forward, runner, slice, came, came ? came + p->forward.in : NULL, NULL));
    if (to) (void)put_outputs(&p->forward, runner, to);
    return pare_gradients_add(&p->learning, &p->trainer->weights, slice, runner);
}

typedef struct losses {
    double sum, waiting[PARE_TREE_LEVELS]; /* over microbatches, in the last stage */
} losses;

static pare_status last(pare_train_pipeline *p, int slice, losses *l)
{
    const char *came;
    char *to;
    PARE_TRY(receive(p, p->from_before, &came));
    PARE_TRY(next(p->to_before, &to));
    if (!p->failed) note(p, run_last(p, slice, came, to));
    if (!p->failed) {
        const pare_view y = pare_runner_output(p->slot[0].runner, p->trainer->learn.loss);
        l->sum = pare_tree_add(l->waiting, pare_tree_term_of(slice, p->trainer->microbatch_count),
                               (double)*(const float *)y.data);
    }
    return leave(p, p->to_before, p->forward.out, slice);
}

static pare_status forward(pare_train_pipeline *p, int slice)
{
    const slot *s = &p->slot[slice % p->slots];
    const char *came;
    char *to;
    PARE_TRY(receive(p, p->from_before, &came));
    PARE_TRY(next(p->to_next, &to));
    if (!p->failed && p->forward.in) memcpy(s->came, came, p->forward.in);
    if (!p->failed)
        note(p, run_forward(p, &p->forward, s->runner, slice, s->came,
                            came ? came + p->forward.in : NULL, to));
    return leave(p, p->to_next, p->forward.out + (size_t)p->runs * p->teacher.out, slice);
}

static pare_status run_backward(pare_train_pipeline *p, int slice, const char *came, char *to)
{
    set_inputs(p, &p->backward, p->backward_runner, slice, came, &p->slot[slice % p->slots]);
    PARE_TRY(pare_runner_run(p->backward_runner));
    if (to) (void)put_outputs(&p->backward, p->backward_runner, to);
    return pare_gradients_add(&p->learning, &p->trainer->weights, slice, p->backward_runner);
}

static pare_status backward(pare_train_pipeline *p, int slice)
{
    const char *came;
    char *to;
    PARE_TRY(receive(p, p->from_next, &came));
    PARE_TRY(next(p->to_before, &to));
    if (!p->failed) note(p, run_backward(p, slice, came, to));
    return leave(p, p->to_before, p->backward.out, slice);
}

/* --- a batch --- */

static int begin(pare_train_pipeline *p, const pare_batch *batch, const float *values)
{
    p->batch = *batch;
    p->values = values;
    p->status = PARE_OK;
    p->failed = false;
    return (int)(batch->count / p->trainer->rows);
}

/* Stage s is S - 1 - s microbatches ahead with forward. */
static pare_status run_schedule(pare_train_pipeline *p, int count, losses *l)
{
    const int most = p->stages - 1 - p->stage, ahead = most < count ? most : count;
    if (!most) {
        for (int i = 0; i < count; i++) PARE_TRY(last(p, i, l));
        return PARE_OK;
    }
    for (int i = 0; i < count + ahead; i++) {
        if (i < count) PARE_TRY(forward(p, i));
        if (i >= ahead) PARE_TRY(backward(p, i - ahead));
    }
    return PARE_OK;
}

pare_status pare_train_pipeline_learn(pare_train_pipeline *p, const pare_loader_batch *batch,
                                      const pare_augmented *augmented, int index, double *loss)
{
    losses l = {0};
    const pare_batch whole = {.count = batch->count, .input = batch->input, .label = batch->label};
    const int count = begin(p, &whole, p->trainer->weights.value);
    p->source = batch;
    p->augmented = augmented->inputs ? augmented : NULL;
    PARE_TRY(run_schedule(p, count, &l));
    PARE_TRY(pare_comm_settle(p->comm, p->status));
    *loss = l.sum;
    PARE_TRY(pare_comm_broadcast(p->comm, loss, sizeof *loss, p->stages - 1));
    return pare_gradients_end_batch(&p->learning, &p->trainer->weights, index);
}

static pare_status check(pare_train_pipeline *p, int slice, pare_microbatch_fn take, void *user)
{
    const char *came;
    char *to;
    PARE_TRY(receive(p, p->from_before, &came));
    PARE_TRY(next(p->to_next, &to));
    if (!p->failed)
        note(p, run_forward(p, &p->check, p->check_runner, slice, came,
                            came ? came + p->check.in : NULL, to));
    if (!p->failed && !p->to_next) note(p, take(user, slice, p->check_runner, p->given));
    return leave(p, p->to_next, p->check.out + (size_t)p->runs * p->teacher.out, slice);
}

pare_status pare_train_pipeline_check(pare_train_pipeline *p, const pare_batch *batch,
                                      const float *values, pare_microbatch_fn take, void *user)
{
    const int count = begin(p, batch, values);
    p->augmented = NULL;
    for (int i = 0; i < count; i++) PARE_TRY(check(p, i, take, user));
    return pare_comm_settle(p->comm, p->status);
}

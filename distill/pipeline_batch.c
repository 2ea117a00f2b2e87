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
   settle. So no rank waits for a message that does not come.

   On devices what the forward part keeps for the backward part stays there: it is copied from the
   slot's runner to the one that runs backward. Messages go by way of the hosts. */
#include "distill/pipeline.h"

#include <string.h>

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
static const void *find_kept(const pare_train_pipeline *p, const pare_stage_slot *s,
                             const char *name)
{
    const char *at = s->came;
    if (p->trainer->options.device) return pare_runner_find_there(s->runner, name);
    for (int i = 0; i < p->forward.received; i++) {
        const pare_value *v = pare_plan_input(p->forward.plan, i);
        if (!strcmp(v->name, name)) return at;
        at += pare_stage_tensor_bytes(v);
    }
    for (int i = 0; i < pare_plan_output_count(p->forward.plan); i++)
        if (!strcmp(pare_plan_output(p->forward.plan, i)->name, name))
            return pare_runner_output(s->runner, i).data;
    return NULL;
}

/* To input i of the backward part: there, or by copying on the device before its run. */
static pare_status pass(const pare_train_pipeline *p, pare_runner *runner, int i, const void *from)
{
    const pare_device *device = p->trainer->options.device;
    const pare_value *v = pare_plan_input(p->backward.plan, i);
    size_t bytes = 0;
    if (!device) {
        pare_runner_set_input(runner, i, from);
        return PARE_OK;
    }
    (void)pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes);
    return device->sharing->copy(p->ctx, pare_runner_stream(runner),
                                 pare_runner_input_there(runner, i), from, bytes);
}

/* came: the message; kept: of the microbatch, for the backward part; NULL: of a forward part. */
static pare_status set_inputs(const pare_train_pipeline *p, const pare_stage_part *of,
                              pare_runner *runner, int slice, const char *came,
                              const pare_stage_slot *kept)
{
    const int64_t *label = p->batch.label;
    const pare_feeds from = {.input = inputs_of(p, slice),
                             .given = p->given,
                             .label = label ? label + slice * p->trainer->rows : NULL,
                             .loss_scale = &p->trainer->learning.loss_scale,
                             .values = p->values,
                             .weights = &p->trainer->weights};
    for (int i = 0; i < pare_plan_input_count(of->plan); i++) {
        const pare_value *v = pare_plan_input(of->plan, i);
        if (i < of->received) {
            pare_runner_set_input(runner, i, came);
            came += pare_stage_tensor_bytes(v);
        } else if (of->feed[i].kind == PARE_FEED_PASSED)
            PARE_TRY(pass(p, runner, i, find_kept(p, kept, v->name)));
        else
            pare_runner_set_input(runner, i, pare_feed_find(&from, &of->feed[i]));
    }
    return PARE_OK;
}

/* Outputs that are sent, into a message; returns behind them. */
static char *put_outputs(const pare_stage_part *of, const pare_runner *runner, char *to)
{
    for (int i = 0; i < of->sent; i++) {
        const pare_view y = pare_runner_output(runner, i);
        const size_t bytes = pare_view_bytes(&y);
        if (bytes) memcpy(to, y.data, bytes);
        to += pare_stage_tensor_bytes(pare_plan_output(of->plan, i));
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
    const pare_stage_part *of = &p->teacher;
    for (int run = 0; run < p->runs; run++) {
        for (int i = 0; i < pare_plan_input_count(of->plan); i++)
            if (i < of->received) {
                pare_runner_set_input(p->teacher_runner, i, came);
                came += pare_stage_tensor_bytes(pare_plan_input(of->plan, i));
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

/* A failure of the learner, which has a context of its own, is the training's. */
static pare_status tell(const pare_train_pipeline *p, pare_status st)
{
    pare_ctx *its = pare_runner_ctx(p->learner);
    if (st != PARE_OK && its->message[0]) (void)pare_fail(p->ctx, st, "%s", its->message);
    pare_ctx_clear(its);
    return st;
}

static pare_status run_part(const pare_train_pipeline *p, pare_runner *runner)
{
    return tell(p, pare_runner_run(runner));
}

/* The gradients of a microbatch that the learner has run. */
static pare_status add_gradients(const pare_train_pipeline *p, int slice)
{
    pare_trainer *t = p->trainer;
    return tell(p, pare_gradients_add(&t->learning, &t->weights, slice, p->learner));
}

static pare_status run_forward(pare_train_pipeline *p, const pare_stage_part *of,
                               pare_runner *runner, int slice, const char *came,
                               const char *teacher, char *to)
{
    char *behind = to;
    load_samples(p, slice);
    if (to) behind += of->out;
    PARE_TRY(run_teacher(p, slice, teacher, behind));
    PARE_TRY(set_inputs(p, of, runner, slice, came, NULL));
    PARE_TRY(run_part(p, runner));
    if (to) (void)put_outputs(of, runner, to);
    return PARE_OK;
}

/* Of the last stage both halves: the message goes back. */
static pare_status run_last(pare_train_pipeline *p, int slice, const char *came, char *to)
{
    PARE_TRY(run_forward(p, &p->forward, p->learner, slice, came,
                         came ? came + p->forward.in : NULL, NULL));
    if (to) (void)put_outputs(&p->forward, p->learner, to);
    return add_gradients(p, slice);
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
        const pare_view y = pare_runner_output(p->learner, p->trainer->learn.loss);
        const double scale = (double)p->trainer->learning.loss_scale;
        l->sum = pare_tree_add(l->waiting, pare_tree_term_of(slice, p->trainer->microbatch_count),
                               (double)*(const float *)y.data / scale);
    }
    return leave(p, p->to_before, p->forward.out, slice);
}

static pare_status forward(pare_train_pipeline *p, int slice)
{
    const pare_stage_slot *s = &p->slot[slice % p->slots];
    const char *came;
    char *to;
    PARE_TRY(receive(p, p->from_before, &came));
    PARE_TRY(next(p->to_next, &to));
    if (!p->failed && s->came) memcpy(s->came, came, p->forward.in);
    if (!p->failed)
        note(p, run_forward(p, &p->forward, s->runner, slice, s->came ? s->came : came,
                            came ? came + p->forward.in : NULL, to));
    return leave(p, p->to_next, p->forward.out + (size_t)p->runs * p->teacher.out, slice);
}

static pare_status run_backward(pare_train_pipeline *p, int slice, const char *came, char *to)
{
    const pare_stage_slot *kept = &p->slot[slice % p->slots];
    PARE_TRY(set_inputs(p, &p->backward, p->learner, slice, came, kept));
    PARE_TRY(run_part(p, p->learner));
    if (to) (void)put_outputs(&p->backward, p->learner, to);
    return add_gradients(p, slice);
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
    return pare_gradients_end_batch(&p->trainer->learning, &p->trainer->weights, index);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* An instance takes batches from the model's queue, runs them on its replica and sends the rows of
   the outputs back to their requests. */
#include "tools/serve/infer_job.h"

#include "runtime/base/clock.h"
#include "tools/serve/encoding.h"
#include "tools/serve/sequences.h"
#include "tools/serve/shadow.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* One run: some requests, one after the other along the first axis. */
typedef struct batch_run {
    pare_served *served;
    pare_infer_job *first; /* linked by job.next */
    int64_t rows, filled;  /* samples, and those with what fills the plan's batch up */
    double mark[4];        /* begun, inputs there, outputs there, replies made */
} batch_run;

static pare_infer_job *next_of(const pare_infer_job *job)
{
    return (pare_infer_job *)(void *)job->job.next;
}

/* --- inputs --- */

/* The runner reads from the request's body where it can: one request that fills the batch, aligned
   as the runner's own memory is. */
static bool is_direct(const batch_run *run, const pare_infer_tensor *t)
{
    return t->data && !run->first->job.next && run->rows == run->filled &&
           !((uintptr_t)t->data & 63);
}

/* Puts the requests' rows one after the other; what fills up is the first row again. */
static pare_status copy_rows(const batch_run *run, int input, const pare_view *view, pare_ctx *ctx)
{
    char *at = view->data;
    for (const pare_infer_job *job = run->first; job; job = next_of(job)) {
        const pare_infer_tensor *t = job->input[input];
        if (!t->data && t->bytes)
            PARE_TRY(pare_region_read(job->source[input], ctx, at, t->place.offset, t->bytes));
        else if (t->bytes)
            memcpy(at, t->data, t->bytes);
        at += t->bytes;
    }
    const size_t row = run->first->input[input]->bytes / (size_t)run->first->job.rows;
    for (int64_t i = run->rows; i < run->filled && row; i++, at += row) memcpy(at, view->data, row);
    return PARE_OK;
}

static int input_index(const pare_served *s, const char *name)
{
    int i = 0;
    while (strcmp(s->input[i].name, name) != 0) i++;
    return i;
}

static pare_status load(void *user, int64_t item, pare_replica *replica)
{
    batch_run *run = user;
    const pare_plan *plan = pare_runner_plan(replica->runner);
    (void)item;
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        const int input = input_index(run->served, pare_plan_input(plan, i)->name);
        const pare_infer_tensor *t = run->first->input[input];
        const pare_view view = pare_runner_input(replica->runner, i);
        if (is_direct(run, t))
            pare_runner_set_input(replica->runner, i, t->data);
        else
            PARE_TRY(copy_rows(run, input, &view, &replica->ctx));
    }
    run->mark[1] = pare_seconds();
    return PARE_OK;
}

/* --- outputs --- */

/* The request's rows, which begin at row `from`, of one output. */
static pare_status slice(const batch_run *run, pare_infer_job *job, const pare_runner *runner,
                         int i, int64_t from, pare_infer_tensor *out)
{
    const pare_served *s = run->served;
    const pare_view view = pare_runner_output(runner, job->output[i]);
    const bool is_whole = job->job.rows == run->filled;
    int64_t count = 1;
    *out = (pare_infer_tensor){
        .name = job->wanted[i].name, .dtype = view.dtype, .rank = view.rank, .data = view.data};
    memcpy(out->dim, view.dim, sizeof out->dim);
    if (!pare_infer_type_name(view.dtype))
        return PARE_FAIL(&job->x->ctx, UNSUPPORTED, "model '%s': output '%s' is of type %s",
                         s->name, out->name, pare_type(view.dtype)->onnx_name);
    if (!is_whole && (view.rank < 1 || view.dim[0] != run->filled))
        return PARE_FAIL(&job->x->ctx, UNSUPPORTED,
                         "model '%s': output '%s' has no row for each sample", s->name, out->name);
    if (!is_whole) out->dim[0] = job->job.rows;
    for (int d = 0; d < out->rank; d++) count *= out->dim[d];
    out->bytes = (size_t)count * (size_t)pare_type(view.dtype)->bits / 8;
    if (!is_whole && view.data)
        out->data = (const char *)view.data + out->bytes / (size_t)job->job.rows * (size_t)from;
    return PARE_OK;
}

static pare_status put_shared(void *user, int i, const void *data, size_t bytes)
{
    const pare_infer_job *job = user;
    return pare_region_write(job->target[i], &job->x->ctx, data, job->wanted[i].place.offset,
                             bytes);
}

/* The request's reply, or its failure in its context. */
static pare_status answer(const batch_run *run, pare_infer_job *job, const pare_runner *runner,
                          int64_t from)
{
    pare_exchange *x = job->x;
    const int states = pare_sequences_state_count(run->served->sequences);
    pare_infer_tensor *output =
        pare_arena_alloc(&x->arena, (size_t)(job->wanted_count + states) + 1, sizeof *output);
    if (!output) return PARE_MEMORY;
    for (int i = 0; i < job->wanted_count + states; i++)
        PARE_TRY(slice(run, job, runner, i, from, &output[i]));
    if (job->shadowed) {
        x->reply.code = PARE_HTTP_OK;
        return pare_shadowed_compare(job->shadowed, job, output);
    }
    const pare_infer_result result = {.model = run->served->name,
                                      .id = job->request.id,
                                      .version = run->served->options.version,
                                      .output = output,
                                      .wanted = job->wanted,
                                      .count = job->wanted_count,
                                      .batched = run->served->options.config.max_batch > 0,
                                      .put = put_shared,
                                      .user = job};
    PARE_TRY(pare_infer_write(&x->arena, &x->reply, &result));
    PARE_TRY(pare_encoding_encode(x));
    if (states) PARE_TRY(pare_sequences_keep(job, output + job->wanted_count));
    x->reply.code = PARE_HTTP_OK;
    pare_shadow *shadow = run->served->options.shadow;
    if (shadow) job->copy = pare_shadowed_new(shadow, job, output);
    return PARE_OK;
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    batch_run *run = user;
    int64_t from = 0;
    (void)item;
    run->mark[2] = pare_seconds();
    for (pare_infer_job *job = run->first; job; job = next_of(job)) {
        const pare_status st = answer(run, job, replica->runner, from);
        if (st != PARE_OK) job->x->reply.code = pare_reply_code(st);
        from += job->job.rows;
    }
    run->mark[3] = pare_seconds();
    return PARE_OK;
}

/* --- a run --- */

/* The batch that a plan is made for: a preferred one, the next power of two, or all that may be. */
static int64_t fill_up(const pare_served *s, int64_t rows)
{
    const pare_serve_config *c = &s->options.config;
    int64_t filled = 1;
    if (!s->fills_up) return rows;
    for (int i = 0; i < c->preferred_count; i++)
        if (c->preferred[i] == rows) return rows;
    while (filled < rows) filled *= 2;
    return filled < c->max_batch ? filled : c->max_batch;
}

static pare_status plan_of(batch_run *run, pare_planned **out)
{
    pare_exchange *x = run->first->x;
    const pare_served *s = run->served;
    pare_input_shape *shapes =
        pare_arena_alloc(&x->arena, (size_t)s->input_count + 1, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    for (int i = 0; i < s->input_count; i++) {
        const pare_infer_tensor *t = run->first->input[i];
        shapes[i] = (pare_input_shape){s->input[i].name, {.rank = t->rank}};
        memcpy(shapes[i].shape.dim, t->dim, sizeof t->dim);
        if (s->options.config.max_batch) shapes[i].shape.dim[0] = run->filled;
    }
    return pare_plans_get(s->plans, &x->ctx, out, shapes, s->input_count);
}

static pare_status run_once(batch_run *run, int instance)
{
    pare_planned *planned;
    const pare_batch_work work = {.load = load, .take = take, .user = run};
    run->mark[0] = pare_seconds();
    PARE_TRY(plan_of(run, &planned));
    pare_replica *replica = pare_replicas_at(planned->replicas, instance);
    pare_ctx_clear(&replica->ctx);
    pare_status st = pare_replica_run(replica, 0, 1, &work);
    if (st != PARE_OK) (void)pare_fail(&run->first->x->ctx, st, "%s", replica->ctx.message);
    pare_plans_put(run->served->plans, planned);
    return st;
}

/* Sends a reply that was made, or says why there is none. What is to be compared goes to the list.
 */
static void finish(const batch_run *run, pare_infer_job *job, pare_shadowed **copies)
{
    pare_exchange *x = job->x;
    pare_served *s = run->served;
    double *seconds = job->seconds;
    seconds[PARE_STAGE_REQUEST] = run->mark[3] - job->job.queued;
    seconds[PARE_STAGE_QUEUE] = run->mark[0] - job->job.queued;
    seconds[PARE_STAGE_INPUT] = run->mark[1] - run->mark[0];
    seconds[PARE_STAGE_INFER] = run->mark[2] - run->mark[1];
    seconds[PARE_STAGE_OUTPUT] = run->mark[3] - run->mark[2];
    pare_shadowed *copy = job->copy;
    job->copy = NULL;
    pare_infer_job_release(job);
    if (x->reply.code == PARE_HTTP_OK) {
        if (copy) pare_shadowed_note(copy, seconds, copies);
        pare_served_stats_answer(&s->stats, seconds);
        x->done(x);
    } else {
        pare_served_stats_failure(&s->stats, seconds[PARE_STAGE_REQUEST]);
        pare_exchange_fail(x, x->reply.code);
    }
    pare_served_release(s);
}

static void note_run(const batch_run *run)
{
    const double seconds[PARE_STAGES] = {
        [PARE_STAGE_INPUT] = run->mark[1] - run->mark[0],
        [PARE_STAGE_INFER] = run->mark[2] - run->mark[1],
        [PARE_STAGE_OUTPUT] = run->mark[3] - run->mark[2],
    };
    pare_served_stats_run(&run->served->stats, run->rows, seconds);
}

/* Runs requests together; where that fails each is run alone, so that none fails for another. */
static void run_batch(pare_instance *instance, pare_infer_job *first, int64_t rows)
{
    batch_run run = {.served = instance->served, .first = first, .rows = rows};
    run.filled = fill_up(run.served, rows);
    pare_shadowed *copies = NULL;
    const bool is_alone = !first->job.next;
    pare_status st = run_once(&run, instance->index);
    if (st == PARE_OK) note_run(&run);
    for (pare_infer_job *job = first, *next; job; job = next) {
        next = next_of(job);
        if (st == PARE_OK) {
            finish(&run, job, &copies);
        } else if (is_alone) {
            pare_infer_job_fail(job, st);
        } else {
            job->job.next = NULL;
            pare_ctx_clear(&job->x->ctx);
            run_batch(instance, job, job->job.rows);
        }
    }
    pare_shadowed_start(copies);
}

static void refuse_late(pare_job *late)
{
    for (pare_job *next; late; late = next) {
        pare_infer_job *job = (pare_infer_job *)(void *)late;
        pare_served *s = job->served;
        next = late->next;
        pare_served_stats_failure(&s->stats, pare_seconds() - late->queued);
        pare_infer_job_release(job);
        pare_exchange_refuse(job->x, PARE_HTTP_UNAVAILABLE,
                             "model '%s': the request's timeout passed in the queue", s->name);
        pare_served_release(s);
    }
}

void *pare_instance_main(void *user)
{
    pare_instance *instance = user;
    pare_jobs batch;
    if (instance->served->options.is_background) /* of Linux, a thread's; lowering it cannot fail */
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    while (pare_batcher_take(instance->served->batcher, &batch)) {
        refuse_late(batch.late);
        if (batch.jobs) run_batch(instance, (pare_infer_job *)(void *)batch.jobs, batch.rows);
    }
    return NULL;
}

/* --- from outside --- */

void pare_infer_job_submit(pare_infer_job *job, pare_served *s, pare_exchange *x, pare_status st)
{
    if (st == PARE_OK && s->sequences) {
        st = pare_sequences_push(job);
        if (st == PARE_OK) return; /* and by now it may be answered */
    }
    if (st != PARE_OK) {
        pare_infer_job_release(job);
        if (x->reply.retry_after)
            pare_served_stats_shed(&s->stats);
        else
            pare_served_stats_failure(&s->stats, 0);
        pare_exchange_fail(x, pare_reply_code(st));
        pare_served_release(s);
        return;
    }
    if (pare_batcher_push(s->batcher, &job->job)) return; /* and by now it may be answered */
    pare_infer_job_release(job);
    pare_served_stats_shed(&s->stats);
    x->reply.retry_after = 1;
    pare_exchange_refuse(x, PARE_HTTP_UNAVAILABLE,
                         "model '%s': %lld requests are waiting already, as many as may", s->name,
                         (long long)s->options.config.queue);
    pare_served_release(s);
}

void pare_served_infer(pare_served *s, pare_exchange *x, const pare_infer_request *request,
                       pare_regions *regions)
{
    pare_infer_job *job;
    const pare_status st = pare_infer_job_new(&job, s, x, request, regions);
    pare_infer_job_submit(job, s, x, st);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* An instance takes batches from the model's queue, runs them on its replica and sends the rows of
   the outputs back to their requests. */
#include "tools/serve/infer_job.h"

#include "runtime/base/clock.h"
#include "tools/serve/gpu/direct.h"
#include "tools/serve/traffic/sequences.h"
#include "tools/serve/traffic/shadow.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* One run: some requests, one after the other along the first axis. */
typedef struct batch_run {
    pare_served *served;
    pare_site *site;
    pare_infer_job *first; /* linked by job.next */
    int64_t rows, filled;  /* samples, and those with what fills the plan's batch up */
    double mark[4];        /* begun, inputs there, outputs there, replies made */
} batch_run;

static pare_infer_job *next_of(const pare_infer_job *job)
{
    return (pare_infer_job *)(void *)job->job.next;
}

/* --- inputs --- */

/* On the CPU the runner reads from the request's body where it can: one request that fills the
   batch, aligned as the runner's own memory is. A GPU's runner has pinned memory, from which the
   GPU copies by itself. */
static bool is_direct(const batch_run *run, const pare_infer_tensor *t)
{
    return !run->site->gpu && t->data && !run->first->job.next && run->rows == run->filled &&
           (uintptr_t)t->data % PARE_BODY_ALIGN == 0;
}

/* Puts the requests' rows one after the other; what fills up is the first row again. */
static pare_status copy_rows(const batch_run *run, int input, const pare_view *view, pare_ctx *ctx)
{
    char *at = view->data;
    for (const pare_infer_job *job = run->first; job; job = next_of(job)) {
        PARE_TRY(pare_infer_job_rows(job, input, at, ctx));
        at += job->input[input]->bytes;
    }
    const size_t row = run->first->input[input]->bytes / (size_t)run->first->job.rows;
    for (int64_t i = run->rows; i < run->filled && row; i++, at += row) memcpy(at, view->data, row);
    return PARE_OK;
}

/* Where the runner has the input on its GPU, if a request's rows are in a region there, or where
   the GPU copies from by itself, and then brings up none; else NULL. */
static char *find_there(const batch_run *run, int input, pare_runner *runner, int i)
{
    char *there = NULL;
    for (const pare_infer_job *job = run->first; job; job = next_of(job))
        if (pare_direct_source(job, input, run->site) || pare_direct_is_pinned(job, input))
            there = pare_runner_input_there(runner, i);
    pare_runner_leave_input(runner, i, there != NULL);
    return there;
}

/* The same as copy_rows, in the GPU's memory. */
static pare_status copy_rows_there(const batch_run *run, int input, const pare_view *view,
                                   char *there, pare_replica *replica)
{
    size_t at = 0;
    for (const pare_infer_job *job = run->first; job; job = next_of(job)) {
        PARE_TRY(
            pare_direct_load(job, input, run->site, there + at, (char *)view->data + at, replica));
        at += job->input[input]->bytes;
    }
    const size_t row = run->first->input[input]->bytes / (size_t)run->first->job.rows;
    for (int64_t i = run->rows; i < run->filled && row; i++, at += row)
        PARE_TRY(pare_direct_copy(replica->runner, there + at, there, row));
    return PARE_OK;
}

static int input_index(const pare_served *s, const char *name)
{
    int i = 0;
    while (strcmp(s->input[i].name, name) != 0) i++;
    return i;
}

static pare_status load_inputs(const batch_run *run, pare_replica *replica)
{
    const pare_plan *plan = pare_runner_plan(replica->runner);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        const int input = input_index(run->served, pare_plan_input(plan, i)->name);
        const pare_infer_tensor *t = run->first->input[input];
        const pare_view view = pare_runner_input(replica->runner, i);
        char *there = find_there(run, input, replica->runner, i);
        if (there)
            PARE_TRY(copy_rows_there(run, input, &view, there, replica));
        else if (is_direct(run, t))
            pare_runner_set_input(replica->runner, i, t->data);
        else
            PARE_TRY(copy_rows(run, input, &view, &replica->ctx));
    }
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
    out->labels = s->output[job->output[i]].labels;
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

/* Can the run put the request's output i to its target, without the host? */
static bool goes_there(const batch_run *run, pare_infer_job *job, const pare_runner *runner, int i,
                       int64_t from)
{
    pare_infer_tensor out;
    const pare_infer_wanted *w = &job->wanted[i];
    if (!pare_direct_target(job, i, run->site) || w->classes || run->served->options.shadow)
        return false;
    if (!pare_runner_output_there(runner, job->output[i])) return false;
    if (slice(run, job, runner, i, from, &out) == PARE_OK)
        return out.bytes <= (size_t)w->place.bytes;
    pare_ctx_clear(&job->x->ctx); /* the reply says it */
    return false;
}

/* Is output o put to a target by the run, and wanted by no one else? */
static bool stays_there(const batch_run *run, int o)
{
    bool stays = false;
    const int states = pare_sequences_state_count(run->served->sequences);
    for (const pare_infer_job *job = run->first; job; job = next_of(job))
        for (int i = 0; i < job->wanted_count + states; i++) {
            if (job->output[i] != o) continue;
            if (i >= job->wanted_count || !job->is_put[i]) return false;
            stays = true;
        }
    return stays;
}

/* Before a run: which outputs go from its GPU to regions there, and which of them go nowhere else.
 */
static void choose_there(const batch_run *run, pare_runner *runner)
{
    int64_t from = 0;
    if (!run->site->gpu) return;
    for (pare_infer_job *job = run->first; job; job = next_of(job)) {
        for (int i = 0; i < job->wanted_count; i++)
            job->is_put[i] = goes_there(run, job, runner, i, from);
        from += job->job.rows;
    }
    for (int o = 0; o < run->served->output_count; o++)
        pare_runner_leave_output(runner, o, stays_there(run, o));
}

/* Before the replies, which say that it is done. */
static pare_status put_there(const batch_run *run, pare_replica *replica)
{
    int64_t from = 0;
    bool waits = false;
    pare_status st = PARE_OK;
    for (pare_infer_job *job = run->first; job; job = next_of(job)) {
        for (int i = 0; i < job->wanted_count && st == PARE_OK; i++) {
            pare_infer_tensor out;
            if (!job->is_put[i]) continue;
            if ((st = slice(run, job, replica->last, i, from, &out)) != PARE_OK) break;
            const char *all = pare_runner_output(replica->last, job->output[i]).data;
            const char *there = pare_runner_output_there(replica->last, job->output[i]);
            st = pare_direct_copy(replica->last, pare_direct_target(job, i, run->site),
                                  there + ((const char *)out.data - all), out.bytes);
            waits = true;
        }
        from += job->job.rows;
    }
    return waits ? pare_direct_end(replica, st) : PARE_OK;
}

/* The request's reply, or its failure in its context. */
static pare_status answer(const batch_run *run, pare_infer_job *job, const pare_runner *runner,
                          int64_t from)
{
    const int states = pare_sequences_state_count(run->served->sequences);
    pare_infer_tensor *output =
        pare_arena_alloc(&job->x->arena, (size_t)(job->wanted_count + states) + 1, sizeof *output);
    if (!output) return PARE_MEMORY;
    for (int i = 0; i < job->wanted_count + states; i++)
        PARE_TRY(slice(run, job, runner, i, from, &output[i]));
    if (states && !job->shadowed) PARE_TRY(pare_sequences_keep(job, output + job->wanted_count));
    return pare_infer_job_answer(job, output);
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    batch_run *run = user;
    int64_t from = 0;
    (void)item;
    run->mark[2] = pare_seconds();
    PARE_TRY(put_there(run, replica));
    for (pare_infer_job *job = run->first; job; job = next_of(job)) {
        const pare_status st = answer(run, job, replica->last, from);
        if (st != PARE_OK) job->x->reply.code = pare_reply_code(st);
        from += job->job.rows;
    }
    run->mark[3] = pare_seconds();
    return PARE_OK;
}

/* --- a run --- */

static pare_status load(void *user, int64_t item, pare_replica *replica)
{
    batch_run *run = user;
    (void)item;
    const pare_status st = load_inputs(run, replica);
    if (st != PARE_OK) return pare_direct_end(replica, st);
    choose_there(run, replica->last);
    run->mark[1] = pare_seconds();
    return PARE_OK;
}

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

/* The shapes of the plan's inputs: (input_count), in the first request's arena; NULL: memory is
 * out. */
static pare_input_shape *shapes_of(const batch_run *run)
{
    const pare_served *s = run->served;
    pare_input_shape *shapes =
        pare_arena_alloc(&run->first->x->arena, (size_t)s->input_count + 1, sizeof *shapes);
    for (int i = 0; shapes && i < s->input_count; i++) {
        const pare_infer_tensor *t = run->first->input[i];
        shapes[i] = (pare_input_shape){s->input[i].name, {.rank = t->rank}};
        memcpy(shapes[i].shape.dim, t->dim, sizeof t->dim);
        if (s->options.config.max_batch) shapes[i].shape.dim[0] = run->filled;
    }
    return shapes;
}

static pare_status run_plan(batch_run *run, const pare_input_shape *shapes, int instance)
{
    pare_planned *planned;
    pare_plans *plans = run->site->plans;
    pare_ctx *ctx = &run->first->x->ctx;
    const pare_batch_work work = {.load = load, .take = take, .user = run};
    PARE_TRY(pare_plans_get(plans, ctx, &planned, shapes, run->served->input_count));
    pare_replica *replica = pare_replicas_at(planned->replicas, instance);
    const pare_status st = pare_plans_run(plans, replica, &work);
    if (st != PARE_OK) /* what was put into the stream reads the requests' bodies */
        (void)pare_fail(ctx, pare_direct_end(replica, st), "%s", replica->ctx.message);
    if (st == PARE_DEVICE)
        pare_plans_drop(plans, planned);
    else
        pare_plans_put(plans, planned);
    return st;
}

static pare_status run_once(batch_run *run, int instance)
{
    const pare_input_shape *shapes = shapes_of(run);
    if (!shapes) return PARE_MEMORY;
    const pare_status st = run_plan(run, shapes, instance);
    if (st == PARE_DEVICE)
        pare_site_recover(run->served, run->site, shapes, run->served->input_count,
                          run->first->x->ctx.message);
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
    pare_batcher_ran(run->served->batcher, run->rows, run->mark[3] - run->mark[0]);
}

/* The GPU failed: that was no request's fault, and no request is run again for it. */
static void fail_all(pare_infer_job *first, int code, const char *message)
{
    for (pare_infer_job *job = first, *next; job; job = next) {
        pare_served *s = job->served;
        next = next_of(job);
        pare_served_stats_failure(&s->stats, pare_seconds() - job->job.queued);
        pare_infer_job_release(job);
        pare_exchange_refuse(job->x, code, "model '%s': %s", s->name, message);
        pare_served_release(s);
    }
}

/* Makes pixels of pictures; a request whose pictures are wrong is answered, and is not run. */
static void preprocess(batch_run *run)
{
    pare_job *left = NULL, **end = &left;
    for (pare_infer_job *job = run->first, *next; job; job = next) {
        next = next_of(job);
        const int64_t rows = job->job.rows;
        const pare_status st = pare_preprocess_run(job);
        if (st == PARE_OK) {
            *end = &job->job;
            end = &job->job.next;
        } else {
            run->rows -= rows;
            pare_infer_job_fail(job, st);
        }
    }
    *end = NULL;
    run->first = (pare_infer_job *)(void *)left;
}

/* Runs requests together; where that fails each is run alone, so that none fails for another. */
static void run_batch(pare_instance *instance, pare_infer_job *first, int64_t rows)
{
    char message[sizeof first->x->ctx.message];
    batch_run run = {.served = instance->served,
                     .site = instance->site,
                     .first = first,
                     .rows = rows,
                     .mark = {pare_seconds()}};
    preprocess(&run);
    if (!run.first) return;
    first = run.first;
    run.filled = fill_up(run.served, run.rows);
    pare_shadowed *copies = NULL;
    const bool is_alone = !first->job.next;
    pare_status st = run_once(&run, instance->index);
    if (st == PARE_OK) note_run(&run);
    if (st == PARE_DEVICE) {
        memcpy(message, first->x->ctx.message, sizeof message);
        fail_all(first, PARE_HTTP_BROKEN, message);
        return;
    }
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

/* Those that no one waits for any more are as late as those whose time has passed. */
static void part_gone(pare_jobs *batch)
{
    for (pare_job **at = &batch->jobs, *job; (job = *at);) {
        const pare_exchange *x = ((const pare_infer_job *)(const void *)job)->x;
        if (!pare_exchange_is_gone(x)) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        batch->rows -= job->rows;
        job->next = batch->late;
        batch->late = job;
    }
}

void *pare_instance_main(void *user)
{
    pare_instance *instance = user;
    pare_served *s = instance->served;
    pare_jobs batch;
    if (s->options.is_background) /* of Linux, a thread's; lowering it cannot fail */
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    while (!pare_site_is_left(s, instance->site) && pare_batcher_take(s->batcher, &batch)) {
        part_gone(&batch);
        refuse_late(batch.late);
        pare_infer_job *first = (pare_infer_job *)(void *)batch.jobs;
        if (first && pare_site_is_left(s, instance->site))
            pare_batcher_put_back(s->batcher, batch.jobs); /* others run them */
        else if (first && __atomic_load_n(&instance->site->is_lost, __ATOMIC_ACQUIRE))
            fail_all(first, PARE_HTTP_UNAVAILABLE, "its GPU has failed");
        else if (first)
            run_batch(instance, first, batch.rows);
    }
    return NULL;
}

/* --- from outside --- */

/* The reply to a request that the queue has not taken. wait: seconds that were too long for it. */
static void shed(pare_served *s, pare_exchange *x, double wait)
{
    const pare_serve_config *c = &s->options.config;
    pare_served_stats_shed(&s->stats);
    x->reply.retry_after = 1;
    if (wait > 0)
        pare_exchange_refuse(
            x, PARE_HTTP_UNAVAILABLE,
            "model '%s': the request would wait for some %.0f ms, more than the %g ms it may",
            s->name, wait * 1e3, (double)c->wait / 1e3);
    else
        pare_exchange_refuse(x, PARE_HTTP_UNAVAILABLE,
                             "model '%s': %lld requests are waiting already, as many as may",
                             s->name, (long long)c->queue);
    pare_served_release(s);
}

/* A picture alone comes with a header: without it, it is read as JSON. */
static void name_header(const pare_served *s, pare_exchange *x)
{
    const bool is_read = !x->encoding || x->unpacked;
    const char *at = x->body, *end = x->body + x->bytes;
    if (!s->preprocess || x->form != &pare_form_json || x->json_bytes || !is_read) return;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at == '{') return;
    pare_ctx_clear(&x->ctx);
    (void)PARE_FAIL(&x->ctx, INPUT,
                    "model '%s': the body is no JSON object; a picture alone comes with the header "
                    "'Inference-Header-Content-Length: 0'",
                    s->name);
}

void pare_infer_job_submit(pare_infer_job *job, pare_served *s, pare_exchange *x, pare_status st)
{
    double wait;
    bool is_full = false;
    if (st == PARE_OK && s->sequences) {
        st = pare_sequences_push(job);
        if (st == PARE_OK) return; /* and by now it may be answered */
        is_full = x->reply.retry_after > 0;
    }
    if (st != PARE_OK) {
        pare_infer_job_release(job);
        if (st == PARE_INPUT) name_header(s, x);
        if (is_full)
            pare_served_stats_shed(&s->stats);
        else
            pare_served_stats_failure(&s->stats, 0);
        pare_exchange_fail(x, pare_reply_code(st));
        pare_served_release(s);
        return;
    }
    if (s->ensemble) {
        pare_ensemble_run(job);
        return;
    }
    if (pare_batcher_push(s->batcher, &job->job, &wait)) return; /* and by now it may be answered */
    pare_infer_job_release(job);
    shed(s, x, wait);
}

void pare_served_infer(pare_served *s, pare_exchange *x, const pare_infer_request *request,
                       pare_regions *regions)
{
    pare_infer_job *job;
    const pare_status st = pare_infer_job_new(&job, s, x, request, regions);
    pare_infer_job_submit(job, s, x, st);
}

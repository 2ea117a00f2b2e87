/* SPDX-License-Identifier: Apache-2.0 */
/* A request to an ensemble. Whoever ends a step begins those that waited for it: the request's own
   thread the first ones, then the instances of the models. The last one to end answers. */
#include "tools/serve/infer_job.h"
#include "tools/serve/traffic/shadow.h"

#include "runtime/base/clock.h"

#include <string.h>

typedef struct run run;

/* A step's request. */
typedef struct step_run {
    pare_exchange x; /* first */
    run *run;
    const pare_ensemble_step *step;
    int index;
    pare_infer_tensor *output; /* (output_count) in the exchange's arena */
    bool begun;                /* under the run's lock */
} step_run;

struct run {
    pare_infer_job *job;
    pare_served *served;
    const pare_ensemble *ensemble;
    step_run *step; /* (step_count) */
    int under_way;  /* steps, and who begins the first; changed atomically */
    pthread_mutex_t lock;
    /* under the lock */
    pare_infer_tensor *tensor; /* (tensor_count) name NULL: it is not there yet */
    int code, retry_after;     /* of the step that failed first, whose message is in the request's
                                  context; 0: none */
};

static void advance(run *r);

/* --- tensors --- */

/* Aligned memory of the exchange, which counts. */
static pare_status take_memory(pare_exchange *x, size_t bytes, char **out)
{
    if (!pare_exchange_hold(x, bytes)) return PARE_MEMORY;
    char *memory = pare_arena_alloc(&x->arena, bytes + PARE_BODY_ALIGN, 1);
    *out = memory
               ? memory + (PARE_BODY_ALIGN - (uintptr_t)memory % PARE_BODY_ALIGN) % PARE_BODY_ALIGN
               : NULL;
    return memory ? PARE_OK : PARE_MEMORY;
}

static pare_status copy_strings(pare_exchange *x, pare_infer_tensor *t)
{
    char *memory;
    size_t bytes = t->bytes;
    const pare_bytes *from = t->data;
    const size_t count = t->bytes / sizeof *from;
    for (size_t i = 0; i < count; i++) bytes += from[i].size;
    PARE_TRY(take_memory(x, bytes, &memory));
    pare_bytes *to = (pare_bytes *)(void *)memory;
    char *at = memory + t->bytes;
    for (size_t i = 0; i < count; i++) {
        to[i] = (pare_bytes){at, from[i].size};
        if (from[i].size) memcpy(at, from[i].data, from[i].size);
        at += from[i].size;
    }
    t->data = to;
    return PARE_OK;
}

/* The tensor's data become the exchange's. */
static pare_status copy_data(pare_exchange *x, pare_infer_tensor *t)
{
    char *memory;
    if (t->dtype == PARE_string) return copy_strings(x, t);
    PARE_TRY(take_memory(x, t->bytes, &memory));
    if (t->bytes) memcpy(memory, t->data, t->bytes);
    t->data = memory;
    return PARE_OK;
}

/* The request's inputs are the first tensors; those in shared memory are read now. */
static pare_status take_inputs(run *r)
{
    pare_infer_job *job = r->job;
    for (int i = 0; i < r->served->input_count; i++) {
        char *memory;
        pare_infer_tensor *t = &r->tensor[i];
        *t = *job->input[i];
        t->place = (pare_infer_place){0};
        if (t->data || !t->bytes) continue;
        PARE_TRY(take_memory(job->x, t->bytes, &memory));
        PARE_TRY(pare_region_read(job->source[i], &job->x->ctx, memory, job->input[i]->place.offset,
                                  t->bytes));
        t->data = memory;
    }
    return PARE_OK;
}

/* --- a step ends --- */

/* Its model's answer, by a thread of the model's: the outputs, whose memory is the model's. */
static pare_status keep(pare_infer_job *job, const pare_infer_tensor *output)
{
    step_run *one = (step_run *)(void *)job->x;
    const int count = job->wanted_count;
    one->output = pare_arena_alloc(&one->x.arena, (size_t)count + 1, sizeof *one->output);
    if (!one->output) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        one->output[i] = output[i];
        one->output[i].labels = NULL;
        PARE_TRY(copy_data(&one->x, &one->output[i]));
    }
    return PARE_OK;
}

/* Under the lock: the first failure is the request's. */
static void note_failure(run *r, step_run *one)
{
    if (r->code) return;
    r->code = one->x.reply.code;
    r->retry_after = one->x.reply.retry_after;
    pare_ctx_clear(&r->job->x->ctx);
    (void)PARE_FAIL(&r->job->x->ctx, INPUT, "model '%s': step %d: %s", r->served->name, one->index,
                    one->x.ctx.message);
}

static void on_done(pare_exchange *x)
{
    step_run *one = (step_run *)(void *)x;
    run *r = one->run;
    (void)pthread_mutex_lock(&r->lock);
    if (x->reply.code != PARE_HTTP_OK)
        note_failure(r, one);
    else
        for (int i = 0; i < one->step->output_count; i++)
            r->tensor[one->step->output[i]] = one->output[i];
    (void)pthread_mutex_unlock(&r->lock);
    advance(r);
}

/* --- a step begins --- */

/* Microseconds that are left of the request's patience, at least one; 0: it has no end. */
static int64_t patience(const run *r)
{
    const int64_t all = r->job->request.timeout;
    const int64_t gone = (int64_t)(1e6 * (pare_seconds() - r->job->job.queued));
    if (!all) return 0;
    return gone < all ? all - gone : 1;
}

static pare_status make_request(run *r, step_run *one, pare_infer_request *out)
{
    const pare_ensemble_step *step = one->step;
    pare_arena *arena = &one->x.arena;
    *out = (pare_infer_request){.input_count = step->input_count,
                                .wanted_count = step->output_count,
                                .priority = r->job->request.priority,
                                .sequence = r->job->request.sequence,
                                .timeout = patience(r)};
    out->input = pare_arena_alloc(arena, (size_t)step->input_count + 1, sizeof *out->input);
    out->wanted = pare_arena_alloc(arena, (size_t)step->output_count + 1, sizeof *out->wanted);
    if (!out->input || !out->wanted) return PARE_MEMORY;
    (void)pthread_mutex_lock(&r->lock);
    for (int i = 0; i < step->input_count; i++) {
        out->input[i] = r->tensor[step->input[i]];
        out->input[i].name = step->input_name[i];
    }
    (void)pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < step->output_count; i++)
        out->wanted[i] = (pare_infer_wanted){.name = step->output_name[i]};
    return PARE_OK;
}

static void begin(run *r, step_run *one)
{
    pare_served *model;
    pare_infer_job *job;
    pare_infer_request request;
    const pare_served_options *o = &r->served->options;
    const char *name = one->step->model;
    const pare_status found = o->find(o->user, &one->x.ctx, &model, name, one->step->version);
    if (found != PARE_OK) {
        pare_exchange_fail(&one->x, pare_reply_code_missing(found, PARE_HTTP_NOT_FOUND));
    } else if (make_request(r, one, &request) != PARE_OK) {
        pare_served_release(model);
        pare_exchange_fail(&one->x, PARE_HTTP_UNAVAILABLE);
    } else {
        const pare_status st = pare_infer_job_new(&job, model, &one->x, &request, NULL);
        if (job) job->keep = keep;
        pare_infer_job_submit(job, model, &one->x, st);
    }
}

/* Under the lock: nothing is begun any more for a request that no one waits for. */
static void note_gone(run *r)
{
    if (r->code || !pare_exchange_is_gone(r->job->x)) return;
    r->code = PARE_HTTP_UNAVAILABLE;
    (void)PARE_FAIL(&r->job->x->ctx, INPUT, "model '%s': no one waits for the request",
                    r->served->name);
}

/* Under the lock: a step that waits no longer; NULL: none. */
static step_run *find_ready(run *r)
{
    note_gone(r);
    for (int i = 0; i < r->ensemble->step_count && !r->code; i++) {
        step_run *one = &r->step[i];
        bool ready = !one->begun;
        for (int k = 0; ready && k < one->step->input_count; k++)
            ready = r->tensor[one->step->input[k]].name != NULL;
        if (ready) return one;
    }
    return NULL;
}

/* --- the end --- */

static pare_status answer(run *r)
{
    pare_infer_job *job = r->job;
    pare_infer_tensor *output =
        pare_arena_alloc(&job->x->arena, (size_t)job->wanted_count + 1, sizeof *output);
    if (!output) return PARE_MEMORY;
    for (int i = 0; i < job->wanted_count; i++) {
        output[i] = r->tensor[r->ensemble->output[job->output[i]]];
        output[i].name = job->wanted[i].name;
        output[i].labels = r->served->output[job->output[i]].labels;
    }
    return pare_infer_job_answer(job, output);
}

static void note(run *r, bool well, double answered)
{
    double *seconds = r->job->seconds;
    const double end = pare_seconds();
    seconds[PARE_STAGE_REQUEST] = end - r->job->job.queued;
    seconds[PARE_STAGE_INFER] = answered - r->job->job.queued;
    seconds[PARE_STAGE_OUTPUT] = end - answered;
    if (well) {
        pare_served_stats_answer(&r->served->stats, seconds);
        pare_served_stats_run(&r->served->stats, r->job->job.rows, seconds);
    } else {
        pare_served_stats_failure(&r->served->stats, seconds[PARE_STAGE_REQUEST]);
    }
}

/* Every step has ended that was begun: the request is answered, and is gone. */
static void finish(run *r)
{
    pare_served *s = r->served;
    pare_exchange *x = r->job->x;
    const double answered = pare_seconds();
    pare_status st = r->code ? PARE_INPUT : answer(r);
    const int code = r->code ? r->code : pare_reply_code(st);
    x->reply.retry_after = r->retry_after;
    note(r, st == PARE_OK, answered);
    for (int i = 0; i < r->ensemble->step_count; i++) pare_exchange_free(&r->step[i].x);
    (void)pthread_mutex_destroy(&r->lock);
    pare_shadowed *copy = r->job->copy, *copies = NULL;
    r->job->copy = NULL;
    if (copy) pare_shadowed_note(copy, r->job->seconds, &copies);
    pare_infer_job_release(r->job);
    if (st == PARE_OK)
        x->done(x);
    else
        pare_exchange_fail(x, code);
    pare_shadowed_start(copies);
    pare_served_release(s);
}

/* Begins what waits no longer, and gives up the caller's share in the run. */
static void advance(run *r)
{
    for (step_run *one;;) {
        (void)pthread_mutex_lock(&r->lock);
        one = find_ready(r);
        if (one) one->begun = true;
        (void)pthread_mutex_unlock(&r->lock);
        if (!one) break;
        (void)__atomic_fetch_add(&r->under_way, 1, __ATOMIC_RELAXED);
        begin(r, one);
    }
    if (__atomic_sub_fetch(&r->under_way, 1, __ATOMIC_ACQ_REL) == 0) finish(r);
}

static pare_status run_new(run **out, pare_infer_job *job)
{
    pare_exchange *x = job->x;
    const pare_ensemble *e = job->served->ensemble;
    run *r = *out = pare_arena_alloc(&x->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    *r = (run){.job = job, .served = job->served, .ensemble = e, .under_way = 1};
    r->tensor = pare_arena_alloc(&x->arena, (size_t)e->tensor_count + 1, sizeof *r->tensor);
    r->step = pare_arena_alloc(&x->arena, (size_t)e->step_count, sizeof *r->step);
    if (!r->tensor || !r->step) return PARE_MEMORY;
    PARE_TRY(take_inputs(r));
    (void)pthread_mutex_init(&r->lock, NULL); /* on Linux it does not fail */
    for (int i = 0; i < e->step_count; i++) {
        step_run *one = &r->step[i];
        pare_exchange_init(&one->x, &x->ctx);
        one->x.done = on_done;
        one->x.deadline = x->deadline;
        one->x.held = x->held;
        one->x.most_held = x->most_held;
        one->x.is_unseen = x->is_unseen;
        one->x.request = x;
        one->run = r;
        one->step = &e->step[i];
        one->index = i;
    }
    return PARE_OK;
}

void pare_ensemble_run(pare_infer_job *job)
{
    run *r;
    const pare_status st = run_new(&r, job);
    if (st == PARE_OK)
        advance(r);
    else
        pare_infer_job_fail(job, st);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence has at most one job in the batcher or at work, which alone touches its states; the
   others wait in the sequence. So many sequences are at work as the configuration says; later ones
   wait, in order, until one ends. */
#include "tools/serve/traffic/sequences.h"

#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "tools/serve/traffic/kept.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct pare_sequence {
    pare_sequence *next;
    uint64_t hash; /* of the id */
    char *id;
    bool is_active;               /* one of those at work */
    bool is_busy;                 /* it has a job in the batcher or at work */
    bool is_ending;               /* the last job that came is its end */
    double last;                  /* pare_seconds, when a job came or ended */
    pare_infer_job *first, **end; /* jobs that wait, linked by `behind` */
    pare_kept *state;             /* (state_count) */
};

struct pare_sequences {
    pare_ctx ctx; /* of what is allocated, under the lock */
    pare_served *served;
    pare_sequence_config config;
    int64_t limit;              /* jobs that may wait */
    int *control_at, *state_at; /* which inputs they are */
    int *state_of;              /* which outputs */
    pthread_t thread;           /* ends sequences that are idle */
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    pare_sequence *first, **end; /* in order of their begin */
    int64_t count, active, waiting;
    bool is_closed;
};

/* --- the model --- */

static int port_of(pare_port *ports, int count, const char *name)
{
    int i = 0;
    while (i < count && strcmp(ports[i].name, name) != 0) i++;
    return i;
}

static pare_status find_port(pare_served *s, pare_port *ports, int count, const char *kind,
                             const char *name, pare_dtype dtype, int *out)
{
    *out = port_of(ports, count, name);
    if (*out == count)
        return PARE_FAIL(&s->ctx, INPUT, "%s: has no %s '%s', which sequence_batching names",
                         s->options.path, kind, name);
    pare_port *port = &ports[*out];
    if (port->is_own)
        return PARE_FAIL(&s->ctx, INPUT, "%s: sequence_batching names %s '%s' twice",
                         s->options.path, kind, name);
    if (port->dtype != dtype && port->dtype != PARE_NOTYPE)
        return PARE_FAIL(&s->ctx, INPUT, "%s: %s '%s' is %s, sequence_batching has %s",
                         s->options.path, kind, name, pare_type(port->dtype)->name,
                         pare_type(dtype)->name);
    port->is_own = true;
    return PARE_OK;
}

static pare_status bind_control(pare_sequences *q, int i)
{
    pare_served *s = q->served;
    const pare_config_control *c = &q->config.control[i];
    PARE_TRY(
        find_port(s, s->input, s->input_count, "input", c->input, c->dtype, &q->control_at[i]));
    const pare_shape *shape = &s->input[q->control_at[i]].shape;
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] >= 0 && shape->dim[d] != 1)
            return PARE_FAIL(&s->ctx, INPUT, "%s: input '%s' is a control, expected one element",
                             s->options.path, c->input);
    return PARE_OK;
}

/* The shape in the model, where an axis of samples is in front. */
static pare_shape with_samples(const pare_sequences *q, const pare_shape *shape)
{
    pare_shape out = *shape;
    if (!q->served->options.config.max_batch) return out;
    out.rank++;
    out.dim[0] = 1;
    for (int d = 0; d < shape->rank; d++) out.dim[d + 1] = shape->dim[d];
    return out;
}

static pare_status bind_state(pare_sequences *q, int i)
{
    char has[256], says[256];
    pare_served *s = q->served;
    const pare_config_state *c = &q->config.state[i];
    PARE_TRY(find_port(s, s->input, s->input_count, "input", c->input, c->dtype, &q->state_at[i]));
    PARE_TRY(
        find_port(s, s->output, s->output_count, "output", c->output, c->dtype, &q->state_of[i]));
    const pare_shape *shape = &s->input[q->state_at[i]].shape;
    const int skip = s->options.config.max_batch > 0;
    bool fits = shape->rank == c->shape.rank + skip;
    for (int d = 0; fits && d < c->shape.rank; d++)
        fits = shape->dim[d + skip] < 0 || c->shape.dim[d] < 0 ||
               shape->dim[d + skip] == c->shape.dim[d];
    if (fits) return PARE_OK;
    return PARE_FAIL(&s->ctx, INPUT, "%s: input '%s' is %s, its state is %s%s", s->options.path,
                     c->input, pare_shape_text(shape, has, sizeof has),
                     pare_shape_text(&c->shape, says, sizeof says),
                     skip ? " behind the axis of samples" : "");
}

static pare_status bind(pare_sequences *q)
{
    pare_served *s = q->served;
    pare_arena *arena = &s->arena;
    const pare_serve_config *c = &s->options.config;
    PARE_TRY(pare_sequence_config_copy(arena, &q->config, &c->sequences));
    if (!q->config.most) q->config.most = (c->max_batch ? c->max_batch : 1) * c->instances;
    q->limit = c->queue ? c->queue : INT64_MAX;
    q->control_at = pare_arena_alloc(arena, (size_t)q->config.control_count + 1, sizeof(int));
    q->state_at = pare_arena_alloc(arena, (size_t)q->config.state_count + 1, sizeof(int));
    q->state_of = pare_arena_alloc(arena, (size_t)q->config.state_count + 1, sizeof(int));
    if (!q->control_at || !q->state_at || !q->state_of) return PARE_MEMORY;
    for (int i = 0; i < q->config.control_count; i++) PARE_TRY(bind_control(q, i));
    for (int i = 0; i < q->config.state_count; i++) PARE_TRY(bind_state(q, i));
    return PARE_OK;
}

/* --- the table, under the lock --- */

static void states_free(const pare_sequences *q, pare_sequence *one)
{
    for (int i = 0; one->state && i < q->config.state_count; i++) pare_kept_free(&one->state[i]);
    pare_free(one->state);
    one->state = NULL;
}

static void sequence_free(const pare_sequences *q, pare_sequence *one)
{
    states_free(q, one);
    pare_free(one->id);
    pare_free(one);
}

static pare_sequence *find(const pare_sequences *q, const char *id, uint64_t hash)
{
    pare_sequence *one = q->first;
    while (one && (one->hash != hash || strcmp(one->id, id) != 0)) one = one->next;
    return one;
}

static pare_sequence *add(pare_sequences *q, const char *id, uint64_t hash)
{
    pare_sequence *one = pare_alloc(&q->ctx, 1, sizeof *one);
    if (!one) return NULL;
    one->id = pare_strdup(&q->ctx, id);
    if (!one->id) {
        pare_free(one);
        return NULL;
    }
    one->hash = hash;
    one->end = &one->first;
    *q->end = one;
    q->end = &one->next;
    q->count++;
    return one;
}

/* Those that begin first are the first at work. */
static void activate(pare_sequences *q)
{
    for (pare_sequence *one = q->first; one && q->active < q->config.most; one = one->next) {
        if (one->is_active) continue;
        one->is_active = true;
        q->active++;
    }
}

static void drop(pare_sequences *q, pare_sequence *one)
{
    pare_sequence **at = &q->first;
    while (*at != one) at = &(*at)->next;
    *at = one->next;
    if (!one->next) q->end = at;
    q->count--;
    q->active -= one->is_active;
    sequence_free(q, one);
    activate(q);
}

static bool is_idle(const pare_sequences *q, const pare_sequence *one, double now)
{
    return !one->is_busy && !one->first && now - one->last >= 1e-6 * (double)q->config.idle;
}

static void drop_idle(pare_sequences *q, double now)
{
    for (pare_sequence *one = q->first, *next; one; one = next) {
        next = one->next;
        if (is_idle(q, one, now)) drop(q, one);
    }
}

/* --- a job's own inputs --- */

static void set_tensor(pare_infer_job *job, int input, const pare_shape *shape, const void *data,
                       size_t bytes)
{
    const pare_port *port = &job->served->input[input];
    pare_infer_tensor *t = (pare_infer_tensor *)job->input[input]; /* of pare_sequences_extend */
    *t = (pare_infer_tensor){.name = port->name,
                             .dtype = port->dtype,
                             .rank = shape->rank,
                             .data = data,
                             .bytes = bytes};
    memcpy(t->dim, shape->dim, sizeof t->dim);
}

static void put_number(pare_dtype dtype, double value, char *to)
{
    const float f32 = (float)value;
    const int64_t whole = (int64_t)value;
    if (dtype == PARE_f32)
        memcpy(to, &f32, sizeof f32);
    else
        memcpy(to, &whole, (size_t)pare_type(dtype)->bits / 8); /* little-endian */
}

static pare_status set_id(const pare_infer_job *job, pare_dtype dtype, char *to)
{
    char *end;
    const char *id = job->request.sequence.id;
    const pare_bytes text = {id, strlen(id)};
    if (dtype == PARE_string) {
        memcpy(to, &text, sizeof text);
        return PARE_OK;
    }
    errno = 0;
    const unsigned long long number = strtoull(id, &end, 10);
    const int bits = pare_type(dtype)->bits;
    if (errno || *end || *id == '-' || (bits < 64 && number >> (bits - (dtype == PARE_s32))))
        return PARE_FAIL(&job->x->ctx, INPUT,
                         "model '%s': sequence_id '%s': expected a number that %s holds",
                         job->served->name, id, pare_infer_type_name(dtype));
    memcpy(to, &number, (size_t)bits / 8);
    return PARE_OK;
}

static pare_status set_control(const pare_sequences *q, pare_infer_job *job, int i)
{
    const pare_config_control *c = &q->config.control[i];
    const pare_infer_sequence *of = &job->request.sequence;
    pare_shape shape = q->served->input[q->control_at[i]].shape;
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = 1;
    char *data = pare_arena_alloc(&job->x->arena, 1, 64); /* aligned as the runner's inputs are */
    if (!data) return PARE_MEMORY;
    if (c->kind == PARE_CONTROL_CORRID)
        PARE_TRY(set_id(job, c->dtype, data));
    else
        put_number(c->dtype,
                   c->value[c->kind == PARE_CONTROL_READY ||
                            (c->kind == PARE_CONTROL_START ? of->start : of->end)],
                   data);
    set_tensor(job, q->control_at[i], &shape, data,
               c->dtype == PARE_string ? sizeof(pare_bytes)
                                       : (size_t)pare_type(c->dtype)->bits / 8);
    return PARE_OK;
}

pare_status pare_sequences_extend(pare_infer_job *job)
{
    const pare_served *s = job->served;
    const pare_sequences *q = s->sequences;
    if (!q) return PARE_OK;
    for (int i = 0; i < s->input_count; i++) {
        if (!s->input[i].is_own) continue;
        job->input[i] = pare_arena_alloc(&job->x->arena, 1, sizeof **job->input);
        if (!job->input[i]) return PARE_MEMORY;
    }
    for (int i = 0; i < q->config.state_count; i++) { /* match_outputs has made room */
        job->output[job->wanted_count + i] = q->state_of[i];
        job->wanted[job->wanted_count + i].name = q->config.state[i].output;
    }
    return PARE_OK;
}

/* --- states --- */

/* Zeros, as a sequence begins. */
static pare_status begin(pare_sequences *q, pare_sequence *one, pare_exchange *x)
{
    states_free(q, one);
    one->state = pare_alloc(&x->ctx, (size_t)q->config.state_count + 1, sizeof *one->state);
    if (!one->state) return PARE_MEMORY;
    for (int i = 0; i < q->config.state_count; i++) {
        const pare_config_state *c = &q->config.state[i];
        const pare_shape shape = with_samples(q, &c->initial);
        const pare_status st = pare_kept_begin(&one->state[i], x, c->dtype, &shape);
        if (st != PARE_OK)
            return pare_fail_prefix(&x->ctx, st, "model '%s': state '%s'", q->served->name,
                                    c->input);
    }
    return PARE_OK;
}

/* The sequence's next job is to run now. */
static pare_status prepare(pare_sequences *q, pare_sequence *one, pare_infer_job *job)
{
    if (job->request.sequence.start) PARE_TRY(begin(q, one, job->x));
    for (int i = 0; i < q->config.control_count; i++) PARE_TRY(set_control(q, job, i));
    for (int i = 0; i < q->config.state_count; i++)
        set_tensor(job, q->state_at[i], &one->state[i].shape, one->state[i].data,
                   one->state[i].bytes);
    return PARE_OK;
}

pare_status pare_sequences_keep(const pare_infer_job *job, const pare_infer_tensor *state)
{
    const pare_served *s = job->served;
    const pare_sequences *q = s->sequences;
    for (int i = 0; job->sequence && i < q->config.state_count; i++)
        PARE_TRY(pare_kept_put(&job->sequence->state[i], job->x, s->name, &s->input[q->state_at[i]],
                               &state[i]));
    return PARE_OK;
}

/* --- jobs --- */

/* Under the lock: the next job that may run; NULL: none. */
static pare_infer_job *take(pare_sequences *q)
{
    pare_sequence *one = q->first;
    while (one && (!one->is_active || one->is_busy || !one->first)) one = one->next;
    if (!one) return NULL;
    pare_infer_job *job = one->first;
    one->first = job->behind;
    if (!one->first) one->end = &one->first;
    job->behind = NULL;
    one->is_busy = true;
    return job;
}

/* Hands all jobs that may run to the batcher, which has room for all that wait here. */
static void run_more(pare_sequences *q)
{
    for (double wait;;) {
        (void)pthread_mutex_lock(&q->lock);
        pare_infer_job *job = take(q);
        (void)pthread_mutex_unlock(&q->lock);
        if (!job) return;
        const pare_status st = prepare(q, job->sequence, job);
        if (st != PARE_OK)
            pare_infer_job_fail(job, st);
        else
            (void)pare_batcher_push(q->served->batcher, &job->job, &wait);
    }
}

/* Under the lock: jobs that wait in a sequence that is over, up to one that begins it anew. */
static pare_infer_job *cut(pare_sequence *one)
{
    pare_infer_job *first = one->first, **at = &first;
    while (*at && !(*at)->request.sequence.start) at = &(*at)->behind;
    one->first = *at;
    if (!one->first) one->end = &one->first;
    *at = NULL;
    return first;
}

static void refuse(pare_infer_job *list)
{
    for (pare_infer_job *job = list; job; job = list) {
        list = job->behind;
        job->sequence = NULL; /* it is not its part any more */
        (void)PARE_FAIL(&job->x->ctx, INPUT,
                        "model '%s': the sequence '%s' has ended: a request of it before this one "
                        "failed",
                        job->served->name, job->request.sequence.id);
        pare_infer_job_fail(job, PARE_INPUT);
    }
}

/* A job of the sequence has its reply. */
static void leave(pare_sequences *q, pare_sequence *one, bool failed, bool ends)
{
    pare_infer_job *refused = NULL;
    (void)pthread_mutex_lock(&q->lock);
    q->waiting--;
    one->is_busy = false;
    one->last = pare_seconds();
    if (failed) refused = cut(one);
    for (const pare_infer_job *j = refused; j; j = j->behind) q->waiting--;
    if ((failed || ends) && !one->first) drop(q, one);
    (void)pthread_cond_signal(&q->changed);
    (void)pthread_mutex_unlock(&q->lock);
    refuse(refused);
    run_more(q);
}

/* In place of the exchange's own. Who calls it has a reference to the model until it returns. */
static void on_done(pare_exchange *x)
{
    const pare_infer_job *job = x->kept; /* is gone with the exchange */
    pare_sequence *one = job->sequence;
    pare_sequences *q = job->served->sequences;
    const bool failed = x->reply.code != PARE_HTTP_OK, ends = job->request.sequence.end;
    job->done(x);
    if (one) leave(q, one, failed, ends);
}

/* --- from outside --- */

static pare_status check(const pare_sequences *q, const pare_infer_job *job)
{
    pare_ctx *ctx = &job->x->ctx;
    const char *name = job->served->name;
    if (!job->request.sequence.id)
        return PARE_FAIL(ctx, INPUT,
                         "model '%s': keeps a state between requests, expected a sequence_id that "
                         "is neither 0 nor empty",
                         name);
    if (job->job.rows != 1)
        return PARE_FAIL(ctx, INPUT,
                         "model '%s': a request of %lld samples, in a sequence it has one", name,
                         (long long)job->job.rows);
    for (int i = 0; i < q->config.control_count; i++) {
        char id[sizeof(pare_bytes)];
        const pare_config_control *c = &q->config.control[i];
        if (c->kind == PARE_CONTROL_CORRID) PARE_TRY(set_id(job, c->dtype, id));
    }
    return PARE_OK;
}

/* Under the lock. */
static pare_status join(pare_sequences *q, pare_infer_job *job)
{
    pare_ctx *ctx = &job->x->ctx;
    const pare_infer_sequence *of = &job->request.sequence;
    const uint64_t hash = pare_hash_bytes(of->id, strlen(of->id)).low;
    drop_idle(q, job->job.queued);
    pare_sequence *one = find(q, of->id, hash);
    if (!of->start && (!one || one->is_ending))
        return PARE_FAIL(ctx, INPUT,
                         "model '%s': the sequence '%s' has not begun or has ended: its first "
                         "request has sequence_start",
                         q->served->name, of->id);
    if (q->waiting >= q->limit || (!one && q->count >= q->limit + q->config.most)) {
        job->x->reply.retry_after = 1;
        return PARE_FAIL(ctx, MEMORY,
                         "model '%s': %lld requests are waiting already, as many as may",
                         q->served->name, (long long)q->limit);
    }
    if (!one && !(one = add(q, of->id, hash))) {
        pare_ctx_clear(&q->ctx);
        return PARE_FAIL(ctx, MEMORY, "out of memory for a sequence");
    }
    *one->end = job;
    one->end = &job->behind;
    one->is_ending = of->end;
    one->last = job->job.queued;
    job->sequence = one;
    job->done = job->x->done;
    job->x->done = on_done;
    job->x->kept = job;
    q->waiting++;
    activate(q);
    return PARE_OK;
}

pare_status pare_sequences_push(pare_infer_job *job)
{
    pare_sequences *q = job->served->sequences; /* which may be gone with the job's reply */
    pare_served *s = job->served;
    PARE_TRY(check(q, job));
    (void)pthread_mutex_lock(&q->lock);
    const pare_status st = join(q, job);
    (void)pthread_cond_signal(&q->changed);
    (void)pthread_mutex_unlock(&q->lock);
    if (st != PARE_OK) return st;
    pare_served_keep(s);
    run_more(q);
    pare_served_release(s);
    return PARE_OK;
}

int pare_sequences_state_count(const pare_sequences *q) { return q ? q->config.state_count : 0; }

int64_t pare_sequences_count(pare_sequences *q)
{
    (void)pthread_mutex_lock(&q->lock);
    const int64_t count = q->count;
    (void)pthread_mutex_unlock(&q->lock);
    return count;
}

const pare_sequence_config *pare_sequences_config(const pare_sequences *q) { return &q->config; }

/* --- idle sequences --- */

/* Under the lock: when the next one may be idle for too long; INFINITY: none may. */
static double next_idle(const pare_sequences *q)
{
    double soonest = INFINITY;
    for (const pare_sequence *one = q->first; one; one = one->next)
        if (!one->is_busy && !one->first)
            soonest = fmin(soonest, one->last + 1e-6 * (double)q->config.idle);
    return soonest;
}

static void *watch(void *user)
{
    pare_sequences *q = user;
    (void)pthread_mutex_lock(&q->lock);
    while (!q->is_closed) {
        const double until = next_idle(q), whole = floor(until);
        if (isinf(until)) {
            (void)pthread_cond_wait(&q->changed, &q->lock);
        } else {
            const struct timespec at = {(time_t)whole, (long)((until - whole) * 1e9)};
            (void)pthread_cond_timedwait(&q->changed, &q->lock, &at);
        }
        drop_idle(q, pare_seconds());
        (void)pthread_mutex_unlock(&q->lock);
        run_more(q);
        (void)pthread_mutex_lock(&q->lock);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* --- opening --- */

pare_status pare_sequences_new(pare_served *s)
{
    pthread_condattr_t attr;
    if (!s->options.config.sequences.is_used) return PARE_OK;
    pare_sequences *q = s->sequences = pare_arena_alloc(&s->arena, 1, sizeof *q);
    if (!q) return PARE_MEMORY;
    pare_ctx_child(&q->ctx, &s->ctx);
    q->served = s;
    q->end = &q->first;
    (void)pthread_mutex_init(&q->lock, NULL); /* on Linux none of these fails */
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* that of pare_seconds */
    (void)pthread_cond_init(&q->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    PARE_TRY(bind(q));
    q->has_thread = !pthread_create(&q->thread, NULL, watch, q);
    if (q->has_thread) return PARE_OK;
    return PARE_FAIL(&s->ctx, MEMORY, "%s: no thread for sequences", s->options.path);
}

void pare_sequences_free(pare_sequences *q)
{
    if (!q) return;
    (void)pthread_mutex_lock(&q->lock);
    q->is_closed = true;
    (void)pthread_cond_signal(&q->changed);
    (void)pthread_mutex_unlock(&q->lock);
    if (q->has_thread) (void)pthread_join(q->thread, NULL);
    while (q->first) drop(q, q->first);
    (void)pthread_cond_destroy(&q->changed);
    (void)pthread_mutex_destroy(&q->lock);
}

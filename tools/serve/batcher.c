/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/batcher.h"

#include "runtime/base/clock.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

struct pare_batcher {
    pare_batcher_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    pare_job *first, *last;
    int64_t waiting;
    int64_t hurried;    /* of them those with a deadline */
    int64_t background; /* of them those of PARE_BACKGROUND */
    int idle;           /* threads that wait for a change */
    int64_t rows;       /* of the jobs that wait */
    double pace;        /* seconds a row takes, of late; 0: not known yet */
    bool hurry, closed;
};

pare_status pare_batcher_new(pare_ctx *ctx, pare_batcher **out, const pare_batcher_options *options)
{
    pare_batcher *b = pare_alloc(ctx, 1, sizeof *b);
    pthread_condattr_t attr;
    if (!b) return PARE_MEMORY;
    b->options = *options;
    (void)pthread_mutex_init(&b->lock, NULL); /* on Linux none of these fails */
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* that of pare_seconds */
    (void)pthread_cond_init(&b->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    *out = b;
    return PARE_OK;
}

void pare_batcher_free(pare_batcher *b)
{
    if (!b) return;
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->lock);
    pare_free(b);
}

/* --- the list, under the lock --- */

/* sign 1: the job came; -1: it goes. */
static void count(pare_batcher *b, const pare_job *job, int sign)
{
    b->waiting += sign;
    b->rows += sign * job->rows;
    b->hurried += sign * isfinite(job->deadline);
    b->background += sign * (job->priority == PARE_BACKGROUND);
}

/* Behind `before`; NULL: as the first. */
static void link(pare_batcher *b, pare_job *before, pare_job *job)
{
    job->next = before ? before->next : b->first;
    *(before ? &before->next : &b->first) = job;
    if (!job->next) b->last = job;
    count(b, job, 1);
}

/* Behind the last one that is not less urgent. */
static void insert(pare_batcher *b, pare_job *job)
{
    pare_job *before = b->last;
    if (before && before->priority > job->priority) {
        before = NULL;
        for (pare_job *j = b->first; j->priority <= job->priority; j = j->next) before = j;
    }
    link(b, before, job);
}

/* Before those as urgent that came later. */
static void insert_again(pare_batcher *b, pare_job *job)
{
    pare_job *before = NULL;
    for (pare_job *j = b->first; j; before = j, j = j->next)
        if (j->priority > job->priority ||
            (j->priority == job->priority && j->queued > job->queued))
            break;
    link(b, before, job);
}

/* Takes a job out, whose place is behind `before`, and puts it at the end of a list. */
static void move(pare_batcher *b, pare_job *before, pare_job *job, pare_job ***end)
{
    *(before ? &before->next : &b->first) = job->next;
    if (!job->next) b->last = before;
    job->next = NULL;
    **end = job;
    *end = &job->next;
    count(b, job, -1);
}

/* --- batches --- */

static bool is_alike(const pare_batcher *b, const pare_job *first, const pare_job *job)
{
    return b->options.merge && b->options.alike(first, job);
}

/* The batch that could be had now. */
typedef struct prospect {
    int64_t rows;      /* of all that fit together */
    int64_t preferred; /* the most rows among them that are preferred; 0: none */
    double oldest;     /* when the first of them came */
    bool full;         /* more would not fit */
} prospect;

static bool is_preferred(const pare_batcher_options *o, int64_t rows)
{
    for (int i = 0; i < o->preferred_count; i++)
        if (o->preferred[i] == rows) return true;
    return false;
}

static prospect look(const pare_batcher *b)
{
    const pare_batcher_options *o = &b->options;
    prospect p = {.oldest = INFINITY};
    for (const pare_job *j = b->first; j && !p.full; j = j->next) {
        if (j != b->first && !is_alike(b, b->first, j)) continue;
        if (p.rows && p.rows + j->rows > o->rows) {
            p.full = true;
            break;
        }
        p.rows += j->rows;
        p.oldest = fmin(p.oldest, j->queued);
        if (is_preferred(o, p.rows)) p.preferred = p.rows;
        p.full = p.rows >= o->rows || !o->merge;
    }
    return p;
}

/* Jobs like the first, in order, until they have so many rows. */
static void gather(pare_batcher *b, int64_t rows, pare_jobs *out)
{
    const pare_job *first = b->first;
    pare_job *before = NULL, **end = &out->jobs;
    for (pare_job *j = b->first, *next; j && out->rows < rows; j = next) {
        next = j->next;
        if (j != first && !is_alike(b, first, j)) {
            before = j;
            continue;
        }
        out->rows += j->rows;
        move(b, before, j, &end);
    }
}

static void gather_late(pare_batcher *b, double now, pare_jobs *out)
{
    pare_job *before = NULL, **end = &out->late;
    for (pare_job *j = b->first, *next; j && b->hurried; j = next) {
        next = j->next;
        if (j->deadline > now)
            before = j;
        else
            move(b, before, j, &end);
    }
}

static double next_deadline(const pare_batcher *b)
{
    double soonest = INFINITY;
    for (const pare_job *j = b->first; j && b->hurried; j = j->next)
        soonest = fmin(soonest, j->deadline);
    return soonest;
}

static bool choose(pare_batcher *b, double now, pare_jobs *out, double *until)
{
    *out = (pare_jobs){0};
    *until = INFINITY;
    gather_late(b, now, out);
    if (b->first) {
        const prospect p = look(b);
        if (p.preferred)
            gather(b, p.preferred, out);
        else if (p.full || b->hurry || now >= p.oldest + b->options.delay)
            gather(b, p.rows, out);
        else
            *until = fmin(p.oldest + b->options.delay, next_deadline(b));
    }
    return out->jobs || out->late;
}

bool pare_batcher_choose(pare_batcher *b, double now, pare_jobs *out, double *until)
{
    (void)pthread_mutex_lock(&b->lock);
    const bool found = choose(b, now, out, until);
    (void)pthread_mutex_unlock(&b->lock);
    return found;
}

/* --- from several threads --- */

/* Has this new job something to tell those who wait for a batch? They know already until when they
   wait for others. */
static bool is_news(const pare_batcher *b, const pare_job *job)
{
    if (b->waiting == 1 || b->hurry || isfinite(job->deadline)) return true;
    const prospect p = look(b);
    return p.full || p.preferred;
}

/* Seconds that a new job of this priority will wait: the rows before it at the pace of late. */
static double foreseen(const pare_batcher *b, int64_t priority)
{
    int64_t rows = b->rows;
    if (b->last && b->last->priority > priority) {
        rows = 0;
        for (const pare_job *j = b->first; j->priority <= priority; j = j->next) rows += j->rows;
    }
    return (double)rows * b->pace / (b->options.instances > 1 ? b->options.instances : 1);
}

/* A moving average over the last runs, some eight of them. */
void pare_batcher_ran(pare_batcher *b, int64_t rows, double seconds)
{
    const double pace = seconds / (double)rows;
    (void)pthread_mutex_lock(&b->lock);
    b->pace += b->pace ? (pace - b->pace) / 8 : pace;
    (void)pthread_mutex_unlock(&b->lock);
}

/* What no one waits for takes only room that is left, and none of a request's. */
static bool has_room(const pare_batcher *b, const pare_job *job)
{
    const bool is_background = job->priority == PARE_BACKGROUND;
    return b->waiting - (is_background ? 0 : b->background) < b->options.limit;
}

bool pare_batcher_push(pare_batcher *b, pare_job *job, double *wait)
{
    (void)pthread_mutex_lock(&b->lock);
    *wait = b->options.wait ? foreseen(b, job->priority) : 0;
    const bool fits = has_room(b, job) && *wait <= b->options.wait;
    if (*wait <= b->options.wait) *wait = 0;
    if (fits) {
        insert(b, job);
        if (b->idle && is_news(b, job)) (void)pthread_cond_signal(&b->changed);
    }
    (void)pthread_mutex_unlock(&b->lock);
    return fits;
}

void pare_batcher_put_back(pare_batcher *b, pare_job *jobs)
{
    (void)pthread_mutex_lock(&b->lock);
    for (pare_job *job = jobs, *next; job; job = next) {
        next = job->next;
        insert_again(b, job);
    }
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->lock);
}

/* Waits for a change, until this time at most. */
static void await_change(pare_batcher *b, double until)
{
    b->idle++;
    if (isinf(until)) {
        (void)pthread_cond_wait(&b->changed, &b->lock);
    } else {
        const double whole = floor(until);
        const struct timespec at = {(time_t)whole, (long)((until - whole) * 1e9)};
        (void)pthread_cond_timedwait(&b->changed, &b->lock, &at);
    }
    b->idle--;
}

bool pare_batcher_take(pare_batcher *b, pare_jobs *out)
{
    double until;
    bool found;
    (void)pthread_mutex_lock(&b->lock);
    while (!(found = choose(b, pare_seconds(), out, &until)) && (b->first || !b->closed))
        await_change(b, until);
    if (b->first) (void)pthread_cond_signal(&b->changed); /* another one may find work, too */
    (void)pthread_mutex_unlock(&b->lock);
    return found;
}

void pare_batcher_hurry(pare_batcher *b)
{
    (void)pthread_mutex_lock(&b->lock);
    b->hurry = true;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->lock);
}

void pare_batcher_close(pare_batcher *b)
{
    (void)pthread_mutex_lock(&b->lock);
    b->hurry = b->closed = true;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->lock);
}

int64_t pare_batcher_waiting(pare_batcher *b)
{
    (void)pthread_mutex_lock(&b->lock);
    const int64_t waiting = b->waiting;
    (void)pthread_mutex_unlock(&b->lock);
    return waiting;
}

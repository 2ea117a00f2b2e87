/* SPDX-License-Identifier: Apache-2.0 */
/* Each stream is a replica, and a window of measuring one item for each. */
#include "runtime/eval/eval.h"
#include "runtime/exec/batch.h"

#include <pthread.h>
#include <string.h>

typedef struct stream {
    pare_times times;
    pare_windows windows;
} stream;

struct pare_streams {
    pare_ctx *ctx;
    pare_replicas *pool;
    const pare_measure_options *options;
    stream *stream;
    int count;
    pthread_mutex_t lock;
    pthread_cond_t warm;
    int waiting; /* streams that are warm */
    bool failed; /* a stream that will never be */
};

pare_status pare_streams_new(pare_ctx *ctx, pare_streams **out, const pare_plan *plan, int count)
{
    const pare_replicas_options options = {
        .threads = count, .items = count, .each = true, .concurrent = true};
    pare_streams *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->ctx = ctx;
    s->count = count;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->warm, NULL);
    s->stream = pare_alloc(ctx, (size_t)count, sizeof *s->stream);
    pare_status st = s->stream ? pare_replicas_new(ctx, &s->pool, plan, &options) : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < count; i++) pare_measure_fill(pare_streams_runner(s, i));
    if (st == PARE_OK)
        *out = s;
    else
        pare_streams_free(s);
    return st;
}

void pare_streams_free(pare_streams *streams)
{
    if (!streams) return;
    pare_replicas_free(streams->pool);
    for (int i = 0; streams->stream && i < streams->count; i++)
        pare_times_free(&streams->stream[i].times);
    pthread_mutex_destroy(&streams->lock);
    pthread_cond_destroy(&streams->warm);
    pare_free(streams->stream);
    pare_free(streams);
}

int pare_streams_count(const pare_streams *streams) { return streams->count; }

pare_runner *pare_streams_runner(const pare_streams *streams, int i)
{
    return pare_replicas_at(streams->pool, i)->runner;
}

pare_status pare_streams_status(const pare_streams *streams, pare_status status)
{
    for (int i = 0; status != PARE_OK && i < streams->count; i++) {
        const char *message = pare_replicas_at(streams->pool, i)->ctx.message;
        if (message[0]) (void)pare_fail(streams->ctx, status, "%s", message);
    }
    return status;
}

/* --- measuring --- */

/* Waits until all streams are warm; false where one failed. */
static bool arrive(pare_streams *s, bool failed)
{
    pthread_mutex_lock(&s->lock);
    s->waiting++;
    s->failed = s->failed || failed;
    pthread_cond_broadcast(&s->warm);
    while (!s->failed && s->waiting < s->count) pthread_cond_wait(&s->warm, &s->lock);
    const bool all = !s->failed;
    pthread_mutex_unlock(&s->lock);
    return all;
}

static pare_status measure_one(void *user, int64_t item, pare_replica *replica)
{
    pare_streams *s = user;
    pare_status st = pare_measure_warm(&replica->ctx, replica->runner, s->options);
    if (!arrive(s, st != PARE_OK)) return st;
    return pare_measure_timed(&replica->ctx, replica->runner, s->options, &s->stream[item].times);
}

/* Once through all streams, side by side. */
static pare_status measure_window(pare_streams *s, const pare_measure_options *options)
{
    const pare_batch_work work = {.run = measure_one, .user = s};
    s->options = options;
    s->waiting = 0;
    s->failed = false;
    PARE_TRY(pare_replicas_run(s->pool, 0, s->count, &work));
    for (int i = 0; i < s->count; i++)
        PARE_TRY(pare_windows_note(s->ctx, &s->stream[i].windows, &s->stream[i].times));
    return PARE_OK;
}

static bool all_agree(const pare_streams *s)
{
    for (int i = 0; i < s->count; i++)
        if (!pare_windows_agree(&s->stream[i].windows)) return false;
    return true;
}

/* The windows that count are the same of all streams. */
static void cut(pare_streams *s)
{
    int first = 0;
    for (int i = 0; i < s->count; i++) {
        const int own = pare_windows_first(&s->stream[i].windows);
        if (own > first) first = own;
    }
    if (!all_agree(s)) first = 0;
    for (int i = 0; i < s->count; i++)
        pare_windows_cut(&s->stream[i].windows, first, &s->stream[i].times);
}

pare_status pare_streams_measure(pare_streams *streams, const pare_measure_options *options)
{
    enum { LEAST = 3, MOST = 9 };
    pare_measure_options window = *options;
    window.duration /= LEAST;
    window.iterations = (options->iterations + LEAST - 1) / LEAST;
    for (int i = 0; i < streams->count; i++) streams->stream[i].windows = (pare_windows){0};
    if (!(options->duration > 0)) return measure_window(streams, options);
    for (int w = 0; w < MOST && (w < LEAST || !all_agree(streams)); w++) {
        PARE_TRY(measure_window(streams, &window));
        window.warm_up = 0;
    }
    cut(streams);
    return PARE_OK;
}

/* --- times --- */

const pare_times *pare_streams_times_of(const pare_streams *s, int i)
{
    return &s->stream[i].times;
}

pare_status pare_streams_times(const pare_streams *s, pare_times *all)
{
    size_t most = 0, at = 0;
    *all = (pare_times){0};
    for (int i = 0; i < s->count; i++) {
        const pare_times *t = &s->stream[i].times;
        at += t->count;
        if (t->count > most) most = t->count;
        if (t->wall > all->wall) all->wall = t->wall;
        if (t->apart > all->apart) all->apart = t->apart;
        all->windows = t->windows;
        all->waited += t->waited / s->count; /* each saw that of all threads */
    }
    all->ms = pare_alloc(s->ctx, at, sizeof *all->ms);
    if (!all->ms) return PARE_MEMORY;
    for (size_t k = 0; k < most; k++)
        for (int i = 0; i < s->count; i++)
            if (k < s->stream[i].times.count) all->ms[all->count++] = s->stream[i].times.ms[k];
    return PARE_OK;
}

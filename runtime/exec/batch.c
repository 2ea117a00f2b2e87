/* SPDX-License-Identifier: Apache-2.0 */
/* Items are handed out in order, so that the one whose turn it is to be taken is always being
   worked on. The first failure, in order, is kept: every item before it was handed out before it,
   and a lower one that fails later replaces it. */
#include "runtime/exec/gather.h"
#include "runtime/exec/replicas.h"

#include <omp.h>
#include <string.h>

void pare_replicas_options_init(pare_replicas_options *out) { *out = (pare_replicas_options){0}; }

/* --- making a pool --- */

static void items_work(void *user, int worker);

static int count_of(const pare_replicas *r)
{
    const pare_replicas_options *o = &r->options;
    const bool gathers = r->phases > 1 && r->plan->sharding;
    if (gathers) return r->threads;
    if (r->phases > 1 || o->each) return (int)o->items;
    return r->threads;
}

static bool overlaps(const pare_replicas *r)
{
    const pare_replicas_options *o = &r->options;
    return o->overlap && r->plan->options.device && r->phases == 1 && r->count == 1 && !o->chain;
}

static pare_status replica_open(const pare_replicas *r, pare_replica *p)
{
    if (r->options.chain) {
        PARE_TRY(pare_chain_new(&p->ctx, &p->chain, r->options.chain));
        p->runner = pare_chain_first(p->chain);
        p->last = pare_chain_last(p->chain);
        return PARE_OK;
    }
    PARE_TRY(pare_runner_new_in(&p->ctx, &p->runner, r->plan, r->stream, r->single));
    p->last = p->runner;
    return PARE_OK;
}

static void replica_close(pare_replica *p)
{
    if (p->chain)
        pare_chain_free(p->chain);
    else
        pare_runner_free(p->runner);
}

static pare_status replica_start(pare_replica *p)
{
    return p->chain ? pare_chain_start(p->chain) : pare_runner_start(p->runner);
}

static pare_status replica_wait(pare_replica *p)
{
    return p->chain ? pare_chain_wait(p->chain) : pare_runner_wait(p->runner);
}

pare_status pare_replica_compute(pare_replica *p)
{
    return p->chain ? pare_chain_run(p->chain) : pare_runner_run(p->runner);
}

bool pare_replica_is_recorded(const pare_replica *p)
{
    return p->chain ? pare_chain_is_recorded(p->chain) : pare_runner_is_recorded(p->runner);
}

static pare_status replicas_fill(pare_replicas *r)
{
    pare_device *device = r->plan->options.device;
    const int64_t items = r->options.items;
    r->threads = r->options.threads > 0 ? r->options.threads : pare_cpu_cores();
    if (device && !r->options.concurrent) r->threads = 1;
    if (items && items < r->threads) r->threads = (int)items;
    PARE_TRY(pare_phases_make(r));
    if (device && (r->options.share || r->phases > 1))
        PARE_TRY(device->streams->open(r->ctx, device, &r->stream));
    const int count = count_of(r);
    r->replica = pare_alloc(r->ctx, (size_t)count, sizeof *r->replica);
    if (!r->replica) return PARE_MEMORY;
    for (; r->count < count; r->count++) {
        pare_replica *p = &r->replica[r->count];
        p->index = r->count;
        pare_ctx_child(&p->ctx, r->ctx);
        pare_status st = replica_open(r, p);
        if (st != PARE_OK) return pare_fail(r->ctx, st, "%s", p->ctx.message);
    }
    r->overlaps = overlaps(r);
    if (r->threads == 1) return PARE_OK;
    return pare_workers_new(r->ctx, &r->workers, r->threads - 1, items_work, r);
}

static pare_status replicas_make(pare_ctx *ctx, pare_replicas **out, const pare_plan *plan,
                                 const pare_replicas_options *options, bool single)
{
    pare_replicas *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->ctx = ctx;
    r->plan = plan;
    r->options = *options;
    r->single = single;
    (void)pthread_mutex_init(&r->lock, NULL); /* on Linux neither fails */
    (void)pthread_cond_init(&r->turned, NULL);
    pare_status st = replicas_fill(r);
    if (st == PARE_OK)
        *out = r;
    else
        pare_replicas_free(r);
    return st;
}

pare_status pare_replicas_new(pare_ctx *ctx, pare_replicas **out, const pare_plan *plan,
                              const pare_replicas_options *options)
{
    const pare_status st = replicas_make(ctx, out, plan, options, false);
    if (!pare_runner_retries(ctx, plan, st)) return st;
    return replicas_make(ctx, out, plan, options, true);
}

void pare_replicas_free(pare_replicas *r)
{
    if (!r) return;
    pare_workers_free(r->workers);
    for (int i = 0; i < r->count; i++) {
        pare_replica *p = &r->replica[i];
        for (; p->flying; p->flying--)
            if (replica_wait(p) != PARE_OK) pare_ctx_clear(&p->ctx);
    }
    for (int i = 0; i < r->count; i++) replica_close(&r->replica[i]);
    if (r->stream) r->plan->options.device->streams->close(r->stream);
    (void)pthread_cond_destroy(&r->turned);
    (void)pthread_mutex_destroy(&r->lock);
    pare_free(r->replica);
    pare_free(r->phase);
    pare_free(r->from);
    pare_free(r->to);
    pare_free(r->whole);
    pare_free(r->runner);
    pare_gather_close(r->gather);
    pare_free(r);
}

int pare_replicas_count(const pare_replicas *r) { return r->count; }

int pare_replicas_threads(const pare_replicas *r) { return r->threads; }

pare_replica *pare_replicas_at(const pare_replicas *r, int i) { return &r->replica[i]; }

pare_stream *pare_replicas_stream(const pare_replicas *r) { return r->stream; }

/* --- order --- */

/* The next item; -1: there is none, or one has failed and those after it do not matter. */
static int64_t hand_out(pare_replicas *r)
{
    (void)pthread_mutex_lock(&r->lock);
    int64_t item = r->next < r->end && r->next < r->failed ? r->next++ : -1;
    (void)pthread_mutex_unlock(&r->lock);
    return item;
}

static void note_failure(pare_replicas *r, int64_t item, const pare_replica *p, pare_status st)
{
    (void)pthread_mutex_lock(&r->lock);
    if (item < r->failed) {
        r->failed = item;
        r->status = st;
        r->failed_replica = p->index;
    }
    (void)pthread_cond_broadcast(&r->turned);
    (void)pthread_mutex_unlock(&r->lock);
}

/* Waits until all items before this one were taken; false where one of them failed. */
static bool await_turn(pare_replicas *r, int64_t item)
{
    (void)pthread_mutex_lock(&r->lock);
    while (r->turn != item && r->failed > item) (void)pthread_cond_wait(&r->turned, &r->lock);
    bool mine = r->failed > item;
    (void)pthread_mutex_unlock(&r->lock);
    return mine;
}

static void pass_turn(pare_replicas *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->turn++;
    (void)pthread_cond_broadcast(&r->turned);
    (void)pthread_mutex_unlock(&r->lock);
}

static pare_status item_take(pare_replicas *r, int64_t item, pare_replica *p)
{
    const pare_batch_work *w = &r->work;
    if (!w->take) return PARE_OK;
    if (w->any_order) return w->take(w->user, item, p);
    if (!await_turn(r, item)) return PARE_OK;
    PARE_TRY(w->take(w->user, item, p));
    pass_turn(r);
    return PARE_OK;
}

/* --- one item after the other --- */

static pare_status item_run(pare_replicas *r, int64_t item, pare_replica *p)
{
    const pare_batch_work *w = &r->work;
    PARE_TRY(pare_ctx_poll(&p->ctx));
    if (!r->at && w->load) PARE_TRY(w->load(w->user, item, p));
    PARE_TRY(w->run     ? w->run(w->user, item, p)
             : p->chain ? pare_chain_run(p->chain)
                        : pare_phase_run(r, p->runner));
    return r->at == r->phases - 1 ? item_take(r, item, p) : PARE_OK;
}

/* What one thread does. */
static void items_work(void *user, int worker)
{
    pare_replicas *r = user;
    const int threads = r->plan->options.threads;
    if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
    for (int64_t item; (item = hand_out(r)) >= 0;) {
        pare_replica *p = &r->replica[r->phases > 1     ? item - r->base
                                      : r->options.each ? item
                                                        : worker];
        p->worker = worker;
        pare_status st = item_run(r, item, p);
        if (st != PARE_OK) note_failure(r, item, p, st);
    }
}

pare_status pare_replica_run(pare_replica *replica, int64_t first, int64_t count,
                             const pare_batch_work *w)
{
    for (int64_t item = first; item < first + count; item++) {
        PARE_TRY(pare_ctx_poll(&replica->ctx));
        if (w->load) PARE_TRY(w->load(w->user, item, replica));
        PARE_TRY(w->run ? w->run(w->user, item, replica) : pare_replica_compute(replica));
        if (w->take) PARE_TRY(w->take(w->user, item, replica));
    }
    return PARE_OK;
}

/* --- two items in flight on a device --- */

/* Ends the replica's oldest item in flight. Those after a failure are not taken. */
static void item_land(pare_replicas *r, pare_replica *p)
{
    const int64_t item = p->item[0];
    p->item[0] = p->item[1];
    p->flying--;
    pare_status st = replica_wait(p);
    if (item > r->failed) return;
    if (st == PARE_OK && r->work.take) st = r->work.take(r->work.user, item, p);
    if (st != PARE_OK) note_failure(r, item, p, st);
}

/* Lands the items before `end`, and after a failure all. */
static void items_land(pare_replicas *r, int64_t end)
{
    pare_replica *p = r->replica;
    while (p->flying && (p->item[0] < end || r->failed < INT64_MAX)) item_land(r, p);
}

/* Asked for once the first item has run, which took what memory of the device libraries and
   observers need. */
static pare_status ahead_open(pare_replicas *r, pare_replica *p)
{
    if (r->asked || p->flying || !pare_runner_has_run(p->runner)) return PARE_OK;
    r->asked = true;
    return pare_runner_run_ahead(p->runner, &r->ahead);
}

static pare_status item_start(pare_replicas *r, int64_t item, pare_replica *p)
{
    const pare_batch_work *w = &r->work;
    PARE_TRY(pare_ctx_poll(&p->ctx));
    PARE_TRY(ahead_open(r, p));
    if (w->load) PARE_TRY(w->load(w->user, item, p));
    PARE_TRY(replica_start(p));
    p->item[p->flying++] = item;
    return PARE_OK;
}

static void items_overlap(pare_replicas *r)
{
    pare_replica *p = r->replica;
    while (r->next < r->end && r->failed == INT64_MAX) {
        const int64_t item = r->next++;
        while (p->flying > r->ahead) item_land(r, p);
        if (r->failed < INT64_MAX) break;
        pare_status st = item_start(r, item, p);
        if (st != PARE_OK) note_failure(r, item, p, st);
    }
    items_land(r, r->work.in_flight ? INT64_MIN : INT64_MAX);
}

/* --- a run --- */

static pare_status failure_tell(pare_replicas *r)
{
    if (r->failed == INT64_MAX) return PARE_OK;
    return pare_fail(r->ctx, r->status, "%s", r->replica[r->failed_replica].ctx.message);
}

/* Items base .. end - 1. */
static pare_status phases_run(pare_replicas *r)
{
    for (r->at = 0; r->at < r->phases; r->at++) {
        r->next = r->turn = r->base;
        if (r->workers && r->end - r->base > 1)
            PARE_TRY(pare_workers_run(r->ctx, r->workers));
        else
            items_work(r, 0);
        PARE_TRY(failure_tell(r));
        PARE_TRY(pare_phase_join(r));
    }
    return PARE_OK;
}

/* Where parts are gathered, as many items run together as there are replicas. */
static pare_status rounds_run(pare_replicas *r, int64_t first, int64_t count)
{
    const int64_t end = first + count;
    const int64_t each = r->phases > 1 && r->count < count ? r->count : count;
    for (r->base = first; r->base < end; r->base += each) {
        r->end = end - r->base < each ? end : r->base + each;
        PARE_TRY(phases_run(r));
    }
    return PARE_OK;
}

static void run_begin(pare_replicas *r, int64_t end)
{
    r->end = end;
    r->failed = INT64_MAX;
    for (int i = 0; i < r->count; i++) {
        pare_ctx_clear(&r->replica[i].ctx);
        r->replica[i].ctx.interrupted = r->ctx->interrupted;
    }
}

/* After a failure nothing still reads what load gave. */
pare_status pare_replicas_run(pare_replicas *r, int64_t first, int64_t count,
                              const pare_batch_work *work)
{
    const int threads = omp_get_max_threads();
    pare_status st;
    pare_ctx quiet;
    pare_ctx_init(&quiet);
    r->work = *work;
    run_begin(r, first + count);
    if (r->overlaps) {
        r->next = first;
        items_overlap(r);
        st = failure_tell(r);
    } else
        st = rounds_run(r, first, count);
    if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
    if (st != PARE_OK && r->stream) (void)r->plan->options.device->backend->sync(&quiet, r->stream);
    return st;
}

pare_status pare_replicas_finish(pare_replicas *r, int64_t end)
{
    if (!r->overlaps) return PARE_OK;
    run_begin(r, r->end);
    items_land(r, end);
    return failure_tell(r);
}

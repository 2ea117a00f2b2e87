/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients over ranks that begin while microbatches still run backward, as in
   data-parallel training elsewhere (Li et al. 2020, "PyTorch Distributed", VLDB 13, section 3.2.3).
   A weight's gradient is added as soon as it is made, unless one of an earlier microbatch is
   missing; then when its microbatch is taken. Once a bucket has the gradients of all microbatches,
   a thread sums it over ranks. Backward makes the last layers' first, so buckets go from the last
   to the first, in every rank alike: the order of additions is that of one process. */
#include "distill/trainer.h"

#include <pthread.h>
#include <stdlib.h>

/* A runner of the pool, and what it runs. */
typedef struct running {
    pare_overlap *overlap;
    const pare_runner *runner;
    int slice;
} running;

/* A gradient that runs make. */
typedef struct made {
    const pare_value *value;
    int weight;
} made;

struct pare_overlap {
    const pare_microbatches *microbatches;
    pare_weights *weights;
    running *running; /* (replicas) */
    made *made;       /* (weights), by value */
    int buckets;
    size_t floats;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    int *next; /* (weights): the microbatch whose gradient is added next */
    int *left; /* (buckets): weights of which gradients are missing */
    int at;    /* the bucket to be summed next; -1: none */
    bool is_busy, is_given_up, ends;
    pare_status status; /* of the sums */
};

/* --- buckets --- */

static size_t bucket_begin(int bucket) { return (size_t)bucket * PARE_GRADIENT_BUCKET; }

static size_t bucket_floats(const pare_overlap *o, int bucket)
{
    const size_t rest = o->floats - bucket_begin(bucket);
    return rest < PARE_GRADIENT_BUCKET ? rest : PARE_GRADIENT_BUCKET;
}

/* Adds to the missing weights of each bucket that a weight is in. */
static void count_weight(pare_overlap *o, int k, int add)
{
    const pare_weight *item = &o->weights->item[k];
    const size_t last = item->at + (size_t)item->tensor->count - 1;
    for (size_t b = item->at / PARE_GRADIENT_BUCKET; b <= last / PARE_GRADIENT_BUCKET; b++)
        o->left[b] += add;
}

/* --- the thread that sums --- */

/* Under the lock: until there is something to do. */
static bool waits(const pare_overlap *o)
{
    return !o->ends && !(o->is_busy && (o->is_given_up || o->left[o->at] == 0));
}

/* Under the lock, which it lets go of while it sums. */
static void sum_bucket(pare_overlap *o)
{
    const int bucket = o->at;
    (void)pthread_mutex_unlock(&o->lock);
    const pare_status st =
        pare_comm_sum_f32(o->microbatches->comm, o->weights->gradient + bucket_begin(bucket),
                          bucket_floats(o, bucket));
    (void)pthread_mutex_lock(&o->lock);
    o->status = st;
    o->at--;
}

static void *sum_all(void *user)
{
    pare_overlap *o = user;
    (void)pthread_mutex_lock(&o->lock);
    for (;;) {
        while (waits(o)) (void)pthread_cond_wait(&o->changed, &o->lock);
        if (o->ends) break;
        if (!o->is_given_up) sum_bucket(o);
        if (o->is_given_up || o->at < 0 || o->status != PARE_OK) o->is_busy = false;
        (void)pthread_cond_broadcast(&o->changed);
    }
    (void)pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* --- gradients --- */

static bool is_next(pare_overlap *o, int k, int slice)
{
    (void)pthread_mutex_lock(&o->lock);
    const bool next = o->next[k] == slice;
    (void)pthread_mutex_unlock(&o->lock);
    return next;
}

/* Of one that is next, which no other thread adds. */
static void add(pare_overlap *o, int k, const running *r)
{
    pare_gradients_add_weight(o->microbatches, o->weights, k, r->slice, r->runner);
    (void)pthread_mutex_lock(&o->lock);
    if (++o->next[k] == o->microbatches->count) {
        count_weight(o, k, -1);
        (void)pthread_cond_broadcast(&o->changed);
    }
    (void)pthread_mutex_unlock(&o->lock);
}

static int compare_values(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const made *)a)->value,
                    y = (uintptr_t)((const made *)b)->value;
    return (x > y) - (x < y);
}

static pare_status on_made(void *user, const pare_value *value, const pare_view *view)
{
    const running *r = user;
    pare_overlap *o = r->overlap;
    const made key = {.value = value};
    const made *found =
        bsearch(&key, o->made, (size_t)o->weights->trained, sizeof *o->made, compare_values);
    (void)view;
    if (found && is_next(o, found->weight, r->slice)) add(o, found->weight, r);
    return PARE_OK;
}

void pare_overlap_load(pare_overlap *o, int replica, int slice)
{
    if (o) o->running[replica].slice = slice;
}

void pare_overlap_take(pare_overlap *o, int slice, const pare_runner *runner)
{
    const running r = {o, runner, slice};
    for (int k = 0; k < o->weights->trained; k++)
        if (is_next(o, k, slice)) add(o, k, &r);
}

/* --- a batch --- */

void pare_overlap_begin(pare_overlap *o)
{
    if (!o) return;
    (void)pthread_mutex_lock(&o->lock);
    for (int b = 0; b < o->buckets; b++) o->left[b] = 0;
    for (int k = 0; k < o->weights->trained; k++) {
        o->next[k] = 0;
        count_weight(o, k, 1);
    }
    o->at = o->buckets - 1;
    o->is_busy = true;
    o->is_given_up = false;
    o->status = PARE_OK;
    (void)pthread_mutex_unlock(&o->lock);
}

pare_status pare_overlap_end(pare_overlap *o, pare_status status)
{
    if (!o) return status;
    (void)pthread_mutex_lock(&o->lock);
    o->is_given_up = status != PARE_OK;
    (void)pthread_cond_broadcast(&o->changed);
    while (o->is_busy) (void)pthread_cond_wait(&o->changed, &o->lock);
    if (status == PARE_OK) status = o->status;
    (void)pthread_mutex_unlock(&o->lock);
    return status;
}

/* --- making it --- */

static pare_status fill(pare_overlap *o, const pare_microbatches *s, pare_weights *w)
{
    const int replicas = pare_replicas_count(s->pool);
    *o = (pare_overlap){.microbatches = s, .weights = w, .at = -1};
    (void)pthread_mutex_init(&o->lock, NULL); /* on Linux it does not fail */
    (void)pthread_cond_init(&o->changed, NULL);
    o->floats = pare_weights_trained_floats(w);
    o->buckets = (int)((o->floats + PARE_GRADIENT_BUCKET - 1) / PARE_GRADIENT_BUCKET);
    o->running = pare_alloc(s->ctx, (size_t)replicas, sizeof *o->running);
    o->made = pare_alloc(s->ctx, (size_t)w->trained, sizeof *o->made);
    o->next = pare_alloc(s->ctx, (size_t)w->trained, sizeof *o->next);
    o->left = pare_alloc(s->ctx, (size_t)o->buckets, sizeof *o->left);
    if (!o->running || !o->made || !o->next || !o->left) return PARE_MEMORY;
    for (int k = 0; k < w->trained; k++)
        o->made[k] = (made){pare_plan_output(s->graph->plan, s->graph->gradient_at[k]), k};
    qsort(o->made, (size_t)w->trained, sizeof *o->made, compare_values);
    for (int i = 0; i < replicas; i++) {
        pare_runner *runner = pare_replicas_at(s->pool, i)->runner;
        o->running[i] = (running){o, runner, -1};
        pare_runner_observe(runner, on_made, &o->running[i]);
    }
    if (pthread_create(&o->thread, NULL, sum_all, o))
        return PARE_FAIL(s->ctx, MEMORY, "no thread for the sums of gradients");
    o->is_started = true;
    pare_log(s->ctx, PARE_LOG_INFO,
             "gradients are summed over ranks while microbatches still run backward: %d buckets",
             o->buckets);
    return PARE_OK;
}

/* A sum over microbatches is one over ranks, too, in the middle of a run: the two would meet in
   another order in each rank. */
static bool can_be(const pare_microbatches *s, const pare_weights *w)
{
    return !w->on_device && s->comm && s->graph->learns && !s->graph->norm_count &&
           pare_weights_trained_floats(w) > PARE_GRADIENT_BUCKET;
}

/* All ranks, or none: they sum in one order. A rank of one core does nothing else while it sums. */
pare_status pare_overlap_open(pare_microbatches *s, pare_weights *w, int threads)
{
    int64_t fewest = -threads;
    if (!can_be(s, w)) return PARE_OK;
    PARE_TRY(pare_comm_allreduce(s->comm, &fewest, 1, PARE_COMM_MAX_I64));
    if (-fewest < 2) return PARE_OK;
    s->overlap = pare_alloc(s->ctx, 1, sizeof *s->overlap);
    return s->overlap ? fill(s->overlap, s, w) : PARE_MEMORY;
}

void pare_overlap_close(pare_overlap *o)
{
    if (!o) return;
    (void)pthread_mutex_lock(&o->lock);
    o->ends = true;
    (void)pthread_cond_broadcast(&o->changed);
    (void)pthread_mutex_unlock(&o->lock);
    if (o->is_started) (void)pthread_join(o->thread, NULL);
    (void)pthread_cond_destroy(&o->changed);
    (void)pthread_mutex_destroy(&o->lock);
    pare_free(o->running);
    pare_free(o->made);
    pare_free(o->next);
    pare_free(o->left);
    pare_free(o);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients over ranks, from GPU to GPU, that begin while the last microbatch of a batch
   still runs backward. The run marks an event where the gradients of a bucket are made. A stream
   beside the run's waits for it, adds them to those of the earlier microbatches, and exchanges the
   sum. Backward makes the last layers' first, so buckets go from the last to the first, in every
   rank alike. A number's additions are those of a sum after the run: buckets are only when. */
#include "distill/trainer.h"

/* Floats of a bucket: an eighth of all, so that recorded runs are cut into few pieces, but enough
   for the network's speed. A bucket ends before a weight that it has no room for, unless it would
   be small itself. */
enum { MOST_BUCKETS = 8, LEAST_FLOATS = 1 << 16, SMALL = 16 };

/* Weights side by side. */
typedef struct bucket {
    size_t at, floats;       /* of the block of gradients */
    int first_chunk, chunks; /* of the blocks' chunks */
    int first_weight, last_weight;
    pare_event *made;
} bucket;

struct pare_device_overlap {
    pare_microbatches *microbatches;
    const pare_weights *weights;
    pare_device *device;
    pare_stream *stream;
    bucket *bucket;       /* (buckets), from the last weights to the first */
    pare_step_mark *mark; /* (buckets) */
    int buckets;
};

/* --- buckets --- */

static size_t floats_between(const pare_weights *w, int first, int last)
{
    const pare_weight *end = &w->item[last];
    return end->at + (size_t)end->tensor->count - w->item[first].at;
}

static bool ends_bucket(const pare_weights *w, int first, int last)
{
    size_t most = pare_weights_trained_floats(w) / MOST_BUCKETS;
    if (most < LEAST_FLOATS) most = LEAST_FLOATS;
    if (!first) return true;
    return floats_between(w, first - 1, last) > most &&
           floats_between(w, first, last) >= most / SMALL;
}

/* buckets may be NULL: returns how many there are. */
static int cut(const pare_weights *w, bucket *buckets)
{
    int count = 0;
    for (int last = w->trained - 1, first; last >= 0; last = first - 1, count++) {
        first = last;
        while (!ends_bucket(w, first, last)) first--;
        if (buckets)
            buckets[count] = (bucket){.at = w->item[first].at,
                                      .floats = floats_between(w, first, last),
                                      .first_weight = first,
                                      .last_weight = last};
    }
    return count;
}

/* The table of chunks is in order of the weights. */
static void find_chunks(const pare_weights *w, bucket *b)
{
    for (int k = 0; k <= b->last_weight; k++) {
        const int chunks = pare_weight_chunks(&w->item[k]);
        *(k < b->first_weight ? &b->first_chunk : &b->chunks) += chunks;
    }
}

/* The step of a run after which the bucket's gradients are all made. */
static int made_at(const pare_train_graph *g, const bucket *b)
{
    int step = 0;
    for (int k = b->first_weight; k <= b->last_weight; k++) {
        const int made = pare_plan_output_made(g->plan, g->gradient_at[k]);
        if (made > step) step = made;
    }
    return step;
}

/* --- a batch --- */

static pare_status sum_bucket(const pare_device_overlap *o, const bucket *b,
                              const float *const *from, pare_tree_term term)
{
    const pare_microbatches *s = o->microbatches;
    pare_train_blocks blocks = o->weights->on_device->blocks;
    blocks.chunk += b->first_chunk;
    blocks.chunks = b->chunks;
    PARE_TRY(o->device->streams->event_wait(s->ctx, o->stream, b->made));
    PARE_TRY(o->device->training->gather(s->ctx, o->stream, &blocks, from, term));
    return o->device->ranks->sum(s->ctx, s->sums->there, o->stream, PARE_f32,
                                 blocks.gradient + b->at, b->floats);
}

/* A rank that fails in between leaves the others waiting for its device. */
static pare_status sum_all(const pare_device_overlap *o, const float *const *from,
                           pare_tree_term term)
{
    pare_comm *comm = o->microbatches->comm;
    pare_status st = PARE_OK;
    PARE_TRY(pare_comm_settle(comm, PARE_OK));
    for (int b = 0; b < o->buckets && st == PARE_OK; b++)
        st = sum_bucket(o, &o->bucket[b], from, term);
    return pare_comm_break(comm, st);
}

/* What the run found counts: the sums of a device that is lost fail as well, with fewer words. */
static pare_status end_run(const pare_device_overlap *o, pare_runner *runner)
{
    const pare_microbatches *s = o->microbatches;
    const pare_status ran = pare_runner_wait(runner);
    if (ran != PARE_OK) (void)pare_fail(s->ctx, ran, "%s", pare_runner_ctx(runner)->message);
    const pare_status st = o->device->ranks->wait(s->ctx, s->sums->there, o->stream);
    PARE_TRY(pare_comm_break(s->comm, st));
    return ran;
}

/* After a failure: sums that are under way read gradients that the caller frees. Those that wait
   for a rank that is gone end with the first call, which gives NCCL's communicator up. */
static void drain(const pare_device_overlap *o)
{
    const pare_microbatches *s = o->microbatches;
    (void)o->device->ranks->wait(s->ctx, s->sums->there, o->stream);
    (void)o->device->backend->sync(s->ctx, o->stream);
}

/* Once the run is in its stream it goes on while ranks agree and what follows it is put into the
   other one. */
pare_status pare_device_overlap_run(pare_device_overlap *o, pare_runner *runner, int slice)
{
    const pare_tree_term term = pare_tree_term_of(slice, o->weights->microbatches);
    void *from;
    PARE_TRY(pare_gradients_find(o->microbatches, o->weights, runner, &from));
    PARE_TRY(pare_runner_start(runner));
    const pare_status st = sum_all(o, from, term);
    if (st == PARE_OK) return end_run(o, runner);
    if (pare_runner_wait(runner) != PARE_OK) pare_ctx_clear(pare_runner_ctx(runner));
    drain(o);
    return st;
}

/* --- making it --- */

static pare_status fill(pare_device_overlap *o, pare_microbatches *s)
{
    const pare_stream_table *streams = o->device->streams;
    o->bucket = pare_alloc(s->ctx, (size_t)o->buckets, sizeof *o->bucket);
    o->mark = pare_alloc(s->ctx, (size_t)o->buckets, sizeof *o->mark);
    if (!o->bucket || !o->mark) return PARE_MEMORY;
    (void)cut(o->weights, o->bucket);
    PARE_TRY(streams->open(s->ctx, o->device, &o->stream));
    for (int i = 0; i < o->buckets; i++) {
        bucket *b = &o->bucket[i];
        find_chunks(o->weights, b);
        PARE_TRY(streams->event_open(s->ctx, o->device, &b->made));
        o->mark[i] = (pare_step_mark){made_at(s->graph, b), b->made};
    }
    pare_runner_mark(pare_replicas_at(s->pool, 0)->runner, o->mark, o->buckets);
    pare_log(s->ctx, PARE_LOG_INFO,
             "gradients are summed over GPUs while the last microbatch still runs backward: %d "
             "buckets",
             o->buckets);
    return PARE_OK;
}

/* Sums over microbatches part a run with batch statistics, and are sums over ranks, too. */
static bool can_be(const pare_microbatches *s, const pare_weights *w)
{
    return w->on_device && s->graph->learns && !s->graph->norm_count &&
           pare_replicas_count(s->pool) == 1;
}

int pare_device_overlap_sums(const pare_microbatches *s, const pare_weights *w)
{
    return can_be(s, w) ? cut(w, NULL) : 1;
}

pare_status pare_device_overlap_open(pare_microbatches *s, const pare_weights *w)
{
    const int buckets = pare_device_overlap_sums(s, w);
    if (buckets < 2 || !s->sums->there) return PARE_OK;
    pare_device_overlap *o = pare_alloc(s->ctx, 1, sizeof *o);
    if (!o) return PARE_MEMORY;
    *o = (pare_device_overlap){
        .microbatches = s, .weights = w, .device = w->on_device->device, .buckets = buckets};
    s->device_overlap = o;
    return fill(o, s);
}

/* The runner that marks the events is gone, or runs no more. */
void pare_device_overlap_close(pare_device_overlap *o)
{
    if (!o) return;
    for (int i = 0; o->bucket && i < o->buckets; i++)
        if (o->bucket[i].made) o->device->streams->event_close(o->bucket[i].made);
    if (o->stream) o->device->streams->close(o->stream);
    pare_free(o->bucket);
    pare_free(o->mark);
    pare_free(o);
}

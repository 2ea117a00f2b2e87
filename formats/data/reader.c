/* SPDX-License-Identifier: Apache-2.0 */
/* Reading ahead. A ring of batches is filled by worker threads, each of which claims the next
   sample, decodes the group of rows it is in (a shared cache holds groups, so that neighbours are
   inflated once) and converts it into its place. The caller takes batches in order; its thread asks
   for the samples of a batch when one of the ring becomes free, and then fetches raw what only HDF5
   can read. Memory: the ring, and (threads + 1) groups per input and those it was told to keep,
   whatever the number of samples. */
#include "formats/data/cache.h"
#include "formats/data/held.h"
#include "formats/data/source.h"
#include "runtime/base/size.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RING_BATCHES = 3, RING_SAMPLES = 48, RING_BYTES = 8 << 20 };

typedef struct ring_batch {
    int64_t *sample; /* (batch) */
    void **input;    /* (sources) */
    uint8_t **raw;   /* (sources): rows of serial ones, else NULL */
    int64_t *label;  /* or NULL */
    pare_hash hash;  /* sum over its samples */
    int64_t done;    /* samples finished, failed ones included */
} ring_batch;

typedef struct worker {
    pare_reader *reader;
    pthread_t thread;
    pare_ctx ctx;
    pare_h5_scratch scratch;
    uint8_t **mixed; /* (sources): one row each */
    pare_hash *part; /* (2 * sources) */
} worker;

struct pare_reader {
    pare_ctx *ctx;
    pare_data *data;
    pare_reader_plan plan;
    int64_t *list; /* of a reader with a list of samples: its copy */
    int64_t n, batch;
    int ring_count, worker_count;
    ring_batch *ring;
    pare_group_cache *cache; /* (sources) */
    worker *worker;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    bool stop;
    int64_t claimed, allowed; /* positions */
    int64_t taken;            /* batches handed to the caller */
    int64_t failed;           /* lowest position that failed; n where none did */
    pare_status fail_status;
    char *fail_message;
    pare_hash hash;
};

/* --- one sample --- */

static pare_status read_source(worker *w, int i, int64_t position, ring_batch *b)
{
    pare_reader *r = w->reader;
    const pare_data_source *s = &r->data->source[i];
    int64_t place = position % r->batch, sample = s->shared ? 0 : b->sample[place];
    const uint8_t *row = s->set.serial ? b->raw[i] + (size_t)place * s->set.row_bytes
                                       : pare_held_row(r->data, i, sample);
    pare_group_slot *slot = NULL;
    if (!row) {
        PARE_TRY(
            pare_group_take(&w->ctx, &slot, &r->cache[i], &w->scratch, sample / s->set.group_rows));
        row = slot->rows + (size_t)(sample % s->set.group_rows) * s->set.row_bytes;
        pare_held_keep(r->data, i, sample, row);
    }
    w->part[2 * i] = pare_hash_bytes(row, s->set.row_bytes);
    w->part[2 * i + 1] = s->meaning;
    uint8_t *to = (uint8_t *)b->input[i] + (size_t)place * s->bytes;
    pare_status st = pare_data_convert(&w->ctx, s, sample, row, w->mixed[i], to);
    if (slot) pare_group_give(&r->cache[i], slot);
    return st;
}

static pare_status read_sample(worker *w, int64_t position, ring_batch *b)
{
    pare_reader *r = w->reader;
    int64_t place = position % r->batch;
    for (int i = 0; i < r->data->source_count; i++) PARE_TRY(read_source(w, i, position, b));
    if (b->label) b->label[place] = r->data->label[b->sample[place]];
    return PARE_OK;
}

/* Called with the lock held. */
static void finish_sample(worker *w, int64_t position, ring_batch *b, pare_status st)
{
    pare_reader *r = w->reader;
    size_t parts = 2 * (size_t)r->data->source_count * sizeof *w->part;
    if (st == PARE_OK)
        b->hash = pare_hash_sum(b->hash, pare_hash_bytes(w->part, parts));
    else if (position < r->failed) {
        r->failed = position;
        r->fail_status = st;
        memcpy(r->fail_message, w->ctx.message, sizeof w->ctx.message);
    }
    pare_ctx_clear(&w->ctx);
    b->done++;
    pthread_cond_signal(&r->finished);
}

static void *work(void *user)
{
    worker *w = user;
    pare_reader *r = w->reader;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        if (r->claimed >= r->allowed) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        int64_t position = r->claimed++;
        ring_batch *b = &r->ring[position / r->batch % r->ring_count];
        pthread_mutex_unlock(&r->lock);
        pare_status st = read_sample(w, position, b);
        pthread_mutex_lock(&r->lock);
        finish_sample(w, position, b, st);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* --- the caller's side --- */

/* Reads the rows of a serial source for a batch that became free, in runs of neighbours. */
static pare_status fetch_runs(pare_reader *r, int i, ring_batch *b, int64_t count)
{
    const pare_h5_set *set = &r->data->source[i].set;
    const bool shared = r->data->source[i].shared;
    for (int64_t p = 0, run; p < count; p += run) {
        for (run = 1; !shared && p + run < count && b->sample[p + run] == b->sample[p] + run;)
            run++;
        PARE_TRY(pare_h5_read_rows(r->ctx, set, shared ? 0 : b->sample[p], run,
                                   b->raw[i] + (size_t)p * set->row_bytes));
    }
    return PARE_OK;
}

/* The same through groups that are kept. */
static pare_status fetch_kept(pare_reader *r, int i, ring_batch *b, int64_t count)
{
    const pare_h5_set *set = &r->data->source[i].set;
    for (int64_t p = 0; p < count; p++) {
        pare_group_slot *slot;
        int64_t sample = r->data->source[i].shared ? 0 : b->sample[p];
        PARE_TRY(pare_group_take(r->ctx, &slot, &r->cache[i], NULL, sample / set->group_rows));
        memcpy(b->raw[i] + (size_t)p * set->row_bytes,
               slot->rows + (size_t)(sample % set->group_rows) * set->row_bytes, set->row_bytes);
        pare_group_give(&r->cache[i], slot);
    }
    return PARE_OK;
}

static pare_status fetch(pare_reader *r, ring_batch *b, int64_t count)
{
    for (int i = 0; i < r->data->source_count; i++)
        if (r->data->source[i].set.serial)
            PARE_TRY(r->plan.keep ? fetch_kept(r, i, b, count) : fetch_runs(r, i, b, count));
    return PARE_OK;
}

static pare_status check_samples(pare_reader *r, const int64_t *samples, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (samples[i] < 0 || samples[i] >= r->data->count)
            return PARE_FAIL(r->ctx, USAGE, "%s: sample %lld was asked for, the file has %lld",
                             r->data->file.path, (long long)samples[i], (long long)r->data->count);
    return PARE_OK;
}

/* Opens batch `index` of the ring to the workers. */
static pare_status allow(pare_reader *r, int64_t index)
{
    int64_t first = index * r->batch, count = r->n - first < r->batch ? r->n - first : r->batch;
    if (first >= r->n) return PARE_OK;
    ring_batch *b = &r->ring[index % r->ring_count];
    PARE_TRY(r->plan.order(r->plan.user, first, count, b->sample));
    PARE_TRY(check_samples(r, b->sample, count));
    PARE_TRY(fetch(r, b, count));
    pthread_mutex_lock(&r->lock);
    b->done = 0;
    b->hash = (pare_hash){0};
    r->allowed = first + count;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    return PARE_OK;
}

/* Waits until batch `index`, which is open to the workers, is read; false where it cannot be. */
static bool await(pare_reader *r, int64_t index, pare_batch *out)
{
    const int64_t first = index * r->batch;
    const int64_t count = r->n - first < r->batch ? r->n - first : r->batch;
    const ring_batch *b = &r->ring[index % r->ring_count];
    pthread_mutex_lock(&r->lock);
    while (b->done < count) pthread_cond_wait(&r->finished, &r->lock);
    const bool failed = r->failed < first + count;
    pthread_mutex_unlock(&r->lock);
    if (failed) return false;
    *out = (pare_batch){.first = first,
                        .count = (int)count,
                        .sample = b->sample,
                        .input = b->input,
                        .label = b->label};
    return true;
}

pare_status pare_reader_next(pare_reader *r, pare_batch *out)
{
    const int64_t index = r->taken;
    *out = (pare_batch){.first = r->n};
    PARE_TRY(pare_ctx_poll(r->ctx));
    if (index * r->batch >= r->n) return PARE_OK;
    if (index > 0) PARE_TRY(allow(r, index - 1 + r->ring_count));
    if (!await(r, index, out)) return pare_fail(r->ctx, r->fail_status, "%s", r->fail_message);
    r->hash = pare_hash_sum(r->hash, r->ring[index % r->ring_count].hash);
    r->taken++;
    return PARE_OK;
}

/* The ring has two batches at least, where there are so many. */
void pare_reader_peek(pare_reader *r, pare_batch *out)
{
    *out = (pare_batch){.first = r->n};
    if (r->taken * r->batch < r->n) (void)await(r, r->taken, out);
}

pare_hash pare_reader_hash(const pare_reader *reader) { return reader->hash; }

size_t pare_reader_bytes(const pare_reader *r)
{
    size_t bytes = 0;
    for (int i = 0; i < r->data->source_count; i++) {
        const pare_data_source *s = &r->data->source[i];
        bytes += pare_group_cache_bytes(&r->cache[i]);
        bytes += (size_t)r->ring_count * (size_t)r->batch *
                 (s->bytes + (s->set.serial ? s->set.row_bytes : 0));
        if (s->set.serial) continue;
        bytes += (size_t)r->worker_count * (s->set.group_chunks > 1 || s->set.shuffle >= 0
                                                ? 2 * s->set.chunk_bytes
                                                : s->set.chunk_bytes);
    }
    return bytes;
}

/* --- making and ending --- */

static void free_parts(pare_reader *r)
{
    int sources = r->data->source_count;
    for (int i = 0; r->ring && i < r->ring_count; i++) {
        ring_batch *b = &r->ring[i];
        for (int k = 0; b->input && k < sources; k++) pare_free(b->input[k]);
        for (int k = 0; b->raw && k < sources; k++) pare_free(b->raw[k]);
        pare_free(b->input);
        pare_free(b->raw);
        pare_free(b->label);
        pare_free(b->sample);
    }
    for (int i = 0; r->worker && i < r->worker_count; i++) {
        worker *w = &r->worker[i];
        for (int k = 0; w->mixed && k < sources; k++) pare_free(w->mixed[k]);
        pare_free(w->mixed);
        pare_free(w->part);
        pare_h5_scratch_free(&w->scratch);
    }
    for (int i = 0; r->cache && i < sources; i++) pare_group_cache_clear(&r->cache[i]);
    pare_free(r->ring);
    pare_free(r->worker);
    pare_free(r->cache);
    pare_free(r->list);
    pare_free(r->fail_message);
}

static pare_status alloc_batch(pare_reader *r, ring_batch *b)
{
    int sources = r->data->source_count;
    b->input = pare_alloc(r->ctx, (size_t)sources, sizeof *b->input);
    b->raw = pare_alloc(r->ctx, (size_t)sources, sizeof *b->raw);
    b->sample = pare_alloc(r->ctx, (size_t)r->batch, sizeof *b->sample);
    if (!b->input || !b->raw || !b->sample) return PARE_MEMORY;
    for (int i = 0; i < sources; i++) {
        const pare_data_source *s = &r->data->source[i];
        if (!(b->input[i] = pare_alloc(r->ctx, (size_t)r->batch, s->bytes))) return PARE_MEMORY;
        if (s->set.serial && !(b->raw[i] = pare_alloc(r->ctx, (size_t)r->batch, s->set.row_bytes)))
            return PARE_MEMORY;
    }
    if (r->data->label && !(b->label = pare_alloc(r->ctx, (size_t)r->batch, sizeof *b->label)))
        return PARE_MEMORY;
    return PARE_OK;
}

static pare_status alloc_worker(pare_reader *r, worker *w)
{
    size_t sources = (size_t)r->data->source_count;
    w->reader = r;
    pare_ctx_child(&w->ctx, r->ctx);
    w->mixed = pare_alloc(r->ctx, sources, sizeof *w->mixed);
    w->part = pare_alloc(r->ctx, 2 * sources, sizeof *w->part);
    if (!w->mixed || !w->part) return PARE_MEMORY;
    for (size_t i = 0; i < sources; i++) {
        const pare_data_source *s = &r->data->source[i];
        if (s->rows && !(w->mixed[i] = pare_alloc(r->ctx, s->set.row_bytes, 1))) return PARE_MEMORY;
    }
    return PARE_OK;
}

/* Caches of groups: one for each worker and one over, and those that were asked for. */
static pare_status alloc_caches(pare_reader *r, int threads)
{
    r->cache = pare_alloc(r->ctx, (size_t)r->data->source_count, sizeof *r->cache);
    if (!r->cache) return PARE_MEMORY;
    for (int i = 0; i < r->data->source_count; i++) {
        const pare_h5_set *set = &r->data->source[i].set;
        int64_t keep = r->plan.keep / set->group_rows + (r->plan.keep % set->group_rows != 0);
        if (keep > INT32_MAX - threads - 1) keep = INT32_MAX - threads - 1;
        if (keep || !set->serial)
            PARE_TRY(pare_group_cache_init(r->ctx, &r->cache[i], set, threads + 1 + (int)keep));
    }
    return PARE_OK;
}

static pare_status alloc_parts(pare_reader *r, int threads)
{
    size_t bytes = 0;
    int sources = r->data->source_count;
    for (int i = 0; i < sources; i++) bytes += r->data->source[i].bytes;
    r->ring_count = RING_BATCHES;
    while (r->ring_count * r->batch < RING_SAMPLES &&
           (size_t)(r->ring_count * r->batch) * bytes < RING_BYTES)
        r->ring_count++;
    int64_t batches = (r->n + r->batch - 1) / r->batch;
    if (batches < r->ring_count) r->ring_count = (int)batches;
    r->ring = pare_alloc(r->ctx, (size_t)r->ring_count, sizeof *r->ring);
    r->worker = pare_alloc(r->ctx, (size_t)threads, sizeof *r->worker);
    r->fail_message = pare_alloc(r->ctx, sizeof r->ctx->message, 1);
    if (!r->ring || !r->worker || !r->fail_message) return PARE_MEMORY;
    for (int i = 0; i < r->ring_count; i++) PARE_TRY(alloc_batch(r, &r->ring[i]));
    return alloc_caches(r, threads);
}

static pare_status start(pare_reader *r, int threads)
{
    PARE_TRY(alloc_parts(r, threads));
    for (int i = 0; i < r->ring_count; i++) PARE_TRY(allow(r, i));
    for (; r->worker_count < threads; r->worker_count++) {
        worker *w = &r->worker[r->worker_count];
        pare_status st = alloc_worker(r, w);
        int e = st == PARE_OK ? pthread_create(&w->thread, NULL, work, w) : 0;
        if (e && r->worker_count == 0)
            st = PARE_FAIL(r->ctx, MEMORY, "no thread could be started: %s", strerror(e));
        if (st != PARE_OK || e) { /* this worker never ran: free what it has */
            for (int k = 0; w->mixed && k < r->data->source_count; k++) pare_free(w->mixed[k]);
            pare_free(w->mixed);
            pare_free(w->part);
            return st;
        }
    }
    return PARE_OK;
}

static pare_status reader_new(pare_ctx *ctx, pare_reader **out, pare_data *data,
                              const pare_reader_plan *plan, int batch)
{
    int64_t n = plan->n;
    if (n < 1)
        return PARE_FAIL(ctx, USAGE, "%s: 0 samples were asked for, expected at least one",
                         data->file.path);
    pare_reader *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    r->ctx = ctx;
    r->data = data;
    r->plan = *plan;
    r->n = r->failed = n;
    r->batch = batch < 1 ? 1 : batch < n ? batch : n;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->finished, NULL);
    *out = r;
    return PARE_OK;
}

pare_status pare_reader_open_plan(pare_ctx *ctx, pare_reader **out, pare_data *data,
                                  const pare_reader_plan *plan, int batch, int threads)
{
    pare_reader *r = NULL;
    PARE_TRY(reader_new(ctx, &r, data, plan, batch));
    pare_status st = start(r, threads < 1 ? 1 : threads);
    if (st == PARE_OK)
        *out = r;
    else
        pare_reader_close(r);
    return st;
}

static pare_status order_of_list(void *user, int64_t first, int64_t count, int64_t *out)
{
    const pare_reader *r = user;
    memcpy(out, r->list + first, (size_t)count * sizeof *out);
    return PARE_OK;
}

static pare_status copy_list(pare_reader *r, const int64_t *samples)
{
    PARE_TRY(check_samples(r, samples, r->n));
    if (!(r->list = pare_alloc(r->ctx, (size_t)r->n, sizeof *samples))) return PARE_MEMORY;
    memcpy(r->list, samples, (size_t)r->n * sizeof *samples);
    return PARE_OK;
}

pare_status pare_reader_open(pare_ctx *ctx, pare_reader **out, pare_data *data,
                             const int64_t *samples, int64_t n, int batch, int threads)
{
    pare_reader *r = NULL;
    PARE_TRY(reader_new(ctx, &r, data, &(pare_reader_plan){.order = order_of_list, .n = n}, batch));
    r->plan.user = r;
    pare_status st = copy_list(r, samples);
    if (st == PARE_OK) st = start(r, threads < 1 ? 1 : threads);
    if (st == PARE_OK)
        *out = r;
    else
        pare_reader_close(r);
    return st;
}

void pare_reader_close(pare_reader *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->worker_count; i++) pthread_join(r->worker[i].thread, NULL);
    free_parts(r);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->finished);
    pthread_mutex_destroy(&r->lock);
    pare_free(r);
}

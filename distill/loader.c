/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/loader.h"
#include "distill/sampler.h"

/* All of CIFAR-10 or Fashion-MNIST is mixed freely, and thousands of our own 64 KiB chunks of
   anything larger, hundreds of samples in each of which differ from a free order in nothing a
   batch shows; and the memory is a small part of what training takes. */
enum { WINDOW_BYTES = 256 << 20 };

struct pare_loader {
    pare_sampler *sampler;
    pare_reader *reader;
    int64_t start, count;
    int64_t *epoch; /* (batch) */
    int batch;
};

static pare_status order(void *user, int64_t first, int64_t count, int64_t *out)
{
    pare_loader *s = user;
    for (int64_t i = 0; i < count; i++) out[i] = pare_sampler_at(s->sampler, s->start + first + i);
    return PARE_OK;
}

/* Samples whose chunks are kept and mixed. A chunk of one sample is inflated for it alone in any
   order: then all are mixed and none kept. */
static void choose_window(const pare_data *data, const pare_loader_options *options,
                          int64_t *window, int64_t *keep)
{
    size_t bytes = options->window ? options->window : WINDOW_BYTES;
    size_t one = pare_data_stored_bytes(data);
    int64_t all = pare_data_count(data);
    int64_t fits = one && bytes / one < (size_t)all ? (int64_t)(bytes / one) : all;
    bool alone = pare_data_chunk_samples(data) == 1;
    *window = alone ? all : fits;
    *keep = alone ? 0 : fits;
}

static pare_status open_parts(pare_ctx *ctx, pare_loader *s, pare_data *data,
                              const pare_loader_options *options)
{
    pare_sampler_options sampler = {.seed = options->seed,
                                    .samples = options->samples,
                                    .count = options->count,
                                    .block = pare_data_chunk_samples(data)};
    pare_reader_plan plan = {.order = order, .user = s, .n = options->end - options->start};
    choose_window(data, options, &sampler.window, &plan.keep);
    s->epoch = pare_alloc(ctx, (size_t)s->batch, sizeof *s->epoch);
    if (!s->epoch) return PARE_MEMORY;
    PARE_TRY(pare_sampler_new(ctx, &s->sampler, &sampler));
    return pare_reader_open_plan(ctx, &s->reader, data, &plan, s->batch, options->threads);
}

pare_status pare_loader_open(pare_ctx *ctx, pare_loader **out, pare_data *data,
                             const pare_loader_options *options)
{
    if (options->count < 1) return PARE_FAIL(ctx, USAGE, "no samples are left to train on");
    pare_loader *s = pare_alloc(ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    *s = (pare_loader){.start = options->start,
                       .count = options->count,
                       .batch = options->batch < 1 ? 1 : options->batch};
    pare_status st = open_parts(ctx, s, data, options);
    if (st == PARE_OK)
        *out = s;
    else
        pare_loader_close(s);
    return st;
}

pare_status pare_loader_next(pare_loader *s, pare_loader_batch *out)
{
    pare_batch b;
    *out = (pare_loader_batch){0};
    PARE_TRY(pare_reader_next(s->reader, &b));
    *out = (pare_loader_batch){.position = s->start + b.first,
                               .count = b.count,
                               .input = b.input,
                               .label = b.label,
                               .epoch = s->epoch,
                               .sample = b.sample};
    for (int i = 0; i < b.count; i++) s->epoch[i] = (out->position + i) / s->count;
    return PARE_OK;
}

pare_hash pare_loader_hash(const pare_loader *s) { return pare_reader_hash(s->reader); }

size_t pare_loader_bytes(const pare_loader *s)
{
    return pare_sampler_bytes(s->sampler) + pare_reader_bytes(s->reader) +
           (size_t)s->batch * sizeof *s->epoch;
}

void pare_loader_close(pare_loader *s)
{
    if (!s) return;
    pare_reader_close(s->reader);
    pare_sampler_free(s->sampler);
    pare_free(s->epoch);
    pare_free(s);
}

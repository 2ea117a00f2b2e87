/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a step's gradients, where the weights are. Its order is a tree over the microbatches
   of a batch, and then one over the batches of the step; sums that wait for a partner are blocks of
   floats beside the block of gradients. */
#include "distill/trainer.h"

#include <string.h>

enum {
    PIECE = 1024 /* floats that are added at a time */
};

/* --- on the host --- */

/* x, a term, to where it belongs; at: of all of them in a block. */
static void add_here(const pare_weights *w, pare_tree_term term, const float *x, size_t at,
                     size_t count)
{
    float sum[PIECE];
    float *to = (term.to < 0 ? w->gradient : w->waiting + (size_t)term.to * w->floats) + at;
    for (size_t first = 0; first < count; first += PIECE) {
        const size_t n = count - first < PIECE ? count - first : PIECE;
        memcpy(sum, x + first, n * sizeof *sum);
        for (int level = 0; term.with >> level; level++) {
            const float *waiting = w->waiting + (size_t)level * w->floats + at + first;
            if (term.with >> level & 1)
                for (size_t i = 0; i < n; i++) sum[i] = waiting[i] + sum[i];
        }
        memcpy(to + first, sum, n * sizeof *sum);
    }
}

/* --- on a device --- */

/* Where a runner's gradients are there; its outputs never move. */
typedef struct pare_source {
    const pare_runner *runner;
    void *table; /* (trained weights) addresses, on the device */
} pare_source;

pare_status pare_gradients_open(pare_microbatches *s)
{
    s->source_of = pare_alloc(s->ctx, (size_t)pare_replicas_count(s->pool), sizeof *s->source_of);
    return s->source_of ? PARE_OK : PARE_MEMORY;
}

void pare_gradients_close(pare_microbatches *s)
{
    for (int i = 0; i < s->source_count; i++)
        s->weights->on_device->device->backend->free(s->weights->on_device->device,
                                                     s->source_of[i].table);
    pare_free(s->source_of);
}

pare_status pare_gradients_find(pare_microbatches *s, const pare_weights *w,
                                const pare_runner *runner, void **out)
{
    const int count = w->trained;
    for (int i = 0; i < s->source_count; i++)
        if (s->source_of[i].runner == runner) {
            *out = s->source_of[i].table;
            return PARE_OK;
        }
    const void **from = pare_alloc(s->ctx, (size_t)count, sizeof *from);
    if (!from) return PARE_MEMORY;
    for (int k = 0; k < count; k++)
        from[k] = pare_runner_output(runner, s->graph->gradient_at[k]).data;
    pare_status st =
        pare_device_copy(s->ctx, w->on_device->device, out, from, (size_t)count * sizeof *from);
    pare_free(from);
    if (st == PARE_OK) s->source_of[s->source_count++] = (pare_source){runner, *out};
    return st;
}

static pare_status add_there(pare_microbatches *s, const pare_weights *w, pare_tree_term term,
                             const pare_runner *runner)
{
    const pare_device_weights *on_device = w->on_device;
    void *from = NULL;
    if (runner) PARE_TRY(pare_gradients_find(s, w, runner, &from));
    return on_device->device->training->gather(runner ? pare_runner_ctx(runner) : s->ctx,
                                               pare_replicas_stream(s->pool), &on_device->blocks,
                                               from, term);
}

/* --- over ranks --- */

/* The gradients of a batch, of all ranks: where the hosts add up those of devices, a bucket goes up
   while the next is added. */
static pare_status sum_ranks(pare_microbatches *s, const pare_weights *w)
{
    const pare_device_weights *there = w->on_device;
    const pare_backend *b = there ? there->device->backend : NULL;
    const size_t floats = pare_weights_trained_floats(w), bytes = floats * sizeof(float);
    if (!s->comm) return PARE_OK;
    pare_stream *stream = pare_replicas_stream(s->pool);
    if (s->sums->there)
        return pare_rank_sums_make(s->sums, stream, PARE_f32, there->blocks.gradient,
                                   (int64_t)floats);
    if (b) PARE_TRY(b->download(s->ctx, stream, w->gradient, there->blocks.gradient, bytes));
    if (b) PARE_TRY(b->sync(s->ctx, stream));
    for (size_t at = 0; at < floats; at += PARE_GRADIENT_BUCKET) {
        const size_t count =
            floats - at < PARE_GRADIENT_BUCKET ? floats - at : PARE_GRADIENT_BUCKET;
        float *x = w->gradient + at;
        PARE_TRY(pare_comm_sum_f32(s->comm, x, count));
        if (b)
            PARE_TRY(b->upload(s->ctx, stream, there->blocks.gradient + at, x, count * sizeof *x));
    }
    return PARE_OK;
}

/* --- either --- */

pare_status pare_gradients_add(pare_microbatches *s, const pare_weights *w, int slice,
                               const pare_runner *runner)
{
    if (s->device_overlap && slice == w->microbatches - 1) return PARE_OK; /* its run has done so */
    if (w->on_device) return add_there(s, w, pare_tree_term_of(slice, w->microbatches), runner);
    for (int k = 0; !s->overlap && k < w->trained; k++)
        pare_gradients_add_weight(s, w, k, slice, runner);
    if (s->overlap) pare_overlap_take(s->overlap, slice, runner);
    return PARE_OK;
}

void pare_gradients_add_weight(const pare_microbatches *s, const pare_weights *w, int weight,
                               int slice, const pare_runner *runner)
{
    const pare_weight *item = &w->item[weight];
    add_here(w, pare_tree_term_of(slice, w->microbatches),
             pare_runner_output(runner, s->graph->gradient_at[weight]).data, item->at,
             (size_t)item->tensor->count);
}

pare_status pare_gradients_end_batch(pare_microbatches *s, const pare_weights *w, int batch)
{
    pare_tree_term term = pare_tree_term_of(batch, w->batches);
    const int levels = pare_tree_levels(w->microbatches);
    if (!s->overlap && !s->device_overlap) PARE_TRY(sum_ranks(s, w));
    if (w->batches <= 1) return PARE_OK;
    term.with <<= levels;
    if (term.to >= 0) term.to += levels;
    if (w->on_device) return add_there(s, w, term, NULL);
    add_here(w, term, w->gradient, 0, pare_weights_trained_floats(w));
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/held_out.h"
#include "distill/device_weights.h"

typedef struct tally {
    const pare_train_graph *graph;
    pare_batch batch;
    double loss; /* sum over microbatches */
    int64_t microbatches, agreed, right;
} tally;

/* The first of the largest. */
static int64_t top1(const float *row, int64_t classes)
{
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

static pare_status count_slice(void *user, int slice, const pare_runner *runner,
                               void *const *teacher)
{
    tally *t = user;
    const pare_train_graph *g = t->graph;
    t->loss += (double)*(const float *)pare_runner_output(runner, g->loss).data;
    t->microbatches++;
    if (g->logits < 0) return PARE_OK;
    const float *mine = pare_runner_output(runner, g->logits).data;
    const float *its = teacher[g->nodes.teacher_logits];
    for (int64_t r = 0; r < g->rows; r++) {
        int64_t best = top1(mine + r * g->nodes.classes, g->nodes.classes);
        t->agreed += best == top1(its + r * g->nodes.classes, g->nodes.classes);
        if (t->batch.label) t->right += best == t->batch.label[slice * g->rows + r];
    }
    return PARE_OK;
}

static pare_status run_all(const pare_held_out *h, pare_reader *reader, const float *values,
                           tally *t)
{
    for (;;) {
        PARE_TRY(pare_ctx_poll(h->ctx));
        PARE_TRY(pare_reader_next(reader, &t->batch));
        if (!t->batch.count) return PARE_OK;
        PARE_TRY(pare_microbatches_run(h->microbatches, &t->batch, values, count_slice, t));
    }
}

pare_status pare_held_out_score(const pare_held_out *h, const float *values,
                                pare_distill_score *out)
{
    tally t = {.graph = h->microbatches->graph};
    pare_reader *reader;
    const int64_t rows = t.graph->rows;
    pare_device_weights *there = h->microbatches->weights->there;
    if (there) PARE_TRY(pare_device_weights_check(there, values));
    PARE_TRY(pare_reader_open(h->ctx, &reader, h->data, h->sample, h->count,
                              (int)(h->microbatches->count * rows), h->threads));
    pare_status st = run_all(h, reader, values, &t);
    pare_reader_close(reader);
    const double samples = (double)(t.microbatches * rows);
    *out =
        (pare_distill_score){.loss = t.loss / (double)t.microbatches, .agreement = -1, .top1 = -1};
    if (t.graph->logits < 0) return st;
    out->agreement = (double)t.agreed / samples;
    if (h->labels) out->top1 = (double)t.right / samples;
    return st;
}

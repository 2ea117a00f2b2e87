/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/eval/error_tally.h"

/* --- sums of samples, in their order --- */

static void add_kept(const pare_kept_error *e, bool part)
{
    pare_error_merge(&e->of->error[e->output], &e->sums);
    if (part) pare_error_merge(&e->of->part[e->sample % PARE_COMPARISON_PARTS], &e->sums);
}

/* Only sums of the first output that are parts are kept with their sample; of others it is -1. */
pare_status pare_error_tally_add(pare_error_tally *t, pare_candidate *of, int output, bool part,
                                 const float *a, const float *b, int64_t size, int64_t first,
                                 int samples)
{
    for (int i = 0; i < samples; i++) {
        pare_kept_error one = {.of = of, .output = output, .sample = part ? first + i : -1};
        pare_error_add(&one.sums, a + i * size, b + i * size, size);
        if (!t->comm) {
            add_kept(&one, part);
            continue;
        }
        if (!pare_grow(t->ctx, &t->kept, &t->capacity, t->count, sizeof *t->kept))
            return PARE_MEMORY;
        t->kept[t->count++] = one;
    }
    return PARE_OK;
}

void pare_error_tally_free(pare_error_tally *t)
{
    pare_free(t->kept);
    *t = (pare_error_tally){0};
}

/* --- ranks --- */

/* Each rank in turn adds what it kept to what those before it have, and passes that on. */
static pare_status add_in_turns(pare_error_tally *t, pare_candidate *candidates, int count)
{
    for (int root = 0; root < pare_comm_size(t->comm); root++) {
        for (size_t i = 0; root == pare_comm_rank(t->comm) && i < t->count; i++)
            add_kept(&t->kept[i], t->kept[i].sample >= 0);
        for (int k = 0; k < count; k++) {
            const pare_candidate *one = &candidates[k];
            const size_t outputs = (size_t)one->model->graph->out.count;
            PARE_TRY(pare_comm_broadcast(t->comm, one->error, outputs * sizeof *one->error, root));
            PARE_TRY(pare_comm_broadcast(t->comm, one->part,
                                         PARE_COMPARISON_PARTS * sizeof *one->part, root));
        }
    }
    return PARE_OK;
}

static pare_status sum(pare_error_tally *t, int64_t *value, size_t count)
{
    return pare_comm_allreduce(t->comm, value, count, PARE_COMM_SUM_U64);
}

pare_status pare_error_tally_share(pare_error_tally *t, pare_candidate *candidates, int count,
                                   int64_t *samples)
{
    if (!t->comm) return PARE_OK;
    PARE_TRY(add_in_turns(t, candidates, count));
    for (int k = 0; k < count; k++) {
        pare_candidate *one = &candidates[k];
        int64_t *hits[] = {&one->top1,          &one->top5,         &one->agreed,
                           &one->paired.both,   &one->paired.first, &one->paired.second,
                           &one->paired.neither};
        PARE_TRY(sum(t, one->same_text, (size_t)one->model->graph->out.count));
        for (size_t i = 0; i < sizeof hits / sizeof *hits; i++) PARE_TRY(sum(t, hits[i], 1));
    }
    return sum(t, samples, 1);
}

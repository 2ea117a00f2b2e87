/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a training by pipeline: each rank has those of its stage. What is of all weights
   at once (the norm of gradients, a checkpoint, the result) is put together here, in the order and
   at the places that one process has. */
#include "distill/trainer.h"
#include "runtime/base/room.h"

#include <string.h>

/* --- who has which --- */

static pare_status copy_list(pare_ctx *ctx, pare_weights *to, const pare_weights *from)
{
    *to = (pare_weights){.ctx = ctx, .trained = from->trained, .count = from->count};
    to->item = pare_alloc(ctx, (size_t)from->count + 1, sizeof *to->item);
    if (!to->item) return PARE_MEMORY;
    memcpy(to->item, from->item, (size_t)from->count * sizeof *to->item);
    pare_weights_lay_out(to);
    return PARE_OK;
}

/* An input of the loss. */
static void add_given(pare_stage_weights *s, const pare_trainer *t, const char *name)
{
    s->stage[s->count] = pare_comm_size(t->options.comm) - 1;
    s->name[s->count++] = name;
}

static pare_status open_lists(pare_stage_weights *s, const pare_trainer *t)
{
    const pare_loss_nodes *loss = &t->learn.nodes;
    const size_t most = (size_t)t->weights.count + (size_t)loss->input_count + 1;
    PARE_TRY(copy_list(t->ctx, &s->all, &t->weights));
    s->own = pare_alloc(t->ctx, most, sizeof *s->own);
    s->stage = pare_alloc(t->ctx, most, sizeof *s->stage);
    s->name = pare_alloc(t->ctx, most, sizeof *s->name);
    s->gradient = pare_alloc(t->ctx, most, sizeof *s->gradient);
    if (!s->own || !s->stage || !s->name || !s->gradient) return PARE_MEMORY;
    for (; s->count < s->all.count; s->count++) {
        s->stage[s->count] = -1;
        s->name[s->count] = s->all.item[s->count].name;
        s->gradient[s->count] = t->learn.gradient.gradient[s->count];
    }
    for (int k = 0; k < loss->input_count; k++)
        if (loss->input[k]) add_given(s, t, loss->input[k]->name);
    if (loss->labels) add_given(s, t, loss->labels);
    return PARE_OK;
}

pare_stage_split pare_stage_weights_split(const pare_stage_weights *s)
{
    return (pare_stage_split){
        .weight = s->name, .gradient = s->gradient, .stage = s->stage, .count = s->count};
}

/* The trainer's list, and the names of gradients by it, become those of this rank. */
static pare_status keep_own(pare_stage_weights *s, pare_trainer *t)
{
    const int rank = pare_comm_rank(t->options.comm);
    bool *keep = pare_alloc(t->ctx, (size_t)s->all.count + 1, sizeof *keep);
    int own = 0;
    size_t most = 0;
    if (!keep) return PARE_MEMORY;
    for (int k = 0; k < s->all.count; k++) {
        const size_t floats = (size_t)s->all.item[k].tensor->count;
        keep[k] = s->stage[k] == rank;
        s->own[k] = keep[k] ? own : -1;
        if (keep[k]) t->learn.gradient.gradient[own++] = s->gradient[k];
        if (floats > most) most = floats;
    }
    pare_weights_choose(&t->weights, keep);
    pare_free(keep);
    s->passing = pare_alloc(t->ctx, most, sizeof *s->passing);
    return s->passing ? PARE_OK : PARE_MEMORY;
}

pare_status pare_stage_weights_open(pare_trainer *t)
{
    pare_stage_weights *s = pare_alloc(t->ctx, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    t->stage = s;
    PARE_TRY(open_lists(s, t));
    const pare_stage_split split = pare_stage_weights_split(s);
    PARE_TRY(pare_train_graph_split(&t->learn, &split, pare_comm_size(t->options.comm),
                                    t->options.device != NULL));
    return keep_own(s, t);
}

void pare_stage_weights_free(pare_stage_weights *s)
{
    if (!s) return;
    pare_free(s->all.item);
    pare_free(s->stage);
    pare_free(s->own);
    pare_free(s->name);
    pare_free(s->gradient);
    pare_free(s->passing);
    pare_free(s);
}

const pare_weights *pare_trainer_all_weights(const pare_trainer *t)
{
    return t->stage ? &t->stage->all : &t->weights;
}

/* --- blocks --- */

pare_status pare_stage_weights_gather(const pare_trainer *t, const float *own, pare_weight_fn take,
                                      void *user)
{
    const pare_stage_weights *s = t->stage;
    pare_comm *comm = t->options.comm;
    pare_status taken = PARE_OK;
    PARE_TRY(pare_comm_settle(comm, PARE_OK));
    for (int k = 0; k < s->all.count; k++) {
        const size_t bytes = (size_t)s->all.item[k].tensor->count * sizeof *own;
        const float *mine = s->own[k] >= 0 ? own + t->weights.item[s->own[k]].at : NULL;
        PARE_TRY(pare_comm_bring(comm, mine, bytes, s->stage[k], s->passing));
        if (!pare_comm_rank(comm) && taken == PARE_OK) taken = take(user, k, s->passing);
    }
    return taken;
}

pare_status pare_stage_weights_scatter(const pare_trainer *t, const void *all, float *own)
{
    const pare_stage_weights *s = t->stage;
    pare_comm *comm = t->options.comm;
    for (int k = 0; k < s->all.count; k++) {
        const pare_weight *item = &s->all.item[k];
        const size_t bytes = (size_t)item->tensor->count * sizeof *own;
        if (!pare_comm_rank(comm)) {
            const char *from = (const char *)all + item->at * sizeof *own;
            memcpy(s->passing, from, bytes);
            pare_memory_give_back(from, bytes);
        }
        PARE_TRY(pare_comm_broadcast(comm, s->passing, bytes, 0));
        if (s->own[k] >= 0) memcpy(own + t->weights.item[s->own[k]].at, s->passing, bytes);
    }
    return PARE_OK;
}

/* Numbers of all weights, some for each, of which a rank has those of its own. */
static pare_status join(const pare_trainer *t, const double *own,
                        int (*count_of)(const pare_weight *), double **out, int *count)
{
    const pare_stage_weights *s = t->stage;
    int all = 0;
    for (int k = 0; k < s->all.count; k++) all += count_of(&s->all.item[k]);
    *out = pare_alloc(t->ctx, (size_t)all + 1, sizeof **out);
    PARE_TRY(pare_comm_settle(t->options.comm, *out ? PARE_OK : PARE_MEMORY));
    double *to = *out;
    for (int k = 0; k < s->all.count; k++) {
        const int each = count_of(&s->all.item[k]);
        if (s->own[k] >= 0) memcpy(to, own, (size_t)each * sizeof *to);
        if (s->own[k] >= 0) own += each;
        to += each;
    }
    *count = all;
    return pare_ranks_join(t->options.comm, *out, all);
}

static int one(const pare_weight *item)
{
    (void)item;
    return 1;
}

pare_status pare_stage_weights_sum(const pare_trainer *t, const double *own, double *out)
{
    double *all = NULL;
    int count = 0;
    const pare_status st = join(t, own, one, &all, &count);
    *out = 0;
    for (int k = 0; k < count; k++) *out += all[k];
    pare_free(all);
    return st;
}

pare_status pare_stage_weights_sum_chunks(const pare_trainer *t, const double *own, double *out)
{
    double *all = NULL;
    int count = 0;
    const pare_status st = join(t, own, pare_weight_chunks, &all, &count);
    if (st == PARE_OK) *out = pare_train_chunks_sum(all, count);
    pare_free(all);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments of the inputs of every layer of the model as it is: as many layers in one pass
   over the samples as have room. */
#include "prune/single.h"

typedef struct pass {
    pare_singles *all;
    pare_flow *flow;
    pare_observer **observer; /* (count) */
} pass;

bool pare_single_is_fitted(const pare_single *s) { return s->matrix && !s->shared && !s->dense; }

/* Moments of layers first .. last - 1 in one pass. */
static pare_status observe(pass *p, int first, int last)
{
    pare_singles *all = p->all;
    const char **names = pare_arena_alloc(all->arena, (size_t)(last - first), sizeof *names);
    int *layer = pare_arena_alloc(all->arena, (size_t)(last - first), sizeof *layer), count = 0;
    if (!names || !layer) return PARE_MEMORY;
    for (int i = first; i < last; i++) {
        const pare_single *s = &all->item[i];
        if (!pare_single_is_fitted(s)) continue;
        layer[count] = i;
        names[count++] = pare_node_in(s->node, s->part.x)->name;
    }
    PARE_TRY(pare_flow_begin(p->flow, names, NULL, count));
    for (int k = 0; k < count; k++) {
        pare_columns columns;
        bool ok;
        PARE_TRY(pare_columns_read(all->item[layer[k]].node, pare_flow_shape(p->flow, k), &columns,
                                   &ok));
        PARE_TRY(pare_observer_new(all->ctx, &p->observer[layer[k]], &columns, 1, false,
                                   all->options->threads));
    }
    for (;;) {
        pare_flow_batch x;
        PARE_TRY(pare_flow_next(p->flow, &x));
        for (int k = 0; k < count; k++)
            for (int r = 0; r < x.count; r++)
                PARE_TRY(pare_observer_add(p->observer[layer[k]], x.first + r,
                                           x.value[k] + r * x.size[k], NULL, NULL));
        if (!x.count) break;
    }
    for (int k = 0; k < count; k++) PARE_TRY(pare_observer_finish(p->observer[layer[k]]));
    return PARE_OK;
}

static double moments_bytes(const pare_single *s)
{
    const pare_columns *c = &s->columns;
    if (!pare_single_is_fitted(s)) return 0;
    return (double)c->groups * (double)c->columns * (double)c->columns * sizeof(double);
}

static pare_status visit_all(pass *p, pare_single_visit visit, void *user)
{
    pare_singles *all = p->all;
    for (int first = 0; first < all->count;) {
        double bytes = moments_bytes(&all->item[first]);
        int last = first + 1;
        while (last < all->count && bytes + moments_bytes(&all->item[last]) <= PARE_BUDGET_ROOM)
            bytes += moments_bytes(&all->item[last++]);
        PARE_TRY(observe(p, first, last));
        for (; first < last; first++) {
            if (!p->observer[first]) continue;
            PARE_TRY(visit(user, first, p->observer[first]));
            pare_observer_free(p->observer[first]);
            p->observer[first] = NULL;
        }
    }
    return PARE_OK;
}

void pare_single_note_data(pare_singles *all, const pare_flow *flow)
{
    pare_hash hash;
    if (flow && pare_flow_hash(flow, &hash)) pare_hash_text(hash, all->facts->data_hash);
}

pare_status pare_singles_moments(pare_singles *all, pare_single_visit visit, void *user)
{
    const pare_single_options *o = all->options;
    pare_flow_options options = {.samples = o->samples,
                                 .sample_count = o->sample_count,
                                 .threads = o->threads,
                                 .device = o->device};
    pass p = {.all = all};
    p.observer = pare_arena_alloc(all->arena, (size_t)all->count, sizeof(pare_observer *));
    if (!p.observer) return PARE_MEMORY;
    pare_status st = pare_flow_new(all->ctx, &p.flow, all->model, o->data, &options);
    if (st == PARE_OK) st = visit_all(&p, visit, user);
    for (int i = 0; i < all->count; i++) pare_observer_free(p.observer[i]);
    pare_single_note_data(all, p.flow);
    pare_flow_free(p.flow);
    return st;
}

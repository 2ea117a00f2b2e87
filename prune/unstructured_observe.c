/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments of the inputs of every layer of the model as it is: as many layers in one pass
   over the samples as have room. */
#include "prune/unstructured.h"

typedef struct pass {
    pare_prunables *all;
    pare_capture *flow;
    pare_observer **observer; /* (count) */
} pass;

bool pare_unstructured_is_fitted(const pare_prunable *s)
{
    return s->matrix && !s->shared && !s->dense;
}

/* Moments of layers first .. last - 1 in one pass. */
static pare_status observe(pass *p, int first, int last)
{
    pare_prunables *all = p->all;
    const char **names = pare_arena_alloc(all->arena, (size_t)(last - first), sizeof *names);
    int *layer = pare_arena_alloc(all->arena, (size_t)(last - first), sizeof *layer), count = 0;
    if (!names || !layer) return PARE_MEMORY;
    for (int i = first; i < last; i++) {
        const pare_prunable *s = &all->item[i];
        if (!pare_unstructured_is_fitted(s)) continue;
        layer[count] = i;
        names[count++] = pare_node_in(s->node, s->part.x)->name;
    }
    PARE_TRY(pare_capture_begin(p->flow, names, NULL, count));
    for (int k = 0; k < count; k++) {
        pare_columns columns;
        bool ok;
        PARE_TRY(pare_columns_read(all->item[layer[k]].node, pare_capture_shape(p->flow, k),
                                   &columns, &ok));
        PARE_TRY(pare_observer_new(all->ctx, &p->observer[layer[k]], &columns, 1, false,
                                   all->options->threads));
    }
    for (;;) {
        pare_capture_batch x;
        PARE_TRY(pare_capture_next(p->flow, &x));
        for (int k = 0; k < count; k++)
            for (int r = 0; r < x.count; r++)
                PARE_TRY(pare_observer_add(p->observer[layer[k]], x.first + r,
                                           x.value[k] + r * x.size[k], NULL, NULL));
        if (!x.count) break;
    }
    for (int k = 0; k < count; k++) PARE_TRY(pare_observer_finish(p->observer[layer[k]]));
    return PARE_OK;
}

static double moments_bytes(const pare_prunable *s)
{
    const pare_columns *c = &s->columns;
    if (!pare_unstructured_is_fitted(s)) return 0;
    return (double)c->groups * (double)c->columns * (double)c->columns * sizeof(double);
}

static pare_status visit_all(pass *p, pare_unstructured_visit visit, void *user)
{
    pare_prunables *all = p->all;
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

void pare_unstructured_note_data(pare_prunables *all, const pare_capture *flow)
{
    pare_hash hash;
    if (flow && pare_capture_hash(flow, &hash)) pare_hash_text(hash, all->facts->data_hash);
}

pare_status pare_prunables_moments(pare_prunables *all, pare_unstructured_visit visit, void *user)
{
    const pare_unstructured_options *o = all->options;
    pare_capture_options options = {.samples = o->samples,
                                    .sample_count = o->sample_count,
                                    .threads = o->threads,
                                    .device = o->device};
    pass p = {.all = all};
    p.observer = pare_arena_alloc(all->arena, (size_t)all->count, sizeof(pare_observer *));
    if (!p.observer) return PARE_MEMORY;
    pare_status st = pare_capture_new(all->ctx, &p.flow, all->model, o->data, &options);
    if (st == PARE_OK) st = visit_all(&p, visit, user);
    for (int i = 0; i < all->count; i++) pare_observer_free(p.observer[i]);
    pare_unstructured_note_data(all, p.flow);
    pare_capture_free(p.flow);
    return st;
}

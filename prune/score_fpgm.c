/* SPDX-License-Identifier: Apache-2.0 */
/* Distances between filters: a filter near to all others says what they say already (He et al.
   2019, "Filter Pruning via Geometric Median", arXiv 1811.00250, equation 5). A component's filter
   is what its units hold of the first weight that makes the group; filters are compared within a
   part. */
#include "prune/score_inner.h"

#include <math.h>

/* Filters of a group as rows of one matrix. */
typedef struct filters {
    const pare_slot *slot;
    int64_t width; /* numbers of one unit */
    int units;     /* of a component in the slot */
    int64_t row;   /* units * width */
    float *data;   /* (components of the group, row) */
} filters;

static int making_slot(const pare_groups *groups, const pare_group *group)
{
    for (int i = 0; i < group->slot_count; i++) {
        const pare_slot *s = &groups->slot[group->slot[i]];
        if (s->role == PARE_SLOT_MAKES && s->value->data && s->value->data->rank > 1)
            return group->slot[i];
    }
    return -1;
}

/* Unit u's elements: every outer index, then the inner ones. */
static void copy_unit(float *to, const pare_slot *slot, int64_t unit)
{
    const pare_tensor *t = slot->value->data;
    const int64_t dim = t->dims[slot->axis], d = unit % dim, part = unit / dim;
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < slot->axis; i++) outer *= t->dims[i];
    for (int i = slot->axis + 1; i < t->rank; i++) inner *= t->dims[i];
    const int64_t each = outer / slot->parts;
    for (int64_t o = part * each; o < (part + 1) * each; o++, to += inner)
        pare_score_read(to, t, (o * dim + d) * inner, inner);
}

static int units_in(const pare_component *c, int slot)
{
    int n = 0;
    for (int i = 0; i < c->unit_count; i++) n += c->unit[i].slot == slot;
    return n;
}

static void read_filters(filters *f, const pare_groups *groups, const pare_group *group, int slot)
{
    for (int k = 0; k < group->count; k++) {
        const pare_component *c = &groups->component[group->first + k];
        float *to = f->data + k * f->row;
        int n = 0;
        for (int i = 0; i < c->unit_count && n < f->units; i++) {
            if (c->unit[i].slot != slot) continue;
            copy_unit(to + n++ * f->width, f->slot, c->unit[i].index);
        }
    }
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum);
}

static void add_distances(double *score, const filters *f, const pare_component *component,
                          int count)
{
#pragma omp parallel for schedule(dynamic, 8)
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++)
            if (a != b && component[a].part == component[b].part)
                score[a] += distance(f->data + a * f->row, f->data + b * f->row, f->row);
}

pare_status pare_score_distances(pare_ctx *ctx, double *score, const pare_groups *groups)
{
    for (int g = 0; g < groups->group_count; g++) {
        const pare_group *group = &groups->group[g];
        int slot = making_slot(groups, group);
        if (slot < 0) continue;
        filters f = {.slot = &groups->slot[slot]};
        f.width = f.slot->value->data->count / f.slot->extent;
        f.units = units_in(&groups->component[group->first], slot);
        f.row = f.units * f.width;
        f.data = pare_alloc(ctx, (size_t)group->count * (size_t)f.row, sizeof *f.data);
        if (!f.data) return PARE_MEMORY;
        read_filters(&f, groups, group, slot);
        const pare_component *component = groups->component + group->first;
        add_distances(score + group->first, &f, component, group->count);
        pare_free(f.data);
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

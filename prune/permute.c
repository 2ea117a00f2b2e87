/* SPDX-License-Identifier: Apache-2.0 */
/* Which input channels lie side by side, before N:M. A group of channels (plan.h: all that falls
   together, residual additions included) can be put into any order: what makes them, what they pass
   and what reads them changes alike, and the model computes the same. The order is searched that
   leaves most magnitude in the layers that read the channels: swaps of two channels of different
   places of M are made while one gains (Pool, Yu 2021, "Channel Permutations for N:M Sparsity"). */
#include "prune/unstructured.h"

#include <math.h>
#include <string.h>

static const double WORK_LIMIT = 4e9; /* numbers looked at in one group of channels */

typedef struct search {
    pare_prunables *all;
    const pare_groups *groups;
    const pare_dependency_group *group;
    int64_t channels, rows;
    float *size;    /* (channels, rows): magnitudes in all readers */
    int32_t *order; /* (channels): the coupled set at each place */
    double *kept;   /* (channels / m): magnitude that a place of M keeps */
    int *changed;   /* (channels / m): pass in which it changed last */
    int n, m;
    double work;
} search;

/* --- what can be ordered --- */

/* Channel j of a slot in each coupled set: the first one of the slot, and how many there are. */
static const pare_channel *channel_span_of(const pare_coupled_channels *c, int slot, int *count)
{
    const pare_channel *first = NULL;
    *count = 0;
    for (int i = 0; i < c->channel_count; i++) {
        if (c->channel[i].slot != slot) continue;
        if (!first) first = &c->channel[i];
        ++*count;
    }
    return first;
}

/* Do all coupled sets have their channels of the slot in one pattern? */
static bool is_even(const pare_groups *groups, const pare_dependency_group *g, int slot)
{
    int count, other;
    const pare_channel *first = channel_span_of(&groups->coupled[g->first], slot, &count);
    for (int c = 1; c < g->count; c++) {
        const pare_channel *channel = channel_span_of(&groups->coupled[g->first + c], slot, &other);
        if (!channel || other != count) return false;
        for (int i = 1; i < count; i++)
            if (channel[i].index - channel[0].index != first[i].index - first[0].index)
                return false;
    }
    return first;
}

static bool can_order(const pare_groups *groups, const pare_dependency_group *g)
{
    if (g->parts != 1) return false;
    for (int i = 0; i < g->slot_count; i++) {
        const pare_channel_axis *s = &groups->slot[g->slot[i]];
        bool constant = s->role != PARE_AXIS_FLOWS;
        if (s->parts != 1 || !is_even(groups, g, g->slot[i])) return false;
        if (constant &&
            (!s->value->is_init || !s->value->data || pare_type(s->value->data->dtype)->bits < 8))
            return false;
    }
    return true;
}

/* The layer that reads all channels of the group, in their order, as its input channels; or NULL.
 */
static const pare_prunable *reader_of(const search *s, int slot)
{
    const pare_channel_axis *at = &s->groups->slot[slot];
    if (at->role != PARE_AXIS_READS || at->extent != s->group->count) return NULL;
    for (int c = 0; c < s->group->count; c++) {
        int count;
        const pare_channel *u =
            channel_span_of(&s->groups->coupled[s->group->first + c], slot, &count);
        if (count != 1 || u->index != c) return NULL;
    }
    for (int i = 0; i < s->all->count; i++) {
        const pare_prunable *one = &s->all->item[i];
        if (one->value == at->value && !one->dense && one->matrix && one->columns.groups == 1 &&
            one->columns.channels == at->extent)
            return one;
    }
    return NULL;
}

/* Magnitudes of the layer's weights after `rows` others. */
static int64_t add_reader(const search *s, const pare_prunable *one, int64_t rows)
{
    const pare_columns *c = &one->columns;
    int64_t taps = c->columns / c->channels;
    for (int64_t o = 0; o < c->outputs; o++)
        for (int64_t k = 0; k < c->columns; k++) {
            float w = fabsf(pare_unstructured_weight(one, pare_unstructured_place(one, 0, o, k)));
            s->size[k % c->channels * s->rows + rows + o * taps + k / c->channels] = w;
        }
    return rows + c->outputs * taps;
}

/* --- the search --- */

/* What the M channels of a place keep: the n largest of each row. */
static double keeps(search *s, const int32_t *channel)
{
    double sum = 0;
    float top[64];
    for (int64_t r = 0; r < s->rows; r++) {
        int have = 0;
        for (int i = 0; i < s->m; i++) {
            float v = s->size[channel[i] * s->rows + r];
            int at = have < s->n ? have++ : s->n;
            if (at == s->n && v <= top[--at]) continue;
            for (; at > 0 && top[at - 1] < v; at--) top[at] = top[at - 1];
            top[at] = v;
        }
        for (int i = 0; i < have; i++) sum += (double)top[i];
    }
    s->work += (double)s->rows * s->m;
    return sum;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t t = *a;
    *a = *b;
    *b = t;
}

/* Makes the best swap between two places, if it gains. */
static bool improve(search *s, int64_t a, int64_t b)
{
    int32_t *p = s->order + a * s->m, *q = s->order + b * s->m;
    double best = (s->kept[a] + s->kept[b]) * (1 + 1e-9);
    int from = -1, to = -1;
    for (int i = 0; i < s->m; i++)
        for (int j = 0; j < s->m; j++) {
            swap(&p[i], &q[j]);
            double sum = keeps(s, p) + keeps(s, q);
            swap(&p[i], &q[j]);
            if (!(sum > best)) continue;
            best = sum;
            from = i;
            to = j;
        }
    if (from < 0) return false;
    swap(&p[from], &q[to]);
    s->kept[a] = keeps(s, p);
    s->kept[b] = keeps(s, q);
    return true;
}

/* Passes over all pairs of places of which one changed since they were looked at. */
static pare_status find_order(search *s)
{
    int64_t places = s->channels / s->m;
    bool more = true;
    for (int64_t i = 0; i < s->channels; i++) s->order[i] = (int32_t)i;
    for (int64_t a = 0; a < places; a++) s->kept[a] = keeps(s, s->order + a * s->m);
    for (int pass = 1; more && s->work < WORK_LIMIT; pass++) {
        more = false;
        for (int64_t a = 0; a < places && s->work < WORK_LIMIT; a++)
            for (int64_t b = a + 1; b < places; b++) {
                if (pass > 1 && s->changed[a] < pass - 1 && s->changed[b] < pass - 1) continue;
                if (!improve(s, a, b)) continue;
                s->changed[a] = s->changed[b] = pass;
                more = true;
            }
        PARE_TRY(pare_ctx_poll(s->all->ctx));
    }
    return PARE_OK;
}

/* --- into the model --- */

/* Channels of coupled set order[i] move to the places of coupled set i along the slot's axis. */
static pare_status reorder(const search *s, int slot)
{
    const pare_channel_axis *at = &s->groups->slot[slot];
    pare_value *value = (pare_value *)at->value; /* of the model that is pruned in place */
    const pare_tensor *old = value->data;
    size_t element = (size_t)pare_type(old->dtype)->bits / 8, outer = 1, inner = element;
    for (int i = 0; i < at->axis; i++) outer *= (size_t)old->dims[i];
    for (int i = at->axis + 1; i < old->rank; i++) inner *= (size_t)old->dims[i];
    size_t row = (size_t)old->dims[at->axis] * inner;
    char *data = pare_alloc(s->all->ctx, old->bytes, 1);
    if (!data) return PARE_MEMORY;
    memcpy(data, old->data, old->bytes);
    for (int64_t i = 0; i < s->channels; i++) {
        int count;
        const pare_coupled_channels *c = s->groups->coupled + s->group->first;
        const pare_channel *to = channel_span_of(&c[i], slot, &count);
        const pare_channel *from = channel_span_of(&c[s->order[i]], slot, &count);
        for (int u = 0; u < count; u++)
            for (size_t o = 0; o < outer; o++)
                memcpy(data + o * row + (size_t)to[u].index * inner,
                       (const char *)old->data + o * row + (size_t)from[u].index * inner, inner);
    }
    pare_tensor *t;
    pare_status st =
        pare_tensor_new(s->all->model, &t, value->name, old->dtype, old->rank, old->dims, data);
    pare_free(data);
    return st == PARE_OK ? pare_value_set_init(value, t) : st;
}

static double sum_of(const search *s)
{
    double sum = 0;
    for (int64_t a = 0; a < s->channels / s->m; a++) sum += s->kept[a];
    return sum;
}

static pare_status order_group(search *s)
{
    pare_unstructured_facts *facts = s->all->facts;
    for (int i = 0; i < s->channels; i++) s->order[i] = i;
    double before = 0;
    for (int64_t a = 0; a < s->channels / s->m; a++) before += keeps(s, s->order + a * s->m);
    PARE_TRY(find_order(s));
    facts->kept_before += before;
    facts->kept_after += sum_of(s);
    if (!(sum_of(s) > before)) return PARE_OK;
    facts->reordered++;
    for (int i = 0; i < s->group->slot_count; i++)
        if (s->groups->slot[s->group->slot[i]].role != PARE_AXIS_FLOWS)
            PARE_TRY(reorder(s, s->group->slot[i]));
    return PARE_OK;
}

static pare_status search_group(pare_prunables *all, const pare_groups *groups,
                                const pare_dependency_group *g)
{
    search s = {.all = all, .groups = groups, .group = g, .channels = g->count};
    s.n = all->options->n, s.m = all->options->m;
    if (g->count % s.m || g->count < 2 * s.m || !can_order(groups, g)) return PARE_OK;
    for (int i = 0; i < g->slot_count; i++) {
        const pare_prunable *one = reader_of(&s, g->slot[i]);
        if (one) s.rows += one->columns.outputs * (one->columns.columns / one->columns.channels);
    }
    if (!s.rows) return PARE_OK;
    s.size = pare_alloc(all->ctx, (size_t)(s.channels * s.rows), sizeof *s.size);
    s.order = pare_alloc(all->ctx, (size_t)s.channels, sizeof *s.order);
    s.kept = pare_alloc(all->ctx, (size_t)s.channels, sizeof *s.kept);
    s.changed = pare_alloc(all->ctx, (size_t)s.channels, sizeof *s.changed);
    pare_status st = s.size && s.order && s.kept && s.changed ? PARE_OK : PARE_MEMORY;
    int64_t rows = 0;
    for (int i = 0; i < g->slot_count && st == PARE_OK; i++) {
        const pare_prunable *one = reader_of(&s, g->slot[i]);
        if (one) rows = add_reader(&s, one, rows);
    }
    if (st == PARE_OK) st = order_group(&s);
    pare_free(s.size);
    pare_free(s.order);
    pare_free(s.kept);
    pare_free(s.changed);
    return st;
}

pare_status pare_prunables_permute(pare_prunables *all)
{
    const pare_unstructured_options *o = all->options;
    pare_groups *groups = NULL;
    pare_groups_options options = {.keep = o->keep, .keep_user = o->keep_user};
    PARE_TRY(pare_groups_new(all->ctx, &groups, all->model, &options));
    pare_status st = PARE_OK;
    for (int g = 0; g < groups->group_count && st == PARE_OK; g++)
        st = search_group(all, groups, &groups->group[g]);
    pare_groups_free(groups);
    return st;
}

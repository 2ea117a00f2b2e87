/* SPDX-License-Identifier: Apache-2.0 */
/* The layers whose single weights can be pruned: the list, masks by score, and the moments of their
   inputs. */
#include "prune/unstructured.h"

#include <string.h>

/* The weights that single-weight pruning works on, and writing them back. */

static int find(const pare_prunables *all, const pare_value *value)
{
    for (int i = 0; i < all->count; i++)
        if (all->item[i].value == value) return i;
    return -1;
}

static pare_status add(pare_prunables *all, pare_node *node, const pare_weighted *part)
{
    pare_value *value = pare_node_in(node, part->w), *x = pare_node_in(node, part->x);
    int known = find(all, value);
    if (known >= 0) {
        all->item[known].shared = true;
        return PARE_OK;
    }
    if (!pare_arena_grow(all->arena, &all->item, &all->capacity, (size_t)all->count,
                         sizeof *all->item))
        return PARE_MEMORY;
    pare_prunable s = {.node = node, .value = value, .part = *part, .count = value->data->count};
    s.shared = value->user_count > 1;
    if (x && x->shape.rank >= 0)
        PARE_TRY(pare_columns_read(node, &x->shape, &s.columns, &s.matrix));
    s.zero = pare_arena_alloc(all->arena, (size_t)s.count, sizeof *s.zero);
    if (!s.zero) return PARE_MEMORY;
    const pare_unstructured_options *o = all->options;
    s.inner = node->graph->parent != NULL;
    s.dense = o->keep && o->keep(o->keep_user, node);
    all->item[all->count++] = s;
    return PARE_OK;
}

static pare_status make_facts(pare_prunables *all)
{
    pare_unstructured_layer *list =
        pare_arena_alloc(&all->model->arena, (size_t)all->count, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (int i = 0; i < all->count; i++) {
        pare_prunable *s = &all->item[i];
        s->facts = &list[i];
        list[i].node = pare_node_path(s->node);
        if (!list[i].node) return PARE_MEMORY;
        list[i].weight = s->value->name;
        list[i].count = s->count;
        list[i].error = list[i].masked = list[i].fitted = -1;
        if (s->dense) list[i].note = "kept as asked";
    }
    all->facts->layer = list;
    all->facts->layer_count = all->count;
    return PARE_OK;
}

pare_status pare_prunables_find(pare_prunables *all)
{
    pare_node **node;
    int count;
    PARE_TRY(pare_graph_all_nodes(all->model->graph, all->arena, &node, &count));
    for (int n = 0; n < count; n++) {
        const pare_op *op = pare_op_of(node[n]);
        pare_weighted part;
        if (!op || op->quant.kind != PARE_QUANT_WEIGHTED) continue;
        PARE_TRY(op->quant.weighted(node[n], &part));
        const pare_value *w = part.constant ? pare_node_in(node[n], part.w) : NULL;
        if (!w || !w->data || !w->is_init || w->data->dtype != PARE_f32 || !w->data->count)
            continue;
        PARE_TRY(add(all, node[n], &part));
    }
    if (!all->count)
        return PARE_FAIL(all->ctx, INPUT,
                         "%s: has no convolution or matrix product with a constant f32 weight: "
                         "nothing can be pruned",
                         all->model->path);
    return make_facts(all);
}

float pare_unstructured_weight(const pare_prunable *s, int64_t i)
{
    float w;
    memcpy(&w, (const char *)s->value->data->data + (size_t)i * sizeof w, sizeof w);
    return w;
}

int64_t pare_unstructured_place(const pare_prunable *s, int64_t group, int64_t output,
                                int64_t column)
{
    return pare_columns_weight(&s->columns, s->part.axis == 0, group, output, column);
}

pare_status pare_unstructured_put(pare_prunables *all, pare_prunable *s, const float *data)
{
    pare_tensor *t;
    const pare_tensor *old = s->value->data;
    PARE_TRY(pare_tensor_new(all->model, &t, s->value->name, PARE_f32, old->rank, old->dims, data));
    return pare_value_set_init(s->value, t);
}

pare_status pare_unstructured_put_zeros(pare_prunables *all, pare_prunable *s)
{
    float *data = pare_alloc(all->ctx, (size_t)s->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    memcpy(data, s->value->data->data, (size_t)s->count * sizeof *data);
    for (int64_t i = 0; i < s->count; i++)
        if (s->zero[i]) data[i] = 0;
    pare_status st = pare_unstructured_put(all, s, data);
    pare_free(data);
    return st;
}

/* Masks by score. The k least of many are found without sorting: two counts by the upper and the
   lower half of a score's bits (floats of one sign are ordered as their bits are) give the k-th
   score; of those equal to it the first ones go. */

enum { BUCKETS = 1 << 16 };

static uint32_t bits_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 */
    memcpy(&bits, &score, sizeof bits);
    return bits;
}

typedef struct hunt {
    pare_prunables *all;
    int first, count;
    pare_unstructured_score score;
    const void *const *user;
    uint64_t bucket[BUCKETS];
} hunt;

static uint32_t score_at(const hunt *h, int layer, int64_t i)
{
    const pare_prunable *s = &h->all->item[layer];
    return bits_of(h->score(s, i, h->user ? h->user[layer] : NULL));
}

/* Counts lower halves of the scores whose upper half is `high`; high -1: counts upper halves. */
static void count(hunt *h, int64_t high)
{
    memset(h->bucket, 0, sizeof h->bucket);
    for (int l = h->first; l < h->first + h->count; l++) {
        if (h->all->item[l].dense) continue;
        for (int64_t i = 0; i < h->all->item[l].count; i++) {
            uint32_t bits = score_at(h, l, i);
            if (high < 0)
                h->bucket[bits >> 16]++;
            else if (bits >> 16 == high)
                h->bucket[bits & 0xffff]++;
        }
    }
}

/* The bucket that holds the want-th; want becomes its place in there. */
static int64_t find_limit(const hunt *h, int64_t *want)
{
    for (int64_t b = 0; b < BUCKETS; b++) {
        if ((uint64_t)*want < h->bucket[b]) return b;
        *want -= (int64_t)h->bucket[b];
    }
    return BUCKETS;
}

pare_status pare_prunables_least(pare_prunables *all, int first, int layers, int64_t want,
                                 pare_unstructured_score score, const void *const *user)
{
    hunt *h = pare_alloc(all->ctx, 1, sizeof *h);
    if (!h) return PARE_MEMORY;
    h->all = all, h->first = first, h->count = layers, h->score = score, h->user = user;
    count(h, -1);
    int64_t high = find_limit(h, &want), low = 0;
    if (high < BUCKETS) {
        count(h, high);
        low = find_limit(h, &want);
    }
    uint64_t edge = (uint64_t)high << 16 | (uint64_t)low; /* `want` of the scores equal to it go */
    for (int l = first; l < first + layers; l++) {
        pare_prunable *s = &all->item[l];
        for (int64_t i = 0; i < s->count && !s->dense; i++) {
            uint64_t bits = score_at(h, l, i);
            s->zero[i] = bits < edge || (bits == edge && want-- > 0);
        }
    }
    pare_free(h);
    return PARE_OK;
}

void pare_unstructured_least_of_m(pare_prunable *s, int n, int m, pare_unstructured_score score,
                                  const void *user)
{
    const pare_columns *c = &s->columns;
    for (int64_t r = 0; r < c->groups * c->outputs; r++)
        for (int64_t k = 0; k + m <= c->columns; k += m)
            for (int gone = 0; gone < m - n; gone++) {
                int64_t worst = -1;
                float least = 0;
                for (int64_t i = k; i < k + m; i++) {
                    int64_t at = pare_unstructured_place(s, r / c->outputs, r % c->outputs, i);
                    float value = s->zero[at] ? 0 : score(s, at, user);
                    if (s->zero[at] || (worst >= 0 && value >= least)) continue;
                    worst = at;
                    least = value;
                }
                s->zero[worst] = true;
            }
}

/* Second moments of the inputs of every layer of the model as it is: as many layers in one pass
   over the samples as have room. */

typedef struct pass {
    pare_prunables *all;
    pare_run_share share;
    pare_capture *flow;
    pare_observer **observer; /* (count) */
} pass;

bool pare_unstructured_is_fitted(const pare_prunable *s)
{
    return s->matrix && !s->shared && !s->inner && !s->dense;
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
        PARE_TRY(pare_observer_new(all->ctx, &p->observer[layer[k]], &columns, 1, false, &p->share,
                                   all->options->threads));
    }
    for (;;) {
        pare_capture_batch x;
        PARE_TRY(pare_capture_next(p->flow, &x));
        for (int k = 0; k < count; k++)
            for (int r = 0; r < x.count; r++)
                PARE_TRY(pare_observer_add(p->observer[layer[k]], p->share.first + x.first + r,
                                           x.value[k] + r * x.size[k], NULL, NULL));
        if (!x.count) break;
    }
    for (int k = 0; k < count; k++) PARE_TRY(pare_observer_finish(p->observer[layer[k]]));
    return PARE_OK;
}

double pare_unstructured_moments_bytes(const pare_columns *c, int ranks)
{
    return (double)c->groups * (double)c->columns * (double)c->columns * sizeof(double) *
           pare_block_sum_arrays(ranks);
}

static double moments_bytes(const pare_prunable *s, int ranks)
{
    const pare_columns *c = &s->columns;
    if (!pare_unstructured_is_fitted(s)) return 0;
    return pare_unstructured_moments_bytes(c, ranks);
}

static pare_status visit_all(pass *p, pare_unstructured_visit visit, void *user)
{
    pare_prunables *all = p->all;
    const int ranks = pare_comm_size(all->options->comm);
    for (int first = 0; first < all->count;) {
        double bytes = moments_bytes(&all->item[first], ranks);
        int last = first + 1;
        while (last < all->count &&
               bytes + moments_bytes(&all->item[last], ranks) <= PARE_BUDGET_ROOM)
            bytes += moments_bytes(&all->item[last++], ranks);
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

pare_status pare_unstructured_note_data(pare_prunables *all, const pare_run_share *share,
                                        const pare_capture *flow)
{
    pare_hash hash;
    if (!pare_capture_hash(flow, &hash)) return PARE_OK;
    PARE_TRY(pare_run_share_hash(share, &hash));
    pare_hash_text(hash, all->facts->data_hash);
    return PARE_OK;
}

pare_status pare_unstructured_share(pare_prunables *all, pare_run_share *share,
                                    pare_capture_options *flow)
{
    const pare_unstructured_options *o = all->options;
    PARE_TRY(pare_run_share_open(all->ctx, share, o->comm, all->model, o->data, o->samples,
                                 o->sample_count));
    *flow = (pare_capture_options){.samples = share->samples,
                                   .sample_count = share->sample_count,
                                   .threads = o->threads,
                                   .device = o->device,
                                   .comm = share->comm};
    return PARE_OK;
}

pare_status pare_prunables_moments(pare_prunables *all, pare_unstructured_visit visit, void *user)
{
    pare_capture_options options;
    pass p = {.all = all};
    p.observer = pare_arena_alloc(all->arena, (size_t)all->count, sizeof(pare_observer *));
    if (!p.observer) return PARE_MEMORY;
    PARE_TRY(pare_unstructured_share(all, &p.share, &options));
    pare_status st = pare_capture_new(all->ctx, &p.flow, all->model, all->options->data, &options);
    if (st == PARE_OK) st = visit_all(&p, visit, user);
    for (int i = 0; i < all->count; i++) pare_observer_free(p.observer[i]);
    if (st == PARE_OK) st = pare_unstructured_note_data(all, &p.share, p.flow);
    pare_capture_free(p.flow);
    return st;
}

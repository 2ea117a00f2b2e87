/* SPDX-License-Identifier: Apache-2.0 */
/* The table of scores, made of scores.inc, and the scores that weights alone give. */
#include "prune/score_inner.h"
#include "prune/score.h"
#include "runtime/ops/ops.h"

#include <math.h>
#include <string.h>

static pare_status score_distances(pare_ctx *ctx, double *score, const pare_groups *groups);

#define pare_weight_score_none NULL

const pare_score_row pare_scores[PARE_SCORE_COUNT] = {
    [PARE_SCORE_BEST] = {.name = "best"},
#define PARE_SCORE(id, text, wants, single, channel)                                               \
    [PARE_SCORE_##id] = {.name = text,                                                             \
                         .needs = PARE_SCORE_NEEDS_##wants,                                        \
                         .weights = pare_weight_score_##single,                                    \
                         .channels = pare_channel_score_##channel},
#include "prune/scores.inc"
#undef PARE_SCORE
};

const char pare_score_names[] = ""
#define PARE_SCORE(id, text, wants, single, channel) "|" text
#include "prune/scores.inc"
#undef PARE_SCORE
    ;

const pare_score_row *pare_score_find(const char *name)
{
    for (int i = PARE_SCORE_BEST + 1; i < PARE_SCORE_COUNT; i++)
        if (!strcmp(pare_scores[i].name, name)) return &pare_scores[i];
    return NULL;
}

pare_score pare_score_of_channels(pare_score score, bool has_data)
{
    if (score != PARE_SCORE_BEST) return score;
    return has_data ? PARE_SCORE_ACTIVATION : PARE_SCORE_L2;
}

pare_status pare_score_channels(pare_ctx *ctx, double *score, pare_score kind,
                                const pare_score_request *request)
{
    kind = pare_score_of_channels(kind, request->data != NULL);
    const pare_score_row *row = &pare_scores[kind];
    if (row->needs != PARE_SCORE_NEEDS_WEIGHTS && !request->data)
        return PARE_FAIL(ctx, USAGE, "%s: score %s needs data, expected samples to run",
                         request->groups->model->path, row->name);
    return row->channels(ctx, score, request);
}

/* Scores that need weights only. Each slot of a constant is summed up per channel in one walk over
   its elements; the channels' sums are added up per coupled set. */

void pare_score_read(float *out, const pare_tensor *tensor, int64_t first, int64_t count)
{
    const pare_type_info *type = pare_type(tensor->dtype);
    const size_t size = (size_t)type->bits / 8;
    const char *at = (const char *)tensor->data + (size_t)first * size;
    uint64_t element = 0;
    if (tensor->dtype == PARE_f32) {
        memcpy(out, at, (size_t)count * size);
        return;
    }
    for (int64_t i = 0; i < count; i++, at += size) {
        memcpy(&element, at, size);
        out[i] = type->to_f32 ? type->to_f32(&element) : 0;
    }
}

/* A slot's constant as its axis sees it: (outer, dim, inner). */
typedef struct channel_span {
    int64_t outer, dim, inner, parts;
} channel_span;

static channel_span channel_span_of(const pare_channel_axis *slot)
{
    const pare_tensor *t = slot->value->data;
    channel_span u = {1, t->dims[slot->axis], 1, slot->parts};
    for (int i = 0; i < slot->axis; i++) u.outer *= t->dims[i];
    for (int i = slot->axis + 1; i < t->rank; i++) u.inner *= t->dims[i];
    return u;
}

void pare_score_add_channels(double *sum, const pare_channel_axis *slot, const float *value,
                             double (*fn)(double))
{
    const channel_span u = channel_span_of(slot);
    const int64_t dim = u.dim, outer = u.outer, inner = u.inner;
    for (int64_t o = 0; o < outer; o++) {
        /* an axis in parts: the first axis says which part an element belongs to */
        int64_t part = slot->parts > 1 ? o * slot->parts / outer : 0;
        for (int64_t d = 0; d < dim; d++) {
            const float *x = value + (o * dim + d) * inner;
            double s = 0;
            for (int64_t i = 0; i < inner; i++) s += fn((double)x[i]);
            sum[part * dim + d] += s;
        }
    }
}

static double absolute(double x) { return fabs(x); }

static double square(double x) { return x * x; }

static bool is_weight(const pare_channel_axis *slot)
{
    const pare_tensor *t = slot->value ? slot->value->data : NULL;
    return slot->role != PARE_AXIS_FLOWS && t && t->rank > 1 && pare_type_is_float(t->dtype);
}

/* The scale of a BatchNormalization: its second input. */
static bool is_scale(const pare_channel_axis *slot)
{
    return slot->role == PARE_AXIS_MAKES && slot->node && slot->value->data &&
           pare_op_of(slot->node) == &pare_ops[PARE_OP_BatchNormalization] &&
           pare_node_in(slot->node, 1) == slot->value;
}

/* Sums of magnitudes, or squares, over each channel. */
static pare_status add_slot(pare_ctx *ctx, double *score, const pare_groups *groups, int slot,
                            bool squares)
{
    const pare_channel_axis *s = &groups->slot[slot];
    double *sum = pare_alloc(ctx, (size_t)s->extent, sizeof *sum);
    float *value = pare_alloc(ctx, (size_t)s->value->data->count, sizeof *value);
    if (!sum || !value) {
        pare_free(sum);
        pare_free(value);
        return PARE_MEMORY;
    }
    pare_score_read(value, s->value->data, 0, s->value->data->count);
    pare_score_add_channels(sum, s, value, squares ? square : absolute);
    for (int64_t u = 0; u < s->extent; u++) {
        int c = pare_groups_coupled(groups, slot, u);
        if (c >= 0) score[c] += sum[u];
    }
    pare_free(sum);
    pare_free(value);
    return PARE_OK;
}

static pare_status add_slots(pare_ctx *ctx, double *score, const pare_groups *groups,
                             bool (*takes)(const pare_channel_axis *), bool squares)
{
    for (int s = 0; s < groups->slot_count; s++) {
        if (takes(&groups->slot[s])) PARE_TRY(add_slot(ctx, score, groups, s, squares));
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

static pare_status need_scales(pare_ctx *ctx, const pare_groups *groups)
{
    for (int g = 0; g < groups->group_count; g++) {
        bool found = false;
        for (int i = 0; i < groups->group[g].slot_count; i++)
            found = found || is_scale(&groups->slot[groups->group[g].slot[i]]);
        if (!found)
            return PARE_FAIL(ctx, INPUT,
                             "%s: group '%s' has no BatchNormalization to score it by (exporters "
                             "fold it into the convolution); use another score, l2 say, or keep "
                             "the group with --keep",
                             groups->model->path, groups->group[g].name);
    }
    return PARE_OK;
}

/* splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"). */
static double random_at(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed * 0x2545f4914f6cdd1dULL + i + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void pare_score_normalise(double *score, const pare_groups *groups)
{
    for (int g = 0; g < groups->group_count; g++) {
        const pare_dependency_group *group = &groups->group[g];
        double sum = 0;
        for (int c = group->first; c < group->first + group->count; c++) sum += score[c];
        double mean = sum / group->count;
        for (int c = group->first; mean > 0 && c < group->first + group->count; c++)
            score[c] /= mean;
    }
}

static pare_status check_finite(pare_ctx *ctx, const double *score, const pare_groups *groups)
{
    for (int c = 0; c < groups->coupled_count; c++)
        if (!isfinite(score[c]))
            return PARE_FAIL(ctx, INPUT,
                             "%s: group '%s' has weights that are NaN or infinite; expected finite "
                             "ones",
                             groups->model->path, groups->group[groups->coupled[c].group].name);
    return PARE_OK;
}

/* Scores of weights alone: finite, and of mean 1 in each group. */
static pare_status finish(pare_ctx *ctx, double *score, const pare_groups *groups)
{
    PARE_TRY(check_finite(ctx, score, groups));
    pare_score_normalise(score, groups);
    return PARE_OK;
}

static void clear(double *score, const pare_groups *groups)
{
    memset(score, 0, (size_t)groups->coupled_count * sizeof *score);
}

pare_status pare_channel_score_l1(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    clear(score, r->groups);
    PARE_TRY(add_slots(ctx, score, r->groups, is_weight, false));
    return finish(ctx, score, r->groups);
}

pare_status pare_channel_score_l2(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    clear(score, r->groups);
    PARE_TRY(add_slots(ctx, score, r->groups, is_weight, true));
    for (int c = 0; c < r->groups->coupled_count; c++) score[c] = sqrt(score[c]);
    return finish(ctx, score, r->groups);
}

pare_status pare_channel_score_bn(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    clear(score, r->groups);
    PARE_TRY(need_scales(ctx, r->groups));
    PARE_TRY(add_slots(ctx, score, r->groups, is_scale, false));
    return finish(ctx, score, r->groups);
}

pare_status pare_channel_score_fpgm(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    clear(score, r->groups);
    PARE_TRY(score_distances(ctx, score, r->groups));
    return finish(ctx, score, r->groups);
}

pare_status pare_channel_score_random(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    for (int c = 0; c < r->groups->coupled_count; c++) score[c] = random_at(r->seed, (uint64_t)c);
    return finish(ctx, score, r->groups);
}

pare_status pare_channel_score_taylor(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    const pare_score_data *d = r->data;
    const pare_gradients_options options = {.samples = d->samples,
                                            .sample_count = d->sample_count,
                                            .threads = d->threads,
                                            .device = d->device,
                                            .comm = d->comm};
    return pare_score_from_gradients(ctx, score, r->groups, d->data, &options);
}

pare_status pare_channel_score_activation(pare_ctx *ctx, double *score, const pare_score_request *r)
{
    return pare_score_from_data(ctx, score, r->groups, r->removal, r->data);
}

/* Distances between filters: a filter near to all others says what they say already (He et al.
   2019, "Filter Pruning via Geometric Median", arXiv 1811.00250, equation 5). A coupled set's
   filter is what its channels hold of the first weight that makes the group; filters are compared
   within a part. */

/* Filters of a group as rows of one matrix. */
typedef struct filters {
    const pare_channel_axis *slot;
    int64_t width; /* numbers of one channel */
    int channels;  /* of a coupled set in the slot */
    int64_t row;   /* channels * width */
    float *data;   /* (coupled sets of the group, row) */
} filters;

static int making_slot(const pare_groups *groups, const pare_dependency_group *group)
{
    for (int i = 0; i < group->slot_count; i++) {
        const pare_channel_axis *s = &groups->slot[group->slot[i]];
        if (s->role == PARE_AXIS_MAKES && s->value->data && s->value->data->rank > 1)
            return group->slot[i];
    }
    return -1;
}

/* Channel u's elements: every outer index, then the inner ones. */
static void copy_channel(float *to, const pare_channel_axis *slot, int64_t channel)
{
    const pare_tensor *t = slot->value->data;
    const int64_t dim = t->dims[slot->axis], d = channel % dim, part = channel / dim;
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < slot->axis; i++) outer *= t->dims[i];
    for (int i = slot->axis + 1; i < t->rank; i++) inner *= t->dims[i];
    const int64_t each = outer / slot->parts;
    for (int64_t o = part * each; o < (part + 1) * each; o++, to += inner)
        pare_score_read(to, t, (o * dim + d) * inner, inner);
}

static int channels_in(const pare_coupled_channels *c, int slot)
{
    int n = 0;
    for (int i = 0; i < c->channel_count; i++) n += c->channel[i].slot == slot;
    return n;
}

static void read_filters(filters *f, const pare_groups *groups, const pare_dependency_group *group,
                         int slot)
{
    for (int k = 0; k < group->count; k++) {
        const pare_coupled_channels *c = &groups->coupled[group->first + k];
        float *to = f->data + k * f->row;
        int n = 0;
        for (int i = 0; i < c->channel_count && n < f->channels; i++) {
            if (c->channel[i].slot != slot) continue;
            copy_channel(to + n++ * f->width, f->slot, c->channel[i].index);
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

static void add_distances(double *score, const filters *f, const pare_coupled_channels *coupled,
                          int count)
{
#pragma omp parallel for schedule(dynamic, 8)
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++)
            if (a != b && coupled[a].part == coupled[b].part)
                score[a] += distance(f->data + a * f->row, f->data + b * f->row, f->row);
}

static pare_status score_distances(pare_ctx *ctx, double *score, const pare_groups *groups)
{
    for (int g = 0; g < groups->group_count; g++) {
        const pare_dependency_group *group = &groups->group[g];
        int slot = making_slot(groups, group);
        if (slot < 0) continue;
        filters f = {.slot = &groups->slot[slot]};
        f.width = f.slot->value->data->count / f.slot->extent;
        f.channels = channels_in(&groups->coupled[group->first], slot);
        f.row = f.channels * f.width;
        f.data = pare_alloc(ctx, (size_t)group->count * (size_t)f.row, sizeof *f.data);
        if (!f.data) return PARE_MEMORY;
        read_filters(&f, groups, group, slot);
        const pare_coupled_channels *coupled = groups->coupled + group->first;
        add_distances(score + group->first, &f, coupled, group->count);
        pare_free(f.data);
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

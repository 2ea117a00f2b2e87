/* SPDX-License-Identifier: Apache-2.0 */
#include "prune/latency.h"

#include "prune/latency_steps.h"

#include <string.h>

/* A step with its times, and what of the table was asked for. */
typedef struct timed_step {
    pare_latency_step map;
    double seconds; /* in the dense model */
    double bytes;   /* that it reads and writes there */
    bool tabled;    /* by the table of times per shape; else by bytes */
    int counts[PARE_LATENCY_VARIABLES];
    int64_t count[PARE_LATENCY_VARIABLES][PARE_LATENCY_COUNTS];
    double *known; /* (product of counts) seconds at these; 0: not asked for yet */
} timed_step;

struct pare_latency {
    pare_ctx *ctx;
    pare_arena arena;
    const pare_groups *groups;
    pare_latency_options options;
    timed_step *step;
    int step_count;
    pare_status status;
};

int64_t pare_latency_block(int64_t channels)
{
    return channels >= 128 ? 16 : channels >= 32 ? 8 : channels >= 8 ? 4 : 1;
}

int pare_latency_counts(int64_t n, int64_t unit, int64_t *count)
{
    int64_t block = unit;
    int used = 0;
    while (block < pare_latency_block(n) || block % pare_latency_block(n)) block += unit;
    const int64_t blocks = (n + block - 1) / block;
    const int64_t most = blocks > PARE_LATENCY_COUNTS ? PARE_LATENCY_COUNTS - 1 : blocks;
    const int64_t apart = block * ((blocks + most - 1) / most);
    if (apart > block) count[used++] = block;
    for (int64_t at = apart; at < n && used < PARE_LATENCY_COUNTS - 1; at += apart)
        count[used++] = at;
    count[used++] = n;
    return used;
}

/* --- steps --- */

static double view_bytes(const pare_value *v)
{
    double n = (double)pare_shape_count(&v->shape);
    return n > 0 ? n * (double)pare_type(v->dtype)->bits / 8 : 0;
}

static const pare_value *tensor_of(const pare_node *n, int tensor)
{
    return tensor < n->in_count ? n->in[tensor] : n->out[tensor - n->in_count];
}

/* Bytes that the step reads and writes at the kept counts; NULL: dense. */
static double bytes_at(const timed_step *s, const pare_prune_plan *removal)
{
    const pare_node *n = s->map.node;
    const pare_slot *slot = removal ? removal->groups->slot : NULL;
    double sum = 0;
    for (int t = 0; t < n->in_count + n->out_count; t++) {
        const pare_value *v = tensor_of(n, t);
        double bytes = v && v->dtype != PARE_NOTYPE ? view_bytes(v) : 0;
        for (int i = 0; removal && i < s->map.axis_count; i++)
            if (s->map.axis[i].tensor == t)
                bytes *= (double)removal->kept[s->map.axis[i].slot] /
                         (double)slot[s->map.axis[i].slot].extent;
        sum += bytes;
    }
    return sum;
}

static pare_status open_step(pare_latency *l, int i)
{
    timed_step *s = &l->step[i];
    pare_step_info info;
    size_t cells = 1;
    pare_plan_step(l->options.dense, i, &info);
    const pare_node *node = pare_plan_node(l->options.dense, i);
    PARE_TRY(pare_latency_map(l->groups, node, &l->arena, &s->map));
    s->seconds = l->options.seconds[i];
    s->bytes = bytes_at(s, NULL);
    s->tabled = pare_quant_kind_of(node) == PARE_QUANT_WEIGHTED && info.macs > 0 && s->map.known &&
                s->map.variables;
    for (int v = 0; s->tabled && v < s->map.variables; v++) {
        s->counts[v] = pare_latency_counts(s->map.dense[v], s->map.unit[v], s->count[v]);
        cells *= (size_t)s->counts[v];
    }
    s->known = pare_arena_alloc(&l->arena, cells, sizeof *s->known);
    return s->known ? PARE_OK : PARE_MEMORY;
}

pare_status pare_latency_new(pare_ctx *ctx, pare_latency **out, const pare_groups *groups,
                             const pare_latency_options *options)
{
    pare_latency *l = pare_alloc(ctx, 1, sizeof *l);
    if (!l) return PARE_MEMORY;
    *l = (pare_latency){.ctx = ctx, .groups = groups, .options = *options};
    pare_arena_init(&l->arena, ctx);
    l->step_count = pare_plan_step_count(options->dense);
    l->step = pare_arena_alloc(&l->arena, (size_t)l->step_count + 1, sizeof *l->step);
    pare_status st = l->step ? PARE_OK : PARE_MEMORY;
    for (int i = 0; st == PARE_OK && i < l->step_count; i++) st = open_step(l, i);
    if (st == PARE_OK)
        *out = l;
    else
        pare_latency_free(l);
    return st;
}

void pare_latency_free(pare_latency *latency)
{
    if (!latency) return;
    pare_arena_free(&latency->arena);
    pare_free(latency);
}

pare_status pare_latency_status(const pare_latency *latency) { return latency->status; }

double pare_latency_fixed(const pare_latency *latency)
{
    double sum = 0;
    for (int i = 0; i < latency->step_count; i++)
        if (!latency->step[i].map.axis_count) sum += latency->step[i].seconds;
    return sum;
}

/* --- the table --- */

static void input_shape(const pare_latency_step *m, const int64_t *count, int i, pare_shape *out)
{
    *out = m->node->in[i]->shape;
    for (int k = 0; k < m->axis_count; k++) {
        const pare_latency_axis *a = &m->axis[k];
        if (a->tensor == i) out->dim[a->axis] = count[a->variable] * a->times / a->parts;
    }
}

static pare_status measure(pare_latency *l, const timed_step *s, const int64_t *count, double *out)
{
    const pare_node *n = s->map.node;
    const pare_latency_options *o = &l->options;
    pare_shape *in = pare_alloc(l->ctx, (size_t)n->in_count + 1, sizeof *in);
    if (!in) return PARE_MEMORY;
    for (int i = 0; i < n->in_count; i++)
        if (n->in[i]) input_shape(&s->map, count, i, &in[i]);
    pare_status st = pare_step_times_find(o->times, n, in, out);
    pare_free(in);
    if (st == PARE_OK && o->progress)
        o->progress(o->progress_user, pare_step_times_measured(o->times), 0);
    return st;
}

/* Seconds where variable v has its count number at[v]. */
static double cell(pare_latency *l, timed_step *s, const int *at)
{
    int64_t count[PARE_LATENCY_VARIABLES];
    size_t place = 0;
    for (int v = 0; v < s->map.variables; v++) {
        place = place * (size_t)s->counts[v] + (size_t)at[v];
        count[v] = s->count[v][at[v]];
    }
    if (s->known[place] <= 0 && l->status == PARE_OK)
        l->status = measure(l, s, count, &s->known[place]);
    return s->known[place];
}

/* Linear in each variable between the two counts around it; below the first as at it. */
static double between(pare_latency *l, timed_step *s, const int64_t *count)
{
    const int n = s->map.variables;
    int low[PARE_LATENCY_VARIABLES];
    double part[PARE_LATENCY_VARIABLES], sum = 0;
    for (int v = 0; v < n; v++) {
        const int64_t *c = s->count[v];
        low[v] = 0;
        while (low[v] + 1 < s->counts[v] && c[low[v] + 1] <= count[v]) low[v]++;
        int64_t over = count[v] - c[low[v]];
        part[v] = over > 0 ? (double)over / (double)(c[low[v] + 1] - c[low[v]]) : 0;
    }
    for (int corner = 0; corner < 1 << n; corner++) {
        int at[PARE_LATENCY_VARIABLES];
        double share = 1;
        for (int v = 0; v < n; v++) {
            int up = corner >> v & 1;
            at[v] = low[v] + up;
            share *= up ? part[v] : 1 - part[v];
        }
        if (share > 0) sum += share * cell(l, s, at);
    }
    return sum;
}

static double tabled(pare_latency *l, timed_step *s, const pare_prune_plan *removal)
{
    int64_t count[PARE_LATENCY_VARIABLES];
    int last[PARE_LATENCY_VARIABLES];
    bool dense = true;
    for (int v = 0; v < s->map.variables; v++) {
        count[v] = removal->kept[s->map.slot[v]];
        last[v] = s->counts[v] - 1;
        dense = dense && count[v] == s->map.dense[v];
    }
    if (dense) return s->seconds;
    double before = cell(l, s, last);
    return before > 0 ? s->seconds * between(l, s, count) / before : 0;
}

double pare_latency_cost(void *user, const pare_prune_plan *removal)
{
    pare_latency *l = user;
    double sum = 0;
    for (int i = 0; i < l->step_count && l->status == PARE_OK; i++) {
        timed_step *s = &l->step[i];
        if (s->tabled)
            sum += tabled(l, s, removal);
        else
            sum += s->bytes > 0 ? s->seconds * bytes_at(s, removal) / s->bytes : s->seconds;
    }
    return l->status == PARE_OK ? sum : 0;
}

bool pare_latency_shape(const pare_latency *latency, const pare_prune_plan *removal, int step,
                        int i, pare_shape *out)
{
    const pare_latency_step *m = &latency->step[step].map;
    int64_t count[PARE_LATENCY_VARIABLES];
    if (!m->known) return false;
    for (int v = 0; v < m->variables; v++) count[v] = removal->kept[m->slot[v]];
    input_shape(m, count, i, out);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds of a run as a cost: each step of the dense plan by the table of times per shape, or by
   its bytes. */
#include "prune/latency.h"
#include "prune/groups.h"

#include <stdlib.h>
#include <string.h>

void pare_latency_options_init(pare_latency_options *out) { *out = (pare_latency_options){0}; }

/* Which extents of a compiled step's tensors follow which kept counts. */

enum { PARE_LATENCY_VARIABLES = 3 };

/* An extent of a tensor: kept count of a slot over `parts`. */
typedef struct pare_latency_axis {
    int tensor, axis; /* inputs first, then outputs */
    int slot;
    int64_t parts;
    int variable; /* extent is count * times / parts */
    int64_t times;
} pare_latency_axis;

typedef struct pare_latency_step {
    const pare_node *node;  /* compiled */
    const pare_node *model; /* of the prepared model, the one its weight belongs to; or NULL */
    bool known;             /* the shapes of all inputs are */
    pare_latency_axis *axis;
    int axis_count;
    int slot[PARE_LATENCY_VARIABLES]; /* whose kept count is the variable */
    int64_t dense[PARE_LATENCY_VARIABLES], unit[PARE_LATENCY_VARIABLES];
    int variables; /* those of inputs; more than there is room for: not known */
} pare_latency_step;

/* Fills in what a node of the compiled dense model works on. */
static pare_status map_step(const pare_groups *groups, const pare_node *compiled, pare_arena *arena,
                            pare_latency_step *out);

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
    const pare_channel_axis *slot = removal ? removal->groups->slot : NULL;
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
    PARE_TRY(map_step(l->groups, node, &l->arena, &s->map));
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

/* A compiled step's tensors are found by name in the analysed model: passes keep the names of what
   they keep. A copy into another memory order has its source's extents; a vector that a pass made
   (the bias of a folded BatchNormalization) goes with the channels that the step makes. */

typedef struct mapper {
    const pare_groups *groups;
    pare_latency_step *step;
    size_t capacity;
    pare_arena *arena;
} mapper;

static bool equal_dims(const pare_shape *a, const pare_shape *b)
{
    return a->rank >= 0 && pare_shape_equal(a, b);
}

static const pare_value *sized_of(const pare_groups *g, const pare_value *v)
{
    const pare_value *sized = pare_graph_find_own(g->inner->sized->graph, v->name);
    if (sized && equal_dims(&sized->shape, &v->shape)) return sized;
    const pare_node *n = v->producer;
    const pare_value *source = NULL;
    for (int i = 0; n && i < n->in_count; i++) {
        if (!n->in[i] || n->in[i]->data) continue;
        if (source) return NULL;
        source = n->in[i];
    }
    return source && equal_dims(&source->shape, &v->shape) ? sized_of(g, source) : NULL;
}

static int32_t coupled(const pare_groups *g, int slot, int64_t channel)
{
    return g->inner->coupled[g->inner->sets.slot[slot].first + channel];
}

static bool shrinks(const pare_groups *g, int slot)
{
    for (int64_t u = 0; u < g->slot[slot].extent; u++)
        if (coupled(g, slot, u) >= 0) return true;
    return false;
}

static pare_status add_axis(mapper *m, int tensor, int axis, int slot)
{
    pare_latency_step *s = m->step;
    if (slot < 0 || !shrinks(m->groups, slot)) return PARE_OK;
    if (!pare_arena_grow(m->arena, &s->axis, &m->capacity, (size_t)s->axis_count, sizeof *s->axis))
        return PARE_MEMORY;
    s->axis[s->axis_count++] = (pare_latency_axis){.tensor = tensor,
                                                   .axis = axis,
                                                   .slot = slot,
                                                   .parts = m->groups->slot[slot].parts,
                                                   .variable = -1,
                                                   .times = 1};
    return PARE_OK;
}

static pare_status add_tensor(mapper *m, int tensor, const pare_value *v, bool *found)
{
    const pare_value *sized = sized_of(m->groups, v);
    *found = sized != NULL;
    for (int axis = 0; sized && axis < sized->shape.rank; axis++)
        PARE_TRY(add_axis(m, tensor, axis,
                          pare_channel_sets_find_axis(&m->groups->inner->sets, sized, axis)));
    return PARE_OK;
}

/* The one axis of a constant that is longer than 1; -1: none, -2: several. */
static int long_axis(const pare_value *v)
{
    int found = -1;
    for (int axis = 0; axis < v->shape.rank; axis++)
        if (v->shape.dim[axis] > 1) found = found == -1 ? axis : -2;
    return found;
}

/* A vector goes with the channels that a weight makes, else with those of the output. */
static pare_status add_vector(mapper *m, int tensor, const pare_value *v, bool *found)
{
    const pare_latency_step *s = m->step;
    int axis = long_axis(v), best = -1;
    *found = axis != -2;
    if (axis < 0) return PARE_OK;
    for (int i = 0; i < s->axis_count; i++) {
        const pare_channel_axis *slot = &m->groups->slot[s->axis[i].slot];
        if (slot->extent != v->shape.dim[axis] || slot->parts != 1) continue;
        if (slot->role == PARE_AXIS_MAKES || (best < 0 && s->axis[i].tensor >= s->node->in_count))
            best = s->axis[i].slot;
    }
    return add_axis(m, tensor, axis, best);
}

static pare_status map_tensors(mapper *m)
{
    const pare_node *n = m->step->node;
    bool found;
    for (int i = 0; i < n->out_count; i++)
        if (n->out[i]) PARE_TRY(add_tensor(m, n->in_count + i, n->out[i], &found));
    for (int i = 0; i < n->in_count; i++) {
        if (!n->in[i]) continue;
        PARE_TRY(add_tensor(m, i, n->in[i], &found));
        m->step->known = m->step->known && (found || n->in[i]->data);
    }
    for (int i = 0; i < n->in_count; i++) {
        if (!n->in[i] || !n->in[i]->data || sized_of(m->groups, n->in[i])) continue;
        PARE_TRY(add_vector(m, i, n->in[i], &found));
        m->step->known = m->step->known && found;
    }
    return PARE_OK;
}

/* --- variables --- */

/* How many channels of slot a fall with one of b, in rows or side by side; 0: they do not. */
static int64_t times_of(const pare_groups *g, int a, int b)
{
    int64_t ea = g->slot[a].extent, eb = g->slot[b].extent;
    if (ea % eb) return 0;
    int64_t times = ea / eb;
    bool rows = true, sides = true;
    for (int64_t u = 0; u < ea && (rows || sides); u++) {
        int32_t c = coupled(g, a, u);
        rows = rows && c == coupled(g, b, u / times);
        sides = sides && c == coupled(g, b, u % eb);
    }
    return rows || sides ? times : 0;
}

/* The axis without a variable that has the fewest channels. */
static pare_latency_axis *smallest(const pare_groups *g, const pare_latency_step *s, int tensors)
{
    pare_latency_axis *best = NULL;
    for (int i = 0; i < s->axis_count; i++) {
        pare_latency_axis *a = &s->axis[i];
        if (a->variable >= 0 || a->tensor >= tensors) continue;
        if (!best || g->slot[a->slot].extent < g->slot[best->slot].extent) best = a;
    }
    return best;
}

/* Extents that always shrink together are one variable. */
static void find_variables(const pare_groups *g, pare_latency_step *s)
{
    for (pare_latency_axis *a; (a = smallest(g, s, s->node->in_count));) {
        for (int v = 0; v < s->variables && a->variable < 0; v++) {
            a->times = times_of(g, a->slot, s->slot[v]);
            if (a->times) a->variable = v;
        }
        if (a->variable < 0 && s->variables == PARE_LATENCY_VARIABLES) {
            s->known = false;
            return;
        }
        if (a->variable < 0) {
            a->variable = s->variables++;
            a->times = 1;
            s->slot[a->variable] = a->slot;
            s->dense[a->variable] = g->slot[a->slot].extent;
            s->unit[a->variable] = 1;
        }
        if (a->parts > s->unit[a->variable]) s->unit[a->variable] = a->parts;
    }
}

/* The node whose weight the step has; else the one whose result is the step's. */
static const pare_node *model_node(const pare_groups *g, const pare_node *compiled)
{
    const pare_value *own;
    for (int i = 0; i < compiled->in_count; i++) {
        if (!compiled->in[i] || !compiled->in[i]->data || compiled->in[i]->shape.rank < 2) continue;
        own = pare_graph_find_own(g->model->graph, compiled->in[i]->name);
        if (own && own->data && own->user_count) return own->user[0];
    }
    own = compiled->out_count && compiled->out[0]
              ? pare_graph_find_own(g->model->graph, compiled->out[0]->name)
              : NULL;
    return own ? own->producer : NULL;
}

static pare_status map_step(const pare_groups *groups, const pare_node *compiled, pare_arena *arena,
                            pare_latency_step *out)
{
    *out =
        (pare_latency_step){.node = compiled, .model = model_node(groups, compiled), .known = true};
    mapper m = {groups, out, 0, arena};
    PARE_TRY(map_tensors(&m));
    find_variables(groups, out);
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a compiled graph whose inputs are given, as a model of its own (stages.h has the parts
   and their order). A tensor that a part makes goes from part to part until it comes to the last
   stage that reads it; where it is there already, the stage has kept it:

       stage 0:   forward 0                                    backward 0
                      |                                             ^
                      v                                             |
       stage 1:   forward 1                          backward 1 ----'
                      |                                  ^
                      v                                  |
       stage 2:   both halves of the last stage ---------'

   In one row a stage keeps what it made. */
#include "runtime/exec/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct splitter {
    pare_plan *plan;
    const pare_graph *graph;
    const pare_stage_split *split;
    pare_arena arena;
    int stages, part;
    int forward;     /* nodes of the forward half, which are the first */
    int *stage;      /* (nodes) */
    bool *is_weight; /* (nodes) reads a weight, or makes a weight's gradient */
} splitter;

static int parts_of(const splitter *s) { return s->split->loss ? 2 * s->stages - 1 : s->stages; }

static int stage_of_part(const splitter *s, int part)
{
    return part < s->stages ? part : 2 * s->stages - 2 - part;
}

static int part_of(const splitter *s, const pare_node *node)
{
    const int stage = s->stage[node->mark];
    return node->mark < s->forward ? stage : 2 * s->stages - 2 - stage;
}

/* The first part from this one on that is of the stage. */
static int next_part_of(const splitter *s, int part, int stage)
{
    return stage >= part ? stage : 2 * s->stages - 2 - stage;
}

/* --- the halves --- */

static bool is_needed(const pare_node *node, const char *loss)
{
    for (int k = 0; k < node->out_count; k++) {
        const pare_value *v = node->out[k];
        if (v && !strcmp(v->name, loss)) return true;
        for (int i = 0; v && i < v->user_count; i++)
            if (v->user[i]->graph == node->graph && v->user[i]->mark) return true;
    }
    return false;
}

/* Puts what the loss needs first, in the order that it has. */
static pare_status order_halves(splitter *s)
{
    pare_graph *g = s->plan->model->graph;
    pare_node **list = pare_arena_alloc(&s->arena, (size_t)g->node_count + 1, sizeof(pare_node *));
    int backward = 0;
    if (!list) return PARE_MEMORY;
    for (int i = 0; i < g->node_count; i++) g->node[i]->mark = 0;
    for (int i = g->node_count - 1; i >= 0; i--)
        g->node[i]->mark = !s->split->loss || is_needed(g->node[i], s->split->loss);
    for (int i = 0; i < g->node_count; i++)
        if (g->node[i]->mark)
            g->node[s->forward++] = g->node[i];
        else
            list[backward++] = g->node[i];
    memcpy(g->node + s->forward, list, (size_t)backward * sizeof *list);
    return PARE_OK;
}

/* Is v an input of the graph that the split places? */
static bool is_placed(const splitter *s, const pare_value *v)
{
    for (int k = 0; k < s->split->count; k++)
        if (!strcmp(v->name, s->split->weight[k])) return true;
    return false;
}

/* Does the node depend on an input that the split does not place? flows: of the nodes before it. */
static bool flows_through(const splitter *s, const pare_node *node, const bool *flows)
{
    for (int i = 0; i < node->in_count; i++) {
        const pare_value *v = node->in[i];
        if (v && !v->data && (v->producer ? flows[v->producer->mark] : !is_placed(s, v)))
            return true;
    }
    return false;
}

/* A node, and where it goes: before what is at `at`. */
typedef struct position {
    pare_node *node;
    int at;
} position;

static int compare_positions(const void *a, const void *b)
{
    const position *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->node->mark > y->node->mark) - (x->node->mark < y->node->mark);
}

/* What is computed of weights alone goes to its first reader, whose stage has these weights. */
static pare_status sink_weights(splitter *s)
{
    pare_graph *g = s->plan->model->graph;
    const size_t count = (size_t)s->forward + 1;
    bool *flows = pare_arena_alloc(&s->arena, count, sizeof *flows);
    position *to = pare_arena_alloc(&s->arena, count, sizeof *to);
    if (!flows || !to) return PARE_MEMORY;
    for (int i = 0; i < g->node_count; i++) g->node[i]->mark = i;
    for (int i = 0; i < s->forward; i++) {
        flows[i] = flows_through(s, g->node[i], flows);
        to[i] = (position){g->node[i], i};
    }
    for (int i = s->forward - 1; i >= 0; i--) {
        int first = g->node_count;
        for (int k = 0; !flows[i] && k < g->node[i]->out_count; k++)
            for (int u = 0; g->node[i]->out[k] && u < g->node[i]->out[k]->user_count; u++) {
                const int mark = g->node[i]->out[k]->user[u]->mark;
                if (mark < s->forward && to[mark].at < first) first = to[mark].at;
            }
        if (first < g->node_count) to[i].at = first;
    }
    qsort(to, (size_t)s->forward, sizeof *to, compare_positions);
    for (int i = 0; i < s->forward; i++) g->node[i] = to[i].node;
    return PARE_OK;
}

/* --- the stages of nodes --- */

/* The weight among the node's inputs, or whose gradient it makes; -1: none. */
static int weight_at(const splitter *s, const pare_node *node)
{
    const pare_stage_split *split = s->split;
    for (int k = 0; k < split->count; k++) {
        for (int i = 0; split->gradient && split->gradient[k] && i < node->out_count; i++)
            if (node->out[i] && !strcmp(node->out[i]->name, split->gradient[k])) return k;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && !node->in[i]->producer &&
                !strcmp(node->in[i]->name, split->weight[k]))
                return k;
    }
    return -1;
}

/* Of a node that no weight decides: the latest of those that read what it makes. */
static int readers_stage(const splitter *s, const pare_node *node)
{
    int stage = -1;
    for (int k = 0; k < node->out_count; k++)
        for (int i = 0; node->out[k] && i < node->out[k]->user_count; i++)
            if (s->stage[node->out[k]->user[i]->mark] > stage)
                stage = s->stage[node->out[k]->user[i]->mark];
    return stage < 0 ? s->stages - 1 : stage;
}

/* No node runs in a later stage than those backward nodes that it waits for. */
static pare_status hold_back(splitter *s, const pare_node *node)
{
    int *stage = &s->stage[node->mark], most = s->stages - 1;
    for (int i = 0; i < node->in_count; i++) {
        const pare_node *from = node->in[i] ? node->in[i]->producer : NULL;
        if (from && from->mark >= s->forward && s->stage[from->mark] < most)
            most = s->stage[from->mark];
    }
    if (*stage <= most) return PARE_OK;
    if (s->is_weight[node->mark])
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "is of stage %d by its weight, but waits for a node of stage %d: "
                              "such a graph cannot be cut into stages",
                              *stage, most);
    *stage = most;
    return PARE_OK;
}

static pare_status place_nodes(splitter *s)
{
    const pare_graph *g = s->graph;
    const pare_plan_stage *cut = s->plan->stage;
    s->stage = pare_arena_alloc(&s->arena, (size_t)g->node_count + 1, sizeof *s->stage);
    s->is_weight = pare_arena_alloc(&s->arena, (size_t)g->node_count + 1, sizeof *s->is_weight);
    if (!s->stage || !s->is_weight) return PARE_MEMORY;
    for (int i = 0; i < g->node_count; i++) g->node[i]->mark = i;
    for (int k = 0; k < s->stages; k++)
        for (int i = 0; i < cut[k].count; i++) s->stage[cut[k].first + i] = k;
    for (int i = g->node_count - 1; i >= s->forward; i--) {
        const int weight = weight_at(s, g->node[i]);
        s->is_weight[i] = weight >= 0;
        s->stage[i] = weight < 0 ? readers_stage(s, g->node[i]) : s->split->stage[weight];
    }
    for (int i = s->forward; i < g->node_count; i++) PARE_TRY(hold_back(s, g->node[i]));
    return PARE_OK;
}

/* --- the ends of a part --- */

/* The part up to which v, made in part `made`, goes from one to the next. Without backward nodes
   outputs go to the last. */
static int goes_to(const splitter *s, const pare_value *v, int made)
{
    int to = v->is_output && !s->split->loss ? s->stages - 1 : made;
    for (int i = 0; i < v->user_count; i++) {
        const int part = part_of(s, v->user[i]),
                  next = next_part_of(s, made, stage_of_part(s, part));
        if (next > to) to = next;
    }
    return to;
}

/* Is v, made in an earlier part, read in this one? */
static bool is_read(const splitter *s, const pare_value *v, int part)
{
    for (int i = 0; i < v->user_count; i++)
        if (part_of(s, v->user[i]) == part) return true;
    return false;
}

/* Is v read in a later part of this part's stage? */
static bool is_kept(const splitter *s, const pare_value *v)
{
    for (int i = 0; i < v->user_count; i++) {
        const int part = part_of(s, v->user[i]);
        if (part > s->part && stage_of_part(s, part) == stage_of_part(s, s->part)) return true;
    }
    return false;
}

/* What is done with the tensors that nodes make, in their order. */
enum { RECEIVED, SENT, KEPT_BEFORE, KEPT_FOR_LATER };

static bool belongs(const splitter *s, const pare_value *v, int list)
{
    const int made = part_of(s, v->producer), to = goes_to(s, v, made);
    const bool received = made < s->part && s->part <= to, sent = made <= s->part && s->part < to;
    switch (list) {
    case RECEIVED: return received;
    case SENT: return sent;
    case KEPT_BEFORE: return made < s->part && !received && is_read(s, v, s->part);
    default: return made == s->part && !sent && !v->is_output && is_kept(s, v);
    }
}

static int add_values(const splitter *s, int list, pare_value **out)
{
    int count = 0;
    for (int i = 0; i < s->graph->node_count; i++)
        for (int k = 0; k < s->graph->node[i]->out_count; k++) {
            pare_value *v = s->graph->node[i]->out[k];
            if (v && !v->data && belongs(s, v, list)) out[count++] = v;
        }
    return count;
}

static void list_inputs(const splitter *s, pare_stage_parts *p)
{
    s->plan->received = add_values(s, RECEIVED, p->in);
    p->in_count = s->plan->received;
    s->plan->kept_in = add_values(s, KEPT_BEFORE, p->in + p->in_count);
    p->in_count += s->plan->kept_in;
    for (int i = 0; i < s->graph->in.count; i++)
        if (!s->graph->in.item[i]->data && is_read(s, s->graph->in.item[i], s->part))
            p->in[p->in_count++] = s->graph->in.item[i];
}

static bool is_listed(const pare_stage_parts *p, const pare_value *v)
{
    for (int i = 0; i < p->out_count; i++)
        if (p->out[i] == v) return true;
    return false;
}

static void list_outputs(const splitter *s, pare_stage_parts *p)
{
    const pare_values *all = &s->graph->out;
    s->plan->sent = add_values(s, SENT, p->out);
    p->out_count = s->plan->sent;
    s->plan->kept_out = add_values(s, KEPT_FOR_LATER, p->out + p->out_count);
    p->out_count += s->plan->kept_out;
    for (int i = 0; i < all->count; i++) {
        const pare_node *from = all->item[i]->producer;
        const int part = s->split->loss && from ? part_of(s, from) : s->stages - 1;
        if (part == s->part && !is_listed(p, all->item[i])) p->out[p->out_count++] = all->item[i];
    }
}

static pare_status take_part(splitter *s)
{
    const pare_graph *g = s->graph;
    size_t most = (size_t)g->in.count + (size_t)g->out.count + 1;
    pare_stage_parts p = {0};
    for (int i = 0; i < g->node_count; i++) most += (size_t)g->node[i]->out_count;
    p.in = pare_arena_alloc(&s->arena, most, sizeof(pare_value *));
    p.out = pare_arena_alloc(&s->arena, most, sizeof(pare_value *));
    p.node = pare_arena_alloc(&s->arena, (size_t)g->node_count + 1, sizeof(pare_node *));
    if (!p.in || !p.out || !p.node) return PARE_MEMORY;
    list_inputs(s, &p);
    list_outputs(s, &p);
    for (int i = 0; i < g->node_count; i++)
        if (part_of(s, g->node[i]) == s->part) p.node[p.node_count++] = g->node[i];
    return pare_stage_replace(s->plan, &p);
}

static pare_status take(splitter *s)
{
    PARE_TRY(order_halves(s));
    PARE_TRY(sink_weights(s));
    PARE_TRY(pare_stage_cut(s->plan, s->forward));
    PARE_TRY(place_nodes(s));
    if (s->part < parts_of(s)) return take_part(s);
    return PARE_FAIL(s->plan->ctx, USAGE, "%s: part %d of a graph that has %d",
                     s->plan->model->path, s->part, parts_of(s));
}

pare_status pare_stage_take_split(pare_plan *plan)
{
    splitter s = {.plan = plan,
                  .graph = plan->model->graph,
                  .split = plan->options.split,
                  .stages = plan->options.stages,
                  .part = plan->options.stage};
    pare_arena_init(&s.arena, plan->ctx);
    const pare_status st = take(&s);
    pare_arena_free(&s.arena);
    return st;
}

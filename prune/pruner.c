/* SPDX-License-Identifier: Apache-2.0 */
/* Channels to a goal in steps: score, choose and refit until the goal is reached, then remove.
   Until then the model has its old size, and weights that read what is chosen are 0, so that
   scores, groups and what is refitted to all speak of the same channels. */
#include "prune/pruner.h"

#include "prune/latency_search.h"
#include "prune/score.h"
#include "prune/target.h"
#include "runtime/graph/pattern.h"

#include <stdio.h>
#include <string.h>

struct pare_pruner {
    pare_ctx *ctx;
    pare_arena arena;
    pare_pruner_options o;
    pare_model *model;    /* its weights change with every refit */
    pare_model *dense;    /* as it was; NULL: nothing is refitted or trained */
    pare_model *unfolded; /* before BatchNormalization was folded; for its scores, or NULL */
    pare_model *trained;  /* what the model was when training ended last, which refits then go by */
    pare_groups *groups;
    bool *kept; /* (nodes of the model's graph): what the patterns name */
    pare_score_data data;
    double *score; /* (coupled sets) */
    bool scored;   /* score is of the dense model */
    bool in_phase;
    pare_latency_search *latency; /* NULL: no such goal */
    double frame;                 /* bytes of the file that are no payload */
    pare_prune_target target;
    pare_prune_plan *removal; /* of the last run */
    pare_pruner_facts facts;
};

void pare_pruner_options_init(pare_pruner_options *options)
{
    *options = (pare_pruner_options){.steps = 1, .min_channels = 1, .round = 1, .refit = true};
}

static bool by_latency(const pare_pruner *p)
{
    return p->o.by == PARE_PRUNE_BY_LATENCY || p->o.by == PARE_PRUNE_BY_SECONDS;
}

/* --- progress --- */

static void begin_phase(pare_pruner *p, const char *what, const char *unit)
{
    p->in_phase = true;
    if (p->o.phase) p->o.phase(p->o.progress_user, what, unit);
}

static void end_phase(pare_pruner *p)
{
    if (p->in_phase && p->o.phase) p->o.phase(p->o.progress_user, NULL, NULL);
    p->in_phase = false;
}

static void progress(void *user, int64_t done, int64_t all)
{
    const pare_pruner *p = user;
    if (p->in_phase && p->o.progress) p->o.progress(p->o.progress_user, done, all);
}

/* --- groups --- */

/* The analysis asks by nodes of a copy: outputs have the same names there. */
static bool keeps(void *user, const pare_node *node)
{
    const pare_pruner *p = user;
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *own =
            node->out[i] ? pare_graph_find_own(p->model->graph, node->out[i]->name) : NULL;
        if (own && own->producer) return p->kept[pare_node_index(own->producer)];
    }
    return false;
}

static pare_status find_groups(pare_pruner *p)
{
    const pare_graph *g = p->model->graph;
    pare_groups_options options = {.outputs = p->o.outputs, .keep_user = p};
    p->kept = pare_arena_alloc(&p->arena, (size_t)g->node_count + 1, sizeof *p->kept);
    if (!p->kept) return PARE_MEMORY;
    PARE_TRY(pare_pattern_mark(p->model, g->node, g->node_count, "--keep", p->o.keep,
                               p->o.keep_count, true, p->kept));
    if (p->o.keep_count) options.keep = keeps;
    return pare_groups_new(p->ctx, &p->groups, p->model, &options);
}

/* Is the same said of the same node before? */
static bool is_told(const pare_groups *groups, int at)
{
    const pare_block *b = &groups->block[at];
    for (int i = 0; i < at; i++) {
        const pare_block *a = &groups->block[i];
        if (a->node == b->node && (b->node || a->value == b->value) && !strcmp(a->why, b->why))
            return true;
    }
    return false;
}

/* Nothing can be removed: says why, node by node. */
static pare_status nothing(const pare_pruner *p)
{
    enum { TOLD = 5 };
    char text[1500];
    size_t used = 0;
    int told = 0, at = 0;
    text[0] = 0;
    for (; at < p->groups->block_count && told < TOLD && used < sizeof text - 1; at++) {
        const pare_block *b = &p->groups->block[at];
        const char *what = b->node ? pare_pattern_name(b->node) : b->value ? b->value->name : "";
        if (is_told(p->groups, at)) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s'%s' %s", told ? "; " : "",
                                 what, b->why);
        told++;
    }
    return PARE_FAIL(p->ctx, INPUT,
                     "%s: there is no channel that could be removed: %s%s (--outputs lets those "
                     "of the outputs go)",
                     p->model->path, told ? text : "it has no weights between two layers",
                     at < p->groups->block_count ? "; ... (pare inspect --groups lists all)" : "");
}

/* --- scores --- */

/* The coupled set of the unfolded model's groups that has one of this coupled set's channels. A
   channel is known by the name of its tensor, which folding leaves. -1: none has. */
static int find_unfolded(const pare_pruner *p, const pare_groups *groups,
                         const pare_coupled_channels *coupled)
{
    for (int u = 0; u < coupled->channel_count; u++) {
        const pare_channel_axis *slot = &p->groups->slot[coupled->channel[u].slot];
        const pare_value *v = pare_graph_find_own(p->unfolded->graph, slot->value->name);
        const int there = v ? pare_groups_axis(groups, v, slot->axis, slot->parts) : -1;
        const int other =
            there < 0 ? -1 : pare_groups_coupled(groups, there, coupled->channel[u].index);
        if (other >= 0) return other;
    }
    return -1;
}

/* Score BN needs BatchNormalization, which a refit folds: scores come from the model before. */
static pare_status score_norms(pare_pruner *p)
{
    pare_groups *groups;
    const pare_groups_options options = {.outputs = p->o.outputs};
    PARE_TRY(pare_groups_new(p->ctx, &groups, p->unfolded, &options));
    double *own = pare_alloc(p->ctx, (size_t)groups->coupled_count, sizeof *own);
    pare_status st = own ? pare_score_channels(p->ctx, own, PARE_SCORE_BN,
                                               &(pare_score_request){.groups = groups})
                         : PARE_MEMORY;
    for (int c = 0; st == PARE_OK && c < p->groups->coupled_count; c++) {
        const int other = find_unfolded(p, groups, &p->groups->coupled[c]);
        if (other >= 0) p->score[c] = own[other];
    }
    pare_free(own);
    pare_groups_free(groups);
    return st;
}

static pare_status find_scores(pare_pruner *p)
{
    const pare_score_request request = {.groups = p->groups,
                                        .removal = p->removal,
                                        .data = p->data.data ? &p->data : NULL,
                                        .seed = p->o.seed};
    if (p->scored) return PARE_OK;
    if (p->facts.score == PARE_SCORE_ACTIVATION) begin_phase(p, "score", "groups");
    pare_status st = p->unfolded ? score_norms(p)
                                 : pare_score_channels(p->ctx, p->score, p->facts.score, &request);
    end_phase(p);
    p->scored = st == PARE_OK && p->o.steps == 1;
    return st;
}

/* --- a new one --- */

static pare_status open_model(pare_pruner *p)
{
    const bool refits = p->o.data && p->o.refit;
    p->facts.refits = refits;
    p->facts.score = pare_score_of_channels(p->o.score, p->o.data != NULL);
    if (p->o.data)
        p->data = (pare_score_data){.data = p->o.data,
                                    .samples = p->o.samples,
                                    .sample_count = p->o.sample_count,
                                    .threads = p->o.threads,
                                    .device = p->o.device,
                                    .comm = p->o.comm,
                                    .refits = p->o.refit,
                                    .progress = progress,
                                    .progress_user = p};
    if (refits && p->facts.score == PARE_SCORE_BN)
        PARE_TRY(pare_model_clone(p->ctx, &p->unfolded, p->model));
    if (refits) PARE_TRY(pare_refit_prepare(p->ctx, p->model));
    if (refits || p->o.train) PARE_TRY(pare_model_clone(p->ctx, &p->dense, p->model));
    PARE_TRY(find_groups(p));
    p->facts.groups = p->groups;
    if (!p->groups->coupled_count) return nothing(p);
    if (by_latency(p))
        PARE_TRY(pare_latency_search_new(p->ctx, &p->latency, p->groups, &p->o, progress, p));
    p->score = pare_arena_alloc(&p->arena, (size_t)p->groups->coupled_count, sizeof *p->score);
    return p->score ? PARE_OK : PARE_MEMORY;
}

pare_status pare_pruner_new(pare_ctx *ctx, pare_pruner **out, pare_model *model,
                            const pare_pruner_options *options)
{
    pare_pruner *p = pare_alloc(ctx, 1, sizeof *p);
    if (!p) return PARE_MEMORY;
    *p = (pare_pruner){.ctx = ctx, .model = model, .o = *options};
    pare_arena_init(&p->arena, ctx);
    pare_status st = open_model(p);
    if (st == PARE_OK)
        *out = p;
    else
        pare_pruner_free(p);
    return st;
}

void pare_pruner_free(pare_pruner *p)
{
    if (!p) return;
    pare_latency_search_free(p->latency);
    pare_prune_plan_free(p->removal);
    pare_groups_free(p->groups);
    pare_model_free(p->trained);
    pare_model_free(p->unfolded);
    pare_model_free(p->dense);
    pare_arena_free(&p->arena);
    pare_free(p);
}

/* --- one model --- */

static pare_status begin(pare_pruner *p, double goal)
{
    static double (*const cost[])(void *user, const pare_prune_plan *removal) = {
        [PARE_PRUNE_BY_MACS] = pare_target_macs,
        [PARE_PRUNE_BY_PARAMS] = pare_target_params,
        [PARE_PRUNE_BY_LATENCY] = pare_target_bytes, /* see pare_latency_search_aim */
        [PARE_PRUNE_BY_SIZE] = pare_target_bytes,
        [PARE_PRUNE_BY_SECONDS] = pare_target_bytes};
    const pare_pruner_options *o = &p->o;
    pare_pruner_facts *f = &p->facts;
    pare_prune_plan_free(p->removal);
    p->removal = NULL;
    if (o->by == PARE_PRUNE_BY_SECONDS) PARE_TRY(pare_latency_search_part(p->latency, goal, &goal));
    PARE_TRY(pare_prune_plan_new(p->ctx, &p->removal, p->groups));
    f->plan = p->removal;
    f->refitted = (pare_unstructured_facts){0};
    f->before = p->removal->cost;
    p->frame =
        (double)o->file_bytes > f->before.bytes ? (double)o->file_bytes - f->before.bytes : 0;
    p->target = (pare_prune_target){.cost = cost[o->by],
                                    .user = &p->frame,
                                    .per_layer = o->per_layer,
                                    .by_score = f->score != PARE_SCORE_ACTIVATION,
                                    .floor = o->min_channels,
                                    .round = o->round};
    if (p->latency) pare_latency_search_aim(p->latency, &p->target);
    f->cost_before = p->target.cost(p->target.user, p->removal);
    f->goal = o->by == PARE_PRUNE_BY_SIZE ? goal : goal * f->cost_before;
    return PARE_OK;
}

static pare_status reach(pare_pruner *p, bool last)
{
    if (!p->latency)
        return pare_target_reach(p->ctx, p->removal, p->score, &p->target, &p->facts.reached);
    begin_phase(p, "time", "shapes");
    pare_status st = pare_latency_search_reach(p->latency, p->removal, p->score, &p->target, last,
                                               &p->facts.reached);
    end_phase(p);
    return st;
}

static pare_status refit(pare_pruner *p)
{
    if (!p->facts.refits || !p->removal->count) return PARE_OK;
    begin_phase(p, "refit", "layers");
    pare_status st = pare_refit_run(p->ctx, p->removal, p->trained ? p->trained : p->dense,
                                    &p->data, &p->facts.refitted);
    end_phase(p);
    memcpy(p->facts.data_hash, p->facts.refitted.data_hash, sizeof p->facts.data_hash);
    return st;
}

static pare_status train(pare_pruner *p, pare_model *smaller, int64_t step)
{
    if (!p->o.train) return PARE_OK;
    return p->o.train(p->o.train_user, p->dense, smaller, step,
                      p->facts.reached / p->facts.cost_before);
}

/* Between two steps: what the smaller model learns is what the next step prunes and refits to. */
static pare_status train_between(pare_pruner *p, int64_t step)
{
    pare_model *smaller;
    if (!p->o.train) return PARE_OK;
    PARE_TRY(pare_prune_remove(p->ctx, &smaller, p->removal));
    pare_status st = train(p, smaller, step);
    if (st == PARE_OK) st = pare_prune_put_back(p->removal, smaller);
    pare_model_free(smaller);
    pare_model_free(p->trained);
    p->trained = NULL;
    if (st == PARE_OK && p->facts.refits) st = pare_model_clone(p->ctx, &p->trained, p->model);
    return st;
}

/* Out of reach: the nearest that can be had is made. */
static void warn_missed(const pare_pruner *p)
{
    static const char *const names[] = {[PARE_PRUNE_BY_MACS] = "macs",
                                        [PARE_PRUNE_BY_PARAMS] = "params",
                                        [PARE_PRUNE_BY_SIZE] = "size"};
    const pare_pruner_facts *f = &p->facts;
    if (p->latency || f->reached <= f->goal) return;
    pare_log(p->ctx, PARE_LOG_WARNING,
             "%s: %s cannot come down to %.4g; %.4g (%.1f %% of before) is the least that "
             "--min-channels, --round, --keep and what is tied together allow, and is written",
             p->model->path, names[p->o.by], f->goal, f->reached,
             f->cost_before > 0 ? 100 * f->reached / f->cost_before : 0.0);
}

/* Steps are equal factors. */
static pare_status choose(pare_pruner *p)
{
    for (int64_t i = 1; i <= p->o.steps; i++) {
        p->target.goal = pare_prune_cost_at(p->facts.cost_before, p->facts.goal, i, p->o.steps);
        PARE_TRY(find_scores(p));
        PARE_TRY(reach(p, i == p->o.steps));
        PARE_TRY(refit(p));
        if (i < p->o.steps) PARE_TRY(train_between(p, i));
    }
    warn_missed(p);
    return PARE_OK;
}

/* What refits and training changed back to what it was. */
static pare_status restore(pare_pruner *p)
{
    const pare_values *init = &p->model->graph->init;
    pare_model_free(p->trained);
    p->trained = NULL;
    for (int i = 0; p->dense && i < init->count; i++) {
        const pare_value *was = pare_graph_find_own(p->dense->graph, init->item[i]->name);
        if (was && was->data && was->data != init->item[i]->data)
            PARE_TRY(pare_value_set_init(init->item[i], was->data));
    }
    return PARE_OK;
}

pare_status pare_pruner_run(pare_pruner *p, double goal, pare_model **smaller)
{
    pare_model *made;
    PARE_TRY(begin(p, goal));
    PARE_TRY(choose(p));
    PARE_TRY(pare_prune_remove(p->ctx, &made, p->removal));
    pare_status st = train(p, made, p->o.steps);
    if (st == PARE_OK) st = restore(p);
    if (st == PARE_OK)
        *smaller = made;
    else
        pare_model_free(made);
    return st;
}

const pare_pruner_facts *pare_pruner_result(const pare_pruner *p) { return &p->facts; }

pare_status pare_pruner_time(pare_pruner *p, const pare_model *smaller)
{
    if (!p->latency) return PARE_FAIL(p->ctx, USAGE, "only a pruner by latency times its models");
    return pare_latency_search_time(p->latency, smaller, &p->facts.latency);
}

bool pare_pruner_step_seconds(const pare_pruner *p, const pare_node *node, double *before,
                              double *after)
{
    return p->latency && pare_latency_search_step(p->latency, node, before, after);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune to a target: score the components, choose, refit what stays, remove, write. In steps:
   score, choose and refit until the target is reached, then remove. Until then the model has its
   old size and weights that read what is chosen are 0, so that scores, groups and what is refitted
   to all speak of the same units. */
#include "tools/memory.h"

#include "formats/json.h"
#include "tools/prune/report.h"
#include "tools/prune/structured.h"

#include "formats/onnx.h"
#include "runtime/graph/pattern.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the model --- */

/* The analysis asks by nodes of a copy: outputs have the same names there. */
static bool keeps(void *user, const pare_node *node)
{
    const pare_structured *s = user;
    for (int i = 0; i < node->out_count; i++) {
        const pare_value *own =
            node->out[i] ? pare_graph_find_own(s->model->graph, node->out[i]->name) : NULL;
        if (own && own->producer) return s->kept[pare_node_index(own->producer)];
    }
    return false;
}

static pare_status open_data(pare_structured *s)
{
    const pare_prune_options *o = s->o;
    PARE_TRY(pare_tuning_open(&s->tuning, s->tool, o, s->model, &s->source));
    if (!o->source.data) return PARE_OK;
    s->data = (pare_score_data){.data = s->source.data,
                                .samples = s->source.samples,
                                .sample_count = s->source.count,
                                .threads = (int)o->common.threads,
                                .device = s->tool->device,
                                .refits = !o->no_refit,
                                .progress = pare_progress_step,
                                .progress_user = &s->bar};
    return PARE_OK;
}

static pare_status find_groups(pare_structured *s)
{
    const pare_prune_options *o = s->o;
    const pare_graph *g = s->model->graph;
    s->kept = pare_arena_alloc(&s->tool->arena, (size_t)g->node_count + 1, sizeof *s->kept);
    if (!s->kept) return PARE_MEMORY;
    PARE_TRY(pare_pattern_mark(g, "--keep", o->keep.item, o->keep.count, true, s->kept));
    pare_groups_options options = {.outputs = o->outputs, .keep_user = s};
    if (o->keep.count) options.keep = keeps;
    return pare_groups_new(s->tool->ctx, &s->groups, s->model, &options);
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
static pare_status nothing(const pare_structured *s)
{
    enum { TOLD = 5 };
    char text[1500];
    size_t used = 0;
    int told = 0, at = 0;
    text[0] = 0;
    for (; at < s->groups->block_count && told < TOLD && used < sizeof text - 1; at++) {
        const pare_block *b = &s->groups->block[at];
        const char *what = b->node ? pare_pattern_name(b->node) : b->value ? b->value->name : "";
        if (is_told(s->groups, at)) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s'%s' %s", told ? "; " : "",
                                 what, b->why);
        told++;
    }
    return PARE_FAIL(s->tool->ctx, INPUT,
                     "%s: there is no channel that could be removed: %s%s (--outputs lets those "
                     "of the outputs go)",
                     s->model->path, told ? text : "it has no weights between two layers",
                     at < s->groups->block_count ? "; ... (pare inspect --groups lists all)" : "");
}

/* --score bn needs BatchNormalization, which a refit folds: scores come from the model before. Kept
   by the name of the tensor that a unit belongs to, which folding leaves. */
static pare_status score_norms(pare_structured *s, double *score)
{
    pare_model *model;
    pare_groups *groups = NULL;
    double *own = NULL;
    PARE_TRY(pare_onnx_read(s->tool->ctx, &model, s->tool->arg[0]));
    pare_status st = pare_prune_prepare(s->tool->ctx, model);
    pare_groups_options options = {.outputs = s->o->outputs};
    if (st == PARE_OK) st = pare_groups_new(s->tool->ctx, &groups, model, &options);
    if (st == PARE_OK) {
        own = pare_alloc(s->tool->ctx, (size_t)groups->component_count, sizeof *own);
        st = own ? pare_score_channels(s->tool->ctx, own, PARE_SCORE_BN,
                                       &(pare_score_request){.groups = groups})
                 : PARE_MEMORY;
    }
    for (int c = 0; st == PARE_OK && c < s->groups->component_count; c++) {
        const pare_component *component = &s->groups->component[c];
        for (int u = 0; u < component->unit_count; u++) {
            const pare_slot *slot = &s->groups->slot[component->unit[u].slot];
            const pare_value *v = pare_graph_find_own(model->graph, slot->value->name);
            int there = v ? pare_groups_slot(groups, v, slot->axis, slot->parts) : -1;
            int other =
                there < 0 ? -1 : pare_groups_component(groups, there, component->unit[u].index);
            if (other < 0) continue;
            score[c] = own[other];
            break;
        }
    }
    pare_free(own);
    pare_groups_free(groups);
    pare_model_free(model);
    return st;
}

/* --- scores --- */

pare_score pare_structured_score(const pare_structured *s)
{
    return pare_score_of_channels(pare_prune_score(s->o), s->data.data != NULL);
}

static pare_status score_by(pare_structured *s, pare_score kind)
{
    const pare_score_request request = {.groups = s->groups,
                                        .removal = s->removal,
                                        .data = s->data.data ? &s->data : NULL,
                                        .seed = (uint64_t)s->o->seed};
    if (kind == PARE_SCORE_BN && s->refits) return score_norms(s, s->score);
    return pare_score_channels(s->tool->ctx, s->score, kind, &request);
}

static pare_status find_scores(pare_structured *s)
{
    pare_score kind = pare_structured_score(s);
    if (s->scored) return PARE_OK;
    pare_progress_begin(&s->bar, stderr, s->o->common.quiet || kind != PARE_SCORE_ACTIVATION,
                        "score", "groups");
    pare_status st = score_by(s, kind);
    pare_progress_end(&s->bar);
    s->scored = st == PARE_OK && s->o->steps == 1;
    return st;
}

/* --- one model --- */

/* About the least bytes that the smaller file will have; multiply-adds say little of them. */
static uint64_t room_of(const pare_structured *s, double value)
{
    const pare_prune_options *o = s->o;
    if (o->size) return (uint64_t)o->size < s->bytes ? (uint64_t)o->size / 2 : s->bytes / 2;
    return (uint64_t)((double)s->bytes * value / 2);
}

static pare_status begin(pare_structured *s, double value)
{
    const pare_prune_options *o = s->o;
    pare_prune_plan_free(s->removal);
    s->removal = NULL;
    PARE_TRY(pare_tuning_begin(&s->tuning, value, room_of(s, value)));
    PARE_TRY(pare_prune_plan_new(s->tool->ctx, &s->removal, s->groups));
    s->fitted = (pare_unstructured_facts){0};
    s->before = s->removal->cost;
    s->frame = (double)s->bytes > s->before.bytes ? (double)s->bytes - s->before.bytes : 0;
    s->target = (pare_prune_target){.user = &s->frame,
                                    .per_layer = o->scope == 1,
                                    .by_score = pare_structured_score(s) != PARE_SCORE_ACTIVATION,
                                    .floor = o->min_channels,
                                    .round = o->round};
    s->kind = o->latency ? "latency" : o->macs > 0 ? "macs" : o->params > 0 ? "params" : "size";
    s->target.cost = o->macs > 0     ? pare_target_macs
                     : o->params > 0 ? pare_target_params
                                     : pare_target_bytes;
    if (s->latency) pare_prune_latency_aim(s->latency, &s->target);
    s->cost_before = s->target.cost(s->target.user, s->removal);
    s->target.goal = o->size ? (double)o->size : value * s->cost_before;
    return PARE_OK;
}

/* The nearest that can be had is written, and by how much it misses is said. */
static void say_missed(const pare_structured *s)
{
    if (s->latency || s->reached <= s->target.goal) return;
    pare_log(s->tool->ctx, PARE_LOG_WARNING,
             "%s: %s cannot come down to %.4g; %.4g (%.1f %% of before) is the least that "
             "--min-channels, --round, --keep and what is tied together allow, and is written",
             s->model->path, s->kind, s->target.goal, s->reached,
             s->cost_before > 0 ? 100 * s->reached / s->cost_before : 0.0);
}

static pare_status refit(pare_structured *s)
{
    if (!s->refits || !s->removal->count) return PARE_OK;
    pare_progress_begin(&s->bar, stderr, s->o->common.quiet, "refit", "layers");
    pare_status st = pare_refit_run(s->tool->ctx, s->removal, s->trained ? s->trained : s->dense,
                                    &s->data, &s->fitted);
    pare_progress_end(&s->bar);
    memcpy(s->data_hash, s->fitted.data_hash, sizeof s->data_hash);
    return st;
}

static pare_status reach(pare_structured *s, bool last)
{
    if (s->latency)
        return pare_prune_latency_reach(s->latency, s->removal, s->score, &s->target, last,
                                        &s->reached);
    return pare_target_reach(s->tool->ctx, s->removal, s->score, &s->target, &s->reached);
}

/* Trains the smaller model of the step. */
static pare_status tune(pare_structured *s, pare_model *smaller, int64_t step)
{
    static const char *const of[] = {"multiply-adds", "parameters", "bytes"};
    return pare_tuning_run(&s->tuning, s->dense, smaller, step, s->reached / s->cost_before,
                           of[s->o->macs > 0     ? 0
                              : s->o->params > 0 ? 1
                                                 : 2]);
}

/* Between two steps: what the smaller model learns is what the next step prunes and refits to. */
static pare_status tune_between(pare_structured *s, int64_t step)
{
    pare_model *smaller;
    if (!s->tuning.wanted) return PARE_OK;
    PARE_TRY(pare_prune_remove(s->tool->ctx, &smaller, s->removal));
    pare_status st = tune(s, smaller, step);
    if (st == PARE_OK) st = pare_prune_put_back(s->removal, smaller);
    pare_model_free(smaller);
    pare_model_free(s->trained);
    s->trained = NULL;
    if (st == PARE_OK && s->refits) st = pare_model_clone(s->tool->ctx, &s->trained, s->model);
    return st;
}

/* Steps are equal factors. */
static pare_status choose(pare_structured *s)
{
    const double goal = s->target.goal;
    for (int64_t i = 1; i <= s->o->steps; i++) {
        s->target.goal = pare_prune_cost_at(s->cost_before, goal, i, s->o->steps);
        PARE_TRY(find_scores(s));
        PARE_TRY(reach(s, i == s->o->steps));
        PARE_TRY(refit(s));
        if (i < s->o->steps) PARE_TRY(tune_between(s, i));
    }
    say_missed(s);
    return PARE_OK;
}

/* What refits and training changed back to what it was. */
static pare_status restore(pare_structured *s)
{
    const pare_values *init = &s->model->graph->init;
    pare_model_free(s->trained);
    s->trained = NULL;
    for (int i = 0; s->dense && i < init->count; i++) {
        const pare_value *was = pare_graph_find_own(s->dense->graph, init->item[i]->name);
        if (was && was->data && was->data != init->item[i]->data)
            PARE_TRY(pare_value_set_init(init->item[i], was->data));
    }
    return PARE_OK;
}

static pare_status put_manifest(pare_structured *s, pare_model *smaller)
{
    char hash[33];
    const char *recipe = pare_structured_recipe(s);
    pare_tuning_hash(&s->tuning, s->data_hash, hash);
    return recipe ? pare_onnx_manifest(s->tool->ctx, smaller, recipe, hash) : PARE_MEMORY;
}

static pare_status run_value(void *user, double value, const char *path)
{
    pare_structured *s = user;
    pare_ctx *ctx = s->tool->ctx;
    pare_onnx_write_options writing = {.external_data = s->o->external_data};
    pare_model *smaller = NULL;
    PARE_TRY(begin(s, value));
    PARE_TRY(choose(s));
    PARE_TRY(pare_prune_remove(ctx, &smaller, s->removal));
    pare_status st = tune(s, smaller, s->o->steps);
    if (st == PARE_OK) st = put_manifest(s, smaller);
    if (st == PARE_OK) st = pare_ctx_poll(ctx);
    if (st == PARE_OK) st = pare_onnx_write(ctx, smaller, path, &writing);
    if (st == PARE_OK && s->latency) st = pare_prune_latency_compare(s->latency, smaller);
    pare_model_free(smaller);
    if (st == PARE_OK) st = pare_structured_report(s, path);
    return st == PARE_OK ? restore(s) : st;
}

static pare_status prepare(pare_structured *s)
{
    pare_ctx *ctx = s->tool->ctx;
    PARE_TRY(pare_onnx_read(ctx, &s->model, s->tool->arg[0]));
    PARE_TRY(pare_onnx_hash(ctx, s->tool->arg[0], s->hash, &s->bytes));
    PARE_TRY(pare_prune_prepare(ctx, s->model));
    PARE_TRY(open_data(s));
    /* weights alone are scored on a device where one is asked for: no sooner than here */
    if (s->o->common.device) PARE_TRY(pare_tool_open_device(s->tool));
    s->refits = s->o->source.data && !s->o->no_refit;
    if (s->refits) PARE_TRY(pare_refit_prepare(ctx, s->model));
    if (s->refits || s->tuning.wanted) PARE_TRY(pare_model_clone(ctx, &s->dense, s->model));
    PARE_TRY(find_groups(s));
    if (!s->groups->component_count) return nothing(s);
    if (s->o->latency) PARE_TRY(pare_prune_latency_open(s->tool, &s->latency, s->o, s->groups));
    s->score =
        pare_arena_alloc(&s->tool->arena, (size_t)s->groups->component_count, sizeof *s->score);
    return s->score ? PARE_OK : PARE_MEMORY;
}

/* Peak memory, before long work begins. */
static pare_status say_memory(const pare_structured *s)
{
    size_t bytes;
    if (!s->data.data) return PARE_OK;
    PARE_TRY(pare_prune_memory(s->tool->ctx, s->model, &s->data,
                               pare_structured_score(s) == PARE_SCORE_ACTIVATION, true, &bytes));
    pare_log_memory(s->tool, bytes);
    return PARE_OK;
}

static void put_facts(pare_structured *s)
{
    json_t *facts = s->tool->facts, *outputs = json_array();
    json_object_set_new(facts, "model",
                        json_pack("{s:o, s:s, s:I}", "file", pare_json_text(s->tool->arg[0]),
                                  "hash", s->hash, "bytes", (json_int_t)s->bytes));
    if (s->data.data)
        json_object_set_new(facts, "data", pare_source_json(&s->source, &s->o->source));
    for (size_t i = 0; i < json_array_size(s->list); i++)
        json_array_append(outputs, json_object_get(json_array_get(s->list, i), "file"));
    json_object_set(facts, "smaller", s->list);
    json_object_set_new(facts, "outputs", outputs);
}

pare_status pare_prune_structured(pare_tool *tool, const pare_prune_options *o)
{
    pare_structured s = {.tool = tool, .o = o, .list = json_array()};
    double value = o->macs > 0 ? o->macs : o->params;
    pare_status st = prepare(&s);
    if (st == PARE_OK) st = say_memory(&s);
    if (st == PARE_OK && s.latency && !o->sweep) st = pare_prune_latency_ratio(s.latency, &value);
    if (st == PARE_OK)
        st = o->sweep ? pare_prune_sweep(tool, o, run_value, &s) : run_value(&s, value, o->output);
    if (st == PARE_OK) put_facts(&s);
    const pare_source seen = pare_tuning_seen(&s.tuning, &s.source);
    if (st == PARE_OK) st = pare_prune_finish(tool, o, &seen, s.list);
    pare_tuning_close(&s.tuning);
    json_decref(s.list);
    pare_prune_latency_close(s.latency);
    pare_prune_plan_free(s.removal);
    pare_groups_free(s.groups);
    pare_source_close(&s.source);
    pare_model_free(s.trained);
    pare_model_free(s.dense);
    pare_model_free(s.model);
    return st;
}

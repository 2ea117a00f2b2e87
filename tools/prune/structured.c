/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune to a target: the model and the samples for prune/pruner.h, training between its steps,
   and the files that are written. */
#include "tools/prune/structured.h"
#include "formats/json.h"
#include "formats/onnx.h"
#include "prune/score.h"
#include "runtime/graph/pattern.h"
#include "tools/telemetry.h"
#include "tools/prune/report.h"
#include "tools/table.h"
#include "tools/text.h"

#include <string.h>

/* --- what the library calls --- */

static void show_phase(void *user, const char *what, const char *unit)
{
    pare_structured *s = user;
    if (what)
        pare_progress_begin(&s->bar, stderr, s->o->common.quiet, what, unit);
    else
        pare_progress_end(&s->bar);
}

static void show_progress(void *user, int64_t done, int64_t all)
{
    pare_progress_step(&((pare_structured *)user)->bar, done, all);
}

static pare_status train(void *user, const pare_model *dense, pare_model *smaller, int64_t step,
                         double kept)
{
    static const char *const of[] = {"multiply-adds", "parameters", "bytes"};
    pare_structured *s = user;
    return pare_tuning_run(&s->tuning, dense, smaller, step, kept,
                           of[s->o->macs > 0     ? 0
                              : s->o->params > 0 ? 1
                                                 : 2]);
}

/* --- the model --- */

/* Which number is the target, and which size that is to the library. */
static pare_status read_target(pare_structured *s, double *value)
{
    const pare_prune_options *o = s->o;
    double seconds = 0;
    *value = o->macs > 0 ? o->macs : o->size ? (double)o->size : o->params;
    s->kind = o->latency ? "latency" : o->macs > 0 ? "macs" : o->params > 0 ? "params" : "size";
    s->options.by = o->macs > 0     ? PARE_PRUNE_BY_MACS
                    : o->params > 0 ? PARE_PRUNE_BY_PARAMS
                                    : PARE_PRUNE_BY_SIZE;
    if (!o->latency) return PARE_OK;
    PARE_TRY(pare_prune_parse_latency(s->tool->ctx, o->latency, value, &seconds));
    s->options.by = seconds > 0 ? PARE_PRUNE_BY_SECONDS : PARE_PRUNE_BY_LATENCY;
    if (seconds > 0) *value = seconds;
    return PARE_OK;
}

static void read_options(pare_structured *s)
{
    const pare_prune_options *o = s->o;
    pare_pruner_options *p = &s->options;
    p->score = pare_prune_score(o);
    p->per_layer = o->scope == 1;
    p->outputs = o->outputs;
    p->steps = o->steps;
    p->min_channels = o->min_channels;
    p->round = o->round;
    p->seed = (uint64_t)o->seed;
    p->keep = o->keep.item;
    p->keep_count = o->keep.count;
    p->file_bytes = s->bytes;
    p->refit = !o->no_refit;
    p->threads = (int)o->common.threads;
    p->comm = s->tool->comm;
    p->cache_dir = o->cache;
    p->phase = show_phase;
    p->progress = show_progress;
    p->progress_user = p->train_user = s;
}

static pare_status prepare(pare_structured *s)
{
    const pare_prune_options *o = s->o;
    pare_ctx *ctx = s->tool->ctx;
    PARE_TRY(pare_onnx_read(ctx, &s->model, s->tool->arg[0]));
    PARE_TRY(pare_onnx_hash(ctx, s->tool->arg[0], s->hash, &s->bytes));
    PARE_TRY(pare_comm_same(s->tool->comm, "model", s->hash, strlen(s->hash)));
    PARE_TRY(pare_prune_prepare(ctx, s->model));
    read_options(s);
    PARE_TRY(pare_tuning_open(&s->tuning, s->tool, o, s->model, &s->source));
    if (o->source.data) {
        s->options.data = s->source.data;
        s->options.samples = s->source.samples;
        s->options.sample_count = s->source.count;
    }
    if (s->tuning.wanted) s->options.train = train;
    /* after the data are open: no process is forked once there is a device */
    if (o->common.device || o->latency) PARE_TRY(pare_tool_open_device(s->tool));
    s->options.device = s->tool->device;
    PARE_TRY(pare_pruner_new(ctx, &s->pruner, s->model, &s->options));
    s->facts = pare_pruner_result(s->pruner);
    return PARE_OK;
}

/* Peak memory, before long work begins. */
static pare_status say_memory(const pare_structured *s)
{
    size_t bytes;
    const pare_score_data data = {.sample_count = s->options.sample_count,
                                  .threads = s->options.threads,
                                  .comm = s->options.comm,
                                  .refits = s->options.refit};
    if (!s->options.data) return PARE_OK;
    PARE_TRY(pare_prune_memory(s->tool->ctx, s->model, &data,
                               s->facts->score == PARE_SCORE_ACTIVATION, true, &bytes));
    pare_log_memory(s->tool, bytes);
    return PARE_OK;
}

/* --- one model --- */

/* About the least bytes that the smaller file will have; multiply-adds say little of them. */
static uint64_t room_of(const pare_structured *s, double value)
{
    const pare_prune_options *o = s->o;
    if (o->size) return (uint64_t)o->size < s->bytes ? (uint64_t)o->size / 2 : s->bytes / 2;
    return (uint64_t)((double)s->bytes * value / 2);
}

static pare_status put_manifest(pare_structured *s, pare_model *smaller)
{
    char hash[33];
    const char *recipe = pare_structured_recipe(s);
    pare_tuning_hash(&s->tuning, s->facts->data_hash, hash);
    return recipe ? pare_onnx_manifest(s->tool->ctx, smaller, recipe, hash) : PARE_MEMORY;
}

static pare_status run_value(void *user, double value, const char *path)
{
    pare_structured *s = user;
    pare_ctx *ctx = s->tool->ctx;
    pare_onnx_write_options writing = {.external_data = s->o->external_data};
    pare_model *smaller;
    PARE_TRY(pare_tuning_begin(&s->tuning, value, room_of(s, value)));
    PARE_TRY(pare_pruner_run(s->pruner, value, &smaller));
    pare_status st = put_manifest(s, smaller);
    if (st == PARE_OK) st = pare_ctx_poll(ctx);
    if (st == PARE_OK) st = pare_comm_settle(s->tool->comm, PARE_OK); /* before it is written */
    const bool leads = pare_tool_leads(s->tool);
    if (st == PARE_OK && leads) st = pare_onnx_write(ctx, smaller, path, &writing);
    if (st == PARE_OK && s->o->latency) st = pare_pruner_time(s->pruner, smaller);
    pare_model_free(smaller);
    return st == PARE_OK && leads ? pare_structured_report(s, path) : st;
}

static void put_facts(pare_structured *s)
{
    json_t *facts = s->tool->facts, *outputs = json_array();
    json_object_set_new(facts, "model",
                        json_pack("{s:o, s:s, s:I}", "file", pare_json_text(s->tool->arg[0]),
                                  "hash", s->hash, "bytes", (json_int_t)s->bytes));
    if (s->options.data)
        json_object_set_new(facts, "data", pare_source_json(&s->source, &s->o->source));
    for (size_t i = 0; i < json_array_size(s->list); i++)
        json_array_append(outputs, json_object_get(json_array_get(s->list, i), "file"));
    json_object_set(facts, "smaller", s->list);
    json_object_set_new(facts, "outputs", outputs);
}

pare_status pare_prune_structured(pare_tool *tool, const pare_prune_options *o)
{
    double value;
    pare_structured s = {.tool = tool, .o = o, .list = json_array()};
    pare_pruner_options_init(&s.options);
    pare_status st = read_target(&s, &value);
    if (st == PARE_OK) st = prepare(&s);
    if (st == PARE_OK) st = say_memory(&s);
    if (st == PARE_OK)
        st = o->sweep ? pare_prune_sweep(tool, o, run_value, &s) : run_value(&s, value, o->output);
    const bool says = st == PARE_OK && pare_tool_leads(tool);
    if (says) put_facts(&s);
    const pare_source seen = pare_tuning_seen(&s.tuning, &s.source);
    if (says) st = pare_prune_finish(tool, o, &seen, s.list);
    if (st == PARE_OK) st = pare_tuning_end(&s.tuning);
    pare_tuning_close(&s.tuning);
    json_decref(s.list);
    pare_pruner_free(s.pruner);
    pare_source_close(&s.source);
    pare_model_free(s.model);
    return st;
}

/* What became of a model whose channels were pruned, as facts and as words. */

const char *pare_structured_recipe(const pare_structured *s)
{
    const pare_prune_options *o = s->o;
    pare_arena *arena = &s->tool->arena;
    const pare_pruner_facts *f = s->facts;
    pare_score score = f->score;
    const char *text = pare_arena_printf(
        arena, "prune %s=%.10g scope=%s score=%s steps=%lld min-channels=%lld round=%lld", s->kind,
        o->size ? f->goal : f->goal / f->cost_before, o->scope == 1 ? "layer" : "global",
        pare_scores[score].name, (long long)o->steps, (long long)o->min_channels,
        (long long)o->round);
    if (text && score == PARE_SCORE_RANDOM)
        text = pare_arena_printf(arena, "%s seed=%lld", text, (long long)o->seed);
    if (text && s->options.data)
        text = pare_arena_printf(arena, "%s samples=%lld refit=%s", text,
                                 (long long)s->options.sample_count, f->refits ? "yes" : "no");
    if (text && o->outputs) text = pare_arena_printf(arena, "%s outputs=yes", text);
    for (int i = 0; i < o->keep.count && text; i++)
        text = pare_arena_printf(arena, "%s keep=%s", text, o->keep.item[i]);
    return pare_tuning_recipe(&s->tuning, text);
}

static json_t *groups_json(const pare_structured *s)
{
    json_t *list = json_array();
    for (int g = 0; g < s->facts->groups->group_count; g++) {
        const pare_dependency_group *group = &s->facts->groups->group[g];
        int left = 0;
        for (int c = group->first; c < group->first + group->count; c++)
            left += !s->facts->plan->removed[c];
        json_array_append_new(list,
                              json_pack("{s:o, s:i, s:i}", "name", pare_json_text(group->name),
                                        "before", group->count, "after", left));
    }
    return list;
}

static json_t *change_json(double before, double after)
{
    return json_pack("{s:I, s:I}", "before", (json_int_t)before, "after", (json_int_t)after);
}

/* What a refit says of the node's weight, or NULL. */
static const pare_unstructured_layer *fitted(const pare_structured *s, const char *node)
{
    for (int i = 0; i < s->facts->refitted.layer_count; i++)
        if (!strcmp(s->facts->refitted.layer[i].node, node)) return &s->facts->refitted.layer[i];
    return NULL;
}

/* The weight's shape before and after; NULL for products without one. */
static json_t *shape_json(const pare_prune_plan *none, const pare_prune_plan *now,
                          const pare_node *node)
{
    const pare_value *weight = NULL;
    for (int i = 0; i < node->in_count && !weight; i++)
        if (node->in[i] && node->in[i]->data && node->in[i]->data->rank >= 2) weight = node->in[i];
    json_t *json = json_object();
    for (int k = 0; weight && k < 2; k++) {
        pare_shape shape;
        json_t *dims = json_array();
        if (pare_prune_plan_shape(k ? now : none, weight, &shape) != PARE_OK) shape.rank = 0;
        for (int d = 0; d < shape.rank; d++)
            json_array_append_new(dims, json_integer(shape.dim[d]));
        json_object_set_new(json, k ? "after" : "before", dims);
    }
    if (weight) return json;
    json_decref(json);
    return NULL;
}

static json_t *layers_json(const pare_structured *s, const pare_prune_plan *none)
{
    json_t *list = json_array();
    const pare_graph *g = s->model->graph;
    for (int i = 0; i < g->node_count; i++) {
        const char *name = pare_pattern_name(g->node[i]);
        double before = pare_prune_plan_macs(none, g->node[i]);
        if (!(before > 0)) continue;
        json_t *row = change_json(before, pare_prune_plan_macs(s->facts->plan, g->node[i]));
        json_object_set_new(row, "node", pare_json_text(name));
        json_t *shape = shape_json(none, s->facts->plan, g->node[i]);
        if (shape) json_object_set_new(row, "shape", shape);
        const pare_unstructured_layer *l = fitted(s, name);
        if (l) pare_prune_put_held(row, l);
        if (l && l->error >= 0) json_object_set_new(row, "error", json_real(l->error));
        if (l && l->refitted) json_object_set_new(row, "ridge", json_real(l->ridge));
        pare_prune_latency_layer(s->pruner, g->node[i], row);
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *row_json(const pare_structured *s, const char *path, const char *hash,
                        uint64_t bytes, const pare_prune_plan *none)
{
    const pare_prune_cost *now = &s->facts->plan->cost;
    return json_pack("{s:o, s:s, s:I, s:{s:s, s:f, s:f, s:f}, s:o, s:o, s:o, s:o}", "file",
                     pare_json_text(path), "hash", hash, "bytes", (json_int_t)bytes, "target", "of",
                     s->kind, "before", s->facts->cost_before, "goal", s->facts->goal, "reached",
                     s->facts->reached, "macs", change_json(s->facts->before.macs, now->macs),
                     "parameters", change_json(s->facts->before.params, now->params), "groups",
                     groups_json(s), "layers", layers_json(s, none));
}

pare_status pare_structured_report(pare_structured *s, const char *path)
{
    pare_ctx *ctx = s->tool->ctx;
    char hash[33], size[32];
    uint64_t bytes;
    pare_prune_plan *none;
    PARE_TRY(pare_onnx_hash(ctx, path, hash, &bytes));
    PARE_TRY(pare_prune_plan_new(ctx, &none, s->facts->groups));
    const pare_prune_cost *now = &s->facts->plan->cost;
    pare_print(stdout, "%s\n", path);
    if (!s->o->common.quiet)
        pare_print(
            stderr,
            "%s (%.0f %% of before), %.1f %% of the multiply-adds, %.1f %% of the parameters, "
            "%d of %d channels removed\n",
            pare_bytes_text((double)bytes, size, sizeof size),
            s->bytes ? 100 * (double)bytes / (double)s->bytes : 0.0,
            s->facts->before.macs > 0 ? 100 * now->macs / s->facts->before.macs : 0.0,
            s->facts->before.params > 0 ? 100 * now->params / s->facts->before.params : 0.0,
            s->facts->plan->count, s->facts->groups->coupled_count);
    json_t *row = row_json(s, path, hash, bytes, none);
    if (s->o->latency) {
        json_object_set_new(row, "latency", pare_prune_latency_json(s));
        pare_prune_latency_log(s, row);
    }
    pare_tuning_put(&s->tuning, row);
    json_array_append_new(s->list, row);
    pare_prune_plan_free(none);
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* pare prune --sparsity, --nm: single weights become 0, the model keeps its form. */
#include "formats/onnx.h"

#include "formats/json.h"
#include "runtime/graph/pattern.h"
#include "tools/advise.h"
#include "tools/telemetry.h"
#include "tools/progress.h"
#include "tools/prune/prune.h"
#include "tools/prune/report.h"
#include "tools/prune/tune.h"
#include "tools/table.h"
#include "tools/text.h"

#include <string.h>
#include <stdlib.h>

typedef struct job {
    pare_tool *tool;
    json_t *list; /* a row per file */
    const pare_prune_options *o;
    pare_model *model; /* prepared */
    pare_node **node;  /* of the main graph, then of bodies */
    int node_count;
    bool *kept; /* (node_count): what --keep names, or --advise leaves dense */
    pare_advice advice;
    pare_source source;
    pare_tuning tuning;
    pare_progress bar;
    pare_unstructured_options options;
    pare_unstructured_facts facts;
    char hash[33], data_hash[33]; /* of the model's file; of the samples that weights rest on */
    uint64_t bytes;
} job;

static bool keeps(void *user, const pare_node *node)
{
    const job *j = user;
    for (int n = 0; n < j->node_count; n++)
        if (j->node[n] == node) return j->kept[n];
    return false;
}

static pare_status read_options(job *j)
{
    const pare_prune_options *o = j->o;
    pare_unstructured_options *s = &j->options;
    *s = (pare_unstructured_options){.sparsity = o->sparsity,
                                     .per_layer = o->scope == 1,
                                     .fixed_order = o->no_permutation,
                                     .threads = (int)o->common.threads,
                                     .comm = j->tool->comm,
                                     .refit = !o->no_refit,
                                     .seed = (uint64_t)o->seed,
                                     .keep_user = j};
    if (o->keep.count) s->keep = keeps;
    if (o->nm) PARE_TRY(pare_prune_parse_nm(j->tool->ctx, o->nm, &s->n, &s->m));
    s->score = pare_prune_score(o);
    if (s->score == PARE_SCORE_BEST || pare_scores[s->score].weights) return PARE_OK;
    return PARE_FAIL(j->tool->ctx, USAGE,
                     "prune: this --score ranks channels; single weights are ranked by l1, l2, "
                     "activation, taylor or random, or with --data by second order");
}

static pare_status read_model(job *j)
{
    const pare_prune_options *o = j->o;
    pare_tool *tool = j->tool;
    PARE_TRY(pare_onnx_read(tool->ctx, &j->model, tool->arg[0]));
    PARE_TRY(pare_onnx_hash(tool->ctx, tool->arg[0], j->hash, &j->bytes));
    PARE_TRY(pare_comm_same(tool->comm, "model", j->hash, strlen(j->hash)));
    PARE_TRY(pare_prune_prepare(tool->ctx, j->model));
    PARE_TRY(pare_graph_all_nodes(j->model->graph, &tool->arena, &j->node, &j->node_count));
    j->kept = pare_arena_alloc(&tool->arena, (size_t)j->node_count + 1, sizeof *j->kept);
    if (!j->kept) return PARE_MEMORY;
    return pare_pattern_mark(j->model, j->node, j->node_count, "--keep", o->keep.item,
                             o->keep.count, true, j->kept);
}

/* Sums of floats depend on the order of samples, and --shuffle changes no result. */
static pare_status open_data(job *j)
{
    PARE_TRY(pare_tuning_open(&j->tuning, j->tool, j->o, j->model, &j->source));
    if (!j->o->source.data) return PARE_OK;
    j->options.data = j->source.data;
    j->options.samples = j->source.samples;
    j->options.sample_count = j->source.count;
    j->options.device = j->tool->device;
    return PARE_OK;
}

/* --advise: layers in which N:M does not pay stay dense. */
static pare_status advise(job *j)
{
    const pare_graph *g = j->model->graph;
    if (!j->o->advise) return PARE_OK;
    PARE_TRY(pare_advise(j->tool, j->model, &j->options, pare_advise_time, &j->advice));
    json_object_set_new(j->tool->facts, "advice", pare_advice_json(&j->advice));
    pare_advice_print(&j->advice, &j->options, j->tool, stderr);
    for (int n = 0; n < g->node_count; n++)
        for (int i = 0; i < j->advice.count; i++) {
            const pare_advice_layer *l = &j->advice.layer[i];
            const char *name = g->node[n]->name[0] ? g->node[n]->name : g->node[n]->out[0]->name;
            if (!strcmp(name, l->node) && !l->pays) j->kept[n] = true;
        }
    j->options.keep = keeps;
    return PARE_OK;
}

/* Is there anything to write? */
static bool wanted(const job *j)
{
    if (!j->o->advise) return true;
    if (j->o->output && !j->advice.paying)
        pare_print(stderr, "Nothing is pruned, and %s is not written.\n", j->o->output);
    return j->o->output && j->advice.paying;
}

/* What --advise left dense says so. */
static void note_advice(job *j)
{
    for (int i = 0; i < j->facts.layer_count && i < j->advice.count; i++)
        if (!j->advice.layer[i].pays && !j->advice.layer[i].note)
            j->facts.layer[i].note = "would not be faster";
}

/* The options that decide, in words. */
static const char *recipe_of(const job *j)
{
    const pare_unstructured_options *s = &j->options;
    const pare_list *keep = &j->o->keep;
    pare_arena *arena = &j->tool->arena;
    const char *text = s->m ? pare_arena_printf(arena, "prune nm=%d:%d%s", s->n, s->m,
                                                s->fixed_order ? " permutation=no" : "")
                            : pare_arena_printf(arena, "prune sparsity=%.10g scope=%s", s->sparsity,
                                                s->per_layer ? "layer" : "global");
    if (text) text = pare_arena_printf(arena, "%s score=%s", text, pare_scores[s->score].name);
    if (text && s->score == PARE_SCORE_RANDOM)
        text = pare_arena_printf(arena, "%s seed=%llu", text, (unsigned long long)s->seed);
    if (text && s->data)
        text = pare_arena_printf(arena, "%s samples=%lld refit=%s", text,
                                 (long long)s->sample_count, s->refit ? "yes" : "no");
    if (text && j->o->advise)
        text = pare_arena_printf(arena, "%s advise=%d/%d", text, j->advice.paying, j->advice.fit);
    for (int i = 0; i < keep->count && text; i++)
        text = pare_arena_printf(arena, "%s keep=%s", text, keep->item[i]);
    return pare_tuning_recipe(&j->tuning, text);
}

static void show_phase(void *user, const char *what, const char *unit)
{
    job *j = user;
    if (what)
        pare_progress_begin(&j->bar, stderr, j->o->common.quiet || !j->options.data, what, unit);
    else
        pare_progress_end(&j->bar);
}

static void show_progress(void *user, int64_t done, int64_t all)
{
    pare_progress_step(&((job *)user)->bar, done, all);
}

static pare_status train(void *user, const pare_model *dense, pare_model *model, int64_t step,
                         double kept)
{
    job *j = user;
    return pare_tuning_run(&j->tuning, dense, model, step, kept, "weights");
}

static pare_status prune(job *j)
{
    pare_unstructured_options *s = &j->options;
    s->steps = j->o->steps;
    s->phase = show_phase;
    s->progress = show_progress;
    s->progress_user = s->train_user = j;
    if (j->tuning.wanted) s->train = train;
    PARE_TRY(pare_tuning_begin(&j->tuning, s->sparsity, j->bytes));
    PARE_TRY(pare_prune_unstructured(j->tool->ctx, j->model, s, &j->facts));
    note_advice(j);
    const char *recipe = recipe_of(j);
    pare_tuning_hash(&j->tuning, j->facts.data_hash, j->data_hash);
    return recipe ? pare_onnx_manifest(j->tool->ctx, j->model, recipe, j->data_hash) : PARE_MEMORY;
}

/* --- the report --- */

static void print_layers(const job *j)
{
    pare_table table;
    pare_table_init(&table, &j->tool->arena, "lrrrl");
    pare_table_add(&table, "layer|weights|zeros|error|");
    for (int i = 0; i < j->facts.layer_count; i++) {
        const pare_unstructured_layer *l = &j->facts.layer[i];
        char error[32] = "";
        if (l->error >= 0) snprintf(error, sizeof error, "%.2f %%", 100 * l->error);
        pare_table_add(&table, "%s|%lld|%.1f %%|%s|%s", l->node, (long long)l->count,
                       l->count ? 100 * (double)l->zeros / (double)l->count : 0.0, error,
                       l->note ? l->note : "");
    }
    pare_table_print(&table, stderr);
}

static json_t *layers_json(const job *j)
{
    json_t *list = json_array();
    for (int i = 0; i < j->facts.layer_count; i++) {
        const pare_unstructured_layer *l = &j->facts.layer[i];
        json_t *row =
            json_pack("{s:o, s:o, s:I, s:I, s:f}", "node", pare_json_text(l->node), "weight",
                      pare_json_text(l->weight), "weights", (json_int_t)l->count, "zeros",
                      (json_int_t)l->zeros, "csr_bytes", l->csr);
        if (l->note) json_object_set_new(row, "note", json_string(l->note));
        pare_prune_put_held(row, l);
        if (l->error >= 0) json_object_set_new(row, "error", json_real(l->error));
        if (l->refitted) json_object_set_new(row, "ridge", json_real(l->ridge));
        json_array_append_new(list, row);
    }
    return list;
}

/* Bytes of the file with weights that have zeros as sparse rows, where that is smaller. */
static double csr_bytes(const job *j, double file)
{
    for (int i = 0; i < j->facts.layer_count; i++) {
        const pare_unstructured_layer *l = &j->facts.layer[i];
        double raw = 4 * (double)l->count;
        if (l->csr < raw) file += l->csr - raw;
    }
    return file;
}

static pare_status report(job *j, const char *path, json_t **out)
{
    char hash[33], raw[32], packed[32], rows[32];
    uint64_t bytes;
    double zipped, csr;
    const pare_unstructured_facts *f = &j->facts;
    PARE_TRY(pare_onnx_hash(j->tool->ctx, path, hash, &bytes));
    PARE_TRY(pare_prune_zipped(j->tool->ctx, path, &zipped));
    csr = csr_bytes(j, (double)bytes);
    double sparsity = f->count ? (double)f->zeros / (double)f->count : 0;
    pare_print(stdout, "%s\n", path);
    if (!j->o->common.quiet) {
        print_layers(j);
        if (f->reordered)
            pare_print(stderr,
                       "%d groups of channels put into another order: %.1f %% more magnitude kept "
                       "after them\n",
                       f->reordered, 100 * (f->kept_after / f->kept_before - 1));
        fprintf(
            stderr,
            "%.2f %% of %lld weights are 0; %s as it is, %s through zlib, %s with sparse rows "
            "(CSR)\nDense kernels take as long as before: zeros save space where the file is "
            "compressed%s.\n",
            100 * sparsity, (long long)f->count, pare_bytes_text((double)bytes, raw, sizeof raw),
            pare_bytes_text(zipped, packed, sizeof packed), pare_bytes_text(csr, rows, sizeof rows),
            j->options.m == 4 && j->options.n == 2
                ? ", and time on hardware with 2:4 sparse kernels"
                : ", and time only in sparse kernels");
    }
    *out = json_pack("{s:o, s:i, s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:o}", "file",
                     pare_json_text(path), "reordered_groups", f->reordered, "hash", hash, "bytes",
                     (json_int_t)bytes, "zlib_bytes", zipped, "csr_bytes", csr, "sparsity",
                     sparsity, "weights", (json_int_t)f->count, "zeros", (json_int_t)f->zeros,
                     "layers", layers_json(j));
    pare_tuning_put(&j->tuning, *out);
    return PARE_OK;
}

static pare_status run_one(job *j, const char *path, json_t *list)
{
    pare_onnx_write_options writing = {.external_data = j->o->external_data};
    json_t *facts = NULL;
    PARE_TRY(prune(j));
    PARE_TRY(pare_ctx_poll(j->tool->ctx));
    PARE_TRY(pare_comm_settle(j->tool->comm, PARE_OK)); /* before it is written */
    if (!pare_tool_leads(j->tool)) return PARE_OK;
    PARE_TRY(pare_onnx_write(j->tool->ctx, j->model, path, &writing));
    PARE_TRY(report(j, path, &facts));
    json_array_append_new(list, facts);
    return PARE_OK;
}

/* Each model begins at the file. */
static pare_status run_value(void *user, double value, const char *path)
{
    job *j = user;
    if (!j->model) PARE_TRY(read_model(j));
    j->options.sparsity = value;
    PARE_TRY(run_one(j, path, j->list));
    pare_model_free(j->model);
    j->model = NULL;
    return PARE_OK;
}

static void put_facts(job *j, json_t *list)
{
    json_t *facts = j->tool->facts, *outputs = json_array();
    json_object_set_new(facts, "model",
                        json_pack("{s:o, s:s, s:I}", "file", pare_json_text(j->tool->arg[0]),
                                  "hash", j->hash, "bytes", (json_int_t)j->bytes));
    if (j->o->source.data)
        json_object_set_new(facts, "data", pare_source_json(&j->source, &j->o->source));
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append(outputs, json_object_get(json_array_get(list, i), "file"));
    json_object_set(facts, "sparse", list);
    json_object_set_new(facts, "outputs", outputs);
}

/* Peak memory, before long work begins. */
static pare_status say_memory(const job *j)
{
    size_t bytes;
    const pare_score_data data = {.sample_count = j->options.sample_count,
                                  .threads = j->options.threads,
                                  .comm = j->options.comm,
                                  .refits = j->options.refit};
    if (!j->options.data) return PARE_OK;
    PARE_TRY(pare_prune_memory(j->tool->ctx, j->model, &data, false, false, &bytes));
    pare_log_memory(j->tool, bytes);
    return PARE_OK;
}

pare_status pare_prune_weights(pare_tool *tool, const pare_prune_options *o)
{
    json_t *list = json_array();
    job j = {.tool = tool, .o = o, .list = list};
    pare_status st = read_options(&j);
    if (st == PARE_OK) st = read_model(&j);
    if (st == PARE_OK) st = open_data(&j);
    if (st == PARE_OK) st = advise(&j);
    if (st == PARE_OK && wanted(&j)) st = say_memory(&j);
    if (st == PARE_OK && wanted(&j))
        st = o->sweep ? pare_prune_sweep(tool, o, run_value, &j) : run_one(&j, o->output, list);
    const bool says = st == PARE_OK && pare_tool_leads(tool);
    if (says) put_facts(&j, list);
    const pare_source seen = pare_tuning_seen(&j.tuning, &j.source);
    if (says && json_array_size(list)) st = pare_prune_finish(tool, o, &seen, list);
    if (st == PARE_OK) st = pare_tuning_end(&j.tuning);
    pare_tuning_close(&j.tuning);
    json_decref(list);
    pare_source_close(&j.source);
    pare_model_free(j.model);
    return st;
}

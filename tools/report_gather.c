/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report_gather.h"

#include "tools/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

/* --- models --- */

/* The same file content; of facts without hashes the same name. */
static bool same_model(const json_t *a, const json_t *b)
{
    const char *x = text_of(a, "hash"), *y = text_of(b, "hash");
    if (x && *x && y && *y) return !strcmp(x, y);
    x = text_of(a, "file"), y = text_of(b, "file");
    return x && y && !strcmp(x, y);
}

static json_t *find_model(const json_t *comparisons, const json_t *like)
{
    size_t i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        if (same_model(model, like)) return model;
    }
    return NULL;
}

/* A comparison of models (stolen) that some facts are about. */
static json_t *add_comparison(json_t *comparisons, const json_t *facts, const json_t *body,
                              json_t *models)
{
    static const char *const keys[] = {"data", "device", "held_out"};
    json_t *one = json_object();
    json_object_set(one, "command", json_object_get(facts, "command"));
    json_object_set(one, "version", json_object_get(facts, "version"));
    for (int i = 0; i < 3; i++)
        if (json_object_get(body, keys[i]))
            json_object_set(one, keys[i], json_object_get(body, keys[i]));
    json_object_set_new(one, "models", models);
    json_array_append_new(comparisons, one);
    return one;
}

static json_t *copies(const json_t *models)
{
    json_t *list = json_array(), *model;
    size_t i;
    json_array_foreach((json_t *)models, i, model) json_array_append_new(list, json_copy(model));
    return list;
}

/* --- what each command says --- */

static void take_compared(json_t *comparisons, const json_t *facts)
{
    const json_t *compared = json_object_get(facts, "compared");
    const json_t *body = compared ? compared : facts;
    add_comparison(comparisons, facts, body, copies(json_object_get(body, "models")));
}

/* Models that were made from one another: those not known yet, the first in front of them. */
static void take_made(json_t *comparisons, const json_t *facts, const json_t *first,
                      const json_t *made)
{
    json_t *models = json_array(), *one;
    size_t i;
    json_array_foreach((json_t *)made, i, one)
    {
        if (!find_model(comparisons, one)) json_array_append_new(models, json_copy(one));
    }
    if (!json_array_size(models)) {
        json_decref(models);
        return;
    }
    if (first) json_array_insert_new(models, 0, json_copy((json_t *)first));
    add_comparison(comparisons, facts, facts, models);
}

/* file, hash, bytes and precision of rows that hold more. */
static json_t *files_of(const json_t *rows)
{
    static const char *const keys[] = {"file", "hash", "bytes", "precision", "recipe"};
    json_t *list = json_array(), *row;
    size_t i;
    json_array_foreach((json_t *)rows, i, row)
    {
        json_t *file = json_object();
        for (int k = 0; k < 5; k++)
            if (json_object_get(row, keys[k]))
                json_object_set(file, keys[k], json_object_get(row, keys[k]));
        json_array_append_new(list, file);
    }
    return list;
}

static void take_pruned(json_t *comparisons, const json_t *facts)
{
    const json_t *rows = json_object_get(facts, "smaller");
    json_t *files = files_of(rows ? rows : json_object_get(facts, "sparse")), *file;
    size_t i;
    json_array_foreach(files, i, file)
        json_object_set_new(file, "made", json_string("pruned or tuned"));
    take_made(comparisons, facts, json_object_get(facts, "model"), files);
    json_decref(files);
}

/* As another of the facts said, else as its recipe says. */
static const char *made_of(const json_t *model)
{
    const char *made = text_of(model, "made");
    return made ? made : pare_report_made(text_of(model, "recipe"));
}

/* quantize's or distill's result, with what it was made from. */
static void take_output(json_t *comparisons, const json_t *facts, const char *from)
{
    const json_t *first = json_object_get(facts, from);
    const json_t *known = find_model(comparisons, first);
    const bool tuned =
        strcmp(from, "model") != 0 || (known && !strcmp(made_of(known), "pruned or tuned"));
    json_t *made = json_pack("[o]", json_copy(json_object_get(facts, "output")));
    json_object_set_new(json_array_get(made, 0), "made",
                        json_string(tuned ? "pruned or tuned" : "calibrated only"));
    take_made(comparisons, facts, first, made);
    json_decref(made);
}

/* What is said of one model: to the model that is there, else as one of its own. */
static void take_model(json_t *comparisons, const json_t *facts, json_t *said)
{
    json_t *model = find_model(comparisons, said);
    if (model)
        json_object_update_missing(model, said);
    else
        add_comparison(comparisons, facts, facts, json_pack("[O]", said));
    json_decref(said);
}

static json_t *bench_model(const json_t *facts)
{
    static const char *const other[] = {"schema", "command", "version", "model",
                                        "device", "shapes",  "streams", NULL};
    json_t *said = json_copy(json_object_get(facts, "model")), *rest = json_copy((json_t *)facts);
    for (int i = 0; other[i]; i++) json_object_del(rest, other[i]);
    json_object_update_missing(said, rest);
    json_decref(rest);
    return said;
}

static json_t *inspect_model(const json_t *facts)
{
    static const char *const keys[] = {"file", "bytes", "precision", "parameters",
                                       "macs_per_sample"};
    json_t *said = json_object();
    const json_t *model = json_object_get(facts, "model");
    for (int i = 0; i < 5; i++)
        if (json_object_get(model, keys[i]))
            json_object_set(said, keys[i], json_object_get(model, keys[i]));
    return said;
}

static bool is_command(const json_t *facts, const char *name)
{
    const char *command = text_of(facts, "command");
    return command && !strcmp(command, name);
}

/* Models that were compared come first: what the others say goes to them. */
static void take_first(json_t *comparisons, const json_t *facts)
{
    size_t i;
    json_t *one;
    if (is_command(facts, "validate") ||
        (is_command(facts, "prune") && json_object_get(facts, "compared")))
        take_compared(comparisons, facts);
    if (is_command(facts, "report"))
        json_array_foreach(json_object_get(facts, "comparisons"), i, one)
            take_compared(comparisons, one);
}

static void take_rest(json_t *comparisons, const json_t *facts)
{
    if (is_command(facts, "prune") && !json_object_get(facts, "compared"))
        take_pruned(comparisons, facts);
    else if (is_command(facts, "quantize"))
        take_output(comparisons, facts, "model");
    else if (is_command(facts, "distill"))
        take_output(comparisons, facts, "teacher");
    else if (is_command(facts, "bench"))
        take_model(comparisons, facts, bench_model(facts));
    else if (is_command(facts, "inspect"))
        take_model(comparisons, facts, inspect_model(facts));
    else if (is_command(facts, "profile"))
        take_model(comparisons, facts,
                   json_pack("{s:O, s:O}", "file", json_object_get(facts, "model"), "steps",
                             json_object_get(facts, "steps")));
}

/* --- judgement --- */

const char *pare_report_made(const char *recipe)
{
    static const char *const converting[] = {"int8", "fp16", "bf16"};
    if (!recipe) return "original";
    for (const char *step = recipe; step;) {
        bool converted = false;
        for (int i = 0; i < 3; i++) converted |= !strncmp(step, converting[i], 4);
        if (!converted) return "pruned or tuned";
        const char *next = strstr(step, "; ");
        step = next ? next + 2 : NULL;
    }
    return "calibrated only";
}

pare_report_point pare_report_point_of(const json_t *m, bool labels)
{
    return (pare_report_point){
        .ms = pare_report_number(m, "latency_ms.median", NAN),
        .y = pare_report_number(m, labels ? "top1" : "outputs.0.sqnr_db", NAN),
        .low = pare_report_number(m, labels ? "top1_interval.0" : "outputs.0.sqnr_interval.0", NAN),
        .high =
            pare_report_number(m, labels ? "top1_interval.1" : "outputs.0.sqnr_interval.1", NAN),
        .ms_low = pare_report_number(m, "latency_interval.0", NAN),
        .ms_high = pare_report_number(m, "latency_interval.1", NAN),
    };
}

typedef struct candidate {
    json_t *model;
    const char *data;
    pare_report_point at;
} candidate;

/* By data set, then from the quickest on, the better first among equals. */
static int by_data_and_time(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    const int data = strcmp(a->data, b->data);
    if (data) return data;
    if (a->at.ms != b->at.ms) return a->at.ms < b->at.ms ? -1 : 1;
    return a->at.y != b->at.y ? (a->at.y > b->at.y ? -1 : 1) : 0;
}

static size_t collect(const json_t *comparisons, bool labels, candidate *out)
{
    size_t n = 0, i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        const char *data = text_of(json_object_get(one, "data"), "file");
        const pare_report_point at = pare_report_point_of(model, labels);
        if (!(at.ms > 0) || !isfinite(at.y)) continue;
        if (out) out[n] = (candidate){model, data ? data : "", at};
        n++;
    }
    return n;
}

/* No other model on the same data is as quick and more accurate, or as accurate and quicker. */
static void mark_front(const json_t *comparisons, bool labels)
{
    const size_t n = collect(comparisons, labels, NULL);
    candidate *all = n ? calloc(n, sizeof *all) : NULL;
    if (!all) return;
    collect(comparisons, labels, all);
    qsort(all, n, sizeof *all, by_data_and_time);
    double best = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(all[i].data, all[i - 1].data) != 0) best = -INFINITY;
        if (all[i].at.y > best) json_object_set_new(all[i].model, "front", json_true());
        best = fmax(best, all[i].at.y);
    }
    free(all);
}

static void mark_made(const json_t *comparisons)
{
    size_t i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
            json_object_set_new(model, "made", json_string(made_of(model)));
}

/* The SQNR of the tensors that steps make, from what calibrated them, by name; an integer twin's
   name ends with "_quantized". */
static void put_sqnr(const json_t *ranges, json_t *steps)
{
    json_t *by_name = json_object(), *one;
    size_t i;
    json_array_foreach((json_t *)ranges, i, one)
        json_object_set(by_name, text_of(one, "name"), json_object_get(one, "sqnr_db"));
    json_array_foreach(steps, i, one)
    {
        char name[256];
        snprintf(name, sizeof name, "%s", text_of(one, "output"));
        char *end = strstr(name, "_quantized");
        if (end && !strcmp(end, "_quantized")) *end = 0;
        const json_t *db = json_object_get(by_name, name);
        if (json_is_number(db)) json_object_set(one, "sqnr_db", (json_t *)db);
    }
    json_decref(by_name);
}

/* From calibrate to its model, from quantize to its result. */
static void take_ranges(const json_t *comparisons, const json_t *facts)
{
    const json_t *ranges = json_object_get(facts, "ranges");
    json_t *model = ranges ? find_model(comparisons, json_object_get(facts, "output")) : NULL;
    if (ranges && !model) model = find_model(comparisons, json_object_get(facts, "model"));
    const json_t *steps = json_object_get(model, "steps");
    if (!steps) return;
    json_t *own = json_deep_copy(steps); /* the facts stay as they were read */
    put_sqnr(ranges, own);
    json_object_set_new(model, "steps", own);
}

json_t *pare_report_gather(const json_t *facts)
{
    json_t *comparisons = json_array(), *one;
    size_t i;
    json_array_foreach((json_t *)facts, i, one) take_first(comparisons, one);
    json_array_foreach((json_t *)facts, i, one) take_rest(comparisons, one);
    json_array_foreach((json_t *)facts, i, one) take_ranges(comparisons, one);
    mark_made(comparisons);
    mark_front(comparisons, true);
    if (!collect(comparisons, true, NULL)) mark_front(comparisons, false);
    return comparisons;
}

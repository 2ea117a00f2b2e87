/* SPDX-License-Identifier: Apache-2.0 */
/* One list of comparisons from the facts of any commands. */
#include "tools/report/report.h"

#include "formats/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *json, const char *key)
{
    return json_string_value(json_object_get(json, key));
}

/* --- models and comparisons by what they are known by --- */

/* So that a report over thousands of facts finds them without looking through all. */
typedef struct catalog {
    json_t *models;            /* in the order in which they came */
    json_t *by_hash, *by_file; /* the place of the first */
    json_t *nameless;          /* of those without a hash by file */
    json_t *comparisons;       /* by what was compared with what; borrowed by the caller */
} catalog;

/* NULL where there are none. */
static const char *words_of(const json_t *json, const char *key)
{
    const char *text = text_of(json, key);
    return text && *text ? text : NULL;
}

static void catalog_init(catalog *index)
{
    *index = (catalog){json_array(), json_object(), json_object(), json_object(), json_object()};
}

static void catalog_clear(catalog *index)
{
    json_decref(index->models);
    json_decref(index->by_hash);
    json_decref(index->by_file);
    json_decref(index->nameless);
    json_decref(index->comparisons);
}

static void put(json_t *map, const char *key, size_t place)
{
    if (key && !json_object_get(map, key))
        json_object_set_new(map, key, json_integer((json_int_t)place));
}

/* The place that a map has under a key, or else. */
static size_t place_of(const json_t *map, const char *key, size_t other)
{
    const json_t *place = key ? json_object_get(map, key) : NULL;
    return place ? (size_t)json_integer_value(place) : other;
}

static void catalog_add(catalog *index, json_t *model)
{
    const char *hash = words_of(model, "hash"), *file = words_of(model, "file");
    const size_t end = json_array_size(index->models);
    size_t place = place_of(index->nameless, file, end);
    if (place < end && json_array_get(index->models, place) == model) {
        if (!hash) return;
        json_object_del(index->nameless, file);
    } else {
        place = end;
        json_array_append(index->models, model);
        put(index->by_file, file, place);
        if (!hash) put(index->nameless, file, place);
    }
    put(index->by_hash, hash, place);
}

static json_t *catalog_find(const catalog *index, const json_t *like)
{
    const char *hash = words_of(like, "hash"), *file = words_of(like, "file");
    const size_t none = json_array_size(index->models);
    size_t by_name = place_of(hash ? index->nameless : index->by_file, file, none);
    const size_t by_hash = place_of(index->by_hash, hash, none);
    if (by_hash < by_name) by_name = by_hash;
    return json_array_get(index->models, by_name);
}

/* What makes two of validate's facts parts of one comparison, as text. NULL: out of memory. */
static char *key_of(const json_t *facts)
{
    static const char *const parts[] = {"file", "samples", "range", "classes"};
    static const char *const machine[] = {"name", "cuda", "driver", "processor", "isa"};
    const json_t *first = json_array_get(json_object_get(facts, "models"), 0);
    const json_t *data = json_object_get(facts, "data"), *device = json_object_get(facts, "device");
    json_t *key = json_array();
    json_array_append(key, json_object_get(facts, "version"));
    json_array_append(key, json_object_get(first, "file"));
    json_array_append_new(key, json_pack("s?", words_of(first, "hash")));
    for (int i = 0; i < 4; i++)
        json_array_append_new(key, json_pack("[s, O?]", parts[i], json_object_get(data, parts[i])));
    for (int i = 0; i < 5; i++)
        json_array_append_new(
            key, json_pack("[s, O?]", machine[i], json_object_get(device, machine[i])));
    char *text = json_dumps(key, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(key);
    return text;
}

/* --- models --- */

/* What is gathered. */
typedef struct gathering {
    json_t *comparisons;
    catalog index;
} gathering;

/* Those of the keys that are there. */
static void copy_keys(json_t *to, const json_t *from, const char *const *keys)
{
    for (; *keys; keys++)
        if (json_object_get(from, *keys)) json_object_set(to, *keys, json_object_get(from, *keys));
}

/* A comparison of models (stolen) that some facts are about. */
static json_t *add_comparison(gathering *g, const json_t *facts, const json_t *body, json_t *models)
{
    static const char *const keys[] = {"data", "device", "held_out", NULL};
    json_t *one = json_object(), *model;
    size_t k;
    json_object_set(one, "command", json_object_get(facts, "command"));
    json_object_set(one, "version", json_object_get(facts, "version"));
    copy_keys(one, body, keys);
    json_object_set_new(one, "models", models);
    json_array_append_new(g->comparisons, one);
    json_array_foreach(models, k, model) catalog_add(&g->index, model);
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

static bool holds(const gathering *g, const json_t *models, const json_t *model)
{
    size_t i;
    json_t *one;
    if (!catalog_find(&g->index, model)) return false;
    json_array_foreach((json_t *)models, i, one)
    {
        if (json_equal(one, model)) return true;
    }
    return false;
}

/* The first model is timed in turns with each of those it is compared with. */
static void note_drift(json_t *comparison, const json_t *first, const json_t *again)
{
    const double a = pare_report_number(first, "latency_ms.median", NAN);
    const double b = pare_report_number(again, "latency_ms.median", NAN);
    if (fabs(a - b) > 0.05 * a) json_object_set_new(comparison, "drifted", json_true());
}

/* More models that were compared with the first of a comparison. Readings of a GPU's meter and
   clocks are of one run: of several runs none is kept. */
static void join(gathering *g, json_t *comparison, const json_t *body)
{
    json_t *models = json_object_get(comparison, "models"), *one, *copy;
    const json_t *device = json_object_get(comparison, "device");
    size_t i;
    json_array_foreach(json_object_get(body, "models"), i, one)
    {
        if (!i) {
            json_object_update_missing(json_array_get(models, 0), one);
            note_drift(comparison, json_array_get(models, 0), one);
        }
        if (!i || holds(g, models, one)) continue;
        json_array_append_new(models, copy = json_copy(one));
        catalog_add(&g->index, copy);
    }
    if (json_equal(device, json_object_get(body, "device"))) return;
    copy = json_copy((json_t *)device);
    json_object_set_new(copy, json_object_get(copy, "cuda") ? "vitals" : "mhz", json_null());
    json_object_set_new(comparison, "device", copy);
}

static bool is_command(const json_t *facts, const char *name)
{
    const char *command = text_of(facts, "command");
    return command && !strcmp(command, name);
}

static void take_compared(gathering *g, const json_t *facts)
{
    const json_t *compared = json_object_get(facts, "compared");
    const json_t *body = compared ? compared : facts;
    char *key = is_command(facts, "validate") ? key_of(facts) : NULL;
    json_t *same = key ? json_object_get(g->index.comparisons, key) : NULL;
    if (same)
        join(g, same, body);
    else
        same = add_comparison(g, facts, body, copies(json_object_get(body, "models")));
    if (key) json_object_set(g->index.comparisons, key, same);
    free(key);
}

/* Models that were made from one another: those not known yet, the first in front of them. */
static void take_made(gathering *g, const json_t *facts, const json_t *first, const json_t *made)
{
    json_t *models = json_array(), *one;
    size_t i;
    json_array_foreach((json_t *)made, i, one)
    {
        if (!catalog_find(&g->index, one)) json_array_append_new(models, json_copy(one));
    }
    if (!json_array_size(models)) {
        json_decref(models);
        return;
    }
    if (first) json_array_insert_new(models, 0, json_copy((json_t *)first));
    add_comparison(g, facts, facts, models);
}

/* file, hash, bytes and precision of rows that hold more. */
static json_t *files_of(const json_t *rows)
{
    static const char *const keys[] = {"file", "hash", "bytes", "precision", "recipe", NULL};
    json_t *list = json_array(), *row;
    size_t i;
    json_array_foreach((json_t *)rows, i, row)
    {
        json_t *file = json_object();
        copy_keys(file, row, keys);
        json_array_append_new(list, file);
    }
    return list;
}

static void take_pruned(gathering *g, const json_t *facts)
{
    const json_t *rows = json_object_get(facts, "smaller");
    json_t *files = files_of(rows ? rows : json_object_get(facts, "sparse")), *file;
    size_t i;
    json_array_foreach(files, i, file)
        json_object_set_new(file, "made", json_string("pruned or tuned"));
    take_made(g, facts, json_object_get(facts, "model"), files);
    json_decref(files);
}

/* As another of the facts said, else as its recipe says. */
static const char *made_of(const json_t *model)
{
    const char *made = text_of(model, "made");
    return made ? made : pare_report_made(text_of(model, "recipe"));
}

/* quantize's or distill's result, with what it was made from. */
static void take_output(gathering *g, const json_t *facts, const char *from)
{
    const json_t *first = json_object_get(facts, from);
    const json_t *known = catalog_find(&g->index, first);
    const bool tuned =
        strcmp(from, "model") != 0 || (known && !strcmp(made_of(known), "pruned or tuned"));
    json_t *made = json_pack("[o]", json_copy(json_object_get(facts, "output")));
    json_object_set_new(json_array_get(made, 0), "made",
                        json_string(tuned ? "pruned or tuned" : "calibrated only"));
    take_made(g, facts, first, made);
    json_decref(made);
}

/* Facts of one model: added to the model that is there, else a comparison of its own. */
static void take_model(gathering *g, const json_t *facts, json_t *said)
{
    json_t *model = catalog_find(&g->index, said);
    if (model) {
        const bool nameless = !text_of(model, "hash");
        json_object_update_missing(model, said);
        if (nameless) catalog_add(&g->index, model);
    } else
        add_comparison(g, facts, facts, json_pack("[O]", said));
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
    static const char *const keys[] = {"file",       "bytes",           "precision",
                                       "parameters", "macs_per_sample", NULL};
    json_t *said = json_object();
    copy_keys(said, json_object_get(facts, "model"), keys);
    return said;
}

/* Models that were compared come first: what the others say goes to them. */
static void take_first(gathering *g, const json_t *facts)
{
    size_t i;
    json_t *one;
    if (is_command(facts, "validate") ||
        (is_command(facts, "prune") && json_object_get(facts, "compared")))
        take_compared(g, facts);
    if (is_command(facts, "report"))
        json_array_foreach(json_object_get(facts, "comparisons"), i, one) take_compared(g, one);
}

static void take_rest(gathering *g, const json_t *facts)
{
    if (is_command(facts, "prune") && !json_object_get(facts, "compared"))
        take_pruned(g, facts);
    else if (is_command(facts, "quantize"))
        take_output(g, facts, "model");
    else if (is_command(facts, "distill"))
        take_output(g, facts, "teacher");
    else if (is_command(facts, "bench"))
        take_model(g, facts, bench_model(facts));
    else if (is_command(facts, "inspect"))
        take_model(g, facts, inspect_model(facts));
    else if (is_command(facts, "profile"))
        take_model(g, facts,
                   json_pack("{s:O, s:O}", "file", json_object_get(facts, "model"), "steps",
                             json_object_get(facts, "steps")));
}

static void mark_made(const json_t *comparisons)
{
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
        json_object_set_new(m.model, "made", pare_json_text(made_of(m.model)));
}

/* The SQNR of the tensors that steps make, from what calibrated them, by name. */
static void put_sqnr(const json_t *ranges, json_t *steps)
{
    json_t *by_name = json_object(), *one;
    size_t i;
    json_array_foreach((json_t *)ranges, i, one)
        json_object_set(by_name, text_of(one, "name"), json_object_get(one, "sqnr_db"));
    json_array_foreach(steps, i, one)
    {
        char name[256];
        const json_t *db = json_object_get(by_name, pare_report_output(one, name, sizeof name));
        if (json_is_number(db)) json_object_set(one, "sqnr_db", (json_t *)db);
    }
    json_decref(by_name);
}

/* From calibrate to its model, from quantize to its result. */
static void take_ranges(const gathering *g, const json_t *facts)
{
    const json_t *ranges = json_object_get(facts, "ranges");
    json_t *model = ranges ? catalog_find(&g->index, json_object_get(facts, "output")) : NULL;
    if (ranges && !model) model = catalog_find(&g->index, json_object_get(facts, "model"));
    const json_t *steps = json_object_get(model, "steps");
    if (!steps) return;
    json_t *own = json_deep_copy(steps); /* the facts stay as they were read */
    put_sqnr(ranges, own);
    json_object_set_new(model, "steps", own);
}

json_t *pare_report_gather(const json_t *facts)
{
    gathering g = {.comparisons = json_array()};
    json_t *one;
    size_t i;
    catalog_init(&g.index);
    json_array_foreach((json_t *)facts, i, one) take_first(&g, one);
    json_array_foreach((json_t *)facts, i, one) take_rest(&g, one);
    json_array_foreach((json_t *)facts, i, one) take_ranges(&g, one);
    catalog_clear(&g.index);
    mark_made(g.comparisons);
    pare_report_mark_fronts(g.comparisons);
    return g.comparisons;
}

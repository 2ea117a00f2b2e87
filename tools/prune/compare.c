/* SPDX-License-Identifier: Apache-2.0 */
/* The models that pruning wrote, and the one they came from, on the same samples: those of the data
   set that pruning did not see, where there are some. */
#include "formats/onnx.h"
#include "runtime/graph/pattern.h"
#include "tools/check_output.h"
#include "tools/prune/prune.h"
#include "tools/prune/report.h"
#include "tools/validate.h"
#include "tools/telemetry.h"

#include <stdlib.h>
#include <string.h>

/* Models in memory at once; samples, and the fewest that are worth more than those seen. */
enum { AT_ONCE = 8, SAMPLES = 1000, FEWEST = 20 };

typedef struct comparison {
    pare_tool *tool;
    const pare_prune_options *o;
    json_t *rows, *models, *layers; /* layers: {node: true} */
    pare_model *model;              /* whose inputs the source names */
    pare_source source;             /* data NULL: none given */
    bool held;
    int64_t classes;
} comparison;

/* --- samples --- */

/* Every sample in the range that is not among the seen (ascending), in order. */
static int64_t leave_out(int64_t *sample, int64_t count, const pare_source *seen)
{
    int64_t left = 0, at = 0;
    for (int64_t i = 0; i < count; i++) {
        while (at < seen->count && seen->samples[at] < sample[i]) at++;
        if (at < seen->count && seen->samples[at] == sample[i]) continue;
        sample[left++] = sample[i];
    }
    return left;
}

static pare_status choose_samples(comparison *c, const pare_source *seen)
{
    pare_source_options options = c->o->source;
    options.samples = options.shuffle = -1;
    PARE_TRY(pare_onnx_read(c->tool->ctx, &c->model, c->tool->arg[0]));
    PARE_TRY(pare_source_open(c->tool, &c->source, c->model, &options, -1));
    pare_source *s = &c->source;
    int64_t *all = pare_arena_alloc(&c->tool->arena, (size_t)s->count, sizeof *all);
    int64_t *chosen = pare_arena_alloc(&c->tool->arena, SAMPLES, sizeof *chosen);
    if (!all || !chosen) return PARE_MEMORY;
    memcpy(all, s->samples, (size_t)s->count * sizeof *all);
    int64_t left = leave_out(all, s->count, seen);
    c->held = left >= FEWEST;
    if (!c->held) {
        memcpy(all, s->samples, (size_t)s->count * sizeof *all);
        left = s->count;
    }
    s->count = left < SAMPLES ? left : SAMPLES;
    pare_data_spread(0, left, s->count, chosen);
    for (int64_t i = 0; i < s->count; i++) chosen[i] = all[chosen[i]];
    s->samples = chosen;
    return PARE_OK;
}

/* --- times of layers --- */

/* The layer that made a value, with nothing between them that is a step of its own; or NULL. */
static const char *layer_behind(const comparison *c, const pare_value *value, const json_t *ends,
                                int depth)
{
    enum { DEEPEST = 32 };
    const pare_node *node = value ? value->producer : NULL;
    if (!node || depth > DEEPEST) return NULL;
    const char *name = pare_pattern_name(node);
    if (json_object_get(c->layers, name)) return name;
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i] || json_object_get(ends, node->in[i]->name)) continue;
        const char *found = layer_behind(c, node->in[i], ends, depth + 1);
        if (found) return found;
    }
    return NULL;
}

/* Adds milliseconds to a number of an object. */
static void add_time(json_t *times, const char *key, double ms)
{
    json_object_set_new(times, key, json_real(ms + json_real_value(json_object_get(times, key))));
}

/* {node: milliseconds} of the layers; other steps add up under "". */
static json_t *times_of(const comparison *c, const pare_validated *one)
{
    json_t *times = json_object(), *ends = json_object(), *step;
    size_t i;
    json_array_foreach(one->steps, i, step)
        json_object_set(ends, json_string_value(json_object_get(step, "output")), step);
    json_array_foreach(one->steps, i, step)
    {
        const char *output = json_string_value(json_object_get(step, "output")), *layer = NULL;
        if (json_number_value(json_object_get(step, "macs")) > 0)
            layer = layer_behind(c, pare_graph_find_own(one->model->graph, output), ends, 0);
        add_time(times, layer ? layer : "", json_real_value(json_object_get(step, "time_ms")));
    }
    json_decref(ends);
    return times;
}

static void put_times(json_t *to, const char *key, const json_t *before, const json_t *after,
                      const char *layer)
{
    json_t *x = json_object_get(before, layer), *y = json_object_get(after, layer);
    if (x && y) json_object_set_new(to, key, json_pack("{s:O, s:O}", "before", x, "after", y));
}

/* first: the row of model 1 */
static void put_layers(const comparison *c, const pare_validation *validation, size_t first)
{
    if (!validation->model[0].steps) return;
    json_t *before = times_of(c, &validation->model[0]), *layer;
    for (int k = 1; k < validation->count; k++) {
        json_t *row = json_array_get(c->rows, first + (size_t)k - 1);
        json_t *after = times_of(c, &validation->model[k]);
        size_t i;
        json_array_foreach(json_object_get(row, "layers"), i, layer) put_times(
            layer, "time_ms", before, after, json_string_value(json_object_get(layer, "node")));
        put_times(row, "other_time_ms", before, after, "");
        json_decref(after);
    }
    json_decref(before);
}

/* --- models --- */

/* Without data: can the model be run at the shapes it has? A warning where not. */
static bool has_shapes(const comparison *c, const pare_model *model)
{
    int count;
    pare_value **inputs = pare_model_inputs(&c->tool->arena, model, &count);
    for (int i = 0; inputs && i < count; i++) {
        bool known = inputs[i]->shape.rank >= 0;
        for (int d = 1; d < inputs[i]->shape.rank; d++) known &= inputs[i]->shape.dim[d] >= 0;
        if (known) continue;
        pare_log(c->tool->ctx, PARE_LOG_WARNING,
                 "%s: the report has no latency: input '%s' has sizes that only --data could tell",
                 model->path, inputs[i]->name);
        return false;
    }
    return inputs != NULL;
}

/* Models are written by now: a doubt about the data is said, no failure. */
static void doubt(const comparison *c, const pare_validation *validation)
{
    const pare_candidate *dense = pare_comparison_candidate(validation->comparison, 0);
    const int64_t classes = pare_comparison_classes(validation->comparison);
    const int64_t samples = pare_comparison_samples(validation->comparison);
    if (!classes || !pare_stats_near_chance(dense->top1, samples, classes)) return;
    pare_log(c->tool->ctx, PARE_LOG_WARNING,
             "%s: top-1 before pruning is %.2f %% on %lld samples, near chance (%.2f %% for %lld "
             "classes): is the preprocessing of %s the model's? Scores and refit rest on it, too",
             dense->model->path, 100 * (double)dense->top1 / (double)samples, (long long)samples,
             100 / (double)classes, (long long)classes, validation->data);
}

static pare_status measure(comparison *c, pare_validation *validation, const pare_source *seen)
{
    const pare_common *common = &c->o->common;
    /* outputs with fewer channels compare with nothing */
    if (c->o->source.data && !c->o->outputs) {
        if (!c->source.data) PARE_TRY(choose_samples(c, seen));
        PARE_TRY(pare_validation_run(validation, &c->source, &c->o->source));
        if (!c->classes) doubt(c, validation);
        c->classes = pare_comparison_classes(validation->comparison);
    }
    if (!c->o->report) return PARE_OK;
    if (!c->source.data && !has_shapes(c, validation->model[0].model)) return PARE_OK;
    return pare_validation_time(validation, c->source.data ? &c->source : NULL,
                                (int)common->threads);
}

/* Models of rows first to first + count - 1, and in front of them the dense one again. */
static pare_status compare_some(comparison *c, size_t first, int count, const pare_source *seen)
{
    const char *path[AT_ONCE + 1] = {c->tool->arg[0]};
    pare_validation validation = {.tool = c->tool,
                                  .count = count + 1,
                                  .any_accuracy = true,
                                  .profile = true,
                                  .data = c->o->source.data};
    for (int k = 0; k < count; k++)
        path[k + 1] =
            json_string_value(json_object_get(json_array_get(c->rows, first + (size_t)k), "file"));
    pare_status st = pare_validation_open(&validation, path);
    if (st == PARE_OK) st = measure(c, &validation, seen);
    json_t *models = st == PARE_OK ? pare_validation_json(&validation) : NULL;
    if (st == PARE_OK && !models) st = PARE_MEMORY;
    for (int k = first ? 1 : 0; st == PARE_OK && k <= count; k++) {
        double zipped;
        json_t *model = json_array_get(models, (size_t)k);
        st = pare_prune_zipped(c->tool->ctx, path[k], &zipped);
        json_object_set_new(model, "zlib_bytes", json_real(zipped));
        json_array_append(c->models, model);
    }
    if (st == PARE_OK) put_layers(c, &validation, first);
    json_decref(models);
    pare_validation_close(&validation);
    return st;
}

static pare_status compare_all(comparison *c, const pare_source *seen)
{
    size_t rows = json_array_size(c->rows), i;
    json_t *layer;
    json_array_foreach(json_object_get(json_array_get(c->rows, 0), "layers"), i, layer)
        json_object_set_new(c->layers, json_string_value(json_object_get(layer, "node")),
                            json_true());
    for (i = 0; i < rows; i += AT_ONCE)
        PARE_TRY(compare_some(c, i, rows - i < AT_ONCE ? (int)(rows - i) : AT_ONCE, seen));
    return PARE_OK;
}

pare_status pare_prune_compare(pare_tool *tool, const pare_prune_options *o,
                               const pare_source *seen, json_t *rows)
{
    comparison c = {.tool = tool, .o = o, .rows = rows};
    pare_watch *watch;
    PARE_TRY(pare_tool_open_device(tool));
    PARE_TRY(pare_watch_start(tool->ctx, &watch, tool->device));
    c.models = json_array();
    c.layers = json_object();
    pare_status st = compare_all(&c, seen);
    json_t *device = pare_watch_end(watch);
    if (st == PARE_OK && !device) st = PARE_MEMORY;
    if (st == PARE_OK) {
        json_t *compared = json_pack("{s:O, s:O}", "models", c.models, "device", device);
        if (c.source.data) {
            json_t *data = pare_source_json(&c.source, &o->source);
            if (c.classes) json_object_set_new(data, "classes", json_integer(c.classes));
            json_object_set_new(compared, "data", data);
            json_object_set_new(compared, "held_out", json_boolean(c.held));
        }
        json_object_set_new(tool->facts, "compared", compared);
    }
    json_decref(device);
    json_decref(c.models);
    json_decref(c.layers);
    pare_source_close(&c.source);
    pare_model_free(c.model);
    return st;
}

/* --sweep: one model after the other, each in a file of its own. */

/* The next number of the list; *at moves after it, to NULL after the last. None of everything is
   no target of what is kept. */
static pare_status next_value(pare_ctx *ctx, const pare_prune_options *o, const char **at,
                              double *out)
{
    char *end;
    bool zeroed = o->sparsity >= 0;
    *out = strtod(*at, &end);
    if (end == *at || (*end && *end != ',') || !(*out >= (zeroed ? 0 : 1e-6) && *out <= 1))
        return PARE_FAIL(ctx, USAGE,
                         "prune: --sweep %s: expected numbers %s 0 %s 1, as 0.9,0.7,0.5", o->sweep,
                         zeroed ? "from" : "above", zeroed ? "to" : "and up to");
    *at = *end ? end + 1 : NULL;
    return PARE_OK;
}

/* OUT-0.90.onnx */
static pare_status sweep_path(pare_tool *tool, const pare_prune_options *o, double value,
                              const char **path)
{
    const char *out = o->output;
    const char *dot = strrchr(out, '.'), *slash = strrchr(out, '/');
    int stem = dot && (!slash || dot > slash) ? (int)(dot - out) : (int)strlen(out);
    char number[32];
    snprintf(number, sizeof number, "%.2f", value);
    if (strtod(number, NULL) != value) snprintf(number, sizeof number, "%.10g", value);
    *path = pare_arena_printf(&tool->arena, "%.*s-%s%s", stem, out, number, out + stem);
    if (!*path) return PARE_MEMORY;
    const char *const other[] = {o->report, o->common.json};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (other[i] && !strcmp(other[i], *path))
            return PARE_FAIL(tool->ctx, USAGE,
                             "prune: '%s' is a model of the sweep; give %s another name", *path,
                             i ? "--json" : "--report");
    return pare_check_output(tool->ctx, *path, tool->arg, tool->arg_count);
}

pare_status pare_prune_sweep(pare_tool *tool, const pare_prune_options *o,
                             pare_status (*each)(void *user, double value, const char *path),
                             void *user)
{
    const char *path;
    double value;
    for (const char *at = o->sweep; at;) {
        PARE_TRY(next_value(tool->ctx, o, &at, &value));
        PARE_TRY(sweep_path(tool, o, value, &path));
        for (const char *more = at; more;) {
            double other;
            PARE_TRY(next_value(tool->ctx, o, &more, &other));
            if (other == value)
                return PARE_FAIL(tool->ctx, USAGE, "prune: --sweep %s: %g is there twice", o->sweep,
                                 value);
        }
    }
    for (const char *at = o->sweep; at;) {
        PARE_TRY(next_value(tool->ctx, o, &at, &value));
        PARE_TRY(sweep_path(tool, o, value, &path));
        PARE_TRY(each(user, value, path));
    }
    return PARE_OK;
}

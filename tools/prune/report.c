/* SPDX-License-Identifier: Apache-2.0 */
/* The table for people, and what all views of pruning share. */
#include "tools/prune/report.h"

#include "formats/file.h"
#include "tools/report/report.h"
#include "tools/report/page.h"
#include "tools/table.h"
#include "tools/text.h"

#include <math.h>
#include <string.h>
#include <zlib.h>

pare_status pare_prune_zipped(pare_ctx *ctx, const char *path, double *out)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, path));
    uLongf n = compressBound((uLong)map.size);
    void *to = pare_alloc(ctx, n, 1);
    bool ok = to && compress2(to, &n, map.data, (uLong)map.size, 6) == Z_OK;
    pare_free(to);
    pare_map_close(&map);
    *out = (double)n;
    return ok ? PARE_OK : PARE_FAIL(ctx, MEMORY, "%s: no memory to compress it", path);
}

void pare_prune_put_held(json_t *row, const pare_unstructured_layer *layer)
{
    if (layer->masked >= 0 && layer->fitted >= 0)
        json_object_set_new(
            row, "held_out",
            json_pack("{s:f, s:f}", "masked", layer->masked, "fitted", layer->fitted));
}

json_t *pare_prune_rows(const json_t *facts, bool *channels)
{
    json_t *rows = json_object_get(facts, "smaller");
    *channels = rows != NULL;
    return rows ? rows : json_object_get(facts, "sparse");
}

double pare_prune_left(const json_t *row, const char *what)
{
    char path[64];
    if (!strcmp(what, "weights")) return 100 * (1 - pare_report_number(row, "sparsity", NAN));
    snprintf(path, sizeof path, "%s.before", what);
    double before = pare_report_number(row, path, NAN);
    snprintf(path, sizeof path, "%s.after", what);
    return before > 0 ? 100 * pare_report_number(row, path, NAN) / before : NAN;
}

const char *pare_prune_name(const json_t *model, char *text, size_t size)
{
    const char *path = json_string_value(json_object_get(model, "file"));
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    snprintf(text, size, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    return text;
}

const char *pare_prune_seen_text(const json_t *facts)
{
    bool channels;
    const json_t *row = json_array_get(pare_prune_rows(facts, &channels), 0);
    if (!json_is_true(json_object_get(json_object_get(facts, "compared"), "held_out")))
        return "that pruning saw, too: it has no others";
    return json_object_get(row, "distilled")
               ? "that were not trained on, but decided which weights were kept"
               : "that pruning did not see";
}

/* --- the table --- */

static bool any_number(const json_t *models, const char *path)
{
    size_t i;
    json_t *model;
    json_array_foreach((json_t *)models, i, model)
    {
        if (!isnan(pare_report_number(model, path, NAN))) return true;
    }
    return false;
}

/* "49.8", or "" */
static const char *percent(double value, char *text, size_t size)
{
    *text = 0;
    if (!isnan(value)) snprintf(text, size, "%.1f", value);
    return text;
}

static const char *bytes(const json_t *json, const char *key, char *text, size_t size)
{
    double value = pare_report_number(json, key, NAN);
    *text = 0;
    return isnan(value) ? text : pare_bytes_text(value, text, size);
}

static void add_row(pare_table *table, const json_t *model, const json_t *row, bool channels,
                    bool labels)
{
    char name[96], size[24], a[24], b[24], top1[16], drop[48], agree[16], db[16], ms[16], speed[16];
    for (char *c = (char *)pare_prune_name(model, name, sizeof name); *c; c++)
        if (*c == '|') *c = '/';
    if (channels) {
        percent(row ? pare_prune_left(row, "macs") : 100, a, sizeof a);
        percent(row ? pare_prune_left(row, "parameters") : 100, b, sizeof b);
    } else {
        percent(row ? pare_prune_left(row, "weights") : NAN, a, sizeof a);
        bytes(model, "zlib_bytes", b, sizeof b);
    }
    pare_report_drop(model, drop, sizeof drop);
    pare_report_text(model, "top1", "%.2f", top1, sizeof top1);
    pare_report_text(model, "agreement", "%.2f", agree, sizeof agree);
    pare_report_text(model, "outputs.0.sqnr_db", "%.1f", db, sizeof db);
    pare_report_latency(model, ms, sizeof ms);
    pare_report_text(model, "speed_up", "%.2fx", speed, sizeof speed);
    bytes(model, "bytes", size, sizeof size);
    if (labels)
        pare_table_add(table, "%s|%s|%s|%s|%s|%s|%s|%s|%s|%s", name, a, b, size, top1, drop, agree,
                       db, ms, speed);
    else
        pare_table_add(table, "%s|%s|%s|%s|%s|%s|%s|%s", name, a, b, size, agree, db, ms, speed);
}

static void print_models(pare_arena *arena, const json_t *facts, FILE *file)
{
    const json_t *compared = json_object_get(facts, "compared");
    const json_t *models = json_object_get(compared, "models");
    bool channels, labels = any_number(models, "top1");
    const json_t *rows = pare_prune_rows(facts, &channels);
    pare_table table;
    char heads[128];
    size_t i;
    json_t *model;
    pare_table_init(&table, arena, labels ? "lrrrrrrrrr" : "lrrrrrrr");
    snprintf(heads, sizeof heads, "model|%s|size|%sagree %%|SQNR dB|latency ms|speed-up",
             channels ? "MACs %|params %" : "weights %|zlib", labels ? "top-1 %|drop [95 %]|" : "");
    pare_table_add_line(&table, heads);
    json_array_foreach((json_t *)models, i, model)
        add_row(&table, model, i ? json_array_get(rows, i - 1) : NULL, channels, labels);
    pare_table_print(&table, file);
    const json_t *data = json_object_get(compared, "data");
    if (data)
        pare_print(file, "on %lld samples of %s %s\n",
                   (long long)pare_report_number(data, "samples", 0),
                   json_string_value(json_object_get(data, "file")), pare_prune_seen_text(facts));
}

pare_status pare_prune_show(pare_tool *tool, const json_t *facts, FILE *file, const char *path)
{
    if (file) print_models(&tool->arena, facts, file);
    if (!path) return PARE_OK;
    return pare_page_is_picture(path) ? pare_prune_picture_write(tool->ctx, facts, path)
                                      : pare_prune_page_write(tool->ctx, facts, path);
}

pare_status pare_prune_finish(pare_tool *tool, const pare_prune_options *o, const pare_source *seen,
                              json_t *rows)
{
    if (!o->report && !(o->sweep && o->source.data)) return PARE_OK;
    PARE_TRY(pare_prune_compare(tool, o, seen, rows));
    return pare_prune_show(tool, tool->facts, o->common.quiet ? NULL : stderr, o->report);
}

/* --- facts from a file --- */

/* Objects with texts under this key, at least one. */
static bool all_have(const json_t *list, const char *key)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)list, i, item)
    {
        if (!json_is_string(json_object_get(item, key))) return false;
    }
    return json_array_size(list) > 0;
}

bool pare_prune_fits(const json_t *facts)
{
    bool channels;
    const json_t *rows = pare_prune_rows(facts, &channels);
    const json_t *compared = json_object_get(facts, "compared");
    const json_t *models = json_object_get(compared, "models"),
                 *data = json_object_get(compared, "data"), *row;
    if (!all_have(rows, "file") || !all_have(models, "file") ||
        json_array_size(models) != json_array_size(rows) + 1 ||
        !json_is_string(json_object_get(json_object_get(facts, "model"), "file")))
        return false;
    for (size_t i = 0; (row = json_array_get(rows, i)); i++)
        if (!all_have(json_object_get(row, "layers"), "node")) return false;
    return !data || json_is_string(json_object_get(data, "file"));
}

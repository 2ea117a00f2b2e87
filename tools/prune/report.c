/* SPDX-License-Identifier: Apache-2.0 */
/* The table for people, and what all views of pruning share. */
#include "tools/prune/report.h"

#include "formats/file.h"
#include "tools/report/report.h"
#include "tools/report/page.h"

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

/* The rows of a grid are the compared models; extra: what pruning says of them, NULL of the dense
   one. */

static void name_cell(pare_cell *cell)
{
    char name[128];
    pare_report_name(cell->row, name, sizeof name);
    if (cell->medium == PARE_HTML) cell->title = pare_report_words(cell->row, "file");
    for (char *c = name; *c && cell->medium != PARE_HTML; c++)
        if (*c == '|') *c = '/';
    pare_text_put(cell->text, cell->medium, "%s", name);
}

static void left_cell(pare_cell *cell)
{
    const char *what = cell->column->path;
    pare_cell_percent(cell, cell->extra               ? pare_prune_left(cell->extra, what)
                            : strcmp(what, "weights") ? 100
                                                      : NAN);
}

static void csr_cell(pare_cell *cell)
{
    cell->row = cell->extra;
    pare_cell_bytes(cell);
}

enum { CHANNELS = 1, WEIGHTS = 2, LABELS = 4, AGREEMENT = 8, SQNR = 16 };

static const pare_column columns[] = {
    PARE_COLUMN("model", "model", NULL, name_cell, .left = true),
    PARE_COLUMN("MACs %", "multiply-adds", "macs", left_cell, .when = CHANNELS),
    PARE_COLUMN("params %", "parameters", "parameters", left_cell, .when = CHANNELS),
    PARE_COLUMN("weights %", "weights not 0", "weights", left_cell, .when = WEIGHTS),
    PARE_COLUMN("zlib", NULL, "zlib_bytes", pare_cell_bytes, .when = WEIGHTS),
    PARE_COLUMN("size", "size", "bytes", pare_cell_bytes),
    PARE_COLUMN(NULL, "through zlib", "zlib_bytes", pare_cell_bytes),
    PARE_COLUMN(NULL, "sparse rows", "csr_bytes", csr_cell, .when = WEIGHTS),
    PARE_COLUMN("top-1 %", "top-1", "top1", pare_cell_fixed, 2, " %", LABELS),
    PARE_COLUMN("drop [95 %]", "drop [95&nbsp;%]", NULL, pare_cell_drop, .when = LABELS),
    PARE_COLUMN("agree %", NULL, "agreement", pare_cell_fixed, 2),
    PARE_COLUMN(NULL, "agreement", "agreement", pare_cell_fixed, 2, " %", AGREEMENT),
    PARE_COLUMN("SQNR dB", NULL, "outputs.0.sqnr_db", pare_cell_fixed, 1),
    PARE_COLUMN(NULL, "SQNR", "outputs.0.sqnr_db", pare_cell_fixed, 1, " dB", SQNR),
    PARE_COLUMN("latency ms", "latency", NULL, pare_cell_latency),
    PARE_COLUMN("speed-up", NULL, "speed_up", pare_cell_times),
    PARE_COLUMN(NULL, "speed-up", "speed_up", pare_cell_times, .when = CHANNELS),
    {0},
};

static unsigned parts_of(const json_t *facts)
{
    const json_t *models = pare_report_find(facts, "compared.models");
    bool channels;
    (void)pare_prune_rows(facts, &channels);
    unsigned parts = channels ? CHANNELS : WEIGHTS;
    if (pare_report_any(models, "agreement")) parts |= AGREEMENT;
    if (pare_report_any(models, "top1")) return parts | LABELS;
    return pare_report_any(models, "outputs.0.sqnr_db") ? parts | SQNR : parts;
}

static void add_rows(pare_grid *grid, const json_t *facts)
{
    bool channels;
    const json_t *models = pare_report_find(facts, "compared.models");
    const json_t *rows = pare_prune_rows(facts, &channels);
    size_t i;
    json_t *model;
    json_array_foreach((json_t *)models, i, model)
        pare_grid_row(grid, model, i ? json_array_get(rows, i - 1) : NULL, NULL);
}

void pare_prune_models_add(pare_text *text, const json_t *facts)
{
    pare_grid grid;
    pare_grid_html(&grid, text, columns, parts_of(facts), "numbers", NULL);
    add_rows(&grid, facts);
    pare_grid_end(&grid, "");
}

static void print_models(pare_arena *arena, const json_t *facts, FILE *file)
{
    const json_t *data = pare_report_find(facts, "compared.data");
    pare_grid grid;
    pare_grid_table(&grid, arena, columns, parts_of(facts));
    add_rows(&grid, facts);
    pare_table_print(&grid.table, file);
    if (data)
        pare_print(file, "on %lld samples of %s %s\n",
                   (long long)pare_report_number(data, "samples", 0),
                   pare_report_words(data, "file"), pare_prune_seen_text(facts));
}

pare_status pare_prune_show(pare_tool *tool, const json_t *facts, FILE *file, const char *path)
{
    if (file) print_models(&tool->arena, facts, file);
    pare_text text = {.ctx = tool->ctx};
    if (!path) return PARE_OK;
    if (!pare_page_is_picture(path))
        pare_prune_page_add(&text, facts);
    else if (!pare_prune_picture_add(&text, facts))
        return PARE_FAIL(tool->ctx, INPUT,
                         "%s: there is no picture: it needs a sweep of two models or more and what "
                         "they compute of --data",
                         path);
    return pare_page_write(&text, path);
}

pare_status pare_prune_finish(pare_tool *tool, const pare_prune_options *o, const pare_source *seen,
                              json_t *rows)
{
    if (!o->report && !(o->sweep && o->source.data)) return PARE_OK;
    if (tool->comm) return PARE_OK; /* the other ranks are done: validate compares */
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

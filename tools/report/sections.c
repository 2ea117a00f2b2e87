/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of layers (what runs, how long, with how many channels) and of what was done, and the
   list of what was not measured. */
#include "tools/cpu_info.h"
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/telemetry.h"

#include <math.h>
#include <string.h>

/* --- channels --- */

/* Of a step's output: (N, C, ...) of images and convolutions, else the last dim. 0: it has none. */
static long long channels_of(const json_t *step)
{
    const json_t *shape = json_object_get(step, "shape");
    const size_t rank = json_array_size(shape);
    const bool second =
        rank == 4 || (rank > 2 && strstr(pare_report_words(step, "op_type"), "Conv"));
    if (rank < 2) return 0;
    return (long long)json_integer_value(json_array_get(shape, second ? 1 : rank - 1));
}

/* Channels by what the steps make. */
static json_t *index_channels(const json_t *model)
{
    json_t *index = json_object(), *step;
    char name[256];
    size_t i;
    json_array_foreach(json_object_get(model, "steps"), i, step) json_object_set_new_nocheck(
        index, pare_report_output(step, name, sizeof name), json_integer(channels_of(step)));
    return index;
}

/* "13 of 16" where the first model has more. extra: its channels. */
static void channels_cell(pare_cell *cell)
{
    char name[256];
    const long long now = channels_of(cell->row);
    const json_t *known =
        json_object_get(cell->extra, pare_report_output(cell->row, name, sizeof name));
    const long long before = known ? (long long)json_integer_value(known) : now;
    if (!now) return;
    pare_text_add(cell->text, "%lld", now);
    if (before == now) return;
    cell->sort = (double)now;
    pare_text_add(cell->text, " of %lld", before);
}

/* --- layers --- */

static void share_cell(pare_cell *cell)
{
    pare_cell_percent(cell, 100 * pare_report_number(cell->row, "share", 0));
}

static void shape_cell(pare_cell *cell)
{
    const json_t *shape = json_object_get(cell->row, "shape");
    cell->sort = pare_report_number(shape, "1", 0);
    pare_page_shape(cell->text, shape);
}

enum { SQNR = 1 };

static const pare_column layer_columns[] = {
    PARE_COLUMN(NULL, "node", "node", pare_cell_words),
    PARE_COLUMN(NULL, "operator", "op_type", pare_cell_words),
    PARE_COLUMN(NULL, "precision", "precision", pare_cell_words),
    PARE_COLUMN(NULL, "time", "time_ms", pare_cell_fixed, 4, " ms"),
    PARE_COLUMN(NULL, "share", NULL, share_cell),
    PARE_COLUMN(NULL, "read", "bytes_in", pare_cell_bytes),
    PARE_COLUMN(NULL, "written", "bytes_out", pare_cell_bytes),
    PARE_COLUMN(NULL, "SQNR", "sqnr_db", pare_cell_fixed, 1, " dB", SQNR),
    PARE_COLUMN(NULL, "channels", NULL, channels_cell),
    PARE_COLUMN(NULL, "output", NULL, shape_cell),
    PARE_COLUMN(NULL, "kernel", "kernel", pare_cell_words),
    {0},
};

static bool any_sqnr(const json_t *steps)
{
    size_t i;
    json_t *step;
    json_array_foreach((json_t *)steps, i, step)
    {
        if (json_object_get(step, "sqnr_db")) return true;
    }
    return false;
}

static void layers_of(pare_text *t, const json_t *model, const json_t *first, bool open)
{
    char name[128];
    const json_t *steps = json_object_get(model, "steps");
    pare_grid grid;
    size_t i;
    json_t *step;
    pare_text_html(t, "<details%s><summary>%s, %zu steps</summary>", open ? " open" : "",
                   pare_report_name(model, name, sizeof name), json_array_size(steps));
    pare_grid_html(&grid, t, layer_columns, any_sqnr(steps) ? SQNR : 0, "sort", "Layers");
    json_array_foreach((json_t *)steps, i, step) pare_grid_row(&grid, step, first, NULL);
    pare_grid_end(&grid, "</details>");
}

void pare_parts_layers(pare_text *t, const json_t *comparisons)
{
    enum { MOST = 8 };
    json_t *first = NULL;
    size_t n = 0, done = 0;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
        n += json_object_get(m.model, "steps") != NULL;
    if (!n || n > MOST) return;
    pare_text_add(t, "<h2>Layers</h2>\n<p class=\"soft\">What the runtime does one after the "
                     "other, fused as it runs: medians of 21 runs.</p>\n");
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        if (!m.k) {
            json_decref(first);
            first = index_channels(m.model);
        }
        if (json_object_get(m.model, "steps")) layers_of(t, m.model, first, ++done == n);
    }
    json_decref(first);
}

/* --- what was done --- */

/* A file with its hash, as far as they are known. */
static void add_file(pare_text *t, const char *word, const json_t *file)
{
    const char *hash = pare_report_words(file, "hash"), *recipe = pare_report_words(file, "recipe");
    if (!json_object_get(file, "file")) return;
    pare_text_html(t, "%s <code>%s</code>", word, pare_report_words(file, "file"));
    if (*hash) pare_text_html(t, " <span class=\"soft\">%s</span>", hash);
    if (*recipe) pare_text_html(t, "<br>made by <code>%s</code>", recipe);
    pare_text_add(t, "<br>");
}

static void add_files(pare_text *t, const char *word, const json_t *files)
{
    enum { MOST = 8 };
    const size_t count = json_array_size(files);
    for (size_t i = 0; i < count && i < MOST; i++) add_file(t, word, json_array_get(files, i));
    if (count > MOST) pare_text_add(t, "and %zu more", count - MOST);
}

/* Facts, or that part of them which says what was compared. */
static const json_t *body_of(const json_t *facts)
{
    const json_t *compared = json_object_get(facts, "compared");
    return compared ? compared : facts;
}

static void read_cell(pare_cell *cell)
{
    static const char *const inputs[] = {"model", "teacher", "student"};
    const json_t *facts = cell->row, *data = json_object_get(body_of(facts), "data");
    for (int i = 0; i < 3; i++) add_file(cell->text, inputs[i], json_object_get(facts, inputs[i]));
    if (json_is_string(json_object_get(facts, "model")))
        pare_text_html(cell->text, "model <code>%s</code><br>", pare_report_words(facts, "model"));
    add_files(cell->text, "model", json_object_get(facts, "models"));
    if (!json_object_get(data, "file")) return;
    pare_text_html(cell->text, "%.0f samples of <code>%s</code>",
                   pare_report_number(data, "samples", 0), pare_report_words(data, "file"));
    if (*pare_report_words(data, "range"))
        pare_text_html(cell->text, " (%s)", pare_report_words(data, "range"));
    pare_text_add(cell->text, "<br>");
}

static void made_cell(pare_cell *cell)
{
    const json_t *rows = json_object_get(cell->row, "smaller");
    add_file(cell->text, "", json_object_get(cell->row, "output"));
    add_files(cell->text, "", rows ? rows : json_object_get(cell->row, "sparse"));
}

/* The device with its clocks, or the name of one; the machine. */
static void device_cell(pare_cell *cell)
{
    char text[512];
    pare_text *t = cell->text;
    const json_t *facts = cell->row, *device = json_object_get(body_of(facts), "device");
    if (json_is_string(device)) {
        pare_text_html(t, "%s", json_string_value(device));
    } else if (json_object_get(device, "cuda")) {
        pare_text_html(t, "%s<br>", pare_device_text(device, text, sizeof text));
        pare_text_html(t, "%s", pare_telemetry_text(device, text, sizeof text));
    } else {
        pare_text_html(t, "%s", pare_cpu_info_text(device, text, sizeof text));
    }
    if (*pare_report_words(facts, "isa"))
        pare_text_html(t, "%s, %.0f cores, %s", pare_report_words(facts, "cpu"),
                       pare_report_number(facts, "cores", 0), pare_report_words(facts, "isa"));
}

static const pare_column done_columns[] = {
    PARE_COLUMN(NULL, "command", "command", pare_cell_words),
    PARE_COLUMN(NULL, "read", NULL, read_cell),
    PARE_COLUMN(NULL, "made", NULL, made_cell),
    PARE_COLUMN(NULL, "on", NULL, device_cell),
    PARE_COLUMN(NULL, "pare", "version", pare_cell_words),
    {0},
};

void pare_parts_done(pare_text *t, const json_t *facts)
{
    enum { MOST = 100 };
    const size_t count = json_array_size(facts);
    pare_grid grid;
    pare_text_add(t, "<h2>What was done</h2>\n");
    pare_grid_html(&grid, t, done_columns, 0, "wrap", "What was done");
    for (size_t i = 0; i < count && i < MOST; i++)
        pare_grid_row(&grid, json_array_get(facts, i), NULL, NULL);
    pare_grid_end(&grid, "");
    if (count > MOST)
        pare_text_add(t, "<p class=\"soft\">and %zu more commands</p>\n", count - MOST);
}

/* --- what was not --- */

typedef struct question {
    const char *what, *path;
    bool against; /* asked of models that are compared with another one */
} question;

static bool lacks(const json_t *model, const question *q, size_t place)
{
    return (!q->against || place) && !pare_report_find(model, q->path);
}

static void missing_line(pare_text *t, const json_t *comparisons, const question *q)
{
    enum { NAMED = 5 };
    size_t n = 0;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        char name[128];
        if (!lacks(m.model, q, m.k) || n++ >= NAMED) continue;
        pare_text_add(t, "%s%s", n == 1 ? "<li>" : ", ", n == 1 ? q->what : "");
        pare_text_html(t, "%s%s", n == 1 ? ": " : "", pare_report_name(m.model, name, sizeof name));
    }
    if (n > NAMED) pare_text_add(t, " and %zu more", n - NAMED);
    if (n) pare_text_add(t, "</li>\n");
}

void pare_parts_missing(pare_text *t, const json_t *comparisons)
{
    static const question questions[] = {
        {"accuracy on labelled samples", "top1", false},
        {"error against the first model", "outputs", true},
        {"latency", "latency_ms.median", false},
        {"a 99th percentile, which needs 1,000 runs", "latency_ms.p99", false},
        {"memory while it runs", "peak_memory_bytes", false},
        {"time of each layer", "steps", false},
    };
    pare_text_add(t, "<h2>What was not measured</h2>\n<ul>\n");
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        missing_line(t, comparisons, &questions[i]);
    pare_text_add(t,
                  "<li>other devices, batch sizes and data than those named above</li>\n</ul>\n");
}

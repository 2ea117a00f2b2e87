/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's summary as text, Markdown, CSV, and as parts of the report's page. */
#include "tools/zoo/tables.h"

#include "formats/json.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

/* --- what failed --- */

/* In the order in which failures are listed: what stopped the work before what falls short. */
static const char *const classes[] = {"crash",   "out of memory", "time",
                                      "failed",  "bad model",     "unsupported operator",
                                      "stopped", "goal missed"};
enum { CLASSES = sizeof classes / sizeof *classes };

static int class_of(const json_t *row)
{
    int c = 0;
    while (c < CLASSES && strcmp(classes[c], pare_report_words(row, "class")) != 0) c++;
    return c;
}

/* The rows that are not done, class by class; to be freed. */
static json_t *failures_of(const json_t *summary)
{
    json_t *list = json_array(), *row;
    size_t i;
    for (int c = 0; c <= CLASSES; c++) json_array_foreach(json_object_get(summary, "tasks"), i, row)
        {
            if (class_of(row) == c && strcmp(pare_report_words(row, "class"), "done") != 0)
                json_array_append(list, row);
        }
    return list;
}

const char *pare_zoo_outcome(const json_t *summary, char *text, size_t size)
{
    json_t *rows = json_object_get(summary, "tasks"), *row;
    size_t i, done = 0, by_class[CLASSES + 1] = {0};
    const bool goals = json_object_size(json_object_get(summary, "goals")) > 0;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(pare_report_words(row, "class"), "done") != 0)
            by_class[class_of(row)]++;
        else
            done++;
    }
    size_t n = (size_t)snprintf(text, size, "%zu of %zu tasks %s", done, json_array_size(rows),
                                goals ? "reach the goals" : "are done");
    for (int c = 0; c <= CLASSES; c++)
        if (by_class[c] && n < size)
            n += (size_t)snprintf(text + n, size - n, "; %s: %zu",
                                  c < CLASSES ? classes[c] : "other", by_class[c]);
    return text;
}

/* --- ranking --- */

static bool has_goals(const json_t *summary)
{
    return json_object_size(json_object_get(summary, "goals")) > 0;
}

static void done_cell(pare_cell *cell)
{
    pare_text_add(cell->text, cell->medium == PARE_HTML ? "%.0f of %.0f" : "%.0f/%.0f",
                  pare_report_number(cell->row, "done", 0),
                  pare_report_number(cell->row, "tasks", 0));
}

/* "1.5 s", "12 min" */
static void seconds_cell(pare_cell *cell)
{
    const double seconds = pare_cell_number(cell);
    if (isnan(seconds)) return;
    cell->sort = seconds;
    cell->sort_digits = 3;
    if (seconds < 99.95)
        pare_text_add(cell->text, "%.1f s", seconds);
    else
        pare_text_add(cell->text, "%.0f min", seconds / 60);
}

enum { GOALS = 1, FLOOR = 2 };

static const pare_column ranking_columns[] = {
    PARE_COLUMN("variant", "variant", "variant", pare_cell_words),
    PARE_COLUMN("done", "done", NULL, done_cell),
    PARE_COLUMN("reach goals", "reach goals", "met", pare_cell_fixed, .when = GOALS),
    PARE_COLUMN("keep 99 %", "keep 99 %", "met", pare_cell_fixed, .when = FLOOR),
    PARE_COLUMN("mean drop", "mean drop", "mean_drop", pare_cell_signed),
    PARE_COLUMN("worst drop", "worst drop", "worst_drop", pare_cell_signed),
    PARE_COLUMN("of", "worst of", "worst_model", pare_cell_words),
    PARE_COLUMN("SQNR dB", "mean SQNR", "mean_sqnr_db", pare_cell_fixed, 1, " dB"),
    PARE_COLUMN("smaller", "smaller", "smaller", pare_cell_times),
    PARE_COLUMN("speed-up", "speed-up", "speed_up", pare_cell_times),
    PARE_COLUMN("best of", "best of", "best", pare_cell_fixed),
    PARE_COLUMN("time", "time each", "seconds", seconds_cell),
    PARE_COLUMN("memory", "memory", "peak_bytes", pare_cell_bytes),
    {0},
};

static unsigned parts_of(const json_t *summary) { return has_goals(summary) ? GOALS : FLOOR; }

static void fill_ranking(pare_grid *grid, pare_arena *arena, const json_t *summary)
{
    size_t i;
    json_t *variant;
    pare_grid_table(grid, arena, ranking_columns, parts_of(summary));
    json_array_foreach(json_object_get(summary, "ranking"), i, variant)
        pare_grid_row(grid, variant, NULL, NULL);
}

/* --- the best of each model --- */

/* A model without a best one has no variant. */
static void best_cell(pare_cell *cell)
{
    pare_cell_words(cell);
    if (json_object_get(cell->row, "variant")) return;
    cell->kind = "soft";
    pare_text_add(cell->text, "none");
}

static const pare_column best_columns[] = {
    PARE_COLUMN("model", "model", "model", pare_cell_words),
    PARE_COLUMN("best", "best", "variant", best_cell, .left = true),
    PARE_COLUMN("size", "size", "bytes", pare_cell_bytes),
    PARE_COLUMN(NULL, "smaller", "smaller", pare_cell_times),
    PARE_COLUMN("drop [95 %]", "drop, points [95&nbsp;%]", NULL, pare_cell_drop),
    PARE_COLUMN(NULL, "SQNR", "sqnr_db", pare_cell_fixed, 1, " dB"),
    PARE_COLUMN("speed-up", "speed-up", "speed_up", pare_cell_times),
    {0},
};

static void best_rows(pare_grid *grid, const json_t *summary)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
    {
        if (json_is_true(json_object_get(row, "best"))) pare_grid_row(grid, row, NULL, NULL);
    }
}

/* --- text --- */

void pare_zoo_print(pare_arena *arena, const json_t *summary, FILE *file)
{
    pare_grid grid;
    char text[512];
    json_t *failures = failures_of(summary), *row;
    size_t i;
    fill_ranking(&grid, arena, summary);
    if (grid.rows) {
        fputc('\n', file);
        pare_table_print(&grid.table, file);
    }
    pare_print(file, "\n%s\n", pare_zoo_outcome(summary, text, sizeof text));
    json_array_foreach(failures, i, row)
    {
        const char *message = pare_report_words(row, "message"),
                   *command = pare_report_words(row, "command");
        pare_print(file, "%s.%s: %s", pare_report_words(row, "model"),
                   pare_report_words(row, "variant"), pare_report_words(row, "class"));
        if (*message) pare_print(file, ": %s", message);
        if (*command) pare_print(file, "\n    %s", command);
        fputc('\n', file);
    }
    json_decref(failures);
}

/* --- Markdown --- */

static void mark_failure(pare_text *t, const json_t *row)
{
    const char *message = pare_report_words(row, "message"),
               *command = pare_report_words(row, "command");
    pare_text_put(t, PARE_MARKDOWN, "- **%s.%s**: ", pare_report_words(row, "model"),
                  pare_report_words(row, "variant"));
    pare_text_put(t, PARE_PLAIN, "%s", pare_report_words(row, "class"));
    pare_text_put(t, PARE_MARKDOWN, "%s%s\n", *message ? ": " : "", message);
    if (*command) pare_text_put(t, PARE_PLAIN, "\n      %s\n\n", command);
}

void pare_zoo_markdown(pare_text *t, pare_arena *arena, const json_t *summary)
{
    pare_grid ranking, best;
    char text[512];
    json_t *failures = failures_of(summary), *row;
    size_t i;
    pare_text_add(t, "\n%s.\n\n## Ranking\n", pare_zoo_outcome(summary, text, sizeof text));
    fill_ranking(&ranking, arena, summary);
    pare_table_markdown(&ranking.table, t);
    pare_grid_table(&best, arena, best_columns, 0);
    best_rows(&best, summary);
    if (best.rows) {
        pare_text_add(t, "\n## Best of each model\n");
        pare_table_markdown(&best.table, t);
    }
    if (json_array_size(failures)) pare_text_add(t, "\n## What failed\n\n");
    json_array_foreach(failures, i, row) mark_failure(t, row);
    json_decref(failures);
}

/* --- parts of the page --- */

enum { SHOWN = 24 }; /* rows that are not folded away */

static void fold(pare_text *t, size_t count, const char *of)
{
    if (count > SHOWN) pare_text_add(t, "<details><summary>%zu %s</summary>\n", count, of);
}

static void fold_end(pare_text *t, size_t count)
{
    if (count > SHOWN) pare_text_add(t, "</details>\n");
}

static void ranking(pare_text *t, const json_t *summary)
{
    pare_text_add(t, "<h2>Ranking</h2>\n");
    pare_grid_html_all(t, ranking_columns, parts_of(summary), "sort dense",
                       "Ranking of the variants", json_object_get(summary, "ranking"));
    pare_text_add(
        t,
        "<p class=\"soft\">Over all models: drops in points of top-1, smaller and speed-up as "
        "geometric means against the original. Best of: how many models it is the fastest of "
        "those that %s; where intervals of speed-up overlap, the one that drops least; "
        "without latencies the smallest. Time: from original to measured, of one model. "
        "Memory: the most that one step held.</p>\n",
        json_object_get(json_object_get(summary, "goals"), "drop")
            ? "reach the goals"
            : "reach the goals and do not surely fall below 99&nbsp;% of the original&#39;s top-1");
}

static void best(pare_text *t, const json_t *summary)
{
    const json_t *models = json_object_get(summary, "best");
    const size_t count = json_array_size(models);
    pare_grid grid;
    size_t i;
    json_t *row;
    pare_text_add(t, "<h2>Best of each model</h2>\n");
    fold(t, count, "models");
    pare_grid_html(&grid, t, best_columns, 0, "sort", "Best of each model");
    best_rows(&grid, summary);
    json_array_foreach((json_t *)models, i, row)
    {
        if (!json_is_string(json_object_get(row, "best"))) pare_grid_row(&grid, row, NULL, NULL);
    }
    pare_grid_end(&grid, "");
    fold_end(t, count);
}

static void task_cell(pare_cell *cell)
{
    pare_text_html(cell->text, "%s.%s", pare_report_words(cell->row, "model"),
                   pare_report_words(cell->row, "variant"));
}

static void command_cell(pare_cell *cell)
{
    pare_text_html(cell->text, "<code>%s</code>", pare_cell_text(cell));
}

static const pare_column failed_columns[] = {
    PARE_COLUMN(NULL, "task", NULL, task_cell),
    PARE_COLUMN(NULL, "what", "class", pare_cell_words),
    PARE_COLUMN(NULL, "why", "message", pare_cell_words),
    PARE_COLUMN(NULL, "the command that shows it", "command", command_cell),
    {0},
};

void pare_zoo_failed_section(pare_text *t, const json_t *summary)
{
    json_t *failures = failures_of(summary);
    const size_t count = json_array_size(failures);
    if (count) {
        pare_text_add(t, "<h2>What failed</h2>\n");
        fold(t, count, "tasks");
        pare_grid_html_all(t, failed_columns, 0, "sort wrap fails", "What failed", failures);
        fold_end(t, count);
    }
    json_decref(failures);
}

void pare_zoo_section(pare_text *t, const json_t *summary)
{
    char text[512];
    pare_text_html(t, "<p>%s.</p>\n", pare_zoo_outcome(summary, text, sizeof text));
    ranking(t, summary);
    best(t, summary);
    pare_text_add(t, "<h2>Verdicts</h2>\n");
}

/* --- CSV --- */

/* The zoo's name. extra: its folder and this. */
typedef struct csv_extra {
    const json_t *name;
    const char *folder;
} csv_extra;

static void zoo_cell(pare_cell *cell)
{
    const csv_extra *extra = cell->extra;
    if (json_is_string(extra->name)) pare_text_add_csv(cell->text, json_string_value(extra->name));
}

/* A file in the folder as seen from there. */
static void file_cell(pare_cell *cell)
{
    const csv_extra *extra = cell->extra;
    const char *path = pare_cell_text(cell), *folder = extra->folder;
    size_t n = strlen(folder);
    while (n && folder[n - 1] == '/') n--;
    if (!strncmp(path, folder, n) && path[n] == '/') {
        while (path[n] == '/') n++;
        path += n;
    }
    pare_text_add_csv(cell->text, path);
}

/* What a stopwatch or a meter decides is in the last ones. */
static const pare_column csv_columns[] = {
    PARE_COLUMN("pare_zoo_1", NULL, NULL, zoo_cell),
    PARE_CSV_VALUE("model", "model"),
    PARE_CSV_VALUE("variant", "variant"),
    PARE_CSV_VALUE("class", "class"),
    PARE_CSV_VALUE("message", "message"),
    PARE_COLUMN("file", NULL, "file", file_cell),
    PARE_CSV_VALUE("hash", "hash"),
    PARE_CSV_VALUE("precision", "precision"),
    PARE_CSV_VALUE("bytes", "bytes"),
    PARE_CSV_VALUE("smaller", "smaller"),
    PARE_CSV_VALUE("data", "data"),
    PARE_CSV_VALUE("samples", "samples"),
    PARE_CSV_VALUE("top1", "top1"),
    PARE_CSV_VALUE("drop", "drop"),
    PARE_CSV_ENDS("drop", "drop_interval"),
    PARE_CSV_VALUE("mcnemar_p", "mcnemar_p"),
    PARE_CSV_VALUE("kept", "kept"),
    PARE_CSV_ENDS("kept", "kept_interval"),
    PARE_CSV_VALUE("agreement", "agreement"),
    PARE_CSV_VALUE("sqnr_db", "sqnr_db"),
    PARE_CSV_ENDS("sqnr", "sqnr_interval"),
    PARE_CSV_VALUE("device", "device"),
    PARE_CSV_VALUE("latency_ms", "latency_ms"),
    PARE_CSV_ENDS("latency", "latency_interval"),
    PARE_CSV_VALUE("speed_up", "speed_up"),
    PARE_CSV_ENDS("speed_up", "speed_up_interval"),
    PARE_CSV_VALUE("stable", "stable"),
    PARE_CSV_VALUE("emulated", "emulated"),
    PARE_CSV_VALUE("best", "best"),
    PARE_CSV_VALUE("seconds", "seconds"),
    PARE_CSV_VALUE("cpu_seconds", "cpu_seconds"),
    PARE_CSV_VALUE("peak_bytes", "peak_bytes"),
    {0},
};

void pare_zoo_csv(pare_text *t, const json_t *summary, const char *folder)
{
    const csv_extra extra = {json_object_get(summary, "name"), folder};
    pare_grid grid;
    size_t i;
    json_t *row;
    pare_grid_csv(&grid, t, csv_columns);
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
        pare_grid_row(&grid, row, &extra, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's summary as text, Markdown and CSV. */
#include "tools/zoo/views.h"

#include "tools/results.h"
#include "tools/table.h"
#include "tools/text.h"
#include "tools/zoo/view_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *pare_zoo_text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* --- what failed --- */

/* In the order in which failures are listed: what stopped the work before what falls short. */
static const char *const classes[] = {"crash",   "out of memory", "time",
                                      "failed",  "bad model",     "unsupported operator",
                                      "stopped", "goal missed"};
enum { CLASSES = sizeof classes / sizeof *classes };

static int class_of(const json_t *row)
{
    int c = 0;
    while (c < CLASSES && strcmp(classes[c], pare_zoo_text_of(row, "class")) != 0) c++;
    return c;
}

json_t *pare_zoo_failures(const json_t *summary)
{
    json_t *list = json_array(), *row;
    size_t i;
    for (int c = 0; c <= CLASSES; c++) json_array_foreach(json_object_get(summary, "tasks"), i, row)
        {
            if (class_of(row) == c && strcmp(pare_zoo_text_of(row, "class"), "done") != 0)
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
        if (strcmp(pare_zoo_text_of(row, "class"), "done") != 0)
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

const char *pare_zoo_met(const json_t *summary)
{
    return json_object_size(json_object_get(summary, "goals")) ? "reach goals" : "keep 99 %";
}

/* "1.5 s", "12 min" */
const char *pare_zoo_seconds(double seconds, char *text, size_t size)
{
    *text = 0;
    if (seconds < 99.95)
        snprintf(text, size, "%.1f s", seconds);
    else if (!isnan(seconds))
        snprintf(text, size, "%.0f min", seconds / 60);
    return text;
}

static const char *signed_text(const json_t *json, const char *key, char *text, size_t size)
{
    const double value = pare_report_number(json, key, NAN);
    *text = 0;
    if (!isnan(value)) snprintf(text, size, "%+.2f", fabs(value) < 0.005 ? 0 : value);
    return text;
}

static void add_variant(pare_table *table, const json_t *v)
{
    char mean_drop[24], worst_drop[24], db[24], smaller[24], speed[24], time[24], bytes[24];
    pare_table_add(table, "%s|%.0f/%.0f|%.0f|%s|%s|%s|%s|%s|%s|%.0f|%s|%s",
                   pare_zoo_text_of(v, "variant"), pare_report_number(v, "done", 0),
                   pare_report_number(v, "tasks", 0), pare_report_number(v, "met", 0),
                   signed_text(v, "mean_drop", mean_drop, sizeof mean_drop),
                   signed_text(v, "worst_drop", worst_drop, sizeof worst_drop),
                   pare_zoo_text_of(v, "worst_model"),
                   pare_report_text(v, "mean_sqnr_db", "%.1f", db, sizeof db),
                   pare_report_text(v, "smaller", "%.2fx", smaller, sizeof smaller),
                   pare_report_text(v, "speed_up", "%.2fx", speed, sizeof speed),
                   pare_report_number(v, "best", 0),
                   pare_zoo_seconds(pare_report_number(v, "seconds", NAN), time, sizeof time),
                   pare_bytes_text(pare_report_number(v, "peak_bytes", 0), bytes, sizeof bytes));
}

static void fill_ranking(pare_table *table, pare_arena *arena, const json_t *summary)
{
    size_t i;
    json_t *variant;
    pare_table_init(table, arena, "lrrrrlrrrrrr");
    pare_table_add(table,
                   "variant|done|%s|mean drop|worst drop|of|SQNR dB|smaller|speed-up|best of|"
                   "time|memory",
                   pare_zoo_met(summary));
    json_array_foreach(json_object_get(summary, "ranking"), i, variant) add_variant(table, variant);
}

/* --- text --- */

void pare_zoo_print(pare_arena *arena, const json_t *summary, FILE *file)
{
    pare_table table;
    char text[512];
    json_t *failures = pare_zoo_failures(summary), *row;
    size_t i;
    fill_ranking(&table, arena, summary);
    if (table.count > 1) {
        fputc('\n', file);
        pare_table_print(&table, file);
    }
    pare_print(file, "\n%s\n", pare_zoo_outcome(summary, text, sizeof text));
    json_array_foreach(failures, i, row)
    {
        const char *message = pare_zoo_text_of(row, "message"),
                   *command = pare_zoo_text_of(row, "command");
        pare_print(file, "%s.%s: %s", pare_zoo_text_of(row, "model"),
                   pare_zoo_text_of(row, "variant"), pare_zoo_text_of(row, "class"));
        if (*message) pare_print(file, ": %s", message);
        if (*command) pare_print(file, "\n    %s", command);
        fputc('\n', file);
    }
    json_decref(failures);
}

/* --- Markdown --- */

static void mark_best(pare_text *t, pare_arena *arena, const json_t *summary)
{
    pare_table table;
    char size[24], drop[48], speed[24];
    size_t i;
    json_t *row;
    pare_table_init(&table, arena, "llrrr");
    pare_table_add(&table, "model|best|size|drop [95 %%]|speed-up");
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
    {
        if (!json_is_true(json_object_get(row, "best"))) continue;
        pare_report_drop(row, drop, sizeof drop);
        pare_table_add(&table, "%s|%s|%s|%s|%s", pare_zoo_text_of(row, "model"),
                       pare_zoo_text_of(row, "variant"),
                       pare_bytes_text(pare_report_number(row, "bytes", 0), size, sizeof size),
                       drop, pare_report_text(row, "speed_up", "%.2fx", speed, sizeof speed));
    }
    if (table.count < 2) return;
    pare_text_add(t, "\n## Best of each model\n");
    pare_table_markdown(&table, t);
}

static void mark_failure(pare_text *t, const json_t *row)
{
    pare_text_add(t, "- **");
    pare_text_add_markdown(t, pare_zoo_text_of(row, "model"));
    pare_text_add(t, ".");
    pare_text_add_markdown(t, pare_zoo_text_of(row, "variant"));
    pare_text_add(t, "**: ");
    pare_text_add_plain(t, pare_zoo_text_of(row, "class"));
    if (*pare_zoo_text_of(row, "message")) {
        pare_text_add(t, ": ");
        pare_text_add_markdown(t, pare_zoo_text_of(row, "message"));
    }
    pare_text_add(t, "\n");
    if (!*pare_zoo_text_of(row, "command")) return;
    pare_text_add(t, "\n      ");
    pare_text_add_plain(t, pare_zoo_text_of(row, "command"));
    pare_text_add(t, "\n\n");
}

void pare_zoo_markdown(pare_text *t, pare_arena *arena, const json_t *summary)
{
    pare_table table;
    char text[512];
    json_t *failures = pare_zoo_failures(summary), *row;
    size_t i;
    pare_text_add(t, "\n%s.\n\n## Ranking\n", pare_zoo_outcome(summary, text, sizeof text));
    fill_ranking(&table, arena, summary);
    pare_table_markdown(&table, t);
    mark_best(t, arena, summary);
    if (json_array_size(failures)) pare_text_add(t, "\n## What failed\n\n");
    json_array_foreach(failures, i, row) mark_failure(t, row);
    json_decref(failures);
}

/* --- CSV --- */

/* Where a column's value is found in a row; the last ones are a stopwatch's or a meter's. */
typedef struct column {
    const char *name, *path;
} column;

static const column columns[] = {
    {"pare_zoo_1", NULL}, /* the zoo's name */
    {"model", "model"},
    {"variant", "variant"},
    {"class", "class"},
    {"message", "message"},
    {"file", "file"},
    {"hash", "hash"},
    {"precision", "precision"},
    {"bytes", "bytes"},
    {"smaller", "smaller"},
    {"data", "data"},
    {"samples", "samples"},
    {"top1", "top1"},
    {"drop", "drop"},
    {"drop_low", "drop_interval.0"},
    {"drop_high", "drop_interval.1"},
    {"mcnemar_p", "mcnemar_p"},
    {"kept", "kept"},
    {"kept_low", "kept_interval.0"},
    {"kept_high", "kept_interval.1"},
    {"agreement", "agreement"},
    {"sqnr_db", "sqnr_db"},
    {"sqnr_low", "sqnr_interval.0"},
    {"sqnr_high", "sqnr_interval.1"},
    {"device", "device"},
    {"latency_ms", "latency_ms"},
    {"latency_low", "latency_interval.0"},
    {"latency_high", "latency_interval.1"},
    {"speed_up", "speed_up"},
    {"speed_up_low", "speed_up_interval.0"},
    {"speed_up_high", "speed_up_interval.1"},
    {"stable", "stable"},
    {"emulated", "emulated"},
    {"best", "best"},
    {"seconds", "seconds"},
    {"cpu_seconds", "cpu_seconds"},
    {"peak_bytes", "peak_bytes"},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* A file in the folder as seen from there. */
static json_t *inside(const json_t *file, const char *folder)
{
    const char *path = json_string_value(file);
    size_t n = strlen(folder);
    while (n && folder[n - 1] == '/') n--;
    if (path && !strncmp(path, folder, n) && path[n] == '/') {
        while (path[n] == '/') n++;
        return json_string(path + n);
    }
    return json_incref((json_t *)file);
}

void pare_zoo_csv(pare_text *t, const json_t *summary, const char *folder)
{
    size_t i;
    json_t *row;
    for (int c = 0; c < COLUMNS; c++) pare_text_add(t, "%s%s", c ? "," : "", columns[c].name);
    pare_text_add(t, "\n");
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
    {
        pare_results_value(t, json_object_get(summary, "name"));
        for (int c = 1; c < COLUMNS; c++) {
            json_t *value = json_incref((json_t *)pare_report_find(row, columns[c].path));
            if (!strcmp(columns[c].name, "file")) {
                json_t *seen = inside(value, folder);
                json_decref(value);
                value = seen;
            }
            pare_text_add(t, ",");
            pare_results_value(t, value);
            json_decref(value);
        }
        pare_text_add(t, "\n");
    }
}

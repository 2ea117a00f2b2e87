/* SPDX-License-Identifier: Apache-2.0 */
/* A zoo's part of the report's page: ranking, best of each model, what failed. The verdicts of the
   report follow. */
#include "tools/report/page.h"
#include "tools/table.h"
#include "tools/zoo/view_parts.h"
#include "tools/zoo/views.h"

#include <math.h>

enum { SHOWN = 24 }; /* models that are not folded away */

static void escaped(pare_text *t, const json_t *json, const char *key)
{
    pare_text_add_escaped(t, pare_zoo_text_of(json, key));
}

static void table_begin(pare_text *t, const char *label, const char *kind, const char *const *heads)
{
    pare_text_add(t,
                  "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                  "<table class=\"%s\"><thead><tr>",
                  label, kind);
    for (; *heads; heads++) pare_text_add(t, "<th scope=\"col\">%s</th>", *heads);
    pare_text_add(t, "</tr></thead><tbody>\n");
}

static void table_end(pare_text *t) { pare_text_add(t, "</tbody></table></div>\n"); }

static void signed_cell(pare_text *t, const json_t *row, const char *key)
{
    const double value = pare_report_number(row, key, NAN);
    pare_text_add(t, "<td>");
    if (!isnan(value)) pare_page_signed(t, value);
    pare_text_add(t, "</td>");
}

static void bytes_cell(pare_text *t, const json_t *row, const char *key)
{
    const double bytes = pare_report_number(row, key, NAN);
    char size[24];
    if (isnan(bytes))
        pare_text_add(t, "<td></td>");
    else
        pare_text_add(t, "<td data-v=\"%.0f\">%s</td>", bytes,
                      pare_bytes_text(bytes, size, sizeof size));
}

/* --- ranking --- */

static void variant_row(pare_text *t, const json_t *v)
{
    char time[24];
    const double seconds = pare_report_number(v, "seconds", NAN);
    pare_text_add(t, "<tr><td>");
    escaped(t, v, "variant");
    pare_text_add(t, "</td><td>%.0f of %.0f</td>", pare_report_number(v, "done", 0),
                  pare_report_number(v, "tasks", 0));
    pare_page_cell(t, v, "met", "", 0, "");
    signed_cell(t, v, "mean_drop");
    signed_cell(t, v, "worst_drop");
    pare_text_add(t, "<td>");
    escaped(t, v, "worst_model");
    pare_text_add(t, "</td>");
    pare_page_cell(t, v, "mean_sqnr_db", "", 1, " dB");
    pare_page_cell(t, v, "smaller", "", 2, "&times;");
    pare_page_cell(t, v, "speed_up", "", 2, "&times;");
    pare_page_cell(t, v, "best", "", 0, "");
    if (isnan(seconds))
        pare_text_add(t, "<td></td>");
    else
        pare_text_add(t, "<td data-v=\"%.3f\">%s</td>", seconds,
                      pare_zoo_seconds(seconds, time, sizeof time));
    bytes_cell(t, v, "peak_bytes");
    pare_text_add(t, "</tr>\n");
}

static void ranking(pare_text *t, const json_t *summary)
{
    const char *const heads[] = {"variant",    "done",     pare_zoo_met(summary), "mean drop",
                                 "worst drop", "worst of", "mean SQNR",           "smaller",
                                 "speed-up",   "best of",  "time each",           "memory",
                                 NULL};
    size_t i;
    json_t *variant;
    pare_text_add(t, "<h2>Ranking</h2>\n");
    table_begin(t, "Ranking of the variants", "sort dense", heads);
    json_array_foreach(json_object_get(summary, "ranking"), i, variant) variant_row(t, variant);
    table_end(t);
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

/* --- the best of each model --- */

static void best_row(pare_text *t, const json_t *row)
{
    pare_text_add(t, "<tr><td>");
    escaped(t, row, "model");
    pare_text_add(t, "</td><td>");
    escaped(t, row, "variant");
    pare_text_add(t, "</td>");
    bytes_cell(t, row, "bytes");
    pare_page_cell(t, row, "smaller", "", 2, "&times;");
    pare_page_drop(t, row);
    pare_page_cell(t, row, "sqnr_db", "", 1, " dB");
    pare_page_cell(t, row, "speed_up", "", 2, "&times;");
    pare_text_add(t, "</tr>\n");
}

static void best(pare_text *t, const json_t *summary)
{
    static const char *const heads[] = {
        "model", "best", "size", "smaller", "drop, points [95&nbsp;%]", "SQNR", "speed-up", NULL};
    const json_t *models = json_object_get(summary, "best");
    const bool folded = json_array_size(models) > SHOWN;
    size_t i;
    json_t *row;
    pare_text_add(t, "<h2>Best of each model</h2>\n");
    if (folded)
        pare_text_add(t, "<details><summary>%zu models</summary>\n", json_array_size(models));
    table_begin(t, "Best of each model", "sort", heads);
    json_array_foreach(json_object_get(summary, "tasks"), i, row)
    {
        if (json_is_true(json_object_get(row, "best"))) best_row(t, row);
    }
    json_array_foreach((json_t *)models, i, row)
    {
        if (json_is_string(json_object_get(row, "best"))) continue;
        pare_text_add(t, "<tr><td>");
        escaped(t, row, "model");
        pare_text_add(t, "</td><td class=\"soft\">none</td><td></td><td></td><td></td><td></td>"
                         "<td></td></tr>\n");
    }
    table_end(t);
    if (folded) pare_text_add(t, "</details>\n");
}

/* --- what failed --- */

static void failure_row(pare_text *t, const json_t *row)
{
    pare_text_add(t, "<tr><td>");
    escaped(t, row, "model");
    pare_text_add(t, ".");
    escaped(t, row, "variant");
    pare_text_add(t, "</td><td>");
    escaped(t, row, "class");
    pare_text_add(t, "</td><td>");
    escaped(t, row, "message");
    pare_text_add(t, "</td><td><code>");
    escaped(t, row, "command");
    pare_text_add(t, "</code></td></tr>\n");
}

void pare_zoo_failed_section(pare_text *t, const json_t *summary)
{
    static const char *const heads[] = {"task", "what", "why", "the command that shows it", NULL};
    json_t *failures = pare_zoo_failures(summary), *row;
    const size_t count = json_array_size(failures);
    size_t i;
    if (count) {
        pare_text_add(t, "<h2>What failed</h2>\n");
        if (count > SHOWN) pare_text_add(t, "<details><summary>%zu tasks</summary>\n", count);
        table_begin(t, "What failed", "sort wrap fails", heads);
        json_array_foreach(failures, i, row) failure_row(t, row);
        table_end(t);
        if (count > SHOWN) pare_text_add(t, "</details>\n");
    }
    json_decref(failures);
}

void pare_zoo_section(pare_text *t, const json_t *summary)
{
    char text[512];
    pare_text_add(t, "<p>");
    pare_text_add_escaped(t, pare_zoo_outcome(summary, text, sizeof text));
    pare_text_add(t, ".</p>\n");
    ranking(t, summary);
    best(t, summary);
    pare_text_add(t, "<h2>Verdicts</h2>\n");
}

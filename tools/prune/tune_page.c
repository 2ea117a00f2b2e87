/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a page of pruning that tells what was trained. */
#include "tools/prune/report.h"
#include "tools/report/report.h"
#include "tools/report/page.h"

#include <math.h>

static void pair(pare_text *t, const json_t *step, const char *what, int digits, const char *unit)
{
    char path[32];
    snprintf(path, sizeof path, "before.%s", what);
    pare_page_cell(t, step, path, "", digits, unit);
    snprintf(path, sizeof path, "after.%s", what);
    pare_page_cell(t, step, path, "", digits, unit);
}

static void add_step(pare_text *t, size_t number, const json_t *step)
{
    pare_text_add(t, "<tr><td>%zu</td><td>%.1f&nbsp;%%</td>", number,
                  100 * pare_report_number(step, "kept", NAN));
    pair(t, step, "loss", 4, "");
    pair(t, step, "agreement", 2, " %");
    pair(t, step, "top1", 2, " %");
    pare_page_cell(t, step, "steps", "", 0, "");
    pare_page_cell(t, step, "best_step", "", 0, "");
    pare_text_add(t, "</tr>\n");
}

static void add_model(pare_text *t, const json_t *row, const json_t *distilled)
{
    char name[128];
    size_t i;
    json_t *step;
    pare_text_add(t, "<h3>");
    pare_text_add_escaped(t, pare_prune_name(row, name, sizeof name));
    pare_text_add(t, "</h3>\n<div class=\"box\"><table class=\"numbers\"><thead><tr><th>step</th>"
                     "<th>left</th><th>loss before</th><th>after</th><th>agreement before</th>"
                     "<th>after</th><th>top-1 before</th><th>after</th><th>steps</th><th>best</th>"
                     "</tr></thead><tbody>\n");
    json_array_foreach(json_object_get(distilled, "steps"), i, step) add_step(t, i + 1, step);
    pare_text_add(t, "</tbody></table></div>\n");
}

void pare_prune_tune_add(pare_text *t, const json_t *rows)
{
    size_t i;
    json_t *row;
    const json_t *first = json_object_get(json_array_get(rows, 0), "distilled");
    if (!first) return;
    pare_text_add(t,
                  "<h2>Training</h2>\n<p class=\"soft\">After each step of pruning what was left "
                  "learned to give what the dense model gives: in all %g passes over ",
                  pare_report_number(first, "epochs", NAN));
    pare_text_add(t, "%.0f samples, batch %.0f, loss ",
                  pare_report_number(first, "train_samples", 0),
                  pare_report_number(first, "batch", 0));
    pare_text_add_escaped(t, json_string_value(json_object_get(first, "loss")));
    pare_text_add(t,
                  ". Before and after: on %.0f samples that were held out, which decide after how "
                  "many of the optimizer&#39;s steps the weights were best; 0: they were best as "
                  "they came.</p>\n",
                  pare_report_number(first, "held_out", 0));
    json_array_foreach((json_t *)rows, i, row)
    {
        const json_t *distilled = json_object_get(row, "distilled");
        if (distilled) add_model(t, row, distilled);
    }
}

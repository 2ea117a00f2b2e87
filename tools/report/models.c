/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts, and the table of models. */
#include "tools/report/report.h"
#include "tools/report/gather.h"
#include "tools/report/page.h"
#include "tools/report/parts.h"
#include "tools/svg.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

enum {
    SHOWN = 24,
    FEW = 6
}; /* verdicts of each kind that are not folded away; of more than SHOWN */

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* --- verdicts --- */

static size_t count_made(const json_t *comparisons, const char *made)
{
    size_t n = 0, i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model) n +=
        k > 0 && !strcmp(text_of(model, "made"), made);
    return n;
}

static void verdicts_of(pare_text *t, const json_t *comparisons, const char *made,
                        const char *heading, double floor)
{
    const size_t count = count_made(comparisons, made), most = count > SHOWN ? FEW : SHOWN;
    size_t i, k, shown = 0;
    json_t *one, *model;
    if (!count) return;
    pare_text_add(t, "<h3>%s</h3>\n<ul class=\"verdicts\">\n", heading);
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        if (!k || strcmp(text_of(model, "made"), made) != 0) continue;
        if (shown++ == most)
            pare_text_add(t, "</ul><details><summary>%zu more</summary><ul class=\"verdicts\">\n",
                          count - most);
        pare_text_add(t, "<li class=\"%s\">", pare_report_floor(model, floor));
        pare_report_verdict(t, json_array_get(json_object_get(one, "models"), 0), model, floor);
        pare_text_add(t, "</li>\n");
    }
    pare_text_add(t, "</ul>%s\n", count > SHOWN ? "</details>" : "");
}

void pare_parts_verdicts(pare_text *t, const json_t *comparisons, double floor)
{
    verdicts_of(t, comparisons, "calibrated only", "Calibrated only", floor);
    verdicts_of(t, comparisons, "pruned or tuned", "Pruned or tuned", floor);
    verdicts_of(t, comparisons, "original", "Not made by pare", floor);
}

/* --- models --- */

static void kept_cell(pare_text *t, const json_t *model)
{
    const double kept = pare_report_number(model, "kept", NAN);
    if (isnan(kept)) {
        pare_text_add(t, "<td></td>");
        return;
    }
    pare_text_add(t, "<td>%.2f&nbsp;%%", kept);
    if (!isnan(pare_report_number(model, "kept_interval.0", NAN)))
        pare_text_add(t, " <span class=\"soft\">[%.2f, %.2f]</span>",
                      pare_report_number(model, "kept_interval.0", 0),
                      pare_report_number(model, "kept_interval.1", 0));
    pare_text_add(t, "</td>");
}

static void accuracy_cells(pare_text *t, const json_t *model)
{
    const double p = pare_report_number(model, "mcnemar.p", NAN);
    pare_page_cell(t, model, "top1", "", 2, " %");
    pare_page_drop(t, model);
    kept_cell(t, model);
    if (isnan(p))
        pare_text_add(t, "<td></td>");
    else
        pare_text_add(t, "<td>%.2g</td>", p);
}

static void row(pare_text *t, const json_t *model, size_t group, bool first, bool labels)
{
    char name[128], size[24];
    const double bytes = pare_report_number(model, "bytes", NAN);
    pare_text_add(t, "<tr%s><td title=\"", first ? " class=\"first\"" : "");
    pare_text_add_escaped(t, text_of(model, "file"));
    pare_text_add(t, "\"><span class=\"dot\" style=\"background:var(--c%zu)\"></span>",
                  group % PARE_CHART_COLOURS);
    pare_text_add_escaped(t, pare_report_name(model, name, sizeof name));
    pare_text_add(t, "</td><td>%s</td><td>", text_of(model, "made"));
    pare_text_add_escaped(t, text_of(model, "precision"));
    if (isnan(bytes))
        pare_text_add(t, "</td><td></td>");
    else
        pare_text_add(t, "</td><td data-v=\"%.0f\">%s</td>", bytes,
                      pare_bytes_text(bytes, size, sizeof size));
    if (labels) accuracy_cells(t, model);
    pare_page_cell(t, model, "agreement", "", 2, " %");
    pare_page_cell(t, model, "outputs.0.sqnr_db", "", 1, " dB");
    if (!labels) pare_page_cell(t, model, "outputs.0.cosine", "", 6, "");
    pare_page_latency(t, model);
    pare_page_cell(t, model, "speed_up", "", 2, "&times;");
    pare_text_add(t, "<td>%s</td></tr>\n",
                  json_is_true(json_object_get(model, "front")) ? "yes" : "");
}

void pare_parts_models(pare_text *t, const json_t *comparisons, bool labels)
{
    size_t i, k;
    json_t *one, *model;
    if (!json_array_size(comparisons)) return;
    pare_text_add(t,
                  "<h2>Every model</h2>\n<div class=\"box\" tabindex=\"0\" role=\"region\" "
                  "aria-label=\"Every model\"><table class=\"sort dense\"><thead><tr>"
                  "<th scope=\"col\">model</th><th scope=\"col\">made</th>"
                  "<th scope=\"col\">precision</th><th scope=\"col\">size</th>%s"
                  "<th scope=\"col\">agreement</th><th scope=\"col\">SQNR</th>%s"
                  "<th scope=\"col\">latency</th><th scope=\"col\">speed-up</th>"
                  "<th scope=\"col\">front</th></tr></thead><tbody>\n",
                  labels ? "<th scope=\"col\">top-1</th><th scope=\"col\">drop, points "
                           "[95&nbsp;%]</th><th scope=\"col\">kept [95&nbsp;%]</th>"
                           "<th scope=\"col\">McNemar p</th>"
                         : "",
                  labels ? "" : "<th scope=\"col\">cosine</th>");
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
            row(t, model, i, k == 0, labels);
    pare_text_add(t, "</tbody></table></div>\n");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML file: headline, one card per network, picture, table, notes. No script, nothing fetched.
 */
#include "tools/report.h"

#include "tools/report_chart.h"
#include "tools/report_page.h"
#include "tools/svg.h"
#include "tools/table.h"

#include <math.h>

static void row(pare_text *t, const json_t *model, size_t group, bool first, bool labels)
{
    char stem[128], size[24];
    pare_text_add(t, "<tr%s><td><span class=\"dot\" style=\"background:var(--c%zu)\"></span>",
                  first ? " class=\"first\"" : "", group % PARE_CHART_COLOURS);
    pare_text_add_escaped(
        t, pare_report_stem(json_string_value(json_object_get(model, "file")), stem, sizeof stem));
    pare_text_add(t, "</td><td title=\"");
    pare_text_add_escaped(t, json_string_value(json_object_get(model, "file")));
    pare_text_add(t, "\">");
    pare_text_add_escaped(t, json_string_value(json_object_get(model, "precision")));
    pare_text_add(t, "</td><td>%s</td>",
                  pare_bytes_text(pare_report_number(model, "bytes", 0), size, sizeof size));
    if (labels) {
        pare_page_cell(t, model, "top1", "", 2, " %");
        pare_page_drop(t, model);
        double p = pare_report_number(model, "mcnemar.p", NAN);
        if (isnan(p))
            pare_text_add(t, "<td></td>");
        else
            pare_text_add(t, "<td>%.2g</td>", p);
        pare_page_cell(t, model, "agreement", "", 2, " %");
    }
    pare_page_cell(t, model, "outputs.0.sqnr_db", "", 1, " dB");
    if (!labels) pare_page_cell(t, model, "outputs.0.cosine", "", 6, "");
    pare_page_latency(t, model);
    pare_page_cell(t, model, "speed_up", "", 2, "&times;");
    pare_text_add(t, "</tr>\n");
}

static bool any_labels(const json_t *comparisons)
{
    size_t i;
    json_t *facts;
    json_array_foreach(
        (json_t *)comparisons, i,
        facts) if (!isnan(pare_report_number(facts, "models.0.top1", NAN))) return true;
    return false;
}

static void table(pare_text *t, const json_t *comparisons)
{
    bool labels = any_labels(comparisons);
    size_t i, k;
    json_t *facts, *model;
    pare_text_add(
        t,
        "<h2>Every model</h2>\n<div class=\"box\"><table><thead><tr><th>network</th>"
        "<th>precision</th><th>size</th>%s<th>SQNR</th>%s<th>latency</th><th>speed-up</th>"
        "</tr></thead><tbody>\n",
        labels ? "<th>top-1</th><th>drop, points [95&nbsp;%]</th><th>McNemar p</th>"
                 "<th>agreement</th>"
               : "",
        labels ? "" : "<th>cosine</th>");
    json_array_foreach((json_t *)comparisons, i, facts)
        json_array_foreach(json_object_get(facts, "models"), k, model)
            row(t, model, i, k == 0, labels);
    pare_text_add(t, "</tbody></table></div>\n");
}

/* --- cards --- */

/* What a model is against the first: how much smaller, how much faster, points of top-1 (or SQNR).
 */
static void card_row(pare_text *t, const json_t *first, const json_t *model)
{
    double db = pare_report_number(model, "outputs.0.sqnr_db", NAN);
    double drop = pare_report_number(model, "drop", NAN);
    pare_text_add(t, "<tr><td>");
    pare_text_add_escaped(t, json_string_value(json_object_get(model, "precision")));
    pare_text_add(t, "</td>");
    pare_page_factor(t, pare_report_number(first, "bytes", 0) /
                            pare_report_number(model, "bytes", NAN));
    pare_page_factor(t, pare_report_number(model, "speed_up", NAN));
    if (!isnan(drop)) {
        pare_text_add(t, "<td class=\"%s\">", pare_page_verdict(model));
        pare_page_signed(t, -drop);
        pare_text_add(t, "</td>");
    } else if (!isnan(db)) {
        pare_text_add(t, "<td>%.1f dB</td>", db);
    } else {
        pare_text_add(t, "<td></td>");
    }
    pare_text_add(t, "</tr>");
}

static void card(pare_text *t, const json_t *models, size_t group)
{
    const json_t *first = json_array_get(models, 0);
    double top1 = pare_report_number(first, "top1", NAN);
    char stem[128];
    size_t k;
    json_t *model;
    pare_text_add(t,
                  "<div class=\"card\"><h3><span class=\"dot\" style=\"background:var(--c%zu)\">"
                  "</span>",
                  group % PARE_CHART_COLOURS);
    pare_text_add_escaped(
        t, pare_report_stem(json_string_value(json_object_get(first, "file")), stem, sizeof stem));
    if (!isnan(top1)) pare_text_add(t, " <span class=\"soft\">%.2f %%</span>", top1);
    pare_text_add(t, "</h3><table><tr><th></th><th>smaller</th><th>faster</th><th>%s</th></tr>",
                  isnan(top1) ? "SQNR" : "points");
    json_array_foreach((json_t *)models, k, model) if (k) card_row(t, first, model);
    pare_text_add(t, "</table></div>\n");
}

static void cards(pare_text *t, const json_t *comparisons)
{
    size_t i;
    json_t *facts;
    pare_text_add(t, "<div class=\"cards\">\n");
    json_array_foreach((json_t *)comparisons, i, facts)
        card(t, json_object_get(facts, "models"), i);
    pare_text_add(t, "</div>\n");
}

/* --- page --- */

static void headline(pare_text *t, const json_t *comparisons)
{
    size_t nets = json_array_size(comparisons), models = 0, i;
    json_t *facts;
    const json_t *first = json_array_get(comparisons, 0);
    json_array_foreach((json_t *)comparisons, i, facts) models +=
        json_array_size(json_object_get(facts, "models"));
    pare_text_add(
        t, "<h1>What smaller and faster cost</h1>\n<p class=\"soft\">%zu network%s, %zu models, ",
        nets, nets == 1 ? "" : "s", models);
    pare_page_samples(t, json_object_get(first, "data"));
    pare_page_device(t, json_object_get(first, "device"));
    pare_text_add(t, "</p>\n");
}

static void notes(pare_text *t, const json_t *comparisons)
{
    double threads = pare_report_number(comparisons, "0.models.0.threads", 1);
    const json_t *device = json_object_get(json_array_get(comparisons, 0), "device");
    char place[64];
    pare_text_add(t, "<h2>How to read it</h2>\n");
    if (any_labels(comparisons))
        pare_text_add(
            t,
            "<p class=\"soft\">Drop: top-1 of the first model minus that of this one, in points, "
            "on the same samples, with Newcombe&#39;s paired 95&nbsp;%% interval (method 10, "
            "1998). An interval that holds zero means that no loss was measured. McNemar p: how "
            "likely such a difference is where both are equally good. Agreement: same first "
            "class as the first model.</p>\n");
    pare_text_add(
        t,
        "<p class=\"soft\">SQNR: power of the first model&#39;s outputs over that of the "
        "difference. Latency: median of one sample on %s, all models of a network in "
        "turns; * marks one that was unstable, &dagger; one whose 16-bit arithmetic the CPU "
        "emulates: its "
        "accuracy is that of hardware with such arithmetic, its latency is not.</p>\n",
        pare_page_place(device, threads, place, sizeof place));
}

pare_status pare_report_write(pare_ctx *ctx, const json_t *comparisons, const char *path)
{
    pare_text t = {.ctx = ctx};
    if (pare_page_is_picture(path)) return pare_chart_write(ctx, comparisons, path);
    pare_page_begin(&t, "pare report");
    headline(&t, comparisons);
    cards(&t, comparisons);
    pare_chart_add(&t, comparisons);
    table(&t, comparisons);
    notes(&t, comparisons);
    return pare_page_end(&t, path);
}

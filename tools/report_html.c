/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML file: headline, one card per network, picture, table, notes. No script, nothing fetched.
 */
#include "tools/report.h"

#include "formats/file.h"
#include "tools/commands.h"
#include "tools/report_chart.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light "
    "dark;--bg:#fbfbfa;--card:#fff;--fg:#1b1d21;--soft:#626873;--line:#e4e5e8;"
    "--good:#1a7f45;--bad:#b3401f;--c0:#2763c4;--c1:#c2571a;--c2:#1f8a5b;--c3:#8a46b8;--c4:#b8862b;"
    "--c5:#c23b6b;--c6:#2a8c9c;--c7:#6b7280}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;--fg:#e8e9eb;--soft:#"
    "9aa0aa;"
    "--line:#32363c;--good:#5cc98a;--bad:#f08a66;--c0:#7aa9f5;--c1:#f09a5e;--c2:#62c99b;--c3:#"
    "c493ea;"
    "--c4:#dcb564;--c5:#ee83a8;--c6:#69c5d4;--c7:#a2a8b2}}"
    "*{box-sizing:border-box}body{margin:0 auto;padding:2.2rem 1.2rem 3rem;max-width:68rem;"
    "background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Helvetica Neue',Arial,sans-serif}"
    "h1{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem;letter-spacing:-.01em}"
    "h2{font-size:1.05rem;margin:2.2rem 0 .8rem}p{margin:.3rem 0}.soft{color:var(--soft)}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(16.5rem,1fr));gap:.8rem;"
    "margin-top:1.4rem}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.8rem "
    "1rem}"
    ".card h3{margin:0 0 .3rem;font-size:1rem}.card table{font-size:.86rem}"
    ".card th,.card td{border:0;padding:.12rem 0 .12rem .5rem}.card "
    "th{color:var(--soft);font-weight:400}"
    ".card td:first-child,.card th:first-child{padding-left:0;font-weight:400;text-align:left}"
    ".card td:nth-child(2),.card th:nth-child(2){text-align:right}"
    ".box{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow-x:auto}"
    "svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font:12px "
    "system-ui,sans-serif}"
    "svg .name{fill:var(--fg)}.narrow{display:none}"
    "table{border-collapse:separate;border-spacing:0;width:100%;font-size:.88rem;font-variant-"
    "numeric:tabular-nums}"
    "th,td{padding:.45rem .7rem;text-align:right;white-space:nowrap;border-top:1px solid "
    "var(--line)}"
    "thead th{border-top:0;color:var(--soft);font-weight:500}th:first-child,td:first-child,"
    "th:nth-child(2),td:nth-child(2){text-align:left}tbody tr.first td{border-top:2px solid "
    "var(--line)}"
    "td:first-child{font-weight:600;position:sticky;left:0;background:var(--card)}"
    "thead th:first-child{position:sticky;left:0;background:var(--card)}"
    ".dot{display:inline-block;width:.65em;height:.65em;border-radius:50%;margin-right:.5em}"
    ".good{color:var(--good)}.bad{color:var(--bad)}"
    "@media(max-width:40rem){body{padding:1.2rem .8rem "
    "2rem}.wide{display:none}.narrow{display:block}"
    "h1{font-size:1.3rem}}";

/* --- cells --- */

/* Two digits with a sign, a true minus, and no sign on what rounds to zero. */
static void signed_number(pare_text *t, double value)
{
    if (fabs(value) < 0.005)
        pare_text_add(t, "0.00");
    else
        pare_text_add(t, "%s%.2f", value < 0 ? "&minus;" : "+", fabs(value));
}

static void cell(pare_text *t, const json_t *model, const char *path, const char *class, int digits,
                 const char *unit)
{
    double value = pare_report_number(model, path, NAN);
    pare_text_add(t, "<td%s%s%s>", *class ? " class=\"" : "", class, *class ? "\"" : "");
    if (!isnan(value)) pare_text_add(t, "%.*f%s", digits, value, unit);
    pare_text_add(t, "</td>");
}

/* Milliseconds with three significant digits, without an exponent. */
static void latency_cell(pare_text *t, const json_t *model)
{
    double ms = pare_report_number(model, "latency_ms.median", NAN);
    if (isnan(ms)) {
        pare_text_add(t, "<td></td>");
        return;
    }
    int digits = ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : ms >= 0.1 ? 3 : 4;
    pare_text_add(t, "<td>%.*f ms<span class=\"soft\">%s%s</span></td>", digits, ms,
                  json_is_true(json_object_get(model, "emulated")) ? "&nbsp;&dagger;" : "",
                  json_is_false(json_object_get(model, "stable")) ? "&nbsp;*" : "");
}

/* A drop is called a loss only where its interval excludes zero. */
static const char *verdict(const json_t *model)
{
    if (pare_report_number(model, "drop_interval.0", 0) > 0) return "bad";
    if (pare_report_number(model, "drop_interval.1", 0) < 0) return "good";
    return "";
}

static void drop_cell(pare_text *t, const json_t *model)
{
    double drop = pare_report_number(model, "drop", NAN);
    if (isnan(drop)) {
        pare_text_add(t, "<td></td>");
        return;
    }
    pare_text_add(t, "<td class=\"%s\">", verdict(model));
    signed_number(t, drop);
    pare_text_add(t, " <span class=\"soft\">[");
    signed_number(t, pare_report_number(model, "drop_interval.0", 0));
    pare_text_add(t, ", ");
    signed_number(t, pare_report_number(model, "drop_interval.1", 0));
    pare_text_add(t, "]</span></td>");
}

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
        cell(t, model, "top1", "", 2, " %");
        drop_cell(t, model);
        double p = pare_report_number(model, "mcnemar.p", NAN);
        if (isnan(p))
            pare_text_add(t, "<td></td>");
        else
            pare_text_add(t, "<td>%.2g</td>", p);
        cell(t, model, "agreement", "", 2, " %");
    }
    cell(t, model, "outputs.0.sqnr_db", "", 1, " dB");
    if (!labels) cell(t, model, "outputs.0.cosine", "", 6, "");
    latency_cell(t, model);
    cell(t, model, "speed_up", "", 2, "&times;");
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

static void factor_cell(pare_text *t, double factor)
{
    if (isfinite(factor) && factor > 0)
        pare_text_add(t, "<td>%.1f&times;</td>", factor);
    else
        pare_text_add(t, "<td></td>");
}

/* What a model is against the first: how much smaller, how much faster, points of top-1 (or SQNR).
 */
static void card_row(pare_text *t, const json_t *first, const json_t *model)
{
    double db = pare_report_number(model, "outputs.0.sqnr_db", NAN);
    double drop = pare_report_number(model, "drop", NAN);
    pare_text_add(t, "<tr><td>");
    pare_text_add_escaped(t, json_string_value(json_object_get(model, "precision")));
    pare_text_add(t, "</td>");
    factor_cell(t, pare_report_number(first, "bytes", 0) / pare_report_number(model, "bytes", NAN));
    factor_cell(t, pare_report_number(model, "speed_up", NAN));
    if (!isnan(drop)) {
        pare_text_add(t, "<td class=\"%s\">", verdict(model));
        signed_number(t, -drop);
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
    long samples = (long)pare_report_number(first, "data.samples", 0);
    pare_text_add(
        t, "<h1>What smaller and faster cost</h1>\n<p class=\"soft\">%zu network%s, %zu models, ",
        nets, nets == 1 ? "" : "s", models);
    if (samples >= 1000)
        pare_text_add(t, "%ld,%03ld samples of ", samples / 1000, samples % 1000);
    else
        pare_text_add(t, "%ld sample%s of ", samples, samples == 1 ? "" : "s");
    pare_text_add_escaped(
        t, json_string_value(json_object_get(json_object_get(first, "data"), "file")));
    pare_text_add(t, "</p>\n");
}

static void notes(pare_text *t, const json_t *comparisons)
{
    double threads = pare_report_number(comparisons, "0.models.0.threads", 1);
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
        "difference. Latency: median of one sample on %.0f thread%s, all models of a network in "
        "turns; * marks one that was unstable, &dagger; one whose 16-bit arithmetic the CPU "
        "emulates: its "
        "accuracy is that of hardware with such arithmetic, its latency is not.</p>\n<p "
        "class=\"soft\">pare %s</p>\n",
        threads, threads > 1 ? "s" : "", PARE_VERSION);
}

pare_status pare_report_write(pare_ctx *ctx, const json_t *comparisons, const char *path)
{
    pare_text t = {.ctx = ctx};
    pare_text_add(&t,
                  "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                  "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                  "<title>pare report</title>\n<style>%s</style></head><body>\n",
                  style);
    headline(&t, comparisons);
    cards(&t, comparisons);
    pare_chart_add(&t, comparisons);
    table(&t, comparisons);
    notes(&t, comparisons);
    pare_text_add(&t, "</body></html>\n");
    pare_status st = t.failed ? PARE_MEMORY : pare_file_write(ctx, path, t.data, t.size);
    pare_free(t.data);
    return st;
}

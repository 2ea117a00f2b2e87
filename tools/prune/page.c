/* SPDX-License-Identifier: Apache-2.0 */
/* The page of pare prune --report: headline, a card per model, picture, table, layers, notes. */
#include "tools/prune/report.h"
#include "tools/report/report.h"
#include "tools/report/page.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

typedef struct page {
    pare_text text;
    const json_t *facts, *compared, *models, *rows;
    bool channels; /* were removed; else single weights became 0 */
    bool labels;   /* top-1 is known */
} page;

static bool any_number(const page *p, const char *path)
{
    size_t i;
    json_t *model;
    json_array_foreach((json_t *)p->models, i, model)
    {
        if (!isnan(pare_report_number(model, path, NAN))) return true;
    }
    return false;
}

static const json_t *row_of(const page *p, size_t model)
{
    return model ? json_array_get(p->rows, model - 1) : NULL;
}

/* --- headline and cards --- */

static void headline(page *p)
{
    pare_text *t = &p->text;
    const json_t *data = json_object_get(p->compared, "data");
    size_t count = json_array_size(p->rows);
    pare_text_add(t, "<h1>What pruning cost</h1>\n<p class=\"soft\">");
    pare_text_add_escaped(
        t, json_string_value(json_object_get(json_object_get(p->facts, "model"), "file")));
    pare_text_add(t, ", %zu pruned model%s", count, count == 1 ? "" : "s");
    if (data) {
        pare_text_add(t, ", ");
        pare_page_samples(t, data);
        pare_text_add(t, " %s", pare_prune_seen_text(p->facts));
    }
    pare_page_device(t, json_object_get(p->compared, "device"));
    pare_text_add(t, "</p>\n");
}

static void card_line(pare_text *t, const char *what, double value, const char *format)
{
    if (isnan(value)) return;
    pare_text_add(t, "<tr><td class=\"soft\">%s</td><td>", what);
    if (*format == '%')
        pare_text_add(t, "%.1f&nbsp;%%", value);
    else
        pare_text_add(t, "%.2f&times;", value);
    pare_text_add(t, "</td></tr>");
}

static void card_accuracy(pare_text *t, const json_t *model)
{
    double drop = pare_report_number(model, "drop", NAN);
    if (isnan(drop)) {
        card_line(t, "agreement with the dense model", pare_report_number(model, "agreement", NAN),
                  "%");
        return;
    }
    pare_text_add(t, "<tr><td class=\"soft\">top-1, points</td><td class=\"%s\">",
                  pare_page_verdict(model));
    pare_page_signed(t, -drop);
    pare_text_add(t, "</td></tr>");
}

static void card(page *p, const json_t *model, const json_t *row)
{
    pare_text *t = &p->text;
    char name[128];
    const json_t *dense = json_array_get(p->models, 0);
    const char *size = p->channels ? "bytes" : "zlib_bytes";
    pare_text_add(t, "<div class=\"card\"><h3>");
    pare_text_add_escaped(t, pare_prune_name(model, name, sizeof name));
    pare_text_add(t, "</h3><table>");
    card_line(t, "multiply-adds that are left", p->channels ? pare_prune_left(row, "macs") : NAN,
              "%");
    card_line(t, "weights that are not 0", p->channels ? NAN : pare_prune_left(row, "weights"),
              "%");
    card_line(t, p->channels ? "smaller" : "smaller through zlib",
              pare_report_number(dense, size, NAN) / pare_report_number(model, size, NAN), "x");
    card_line(t, "faster", p->channels ? pare_report_number(model, "speed_up", NAN) : NAN, "x");
    card_accuracy(t, model);
    pare_text_add(t, "</table></div>\n");
}

static void cards(page *p)
{
    enum { MOST = 8 }; /* more than these are a table's matter */
    size_t i;
    json_t *model;
    if (json_array_size(p->models) > MOST + 1) return;
    pare_text_add(&p->text, "<div class=\"cards\">\n");
    json_array_foreach((json_t *)p->models, i, model)
    {
        if (i) card(p, model, row_of(p, i));
    }
    pare_text_add(&p->text, "</div>\n");
}

/* --- models --- */

static void percent_cell(pare_text *t, double value)
{
    if (isnan(value))
        pare_text_add(t, "<td></td>");
    else
        pare_text_add(t, "<td>%.1f&nbsp;%%</td>", value);
}

static void bytes_cell(pare_text *t, const json_t *json, const char *key)
{
    char text[24];
    double value = pare_report_number(json, key, NAN);
    pare_text_add(t, "<td>%s</td>", isnan(value) ? "" : pare_bytes_text(value, text, sizeof text));
}

static void model_row(page *p, const json_t *model, const json_t *row)
{
    pare_text *t = &p->text;
    char name[128];
    pare_text_add(t, "<tr><td title=\"");
    pare_text_add_escaped(t, json_string_value(json_object_get(model, "file")));
    pare_text_add(t, "\">");
    pare_text_add_escaped(t, pare_prune_name(model, name, sizeof name));
    pare_text_add(t, "</td>");
    if (p->channels) {
        percent_cell(t, row ? pare_prune_left(row, "macs") : 100);
        percent_cell(t, row ? pare_prune_left(row, "parameters") : 100);
    } else {
        percent_cell(t, row ? pare_prune_left(row, "weights") : NAN);
    }
    bytes_cell(t, model, "bytes");
    bytes_cell(t, model, "zlib_bytes");
    if (!p->channels) bytes_cell(t, row, "csr_bytes");
    if (p->labels) {
        pare_page_cell(t, model, "top1", "", 2, " %");
        pare_page_drop(t, model);
    }
    if (any_number(p, "agreement")) pare_page_cell(t, model, "agreement", "", 2, " %");
    if (!p->labels && any_number(p, "outputs.0.sqnr_db"))
        pare_page_cell(t, model, "outputs.0.sqnr_db", "", 1, " dB");
    pare_page_latency(t, model);
    if (p->channels) pare_page_cell(t, model, "speed_up", "", 2, "&times;");
    pare_text_add(t, "</tr>\n");
}

static void models(page *p)
{
    size_t i;
    json_t *model;
    pare_text_add(&p->text,
                  "<h2>Every model</h2>\n<div class=\"box\"><table class=\"numbers\"><thead><tr>"
                  "<th>model</th>%s<th>size</th><th>through zlib</th>%s%s%s%s<th>latency</th>%s"
                  "</tr></thead><tbody>\n",
                  p->channels ? "<th>multiply-adds</th><th>parameters</th>"
                              : "<th>weights not 0</th>",
                  p->channels ? "" : "<th>sparse rows</th>",
                  p->labels ? "<th>top-1</th><th>drop [95&nbsp;%]</th>" : "",
                  any_number(p, "agreement") ? "<th>agreement</th>" : "",
                  !p->labels && any_number(p, "outputs.0.sqnr_db") ? "<th>SQNR</th>" : "",
                  p->channels ? "<th>speed-up</th>" : "");
    json_array_foreach((json_t *)p->models, i, model) model_row(p, model, row_of(p, i));
    pare_text_add(&p->text, "</tbody></table></div>\n");
}

/* --- layers --- */

/* "64&times;32&times;3&times;3" */
static void shape_text(pare_text *t, const json_t *dims)
{
    size_t i;
    json_t *dim;
    json_array_foreach((json_t *)dims, i, dim)
        pare_text_add(t, "%s%lld", i ? "&times;" : "", (long long)json_integer_value(dim));
}

static void shape_cells(pare_text *t, const json_t *layer)
{
    const json_t *shape = json_object_get(layer, "shape");
    pare_text_add(t, "<td>");
    shape_text(t, json_object_get(shape, "before"));
    pare_text_add(t, "</td><td>");
    shape_text(t, json_object_get(shape, "after"));
    pare_text_add(t, "</td>");
}

/* Microseconds: a layer takes few. */
static void time_cells(pare_text *t, const json_t *json, const char *path)
{
    static const char *const keys[] = {"before", "after"};
    for (int k = 0; k < 2; k++) {
        double ms = pare_report_number(json_object_get(json, path), keys[k], NAN);
        if (isnan(ms))
            pare_text_add(t, "<td></td>");
        else
            pare_text_add(t, "<td>%.*f&nbsp;&micro;s</td>", ms < 0.01 ? 1 : 0, 1000 * ms);
    }
}

/* Two digits that count, whatever their size. */
static void error_cell(pare_text *t, double part)
{
    double value = 100 * part;
    if (isnan(value))
        pare_text_add(t, "<td></td>");
    else
        pare_text_add(t, "<td>%.*f&nbsp;%%</td>",
                      value >= 10    ? 0
                      : value >= 1   ? 1
                      : value >= 0.1 ? 2
                                     : 3,
                      value);
}

/* Errors of the weights that stay as they were, and as fitted; what was kept. */
static void refit_cells(pare_text *t, const json_t *layer)
{
    double masked = pare_report_number(layer, "held_out.masked", NAN),
           fitted = pare_report_number(layer, "held_out.fitted", NAN),
           ridge = pare_report_number(layer, "ridge", NAN);
    const char *note = json_string_value(json_object_get(layer, "note"));
    error_cell(t, masked);
    error_cell(t, fitted);
    pare_text_add(t, "<td>");
    if (!isnan(ridge))
        pare_text_add(t, "ridge %g", ridge);
    else if (note)
        pare_text_add_escaped(t, note);
    else if (!isnan(masked))
        pare_text_add(t, "only the means");
    pare_text_add(t, "</td></tr>\n");
}

static void layer_row(const page *p, pare_text *t, const json_t *layer)
{
    pare_text_add(t, "<tr><td>");
    pare_text_add_escaped(t, json_string_value(json_object_get(layer, "node")));
    pare_text_add(t, "</td>");
    if (p->channels) {
        char text[24];
        double before = pare_report_number(layer, "before", NAN),
               after = pare_report_number(layer, "after", NAN);
        shape_cells(t, layer);
        pare_text_add(t, "<td>%s</td>", pare_count_text(after, text, sizeof text));
        percent_cell(t, before > 0 ? 100 * after / before : NAN);
        time_cells(t, layer, "time_ms");
    } else {
        double weights = pare_report_number(layer, "weights", NAN);
        pare_page_cell(t, layer, "weights", "", 0, "");
        percent_cell(t, 100 * pare_report_number(layer, "zeros", NAN) / weights);
    }
    refit_cells(t, layer);
}

static void layers_of(page *p, const json_t *row, bool open)
{
    pare_text *t = &p->text;
    char name[128];
    size_t i;
    json_t *layer;
    pare_text_add(t, "<details%s><summary>", open ? " open" : "");
    pare_text_add_escaped(t, pare_prune_name(row, name, sizeof name));
    pare_text_add(t, "</summary>\n<div class=\"box\"><table class=\"numbers words\"><thead><tr>"
                     "<th>layer</th>");
    if (p->channels)
        pare_text_add(t, "<th>weight</th><th>pruned</th><th>multiply-adds</th><th>left</th>"
                         "<th>time</th><th>pruned</th>");
    else
        pare_text_add(t, "<th>weights</th><th>are 0</th>");
    pare_text_add(t,
                  "<th>error, not fitted</th><th>fitted</th><th>refit</th></tr></thead><tbody>\n");
    json_array_foreach(json_object_get(row, "layers"), i, layer) layer_row(p, t, layer);
    if (json_object_get(row, "other_time_ms")) {
        pare_text_add(t, "<tr><td>everything else</td><td></td><td></td><td></td><td></td>");
        time_cells(t, row, "other_time_ms");
        pare_text_add(t, "<td></td><td></td><td></td></tr>\n");
    }
    pare_text_add(t, "</tbody></table></div></details>\n");
}

static void layers(page *p)
{
    size_t i;
    json_t *row;
    pare_text_add(&p->text, "<h2>Layer by layer</h2>\n");
    json_array_foreach((json_t *)p->rows, i, row) layers_of(p, row, json_array_size(p->rows) == 1);
}

/* --- notes --- */

static void notes(page *p)
{
    pare_text *t = &p->text;
    char place[64];
    pare_text_add(t, "<h2>How to read it</h2>\n");
    if (p->labels)
        pare_text_add(t,
                      "<p class=\"soft\">Drop: top-1 of the dense model minus that of this one, in "
                      "points, on the same samples, with Newcombe&#39;s paired 95&nbsp;%% interval "
                      "(method 10, 1998), which the lines in the picture show; an interval "
                      "that holds zero means that no loss was measured. The curve joins models "
                      "that no smaller one equals or beats; others are hollow, the dense one is "
                      "grey. Samples from what the model was trained on understate a loss: "
                      "pare validate with others has the last word.</p>\n");
    if (any_number(p, "agreement"))
        pare_text_add(t, "<p class=\"soft\">Agreement: same first class as the dense model.</p>\n");
    pare_text_add(t, "<p class=\"soft\">Errors of a layer: squared error of its result against the "
                     "dense model&#39;s on a fifth of the samples that its weights were not fitted "
                     "to, as a part of the variance there; not fitted: the weights that stay as "
                     "they were, with means corrected. Where fitting made it no smaller, they "
                     "stay.</p>\n");
    if (!p->channels)
        pare_text_add(t, "<p class=\"soft\">Dense kernels take as long as before: zeros save space "
                         "where the file is compressed (zlib) or kept as sparse rows (CSR), and "
                         "time only in sparse kernels.</p>\n");
    pare_text_add(
        t,
        "<p class=\"soft\">Latency: median of one sample on %s, all models in turns; * "
        "marks one that was unstable. Times of layers: medians of runs step by step, with "
        "what is fused into them; they add up to more than the latency.</p>\n",
        pare_page_place(json_object_get(p->compared, "device"),
                        pare_report_number(p->models, "0.threads", 1), place, sizeof place));
}

pare_status pare_prune_page_write(pare_ctx *ctx, const json_t *facts, const char *path)
{
    page p = {.text = {.ctx = ctx}, .facts = facts, .compared = json_object_get(facts, "compared")};
    p.models = json_object_get(p.compared, "models");
    p.rows = pare_prune_rows(facts, &p.channels);
    p.labels = any_number(&p, "top1");
    pare_page_begin(&p.text, "pare prune");
    headline(&p);
    cards(&p);
    pare_prune_chart_add(&p.text, facts);
    models(&p);
    pare_prune_tune_add(&p.text, p.rows);
    layers(&p);
    notes(&p);
    return pare_page_end(&p.text, path);
}

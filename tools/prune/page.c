/* SPDX-License-Identifier: Apache-2.0 */
/* The page of pare prune --report: headline, a card per model, picture, table, training, layers,
   notes. */
#include "tools/prune/report.h"
#include "tools/report/page.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

typedef struct page {
    pare_text *text;
    const json_t *facts, *compared, *models, *rows;
    bool channels; /* were removed; else single weights became 0 */
    bool labels;   /* top-1 is known */
} page;

static const json_t *row_of(const page *p, size_t model)
{
    return model ? json_array_get(p->rows, model - 1) : NULL;
}

/* --- headline and cards --- */

static void headline(page *p)
{
    pare_text *t = p->text;
    const json_t *data = json_object_get(p->compared, "data");
    size_t count = json_array_size(p->rows);
    pare_text_html(t, "<h1>What pruning cost</h1>\n<p class=\"soft\">%s, %zu pruned model%s",
                   pare_report_words(p->facts, "model.file"), count, count == 1 ? "" : "s");
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
                  pare_report_loss(model));
    pare_number_signed(t, PARE_HTML, -drop);
    pare_text_add(t, "</td></tr>");
}

static void card(page *p, const json_t *model, const json_t *row)
{
    pare_text *t = p->text;
    char name[128];
    const json_t *dense = json_array_get(p->models, 0);
    const char *size = p->channels ? "bytes" : "zlib_bytes";
    pare_text_html(t, "<div class=\"card\"><h3>%s</h3><table>",
                   pare_report_name(model, name, sizeof name));
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
    enum { MOST = 8 }; /* of more the table alone tells */
    size_t i;
    json_t *model;
    if (json_array_size(p->models) > MOST + 1) return;
    pare_text_add(p->text, "<div class=\"cards\">\n");
    json_array_foreach((json_t *)p->models, i, model)
    {
        if (i) card(p, model, row_of(p, i));
    }
    pare_text_add(p->text, "</div>\n");
}

/* --- training --- */

static void number_cell(pare_cell *cell) { pare_text_add(cell->text, "%zu", cell->number + 1); }

/* A part of 1 in percent. */
static void part_cell(pare_cell *cell) { pare_cell_percent(cell, 100 * pare_cell_number(cell)); }

static const pare_column step_columns[] = {
    PARE_COLUMN(NULL, "step", NULL, number_cell),
    PARE_COLUMN(NULL, "left", "kept", part_cell),
    PARE_COLUMN(NULL, "loss before", "before.loss", pare_cell_fixed, 4),
    PARE_COLUMN(NULL, "after", "after.loss", pare_cell_fixed, 4),
    PARE_COLUMN(NULL, "agreement before", "before.agreement", pare_cell_fixed, 2, " %"),
    PARE_COLUMN(NULL, "after", "after.agreement", pare_cell_fixed, 2, " %"),
    PARE_COLUMN(NULL, "top-1 before", "before.top1", pare_cell_fixed, 2, " %"),
    PARE_COLUMN(NULL, "after", "after.top1", pare_cell_fixed, 2, " %"),
    PARE_COLUMN(NULL, "steps", "steps", pare_cell_fixed, 0),
    PARE_COLUMN(NULL, "best", "best_step", pare_cell_fixed, 0),
    {0},
};

/* What was trained, step by step; nothing where nothing was. */
static void training(page *p)
{
    pare_text *t = p->text;
    char name[128];
    size_t i;
    json_t *row;
    const json_t *first = json_object_get(json_array_get(p->rows, 0), "distilled");
    if (!first) return;
    pare_text_html(
        t,
        "<h2>Training</h2>\n<p class=\"soft\">After each step of pruning what was left learned to "
        "give what the dense model gives: in all %g passes over %.0f samples, batch %.0f, loss %s. "
        "Before and after: on %.0f samples that were held out, which decide after how many of the "
        "optimizer&#39;s steps the weights were best; 0: they were best as they came.</p>\n",
        pare_report_number(first, "epochs", NAN), pare_report_number(first, "train_samples", 0),
        pare_report_number(first, "batch", 0), pare_report_words(first, "loss"),
        pare_report_number(first, "held_out", 0));
    json_array_foreach((json_t *)p->rows, i, row)
    {
        const json_t *distilled = json_object_get(row, "distilled");
        if (!distilled) continue;
        pare_text_html(t, "<h3>%s</h3>\n", pare_report_name(row, name, sizeof name));
        pare_grid_html_all(t, step_columns, 0, "numbers", NULL,
                           json_object_get(distilled, "steps"));
    }
}

/* --- layers --- */

static void shape_cell(pare_cell *cell)
{
    pare_page_shape(cell->text, pare_report_find(cell->row, cell->column->path));
}

static void count_cell(pare_cell *cell)
{
    char text[24];
    const double after = pare_cell_number(cell);
    if (!isnan(after)) pare_text_add(cell->text, "%s", pare_count_text(after, text, sizeof text));
}

static void left_cell(pare_cell *cell)
{
    const double before = pare_report_number(cell->row, "before", NAN);
    pare_cell_percent(cell, before > 0 ? 100 * pare_report_number(cell->row, "after", NAN) / before
                                       : NAN);
}

static void zeros_cell(pare_cell *cell)
{
    pare_cell_percent(cell, 100 * pare_report_number(cell->row, "zeros", NAN) /
                                pare_report_number(cell->row, "weights", NAN));
}

/* Microseconds: a layer takes few. */
static void time_cell(pare_cell *cell)
{
    const double ms = pare_cell_number(cell);
    if (!isnan(ms)) pare_text_add(cell->text, "%.*f&nbsp;&micro;s", ms < 0.01 ? 1 : 0, 1000 * ms);
}

/* Two digits that count, whatever their size. */
static void error_cell(pare_cell *cell)
{
    const double value = 100 * pare_cell_number(cell);
    const int digits = value >= 10 ? 0 : value >= 1 ? 1 : value >= 0.1 ? 2 : 3;
    if (!isnan(value)) pare_text_add(cell->text, "%.*f&nbsp;%%", digits, value);
}

/* What was kept of the fitted weights. */
static void refit_cell(pare_cell *cell)
{
    const double ridge = pare_report_number(cell->row, "ridge", NAN);
    const char *note = pare_report_words(cell->row, "note");
    if (!isnan(ridge))
        pare_text_add(cell->text, "ridge %g", ridge);
    else if (json_object_get(cell->row, "note"))
        pare_text_html(cell->text, "%s", note);
    else if (!isnan(pare_report_number(cell->row, "held_out.masked", NAN)))
        pare_text_add(cell->text, "only the means");
}

enum { CHANNELS = 1, WEIGHTS = 2 };

static const pare_column layer_columns[] = {
    PARE_COLUMN(NULL, "layer", "node", pare_cell_words),
    PARE_COLUMN(NULL, "weight", "shape.before", shape_cell, .when = CHANNELS),
    PARE_COLUMN(NULL, "pruned", "shape.after", shape_cell, .when = CHANNELS),
    PARE_COLUMN(NULL, "multiply-adds", "after", count_cell, .when = CHANNELS),
    PARE_COLUMN(NULL, "left", NULL, left_cell, .when = CHANNELS),
    PARE_COLUMN(NULL, "time", "time_ms.before", time_cell, .when = CHANNELS),
    PARE_COLUMN(NULL, "pruned", "time_ms.after", time_cell, .when = CHANNELS),
    PARE_COLUMN(NULL, "weights", "weights", pare_cell_fixed, .when = WEIGHTS),
    PARE_COLUMN(NULL, "are 0", NULL, zeros_cell, .when = WEIGHTS),
    PARE_COLUMN(NULL, "error, not fitted", "held_out.masked", error_cell),
    PARE_COLUMN(NULL, "fitted", "held_out.fitted", error_cell),
    PARE_COLUMN(NULL, "refit", NULL, refit_cell),
    {0},
};

static void layers_of(page *p, const json_t *row)
{
    pare_grid grid;
    char name[128];
    size_t i;
    json_t *layer;
    pare_text_html(p->text, "<details%s><summary>%s</summary>\n",
                   json_array_size(p->rows) == 1 ? " open" : "",
                   pare_report_name(row, name, sizeof name));
    pare_grid_html(&grid, p->text, layer_columns, p->channels ? CHANNELS : WEIGHTS, "numbers words",
                   NULL);
    json_array_foreach(json_object_get(row, "layers"), i, layer)
        pare_grid_row(&grid, layer, NULL, NULL);
    if (json_object_get(row, "other_time_ms")) {
        layer = json_pack("{s:s, s:O}", "node", "everything else", "time_ms",
                          json_object_get(row, "other_time_ms"));
        pare_grid_row(&grid, layer, NULL, NULL);
        json_decref(layer);
    }
    pare_grid_end(&grid, "</details>");
}

static void layers(page *p)
{
    size_t i;
    json_t *row;
    pare_text_add(p->text, "<h2>Layer by layer</h2>\n");
    json_array_foreach((json_t *)p->rows, i, row) layers_of(p, row);
}

/* --- notes --- */

static void notes(page *p)
{
    pare_text *t = p->text;
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
    if (pare_report_any(p->models, "agreement"))
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

void pare_prune_page_add(pare_text *t, const json_t *facts)
{
    page p = {.text = t, .facts = facts, .compared = json_object_get(facts, "compared")};
    p.models = json_object_get(p.compared, "models");
    p.rows = pare_prune_rows(facts, &p.channels);
    p.labels = pare_report_any(p.models, "top1");
    pare_page_begin(t, "pare prune");
    headline(&p);
    cards(&p);
    pare_prune_chart_add(t, facts);
    pare_text_add(t, "<h2>Every model</h2>\n");
    pare_prune_models_add(t, facts);
    training(&p);
    layers(&p);
    notes(&p);
    pare_page_end(t);
}

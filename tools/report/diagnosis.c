/* SPDX-License-Identifier: Apache-2.0 */
/* What pare diagnose found: findings, a chart of every quantized tensor, a table. */
#include "tools/chart.h"
#include "tools/report/page.h"
#include "tools/report/report.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

/* Where a tensor's error comes from, in the order in which the bars are stacked. */
static const struct {
    const char *key, *words;
} kinds[] = {{"clipping", "clipping"},
             {"rounding", "rounding"},
             {"weight", "rounded weights"},
             {"bias", "bias"},
             {"carried", "carried in"}};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* --- findings --- */

static void decibels(pare_text *t, const char *before, const json_t *json, const char *key)
{
    const double db = pare_report_number(json, key, NAN);
    if (!isnan(db)) pare_text_add(t, "%s%.1f&nbsp;dB", before, db);
}

static void headline(pare_text *t, const json_t *facts, const json_t *d)
{
    pare_text_html(t, "<h2>What %s lost</h2>\n<p class=\"soft\">",
                   pare_report_words(facts, "quantized.file"));
    pare_text_html(t, "Beside %s, on ", pare_report_words(facts, "model.file"));
    pare_text_add(t, "%.0f samples: ", pare_report_number(d, "samples", 0));
    if (json_object_get(d, "sqnr_db"))
        decibels(t, "SQNR of the outputs ", d, "sqnr_db");
    else
        pare_text_add(t, "the outputs are equal, or no numbers");
    decibels(t, "; mended ", d, "fixed_db");
    pare_text_add(t, ".</p>\n");
}

static void findings(pare_text *t, const json_t *d)
{
    size_t i;
    json_t *f;
    pare_text_add(t, "<h3>Findings</h3>\n");
    if (!json_array_size(json_object_get(d, "findings")))
        pare_text_add(t, "<p>Nothing stands out.</p>\n");
    json_array_foreach(json_object_get(d, "findings"), i, f)
    {
        const char *node = pare_report_words(f, "node");
        pare_text_html(t, "<div class=\"card\"><h4>%s: %s</h4><p>Tensor <code>%s</code>: %s.",
                       pare_report_words(f, "fault"), *node ? node : "input",
                       pare_report_words(f, "tensor"), pare_report_words(f, "cause"));
        decibels(t, " It alone leaves ", f, "alone_db");
        pare_text_add(t, "</p>");
        if (json_object_get(f, "cure")) {
            pare_text_html(t, "<p>Cure: %s", pare_report_words(f, "cure"));
            const double gain = pare_report_number(f, "gain_db", NAN);
            if (!isnan(gain)) pare_text_add(t, " (%+.1f&nbsp;dB)", gain);
            pare_text_add(t, "%s.</p>",
                          json_is_true(json_object_get(f, "applied")) ? ", applied" : "");
        }
        pare_text_add(t, "</div>\n");
    }
}

/* --- the chart: a bar per tensor, in the order of the graph --- */

enum { WIDE = 960, HIGH = 260, LEFT = 56, RIGHT = 12, TOP = 26, BOTTOM = 40 };

/* The error in decibels of the tensor's energy, upwards; its parts share the bar as they share the
   error. */
static void bar(const pare_chart *c, const json_t *tensor, size_t i)
{
    const double db = pare_report_number(tensor, "sqnr_db", NAN);
    const double left = pare_chart_x(c, (double)i + 0.1), right = pare_chart_x(c, (double)i + 0.9);
    const double foot = pare_chart_y(c, c->y0), high = foot - pare_chart_y(c, -db);
    double sum = 0, at = foot;
    char look[40];
    for (int k = 0; k < KINDS; k++) sum += pare_report_number(tensor, kinds[k].key, 0);
    if (isnan(db) || !(sum > 0)) return;
    pare_text_add(c->text, "<g>");
    for (int k = 0; k < KINDS; k++) {
        const double height = high * pare_report_number(tensor, kinds[k].key, 0) / sum;
        snprintf(look, sizeof look, "fill=\"var(--c%d)\"", k);
        if (height > 0) pare_chart_rect(c->text, left, at - height, right - left, height, look);
        at -= height;
    }
    pare_text_html(c->text, "<title>%s: SQNR %.1f dB", pare_report_words(tensor, "tensor"), db);
    for (int k = 0; k < KINDS; k++)
        pare_text_html(c->text, ", %s %.0f %%", kinds[k].words,
                       100 * pare_report_number(tensor, kinds[k].key, 0) / sum);
    pare_text_add(c->text, "</title></g>");
}

static void legend(pare_text *t)
{
    pare_text_add(t, "<p class=\"soft\">");
    for (int k = 0; k < KINDS; k++)
        pare_text_add(t, "<span style=\"color:var(--c%d)\">&#9632;</span> %s &nbsp; ", k,
                      kinds[k].words);
    pare_text_add(t, "</p>\n");
}

static void chart(pare_text *t, const json_t *tensors)
{
    pare_chart c = {.text = t,
                    .width = WIDE,
                    .height = HIGH,
                    .left = LEFT,
                    .right = WIDE - RIGHT,
                    .top = TOP,
                    .bottom = HIGH - BOTTOM};
    size_t i;
    json_t *tensor;
    pare_chart_clear(&c);
    json_array_foreach((json_t *)tensors, i, tensor)
    {
        const double db = pare_report_number(tensor, "sqnr_db", NAN);
        if (!isnan(db)) pare_chart_include(&c, (double)i, -db, NAN, NAN);
    }
    if (!pare_chart_widen(&c, 1, 1)) return;
    c.x0 = 0;
    c.x1 = (double)json_array_size(tensors);
    pare_text_add(t, "<h3>Tensor by tensor</h3>\n<p class=\"soft\">In the order of the graph, from "
                     "left to right. A high bar is a tensor far from the float model&#39;s; its "
                     "colours say where that comes from.</p>\n");
    pare_text_add(t,
                  "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Error of every quantized "
                  "tensor by its causes\">",
                  WIDE, HIGH);
    pare_chart_axes(&c, "tensor", "error, dB of its energy");
    json_array_foreach((json_t *)tensors, i, tensor) bar(&c, tensor, i);
    pare_text_add(t, "</svg>\n");
    legend(t);
}

/* --- the table --- */

static void ends(pare_cell *cell)
{
    const json_t *pair = json_object_get(cell->row, cell->column->path);
    pare_text_add(cell->text, "%.4g to %.4g", json_number_value(json_array_get(pair, 0)),
                  json_number_value(json_array_get(pair, 1)));
}

static void share(pare_cell *cell)
{
    const double total = pare_report_number(cell->row, "total", NAN);
    if (total > 0) pare_cell_percent(cell, fmin(100 * pare_cell_number(cell) / total, 100));
}

static const pare_column columns[] = {
    PARE_COLUMN(NULL, "tensor", "tensor", pare_cell_words),
    PARE_COLUMN(NULL, "range", "range", ends),
    PARE_COLUMN(NULL, "samples", "seen", ends),
    PARE_COLUMN(NULL, "alone, outputs dB", "alone_db", pare_cell_fixed, 1),
    PARE_COLUMN(NULL, "its SQNR, dB", "sqnr_db", pare_cell_fixed, 1),
    PARE_COLUMN(NULL, "clipping", "clipping", share),
    PARE_COLUMN(NULL, "rounding", "rounding", share),
    PARE_COLUMN(NULL, "weights", "weight", share),
    PARE_COLUMN(NULL, "bias", "bias", share),
    PARE_COLUMN(NULL, "carried in", "carried", share),
    {0},
};

static void one(pare_text *t, const json_t *facts)
{
    const json_t *d = json_object_get(facts, "diagnosis"), *tensors = json_object_get(d, "tensors");
    headline(t, facts, d);
    findings(t, d);
    chart(t, tensors);
    if (!json_array_size(tensors)) return;
    pare_text_add(t, "<h3>All of them</h3>\n");
    pare_grid_html_all(t, columns, 0, "numbers", "Quantized tensors", tensors);
}

void pare_parts_diagnoses(pare_text *t, const json_t *facts)
{
    size_t i;
    json_t *each;
    json_array_foreach((json_t *)facts, i, each)
    {
        if (!strcmp(pare_report_words(each, "command"), "diagnose")) one(t, each);
    }
}

pare_status pare_diagnosis_write(pare_ctx *ctx, const json_t *facts, const char *path)
{
    pare_text text = {.ctx = ctx};
    pare_page_begin(&text, "pare diagnose");
    pare_text_add(&text, "<h1>pare diagnose</h1>\n");
    one(&text, facts);
    pare_page_end(&text);
    return pare_page_write(&text, path);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/chart.h"

#include "tools/report/report.h"
#include "tools/report/gather.h"
#include "tools/report/page.h"
#include "tools/svg.h"

#include <math.h>
#include <string.h>

/* The frame, and what y is: top-1 in percent, else SQNR in dB. x: milliseconds. */
typedef struct chart {
    pare_svg svg;
    bool labels;
    bool names; /* beside the points */
    bool many;  /* small points of one colour; intervals only of those on a front */
} chart;

typedef struct point {
    double ms, y, low, high, ms_low, ms_high; /* low, high: intervals, NAN without */
    const char *file, *precision;
    bool front;
} point;

enum { MOST_NAMES = 12 }; /* more are a table's matter */
enum { MANY = 200 };      /* models that would cover one another */

static size_t count_models(const json_t *comparisons)
{
    size_t n = 0, i;
    json_t *one;
    json_array_foreach((json_t *)comparisons, i, one) n +=
        json_array_size(json_object_get(one, "models"));
    return n;
}

static point point_of(const json_t *model, bool labels)
{
    const pare_report_point at = pare_report_point_of(model, labels);
    const char *file = json_string_value(json_object_get(model, "file"));
    const char *precision = json_string_value(json_object_get(model, "precision"));
    return (point){at.ms,
                   at.y,
                   at.low,
                   at.high,
                   at.ms_low,
                   at.ms_high,
                   file ? file : "",
                   precision ? precision : "",
                   json_is_true(json_object_get(model, "front"))};
}

static bool drawable(const point *p) { return p->ms > 0 && isfinite(p->y); }

/* The ends of both axes: all points and intervals with a margin. False where nothing can be drawn.
 */
static bool set_ends(chart *c, const json_t *comparisons)
{
    size_t i, k;
    json_t *facts, *model;
    pare_svg_clear(&c->svg);
    json_array_foreach((json_t *)comparisons, i, facts)
        json_array_foreach(json_object_get(facts, "models"), k, model)
    {
        point p = point_of(model, c->labels);
        if (!drawable(&p)) continue;
        pare_svg_include(&c->svg, p.ms, p.y, p.low, p.high);
        if (p.ms_low > 0) pare_svg_include(&c->svg, p.ms_low, p.y, NAN, NAN);
        if (p.ms_high > 0) pare_svg_include(&c->svg, p.ms_high, p.y, NAN, NAN);
    }
    return pare_svg_widen(&c->svg, 0.06, 0.1);
}

/* One shape per precision: circle, square, triangle, diamond. */
static void add_marker(pare_text *t, const char *precision, double x, double y, double r,
                       const char *colour)
{
    if (!strcmp(precision, "int8"))
        pare_text_add(t, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1.5\"",
                      x - r + 1, y - r + 1, 2 * r - 2, 2 * r - 2);
    else if (!strcmp(precision, "fp16"))
        pare_text_add(t, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"", x, y - r, r, 1.8 * r, -2 * r);
    else if (!strcmp(precision, "bf16"))
        pare_text_add(t, "<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"", x, y - r - 1,
                      r + 1, r + 1, -r - 1, r + 1, -r - 1, -r - 1);
    else
        pare_text_add(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", x, y, r - 0.5);
    pare_text_add(t, " fill=\"%s\" stroke=\"var(--card)\" stroke-width=\"1.5\"", colour);
}

/* An interval. */
static void add_bar(const chart *c, double x1, double x2, double y1, double y2, const char *colour)
{
    pare_text_add(c->svg.text,
                  "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                  "stroke-opacity=\".35\" stroke-width=\"2\"/>",
                  x1, x2, y1, y2, colour);
}

static void add_point(const chart *c, const point *p, const char *colour)
{
    double x = pare_svg_x(&c->svg, p->ms), y = pare_svg_y(&c->svg, p->y);
    const bool bars = !c->many || p->front;
    if (bars && !isnan(p->low))
        add_bar(c, x, x, pare_svg_y(&c->svg, p->low), pare_svg_y(&c->svg, p->high), colour);
    if (bars && p->ms_low > 0)
        add_bar(c, pare_svg_x(&c->svg, p->ms_low), pare_svg_x(&c->svg, p->ms_high), y, y, colour);
    add_marker(c->svg.text, p->precision, x, y, c->many ? 3.5 : 6, colour);
    pare_text_add(c->svg.text, "><title>");
    pare_text_add_escaped(c->svg.text, p->file);
    pare_text_add(c->svg.text, ": %.2f %s, %.3g ms</title>", p->y, c->labels ? "%" : "dB", p->ms);
    pare_text_add(c->svg.text, "</%s>\n",
                  !strcmp(p->precision, "int8")   ? "rect"
                  : !strcmp(p->precision, "fp16") ? "path"
                  : !strcmp(p->precision, "bf16") ? "path"
                                                  : "circle");
}

/* The file's name above its point, towards the middle. */
static void add_name(const chart *c, const point *p)
{
    const double x = pare_svg_x(&c->svg, p->ms), y = pare_svg_y(&c->svg, p->y);
    const char *slash = strrchr(p->file, '/');
    const bool left = x > (c->svg.left + c->svg.right) / 2;
    pare_text_add(c->svg.text, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                  left ? x - 9 : x + 9, y - 7, left ? "end" : "start");
    pare_text_add_escaped(c->svg.text, slash ? slash + 1 : p->file);
    pare_text_add(c->svg.text, "</text>\n");
}

/* The points of one comparison, joined to the first by a thin line. */
static void add_group(const chart *c, const json_t *facts, size_t group)
{
    const json_t *models = json_object_get(facts, "models");
    char colour[16];
    size_t k;
    json_t *model;
    snprintf(colour, sizeof colour, "var(--c%zu)", c->many ? 0 : group % PARE_CHART_COLOURS);
    point first = point_of(json_array_get(models, 0), c->labels);
    json_array_foreach((json_t *)models, k, model)
    {
        point p = point_of(model, c->labels);
        if (k && !c->many && drawable(&first) && drawable(&p))
            pare_text_add(c->svg.text,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                          "stroke-opacity=\".4\"/>",
                          pare_svg_x(&c->svg, first.ms), pare_svg_y(&c->svg, first.y),
                          pare_svg_x(&c->svg, p.ms), pare_svg_y(&c->svg, p.y), colour);
    }
    json_array_foreach((json_t *)models, k, model)
    {
        point p = point_of(model, c->labels);
        if (drawable(&p)) add_point(c, &p, colour);
        if (drawable(&p) && c->names) add_name(c, &p);
    }
}

/* Steps from the quickest model on the front to the best one, of each data set. */
static void add_fronts(const chart *c, const json_t *comparisons)
{
    json_t *fronts = pare_chart_fronts(comparisons, c->labels), *front, *at;
    size_t i, k;
    json_array_foreach(fronts, i, front)
    {
        pare_text_add(c->svg.text, "<path class=\"front\" d=\"");
        json_array_foreach(front, k, at)
        {
            const double x = pare_svg_x(&c->svg, pare_report_number(at, "0", 0));
            const double y = pare_svg_y(&c->svg, pare_report_number(at, "1", 0));
            pare_text_add(c->svg.text, k ? "H%.1fV%.1f" : "M%.1f %.1f", x, y);
        }
        pare_text_add(c->svg.text, "\" fill=\"none\" stroke=\"var(--soft)\" stroke-width=\"1.5\" "
                                   "stroke-dasharray=\"5 4\"/>\n");
    }
    json_decref(fronts);
}

/* Networks by colour, precisions by shape, in rows above the picture; returns the height used. */
static double add_legend(const chart *c, const json_t *comparisons)
{
    static const char *const precisions[] = {"fp32", "int8", "fp16", "bf16"};
    double x = 14, y = 22;
    size_t i;
    json_t *facts;
    const bool few = json_array_size(comparisons) <= MOST_NAMES;
    json_array_foreach((json_t *)(few ? comparisons : NULL), i, facts)
    {
        char stem[128], colour[16];
        const json_t *first = json_array_get(json_object_get(facts, "models"), 0);
        pare_report_stem(json_string_value(json_object_get(first, "file")), stem, sizeof stem);
        double wide = 34 + 7.2 * (double)strlen(stem);
        if (x + wide > c->svg.width && x > 14) {
            x = 14;
            y += 20;
        }
        snprintf(colour, sizeof colour, "var(--c%zu)", i % PARE_CHART_COLOURS);
        pare_text_add(c->svg.text,
                      "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"4\" rx=\"2\" fill=\"%s\"/>"
                      "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">",
                      x, y - 6, colour, x + 20, y);
        pare_text_add_escaped(c->svg.text, stem);
        pare_text_add(c->svg.text, "</text>\n");
        x += wide;
    }
    if (x + 4 * 56 > c->svg.width) {
        x = 14;
        y += 20;
    }
    for (i = 0; i < 4; i++, x += 56) {
        add_marker(c->svg.text, precisions[i], x + 7, y - 4, 6, "var(--soft)");
        pare_text_add(c->svg.text, "/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 18, y,
                      precisions[i]);
    }
    return y;
}

static void add_chart(pare_text *text, const json_t *comparisons, const char *class, double width,
                      double height, bool labels)
{
    const bool alone = !*class;
    chart c = {.svg = {.text = text,
                       .width = width,
                       .height = height,
                       .left = 54,
                       .right = width - 16,
                       .bottom = height - 48,
                       .log_x = true},
               .labels = labels,
               .names = width > 500 && count_models(comparisons) <= MOST_NAMES,
               .many = count_models(comparisons) > MANY};
    if (!set_ends(&c, comparisons)) return;
    if (!alone)
        pare_text_add(
            text,
            "<svg class=\"%s\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s against "
            "latency of every model\">\n",
            class, width, height, labels ? "Accuracy" : "SQNR");
    c.svg.top = add_legend(&c, comparisons) + 44;
    pare_svg_axes(&c.svg, "median latency of one sample, ms (logarithmic)",
                  labels ? "top-1, %" : "SQNR, dB");
    size_t i;
    json_t *facts;
    add_fronts(&c, comparisons);
    json_array_foreach((json_t *)comparisons, i, facts) add_group(&c, facts, i);
    pare_text_add(text, "</svg>\n");
}

static bool any_point(const json_t *comparisons, bool labels)
{
    chart c = {.svg.log_x = true, .labels = labels};
    return set_ends(&c, comparisons);
}

/* Top-1 where any model has it beside its latency. */
static bool by_accuracy(const json_t *comparisons) { return any_point(comparisons, true); }

bool pare_chart_add(pare_text *text, const json_t *comparisons)
{
    const bool labels = by_accuracy(comparisons), many = count_models(comparisons) > MANY;
    if (!any_point(comparisons, labels)) return false;
    pare_text_add(text, "<h2>%s against latency</h2>\n<div class=\"box still\">\n",
                  labels ? "Accuracy" : "SQNR");
    add_chart(text, comparisons, many ? "any" : "wide", 980, 470, labels);
    if (!many) add_chart(text, comparisons, "narrow", 360, 400, labels);
    pare_text_add(text,
                  "</div>\n<div class=\"box plot\" id=\"plot\" hidden><canvas role=\"img\" "
                  "aria-label=\"%s against latency of every model; the table below has the "
                  "numbers\"></canvas></div>\n",
                  labels ? "Accuracy" : "SQNR");
    return true;
}

pare_status pare_chart_write(pare_ctx *ctx, const json_t *comparisons, const char *path)
{
    enum { WIDTH = 980, HEIGHT = 470 };
    const bool labels = by_accuracy(comparisons);
    pare_text text = {.ctx = ctx};
    if (!any_point(comparisons, labels))
        return PARE_FAIL(ctx, INPUT,
                         "%s: there is no picture: no model has a latency beside its accuracy or "
                         "error",
                         path);
    pare_page_picture(&text, WIDTH, HEIGHT);
    add_chart(&text, comparisons, "", WIDTH, HEIGHT, labels);
    return pare_page_write(&text, path);
}

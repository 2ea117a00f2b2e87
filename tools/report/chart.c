/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy (or SQNR) against latency: as SVG, and as the data island that report.js draws. */
#include "tools/chart.h"

#include "formats/json.h"
#include "tools/report/page.h"
#include "tools/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The frame, and what y is: top-1 in percent, else SQNR in dB. x: milliseconds. */
typedef struct plot {
    pare_chart frame;
    bool labels;
    bool names; /* beside the points */
    bool many;  /* small points of one colour; intervals only of those on a front */
} plot;

enum { MOST_NAMES = 12 }; /* with more the table alone names them */
enum { MANY = 200 };      /* models that would cover one another */

static size_t count_models(const json_t *comparisons)
{
    size_t n = 0;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) n++;
    return n;
}

static bool any_point(const json_t *comparisons, bool labels)
{
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        const pare_report_point p = pare_report_point_of(m.model, labels);
        if (pare_report_has_point(&p)) return true;
    }
    return false;
}

/* Top-1 where any model has it beside its latency. */
static bool by_accuracy(const json_t *comparisons) { return any_point(comparisons, true); }

static json_t *number(double value)
{
    char text[32];
    if (!isfinite(value)) return json_null();
    snprintf(text, sizeof text, "%.6g", value); /* what a picture shows; the page stays small */
    return json_real(strtod(text, NULL));
}

/* --- fronts --- */

static int by_time(const void *a, const void *b)
{
    const double x = pare_report_number(*(json_t *const *)a, "0", 0);
    const double y = pare_report_number(*(json_t *const *)b, "0", 0);
    return (x > y) - (x < y);
}

static json_t *sorted(const json_t *points)
{
    const size_t n = json_array_size(points);
    json_t **item = calloc(n + 1, sizeof *item), *list = json_array();
    for (size_t i = 0; item && i < n; i++) item[i] = json_array_get(points, i);
    if (item) qsort(item, n, sizeof *item, by_time);
    for (size_t i = 0; item && i < n; i++) json_array_append(list, item[i]);
    free(item);
    return list;
}

/* The points of the front, [[ms, y]] from the quickest on, of each data set. */
static json_t *fronts_of(const json_t *comparisons, bool labels)
{
    json_t *by_data = json_object(), *fronts = json_array(), *points;
    const char *key;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        const pare_report_point p = pare_report_point_of(m.model, labels);
        const char *data = pare_report_words(m.one, "data.file");
        if (!json_is_true(json_object_get(m.model, "front")) || !pare_report_has_point(&p))
            continue;
        if (!json_object_get(by_data, data)) json_object_set_new(by_data, data, json_array());
        json_array_append_new(json_object_get(by_data, data),
                              json_pack("[o, o]", number(p.ms), number(p.y)));
    }
    json_object_foreach(by_data, key, points)
    {
        if (json_array_size(points) > 1) json_array_append_new(fronts, sorted(points));
    }
    json_decref(by_data);
    return fronts;
}

/* --- the picture --- */

/* The ends of both axes: all points and intervals with a margin. False where nothing can be drawn.
 */
static bool set_ends(plot *c, const json_t *comparisons)
{
    pare_chart_clear(&c->frame);
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        const pare_report_point p = pare_report_point_of(m.model, c->labels);
        if (!pare_report_has_point(&p)) continue;
        pare_chart_include(&c->frame, p.ms, p.y, p.low, p.high);
        if (p.ms_low > 0) pare_chart_include(&c->frame, p.ms_low, p.y, NAN, NAN);
        if (p.ms_high > 0) pare_chart_include(&c->frame, p.ms_high, p.y, NAN, NAN);
    }
    return pare_chart_widen(&c->frame, 0.06, 0.1);
}

/* One shape per precision: circle, square, triangle, diamond; of weights of their own bits (w4a16
   and the like) a triangle that stands on its point. */
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
    else if (*precision == 'w')
        pare_text_add(t, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"", x, y + r, r, -1.8 * r, -2 * r);
    else
        pare_text_add(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", x, y, r - 0.5);
    pare_text_add(t, " fill=\"%s\" stroke=\"var(--card)\" stroke-width=\"1.5\"", colour);
}

static const char *marker_tag(const char *precision)
{
    const bool path = !strcmp(precision, "fp16") || !strcmp(precision, "bf16") || *precision == 'w';
    return path ? "path" : !strcmp(precision, "int8") ? "rect" : "circle";
}

static void add_point(const plot *c, const json_t *model, const pare_report_point *p,
                      const char *colour)
{
    pare_text *t = c->frame.text;
    const double x = pare_chart_x(&c->frame, p->ms), y = pare_chart_y(&c->frame, p->y);
    const char *precision = pare_report_words(model, "precision");
    const bool bars = !c->many || json_is_true(json_object_get(model, "front"));
    if (bars && !isnan(p->low))
        pare_chart_interval(t, x, x, pare_chart_y(&c->frame, p->low),
                            pare_chart_y(&c->frame, p->high), colour, ".35");
    if (bars && p->ms_low > 0)
        pare_chart_interval(t, pare_chart_x(&c->frame, p->ms_low),
                            pare_chart_x(&c->frame, p->ms_high), y, y, colour, ".35");
    add_marker(t, precision, x, y, c->many ? 3.5 : 6, colour);
    pare_text_html(t, "><title>%s: %.2f %s, %.3g ms</title></%s>\n",
                   pare_report_words(model, "file"), p->y, c->labels ? "%" : "dB", p->ms,
                   marker_tag(precision));
}

/* The file's name above its point, towards the middle. */
static void add_name(const plot *c, const json_t *model, const pare_report_point *p)
{
    const double x = pare_chart_x(&c->frame, p->ms), y = pare_chart_y(&c->frame, p->y);
    const char *file = pare_report_words(model, "file"), *slash = strrchr(file, '/');
    const bool left = x > (c->frame.left + c->frame.right) / 2;
    pare_text_html(c->frame.text,
                   "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                   left ? x - 9 : x + 9, y - 7, left ? "end" : "start", slash ? slash + 1 : file);
}

/* The points of one comparison, joined to the first by a thin line. */
static void add_group(const plot *c, const json_t *facts, size_t group)
{
    const json_t *models = json_object_get(facts, "models");
    const pare_report_point first = pare_report_point_of(json_array_get(models, 0), c->labels);
    char colour[16];
    size_t k;
    json_t *model;
    snprintf(colour, sizeof colour, "var(--c%zu)", c->many ? 0 : group % PARE_CHART_COLOURS);
    for (k = 1; k < json_array_size(models) && !c->many && pare_report_has_point(&first); k++) {
        const pare_report_point p = pare_report_point_of(json_array_get(models, k), c->labels);
        if (pare_report_has_point(&p))
            pare_text_add(c->frame.text,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                          "stroke-opacity=\".4\"/>",
                          pare_chart_x(&c->frame, first.ms), pare_chart_y(&c->frame, first.y),
                          pare_chart_x(&c->frame, p.ms), pare_chart_y(&c->frame, p.y), colour);
    }
    json_array_foreach((json_t *)models, k, model)
    {
        const pare_report_point p = pare_report_point_of(model, c->labels);
        if (!pare_report_has_point(&p)) continue;
        add_point(c, model, &p, colour);
        if (c->names) add_name(c, model, &p);
    }
}

/* Steps from the quickest model on the front to the best one, of each data set. */
static void add_fronts(const plot *c, const json_t *comparisons)
{
    json_t *fronts = fronts_of(comparisons, c->labels), *front, *at;
    size_t i, k;
    json_array_foreach(fronts, i, front)
    {
        pare_text_add(c->frame.text, "<path class=\"front\" d=\"");
        json_array_foreach(front, k, at)
        {
            const double x = pare_chart_x(&c->frame, pare_report_number(at, "0", 0));
            const double y = pare_chart_y(&c->frame, pare_report_number(at, "1", 0));
            pare_text_add(c->frame.text, k ? "H%.1fV%.1f" : "M%.1f %.1f", x, y);
        }
        pare_text_add(c->frame.text, "\" fill=\"none\" stroke=\"var(--soft)\" stroke-width=\"1.5\" "
                                     "stroke-dasharray=\"5 4\"/>\n");
    }
    json_decref(fronts);
}

/* Networks by colour, precisions by shape, in rows above the picture; returns the height used. */
static double add_legend(const plot *c, const json_t *comparisons)
{
    static const char *const precisions[] = {"fp32", "int8", "fp16", "bf16", "w4, w8"};
    enum { SHAPES = sizeof precisions / sizeof *precisions };
    double x = 14, y = 22;
    size_t i;
    json_t *facts;
    const bool few = json_array_size(comparisons) <= MOST_NAMES;
    json_array_foreach((json_t *)(few ? comparisons : NULL), i, facts)
    {
        char stem[128], colour[16];
        const json_t *first = json_array_get(json_object_get(facts, "models"), 0);
        pare_report_stem(pare_report_words(first, "file"), stem, sizeof stem);
        double wide = 34 + 7.2 * (double)strlen(stem);
        if (x + wide > c->frame.width && x > 14) {
            x = 14;
            y += 20;
        }
        snprintf(colour, sizeof colour, "var(--c%zu)", i % PARE_CHART_COLOURS);
        pare_text_html(
            c->frame.text,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"4\" rx=\"2\" fill=\"%s\"/>"
            "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
            x, y - 6, colour, x + 20, y, stem);
        x += wide;
    }
    if (x + SHAPES * 56 > c->frame.width) {
        x = 14;
        y += 20;
    }
    for (i = 0; i < SHAPES; i++, x += 56) {
        add_marker(c->frame.text, precisions[i], x + 7, y - 4, 6, "var(--soft)");
        pare_text_add(c->frame.text, "/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 18, y,
                      precisions[i]);
    }
    return y;
}

static void add_chart(pare_text *text, const json_t *comparisons, const char *class, double width,
                      double height, bool labels)
{
    const bool alone = !*class;
    plot c = {.frame = {.text = text,
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
    c.frame.top = add_legend(&c, comparisons) + 44;
    pare_chart_axes(&c.frame, "median latency of one sample, ms (logarithmic)",
                    labels ? "top-1, %" : "SQNR, dB");
    size_t i;
    json_t *facts;
    add_fronts(&c, comparisons);
    json_array_foreach((json_t *)comparisons, i, facts) add_group(&c, facts, i);
    pare_text_add(text, "</svg>\n");
}

bool pare_parts_chart(pare_text *text, const json_t *comparisons)
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

bool pare_parts_picture(pare_text *text, const json_t *comparisons)
{
    enum { WIDTH = 980, HEIGHT = 470 };
    const bool labels = by_accuracy(comparisons);
    if (!any_point(comparisons, labels)) return false;
    pare_page_picture(text, WIDTH, HEIGHT);
    add_chart(text, comparisons, "", WIDTH, HEIGHT, labels);
    return true;
}

/* --- the island --- */

static json_t *point_json(const json_t *model, size_t net, bool labels)
{
    char name[128];
    const pare_report_point p = pare_report_point_of(model, labels);
    if (!pare_report_has_point(&p)) return NULL;
    return json_pack("[I, o, o, O, o, o, o, o, o, o]", (json_int_t)net,
                     pare_json_text(pare_report_name(model, name, sizeof name)),
                     pare_json_text(pare_report_words(model, "precision")),
                     json_object_get(model, "made"), number(p.ms), number(p.y), number(p.low),
                     number(p.high), number(p.ms_low), number(p.ms_high));
}

static json_t *island_json(const json_t *comparisons)
{
    const bool labels = by_accuracy(comparisons);
    json_t *nets = json_array(), *points = json_array(), *one, *model;
    size_t i, k;
    json_array_foreach((json_t *)comparisons, i, one)
    {
        char name[128];
        json_array_append_new(
            nets, pare_json_text(pare_report_name(json_array_get(json_object_get(one, "models"), 0),
                                                  name, sizeof name)));
        json_array_foreach(json_object_get(one, "models"), k, model)
        {
            json_t *point = point_json(model, i, labels);
            if (point) json_array_append_new(points, point);
        }
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "x",
                     "median latency of one sample, ms (logarithmic)", "y",
                     labels ? "top-1, %" : "SQNR, dB", "unit", labels ? " %" : " dB", "nets", nets,
                     "points", points, "fronts", fronts_of(comparisons, labels));
}

void pare_parts_island(pare_text *t, const json_t *comparisons)
{
    json_t *json = island_json(comparisons);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    pare_text_add(t, "<script type=\"application/json\" id=\"facts\">");
    for (const char *at = text; at && *at;) { /* no "</script>" ends it before its end */
        const size_t n = strcspn(at, "<");
        pare_text_add(t, "%.*s", (int)n, at);
        at += n;
        if (*at) pare_text_add(t, "\\u003c"), at++;
    }
    pare_text_add(t, "%s</script>\n", text ? "" : "null");
    if (!text) t->failed = true;
    free(text);
    json_decref(json);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What pare load found: latency against offered load, and the rows. */
#include "tools/chart.h"
#include "tools/load/results.h"
#include "tools/report/page.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

/* A line of the picture. */
static const struct series {
    const char *path, *name, *colour;
} series[] = {{"latency_ms.median", "median", "var(--c0)"}, {"latency_ms.p99", "p99", "var(--c1)"}};
enum { SERIES = 2, WIDTH = 980, HEIGHT = 320 };

/* A point of a row; false: it has none. */
static bool point_of(const json_t *row, const char *path, double *x, double *y)
{
    *x = pare_report_number(row, "offered_per_s", NAN);
    *y = pare_report_number(row, path, NAN);
    return *x > 0 && isfinite(*x) && *y >= 0 && isfinite(*y);
}

static void add_series(const pare_chart *c, const json_t *rates, int number)
{
    const struct series *s = &series[number];
    double x, y;
    size_t i;
    json_t *row;
    pare_text_add(c->text, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
                  s->colour);
    json_array_foreach((json_t *)rates, i, row)
    {
        if (point_of(row, s->path, &x, &y))
            pare_text_add(c->text, "%.1f,%.1f ", pare_chart_x(c, x), pare_chart_y(c, y));
    }
    pare_text_add(c->text, "\"/>\n");
    json_array_foreach((json_t *)rates, i, row)
    {
        if (point_of(row, s->path, &x, &y))
            pare_text_add(c->text,
                          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\"><title>%s at %g "
                          "per second: %.3g ms</title></circle>\n",
                          pare_chart_x(c, x), pare_chart_y(c, y), s->colour, s->name, x, y);
    }
    const double at = c->right - 80 * (SERIES - number);
    pare_text_add(c->text,
                  "<circle cx=\"%.1f\" cy=\"16\" r=\"4.5\" fill=\"%s\"/><text x=\"%.1f\" "
                  "y=\"20\">%s</text>\n",
                  at, s->colour, at + 10, s->name);
}

/* Latency starts at 0. */
static void add_chart(pare_text *t, const json_t *rates)
{
    pare_chart c = {.text = t,
                    .width = WIDTH,
                    .height = HEIGHT,
                    .left = 54,
                    .right = WIDTH - 16,
                    .top = 44,
                    .bottom = HEIGHT - 48,
                    .log_x = true};
    double x, y;
    size_t i;
    json_t *row;
    pare_chart_clear(&c);
    for (int k = 0; k < SERIES; k++) json_array_foreach((json_t *)rates, i, row)
        {
            if (point_of(row, series[k].path, &x, &y)) pare_chart_include(&c, x, y, 0, y);
        }
    if (!pare_chart_widen(&c, 0.1, 1e-3)) return;
    c.y0 = 0;
    pare_text_add(t,
                  "<div class=\"box still\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                  "aria-label=\"Latency against offered load\">\n",
                  WIDTH, HEIGHT);
    pare_chart_axes(&c, "requests a second that were offered (logarithmic)", "latency, ms");
    for (int k = 0; k < SERIES; k++) add_series(&c, rates, k);
    pare_text_add(t, "</svg></div>\n");
}

static void add_load(pare_text *t, const json_t *facts)
{
    const json_t *rates = json_object_get(facts, "rates");
    pare_text_html(t, "<p class=\"soft\">%s at %s: ", pare_report_words(facts, "model"),
                   pare_report_words(facts, "url"));
    pare_page_samples(t, json_object_get(facts, "data"));
    pare_text_html(t,
                   ", %s arrivals, at most %.0f requests under way at once. Latency counts from "
                   "when a request was due.%s%s</p>\n",
                   pare_report_words(facts, "arrivals"),
                   pare_report_number(facts, "connections", NAN),
                   *pare_report_words(facts, "knee.text") ? " Knee: " : "",
                   pare_report_words(facts, "knee.text"));
    add_chart(t, rates);
    pare_grid_html_all(t, pare_load_columns, pare_load_parts(rates), "numbers", "Rates", rates);
}

void pare_parts_loads(pare_text *t, const json_t *facts)
{
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one)
    {
        if (strcmp(pare_report_words(one, "command"), "load") != 0) continue;
        if (!n++) pare_text_add(t, "<h2>Under load</h2>\n");
        add_load(t, one);
    }
}

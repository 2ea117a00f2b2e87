/* SPDX-License-Identifier: Apache-2.0 */
/* What pare load found: latency against offered load, and the rows. */
#include "tools/chart.h"
#include "tools/load/results.h"
#include "tools/report/page.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

/* A line of a picture: a number of each rate of some facts. */
typedef struct series {
    const json_t *rates;
    const char *path, *name;
    int colour;
} series;
enum {
    MOST_SERIES = PARE_CHART_COLOURS,
    WIDTH = 980,
    HEIGHT = 320,
    NAME = 160,
    LEFT_EDGE = 54,
    LINE = 18
};

/* A point of a row; false: it has none. */
static bool point_of(const json_t *row, const char *path, double *x, double *y)
{
    *x = pare_report_number(row, "offered_per_s", NAN);
    *y = pare_report_number(row, path, NAN);
    return *x > 0 && isfinite(*x) && *y >= 0 && isfinite(*y);
}

static void add_series(const pare_chart *c, const series *s)
{
    double x, y;
    size_t i;
    json_t *row;
    pare_text_add(c->text,
                  "<polyline fill=\"none\" stroke=\"var(--c%d)\" stroke-width=\"1.5\" points=\"",
                  s->colour);
    json_array_foreach((json_t *)s->rates, i, row)
    {
        if (point_of(row, s->path, &x, &y))
            pare_text_add(c->text, "%.1f,%.1f ", pare_chart_x(c, x), pare_chart_y(c, y));
    }
    pare_text_add(c->text, "\"/>\n");
    json_array_foreach((json_t *)s->rates, i, row)
    {
        if (!point_of(row, s->path, &x, &y)) continue;
        pare_text_add(c->text,
                      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"var(--c%d)\"><title>",
                      pare_chart_x(c, x), pare_chart_y(c, y), s->colour);
        pare_text_html(c->text, "%s at %.7g per second: %.3g ms</title></circle>\n", s->name, x, y);
    }
}

static double legend_width(const char *name) { return 34 + 7 * (double)strlen(name); }

/* What a colour means; *x moves behind it. */
static void add_legend(pare_text *t, double *x, double y, int colour, const char *name)
{
    pare_text_add(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"var(--c%d)\"/>", *x, y - 4,
                  colour);
    pare_text_html(t, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", *x + 10, y, name);
    *x += legend_width(name);
}

/* Where the next name has room, from x on: there, or at the start of another line. */
static void make_room(double *x, double *y, double start, const char *name)
{
    if (*x <= start || *x + legend_width(name) <= WIDTH) return;
    *x = start;
    *y += LINE;
}

/* What the lines of names take beyond the first. */
static int more_lines(const series *list, int count, double start)
{
    double x = start, y = 0;
    for (int k = 0; k < count; k++) {
        make_room(&x, &y, start, list[k].name);
        x += legend_width(list[k].name);
    }
    return (int)y;
}

/* Latency starts at 0. */
static void add_chart(pare_text *t, const series *list, int count, const char *title)
{
    const double start = LEFT_EDGE + 90;
    const int more = more_lines(list, count, start), height = HEIGHT + more;
    pare_chart c = {.text = t,
                    .width = WIDTH,
                    .height = height,
                    .left = LEFT_EDGE,
                    .right = WIDTH - 16,
                    .top = 44 + more,
                    .bottom = height - 48,
                    .log_x = true};
    double x, y;
    size_t i;
    json_t *row;
    pare_chart_clear(&c);
    for (int k = 0; k < count; k++) json_array_foreach((json_t *)list[k].rates, i, row)
        {
            if (point_of(row, list[k].path, &x, &y)) pare_chart_include(&c, x, y, 0, y);
        }
    if (!pare_chart_widen(&c, 0.1, 1e-3)) return;
    c.y0 = 0;
    pare_text_add(t, "<div class=\"box still\"><svg viewBox=\"0 0 %d %d\" role=\"img\" ", WIDTH,
                  height);
    pare_text_html(t, "aria-label=\"%s\">\n", title);
    pare_chart_axes(&c, "requests a second that were offered (logarithmic)", "latency, ms");
    x = start;
    y = 20;
    for (int k = 0; k < count; k++) {
        add_series(&c, &list[k]);
        make_room(&x, &y, start, list[k].name);
        add_legend(t, &x, y, list[k].colour, list[k].name);
    }
    pare_text_add(t, "</svg></div>\n");
}

/* --- batches --- */

/* The colour of runs of up to so many samples, a power of two. */
static int colour_of(double most)
{
    const int bin = (int)lround(log2(most));
    return bin < PARE_CHART_COLOURS ? bin : PARE_CHART_COLOURS - 1;
}

static void add_runs(pare_text *t, const json_t *row, double y, bool *used)
{
    enum { LEFT = 110, ROOM = WIDTH - LEFT - 16, HIGH = 14 };
    char look[96];
    double all = 0, x = LEFT;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(row, "batches"), i, one) all +=
        pare_report_number(one, "runs", 0);
    pare_text_add(t, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.7g/s</text>\n", LEFT - 10,
                  y + 11, pare_report_number(row, "offered_per_s", 0));
    json_array_foreach(json_object_get(row, "batches"), i, one)
    {
        const double most = pare_report_number(one, "most", 1);
        const double width = ROOM * pare_report_number(one, "runs", 0) / all;
        snprintf(look, sizeof look, "fill=\"var(--c%d)\"", colour_of(most));
        used[colour_of(most)] = true;
        pare_chart_rect(t, x, y, width, HIGH, look);
        x += width;
    }
}

/* The server's runs by their samples: a bar for each rate. */
static void add_batches(pare_text *t, const json_t *rates)
{
    enum { STEP = 20, TOP = 36 };
    bool used[PARE_CHART_COLOURS] = {0};
    char name[32];
    double x = 200, y = TOP;
    size_t i, n = 0;
    json_t *row;
    json_array_foreach((json_t *)rates, i, row) n += json_object_get(row, "batches") != NULL;
    if (!n) return;
    pare_text_add(
        t,
        "<div class=\"box still\"><svg viewBox=\"0 0 %d %zu\" role=\"img\" aria-label=\"Batch "
        "sizes\">\n<text x=\"16\" y=\"20\">runs by their samples</text>\n",
        WIDTH, TOP + n * STEP + 8);
    json_array_foreach((json_t *)rates, i, row)
    {
        if (!json_object_get(row, "batches")) continue;
        add_runs(t, row, y, used);
        y += STEP;
    }
    for (int k = 0; k < PARE_CHART_COLOURS; k++) {
        if (!used[k]) continue;
        if (k == PARE_CHART_COLOURS - 1)
            snprintf(name, sizeof name, "%d and more", (1 << (k - 1)) + 1);
        else if (k < 2)
            snprintf(name, sizeof name, "%d", 1 << k);
        else
            snprintf(name, sizeof name, "%d to %d", (1 << (k - 1)) + 1, 1 << k);
        add_legend(t, &x, 20, k, name);
    }
    pare_text_add(t, "</svg></div>\n");
}

/* --- a load --- */

/* alone: no other one is on the page. */
static void add_load(pare_text *t, const json_t *facts, bool alone)
{
    const json_t *rates = json_object_get(facts, "rates");
    const char *source = alone ? "" : pare_report_words(facts, "source");
    pare_text_html(t, "<p class=\"soft\">%s at %s%s%s: ", pare_report_words(facts, "model"),
                   pare_report_words(facts, "url"), *source ? ", " : "", source);
    pare_page_samples(t, json_object_get(facts, "data"));
    pare_text_html(t,
                   ", %s arrivals, at most %.0f requests under way at once. Latency counts from "
                   "when a request was due.%s%s</p>\n",
                   pare_report_words(facts, "arrivals"),
                   pare_report_number(facts, "connections", NAN),
                   *pare_report_words(facts, "knee.text") ? " Knee: " : "",
                   pare_report_words(facts, "knee.text"));
    if (*pare_report_words(facts, "plan.text"))
        pare_text_html(t, "<p>Servers: %s.</p>\n", pare_report_words(facts, "plan.text"));
    const series both[] = {{rates, "latency_ms.median", "median", 0},
                           {rates, "latency_ms.p99", "p99", 1}};
    add_chart(t, both, 2, "Latency against offered load");
    add_batches(t, rates);
    pare_grid_html_all(t, pare_load_columns, pare_load_parts(rates), "numbers", "Rates", rates);
}

/* --- all loads --- */

static bool is_load(const json_t *facts)
{
    return !strcmp(pare_report_words(facts, "command"), "load");
}

size_t pare_page_loads(const json_t *facts)
{
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one) n += is_load(one);
    return n;
}

/* Do two of the loads that have the same of these keys (count of them) differ in the next one? */
static bool differ(const json_t *const *loads, int count, int k, const char *const *keys, int same)
{
    for (int other = 0; other < count; other++) {
        bool alike = true;
        for (int i = 0; i < same; i++)
            alike &= !strcmp(pare_report_words(loads[k], keys[i]),
                             pare_report_words(loads[other], keys[i]));
        if (alike && strcmp(pare_report_words(loads[k], keys[same]),
                            pare_report_words(loads[other], keys[same])) != 0)
            return true;
    }
    return false;
}

/* The model; where another load has that too, its URL; where one has both, the facts' file. */
static const char *name_of(const json_t *const *loads, int count, int k, char *text, size_t size)
{
    static const char *const keys[] = {"model", "url", "source"};
    size_t n = (size_t)snprintf(text, size, "%s", pare_report_words(loads[k], keys[0]));
    for (int i = 1; i < 3; i++)
        if (n < size && differ(loads, count, k, keys, i))
            n += (size_t)snprintf(text + n, size - n, i == 1 ? " at %s" : ", %s",
                                  pare_report_words(loads[k], keys[i]));
    return text;
}

/* p99 of all models in one picture, where there are several; the median where none has a p99. */
static void add_joint(pare_text *t, const json_t *facts)
{
    const json_t *loads[MOST_SERIES];
    series list[MOST_SERIES];
    char name[MOST_SERIES][NAME];
    bool has_tail = false;
    int count = 0;
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one)
    {
        if (is_load(one) && count < MOST_SERIES) loads[count++] = one;
    }
    if (count < 2) return;
    for (int k = 0; k < count; k++) {
        list[k] = (series){json_object_get(loads[k], "rates"), "latency_ms.p99",
                           name_of(loads, count, k, name[k], NAME), k};
        has_tail |= pare_report_any(list[k].rates, "latency_ms.p99");
    }
    for (int k = 0; k < count && !has_tail; k++) list[k].path = "latency_ms.median";
    pare_text_html(t, "<p class=\"soft\">The %s of the latency of each load.</p>\n",
                   has_tail ? "99th percentile" : "median");
    add_chart(t, list, count, "Latency of each model against offered load");
}

void pare_parts_loads(pare_text *t, const json_t *facts)
{
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one)
    {
        if (!is_load(one)) continue;
        if (!n++) {
            pare_text_add(t, "<h2>Under load</h2>\n");
            add_joint(t, facts);
        }
        add_load(t, one, pare_page_loads(facts) == 1);
    }
}

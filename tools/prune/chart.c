/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a sweep: for each measure of size a panel with what is left of accuracy. The line
   joins the models that no smaller one equals or beats (the Pareto curve); others are hollow, the
   dense one is grey. */
#include "tools/prune/report.h"
#include "tools/report/report.h"
#include "tools/report/page.h"
#include "tools/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 440, HEIGHT = 300, GAP = 8 };
static const double CHARACTER = 6.6, LINE = 12; /* pixels of a label */

typedef struct point {
    double x, y, low, high; /* low, high: the paired interval of the drop; NAN without */
    bool dense;
    char label[24];
    bool best; /* on the curve */
} point;

typedef struct box {
    double x0, y0, x1, y1;
} box;

typedef struct panel {
    pare_chart frame;
    const json_t *facts;
    const char *measure; /* "macs", "parameters", "weights", "bytes", "zlib_bytes", "latency" */
    char axis[64];
    const char *y_axis, *y_key;
    double unit;  /* x is divided by it */
    point *point; /* (count), ascending by x */
    int count;
    box *taken; /* by labels and points */
    int taken_count;
} panel;

/* --- points --- */

static const json_t *models_of(const json_t *facts)
{
    return json_object_get(json_object_get(facts, "compared"), "models");
}

static double x_of(const panel *p, const json_t *model, const json_t *row)
{
    if (!strcmp(p->measure, "latency")) return pare_report_number(model, "latency_ms.median", NAN);
    if (strstr(p->measure, "bytes")) return pare_report_number(model, p->measure, NAN);
    return row ? pare_prune_left(row, p->measure) : 100;
}

/* What the model was pruned to, as the option takes it. */
static void label_of(const json_t *row, char *text, size_t size)
{
    double of = pare_report_number(row, "target.before", NAN), value;
    if (!row) {
        snprintf(text, size, "dense");
        return;
    }
    value = of > 0 ? pare_report_number(row, "target.goal", NAN) / of
                   : pare_report_number(row, "sparsity", NAN);
    *text = 0;
    if (!isnan(value)) snprintf(text, size, "%.3g", value);
}

static int by_x(const void *a, const void *b)
{
    const point *p = a, *q = b;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return (p->y < q->y) - (p->y > q->y);
}

static bool find_points(panel *p)
{
    const json_t *models = models_of(p->facts);
    bool channels;
    const json_t *rows = pare_prune_rows(p->facts, &channels);
    double best = -INFINITY;
    size_t i;
    json_t *model;
    p->point = calloc(json_array_size(models), sizeof *p->point);
    p->taken = calloc(2 * json_array_size(models), sizeof *p->taken);
    if (!p->point || !p->taken) return false;
    json_array_foreach((json_t *)models, i, model)
    {
        const json_t *row = i ? json_array_get(rows, i - 1) : NULL;
        bool paired = i && !strcmp(p->y_key, "top1");
        point q = {.x = x_of(p, model, row),
                   .y = pare_report_number(model, p->y_key,
                                           !i && !strcmp(p->y_key, "agreement") ? 100 : NAN),
                   .low = NAN,
                   .high = NAN,
                   .dense = !i};
        if (paired) {
            double dense = pare_report_number(models, "0.top1", NAN);
            q.low = dense - pare_report_number(model, "drop_interval.1", NAN);
            q.high = dense - pare_report_number(model, "drop_interval.0", NAN);
        }
        label_of(row, q.label, sizeof q.label);
        if (isfinite(q.x) && isfinite(q.y)) p->point[p->count++] = q;
    }
    qsort(p->point, (size_t)p->count, sizeof *p->point, by_x);
    for (int k = 0; k < p->count; k++) {
        p->point[k].best = p->point[k].y > best;
        best = fmax(best, p->point[k].y);
    }
    return p->count > 1;
}

/* "file, kB": bytes in the unit that suits the largest. */
static void set_unit(panel *p, const char *what)
{
    static const char *const names[] = {"B", "kB", "MB", "GB"};
    int unit = 0;
    p->unit = 1;
    while (unit < 3 && p->point[p->count - 1].x >= 1000 * p->unit) {
        p->unit *= 1000;
        unit++;
    }
    snprintf(p->axis, sizeof p->axis, "%s, %s", what, names[unit]);
    for (int k = 0; k < p->count; k++) p->point[k].x /= p->unit;
}

/* --- drawing --- */

static bool overlap(const box *a, const box *b)
{
    return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1;
}

static bool is_free(const panel *p, const box *b)
{
    if (b->x0 < p->frame.left || b->x1 > p->frame.right || b->y0 < p->frame.top ||
        b->y1 > p->frame.bottom)
        return false;
    for (int i = 0; i < p->taken_count; i++)
        if (overlap(&p->taken[i], b)) return false;
    return true;
}

/* Beside, above or below its point; left out where there is no room: the table has it. */
static void add_label(panel *p, const point *q)
{
    const double x = pare_chart_x(&p->frame, q->x), y = pare_chart_y(&p->frame, q->y);
    const double wide = CHARACTER * (double)strlen(q->label);
    const double at[][2] = {{x - 4 - wide, y - 8}, {x - wide / 2, y - 9},    {x + 6, y - 8},
                            {x + 6, y + LINE + 6}, {x - 6 - wide, y + LINE}, {x + 9, y + 4},
                            {x - 9 - wide, y + 4}};
    for (size_t i = 0; *q->label && i < sizeof at / sizeof *at; i++) {
        box b = {at[i][0], at[i][1] - LINE + 2, at[i][0] + wide, at[i][1] + 2};
        if (!is_free(p, &b)) continue;
        p->taken[p->taken_count++] = b;
        pare_text_add(p->frame.text, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                      at[i][0], at[i][1], q->label);
        return;
    }
}

static void add_curve(const panel *p)
{
    bool begun = false;
    pare_text_add(p->frame.text, "<path fill=\"none\" stroke=\"var(--c0)\" stroke-width=\"1.5\" "
                                 "stroke-opacity=\".55\" d=\"");
    for (int k = 0; k < p->count; k++) {
        const point *q = &p->point[k];
        if (!q->best) continue;
        pare_text_add(p->frame.text, "%c%.1f %.1f", begun ? 'L' : 'M',
                      pare_chart_x(&p->frame, q->x), pare_chart_y(&p->frame, q->y));
        begun = true;
    }
    pare_text_add(p->frame.text, "\"/>\n");
}

static void add_point(panel *p, const point *q)
{
    double x = pare_chart_x(&p->frame, q->x), y = pare_chart_y(&p->frame, q->y);
    if (!isnan(q->low))
        pare_chart_interval(p->frame.text, x, x, pare_chart_y(&p->frame, q->low),
                            pare_chart_y(&p->frame, q->high), "var(--c0)", ".3");
    pare_text_add(p->frame.text,
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\" fill=\"%s\" stroke=\"%s\" "
                  "stroke-width=\"1.5\"><title>%s: %.2f, %.4g</title></circle>\n",
                  x, y,
                  q->dense  ? "var(--soft)"
                  : q->best ? "var(--c0)"
                            : "var(--card)",
                  q->best || q->dense ? "var(--card)" : "var(--c0)", q->label, q->y, q->x);
    p->taken[p->taken_count++] = (box){x - 6, y - 6, x + 6, y + 6};
}

static void draw(panel *p, const char *place)
{
    pare_chart *s = &p->frame;
    pare_chart_clear(s);
    for (int k = 0; k < p->count; k++) {
        const point *q = &p->point[k];
        pare_chart_include(s, q->x, q->y, q->low, q->high);
    }
    (void)pare_chart_widen(s, 0.02 * s->x1 + 1e-9, 0.1);
    pare_text_add(s->text,
                  "<svg%s viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s against %s\">\n",
                  place, WIDTH, HEIGHT, p->y_axis, p->axis);
    pare_chart_axes(s, p->axis, p->y_axis);
    add_curve(p);
    for (int k = 0; k < p->count; k++) add_point(p, &p->point[k]);
    for (int k = p->count - 1; k >= 0; k--) add_label(p, &p->point[k]);
    pare_text_add(s->text, "</svg>\n");
}

/* --- panels --- */

static const char *y_of(const json_t *facts, const char **name)
{
    const json_t *pruned = json_array_get(models_of(facts), 1);
    *name = "top-1, %";
    if (!isnan(pare_report_number(pruned, "top1", NAN))) return "top1";
    *name = "agreement with the dense model, %";
    if (!isnan(pare_report_number(pruned, "agreement", NAN))) return "agreement";
    *name = "SQNR, dB";
    return "outputs.0.sqnr_db";
}

static const char *const of_channels[][2] = {{"macs", "multiply-adds that are left, %"},
                                             {"parameters", "parameters that are left, %"},
                                             {"bytes", "file"},
                                             {"latency", "median latency of one sample, ms"},
                                             {NULL, NULL}};
static const char *const of_weights[][2] = {
    {"weights", "weights that are not 0, %"}, {"zlib_bytes", "file through zlib"}, {NULL, NULL}};

/* One panel; place: attributes of its place in a picture, or "". False where it has no points. */
static bool add_panel(pare_text *text, const json_t *facts, const char *const *what,
                      const char *before, const char *place, const char *after)
{
    panel p = {.frame = {.text = text,
                         .width = WIDTH,
                         .height = HEIGHT,
                         .left = 54,
                         .right = WIDTH - 14,
                         .top = 36,
                         .bottom = HEIGHT - 48},
               .facts = facts,
               .measure = what[0],
               .unit = 1};
    p.y_key = y_of(facts, &p.y_axis);
    bool found = find_points(&p);
    if (found) {
        if (strstr(p.measure, "bytes"))
            set_unit(&p, what[1]);
        else
            snprintf(p.axis, sizeof p.axis, "%s", what[1]);
        pare_text_add(text, "%s", before);
        draw(&p, place);
        pare_text_add(text, "%s", after);
    }
    free(p.point);
    free(p.taken);
    return found;
}

static bool has_picture(const json_t *facts)
{
    const char *name, *key = y_of(facts, &name);
    const json_t *models = models_of(facts);
    return json_array_size(models) > 2 &&
           !isnan(pare_report_number(json_array_get(models, 1), key, NAN));
}

static const char *const (*panels_of(const json_t *facts))[2]
{
    bool channels;
    (void)pare_prune_rows(facts, &channels);
    return channels ? of_channels : of_weights;
}

void pare_prune_chart_add(pare_text *text, const json_t *facts)
{
    const char *name;
    if (!has_picture(facts)) return;
    (void)y_of(facts, &name);
    pare_text_add(text, "<h2>%s against what is left</h2>\n<div class=\"panels\">\n",
                  *name == 't'   ? "Accuracy"
                  : *name == 'a' ? "Agreement"
                                 : "SQNR");
    for (const char *const(*what)[2] = panels_of(facts); (*what)[0]; what++)
        (void)add_panel(text, facts, *what, "<div class=\"box\">", "", "</div>\n");
    pare_text_add(text, "</div>\n");
}

/* Two panels a row. */
bool pare_prune_picture_add(pare_text *text, const json_t *facts)
{
    char place[96];
    int count = 0, found = 0;
    const char *const(*panels)[2] = panels_of(facts);
    if (!has_picture(facts)) return false;
    while (panels[count][0]) count++;
    if (isnan(pare_report_number(models_of(facts), "0.latency_ms.median", NAN)) && count == 4)
        count = 3;
    const int wide = 2 * WIDTH + 3 * GAP, high = (count + 1) / 2 * (HEIGHT + GAP) + GAP;
    pare_page_picture(text, wide, high);
    for (int i = 0; i < count; i++) {
        snprintf(place, sizeof place, " x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"",
                 GAP + found % 2 * (WIDTH + GAP), GAP + found / 2 * (HEIGHT + GAP), WIDTH, HEIGHT);
        found += add_panel(text, facts, panels[i], "", place, "");
    }
    pare_text_add(text, "</svg>\n");
    return true;
}

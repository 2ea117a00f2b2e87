/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, grids and shapes as SVG. */
#include "tools/chart.h"

#include <math.h>

void pare_chart_clear(pare_chart *c)
{
    c->x0 = c->y0 = INFINITY;
    c->x1 = c->y1 = -INFINITY;
}

static double scaled(const pare_chart *c, double x) { return c->log_x ? log10(x) : x; }

void pare_chart_include(pare_chart *c, double x, double y, double low, double high)
{
    c->x0 = fmin(c->x0, scaled(c, x));
    c->x1 = fmax(c->x1, scaled(c, x));
    c->y0 = fmin(c->y0, isnan(low) ? y : low);
    c->y1 = fmax(c->y1, isnan(high) ? y : high);
}

bool pare_chart_widen(pare_chart *c, double least_x, double least_y)
{
    if (!(c->x1 >= c->x0)) return false;
    double dx = fmax(0.08 * (c->x1 - c->x0), least_x), dy = fmax(0.08 * (c->y1 - c->y0), least_y);
    c->x0 -= dx;
    c->x1 += dx;
    c->y0 -= dy;
    c->y1 += dy;
    return true;
}

double pare_chart_x(const pare_chart *c, double x)
{
    return c->left + (scaled(c, x) - c->x0) / (c->x1 - c->x0) * (c->right - c->left);
}

double pare_chart_y(const pare_chart *c, double y)
{
    return c->bottom - (y - c->y0) / (c->y1 - c->y0) * (c->bottom - c->top);
}

/* The greatest of 1, 2, 5 times a power of ten that gives at least `least` steps. */
static double nice_step(double span, int least)
{
    double ten = pow(10, floor(log10(span / least)));
    double step = ten;
    if (span / (2 * ten) >= least) step = 2 * ten;
    if (span / (5 * ten) >= least) step = 5 * ten;
    return step;
}

static int digits_of(double step) { return step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0; }

static void add_grid_y(const pare_chart *c)
{
    double step = nice_step(c->y1 - c->y0, 4);
    for (double y = ceil(c->y0 / step) * step; y <= c->y1; y += step) {
        double at = pare_chart_y(c, y);
        pare_text_add(c->text,
                      "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                      "stroke=\"var(--line)\"/><text x=\"%.1f\" y=\"%.1f\" "
                      "text-anchor=\"end\">%.*f</text>\n",
                      c->left, c->right, at, at, c->left - 8, at + 4, digits_of(step),
                      fabs(y) < step / 2 ? 0 : y);
    }
}

/* A line at x with its number, as many digits as the step needs (-1: as few as there are). */
static void add_line_x(const pare_chart *c, double x, int digits)
{
    double at = pare_chart_x(c, x);
    pare_text_add(c->text,
                  "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                  "stroke=\"var(--line)\"/><text x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"middle\">",
                  at, at, c->top, c->bottom, at, c->bottom + 18);
    if (digits < 0)
        pare_text_add(c->text, "%g</text>\n", x);
    else
        pare_text_add(c->text, "%.*f</text>\n", digits, x);
}

/* Lines at mantissas times powers of ten, as far apart as their numbers need; how many there are.
 */
static int add_decades(const pare_chart *c, const double *mantissas, int count, bool draw)
{
    double nearest = -INFINITY;
    int lines = 0;
    for (int e = (int)floor(c->x0); e <= (int)ceil(c->x1); e++)
        for (int m = 0; m < count; m++) {
            double x = mantissas[m] * pow(10, e), at = pare_chart_x(c, x);
            if (at < c->left || at > c->right || at - nearest < 34) continue;
            nearest = at;
            lines++;
            if (draw) add_line_x(c, x, -1);
        }
    return lines;
}

/* Even steps where the axis is too short for three of 1, 2, 5. */
static void add_grid_log_x(const pare_chart *c)
{
    static const double mantissas[] = {1, 2, 5};
    if (add_decades(c, mantissas, 3, false) >= 3) {
        add_decades(c, mantissas, 3, true);
        return;
    }
    const double low = pow(10, c->x0), high = pow(10, c->x1), step = nice_step(high - low, 4);
    double nearest = -INFINITY;
    for (double x = ceil(low / step) * step; x <= high; x += step) {
        if (pare_chart_x(c, x) - nearest < 34) continue;
        nearest = pare_chart_x(c, x);
        add_line_x(c, x, digits_of(step));
    }
}

static void add_grid_x(const pare_chart *c)
{
    double step = nice_step(c->x1 - c->x0, 4);
    for (double x = ceil(c->x0 / step) * step; x <= c->x1; x += step)
        add_line_x(c, fabs(x) < step / 2 ? 0 : x, digits_of(step));
}

void pare_chart_axes(const pare_chart *c, const char *x, const char *y)
{
    add_grid_y(c);
    if (c->log_x)
        add_grid_log_x(c);
    else
        add_grid_x(c);
    pare_text_add(c->text,
                  "<text x=\"%.1f\" y=\"%.1f\">%s</text><text x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"end\">%s</text>\n",
                  c->left - 40, c->top - 14, y, c->right, c->bottom + 38, x);
}

void pare_chart_interval(pare_text *text, double x1, double x2, double y1, double y2,
                         const char *colour, const char *opacity)
{
    pare_text_add(text,
                  "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                  "stroke-opacity=\"%s\" stroke-width=\"2\"/>",
                  x1, x2, y1, y2, colour, opacity);
}

void pare_chart_rect(pare_text *text, double x, double y, double width, double height,
                     const char *look)
{
    pare_text_add(text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" %s/>", x, y,
                  width, height, look);
}

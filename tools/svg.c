/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/svg.h"

#include <math.h>

void pare_svg_clear(pare_svg *svg)
{
    svg->x0 = svg->y0 = INFINITY;
    svg->x1 = svg->y1 = -INFINITY;
}

static double scaled(const pare_svg *svg, double x) { return svg->log_x ? log10(x) : x; }

void pare_svg_include(pare_svg *svg, double x, double y, double low, double high)
{
    svg->x0 = fmin(svg->x0, scaled(svg, x));
    svg->x1 = fmax(svg->x1, scaled(svg, x));
    svg->y0 = fmin(svg->y0, isnan(low) ? y : low);
    svg->y1 = fmax(svg->y1, isnan(high) ? y : high);
}

bool pare_svg_widen(pare_svg *svg, double least_x, double least_y)
{
    if (!(svg->x1 >= svg->x0)) return false;
    double dx = fmax(0.08 * (svg->x1 - svg->x0), least_x),
           dy = fmax(0.08 * (svg->y1 - svg->y0), least_y);
    svg->x0 -= dx;
    svg->x1 += dx;
    svg->y0 -= dy;
    svg->y1 += dy;
    return true;
}

double pare_svg_x(const pare_svg *svg, double x)
{
    return svg->left + (scaled(svg, x) - svg->x0) / (svg->x1 - svg->x0) * (svg->right - svg->left);
}

double pare_svg_y(const pare_svg *svg, double y)
{
    return svg->bottom - (y - svg->y0) / (svg->y1 - svg->y0) * (svg->bottom - svg->top);
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

static void add_grid_y(const pare_svg *svg)
{
    double step = nice_step(svg->y1 - svg->y0, 4);
    for (double y = ceil(svg->y0 / step) * step; y <= svg->y1; y += step) {
        double at = pare_svg_y(svg, y);
        pare_text_add(svg->text,
                      "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                      "stroke=\"var(--line)\"/><text x=\"%.1f\" y=\"%.1f\" "
                      "text-anchor=\"end\">%.*f</text>\n",
                      svg->left, svg->right, at, at, svg->left - 8, at + 4, digits_of(step),
                      fabs(y) < step / 2 ? 0 : y);
    }
}

/* A line at x with its number, as many digits as the step needs (-1: as few as there are). */
static void add_line_x(const pare_svg *svg, double x, int digits)
{
    double at = pare_svg_x(svg, x);
    pare_text_add(svg->text,
                  "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                  "stroke=\"var(--line)\"/><text x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"middle\">",
                  at, at, svg->top, svg->bottom, at, svg->bottom + 18);
    if (digits < 0)
        pare_text_add(svg->text, "%g</text>\n", x);
    else
        pare_text_add(svg->text, "%.*f</text>\n", digits, x);
}

/* Lines at mantissas times powers of ten, as far apart as their numbers need; how many there are.
 */
static int add_decades(const pare_svg *svg, const double *mantissas, int count, bool draw)
{
    double nearest = -INFINITY;
    int lines = 0;
    for (int e = (int)floor(svg->x0); e <= (int)ceil(svg->x1); e++)
        for (int m = 0; m < count; m++) {
            double x = mantissas[m] * pow(10, e), at = pare_svg_x(svg, x);
            if (at < svg->left || at > svg->right || at - nearest < 34) continue;
            nearest = at;
            lines++;
            if (draw) add_line_x(svg, x, -1);
        }
    return lines;
}

/* Even steps where the axis is too short for three of 1, 2, 5. */
static void add_grid_log_x(const pare_svg *svg)
{
    static const double mantissas[] = {1, 2, 5};
    if (add_decades(svg, mantissas, 3, false) >= 3) {
        add_decades(svg, mantissas, 3, true);
        return;
    }
    const double low = pow(10, svg->x0), high = pow(10, svg->x1), step = nice_step(high - low, 4);
    double nearest = -INFINITY;
    for (double x = ceil(low / step) * step; x <= high; x += step) {
        if (pare_svg_x(svg, x) - nearest < 34) continue;
        nearest = pare_svg_x(svg, x);
        add_line_x(svg, x, digits_of(step));
    }
}

static void add_grid_x(const pare_svg *svg)
{
    double step = nice_step(svg->x1 - svg->x0, 4);
    for (double x = ceil(svg->x0 / step) * step; x <= svg->x1; x += step)
        add_line_x(svg, fabs(x) < step / 2 ? 0 : x, digits_of(step));
}

void pare_svg_axes(const pare_svg *svg, const char *x, const char *y)
{
    add_grid_y(svg);
    if (svg->log_x)
        add_grid_log_x(svg);
    else
        add_grid_x(svg);
    pare_text_add(svg->text,
                  "<text x=\"%.1f\" y=\"%.1f\">%s</text><text x=\"%.1f\" y=\"%.1f\" "
                  "text-anchor=\"end\">%s</text>\n",
                  svg->left - 40, svg->top - 14, y, svg->right, svg->bottom + 38, x);
}

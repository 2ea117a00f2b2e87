/* SPDX-License-Identifier: Apache-2.0 */
/* What pictures of reports share: a plotting area with two axes. Colours are variables of the page
   or picture: --line, --fg, --soft, --card, --c0 to --c7. */
#ifndef PARE_TOOLS_SVG_H
#define PARE_TOOLS_SVG_H

#include "tools/text.h"

enum { PARE_CHART_COLOURS = 8 }; /* --c0 to --c7 */

/* Pixels of the drawing and of its plotting area, and the values at the area's ends; of a
   logarithmic x axis their decimal logarithms. */
typedef struct pare_svg {
    pare_text *text;
    double width, height, left, right, top, bottom;
    double x0, x1, y0, y1;
    bool log_x;
} pare_svg;

/* Ends that no value has moved yet. */
void pare_svg_clear(pare_svg *svg);
/* Moves the ends so that the point is between them. low, high: an interval of y; NAN: none. */
void pare_svg_include(pare_svg *svg, double x, double y, double low, double high);
/* A margin around all points: a part of the span, at least least_x and least_y. False where there
   is no point. */
bool pare_svg_widen(pare_svg *svg, double least_x, double least_y);

double pare_svg_x(const pare_svg *svg, double x);
double pare_svg_y(const pare_svg *svg, double y);

/* Grid lines with numbers, and what the axes mean. */
void pare_svg_axes(const pare_svg *svg, const char *x, const char *y);
#endif

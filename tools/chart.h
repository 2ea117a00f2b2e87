/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures of reports: a plotting area with two axes, and what is drawn in it. Colours are
   variables of the page or picture: --line, --fg, --soft, --card, --c0 to --c7. */
#ifndef PARE_TOOLS_CHART_H
#define PARE_TOOLS_CHART_H

#include "tools/text.h"

enum { PARE_CHART_COLOURS = 8 }; /* --c0 to --c7 */

/* Pixels of the drawing and of its plotting area, and the values at the area's ends; of a
   logarithmic x axis their decimal logarithms. */
typedef struct pare_chart {
    pare_text *text;
    double width, height, left, right, top, bottom;
    double x0, x1, y0, y1;
    bool log_x;
} pare_chart;

/* Ends that no value has moved yet. */
void pare_chart_clear(pare_chart *c);
/* Moves the ends so that the point is between them. low, high: an interval of y; NAN: none. */
void pare_chart_include(pare_chart *c, double x, double y, double low, double high);
/* A margin around all points: a part of the span, at least least_x and least_y. False where there
   is no point. */
bool pare_chart_widen(pare_chart *c, double least_x, double least_y);

double pare_chart_x(const pare_chart *c, double x);
double pare_chart_y(const pare_chart *c, double y);

/* Grid lines with numbers, and what the axes mean. */
void pare_chart_axes(const pare_chart *c, const char *x, const char *y);
/* An interval around a point, in pixels. opacity: ".35" */
void pare_chart_interval(pare_text *text, double x1, double x2, double y1, double y2,
                         const char *colour, const char *opacity);
/* look: further attributes. */
void pare_chart_rect(pare_text *text, double x, double y, double width, double height,
                     const char *look);
#endif

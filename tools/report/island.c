/* SPDX-License-Identifier: Apache-2.0 */
/* The data island: what report.js draws, as JSON in the page. */
#include "tools/report/report.h"

#include "formats/json.h"
#include "tools/report/chart.h"
#include "tools/report/gather.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *number(double value)
{
    char text[32];
    if (!isfinite(value)) return json_null();
    snprintf(text, sizeof text, "%.6g", value); /* what a picture shows; the page stays small */
    return json_real(strtod(text, NULL));
}

static bool has_point(const pare_report_point *p) { return p->ms > 0 && isfinite(p->y); }

static bool by_accuracy(const json_t *comparisons)
{
    size_t i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        const pare_report_point p = pare_report_point_of(model, true);
        if (has_point(&p)) return true;
    }
    return false;
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

json_t *pare_chart_fronts(const json_t *comparisons, bool labels)
{
    json_t *by_data = json_object(), *fronts = json_array(), *one, *model, *points;
    size_t i, k;
    const char *key;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        const pare_report_point p = pare_report_point_of(model, labels);
        const char *data = json_string_value(pare_report_find(one, "data.file"));
        if (!json_is_true(json_object_get(model, "front")) || !has_point(&p)) continue;
        if (!json_object_get(by_data, data ? data : ""))
            json_object_set_new(by_data, data ? data : "", json_array());
        json_array_append_new(json_object_get(by_data, data ? data : ""),
                              json_pack("[o, o]", number(p.ms), number(p.y)));
    }
    json_object_foreach(by_data, key, points)
    {
        if (json_array_size(points) > 1) json_array_append_new(fronts, sorted(points));
    }
    json_decref(by_data);
    return fronts;
}

/* --- the island --- */

static json_t *point_json(const json_t *model, size_t net, bool labels)
{
    char name[128];
    const pare_report_point p = pare_report_point_of(model, labels);
    const char *precision = json_string_value(json_object_get(model, "precision"));
    if (!has_point(&p)) return NULL;
    return json_pack("[I, s, s, O, o, o, o, o, o, o]", (json_int_t)net,
                     pare_report_name(model, name, sizeof name), precision ? precision : "",
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
                     "points", points, "fronts", pare_chart_fronts(comparisons, labels));
}

void pare_chart_island(pare_text *t, const json_t *comparisons)
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Small pictures of a report: histograms of tensors, memory of plans, lanes of a profile. */
#include "tools/chart.h"
#include "tools/report/page.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

static double number_of(const json_t *json, const char *key)
{
    return pare_report_number(json, key, 0);
}

/* --- histograms --- */

enum { WIDE = 256, HIGH = 96, FOOT = 16 };

/* Where a value is in the picture, which shows min to max and nothing beyond. */
static double place(const json_t *h, double value)
{
    const double low = number_of(h, "min"), high = number_of(h, "max");
    return high > low ? fmin(fmax((value - low) / (high - low), 0), 1) * WIDE : 0;
}

static void add_bins(pare_text *t, const json_t *bins)
{
    const double each = (double)WIDE / (double)(json_array_size(bins) + !json_array_size(bins));
    double most = 0;
    size_t i;
    json_t *bin;
    json_array_foreach((json_t *)bins, i, bin) most = fmax(most, json_number_value(bin));
    json_array_foreach((json_t *)bins, i, bin)
    {
        const double count = json_number_value(bin);
        const double height = most > 0 ? HIGH * log1p(count) / log1p(most) : 0;
        if (count > 0)
            pare_chart_rect(t, (double)i * each, HIGH - height, each * 0.9, height,
                            "fill=\"var(--c0)\"");
    }
}

/* The chosen range: a shade after the bins, a line at each end that the picture holds. */
static void add_range(pare_text *t, const json_t *h)
{
    const double low = number_of(h, "low"), high = number_of(h, "high");
    const double from = place(h, low), to = place(h, high);
    pare_chart_rect(t, from, 0, fmax(to - from, 1), HIGH,
                    "fill=\"var(--c2)\" fill-opacity=\".16\"");
    for (int end = 0; end < 2; end++) {
        const double value = end ? high : low, x = end ? to : from;
        if (value >= number_of(h, "min") && value <= number_of(h, "max"))
            pare_text_add(t,
                          "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\" "
                          "stroke=\"var(--c2)\" stroke-width=\"2\"/>",
                          x, x, HIGH);
    }
}

static void histogram(pare_text *t, const json_t *h)
{
    pare_text_html(t,
                   "<figure class=\"card\"><figcaption><b>%s</b><br><span class=\"soft\">%.1f dB, "
                   "range %.3g to %.3g (%s)</span></figcaption><svg viewBox=\"0 0 %d %d\" "
                   "role=\"img\" aria-label=\"Histogram with its range\">",
                   pare_report_words(h, "name"), number_of(h, "sqnr_db"), number_of(h, "low"),
                   number_of(h, "high"), pare_report_words(h, "method"), WIDE, HIGH + FOOT);
    add_range(t, h);
    add_bins(t, json_object_get(h, "bins"));
    pare_text_add(t,
                  "<text x=\"0\" y=\"%d\">%.3g</text><text x=\"%d\" y=\"%d\" "
                  "text-anchor=\"end\">%.3g</text></svg></figure>\n",
                  HIGH + FOOT - 3, number_of(h, "min"), WIDE, HIGH + FOOT - 3, number_of(h, "max"));
}

void pare_parts_histograms(pare_text *t, const json_t *facts)
{
    size_t i, k;
    json_t *one, *h;
    json_array_foreach((json_t *)facts, i, one)
    {
        const json_t *list = json_object_get(one, "histograms");
        if (!json_array_size(list)) continue;
        pare_text_html(
            t,
            "<h2>Tensors that 8 bits cost most</h2>\n<p class=\"soft\">%s: the %zu of %zu "
            "that were calibrated with the least SQNR. Counts are "
            "logarithmic; green is the range that was chosen, what is outside is "
            "clipped.</p>\n<div class=\"panels small\">\n",
            pare_report_words(one, "model.file"), json_array_size(list),
            json_array_size(json_object_get(one, "ranges")));
        json_array_foreach((json_t *)list, k, h) histogram(t, h);
        pare_text_add(t, "</div>\n");
    }
}

/* --- memory --- */

enum { PLOT_WIDE = 520, PLOT_HIGH = 140 };

static void memory_of(pare_text *t, const json_t *model)
{
    char name[128], most_text[24];
    const json_t *steps = json_object_get(model, "steps");
    const double each = (double)PLOT_WIDE / (double)json_array_size(steps);
    double most = 0;
    size_t i;
    json_t *step;
    json_array_foreach((json_t *)steps, i, step) most = fmax(most, number_of(step, "live_bytes"));
    if (!(most > 0)) return;
    pare_text_html(
        t,
        "<figure class=\"card\"><figcaption><b>%s</b> <span class=\"soft\">at most %s</span>"
        "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" "
        "aria-label=\"Memory in use at each step\">",
        pare_report_name(model, name, sizeof name),
        pare_bytes_text(most, most_text, sizeof most_text), PLOT_WIDE, PLOT_HIGH);
    json_array_foreach((json_t *)steps, i, step)
    {
        const double bytes = number_of(step, "live_bytes"), height = PLOT_HIGH * bytes / most;
        char size[24];
        pare_text_add(t, "<g>");
        pare_chart_rect(t, (double)i * each, PLOT_HIGH - height, each * 0.94, height,
                        bytes == most ? "fill=\"var(--c1)\"" : "fill=\"var(--c0)\"");
        pare_text_html(t, "<title>%s: %s</title></g>", pare_report_words(step, "node"),
                       pare_bytes_text(bytes, size, sizeof size));
    }
    pare_text_add(t, "</svg></figure>\n");
}

static bool has_memory(const json_t *model)
{
    const json_t *steps = json_object_get(model, "steps");
    return json_object_get(json_array_get(steps, 0), "live_bytes") != NULL;
}

void pare_parts_memory(pare_text *t, const json_t *comparisons)
{
    enum { MOST = 8 };
    size_t n = 0;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) n += has_memory(m.model);
    if (!n || n > MOST) return;
    pare_text_add(t,
                  "<h2>Memory of the plan</h2>\n<p class=\"soft\">Bytes of the activation buffer "
                  "in use at each step, from the first to the last; weights come on top.</p>\n"
                  "<div class=\"panels\">\n");
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);)
        if (has_memory(m.model)) memory_of(t, m.model);
    pare_text_add(t, "</div>\n");
}

/* --- lanes --- */

/* The row of a span's lane: streams one below the other, four lanes each, those without spans left
   out. */
static int row_of(const json_t *span, json_t *rows)
{
    char key[64];
    snprintf(key, sizeof key, "stream %.0f: %.24s", number_of(span, "stream"),
             pare_report_words(span, "lane"));
    if (!json_object_get(rows, key))
        json_object_set_new_nocheck(rows, key, json_integer((json_int_t)json_object_size(rows)));
    return (int)json_integer_value(json_object_get(rows, key));
}

enum { WIDTH = 980, ROW = 30, LABEL = 150 };

static void add_labels(pare_text *t, json_t *rows)
{
    const char *key;
    json_t *row;
    json_object_foreach(rows, key, row)
    {
        pare_text_html(t, "<text x=\"8\" y=\"%lld\">%s</text>",
                       (long long)json_integer_value(row) * ROW + 22, key);
    }
}

static void add_spans(pare_text *t, const json_t *lanes, json_t *rows, double begin, double scale)
{
    size_t i;
    json_t *span;
    json_array_foreach((json_t *)lanes, i, span)
    {
        const double ms = number_of(span, "time_ms");
        char look[48];
        snprintf(look, sizeof look, "fill=\"var(--c%zu)\"", i % PARE_CHART_COLOURS);
        pare_text_add(t, "<g>");
        pare_chart_rect(t, LABEL + (number_of(span, "start_ms") - begin) * scale,
                        (double)row_of(span, rows) * ROW + 6, fmax(ms * scale, 0.5), ROW - 8, look);
        pare_text_html(t, "<title>%s: %.4g ms</title></g>", pare_report_words(span, "name"), ms);
    }
}

static void lanes_of(pare_text *t, const json_t *facts)
{
    const json_t *lanes = json_object_get(facts, "lanes");
    json_t *rows = json_object(), *span;
    double end = 0, begin = INFINITY;
    size_t i;
    json_array_foreach((json_t *)lanes, i, span)
    {
        (void)row_of(span, rows);
        begin = fmin(begin, number_of(span, "start_ms"));
        end = fmax(end, number_of(span, "start_ms") + number_of(span, "time_ms"));
    }
    const double scale = end > begin ? (WIDTH - LABEL) / (end - begin) : 0;
    pare_text_html(t,
                   "<p class=\"soft\">%s, one run of %.3g ms</p>\n<div class=\"box\"><svg "
                   "viewBox=\"0 0 %d %zu\" "
                   "role=\"img\" aria-label=\"Lanes of one run\">",
                   pare_report_words(facts, "model"), end - begin, WIDTH,
                   ROW * json_object_size(rows) + 8);
    add_labels(t, rows);
    add_spans(t, lanes, rows, begin, scale);
    pare_text_add(t, "</svg></div>\n");
    json_decref(rows);
}

void pare_parts_lanes(pare_text *t, const json_t *facts)
{
    enum { MOST = 4 };
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one)
    {
        if (!json_array_size(json_object_get(one, "lanes")) || n == MOST) continue;
        if (!n++) pare_text_add(t, "<h2>Lanes</h2>\n");
        lanes_of(t, one);
    }
}

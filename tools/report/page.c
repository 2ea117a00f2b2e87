/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: what all of them share, and the report's own: verdicts, picture, tables, what was done and
   what was not measured. All of it is there without scripts; nothing is fetched. */
#include "tools/report/page.h"

#include "formats/file.h"
#include "tools/commands.h"
#include "tools/report/report.h"
#include "tools/telemetry.h"

#include <math.h>
#include <string.h>

/* Files that the build puts into the program (embed.cmake), NUL-ended. */
extern const unsigned char pare_embedded_style[];  /* report.css */
extern const unsigned char pare_embedded_script[]; /* report.js */
extern const unsigned char pare_embedded_chart[];  /* Chart.js; empty: the build had none */

static const char colours[] =
    ":root{color-scheme:light "
    "dark;--bg:#fbfbfa;--card:#fff;--fg:#1b1d21;--soft:#626873;--line:#e4e5e8;"
    "--good:#1a7f45;--bad:#b3401f;--c0:#2763c4;--c1:#c2571a;--c2:#1f8a5b;--c3:#8a46b8;--c4:#b8862b;"
    "--c5:#c23b6b;--c6:#2a8c9c;--c7:#6b7280}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;--fg:#e8e9eb;--soft:#"
    "9aa0aa;"
    "--line:#32363c;--good:#5cc98a;--bad:#f08a66;--c0:#7aa9f5;--c1:#f09a5e;--c2:#62c99b;--c3:#"
    "c493ea;"
    "--c4:#dcb564;--c5:#ee83a8;--c6:#69c5d4;--c7:#a2a8b2}}";

/* --- words --- */

void pare_page_samples(pare_text *t, const json_t *data)
{
    long samples = (long)pare_report_number(data, "samples", 0);
    if (samples >= 1000)
        pare_text_add(t, "%ld,%03ld samples of ", samples / 1000, samples % 1000);
    else
        pare_text_add(t, "%ld sample%s of ", samples, samples == 1 ? "" : "s");
    pare_text_html(t, "%s", pare_report_words(data, "file"));
}

void pare_page_device(pare_text *t, const json_t *device)
{
    char text[512];
    if (!json_object_get(device, "cuda")) return;
    pare_text_html(t, ", on %s", pare_device_text(device, text, sizeof text));
    if (*pare_telemetry_text(device, text, sizeof text)) pare_text_html(t, " (%s)", text);
}

const char *pare_page_place(const json_t *device, double threads, char *text, size_t size)
{
    if (json_object_get(device, "cuda"))
        snprintf(text, size, "the GPU");
    else
        snprintf(text, size, "%.0f thread%s", threads, threads > 1 ? "s" : "");
    return text;
}

void pare_page_shape(pare_text *t, const json_t *dims)
{
    size_t i;
    json_t *dim;
    json_array_foreach((json_t *)dims, i, dim)
        pare_text_add(t, "%s%lld", i ? "&times;" : "", (long long)json_integer_value(dim));
}

/* --- the file --- */

void pare_page_begin(pare_text *t, const char *title)
{
    pare_text_add(t,
                  "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                  "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
                  "style-src 'unsafe-inline';script-src 'unsafe-inline'\">"
                  "<title>%s</title>\n<style>%s%s</style></head><body><main>\n",
                  title, colours, (const char *)pare_embedded_style);
}

bool pare_page_is_picture(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".svg");
}

void pare_page_picture(pare_text *t, int width, int height)
{
    pare_text_add(t,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\"><style>%ssvg text{fill:var(--soft);font:12px "
                  "system-ui,sans-serif}svg .name{fill:var(--fg)}</style>\n<rect width=\"%d\" "
                  "height=\"%d\" rx=\"10\" fill=\"var(--card)\"/>\n",
                  width, height, width, height, colours, width, height);
}

void pare_page_end(pare_text *t)
{
    pare_text_add(t, "<p class=\"soft\">pare %s</p>\n</main></body></html>\n", PARE_VERSION);
}

pare_status pare_page_write(pare_text *t, const char *path)
{
    pare_status st = t->failed ? PARE_MEMORY : pare_file_write(t->ctx, path, t->data, t->size);
    pare_free(t->data);
    return st;
}

/* --- the report --- */

/* Has a model such a number? */
static bool any_number(const json_t *comparisons, const char *path)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)comparisons, i, one)
    {
        if (pare_report_any(json_object_get(one, "models"), path)) return true;
    }
    return false;
}

/* ", 2 loads" and *gap is then ", ", or nothing of none. */
static void add_count(pare_text *t, size_t n, const char *word, const char **gap)
{
    if (!n) return;
    pare_text_add(t, "%s%zu %s%s", *gap, n, word, n == 1 ? "" : "s");
    *gap = ", ";
}

static size_t shadows_of(const json_t *facts)
{
    size_t i, n = 0;
    json_t *one;
    json_array_foreach((json_t *)facts, i, one) n +=
        json_array_size(json_object_get(one, "shadows"));
    return n;
}

static void headline(pare_text *t, const json_t *facts, const json_t *comparisons,
                     const char *title)
{
    size_t models = 0, i;
    json_t *one;
    const json_t *first = NULL;
    const char *gap = "";
    json_array_foreach((json_t *)comparisons, i, one)
    {
        models += json_array_size(json_object_get(one, "models"));
        if (!first && json_object_get(one, "data")) first = one;
    }
    pare_text_add(t, "<h1>%s</h1>\n<p class=\"soft\">", title);
    add_count(t, json_array_size(comparisons), "network", &gap);
    add_count(t, models, "model", &gap);
    add_count(t, pare_page_loads(facts), "load", &gap);
    add_count(t, shadows_of(facts), "shadow", &gap);
    if (first) {
        pare_text_add(t, ", ");
        pare_page_samples(t, json_object_get(first, "data"));
    }
    pare_page_device(t, json_object_get(first, "device"));
    pare_text_add(t, "</p>\n");
}

/* --- how to read it: of what is on the page --- */

#define ERROR   "outputs.0.cosine"
#define LATENCY "latency_ms.median"

/* Is this of a model's facts there, and so? */
static bool any_is(const json_t *comparisons, const char *key, bool value)
{
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        const json_t *found = json_object_get(m.model, key);
        if (value ? json_is_true(found) : json_is_false(found)) return true;
    }
    return false;
}

static void note_accuracy(pare_text *t, const json_t *comparisons)
{
    if (any_number(comparisons, "top1"))
        pare_text_add(
            t,
            "<p class=\"soft\">Drop: top-1 of the first model minus that of this one, in points, "
            "on the same samples, with Newcombe&#39;s paired 95&nbsp;%% interval (method 10, "
            "1998). An interval that holds zero means that no loss was measured. Kept: this "
            "top-1 over the first model&#39;s, with the interval of Bonett and Price (2006); a "
            "floor is met or missed where the whole interval says so. McNemar p: how likely such a "
            "difference is "
            "where both are equally good. Agreement: same first class as the first model.</p>\n");
    if (any_number(comparisons, ERROR))
        pare_text_add(t, "<p class=\"soft\">SQNR: power of the first model&#39;s outputs over that "
                         "of the difference.</p>\n");
}

static void note_latency(pare_text *t, const json_t *comparisons)
{
    const double threads = pare_report_number(comparisons, "0.models.0.threads", 1);
    const json_t *device = json_object_get(json_array_get(comparisons, 0), "device");
    char place[64];
    if (!any_number(comparisons, LATENCY)) return;
    pare_text_add(t,
                  "<p class=\"soft\">Latency: median of one sample on %s, all models of a network "
                  "in turns, with bootstrap intervals over stretches of runs.",
                  pare_page_place(device, threads, place, sizeof place));
    if (any_is(comparisons, "stable", false)) pare_text_add(t, " * marks one that was unstable.");
    if (any_is(comparisons, "emulated", true))
        pare_text_add(t, " &dagger; marks one whose 16-bit arithmetic the CPU emulates: its "
                         "accuracy is that of hardware with such arithmetic, its latency is not.");
    pare_text_add(t, "</p>\n");
    if (pare_report_drifted(comparisons))
        pare_text_add(t, "<p class=\"soft\">The first model was timed with each other one in "
                         "turns, and its latency changed by more than 5&nbsp;%% in between: it is "
                         "shown as it was at first; each speed-up is against its own.</p>\n");
}

static void notes(pare_text *t, const json_t *facts, const json_t *comparisons, bool picture)
{
    const size_t loads = pare_page_loads(facts);
    if (!loads && !picture && !any_number(comparisons, "top1") && !any_number(comparisons, ERROR) &&
        !any_number(comparisons, LATENCY))
        return;
    pare_text_add(t, "<h2>How to read it</h2>\n");
    note_accuracy(t, comparisons);
    note_latency(t, comparisons);
    if (picture)
        pare_text_add(t, "<p class=\"soft\">The dashed line joins the models that no other one "
                         "beats in both; circles are fp32, squares int8, triangles fp16, diamonds "
                         "bf16.</p>\n");
    if (loads)
        pare_text_add(t, "<p class=\"soft\">Shed: refused because the server&#39;s queue was full. "
                         "Knee: the highest offered rate of which 99&nbsp;%% were answered, none "
                         "was shed, and p99 is at most twice that of the lowest rate.</p>\n");
}

static void scripts(pare_text *t, const json_t *comparisons, bool picture)
{
    if (picture) {
        pare_parts_island(t, comparisons);
        if (*pare_embedded_chart)
            pare_text_add(t, "<script>%s</script>\n", (const char *)pare_embedded_chart);
    }
    pare_text_add(t, "<script>%s</script>\n", (const char *)pare_embedded_script);
}

void pare_report_page_add(pare_text *t, const json_t *facts, const json_t *comparisons,
                          double floor, const pare_report_lead *lead)
{
    pare_page_begin(t, "pare report");
    headline(t, facts, comparisons, lead ? lead->title : "What smaller and faster cost");
    if (lead && lead->below) pare_text_add(t, "%s", lead->below);
    pare_parts_verdicts(t, comparisons, floor);
    if (lead && lead->after) pare_text_add(t, "%s", lead->after);
    const bool picture = pare_parts_chart(t, comparisons);
    pare_parts_models(t, comparisons, any_number(comparisons, "top1"));
    pare_parts_layers(t, comparisons);
    if (json_array_size(comparisons) <= 1) pare_parts_histograms(t, facts);
    pare_parts_diagnoses(t, facts);
    pare_parts_memory(t, comparisons);
    pare_parts_lanes(t, facts);
    pare_parts_loads(t, facts);
    pare_parts_shadows(t, facts);
    pare_parts_done(t, facts);
    pare_parts_missing(t, comparisons);
    notes(t, facts, comparisons, picture);
    scripts(t, comparisons, picture);
    pare_page_end(t);
}

pare_status pare_report_write(pare_ctx *ctx, const json_t *facts, const json_t *comparisons,
                              double floor, const char *path, const pare_report_lead *lead)
{
    pare_text t = {.ctx = ctx};
    if (!pare_page_is_picture(path))
        pare_report_page_add(&t, facts, comparisons, floor, lead);
    else if (!pare_parts_picture(&t, comparisons))
        return PARE_FAIL(ctx, INPUT,
                         "%s: there is no picture: no model has a latency beside its accuracy or "
                         "error",
                         path);
    return pare_page_write(&t, path);
}

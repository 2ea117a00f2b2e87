/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/page.h"

#include "formats/file.h"
#include "tools/commands.h"
#include "tools/embedded.h"
#include "tools/report/report.h"
#include "tools/vitals.h"

#include <math.h>
#include <string.h>

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

/* --- cells --- */

/* Two digits with a sign, a true minus, and no sign on what rounds to zero. */
void pare_page_signed(pare_text *t, double value)
{
    if (fabs(value) < 0.005)
        pare_text_add(t, "0.00");
    else
        pare_text_add(t, "%s%.2f", value < 0 ? "&minus;" : "+", fabs(value));
}

void pare_page_cell(pare_text *t, const json_t *model, const char *path, const char *kind,
                    int digits, const char *unit)
{
    double value = pare_report_number(model, path, NAN);
    pare_text_add(t, "<td%s%s%s>", *kind ? " class=\"" : "", kind, *kind ? "\"" : "");
    if (!isnan(value)) pare_text_add(t, "%.*f%s", digits, value, unit);
    pare_text_add(t, "</td>");
}

/* Milliseconds with three significant digits, without an exponent. */
void pare_page_latency(pare_text *t, const json_t *model)
{
    double ms = pare_report_number(model, "latency_ms.median", NAN);
    if (isnan(ms)) {
        pare_text_add(t, "<td></td>");
        return;
    }
    int digits = ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : ms >= 0.1 ? 3 : 4;
    pare_text_add(t, "<td>%.*f ms<span class=\"soft\">%s%s</span></td>", digits, ms,
                  json_is_true(json_object_get(model, "emulated")) ? "&nbsp;&dagger;" : "",
                  json_is_false(json_object_get(model, "stable")) ? "&nbsp;*" : "");
}

/* A drop is called a loss only where its interval excludes zero. */
const char *pare_page_verdict(const json_t *model)
{
    if (pare_report_number(model, "drop_interval.0", 0) > 0) return "bad";
    if (pare_report_number(model, "drop_interval.1", 0) < 0) return "good";
    return "";
}

void pare_page_drop(pare_text *t, const json_t *model)
{
    double drop = pare_report_number(model, "drop", NAN);
    if (isnan(drop)) {
        pare_text_add(t, "<td></td>");
        return;
    }
    pare_text_add(t, "<td class=\"%s\">", pare_page_verdict(model));
    pare_page_signed(t, drop);
    pare_text_add(t, " <span class=\"soft\">[");
    pare_page_signed(t, pare_report_number(model, "drop_interval.0", 0));
    pare_text_add(t, ", ");
    pare_page_signed(t, pare_report_number(model, "drop_interval.1", 0));
    pare_text_add(t, "]</span></td>");
}

void pare_page_factor(pare_text *t, double factor)
{
    if (isfinite(factor) && factor > 0)
        pare_text_add(t, "<td>%.1f&times;</td>", factor);
    else
        pare_text_add(t, "<td></td>");
}

void pare_page_samples(pare_text *t, const json_t *data)
{
    long samples = (long)pare_report_number(data, "samples", 0);
    if (samples >= 1000)
        pare_text_add(t, "%ld,%03ld samples of ", samples / 1000, samples % 1000);
    else
        pare_text_add(t, "%ld sample%s of ", samples, samples == 1 ? "" : "s");
    pare_text_add_escaped(t, json_string_value(json_object_get(data, "file")));
}

void pare_page_device(pare_text *t, const json_t *device)
{
    char text[512];
    if (!json_object_get(device, "cuda")) return;
    pare_text_add(t, ", on ");
    pare_text_add_escaped(t, pare_device_text(device, text, sizeof text));
    if (!*pare_telemetry_text(device, text, sizeof text)) return;
    pare_text_add(t, " (");
    pare_text_add_escaped(t, text);
    pare_text_add(t, ")");
}

const char *pare_page_place(const json_t *device, double threads, char *text, size_t size)
{
    if (json_object_get(device, "cuda"))
        snprintf(text, size, "the GPU");
    else
        snprintf(text, size, "%.0f thread%s", threads, threads > 1 ? "s" : "");
    return text;
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

pare_status pare_page_end(pare_text *t, const char *path)
{
    pare_text_add(t, "<p class=\"soft\">pare %s</p>\n</main></body></html>\n", PARE_VERSION);
    return pare_page_write(t, path);
}

pare_status pare_page_write(pare_text *t, const char *path)
{
    pare_status st = t->failed ? PARE_MEMORY : pare_file_write(t->ctx, path, t->data, t->size);
    pare_free(t->data);
    return st;
}

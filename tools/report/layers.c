/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of layers: what runs, how long, and with how many channels. */
#include "tools/report/report.h"
#include "tools/report/gather.h"
#include "tools/report/page.h"
#include "tools/report/parts.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* --- channels --- */

/* Of a step's output: (N, C, ...) of images and convolutions, else the last dim. 0: it has none. */
static long long channels_of(const json_t *step)
{
    const json_t *shape = json_object_get(step, "shape");
    const size_t rank = json_array_size(shape);
    const bool second = rank == 4 || (rank > 2 && strstr(text_of(step, "op_type"), "Conv"));
    if (rank < 2) return 0;
    return (long long)json_integer_value(json_array_get(shape, second ? 1 : rank - 1));
}

/* The name of what a step makes; an integer twin's ends with "_quantized". */
static const char *output_of(const json_t *step, char *text, size_t size)
{
    static const char twin[] = "_quantized";
    const size_t end = sizeof twin - 1;
    snprintf(text, size, "%s", text_of(step, "output"));
    const size_t n = strlen(text);
    if (n > end && !strcmp(text + n - end, twin)) text[n - end] = 0;
    return text;
}

/* Channels by what the steps make. */
static json_t *index_channels(const json_t *model)
{
    json_t *index = json_object(), *step;
    char name[256];
    size_t i;
    json_array_foreach(json_object_get(model, "steps"), i, step) json_object_set_new(
        index, output_of(step, name, sizeof name), json_integer(channels_of(step)));
    return index;
}

/* "13 of 16" where the first model has more. */
static void channels_cell(pare_text *t, const json_t *step, const json_t *first)
{
    char name[256];
    const long long now = channels_of(step);
    const json_t *known = json_object_get(first, output_of(step, name, sizeof name));
    const long long before = known ? (long long)json_integer_value(known) : now;
    if (!now)
        pare_text_add(t, "<td></td>");
    else if (before == now)
        pare_text_add(t, "<td>%lld</td>", now);
    else
        pare_text_add(t, "<td data-v=\"%lld\">%lld of %lld</td>", now, now, before);
}

/* --- tables --- */

static bool any_sqnr(const json_t *steps)
{
    size_t i;
    json_t *step;
    json_array_foreach((json_t *)steps, i, step)
    {
        if (json_object_get(step, "sqnr_db")) return true;
    }
    return false;
}

static void layer_row(pare_text *t, const json_t *step, const json_t *first, bool sqnr)
{
    char in[24], out[24];
    const double bytes_in = pare_report_number(step, "bytes_in", 0),
                 bytes_out = pare_report_number(step, "bytes_out", 0);
    const json_t *shape = json_object_get(step, "shape");
    size_t i;
    json_t *dim;
    pare_text_add(t, "<tr><td>");
    pare_text_add_escaped(t, text_of(step, "node"));
    pare_text_add(t, "</td><td>");
    pare_text_add_escaped(t, text_of(step, "op_type"));
    pare_text_add(t, "</td><td>");
    pare_text_add_escaped(t, text_of(step, "precision"));
    pare_text_add(t, "</td>");
    pare_page_cell(t, step, "time_ms", "", 4, " ms");
    pare_text_add(t, "<td>%.1f&nbsp;%%</td>", 100 * pare_report_number(step, "share", 0));
    pare_text_add(t, "<td data-v=\"%.0f\">%s</td><td data-v=\"%.0f\">%s</td>", bytes_in,
                  pare_bytes_text(bytes_in, in, sizeof in), bytes_out,
                  pare_bytes_text(bytes_out, out, sizeof out));
    if (sqnr) pare_page_cell(t, step, "sqnr_db", "", 1, " dB");
    channels_cell(t, step, first);
    pare_text_add(t, "<td data-v=\"%.0f\">", pare_report_number(shape, "1", 0));
    json_array_foreach((json_t *)shape, i, dim)
        pare_text_add(t, "%s%lld", i ? "&times;" : "", (long long)json_integer_value(dim));
    pare_text_add(t, "</td><td>");
    pare_text_add_escaped(t, text_of(step, "kernel"));
    pare_text_add(t, "</td></tr>\n");
}

static void layers_of(pare_text *t, const json_t *model, const json_t *first, bool open)
{
    char name[128];
    const json_t *steps = json_object_get(model, "steps");
    const bool sqnr = any_sqnr(steps);
    size_t i;
    json_t *step;
    pare_text_add(t, "<details%s><summary>", open ? " open" : "");
    pare_text_add_escaped(t, pare_report_name(model, name, sizeof name));
    pare_text_add(t,
                  ", %zu steps</summary><div class=\"box\" tabindex=\"0\" role=\"region\" "
                  "aria-label=\"Layers\"><table class=\"sort\"><thead><tr>",
                  json_array_size(steps));
    static const char *const heads[] = {
        "node",    "operator", "precision", "time",   "share", "read",
        "written", "SQNR",     "channels",  "output", "kernel"}; /* SQNR: where it is known */
    for (i = 0; i < sizeof heads / sizeof *heads; i++)
        if (sqnr || strcmp(heads[i], "SQNR") != 0)
            pare_text_add(t, "<th scope=\"col\">%s</th>", heads[i]);
    pare_text_add(t, "</tr></thead><tbody>\n");
    json_array_foreach((json_t *)steps, i, step) layer_row(t, step, first, sqnr);
    pare_text_add(t, "</tbody></table></div></details>\n");
}

void pare_parts_layers(pare_text *t, const json_t *comparisons)
{
    enum { MOST = 8 };
    size_t i, k, n = 0, done = 0;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model) n +=
        json_object_get(model, "steps") != NULL;
    if (!n || n > MOST) return;
    pare_text_add(t, "<h2>Layers</h2>\n<p class=\"soft\">What the runtime does one after the "
                     "other, fused as it runs: medians of 21 runs.</p>\n");
    json_array_foreach((json_t *)comparisons, i, one)
    {
        const json_t *models = json_object_get(one, "models");
        json_t *first = index_channels(json_array_get(models, 0));
        json_array_foreach((json_t *)models, k, model)
        {
            if (json_object_get(model, "steps")) layers_of(t, model, first, ++done == n);
        }
        json_decref(first);
    }
}

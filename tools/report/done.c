/* SPDX-License-Identifier: Apache-2.0 */
/* What was done, and what was not measured. */
#include "tools/cpu_info.h"
#include "tools/report/report.h"
#include "tools/report/gather.h"
#include "tools/report/parts.h"
#include "tools/vitals.h"

#include <math.h>
#include <string.h>

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* --- what was done --- */

/* A file with its hash, as far as they are known. */
static void add_file(pare_text *t, const char *word, const json_t *file)
{
    if (!json_object_get(file, "file")) return;
    pare_text_add(t, "%s <code>", word);
    pare_text_add_escaped(t, text_of(file, "file"));
    pare_text_add(t, "</code>");
    if (*text_of(file, "hash")) {
        pare_text_add(t, " <span class=\"soft\">");
        pare_text_add_escaped(t, text_of(file, "hash"));
        pare_text_add(t, "</span>");
    }
    if (*text_of(file, "recipe")) {
        pare_text_add(t, "<br>made by <code>");
        pare_text_add_escaped(t, text_of(file, "recipe"));
        pare_text_add(t, "</code>");
    }
    pare_text_add(t, "<br>");
}

static void add_files(pare_text *t, const char *word, const json_t *files)
{
    enum { MOST = 8 };
    const size_t count = json_array_size(files);
    for (size_t i = 0; i < count && i < MOST; i++) add_file(t, word, json_array_get(files, i));
    if (count > MOST) pare_text_add(t, "and %zu more", count - MOST);
}

static void add_data(pare_text *t, const json_t *data)
{
    if (!json_object_get(data, "file")) return;
    pare_text_add(t, "%.0f samples of <code>", pare_report_number(data, "samples", 0));
    pare_text_add_escaped(t, text_of(data, "file"));
    pare_text_add(t, "</code>");
    if (*text_of(data, "range")) {
        pare_text_add(t, " (");
        pare_text_add_escaped(t, text_of(data, "range"));
        pare_text_add(t, ")");
    }
    pare_text_add(t, "<br>");
}

/* The device with its clocks, or the name of one. */
static void add_device(pare_text *t, const json_t *device)
{
    char text[512];
    if (json_is_string(device)) {
        pare_text_add_escaped(t, json_string_value(device));
    } else if (json_object_get(device, "cuda")) {
        pare_text_add_escaped(t, pare_device_text(device, text, sizeof text));
        pare_text_add(t, "<br>");
        pare_text_add_escaped(t, pare_telemetry_text(device, text, sizeof text));
    } else {
        pare_text_add_escaped(t, pare_cpu_info_text(device, text, sizeof text));
    }
}

static void add_machine(pare_text *t, const json_t *facts)
{
    if (!*text_of(facts, "isa")) return;
    pare_text_add_escaped(t, text_of(facts, "cpu"));
    pare_text_add(t, ", %.0f cores, ", pare_report_number(facts, "cores", 0));
    pare_text_add_escaped(t, text_of(facts, "isa"));
}

static void done_row(pare_text *t, const json_t *facts)
{
    static const char *const inputs[] = {"model", "teacher", "student"};
    const json_t *compared = json_object_get(facts, "compared");
    const json_t *body = compared ? compared : facts, *rows = json_object_get(facts, "smaller");
    pare_text_add(t, "<tr><td>");
    pare_text_add_escaped(t, text_of(facts, "command"));
    pare_text_add(t, "</td><td>");
    for (int i = 0; i < 3; i++) add_file(t, inputs[i], json_object_get(facts, inputs[i]));
    if (json_is_string(json_object_get(facts, "model"))) {
        pare_text_add(t, "model <code>");
        pare_text_add_escaped(t, text_of(facts, "model"));
        pare_text_add(t, "</code><br>");
    }
    if (!rows) rows = json_object_get(facts, "sparse");
    add_files(t, "model", json_object_get(facts, "models"));
    add_data(t, json_object_get(body, "data"));
    pare_text_add(t, "</td><td>");
    add_file(t, "", json_object_get(facts, "output"));
    add_files(t, "", rows);
    pare_text_add(t, "</td><td>");
    add_device(t, json_object_get(body, "device"));
    add_machine(t, facts);
    pare_text_add(t, "</td><td>");
    pare_text_add_escaped(t, text_of(facts, "version"));
    pare_text_add(t, "</td></tr>\n");
}

void pare_parts_done(pare_text *t, const json_t *facts)
{
    enum { MOST = 100 };
    const size_t count = json_array_size(facts);
    pare_text_add(t, "<h2>What was done</h2>\n<div class=\"box\" tabindex=\"0\" role=\"region\" "
                     "aria-label=\"What was done\"><table class=\"wrap\"><thead><tr>"
                     "<th scope=\"col\">command</th><th scope=\"col\">read</th>"
                     "<th scope=\"col\">made</th><th scope=\"col\">on</th>"
                     "<th scope=\"col\">pare</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < count && i < MOST; i++) done_row(t, json_array_get(facts, i));
    pare_text_add(t, "</tbody></table></div>\n");
    if (count > MOST)
        pare_text_add(t, "<p class=\"soft\">and %zu more commands</p>\n", count - MOST);
}

/* --- what was not --- */

typedef struct question {
    const char *what, *path;
    bool against; /* asked of models that are compared with another one */
} question;

static bool lacks(const json_t *model, const question *q, size_t place)
{
    return (!q->against || place) && !pare_report_find(model, q->path);
}

static void missing_line(pare_text *t, const json_t *comparisons, const question *q)
{
    enum { NAMED = 5 };
    size_t i, k, n = 0;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        char name[128];
        if (!lacks(model, q, k) || n++ >= NAMED) continue;
        if (n == 1)
            pare_text_add(t, "<li>%s: ", q->what);
        else
            pare_text_add(t, ", ");
        pare_text_add_escaped(t, pare_report_name(model, name, sizeof name));
    }
    if (n > NAMED) pare_text_add(t, " and %zu more", n - NAMED);
    if (n) pare_text_add(t, "</li>\n");
}

void pare_parts_missing(pare_text *t, const json_t *comparisons)
{
    static const question questions[] = {
        {"accuracy on labelled samples", "top1", false},
        {"error against the first model", "outputs", true},
        {"latency", "latency_ms.median", false},
        {"a 99th percentile, which needs 1,000 runs", "latency_ms.p99", false},
        {"memory while it runs", "peak_memory_bytes", false},
        {"time of each layer", "steps", false},
    };
    pare_text_add(t, "<h2>What was not measured</h2>\n<ul>\n");
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        missing_line(t, comparisons, &questions[i]);
    pare_text_add(t,
                  "<li>other devices, batch sizes and data than those named above</li>\n</ul>\n");
}

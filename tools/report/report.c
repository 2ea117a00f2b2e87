/* SPDX-License-Identifier: Apache-2.0 */
/* Text tables and Markdown, and what all views share. */
#include "tools/report/report.h"

#include "tools/report/gather.h"
#include "tools/report/page.h"
#include "tools/table.h"
#include "tools/text.h"
#include "tools/vitals.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *pare_report_stem(const char *path, char *text, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strcspn(name, ".");
    while (n && isdigit((unsigned char)name[n - 1]) && name[n] &&
           isdigit((unsigned char)name[n + 1]))
        n += 1 + strcspn(name + n + 1, ".");
    snprintf(text, size, "%.*s", (int)n, name);
    return text;
}

const json_t *pare_report_find(const json_t *json, const char *path)
{
    char key[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        json = json_is_array(json) ? json_array_get(json, (size_t)atoi(key))
                                   : json_object_get(json, key);
        path += n + (path[n] == '.');
    }
    return json;
}

double pare_report_number(const json_t *json, const char *path, double missing)
{
    const json_t *value = pare_report_find(json, path);
    return json_is_number(value) ? json_number_value(value) : missing;
}

void pare_report_drop(const json_t *model, char *text, size_t size)
{
    double drop = pare_report_number(model, "drop", NAN);
    *text = 0;
    if (!isnan(drop))
        snprintf(text, size, "%+.2f [%+.2f, %+.2f]", drop,
                 pare_report_number(model, "drop_interval.0", 0),
                 pare_report_number(model, "drop_interval.1", 0));
}

const char *pare_report_text(const json_t *model, const char *path, const char *format, char *text,
                             size_t size)
{
    double value = pare_report_number(model, path, NAN);
    *text = 0;
    if (isnan(value)) return text;
    if (!strcmp(format, "%.2f"))
        snprintf(text, size, "%.2f", value);
    else if (!strcmp(format, "%.1f"))
        snprintf(text, size, "%.1f", value);
    else if (!strcmp(format, "%.2g"))
        snprintf(text, size, "%.2g", value);
    else if (!strcmp(format, "%.2fx"))
        snprintf(text, size, "%.2fx", value);
    else
        snprintf(text, size, "%.3g", value);
    return text;
}

/* The median in milliseconds, marked as print_marks explains. */
const char *pare_report_latency(const json_t *model, char *text, size_t size)
{
    pare_report_text(model, "latency_ms.median", "%.3g", text, size);
    size_t n = strlen(text);
    if (n)
        snprintf(text + n, size - n, "%s%s",
                 json_is_true(json_object_get(model, "emulated")) ? "~" : "",
                 json_is_false(json_object_get(model, "stable")) ? "*" : "");
    return text;
}

static bool any_model(const json_t *comparisons, const char *key, bool value)
{
    size_t i, k;
    json_t *facts, *model, *found;
    json_array_foreach((json_t *)comparisons, i, facts)
        json_array_foreach(json_object_get(facts, "models"), k,
                           model) if ((found = json_object_get(model, key)) != NULL &&
                                      json_is_true(found) == value) return true;
    return false;
}

/* A line for each GPU; the CPU is not named. */
static void print_devices(const json_t *comparisons, FILE *file)
{
    char name[320], last[320] = "", vitals[512];
    size_t i;
    json_t *facts;
    json_array_foreach((json_t *)comparisons, i, facts)
    {
        const json_t *device = json_object_get(facts, "device");
        if (!json_object_get(device, "cuda")) continue;
        pare_device_text(device, name, sizeof name);
        if (!strcmp(name, last)) continue;
        memcpy(last, name, sizeof last);
        pare_telemetry_text(device, vitals, sizeof vitals);
        pare_print(file, "on %s%s%s\n", name, *vitals ? ": " : "", vitals);
    }
}

bool pare_report_drifted(const json_t *comparisons)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)comparisons, i, one)
    {
        if (json_is_true(json_object_get(one, "drifted"))) return true;
    }
    return false;
}

static void print_marks(const json_t *comparisons, FILE *file)
{
    if (any_model(comparisons, "emulated", true))
        pare_print(file, "~ the CPU emulates this 16-bit arithmetic: the latency predicts no other "
                         "hardware\n");
    if (any_model(comparisons, "stable", false))
        pare_print(file,
                   "* unstable: other work shared the cores, or too few runs; 'notes' of --json "
                   "say why\n");
    if (pare_report_drifted(comparisons))
        pare_print(file,
                   "the first model's latency changed by more than 5 %% between comparisons: it "
                   "is shown as it was\nat first; each speed-up is against the one measured in "
                   "turns with that model\n");
}

static const char *precision_of(const json_t *model)
{
    const char *text = json_string_value(json_object_get(model, "precision"));
    return text ? text : "";
}

/* Bytes of the file, "" where nothing says so. */
static const char *size_of(const json_t *model, char *text, size_t size)
{
    const double bytes = pare_report_number(model, "bytes", NAN);
    *text = 0;
    return isnan(bytes) ? text : pare_bytes_text(bytes, text, size);
}

static void add_labelled(pare_table *table, const json_t *m, const char *net)
{
    char size[24], top1[16], drop[48], p[16], agree[16], ms[16], speed[16], db[16];
    pare_report_drop(m, drop, sizeof drop);
    pare_table_add(table, "%s|%s|%s|%s|%s|%s|%s|%s|%s|%s", net, precision_of(m),
                   size_of(m, size, sizeof size),
                   pare_report_text(m, "top1", "%.2f", top1, sizeof top1), drop,
                   pare_report_text(m, "mcnemar.p", "%.2g", p, sizeof p),
                   pare_report_text(m, "agreement", "%.2f", agree, sizeof agree),
                   pare_report_text(m, "outputs.0.sqnr_db", "%.1f", db, sizeof db),
                   pare_report_latency(m, ms, sizeof ms),
                   pare_report_text(m, "speed_up", "%.2fx", speed, sizeof speed));
}

static void add_unlabelled(pare_table *table, const json_t *m, const char *net)
{
    char size[24], db[16], cosine[24], mse[16], worst[16], ms[16], speed[16];
    double c = pare_report_number(m, "outputs.0.cosine", NAN);
    snprintf(cosine, sizeof cosine, isnan(c) ? "" : "%.6f", c);
    pare_table_add(table, "%s|%s|%s|%s|%s|%s|%s|%s|%s", net, precision_of(m),
                   size_of(m, size, sizeof size),
                   pare_report_text(m, "outputs.0.sqnr_db", "%.1f", db, sizeof db), cosine,
                   pare_report_text(m, "outputs.0.mse", "%.3g", mse, sizeof mse),
                   pare_report_text(m, "outputs.0.max_abs_error", "%.3g", worst, sizeof worst),
                   pare_report_latency(m, ms, sizeof ms),
                   pare_report_text(m, "speed_up", "%.2fx", speed, sizeof speed));
}

/* Comparisons with labels and without have different columns: one table each. */
static bool has_labels(const json_t *facts)
{
    return !isnan(pare_report_number(facts, "models.0.top1", NAN));
}

static void stem_of(const json_t *model, char *text, size_t size)
{
    const char *name = json_string_value(json_object_get(model, "name"));
    pare_report_stem(name ? name : json_string_value(json_object_get(model, "file")), text, size);
}

/* Are there two models of one network and precision? */
static bool look_alike(const json_t *models)
{
    char key[192];
    json_t *seen = json_object(), *model;
    size_t i;
    json_array_foreach((json_t *)models, i, model)
    {
        stem_of(model, key, 128);
        const size_t n = strlen(key);
        snprintf(key + n, sizeof key - n, "\n%s", precision_of(model));
        json_object_set_new(seen, key, json_true());
    }
    const bool alike = json_object_size(seen) < json_array_size(models);
    json_decref(seen);
    return alike;
}

/* The name of a model in the text tables: the network's, which precisions tell apart; where they do
   not, the file's of all that are compared with the first. */
static void label_of(const json_t *model, bool whole, char *text, size_t size)
{
    if (whole)
        pare_report_name(model, text, size);
    else
        stem_of(model, text, size);
    for (char *c = text; *c; c++)
        if (*c == '|') *c = '/';
}

static void fill(pare_table *table, pare_arena *arena, const json_t *comparisons, bool labels)
{
    size_t i, k;
    json_t *facts, *model;
    pare_table_init(table, arena, labels ? "llrrrrrrrr" : "llrrrrrrr");
    pare_table_add_line(table, labels
                                   ? "net|precision|size|top-1 %|drop [95 %]|McNemar p|agree %|"
                                     "SQNR dB|latency ms|speed-up"
                                   : "net|precision|size|SQNR dB|cosine|MSE|max error|latency ms|"
                                     "speed-up");
    json_array_foreach((json_t *)comparisons, i, facts)
    {
        if (has_labels(facts) != labels) continue;
        const bool alike = look_alike(json_object_get(facts, "models"));
        json_array_foreach(json_object_get(facts, "models"), k, model)
        {
            char name[128];
            label_of(model, alike && k, name, sizeof name);
            if (labels)
                add_labelled(table, model, name);
            else
                add_unlabelled(table, model, name);
        }
    }
}

static void print_some(pare_arena *arena, const json_t *comparisons, FILE *file, bool labels)
{
    pare_table table;
    fill(&table, arena, comparisons, labels);
    if (table.count > 1) pare_table_print(&table, file);
}

/* --- Markdown --- */

static void mark_down(pare_text *t, pare_arena *arena, const json_t *comparisons, bool labels)
{
    pare_table table;
    fill(&table, arena, comparisons, labels);
    if (table.count > 1) pare_table_markdown(&table, t);
}

void pare_report_markdown_add(pare_text *t, pare_arena *arena, const json_t *comparisons,
                              double floor)
{
    size_t i, k;
    json_t *one, *model;
    json_array_foreach((json_t *)comparisons, i, one)
        json_array_foreach(json_object_get(one, "models"), k, model)
    {
        if (!k) continue;
        pare_text_add(t, "- ");
        pare_report_verdict(t, json_array_get(json_object_get(one, "models"), 0), model, floor);
        pare_text_add(t, " (%s)\n", json_string_value(json_object_get(model, "made")));
    }
    mark_down(t, arena, comparisons, true);
    mark_down(t, arena, comparisons, false);
}

pare_status pare_report_markdown(pare_arena *arena, const json_t *comparisons, double floor,
                                 const char *path)
{
    pare_text t = {.ctx = arena->ctx};
    pare_text_add(&t, "# What smaller and faster cost\n\n");
    pare_report_markdown_add(&t, arena, comparisons, floor);
    return pare_page_write(&t, path);
}

/* --- all of it --- */

void pare_report_print(pare_arena *arena, const json_t *comparisons, FILE *file)
{
    print_some(arena, comparisons, file, true);
    print_some(arena, comparisons, file, false);
    print_devices(comparisons, file);
    print_marks(comparisons, file);
}

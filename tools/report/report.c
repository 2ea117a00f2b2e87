/* SPDX-License-Identifier: Apache-2.0 */
/* What all views read from facts, and what is judged about a model. */
#include "tools/report/report.h"

#include "runtime/eval/stats.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- names and numbers --- */

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

const char *pare_report_name(const json_t *model, char *text, size_t size)
{
    const char *own = json_string_value(json_object_get(model, "name"));
    const char *path = json_string_value(json_object_get(model, "file"));
    if (own) {
        snprintf(text, size, "%s", own);
        return text;
    }
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    const char *dot = name ? strrchr(name, '.') : NULL;
    snprintf(text, size, "%.*s", dot && dot != name ? (int)(dot - name) : (int)size - 1,
             name ? name : "a model");
    return text;
}

const char *pare_report_output(const json_t *step, char *text, size_t size)
{
    static const char twin[] = "_quantized";
    const size_t end = sizeof twin - 1;
    snprintf(text, size, "%s", pare_report_words(step, "output"));
    const size_t n = strlen(text);
    if (n > end && !strcmp(text + n - end, twin)) text[n - end] = 0;
    return text;
}

const json_t *pare_report_find(const json_t *json, const char *path)
{
    char key[64];
    if (!path) return NULL;
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

const char *pare_report_words(const json_t *json, const char *path)
{
    const char *words = json_string_value(pare_report_find(json, path));
    return words ? words : "";
}

bool pare_report_any(const json_t *rows, const char *path)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (!isnan(pare_report_number(json_array_get(rows, i), path, NAN))) return true;
    return false;
}

bool pare_models_next(pare_models *m)
{
    if (m->model) m->k++;
    for (; (m->one = json_array_get(m->of, m->group)); m->group++, m->k = 0)
        if ((m->model = json_array_get(json_object_get(m->one, "models"), m->k))) return true;
    return false;
}

/* --- cells --- */

/* A drop is called a loss only where its interval excludes zero. */
const char *pare_report_loss(const json_t *model)
{
    if (pare_report_number(model, "drop_interval.0", 0) > 0) return "bad";
    if (pare_report_number(model, "drop_interval.1", 0) < 0) return "good";
    return "";
}

void pare_cell_drop(pare_cell *cell)
{
    pare_text *t = cell->text;
    const double drop = pare_report_number(cell->row, "drop", NAN),
                 low = pare_report_number(cell->row, "drop_interval.0", 0),
                 high = pare_report_number(cell->row, "drop_interval.1", 0);
    if (isnan(drop)) return;
    if (cell->medium != PARE_HTML) {
        pare_text_add(t, "%+.2f [%+.2f, %+.2f]", drop, low, high);
        return;
    }
    cell->kind = pare_report_loss(cell->row);
    pare_number_signed(t, PARE_HTML, drop);
    pare_text_add(t, " <span class=\"soft\">[");
    pare_number_signed(t, PARE_HTML, low);
    pare_text_add(t, ", ");
    pare_number_signed(t, PARE_HTML, high);
    pare_text_add(t, "]</span>");
}

/* Milliseconds with three significant digits, in HTML without an exponent. */
void pare_cell_latency(pare_cell *cell)
{
    const double ms = pare_report_number(cell->row, "latency_ms.median", NAN);
    const bool emulated = json_is_true(json_object_get(cell->row, "emulated"));
    const bool unstable = json_is_false(json_object_get(cell->row, "stable"));
    if (isnan(ms)) return;
    if (cell->medium == PARE_HTML) {
        const int digits = ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : ms >= 0.1 ? 3 : 4;
        pare_text_add(cell->text, "%.*f ms<span class=\"soft\">%s%s</span>", digits, ms,
                      emulated ? "&nbsp;&dagger;" : "", unstable ? "&nbsp;*" : "");
    } else
        pare_text_add(cell->text, "%.3g%s%s", ms, emulated ? "~" : "", unstable ? "*" : "");
}

/* --- judgement --- */

const char *pare_report_made(const char *recipe)
{
    static const char *const converting[] = {"int8", "fp16",  "bf16", "w4a8",
                                             "fp8 ", "w4a16", "w8a16"};
    if (!recipe) return "original";
    for (const char *step = recipe; step;) {
        bool converted = false;
        for (size_t i = 0; i < sizeof converting / sizeof *converting; i++)
            converted |= !strncmp(step, converting[i], 4);
        if (!converted) return "pruned or tuned";
        const char *next = strstr(step, "; ");
        step = next ? next + 2 : NULL;
    }
    return "calibrated only";
}

pare_report_point pare_report_point_of(const json_t *m, bool labels)
{
    return (pare_report_point){
        .ms = pare_report_number(m, "latency_ms.median", NAN),
        .y = pare_report_number(m, labels ? "top1" : "outputs.0.sqnr_db", NAN),
        .low = pare_report_number(m, labels ? "top1_interval.0" : "outputs.0.sqnr_interval.0", NAN),
        .high =
            pare_report_number(m, labels ? "top1_interval.1" : "outputs.0.sqnr_interval.1", NAN),
        .ms_low = pare_report_number(m, "latency_interval.0", NAN),
        .ms_high = pare_report_number(m, "latency_interval.1", NAN),
    };
}

bool pare_report_has_point(const pare_report_point *p) { return p->ms > 0 && isfinite(p->y); }

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

/* Is there an interval of what is kept? */
static bool kept_of(const json_t *model, pare_interval *out)
{
    *out = (pare_interval){pare_report_number(model, "kept_interval.0", NAN),
                           pare_report_number(model, "kept_interval.1", NAN)};
    return !isnan(out->low);
}

const char *pare_report_floor(const json_t *model, double floor)
{
    pare_interval kept;
    if (!kept_of(model, &kept)) return "";
    switch (pare_stats_floor(kept, floor)) {
    case PARE_FLOOR_MET: return "good";
    case PARE_FLOOR_MISSED: return "bad";
    default: return "";
    }
}

/* --- fronts --- */

typedef struct candidate {
    json_t *model;
    const char *data;
    pare_report_point at;
    size_t place;
} candidate;

/* By data set, then from the quickest on, the better first among equals, then in the
   order of the facts. */
static int by_data_and_time(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    const int data = strcmp(a->data, b->data);
    if (data) return data;
    if (a->at.ms != b->at.ms) return a->at.ms < b->at.ms ? -1 : 1;
    if (a->at.y != b->at.y) return a->at.y > b->at.y ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

static size_t collect(const json_t *comparisons, bool labels, candidate *out)
{
    size_t n = 0;
    for (pare_models m = {.of = comparisons}; pare_models_next(&m);) {
        const pare_report_point at = pare_report_point_of(m.model, labels);
        if (!pare_report_has_point(&at)) continue;
        if (out) out[n] = (candidate){m.model, pare_report_words(m.one, "data.file"), at, n};
        n++;
    }
    return n;
}

/* No other model on the same data is as quick and more accurate, or as accurate and quicker. */
static void mark_front(const json_t *comparisons, bool labels)
{
    const size_t n = collect(comparisons, labels, NULL);
    candidate *all = n ? calloc(n, sizeof *all) : NULL;
    if (!all) return;
    collect(comparisons, labels, all);
    qsort(all, n, sizeof *all, by_data_and_time);
    double best = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(all[i].data, all[i - 1].data) != 0) best = -INFINITY;
        if (all[i].at.y > best) json_object_set_new(all[i].model, "front", json_true());
        best = fmax(best, all[i].at.y);
    }
    free(all);
}

void pare_report_mark_fronts(json_t *comparisons)
{
    mark_front(comparisons, true);
    if (!collect(comparisons, true, NULL)) mark_front(comparisons, false);
}

/* --- verdicts --- */

static void add_accuracy(pare_text *t, pare_medium medium, const json_t *model, const char *than,
                         double floor)
{
    const double kept = pare_report_number(model, "kept", NAN);
    const double db = pare_report_number(model, "outputs.0.sqnr_db", NAN);
    const char *word = pare_report_floor(model, floor);
    pare_interval i;
    if (!isnan(kept) && kept_of(model, &i))
        pare_text_put(t, medium,
                      " keeps %.2f %% [%.2f, %.2f] of the top-1 of %s: the floor of %g %% is %s",
                      kept, i.low, i.high, than, floor,
                      !strcmp(word, "good")  ? "met"
                      : !strcmp(word, "bad") ? "missed"
                                             : "neither met nor missed on so few samples");
    else if (!isnan(db))
        pare_text_put(t, medium, " differs from %s with an SQNR of %.1f dB", than, db);
    else
        pare_text_add(t, ": its accuracy was not measured");
}

static void add_time(pare_text *t, pare_medium medium, const json_t *model)
{
    const double speed = pare_report_number(model, "speed_up", NAN);
    const double ms = pare_report_number(model, "latency_ms.median", NAN);
    if (isnan(ms)) {
        pare_text_add(t, "; its latency was not measured");
        return;
    }
    if (isnan(speed))
        pare_text_add(t, "; a run takes %.3g ms", ms);
    else
        pare_text_add(t, "; %.2f%s as fast", speed, pare_number_times(medium));
    if (!isnan(pare_report_number(model, "speed_up_interval.0", NAN)))
        pare_text_add(t, " [%.2f, %.2f]", pare_report_number(model, "speed_up_interval.0", 0),
                      pare_report_number(model, "speed_up_interval.1", 0));
    if (json_is_true(json_object_get(model, "emulated"))) pare_text_add(t, " (emulated)");
    if (json_is_false(json_object_get(model, "stable"))) pare_text_add(t, " (unstable)");
}

void pare_report_verdict(pare_text *t, pare_medium medium, const json_t *first, const json_t *model,
                         double floor)
{
    char name[128], than[128];
    const double smaller =
        pare_report_number(first, "bytes", NAN) / pare_report_number(model, "bytes", NAN);
    pare_report_name(model, name, sizeof name);
    if (medium == PARE_HTML)
        pare_text_html(t, "<b>%s</b>", name);
    else
        pare_text_put(t, medium, "**%s**", name);
    add_accuracy(t, medium, model, pare_report_name(first, than, sizeof than), floor);
    if (isfinite(smaller)) pare_text_add(t, "; %.1f%s smaller", smaller, pare_number_times(medium));
    add_time(t, medium, model);
    pare_text_add(t, ".");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/tables.h"
#include "formats/json.h"
#include "tools/cpu_info.h"
#include "tools/facts.h"
#include "tools/report/report.h"
#include "tools/table.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* --- rows --- */

/* Where a row's key is found in validate's facts of the model. */
typedef struct source {
    const char *key, *path;
} source;

/* The same wherever and whenever it is measured. */
static const source results[] = {
    {"file", "file"},
    {"hash", "hash"},
    {"precision", "precision"},
    {"bytes", "bytes"},
    {"smaller", NULL},
    {"top1", "top1"},
    {"drop", "drop"},
    {"drop_interval", "drop_interval"},
    {"kept", "kept"},
    {"kept_interval", "kept_interval"},
    {"mcnemar_p", "mcnemar.p"},
    {"agreement", "agreement"},
    {"sqnr_db", "outputs.0.sqnr_db"},
    {"sqnr_interval", "outputs.0.sqnr_interval"},
    {NULL, NULL},
};

static const source times[] = {
    {"latency_ms", "latency_ms.median"},
    {"latency_interval", "latency_interval"},
    {"speed_up", "speed_up"},
    {"speed_up_interval", "speed_up_interval"},
    {"stable", "stable"},
    {"emulated", "emulated"},
    {NULL, NULL},
};

static void take(json_t *row, const char *key, const json_t *from, const char *path)
{
    const json_t *value = pare_report_find(from, path);
    if (json_is_string(value))
        json_object_set_new(row, key, pare_json_text(json_string_value(value)));
    else if (value)
        json_object_set(row, key, (json_t *)value);
}

static void take_all(json_t *row, const source *list, const json_t *model)
{
    for (; list->key; list++)
        if (list->path)
            take(row, list->key, model, list->path);
        else
            json_object_set_new(row, list->key, json_null()); /* its place */
}

static void take_results(json_t *row, const json_t *facts)
{
    char label[320];
    const json_t *models = json_object_get(facts, "models");
    const json_t *first = json_array_get(models, 0), *model = json_array_get(models, 1);
    const double smaller =
        pare_report_number(first, "bytes", NAN) / pare_report_number(model, "bytes", NAN);
    take_all(row, results, model);
    if (isfinite(smaller))
        json_object_set_new(row, "smaller", json_real(smaller));
    else
        json_object_del(row, "smaller");
    take(row, "data", facts, "data.file");
    take(row, "samples", facts, "data.samples");
    if (json_object_get(facts, "device"))
        json_object_set_new(row, "device",
                            pare_json_text(pare_device_label(json_object_get(facts, "device"),
                                                             label, sizeof label)));
    take_all(row, times, model);
}

/* Class and message of what is done but missed goals. */
static void put_missed(json_t *row, json_t *missed)
{
    char text[512] = "", one[160];
    size_t i;
    json_t *goal;
    json_array_foreach(missed, i, goal)
    {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", i ? "; " : "",
                 pare_zoo_goal_text(goal, one, sizeof one));
    }
    json_object_set_new(row, "class", json_string("goal missed"));
    json_object_set_new(row, "message", pare_json_text(text));
    json_object_set(row, "goals", missed);
}

json_t *pare_zoo_row(const pare_zoo_goals *goals, const json_t *task, const json_t *chain)
{
    static const char *const before[] = {"model", "variant", "class", "message", "command"};
    static const char *const after[] = {"seconds", "cpu_seconds", "peak_bytes"};
    json_t *row = json_object();
    const size_t steps = json_array_size(chain);
    for (int i = 0; i < 5; i++) take(row, before[i], task, before[i]);
    if (steps) {
        take_results(row, json_array_get(chain, steps - 1));
        json_t *missed = pare_zoo_goals_missed(goals, row, chain);
        json_object_set_new(row, "message", json_string(""));
        if (json_array_size(missed)) put_missed(row, missed);
        json_decref(missed);
    }
    for (int i = 0; i < 3; i++) take(row, after[i], task, after[i]);
    return row;
}

/* --- the file --- */

pare_status pare_zoo_summary_read(pare_ctx *ctx, json_t **out, const char *folder)
{
    char path[4096];
    struct stat info;
    json_t *facts;
    if (stat(folder, &info)) return PARE_FAIL(ctx, IO, "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/summary.json", folder);
    if (!S_ISDIR(info.st_mode) || stat(path, &info))
        return PARE_FAIL(
            ctx, INPUT, "%s: holds no summary.json; expected the folder of a zoo that ran", folder);
    PARE_TRY(pare_facts_read(ctx, &facts, path));
    const char *command = json_string_value(json_object_get(facts, "command"));
    pare_status st = PARE_OK;
    if (strcmp(command ? command : "", "zoo") != 0 || !json_object_get(facts, "tasks"))
        st = PARE_FAIL(ctx, INPUT, "%s: holds facts of '%s', expected a zoo's summary", path,
                       command ? command : "");
    if (st == PARE_OK)
        *out = facts;
    else
        json_decref(facts);
    return st;
}

json_t *pare_zoo_goals_json(const pare_zoo_goals *g)
{
    json_t *json = json_object();
    if (g->drop >= 0) json_object_set_new(json, "drop", json_real(g->drop));
    if (g->latency >= 0) json_object_set_new(json, "latency", json_real(g->latency));
    if (g->speed_up >= 0) json_object_set_new(json, "speed_up", json_real(g->speed_up));
    if (g->size >= 0) json_object_set_new(json, "size", json_integer((json_int_t)g->size));
    return json;
}

/* sign 1: got at most what is wanted, -1: at least. */
static void judge(json_t *missed, const char *goal, double wanted, double got, int sign)
{
    const double by = sign * (got - wanted);
    if (!(wanted >= 0) || by <= 0) return; /* not by < 0: NaN was not measured */
    json_array_append_new(missed, json_pack("{s:s, s:f, s:o, s:o}", "goal", goal, "wanted", wanted,
                                            "got", isnan(got) ? json_null() : json_real(got), "by",
                                            isnan(by) ? json_null() : json_real(by)));
}

/* A pruning that fell short of its own target. Latency is judged by what was measured. */
static void judge_pruning(json_t *missed, const json_t *facts)
{
    const json_t *made = json_array_get(json_object_get(facts, "smaller"), 0);
    const json_t *latency = json_object_get(made, "latency");
    const char *of = json_string_value(pare_report_find(made, "target.of"));
    const double before = pare_report_number(made, "target.before", NAN);
    char goal[32];
    if (!of) return;
    snprintf(goal, sizeof goal, "prune --%s", of);
    if (latency && json_is_false(json_object_get(latency, "met")))
        judge(missed, goal, pare_report_number(latency, "goal", NAN),
              pare_report_number(latency, "measured", NAN), 1);
    else if (!latency && before > 0)
        judge(missed, goal, pare_report_number(made, "target.goal", NAN) / before,
              pare_report_number(made, "target.reached", NAN) / before, 1);
}

json_t *pare_zoo_goals_missed(const pare_zoo_goals *g, const json_t *row, const json_t *chain)
{
    json_t *missed = json_array(), *facts;
    size_t i;
    judge(missed, "drop", g->drop, pare_report_number(row, "drop", NAN), 1);
    judge(missed, "size", g->size < 0 ? -1 : (double)g->size, pare_report_number(row, "bytes", NAN),
          1);
    json_array_foreach((json_t *)chain, i, facts) judge_pruning(missed, facts);
    judge(missed, "latency", g->latency, pare_report_number(row, "latency_ms", NAN), 1);
    judge(missed, "speed_up", g->speed_up, pare_report_number(row, "speed_up", NAN), -1);
    return missed;
}

/* --- words --- */

typedef struct wording {
    const char *goal, *words, *unit, *wanted, *off;
} wording;

static const wording wordings[] = {
    {"drop", "drop", " points", "at most", "over"},
    {"size", "size", "", "at most", "over"},
    {"latency", "latency", " ms", "at most", "over"},
    {"speed_up", "speed-up", "x", "at least", "short"},
    {NULL, NULL, " of the cost", "at most", "over"},
};

static const char *amount(const wording *w, double value, char *text, size_t size)
{
    if (w->goal && !strcmp(w->goal, "size")) return pare_bytes_text(value, text, size);
    snprintf(text, size, "%.3g", value);
    return text;
}

const char *pare_zoo_goal_text(const json_t *missed, char *text, size_t size)
{
    const char *goal = json_string_value(json_object_get(missed, "goal"));
    const double got = pare_report_number(missed, "got", NAN);
    const wording *w = wordings;
    char a[32], b[32], c[32];
    while (w->goal && goal && strcmp(w->goal, goal) != 0) w++;
    const char *name = w->words ? w->words : goal ? goal : "";
    amount(w, pare_report_number(missed, "wanted", 0), b, sizeof b);
    amount(w, pare_report_number(missed, "by", 0), c, sizeof c);
    if (isnan(got))
        snprintf(text, size, "%s was not measured, %s %s%s wanted", name, w->wanted, b, w->unit);
    else
        snprintf(text, size, "%s %s%s, %s %s wanted (%s %s)", name, amount(w, got, a, sizeof a),
                 w->unit, w->wanted, b, c, w->off);
    return text;
}

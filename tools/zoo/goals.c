/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/goals.h"

#include "tools/report/report.h"
#include "tools/table.h"

#include <math.h>
#include <string.h>

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

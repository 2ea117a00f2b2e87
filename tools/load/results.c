/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/results.h"

#include "formats/json.h"
#include "runtime/eval/stats.h"
#include "tools/report/report.h"
#include "tools/table.h"
#include "tools/times.h"

#include <math.h>
#include <string.h>

/* --- facts --- */

static void add_top1(json_t *json, const pare_load_top1 *t, json_t *notes)
{
    if (t->unread)
        pare_json_note(notes, "%lld answers hold no scores and are left out of top-1",
                       (long long)t->unread);
    if (t->changed)
        pare_json_note(notes, "%lld answers have another class than the sample's first answer",
                       (long long)t->changed);
    if (!t->samples) return;
    const pare_interval i = pare_stats_wilson(t->hits, t->samples);
    json_object_update_new(json, json_pack("{s:f, s:[f, f], s:I, s:I}", "top1",
                                           100 * (double)t->hits / (double)t->samples,
                                           "top1_interval", 100 * i.low, 100 * i.high,
                                           "top1_samples", (json_int_t)t->samples, "top1_changed",
                                           (json_int_t)t->changed));
}

/* Why the row is not what it could be. */
static void add_notes(const pare_load_row *row, json_t *notes)
{
    const pare_load_result *r = &row->result;
    if (row->is_partial) pare_json_note(notes, "cut short after %.3g s", r->seconds);
    if (row->error[0])
        pare_json_note(notes, "failed: %zu, the first: %s", r->failed - r->unsent, row->error);
    if (r->unsent)
        pare_json_note(
            notes,
            "failed unsent: %zu, no connection was free before the timeout; the server is "
            "overloaded, "
            "or --connections are too few",
            r->unsent);
    if ((double)r->late > 0.01 * (double)r->sent)
        pare_json_note(
            notes,
            "%zu of %zu requests were sent more than 1 ms late although a connection was free: "
            "this machine is too slow or too busy, and latencies have its delay in them",
            r->late, r->sent);
}

/* Runs by their batch, those that there were. */
static json_t *batches_json(const pare_load_work *work)
{
    json_t *list = json_array();
    for (int i = 0; i < PARE_LOAD_BINS; i++)
        if (work->bin[i] > 0)
            json_array_append_new(list, json_pack("{s:I, s:I}", "most", (json_int_t)1 << i, "runs",
                                                  (json_int_t)work->bin[i]));
    return list;
}

json_t *pare_load_row_json(pare_load_row *row, const double *percentiles, int count)
{
    pare_load_result *r = &row->result;
    json_t *notes = json_array();
    json_t *json = json_pack(
        "{s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "offered_per_s", row->offered, "due",
        (json_int_t)r->due, "sent", (json_int_t)r->sent, "answered", (json_int_t)r->answered,
        "shed", (json_int_t)r->shed, "failed", (json_int_t)r->failed, "seconds", r->seconds,
        "throughput_per_s", r->seconds > 0 ? (double)r->answered / r->seconds : 0.0);
    add_notes(row, notes);
    if (r->answered) {
        pare_stats_sort(r->ms, r->answered);
        json_object_set_new(
            json, "latency_ms",
            pare_latency_json(r->ms, r->answered, "answers", percentiles, count, notes));
    }
    if (row->error[0]) json_object_set_new(json, "first_error", pare_json_text(row->error));
    if (row->work.runs > 0) {
        json_object_set_new(json, "mean_batch", json_real(row->work.samples / row->work.runs));
        json_object_set_new(json, "batches", batches_json(&row->work));
    }
    add_top1(json, &row->top1, notes);
    json_object_set_new(json, "notes", notes);
    return json;
}

/* --- the knee --- */

#define KNEE_PERCENTILE 99.0
#define KNEE_ANSWERED   0.99
#define KNEE_TIMES      2.0

/* NAN: too few answers. */
static double tail_of(const pare_load_row *row)
{
    const pare_load_result *r = &row->result;
    if ((int64_t)r->answered < pare_stats_needed(KNEE_PERCENTILE)) return NAN;
    return pare_stats_percentile(r->ms, r->answered, KNEE_PERCENTILE);
}

static bool is_carried(const pare_load_row *row)
{
    const pare_load_result *r = &row->result;
    return !r->shed && (double)r->answered >= KNEE_ANSWERED * (double)r->due;
}

static json_t *knee_unknown(const pare_load_row *row)
{
    char text[200];
    snprintf(text, sizeof text,
             "not known: p99 needs %lld answers, at %.7g per second there were %zu; measure longer "
             "(--duration)",
             (long long)pare_stats_needed(KNEE_PERCENTILE), row->offered, row->result.answered);
    return json_pack("{s:b, s:s}", "highest", 0, "text", text);
}

json_t *pare_load_knee(const pare_load_row *rows, int count)
{
    char text[200];
    const pare_load_row *lowest = rows, *highest = rows, *knee = NULL;
    for (int i = 1; i < count; i++) {
        if (rows[i].offered < lowest->offered) lowest = &rows[i];
        if (rows[i].offered > highest->offered) highest = &rows[i];
    }
    const double limit = KNEE_TIMES * tail_of(lowest);
    if (isnan(limit)) return knee_unknown(lowest);
    for (int i = 0; i < count; i++) {
        if (!is_carried(&rows[i])) continue;
        if (isnan(tail_of(&rows[i]))) return knee_unknown(&rows[i]);
        if (tail_of(&rows[i]) <= limit && (!knee || rows[i].offered > knee->offered))
            knee = &rows[i];
    }
    if (!knee)
        return json_pack("{s:b, s:s}", "highest", 0, "text",
                         "none: no rate was answered at 99 % without shedding and with p99 at most "
                         "twice that of the lowest");
    snprintf(text, sizeof text, "%s%.7g per second%s (p99 %.3g ms)",
             knee == highest ? "not reached: " : "", knee->offered,
             knee == highest ? ", the highest rate, was still answered" : "", tail_of(knee));
    return json_pack("{s:f, s:b, s:s}", "offered_per_s", knee->offered, "highest", knee == highest,
                     "text", text);
}

json_t *pare_load_plan(const json_t *knee, double rate_per_s)
{
    char text[200];
    const double each = pare_report_number(knee, "offered_per_s", NAN);
    const bool highest = json_is_true(json_object_get(knee, "highest"));
    if (isnan(each)) {
        snprintf(text, sizeof text, "not known for %.12g per second, as the knee is not",
                 rate_per_s);
        return json_pack("{s:f, s:b, s:s}", "rate_per_s", rate_per_s, "at_most", 0, "text", text);
    }
    const double servers = ceil(rate_per_s / each);
    snprintf(text, sizeof text, "%s%.0f for %.12g per second, each given %.7g",
             highest ? "at most " : "", servers, rate_per_s, each);
    return json_pack("{s:f, s:I, s:b, s:s}", "rate_per_s", rate_per_s, "servers",
                     (json_int_t)servers, "at_most", highest, "text", text);
}

/* --- table --- */

static void cell_top1(pare_cell *cell)
{
    const double low = pare_report_number(cell->row, "top1_interval.0", NAN);
    if (isnan(low)) return;
    pare_text_put(cell->text, cell->medium, "%.2f [%.2f, %.2f]", pare_cell_number(cell), low,
                  pare_report_number(cell->row, "top1_interval.1", NAN));
}

static void cell_count(pare_cell *cell)
{
    pare_text_put(cell->text, cell->medium, "%.0f", pare_cell_number(cell));
}

/* Three digits, and all of those before the point. */
static void cell_short(pare_cell *cell)
{
    const double value = pare_cell_number(cell);
    if (!isnan(value)) pare_text_add(cell->text, value < 99.95 ? "%.3g" : "%.0f", value);
}

enum { WITH_TOP1 = 1 };

const pare_column pare_load_columns[] = {
    PARE_COLUMN("offered/s", "offered/s", "offered_per_s", pare_cell_significant, .digits = 7),
    PARE_COLUMN("sent", "sent", "sent", cell_count),
    PARE_COLUMN("answered", "answered", "answered", cell_count),
    PARE_COLUMN("shed", "shed", "shed", cell_count),
    PARE_COLUMN("failed", "failed", "failed", cell_count),
    PARE_COLUMN("answers/s", "answers/s", "throughput_per_s", cell_short),
    PARE_COLUMN("p50 ms", "p50 ms", "latency_ms.median", cell_short),
    PARE_COLUMN("p90 ms", "p90 ms", "latency_ms.p90", cell_short),
    PARE_COLUMN("p99 ms", "p99 ms", "latency_ms.p99", cell_short),
    PARE_COLUMN("max ms", "max ms", "latency_ms.max", cell_short),
    PARE_COLUMN("batch", "batch", "mean_batch", cell_short),
    PARE_COLUMN("top-1 % [95 %]", "top-1 % [95 %]", "top1", cell_top1, .when = WITH_TOP1),
    {0},
};

unsigned pare_load_parts(const json_t *rates)
{
    return pare_report_any(rates, "top1") ? WITH_TOP1 : 0;
}

void pare_load_print(pare_arena *arena, const json_t *facts, bool quiet)
{
    pare_grid grid;
    json_t *row, *text;
    size_t i, k;
    const json_t *rates = json_object_get(facts, "rates");
    pare_grid_table(&grid, arena, pare_load_columns, pare_load_parts(rates));
    json_array_foreach(rates, i, row) pare_grid_row(&grid, row, NULL, NULL);
    pare_table_print(&grid.table, stdout);
    if (!quiet)
        json_array_foreach(rates, i, row) json_array_foreach(json_object_get(row, "notes"), k, text)
            pare_print(stdout, "note  %.7g/s: %s\n", pare_report_number(row, "offered_per_s", 0),
                       json_is_string(text) ? json_string_value(text) : "");
    const char *knee = json_string_value(json_object_get(json_object_get(facts, "knee"), "text"));
    if (knee) pare_print(stdout, "knee  %s\n", knee);
    const char *plan = json_string_value(json_object_get(json_object_get(facts, "plan"), "text"));
    if (plan) pare_print(stdout, "servers  %s\n", plan);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which variant is best: of each model, and over all. */
#include "formats/json.h"
#include "tools/report/report.h"
#include "tools/zoo/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_done(const json_t *row) { return !strcmp(pare_report_words(row, "class"), "done"); }
static bool is_measured(const json_t *row) { return json_object_get(row, "bytes") != NULL; }

/* Points of top-1, of data without labels 0; what was not measured is worse than all. */
static double drop_of(const json_t *row) { return pare_report_number(row, "drop", INFINITY); }

/* sqnr_db null: equal to the first model. */
static double sqnr_of(const json_t *row)
{
    const json_t *db = json_object_get(row, "sqnr_db");
    return json_is_null(db) ? INFINITY : pare_report_number(row, "sqnr_db", -INFINITY);
}

/* --- the best of a model --- */

/* Reaches its goals; where none says how much may be lost, the report's floor is not missed. */
static bool is_good(const json_t *row, const pare_zoo_goals *goals)
{
    return is_done(row) && is_measured(row) &&
           (goals->drop >= 0 || strcmp(pare_report_floor(row, PARE_REPORT_FLOOR), "bad") != 0);
}

/* Loses less; without latencies the size comes first. */
static bool is_better(const json_t *a, const json_t *b, bool timed)
{
    const double d = drop_of(a), e = drop_of(b), p = sqnr_of(a), q = sqnr_of(b);
    const double m = pare_report_number(a, "bytes", 0), n = pare_report_number(b, "bytes", 0);
    if (!timed && m != n) return m < n;
    if (d != e) return d < e;
    return m != n ? m < n : p > q;
}

static double speed_of(const json_t *row) { return pare_report_number(row, "speed_up", 0); }

/* The best of rows[begin..end), the rows of a model; NULL: none. */
static json_t *best_of(const json_t *rows, size_t begin, size_t end, const pare_zoo_goals *goals)
{
    const json_t *fastest = NULL;
    json_t *best = NULL;
    for (size_t i = begin; i < end; i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_good(row, goals) && (!fastest || speed_of(row) > speed_of(fastest))) fastest = row;
    }
    for (size_t i = begin; i < end; i++) {
        json_t *row = json_array_get(rows, i);
        const double speed = speed_of(row),
                     high = pare_report_number(row, "speed_up_interval.1", speed);
        if (!is_good(row, goals) ||
            high < pare_report_number(fastest, "speed_up_interval.0", speed_of(fastest)))
            continue;
        if (!best || is_better(row, best, speed_of(fastest) > 0)) best = row;
    }
    return best;
}

json_t *pare_zoo_best(json_t *rows, const pare_zoo_goals *goals)
{
    json_t *list = json_array();
    const size_t count = json_array_size(rows);
    for (size_t begin = 0, end; begin < count; begin = end) {
        const char *model = pare_report_words(json_array_get(rows, begin), "model");
        for (end = begin; end < count; end++)
            if (strcmp(pare_report_words(json_array_get(rows, end), "model"), model) != 0) break;
        json_t *best = best_of(rows, begin, end, goals);
        if (best) json_object_set_new(best, "best", json_true());
        json_array_append_new(list, json_pack("{s:o, s:O?}", "model", pare_json_text(model), "best",
                                              json_object_get(best, "variant")));
    }
    return list;
}

/* --- all variants --- */

/* What is added up over the models of a variant. */
typedef struct sums {
    const char *variant;
    int place, tasks, done, met, best;
    int drops, sqnrs, sizes, speeds, timed;
    double drop, sqnr, size, speed, seconds, peak; /* size and speed: logarithms */
    double worst;
    const char *worst_model;
} sums;

/* Adds log where value is above 0. */
static void add_log(double *sum, int *count, double value)
{
    if (!(value > 0) || !isfinite(value)) return;
    *sum += log(value);
    ++*count;
}

static void add_drop(sums *s, const json_t *row)
{
    const double drop = pare_report_number(row, "drop", NAN);
    if (isnan(drop)) return;
    if (!s->drops++ || drop > s->worst) {
        s->worst = drop;
        s->worst_model = pare_report_words(row, "model");
    }
    s->drop += drop;
}

static void add_row(sums *s, const json_t *row, const pare_zoo_goals *goals)
{
    const double db = pare_report_number(row, "sqnr_db", NAN);
    const double seconds = pare_report_number(row, "seconds", NAN);
    s->tasks++;
    s->met += is_good(row, goals);
    s->best += json_is_true(json_object_get(row, "best"));
    s->peak = fmax(s->peak, pare_report_number(row, "peak_bytes", 0));
    if (!isnan(seconds)) s->seconds += seconds, s->timed++;
    if (!is_measured(row)) return;
    s->done++;
    add_drop(s, row);
    if (!isnan(db)) s->sqnr += db, s->sqnrs++;
    add_log(&s->size, &s->sizes, pare_report_number(row, "smaller", NAN));
    add_log(&s->speed, &s->speeds, pare_report_number(row, "speed_up", NAN));
}

static double mean(double sum, int count) { return count ? sum / count : NAN; }

/* How many are good, then how small they are, then how little they lose. */
static int by_merit(const void *x, const void *y)
{
    const sums *a = x, *b = y;
    const double m = mean(a->size, a->sizes), n = mean(b->size, b->sizes);
    const double d = mean(a->drop, a->drops), e = mean(b->drop, b->drops);
    if (a->met != b->met) return a->met > b->met ? -1 : 1;
    if (a->sizes && b->sizes && m != n) return m > n ? -1 : 1;
    if (a->drops && b->drops && d != e) return d < e ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

static void put(json_t *json, const char *key, double value)
{
    if (isfinite(value)) json_object_set_new(json, key, json_real(value));
}

static json_t *sums_json(const sums *s)
{
    json_t *json = json_pack("{s:o, s:i, s:i, s:i}", "variant", pare_json_text(s->variant), "tasks",
                             s->tasks, "done", s->done, "met", s->met);
    put(json, "mean_drop", mean(s->drop, s->drops));
    if (s->drops) {
        put(json, "worst_drop", s->worst);
        json_object_set_new(json, "worst_model", pare_json_text(s->worst_model));
    }
    put(json, "mean_sqnr_db", mean(s->sqnr, s->sqnrs));
    put(json, "smaller", exp(mean(s->size, s->sizes)));
    put(json, "speed_up", exp(mean(s->speed, s->speeds)));
    json_object_set_new(json, "best", json_integer(s->best));
    put(json, "seconds", mean(s->seconds, s->timed));
    json_object_set_new(json, "peak_bytes", json_integer((json_int_t)s->peak));
    return json;
}

json_t *pare_zoo_ranking(const json_t *rows, const pare_zoo_goals *goals)
{
    json_t *places = json_object(), *list = json_array(), *row;
    const size_t most = json_array_size(rows) + 1;
    sums *all = calloc(most, sizeof *all);
    size_t i, count = 0;
    json_array_foreach((json_t *)rows, i, row)
    {
        const char *variant = pare_report_words(row, "variant");
        const json_t *known = json_object_get(places, variant);
        const size_t at = known ? (size_t)json_integer_value(known) : count;
        if (!all) break;
        if (!known) {
            json_object_set_new(places, variant, json_integer((json_int_t)count++));
            all[at] = (sums){.variant = variant, .place = (int)at};
        }
        add_row(&all[at], row, goals);
    }
    if (all) qsort(all, count, sizeof *all, by_merit);
    for (i = 0; all && i < count; i++) json_array_append_new(list, sums_json(&all[i]));
    free(all);
    json_decref(places);
    return list;
}

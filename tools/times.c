/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/times.h"

#include "formats/json.h"
#include "runtime/eval/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIFTHS = 5 };

pare_status pare_percentiles_parse(pare_ctx *ctx, const char *text, double *out, int *count)
{
    *count = 0;
    for (const char *at = text; at;) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(value >= 0 && value <= 100) ||
            *count == PARE_PERCENTILES)
            return PARE_FAIL(ctx, USAGE,
                             "--percentile %s: expected up to %d numbers from 0 to 100 with "
                             "commas between them",
                             text, PARE_PERCENTILES);
        out[(*count)++] = value;
        at = *end ? end + 1 : NULL;
    }
    return PARE_OK;
}

/* Reasons to distrust the numbers. Medians that drift by more than a twentieth between fifths of
   the time, a middle half wider than a quarter of the median, or threads that was without a core
   for more than a tenth of the time, are not the model's doing. */
static bool judge(json_t *notes, const pare_times *times, const double *sorted, double drift)
{
    size_t n = times->count;
    double median = pare_stats_percentile(sorted, n, 50);
    double middle = pare_stats_percentile(sorted, n, 75) - pare_stats_percentile(sorted, n, 25);
    bool stable = true;
    if (drift > 0.05) {
        pare_json_note(
            notes,
            "unstable: the median moved by %.0f %% during the run; stop other work or measure "
            "longer (--duration)",
            100 * drift);
        stable = false;
    }
    if (median > 0 && middle > 0.25 * median) {
        pare_json_note(
            notes,
            "unstable: the middle half of the runs spans %.0f %% of the median; other work "
            "shares the cores, or the clock changes",
            100 * middle / median);
        stable = false;
    }
    if (times->waited > 0.1 * times->wall) {
        pare_json_note(
            notes,
            "unstable: threads waited %.2g s for a core in %.2g s; stop other work or use "
            "fewer threads (--threads)",
            times->waited, times->wall);
        stable = false;
    }
    if (n < 10) {
        pare_json_note(notes, "unstable: only %zu run%s; use --duration or --iterations", n,
                       n == 1 ? "" : "s");
        stable = false;
    }
    if (times->windows && times->apart > PARE_WINDOWS_WITHIN)
        pare_json_note(
            notes,
            "not settled: after %d windows the medians of the last three still are %.1f %% apart, "
            "expected %.0f %%",
            times->windows, 100 * times->apart, 100 * PARE_WINDOWS_WITHIN);
    return stable;
}

/* A percentile into latency, where enough runs (unit: "runs", "answers") were made. */
static void add_percentile(json_t *latency, json_t *notes, const double *sorted, size_t n,
                           const char *unit, double q)
{
    char name[32];
    const int64_t needed = pare_stats_needed(q);
    if ((int64_t)n < needed) {
        pare_json_note(notes, "p%g is not given: it needs %lld %s, there are %zu; measure longer",
                       q, (long long)needed, unit, n);
        return;
    }
    snprintf(name, sizeof name, "p%g", q);
    json_object_set_new(latency, name, json_real(pare_stats_percentile(sorted, n, q)));
}

json_t *pare_latency_json(const double *sorted, size_t n, const char *unit,
                          const double *percentiles, int count, json_t *notes)
{
    json_t *latency = json_pack(
        "{s:f, s:f, s:f, s:f}", "median", pare_stats_percentile(sorted, n, 50), "mean",
        pare_stats_mean(sorted, n), "min", n ? sorted[0] : 0.0, "max", n ? sorted[n - 1] : 0.0);
    for (int i = 0; i < count; i++) add_percentile(latency, notes, sorted, n, unit, percentiles[i]);
    return latency;
}

static pare_status add_interval(pare_ctx *ctx, json_t *json, const pare_times *times)
{
    pare_interval i;
    PARE_TRY(pare_resample_median(ctx, &i, times->ms, times->count));
    if (!isnan(i.low))
        json_object_set_new(json, "latency_interval", json_pack("[f, f]", i.low, i.high));
    return PARE_OK;
}

json_t *pare_times_json(pare_ctx *ctx, const pare_times *times, double batch,
                        const double *percentiles, int percentile_count)
{
    size_t n = times->count;
    double *sorted = pare_alloc(ctx, n, sizeof *sorted);
    if (!sorted) return NULL;
    double drift = pare_stats_drift(times->ms, n, FIFTHS, sorted);
    if (n) memcpy(sorted, times->ms, n * sizeof *sorted);
    pare_stats_sort(sorted, n);
    json_t *notes = json_array();
    bool stable = judge(notes, times, sorted, drift);
    json_t *latency = pare_latency_json(sorted, n, "runs", percentiles, percentile_count, notes);
    json_t *json = json_pack("{s:o, s:I, s:f, s:f, s:f, s:b, s:o}", "latency_ms", latency, "runs",
                             (json_int_t)n, "throughput_per_s",
                             times->wall > 0 ? batch * (double)n / times->wall : 0.0,
                             "coefficient_of_variation", pare_stats_variation(times->ms, n),
                             "drift", drift, "stable", stable, "notes", notes);
    pare_free(sorted);
    if (times->windows) {
        json_object_set_new(json, "windows", json_integer(times->windows));
        json_object_set_new(json, "settled", json_boolean(times->apart <= PARE_WINDOWS_WITHIN));
    }
    if (add_interval(ctx, json, times) == PARE_OK) return json;
    json_decref(json);
    return NULL;
}

/* --- streams --- */

/* What of one stream's facts is worth repeating for each. */
static json_t *brief(json_t *facts)
{
    static const char *const keys[] = {"latency_ms", "runs", "throughput_per_s"};
    if (!facts) return NULL;
    json_t *json = json_object();
    for (int i = 0; i < 3; i++) json_object_set(json, keys[i], json_object_get(facts, keys[i]));
    json_decref(facts);
    return json;
}

json_t *pare_streams_json(pare_ctx *ctx, const pare_streams *streams, double batch,
                          const double *percentiles, int percentile_count)
{
    const int count = pare_streams_count(streams);
    pare_times all;
    if (pare_streams_times(streams, &all) != PARE_OK) return NULL;
    json_t *json = pare_times_json(ctx, &all, batch, percentiles, percentile_count);
    pare_times_free(&all);
    if (!json || count == 1) return json;
    json_t *list = json_array();
    json_object_set_new(json, "streams", list);
    for (int i = 0; i < count; i++) {
        json_t *one = brief(pare_times_json(ctx, pare_streams_times_of(streams, i), batch,
                                            percentiles, percentile_count));
        if (json_array_append_new(list, one)) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

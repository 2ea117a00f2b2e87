/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/clock.h"
#include "runtime/eval/eval.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pare_measure_options_init(pare_measure_options *out)
{
    *out = (pare_measure_options){.warm_up = 200, .duration = 3, .iterations = 10};
}

enum { MOST_RUNS = 1 << 24, AGREEING = 3 };

void pare_measure_fill(pare_runner *runner)
{
    const pare_plan *plan = pare_runner_plan(runner);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_view view = pare_runner_input(runner, i);
        const pare_type_info *type = pare_type(view.dtype);
        memset(view.data, 0, pare_view_bytes(&view));
        if (!pare_type_is_float(view.dtype)) continue;
        uint32_t x = 2463534242u; /* xorshift32, Marsaglia 2003 */
        for (int64_t k = 0; k < pare_view_count(&view); k++) {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            type->from_f32_ref((char *)view.data + (size_t)k * (size_t)type->bits / 8,
                               (float)(x >> 8) * 0x1p-24f);
        }
    }
}

void pare_measure_fill_integers(pare_runner *runner)
{
    const pare_plan *plan = pare_runner_plan(runner);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        pare_view view = pare_runner_input(runner, i);
        const size_t size = (size_t)pare_type(view.dtype)->bits / 8;
        uint32_t x = 2463534242u + (uint32_t)i; /* xorshift32, Marsaglia 2003 */
        if (pare_type_is_float(view.dtype) || view.dtype == PARE_string) continue;
        for (int64_t k = 0; k < pare_view_count(&view); k++) {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            ((unsigned char *)view.data)[(size_t)k * size] = x >> 16 & 1; /* little-endian */
        }
    }
}

/* Seconds that this process' threads was ready without a core: the second number, nanoseconds,
   of each thread's schedstat (Linux, Documentation/scheduler/sched-stats.rst); 0 where it is not
   kept. */
static double waited_seconds(void)
{
    DIR *tasks = opendir("/proc/self/task");
    double sum = 0;
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[320], line[96];
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file) continue;
        const char *second = fgets(line, sizeof line, file) ? strchr(line, ' ') : NULL;
        if (second) sum += strtod(second, NULL) * 1e-9;
        fclose(file);
    }
    if (tasks) closedir(tasks);
    return sum;
}

/* Once at least: the first run touches all memory. On a device twice: the second is recorded, those
   that follow are played. */
pare_status pare_measure_warm(pare_ctx *ctx, pare_runner *runner,
                              const pare_measure_options *options)
{
    double start = pare_seconds();
    int least = pare_plan_device(pare_runner_plan(runner)) ? 2 : 1;
    for (int n = 0; n < least || pare_seconds() - start < options->warm_up / 1000; n++) {
        PARE_TRY(pare_runner_run(runner));
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

static pare_status time_one(pare_ctx *ctx, pare_runner *runner, pare_times *times)
{
    if (!pare_grow(ctx, &times->ms, &times->capacity, times->count, sizeof *times->ms))
        return PARE_MEMORY;
    double before = pare_seconds();
    PARE_TRY(pare_runner_run(runner));
    times->ms[times->count++] = (pare_seconds() - before) * 1000;
    return pare_ctx_poll(ctx);
}

pare_status pare_measure_timed(pare_ctx *ctx, pare_runner *runner,
                               const pare_measure_options *options, pare_times *times)
{
    double waited = waited_seconds(), start = pare_seconds(), now = start;
    for (int64_t n = 0;
         n < MOST_RUNS && (now - start < options->duration || n < options->iterations); n++) {
        PARE_TRY(time_one(ctx, runner, times));
        now = pare_seconds();
    }
    times->wall += now - start;
    times->waited += fmax(0, waited_seconds() - waited);
    return PARE_OK;
}

pare_status pare_measure(pare_ctx *ctx, pare_runner *runner, const pare_measure_options *options,
                         pare_times *times)
{
    PARE_TRY(pare_measure_warm(ctx, runner, options));
    return pare_measure_timed(ctx, runner, options, times);
}

void pare_times_free(pare_times *times)
{
    pare_free(times->ms);
    *times = (pare_times){0};
}

/* --- windows --- */

pare_status pare_windows_note(pare_ctx *ctx, pare_windows *w, const pare_times *times)
{
    const size_t from = w->count ? w->end[w->count - 1] : 0;
    const pare_times last = {.ms = times->ms + from, .count = times->count - from};
    PARE_TRY(pare_times_percentile(ctx, &last, 50, &w->median[w->count]));
    w->end[w->count] = times->count;
    w->wall[w->count] = times->wall;
    w->waited[w->count] = times->waited;
    w->count++;
    return PARE_OK;
}

bool pare_windows_agree(const pare_windows *w)
{
    return w->count >= AGREEING && pare_stats_relative_spread(w->median + w->count - AGREEING,
                                                              AGREEING) <= PARE_WINDOWS_WITHIN;
}

int pare_windows_first(const pare_windows *w)
{
    int first = w->count - AGREEING;
    if (!pare_windows_agree(w)) return 0;
    while (first > 0 && pare_stats_relative_spread(w->median + first - 1, w->count - first + 1) <=
                            PARE_WINDOWS_WITHIN)
        first--;
    return first;
}

void pare_windows_cut(const pare_windows *w, int first, pare_times *times)
{
    const int tail = w->count < AGREEING ? w->count : AGREEING;
    times->windows = w->count;
    times->apart = pare_stats_relative_spread(w->median + w->count - tail, tail);
    if (!first) return;
    const size_t runs = w->end[first - 1];
    memmove(times->ms, times->ms + runs, (times->count - runs) * sizeof *times->ms);
    times->count -= runs;
    times->wall -= w->wall[first - 1];
    times->waited -= w->waited[first - 1];
}

pare_status pare_times_percentile(pare_ctx *ctx, const pare_times *times, double q, double *out)
{
    double *sorted = pare_alloc(ctx, times->count, sizeof *sorted);
    if (!sorted) return PARE_MEMORY;
    if (times->count) memcpy(sorted, times->ms, times->count * sizeof *sorted);
    pare_stats_sort(sorted, times->count);
    *out = pare_stats_percentile(sorted, times->count, q);
    pare_free(sorted);
    return PARE_OK;
}

/* How many runs make a sample, by the quickest of a few: one that waited for a core says nothing.
 */
static pare_status count_repeats(pare_ctx *ctx, pare_runner *runner, int *out)
{
    enum { TRIED = 9, MOST = 10000 };
    const double sample_seconds = 2e-3;
    double quickest = sample_seconds;
    for (int i = 0; i < TRIED; i++) {
        double start = pare_seconds();
        PARE_TRY(pare_runner_run(runner));
        quickest = fmin(quickest, pare_seconds() - start);
        PARE_TRY(pare_ctx_poll(ctx));
    }
    *out = (int)fmin(MOST, ceil(sample_seconds / fmax(quickest, 1e-9)));
    return PARE_OK;
}

static pare_status take_sample(pare_ctx *ctx, pare_runner *runner, int repeats, pare_times *times)
{
    if (!pare_grow(ctx, &times->ms, &times->capacity, times->count, sizeof *times->ms))
        return PARE_MEMORY;
    if (repeats > 1) PARE_TRY(pare_runner_run(runner));
    double before = pare_seconds();
    for (int i = 0; i < repeats; i++) PARE_TRY(pare_runner_run(runner));
    times->ms[times->count++] = (pare_seconds() - before) * 1000 / repeats;
    return pare_ctx_poll(ctx);
}

pare_status pare_measure_pairs(pare_ctx *ctx, pare_runner *a, pare_runner *b,
                               const pare_measure_options *options, pare_times *times_a,
                               pare_times *times_b)
{
    int repeats_a, repeats_b;
    PARE_TRY(pare_measure_warm(ctx, a, options));
    PARE_TRY(count_repeats(ctx, a, &repeats_a));
    PARE_TRY(pare_measure_warm(ctx, b, options));
    PARE_TRY(count_repeats(ctx, b, &repeats_b));
    double start = pare_seconds();
    for (int64_t n = 0;
         n < MOST_RUNS && (pare_seconds() - start < options->duration || n < options->iterations);
         n++) {
        if (n % 2 == 0) PARE_TRY(take_sample(ctx, a, repeats_a, times_a));
        PARE_TRY(take_sample(ctx, b, repeats_b, times_b));
        if (n % 2 == 1) PARE_TRY(take_sample(ctx, a, repeats_a, times_a));
    }
    return PARE_OK;
}

pare_status pare_times_ratio(pare_ctx *ctx, const pare_times *a, const pare_times *b, double *out)
{
    const size_t n = a->count < b->count ? a->count : b->count;
    double *ratio = pare_alloc(ctx, n, sizeof *ratio);
    *out = NAN;
    if (!ratio) return PARE_MEMORY;
    for (size_t i = 0; i < n; i++) ratio[i] = b->ms[i] > 0 ? a->ms[i] / b->ms[i] : 1;
    pare_stats_sort(ratio, n);
    if (n) *out = pare_stats_percentile(ratio, n, 50);
    pare_free(ratio);
    return PARE_OK;
}

bool pare_plan_emulates(const pare_plan *plan)
{
    if (pare_plan_device(plan)) return false;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        if (info.macs > 0 && (info.dtype == PARE_f16 || info.dtype == PARE_bf16)) return true;
    }
    return false;
}

/* --- the steps of a plan, the phases of a run --- */

enum { STEP_RUNS = 21 };

/* Times STEP_RUNS runs into times (STEP_RUNS, steps), seconds. */
static pare_status time_steps(pare_ctx *ctx, pare_runner *runner, double *times, int steps)
{
    for (int r = 0; r < STEP_RUNS; r++) {
        pare_runner_profile(runner, times + (size_t)r * (size_t)steps);
        PARE_TRY(pare_runner_run(runner));
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

pare_status pare_measure_steps(pare_ctx *ctx, pare_runner *runner, double percentile,
                               double *seconds)
{
    int steps = pare_plan_step_count(pare_runner_plan(runner));
    double *times = pare_alloc(ctx, (size_t)steps * STEP_RUNS, sizeof *times);
    pare_status st = times ? time_steps(ctx, runner, times, steps) : PARE_MEMORY;
    pare_runner_profile(runner, NULL);
    for (int i = 0; st == PARE_OK && i < steps; i++) {
        double one[STEP_RUNS];
        for (int r = 0; r < STEP_RUNS; r++) one[r] = times[(size_t)r * (size_t)steps + (size_t)i];
        pare_stats_sort(one, STEP_RUNS);
        seconds[i] = pare_stats_percentile(one, STEP_RUNS, percentile);
    }
    pare_free(times);
    return st;
}

enum { PHASES = 3, MOST_PHASED = 1 << 12 };

/* Times runs into seconds (PHASES, MOST_PHASED); *runs: how many. */
static pare_status time_phases(pare_ctx *ctx, pare_runner *runner,
                               const pare_measure_options *options, double *seconds, int *runs)
{
    const double start = pare_seconds(), enough = fmin(0.2, options->duration);
    const int64_t least = options->iterations < STEP_RUNS ? options->iterations : STEP_RUNS;
    pare_phase_times one = {0};
    pare_runner_time_phases(runner, &one);
    while (*runs < MOST_PHASED && (*runs < least || pare_seconds() - start < enough)) {
        PARE_TRY(pare_runner_run(runner));
        PARE_TRY(pare_ctx_poll(ctx));
        seconds[*runs] = one.copy_in;
        seconds[MOST_PHASED + *runs] = one.compute;
        seconds[2 * MOST_PHASED + (*runs)++] = one.copy_out;
    }
    return PARE_OK;
}

pare_status pare_measure_phases(pare_ctx *ctx, pare_runner *runner,
                                const pare_measure_options *options, double percentile,
                                pare_phase_times *out)
{
    double *seconds = pare_alloc(ctx, (size_t)PHASES * MOST_PHASED, sizeof *seconds), at[PHASES];
    int runs = 0;
    if (!seconds) return PARE_MEMORY;
    const pare_status st = time_phases(ctx, runner, options, seconds, &runs);
    pare_runner_time_phases(runner, NULL);
    for (int k = 0; st == PARE_OK && k < PHASES; k++) {
        double *phase = seconds + (size_t)k * MOST_PHASED;
        pare_stats_sort(phase, (size_t)runs);
        at[k] = pare_stats_percentile(phase, (size_t)runs, percentile);
    }
    if (st == PARE_OK) *out = (pare_phase_times){at[0], at[1], at[2]};
    pare_free(seconds);
    return st;
}

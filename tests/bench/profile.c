/* SPDX-License-Identifier: Apache-2.0 */
/* Step times: PROFILE_RUNS runs, the median of each step. */
#include "tests/bench/profile.h"

#include "runtime/base/ctx.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROFILE_RUNS = 11 };

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* all: (PROFILE_RUNS, steps) */
static pare_status run_all(side *s, pare_runner *runner, double *all, int steps)
{
    pare_status st = PARE_OK;
    for (int run = 0; run < PROFILE_RUNS && !st; run++) {
        pare_runner_profile(runner, all + (size_t)run * (size_t)steps);
        st = s->calls->run(s);
    }
    pare_runner_profile(runner, NULL);
    return st;
}

static double median_of_step(const double *all, int steps, int step)
{
    double times[PROFILE_RUNS];
    for (int run = 0; run < PROFILE_RUNS; run++)
        times[run] = all[(size_t)run * (size_t)steps + (size_t)step];
    qsort(times, PROFILE_RUNS, sizeof *times, by_value);
    return times[PROFILE_RUNS / 2];
}

/* "1x64x56x56" */
static const char *shape_text(const pare_shape *shape, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < shape->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "x" : "",
                                 (long long)shape->dim[i]);
    return text;
}

static void print_steps(FILE *file, const pare_plan *plan, const double *all, int steps)
{
    fprintf(file, "step,us,gmac_per_s,op,kernel,dtype,shape,node\n");
    for (int i = 0; i < steps; i++) {
        pare_step_info info;
        char shape[128];
        pare_plan_step(plan, i, &info);
        double seconds = median_of_step(all, steps, i);
        fprintf(file, "%d,%.2f,%.2f,%s,%s,%s,%s,%s\n", i, 1e6 * seconds,
                seconds > 0 ? 1e-9 * info.macs / seconds : 0, info.op_type, info.kernel,
                pare_type(info.dtype)->name, shape_text(&info.shape, shape, sizeof shape),
                info.node);
    }
}

pare_status profile_write(pare_ctx *ctx, side *s, const char *path)
{
    pare_runner *runner = side_runner(s);
    if (!runner) return PARE_FAIL(ctx, USAGE, "%s: --profile is for pare: sides", path);
    const pare_plan *plan = pare_runner_plan(runner);
    int steps = pare_plan_step_count(plan);
    double *all = pare_alloc(ctx, (size_t)steps * PROFILE_RUNS, sizeof *all);
    FILE *file = fopen(path, "w");
    pare_status st = all ? PARE_OK : PARE_MEMORY;
    if (!file) st = PARE_FAIL(ctx, IO, "%s: cannot be written", path);
    if (!st && !(st = run_all(s, runner, all, steps))) print_steps(file, plan, all, steps);
    if (file && fclose(file) && !st) st = PARE_FAIL(ctx, IO, "%s: cannot be written", path);
    pare_free(all);
    return st;
}

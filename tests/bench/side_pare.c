/* SPDX-License-Identifier: Apache-2.0 */
/* A side that runs in this library. */
#include "runtime/base/ctx.h"
#include "tests/bench/side.h"

typedef struct pare_state {
    pare_plan *plan;
    pare_runner *runner;
} pare_state;

static pare_status load(side *s, const side_options *options)
{
    pare_state *state = pare_alloc(s->ctx, 1, sizeof *state);
    pare_input_shape *shape = pare_alloc(s->ctx, (size_t)s->input_count + 1, sizeof *shape);
    pare_status st = PARE_MEMORY;
    if (!state || !shape) goto done;
    s->state = state;
    for (int i = 0; i < s->input_count; i++)
        shape[i] = (pare_input_shape){s->input[i].name, s->input[i].shape};
    pare_plan_options plan = {
        .threads = options->threads, .tune = options->tune, .cache_dir = options->cache_dir};
    if ((st = pare_plan_new(s->ctx, &state->plan, s->model, shape, s->input_count, &plan)))
        goto done;
    if ((st = pare_runner_new(s->ctx, &state->runner, state->plan))) goto done;
    for (int i = 0; i < s->input_count; i++)
        pare_runner_set_input(state->runner, i, s->input[i].data);
done:
    pare_free(shape);
    if (st && !s->state) pare_free(state);
    return st;
}

static pare_status run(side *s) { return pare_runner_run(((pare_state *)s->state)->runner); }

static const float *output(side *s, int i, int64_t *count)
{
    pare_state *state = s->state;
    pare_view view = pare_runner_output(state->runner, i);
    *count = pare_view_count(&view);
    return view.dtype == PARE_f32 ? view.data : NULL;
}

static void unload(side *s)
{
    pare_state *state = s->state;
    if (state->runner) pare_runner_free(state->runner);
    if (state->plan) pare_plan_free(state->plan);
    pare_free(state);
}

const side_calls side_pare_calls = {load, run, output, unload};

pare_runner *side_runner(side *s)
{
    return s->calls == &side_pare_calls ? ((pare_state *)s->state)->runner : NULL;
}

double side_macs(const side *s)
{
    double sum = 0;
    if (s->calls != &side_pare_calls) return 0;
    const pare_plan *plan = ((pare_state *)s->state)->plan;
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info info;
        pare_plan_step(plan, i, &info);
        sum += info.macs;
    }
    return sum;
}

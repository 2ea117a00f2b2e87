/* SPDX-License-Identifier: Apache-2.0 */
/* Latency of the models of a comparison. */
#include "runtime/eval/comparison.h"
#include "runtime/eval/resample.h"

/* Plans a model for one sample, or for its own batch. */
static pare_status plan_one(pare_comparison *c, int k, const pare_eval_samples *s, int threads,
                            pare_plan **plan, pare_runner **runner)
{
    const pare_plan_options options = {
        .threads = threads ? threads : 1, .tune = true, .device = c->device};
    pare_candidate *one = &c->candidate[k];
    const pare_values *in = &one->model->graph->in;
    const int fixed = pare_model_fixed_batch(one->model);
    int count = 0, most = s ? s->input_count : in->count;
    pare_input_shape *shapes = pare_arena_alloc(&c->arena, (size_t)most + 1, sizeof *shapes);
    if (!shapes) return PARE_MEMORY;
    for (int i = 0; i < most; i++) {
        if (!s && in->item[i]->is_init) continue;
        pare_input_shape *shape = &shapes[count++];
        *shape = s ? (pare_input_shape){s->inputs[i].name, *pare_data_shape(s->data, i)}
                   : (pare_input_shape){in->item[i]->name, in->item[i]->shape};
        if (shape->shape.rank > 0) shape->shape.dim[0] = fixed ? fixed : 1;
    }
    PARE_TRY(pare_plan_new(c->ctx, plan, one->model, shapes, count, &options));
    PARE_TRY(pare_runner_new(c->ctx, runner, *plan));
    one->batch = fixed ? fixed : 1;
    one->emulated = pare_plan_emulates(*plan);
    pare_measure_fill(*runner);
    return PARE_OK;
}

static bool all_agree(const pare_windows *windows, int count)
{
    for (int k = 0; k < count; k++)
        if (!pare_windows_agree(&windows[k])) return false;
    return true;
}

/* The rounds that count are the same of all models. */
static void cut_rounds(pare_comparison *c, const pare_windows *windows)
{
    int first = 0;
    for (int k = 0; k < c->count && all_agree(windows, c->count); k++) {
        const int own = pare_windows_first(&windows[k]);
        if (own > first) first = own;
    }
    for (int k = 0; k < c->count; k++) pare_windows_cut(&windows[k], first, &c->candidate[k].times);
}

static pare_status time_rounds(pare_comparison *c, pare_runner *const *runner)
{
    enum { LEAST = 8, MOST = PARE_WINDOWS };
    const pare_measure_options options = {.warm_up = 20, .duration = 0.1, .iterations = 3};
    pare_windows *windows = pare_arena_alloc(&c->arena, (size_t)c->count, sizeof *windows);
    const pare_times *first = &c->candidate[0].times;
    if (!windows) return PARE_MEMORY;
    for (int round = 0; round < MOST && (round < LEAST || !all_agree(windows, c->count)); round++)
        for (int k = 0; k < c->count; k++) {
            pare_times *times = &c->candidate[k].times;
            PARE_TRY(pare_measure(c->ctx, runner[k], &options, times));
            PARE_TRY(pare_windows_note(c->ctx, &windows[k], times));
        }
    cut_rounds(c, windows);
    for (int k = 0; k < c->count; k++) {
        pare_candidate *one = &c->candidate[k];
        PARE_TRY(pare_resample_ratio(c->ctx, &one->speed_up, first->ms, first->count, one->times.ms,
                                     one->times.count));
    }
    return PARE_OK;
}

pare_status pare_comparison_time(pare_comparison *c, const pare_eval_samples *samples, int threads)
{
    pare_plan **plan = pare_arena_alloc(&c->arena, (size_t)c->count, sizeof(pare_plan *));
    pare_runner **runner = pare_arena_alloc(&c->arena, (size_t)c->count, sizeof(pare_runner *));
    if (!plan || !runner) return PARE_MEMORY;
    pare_status st = PARE_OK;
    for (int k = 0; k < c->count; k++) pare_times_free(&c->candidate[k].times);
    for (int k = 0; st == PARE_OK && k < c->count; k++)
        st = plan_one(c, k, samples, threads, &plan[k], &runner[k]);
    if (st == PARE_OK) st = time_rounds(c, runner);
    for (int k = 0; c->options.timed && st == PARE_OK && k < c->count; k++)
        st = c->options.timed(c->options.user, k, runner[k]);
    for (int k = 0; k < c->count; k++) {
        pare_runner_free(runner[k]);
        pare_plan_free(plan[k]);
    }
    return st;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The stopwatch of the tuner. On the CPU a kernel runs on memory of its own, constants as they are,
   the rest zeros. */
#include "runtime/exec/device_benchmark.h"

#include "runtime/base/clock.h"

#include <omp.h>

enum { MIN_RUNS = 3, MAX_RUNS = 20 };
static const double ENOUGH_SECONDS = 2e-3, LONG_SECONDS = 5e-2;
/* Times the best so far: a first run, a warm one. A run shorter than SHORT_SECONDS tells too
   little: its pages are touched for the first time, threads wake up. */
static const double HOPELESS = 3, SHORT_SECONDS = 1e-3;

/* Memory on the host: output 0 on a shared input where the kernel asked for it. */
static pare_status host_views(pare_kernel_benchmark *t, pare_view *in, pare_view *out)
{
    const pare_prep *p = &t->prep;
    pare_arena *arena = &t->arena;
    for (int i = 0; i < p->in_count; i++) {
        if (in[i].dtype == PARE_NOTYPE || in[i].data) continue;
        in[i].data = pare_arena_alloc(arena, pare_view_bytes(&in[i]) + 64, 1);
        if (!in[i].data) return PARE_MEMORY;
    }
    for (int i = 0; i < p->out_count; i++) {
        if (out[i].dtype == PARE_NOTYPE) continue;
        out[i].data = i == 0 && p->share >= 0
                          ? in[p->share].data
                          : pare_arena_alloc(arena, pare_view_bytes(&out[i]) + 64, 1);
        if (!out[i].data) return PARE_MEMORY;
    }
    t->call[0].scratch = pare_arena_alloc(arena, p->scratch + 64, 1);
    return t->call[0].scratch ? PARE_OK : PARE_MEMORY;
}

/* --- time --- */

pare_status pare_kernel_benchmark_run(const pare_kernel_benchmark *t, int runs, double *took)
{
    const double start = pare_seconds();
    for (int i = 0; i < runs; i++) PARE_TRY(t->kernel->run(&t->call[0]));
    *took = (pare_seconds() - start) / runs;
    return PARE_OK;
}

pare_status pare_kernel_benchmark_time(pare_kernel_benchmark *t, double rival, double *best)
{
    double took, spent = 0;
    if (t->prep.device) return pare_device_benchmark_time(t, rival, best);
    PARE_TRY(pare_kernel_benchmark_run(t, 1, best));
    if (*best > SHORT_SECONDS && *best > HOPELESS * rival) return PARE_OK;
    *best = 1e30;
    double start = pare_seconds();
    for (int i = 0; i < MAX_RUNS && (i < MIN_RUNS || spent < ENOUGH_SECONDS); i++) {
        PARE_TRY(pare_kernel_benchmark_run(t, 1, &took));
        spent += took;
        if (took < *best) *best = took;
        if (pare_seconds() - start > LONG_SECONDS) break;
        if ((i + 1 >= MIN_RUNS || took > SHORT_SECONDS) && *best > PARE_TRIAL_BEHIND * rival) break;
    }
    return PARE_OK;
}

/* --- opening, closing --- */

static pare_call call_of(const pare_prep *p, pare_view *in, pare_view *out)
{
    for (int i = 0; i < p->in_count; i++) in[i] = p->in[i];
    for (int i = 0; i < p->out_count; i++) out[i] = p->out[i];
    return (pare_call){.ctx = p->ctx,
                       .node = p->node,
                       .in = in,
                       .out = out,
                       .in_count = p->in_count,
                       .out_count = p->out_count,
                       .threads = p->threads,
                       .state = p->state,
                       .stream = p->device ? p->device->setup : NULL};
}

static pare_status fill(pare_kernel_benchmark *t)
{
    const pare_prep *p = &t->prep;
    PARE_TRY(pare_kernel_prepare(t->kernel, &t->prep));
    t->prepared = true;
    t->sets = t->memory ? t->memory->sets : 1;
    const size_t inputs = (size_t)p->in_count, outputs = (size_t)p->out_count;
    pare_view *in = pare_arena_alloc(&t->arena, (size_t)t->sets * inputs + 1, sizeof *in);
    pare_view *out = pare_arena_alloc(&t->arena, (size_t)t->sets * outputs + 1, sizeof *out);
    if (!in || !out) return PARE_MEMORY;
    for (int s = 0; s < t->sets; s++)
        t->call[s] = call_of(p, in + (size_t)s * inputs, out + (size_t)s * outputs);
    PARE_TRY(p->device ? pare_device_benchmark_open(t, in, out) : host_views(t, in, out));
    for (; t->kernel->bind && t->bound < t->sets; t->bound++)
        PARE_TRY(t->kernel->bind(&t->call[t->bound], &t->arena));
    if (!p->device) omp_set_num_threads(p->threads);
    return PARE_OK;
}

pare_status pare_kernel_benchmark_open(pare_kernel_benchmark *t, const pare_kernel *kernel,
                                       const pare_prep *prep, const pare_benchmark_memory *memory)
{
    *t = (pare_kernel_benchmark){.kernel = kernel, .prep = *prep, .memory = memory};
    pare_arena_init(&t->arena, prep->ctx);
    t->prep.arena = &t->arena;
    pare_status st = fill(t);
    if (st != PARE_OK) pare_kernel_benchmark_close(t);
    return st;
}

void pare_kernel_benchmark_close(pare_kernel_benchmark *t)
{
    if (!t->kernel) return;
    for (int i = 0; t->kernel->unbind && i < t->bound; i++) t->kernel->unbind(t->call[i].bound);
    if (t->prepared && t->prep.device) pare_device_benchmark_close(t);
    if (t->prepared && t->kernel->release) t->kernel->release(t->prep.state);
    pare_arena_free(&t->arena);
    *t = (pare_kernel_benchmark){0};
}

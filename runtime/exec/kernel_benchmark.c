/* SPDX-License-Identifier: Apache-2.0 */
/* The stopwatch of the tuner: a kernel runs on memory of its own, constants as they are, the rest
   zeros; on a device between two events, several runs at once so that the launch hides. */
#include "runtime/exec/kernel_benchmark.h"

#include "runtime/base/clock.h"
#include "runtime/base/size.h"

#include <omp.h>

enum { MIN_RUNS = 3, MAX_RUNS = 20, DEVICE_RUNS = 4, ALIGN = 256 };
static const double ENOUGH_SECONDS = 2e-3, LONG_SECONDS = 5e-2;
/* Times the best so far: a first run, a warm one. A run shorter than SHORT_SECONDS tells too
   little: its pages are touched for the first time, threads wake up. */
static const double HOPELESS = 3, SHORT_SECONDS = 1e-3;

/* --- memory --- */

/* Memory on the host: output 0 on a shared input where the kernel asked for it. */
static pare_status host_views(pare_kernel_benchmark *t, pare_arena *arena)
{
    const pare_prep *p = &t->prep;
    for (int i = 0; i < p->in_count; i++) {
        if (t->in[i].dtype == PARE_NOTYPE || t->in[i].data) continue;
        t->in[i].data = pare_arena_alloc(arena, pare_view_bytes(&t->in[i]) + 64, 1);
        if (!t->in[i].data) return PARE_MEMORY;
    }
    for (int i = 0; i < p->out_count; i++) {
        if (t->out[i].dtype == PARE_NOTYPE) continue;
        t->out[i].data = i == 0 && p->share >= 0
                             ? t->in[p->share].data
                             : pare_arena_alloc(arena, pare_view_bytes(&t->out[i]) + 64, 1);
        if (!t->out[i].data) return PARE_MEMORY;
    }
    t->call.scratch = pare_arena_alloc(arena, p->scratch + 64, 1);
    return t->call.scratch ? PARE_OK : PARE_MEMORY;
}

/* Room for so many bytes: its offset first, its address once the memory is there. */
static void *room(pare_kernel_benchmark *t, size_t bytes)
{
    char *at = t->memory ? (char *)t->memory + t->bytes : NULL;
    t->bytes += pare_align_up(bytes, ALIGN);
    return at;
}

/* Gives every tensor its room; called once to add up, once to place. */
static void device_places(pare_kernel_benchmark *t)
{
    const pare_prep *p = &t->prep;
    t->bytes = 0;
    t->call.scratch = room(t, p->scratch);
    for (int i = 0; i < p->in_count; i++)
        if (t->in[i].dtype != PARE_NOTYPE) t->in[i].data = room(t, pare_view_bytes(&t->in[i]));
    for (int i = 0; i < p->out_count; i++) {
        if (t->out[i].dtype == PARE_NOTYPE) continue;
        t->out[i].data =
            i == 0 && p->share >= 0 ? t->in[p->share].data : room(t, pare_view_bytes(&t->out[i]));
    }
}

static pare_status device_views(pare_kernel_benchmark *t)
{
    const pare_prep *p = &t->prep;
    pare_device *d = p->device;
    device_places(t);
    PARE_TRY(d->backend->alloc(p->ctx, d, &t->memory, t->bytes + ALIGN));
    device_places(t);
    PARE_TRY(d->backend->fill(p->ctx, d->setup, t->memory, 0, t->bytes));
    for (int i = 0; i < p->in_count; i++)
        if (p->in[i].data && (i >= 32 || !(p->packed >> i & 1)) && pare_view_bytes(&t->in[i]))
            PARE_TRY(d->backend->upload(p->ctx, d->setup, t->in[i].data, p->in[i].data,
                                        pare_view_bytes(&t->in[i])));
    PARE_TRY(d->streams->event_open(p->ctx, d, &t->from));
    PARE_TRY(d->streams->event_open(p->ctx, d, &t->to));
    return d->backend->sync(p->ctx, d->setup);
}

static void device_free(pare_kernel_benchmark *t)
{
    pare_device *d = t->prep.device;
    if (t->from) d->streams->event_close(t->from);
    if (t->to) d->streams->event_close(t->to);
    d->backend->free(d, t->memory);
}

/* --- time --- */

static pare_status host_time(const pare_kernel_benchmark *t, double *took)
{
    double start = pare_seconds();
    PARE_TRY(t->kernel->run(&t->call));
    *took = pare_seconds() - start;
    return PARE_OK;
}

static pare_status device_time(const pare_kernel_benchmark *t, int runs, double *took)
{
    const pare_device *d = t->prep.device;
    pare_ctx *ctx = t->prep.ctx;
    PARE_TRY(d->streams->event_mark(ctx, d->setup, t->from));
    for (int i = 0; i < runs; i++) PARE_TRY(t->kernel->run(&t->call));
    PARE_TRY(d->streams->event_mark(ctx, d->setup, t->to));
    PARE_TRY(d->backend->sync(ctx, d->setup));
    PARE_TRY(d->streams->event_seconds(ctx, t->from, t->to, took));
    *took /= runs;
    return PARE_OK;
}

pare_status pare_kernel_benchmark_run(const pare_kernel_benchmark *t, int runs, double *took)
{
    double sum = 0, one;
    if (t->prep.device) return device_time(t, runs, took);
    for (int i = 0; i < runs; i++) {
        PARE_TRY(host_time(t, &one));
        sum += one;
    }
    *took = sum / runs;
    return PARE_OK;
}

/* Both clocks bound it: the device's decides, the host's ends what takes long. */
pare_status pare_kernel_benchmark_time(const pare_kernel_benchmark *t, double rival, double *best)
{
    double took, spent = 0;
    const int runs = t->prep.device ? DEVICE_RUNS : 1;
    PARE_TRY(pare_kernel_benchmark_run(t, 1, best));
    if (*best > SHORT_SECONDS && *best > HOPELESS * rival) return PARE_OK;
    *best = 1e30;
    double start = pare_seconds();
    for (int i = 0; i < MAX_RUNS && (i < MIN_RUNS || spent < ENOUGH_SECONDS); i++) {
        PARE_TRY(pare_kernel_benchmark_run(t, runs, &took));
        spent += took;
        if (took < *best) *best = took;
        if (pare_seconds() - start > LONG_SECONDS) break;
        if ((i + 1 >= MIN_RUNS || took > SHORT_SECONDS) && *best > PARE_TRIAL_BEHIND * rival) break;
    }
    return PARE_OK;
}

/* --- opening, closing --- */

static void fill_call(pare_kernel_benchmark *t)
{
    const pare_prep *p = &t->prep;
    for (int i = 0; i < p->in_count; i++) t->in[i] = p->in[i];
    for (int i = 0; i < p->out_count; i++) t->out[i] = p->out[i];
    t->call = (pare_call){.ctx = p->ctx,
                          .node = p->node,
                          .in = t->in,
                          .out = t->out,
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
    t->in = pare_arena_alloc(&t->arena, (size_t)p->in_count + 1, sizeof *t->in);
    t->out = pare_arena_alloc(&t->arena, (size_t)p->out_count + 1, sizeof *t->out);
    if (!t->in || !t->out) return PARE_MEMORY;
    fill_call(t);
    PARE_TRY(p->device ? device_views(t) : host_views(t, &t->arena));
    if (t->kernel->bind) {
        PARE_TRY(t->kernel->bind(&t->call, &t->arena));
        t->bound = true;
    }
    if (!p->device) omp_set_num_threads(p->threads);
    return PARE_OK;
}

pare_status pare_kernel_benchmark_open(pare_kernel_benchmark *t, const pare_kernel *kernel,
                                       const pare_prep *prep)
{
    *t = (pare_kernel_benchmark){.kernel = kernel, .prep = *prep};
    pare_arena_init(&t->arena, prep->ctx);
    t->prep.arena = &t->arena;
    pare_status st = fill(t);
    if (st != PARE_OK) pare_kernel_benchmark_close(t);
    return st;
}

void pare_kernel_benchmark_close(pare_kernel_benchmark *t)
{
    if (!t->kernel) return;
    if (t->bound && t->kernel->unbind) t->kernel->unbind(t->call.bound);
    if (t->prepared && t->prep.device) device_free(t);
    if (t->prepared && t->kernel->release) t->kernel->release(t->prep.state);
    pare_arena_free(&t->arena);
    *t = (pare_kernel_benchmark){0};
}

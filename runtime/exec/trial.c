/* SPDX-License-Identifier: Apache-2.0 */
/* The stopwatch of the tuner: a kernel runs on memory of its own, constants as they are, the rest
   zeros; on a device between two events, several runs at once so that the launch hides. */
#include "runtime/base/size.h"
#include "runtime/exec/plan.h"
#include "runtime/base/clock.h"

#include <omp.h>

enum { MIN_RUNS = 3, MAX_RUNS = 20, DEVICE_RUNS = 4, ALIGN = 256 };
static const double ENOUGH_SECONDS = 2e-3, LONG_SECONDS = 5e-2;
static const double HOPELESS = 3, BEHIND = 1.5; /* times the best so far: a first run, a warm one */

/* One kernel on trial. */
typedef struct trial {
    const pare_kernel *kernel;
    pare_prep prep;
    pare_view *in, *out;
    pare_call call;
    pare_event *from, *to; /* on a device */
    void *memory;          /* on a device: all views and the scratch */
    size_t bytes;
} trial;

/* --- memory --- */

/* Memory on the host: output 0 on a shared input where the kernel asked for it. */
static pare_status host_views(trial *t, pare_arena *arena)
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
static void *room(trial *t, size_t bytes)
{
    char *at = t->memory ? (char *)t->memory + t->bytes : NULL;
    t->bytes += pare_align_up(bytes, ALIGN);
    return at;
}

/* Gives every tensor its room; called once to add up, once to place. */
static void device_places(trial *t)
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

static pare_status device_views(trial *t)
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
    PARE_TRY(d->queues->event_open(p->ctx, d, &t->from));
    PARE_TRY(d->queues->event_open(p->ctx, d, &t->to));
    return d->backend->sync(p->ctx, d->setup);
}

static void device_free(trial *t)
{
    pare_device *d = t->prep.device;
    if (t->from) d->queues->event_close(t->from);
    if (t->to) d->queues->event_close(t->to);
    d->backend->free(d, t->memory);
}

/* --- time --- */

static pare_status host_time(const trial *t, double *took)
{
    double start = pare_seconds();
    PARE_TRY(t->kernel->run(&t->call));
    *took = pare_seconds() - start;
    return PARE_OK;
}

static pare_status device_time(const trial *t, int runs, double *took)
{
    const pare_device *d = t->prep.device;
    pare_ctx *ctx = t->prep.ctx;
    PARE_TRY(d->queues->event_mark(ctx, d->setup, t->from));
    for (int i = 0; i < runs; i++) PARE_TRY(t->kernel->run(&t->call));
    PARE_TRY(d->queues->event_mark(ctx, d->setup, t->to));
    PARE_TRY(d->backend->sync(ctx, d->setup));
    PARE_TRY(d->queues->event_seconds(ctx, t->from, t->to, took));
    *took /= runs;
    return PARE_OK;
}

static pare_status run_timed(const trial *t, int runs, double *took)
{
    return t->prep.device ? device_time(t, runs, took) : host_time(t, took);
}

/* Best of a few runs after one that is not counted; a kernel far behind `rival`, the best so far,
   is not run again. Both clocks bound it: the device's decides, the host's ends what takes long. */
static pare_status time_runs(const trial *t, double rival, double *best)
{
    double took, spent = 0;
    PARE_TRY(run_timed(t, 1, best));
    if (*best > HOPELESS * rival) return PARE_OK;
    *best = 1e30;
    double start = pare_seconds();
    for (int i = 0; i < MAX_RUNS && (i < MIN_RUNS || spent < ENOUGH_SECONDS); i++) {
        PARE_TRY(run_timed(t, DEVICE_RUNS, &took));
        spent += took;
        if (took < *best) *best = took;
        if (pare_seconds() - start > LONG_SECONDS || *best > BEHIND * rival) break;
    }
    return PARE_OK;
}

static pare_status trial_run(trial *t, pare_arena *arena, double rival, double *best)
{
    const pare_prep *p = &t->prep;
    bool bound = false;
    t->in = pare_arena_alloc(arena, (size_t)p->in_count + 1, sizeof *t->in);
    t->out = pare_arena_alloc(arena, (size_t)p->out_count + 1, sizeof *t->out);
    if (!t->in || !t->out) return PARE_MEMORY;
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
                          .queue = p->device ? p->device->setup : NULL};
    PARE_TRY(p->device ? device_views(t) : host_views(t, arena));
    if (t->kernel->bind) {
        PARE_TRY(t->kernel->bind(&t->call, arena));
        bound = true;
    }
    if (!p->device) omp_set_num_threads(p->threads);
    pare_status st = time_runs(t, rival, best);
    if (bound && t->kernel->unbind) t->kernel->unbind(t->call.bound);
    return st;
}

pare_status pare_kernel_time(const pare_kernel *kernel, const pare_prep *prep, double rival,
                             double *best)
{
    pare_arena arena;
    trial t = {.kernel = kernel, .prep = *prep};
    pare_arena_init(&arena, prep->ctx);
    t.prep.arena = &arena;
    pare_status st = pare_kernel_prepare(kernel, &t.prep);
    if (st == PARE_OK) {
        st = trial_run(&t, &arena, rival, best);
        if (prep->device) device_free(&t);
        if (kernel->release) kernel->release(t.prep.state);
    }
    pare_arena_free(&arena);
    return st;
}

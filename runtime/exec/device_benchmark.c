/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel on trial on a device: its runs are captured in a graph, as a net's are, so that launches
   cost what they cost there, and are timed by two events around the graph. Each run of the graph
   has a set of tensors of its own (benchmark_memory.h). A kernel's packed constants exist once:
   where constants are most of a node's inputs, a graph has one run, so that they are cold, too. */
#include "runtime/exec/device_benchmark.h"

#include "runtime/base/clock.h"

#include <math.h>
#include <stdlib.h>

enum { FEWEST = 3, MOST = 9, MOST_LAUNCHES = PARE_BENCHMARK_SETS };
static const double GRAPH_SECONDS = 1e-3; /* of a graph's runs together */
static const double ENOUGH_SECONDS = 2e-3,
                    LONG_SECONDS = 5e-2; /* by the device's, the host's clock */
static const double HOPELESS = 3;        /* times the rival */

/* --- opening, closing --- */

pare_status pare_device_benchmark_open(pare_kernel_benchmark *t, pare_view *in, pare_view *out)
{
    const pare_prep *p = &t->prep;
    pare_device *d = p->device;
    PARE_TRY(d->backend->alloc(p->ctx, d, &t->scratch, p->scratch));
    for (int s = 0; s < t->sets; s++) {
        pare_view *x = in + (size_t)s * p->in_count, *y = out + (size_t)s * p->out_count;
        pare_benchmark_memory_place(t->memory, s, p, x, y);
        t->call[s].scratch = t->scratch;
    }
    PARE_TRY(d->streams->event_open(p->ctx, d, &t->from));
    return d->streams->event_open(p->ctx, d, &t->to);
}

void pare_device_benchmark_close(pare_kernel_benchmark *t)
{
    pare_device *d = t->prep.device;
    if (t->graph) d->streams->drop(t->graph);
    if (t->from) d->streams->event_close(t->from);
    if (t->to) d->streams->event_close(t->to);
    d->backend->free(d, t->scratch);
}

/* --- capture --- */

static pare_status runs_put(const pare_kernel_benchmark *t)
{
    for (int i = 0; i < t->launches; i++) PARE_TRY(t->kernel->run(&t->call[i % t->sets]));
    return PARE_OK;
}

/* A kernel that cannot be captured (it waits, it allocates) is timed in the stream instead: that it
   runs has been seen. */
static void capture(pare_kernel_benchmark *t)
{
    const pare_device *d = t->prep.device;
    pare_ctx *ctx = t->prep.ctx;
    pare_status st = d->streams->capture_begin(ctx, d->setup);
    if (st == PARE_OK) {
        st = runs_put(t);
        const pare_status end = d->streams->capture_end(ctx, d->setup, &t->graph);
        if (st == PARE_OK) st = end;
    }
    if (st == PARE_OK) return;
    if (t->graph) d->streams->drop(t->graph);
    t->graph = NULL;
    pare_ctx_clear(ctx);
}

/* Of the node, whatever a kernel packs: a graph's launch costs all candidates the same. */
static bool is_mostly_constant(const pare_prep *p)
{
    double constant = 0, all = 0;
    for (int i = 0; i < p->in_count; i++) {
        if (p->in[i].dtype == PARE_NOTYPE) continue;
        const double bytes = (double)pare_view_bytes(&p->in[i]);
        all += bytes;
        if (p->in[i].data) constant += bytes;
    }
    return 2 * constant > all;
}

static int launches_of(const pare_kernel_benchmark *t, double seconds)
{
    if (is_mostly_constant(&t->prep)) return 1;
    return (int)fmax(1, fmin(MOST_LAUNCHES, GRAPH_SECONDS / fmax(seconds, 1e-9)));
}

/* --- time --- */

static pare_status work_put(const pare_kernel_benchmark *t)
{
    const pare_device *d = t->prep.device;
    return t->graph ? d->streams->graph_launch(t->prep.ctx, d->setup, t->graph) : runs_put(t);
}

/* Mean seconds of a run. */
static pare_status time_once(const pare_kernel_benchmark *t, double *took)
{
    const pare_device *d = t->prep.device;
    pare_ctx *ctx = t->prep.ctx;
    PARE_TRY(pare_benchmark_memory_flush(ctx, t->memory));
    PARE_TRY(d->streams->event_mark(ctx, d->setup, t->from));
    PARE_TRY(work_put(t));
    PARE_TRY(d->streams->event_mark(ctx, d->setup, t->to));
    PARE_TRY(d->backend->sync(ctx, d->setup));
    PARE_TRY(d->streams->event_seconds(ctx, t->from, t->to, took));
    *took /= t->launches;
    return PARE_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

pare_status pare_device_benchmark_time(pare_kernel_benchmark *t, double rival, double *seconds)
{
    double took[MOST], spent = 0, start;
    int count = 0;
    t->launches = 1;
    PARE_TRY(time_once(t, seconds)); /* code is loaded, libraries warm up: not counted */
    PARE_TRY(time_once(t, seconds));
    if (*seconds > GRAPH_SECONDS && *seconds > HOPELESS * rival) return PARE_OK;
    t->launches = launches_of(t, *seconds);
    capture(t);
    PARE_TRY(time_once(t, seconds)); /* nor is a graph's first launch */
    start = pare_seconds();
    do {
        PARE_TRY(time_once(t, &took[count]));
        spent += took[count] * t->launches;
        qsort(took, (size_t)++count, sizeof *took, by_value);
        *seconds = took[count / 2];
        if (pare_seconds() - start > LONG_SECONDS) break;
        if (count >= FEWEST && took[0] > PARE_TRIAL_BEHIND * rival) break;
    } while (count < MOST && (count < FEWEST || spent < ENOUGH_SECONDS));
    return PARE_OK;
}

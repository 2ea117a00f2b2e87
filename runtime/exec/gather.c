/* SPDX-License-Identifier: Apache-2.0 */
/* A message has the parts of several runners one after the other, as many as it may hold, and what
   comes back has such a message of every process. */
#include "runtime/exec/gather.h"
#include "runtime/exec/shards.h"
#include "runtime/ops/all_gather.h"

#include <string.h>

enum { LARGEST = 256 << 20 }; /* bytes of all processes' messages, where the gatherer says none */

struct pare_gather {
    pare_ctx *ctx;
    const pare_plan *plan;
    int most;         /* runners in a message */
    char *mine, *all; /* (most) of the largest tensor */
    char *whole;      /* on a device: one tensor */
};

pare_part_rows pare_part_rows_of(const pare_view *whole, int axis, int64_t first, int64_t size)
{
    const size_t inner = (size_t)whole->stride[axis] * (size_t)pare_type(whole->dtype)->bits / 8;
    const int64_t each = whole->dim[axis] * whole->stride[axis];
    return (pare_part_rows){.rows = each ? pare_view_count(whole) / each : 0,
                            .bytes = (size_t)size * inner,
                            .step = (size_t)whole->dim[axis] * inner,
                            .at = (size_t)first * inner};
}

static bool is_all_gather(const pare_node *node)
{
    return !strcmp(node->op_type, "AllGather") && !strcmp(node->domain, PARE_DOMAIN);
}

bool pare_gathers(const pare_plan *plan, const pare_node *node)
{
    return plan->options.gatherer && is_all_gather(node);
}

pare_status pare_gather_open(pare_ctx *ctx, pare_gather **out, const pare_plan *plan, int most)
{
    pare_gather *g = pare_alloc(ctx, 1, sizeof *g);
    size_t largest = 0;
    if (!g) return PARE_MEMORY;
    *g = (pare_gather){.ctx = ctx, .plan = plan};
    for (int i = 0; i < plan->step_count; i++) {
        const pare_step *s = &plan->step[i];
        const size_t bytes = s->gathers ? pare_view_bytes(&s->out[0].view) : 0;
        if (bytes > largest) largest = bytes;
    }
    const size_t limit = plan->options.gatherer->most, bytes = limit ? limit : LARGEST;
    g->most = most;
    if (largest && (size_t)most > bytes / largest) g->most = (int)(bytes / largest);
    if (g->most < 1) g->most = 1;
    g->mine = pare_alloc(ctx, largest, (size_t)g->most);
    g->all = pare_alloc(ctx, largest, (size_t)g->most);
    g->whole = plan->options.device ? pare_alloc(ctx, largest, 1) : NULL;
    if (g->mine && g->all && (g->whole || !plan->options.device)) {
        *out = g;
        return PARE_OK;
    }
    pare_gather_close(g);
    return PARE_MEMORY;
}

void pare_gather_close(pare_gather *g)
{
    if (!g) return;
    pare_free(g->mine);
    pare_free(g->all);
    pare_free(g->whole);
    pare_free(g);
}

/* The step's parts of all runners, without gaps. */
static pare_status bring(pare_gather *g, pare_runner *const *runner, int count, int step)
{
    const pare_device *d = g->plan->options.device;
    char *to = g->mine;
    pare_stream *stream = NULL;
    for (int i = 0; i < count; i++) {
        const pare_call *c = &runner[i]->call[step];
        const size_t bytes = pare_view_bytes(&c->in[0]);
        stream = c->stream;
        if (d)
            PARE_TRY(d->backend->download(g->ctx, stream, to, c->in[0].data, bytes));
        else if (bytes)
            memcpy(to, c->in[0].data, bytes);
        to += bytes;
    }
    return d ? d->backend->sync(g->ctx, stream) : PARE_OK;
}

/* Puts every process' part of tensor number i of `count` where it belongs. */
static void place(const pare_gather *g, const pare_gather_args *args, const pare_view *y, int i,
                  int count, char *to)
{
    const char *message = g->all;
    int64_t first = 0;
    for (int r = 0; r < args->parts; first += args->size[r++]) {
        const pare_part_rows part = pare_part_rows_of(y, args->axis, first, args->size[r]);
        const size_t bytes = (size_t)part.rows * part.bytes;
        const char *from = message + (size_t)i * bytes;
        for (int64_t k = 0; k < part.rows && part.bytes; k++)
            memcpy(to + part.at + (size_t)k * part.step, from + (size_t)k * part.bytes, part.bytes);
        message += (size_t)count * bytes;
    }
}

static pare_status spread(pare_gather *g, const pare_gather_args *args, pare_runner *const *runner,
                          int count, int step)
{
    const pare_backend *b = g->plan->options.device ? g->plan->options.device->backend : NULL;
    for (int i = 0; i < count; i++) {
        const pare_call *c = &runner[i]->call[step];
        place(g, args, &c->out[0], i, count, b ? g->whole : c->out[0].data);
        if (!b) continue;
        PARE_TRY(
            b->upload(g->ctx, c->stream, c->out[0].data, g->whole, pare_view_bytes(&c->out[0])));
        PARE_TRY(b->sync(g->ctx, c->stream));
    }
    return PARE_OK;
}

static pare_status send(pare_gather *g, const pare_gather_args *args, pare_runner *const *runner,
                        int count, int step)
{
    size_t bytes[PARE_MOST_SHARDS];
    const pare_gatherer *gatherer = g->plan->options.gatherer;
    const pare_view *y = &runner[0]->call[step].out[0];
    for (int r = 0; r < args->parts; r++) {
        const pare_part_rows part = pare_part_rows_of(y, args->axis, 0, args->size[r]);
        bytes[r] = (size_t)count * (size_t)part.rows * part.bytes;
    }
    PARE_TRY(bring(g, runner, count, step));
    PARE_TRY(gatherer->gather(gatherer->user, g->mine, bytes, g->all));
    return spread(g, args, runner, count, step);
}

pare_status pare_gather_step(pare_gather *g, pare_runner *const *runner, int count, int step)
{
    pare_gather_args args;
    PARE_TRY(
        pare_gather_args_read(g->plan->step[step].node, runner[0]->call[step].out[0].rank, &args));
    for (int i = 0; i < count; i += g->most)
        PARE_TRY(send(g, &args, runner + i, count - i < g->most ? count - i : g->most, step));
    return PARE_OK;
}

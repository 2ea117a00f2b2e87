/* SPDX-License-Identifier: Apache-2.0 */
/* Phases: a plan is cut at its pare.SliceSum steps, where microbatches are summed, and its
   pare.AllGather steps, where processes have a part of it each. In a phase each item runs its steps
   to the end; between two phases the calling thread makes the sums, or gathers the parts. On a
   device the order of the stream is that of the work: no thread waits between two phases. */
#include "runtime/exec/gather.h"
#include "runtime/exec/replicas.h"
#include "runtime/ops/ops.h"
#include "runtime/device/training.h"

#include <string.h>

bool pare_is_slice_sum(const pare_node *node)
{
    return !strcmp(node->op_type, "SliceSum") && !strcmp(node->domain, PARE_DOMAIN);
}

static bool joint_at(const pare_replicas *r, int step)
{
    if (step >= r->plan->step_count) return false;
    if (r->plan->step[step].gathers) return r->options.items != 1; /* one alone gathers its own */
    return (r->options.items > 1 || r->options.sum) && pare_is_slice_sum(r->plan->step[step].node);
}

/* The largest sum fits. */
static pare_status make_whole(pare_replicas *r)
{
    size_t most = 0;
    for (int step = 0; step < r->plan->step_count; step++) {
        const pare_node *node = r->plan->step[step].node;
        for (int i = 0; pare_is_slice_sum(node) && i < node->out_count; i++) {
            const pare_value *y = node->out[i];
            size_t bytes = 0;
            if (!pare_type_bytes(y->dtype, pare_shape_count(&y->shape), &bytes)) continue;
            if (bytes > most) most = bytes;
        }
    }
    r->whole = pare_alloc(r->ctx, most, 1);
    return r->whole ? PARE_OK : PARE_MEMORY;
}

static bool sums(const pare_replicas *r)
{
    return pare_is_slice_sum(r->plan->step[r->phase[0].count].node);
}

pare_status pare_phases_make(pare_replicas *r)
{
    int steps = r->plan->step_count, at = 0;
    r->phase = pare_alloc(r->ctx, (size_t)steps + 1, sizeof *r->phase);
    if (!r->phase) return PARE_MEMORY;
    do {
        pare_phase *p = &r->phase[r->phases++];
        p->first = at;
        while (at < steps && !joint_at(r, at)) at++;
        p->count = at - p->first;
        while (joint_at(r, at)) at++;
        p->joint = at - p->first - p->count;
    } while (at < steps || r->phase[r->phases - 1].joint);
    const pare_device *device = r->plan->options.device;
    if (r->phases == 1 || !sums(r)) return PARE_OK;
    if (device && !device->training)
        return PARE_FAIL_NODE(r->plan->step[r->phase[0].count].node, UNSUPPORTED,
                              "%s cannot sum up microbatches", device->name);
    r->from = pare_alloc(r->ctx, (size_t)r->options.items, sizeof *r->from);
    r->to = pare_alloc(r->ctx, (size_t)r->options.items, sizeof *r->to);
    if (!r->from || !r->to) return PARE_MEMORY;
    return device && r->options.sum && !r->options.sum_there ? make_whole(r) : PARE_OK;
}

pare_status pare_phase_run(const pare_replicas *r, pare_runner *runner)
{
    const pare_phase *p = &r->phase[r->at];
    if (r->phases == 1) return pare_runner_run(runner);
    if (r->stream) return pare_runner_device_part(runner, p->first, p->count);
    return pare_runner_steps(runner, p->first, p->count);
}

/* --- sums over items --- */

/* One number of y as training.h says. */
#define ADD(type, ctype)                                                                           \
    static void add_##type(const pare_slice_sums *s, int64_t i)                                    \
    {                                                                                              \
        ctype waiting[PARE_TREE_LEVELS], sum = 0;                                                  \
        for (int k = 0; k < s->slices; k++) {                                                      \
            const pare_tree_term term = pare_tree_term_of(k, s->slices);                           \
            sum = ((const ctype *)s->x[k])[i];                                                     \
            for (int n = 0; term.with >> n; n++)                                                   \
                if (term.with >> n & 1) sum = waiting[n] + sum;                                    \
            if (term.to >= 0) waiting[term.to] = sum;                                              \
        }                                                                                          \
        for (int k = 0; k < s->slices; k++) ((ctype *)s->y[k])[i] = sum;                           \
    }
ADD(f32, float)
ADD(f64, double)

static void sum_make(const pare_slice_sums *s)
{
    for (int64_t i = 0; i < s->count; i++) (s->dtype == PARE_f64 ? add_f64 : add_f32)(s, i);
}

static const pare_call *call_of(const pare_replicas *r, int replica, int step)
{
    return &r->replica[replica].runner->call[step];
}

/* A sum of this pool becomes that of all, from device to device. */
static pare_status sum_devices(pare_replicas *r, const pare_slice_sums *s, size_t bytes)
{
    const pare_sharing_table *sharing = r->plan->options.device->sharing;
    void *user = r->options.sum_user;
    PARE_TRY(r->options.sum_there(user, r->stream, s->dtype, s->y[0], s->count));
    for (int k = 1; k < s->slices; k++)
        PARE_TRY(sharing->copy(r->ctx, r->stream, s->y[k], s->y[0], bytes));
    return PARE_OK;
}

/* The same by way of the host, or there. */
static pare_status sum_pools(pare_replicas *r, const pare_slice_sums *s, size_t bytes)
{
    const pare_backend *b = r->stream ? r->plan->options.device->backend : NULL;
    void *y = b ? r->whole : s->y[0];
    if (b && r->options.sum_there) return sum_devices(r, s, bytes);
    if (b) PARE_TRY(b->download(r->ctx, r->stream, y, s->y[0], bytes));
    if (b) PARE_TRY(b->sync(r->ctx, r->stream));
    PARE_TRY(r->options.sum(r->options.sum_user, s->dtype, y, s->count));
    for (int k = 0; k < s->slices; k++)
        if (b)
            PARE_TRY(b->upload(r->ctx, r->stream, s->y[k], y, bytes));
        else if (k)
            memcpy(s->y[k], y, bytes);
    return b ? b->sync(r->ctx, r->stream) : PARE_OK;
}

/* A sum of this pool: here, or in the stream. */
static pare_status sum_items(pare_replicas *r, const pare_slice_sums *s, const pare_node *node)
{
    pare_status st = PARE_OK;
    if (r->stream)
        st = r->plan->options.device->training->slices(r->ctx, r->stream, s);
    else
        sum_make(s);
    if (st == PARE_OK) return PARE_OK;
    return pare_fail_prefix(r->ctx, st, "%s: node '%s' (SliceSum)", r->plan->model->path,
                            node->name);
}

/* Of the items that run together. */
static pare_status step_gather(pare_replicas *r, int step)
{
    const int count = (int)(r->end - r->base);
    if (!r->gather) {
        PARE_TRY(pare_gather_open(r->ctx, &r->gather, r->plan, r->count));
        r->runner = pare_alloc(r->ctx, (size_t)r->count, sizeof *r->runner);
        if (!r->runner) return PARE_MEMORY;
    }
    for (int i = 0; i < count; i++) r->runner[i] = r->replica[i].runner;
    return pare_gather_step(r->gather, r->runner, count, step);
}

static pare_status step_sum(pare_replicas *r, int step)
{
    const pare_call *first = call_of(r, 0, step);
    for (int k = 0; k < first->out_count; k++) {
        const pare_view *y = &first->out[k];
        if (y->dtype == PARE_NOTYPE || !pare_view_count(y)) continue;
        for (int i = 0; i < r->count; i++) {
            r->from[i] = call_of(r, i, step)->in[k].data;
            r->to[i] = call_of(r, i, step)->out[k].data;
        }
        const pare_slice_sums sums = {y->dtype, pare_view_count(y), r->from, r->to, r->count};
        PARE_TRY(sum_items(r, &sums, first->node));
        if (r->options.sum) PARE_TRY(sum_pools(r, &sums, pare_view_bytes(y)));
    }
    return PARE_OK;
}

pare_status pare_phase_join(pare_replicas *r)
{
    const pare_phase *p = &r->phase[r->at];
    const int first = p->first + p->count;
    for (int step = first; step < first + p->joint; step++)
        PARE_TRY(r->plan->step[step].gathers ? step_gather(r, step) : step_sum(r, step));
    return PARE_OK;
}

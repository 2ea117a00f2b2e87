/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches: a plan is cut at its pare.SliceSum steps into phases. In a phase each item runs its
   steps to the end; between two phases the calling thread makes the sums. On a device the order of
   the stream is that of the work: no thread waits between two phases. */
#include "runtime/exec/replicas.h"
#include "runtime/ops/ops.h"
#include "runtime/device/training.h"

#include <string.h>

bool pare_is_slice_sum(const pare_node *node)
{
    return !strcmp(node->op_type, "SliceSum") && !strcmp(node->domain, PARE_DOMAIN);
}

static bool sums_at(const pare_replicas *r, int step)
{
    return r->options.items > 1 && step < r->plan->step_count &&
           pare_is_slice_sum(r->plan->step[step].node);
}

pare_status pare_phases_make(pare_replicas *r)
{
    int steps = r->plan->step_count, at = 0;
    r->phase = pare_alloc(r->ctx, (size_t)steps + 1, sizeof *r->phase);
    if (!r->phase) return PARE_MEMORY;
    do {
        pare_phase *p = &r->phase[r->phases++];
        p->first = at;
        while (at < steps && !sums_at(r, at)) at++;
        p->count = at - p->first;
        while (sums_at(r, at)) at++;
        p->sums = at - p->first - p->count;
    } while (at < steps || r->phase[r->phases - 1].sums);
    const pare_device *device = r->plan->options.device;
    if (r->phases == 1 || !device) return PARE_OK;
    if (!device->training)
        return PARE_FAIL_NODE(r->plan->step[r->phase[0].count].node, UNSUPPORTED,
                              "%s cannot sum up microbatches", device->name);
    r->from = pare_alloc(r->ctx, (size_t)r->options.items, sizeof *r->from);
    r->to = pare_alloc(r->ctx, (size_t)r->options.items, sizeof *r->to);
    return r->from && r->to ? PARE_OK : PARE_MEMORY;
}

pare_status pare_phase_run(const pare_replicas *r, pare_runner *runner)
{
    const pare_phase *p = &r->phase[r->at];
    if (r->phases == 1) return pare_runner_run(runner);
    if (r->stream) return pare_runner_device_part(runner, p->first, p->count);
    return pare_runner_steps(runner, p->first, p->count);
}

/* --- sums over items --- */

#define ADD(type, ctype)                                                                           \
    static void add_##type(void *sum, const void *x, int64_t n)                                    \
    {                                                                                              \
        ctype *s = sum;                                                                            \
        const ctype *v = x;                                                                        \
        for (int64_t i = 0; i < n; i++) s[i] += v[i];                                              \
    }
ADD(f32, float)
ADD(f64, double)

static const pare_call *call_of(const pare_replicas *r, int replica, int step)
{
    return &r->replica[replica].runner->call[step];
}

/* Y of item 0 = ((X of item 0 + X of item 1) + X of item 2) + ..., and so everywhere. */
static void sum_make(pare_replicas *r, int step)
{
    const pare_call *first = call_of(r, 0, step);
    for (int k = 0; k < first->out_count; k++) {
        const pare_view *y = &first->out[k];
        size_t bytes = pare_view_bytes(y);
        if (y->dtype == PARE_NOTYPE || !bytes) continue;
        memcpy(y->data, first->in[k].data, bytes);
        for (int i = 1; i < r->count; i++) {
            const void *x = call_of(r, i, step)->in[k].data;
            (y->dtype == PARE_f64 ? add_f64 : add_f32)(y->data, x, pare_view_count(y));
        }
        for (int i = 1; i < r->count; i++) memcpy(call_of(r, i, step)->out[k].data, y->data, bytes);
    }
}

/* The same in the stream. */
static pare_status sum_queue(pare_replicas *r, int step)
{
    const pare_device *d = r->plan->options.device;
    const pare_call *first = call_of(r, 0, step);
    pare_status st = PARE_OK;
    for (int k = 0; k < first->out_count && st == PARE_OK; k++) {
        const pare_view *y = &first->out[k];
        if (y->dtype == PARE_NOTYPE || !pare_view_count(y)) continue;
        for (int i = 0; i < r->count; i++) {
            r->from[i] = call_of(r, i, step)->in[k].data;
            r->to[i] = call_of(r, i, step)->out[k].data;
        }
        const pare_slice_sums sums = {y->dtype, pare_view_count(y), r->from, r->to, r->count};
        st = d->training->slices(r->ctx, r->stream, &sums);
    }
    if (st == PARE_OK) return PARE_OK;
    return pare_fail_prefix(r->ctx, st, "%s: node '%s' (SliceSum)", r->plan->model->path,
                            first->node->name);
}

pare_status pare_phase_sum(pare_replicas *r)
{
    const pare_phase *p = &r->phase[r->at];
    const int first = p->first + p->count;
    for (int step = first; step < first + p->sums; step++)
        if (r->stream)
            PARE_TRY(sum_queue(r, step));
        else
            sum_make(r, step);
    return PARE_OK;
}

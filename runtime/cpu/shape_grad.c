/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of moves:
     GatherGrad (dY, indices) -> dX   slices of dY are added where Gather (1) took them, in order
     SliceGrad (dY, starts, ends, axes, steps) -> dX   dY where Slice (10) took it, zeros elsewhere
 */
#include "runtime/cpu/copy.h"
#include "runtime/ops/moves.h"

#include <inttypes.h>
#include <string.h>

#define ADD(type, ctype)                                                                           \
    static void add_##type(void *dst, const void *src, int64_t n)                                  \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) ((ctype *)dst)[i] += ((const ctype *)src)[i];              \
    }
ADD(f32, float)
ADD(f64, double)

/* dX [outer, n, inner], dY [outer, count, inner], row-major. */
static pare_status gather_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *at = &c->in[1], *dx = &c->out[0];
    int64_t axis = pare_node_int(c->node, "axis", 0), outer = 1, inner = 1;
    if (axis < 0) axis += dx->rank;
    for (int i = 0; i < axis; i++) outer *= dx->dim[i];
    for (int i = (int)axis + 1; i < dx->rank; i++) inner *= dx->dim[i];
    const int64_t n = dx->dim[axis], count = pare_view_count(at);
    memset(dx->data, 0, pare_view_bytes(dx));
    for (int64_t t = 0; t < outer * count; t++) {
        int64_t i = pare_ref_get_int(at, t % count);
        if (i < -n || i >= n)
            return PARE_FAIL_NODE(c->node, INPUT,
                                  "index %" PRId64 " is outside an axis of length %" PRId64, i, n);
        if (i < 0) i += n;
        void *to = pare_ref_at(dx, (t / count * n + i) * inner);
        (dx->dtype == PARE_f64 ? add_f64 : add_f32)(to, pare_ref_at(dy, t * inner), inner);
    }
    return PARE_OK;
}

static bool gather_can(const pare_prep *p)
{
    return (p->in[0].dtype == PARE_f32 || p->in[0].dtype == PARE_f64) &&
           pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->in[1]) &&
           pare_view_rowmajor(&p->out[0]);
}

/* Slice's move, from its output to the part of its input. */
static pare_status put_back(const pare_call *c, const pare_view *dy, const pare_view *part)
{
    pare_copy_view(part, dy, c->threads);
    return PARE_OK;
}

static pare_status slice_run(const pare_call *c)
{
    pare_view in[5] = {c->out[0]};
    for (int i = 1; i < c->in_count && i < 5; i++) in[i] = c->in[i];
    pare_call forward = *c;
    forward.in = in;
    forward.out = &c->in[0];
    forward.out_count = 1;
    memset(c->out[0].data, 0, pare_view_bytes(&c->out[0]));
    return pare_moves_slice(&forward, put_back);
}

static const pare_kernel ref_gather_grad = {
    .name = "ref_gather_grad", .can = gather_can, .run = gather_run, .flags = PARE_KERNEL_REF};
static const pare_kernel ref_slice_grad = {.name = "ref_slice_grad",
                                           .can = pare_ref_can_floats,
                                           .run = slice_run,
                                           .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_gather_grad[] = {&ref_gather_grad, NULL};
const pare_kernel *const pare_cpu_slice_grad[] = {&ref_slice_grad, NULL};

/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of ops/moves.h, each copy one launch. */
#include "runtime/ops/moves.h"
#include "runtime/cuda/element.h"
#include "runtime/cuda/kernel.h"

static bool can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++) /* what Slice and Tile read besides data */
        if (p->in[i].dtype && p->in[i].dtype != p->in[0].dtype && !p->in[i].data) return false;
    return pare_cuda_bytes(p->in[0].dtype) > 0;
}

#define MOVES(op)                                                                                  \
    static pare_status op##_run(const pare_call *c) { return pare_moves_##op(c, pare_cuda_copy); } \
    static const pare_kernel cuda_##op = {.name = "cuda_" #op, .can = can, .run = op##_run};       \
    const pare_kernel *const pare_cuda_##op[] = {&cuda_##op, NULL};
PARE_MOVES(MOVES)

/* Identity, and Dropout at inference. */

static pare_status identity_run(const pare_call *c)
{
    return c->out[0].data == c->in[0].data ? PARE_OK : pare_moves_reorder(c, pare_cuda_copy);
}

static const pare_kernel cuda_identity = {
    .name = "cuda_identity", .can = can, .run = identity_run, .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_identity[] = {&cuda_identity, NULL};

/* Training, or a mode known only while running, is the host's to refuse. */
static bool dropout_can(const pare_prep *p)
{
    bool moded = p->in_count > 2 && p->in[2].dtype;
    return can(p) && (!moded || (p->in[2].data && !*(const char *)p->in[2].data));
}

/* Nothing is dropped: the mask is all true. */
static pare_status dropout_run(const pare_call *c)
{
    const pare_view *mask = c->out_count > 1 && c->out[1].dtype ? &c->out[1] : NULL;
    size_t bytes = mask ? pare_view_bytes(mask) : 0;
    if (bytes) PARE_TRY(c->queue->device->backend->fill(c->ctx, c->queue, mask->data, 1, bytes));
    return identity_run(c);
}

static const pare_kernel cuda_dropout = {
    .name = "cuda_dropout", .can = dropout_can, .run = dropout_run, .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_dropout[] = {&cuda_dropout, NULL};

/* Reshape and its kin: a plan shares the bytes and runs nothing (steps.c). Elsewhere the elements
   are copied in row-major order. */
static bool reshape_can(const pare_prep *p)
{
    return pare_cuda_bytes(p->in[0].dtype) > 0 && pare_view_rowmajor(&p->in[0]) &&
           pare_view_rowmajor(&p->out[0]);
}

static pare_status reshape_run(const pare_call *c)
{
    pare_view from = c->out[0];
    from.data = c->in[0].data;
    return from.data == c->out[0].data ? PARE_OK : pare_cuda_copy(c, &c->out[0], &from);
}

static const pare_kernel cuda_reshape = {
    .name = "cuda_reshape", .can = reshape_can, .run = reshape_run, .flags = PARE_KERNEL_ALIAS};
const pare_kernel *const pare_cuda_reshape[] = {&cuda_reshape, NULL};
const pare_kernel *const pare_cuda_view[] = {&cuda_reshape, NULL};

/* SPDX-License-Identifier: Apache-2.0 */
/* Data movement: Reshape, Transpose, Concat, Split, Slice, Expand, Tile, DepthToSpace... (the
   operators of ops/moves.h), and every copy between memory orders. One thread an element of a
   grid-stride loop over the merged walk, each element read and written once, elements that lie
   together as one of up to 16 bytes; each copy of an operator is one launch. */
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/moves.h"

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) copy_each(pare_cuda_iterator w)
{
    pare_dependent_begin();
    const T *x = static_cast<const T *>(w.data[1]);
    T *y = static_cast<T *>(w.data[0]);
    PARE_CUDA_EACH (i, w.walk.count) {
        int64_t at[2];
        pare_iterator_at<2>(w.walk, i, at);
        y[at[0]] = x[at[1]];
    }
}

/* --- launcher --- */

/* y = x, elements of `bytes` bytes: every copy between memory orders. */
static cudaError_t copy_launch(const pare_cuda_iterator *all, int bytes, cudaStream_t stream)
{
    pare_cuda_iterator wide = *all;
    const pare_cuda_iterator *w = &wide;
    pare_cuda_iterator_widen(&wide, &bytes);
    if (bytes == 16 && w->walk.count) {
        PARE_ITERATOR_LAUNCH(copy_each<uint4>);
        return cudaGetLastError();
    }
    PARE_ITERATOR_LAUNCH_BYTES(copy_each);
}

pare_status pare_cuda_copy(const pare_call *c, const pare_view *dst, const pare_view *src)
{
    const pare_view *both[2] = {dst, src};
    pare_cuda_iterator w = {.data = {dst->data, src->data}};
    pare_iterator_init(&w.walk, both, 2);
    return PARE_CUDA_LAUNCH(c, copy_launch, &w, pare_cuda_bytes(dst->dtype));
}

/* --- operators of ops/moves.h --- */

static bool can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++) /* what Slice and Tile read besides data */
        if (p->in[i].dtype && p->in[i].dtype != p->in[0].dtype && !p->in[i].data) return false;
    return pare_cuda_bytes(p->in[0].dtype) > 0;
}

#define MOVES(op)                                                                                  \
    static pare_status op##_run(const pare_call *c) { return pare_moves_##op(c, pare_cuda_copy); } \
    static const pare_kernel cuda_##op = {                                                         \
        .name = "cuda_" #op, .can = can, .run = op##_run, .flags = PARE_KERNEL_PARTS};             \
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

/* Training, or a mode known only while running, is the host's. */
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
    if (bytes) PARE_TRY(c->stream->device->backend->fill(c->ctx, c->stream, mask->data, 1, bytes));
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

/* --- SliceGrad --- */

static pare_status clear(const pare_call *c, const pare_view *v)
{
    const size_t bytes = pare_view_bytes(v);
    if (!bytes) return PARE_OK;
    return c->stream->device->backend->fill(c->ctx, c->stream, v->data, 0, bytes);
}

static bool slice_grad_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count; i++)
        if (p->in[i].dtype && !p->in[i].data) return false;
    return pare_cuda_bytes(p->in[0].dtype) > 0;
}

/* Slice's move, from its output to the part of its input. */
static pare_status put_back(const pare_call *c, const pare_view *dy, const pare_view *part)
{
    return pare_cuda_copy(c, part, dy);
}

static pare_status slice_grad_run(const pare_call *c)
{
    pare_view in[5] = {c->out[0]};
    pare_call forward = *c;
    for (int i = 1; i < c->in_count && i < 5; i++) in[i] = c->in[i];
    forward.in = in;
    forward.out = &c->in[0];
    forward.out_count = 1;
    PARE_TRY(clear(c, &c->out[0]));
    return pare_moves_slice(&forward, put_back);
}

static const pare_kernel cuda_slice_grad = {
    .name = "cuda_slice_grad", .can = slice_grad_can, .run = slice_grad_run};
const pare_kernel *const pare_cuda_slice_grad[] = {&cuda_slice_grad, NULL};

/* --- SliceSum of one slice --- */

static bool sum_can(const pare_prep *p)
{
    for (int i = 0; i < p->in_count; i++)
        if (pare_cuda_bytes(p->in[i].dtype) == 0) return false;
    return true;
}

static pare_status sum_run(const pare_call *c)
{
    for (int i = 0; i < c->out_count; i++)
        if (c->out[i].dtype) PARE_TRY(pare_cuda_copy(c, &c->out[i], &c->in[i]));
    return PARE_OK;
}

static const pare_kernel cuda_slice_sum = {
    .name = "cuda_slice_sum", .can = sum_can, .run = sum_run};
const pare_kernel *const pare_cuda_slice_sum[] = {&cuda_slice_sum, NULL};

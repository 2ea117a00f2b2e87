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

static pare_status move(const pare_call *c, const pare_view *dst, const pare_view *src)
{
    const pare_view *both[2] = {dst, src};
    pare_cuda_walk w = {.data = {dst->data, src->data}};
    pare_walk_init(&w.walk, both, 2);
    return PARE_CUDA_LAUNCH(c, pare_cuda_copy_launch, &w, pare_cuda_bytes(dst->dtype));
}

#define MOVES(op)                                                                                  \
    static pare_status op##_run(const pare_call *c) { return pare_moves_##op(c, move); }           \
    static const pare_kernel cuda_##op = {.name = "cuda_" #op, .can = can, .run = op##_run};       \
    const pare_kernel *const pare_cuda_##op[] = {&cuda_##op, NULL};
PARE_MOVES(MOVES)

/* Identity and Dropout at inference: output 1 of Dropout, the mask, is the host's. */
static bool identity_can(const pare_prep *p) { return p->out_count == 1 && can(p); }

static pare_status identity_run(const pare_call *c)
{
    return c->out[0].data == c->in[0].data ? PARE_OK : pare_moves_reorder(c, move);
}

static const pare_kernel cuda_identity = {.name = "cuda_identity",
                                          .can = identity_can,
                                          .run = identity_run,
                                          .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_identity[] = {&cuda_identity, NULL};
const pare_kernel *const pare_cuda_dropout[] = {&cuda_identity, NULL};

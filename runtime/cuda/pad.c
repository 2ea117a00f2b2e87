/* SPDX-License-Identifier: Apache-2.0 */
/* Pad (11 to 21). Constant: the output is filled, then what is left of the input is copied into it.
   Reflect, edge, wrap: a table of input positions an axis. */
#include "runtime/cuda/index_copy.h"
#include "runtime/cuda/kernel.h"
#include "runtime/ops/pad.h"

#include <string.h>

static bool read(const pare_prep *p, pare_pad *pad)
{
    return pare_cuda_bytes(p->in[0].dtype) > 0 &&
           pare_pad_read(p->node, p->in[0].rank, pad) == PARE_OK && pad->known;
}

static bool constant_can(const pare_prep *p)
{
    pare_pad pad;
    return read(p, &pad) && pad.mode == PARE_PAD_CONSTANT;
}

static pare_status constant_prepare(pare_prep *p)
{
    pare_pad *pad = pare_arena_alloc(p->arena, 1, sizeof *pad);
    if (!pad) return PARE_MEMORY;
    p->state = pad;
    return pare_pad_read(p->node, p->in[0].rank, pad);
}

/* Every element of y becomes the one at value (NULL: zero). */
static pare_status fill(const pare_call *c, void *value)
{
    const pare_view *y = &c->out[0];
    if (!value)
        return c->stream->device->backend->fill(c->ctx, c->stream, y->data, 0, pare_view_bytes(y));
    pare_view same = *y;
    memset(same.stride, 0, sizeof same.stride);
    same.data = value;
    return pare_cuda_copy(c, y, &same);
}

static pare_status constant_run(const pare_call *c)
{
    pare_view to = c->out[0], from = c->in[0];
    bool given = c->in_count > 2 && c->in[2].dtype;
    if (!pare_view_count(&to)) return PARE_OK;
    PARE_TRY(fill(c, given ? c->in[2].data : NULL));
    return pare_pad_inside(c->state, &to, &from) ? pare_cuda_copy(c, &to, &from) : PARE_OK;
}

static pare_status lookup_prepare(pare_prep *p)
{
    pare_pad pad;
    int64_t *at[PARE_MAX_RANK];
    PARE_TRY(pare_pad_read(p->node, p->in[0].rank, &pad));
    PARE_TRY(pare_pad_positions(p, &pad, at));
    return pare_cuda_index_copy_new(p, at);
}

static bool lookup_can(const pare_prep *p)
{
    pare_pad pad;
    return read(p, &pad) && pad.mode != PARE_PAD_CONSTANT;
}

static const pare_kernel cuda_pad_constant = {.name = "cuda_pad_constant",
                                              .can = constant_can,
                                              .prepare = constant_prepare,
                                              .run = constant_run};
static const pare_kernel cuda_pad_lookup = {.name = "cuda_pad_lookup",
                                            .can = lookup_can,
                                            .prepare = lookup_prepare,
                                            .run = pare_cuda_index_copy_run,
                                            .release = pare_cuda_index_copy_release};
const pare_kernel *const pare_cuda_pad[] = {&cuda_pad_constant, &cuda_pad_lookup, NULL};

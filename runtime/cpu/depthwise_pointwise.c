/* SPDX-License-Identifier: Apache-2.0 */
/* FusedDepthwisePointwise in plain C: FusedConv's definition into scratch, then once more. */
#include "runtime/cpu/fast.h"
#include "runtime/base/size.h"
#include "runtime/ops/depthwise_pointwise.h"

typedef struct separable_state {
    void *depthwise, *pointwise; /* of FusedConv's kernel */
    pare_view made;              /* by the depthwise convolution: all of scratch */
} separable_state;

static pare_status separable_prepare(pare_prep *p)
{
    separable_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    pare_depthwise_pointwise *two = pare_arena_alloc(p->arena, 1, sizeof *two);
    if (!s || !two) return PARE_MEMORY;
    PARE_TRY(pare_depthwise_pointwise_read(two, p));
    PARE_TRY(pare_ref_fused_conv.prepare(&two->depthwise));
    PARE_TRY(pare_ref_fused_conv.prepare(&two->pointwise));
    s->depthwise = two->depthwise.state, s->pointwise = two->pointwise.state;
    s->made = two->made;
    p->scratch += pare_align_up(pare_view_bytes(&s->made), 64);
    p->state = s;
    return PARE_OK;
}

static pare_status separable_run(const pare_call *c)
{
    const separable_state *s = c->state;
    pare_view made = s->made;
    pare_view in[] = {c->in[0], c->in[PARE_DEPTHWISE_WEIGHTS], {0}, {0}, {0}};
    pare_view then[] = {made, c->in[1], c->in[2], {0}, {0}};
    pare_call first = *c, second = *c;
    made.data = then[0].data = c->scratch;
    if (c->in_count > PARE_DEPTHWISE_BIAS) in[2] = c->in[PARE_DEPTHWISE_BIAS];
    for (int i = 3; i < 5; i++) then[i] = c->in[i];
    first.in = in, first.in_count = 5, first.out = &made, first.out_count = 1;
    first.state = s->depthwise;
    second.in = then, second.in_count = 5, second.state = s->pointwise;
    PARE_TRY(pare_ref_fused_conv.run(&first));
    return pare_ref_fused_conv.run(&second);
}

static const pare_kernel ref_fused_depthwise_pointwise = {.name = "ref_fused_depthwise_pointwise",
                                                          .prepare = separable_prepare,
                                                          .run = separable_run,
                                                          .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_fused_depthwise_pointwise[] = {&ref_fused_depthwise_pointwise,
                                                                 NULL};

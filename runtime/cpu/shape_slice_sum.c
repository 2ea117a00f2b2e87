/* SPDX-License-Identifier: Apache-2.0 */
/* SliceSum of one slice, its own: a copy. pare_replicas runs no kernel but adds up. */
#include "runtime/cpu/ref.h"

static pare_status slice_sum_run(const pare_call *c)
{
    for (int i = 0; i < c->out_count; i++)
        if (c->out[i].dtype) pare_ref_copy(&c->out[i], &c->in[i], c->threads);
    return PARE_OK;
}

static const pare_kernel ref_slice_sum = {.name = "ref_slice_sum",
                                          .can = pare_ref_can_f32_f64,
                                          .run = slice_sum_run,
                                          .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_slice_sum[] = {&ref_slice_sum, NULL};

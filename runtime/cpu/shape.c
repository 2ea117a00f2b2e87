/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, Flatten, Squeeze, Unsqueeze and pare.View: the same bytes under another shape. */
#include "runtime/cpu/copy.h"

#include <string.h>

/* A plan gives output and input one memory; elsewhere the elements are copied. */
static pare_status reshape_run(const pare_call *c)
{
    pare_copy_reshape(&c->out[0], &c->in[0], c->threads);
    return PARE_OK;
}

static pare_status view_run(const pare_call *c)
{
    if (c->out[0].data != c->in[0].data)
        memcpy(c->out[0].data, c->in[0].data, pare_view_bytes(&c->in[0]));
    return PARE_OK;
}

static const pare_kernel alias_reshape = {
    .name = "alias_reshape", .run = reshape_run, .flags = PARE_KERNEL_ALIAS | PARE_KERNEL_REF};
static const pare_kernel alias_view = {
    .name = "alias_view", .run = view_run, .flags = PARE_KERNEL_ALIAS | PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_reshape[] = {&alias_reshape, NULL};
const pare_kernel *const pare_cpu_view[] = {&alias_view, NULL};

/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, Flatten, Squeeze, Unsqueeze and pare.View: the same bytes under another shape; Transpose
   and pare.Reorder: the same elements in another order. */
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

/* Transpose 1: out axis i is in axis perm[i]; without perm the axes are reversed. */
static pare_status transpose_run(const pare_call *c)
{
    int count, order[PARE_MAX_RANK], rank = c->in[0].rank;
    const int64_t *perm = pare_node_ints(c->node, "perm", &count);
    for (int i = 0; i < rank; i++) order[i] = perm ? (int)perm[i] : rank - 1 - i;
    pare_view from = pare_ref_permute(&c->in[0], order);
    pare_copy_view(&c->out[0], &from, c->threads);
    return PARE_OK;
}

static pare_status reorder_run(const pare_call *c)
{
    pare_copy_view(&c->out[0], &c->in[0], c->threads);
    return PARE_OK;
}

static const pare_kernel copy_transpose = {
    .name = "copy_transpose", .can = pare_copy_can, .run = transpose_run, .flags = PARE_KERNEL_REF};
static const pare_kernel copy_reorder = {
    .name = "copy_reorder", .can = pare_copy_can, .run = reorder_run, .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_transpose[] = {&copy_transpose, NULL};
const pare_kernel *const pare_cpu_reorder[] = {&copy_reorder, NULL};

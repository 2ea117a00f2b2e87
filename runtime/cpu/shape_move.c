/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of ops/moves.h, copied by threads. */
#include "runtime/cpu/copy.h"

static pare_status move(const pare_call *c, const pare_view *dst, const pare_view *src)
{
    pare_copy_view(dst, src, c->threads);
    return PARE_OK;
}

#define MOVES(op)                                                                                  \
    static pare_status op##_run(const pare_call *c) { return pare_moves_##op(c, move); }           \
    static const pare_kernel copy_##op = {                                                         \
        .name = "copy_" #op, .can = pare_copy_can, .run = op##_run, .flags = PARE_KERNEL_REF};     \
    const pare_kernel *const pare_cpu_##op[] = {&copy_##op, NULL};
PARE_MOVES(MOVES)

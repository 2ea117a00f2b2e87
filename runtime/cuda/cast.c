/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/cast.h"
#include "runtime/cuda/kernel.h"

static bool castable(const pare_view *v)
{
    bool packed = v->dtype == PARE_s4 || v->dtype == PARE_u4;
    return pare_cuda_is_number(v->dtype) || v->dtype == PARE_bool ||
           (packed && pare_view_rowmajor(v));
}

static bool cast_can(const pare_prep *p) { return castable(&p->in[0]) && castable(&p->out[0]); }

static pare_status cast_run(const pare_call *c)
{
    pare_cuda_walk w;
    pare_cuda_walk_call(&w, c, 1);
    return PARE_CUDA_LAUNCH(c, pare_cuda_cast_launch, &w, c->out[0].dtype, c->in[0].dtype);
}

static const pare_kernel cuda_cast = {.name = "cuda_cast", .can = cast_can, .run = cast_run};
const pare_kernel *const pare_cuda_cast[] = {&cuda_cast, NULL};

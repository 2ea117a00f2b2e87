/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C reference kernels of operators that work element by element. */
#include "runtime/ops/ops.h"

/* ONNX Relu (6, 13, 14): y = max(0, x); NaN stays NaN. */
static pare_status relu_run(const pare_call *c)
{
    const float *x = c->in[0].data;
    float *y = c->out[0].data;
    int64_t n = pare_view_count(&c->out[0]);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
    return PARE_OK;
}

static bool relu_can(const pare_prep *p)
{
    return p->in[0].dtype == PARE_f32 && pare_view_same_order(&p->in[0], &p->out[0]);
}

static const pare_kernel ref_relu = {
    .name = "ref_relu", .can = relu_can, .run = relu_run, .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};

const pare_kernel *const pare_cpu_relu[] = {&ref_relu, NULL};

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/kernel.h"

bool pare_cuda_can_float(const pare_prep *prep, int inputs)
{
    if (prep->in_count < inputs) return false;
    for (int i = 1; i < inputs; i++)
        if (prep->in[i].dtype != prep->in[0].dtype) return false;
    return pare_cuda_is_float(prep->in[0].dtype);
}

int pare_cuda_bytes(pare_dtype dtype)
{
    return dtype == PARE_string ? 0 : pare_type(dtype)->bits / 8;
}

pare_status pare_cuda_launched(const pare_call *call, cudaError_t error, const char *launcher)
{
    if (error == cudaSuccess) return PARE_OK;
    pare_status st = pare_cuda_fail(call->ctx, error, launcher);
    return pare_fail_prefix(call->ctx, st, "node '%s' (%s)", call->node->name, call->node->op_type);
}

// SPDX-License-Identifier: Apache-2.0
// runtime/cuda/comm/nccl_api.h against NVIDIA's header: built and run where it is.
#include <nccl.h>
#include <cstddef>
#include <cstdio>
#include "runtime/cuda/comm/nccl_api.h"
#include "same_call.h"

#define SAME_CALL(returns, name, symbol, parameters)                                               \
    static_assert(same_call<decltype(pare_nccl_api::name), std::decay_t<decltype(symbol)>>::value, \
                  #symbol);
PARE_NCCL_FUNCTIONS(SAME_CALL)

#define SAME(ours, theirs) static_assert(static_cast<long long>(ours) == theirs, #theirs)
SAME(PARE_NCCL_SUCCESS, ncclSuccess);
SAME(PARE_NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(PARE_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(PARE_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(PARE_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(PARE_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(PARE_NCCL_IN_PROGRESS, ncclInProgress);
SAME(PARE_NCCL_F32, ncclFloat32);
SAME(PARE_NCCL_F64, ncclFloat64);
SAME(PARE_NCCL_OLDEST, NCCL_VERSION(2, 14, 0));
SAME(sizeof(pare_nccl_id), sizeof(ncclUniqueId));

// Ours is the beginning of theirs.
static_assert(sizeof(pare_nccl_config) <= sizeof(ncclConfig_t), "ncclConfig_t");
SAME(offsetof(pare_nccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(pare_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(pare_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(pare_nccl_config, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(pare_nccl_config, later), offsetof(ncclConfig_t, cgaClusterSize));
SAME(sizeof(pare_nccl_config), offsetof(ncclConfig_t, minCTAs));

int main()
{
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    printf("NCCL's functions are declared as version %d declares them\n", NCCL_VERSION_CODE);
    return theirs.magic != PARE_NCCL_CONFIG_MAGIC;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of GPU support without opening a device. */
#include "runtime/cuda/gemm/blas.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/device/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const int built[] = {PARE_CUDA_ARCHITECTURES};
enum { BUILT = sizeof built / sizeof *built };

const char *pare_cuda_code(char *text, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < BUILT && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "sm_%d, ", built[i]);
    if (at < bytes) snprintf(text + at, bytes - at, "PTX of compute_%d", built[0]);
    return text;
}

pare_cuda_fit pare_cuda_fits(int major, int minor)
{
    int device = 10 * major + minor;
    for (int i = 0; i < BUILT; i++) /* machine code serves later minors of its own major */
        if (built[i] / 10 == major && built[i] <= device) return PARE_CUDA_NATIVE;
    return device > built[0] ? PARE_CUDA_BY_PTX : PARE_CUDA_TOO_OLD;
}

int pare_cuda_count(char *why, size_t bytes)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (why && bytes) snprintf(why, bytes, "%s", error ? pare_cuda_reason(error) : "");
    if (error == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}

void pare_cuda_versions(int *runtime, int *driver)
{
    *runtime = *driver = 0;
    (void)cudaRuntimeGetVersion(runtime);
    (void)cudaDriverGetVersion(driver);
    (void)cudaGetLastError();
}

pare_status pare_cuda_name(pare_ctx *ctx, int index, char *text, size_t bytes, size_t *memory)
{
    struct cudaDeviceProp facts;
    PARE_CUDA_TRY(ctx, cudaGetDeviceProperties(&facts, index));
    snprintf(text, bytes, "%.200s (sm_%d%d)", facts.name, facts.major, facts.minor);
    *memory = facts.totalGlobalMem;
    return PARE_OK;
}

pare_status pare_cuda_blas_path(pare_ctx *ctx, char *text, size_t bytes)
{
    pare_blas *blas;
    Dl_info info;
    void *symbol;
    PARE_TRY(pare_blas_open(ctx, &blas, NULL));
    symbol = dlsym(blas->lt, "cublasLtCreate");
    bool found = symbol && dladdr(symbol, &info) && info.dli_fname;
    snprintf(text, bytes, "%s", found ? info.dli_fname : "found");
    pare_blas_close(blas);
    return PARE_OK;
}

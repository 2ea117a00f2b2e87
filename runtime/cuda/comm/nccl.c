/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/comm/nccl.h"
#include "runtime/cuda/device/library.h"
#include "runtime/cuda/device/symbol.h"

static pare_status fill(pare_ctx *ctx, pare_nccl_api *out, void *library)
{
#define FIND(returns, name, symbol, parameters)                                                    \
    pare_symbol_find(library, #symbol, &out->name, sizeof out->name);                              \
    if (!out->name)                                                                                \
        return PARE_FAIL(ctx, UNSUPPORTED,                                                         \
                         "the installed NCCL has no " #symbol ": 2.14 or later is needed");
    PARE_NCCL_FUNCTIONS(FIND)
#undef FIND
    return PARE_OK;
}

pare_status pare_nccl_open(pare_ctx *ctx, pare_nccl_api *out, int *version)
{
    const pare_library_place place = {
        .name = "libnccl.so.2", .variable = "PARE_NCCL", .wheel = "nvidia/nccl/lib"};
    void *library = pare_library_open(&place);
    *out = (pare_nccl_api){0};
    *version = 0;
    if (!library)
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "libnccl.so.2 was not found in the folders of PARE_NCCL, on the loader's "
                         "path, in Python's packages (pip install nvidia-nccl-cu13) or a toolkit");
    PARE_TRY(fill(ctx, out, library));
    const int status = out->version(version);
    if (status) return PARE_FAIL(ctx, UNSUPPORTED, "ncclGetVersion failed: %s", out->text(status));
    return PARE_OK;
}

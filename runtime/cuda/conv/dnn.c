/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/conv/dnn.h"
#include "runtime/cuda/device/library.h"
#include "runtime/cuda/device/symbol.h"

static pare_status fill(pare_ctx *ctx, pare_dnn_api *out, void *library)
{
#define FIND(returns, name, symbol, parameters)                                                    \
    pare_symbol_find(library, #symbol, &out->name, sizeof out->name);                              \
    if (!out->name)                                                                                \
        return PARE_FAIL(ctx, UNSUPPORTED,                                                         \
                         "the installed cuDNN has no " #symbol ": version 9 is needed");
    PARE_DNN_FUNCTIONS(FIND)
#undef FIND
    return PARE_OK;
}

pare_status pare_dnn_open(pare_ctx *ctx, pare_dnn_api *out)
{
    const pare_library_place place = {
        .name = "libcudnn.so.9", .variable = "PARE_CUDNN", .wheel = "nvidia/cudnn/lib"};
    void *library = pare_library_open(&place);
    *out = (pare_dnn_api){0};
    if (!library)
        return PARE_FAIL(
            ctx, UNSUPPORTED,
            "libcudnn.so.9 was not found in the folders of PARE_CUDNN, on the loader's "
            "path, in Python's packages (pip install nvidia-cudnn-cu13) or a toolkit");
    return fill(ctx, out, library);
}

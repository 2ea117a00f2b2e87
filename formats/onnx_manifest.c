/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/onnx.h"
#include "runtime/base/version.h"

pare_status pare_onnx_manifest(pare_ctx *ctx, pare_model *model, const char *recipe,
                               const char *data_hash)
{
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_model_set_meta(model, "pare.version", PARE_VERSION));
    if (recipe) PARE_TRY(pare_model_set_meta(model, "pare.recipe", recipe));
    if (data_hash && data_hash[0])
        PARE_TRY(pare_model_set_meta(model, "pare.data_hash", data_hash));
    if (model->path[0] && pare_onnx_hash(ctx, model->path, hash, &bytes) == PARE_OK)
        return pare_model_set_meta(model, "pare.source_hash", hash);
    pare_ctx_clear(ctx); /* a model made in memory has no file */
    return PARE_OK;
}

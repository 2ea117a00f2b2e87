/* SPDX-License-Identifier: Apache-2.0 */
/* What was done, in the file's metadata_props: enough to make the same file again. No clock. */
#include "formats/onnx.h"
#include "prune/prune.h"

#ifndef PARE_VERSION
#define PARE_VERSION "0.1.0"
#endif

pare_status pare_prune_manifest(pare_ctx *ctx, pare_model *model, const char *recipe,
                                const char *data_hash)
{
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_model_set_meta(model, "pare.version", PARE_VERSION));
    PARE_TRY(pare_model_set_meta(model, "pare.recipe", recipe));
    if (data_hash[0]) PARE_TRY(pare_model_set_meta(model, "pare.data_hash", data_hash));
    if (model->path[0] && pare_onnx_hash(ctx, model->path, hash, &bytes) == PARE_OK)
        return pare_model_set_meta(model, "pare.source_hash", hash);
    pare_ctx_clear(ctx); /* a model made in memory has no file */
    return PARE_OK;
}

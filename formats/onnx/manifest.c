/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/onnx.h"
#include "runtime/base/version.h"

#include <string.h>

static const char *find(const pare_model *model, const char *key)
{
    for (int i = 0; i < model->meta.count; i++)
        if (model->meta.item[i].key && !strcmp(model->meta.item[i].key, key))
            return model->meta.item[i].value;
    return NULL;
}

const char *pare_onnx_recipes(const pare_model *model, pare_arena *arena)
{
    const char *now = find(model, "pare.recipe"), *before = find(model, "pare.recipe_before");
    if (!now || !before) return now ? now : before;
    return pare_arena_printf(arena, "%s; %s", before, now);
}

pare_status pare_onnx_recipe(pare_model *model, const char *recipe)
{
    const char *now = find(model, "pare.recipe");
    const bool goes_on = now && !strncmp(recipe, now, strlen(now));
    if (now && !goes_on) {
        const char *all = pare_onnx_recipes(model, &model->arena);
        if (!all) return PARE_MEMORY;
        PARE_TRY(pare_model_set_meta(model, "pare.recipe_before", all));
    }
    return pare_model_set_meta(model, "pare.recipe", recipe);
}

pare_status pare_onnx_manifest(pare_ctx *ctx, pare_model *model, const char *recipe,
                               const char *data_hash)
{
    char hash[33];
    uint64_t bytes;
    PARE_TRY(pare_model_set_meta(model, "pare.version", PARE_VERSION));
    if (recipe) PARE_TRY(pare_onnx_recipe(model, recipe));
    if (data_hash && data_hash[0])
        PARE_TRY(pare_model_set_meta(model, "pare.data_hash", data_hash));
    if (model->path[0] && pare_onnx_hash(ctx, model->path, hash, &bytes) == PARE_OK)
        return pare_model_set_meta(model, "pare.source_hash", hash);
    pare_ctx_clear(ctx); /* a model made in memory has no file */
    return PARE_OK;
}

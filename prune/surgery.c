/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller model, and the masked one of the same size that it equals. */
#include "prune/cut.h"

static pare_status cut_model(pare_model *model, const pare_prune_plan *removal)
{
    PARE_TRY(pare_cut_slice(model, removal));
    PARE_TRY(pare_cut_rewrite(model, removal));
    return pare_cut_verify(model, removal);
}

static pare_status clone_and(pare_ctx *ctx, pare_model **out, const pare_prune_plan *removal,
                             pare_status (*fn)(pare_model *model, const pare_prune_plan *removal))
{
    pare_model *model;
    PARE_TRY(pare_prune_plan_check(ctx, removal));
    PARE_TRY(pare_model_clone(ctx, &model, removal->groups->model));
    pare_status st = removal->count ? fn(model, removal) : PARE_OK;
    if (st == PARE_OK)
        *out = model;
    else
        pare_model_free(model);
    return st;
}

pare_status pare_prune_masked(pare_ctx *ctx, pare_model **out, const pare_prune_plan *removal)
{
    return clone_and(ctx, out, removal, pare_cut_mask);
}

pare_status pare_prune_remove(pare_ctx *ctx, pare_model **out, const pare_prune_plan *removal)
{
    return clone_and(ctx, out, removal, cut_model);
}

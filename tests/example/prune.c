/* SPDX-License-Identifier: Apache-2.0 */
/* Removes channels of a model until half of its multiply-adds are left: prune MODEL OUT. Channels
   are ranked by the L2 norm of their weights. */
#include <pare.h>

#include <stdio.h>

static pare_status prune(pare_ctx *ctx, const char *path, const char *out)
{
    pare_model *model = NULL, *smaller = NULL;
    pare_groups *groups = NULL;
    pare_prune_plan *plan = NULL;
    double *score = NULL, left = 0;
    pare_onnx_write_options writing;
    pare_onnx_write_options_init(&writing);
    pare_status st = pare_onnx_read(ctx, &model, path);
    if (st == PARE_OK) st = pare_prune_prepare(ctx, model);
    if (st == PARE_OK) st = pare_groups_new(ctx, &groups, model, NULL);
    if (st == PARE_OK) st = pare_prune_plan_new(ctx, &plan, groups);
    if (st != PARE_OK) goto done;

    const pare_score_request request = {.groups = groups};
    const double before = plan->cost.macs;
    const pare_prune_target target = {
        .cost = pare_target_macs, .goal = before / 2, .by_score = true, .floor = 1, .round = 1};
    score = pare_alloc(ctx, (size_t)groups->coupled_count, sizeof *score);
    st = score ? pare_score_channels(ctx, score, PARE_SCORE_L2, &request) : PARE_MEMORY;
    if (st == PARE_OK) st = pare_target_reach(ctx, plan, score, &target, &left);
    if (st == PARE_OK) st = pare_prune_remove(ctx, &smaller, plan);
    if (st == PARE_OK) st = pare_onnx_write(ctx, smaller, out, &writing);
    if (st == PARE_OK) printf("%s: %.1f %% of the multiply-adds left\n", out, 100 * left / before);
done:
    pare_free(score);
    if (smaller) pare_model_free(smaller);
    pare_prune_plan_free(plan);
    pare_groups_free(groups);
    if (model) pare_model_free(model);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (argc != 3) return 2;
    pare_status st = prune(&ctx, argv[1], argv[2]);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    return pare_status_exit_code(st);
}

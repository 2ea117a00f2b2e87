/* SPDX-License-Identifier: Apache-2.0 */
/* Removes channels of a model until a run takes a part of its time: prune_latency MODEL PART OUT.
 */
#include <pare.h>

#include <stdio.h>
#include <stdlib.h>

static pare_status prune(pare_ctx *ctx, char **argument)
{
    pare_model *model = NULL, *smaller = NULL;
    pare_pruner *pruner = NULL;
    pare_pruner_options options;
    pare_onnx_write_options writing;
    pare_pruner_options_init(&options);
    options.by = PARE_PRUNE_BY_LATENCY;
    pare_onnx_write_options_init(&writing);
    pare_status st = pare_onnx_read(ctx, &model, argument[1]);
    if (st == PARE_OK) st = pare_prune_prepare(ctx, model);
    if (st == PARE_OK) st = pare_pruner_new(ctx, &pruner, model, &options);
    if (st == PARE_OK) st = pare_pruner_run(pruner, atof(argument[2]), &smaller);
    if (st == PARE_OK) st = pare_pruner_time(pruner, smaller);
    if (st == PARE_OK) st = pare_onnx_write(ctx, smaller, argument[3], &writing);
    if (st == PARE_OK) {
        const pare_pruner_facts *facts = pare_pruner_result(pruner);
        printf("%s: %.4g ms before, %.4g ms after, %d channels removed\n", argument[3],
               facts->latency.before_ms, facts->latency.after_ms, facts->plan->count);
    }
    pare_model_free(smaller);
    pare_pruner_free(pruner);
    pare_model_free(model);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (argc != 4) return 2;
    pare_status st = prune(&ctx, argv);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    return pare_status_exit_code(st);
}

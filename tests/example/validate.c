/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a quantized model with its FP32 model on a data set: validate FP32 INT8 DATA.h5. */
#include <pare.h>

#include <stdio.h>

enum { SAMPLES = 1000, BATCH = 50 };

static pare_status validate(pare_ctx *ctx, char **path)
{
    pare_model *fp32 = NULL, *int8 = NULL;
    pare_data *data = NULL;
    pare_comparison *comparison = NULL;
    pare_comparison_options options;
    int64_t sample[SAMPLES];
    pare_comparison_options_init(&options);
    pare_status st = pare_onnx_read(ctx, &fp32, path[1]);
    if (st == PARE_OK) st = pare_onnx_read(ctx, &int8, path[2]);
    if (st != PARE_OK) goto done;

    const pare_model *models[] = {fp32, int8};
    const pare_value *in = fp32->graph->in.item[0];
    const pare_data_input input = {.name = in->name, .dtype = in->dtype, .shape = in->shape};
    if ((st = pare_data_open(ctx, &data, path[3], &input, 1)) != PARE_OK) goto done;
    pare_data_spread(0, pare_data_count(data), SAMPLES, sample);
    const pare_eval_samples samples = {.data = data,
                                       .inputs = &input,
                                       .input_count = 1,
                                       .samples = sample,
                                       .count = SAMPLES,
                                       .batch = BATCH,
                                       .name = path[3]};
    st = pare_comparison_new(ctx, &comparison, models, 2, &options);
    if (st == PARE_OK) st = pare_comparison_run(comparison, &samples, NULL);
    for (int k = 0; st == PARE_OK && k < 2; k++) {
        const pare_candidate *c = pare_comparison_candidate(comparison, k);
        printf("%s: %.1f %% top-1, %.1f %% agree\n", path[1 + k], 100.0 * c->top1 / SAMPLES,
               k ? 100.0 * c->agreed / SAMPLES : 100.0);
    }
done:
    pare_comparison_free(comparison);
    if (data) pare_data_close(data);
    pare_model_free(int8);
    pare_model_free(fp32);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (argc != 4) return 2;
    pare_status st = validate(&ctx, argv);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    return pare_status_exit_code(st);
}

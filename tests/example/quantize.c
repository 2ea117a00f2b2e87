/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizes a model with libpare: quantize MODEL DATA.h5 OUT. Build it against the installed
   library: cc quantize.c $(pkg-config --cflags pare) $(pkg-config --static --libs pare) -o quantize
 */
#include <pare.h>

#include <stdio.h>

static pare_status quantize(pare_ctx *ctx, const char *path, const char *samples, const char *out)
{
    pare_model *model = NULL;
    pare_data *data = NULL;
    pare_quant_facts facts;
    pare_quant_options options;
    pare_onnx_write_options writing;
    pare_quant_options_init(&options);
    pare_onnx_write_options_init(&writing);
    pare_status st = pare_onnx_read(ctx, &model, path);
    if (st != PARE_OK) goto done;

    const pare_value *in = model->graph->in.item[0];
    const pare_data_input input = {.name = in->name, .dtype = in->dtype, .shape = in->shape};
    if ((st = pare_data_open(ctx, &data, samples, &input, 1)) != PARE_OK) goto done;
    st = pare_quantize_on_data(ctx, model, data, &options, NULL, &facts);
    if (st == PARE_OK) st = pare_onnx_write(ctx, model, out, &writing);
    if (st == PARE_OK)
        printf("%s: %d nodes quantized, %d left float\n", out, facts.quantized_nodes,
               facts.float_nodes);
done:
    if (data) pare_data_close(data);
    if (model) pare_model_free(model);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (argc != 4) return 2;
    pare_status st = quantize(&ctx, argv[1], argv[2], argv[3]);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    return pare_status_exit_code(st);
}

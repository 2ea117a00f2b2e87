/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizes a model with libpare: quantize MODEL DATA.h5 OUT. Build it against the installed
   library: cc quantize.c $(pkg-config --cflags pare) $(pkg-config --static --libs pare) -o quantize
 */
#include <tools/pare.h>

#include <stdio.h>

static pare_status quantize(pare_ctx *ctx, const char *path, const char *samples, const char *out)
{
    pare_model *model = NULL;
    pare_data *data = NULL;
    pare_ranges *ranges = NULL;
    pare_quant_facts facts = {0};
    pare_quant_options options = {.rule = {.method = PARE_METHOD_AUTO, .symmetric = true}};
    pare_onnx_write_options writing = {0};
    int64_t index[512];
    char hash[33];
    uint64_t bytes;
    pare_status st;
    if ((st = pare_onnx_read(ctx, &model, path)) != PARE_OK) goto done;
    if ((st = pare_onnx_hash(ctx, path, hash, &bytes)) != PARE_OK) goto done;
    if ((st = pare_quant_prepare(ctx, model, &options)) != PARE_OK) goto done;

    const pare_value *in = model->graph->in.item[0];
    pare_data_input input = {.name = in->name, .dtype = in->dtype, .shape = in->shape};
    if ((st = pare_data_open(ctx, &data, samples, &input, 1)) != PARE_OK) goto done;
    int64_t n = pare_data_count(data) < 512 ? pare_data_count(data) : 512;
    pare_data_spread(0, pare_data_count(data), n, index);
    pare_calib_options calib = {
        .samples = index, .sample_count = n, .batch = 64, .model_hash = hash};

    if ((st = pare_calibrate(ctx, &ranges, model, data, &calib)) != PARE_OK) goto done;
    if ((st = pare_quantize(ctx, model, ranges, &options, &facts)) != PARE_OK) goto done;
    if ((st = pare_onnx_write(ctx, model, out, &writing)) != PARE_OK) goto done;
    printf("%s: %d nodes quantized, %d left float\n", out, facts.quantized_nodes,
           facts.float_nodes);
done:
    if (ranges) pare_ranges_free(ranges);
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

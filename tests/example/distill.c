/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a student to give what its teacher gives: distill TEACHER STUDENT DATA.h5 OUT. */
#include <pare.h>

#include <stdio.h>

static pare_status distill(pare_ctx *ctx, char **path)
{
    pare_model *teacher = NULL, *student = NULL;
    pare_data *data = NULL;
    pare_distill_options options;
    pare_distill_result result;
    pare_onnx_write_options writing;
    pare_onnx_write_options_init(&writing);
    pare_status st = pare_onnx_read(ctx, &teacher, path[1]);
    if (st == PARE_OK) st = pare_onnx_read(ctx, &student, path[2]);
    if (st != PARE_OK) goto done;

    const pare_value *in = student->graph->in.item[0];
    const pare_data_input input = {.name = in->name, .dtype = in->dtype, .shape = in->shape};
    if ((st = pare_data_open(ctx, &data, path[3], &input, 1)) != PARE_OK) goto done;
    pare_distill_options_init(&options);
    options.steps = 20;
    st = pare_distill(ctx, &result, teacher, student, data, &options);
    if (st == PARE_OK) st = pare_onnx_write(ctx, student, path[4], &writing);
    if (st == PARE_OK)
        printf("%s: held-out loss %.4g before, %.4g after\n", path[4], result.before.loss,
               result.after.loss);
done:
    if (data) pare_data_close(data);
    if (student) pare_model_free(student);
    if (teacher) pare_model_free(teacher);
    return st;
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    if (argc != 5) return 2;
    pare_status st = distill(&ctx, argv);
    if (st != PARE_OK) fprintf(stderr, "%s\n", ctx.message);
    return pare_status_exit_code(st);
}

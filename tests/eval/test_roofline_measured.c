/* SPDX-License-Identifier: Apache-2.0 */
/* The model of kernels by wgmma, and of split depths, beside what an H200 measured of each: INT8
   convolutions and products, and FP16 convolutions, of tests/bench/results/2026-11-26-h200/
   benches.csv, with bias and ReLU, read where the test starts: at the top of the source tree. This
   build's kernels take a few instructions less. */
#include "runtime/eval/roofline/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char results[] = "tests/bench/results/2026-11-26-h200/benches.csv";

/* The product of a line, and its tile; false: the line is of something else. */
static bool line_read(const char *line, pare_gpu_product *p, char tile[16], double *us)
{
    int side, stride, across, in, filters, kernel, batch, depth, columns;
    *p = (pare_gpu_product){
        .type = PARE_s8, .y = PARE_s8, .batches = 1, .chunks = true, .plain = true, .wgmma = true};
    if (sscanf(line, "conv,conv%dx%*d/%d %dx%d %d-%d,%d,s8,pare:cuda_conv_wgmma_%15[0-9x],%lf",
               &kernel, &stride, &side, &across, &in, &filters, &batch, tile, us) == 9) {
        const double out = (side + stride - 1) / stride, pixels = (double)batch * side * across;
        p->picture = kernel > 1 || stride > 1;
        p->narrow = in % 128 != 0;
        p->rows = batch * out * out, p->columns = filters, p->depth = (double)in * kernel * kernel;
        p->bytes = pixels * in + p->rows * filters + p->depth * filters;
        return true;
    }
    if (sscanf(line, "matmul,matmul %d-%d,%d,s8,pare:cuda_matmul_wgmma_%15[0-9x],%lf", &depth,
               &columns, &batch, tile, us) == 5) {
        p->rows = 128.0 * batch, p->columns = columns, p->depth = depth;
        p->bytes = p->rows * (depth + columns) + (double)depth * columns;
        return true;
    }
    return false;
}

static void an_h200_is_met(void **state)
{
    (void)state;
    pare_ctx ctx;
    const pare_gpu_spec *h200;
    char line[512], tile[16];
    FILE *f = fopen(results, "r");
    int count = 0;
    double logs = 0;
    pare_ctx_init(&ctx);
    assert_non_null(f);
    assert_int_equal(pare_gpu_spec_find(&ctx, &h200, "h200"), PARE_OK);
    while (fgets(line, sizeof line, f)) {
        pare_gpu_product p;
        pare_roofline_step s = {0};
        double us;
        if (!line_read(line, &p, tile, &us)) continue;
        pare_wgmma_predict(h200, pare_sass_counts, "conv", &p, tile, &s);
        if (!s.launches) fail_msg("no kernel: %s", line);
        const double ratio = s.seconds * 1e6 / us;
        if (!(ratio > 0.75 && ratio < 1.25)) fail_msg("predicted %.2f of %s", ratio, line);
        logs += log(ratio);
        count++;
    }
    fclose(f);
    pare_ctx_clear(&ctx);
    assert_int_equal(count, 61);
    const double middle = exp(logs / count);
    if (!(middle > 0.93 && middle < 1.05)) fail_msg("predicted %.3f of the mean", middle);
}

/* The same of a convolution whose depth is split. */
static bool split_read(const char *line, pare_gpu_product *p, double *us)
{
    int side, stride, across, in, filters, kernel, batch;
    char type[8];
    if (sscanf(line, "conv,conv%dx%*d/%d %dx%d %d-%d,%d,%7[^,],pare:cuda_conv_split,%lf", &kernel,
               &stride, &side, &across, &in, &filters, &batch, type, us) != 9 ||
        (strcmp(type, "s8") && strcmp(type, "f16")))
        return false;
    const pare_dtype of = strcmp(type, "s8") ? PARE_f16 : PARE_s8;
    *p = (pare_gpu_product){.type = of, .y = of, .batches = 1, .chunks = true, .plain = true};
    const double out = (side + stride - 1) / stride, pixels = (double)batch * side * across;
    p->picture = kernel > 1 || stride > 1;
    p->rows = batch * out * out, p->columns = filters, p->depth = (double)in * kernel * kernel;
    p->bytes = (pixels * in + p->rows * filters + p->depth * filters) * (of == PARE_s8 ? 1 : 2);
    return true;
}

static void splits_of_an_h200_are_met(void **state)
{
    (void)state;
    pare_ctx ctx;
    const pare_gpu_spec *h200;
    char line[512];
    FILE *f = fopen(results, "r");
    int count = 0;
    double logs = 0;
    pare_ctx_init(&ctx);
    assert_non_null(f);
    assert_int_equal(pare_gpu_spec_find(&ctx, &h200, "h200"), PARE_OK);
    while (fgets(line, sizeof line, f)) {
        pare_gpu_product p;
        pare_roofline_step s = {0};
        double us;
        if (!split_read(line, &p, &us)) continue;
        pare_split_predict(h200, pare_sass_counts, "conv", &p, &s);
        if (!s.launches) fail_msg("no kernel: %s", line);
        const double ratio = s.seconds * 1e6 / us;
        if (!(ratio > 0.7 && ratio < 1.3)) fail_msg("predicted %.2f of %s", ratio, line);
        logs += log(ratio);
        count++;
    }
    fclose(f);
    pare_ctx_clear(&ctx);
    assert_int_equal(count, 32);
    const double middle = exp(logs / count);
    if (!(middle > 0.93 && middle < 1.07)) fail_msg("predicted %.3f of the mean", middle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_h200_is_met),
                                       cmocka_unit_test(splits_of_an_h200_are_met)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Scores of channels by their weights, on the device against the host: every bit. */
#include "formats/onnx.h"
#include "prune/score.h"
#include "runtime/cuda/cuda.h"
#include "runtime/ops/scores.h"
#include "tests/simt/testing.h"

#include <math.h>

static pare_ctx ctx;

static pare_device *open_device(void)
{
    pare_device *d;
    pare_ctx_init(&ctx);
    if (pare_cuda_open(&ctx, &d, 0, 0) != PARE_OK) fail_msg("%s", ctx.message);
    return d;
}

static float *numbers(int64_t n, uint32_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)test_random(&seed) / 16777216.0f - 0.5f) * (float)(1 + i % 7);
    return x;
}

/* Units of a grouped convolution's weight, of a matrix, of a vector. */
static void sums_of_units_are_the_hosts(void **state)
{
    (void)state;
    static const pare_score_units cases[] = {
        {1, 40, 27, 1, false}, {1, 40, 27, 1, true},  {12, 5, 9, 4, false},
        {30, 131, 1, 1, true}, {1, 300, 1, 1, false}, {6, 2, 3, 3, true},
    };
    pare_device *d = open_device();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const pare_score_units *u = &cases[k];
        int64_t n = u->outer * u->dim * u->inner, units = u->parts * u->dim;
        float *x = numbers(n, (uint32_t)k + 1);
        double sum[400], wanted[400];
        for (int64_t i = 0; i < units; i++) sum[i] = wanted[i] = (double)i;
        for (int64_t o = 0; o < u->outer; o++)
            for (int64_t c = 0; c < u->dim; c++) {
                double s = 0;
                for (int64_t i = 0; i < u->inner; i++) {
                    double v = (double)x[(o * u->dim + c) * u->inner + i];
                    s += u->squares ? v * v : fabs(v);
                }
                wanted[o * u->parts / u->outer * u->dim + c] += s;
            }
        assert_int_equal(d->scores->units(&ctx, d, sum, x, u), PARE_OK);
        assert_memory_equal(sum, wanted, (size_t)units * sizeof *sum);
        free(x);
    }
    pare_device_close(d);
}

/* Rows more than one launch measures; widths off the tiles; parts. */
static void distances_are_the_hosts(void **state)
{
    (void)state;
    static const int cases[][3] = {{5, 3, 1}, {17, 70, 2}, {270, 33, 1}, {33, 32, 3}};
    pare_device *d = open_device();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int count = cases[k][0], width = cases[k][1], part[300];
        float *x = numbers((int64_t)count * width, (uint32_t)k + 9);
        double sum[300] = {0}, wanted[300] = {0};
        for (int a = 0; a < count; a++) part[a] = a % cases[k][2];
        for (int a = 0; a < count; a++)
            for (int b = 0; b < count; b++) {
                double s = 0;
                for (int i = 0; i < width; i++) {
                    double e = (double)x[a * width + i] - (double)x[b * width + i];
                    s += e * e;
                }
                if (a != b && part[a] == part[b]) wanted[a] += sqrt(s);
            }
        assert_int_equal(d->scores->distances(&ctx, d, sum, x, part, count, width), PARE_OK);
        assert_memory_equal(sum, wanted, (size_t)count * sizeof *sum);
        free(x);
    }
    pare_device_close(d);
}

static void nets_score_the_same(void **state)
{
    (void)state;
    static const char *const nets[] = {"cnn", "mobilenet"};
    static const pare_score kinds[] = {PARE_SCORE_L1, PARE_SCORE_L2, PARE_SCORE_BN,
                                       PARE_SCORE_FPGM};
    pare_device *d = open_device();
    for (int n = 0; n < 2; n++) {
        char path[64];
        pare_model *model;
        pare_groups *groups;
        snprintf(path, sizeof path, "datasets/zoo/%s.onnx", nets[n]);
        assert_int_equal(pare_onnx_read(&ctx, &model, path), PARE_OK);
        assert_int_equal(pare_prune_prepare(&ctx, model), PARE_OK);
        assert_int_equal(pare_groups_new(&ctx, &groups, model, NULL), PARE_OK);
        size_t bytes = (size_t)groups->component_count * sizeof(double);
        double *here = malloc(bytes), *there = malloc(bytes);
        assert_true(here && there && groups->component_count > 0);
        for (int k = 0; k < 4; k++) {
            if (pare_score_from_weights(&ctx, here, groups, kinds[k], 0) != PARE_OK) {
                pare_ctx_clear(&ctx); /* no BatchNormalization */
                assert_int_equal(kinds[k], PARE_SCORE_BN);
                continue;
            }
            assert_int_equal(pare_score_from_weights_on(&ctx, there, groups, kinds[k], 0, d),
                             PARE_OK);
            assert_memory_equal(here, there, bytes);
        }
        free(here);
        free(there);
        pare_groups_free(groups);
        pare_model_free(model);
    }
    pare_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(sums_of_units_are_the_hosts),
        device_test(distances_are_the_hosts),
        device_test(nets_score_the_same),
    };
    return device_is_there() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}

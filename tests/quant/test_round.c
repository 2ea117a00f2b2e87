/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding of matrices: grids, and GPTQ against what its paper's formula gives column by column. */
#include "quant/rounding/round.h"
#include "tests/quant/random_number.h"
#include "runtime/base/ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 7, COLUMNS = 300, SAMPLES = 900 };

/* Inputs whose neighbours have much in common, and random weights. */
typedef struct layer {
    double x[SAMPLES][COLUMNS], w[ROWS * COLUMNS];
    pare_moments *moments;
} layer;

static layer *layer_new(pare_ctx *ctx)
{
    uint64_t seed = 5;
    layer *l = calloc(1, sizeof *l);
    assert_non_null(l);
    assert_int_equal(pare_moments_new(ctx, &l->moments, COLUMNS, 0), PARE_OK);
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < COLUMNS; i++)
            l->x[s][i] = random_number(&seed) + (i ? 0.9 * l->x[s][i - 1] : 0);
    for (int i = 0; i < ROWS * COLUMNS; i++) l->w[i] = random_number(&seed);
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < COLUMNS; i++)
            for (int j = i; j < COLUMNS; j++)
                l->moments->xx[i * COLUMNS + j] += l->x[s][i] * l->x[s][j];
    l->moments->rows = SAMPLES;
    return l;
}

static void layer_free(layer *l)
{
    pare_moments_free(l->moments);
    free(l);
}

/* Mean squared error of the layer's outputs. */
static double error_of(const layer *l, const int8_t *level, const float *scale, int64_t group)
{
    const int64_t groups = (COLUMNS + group - 1) / group;
    double sum = 0;
    for (int s = 0; s < SAMPLES; s++)
        for (int r = 0; r < ROWS; r++) {
            double e = 0;
            for (int i = 0; i < COLUMNS; i++)
                e += l->x[s][i] *
                     (l->w[r * COLUMNS + i] -
                      (double)level[r * COLUMNS + i] * (double)scale[r * groups + i / group]);
            sum += e * e;
        }
    return sum / SAMPLES / ROWS;
}

static void a_scale_serves_numbers_on_its_grid(void **state)
{
    (void)state;
    const pare_quant_grid four = {.low = -8, .high = 7};
    const double w[] = {-8, 7, 3, 0, -1, 5}, zeros[4] = {0}, whole[] = {7, -7, 3.5};
    double error = 0;
    const float scale = pare_quant_group_scale(w, NULL, 6, &four);
    for (int i = 0; i < 6; i++) error += pow(w[i] - rint(w[i] / (double)scale) * (double)scale, 2);
    assert_true(error < 1e-9); /* the largest is the lowest level */
    assert_true(pare_quant_group_scale(zeros, NULL, 4, &four) == 1);
    assert_true(pare_quant_group_scale(whole, NULL, 2, &four) == 1);
    const double odd[] = {7, 2.4}, counts[] = {0, 1};
    const double own = (double)pare_quant_group_scale(odd, counts, 2, &four);
    assert_true(fabs(2.4 - rint(2.4 / own) * own) < 0.01); /* what counts nothing may be clipped */
    assert_int_equal(pare_quant_groups(&four, 100), 1);
    assert_int_equal(pare_quant_groups(&(pare_quant_grid){.low = -8, .high = 7, .group = 32}, 100),
                     4);
    assert_int_equal(pare_quant_groups(&(pare_quant_grid){.low = -8, .high = 7, .group = 128}, 100),
                     1);
}

/* The paper's loop: after each column, the inverse loses it. */
static void plain_gptq(const layer *l, int row, const double *inverse, const int64_t *order,
                       const float *scale, int64_t group, int8_t *level)
{
    double *c = malloc(sizeof(double) * COLUMNS * COLUMNS), w[COLUMNS];
    bool gone[COLUMNS] = {false};
    assert_non_null(c);
    memcpy(c, inverse, sizeof(double) * COLUMNS * COLUMNS);
    memcpy(w, l->w + row * COLUMNS, sizeof w);
    for (int n = 0; n < COLUMNS; n++) {
        const int64_t i = order[n];
        const double s = (double)scale[i / group], q = fmin(fmax(rint(w[i] / s), -8), 7);
        const double pivot = c[i * COLUMNS + i], e = (w[i] - q * s) / pivot;
        level[i] = (int8_t)q;
        gone[i] = true;
        for (int j = 0; j < COLUMNS; j++)
            if (!gone[j]) w[j] -= e * c[i * COLUMNS + j];
        for (int a = 0; a < COLUMNS; a++)
            for (int b = 0; b < COLUMNS; b++)
                if (!gone[a] && !gone[b])
                    c[a * COLUMNS + b] -= c[a * COLUMNS + i] * c[i * COLUMNS + b] / pivot;
    }
    free(c);
}

static void gptq(pare_ctx *ctx, const layer *l, const pare_quant_grid *grid, int rows_at_once,
                 int threads, int8_t *level, float *scale)
{
    const int64_t groups = pare_quant_groups(grid, COLUMNS);
    pare_quant_gptq *g;
    assert_int_equal(pare_quant_gptq_new(ctx, &g, l->moments, false, threads), PARE_OK);
    for (int r = 0; r < ROWS; r += rows_at_once) {
        const int n = ROWS - r < rows_at_once ? ROWS - r : rows_at_once;
        assert_int_equal(pare_quant_round_gptq(ctx, g, l->w + r * COLUMNS, n, grid,
                                               level + r * COLUMNS, scale + r * groups, threads),
                         PARE_OK);
    }
    pare_quant_gptq_free(g);
}

static void gptq_is_the_papers(void **state)
{
    (void)state;
    static const int64_t groups[] = {32, 200, 1, 0};
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    double *inverse = malloc(sizeof(double) * COLUMNS * COLUMNS), ridge = 1e-2;
    pare_quant_gptq *g;
    assert_int_equal(pare_moments_inverse(&ctx, l->moments, false, &ridge, 1, inverse), PARE_OK);
    assert_int_equal(pare_quant_gptq_new(&ctx, &g, l->moments, false, 1), PARE_OK);
    for (int i = 1; i < COLUMNS; i++) { /* the dearest first */
        const int64_t a = g->order[i - 1], b = g->order[i];
        assert_true(l->moments->xx[a * COLUMNS + a] >= l->moments->xx[b * COLUMNS + b]);
    }
    for (int i = 0; i < 4; i++) {
        const pare_quant_grid grid = {.low = -8, .high = 7, .group = groups[i]};
        const int64_t group = groups[i] ? groups[i] : COLUMNS;
        const size_t scales = ROWS * (size_t)pare_quant_groups(&grid, COLUMNS);
        static int8_t level[ROWS * COLUMNS], again[ROWS * COLUMNS], plain[COLUMNS];
        static float scale[ROWS * COLUMNS], same[ROWS * COLUMNS];
        gptq(&ctx, l, &grid, ROWS, 1, level, scale);
        gptq(&ctx, l, &grid, 2, 2, again, same); /* rows cut otherwise, more threads */
        assert_memory_equal(level, again, sizeof level);
        assert_memory_equal(scale, same, scales * sizeof *scale);
        for (int r = 0; r < ROWS; r++) {
            const float *own = scale + r * pare_quant_groups(&grid, COLUMNS);
            plain_gptq(l, r, inverse, g->order, own, group, plain);
            assert_memory_equal(level + r * COLUMNS, plain, COLUMNS);
        }
    }
    pare_quant_gptq_free(g);
    free(inverse);
    layer_free(l);
}

static void scales_that_are_set_stay(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    const pare_quant_grid grid = {.low = -8, .high = 7, .set = true};
    static int8_t level[ROWS * COLUMNS];
    float scale[ROWS];
    for (int r = 0; r < ROWS; r++) scale[r] = 0.25f + 0.01f * (float)r;
    gptq(&ctx, l, &grid, ROWS, 1, level, scale);
    for (int r = 0; r < ROWS; r++) assert_true(scale[r] == 0.25f + 0.01f * (float)r);
    assert_true(error_of(l, level, scale, COLUMNS) > 0);
    layer_free(l);
}

static void gptq_errs_less_than_the_nearest(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    const pare_quant_grid grid = {.low = -8, .high = 7, .group = 32};
    static int8_t level[ROWS * COLUMNS], nearest[ROWS * COLUMNS];
    static float scale[ROWS * COLUMNS], own[ROWS * COLUMNS];
    pare_quant_round_nearest(l->w, ROWS, COLUMNS, &grid, nearest, own, 2);
    gptq(&ctx, l, &grid, ROWS, 2, level, scale);
    const double before = error_of(l, nearest, own, 32), after = error_of(l, level, scale, 32);
    if (!(after < 0.5 * before)) fail_msg("error %g, %g to the nearest", after, before);
    layer_free(l);
}

static void moments_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    pare_quant_gptq *g = NULL;
    l->moments->xx[5] = (double)NAN;
    assert_int_equal(pare_quant_gptq_new(&ctx, &g, l->moments, false, 1), PARE_INPUT);
    assert_null(g);
    assert_non_null(strstr(ctx.message, "not finite"));
    layer_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_scale_serves_numbers_on_its_grid),
                                       cmocka_unit_test(gptq_is_the_papers),
                                       cmocka_unit_test(scales_that_are_set_stay),
                                       cmocka_unit_test(gptq_errs_less_than_the_nearest),
                                       cmocka_unit_test(moments_that_are_not_finite_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

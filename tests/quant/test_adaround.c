/* SPDX-License-Identifier: Apache-2.0 */
/* AdaRound against every rounding of small rows, and what a layer's rounding aims at against the
   normal equations. */
#include "quant/rounding/round.h"
#include "tests/quant/random_number.h"
#include "runtime/base/ctx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 40, COLUMNS = 10, SAMPLES = 300 };

/* Inputs that have much in common, now and before; targets are what W makes of those before. */
typedef struct layer {
    double now[SAMPLES][COLUMNS], before[SAMPLES][COLUMNS], w[ROWS * COLUMNS];
    pare_moments *outputs, *inputs; /* with these as targets */
} layer;

static void add(layer *l, int s)
{
    double y[ROWS] = {0};
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < COLUMNS; k++) y[r] += l->w[r * COLUMNS + k] * l->before[s][k];
    for (int i = 0; i < COLUMNS; i++) {
        for (int j = i; j < COLUMNS; j++)
            l->outputs->xx[i * COLUMNS + j] += l->now[s][i] * l->now[s][j];
        for (int r = 0; r < ROWS; r++) l->outputs->xt[i * ROWS + r] += l->now[s][i] * y[r];
        for (int j = 0; j < COLUMNS; j++)
            l->inputs->xt[i * COLUMNS + j] += l->now[s][i] * l->before[s][j];
        l->outputs->x[i] += l->now[s][i];
    }
    for (int r = 0; r < ROWS; r++) l->outputs->t[r] += y[r];
}

static layer *layer_new(pare_ctx *ctx)
{
    uint64_t seed = 11;
    layer *l = calloc(1, sizeof *l);
    assert_non_null(l);
    assert_int_equal(pare_moments_new(ctx, &l->outputs, COLUMNS, ROWS), PARE_OK);
    assert_int_equal(pare_moments_new(ctx, &l->inputs, COLUMNS, COLUMNS), PARE_OK);
    for (int i = 0; i < ROWS * COLUMNS; i++) l->w[i] = random_number(&seed);
    for (int s = 0; s < SAMPLES; s++) {
        for (int k = 0; k < COLUMNS; k++) {
            l->before[s][k] = 0.4 + random_number(&seed) + (k ? 0.8 * l->before[s][k - 1] : 0);
            l->now[s][k] = 0.9 * l->before[s][k] + 0.1 * random_number(&seed);
        }
        add(l, s);
    }
    l->outputs->rows = l->inputs->rows = SAMPLES;
    memcpy(l->inputs->xx, l->outputs->xx, sizeof(double) * COLUMNS * COLUMNS);
    return l;
}

static void layer_free(layer *l)
{
    pare_moments_free(l->outputs);
    pare_moments_free(l->inputs);
    free(l);
}

static double error_of(const double *h, const double *w, const int8_t *level, double scale)
{
    double sum = 0;
    for (int i = 0; i < COLUMNS; i++)
        for (int j = 0; j < COLUMNS; j++)
            sum += (level[i] * scale - w[i]) * h[i * COLUMNS + j] * (level[j] * scale - w[j]);
    return sum;
}

/* The least error of the 2^COLUMNS roundings up or down. */
static double least_of(const double *h, const double *w, double scale)
{
    double least = INFINITY;
    for (int bits = 0; bits < 1 << COLUMNS; bits++) {
        int8_t level[COLUMNS];
        for (int k = 0; k < COLUMNS; k++)
            level[k] = (int8_t)(fmin(fmax(floor(w[k] / scale), -8), 6) + (bits >> k & 1));
        least = fmin(least, error_of(h, w, level, scale));
    }
    return least;
}

static void near_the_best_of_all_roundings(void **state)
{
    (void)state;
    const pare_quant_grid grid = {.low = -8, .high = 7, .set = true};
    static int8_t nearest[ROWS * COLUMNS], level[ROWS * COLUMNS], again[ROWS * COLUMNS],
        start[ROWS * COLUMNS];
    static double h[COLUMNS * COLUMNS];
    float scale[ROWS];
    double before = 0, after = 0, best = 0;
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    (void)pare_moments_normal(l->outputs, false, 1e-2, NULL, h, NULL);
    const pare_quant_loss loss = {COLUMNS, h};
    for (int r = 0; r < ROWS; r++) scale[r] = 0.2f + 0.002f * (float)r;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        nearest[i] = pare_quant_level(l->w[i], scale[i / COLUMNS], &grid);
    pare_quant_gptq *gptq;
    assert_int_equal(pare_quant_gptq_new(&ctx, &gptq, l->outputs, false, 1), PARE_OK);
    assert_int_equal(pare_quant_round_gptq(&ctx, gptq, l->w, ROWS, &grid, level, scale, 1),
                     PARE_OK);
    pare_quant_gptq_free(gptq);
    memcpy(start, level, sizeof level);
    memcpy(again, level, sizeof level);
    assert_int_equal(
        pare_quant_round_adaround(&ctx, &loss, l->w, l->w, ROWS, &grid, level, scale, 300, 1),
        PARE_OK);
    for (int r = 0; r < ROWS; r += 3) /* rows cut otherwise, more threads */
        assert_int_equal(pare_quant_round_adaround(&ctx, &loss, l->w + r * COLUMNS,
                                                   l->w + r * COLUMNS, ROWS - r < 3 ? ROWS - r : 3,
                                                   &grid, again + r * COLUMNS, scale + r, 300, 2),
                         PARE_OK);
    assert_memory_equal(level, again, sizeof level);
    for (int r = 0; r < ROWS; r++) {
        const double *w = l->w + r * COLUMNS, s = (double)scale[r];
        const double was = error_of(h, w, nearest + r * COLUMNS, s),
                     is = error_of(h, w, level + r * COLUMNS, s);
        const double began = error_of(h, w, start + r * COLUMNS, s);
        if (!(is <= was && is <= began))
            fail_msg("row %d: %g, to the nearest %g, by GPTQ %g", r, is, was, began);
        before += was;
        after += is;
        best += least_of(h, w, s);
    }
    if (!(after < 0.5 * before && after < 1.25 * best))
        fail_msg("error %g, to the nearest %g, the best %g", after, before, best);
    layer_free(l);
}

static pare_status round_with(pare_ctx *ctx, const layer *l, bool inputs, bool centred,
                              int iterations, double *w, int8_t *level)
{
    const pare_quant_grid grid = {.low = -8, .high = 7};
    const pare_quant_layer how = {.moments = inputs ? l->inputs : l->outputs,
                                  .targets_are_inputs = inputs,
                                  .centred = centred,
                                  .iterations = iterations,
                                  .threads = 1};
    float scale[ROWS];
    pare_quant_rounder *rounder;
    memcpy(w, l->w, sizeof l->w);
    pare_status st = pare_quant_rounder_new(ctx, &rounder, &how);
    if (st != PARE_OK) return st;
    st = pare_quant_round_layer(rounder, w, ROWS, &grid, level, scale);
    pare_quant_rounder_free(rounder);
    return st;
}

/* (H + ridge) w = E[x t] + ridge w_old, of each row; the ridge grows by columns over inputs. */
static void aims_at_what_the_layer_gave(void **state)
{
    (void)state;
    static double w[ROWS * COLUMNS], same[ROWS * COLUMNS], a[COLUMNS * COLUMNS], b[COLUMNS * ROWS];
    static int8_t level[ROWS * COLUMNS];
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    for (int centred = 0; centred < 2; centred++) {
        assert_int_equal(round_with(&ctx, l, false, centred, 0, w, level), PARE_OK);
        (void)pare_moments_normal(l->outputs, centred, 1e-2 + (double)COLUMNS / SAMPLES, l->w, a,
                                  b);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < COLUMNS; i++) {
                double sum = -b[i * ROWS + r];
                for (int j = 0; j < COLUMNS; j++) sum += a[i * COLUMNS + j] * w[r * COLUMNS + j];
                assert_true(fabs(sum) < 1e-8 * fabs(a[i * COLUMNS + i]));
            }
    }
    assert_int_equal(round_with(&ctx, l, false, false, 0, w, level), PARE_OK);
    assert_int_equal(round_with(&ctx, l, true, false, 0, same, level), PARE_OK);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        assert_true(fabs(w[i] - same[i]) < 1e-9); /* inputs as targets come to the same */
        assert_true(fabs(w[i] - l->w[i]) > 1e-6);
    }
    layer_free(l);
}

static void a_failed_allocation_is_reported(void **state)
{
    (void)state;
    static double w[ROWS * COLUMNS];
    static int8_t level[ROWS * COLUMNS];
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    layer *l = layer_new(&ctx);
    for (int inputs = 0; inputs < 2; inputs++) {
        pare_status st = PARE_MEMORY;
        for (int n = 0; st != PARE_OK; n++) {
            ctx.fail_after = n;
            st = round_with(&ctx, l, inputs, !inputs, 5, w, level);
            ctx.fail_after = -1;
            if (st != PARE_OK) {
                assert_int_equal(st, PARE_MEMORY);
                assert_non_null(strstr(ctx.message, "out of memory"));
            } else
                assert_true(n > 15);
            pare_ctx_clear(&ctx);
        }
    }
    layer_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(near_the_best_of_all_roundings),
                                       cmocka_unit_test(aims_at_what_the_layer_gave),
                                       cmocka_unit_test(a_failed_allocation_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

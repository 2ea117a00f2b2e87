/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, schedules and the text of a loss: against numbers worked out by hand, and against
   what PyTorch 2.15 gave for the same steps. */
#include "distill/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect_near(double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed)) fail_msg("%.9g, expected %.9g", got, want);
}

/* --- optimizers --- */

enum { COUNT = 4, STEPS = 3 };

static const float start[COUNT] = {0.5f, -1.25f, 2, 0};
static const float gradients[STEPS][COUNT] = {
    {0.1f, -0.2f, 0.3f, 1}, {0.05f, 0.4f, -0.3f, -2}, {-0.7f, 0.01f, 0, 0.5f}};
static const double rates[STEPS] = {1e-2, 5e-3, 2e-2};

typedef struct state {
    float value[COUNT], first[COUNT], second[COUNT];
} state;

static void take_step(const pare_optimizer *o, state *s, int step, double decay, double scale,
                      const uint8_t *zero)
{
    float gradient[COUNT];
    for (int i = 0; i < COUNT; i++) gradient[i] = (float)((double)gradients[step][i] / scale);
    const pare_update u = {.count = COUNT,
                           .value = s->value,
                           .gradient = gradient,
                           .exp_avg = s->first,
                           .exp_avg_sq = o->kind == PARE_OPTIMIZER_ADAMW ? s->second : NULL,
                           .zero = zero,
                           .learning_rate = rates[step],
                           .weight_decay = decay,
                           .scale = scale,
                           .step = step + 1,
                           .threads = 1};
    pare_optimizer_step(o, &u);
}

static const pare_optimizer adamw = {PARE_OPTIMIZER_ADAMW, 0.9, 0.999, 1e-8, 0};
static const pare_optimizer sgd = {.kind = PARE_OPTIMIZER_SGD, .momentum = 0.9};

/* torch.optim.AdamW(lr per step, weight_decay=0.1), torch.optim.SGD(lr per step, momentum=0.9) */
static void steps_are_pytorchs(void **unused)
{
    static const float want[2][STEPS][COUNT] = {
        {{0.489500016f, -1.23874998f, 1.98800004f, -0.00999999978f},
         {0.484594345f, -1.23996103f, 1.98726916f, -0.00816448219f},
         {0.493970811f, -1.24342549f, 1.98410845f, -0.00541434065f}},
        {{0.499000013f, -1.24800003f, 1.99699998f, -0.00999999978f},
         {0.498300016f, -1.24909997f, 1.99714994f, -0.00449999981f},
         {0.50977999f, -1.25326002f, 1.99768996f, 0.00530000031f}}};
    (void)unused;
    for (int kind = 0; kind < 2; kind++)
        for (int halves = 1; halves <= 2; halves++) {
            state s = {.first = {0}};
            memcpy(s.value, start, sizeof start);
            for (int t = 0; t < STEPS; t++) {
                take_step(kind ? &sgd : &adamw, &s, t, kind ? 0 : 0.1, halves, NULL);
                for (int i = 0; i < COUNT; i++)
                    expect_near((double)s.value[i], (double)want[kind][t][i], 3e-7);
            }
        }
}

/* Decoupled: the value shrinks by rate * decay and nothing of it enters the buffer. */
static void sgd_decays_beside_the_buffer(void **unused)
{
    state s = {.first = {0}};
    (void)unused;
    memcpy(s.value, start, sizeof start);
    take_step(&sgd, &s, 0, 0.5, 1, NULL);
    expect_near((double)s.value[0], 0.5 * (1 - 0.01 * 0.5) - 0.01 * 0.1, 1e-7);
    expect_near((double)s.first[0], 0.1, 1e-8);
}

static void zeros_stay(void **unused)
{
    const uint8_t zero[COUNT] = {0, 0, 0, 1};
    const pare_optimizer *kinds[] = {&adamw, &sgd};
    (void)unused;
    for (int kind = 0; kind < 2; kind++) {
        state s = {.first = {0}};
        memcpy(s.value, start, sizeof start);
        for (int t = 0; t < STEPS; t++) take_step(kinds[kind], &s, t, 0.1, 1, zero);
        assert_true(s.value[3] == 0 && s.first[3] == 0 && s.second[3] == 0);
        assert_true(s.value[0] != start[0]);
    }
}

static void averages_and_sums(void **unused)
{
    const uint8_t zero[2] = {0, 1};
    float average[2] = {1, 2};
    const float value[2] = {3, 4};
    (void)unused;
    pare_ema_step(average, value, 2, 0.75, zero);
    expect_near((double)average[0], 1.5, 0);
    expect_near((double)average[1], 0, 0);
    expect_near(pare_square_sum(value, 2), 25, 0);
}

/* Enough elements that threads share them. */
static void threads_change_nothing(void **unused)
{
    enum { MANY = 50021 };
    float *x[2];
    (void)unused;
    for (int run = 0; run < 2; run++) {
        float *block = calloc(4 * MANY, sizeof *block);
        assert_non_null(block);
        for (int i = 0; i < 2 * MANY; i++) block[i] = sinf((float)i);
        for (int t = 1; t <= 3; t++) {
            const pare_update u = {
                MANY, block, block + MANY, block + 2 * MANY, block + 3 * MANY, NULL, 0.1, 0.1,
                1,    t,     run ? 3 : 1};
            pare_optimizer_step(&adamw, &u);
        }
        x[run] = block;
    }
    assert_memory_equal(x[0], x[1], 4 * MANY * sizeof **x);
    free(x[0]);
    free(x[1]);
}

/* --- schedules --- */

static void schedules_follow_their_formulas(void **unused)
{
    const pare_schedule cosine = {PARE_SCHEDULE_COSINE, 2, 110, 10};
    const pare_schedule step = {PARE_SCHEDULE_STEP, 2, 100, 0};
    const pare_schedule constant = {PARE_SCHEDULE_CONSTANT, 2, 100, 4};
    const pare_schedule all_warmup = {PARE_SCHEDULE_COSINE, 2, 4, 8};
    (void)unused;
    expect_near(pare_schedule_rate(&cosine, 0), 0.2, 1e-12);
    expect_near(pare_schedule_rate(&cosine, 9), 2, 1e-12);
    expect_near(pare_schedule_rate(&cosine, 10), 2, 1e-12);
    expect_near(pare_schedule_rate(&cosine, 60), 1, 1e-12);
    expect_near(pare_schedule_rate(&cosine, 35), 1 + sqrt(0.5), 1e-12);
    expect_near(pare_schedule_rate(&cosine, 110), 0, 1e-12);
    expect_near(pare_schedule_rate(&step, 49), 2, 1e-12);
    expect_near(pare_schedule_rate(&step, 50), 0.2, 1e-12);
    expect_near(pare_schedule_rate(&step, 75), 0.02, 1e-12);
    expect_near(pare_schedule_rate(&constant, 1), 1, 1e-12);
    expect_near(pare_schedule_rate(&constant, 99), 2, 1e-12);
    expect_near(pare_schedule_rate(&all_warmup, 3), 1, 1e-12);
}

/* --- the text of a loss --- */

static void losses_are_read(void **unused)
{
    pare_ctx ctx;
    pare_arena arena;
    pare_distill_loss loss;
    (void)unused;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    const char *text = "kl:4*0.5,feature:/layer1/Add,feature:a=b*2,mse,cosine*3,ce,kl";
    assert_int_equal(pare_distill_parse_loss(&arena, text, &loss), PARE_OK);
    assert_int_equal(loss.count, 7);
    assert_int_equal(loss.term[0].kind, PARE_TERM_KL);
    expect_near(loss.term[0].temperature, 4, 0);
    expect_near(loss.term[0].weight, 0.5, 0);
    assert_int_equal(loss.term[1].kind, PARE_TERM_FEATURE);
    assert_string_equal(loss.term[1].student, "/layer1/Add");
    assert_string_equal(loss.term[1].teacher, "/layer1/Add");
    expect_near(loss.term[1].weight, 1, 0);
    assert_string_equal(loss.term[2].student, "a");
    assert_string_equal(loss.term[2].teacher, "b");
    expect_near(loss.term[2].weight, 2, 0);
    assert_int_equal(loss.term[3].kind, PARE_TERM_MSE);
    assert_int_equal(loss.term[4].kind, PARE_TERM_COSINE);
    assert_int_equal(loss.term[5].kind, PARE_TERM_CE);
    expect_near(loss.term[6].temperature, 2, 0);
    pare_arena_free(&arena);
}

static void wrong_losses_are_refused(void **unused)
{
    static const char *const wrong[] = {
        "",           "kl:",     "kl:0",       "kl:-1",   "kl:nan",   "kl:2x",   "l2",
        "mse*",       "mse*0",   "mse*inf",    "mse,",    "feature:", "feature", "ce:2",
        "feature:a=", "mse,,ce", "feature:=b", "kl:2*1*", "kl:2 ,ce"};
    (void)unused;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pare_ctx ctx;
        pare_arena arena;
        pare_distill_loss loss;
        pare_ctx_init(&ctx);
        pare_arena_init(&arena, &ctx);
        if (pare_distill_parse_loss(&arena, wrong[i], &loss) != PARE_USAGE)
            fail_msg("\"%s\" was taken", wrong[i]);
        assert_non_null(strstr(ctx.message, "loss '"));
        assert_non_null(strstr(ctx.message, "expected"));
        pare_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_pytorchs),
        cmocka_unit_test(sgd_decays_beside_the_buffer),
        cmocka_unit_test(zeros_stay),
        cmocka_unit_test(averages_and_sums),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(losses_are_read),
        cmocka_unit_test(wrong_losses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

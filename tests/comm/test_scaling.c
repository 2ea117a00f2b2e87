/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a job in several ranks, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "runtime/comm/scaling.h"

#include <math.h>

static const pare_network network = {.alpha = 1e-3, .beta = 1e-6};
static const pare_scaling_job job = {.start = 5,
                                     .steps = 10,
                                     .parts = 8,
                                     .part = 0.5,
                                     .each = 0.25,
                                     .bytes = 100000,
                                     .reductions = 2};

static void near(double got, double want) { assert_true(fabs(got - want) <= 1e-12 * want); }

static void test_reduction(void **state)
{
    (void)state;
    assert_true(pare_scaling_reduce(&network, 1, 100000, 2) == 0);
    /* by halves: 3 messages a round with the question, 2 (P - 1) / P of 0.1 s */
    near(pare_scaling_reduce(&network, 2, 100000, 2), 2 * 3 * 1e-3 + 0.1);
    near(pare_scaling_reduce(&network, 8, 100000, 1), 3 * 3 * 1e-3 + 0.175);
    /* along the tree, and back */
    near(pare_scaling_reduce(&network, 3, 100000, 1), 3 * 2 * 1e-3 + (2 + 4. / 3) * 0.1);
}

static void test_steps(void **state)
{
    (void)state;
    near(pare_scaling_step(&job, &network, 1), 4.25);
    near(pare_scaling_step(&job, &network, 4), 1.25 + 2 * 6 * 1e-3 + 0.15);
    near(pare_scaling_step(&job, &network, 3), 1.75 + pare_scaling_reduce(&network, 3, 100000, 2));
    near(pare_scaling_seconds(&job, &network, 1), 47.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduction),
        cmocka_unit_test(test_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

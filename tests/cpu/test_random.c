/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: the generator against the published vectors of Philox, and of every operator its
   moments, and that equal seeds give equal numbers for any number of threads. */
#include "runtime/cpu/random.h"
#include "runtime/cpu/ref.h"
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MANY = 200000 };

/* kat_vectors of Random123 (Salmon et al. 2011), philox4x32 of 10 rounds. */
static void philox_has_the_published_words(void **state)
{
    (void)state;
    uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    static const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    pare_philox(zero, 0);
    pare_philox(ones, ~0ull);
    pare_philox(pi, 0x299f31d0a4093822ull);
    assert_memory_equal(zero, want[0], sizeof zero);
    assert_memory_equal(ones, want[1], sizeof ones);
    assert_memory_equal(pi, want[2], sizeof pi);
}

/* A node of MANY numbers of a type; the caller frees them. */
static void *drawn(const char *op, const char *attr[2], const float value[2], int seed,
                   const char *name, pare_dtype type, int threads)
{
    kernel_case k;
    const int64_t n = MANY;
    case_open(&k, "", op, 1);
    k.node->out[0]->name = name;
    k.threads = threads;
    case_set_ints(&k, "shape", &n, 1);
    case_set_int(&k, "dtype", type);
    for (int i = 0; i < 2; i++) case_set_float(&k, attr[i], value[i]);
    if (seed >= 0) case_set_float(&k, "seed", (float)seed);
    case_infer(&k);
    void *y = malloc(case_bytes(&k));
    assert_non_null(y);
    assert_true(case_run(&k, case_plain(&k), y));
    case_close(&k);
    return y;
}

static void moments(const double *x, double *mean, double *deviation, double *low, double *high)
{
    double sum = 0, squares = 0;
    *low = INFINITY;
    *high = -INFINITY;
    for (int i = 0; i < MANY; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        *low = fmin(*low, x[i]);
        *high = fmax(*high, x[i]);
    }
    *mean = sum / MANY;
    *deviation = sqrt(squares / MANY - *mean * *mean);
}

static void uniform_and_normal_have_their_moments(void **state)
{
    (void)state;
    double mean, deviation, low, high;
    double *x = drawn("RandomUniform", (const char *[]){"low", "high"}, (float[]){-1, 3}, 5, "y",
                      PARE_f64, 1);
    moments(x, &mean, &deviation, &low, &high);
    assert_true(fabs(mean - 1) < 0.02 && fabs(deviation - 4 / sqrt(12)) < 0.02);
    assert_true(low >= -1 && low < -0.99 && high > 2.99 && high < 3);
    free(x);
    x = drawn("RandomNormal", (const char *[]){"mean", "scale"}, (float[]){2, 3}, 5, "y", PARE_f64,
              1);
    moments(x, &mean, &deviation, &low, &high);
    assert_true(fabs(mean - 2) < 0.04 && fabs(deviation - 3) < 0.04);
    assert_true(low < -9 && low > -17 && high > 13 && high < 21);
    free(x);
}

static void numbers_follow_from_seed_and_name(void **state)
{
    (void)state;
    const char *attr[] = {"low", "high"};
    const float range[] = {0, 1};
    const size_t bytes = MANY * sizeof(float);
    float *one = drawn("RandomUniform", attr, range, 5, "y", PARE_f32, 1);
    float *four = drawn("RandomUniform", attr, range, 5, "z", PARE_f32, 4);
    float *other = drawn("RandomUniform", attr, range, 6, "y", PARE_f32, 1);
    float *unseeded = drawn("RandomUniform", attr, range, -1, "y", PARE_f32, 1);
    float *again = drawn("RandomUniform", attr, range, -1, "y", PARE_f32, 3);
    float *named = drawn("RandomUniform", attr, range, -1, "z", PARE_f32, 1);
    assert_memory_equal(one, four, bytes);
    assert_memory_equal(unseeded, again, bytes);
    assert_memory_not_equal(one, other, bytes);
    assert_memory_not_equal(one, unseeded, bytes);
    assert_memory_not_equal(unseeded, named, bytes);
    free(one), free(four), free(other), free(unseeded), free(again), free(named);
}

/* The share of draws that are 1 is the probability. */
static void bernoulli_draws_by_probability(void **state)
{
    (void)state;
    kernel_case k;
    const int64_t n = MANY;
    case_open(&k, "", "Bernoulli", 1);
    float *p = case_input(&k, PARE_f32, 1, &n, false, 0, 1);
    for (int i = 0; i < MANY; i++) p[i] = (float)(i % 5) / 4;
    case_set_int(&k, "dtype", PARE_u8);
    case_infer(&k);
    uint8_t *y = malloc(case_bytes(&k));
    assert_true(case_run(&k, case_plain(&k), y));
    double share[5] = {0};
    for (int i = 0; i < MANY; i++) {
        assert_in_range(y[i], 0, 1);
        share[i % 5] += y[i] / (MANY / 5.);
    }
    for (int i = 0; i < 5; i++) assert_true(fabs(share[i] - i / 4.) < 0.01);
    assert_true(share[0] == 0 && fabs(share[4] - 1) < 1e-9);
    free(y);
    case_close(&k);
}

static void multinomial_draws_by_share(void **state)
{
    (void)state;
    kernel_case k;
    const int64_t dims[] = {2, 3};
    case_open(&k, "", "Multinomial", 1);
    float *x = case_input(&k, PARE_f32, 2, dims, false, 0, 1);
    const float logs[] = {logf(10), logf(30), logf(60), 0, -INFINITY, 0};
    memcpy(x, logs, sizeof logs);
    case_set_int(&k, "sample_size", MANY);
    case_set_float(&k, "seed", 3);
    case_infer(&k);
    int32_t *y = malloc(case_bytes(&k));
    assert_true(case_run(&k, case_plain(&k), y));
    double share[6] = {0};
    for (int i = 0; i < 2 * MANY; i++) {
        assert_in_range(y[i], 0, 2);
        share[i / MANY * 3 + y[i]] += 1. / MANY;
    }
    static const double want[] = {0.1, 0.3, 0.6, 0.5, 0, 0.5};
    for (int i = 0; i < 6; i++) assert_true(fabs(share[i] - want[i]) < 0.01);
    assert_true(share[4] == 0);
    free(y);
    case_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_has_the_published_words),
        cmocka_unit_test(uniform_and_normal_have_their_moments),
        cmocka_unit_test(numbers_follow_from_seed_and_name),
        cmocka_unit_test(bernoulli_draws_by_probability),
        cmocka_unit_test(multinomial_draws_by_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

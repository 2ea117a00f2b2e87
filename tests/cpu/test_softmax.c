/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax: values worked out by hand, and every kernel against the plain one on odd sizes and both
   memory orders; LayerNormalization's vector kernel likewise. Softmax to codes against the formula
   of its operators in double. */
#include "tests/cpu/kernel_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void softmax_survives_large_numbers(void **state)
{
    (void)state;
    kernel_case k;
    float y[3];
    case_open(&k, "", "Softmax", 1);
    float *x = case_input(&k, PARE_f32, 1, (int64_t[]){3}, false, 0, 1);
    x[0] = 10000;
    x[1] = 10000;
    x[2] = -INFINITY;
    case_infer(&k);
    for (const pare_kernel *const *it = k.op->cpu; *it; it++) {
        if (!case_run(&k, *it, y)) continue;
        assert_true(y[0] == 0.5f && y[1] == 0.5f && y[2] == 0);
    }
    case_close(&k);
}

static void compare_all(kernel_case *k, double tolerance)
{
    size_t bytes = case_bytes(k);
    float *want = malloc(bytes + 4), *y = malloc(bytes + 4);
    assert_true(case_run(k, case_plain(k), want));
    for (const pare_kernel *const *it = k->op->cpu; it[1]; it++) {
        if (!case_run(k, *it, y)) continue;
        for (size_t i = 0; i < bytes / 4; i++)
            if (!(fabs((double)y[i] - (double)want[i]) <= tolerance * (1 + fabs((double)want[i]))))
                fail_msg("%s (%s): element %zu: %.9g, expected %.9g", (*it)->name, k->node->op_type,
                         i, (double)y[i], (double)want[i]);
    }
    free(want);
    free(y);
}

static void vector_softmax_and_layer_norm_agree(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 197, 1000};
    static const char *const ops[] = {"Softmax", "LogSoftmax", "LayerNormalization"};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int o = 0; o < 3; o++) {
            kernel_case k;
            case_open(&k, "", ops[o], l);
            int64_t dims[] = {o == 2 ? 2 : 5, o == 2 ? 3 : 17, lengths[l]};
            case_input(&k, PARE_f32, 3, dims, false, 0, 4);
            if (o == 2) {
                case_input(&k, PARE_f32, 1, &lengths[l], true, 0, 1);
                case_input(&k, PARE_f32, 1, &lengths[l], true, 0, 1);
            }
            case_infer(&k);
            compare_all(&k, 2e-6);
            case_close(&k);
        }
}

static void softmax_along_any_axis_and_order(void **state)
{
    (void)state;
    static const int64_t dims[4] = {2, 3, 4, 5};
    for (int mode = 0; mode < 8; mode++) {
        kernel_case k;
        float y[120];
        int axis = mode & 3;
        case_open(&k, "", "Softmax", 7);
        k.nhwc = mode >= 4;
        assert_int_equal(pare_node_set_int(k.node, "axis", axis - 4), PARE_OK);
        const float *x = case_input(&k, PARE_f32, 4, dims, false, 0, 2);
        case_infer(&k);
        assert_true(case_run(&k, case_plain(&k), y));
        for (int64_t at = 0; at < 120; at++) {
            int64_t index[4] = {at / 60, at / 20 % 3, at / 5 % 4, at % 5}, ix = 0, iy = 0;
            for (int i = 0; i < 4; i++) {
                ix += index[i] * k.in[0].stride[i];
                iy += index[i] * k.out.stride[i];
            }
            int64_t first = ix - index[axis] * k.in[0].stride[axis];
            double sum = 0;
            for (int64_t i = 0; i < dims[axis]; i++)
                sum += exp((double)x[first + i * k.in[0].stride[axis]]);
            assert_true(fabs((double)y[iy] - exp((double)x[ix]) / sum) < 1e-6);
        }
        case_close(&k);
    }
}

/* --- QSoftmax --- */

/* Softmax (13) in double, then QuantizeLinear without its rounding: NaN counts as -infinity, and a
   row whose largest number is infinite has no probabilities. */
static void codes_in_double(const float *x, int64_t n, double scale, double zero, double high,
                            double *want)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if ((double)x[i] > top) top = (double)x[i];
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i])) sum += exp((double)x[i] - top);
    for (int64_t i = 0; i < n; i++) {
        const double p = isnan(x[i]) || isinf(top) ? 0 : exp((double)x[i] - top) / sum;
        want[i] = fmin(p / scale + zero, high);
    }
}

/* All kernels, of one row: within half a code of the rounding, and half of what ops/softmax_codes.h
   allows a sum. */
static void check_codes(const float *x, int64_t n, float scale, pare_dtype to, int zero)
{
    kernel_case k;
    double *want = malloc((size_t)n * sizeof *want);
    uint8_t *y = malloc((size_t)n);
    int ran = 0;
    case_open(&k, "pare", "QSoftmax", 1);
    memcpy(case_input(&k, PARE_f32, 2, (int64_t[]){1, n}, false, 0, 1), x, (size_t)n * sizeof *x);
    case_set_float(&k, "y_scale", scale);
    case_set_int(&k, "y_zero_point", zero);
    case_set_int(&k, "to", to);
    case_infer(&k);
    codes_in_double(x, n, (double)scale, zero, to == PARE_s8 ? 127 : 255, want);
    for (const pare_kernel *const *it = k.op->cpu; *it; it++) {
        if (!case_run(&k, *it, y)) continue;
        ran++;
        for (int64_t i = 0; i < n; i++) {
            const int code = to == PARE_s8 ? (int8_t)y[i] : y[i];
            if (!(fabs(code - want[i]) <= 1))
                fail_msg("%s: code %lld of %lld is %d, expected %g", (*it)->name, (long long)i,
                         (long long)n, code, want[i]);
        }
    }
    assert_int_equal(ran, 2);
    case_close(&k);
    free(want);
    free(y);
}

/* Much of the sum is of numbers near the least that counts: as many as are short, one more, and
   very many. */
static void codes_of_long_rows(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1000, 16384, 16385, 32769, 262144, 1000000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int64_t n = lengths[l];
        float *x = malloc((size_t)n * sizeof *x);
        for (int d = 0; d < (n > 100000 ? 4 : 24); d++) {
            const float top = d % 2 ? 0.01f : 70000.0f * (float)(d % 4);
            for (int64_t i = 0; i < n; i++)
                x[i] = top -
                       (n > 100000 ? 16.3f + 0.2f * (float)(d / 2) * 2 : 15.5f + 0.06f * (float)d);
            x[n / 3] = top;
            check_codes(x, n, 1 / 255.0f, PARE_u8, 0);
        }
        free(x);
    }
}

/* NaN, infinities, and rows that lie far from 0. */
static void codes_of_unusual_rows(void **state)
{
    (void)state;
    static const float row[][6] = {
        {1, NAN, 2, 0, NAN, 1},
        {NAN, NAN, NAN, NAN, NAN, NAN},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
        {-INFINITY, 3, NAN, 2, -INFINITY, 2.5f},
        {INFINITY, 3, NAN, 2, -INFINITY, 2.5f},
        {65536, 65535, 65534.5f, 0, -INFINITY, NAN},
        {-65536, -65535, -65534.5f, -1e9f, -INFINITY, NAN},
        {-3.4028235e38f, -3.4028235e38f, -INFINITY, -3.4028235e38f, NAN, -3.4028235e38f},
        {3.4028235e38f, 3.4028235e38f, 3e38f, -3.4028235e38f, 0, 1},
        {1e-40f, -1e-40f, 0, -0.0f, 1e-30f, 2},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        check_codes(row[i], 6, 1 / 255.0f, PARE_u8, 0);
        check_codes(row[i], 6, 1 / 127.0f, PARE_s8, 0);
        check_codes(row[i], 6, 0.003f, PARE_s8, -128);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_survives_large_numbers),
        cmocka_unit_test(vector_softmax_and_layer_norm_agree),
        cmocka_unit_test(softmax_along_any_axis_and_order),
        cmocka_unit_test(codes_of_long_rows),
        cmocka_unit_test(codes_of_unusual_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

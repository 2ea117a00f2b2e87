/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax: values worked out by hand, and every kernel against the plain one on odd sizes and
 * both\n   memory orders; LayerNormalization's vector kernel likewise. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_survives_large_numbers),
        cmocka_unit_test(vector_softmax_and_layer_norm_agree),
        cmocka_unit_test(softmax_along_any_axis_and_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

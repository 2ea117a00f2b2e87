/* SPDX-License-Identifier: Apache-2.0 */
/* Every element-by-element operator of the device in every float type, dense, broadcast and in N,
   H, W, C order, against the CPU's plain kernel (kernel_case.h compares). */
#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <cmocka.h>

static const pare_dtype floats[] = {PARE_f32, PARE_f16, PARE_bf16};

static void functions_of_one_tensor(void **state)
{
    (void)state;
    static const char *const ops[] = {
        "Relu",        "Abs",       "Neg",    "Sign",    "Sqrt",  "Reciprocal",
        "Floor",       "Ceil",      "Round",  "Exp",     "Log",   "Erf",
        "Sin",         "Cos",       "Tan",    "Asin",    "Acos",  "Atan",
        "Sinh",        "Cosh",      "Asinh",  "Acosh",   "Atanh", "LeakyRelu",
        "Elu",         "Celu",      "Selu",   "Sigmoid", "Tanh",  "ThresholdedRelu",
        "HardSigmoid", "HardSwish", "Shrink", "Gelu",    "Mish",  "Softplus",
        "Softsign"};
    static const int64_t sizes[] = {0, 1, 31, 257};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int t = 0; t < 3; t++)
            for (int s = 0; s < 4; s++) {
                kernel_case k;
                case_open(&k, "", ops[o], o + 1);
                case_input(&k, floats[t], 1, &sizes[s], false, 0, 1);
                case_run_device(&k, 1);
                case_close(&k);
            }
}

static void functions_of_two_tensors(void **state)
{
    (void)state;
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div", "PRelu", "Pow", "Min", "Max"};
    const int64_t whole[4] = {2, 3, 5, 7}, channel[3] = {3, 1, 1}, row[1] = {7};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int t = 0; t < 3; t++)
            for (int shape = 0; shape < 6; shape++) {
                kernel_case k;
                case_open(&k, "", ops[o], o + 1);
                k.nhwc = shape >= 3;
                case_input(&k, floats[t], 4, whole, false, 0, 1);
                if (shape % 3 == 0) case_input(&k, floats[t], 4, whole, false, 0, 1);
                if (shape % 3 == 1) case_input(&k, floats[t], 3, channel, false, 0, 1);
                if (shape % 3 == 2) case_input(&k, floats[t], 1, row, false, 0, 1);
                case_run_device(&k, 1);
                case_close(&k);
            }
}

static void remainders(void **state)
{
    (void)state;
    for (int fmod = 0; fmod < 2; fmod++) {
        kernel_case k;
        const int64_t n = 65;
        case_open(&k, "", "Mod", 3);
        case_set_int(&k, "fmod", fmod);
        case_input(&k, PARE_f32, 1, &n, false, 0, 40);
        case_input(&k, PARE_f32, 1, &n, false, 0, 7);
        case_run_device(&k, 1);
        case_close(&k);
    }
}

static void limits_given_and_absent(void **state)
{
    (void)state;
    const int64_t dims[2] = {9, 11};
    for (int t = 0; t < 3; t++)
        for (int which = 0; which < 4; which++) {
            kernel_case k;
            case_open(&k, "", "Clip", 5);
            case_input(&k, floats[t], 2, dims, false, 0, 2);
            for (int i = 0; i < 2; i++) {
                bool given = which >> i & 1;
                void *limit = case_input(&k, given ? floats[t] : PARE_NOTYPE, 0, NULL, true, 0, 1);
                if (given) pare_type(floats[t])->from_f32_ref(limit, i ? 0.5f : -0.5f);
            }
            case_run_device(&k, 1);
            case_close(&k);
        }
}

static void choices_by_size_of_element(void **state)
{
    (void)state;
    static const pare_dtype types[] = {PARE_u8, PARE_f16, PARE_f32, PARE_f64};
    const int64_t dims[2] = {6, 37};
    for (int t = 0; t < 4; t++) {
        kernel_case k;
        case_open(&k, "", "Where", 7);
        uint8_t *condition = case_input(&k, PARE_u8, 2, dims, false, 0, 1);
        k.in[0].dtype = PARE_bool;
        k.node->in[0]->dtype = PARE_bool;
        assert_true(condition[0] <= 1);
        case_input(&k, types[t], 2, dims, false, 0, 100);
        case_input(&k, types[t], 1, &dims[1], false, 0, 100);
        case_run_device(&k, 1);
        case_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(functions_of_one_tensor),
        device_test(functions_of_two_tensors),
        device_test(remainders),
        device_test(limits_given_and_absent),
        device_test(choices_by_size_of_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on numbers of every type: arithmetic of integers and f64, comparisons, logic, Cast
   between all pairs, sums of many tensors; against the CPU's plain kernels (kernel_case.h
   compares). Integer operands hold the ends of their type, floats NaN, infinities and what is
   outside every integer. */
#include "tests/cpu/kernel_case.h"
#include "tests/simt/testing.h"

#include <cmocka.h>
#include <math.h>

static const pare_dtype ints[] = {PARE_s8,  PARE_u8,  PARE_s16, PARE_u16,
                                  PARE_s32, PARE_u32, PARE_s64, PARE_u64};
static const pare_dtype all[] = {PARE_f32, PARE_f16, PARE_bf16, PARE_f64, PARE_s8,
                                 PARE_u8,  PARE_s16, PARE_u16,  PARE_s32, PARE_u32,
                                 PARE_s64, PARE_u64, PARE_bool, PARE_s4,  PARE_u4};
enum { FLOATS = 4, NUMBERS = 12, WHOLE = 13, ALL = 15 };

static void put_int(const pare_view *v, int64_t i, int64_t value)
{
    uint8_t *byte = (uint8_t *)v->data + i / 2; /* of 4-bit types */
    switch (pare_type(v->dtype)->bits) {
    case 8: ((int8_t *)v->data)[i] = (int8_t)value; break;
    case 16: ((int16_t *)v->data)[i] = (int16_t)value; break;
    case 32: ((int32_t *)v->data)[i] = (int32_t)value; break;
    case 64: ((int64_t *)v->data)[i] = value; break;
    default: *byte = (uint8_t)(i % 2 ? (*byte & 15) | (value & 15) << 4 : value & 15);
    }
}

/* Numbers of one type, small and at its ends; `shift` makes the operands of one node differ. */
static void operand(kernel_case *k, pare_dtype type, int rank, const int64_t *dims, int shift)
{
    static const double odd[] = {0,    -0.0,     1.5,       -1.5,        2.5,   300.7, -300.7,
                                 1e6,  -1e6,     3e9,       -3e9,        1e19,  -1e19, 65519.0,
                                 1e-7, INFINITY, -INFINITY, (double)NAN, 127.5, -128.5};
    bool packed = type == PARE_s4 || type == PARE_u4;
    case_input(k, packed ? PARE_u8 : type, rank, dims, false, 0, 1);
    pare_view *v = &k->in[k->in_count - 1];
    const pare_type_info *info = pare_type(type);
    if (packed) v->dtype = k->node->in[k->in_count - 1]->dtype = type;
    for (int64_t i = 0; i < pare_view_count(v); i++) {
        int64_t at = i * 7 + shift * 5;
        if (type == PARE_f64)
            ((double *)v->data)[i] = odd[at % 20];
        else if (pare_type_is_float(type))
            info->from_f32_ref((char *)v->data + i * (info->bits / 8), (float)odd[at % 20]);
        else if (type == PARE_bool)
            ((uint8_t *)v->data)[i] = at % 3 == 0;
        else
            put_int(v, i,
                    at % 9 == 0   ? INT64_MIN >> (64 - info->bits)
                    : at % 9 == 1 ? INT64_MAX >> (64 - info->bits)
                    : at % 9 == 2 ? -1
                                  : at % 9 - 5 - shift);
    }
}

static const int64_t whole[6] = {2, 1, 3, 2, 5, 3}, part[4] = {3, 1, 5, 1};

static void two(const char *op, pare_dtype type, int shape)
{
    kernel_case k;
    case_open(&k, "", op, 1);
    operand(&k, type, 6, whole, 0);
    if (shape == 0) operand(&k, type, 6, whole, 1);
    if (shape == 1) operand(&k, type, 4, part, 1);
    if (shape == 2) operand(&k, type, 0, NULL, 1);
    case_run_device(&k, 1);
    case_close(&k);
}

static void integers_and_doubles(void **state)
{
    (void)state;
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div", "PRelu", "Min", "Max", "Pow"};
    for (size_t o = 0; o < 8; o++)
        for (int shape = 0; shape < 3; shape++) {
            for (int t = 0; t < 8; t++) two(ops[o], ints[t], shape);
            two(ops[o], PARE_f64, shape);
        }
}

static void remainders_of_integers_and_doubles(void **state)
{
    (void)state;
    for (int t = 0; t < 9; t++)
        for (int fmod = 0; fmod < 2; fmod++) {
            kernel_case k;
            case_open(&k, "", "Mod", 1);
            case_set_int(&k, "fmod", fmod);
            operand(&k, t < 8 ? ints[t] : PARE_f64, 6, whole, 0);
            operand(&k, t < 8 ? ints[t] : PARE_f64, 6, whole, 1);
            case_run_device(&k, 1);
            case_close(&k);
        }
}

static void functions_of_one_integer(void **state)
{
    (void)state;
    static const char *const ops[] = {"Relu", "Abs", "Neg", "Sign"};
    for (int o = 0; o < 4; o++)
        for (int t = 0; t < 8; t++) {
            kernel_case k;
            case_open(&k, "", ops[o], 1);
            operand(&k, ints[t], 6, whole, 0);
            case_run_device(&k, 1);
            case_close(&k);
        }
}

static void limits_of_every_type(void **state)
{
    (void)state;
    for (int t = 3; t < NUMBERS; t++)
        for (int which = 0; which < 4; which++) {
            kernel_case k;
            case_open(&k, "", "Clip", 5);
            operand(&k, all[t], 6, whole, 0);
            for (int i = 0; i < 2; i++) {
                bool given = which >> i & 1;
                void *limit = case_input(&k, given ? all[t] : PARE_NOTYPE, 0, NULL, false, 0, 1);
                if (given) pare_type(all[t])->from_f32_ref(limit, i ? 3 : -2);
            }
            case_run_device(&k, 1);
            case_close(&k);
        }
}

static void powers_of_mixed_types(void **state)
{
    (void)state;
    static const pare_dtype pairs[][2] = {{PARE_f32, PARE_s32}, {PARE_f16, PARE_f32},
                                          {PARE_s32, PARE_f32}, {PARE_s64, PARE_s32},
                                          {PARE_f64, PARE_u64}, {PARE_u8, PARE_f64}};
    const int64_t n = 35;
    for (int i = 0; i < 6; i++) {
        kernel_case k;
        case_open(&k, "", "Pow", 3);
        case_input(&k, pairs[i][0], 1, &n, false, 0, 3);
        case_input(&k, pairs[i][1], 1, &n, false, 0, 2);
        case_run_device(&k, 1);
        case_close(&k);
    }
}

static void comparisons(void **state)
{
    (void)state;
    static const char *const ops[] = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"};
    for (int o = 0; o < 5; o++)
        for (int t = 0; t < NUMBERS + (o == 0); t++)
            for (int shape = 0; shape < 3; shape++) two(ops[o], all[t], shape);
}

static void logic(void **state)
{
    (void)state;
    static const char *const ops[] = {"And", "Or", "Xor"};
    for (int o = 0; o < 3; o++)
        for (int shape = 0; shape < 3; shape++) two(ops[o], PARE_bool, shape);
    kernel_case k;
    case_open(&k, "", "Not", 1);
    operand(&k, PARE_bool, 6, whole, 0);
    case_run_device(&k, 1);
    case_close(&k);
}

static void odd_floats_are_found(void **state)
{
    (void)state;
    for (int t = 0; t < FLOATS; t++)
        for (int which = 0; which < 5; which++) {
            kernel_case k;
            case_open(&k, "", which < 4 ? "IsInf" : "IsNaN", 1);
            case_set_int(&k, "detect_positive", which & 1);
            case_set_int(&k, "detect_negative", which >> 1 & 1);
            operand(&k, all[t], 6, whole, 0);
            case_run_device(&k, 1);
            case_close(&k);
        }
}

static void casts_between_all_pairs(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 67};
    for (int from = 0; from < ALL; from++)
        for (int to = 0; to < ALL; to++)
            for (int s = 0; s < 3; s++) {
                if (from == to && from >= WHOLE && sizes[s] % 2) continue; /* half a byte is left */
                kernel_case k;
                case_open(&k, "", "Cast", 1);
                case_set_int(&k, "to", all[to]);
                operand(&k, all[from], 1, &sizes[s], from);
                case_run_device(&k, 1);
                case_close(&k);
            }
}

static void sums_of_many(void **state)
{
    (void)state;
    static const char *const ops[] = {"Sum", "Mean"};
    for (int o = 0; o < 2; o++)
        for (int t = 0; t < 3; t++)
            for (int count = 1; count < 6; count++) {
                kernel_case k;
                case_open(&k, "", ops[o], 7);
                for (int i = 0; i < count; i++) {
                    if (i == 1)
                        case_input(&k, all[t], 4, part, false, 0, 1);
                    else
                        case_input(&k, all[t], 6, whole, false, 0, 1);
                }
                case_run_device(&k, 1);
                case_close(&k);
            }
    for (int count = 2; count < 5; count++) {
        kernel_case k;
        case_open(&k, "", "Max", 7);
        for (int i = 0; i < count; i++) operand(&k, PARE_u64, 6, whole, i);
        case_run_device(&k, 1);
        case_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(integers_and_doubles),
        device_test(remainders_of_integers_and_doubles),
        device_test(functions_of_one_integer),
        device_test(limits_of_every_type),
        device_test(powers_of_mixed_types),
        device_test(comparisons),
        device_test(logic),
        device_test(odd_floats_are_found),
        device_test(casts_between_all_pairs),
        device_test(sums_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

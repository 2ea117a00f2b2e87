/* SPDX-License-Identifier: Apache-2.0 */
/* Fast 8-bit convolutions and matrix products against the plain kernels, byte for byte: shapes with
   every tail, zero points, groups, strides, dilations, pads, residuals, activations, biases beyond
   2^24, both types in and all three out. Curved activations may differ by one step.
   PARE_EXACT=slow: at least ten million values a row; quick: ten thousand. */
#include "tests/cpu/kernel_case.h"
#include "runtime/ops/fused.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct tally {
    int64_t values, cases, served;
} tally;

static bool slow(void)
{
    const char *word = getenv("PARE_EXACT");
    return word && !strcmp(word, "slow");
}

static bool quick(void)
{
    const char *word = getenv("PARE_EXACT");
    return word && !strcmp(word, "quick");
}

static const char *const acts[] = {"none", "relu",        "clip",      "leaky_relu",
                                   "gelu", "silu",        "hardswish", "sigmoid",
                                   "tanh", "hardsigmoid", "gelu_tanh"};

static int zero_point(kernel_case *k, pare_dtype t)
{
    int kind = case_between(k, 0, 2);
    if (kind == 0) return 0;
    return t == PARE_s8 ? case_between(k, -128, 127) : case_between(k, 0, 255);
}

static pare_dtype byte_type(kernel_case *k) { return case_between(k, 0, 1) ? PARE_s8 : PARE_u8; }

/* Scales such that outputs spread over the type: spread is about the sum's size. */
static void set_quant(kernel_case *k, pare_dtype x, pare_dtype z, pare_dtype to, float spread)
{
    case_set_float(k, "x_scale", 0.01f + (float)case_between(k, 0, 100) * 0.001f);
    case_set_float(k, "y_scale", spread * (0.005f + (float)case_between(k, 0, 1000) * 0.00002f));
    case_set_int(k, "x_zero_point", zero_point(k, x));
    case_set_int(k, "to", to);
    if (to != PARE_f32) case_set_int(k, "y_zero_point", zero_point(k, to));
    if (z == PARE_NOTYPE) return;
    case_set_float(k, "z_scale", spread * 0.01f);
    if (z != PARE_f32) case_set_int(k, "z_zero_point", zero_point(k, z));
}

static bool set_act(kernel_case *k)
{
    int a = case_between(k, 0, 1) ? case_between(k, 0, 3) : case_between(k, 0, 10);
    assert_int_equal(pare_node_set_string(k->node, "activation", acts[a]), PARE_OK);
    if (a == 2) case_set_float(k, "alpha", 0), case_set_float(k, "beta", 6);
    if (a == 3) case_set_float(k, "alpha", 0.1f);
    return a > 3;
}

/* Equal bytes; one step (8 bits) or 1e-5 (f32) apart where the activation is curved. */
static void compare(const kernel_case *k, const char *kernel, const void *want, const void *got,
                    bool curved)
{
    if (!curved && !memcmp(want, got, case_bytes(k))) return;
    int64_t n = pare_view_count(&k->out);
    for (int64_t i = 0; i < n; i++) {
        double a, b, near = curved ? 1 : 0;
        if (k->out.dtype == PARE_s8)
            a = ((const int8_t *)want)[i], b = ((const int8_t *)got)[i];
        else if (k->out.dtype == PARE_u8)
            a = ((const uint8_t *)want)[i], b = ((const uint8_t *)got)[i];
        else {
            a = (double)((const float *)want)[i], b = (double)((const float *)got)[i];
            near = curved ? 1e-5 * fmax(1, fabs(a)) : 0;
        }
        if (fabs(a - b) <= near) continue;
        char x[128];
        fail_msg("%s: element %lld is %.9g, expected %.9g (input %s, activation %s, x_zero %lld, "
                 "threads %d)",
                 kernel, (long long)i, b, a,
                 pare_shape_text(&pare_node_in(k->node, 0)->shape, x, sizeof x),
                 pare_node_string(k->node, "activation", ""),
                 (long long)pare_node_int(k->node, "x_zero_point", 0), k->threads);
    }
}

/* Every kernel of the row that takes the node against the last. */
static void check(kernel_case *k, bool curved, tally *t)
{
    case_infer(k);
    void *want = malloc(case_bytes(k) + 1), *got = malloc(case_bytes(k) + 1);
    assert_non_null(want);
    assert_non_null(got);
    assert_true(case_run(k, case_plain(k), want));
    for (const pare_kernel *const *it = k->op->cpu; it[1]; it++) {
        if (!case_run(k, *it, got)) continue;
        compare(k, (*it)->name, want, got, curved);
        t->served++;
    }
    t->cases++;
    t->values += pare_view_count(&k->out);
    free(want);
    free(got);
}

static void *floats_input(kernel_case *k, int64_t count, float low, float high)
{
    float *f = case_input(k, PARE_f32, 1, &count, true, 0, 1);
    for (int64_t i = 0; i < count; i++)
        f[i] = low + (high - low) * (float)case_between(k, 0, 10000) * 1e-4f;
    return f;
}

/* Extreme operands push sums to their limits; the others spread evenly. */
static void byte_range(kernel_case *k, pare_dtype t, int *low, int *high)
{
    *low = t == PARE_s8 ? -128 : 0;
    *high = t == PARE_s8 ? 127 : 255;
    if (case_between(k, 0, 5) == 0) *low = *high - 3;
}

/* Absent, of s32, or of f32 with its fraction. */
static void bias_input(kernel_case *k, int64_t channels, int bound)
{
    int what = case_between(k, 0, 5);
    if (what == 0)
        case_input(k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    else
        case_input(k, what < 3 ? PARE_f32 : PARE_s32, 1, &channels, true, -bound, bound);
}

static void conv_case(uint64_t seed, tally *t)
{
    kernel_case k;
    case_open(&k, "pare", "FusedConv", seed);
    static const int64_t channels[] = {1, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 64, 67};
    int64_t group = 1, c = channels[case_between(&k, 0, 13)], m = channels[case_between(&k, 0, 13)];
    int style = case_between(&k, 0, 3);
    if (style == 0) group = m = c; /* depthwise */
    if (style == 1) group = 2 + case_between(&k, 0, 2), c *= group, m *= group;
    int64_t kh = 1 + case_between(&k, 0, 2) * 2, kw = case_between(&k, 0, 3) ? kh : 2;
    int64_t dilation = case_between(&k, 0, 4) ? 1 : 2;
    int64_t x[4] = {case_between(&k, 1, 3), c, (kh - 1) * dilation + case_between(&k, 1, 12),
                    (kw - 1) * dilation + case_between(&k, 1, 12)},
            w[4] = {m, c / group, kh, kw};
    int64_t stride[2] = {case_between(&k, 1, 2), case_between(&k, 1, 2)};
    int64_t pads[4] = {case_between(&k, 0, (int)kh / 2), case_between(&k, 0, (int)kw / 2),
                       case_between(&k, 0, (int)kh / 2), case_between(&k, 0, (int)kw / 2)};
    int64_t dilations[2] = {dilation, dilation};
    k.nhwc = case_between(&k, 0, 7) != 0;
    k.threads = case_between(&k, 1, 2);
    pare_dtype xt = byte_type(&k), to = case_between(&k, 0, 5) ? byte_type(&k) : PARE_f32;
    pare_dtype zt = case_between(&k, 0, 2)   ? PARE_NOTYPE
                    : case_between(&k, 0, 3) ? byte_type(&k)
                                             : PARE_f32;
    bool dies = zt == to && case_between(&k, 0, 1);
    int low, high;
    byte_range(&k, xt, &low, &high);
    case_input(&k, xt, 4, x, false, low, high);
    byte_range(&k, PARE_s8, &low, &high);
    case_input(&k, PARE_s8, 4, w, true, low < -127 ? -127 : low, high);
    bool large = case_between(&k, 0, 3) == 0;
    bias_input(&k, m, large ? 1 << 30 : 30000);
    int64_t y[4] = {x[0], m, 0, 0};
    for (int i = 0; i < 2; i++)
        y[2 + i] =
            (x[2 + i] + pads[i] + pads[2 + i] - (w[2 + i] - 1) * dilation - 1) / stride[i] + 1;
    byte_range(&k, zt == PARE_f32 ? PARE_s8 : zt, &low, &high);
    if (zt != PARE_NOTYPE)
        case_input(&k, zt, 4, y, false, low, high);
    else
        case_input(&k, PARE_NOTYPE, 0, NULL, false, 0, 0);
    floats_input(&k, case_between(&k, 0, 3) ? m : 1, 0.001f, 0.02f);
    case_set_ints(&k, "strides", stride, 2);
    case_set_ints(&k, "pads", pads, 4);
    case_set_ints(&k, "dilations", dilations, 2);
    case_set_int(&k, "group", group);
    float spread = sqrtf((float)(c / group * kh * kw)) * 6;
    set_quant(&k, xt, zt, to, large ? spread * 1000 : spread);
    if (dies) k.dying = 1u << 3;
    bool curved = set_act(&k);
    check(&k, curved, t);
    case_close(&k);
}

static void matmul_case(uint64_t seed, tally *t)
{
    kernel_case k;
    case_open(&k, "pare", "FusedMatMul", seed);
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257};
    int64_t m = sizes[case_between(&k, 0, 15)], n = sizes[case_between(&k, 0, 15)],
            d = sizes[case_between(&k, 0, 15)], batch = case_between(&k, 1, 3);
    bool constant = case_between(&k, 0, 3) != 0, tb = case_between(&k, 0, 1);
    int rank = case_between(&k, 2, 3), b_rank = constant ? 2 : rank;
    int64_t a[3] = {batch, m, d}, b[3] = {batch, tb ? n : d, tb ? d : n}, y[3] = {batch, m, n};
    k.threads = case_between(&k, 1, 2);
    pare_dtype at = byte_type(&k), bt = constant ? PARE_s8 : byte_type(&k);
    pare_dtype to = case_between(&k, 0, 5) ? byte_type(&k) : PARE_f32;
    pare_dtype zt = case_between(&k, 0, 2)   ? PARE_NOTYPE
                    : case_between(&k, 0, 3) ? byte_type(&k)
                                             : PARE_f32;
    int low, high;
    byte_range(&k, at, &low, &high);
    case_input(&k, at, rank, a + 3 - rank, false, low, high);
    byte_range(&k, bt, &low, &high);
    case_input(&k, bt, b_rank, b + 3 - b_rank, constant, low, high);
    bool large = case_between(&k, 0, 3) == 0;
    bias_input(&k, n, large ? 1 << 30 : 30000);
    byte_range(&k, zt == PARE_f32 ? PARE_s8 : zt, &low, &high);
    if (zt != PARE_NOTYPE)
        case_input(&k, zt, rank, y + 3 - rank, false, low, high);
    else
        case_input(&k, PARE_NOTYPE, 0, NULL, false, 0, 0);
    floats_input(&k, constant && case_between(&k, 0, 3) ? n : 1, 0.001f, 0.02f);
    case_set_int(&k, "transB", tb);
    float spread = sqrtf((float)d) * 6;
    set_quant(&k, at, zt, to, large ? spread * 1000 : spread);
    if (!constant) case_set_int(&k, "w_zero_point", zero_point(&k, bt));
    if (zt == to && case_between(&k, 0, 1)) k.dying = 1u << 3;
    bool curved = set_act(&k);
    check(&k, curved, t);
    case_close(&k);
}

static void many(void (*one)(uint64_t seed, tally *t), const char *what)
{
    tally t = {0};
    int64_t goal = slow() ? 10000000 : quick() ? 10000 : 150000;
    for (uint64_t seed = 1; t.values < goal; seed++) one(seed, &t);
    print_message("%s: %lld values in %lld cases, %lld fast runs\n", what, (long long)t.values,
                  (long long)t.cases, (long long)t.served);
    assert_true(t.served >= t.cases); /* the plain kernel is never what a user gets */
}

static void convolutions_are_exact(void **state)
{
    (void)state;
    many(conv_case, "FusedConv");
}

static void products_are_exact(void **state)
{
    (void)state;
    many(matmul_case, "FusedMatMul");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions_are_exact),
                                       cmocka_unit_test(products_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Fast float kernels against the plain ones on random shapes, and deterministic execution: the
   bytes of a sample do not depend on the batch it is in or on the threads. Tolerance: of the
   largest output, f32 2e-5 (sums in another order), f16 2^-9 and bf16 2^-6 (two steps of the type).
   PARE_EXACT=quick: a quarter of the shapes. */
#include "tests/cpu/kernel_case.h"
#include "runtime/ops/fused.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const acts[] = {"none", "relu",        "clip",      "leaky_relu",
                                   "gelu", "silu",        "hardswish", "sigmoid",
                                   "tanh", "hardsigmoid", "gelu_tanh"};

static double value_at(const kernel_case *k, const void *data, int64_t i)
{
    const pare_type_info *type = pare_type(k->out.dtype);
    return (double)type->to_f32((const char *)data + i * (type->bits / 8));
}

static void compare(const kernel_case *k, const char *kernel, const void *want, const void *got)
{
    double top = 1e-30, share = k->out.dtype == PARE_f32 ? 2e-5 : 0x1p-9;
    if (k->out.dtype == PARE_bf16) share = 0x1p-6;
    if (pare_type_is_int8(k->out.dtype)) share = 0;
    int64_t n = pare_view_count(&k->out);
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs(value_at(k, want, i)));
    for (int64_t i = 0; i < n; i++) {
        double a = value_at(k, want, i), b = value_at(k, got, i);
        if (fabs(a - b) <= share * top || (isnan(a) && isnan(b))) continue;
        char x[128];
        fail_msg("%s: element %lld is %.9g, expected %.9g of at most %.9g (%s, input %s, %s)",
                 kernel, (long long)i, b, a, top, pare_type(k->out.dtype)->name,
                 pare_shape_text(&pare_node_in(k->node, 0)->shape, x, sizeof x),
                 pare_node_string(k->node, "activation", ""));
    }
}

/* Every kernel that can against the last; returns how many fast ones ran. */
static int check(kernel_case *k)
{
    case_infer(k);
    void *want = malloc(case_bytes(k) + 1), *got = malloc(case_bytes(k) + 1);
    assert_non_null(want);
    assert_non_null(got);
    assert_true(case_run(k, case_plain(k), want));
    int served = 0;
    for (const pare_kernel *const *it = k->op->cpu; it[1]; it++) {
        if (!case_run(k, *it, got)) continue;
        compare(k, (*it)->name, want, got);
        served++;
    }
    free(want);
    free(got);
    return served;
}

static void set_act(kernel_case *k)
{
    int a = case_between(k, 0, 10);
    assert_int_equal(pare_node_set_string(k->node, "activation", acts[a]), PARE_OK);
    if (a == 2) {
        assert_int_equal(pare_node_set_float(k->node, "alpha", 0), PARE_OK);
        assert_int_equal(pare_node_set_float(k->node, "beta", 6), PARE_OK);
    }
}

static pare_dtype float_type(kernel_case *k)
{
    static const pare_dtype types[] = {PARE_f32, PARE_f32, PARE_f16, PARE_bf16};
    return types[case_between(k, 0, 3)];
}

static int conv_case(uint64_t seed)
{
    kernel_case k;
    static const int64_t channels[] = {1, 3, 4, 5, 8, 15, 16, 17, 32, 33, 48, 67};
    case_open(&k, seed % 3 ? "pare" : "", seed % 3 ? "FusedConv" : "Conv", seed);
    int64_t group = 1, c = channels[case_between(&k, 0, 11)], m = channels[case_between(&k, 0, 11)];
    int style = case_between(&k, 0, 3);
    if (style == 0) group = m = c;
    if (style == 1) group = 2, c *= group, m *= group;
    int64_t kernel = 1 + case_between(&k, 0, 2) * 2, d = case_between(&k, 0, 4) ? 1 : 2,
            p = kernel / 2;
    int64_t x[4] = {case_between(&k, 1, 2), c, (kernel - 1) * d + case_between(&k, 1, 9),
                    (kernel - 1) * d + case_between(&k, 1, 9)},
            w[4] = {m, c / group, kernel, kernel};
    int64_t stride[2] = {case_between(&k, 1, 2), case_between(&k, 1, 2)}, pads[4] = {p, p, 0, p};
    int64_t dilations[2] = {d, d}, y[4] = {x[0], m};
    for (int i = 0; i < 2; i++)
        y[2 + i] = (x[2 + i] + pads[i] + pads[2 + i] - (kernel - 1) * d - 1) / stride[i] + 1;
    k.nhwc = true;
    k.threads = case_between(&k, 1, 2);
    pare_dtype t = float_type(&k);
    case_input(&k, t, 4, x, false, 0, 1);
    case_input(&k, t, 4, w, case_between(&k, 0, 3) > 0, 0, 1);
    if (case_between(&k, 0, 3))
        case_input(&k, t, 1, &m, true, 0, 1);
    else
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
    if (seed % 3 && case_between(&k, 0, 2) == 0) {
        case_input(&k, t, 4, y, false, 0, 3);
        if (case_between(&k, 0, 1)) k.dying = 1u << 3;
    }
    case_set_ints(&k, "strides", stride, 2);
    case_set_ints(&k, "pads", pads, 4);
    case_set_ints(&k, "dilations", dilations, 2);
    case_set_int(&k, "group", group);
    if (seed % 3) set_act(&k);
    int served = check(&k);
    case_close(&k);
    return served;
}

static int matmul_case(uint64_t seed)
{
    kernel_case k;
    static const char *const ops[] = {"FusedMatMul", "MatMul", "Gemm"};
    static const int64_t sizes[] = {1, 2, 7, 8, 16, 17, 31, 33, 64, 100};
    int which = (int)(seed % 3);
    case_open(&k, which ? "" : "pare", ops[which], seed);
    int64_t m = sizes[case_between(&k, 0, 9)], n = sizes[case_between(&k, 0, 9)],
            d = sizes[case_between(&k, 0, 9)], batch = case_between(&k, 1, 3);
    bool constant = case_between(&k, 0, 2) != 0, ta = which == 2 && case_between(&k, 0, 1);
    bool tb = which != 1 && case_between(&k, 0, 1);
    int rank = which == 2 ? 2 : case_between(&k, 2, 3), b_rank = constant ? 2 : rank;
    int64_t a[3] = {batch, ta ? d : m, ta ? m : d}, b[3] = {batch, tb ? n : d, tb ? d : n},
            y[3] = {batch, m, n};
    k.threads = case_between(&k, 1, 2);
    pare_dtype t = float_type(&k);
    case_input(&k, t, rank, a + 3 - rank, false, 0, 1);
    case_input(&k, t, b_rank, b + 3 - b_rank, constant, 0, 1);
    if (which == 2) case_set_int(&k, "transA", ta);
    if (which != 1) case_set_int(&k, "transB", tb);
    if (which == 2) {
        assert_int_equal(pare_node_set_float(k.node, "alpha", 0.5f), PARE_OK);
        assert_int_equal(pare_node_set_float(k.node, "beta", 2), PARE_OK);
    }
    bool biased = which != 1 && case_between(&k, 0, 2);
    if (biased) case_input(&k, t, 1, &n, true, 0, 1);
    if (which == 0) {
        if (!biased) case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        if (case_between(&k, 0, 1)) {
            case_input(&k, t, rank, y + 3 - rank, false, 0, 3);
            if (case_between(&k, 0, 1)) k.dying = 1u << 3;
        }
        set_act(&k);
    }
    int served = check(&k);
    case_close(&k);
    return served;
}

/* An inner axis in several pieces, more rows than a job has, more columns than a stretch. */
typedef struct long_case {
    pare_dtype type;
    int64_t batch, m, d, n;
    bool ta, tb, constant;
} long_case;

static void run_long(const long_case *c, uint64_t seed)
{
    kernel_case k;
    int64_t a[3] = {c->batch, c->ta ? c->d : c->m, c->ta ? c->m : c->d};
    int64_t b[2] = {c->tb ? c->n : c->d, c->tb ? c->d : c->n}, y[3] = {c->batch, c->m, c->n};
    case_open(&k, "pare", "FusedMatMul", seed);
    k.deterministic = true;
    k.threads = (int)(seed % 2) + 1;
    case_input(&k, c->type, 3, a, false, 0, 1);
    case_input(&k, c->type, 2, b, c->constant, 0, 1);
    case_input(&k, c->type, 1, &c->n, false, 0, 1);
    if (seed % 2) case_input(&k, c->type, 3, y, false, 0, 3);
    case_set_int(&k, "transA", c->ta);
    case_set_int(&k, "transB", c->tb);
    assert_true(check(&k) >= 1);
    case_close(&k);
}

static void long_products_agree(void **state)
{
    (void)state;
    static const long_case cases[] = {
        {PARE_f32, 1, 7, 600, 20, false, false, false},
        {PARE_f32, 3, 49, 300, 40, false, false, false},
        {PARE_f32, 3, 49, 300, 33, false, true, true},
        {PARE_f32, 2, 55, 513, 33, true, false, false},
        {PARE_f32, 1, 100, 257, 530, true, true, false},
        {PARE_f32, 2, 20, 260, 16, true, false, false},
        {PARE_f16, 2, 50, 300, 530, false, false, false},
        {PARE_bf16, 1, 13, 520, 1040, true, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_long(&cases[i], 2 * i);
        run_long(&cases[i], 2 * i + 1);
    }
}

/* f32 rows with a constant of integers: every type, scales for all, a column or a block of rows,
   which may be no multiple of anything. */
static int weight_only_case(uint64_t seed)
{
    static const pare_dtype types[] = {PARE_s4, PARE_u4, PARE_s8, PARE_u8};
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 12, 13, 25, 40}, blocks[] = {0, 8, 32, 5};
    kernel_case k;
    case_open(&k, "pare", "FusedMatMul", seed);
    const pare_dtype type = types[seed % 4];
    const bool tb = seed / 4 % 2, zero = case_between(&k, 0, 1), biased = case_between(&k, 0, 1);
    const int64_t m = rows[case_between(&k, 0, 10)], d = case_between(&k, 1, 90);
    const int64_t n = case_between(&k, 1, 200), block = blocks[case_between(&k, 0, 3)];
    const int64_t groups = block ? (d + block - 1) / block : 1;
    const int64_t one = 1, w[2] = {tb ? n : d, tb ? d : n},
                  s[2] = {tb ? n : groups, tb ? groups : n};
    const bool whole = groups == 1 && seed % 3 == 0;
    k.threads = case_between(&k, 1, 2);
    k.deterministic = seed % 2;
    case_input(&k, PARE_f32, 3, (int64_t[]){1, m, d}, false, 0, 1);
    case_input(&k, type, 2, w, true, type == PARE_s8 ? -127 : 0, 127);
    case_input(&k, biased ? PARE_f32 : PARE_NOTYPE, 1, &n, true, 0, 1);
    const bool residual = case_between(&k, 0, 1);
    case_input(&k, residual ? PARE_f32 : PARE_NOTYPE, 3, (int64_t[]){1, m, n}, false, 0, 3);
    float *scale = case_input(&k, PARE_f32, whole ? 1 : 2, whole ? &one : s, true, 0, 1);
    for (int64_t i = 0; i < pare_view_count(&k.in[4]); i++) scale[i] *= 0.01f; /* sums of about 1 */
    case_input(&k, zero ? type : PARE_NOTYPE, whole ? 1 : 2, whole ? &one : s, true, 0, 15);
    case_set_int(&k, "transB", tb);
    if (block) case_set_int(&k, "block_size", block);
    set_act(&k);
    int served = check(&k);
    assert_int_equal(served, 1);
    case_close(&k);
    return served;
}

/* A mask of f32, or of halves as models have it, with low numbers for some keys and for all of one
   query or of a head. Scores under it are rounded: Q and K whose sums are exact. */
static void attention_mask(kernel_case *k, pare_dtype type, const int64_t dims[4])
{
    const float low[] = {case_lowest(type), -10000, -INFINITY};
    const int which = case_between(k, 0, 3);
    const int64_t keys = dims[3], blind = case_between(k, 0, 5);
    case_input(k, case_between(k, 0, 1) ? type : PARE_f32, 4, dims, false, 0, 2);
    for (int64_t j = 0; which < 3 && j < pare_view_count(&k->in[3]); j++)
        if (j / keys == blind || case_between(k, 0, 2) == 0) case_put(k, 3, j, low[which]);
    case_coarsen(k, 0);
    case_coarsen(k, 1);
}

static int attention_case(uint64_t seed)
{
    kernel_case k;
    case_open(&k, "pare", "FusedAttention", seed);
    int64_t n = case_between(&k, 1, 3), h = case_between(&k, 1, 4), s = case_between(&k, 1, 60);
    int64_t t = case_between(&k, 1, 60), d = case_between(&k, 1, 40), w = case_between(&k, 1, 40);
    int64_t q[4] = {n, h, s, d}, key[4] = {n, h, t, d}, v[4] = {n, h, t, w}, axes[4];
    for (int i = 0; i < 4; i++) axes[i] = 1 + (int64_t)(seed >> i & 1);
    const int64_t parts[5] = {n, t, 2, h, d};
    if (axes[0] == 2) q[1] = s, q[2] = h;
    if (axes[1] == 2) key[1] = t, key[2] = h;
    if (axes[2] == 2) v[1] = t, v[2] = h;
    k.threads = case_between(&k, 1, 2);
    pare_dtype type = float_type(&k);
    const bool packed = seed % 8 == 5; /* K is part 1 of 2 */
    case_input(&k, type, 4, q, false, 0, 1);
    case_input(&k, type, packed ? 5 : 4, packed ? parts : key, false, 0, 1);
    case_input(&k, type, 4, v, false, 0, 1);
    static const bool wide[4][3] = {
        {true, true, true}, {true, false, true}, {false, false, true}, {true, false, false}};
    const bool *all = wide[case_between(&k, 0, 3)];
    int64_t mask[4] = {all[0] ? n : 1, all[1] ? h : 1, all[2] ? s : 1, t};
    const bool masked = case_between(&k, 0, 1);
    if (masked) attention_mask(&k, type, mask);
    case_set_float(&k, "scale", masked ? 0.25f : 0.3f);
    if (seed % 16) case_set_ints(&k, "head_axes", axes, 4);
    if (packed) case_set_ints(&k, "parts", (int64_t[]){-1, 1, -1}, 3);
    int served = check(&k);
    case_close(&k);
    return served;
}

static int pool_case(uint64_t seed)
{
    kernel_case k;
    static const char *const ops[] = {"MaxPool", "AveragePool", "GlobalAveragePool"};
    int which = (int)(seed % 3);
    case_open(&k, "", ops[which], seed);
    int64_t x[4] = {case_between(&k, 1, 3), case_between(&k, 1, 70), case_between(&k, 4, 17),
                    case_between(&k, 4, 17)},
            kernel[2] = {case_between(&k, 1, 3), 3};
    int64_t stride[2] = {case_between(&k, 1, 2), 2}, pads[4] = {0, 1, 0, 1};
    k.nhwc = true;
    k.threads = case_between(&k, 1, 2);
    int type = which ? 0 : case_between(&k, 0, 2);
    case_input(&k,
               type == 0   ? float_type(&k)
               : type == 1 ? PARE_s8
                           : PARE_u8,
               4, x, false,
               type == 1   ? -128
               : type == 2 ? 0
                           : 0,
               type ? 127 : 1);
    if (which < 2) {
        case_set_ints(&k, "kernel_shape", kernel, 2);
        case_set_ints(&k, "strides", stride, 2);
        case_set_ints(&k, "pads", pads, 4);
        case_set_int(&k, "ceil_mode", case_between(&k, 0, 1));
        if (which == 1) case_set_int(&k, "count_include_pad", case_between(&k, 0, 1));
    } else if (case_between(&k, 0, 1))
        case_set_int(&k, "output_dtype", PARE_f32);
    int served = check(&k);
    case_close(&k);
    return served;
}

/* Images with equal numbers and NaN: the fast gradient of a pool is the plain one, byte for byte.
 */
static int pool_grad_case(uint64_t seed)
{
    kernel_case k;
    const bool average = seed % 2;
    case_open(&k, "pare", average ? "AveragePoolGrad" : "MaxPoolGrad", seed);
    int64_t x[4] = {case_between(&k, 1, 3), case_between(&k, 2, 40), case_between(&k, 4, 11),
                    case_between(&k, 4, 11)};
    int64_t kernel[2] = {case_between(&k, 1, 3), 3}, stride[2] = {case_between(&k, 1, 2), 2};
    int64_t pads[4] = {0, 1, 0, 1}, dy[4] = {x[0], x[1]};
    for (int i = 0; i < 2; i++)
        dy[2 + i] = (x[2 + i] + pads[i] + pads[2 + i] - kernel[i]) / stride[i] + 1;
    k.nhwc = true;
    k.threads = case_between(&k, 1, 2);
    case_input(&k, PARE_f32, 4, dy, false, 0, 1);
    if (!average) {
        float *image = case_input(&k, PARE_f32, 4, x, false, 0, 1);
        for (int64_t i = 0; i < pare_view_count(&k.in[1]); i++)
            image[i] = case_between(&k, 0, 9) ? (float)case_between(&k, -2, 2) : NAN;
    }
    case_set_ints(&k, "kernel_shape", kernel, 2);
    case_set_ints(&k, "strides", stride, 2);
    case_set_ints(&k, "pads", pads, 4);
    case_set_ints(&k, "shape", x, 4);
    case_set_int(&k, "count_include_pad", case_between(&k, 0, 1));
    case_infer(&k);
    void *want = malloc(case_bytes(&k)), *got = malloc(case_bytes(&k));
    assert_true(want && got && case_run(&k, case_plain(&k), want));
    assert_true(case_run(&k, k.op->cpu[0], got) && k.op->cpu[0] != case_plain(&k));
    assert_memory_equal(want, got, case_bytes(&k));
    free(want), free(got);
    case_close(&k);
    return 1;
}

static int softmax_grad_case(uint64_t seed)
{
    kernel_case k;
    case_open(&k, "pare", "SoftmaxGrad", seed);
    const int64_t dims[3] = {case_between(&k, 1, 3), case_between(&k, 1, 9),
                             case_between(&k, 1, 70)};
    case_input(&k, PARE_f32, 3, dims, false, 0, 1);
    float *y = case_input(&k, PARE_f32, 3, dims, false, 0, 1);
    const bool log = seed % 2;
    for (int64_t i = 0; i < pare_view_count(&k.in[1]); i++) y[i] = log ? -fabsf(y[i]) : fabsf(y[i]);
    case_set_int(&k, "axis", seed % 3 ? 2 : -1);
    case_set_int(&k, "log", log);
    int served = check(&k);
    case_close(&k);
    return served;
}

static void many(int (*one)(uint64_t seed), int cases)
{
    const char *word = getenv("PARE_EXACT");
    int served = 0;
    if (word && !strcmp(word, "quick")) cases /= 4;
    for (int i = 1; i <= cases; i++) served += one((uint64_t)i);
    print_message("%d cases, %d fast runs\n", cases, served);
    assert_true(served > cases / 2);
}

static void convolutions_agree(void **state) { (void)state, many(conv_case, 150); }
static void products_agree(void **state) { (void)state, many(matmul_case, 300); }
static void integer_weights_agree(void **state) { (void)state, many(weight_only_case, 400); }
static void attention_agrees(void **state) { (void)state, many(attention_case, 60); }
static void pools_agree(void **state) { (void)state, many(pool_case, 90); }

static void pool_gradients_are_equal(void **state) { (void)state, many(pool_grad_case, 80); }

static void softmax_gradients_agree(void **state) { (void)state, many(softmax_grad_case, 80); }

/* --- deterministic execution --- */

typedef struct shape_case {
    const char *op;
    int rank;
    int64_t x[4], w[4], group, pad; /* x without its first axis, the batch */
    pare_dtype levels;              /* of a weight of integers in blocks of 8 rows; 0: it is f32 */
} shape_case;

/* Samples first..first + n of x through the first kernel that can. */
static void run_batch(const shape_case *s, const float *x, int64_t n, int threads, float *y)
{
    kernel_case k;
    case_open(&k, "pare", s->op, 5);
    k.deterministic = k.nhwc = true;
    k.threads = threads;
    int64_t dims[4] = {n, s->x[1], s->x[2], s->x[3]}, pads[4] = {s->pad, s->pad, s->pad, s->pad};
    /* the weight first: it comes from the seed and must be the same for every batch */
    kernel_case w;
    case_open(&w, "pare", s->op, 7);
    const pare_dtype type = s->levels ? s->levels : PARE_f32;
    void *weight = case_input(&w, type, s->rank, s->w, true, 0, 1);
    float *to = case_input(&k, PARE_f32, s->rank, dims, false, 0, 1);
    memcpy(to, x, pare_view_bytes(&k.in[0]));
    void *copy = case_input(&k, type, s->rank, s->w, true, 0, 1);
    memcpy(copy, weight, pare_view_bytes(&k.in[1]));
    case_close(&w);
    if (s->levels) {
        const int64_t scales[] = {s->w[0] / 8, s->w[1]};
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        case_input(&k, PARE_NOTYPE, 0, NULL, true, 0, 0);
        float *scale = case_input(&k, PARE_f32, 2, scales, true, 0, 1);
        for (int64_t i = 0; i < scales[0] * scales[1]; i++) scale[i] = (float)(i % 7 + 1);
        case_set_int(&k, "block_size", 8);
    }
    if (s->rank == 4) {
        case_set_ints(&k, "pads", pads, 4);
        case_set_int(&k, "group", s->group);
    }
    case_infer(&k);
    const pare_kernel *const *it = k.op->cpu;
    while (!case_run(&k, *it, y)) it++;
    case_close(&k);
}

static void batches_do_not_matter(void **state)
{
    (void)state;
    static const shape_case cases[] = {
        {"FusedConv", 4, {0, 1, 28, 28}, {32, 1, 3, 3}, 1, 1, PARE_NOTYPE},
        {"FusedConv", 4, {0, 16, 14, 14}, {32, 16, 3, 3}, 1, 1, PARE_NOTYPE},
        {"FusedConv", 4, {0, 96, 14, 14}, {96, 1, 3, 3}, 96, 1, PARE_NOTYPE},
        {"FusedConv", 4, {0, 96, 7, 7}, {40, 96, 1, 1}, 1, 0, PARE_NOTYPE},
        {"FusedMatMul", 2, {0, 784}, {784, 256}, 1, 0, PARE_NOTYPE},
        {"FusedMatMul", 2, {0, 128}, {128, 10}, 1, 0, PARE_NOTYPE},
        {"FusedMatMul", 2, {0, 128}, {128, 150}, 1, 0, PARE_s4},
        {"FusedMatMul", 2, {0, 128}, {128, 70}, 1, 0, PARE_u8},
    };
    enum { SAMPLES = 64 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const shape_case *s = &cases[i];
        int64_t in = 1, out = s->rank == 2 ? s->w[1] : s->w[0] * s->x[2] * s->x[3];
        for (int a = 1; a < s->rank; a++) in *= s->x[a];
        float *x = malloc((size_t)(SAMPLES * in) * 4), *y = malloc((size_t)(SAMPLES * out) * 4);
        float *want = malloc((size_t)(SAMPLES * out) * 4);
        assert_true(x && y && want);
        kernel_case random = {.seed = 11 + i};
        for (int64_t j = 0; j < SAMPLES * in; j++) x[j] = case_float(&random);
        run_batch(s, x, SAMPLES, 1, want);
        static const int batches[] = {1, 7, 64};
        for (int b = 0; b < 3; b++)
            for (int threads = 1; threads <= 2; threads++) {
                for (int64_t at = 0; at + batches[b] <= SAMPLES; at += batches[b])
                    run_batch(s, x + at * in, batches[b], threads, y + at * out);
                size_t done = (size_t)(SAMPLES / batches[b] * batches[b] * out) * 4;
                if (memcmp(y, want, done))
                    fail_msg("case %zu: batch %d with %d threads differs", i, batches[b], threads);
            }
        free(x), free(y), free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_agree),       cmocka_unit_test(products_agree),
        cmocka_unit_test(long_products_agree),      cmocka_unit_test(integer_weights_agree),
        cmocka_unit_test(attention_agrees),         cmocka_unit_test(pools_agree),
        cmocka_unit_test(pool_gradients_are_equal), cmocka_unit_test(softmax_gradients_agree),
        cmocka_unit_test(batches_do_not_matter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

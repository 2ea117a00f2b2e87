/* SPDX-License-Identifier: Apache-2.0 */
/* FakeQuantize against QuantizeLinear and DequantizeLinear one after the other, bit for bit; its
   gradient against the definition, worked out here in double, and dScale against differences of
   what it differentiates. Each plain and dense. */
#include "tests/cpu/kernel_case.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 4096 };

/* A shape with a scale for each index of axis (-1: one for all; a vector of one where `vector`). */
typedef struct shape_case {
    int rank;
    int64_t dim[4];
    int axis;
    bool nhwc, vector;
} shape_case;

static const shape_case shapes[] = {
    {1, {1024}, -1, false, false},      {2, {31, 33}, -1, false, true},
    {2, {31, 33}, 0, false, false},     {2, {31, 33}, 1, false, false},
    {4, {3, 5, 7, 6}, 1, false, false}, {4, {3, 5, 7, 6}, 1, true, false},
    {4, {5, 3, 3, 3}, 0, false, false}, {4, {5, 3, 3, 3}, 3, true, false},
    {4, {2, 3, 8, 8}, -1, true, false}, {3, {2, 3, 9}, -2, false, false},
    {2, {0, 4}, 1, false, false},
};

static int axis_of(const shape_case *c) { return c->axis < -1 ? c->axis + c->rank : c->axis; }

static int64_t count_of(const shape_case *c)
{
    int64_t n = 1;
    for (int i = 0; i < c->rank; i++) n *= c->dim[i];
    return n;
}

static int64_t scales_of(const shape_case *c) { return c->axis == -1 ? 1 : c->dim[axis_of(c)]; }

/* The channel of the element that is at this place in memory. */
static int64_t channel_of(const shape_case *c, int64_t at)
{
    static const int moved[4] = {0, 2, 3, 1};
    if (c->axis == -1) return 0;
    int64_t index[4] = {0};
    for (int i = c->rank - 1; i >= 0; i--) {
        int axis = c->nhwc ? moved[i] : i;
        index[axis] = at % c->dim[axis];
        at /= c->dim[axis];
    }
    return index[axis_of(c)];
}

/* Levels and half-way points by their number, their neighbours, far values, NaN, Inf, +-0. */
static float draw(kernel_case *k, float scale)
{
    const float special[] = {NAN,     INFINITY, -INFINITY, 0,     -0.0f,
                             FLT_MAX, -FLT_MAX, FLT_MIN,   1e-42f};
    uint32_t kind = case_random(k) % 8;
    float level = (float)case_between(k, -300, 300), half = level + 0.5f;
    if (kind == 0) return special[case_random(k) % 9];
    if (kind == 1) return level * scale;
    if (kind == 2) return half * scale;
    if (kind == 3) return nextafterf(half * scale, case_random(k) % 2 ? INFINITY : -INFINITY);
    if (kind == 4) return 100 * level * scale;
    return level * scale + case_float(k) * scale;
}

static void put_zero(void *to, pare_dtype type, int64_t i, int value)
{
    switch (type) {
    case PARE_s8: ((int8_t *)to)[i] = (int8_t)value; break;
    case PARE_u8: ((uint8_t *)to)[i] = (uint8_t)value; break;
    case PARE_s16: ((int16_t *)to)[i] = (int16_t)value; break;
    default: ((uint16_t *)to)[i] = (uint16_t)value; break;
    }
}

static int zero_for(kernel_case *k, pare_dtype type)
{
    static const int edge_s8[] = {0, -128, 127, 5}, edge_u8[] = {0, 255, 128, 7};
    bool is_signed = type == PARE_s8 || type == PARE_s16;
    return (is_signed ? edge_s8 : edge_u8)[case_random(k) % 4];
}

typedef struct tensors {
    float x[MOST], dy[MOST], s[64];
    int zero[64];
    bool has_zero;
    pare_dtype type;
} tensors;

static void *add(kernel_case *k, pare_dtype type, const shape_case *c, const void *data)
{
    void *to = case_input(k, type, c->rank, c->dim, false, 0, 1);
    if (data) memcpy(to, data, pare_view_bytes(&k->in[k->in_count - 1]));
    return to;
}

static void add_scales(kernel_case *k, const shape_case *c, const tensors *t)
{
    const int64_t n = scales_of(c);
    const int rank = c->axis != -1 || c->vector;
    memcpy(case_input(k, PARE_f32, rank, &n, false, 0, 1), t->s, (size_t)n * sizeof *t->s);
    if (!t->has_zero) return;
    void *z = case_input(k, t->type, rank, &n, false, 0, 1);
    for (int64_t i = 0; i < n; i++) put_zero(z, t->type, i, t->zero[i]);
}

static void start(kernel_case *k, const char *domain, const char *op, const shape_case *c)
{
    case_open(k, domain, op, 7);
    k->nhwc = c->nhwc;
    if (c->axis != -1) case_set_int(k, "axis", c->axis);
}

static void fill(tensors *t, kernel_case *k, const shape_case *c, pare_dtype type, bool has_zero)
{
    *t = (tensors){.type = type, .has_zero = has_zero};
    for (int64_t i = 0; i < scales_of(c); i++) {
        t->s[i] = ldexpf(1 + case_float(k) * case_float(k) / 16, case_between(k, -9, 3));
        t->zero[i] = has_zero ? zero_for(k, type) : 0;
    }
    for (int64_t i = 0; i < count_of(c); i++) {
        t->x[i] = draw(k, t->s[channel_of(c, i)]);
        t->dy[i] = case_float(k);
    }
}

/* y = DequantizeLinear(QuantizeLinear(x)) by the plain kernels. */
static void pair(const shape_case *c, const tensors *t, float *y)
{
    kernel_case q, d;
    char levels[2 * MOST];
    start(&q, "", "QuantizeLinear", c);
    add(&q, PARE_f32, c, t->x);
    add_scales(&q, c, t);
    if (!t->has_zero) case_set_int(&q, "output_dtype", t->type);
    case_infer(&q);
    assert_true(case_run(&q, case_plain(&q), levels));
    start(&d, "", "DequantizeLinear", c);
    add(&d, t->type, c, levels);
    add_scales(&d, c, t);
    case_infer(&d);
    assert_true(case_run(&d, case_plain(&d), y));
    case_close(&q);
    case_close(&d);
}

static void check_forward(const shape_case *c, pare_dtype type, bool has_zero)
{
    static tensors t;
    static float want[MOST], got[MOST];
    kernel_case k;
    int served = 0;
    start(&k, "pare", "FakeQuantize", c);
    fill(&t, &k, c, type, has_zero);
    pair(c, &t, want);
    add(&k, PARE_f32, c, t.x);
    add_scales(&k, c, &t);
    if (!has_zero) case_set_int(&k, "to", type);
    case_infer(&k);
    for (const pare_kernel *const *kernel = k.op->cpu; *kernel; kernel++) {
        if (!case_run(&k, *kernel, got)) continue;
        served++;
        for (int64_t i = 0; i < count_of(c); i++)
            if (memcmp(&got[i], &want[i], sizeof *got))
                fail_msg("%s, type %d, rank %d, axis %d: f(%a) = %a, expected %a", (*kernel)->name,
                         type, c->rank, c->axis, (double)t.x[i], (double)got[i], (double)want[i]);
    }
    assert_int_equal(served, 2);
    case_close(&k);
}

static const pare_dtype types[] = {PARE_s8, PARE_u8, PARE_s16, PARE_u16};

static void the_pair_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++)
            for (int zero = 0; zero < 2; zero++) check_forward(&shapes[i], types[k], zero);
}

static void symmetric_weights_keep_to_their_levels(void **state)
{
    (void)state;
    const shape_case c = {1, {5}, -1, false, false};
    const tensors t = {{-200, -127.6f, -127, 127, 127.6f}, {0}, {1}, {0}, true, PARE_s8};
    const float want[] = {-127, -127, -127, 127, 127};
    float got[5];
    kernel_case k;
    start(&k, "pare", "FakeQuantize", &c);
    add(&k, PARE_f32, &c, t.x);
    add_scales(&k, &c, &t);
    case_set_int(&k, "low", -127);
    case_infer(&k);
    for (const pare_kernel *const *kernel = k.op->cpu; *kernel; kernel++) {
        assert_true(case_run(&k, *kernel, got));
        assert_memory_equal(got, want, sizeof want);
    }
    case_close(&k);
}

/* --- the gradient --- */

static void levels_of(pare_dtype type, double *low, double *high)
{
    const bool is_signed = type == PARE_s8 || type == PARE_s16;
    const double span = type == PARE_s8 || type == PARE_u8 ? 255 : 65535;
    *low = is_signed ? -(span + 1) / 2 : 0;
    *high = *low + span;
}

/* dX and dScale by their definition; sizes: sums of absolute values, to judge sums by. */
static void define(const shape_case *c, const tensors *t, float *dx, double *ds, double *sizes)
{
    double low, high;
    levels_of(t->type, &low, &high);
    for (int64_t i = 0; i < count_of(c); i++) {
        const int64_t channel = channel_of(c, i);
        const double z = t->zero[channel];
        const float v = t->x[i] / t->s[channel];
        const double q = (double)(rintf(v) + (float)z);
        const bool above = q > high, below = !(q >= low);
        const double slope = above ? high - z : below ? low - z : (double)(rintf(v) - v);
        dx[i] = above || below ? 0 : t->dy[i];
        ds[channel] += (double)t->dy[i] * slope;
        sizes[channel] += fabs((double)t->dy[i] * slope);
    }
}

/* The second output is read from its memory, which the case does not know. */
static void run_grad(kernel_case *k, const pare_kernel *kernel, const shape_case *c, float *dx,
                     float *ds)
{
    pare_view out[2] = {k->out, {.dtype = PARE_f32, .rank = c->axis != -1 || c->vector}};
    pare_arena arena;
    pare_prep p = {.ctx = &k->ctx,
                   .node = k->node,
                   .in = k->in,
                   .out = out,
                   .in_count = k->in_count,
                   .out_count = 2,
                   .threads = 1,
                   .arena = &arena,
                   .share = -1};
    out[0].data = dx;
    out[1].dim[0] = scales_of(c);
    out[1].stride[0] = 1;
    out[1].data = ds;
    pare_arena_init(&arena, &k->ctx);
    assert_true(kernel->can(&p));
    assert_int_equal(kernel->prepare(&p), PARE_OK);
    void *scratch = malloc(p.scratch + 1);
    assert_non_null(scratch);
    pare_call call = {.ctx = &k->ctx,
                      .node = k->node,
                      .in = k->in,
                      .out = out,
                      .in_count = k->in_count,
                      .out_count = 2,
                      .threads = 1,
                      .state = p.state,
                      .scratch = scratch};
    assert_int_equal(kernel->run(&call), PARE_OK);
    free(scratch);
    pare_arena_free(&arena);
}

static void check_grad(const shape_case *c, pare_dtype type, bool has_zero)
{
    static tensors t;
    static float want[MOST], got[MOST];
    float ds[64];
    double want_ds[64] = {0}, size[64] = {0};
    kernel_case k;
    start(&k, "pare", "FakeQuantizeGrad", c);
    fill(&t, &k, c, type, has_zero);
    add(&k, PARE_f32, c, t.dy);
    add(&k, PARE_f32, c, t.x);
    add_scales(&k, c, &t);
    if (!has_zero) case_set_int(&k, "to", type);
    case_infer(&k);
    define(c, &t, want, want_ds, size);
    for (const pare_kernel *const *kernel = k.op->cpu; *kernel; kernel++) {
        run_grad(&k, *kernel, c, got, ds);
        for (int64_t i = 0; i < count_of(c); i++)
            if (memcmp(&got[i], &want[i], sizeof *got))
                fail_msg("%s, type %d, rank %d, axis %d: dX of %a is %a, expected %a",
                         (*kernel)->name, type, c->rank, c->axis, (double)t.x[i], (double)got[i],
                         (double)want[i]);
        for (int64_t i = 0; i < scales_of(c); i++)
            if (!(fabs((double)ds[i] - want_ds[i]) <= 1e-7 * size[i]))
                fail_msg("%s, type %d, rank %d, axis %d: dScale %lld is %a, expected %a",
                         (*kernel)->name, type, c->rank, c->axis, (long long)i, (double)ds[i],
                         want_ds[i]);
    }
    case_close(&k);
}

static void the_gradient_by_its_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++)
            for (int zero = 0; zero < 2; zero++) check_grad(&shapes[i], types[k], zero);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pair_bit_for_bit),
        cmocka_unit_test(symmetric_weights_keep_to_their_levels),
        cmocka_unit_test(the_gradient_by_its_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

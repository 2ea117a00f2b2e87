/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions that take the pointwise one behind them: the model of time says of each
   that one kernel is faster than two. Of FP8, convolutions of few filters or channels. */
#include "runtime/eval/roofline.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

typedef struct pair_shape {
    int64_t n, side, c, m, stride;
} pair_shape;

static void constant(graph_case *g, const char *name, pare_dtype type, const int64_t dims[4])
{
    pare_value *made;
    void *zeros = calloc((size_t)(dims[0] * dims[1] * dims[2] * dims[3]), 2);
    assert_non_null(zeros);
    assert_int_equal(pare_init_new(g->model->graph, &made, name, type, 4, dims, zeros), PARE_OK);
    free(zeros);
}

/* apart: what the first makes is an output, too, so that both stay. */
static pare_roofline *predicted(graph_case *g, const pair_shape *s, pare_dtype type, bool apart)
{
    const pare_gpu_spec *h200;
    pare_roofline *r;
    const pare_dtype weights = type == PARE_s8 ? PARE_s8 : type;
    graph_open(g, 17);
    graph_input(g, "x", type, 4, (int64_t[]){s->n, s->c, s->side, s->side});
    constant(g, "d", weights, (int64_t[]){s->c, 1, 3, 3});
    constant(g, "w", weights, (int64_t[]){s->m, s->c, 1, 1});
    pare_node *first = graph_node(g, "FusedConv", "x d", "c"),
              *last = graph_node(g, "FusedConv", "c w", "y");
    first->domain = last->domain = PARE_DOMAIN;
    assert_int_equal(pare_node_set_ints(first, "strides", (int64_t[]){s->stride, s->stride}, 2), 0);
    assert_int_equal(pare_node_set_ints(first, "pads", (int64_t[]){1, 1, 1, 1}, 4), 0);
    assert_int_equal(pare_node_set_int(first, "group", s->c), 0);
    assert_int_equal(pare_node_set_string(first, "activation", "relu"), 0);
    if (apart) graph_output(g, "c");
    graph_output(g, "y");
    assert_int_equal(pare_gpu_spec_find(&g->ctx, &h200, "h200"), PARE_OK);
    if (pare_roofline_new(&g->ctx, &r, g->model, NULL, 0, h200) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    return r;
}

/* The steps of an operator: their count, and all their seconds. */
static int steps_of(const pare_roofline *r, const char *op, double *seconds)
{
    int count = 0;
    *seconds = 0;
    for (int i = 0; i < pare_roofline_count(r); i++) {
        const pare_roofline_step *s = pare_roofline_at(r, i);
        if (strcmp(s->op_type, op) != 0) continue;
        assert_true(s->known);
        *seconds += s->seconds, count++;
    }
    return count;
}

/* Those of MobileNets, but for the last ones of V2 that are two kernels at every batch. */
static const pair_shape shapes[] = {
    {0, 112, 96, 24, 2}, {0, 56, 144, 24, 1},  {0, 56, 144, 32, 2},  {0, 28, 192, 32, 1},
    {0, 28, 192, 64, 2}, {0, 14, 384, 64, 1},  {0, 14, 384, 96, 1},  {0, 14, 576, 96, 1},
    {0, 7, 960, 160, 1}, {0, 56, 128, 128, 1}, {0, 28, 256, 256, 1}, {0, 112, 32, 64, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void one_kernel_is_faster_where_it_is_taken(void **state)
{
    (void)state;
    static const int64_t batches[] = {1, 8, 32, 128};
    int joined = 0;
    for (int i = 0; i < SHAPES * 4 * 2; i++) {
        graph_case one, two;
        pair_shape s = shapes[i % SHAPES];
        s.n = batches[i / SHAPES % 4];
        const pare_dtype type = i / SHAPES / 4 ? PARE_f16 : PARE_s8;
        pare_roofline *r = predicted(&one, &s, type, false);
        double own, both;
        if (steps_of(r, "FusedDepthwisePointwise", &own)) {
            pare_roofline *apart = predicted(&two, &s, type, true);
            assert_int_equal(steps_of(apart, "FusedConv", &both), 2);
            if (!(own < both))
                fail_msg("%s, batch %d, side %d, %d to %d, %d a step: %g s, two take %g",
                         type == PARE_s8 ? "s8" : "f16", (int)s.n, (int)s.side, (int)s.c, (int)s.m,
                         (int)s.stride, own, both);
            pare_roofline_free(apart);
            graph_close(&two);
            joined++;
        }
        pare_roofline_free(r);
        graph_close(&one);
    }
    assert_true(joined >= SHAPES * 2);
}

/* X (32, 96, 56, 56), Y (32, 24, 56, 56). */
static void bytes_and_products_are_counted(void **state)
{
    (void)state;
    graph_case g;
    const pair_shape s = {32, 56, 96, 24, 1};
    pare_roofline *r = predicted(&g, &s, PARE_s8, false);
    double seconds;
    assert_int_equal(steps_of(r, "FusedDepthwisePointwise", &seconds), 1);
    for (int i = 0; i < pare_roofline_count(r); i++) {
        const pare_roofline_step *one = pare_roofline_at(r, i);
        if (strcmp(one->op_type, "FusedDepthwisePointwise") != 0) continue;
        const double positions = 32 * 56 * 56;
        assert_string_equal(one->kernel, "conv_depthwise_pointwise");
        assert_true(fabs(one->bytes - (positions * (96 + 24) + 24 * 96 + 9 * 96)) < 1);
        assert_true(fabs(one->macs - positions * (96 * 9 + 96 * 24)) < 1);
        assert_true(one->seconds_f16 > one->seconds);
        assert_int_equal(one->launches, 1);
    }
    pare_roofline_free(r);
    graph_close(&g);
}

/* FP16 beside INT8 is what FP16 nets have: with more filters than one kernel pays for in 16 bits,
   two convolutions. */
static void halves_are_two_where_one_does_not_pay(void **state)
{
    (void)state;
    static const pair_shape wide[] = {{32, 28, 256, 256, 1}, {32, 56, 144, 32, 2}};
    for (int i = 0; i < 2; i++) {
        graph_case one, two;
        pare_roofline *joined = predicted(&one, &wide[i], PARE_s8, false),
                      *apart = predicted(&two, &wide[i], PARE_s8, true);
        double half = 0, both = 0, seconds;
        assert_int_equal(steps_of(joined, "FusedDepthwisePointwise", &seconds), 1);
        assert_int_equal(steps_of(apart, "FusedConv", &seconds), 2);
        for (int k = 0; k < pare_roofline_count(joined); k++)
            if (!strcmp(pare_roofline_at(joined, k)->op_type, "FusedDepthwisePointwise"))
                half = pare_roofline_at(joined, k)->seconds_f16;
        for (int k = 0; k < pare_roofline_count(apart); k++)
            if (!strcmp(pare_roofline_at(apart, k)->op_type, "FusedConv"))
                both += pare_roofline_at(apart, k)->seconds_f16;
        assert_true(half > 0 && fabs(half - both) <= 1e-9 * both);
        pare_roofline_free(joined);
        pare_roofline_free(apart);
        graph_close(&one);
        graph_close(&two);
    }
}

/* By hand from runtime/cuda/conv: groups of few filters have kernels of their own, first
   convolutions are widened, for the stem's kernel has no FP8. */
static void fp8_has_the_backends_kernels(void **state)
{
    (void)state;
    static const struct {
        int64_t channels, filters, groups, taps;
        const char *expect;
    } cases[] = {
        {3, 64, 1, 7, "conv_widened"},     {96, 96, 96, 3, "conv_depthwise"},
        {96, 96, 96, 5, "conv_depthwise"}, {96, 96, 96, 7, "conv_direct"},
        {64, 32, 8, 3, "conv_direct"},
    };
    static const pare_dtype types[] = {PARE_f8e4m3, PARE_f8e5m2};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        graph_case g;
        const size_t k = i / 2;
        const pare_dtype type = types[i % 2];
        const int64_t taps = cases[k].taps, pad = taps / 2,
                      w[] = {cases[k].filters, cases[k].channels / cases[k].groups, taps, taps};
        const pare_gpu_spec *h200;
        pare_roofline *r;
        graph_open(&g, 19);
        graph_input(&g, "x", type, 4, (int64_t[]){8, cases[k].channels, 56, 56});
        constant(&g, "w", type, w);
        pare_node *node = graph_node(&g, "FusedConv", "x w", "y");
        node->domain = PARE_DOMAIN;
        assert_int_equal(pare_node_set_ints(node, "pads", (int64_t[]){pad, pad, pad, pad}, 4), 0);
        assert_int_equal(pare_node_set_int(node, "group", cases[k].groups), 0);
        assert_int_equal(pare_node_set_int(node, "to", type), 0);
        graph_output(&g, "y");
        assert_int_equal(pare_gpu_spec_find(&g.ctx, &h200, "h200"), PARE_OK);
        if (pare_roofline_new(&g.ctx, &r, g.model, NULL, 0, h200) != PARE_OK)
            fail_msg("%s", g.ctx.message);
        for (int s = 0; s < pare_roofline_count(r); s++) {
            const pare_roofline_step *step = pare_roofline_at(r, s);
            if (strcmp(step->op_type, "FusedConv") != 0) continue;
            if (!step->known) fail_msg("case %zu: no kernel", i);
            if (strncmp(step->kernel, cases[k].expect, strlen(cases[k].expect)) != 0)
                fail_msg("case %zu: %s", i, step->kernel);
        }
        pare_roofline_free(r);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kernel_is_faster_where_it_is_taken),
        cmocka_unit_test(bytes_and_products_are_counted),
        cmocka_unit_test(halves_are_two_where_one_does_not_pay),
        cmocka_unit_test(fp8_has_the_backends_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

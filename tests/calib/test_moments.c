/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments of small nodes against sums over a definition of the convolution written down
   independently, and against numbers by hand. */
#include "calib/moments.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* A matrix product on rows (1, 2), (3, 4) with targets 10, 20 and, of another run, (5, 6) with 30.
 */
static void a_matrix_product_by_hand(void **state)
{
    (void)state;
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 2});
    graph_floats(&g, "w", 2, (int64_t[]){2, 1}, (float[]){1, 1});
    pare_node *node = graph_node(&g, "MatMul", "x w", "y");
    pare_columns c;
    pare_observer *o = NULL;
    bool ok = false;
    assert_int_equal(pare_columns_read(node, &(pare_shape){.rank = 2, .dim = {2, 2}}, &c, &ok),
                     PARE_OK);
    assert_true(ok && c.columns == 2 && c.outputs == 1 && c.rows == 2 && c.groups == 1);
    assert_int_equal(pare_observer_new(&g.ctx, &o, &c, 1, true, NULL, 1), PARE_OK);
    assert_int_equal(
        pare_observer_add(o, 0, (float[]){1, 2, 3, 4}, (float[]){12, 21}, (float[]){2, 1}),
        PARE_OK);
    assert_int_equal(pare_observer_add(o, 1, (float[]){5, 6, 0, 0}, (float[]){30, 0}, NULL),
                     PARE_OK);
    assert_int_equal(pare_observer_finish(o), PARE_OK);
    const pare_moments *m = pare_observer_moments(o, 0, 0);
    assert_true(m->rows == 4);
    assert_true(m->xx[0] == 35 && m->xx[1] == 44 && m->xx[3] == 56);
    assert_true(m->xt[0] == 10 + 60 + 150 && m->xt[1] == 20 + 80 + 180);
    assert_true(m->tt[0] == 100 + 400 + 900 && m->t[0] == 60);
    assert_true(m->x[0] == 9 && m->x[1] == 12);
    pare_observer_free(o);
    graph_close(&g);
}

enum { N = 2, C = 4, H = 5, W = 6, M = 6, G = 2, KH = 3, KW = 2 };

static float at(const float *x, int n, int c, int h, int w)
{
    return h < 0 || w < 0 || h >= H || w >= W ? 0 : x[((n * C + c) * H + h) * W + w];
}

/* Stride 2 and 1, padding 1 0 1 1, dilation 1 and 2, two groups: every sum over (n, y, x). */
static void a_convolution_with_all_attributes(void **state)
{
    (void)state;
    graph_case g;
    static float w[M * C / G * KH * KW], x[N * C * H * W], t[N * M * 3 * 5];
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 4, (int64_t[]){-1, C, H, W});
    graph_floats(&g, "w", 4, (int64_t[]){M, C / G, KH, KW}, w);
    pare_node *node = graph_node(&g, "Conv", "x w", "y");
    assert_int_equal(pare_node_set_int(node, "group", G), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "strides", (int64_t[]){2, 1}, 2), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "pads", (int64_t[]){1, 0, 1, 1}, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "dilations", (int64_t[]){1, 2}, 2), PARE_OK);
    pare_columns c;
    pare_observer *o = NULL;
    bool ok = false;
    assert_int_equal(
        pare_columns_read(node, &(pare_shape){.rank = 4, .dim = {N, C, H, W}}, &c, &ok), PARE_OK);
    assert_true(ok && c.columns == C / G * KH * KW && c.outputs == M / G && c.rows == N * 3 * 5);
    for (int i = 0; i < N * C * H * W; i++) x[i] = (float)(i * 37 % 19) - 9;
    for (int i = 0; i < N * M * 15; i++) t[i] = (float)(i * 11 % 23) - 11;
    assert_int_equal(pare_observer_new(&g.ctx, &o, &c, 1, true, NULL, 2), PARE_OK);
    assert_int_equal(pare_observer_add(o, 0, x, t, NULL), PARE_OK);
    assert_int_equal(pare_observer_finish(o), PARE_OK);
    for (int group = 0; group < G; group++) {
        const pare_moments *m = pare_observer_moments(o, 0, group);
        for (int i = 0; i < (int)c.columns; i++)
            for (int j = 0; j <= (int)c.columns + 2; j++) {
                double want = 0, got;
                for (int n = 0; n < N; n++)
                    for (int y = 0; y < 3; y++)
                        for (int z = 0; z < 5; z++) {
                            int k[2] = {i, j};
                            double v[2];
                            for (int q = 0; q < 2;
                                 q++) { /* column = (kh * KW + kw) * 2 + channel */
                                int tap = k[q] / 2, channel = group * 2 + k[q] % 2;
                                v[q] = (double)at(x, n, channel, 2 * y - 1 + tap / KW,
                                                  z + tap % KW * 2);
                            }
                            if (j >= (int)c.columns)
                                v[1] = (double)
                                    t[((n * M + group * 3 + j - (int)c.columns) * 3 + y) * 5 + z];
                            want += v[0] * v[1];
                        }
                if (j < i) continue;
                got = j < (int)c.columns ? m->xx[i * c.columns + j]
                                         : m->xt[i * 3 + j - (int)c.columns];
                if (got != want)
                    fail_msg("group %d, %d x %d: %g, expected %g", group, i, j, got, want);
            }
    }
    /* where a weight of that column is: (output, channel, kh, kw) */
    assert_int_equal(pare_columns_weight(&c, true, 1, 2, 7), ((5 * 2 + 1) * KH + 1) * KW + 1);
    pare_observer_free(o);
    graph_close(&g);
}

/* Runs 4, 9, ... go to the second set; adding the sets gives what one set would hold. */
static void a_fifth_is_held_out(void **state)
{
    (void)state;
    enum { RUNS = 23 };
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){-1, 1});
    graph_floats(&g, "w", 2, (int64_t[]){1, 1}, (float[]){1});
    pare_node *node = graph_node(&g, "MatMul", "x w", "y");
    pare_columns c;
    pare_observer *o = NULL;
    bool ok = false;
    assert_int_equal(pare_columns_read(node, &(pare_shape){.rank = 2, .dim = {1, 1}}, &c, &ok),
                     PARE_OK);
    assert_int_equal(pare_observer_new(&g.ctx, &o, &c, 2, true, NULL, 1), PARE_OK);
    double held = 0, all = 0;
    for (int r = 0; r < RUNS; r++) {
        float x = (float)r, t = 1;
        all += r * r;
        held += r % 5 == 4 ? r * r : 0;
        assert_int_equal(pare_observer_add(o, r, &x, &t, NULL), PARE_OK);
    }
    assert_int_equal(pare_observer_finish(o), PARE_OK);
    pare_moments *a = pare_observer_moments(o, 0, 0), *b = pare_observer_moments(o, 1, 0);
    assert_true(b->xx[0] == held && b->rows == 4);
    pare_moments_add(a, b);
    assert_true(a->xx[0] == all && a->rows == RUNS && a->x[0] == RUNS * (RUNS - 1) / 2);
    pare_observer_free(o);
    graph_close(&g);
}

/* Forms whose inputs do not be in rows. */
static void other_forms_are_not_served(void **state)
{
    (void)state;
    graph_case g;
    pare_columns c;
    bool ok = true;
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 2});
    graph_floats(&g, "w", 2, (int64_t[]){2, 2}, (float[]){1, 1, 1, 1});
    pare_node *left = graph_node(&g, "MatMul", "w x", "y");
    pare_node *turned = graph_node(&g, "Gemm", "x w", "z");
    assert_int_equal(pare_node_set_int(turned, "transA", 1), PARE_OK);
    pare_shape shape = {.rank = 2, .dim = {2, 2}};
    assert_int_equal(pare_columns_read(left, &shape, &c, &ok), PARE_OK);
    assert_false(ok);
    assert_int_equal(pare_columns_read(turned, &shape, &c, &ok), PARE_OK);
    assert_false(ok);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_product_by_hand),
        cmocka_unit_test(a_convolution_with_all_attributes),
        cmocka_unit_test(a_fifth_is_held_out),
        cmocka_unit_test(other_forms_are_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

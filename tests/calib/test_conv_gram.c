/* SPDX-License-Identifier: Apache-2.0 */
/* Second moments by shifted planes against the definition, sums over every output place, with
   numbers whose sums are exact in any order. */
#include "calib/moments.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { C = 18, M = 5 };

typedef struct form {
    int64_t in[2], kernel[2], pads[4], dilation[2], groups, batch;
} form;

static const form forms[] = {
    {{7, 6}, {3, 3}, {1, 1, 1, 1}, {1, 1}, 1, 1},   /* what most nets have */
    {{7, 6}, {3, 3}, {0, 0, 0, 0}, {1, 1}, 1, 2},   /* places that are no outputs on all sides */
    {{6, 9}, {3, 2}, {2, 0, 1, 3}, {1, 1}, 1, 1},   /* uneven, outputs that see padding alone */
    {{9, 8}, {3, 3}, {1, 2, 3, 0}, {2, 3}, 1, 1},   /* taps apart */
    {{5, 5}, {5, 1}, {2, 0, 2, 0}, {1, 1}, 2, 3},   /* one axis, groups */
    {{40, 41}, {3, 3}, {1, 1, 1, 1}, {1, 1}, 1, 1}, /* more places than a product takes at once */
};

typedef struct problem {
    graph_case g;
    const form *f;
    pare_columns c;
    float *x, *t, *less;
} problem;

static float number(int64_t i, int64_t seed) { return (float)((i * 37 + seed * 11) % 19 - 9); }

static void open_problem(problem *p, const form *f)
{
    const int64_t channels = C * f->groups, outputs = M * f->groups;
    float *w = calloc((size_t)(outputs * C * f->kernel[0] * f->kernel[1]), sizeof *w);
    bool ok = false;
    *p = (problem){.f = f};
    graph_open(&p->g, 17);
    graph_input(&p->g, "x", PARE_f32, 4, (int64_t[]){-1, channels, f->in[0], f->in[1]});
    graph_floats(&p->g, "w", 4, (int64_t[]){outputs, C, f->kernel[0], f->kernel[1]}, w);
    free(w);
    pare_node *node = graph_node(&p->g, "Conv", "x w", "y");
    assert_int_equal(pare_node_set_int(node, "group", f->groups), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "pads", f->pads, 4), PARE_OK);
    assert_int_equal(pare_node_set_ints(node, "dilations", f->dilation, 2), PARE_OK);
    const pare_shape shape = {.rank = 4, .dim = {f->batch, channels, f->in[0], f->in[1]}};
    assert_int_equal(pare_columns_read(node, &shape, &p->c, &ok), PARE_OK);
    assert_true(ok && pare_conv_gram_can(&p->c));
    const int64_t n = pare_shape_count(&shape), out = p->c.rows * outputs;
    p->x = malloc((size_t)n * sizeof *p->x);
    p->t = malloc((size_t)out * sizeof *p->t);
    p->less = malloc((size_t)out * sizeof *p->less);
    for (int64_t i = 0; i < n; i++) p->x[i] = number(i, 1);
    for (int64_t i = 0; i < out; i++) p->t[i] = number(i, 2), p->less[i] = number(i, 3);
}

static void close_problem(problem *p)
{
    free(p->x);
    free(p->t);
    free(p->less);
    graph_close(&p->g);
}

/* What column k sees at row r, in group g: zeros outside. */
static double seen(const problem *p, int64_t g, int64_t r, int64_t k)
{
    const form *f = p->f;
    const int64_t *out = p->c.window.out, plane = f->in[0] * f->in[1], tap = k / C;
    const int64_t image = r / (out[1] * out[2]), y = r / out[2] % out[1], z = r % out[2];
    const int64_t h = y - f->pads[0] + tap / f->kernel[1] * f->dilation[0];
    const int64_t w = z - f->pads[1] + tap % f->kernel[1] * f->dilation[1];
    if (h < 0 || w < 0 || h >= f->in[0] || w >= f->in[1]) return 0;
    return (double)p->x[((image * f->groups + g) * C + k % C) * plane + h * f->in[1] + w];
}

static double wanted(const problem *p, int64_t g, int64_t r, int64_t o)
{
    const int64_t plane = p->c.rows / p->c.batch;
    const int64_t at = (r / plane * p->f->groups + g) * M * plane + o * plane + r % plane;
    return (double)p->t[at] - (double)p->less[at];
}

static pare_observer *observe(problem *p, int threads)
{
    pare_observer *o = NULL;
    assert_int_equal(pare_observer_new(&p->g.ctx, &o, &p->c, 1, true, NULL, threads), PARE_OK);
    assert_int_equal(pare_observer_add(o, 0, p->x, p->t, p->less), PARE_OK);
    assert_int_equal(pare_observer_finish(o), PARE_OK);
    return o;
}

static void same(double got, double want, const char *what, int64_t i, int64_t j)
{
    if (got != want) fail_msg("%s of %d, %d: %g, expected %g", what, (int)i, (int)j, got, want);
}

static void check_group(const problem *p, const pare_moments *m, int64_t g)
{
    const int64_t d = p->c.columns, rows = p->c.rows;
    double *x = malloc((size_t)(rows * d) * sizeof *x);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < d; k++) x[r * d + k] = seen(p, g, r, k);
    assert_true(m->rows == (double)rows);
    for (int64_t i = 0; i < d; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += x[r * d + i];
        same(m->x[i], sum, "x", i, 0);
        for (int64_t j = i; j < d; j++) {
            sum = 0;
            for (int64_t r = 0; r < rows; r++) sum += x[r * d + i] * x[r * d + j];
            same(m->xx[i * d + j], sum, "xx", i, j);
        }
        for (int64_t o = 0; o < M; o++) {
            sum = 0;
            for (int64_t r = 0; r < rows; r++) sum += x[r * d + i] * wanted(p, g, r, o);
            same(m->xt[i * M + o], sum, "xt", i, o);
        }
    }
    for (int64_t o = 0; o < M; o++) {
        double sum = 0, square = 0;
        for (int64_t r = 0; r < rows; r++) {
            const double t = wanted(p, g, r, o);
            sum += t, square += t * t;
        }
        same(m->t[o], sum, "t", o, 0);
        same(m->tt[o], square, "tt", o, 0);
    }
    free(x);
}

static void sums_are_those_of_the_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        problem p;
        open_problem(&p, &forms[i]);
        pare_observer *o = observe(&p, 1);
        for (int64_t g = 0; g < forms[i].groups; g++)
            check_group(&p, pare_observer_moments(o, 0, g), g);
        pare_observer_free(o);
        close_problem(&p);
    }
}

/* Numbers whose sums round; runs of one image or of several. */
static void threads_and_batch_change_nothing(void **state)
{
    (void)state;
    problem p, q;
    form one = forms[4];
    one.batch = 1;
    open_problem(&p, &forms[4]);
    open_problem(&q, &one);
    const int64_t images = forms[4].batch, n = q.c.groups * C * 25, out = q.c.groups * M * q.c.rows;
    for (int64_t i = 0; i < images * n; i++) p.x[i] = number(i, 1) / 7;
    for (int64_t i = 0; i < images * out; i++) p.t[i] = number(i, 2) / 11;
    pare_observer *a = observe(&p, 1), *b = observe(&p, 3), *c = NULL;
    assert_int_equal(pare_observer_new(&q.g.ctx, &c, &q.c, 1, true, NULL, 2), PARE_OK);
    for (int64_t i = 0; i < images; i++)
        assert_int_equal(pare_observer_add(c, i, p.x + i * n, p.t + i * out, p.less + i * out),
                         PARE_OK);
    assert_int_equal(pare_observer_finish(c), PARE_OK);
    const int64_t d = p.c.columns;
    for (int64_t g = 0; g < 2; g++) {
        const pare_moments *m = pare_observer_moments(a, 0, g);
        const pare_moments *other[] = {pare_observer_moments(b, 0, g),
                                       pare_observer_moments(c, 0, g)};
        for (int k = 0; k < 2; k++) {
            for (int64_t i = 0; i < d; i++)
                assert_memory_equal(m->xx + i * d + i, other[k]->xx + i * d + i,
                                    (size_t)(d - i) * sizeof(double));
            assert_memory_equal(m->xt, other[k]->xt, (size_t)(d * M) * sizeof(double));
            assert_memory_equal(m->x, other[k]->x, (size_t)d * sizeof(double));
        }
    }
    pare_observer_free(a);
    pare_observer_free(b);
    pare_observer_free(c);
    close_problem(&p);
    close_problem(&q);
}

static void some_forms_are_written_down(void **state)
{
    (void)state;
    problem p;
    open_problem(&p, &forms[0]);
    pare_columns c = p.c;
    c.window.stride[2] = 2;
    assert_false(pare_conv_gram_can(&c));
    c = p.c;
    c.channels = 2;
    assert_false(pare_conv_gram_can(&c));
    c = p.c;
    c.window.kernel[1] = c.window.kernel[2] = 1;
    assert_false(pare_conv_gram_can(&c));
    c = p.c;
    c.window.in[1] = c.window.in[2] = 4000;
    assert_false(pare_conv_gram_can(&c));
    c.convolution = false;
    assert_false(pare_conv_gram_can(&c));
    close_problem(&p);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    problem p;
    open_problem(&p, &forms[0]);
    pare_status st = PARE_MEMORY;
    for (int64_t n = 0; st != PARE_OK; n++) {
        pare_observer *o = NULL;
        assert_true(n < 200);
        p.g.ctx.fail_after = n;
        st = pare_observer_new(&p.g.ctx, &o, &p.c, 1, true, NULL, 1);
        if (st == PARE_OK) st = pare_observer_add(o, 0, p.x, p.t, NULL);
        if (st == PARE_OK) st = pare_observer_finish(o);
        p.g.ctx.fail_after = -1;
        pare_ctx_clear(&p.g.ctx);
        assert_true(st == PARE_OK || st == PARE_MEMORY);
        pare_observer_free(o);
    }
    close_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_definition),
        cmocka_unit_test(threads_and_batch_change_nothing),
        cmocka_unit_test(some_forms_are_written_down),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

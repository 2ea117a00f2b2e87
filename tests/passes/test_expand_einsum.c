/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum rewritten: the operators that come of it, and the values of the plain kernel. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 4096 };

typedef struct einsum_case {
    const char *equation;
    int rank[2];                /* second: 0 for none */
    int64_t dims[2][4], run[4]; /* run: of the first input, where its dims are not known */
    int count[5];               /* of Einsum, MatMul, Mul, Transpose, Reshape */
} einsum_case;

static const char *const names[] = {"Einsum", "MatMul", "Mul", "Transpose", "Reshape"};

/* The constant second input takes part in folding: its Transposes and Reshapes leave no node. */
static const einsum_case cases[] = {
    {"ij,jk->ik", {2, 2}, {{3, 4}, {4, 5}}, {0}, {0, 1, 0, 0, 0}},
    {"ij,kj->ik", {2, 2}, {{3, 4}, {5, 4}}, {0}, {0, 1, 0, 0, 0}},
    {"ij,jk->ki", {2, 2}, {{3, 4}, {4, 5}}, {0}, {0, 1, 0, 1, 0}},
    {"bsd,dhk->bshk", {3, 3}, {{2, 3, 8}, {8, 4, 2}}, {0}, {0, 1, 0, 0, 1}},
    {"bsd,dhk->bshk", {3, 3}, {{-1, -1, 8}, {8, 4, 2}}, {2, 3, 8}, {0, 1, 0, 0, 1}},
    {"bshk,hkd->bsd", {4, 3}, {{2, 3, 4, 2}, {4, 2, 8}}, {0}, {0, 1, 0, 0, 1}},
    {"bqhd,bkhd->bhqk", {4, 4}, {{2, 4, 3, 5}, {2, 6, 3, 5}}, {0}, {0, 1, 0, 1, 0}},
    {"...ij,...jk", {3, 3}, {{2, 3, 4}, {2, 4, 5}}, {0}, {0, 1, 0, 0, 0}},
    {"bxyc,bckl->bxykl", {4, 4}, {{2, 3, 4, 5}, {2, 5, 2, 3}}, {0}, {0, 1, 0, 0, 2}},
    {"i,i->", {1, 1}, {{7}, {7}}, {0}, {0, 1, 0, 0, 2}},
    {"bi,bij->bj", {2, 3}, {{2, 3}, {2, 3, 4}}, {0}, {0, 1, 0, 0, 2}},
    {"bij,b->ijb", {3, 1}, {{2, 3, 4}, {2}}, {0}, {0, 0, 1, 1, 0}},
    {"aij,jk->ik", {3, 2}, {{2, 3, 4}, {4, 5}}, {0}, {0, 1, 0, 0, 0}},
    {"bij->ji", {3, 0}, {{2, 3, 4}}, {0}, {0, 0, 0, 1, 0}},
    {"ij->ij", {2, 0}, {{2, 3}}, {0}, {0, 0, 0, 0, 0}},
    /* left alone: a diagonal, a stretched axis, two lengths that no list can say */
    {"bii->bi", {3, 0}, {{2, 3, 3}}, {0}, {1, 0, 0, 0, 0}},
    {"ij,jk->ik", {2, 2}, {{3, 1}, {4, 5}}, {0}, {1, 0, 0, 0, 0}},
    {"bxyc,bck->bxyk", {4, 3}, {{2, -1, -1, 5}, {2, 5, 3}}, {2, 3, 4, 5}, {1, 0, 0, 0, 0}},
};

static void fill(float *to, int64_t n, unsigned seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) * 0x1p-23f - 1;
    }
}

static int64_t count_of(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    return n;
}

static void expand(graph_case *g)
{
    pare_infer_options infer = {.fold = true};
    bool changed;
    if (pare_pass_infer(g->model, &infer) != PARE_OK) fail_msg("%s", g->ctx.message);
    if (pare_pass_expand_einsum(g->model, &changed) != PARE_OK) fail_msg("%s", g->ctx.message);
    assert_int_equal(changed, graph_count(g, "Einsum") == 0);
    if (pare_pass_infer(g->model, &infer) != PARE_OK) fail_msg("%s", g->ctx.message);
}

static void check(const einsum_case *c)
{
    static float x[MOST], w[MOST], want[MOST], got[MOST];
    graph_case g;
    const int64_t *run = c->run[0] ? c->run : c->dims[0];
    graph_open(&g, 17);
    fill(x, count_of(c->rank[0], run), 1);
    fill(w, count_of(c->rank[1], c->dims[1]), 2);
    graph_input(&g, "x", PARE_f32, c->rank[0], c->dims[0]);
    if (c->rank[1]) graph_floats(&g, "w", c->rank[1], c->dims[1], w);
    pare_node *n = graph_node(&g, "Einsum", c->rank[1] ? "x w" : "x", "y");
    assert_int_equal(pare_node_set_string(n, "equation", c->equation), PARE_OK);
    graph_output(&g, "y");
    expand(&g);
    for (int i = 0; i < 5; i++)
        if (graph_count(&g, names[i]) != c->count[i])
            fail_msg("%s: %d %s, expected %d", c->equation, graph_count(&g, names[i]), names[i],
                     c->count[i]);
    const pare_value *y = graph_value(&g, "y");
    graph_case plain;
    graph_open(&plain, 17);
    graph_input(&plain, "x", PARE_f32, c->rank[0], run);
    if (c->rank[1]) graph_floats(&plain, "w", c->rank[1], c->dims[1], w);
    n = graph_node(&plain, "Einsum", c->rank[1] ? "x w" : "x", "y");
    assert_int_equal(pare_node_set_string(n, "equation", c->equation), PARE_OK);
    graph_output(&plain, "y");
    pare_infer_options infer = {0};
    assert_int_equal(pare_pass_infer(plain.model, &infer), PARE_OK);
    const int64_t count = pare_shape_count(&graph_value(&plain, "y")->shape);
    assert_int_equal(y->shape.rank, graph_value(&plain, "y")->shape.rank);
    assert_in_range(count, 1, MOST);
    graph_run(&plain, c->rank[0], run, x, want, count);
    graph_run(&g, c->rank[0], run, x, got, count);
    for (int64_t i = 0; i < count; i++)
        if (fabsf(want[i] - got[i]) > 1e-5f)
            fail_msg("%s: element %d is %g, expected %g", c->equation, (int)i, (double)got[i],
                     (double)want[i]);
    graph_close(&plain);
    graph_close(&g);
}

static void products_are_rewritten(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void wrong_equations_are_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"ij,jk", "2 terms for 1 inputs"},    {"ijk->k", "3 axes"},
        {"ij->ik", "a letter that no input"}, {"ij->ii", "a letter twice"},
        {"i1->i", "something else than"},     {"...i...->i", "more than one ellipsis"},
        {"...i->i", "lacks the ellipsis"},    {"ii->i", "axes of different length"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        graph_case g;
        pare_infer_options infer = {0};
        graph_open(&g, 17);
        graph_input(&g, "x", PARE_f32, 2, (int64_t[]){2, 3});
        pare_node *n = graph_node(&g, "Einsum", "x", "y");
        assert_int_equal(pare_node_set_string(n, "equation", wrong[i][0]), PARE_OK);
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_INPUT);
        if (!strstr(g.ctx.message, wrong[i][1])) fail_msg("%s: %s", wrong[i][0], g.ctx.message);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_rewritten),
        cmocka_unit_test(wrong_equations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

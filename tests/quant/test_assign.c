/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of a graph's vertices: both ways to assign them against all assignments there are. */
#include "quant/latency/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 9, EDGES = 14, GRAPHS = 150 };

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x >> 8;
}

typedef struct made_up {
    int64_t cost[MOST][PARE_IN_COUNT];
    pare_format_edge edge[EDGES];
    pare_assignment a;
} made_up;

/* Every sixth format cannot be; conversions cost no more than by a third format. */
static void make_up(made_up *m, int count, int edges, uint32_t *x)
{
    *m = (made_up){.a = {.count = count, .edges = edges}};
    m->a.cost = m->cost;
    m->a.edge = m->edge;
    for (int v = 0; v < count; v++)
        for (int p = 0; p < PARE_IN_COUNT; p++) m->cost[v][p] = next_random(x) % 100;
    for (int v = 0; v < count; v++)
        if (next_random(x) % 2) m->cost[v][next_random(x) % PARE_IN_COUNT] = PARE_CUT_INFINITE;
    for (int e = 0; e < edges; e++) {
        pare_format_edge *edge = &m->edge[e];
        edge->from = (int)(next_random(x) % (unsigned)count);
        edge->to = (int)(next_random(x) % (unsigned)count);
        for (int i = 0; i < PARE_IN_COUNT; i++)
            for (int k = 0; k < PARE_IN_COUNT; k++)
                edge->convert[i][k] = i == k ? 0 : next_random(x) % 60;
        for (int k = 0; k < PARE_IN_COUNT; k++)
            for (int i = 0; i < PARE_IN_COUNT; i++)
                for (int j = 0; j < PARE_IN_COUNT; j++)
                    if (edge->convert[i][j] > edge->convert[i][k] + edge->convert[k][j])
                        edge->convert[i][j] = edge->convert[i][k] + edge->convert[k][j];
    }
}

static int64_t least_of(const pare_assignment *a)
{
    int64_t least = INT64_MAX;
    int all = 1;
    for (int v = 0; v < a->count; v++) all *= PARE_IN_COUNT;
    for (int n = 0; n < all; n++) {
        pare_quant_format place[MOST];
        for (int v = 0, rest = n; v < a->count; v++, rest /= PARE_IN_COUNT)
            place[v] = (pare_quant_format)(rest % PARE_IN_COUNT);
        const int64_t cost = pare_assignment_cost(a, place);
        least = cost < least ? cost : least;
    }
    return least;
}

static void no_assignment_costs_less(void **state)
{
    uint32_t x = 2463534242u;
    pare_ctx ctx;
    int equal = 0;
    (void)state;
    pare_ctx_init(&ctx);
    for (int g = 0; g < GRAPHS; g++) {
        made_up m;
        pare_quant_format exact[MOST], expanded[MOST];
        bool done;
        make_up(&m, 1 + g % MOST, g % (EDGES + 1), &x);
        const int64_t least = least_of(&m.a);
        assert_int_equal(pare_assign_exactly(&ctx, &m.a, exact, &done), PARE_OK);
        assert_true(done);
        assert_int_equal(pare_assignment_cost(&m.a, exact), least);
        assert_int_equal(pare_assign_by_expansion(&ctx, &m.a, expanded), PARE_OK);
        const int64_t cost = pare_assignment_cost(&m.a, expanded);
        assert_true(cost >= least && cost <= 2 * least);
        equal += cost == least;
    }
    assert_true(equal > GRAPHS * 9 / 10);
}

/* Equal costs: the shortest format. */
static void ties_are_int8(void **state)
{
    (void)state;
    pare_ctx ctx;
    made_up m = {.a = {.count = MOST, .edges = 0}};
    pare_quant_format place[MOST];
    pare_ctx_init(&ctx);
    m.a.cost = m.cost;
    m.a.edge = m.edge;
    assert_int_equal(pare_assign(&ctx, &m.a, place), PARE_OK);
    for (int v = 0; v < MOST; v++) assert_int_equal(place[v], PARE_IN_INT8);
}

/* Each vertex beside each other one: beyond the exact way. Half of them are cheap as int8. */
static void wide_graphs_are_expanded(void **state)
{
    enum { WIDE = 16, ALL = WIDE * (WIDE - 1) / 2 };
    pare_ctx ctx;
    int64_t cost[WIDE][PARE_IN_COUNT];
    pare_format_edge edge[ALL];
    pare_assignment a = {.count = WIDE, .cost = cost, .edge = edge};
    pare_quant_format place[WIDE];
    bool done;
    (void)state;
    pare_ctx_init(&ctx);
    for (int v = 0; v < WIDE; v++)
        for (int p = 0; p < PARE_IN_COUNT; p++)
            cost[v][p] = (p == PARE_IN_INT8) == (v < WIDE / 2) ? 10 : 1000;
    for (int v = 0; v < WIDE; v++)
        for (int u = 0; u < v; u++) {
            pare_format_edge *e = &edge[a.edges++];
            *e = (pare_format_edge){.from = u, .to = v};
            for (int i = 0; i < PARE_IN_COUNT; i++)
                for (int k = 0; k < PARE_IN_COUNT; k++) e->convert[i][k] = i != k;
        }
    assert_int_equal(pare_assign_exactly(&ctx, &a, place, &done), PARE_OK);
    assert_false(done);
    assert_int_equal(pare_assign(&ctx, &a, place), PARE_OK);
    for (int v = 0; v < WIDE; v++) {
        assert_int_equal(place[v] == PARE_IN_INT8, v < WIDE / 2);
        if (v >= WIDE / 2) assert_int_equal(place[v], place[WIDE - 1]);
    }
}

static void memory_that_runs_out_is_said(void **state)
{
    uint32_t x = 7u;
    (void)state;
    for (int way = 0; way < 2; way++)
        for (long after = 0;; after++) {
            pare_ctx ctx;
            made_up m;
            pare_quant_format place[MOST];
            bool done;
            make_up(&m, MOST, EDGES, &x);
            pare_ctx_init(&ctx);
            ctx.fail_after = after;
            const pare_status st = way ? pare_assign_by_expansion(&ctx, &m.a, place)
                                       : pare_assign_exactly(&ctx, &m.a, place, &done);
            if (st == PARE_OK) break;
            assert_int_equal(st, PARE_MEMORY);
            assert_true(after < 1000);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_assignment_costs_less),
        cmocka_unit_test(ties_are_int8),
        cmocka_unit_test(wide_graphs_are_expanded),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

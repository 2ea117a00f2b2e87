/* SPDX-License-Identifier: Apache-2.0 */
/* Replica pools: the same bytes with any number of threads, sums over slices, the order in which
   slices are taken, failures. */
#include "runtime/exec/batch.h"
#include "runtime/ops/ops.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SLICES = 7, ROWS = 3, WIDTH = 5, SIZE = ROWS * WIDTH };

typedef struct bench {
    graph_case g;
    pare_plan *plan;
    pare_replicas *pool;
    float x[SLICES][SIZE];
    float y[SLICES][SIZE], sum[SLICES][WIDTH]; /* what came out */
    double wide[SLICES][WIDTH];
    int order[SLICES], taken; /* slices as they were taken */
    int items, load_fails, take_fails;
} bench;

static pare_node *slice_sum(bench *b, pare_value **in, int count, const char *const *out)
{
    pare_node *node;
    pare_value *made[2];
    pare_graph *graph = b->g.model->graph;
    for (int i = 0; i < count; i++)
        assert_int_equal(pare_value_new(graph, &made[i], out[i]), PARE_OK);
    assert_int_equal(pare_node_new(graph, &node, graph->node_count, "SliceSum", PARE_DOMAIN, out[0],
                                   in, count, made, count),
                     PARE_OK);
    return node;
}

/* s = the sum of x's rows, d = s as f64; y = x / s. With sums: s is summed over slices, then d and
   s (together), then t = s + s again; y = x / t. */
static void build(bench *b, bool sums)
{
    const int64_t zero = 0;
    memset(b, 0, sizeof *b);
    b->load_fails = -3;
    b->take_fails = -1;
    graph_open(&b->g, 21);
    graph_input(&b->g, "x", PARE_f32, 2, (int64_t[]){ROWS, WIDTH});
    graph_ints(&b->g, "axes", 1, (int64_t[]){1}, &zero);
    assert_int_equal(
        pare_node_set_int(graph_node(&b->g, "ReduceSum", "x axes", "s"), "keepdims", 0), PARE_OK);
    assert_int_equal(pare_node_set_int(graph_node(&b->g, "Cast", "s", "d"), "to", 11), PARE_OK);
    const char *t = "s";
    if (sums) {
        pare_value *in[] = {graph_value(&b->g, "s"), graph_value(&b->g, "d")};
        slice_sum(b, in, 2, (const char *const[]){"s1", "d1"});
        graph_node(&b->g, "Add", "s1 s", "s2");
        slice_sum(b, (pare_value *[]){graph_value(&b->g, "s2")}, 1, (const char *const[]){"t"});
        t = "t";
    }
    char in[8] = "x ";
    graph_node(&b->g, "Div", strcat(in, t), "y");
    graph_output(&b->g, "y");
    graph_output(&b->g, sums ? "s1" : "s");
    graph_output(&b->g, sums ? "d1" : "d");
    uint32_t seed = 1;
    for (int i = 0; i < SLICES * SIZE; i++) {
        seed = seed * 1664525u + 1013904223u;
        b->x[i / SIZE][i % SIZE] = (float)(seed >> 8) / 16777216.0f + 0.01f;
    }
    pare_plan_options options = {.threads = 1, .deterministic = true};
    if (pare_plan_new(&b->g.ctx, &b->plan, b->g.model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", b->g.ctx.message);
}

static pare_status pool_new(bench *b, int items, int threads)
{
    const pare_replicas_options options = {.items = items, .threads = threads};
    b->items = items;
    return pare_replicas_new(&b->g.ctx, &b->pool, b->plan, &options);
}

static void open(bench *b, bool sums, int threads)
{
    build(b, sums);
    assert_int_equal(pool_new(b, SLICES, threads), PARE_OK);
}

static void finish(bench *b)
{
    pare_replicas_free(b->pool);
    pare_plan_free(b->plan);
    graph_close(&b->g);
}

static pare_status load(void *user, int64_t item, pare_replica *replica)
{
    bench *b = user;
    const int slice = (int)item;
    if (slice == b->load_fails || slice == b->load_fails + 2)
        return PARE_FAIL(&replica->ctx, INPUT, "slice %d cannot be read", slice);
    pare_runner_set_input(replica->runner, 0, b->x[slice]);
    if (slice % 3 == 0) (void)usleep(200); /* the others overtake it */
    return PARE_OK;
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    bench *b = user;
    const int slice = (int)item;
    const pare_runner *runner = replica->runner;
    if (slice == b->take_fails)
        return PARE_FAIL(&replica->ctx, MEMORY, "slice %d cannot be kept", slice);
    b->order[b->taken++] = slice;
    memcpy(b->y[slice], pare_runner_output(runner, 0).data, sizeof b->y[slice]);
    memcpy(b->sum[slice], pare_runner_output(runner, 1).data, sizeof b->sum[slice]);
    memcpy(b->wide[slice], pare_runner_output(runner, 2).data, sizeof b->wide[slice]);
    return PARE_OK;
}

static pare_status run(bench *b)
{
    const pare_batch_work work = {.load = load, .take = take, .user = b};
    b->taken = 0;
    return pare_replicas_run(b->pool, 0, b->items, &work);
}

static void expect_order(const bench *b, int count)
{
    assert_int_equal(b->taken, count);
    for (int i = 0; i < count; i++) assert_int_equal(b->order[i], i);
}

/* ReduceSum adds in double. */
static void row_sums(const float *x, float *s)
{
    for (int c = 0; c < WIDTH; c++)
        s[c] = (float)((double)x[c] + (double)x[WIDTH + c] + (double)x[2 * WIDTH + c]);
}

/* The definition: sums in the tree of seven slices, in the tensor's type. */
#define TREE(x)  (((x(0) + x(1)) + (x(2) + x(3))) + ((x(4) + x(5)) + x(6)))
#define S(i)     s[i][c]
#define WIDE(i)  (double)s[i][c]
#define AGAIN(i) (s1[c] + s[i][c])

static void expect_sums(const bench *b)
{
    float s[SLICES][WIDTH], s1[WIDTH], t[WIDTH];
    double d1[WIDTH];
    for (int i = 0; i < SLICES; i++) row_sums(b->x[i], s[i]);
    for (int c = 0; c < WIDTH; c++) {
        s1[c] = TREE(S);
        d1[c] = TREE(WIDE);
        t[c] = TREE(AGAIN);
    }
    for (int i = 0; i < SLICES; i++) {
        assert_memory_equal(b->sum[i], s1, sizeof s1);
        assert_memory_equal(b->wide[i], d1, sizeof d1);
        for (int k = 0; k < SIZE; k++) assert_true(b->y[i][k] == b->x[i][k] / t[k % WIDTH]);
    }
}

static void expect_apart(const bench *b)
{
    for (int i = 0; i < SLICES; i++) {
        float s[WIDTH];
        row_sums(b->x[i], s);
        assert_memory_equal(b->sum[i], s, sizeof s);
        for (int k = 0; k < SIZE; k++) assert_true(b->y[i][k] == b->x[i][k] / s[k % WIDTH]);
    }
}

static void threads_change_nothing(void **state)
{
    static const int threads[] = {1, 2, 3, 5, 64};
    (void)state;
    for (int sums = 0; sums < 2; sums++)
        for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
            bench b;
            open(&b, sums, threads[i]);
            assert_int_equal(pare_replicas_threads(b.pool),
                             threads[i] < SLICES ? threads[i] : SLICES);
            for (int again = 0; again < 20; again++) {
                memset(b.y, 0, sizeof b.y);
                if (run(&b) != PARE_OK) fail_msg("%s", b.g.ctx.message);
                expect_order(&b, SLICES);
                (sums ? expect_sums : expect_apart)(&b);
            }
            finish(&b);
        }
}

/* A plain run, and a pool for one slice. */
static void a_slice_alone_is_its_own_sum(void **state)
{
    (void)state;
    bench b;
    pare_runner *runner;
    float s[WIDTH];
    build(&b, true);
    row_sums(b.x[0], s);
    assert_int_equal(pare_runner_new(&b.g.ctx, &runner, b.plan), PARE_OK);
    pare_runner_set_input(runner, 0, b.x[0]);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    assert_memory_equal(pare_runner_output(runner, 1).data, s, sizeof s);
    pare_runner_free(runner);
    assert_int_equal(pool_new(&b, 1, 0), PARE_OK);
    assert_int_equal(run(&b), PARE_OK);
    expect_order(&b, 1);
    assert_memory_equal(b.sum[0], s, sizeof s);
    finish(&b);
}

/* Another pool with the same items; the fourth call fails. */
static pare_status sum_twice(void *user, pare_dtype dtype, void *y, int64_t count)
{
    int *calls = user;
    if (++*calls == 4) return PARE_IO;
    for (int64_t i = 0; i < count; i++)
        if (dtype == PARE_f64)
            ((double *)y)[i] *= 2;
        else
            ((float *)y)[i] *= 2;
    return PARE_OK;
}

static void sums_are_over_several_pools(void **state)
{
    (void)state;
    for (int items = 1; items <= SLICES; items += SLICES - 1) {
        bench b;
        float s[SLICES][WIDTH];
        int calls = 0;
        build(&b, true);
        b.items = items;
        const pare_replicas_options options = {
            .items = items, .threads = 2, .sum = sum_twice, .sum_user = &calls};
        assert_int_equal(pare_replicas_new(&b.g.ctx, &b.pool, b.plan, &options), PARE_OK);
        assert_int_equal(run(&b), PARE_OK);
        expect_order(&b, items);
        assert_int_equal(calls, 3);
        for (int i = 0; i < SLICES; i++) row_sums(b.x[i], s[i]);
        for (int k = 0; k < items * SIZE; k++) {
            const int c = k % WIDTH, i = k / SIZE;
            float s1[WIDTH];
            s1[c] = 2 * (items > 1 ? TREE(S) : S(0));
            const float t = 2 * (items > 1 ? TREE(AGAIN) : AGAIN(0));
            assert_true(b.sum[i][c] == s1[c]);
            assert_true(b.wide[i][c] == 2 * (items > 1 ? TREE(WIDE) : WIDE(0)));
            assert_true(b.y[i][k % SIZE] == b.x[i][k % SIZE] / t);
        }
        assert_int_equal(run(&b), PARE_IO);
        expect_order(&b, 0);
        assert_int_equal(run(&b), PARE_OK);
        finish(&b);
    }
}

static void the_first_failure_is_told(void **state)
{
    (void)state;
    for (int sums = 0; sums < 2; sums++)
        for (int threads = 1; threads <= SLICES; threads++)
            for (int slice = 0; slice < SLICES; slice++) {
                bench b;
                char text[64];
                open(&b, sums, threads);
                b.load_fails = slice;
                assert_int_equal(run(&b), PARE_INPUT);
                snprintf(text, sizeof text, "slice %d cannot be read", slice);
                assert_string_equal(b.g.ctx.message, text);
                expect_order(&b, sums ? 0 : slice);
                pare_ctx_clear(&b.g.ctx);
                b.load_fails = -3;
                b.take_fails = slice;
                assert_int_equal(run(&b), PARE_MEMORY);
                snprintf(text, sizeof text, "slice %d cannot be kept", slice);
                assert_string_equal(b.g.ctx.message, text);
                expect_order(&b, slice);
                pare_ctx_clear(&b.g.ctx);
                b.take_fails = -1;
                assert_int_equal(run(&b), PARE_OK); /* it continues as if nothing had been */
                expect_order(&b, SLICES);
                (sums ? expect_sums : expect_apart)(&b);
                finish(&b);
            }
}

/* --- pools without sums --- */

static pare_status take_any(void *user, int64_t item, pare_replica *replica)
{
    bench *b = user;
    memcpy(b->y[item], pare_runner_output(replica->runner, 0).data, sizeof b->y[item]);
    memcpy(b->sum[item], pare_runner_output(replica->runner, 1).data, sizeof b->sum[item]);
    return PARE_OK;
}

/* Any number of items on any number of replicas; parts of them, one after the other. */
static void items_may_be_taken_in_any_order(void **state)
{
    (void)state;
    for (int threads = 1; threads < 5; threads++) {
        bench b;
        const pare_batch_work work = {
            .load = load, .take = take_any, .any_order = true, .user = &b};
        open(&b, false, threads);
        for (int first = 0; first < SLICES; first += 3) {
            const int count = SLICES - first < 3 ? SLICES - first : 3;
            assert_int_equal(pare_replicas_run(b.pool, first, count, &work), PARE_OK);
        }
        expect_apart(&b);
        memset(b.y, 0, sizeof b.y);
        assert_int_equal(pare_replica_run(pare_replicas_at(b.pool, 0), 0, SLICES, &work), PARE_OK);
        expect_apart(&b);
        finish(&b);
    }
}

static void each_item_keeps_its_replica(void **state)
{
    (void)state;
    bench b;
    build(&b, false);
    const pare_replicas_options options = {.items = SLICES, .threads = 2, .each = true};
    const pare_batch_work work = {.load = load, .user = &b};
    assert_int_equal(pare_replicas_new(&b.g.ctx, &b.pool, b.plan, &options), PARE_OK);
    assert_int_equal(pare_replicas_count(b.pool), SLICES);
    assert_int_equal(pare_replicas_run(b.pool, 0, SLICES, &work), PARE_OK);
    for (int i = 0; i < SLICES; i++)
        assert_int_equal(take_any(&b, i, pare_replicas_at(b.pool, i)), PARE_OK);
    expect_apart(&b);
    finish(&b);
}

/* What is run in place of the plan: all fail but the first two. */
static pare_status run_other(void *user, int64_t item, pare_replica *replica)
{
    (void)user;
    if (item < 2) return PARE_OK;
    if (item % 2) (void)usleep(300); /* later items fail before it */
    return PARE_FAIL(&replica->ctx, UNSUPPORTED, "item %d does not run", (int)item);
}

static pare_status count_taken(void *user, int64_t item, pare_replica *replica)
{
    bench *b = user;
    (void)replica;
    b->order[b->taken++] = (int)item;
    return PARE_OK;
}

static void other_work_fails_in_order_too(void **state)
{
    (void)state;
    for (int threads = 1; threads <= SLICES; threads++) {
        bench b;
        open(&b, false, threads);
        const pare_batch_work work = {.run = run_other, .take = count_taken, .user = &b};
        assert_int_equal(pare_replicas_run(b.pool, 0, SLICES, &work), PARE_UNSUPPORTED);
        assert_string_equal(b.g.ctx.message, "item 2 does not run");
        expect_order(&b, 2);
        finish(&b);
    }
}

static void allocations_fail_cleanly(void **state)
{
    (void)state;
    for (int sums = 0; sums < 2; sums++) {
        bench b;
        pare_status st = PARE_MEMORY;
        build(&b, sums);
        for (long n = 0; st != PARE_OK; n++) {
            pare_ctx_clear(&b.g.ctx);
            b.g.ctx.fail_after = n;
            st = pool_new(&b, SLICES, 2);
            b.g.ctx.fail_after = -1;
            if (st == PARE_OK) break;
            assert_int_equal(st, PARE_MEMORY);
            assert_true(*b.g.ctx.message);
            assert_null(b.pool);
            assert_in_range(n, 0, 1000);
        }
        assert_int_equal(run(&b), PARE_OK);
        finish(&b);
    }
}

static void a_stop_is_obeyed(void **state)
{
    (void)state;
    bench b;
    volatile int stop = 1;
    open(&b, true, 2);
    b.g.ctx.interrupted = &stop;
    assert_int_equal(run(&b), PARE_INTERRUPTED);
    expect_order(&b, 0);
    finish(&b);
}

static void types_other_than_floats_are_refused(void **state)
{
    (void)state;
    bench b;
    pare_plan *plan;
    memset(&b, 0, sizeof b);
    graph_open(&b.g, 21);
    pare_value *x = graph_input(&b.g, "x", PARE_s32, 1, (int64_t[]){3});
    slice_sum(&b, &x, 1, (const char *const[]){"y"});
    graph_output(&b.g, "y");
    assert_int_equal(pare_plan_new(&b.g.ctx, &plan, b.g.model, NULL, 0, NULL), PARE_INPUT);
    assert_string_equal(
        b.g.ctx.message,
        "m.onnx: node 'y' (SliceSum): its input 0 has type s32, expected f32 or f64");
    graph_close(&b.g);
}

/* A kernel's message is in the context of the replica that ran it, and in no other. */
static void kernels_fail_in_their_replica(void **state)
{
    const int64_t outside[] = {9};
    graph_case g;
    pare_plan *plan;
    pare_replicas *pool;
    const pare_replicas_options options = {.threads = 2};
    const pare_batch_work work = {0};
    (void)state;
    graph_open(&g, 21);
    graph_input(&g, "i", PARE_s64, 1, (int64_t[]){1});
    graph_floats(&g, "table", 1, (int64_t[]){3}, (float[]){1, 2, 3});
    graph_node(&g, "Gather", "table i", "y");
    graph_output(&g, "y");
    pare_plan_options plain = {.threads = 1};
    assert_int_equal(pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &plain), PARE_OK);
    assert_int_equal(pare_replicas_new(&g.ctx, &pool, plan, &options), PARE_OK);
    pare_replica *one = pare_replicas_at(pool, 1);
    pare_runner_set_input(one->runner, 0, outside);
    assert_int_equal(pare_replica_run(one, 0, 1, &work), PARE_INPUT);
    assert_non_null(strstr(one->ctx.message, "index 9 is outside an axis of length 3"));
    assert_string_equal(pare_replicas_at(pool, 0)->ctx.message, "");
    assert_string_equal(g.ctx.message, "");
    pare_replicas_free(pool);
    pare_plan_free(plan);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(a_slice_alone_is_its_own_sum),
        cmocka_unit_test(sums_are_over_several_pools),
        cmocka_unit_test(the_first_failure_is_told),
        cmocka_unit_test(items_may_be_taken_in_any_order),
        cmocka_unit_test(each_item_keeps_its_replica),
        cmocka_unit_test(other_work_fails_in_order_too),
        cmocka_unit_test(allocations_fail_cleanly),
        cmocka_unit_test(a_stop_is_obeyed),
        cmocka_unit_test(types_other_than_floats_are_refused),
        cmocka_unit_test(kernels_fail_in_their_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

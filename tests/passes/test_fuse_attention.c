/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of f16 and bf16 under masks, fused: the plain kernel and the one that a plan chooses (a
   device's where tests are built with one) give what the operators give. Queries and keys are
   multiples of 1/8 whose products are exact, so that no score is rounded another way because its
   sum came in another order. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BATCH = 2, SIZE = 16, MOST = 70, BLIND = 5, COUNT = BATCH * MOST * SIZE };

/* low: what a mask says of a key that is taken away; reach: Q is so many times the input. A query's
   score of its own key is about -6 * reach, and f16 has no sum of its lowest number and -16. */
typedef struct masked {
    pare_dtype type;
    int64_t length;
    bool causal;
    float low, reach;
} masked;

static const float lowest[2] = {-65504, -0x1.fep127f};

static void cast(graph_case *g, const char *from, const char *to, pare_dtype type)
{
    assert_int_equal(pare_node_set_int(graph_node(g, "Cast", from, to), "to", type), PARE_OK);
}

static void transposed(graph_case *g, const char *from, const char *to)
{
    const int64_t perm[] = {0, 1, 3, 2};
    assert_int_equal(pare_node_set_ints(graph_node(g, "Transpose", from, to), "perm", perm, 4),
                     PARE_OK);
}

/* A constant that takes later keys away, and all of query BLIND. */
static void causal_mask(graph_case *g, const masked *c)
{
    static float mask[MOST * MOST];
    const int64_t n = c->length;
    for (int64_t i = 0; i < n * n; i++) mask[i] = i % n > i / n || i / n == BLIND ? c->low : 0;
    graph_floats(g, "mask", 2, (int64_t[]){n, n}, mask);
    cast(g, "mask", "m", c->type);
}

/* One that a run makes: the last third of keys is taken from the first sample, all from the second.
 */
static void padding_mask(graph_case *g, const masked *c)
{
    float mask[BATCH * MOST];
    const int64_t n = c->length, axes[] = {1, 3};
    for (int64_t i = 0; i < BATCH * n; i++) mask[i] = i >= n - n / 3 ? c->low : 0;
    graph_floats(g, "mask", 4, (int64_t[]){BATCH, 1, 1, n}, mask);
    graph_floats(g, "zero", 0, NULL, &(float){0});
    pare_node *top = graph_node(g, "ReduceMax", "x", "top");
    assert_int_equal(pare_node_set_ints(top, "axes", axes, 2), PARE_OK);
    transposed(g, "top", "row");
    graph_node(g, "Mul", "row zero", "none");
    graph_node(g, "Add", "mask none", "made");
    cast(g, "made", "m", c->type);
}

static void attention_graph(graph_case *g, const masked *c)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 4, (int64_t[]){BATCH, 1, c->length, SIZE});
    graph_floats(g, "reach", 0, NULL, &c->reach);
    graph_floats(g, "minus", 0, NULL, &(float){-4});
    graph_floats(g, "quarter", 0, NULL, &(float){0.25f});
    graph_node(g, "Mul", "x reach", "xq");
    graph_node(g, "Mul", "x minus", "xk");
    graph_node(g, "Sin", "x", "xv");
    cast(g, "xq", "q", c->type);
    cast(g, "xk", "k", c->type);
    cast(g, "xv", "v", c->type);
    cast(g, "quarter", "scale", c->type);
    if (c->causal)
        causal_mask(g, c);
    else
        padding_mask(g, c);
    transposed(g, "k", "kt");
    graph_node(g, "MatMul", "q kt", "s");
    graph_node(g, "Mul", "s scale", "d");
    graph_node(g, "Add", "d m", "a");
    graph_node(g, "Softmax", "a", "p");
    graph_node(g, "MatMul", "p v", "h");
    cast(g, "h", "y", PARE_f32);
    graph_output(g, "y");
}

/* Multiples of 1/8 in [-1, 1]. */
static void eighths(float x[COUNT], uint64_t seed)
{
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((int)(seed >> 40) % 17 - 8) / 8;
    }
}

/* Runs the model; fails unless it has so many fused attentions. */
static void run(graph_case *g, const pare_plan_options *options, int fused, const float *x,
                float y[COUNT])
{
    pare_plan *plan;
    pare_runner *runner;
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        fused -= !strcmp(step.op_type, "FusedAttention");
    }
    assert_int_equal(fused, 0);
    pare_view in = pare_runner_input(runner, 0);
    memcpy(in.data, x, pare_view_bytes(&in));
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view out = pare_runner_output(runner, 0);
    memcpy(y, out.data, pare_view_bytes(&out));
    pare_runner_free(runner);
    pare_plan_free(plan);
}

/* The operators round probabilities, and tensor cores do: two steps of the type, of at most 1. */
static float apart(const masked *c) { return c->type == PARE_f16 ? 0x1p-10f : 0x1p-7f; }

static void compare(const masked *c, const char *how, const float *want, const float *got)
{
    for (int i = 0; i < (int)(BATCH * c->length * SIZE); i++)
        if (!(fabsf(want[i] - got[i]) <= apart(c)) && !(isnan(want[i]) && isnan(got[i])))
            fail_msg("%s, %s, mask %g, %s, reach %g: element %d is %g, expected %g", how,
                     pare_type(c->type)->name, (double)c->low, c->causal ? "causal" : "padding",
                     (double)c->reach, i, (double)got[i], (double)want[i]);
}

/* A query without keys sees the mean where the mask is so low that its sums with scores are equal,
   no number where it is infinite. */
static void blind_query_sees(const masked *c, const float *x, const float *y)
{
    const int64_t sample = c->causal ? 0 : 1, row = sample * c->length + BLIND;
    for (int d = 0; d < SIZE; d++) {
        float mean = 0;
        for (int64_t j = 0; j < c->length; j++)
            mean += sinf(x[(sample * c->length + j) * SIZE + d]) / (float)c->length;
        if (isinf(c->low))
            assert_true(isnan(y[row * SIZE + d]));
        else
            assert_true(fabsf(y[row * SIZE + d] - mean) <= apart(c));
    }
}

static void fused_plainly(graph_case *g)
{
    const pare_infer_options fold = {.fold = true};
    pare_status st = pare_graph_sort(g->model->graph);
    if (!st) st = pare_pass_version_convert(g->model, 18);
    if (!st) st = pare_pass_infer(g->model, &fold);
    if (!st) st = pare_pass_fuse(g->model, NULL, 0);
    if (st) fail_msg("%s", g->ctx.message);
}

static void check(const masked *c, uint64_t seed)
{
    static float x[COUNT], want[COUNT], got[COUNT];
    const pare_plan_options plain = {.threads = 1, .reference = true};
    pare_plan_options fast = {.threads = 1};
    graph_case g;
    attention_graph(&g, c);
    eighths(x, seed);
    run(&g, &plain, 0, x, want);
#ifdef CASE_DEVICE
    if (pare_device_open(&g.ctx, &fast.device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
#endif
    run(&g, &fast, 1, x, got);
    pare_device_close(fast.device);
    compare(c, "chosen kernel", want, got);
    fused_plainly(&g);
    run(&g, &plain, 1, x, got);
    compare(c, "plain kernel", want, got);
    if (isinf(c->low) || (c->reach <= 1 && c->low < -10000)) blind_query_sees(c, x, got);
    graph_close(&g);
}

static void masked_halves_are_their_operators(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        const float low[] = {lowest[i % 2], -10000, -INFINITY};
        const masked c = {.type = i % 2 ? PARE_bf16 : PARE_f16,
                          .length = i / 12 ? MOST - 1 : MOST, /* odd: no word holds two keys */
                          .causal = i / 2 % 2,
                          .low = low[i / 4 % 3],
                          .reach = i / 12 ? 1 : 4};
        check(&c, (uint64_t)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_halves_are_their_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

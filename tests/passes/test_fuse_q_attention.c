/* SPDX-License-Identifier: Apache-2.0 */
/* Attention whose products are of 8 bits, fused: the plain kernel, and on a device the one that a
   plan chooses, give the bytes of the products, the mask and the softmax one by one. What is no
   such attention stays as it is. */
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"
#include "tests/passes/qdq_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BATCH = 2, LENGTH = 21, HEADS = 3, SIZE = 16, WIDTH = HEADS * SIZE };
enum { COUNT = BATCH * LENGTH * WIDTH };

typedef enum masking { NO_MASK, KEYS, CAUSAL } masking;

/* What keeps the operators from being one. */
typedef enum obstacle {
    NO_OBSTACLE,
    OTHER_SCALE, /* the probabilities' codes are read with another scale than made */
    OTHER_ZERO,
    TINY_SCALES,  /* the scores' product underflows */
    P_READ_TWICE, /* and so on: something else reads it, too */
    P_IS_OUTPUT,
    SCORES_ARE_OUTPUT,
    SCORES_ARE_KEPT,
    ACTIVATION, /* follows the product with V */
    RESIDUAL,
    SCORES_ACTIVATION,
    NARROW_HEADS, /* no multiple of 16 */
    OBSTACLES
} obstacle;

typedef struct quantized {
    pare_dtype type;
    int zero;
    pare_dtype p_type;
    int p_zero;
    masking mask;
    float root;  /* what scores are divided by */
    bool floats; /* Y is not quantized */
    bool moved;  /* heads come before the sequence by Transposes */
    obstacle has;
} quantized;

/* A pair around `from`: its codes are to_q, which are read with read_scale and read_zero. */
static void pair_apart(graph_case *g, const char *from, const char *to, float scale,
                       pare_dtype type, int zero, float read_scale, int read_zero)
{
    char s[32], z[32], q[32], in[100];
    const uint8_t byte = (uint8_t)zero, read_byte = (uint8_t)read_zero;
    snprintf(q, sizeof q, "%s_q", to);
    snprintf(s, sizeof s, "%s_s", to);
    snprintf(z, sizeof z, "%s_z", to);
    graph_floats(g, s, 0, NULL, &scale);
    qdq_bytes(g, z, type, 0, NULL, &byte);
    snprintf(in, sizeof in, "%s %s %s", from, s, z);
    graph_node(g, "QuantizeLinear", in, q);
    snprintf(s, sizeof s, "%s_rs", to);
    snprintf(z, sizeof z, "%s_rz", to);
    graph_floats(g, s, 0, NULL, &read_scale);
    qdq_bytes(g, z, type, 0, NULL, &read_byte);
    snprintf(in, sizeof in, "%s %s %s", q, s, z);
    graph_node(g, "DequantizeLinear", in, to);
}

static void pair(graph_case *g, const char *from, const char *to, float scale, pare_dtype type,
                 int zero)
{
    pair_apart(g, from, to, scale, type, zero, scale, zero);
}

/* (batch, length, width) as heads. */
static void heads(graph_case *g, const char *from, const char *to, bool moved, bool transposed)
{
    char in[64], split[32];
    static const int64_t perms[2][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}}, swap[] = {0, 1, 3, 2};
    snprintf(in, sizeof in, "%s %s", from, moved ? "behind" : "before");
    snprintf(split, sizeof split, "%s_split", to);
    graph_node(g, "Reshape", in, moved || transposed ? split : to);
    if (!moved && !transposed) return;
    pare_node *move = graph_node(g, "Transpose", split, to);
    assert_int_equal(pare_node_set_ints(move, "perm", moved ? perms[transposed] : swap, 4),
                     PARE_OK);
}

static void mask_make(graph_case *g, masking mask)
{
    static float m[LENGTH * LENGTH];
    for (int i = 0; i < LENGTH * LENGTH; i++) m[i] = i % LENGTH > i / LENGTH ? -INFINITY : 0.25f;
    for (int i = 0; mask == KEYS && i < BATCH * LENGTH; i++) m[i] = i % 5 == 1 ? -10000 : 0.5f;
    if (mask == KEYS)
        graph_floats(g, "mask", 4, (int64_t[]){BATCH, 1, 1, LENGTH}, m);
    else
        graph_floats(g, "mask", 2, (int64_t[]){LENGTH, LENGTH}, m);
}

static void attention_graph(graph_case *g, const quantized *c)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 3, (int64_t[]){BATCH, LENGTH, WIDTH});
    graph_floats(g, "minus", 0, NULL, &(float){-0.7f});
    graph_floats(g, "root", 0, NULL, &c->root);
    const int64_t count = c->has == NARROW_HEADS ? HEADS * 2 : HEADS;
    graph_ints(g, "behind", 1, (int64_t[]){4}, (int64_t[]){0, 0, count, WIDTH / count});
    graph_ints(g, "before", 1, (int64_t[]){4}, (int64_t[]){0, count, LENGTH, WIDTH / count});
    graph_ints(g, "rows", 1, (int64_t[]){3}, (int64_t[]){0, LENGTH, WIDTH});
    graph_node(g, "Mul", "x minus", "xk");
    graph_node(g, "Sin", "x", "xv");
    const float tiny = c->has == TINY_SCALES ? 1e-30f : 1;
    pair(g, "x", "q", 0.03f * tiny, c->type, c->zero);
    pair(g, "xk", "k", 0.02f * tiny, c->type, c->zero ? c->zero - 7 : 0);
    pair(g, "xv", "v", 0.01f, c->type, c->zero ? c->zero + 5 : 0);
    heads(g, "q", "qh", c->moved, false);
    heads(g, "k", "kt", c->moved, true);
    heads(g, "v", "vh", c->moved, false);
    graph_node(g, "MatMul", "qh kt", c->has == SCORES_ACTIVATION ? "s_all" : "s");
    if (c->has == SCORES_ACTIVATION) graph_node(g, "Relu", "s_all", "s");
    graph_node(g, "Div", "s root", c->mask ? "d" : "a");
    if (c->mask) mask_make(g, c->mask), graph_node(g, "Add", "d mask", "a");
    graph_node(g, "Softmax", "a", "p");
    const float p_scale = c->p_type == PARE_s8 && !c->p_zero ? 1 / 127.0f : 1 / 255.0f;
    pair_apart(g, "p", "pd", p_scale, c->p_type, c->p_zero,
               c->has == OTHER_SCALE ? 1 / 128.0f : p_scale,
               c->has == OTHER_ZERO ? c->p_zero + 3 : c->p_zero);
    const bool behind = c->has == ACTIVATION || c->has == RESIDUAL;
    graph_node(g, "MatMul", "pd vh", behind ? "h_sum" : "h");
    if (c->has == ACTIVATION) graph_node(g, "Relu", "h_sum", "h");
    if (c->has == RESIDUAL) graph_node(g, "Add", "h_sum qh", "h");
    if (c->floats)
        graph_node(g, "Identity", "h", "hd");
    else
        pair(g, "h", "hd", 0.004f, c->type, c->zero);
    if (c->moved)
        assert_int_equal(pare_node_set_ints(graph_node(g, "Transpose", "hd", "ht"), "perm",
                                            (int64_t[]){0, 2, 1, 3}, 4),
                         PARE_OK);
    graph_node(g, "Reshape", c->moved ? "ht rows" : "hd rows", "y");
    graph_output(g, "y");
    if (c->has == P_READ_TWICE) graph_node(g, "Neg", "pd", "other"), graph_output(g, "other");
    if (c->has == P_IS_OUTPUT) graph_output(g, "pd_q");
    if (c->has == SCORES_ARE_OUTPUT) graph_output(g, "a");
}

/* Runs the model; fails unless it has one step of this operator. */
static void run(graph_case *g, const pare_plan_options *options, const char *op, const float *x,
                float y[COUNT])
{
    pare_plan *plan;
    pare_runner *runner;
    int found = 0;
    if (pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, options) != PARE_OK ||
        pare_runner_new(&g->ctx, &runner, plan) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        found += !strcmp(step.op_type, op);
    }
    if (found != 1) fail_msg("%d steps are %s", found, op);
    pare_view in = pare_runner_input(runner, 0);
    memcpy(in.data, x, pare_view_bytes(&in));
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", g->ctx.message);
    const pare_view out = pare_runner_output(runner, 0);
    memcpy(y, out.data, pare_view_bytes(&out));
    pare_runner_free(runner);
    pare_plan_free(plan);
}

static void fused_plainly(graph_case *g, const char *const *kept, int kept_count)
{
    const pare_infer_options keep = {.fold = true, .keep_dequantize = true}, fold = {.fold = true};
    pare_status st = pare_graph_sort(g->model->graph);
    if (!st) st = pare_pass_version_convert(g->model, 21);
    if (!st) st = pare_pass_infer(g->model, &keep);
    if (!st) st = pare_pass_fuse(g->model, kept, kept_count);
    if (!st) st = pare_pass_infer(g->model, &keep);
    if (!st) st = pare_pass_fold_qdq(g->model, PARE_KEEP_INTEGERS);
    if (!st) st = pare_pass_infer(g->model, &fold);
    if (!st) st = pare_pass_fuse_q_attention(g->model, kept, kept_count);
    if (st) fail_msg("%s", g->ctx.message);
}

static void check(const quantized *c, unsigned seed)
{
    static float x[COUNT], want[COUNT], got[COUNT];
    const pare_plan_options steps = {.threads = 1}, plain = {.threads = 1, .reference = true};
    graph_case g;
    attention_graph(&g, c);
    for (int i = 0; i < COUNT; i++) x[i] = (float)qdq_noise(&seed, -300, 300) / 100;
    run(&g, &steps, "QSoftmax", x, want);
#ifdef CASE_DEVICE
    pare_plan_options fast = {.threads = 1};
    if (pare_device_open(&g.ctx, &fast.device, "cuda") != PARE_OK) fail_msg("%s", g.ctx.message);
    run(&g, &fast, "QAttention", x, got);
    pare_device_close(fast.device);
    assert_memory_equal(got, want, sizeof got);
#endif
    fused_plainly(&g, NULL, 0);
    run(&g, &plain, "QAttention", x, got);
    assert_memory_equal(got, want, sizeof got);
    graph_close(&g);
}

static void fused_attention_has_the_bytes_of_its_operators(void **state)
{
    (void)state;
    static const struct {
        pare_dtype type;
        int zero;
        pare_dtype p_type;
        int p_zero;
    } row[] = {{PARE_s8, 0, PARE_s8, 0},
               {PARE_u8, 117, PARE_u8, 0},
               {PARE_s8, 0, PARE_s8, -128},
               {PARE_s8, -9, PARE_u8, 0}};
    for (unsigned i = 0; i < 24; i++) {
        const quantized c = {.type = row[i % 4].type,
                             .zero = row[i % 4].zero,
                             .p_type = row[i % 4].p_type,
                             .p_zero = row[i % 4].p_zero,
                             .mask = (masking)(i % 3),
                             .root = i % 5 ? 4 : 3.7f,
                             .floats = i % 7 == 3,
                             .moved = i % 2 || i / 4 % 2};
        check(&c, i + 1);
    }
}

static void others_stay_as_they_are(void **state)
{
    (void)state;
    static const char *const kept[] = {"a"};
    for (int i = NO_OBSTACLE; i < OBSTACLES * 2; i++) {
        const quantized c = {.type = PARE_s8,
                             .p_type = PARE_u8,
                             .mask = i / OBSTACLES ? CAUSAL : NO_MASK,
                             .root = 4,
                             .has = (obstacle)(i % OBSTACLES)};
        graph_case g;
        attention_graph(&g, &c);
        fused_plainly(&g, kept, c.has == SCORES_ARE_KEPT);
        if (graph_count(&g, "QSoftmax") != (c.has != NO_OBSTACLE) ||
            graph_count(&g, "QAttention") != (c.has == NO_OBSTACLE))
            fail_msg("obstacle %d, mask %d: %d softmaxes, %d attentions", (int)c.has, (int)c.mask,
                     graph_count(&g, "QSoftmax"), graph_count(&g, "QAttention"));
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_attention_has_the_bytes_of_its_operators),
        cmocka_unit_test(others_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Weights alone quantized: which products keep the integers, and that their plan computes what the
   plain kernels compute with the unfolded graph. */
#include "runtime/passes/passes.h"
#include "tests/passes/qdq_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* The type of what the product reads as its weight once the graph is folded. */
static pare_dtype weight_type(graph_case *g, pare_kept_weights kept)
{
    pare_model *m;
    pare_infer_options options = {.fold = true, .keep_dequantize = true};
    pare_dtype type = PARE_NOTYPE;
    assert_int_equal(pare_model_clone(&g->ctx, &m, g->model), PARE_OK);
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    if (pare_pass_fold_qdq(m, kept) != PARE_OK) fail_msg("%s", g->ctx.message);
    options.keep_dequantize = false;
    if (pare_pass_infer(m, &options) != PARE_OK) fail_msg("%s", g->ctx.message);
    for (int n = 0; n < m->graph->node_count; n++)
        if (strstr(m->graph->node[n]->op_type, "MatMul") ||
            strstr(m->graph->node[n]->op_type, "Gemm"))
            type = m->graph->node[n]->in[1]->dtype;
    pare_model_free(m);
    return type;
}

/* f32 times a dequantized constant: integers stay, in blocks of rows or with a scale a column,
   where they are many; floats where they are asked for. */
static void weights_alone_stay_small(void **state)
{
    (void)state;
    enum { N = 128, COUNT = QDQ_INPUT * N };
    static uint8_t w[COUNT], code[COUNT];
    static float scale[QDQ_INPUT / 16 * N];
    unsigned seed = 9;
    for (int i = 0; i < COUNT; i++) w[i] = (uint8_t)qdq_noise(&seed, 0, 255);
    for (int i = 0; i < QDQ_INPUT / 16 * N; i++) scale[i] = 0.001f + 0.0001f * (float)(i % 50);
    for (int i = 0; i < COUNT; i++) code[i] = (uint8_t)(w[i] & 0xb7); /* small, no NaN */
    static const struct {
        pare_dtype type, want, all; /* for the CPU, for a GPU */
        bool blocked, small;
    } cases[] = {{PARE_s4, PARE_s4, PARE_s4, true, false},
                 {PARE_u4, PARE_u4, PARE_u4, false, false},
                 {PARE_s8, PARE_s8, PARE_s8, false, false},
                 {PARE_s8, PARE_s8, PARE_s8, true, false},
                 {PARE_s4, PARE_f32, PARE_f32, true, true},
                 {PARE_f8e4m3, PARE_f32, PARE_f8e4m3, false, false},
                 {PARE_f4e2m1, PARE_f32, PARE_f4e2m1, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool blocked = cases[i].blocked;
        const int64_t n = cases[i].small ? 8 : N;
        graph_case g;
        const bool floats = cases[i].all != cases[i].want;
        graph_open(&g, floats ? 23 : 21);
        graph_input(&g, "x", PARE_f32, 4, (int64_t[]){1, QDQ_CHANNELS, QDQ_SIDE, QDQ_SIDE});
        graph_node(&g, "Flatten", "x", "flat");
        qdq_bytes(&g, "w_q", cases[i].type, 2, (int64_t[]){QDQ_INPUT, n}, floats ? code : w);
        graph_floats(&g, "w_s", blocked ? 2 : 1, blocked ? (int64_t[]){QDQ_INPUT / 16, n} : &n,
                     scale);
        pare_node *dq = graph_node(&g, "DequantizeLinear", "w_q w_s", "w");
        assert_int_equal(pare_node_set_int(dq, "axis", blocked ? 0 : 1), PARE_OK);
        if (blocked) assert_int_equal(pare_node_set_int(dq, "block_size", 16), PARE_OK);
        graph_node(&g, "MatMul", "flat w", "y");
        graph_output(&g, "y");
        assert_int_equal(weight_type(&g, PARE_KEEP_NONE), PARE_f32);
        assert_int_equal(weight_type(&g, PARE_KEEP_INTEGERS), cases[i].want);
        assert_int_equal(weight_type(&g, PARE_KEEP_ALL), cases[i].all);
        qdq_same(&g, 1e-5f, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_alone_stay_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Operators outside ONNX rewritten: which operators come of them, names, opset and imports, and
   what is refused. Values: tests/interop/contrib.py. */
#include "runtime/passes/import/contrib.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* x is (2, 3, 4), w (4, 4), b (4). */
static void open_case(graph_case *g)
{
    static const float w[16] = {0}, b[4] = {0};
    graph_open(g, 17);
    if (pare_model_set_opset(g->model, PARE_DOMAIN_MICROSOFT, 1) != PARE_OK)
        fail_msg("%s", g->ctx.message);
    graph_input(g, "x", PARE_f32, 3, (const int64_t[]){2, 3, 4});
    graph_floats(g, "w", 2, (const int64_t[]){4, 4}, w);
    graph_floats(g, "b", 1, (const int64_t[]){4}, b);
}

static pare_node *contrib_node(graph_case *g, const char *op, const char *in)
{
    pare_node *node = graph_node(g, op, in, "y");
    node->domain = PARE_DOMAIN_MICROSOFT;
    node->name = "it";
    graph_output(g, "y");
    return node;
}

static void expand(graph_case *g)
{
    if (pare_pass_expand_contrib(g->model) != PARE_OK) fail_msg("%s", g->ctx.message);
}

typedef struct contrib_case {
    const char *op, *in, *made; /* operators that come of it, in order */
} contrib_case;

static const contrib_case cases[] = {
    {"FusedMatMul", "x w", "MatMul"},
    {"FastGelu", "x", "Gelu"},
    {"BiasGelu", "x b", "Add Gelu"},
    {"QuickGelu", "x", "Mul Sigmoid Mul"},
    {"BiasAdd", "x b x", "Add Add"},
    {"SkipLayerNormalization", "x x b b", "Add LayerNormalization"},
    {"SkipLayerNormalization", "x x b b b", "Add Add LayerNormalization"},
    {"SkipSimplifiedLayerNormalization", "x x b", "Add Mul ReduceMean Add Sqrt Div Mul"},
    {"LayerNormalization", "x b b", "LayerNormalization"},
};

static void rewritten_into_standard_operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_case g;
        char made[256] = "";
        open_case(&g);
        contrib_node(&g, cases[i].op, cases[i].in);
        expand(&g);
        const pare_graph *graph = g.model->graph;
        for (int n = 0; n < graph->node_count; n++) {
            strcat(strcat(made, n ? " " : ""), graph->node[n]->op_type);
            assert_string_equal(graph->node[n]->domain, "");
            assert_int_equal(strncmp(graph->node[n]->name, "it", 2), 0);
        }
        assert_string_equal(made, cases[i].made);
        assert_string_equal(graph->out.item[0]->name, "y");
        assert_ptr_equal(graph->out.item[0]->producer, graph->node[graph->node_count - 1]);
        assert_int_equal(pare_model_opset(g.model, ""), PARE_CONTRIB_OPSET);
        assert_int_equal(pare_model_opset(g.model, PARE_DOMAIN_MICROSOFT), 0);
        assert_int_equal(g.model->ir_version, 10);
        graph_close(&g);
    }
}

static void other_models_stay_as_they_are(void **state)
{
    (void)state;
    graph_case g;
    open_case(&g);
    graph_node(&g, "MatMul", "x w", "y");
    graph_output(&g, "y");
    const int64_t ir = g.model->ir_version;
    expand(&g);
    assert_int_equal(pare_model_opset(g.model, ""), 17);
    assert_int_equal(pare_model_opset(g.model, PARE_DOMAIN_MICROSOFT), 1);
    assert_int_equal(g.model->ir_version, ir);
    graph_close(&g);
}

/* What has no row keeps its domain, and the domain its import. */
static void unknown_ones_stay(void **state)
{
    (void)state;
    graph_case g;
    open_case(&g);
    pare_node *magic = graph_node(&g, "Magic", "x", "m");
    magic->domain = PARE_DOMAIN_MICROSOFT;
    contrib_node(&g, "BiasGelu", "m b");
    expand(&g);
    assert_int_equal(graph_count(&g, "Gelu"), 1);
    assert_ptr_equal(g.model->graph->node[0], magic);
    assert_int_equal(pare_model_opset(g.model, PARE_DOMAIN_MICROSOFT), 1);
    graph_close(&g);
}

typedef struct refused_case {
    const char *op, *in, *attr;
    int64_t value;
    const char *words;
} refused_case;

static const refused_case refused[] = {
    {"QuickGelu", "x", "beta", 1, "attribute 'beta' is not supported"},
    {"FusedMatMul", "x w", "transB", 2, "attribute 'transB' must be 0 or 1"},
    {"FusedMatMul", "x", "transB", 1, "it has 1 inputs, expected at least 2"},
    {"FusedMatMul", "x -", "transB", 1, "its input 1 is missing"},
    {"BiasGelu", "x b b", NULL, 0, "input 2, 'b', is not supported"},
    {"Attention", "x w b", "do_rotary", 1, "attribute 'do_rotary' is not supported, expected 0"},
    {"Attention", "x w b", "num_heads", 0,
     "attribute 'num_heads' is 0, expected a number of heads"},
};

static void what_has_no_standard_form_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const refused_case *c = &refused[i];
        graph_case g;
        open_case(&g);
        pare_node *node = contrib_node(&g, c->op, c->in);
        if (c->attr) assert_int_equal(pare_node_set_int(node, c->attr, c->value), PARE_OK);
        assert_int_not_equal(pare_pass_expand_contrib(g.model), PARE_OK);
        if (!strstr(g.ctx.message, c->words) || !strstr(g.ctx.message, "node 'it' ("))
            fail_msg("'%s' does not say '%s'", g.ctx.message, c->words);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewritten_into_standard_operators),
        cmocka_unit_test(other_models_stay_as_they_are),
        cmocka_unit_test(unknown_ones_stay),
        cmocka_unit_test(what_has_no_standard_form_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

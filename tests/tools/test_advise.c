/* SPDX-License-Identifier: Apache-2.0 */
/* --advise with times of the tests' own: what pays, gain and ceiling. */
#include "tools/advise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define NEAR(a, b) assert_true((a) > (b)-1e-12 && (a) < (b) + 1e-12)

/* 100 us, of which 60 fit: 40 at twice, 20 at 0.8 times the speed. Pruned 80 us: 1.25. Ceiling, 60
   at twice the speed: 100 / 70. */
static void gain_and_ceiling_are_amdahls(void **state)
{
    (void)state;
    pare_advice_layer layer[] = {
        {.node = "a", .dense = 40e-6, .sparse = 20e-6},
        {.node = "b", .dense = 20e-6, .sparse = 25e-6},
        {.node = "c", .note = "kept as asked", .dense = 10e-6, .sparse = 1e-6},
        {.node = "d", .dense = 5e-6, .sparse = -1},
    };
    pare_advice a = {.layer = layer, .count = 4, .run = 100e-6};
    pare_advice_judge(&a);
    assert_true(layer[0].pays);
    assert_false(layer[1].pays);
    assert_false(layer[2].pays);
    assert_false(layer[3].pays);
    assert_int_equal(a.fit, 3);
    assert_int_equal(a.paying, 1);
    NEAR(a.best, 2.0);
    NEAR(a.gain, 1.25);
    NEAR(a.ceiling, 100.0 / 70);
}

/* What is 2 % faster may be chance, and what is slower everywhere leaves a ceiling of 1. */
static void little_does_not_pay(void **state)
{
    (void)state;
    pare_advice_layer layer[] = {{.node = "a", .dense = 100e-6, .sparse = 98e-6},
                                 {.node = "b", .dense = 50e-6, .sparse = 70e-6}};
    pare_advice a = {.layer = layer, .count = 2, .run = 200e-6};
    pare_advice_judge(&a);
    assert_int_equal(a.paying, 0);
    NEAR(a.gain, 1.0);
    NEAR(a.best, 100.0 / 98);
    layer[0].sparse = 100e-6;
    pare_advice_judge(&a);
    NEAR(a.best, 1.0);
    NEAR(a.ceiling, 1.0);
}

static void without_kernels_the_ceiling_is_one(void **state)
{
    (void)state;
    pare_advice_layer layer[] = {{.node = "a", .dense = -1, .sparse = -1}};
    pare_advice a = {.layer = layer, .count = 1};
    pare_advice_judge(&a);
    assert_int_equal(a.fit, 1);
    assert_int_equal(a.paying, 0);
    NEAR(a.ceiling, 1.0);
    NEAR(a.gain, 1.0);
    json_t *facts = pare_advice_json(&a);
    assert_null(json_object_get(json_array_get(json_object_get(facts, "layers"), 0), "sparse_us"));
    json_decref(facts);
}

/* y = relu(x (4, 8) w (8, 16)) v (16, 6): w is eligible, and v; of three columns nothing is. */
static pare_model *net(pare_ctx *ctx)
{
    pare_model *model;
    pare_value *x, *w, *v, *h, *r, *y;
    pare_node *node;
    float data[128];
    for (int i = 0; i < 128; i++) data[i] = (float)(i % 7) - 3;
    assert_int_equal(pare_model_new(ctx, &model, "net.onnx"), PARE_OK);
    pare_graph *g = model->graph;
    assert_int_equal(pare_model_set_opset(model, "", 17), PARE_OK);
    assert_int_equal(pare_value_new(g, &x, "x"), PARE_OK);
    assert_int_equal(pare_init_new(g, &w, "w", PARE_f32, 2, (int64_t[]){8, 16}, data), PARE_OK);
    assert_int_equal(pare_init_new(g, &v, "v", PARE_f32, 2, (int64_t[]){16, 6}, data), PARE_OK);
    assert_int_equal(pare_value_new(g, &h, "h"), PARE_OK);
    assert_int_equal(pare_value_new(g, &r, "r"), PARE_OK);
    assert_int_equal(pare_value_new(g, &y, "y"), PARE_OK);
    pare_value_set_type(x, PARE_f32, &(pare_shape){.rank = 2, .dim = {4, 8}});
    pare_value_set_type(y, PARE_f32, &(pare_shape){.rank = 2, .dim = {4, 6}});
    x->is_input = true;
    y->is_output = true;
    assert_int_equal(pare_values_add(g, &g->in, x), PARE_OK);
    assert_int_equal(pare_values_add(g, &g->out, y), PARE_OK);
    pare_value *in1[] = {x, w}, *in2[] = {r, v};
    assert_int_equal(pare_node_new(g, &node, 0, "MatMul", "", "first", in1, 2, &h, 1), PARE_OK);
    assert_int_equal(pare_node_new(g, &node, 1, "Relu", "", "relu", &h, 1, &r, 1), PARE_OK);
    assert_int_equal(pare_node_new(g, &node, 2, "MatMul", "", "second", in2, 2, &y, 1), PARE_OK);
    assert_int_equal(pare_prune_prepare(ctx, model), PARE_OK);
    return model;
}

/* Sees that the weights it gets are of 2:4. */
static pare_status two_layers(pare_tool *tool, const pare_model *sparse, pare_advice *out)
{
    (void)tool;
    const pare_value *w = pare_graph_find_own(sparse->graph, "w");
    const float *data = w->data->data;
    for (int c = 0; c < 16; c++)
        for (int k = 0; k < 8; k += 4) {
            int kept = 0;
            for (int j = k; j < k + 4; j++) kept += data[j * 16 + c] != 0;
            assert_true(kept <= 2);
        }
    assert_int_equal(out->count, 2);
    assert_string_equal(out->layer[0].node, "first");
    out->layer[0].dense = 3e-6, out->layer[0].sparse = 2e-6;
    out->layer[1].dense = 3e-6, out->layer[1].sparse = 4e-6;
    out->run = 8e-6;
    return PARE_OK;
}

/* The timer is asked where a device may have kernels, and only for 2:4. */
static void the_timer_decides(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_device device = {.name = "a device"};
    pare_common common = {0};
    pare_advice a;
    pare_unstructured_options how = {.n = 2, .m = 4};
    pare_ctx_init(&ctx);
    pare_tool tool = {.ctx = &ctx, .common = &common, .device = &device, .device_chosen = true};
    pare_arena_init(&tool.arena, &ctx);
    pare_model *model = net(&ctx);
    assert_int_equal(pare_advise(&tool, model, &how, two_layers, &a), PARE_OK);
    assert_string_equal(a.device, "a device");
    assert_int_equal(a.paying, 1);
    assert_true(a.layer[0].pays);
    NEAR(a.gain, 8.0 / 7);
    NEAR(a.ceiling, 8.0 / (2 + 6 / 1.5));
    how.n = 1;
    assert_int_equal(pare_advise(&tool, model, &how, two_layers, &a), PARE_OK);
    assert_int_equal(a.paying, 0);
    tool.device = NULL;
    how.n = 2;
    assert_int_equal(pare_advise(&tool, model, &how, two_layers, &a), PARE_OK);
    assert_int_equal(a.paying, 0);
    assert_int_equal(a.fit, 2);
    assert_string_equal(a.device, "cpu");
    pare_model_free(model);
    pare_arena_free(&tool.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gain_and_ceiling_are_amdahls),
        cmocka_unit_test(little_does_not_pay),
        cmocka_unit_test(without_kernels_the_ceiling_is_one),
        cmocka_unit_test(the_timer_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

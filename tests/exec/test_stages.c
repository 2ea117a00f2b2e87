/* SPDX-License-Identifier: Apache-2.0 */
/* Where graphs are cut into stages, what the schedule of a pipeline waits for, and that stages
   which run one after the other give what the whole model gives. */
#include "formats/onnx.h"
#include "runtime/exec/stages.h"
#include "runtime/ops/ops.h"
#include "runtime/passes/passes.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SIDE = 64 }; /* most tensors are (SIDE, SIDE) floats */

static const int64_t square[] = {SIDE, SIDE};
enum { SQUARE = SIDE * SIDE * 4 };

static void cut_infer(graph_case *g, int count, pare_plan_stage *out)
{
    pare_infer_options options;
    pare_infer_options_init(&options);
    assert_int_equal(pare_graph_sort(g->model->graph), PARE_OK);
    assert_int_equal(pare_pass_infer(g->model, &options), PARE_OK);
    const pare_cut_options how = {.stages = count};
    if (pare_graph_cut(g->model->graph, &how, out) != PARE_OK) fail_msg("%s", g->ctx.message);
    int next = 0;
    for (int i = 0; i < count; i++) {
        assert_int_equal(out[i].first, next);
        assert_true(out[i].steps > 0);
        next += out[i].count;
    }
    assert_int_equal(next, g->model->graph->node_count);
}

/* The tensors that cross before a node are these, in this order. */
static void assert_crossing(graph_case *g, int at, const char *names)
{
    char text[256] = "";
    pare_value **list;
    int count;
    pare_arena arena;
    pare_arena_init(&arena, &g->ctx);
    assert_int_equal(pare_graph_crossing(g->model->graph, at, &arena, &list, &count), PARE_OK);
    for (int i = 0; i < count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                       list[i]->name);
    assert_string_equal(text, names);
    pare_arena_free(&arena);
}

/* A graph of x, a square. */
static void open_square(graph_case *g)
{
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, square);
}

/* So many Sigmoids behind `from`: t0, t1, ... */
static void add_chain(graph_case *g, const char *from, int count)
{
    char in[16], out[16];
    (void)snprintf(in, sizeof in, "%s", from);
    for (int i = 0; i < count; i++) {
        (void)snprintf(out, sizeof out, "t%d", i);
        graph_node(g, "Sigmoid", in, out);
        memcpy(in, out, sizeof in);
    }
}

static void a_chain_is_cut_evenly(void **state)
{
    (void)state;
    graph_case g;
    pare_plan_stage stage[4];
    open_square(&g);
    add_chain(&g, "x", 8);
    graph_output(&g, "t7");
    cut_infer(&g, 4, stage);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(stage[i].count, 2);
        assert_int_equal(stage[i].sent, SQUARE);
        assert_int_equal(stage[i].weights, 0);
        assert_true(stage[i].cost == stage[0].cost);
    }
    assert_crossing(&g, 0, "x");
    assert_crossing(&g, 4, "t3");
    assert_crossing(&g, 8, "t7");
    graph_close(&g);
}

static void a_cut_is_where_little_crosses(void **state)
{
    (void)state;
    static float w[SIDE * SIDE];
    const int64_t down[] = {SIDE, 4}, up[] = {4, SIDE};
    graph_case g;
    pare_plan_stage stage[2];
    open_square(&g);
    graph_floats(&g, "down", 2, down, w);
    graph_floats(&g, "up", 2, up, w);
    graph_node(&g, "Sigmoid", "x", "a");
    graph_node(&g, "MatMul", "a down", "b");
    graph_node(&g, "MatMul", "b up", "c");
    graph_node(&g, "Sigmoid", "c", "y");
    graph_output(&g, "y");
    cut_infer(&g, 2, stage);
    assert_int_equal(stage[1].first, 2);
    assert_int_equal(stage[0].sent, SIDE * 4 * 4);
    assert_int_equal(stage[0].weights, SIDE * 4 * 4);
    assert_true(stage[0].macs == SIDE * SIDE * 4.0);
    graph_close(&g);
}

/* What skips stages crosses every cut on its way, behind what was made before it. */
static void skip_connections_are_passed_on(void **state)
{
    (void)state;
    graph_case g;
    pare_plan_stage stage[4];
    open_square(&g);
    graph_node(&g, "Sigmoid", "x", "a");
    graph_node(&g, "Sigmoid", "a", "b");
    graph_node(&g, "Sigmoid", "b", "c");
    graph_node(&g, "Sum", "c a x", "y");
    graph_output(&g, "y");
    cut_infer(&g, 4, stage);
    assert_int_equal(stage[0].sent, 2 * SQUARE);
    assert_int_equal(stage[1].sent, 3 * SQUARE);
    assert_int_equal(stage[3].sent, SQUARE);
    assert_crossing(&g, 1, "x a");
    assert_crossing(&g, 2, "x a b");
    assert_crossing(&g, 3, "x a c");
    graph_close(&g);
}

static void a_shared_weight_is_in_both_stages(void **state)
{
    (void)state;
    static float w[SIDE * SIDE];
    graph_case g;
    pare_plan_stage stage[2];
    open_square(&g);
    graph_floats(&g, "w", 2, square, w);
    graph_node(&g, "MatMul", "x w", "a");
    graph_node(&g, "MatMul", "a w", "b");
    graph_node(&g, "MatMul", "b w", "c");
    graph_node(&g, "MatMul", "c w", "y");
    graph_output(&g, "y");
    cut_infer(&g, 2, stage);
    assert_int_equal(stage[0].count, 2);
    assert_int_equal(stage[0].weights, SQUARE); /* once, though two nodes read it */
    assert_int_equal(stage[1].weights, SQUARE);
    assert_crossing(&g, 2, "b");
    graph_close(&g);
}

/* Outputs leave the last stage, in the model's order, wherever they are made. */
static void an_output_in_the_middle_travels_on(void **state)
{
    (void)state;
    graph_case g;
    pare_plan_stage stage[3];
    open_square(&g);
    graph_node(&g, "Sigmoid", "x", "a");
    graph_node(&g, "Sigmoid", "a", "b");
    graph_node(&g, "Sigmoid", "b", "c");
    graph_output(&g, "c");
    graph_output(&g, "a");
    cut_infer(&g, 3, stage);
    assert_crossing(&g, 1, "a");
    assert_crossing(&g, 2, "a b");
    assert_crossing(&g, 3, "c a");
    assert_int_equal(stage[2].sent, 2 * SQUARE);
    graph_close(&g);
}

/* A node that only gives a tensor another shape is no stage of its own. */
static void more_stages_than_nodes_are_refused(void **state)
{
    (void)state;
    const int64_t two[] = {2}, flat[] = {1, SIDE * SIDE};
    graph_case g;
    pare_plan_stage stage[3];
    open_square(&g);
    graph_ints(&g, "flat", 1, two, flat);
    graph_node(&g, "Reshape", "x flat", "a");
    graph_node(&g, "Sigmoid", "a", "b");
    graph_node(&g, "Sigmoid", "b", "y");
    graph_output(&g, "y");
    cut_infer(&g, 2, stage);
    assert_int_equal(stage[0].count, 2);
    assert_int_equal(stage[0].steps, 1);
    const pare_cut_options three = {.stages = 3};
    assert_int_equal(pare_graph_cut(g.model->graph, &three, stage), PARE_INPUT);
    assert_string_equal(g.ctx.message,
                        "m.onnx: 3 stages were asked for, but the graph has only 2 nodes that run");
    graph_close(&g);
}

/* By cost the first stage has both products; with a limit each has one. */
static void weights_can_be_limited(void **state)
{
    (void)state;
    static float w[SIDE * SIDE];
    graph_case g;
    pare_plan_stage stage[2];
    open_square(&g);
    graph_floats(&g, "w", 2, square, w);
    graph_floats(&g, "v", 2, square, w);
    graph_node(&g, "MatMul", "x w", "a");
    graph_node(&g, "MatMul", "a v", "b");
    add_chain(&g, "b", 40);
    graph_output(&g, "t39");
    cut_infer(&g, 2, stage);
    assert_true(stage[0].count > 2);
    assert_int_equal(stage[0].weights, 2 * SQUARE);
    pare_cut_options how = {.stages = 2, .weights = SQUARE};
    assert_int_equal(pare_graph_cut(g.model->graph, &how, stage), PARE_OK);
    assert_int_equal(stage[0].count, 1);
    assert_int_equal(stage[0].weights, SQUARE);
    assert_int_equal(stage[1].weights, SQUARE);
    how.weights = SQUARE - 1;
    assert_int_equal(pare_graph_cut(g.model->graph, &how, stage), PARE_INPUT);
    assert_string_equal(g.ctx.message, "m.onnx: cannot be cut into 2 stages of at most 16383 bytes "
                                       "of weights; take more stages");
    graph_close(&g);
}

/* Small nodes cost a GPU their launches alone: four and four. On a core a product costs two others:
   it has two products and one other node, then five. */
static void a_gpu_has_its_own_costs(void **state)
{
    (void)state;
    static float w[SIDE * SIDE];
    graph_case g;
    pare_plan_stage stage[2];
    const pare_cut_options how = {.stages = 2, .device = true};
    open_square(&g);
    graph_floats(&g, "w", 2, square, w);
    graph_node(&g, "MatMul", "x w", "a");
    graph_node(&g, "MatMul", "a w", "b");
    add_chain(&g, "b", 6);
    graph_output(&g, "t5");
    cut_infer(&g, 2, stage);
    assert_int_equal(stage[0].count, 3);
    assert_int_equal(pare_graph_cut(g.model->graph, &how, stage), PARE_OK);
    assert_int_equal(stage[0].count, 4);
    graph_close(&g);
}

/* A GPU multiplies FP8 as fast as integers of 8 bits, so that it is cut where those are. */
static void fp8_costs_a_gpu_what_int8_does(void **state)
{
    (void)state;
    enum { WIDE = 2048 };
    static const int64_t wide[] = {WIDE, WIDE};
    static const pare_dtype types[] = {PARE_s8, PARE_f8e4m3, PARE_f8e5m2};
    double cost[3];
    uint8_t *w = calloc(WIDE, WIDE);
    assert_non_null(w);
    for (int i = 0; i < 3; i++) {
        graph_case g;
        pare_value *v;
        pare_plan_stage stage[2];
        const pare_cut_options how = {.stages = 2, .device = true};
        pare_infer_options infer;
        pare_infer_options_init(&infer);
        graph_open(&g, 21);
        graph_input(&g, "x", types[i], 2, wide);
        assert_int_equal(pare_init_new(g.model->graph, &v, "w", types[i], 2, wide, w), PARE_OK);
        pare_node *a = graph_node(&g, "FusedMatMul", "x w", "a");
        pare_node *b = graph_node(&g, "FusedMatMul", "a w", "b");
        a->domain = b->domain = PARE_DOMAIN;
        assert_int_equal(pare_node_set_int(a, "to", types[i]), PARE_OK);
        assert_int_equal(pare_node_set_int(b, "to", types[i]), PARE_OK);
        graph_output(&g, "b");
        assert_int_equal(pare_pass_infer(g.model, &infer), PARE_OK);
        if (pare_graph_cut(g.model->graph, &how, stage) != PARE_OK) fail_msg("%s", g.ctx.message);
        cost[i] = stage[0].cost;
        graph_close(&g);
    }
    free(w);
    assert_true(cost[1] == cost[0] && cost[2] == cost[0]);
}

/* --- the schedule --- */

static double bubble(const double *cost, int stages, int64_t microbatches, int window)
{
    pare_ctx ctx;
    double share = -1;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_stages_bubble(&ctx, &share, cost, stages, microbatches, window), PARE_OK);
    return share;
}

static void assert_near(double a, double b)
{
    if (!(a > b - 1e-12 && a < b + 1e-12)) fail_msg("%.17g is not %.17g", a, b);
}

static void equal_stages_wait_as_the_formula_says(void **state)
{
    (void)state;
    const double equal[] = {3, 3, 3, 3};
    for (int stages = 1; stages <= 4; stages++)
        for (int m = 1; m <= 64; m++) {
            const double formula = (double)(stages - 1) / (m + stages - 1);
            assert_near(bubble(equal, stages, m, 0), formula);
            assert_near(bubble(equal, stages, m, 2 * stages - 1), formula);
        }
    assert_near(bubble(equal, 4, 8, 0), 3.0 / 11);
    assert_near(bubble(equal, 4, 0, 0), 0);
}

/* Two microbatches through (1, 3): 1 + 3 + 3 units, of which 8 of 14 are work. With one under way
   at a time, 8. */
static void unequal_stages_wait_for_the_slowest(void **state)
{
    (void)state;
    const double cost[] = {1, 3};
    assert_near(bubble(cost, 2, 2, 0), 1 - 8.0 / 14);
    assert_near(bubble(cost, 2, 2, 1), 1 - 8.0 / 16);
}

/* --- stages one after the other --- */

enum { MOST = 6, ROWS = 3 };

/* Runs one stage or, with stages 1, the whole; what leaves it goes to `out`, at most `count`
   tensors, each of its own memory. */
static int run_stage(pare_ctx *ctx, const pare_model *model, const pare_input_shape *shape,
                     int stage, int stages, pare_view *in, int in_count, pare_view *out)
{
    const pare_plan_options options = {.threads = 1, .stage = stage, .stages = stages};
    pare_plan *plan;
    pare_runner *runner;
    if (pare_plan_new(ctx, &plan, model, shape, 1, &options) != PARE_OK)
        fail_msg("%s", ctx->message);
    assert_int_equal(pare_runner_new(ctx, &runner, plan), PARE_OK);
    assert_int_equal(pare_plan_input_count(plan), in_count);
    for (int i = 0; i < in_count; i++) {
        const pare_view to = pare_runner_input(runner, i);
        assert_int_equal(pare_view_bytes(&to), pare_view_bytes(&in[i]));
        assert_int_equal(to.dtype, in[i].dtype);
        memcpy(to.data, in[i].data, pare_view_bytes(&to));
    }
    if (pare_runner_run(runner) != PARE_OK) fail_msg("%s", ctx->message);
    const int count = pare_plan_output_count(plan);
    assert_true(count <= 16);
    for (int i = 0; i < count; i++) {
        out[i] = pare_runner_output(runner, i);
        void *copy = malloc(pare_view_bytes(&out[i]) + 1);
        memcpy(copy, out[i].data, pare_view_bytes(&out[i]));
        out[i].data = copy;
    }
    pare_runner_free(runner);
    pare_plan_free(plan);
    return count;
}

static void drop(pare_view *views, int count)
{
    for (int i = 0; i < count; i++) free(views[i].data);
}

/* All cuts into 2 to MOST stages, or as many as there are nodes. */
static void assert_stages_match(pare_ctx *ctx, const pare_model *model,
                                const pare_input_shape *shape, int most)
{
    pare_view x = {0}, whole[16], now[16], next[16];
    pare_view_set(&x, PARE_f32, &shape->shape, false);
    float *pixels = malloc(pare_view_bytes(&x));
    for (int64_t i = 0; i < pare_view_count(&x); i++)
        pixels[i] = (float)((uint32_t)i * 2654435761u >> 8) / (1 << 24);
    x.data = pixels;
    const int outputs = run_stage(ctx, model, shape, 0, 1, &x, 1, whole);
    for (int stages = 2; stages <= most; stages++) {
        int count = run_stage(ctx, model, shape, 0, stages, &x, 1, now);
        for (int s = 1; s < stages; s++) {
            const int sent = run_stage(ctx, model, shape, s, stages, now, count, next);
            drop(now, count);
            memcpy(now, next, sizeof now);
            count = sent;
        }
        assert_int_equal(count, outputs);
        for (int i = 0; i < count; i++)
            assert_memory_equal(now[i].data, whole[i].data, pare_view_bytes(&whole[i]));
        drop(now, count);
    }
    drop(whole, outputs);
    free(pixels);
}

static void assert_stages_give_the_whole(const char *path)
{
    pare_ctx ctx;
    pare_model *model;
    pare_ctx_init(&ctx);
    if (pare_onnx_read(&ctx, &model, path) != PARE_OK) fail_msg("%s", ctx.message);
    pare_input_shape shape = {model->graph->in.item[0]->name, model->graph->in.item[0]->shape};
    shape.shape.dim[0] = ROWS;
    assert_stages_match(&ctx, model, &shape, MOST);
    pare_model_free(model);
}

/* x -> a -> b -> c; outputs are c, an input, a constant, and a tensor under another shape. */
static void open_ends(graph_case *g)
{
    static const float k[] = {3, 1, 4};
    const int64_t three[] = {3}, one[] = {1}, flat[] = {-1};
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, square);
    graph_floats(g, "k", 1, three, k);
    graph_ints(g, "flat", 1, one, flat);
    add_chain(g, "x", 3);
    graph_node(g, "Reshape", "t0 flat", "r");
    graph_output(g, "t2");
    graph_output(g, "x");
    graph_output(g, "k");
    graph_output(g, "r");
}

static void outputs_of_all_kinds_arrive(void **state)
{
    (void)state;
    graph_case g;
    open_ends(&g);
    const pare_input_shape shape = {"x", graph_value(&g, "x")->shape};
    assert_stages_match(&g.ctx, g.model, &shape, 3);
    graph_close(&g);
}

/* Every allocation of a stage's plan fails in turn. */
static void a_failed_allocation_is_told(void **state)
{
    (void)state;
    graph_case g;
    pare_plan *plan;
    pare_status st = PARE_MEMORY;
    int failed = 0;
    const pare_plan_options options = {.threads = 1, .stage = 1, .stages = 3};
    open_ends(&g);
    for (; st == PARE_MEMORY; failed++) {
        pare_ctx_clear(&g.ctx);
        g.ctx.fail_after = failed;
        st = pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options);
        assert_true(st == PARE_OK || *g.ctx.message);
    }
    assert_int_equal(st, PARE_OK);
    assert_true(failed > 5);
    pare_plan_free(plan);
    g.ctx.fail_after = -1;
    graph_close(&g);
}

static void stages_give_the_whole(void **state)
{
    (void)state;
    assert_stages_give_the_whole("datasets/zoo/cnn.onnx");
    assert_stages_give_the_whole("datasets/zoo/resnet.onnx");
    assert_stages_give_the_whole("datasets/zoo/mobilenet.onnx");
    assert_stages_give_the_whole("datasets/zoo/vit.onnx");
}

/* The message names the first node whose output has a shape that only a run knows. */
static void control_flow_is_refused(void **state)
{
    (void)state;
    graph_case g;
    pare_plan *plan;
    const pare_plan_options options = {.threads = 1, .stages = 2};
    const int64_t dims[] = {4};
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 1, dims);
    graph_node(&g, "Sigmoid", "x", "a");
    graph_node(&g, "NonZero", "a", "where");
    graph_node(&g, "Sigmoid", "a", "b");
    graph_output(&g, "where");
    graph_output(&g, "b");
    assert_int_equal(pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options), PARE_UNSUPPORTED);
    assert_non_null(strstr(g.ctx.message, "m.onnx: node 'where' (NonZero): "));
    assert_non_null(strstr(g.ctx.message, "cannot be cut into stages"));
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_cut_evenly),
        cmocka_unit_test(a_cut_is_where_little_crosses),
        cmocka_unit_test(skip_connections_are_passed_on),
        cmocka_unit_test(a_shared_weight_is_in_both_stages),
        cmocka_unit_test(an_output_in_the_middle_travels_on),
        cmocka_unit_test(more_stages_than_nodes_are_refused),
        cmocka_unit_test(weights_can_be_limited),
        cmocka_unit_test(a_gpu_has_its_own_costs),
        cmocka_unit_test(fp8_costs_a_gpu_what_int8_does),
        cmocka_unit_test(equal_stages_wait_as_the_formula_says),
        cmocka_unit_test(unequal_stages_wait_for_the_slowest),
        cmocka_unit_test(stages_give_the_whole),
        cmocka_unit_test(outputs_of_all_kinds_arrive),
        cmocka_unit_test(a_failed_allocation_is_told),
        cmocka_unit_test(control_flow_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

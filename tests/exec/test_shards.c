/* SPDX-License-Identifier: Apache-2.0 */
/* Which products are cut, what each shard has, and that shards which run in step, each on a thread,
   give what the whole model gives. */
#include "formats/onnx.h"
#include "runtime/exec/batch.h"
#include "runtime/exec/shards.h"
#include "tests/passes/graph_case.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 4, ITEMS = 5, ROWS = 3, OUTPUTS = 4 };

/* --- shards on threads --- */

typedef struct world {
    int shards;
    pthread_barrier_t met;
    const void *mine[MOST];
    const pare_model *model;
    pare_input_shape shape;
    size_t most;  /* bytes of a message */
    int gathered; /* calls, by shard 0 */
} world;

typedef struct member {
    world *w;
    int shard;
    pare_ctx ctx;
    pare_gatherer gatherer;
    pare_plan *plan;
    pare_replicas *pool; /* NULL: one runner alone */
    pare_runner *runner;
    char *out[ITEMS][OUTPUTS];
} member;

static pare_status gather(void *user, const void *mine, const size_t *bytes, void *all)
{
    member *m = user;
    world *w = m->w;
    char *to = all;
    w->mine[m->shard] = mine;
    if (!m->shard) w->gathered++;
    pthread_barrier_wait(&w->met);
    for (int r = 0; r < w->shards; to += bytes[r++])
        if (bytes[r]) memcpy(to, w->mine[r], bytes[r]);
    pthread_barrier_wait(&w->met);
    return PARE_OK;
}

/* The same numbers for an item, whoever runs it. */
static void fill(const pare_view *x, int64_t item)
{
    float *to = x->data;
    for (int64_t i = 0; i < pare_view_count(x); i++)
        to[i] = (float)(((uint32_t)i + (uint32_t)item * 977) * 2654435761u >> 8) / (1 << 23) - 1;
}

static pare_status load(void *user, int64_t item, pare_replica *replica)
{
    (void)user;
    const pare_view x = pare_runner_input(replica->runner, 0);
    fill(&x, item);
    return PARE_OK;
}

static void keep(member *m, pare_runner *runner, int64_t item)
{
    for (int i = 0; i < pare_plan_output_count(m->plan); i++) {
        const pare_view y = pare_runner_output(runner, i);
        m->out[item][i] = malloc(pare_view_bytes(&y) + 1);
        memcpy(m->out[item][i], y.data, pare_view_bytes(&y));
    }
}

static pare_status take(void *user, int64_t item, pare_replica *replica)
{
    keep(user, replica->runner, item);
    return PARE_OK;
}

static void plan(member *m, int threads)
{
    const pare_plan_options options = {.threads = 1,
                                       .shard = m->shard,
                                       .shards = m->w->shards,
                                       .gatherer = m->w->shards > 1 ? &m->gatherer : NULL};
    pare_ctx_init(&m->ctx);
    m->gatherer = (pare_gatherer){.gather = gather, .user = m, .most = m->w->most};
    if (pare_plan_new(&m->ctx, &m->plan, m->w->model, &m->w->shape, 1, &options) != PARE_OK)
        fail_msg("%s", m->ctx.message);
    const pare_replicas_options pool = {.threads = threads};
    assert_int_equal(threads ? pare_replicas_new(&m->ctx, &m->pool, m->plan, &pool)
                             : pare_runner_new(&m->ctx, &m->runner, m->plan),
                     PARE_OK);
}

static void *run(void *user)
{
    member *m = user;
    const pare_batch_work work = {.load = load, .take = take, .user = m};
    if (m->pool) return pare_replicas_run(m->pool, 0, ITEMS, &work) == PARE_OK ? NULL : m;
    for (int item = 0; item < ITEMS; item++) {
        const pare_view x = pare_runner_input(m->runner, 0);
        fill(&x, item);
        if (pare_runner_run(m->runner) != PARE_OK) return m;
        keep(m, m->runner, item);
    }
    return NULL;
}

static void close_member(member *m)
{
    pare_replicas_free(m->pool);
    pare_runner_free(m->runner);
    for (int i = 0; i < ITEMS; i++)
        for (int o = 0; o < OUTPUTS; o++) free(m->out[i][o]);
    pare_plan_free(m->plan);
}

static void run_all(world *w, member *m, int threads)
{
    pthread_t thread[MOST];
    pthread_barrier_init(&w->met, NULL, (unsigned)w->shards);
    for (int r = 0; r < w->shards; r++) {
        m[r] = (member){.w = w, .shard = r};
        plan(&m[r], threads);
    }
    for (int r = 1; r < w->shards; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, run, &m[r]), 0);
    assert_null(run(&m[0]));
    for (int r = 1; r < w->shards; r++) {
        void *failed;
        pthread_join(thread[r], &failed);
        assert_null(failed);
    }
    pthread_barrier_destroy(&w->met);
}

/* Each shard has all outputs of the whole model, byte for byte. threads 0: one runner each; else so
   many runs side by side share a message, which has `most` bytes, 0: enough for all. */
static void assert_same(const pare_model *model, const pare_input_shape *shape, int shards,
                        int threads, size_t most)
{
    world one = {.shards = 1, .model = model, .shape = *shape},
          many = {.shards = shards, .model = model, .shape = *shape, .most = most};
    member whole, part[MOST];
    run_all(&one, &whole, threads);
    run_all(&many, part, threads);
    const pare_plan_sharding *s = pare_plan_sharding_of(part[0].plan);
    const int each = threads ? threads : 1, fit = most ? (int)(most / s->largest) : each;
    int messages = 0;
    for (int left = ITEMS; left > 0; left -= each)
        messages += ((left < each ? left : each) + fit - 1) / fit;
    assert_true(many.gathered > 0);
    assert_int_equal(many.gathered, messages * s->cut);
    for (int r = 0; r < shards; r++) {
        for (int i = 0; i < ITEMS; i++)
            for (int o = 0; o < pare_plan_output_count(whole.plan); o++) {
                size_t bytes;
                const pare_value *v = pare_plan_output(whole.plan, o);
                assert_true(pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes));
                assert_memory_equal(part[r].out[i][o], whole.out[i][o], bytes);
            }
        close_member(&part[r]);
    }
    close_member(&whole);
}

/* --- graphs --- */

static const float *numbers(void)
{
    static float w[1 << 20];
    for (uint32_t i = 0; i < 1 << 20; i++) w[i] = (float)(i * 2246822519u >> 8) / (1 << 23) - 1;
    return w;
}

/* Products of every kind that is cut: a Gemm with a transposed weight and a bias, a MatMul with a
   residual, and a constant that two of them read. 200 columns are 12 blocks and a half. */
static void open_products(graph_case *g)
{
    const int64_t x[] = {ROWS, 64}, up[] = {200, 64}, bias[] = {200}, down[] = {200, 64};
    graph_open(g, 21);
    graph_input(g, "x", PARE_f32, 2, x);
    graph_floats(g, "up", 2, up, numbers());
    graph_floats(g, "bias", 1, bias, numbers() + 77);
    graph_floats(g, "down", 2, down, numbers() + 99);
    pare_node *gemm = graph_node(g, "Gemm", "x up bias", "a");
    assert_int_equal(pare_node_set_int(gemm, "transB", 1), PARE_OK);
    graph_node(g, "Relu", "a", "b");
    graph_node(g, "MatMul", "b down", "c");
    graph_node(g, "Add", "c x", "d");
    graph_node(g, "Tanh", "d", "e");
    gemm = graph_node(g, "Gemm", "e up", "f");
    assert_int_equal(pare_node_set_int(gemm, "transB", 1), PARE_OK);
    graph_output(g, "f");
    graph_output(g, "d");
}

static void products_are_shared(void **state)
{
    (void)state;
    graph_case g;
    open_products(&g);
    const pare_input_shape shape = {"x", graph_value(&g, "x")->shape};
    for (int shards = 2; shards <= MOST; shards++) {
        assert_same(g.model, &shape, shards, 0, 0);
        assert_same(g.model, &shape, shards, 1, 0);
        assert_same(g.model, &shape, shards, 2, 0);
        assert_same(g.model, &shape, shards, 3, 2 * ROWS * 200 * 4); /* two runs in a message */
    }
    graph_close(&g);
}

/* What each shard has of it: blocks of 16 columns, and the half block of the last. */
static void each_shard_has_its_part(void **state)
{
    (void)state;
    enum { UP = 200 * 64 * 4, DOWN = UP, BIAS = 200 * 4 };
    graph_case g;
    pare_plan *plan;
    open_products(&g);
    const pare_plan_options options = {.deterministic = true, .shard = 1, .shards = 3};
    if (pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    const pare_plan_sharding *s = pare_plan_sharding_of(plan);
    assert_int_equal(s->shards, 3);
    assert_int_equal(s->products, 3);
    assert_int_equal(s->cut, 3);
    assert_int_equal(s->largest, ROWS * 200 * 4);
    size_t weights = 0, sent = 0;
    for (int r = 0; r < 3; r++) {
        weights += s->shard[r].weights;
        sent += s->shard[r].sent;
    }
    assert_int_equal(weights, 2 * UP + DOWN + BIAS); /* two products read `up` */
    assert_int_equal(s->cut_weights, weights);
    assert_int_equal(sent, ROWS * (200 + 64 + 200) * 4);
    assert_int_equal(s->shard[0].sent, ROWS * (64 + 16 + 64) * 4);
    assert_int_equal(s->shard[2].sent, ROWS * (72 + 32 + 72) * 4);
    assert_int_equal(s->shard[1].weights, 2 * 64 * 64 * 4 + 200 * 16 * 4 + 64 * 4);
    pare_plan_free(plan);
    graph_close(&g);
}

/* Without others the parts of others are zeros. */
static void a_shard_alone_has_zeros(void **state)
{
    (void)state;
    const int64_t x[] = {1, 64}, w[] = {64, 64};
    graph_case g;
    pare_plan *plan;
    pare_runner *runner;
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 2, x);
    graph_floats(&g, "w", 2, w, numbers());
    graph_node(&g, "MatMul", "x w", "y");
    graph_output(&g, "y");
    const pare_plan_options options = {.deterministic = true, .shard = 1, .shards = 2};
    if (pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options) != PARE_OK)
        fail_msg("%s", g.ctx.message);
    assert_int_equal(pare_runner_new(&g.ctx, &runner, plan), PARE_OK);
    const pare_view in = pare_runner_input(runner, 0);
    fill(&in, 1);
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    const float *y = pare_runner_output(runner, 0).data;
    for (int i = 0; i < 32; i++) assert_true(y[i] == 0 && y[32 + i] != 0);
    pare_runner_free(runner);
    pare_plan_free(plan);
    graph_close(&g);
}

/* The kernel of the whole model's first step, and how many products are cut. */
static int cut_of(graph_case *g, int shards, const char **kernel)
{
    pare_plan *plan;
    pare_step_info step;
    const pare_plan_options whole = {.threads = 1}, part = {.threads = 1, .shards = shards};
    assert_int_equal(pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &whole), PARE_OK);
    pare_plan_step(plan, 0, &step);
    *kernel = step.kernel;
    pare_plan_free(plan);
    assert_int_equal(pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &part), PARE_OK);
    const int cut = pare_plan_sharding_of(plan)->cut;
    pare_plan_free(plan);
    return cut;
}

/* Half of the first product is small enough for another kernel, with another Gelu: it stays whole
   where there are two such kernels. */
static void a_product_of_other_bytes_stays_whole(void **state)
{
    (void)state;
    const int64_t x[] = {ROWS, 64}, w[] = {64, 64}, up[] = {64, 256}, bias[] = {64};
    graph_case g;
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 2, x);
    graph_floats(&g, "w", 2, w, numbers());
    graph_floats(&g, "bias", 1, bias, numbers() + 5);
    graph_floats(&g, "up", 2, up, numbers() + 9);
    graph_node(&g, "Gemm", "x w bias", "a");
    graph_node(&g, "Gelu", "a", "b");
    graph_node(&g, "MatMul", "b up", "y");
    graph_output(&g, "y");
    const pare_input_shape shape = {"x", graph_value(&g, "x")->shape};
    assert_same(g.model, &shape, 2, 2, 0);
    const char *kernel;
    const int cut = cut_of(&g, 2, &kernel);
    assert_int_equal(cut, strstr(kernel, "onednn") ? 1 : 2);
    graph_close(&g);
}

/* Convolutions in N, H, W, C order with a residual, and a depthwise one, which stays whole. */
static void convolutions_are_shared(void **state)
{
    (void)state;
    const int64_t x[] = {ROWS, 16, 9, 9}, w[] = {64, 16, 3, 3}, v[] = {64, 64, 1, 1},
                  d[] = {64, 1, 3, 3}, bias[] = {64}, pads[] = {1, 1, 1, 1};
    graph_case g;
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 4, x);
    graph_floats(&g, "w", 4, w, numbers());
    graph_floats(&g, "v", 4, v, numbers() + 5);
    graph_floats(&g, "d", 4, d, numbers() + 7);
    graph_floats(&g, "bias", 1, bias, numbers() + 9);
    pare_node *conv = graph_node(&g, "Conv", "x w bias", "a");
    assert_int_equal(pare_node_set_ints(conv, "pads", pads, 4), PARE_OK);
    graph_node(&g, "Relu", "a", "b");
    pare_node *depthwise = graph_node(&g, "Conv", "b d", "c");
    assert_int_equal(pare_node_set_int(depthwise, "group", 64), PARE_OK);
    assert_int_equal(pare_node_set_ints(depthwise, "pads", pads, 4), PARE_OK);
    graph_node(&g, "Conv", "c v bias", "e");
    graph_node(&g, "Add", "e b", "f");
    graph_node(&g, "Relu", "f", "y");
    graph_output(&g, "y");
    const pare_input_shape shape = {"x", graph_value(&g, "x")->shape};
    assert_same(g.model, &shape, 2, 2, 0);
    assert_same(g.model, &shape, 4, 0, 0);
    graph_close(&g);
}

static void the_zoo_is_shared(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int most;
    } nets[] = {{"datasets/zoo/mlp.onnx", 4},
                {"datasets/zoo/cnn.onnx", 3},
                {"datasets/zoo/resnet.onnx", 4},
                {"datasets/zoo/mobilenet.onnx", 2},
                {"datasets/zoo/vit.onnx", 3}};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        pare_ctx ctx;
        pare_model *model;
        pare_ctx_init(&ctx);
        if (pare_onnx_read(&ctx, &model, nets[i].path) != PARE_OK) fail_msg("%s", ctx.message);
        pare_input_shape shape = {model->graph->in.item[0]->name, model->graph->in.item[0]->shape};
        shape.shape.dim[0] = 1;
        for (int shards = 2; shards <= nets[i].most; shards++)
            assert_same(model, &shape, shards, 2, 0);
        pare_model_free(model);
    }
}

/* --- what is refused --- */

static void assert_refused(graph_case *g, pare_status status, int shards, const char *message)
{
    pare_plan *plan;
    const pare_plan_options options = {.threads = 1, .shards = shards};
    assert_int_equal(pare_plan_new(&g->ctx, &plan, g->model, NULL, 0, &options), status);
    if (!strstr(g->ctx.message, message)) fail_msg("%s", g->ctx.message);
}

static void a_model_of_nothing_to_cut_is_refused(void **state)
{
    (void)state;
    graph_case g;
    open_products(&g);
    assert_refused(&g, PARE_INPUT, 16,
                   "m.onnx: none of its 3 products with constant weights can be cut into 16 parts");
    graph_close(&g);
}

static void control_flow_is_refused(void **state)
{
    (void)state;
    const int64_t x[] = {4};
    graph_case g;
    graph_open(&g, 21);
    graph_input(&g, "x", PARE_f32, 1, x);
    graph_node(&g, "NonZero", "x", "y");
    graph_output(&g, "y");
    assert_refused(&g, PARE_UNSUPPORTED, 2, "such a model cannot be cut into shards");
    graph_close(&g);
}

/* Every allocation of a shard's plan fails in turn. */
static void a_failed_allocation_is_told(void **state)
{
    (void)state;
    graph_case g;
    pare_plan *plan;
    pare_status st = PARE_MEMORY;
    int failed = 0;
    const pare_plan_options options = {.threads = 1, .shard = 1, .shards = 2};
    open_products(&g);
    for (; st == PARE_MEMORY; failed++) {
        pare_ctx_clear(&g.ctx);
        g.ctx.fail_after = failed;
        st = pare_plan_new(&g.ctx, &plan, g.model, NULL, 0, &options);
        assert_true(st == PARE_OK || *g.ctx.message);
    }
    if (st != PARE_OK) fail_msg("%s", g.ctx.message);
    assert_true(failed > 20);
    pare_plan_free(plan);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_shared),
        cmocka_unit_test(each_shard_has_its_part),
        cmocka_unit_test(a_shard_alone_has_zeros),
        cmocka_unit_test(a_product_of_other_bytes_stays_whole),
        cmocka_unit_test(convolutions_are_shared),
        cmocka_unit_test(the_zoo_is_shared),
        cmocka_unit_test(a_model_of_nothing_to_cut_is_refused),
        cmocka_unit_test(control_flow_is_refused),
        cmocka_unit_test(a_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

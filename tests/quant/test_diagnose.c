/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnosis through the library: a healthy model, planted faults, memory that runs out. */
#include "formats/data.h"
#include "quant/diagnose.h"
#include "tests/passes/graph_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 24, WIDTH = 24, HIDDEN = 40, CLASSES = 5 };
static char path[64];

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

static void write_data(pare_ctx *ctx)
{
    pare_data_column column = {
        .name = "x", .dtype = PARE_f32, .shape = {.rank = 1, .dim = {WIDTH}}};
    pare_data_writer *w = NULL;
    static float x[SAMPLES * WIDTH];
    uint32_t seed = 1;
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i] = noise(&seed);
    const void *block[1] = {x};
    assert_int_equal(pare_data_create(ctx, &w, path, &column, 1), PARE_OK);
    assert_int_equal(pare_data_append(w, block, SAMPLES), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

/* Channels of very different size between the layers: equalization rescales them. */
static void build(graph_case *g)
{
    static float first[WIDTH * HIDDEN], bias[HIDDEN], second[HIDDEN * CLASSES];
    uint32_t seed = 7;
    for (int i = 0; i < WIDTH * HIDDEN; i++)
        first[i] = noise(&seed) * exp2f((float)(i % HIDDEN % 7) - 3);
    for (int i = 0; i < HIDDEN; i++) bias[i] = noise(&seed) / 4;
    for (int i = 0; i < HIDDEN * CLASSES; i++)
        second[i] = noise(&seed) / exp2f((float)(i / CLASSES % 7) - 3);
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_floats(g, "w1", 2, (int64_t[]){WIDTH, HIDDEN}, first);
    graph_floats(g, "bias", 1, (int64_t[]){HIDDEN}, bias);
    graph_floats(g, "w2", 2, (int64_t[]){HIDDEN, CLASSES}, second);
    graph_node(g, "Gemm", "x w1 bias", "made")->name = "first";
    graph_node(g, "Relu", "made", "kept");
    graph_node(g, "MatMul", "kept w2", "y")->name = "second";
    graph_output(g, "y");
}

typedef struct pair {
    graph_case g; /* becomes int8 */
    pare_model *exact;
    pare_data *data;
    int64_t sample[SAMPLES];
} pair;

static pare_data_input input(void)
{
    return (pare_data_input){"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
}

static void pair_open_as(pair *p, bool fp16)
{
    const pare_data_input in = input();
    pare_quant_options o;
    pare_calib_options calib;
    build(&p->g);
    for (int i = 0; i < SAMPLES; i++) p->sample[i] = i;
    pare_quant_options_init(&o);
    o.mixed = 0;
    o.float_fp16 = fp16;
    pare_calib_options_init(&calib);
    calib.samples = p->sample;
    calib.sample_count = SAMPLES;
    calib.batch = 8;
    calib.threads = 1;
    assert_int_equal(pare_model_clone(&p->g.ctx, &p->exact, p->g.model), PARE_OK);
    assert_int_equal(pare_data_open(&p->g.ctx, &p->data, path, &in, 1), PARE_OK);
    if (pare_quantize_on_data(&p->g.ctx, p->g.model, p->data, &o, &calib, NULL) != PARE_OK)
        fail_msg("%s", p->g.ctx.message);
}

static void pair_open(pair *p) { pair_open_as(p, false); }

static void pair_close(pair *p)
{
    pare_data_close(p->data);
    pare_model_free(p->exact);
    graph_close(&p->g);
}

static pare_status diagnose(pair *p, bool mend, int threads, pare_diagnosis **out)
{
    const pare_quant_search on = {
        .data = p->data, .samples = p->sample, .sample_count = SAMPLES, .threads = threads};
    return pare_diagnose(&p->g.ctx, p->exact, p->g.model, &on, mend, out);
}

static pare_diagnosis *diagnosed(pair *p, bool mend)
{
    pare_diagnosis *d;
    if (diagnose(p, mend, 1, &d) != PARE_OK) fail_msg("%s", p->g.ctx.message);
    return d;
}

/* The factor of number i of an f32 or f16 constant, in place. */
static void multiply(pair *p, const char *name, int i, float by)
{
    const pare_value *v = pare_graph_find_any(p->g.model->graph, name);
    assert_non_null(v);
    assert_non_null(v->data);
    const pare_type_info *type = pare_type(v->data->dtype);
    char *at = (char *)(uintptr_t)v->data->data + i * type->bits / 8;
    type->from_f32_ref(at, type->to_f32(at) * by);
}

static pare_node *reader(pair *p, const char *tensor, const char *op)
{
    const pare_value *v = pare_graph_find_own(p->g.model->graph, tensor);
    for (int i = 0; i < v->user_count; i++)
        if (!strcmp(v->user[i]->op_type, op)) return v->user[i];
    fail_msg("no %s reads %s", op, tensor);
    return NULL;
}

/* The factor of a tensor's scale, in both nodes. */
static void rescale(pair *p, const char *tensor, float by)
{
    const pare_node *q = reader(p, tensor, "QuantizeLinear");
    const pare_node *dq = reader(p, q->out[0]->name, "DequantizeLinear");
    multiply(p, q->in[1]->name, 0, by);
    if (dq->in[1] != q->in[1]) multiply(p, dq->in[1]->name, 0, by);
}

static void a_healthy_model_has_no_fault(void **state)
{
    pair p;
    (void)state;
    pair_open(&p);
    pare_diagnosis *d = diagnosed(&p, false);
    assert_int_equal(d->tensor_count, 2);
    assert_string_equal(d->tensor[0].tensor, "x");
    assert_string_equal(d->tensor[1].tensor, "kept");
    assert_int_equal(d->note_count, 0);
    assert_true(pare_diagnosis_db(d->exact, d->outputs) > 80); /* what was rescaled is known */
    assert_true(pare_diagnosis_db(d->error, d->outputs) > 30);
    for (int i = 0; i < d->finding_count; i++)
        assert_true(d->finding[i].fault >= PARE_FAULT_WEIGHT);
    assert_true(d->tensor[0].carried < 0.01 * d->tensor[0].total);
    assert_true(d->tensor[1].weight > 0);
    assert_null(d->model);
    pare_diagnosis_free(d);
    pair_close(&p);
}

static void a_clipped_range_is_named_and_mended(void **state)
{
    pair p;
    (void)state;
    pair_open(&p);
    rescale(&p, "kept", 0.1f);
    pare_diagnosis *d = diagnosed(&p, true);
    assert_true(d->finding_count > 0);
    assert_int_equal(d->finding[0].fault, PARE_FAULT_CLIPPED);
    assert_string_equal(d->finding[0].tensor, "kept");
    assert_true(d->finding[0].applied);
    assert_true(d->finding[0].gain > 15);
    assert_true(pare_diagnosis_db(d->mended, d->outputs) > 30);
    assert_non_null(d->model);
    assert_true(d->tensor[1].clipping > 0.5 * d->tensor[1].total);
    pare_diagnosis_free(d);
    pair_close(&p);
}

/* --- FP16 around the pairs: x is f32 and read as f16, kept is f16 --- */

static void a_model_with_fp16_has_no_fault(void **state)
{
    pair p;
    (void)state;
    pair_open_as(&p, true);
    pare_diagnosis *d = diagnosed(&p, false);
    assert_int_equal(d->tensor_count, 2);
    assert_string_equal(d->tensor[0].tensor, "x");
    assert_string_equal(d->tensor[1].tensor, "kept");
    assert_int_equal(d->note_count, 0);
    assert_true(pare_diagnosis_db(d->exact, d->outputs) > 55); /* f16 rounds, too */
    assert_true(pare_diagnosis_db(d->error, d->outputs) > 30);
    for (int i = 0; i < d->finding_count; i++)
        assert_true(d->finding[i].fault >= PARE_FAULT_WEIGHT);
    assert_true(d->tensor[1].weight > 0);
    pare_diagnosis_free(d);
    pair_close(&p);
}

/* The node whose result is the input of the product. */
static const pare_node *before_product(const pare_model *model, const char *name, int input)
{
    const pare_graph *g = model->graph;
    for (int n = 0; n < g->node_count; n++)
        if (!strcmp(g->node[n]->name, name)) return g->node[n]->in[input]->producer;
    fail_msg("no node '%s'", name);
    return NULL;
}

static void assert_mended(const pare_diagnosis *d, pare_fault fault, const char *tensor)
{
    assert_true(d->finding_count > 0);
    assert_int_equal(d->finding[0].fault, fault);
    if (tensor) assert_string_equal(d->finding[0].tensor, tensor);
    assert_true(d->finding[0].applied);
    assert_true(pare_diagnosis_db(d->mended, d->outputs) > 30);
    assert_non_null(d->model);
}

static void a_clipped_range_between_f16_is_mended(void **state)
{
    pair p;
    (void)state;
    pair_open_as(&p, true);
    rescale(&p, "kept", 0.125f);
    pare_diagnosis *d = diagnosed(&p, true);
    assert_mended(d, PARE_FAULT_CLIPPED, "kept");
    const pare_node *dq = before_product(d->model, "second", 0);
    assert_string_equal(dq->op_type, "DequantizeLinear");
    assert_int_equal(dq->in[1]->dtype, PARE_f16);
    assert_int_equal(dq->in[0]->producer->in[1]->dtype, PARE_f16);
    pare_diagnosis_free(d);
    pair_close(&p);
}

/* Its QuantizeLinear has an f32 scale, its DequantizeLinear the same number in f16. */
static void a_clipped_range_of_an_f32_input_is_mended(void **state)
{
    pair p;
    (void)state;
    pair_open_as(&p, true);
    rescale(&p, "x", 0.125f);
    pare_diagnosis *d = diagnosed(&p, true);
    assert_mended(d, PARE_FAULT_CLIPPED, "x");
    const pare_node *dq = before_product(d->model, "first", 0);
    const pare_node *q = dq->in[0]->producer;
    assert_int_equal(dq->in[1]->dtype, PARE_f16);
    assert_int_equal(q->in[1]->dtype, PARE_f32);
    const float scale = pare_type(PARE_f16)->to_f32(dq->in[1]->data->data);
    assert_memory_equal(&scale, q->in[1]->data->data, sizeof scale);
    pare_diagnosis_free(d);
    pair_close(&p);
}

static void a_wrong_weight_beside_f16_is_quantized_again(void **state)
{
    pair p;
    (void)state;
    pair_open_as(&p, true);
    multiply(&p, before_product(p.g.model, "second", 1)->in[1]->name, 2, 0.25f);
    pare_diagnosis *d = diagnosed(&p, true);
    assert_mended(d, PARE_FAULT_OTHER_WEIGHT, NULL);
    const pare_node *dq = before_product(d->model, "second", 1);
    assert_string_equal(dq->op_type, "DequantizeLinear");
    assert_int_equal(dq->in[1]->dtype, PARE_f16);
    pare_diagnosis_free(d);
    pair_close(&p);
}

static void the_same_with_any_threads(void **state)
{
    pair p;
    pare_diagnosis *d[2];
    (void)state;
    pair_open(&p);
    rescale(&p, "x", 3);
    for (int i = 0; i < 2; i++)
        if (diagnose(&p, true, 1 + i, &d[i]) != PARE_OK) fail_msg("%s", p.g.ctx.message);
    assert_memory_equal(&d[0]->error, &d[1]->error, sizeof(double));
    assert_memory_equal(&d[0]->mended, &d[1]->mended, sizeof(double));
    for (int i = 0; i < 2; i++) pare_diagnosis_free(d[i]);
    pair_close(&p);
}

static void a_float_model_is_refused(void **state)
{
    pair p;
    pare_diagnosis *d;
    (void)state;
    pair_open(&p);
    const pare_quant_search on = {.data = p.data, .samples = p.sample, .sample_count = SAMPLES};
    assert_int_equal(pare_diagnose(&p.g.ctx, p.exact, p.exact, &on, false, &d), PARE_INPUT);
    assert_null(d);
    assert_non_null(strstr(p.g.ctx.message, "is not quantized"));
    pair_close(&p);
}

/* Each allocation fails once: out of memory, and nothing else. */
static void memory_that_runs_out_is_said(void **state)
{
    pair p;
    (void)state;
    pair_open(&p);
    rescale(&p, "kept", 0.1f);
    for (long after = 0;; after += 41) {
        pare_diagnosis *d;
        p.g.ctx.fail_after = after;
        const pare_status st = diagnose(&p, true, 1, &d);
        p.g.ctx.fail_after = -1;
        pare_diagnosis_free(d);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_true(after < 1000000);
    }
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_model_has_no_fault),
        cmocka_unit_test(a_clipped_range_is_named_and_mended),
        cmocka_unit_test(a_model_with_fp16_has_no_fault),
        cmocka_unit_test(a_clipped_range_between_f16_is_mended),
        cmocka_unit_test(a_clipped_range_of_an_f32_input_is_mended),
        cmocka_unit_test(a_wrong_weight_beside_f16_is_quantized_again),
        cmocka_unit_test(the_same_with_any_threads),
        cmocka_unit_test(a_float_model_is_refused),
        cmocka_unit_test(memory_that_runs_out_is_said),
    };
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    snprintf(path, sizeof path, "diagnose.%d.h5", (int)getpid());
    write_data(&ctx);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}

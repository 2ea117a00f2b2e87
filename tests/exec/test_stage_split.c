/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient graph cut into the parts of a training by pipeline: parts that run one after the
   other, each with what it was sent, kept or given, make what the whole graph makes. */
#include "runtime/exec/stages.h"
#include "runtime/device/device.h"
#include "runtime/passes/train/gradient.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 6, SIDE = 8, MOST = 16, TENSORS = 256, LARGEST = 1024 /* bytes of a tensor */ };

static const int64_t wide[] = {ROWS, SIDE}, square[] = {SIDE, SIDE};

/* --- tensors by name: what a rank has --- */

typedef struct store {
    char name[TENSORS][64];
    void *data[TENSORS];
    size_t bytes[TENSORS];
    int count;
} store;

static const void *find(const store *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->name[i], name)) return s->data[i];
    return NULL;
}

static void keep(store *s, const char *name, const void *data, size_t bytes)
{
    if (find(s, name)) return;
    assert_true(s->count < TENSORS);
    (void)snprintf(s->name[s->count], sizeof *s->name, "%s", name);
    s->data[s->count] = malloc(bytes + 1);
    memcpy(s->data[s->count], data, bytes);
    s->bytes[s->count++] = bytes;
}

static void drop(store *s)
{
    for (int i = 0; i < s->count; i++) free(s->data[i]);
    s->count = 0;
}

/* --- the graph: layers y = sigmoid(x w), whose loss is the mean of the last --- */

typedef struct training {
    graph_case g;
    pare_gradient gradient;
    const char *weight[MOST];
    int stage[MOST];
    int count;
    pare_stage_split split;
    store given;              /* inputs of the graph */
    pare_placed placed[MOST]; /* (count) weights on the device; what the host has of them is old */
} training;

static pare_device *device; /* where parts run; NULL: on the CPU */

static void give(training *t, const char *name, int rank, const int64_t *dims)
{
    float x[SIDE * SIDE];
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((uint32_t)(i + 7 * (size_t)t->given.count) * 2654435761u >> 8) / (1 << 24) -
               0.5f;
    keep(&t->given, name, x, count * sizeof *x);
}

static void open_training(training *t)
{
    *t = (training){.count = 0};
    graph_open(&t->g, 21);
    graph_input(&t->g, "x", PARE_f32, 2, wide);
    give(t, "x", 2, wide);
}

static void place(training *t, const char *name, size_t bytes)
{
    pare_placed *placed = &t->placed[t->count];
    placed->name = name;
    assert_int_equal(device->backend->alloc(&t->g.ctx, device, &placed->data, bytes), PARE_OK);
    assert_int_equal(device->backend->upload(&t->g.ctx, device->setup, placed->data,
                                             find(&t->given, name), bytes),
                     PARE_OK);
    assert_int_equal(device->backend->sync(&t->g.ctx, device->setup), PARE_OK);
}

static void add_weight_of(training *t, const char *name, int rank, const int64_t *dims)
{
    graph_input(&t->g, name, PARE_f32, rank, dims);
    give(t, name, rank, dims);
    if (device) place(t, name, SIDE * SIDE * sizeof(float));
    t->weight[t->count] = name;
    t->stage[t->count++] = -1;
}

static void add_weight(training *t, const char *name) { add_weight_of(t, name, 2, square); }

/* The loss is the mean of y. */
static void differentiate(training *t, const char *y)
{
    graph_node(&t->g, "ReduceMean", y, "loss");
    const pare_gradient_options options = {
        .loss = PARE_LOSS_TENSOR, .of = "loss", .by = t->weight, .by_count = t->count};
    pare_node *mean = t->g.model->graph->node[t->g.model->graph->node_count - 1];
    const pare_attr whole = {.name = "keepdims", .kind = PARE_ATTR_INT, .i = 0};
    assert_int_equal(pare_node_set_attr(mean, &whole), PARE_OK);
    if (pare_pass_gradient(t->g.model, &t->gradient, &options) != PARE_OK)
        fail_msg("%s", t->g.ctx.message);
    t->split = (pare_stage_split){.loss = t->gradient.loss,
                                  .weight = t->weight,
                                  .gradient = (const char *const *)t->gradient.gradient,
                                  .stage = t->stage,
                                  .count = t->count};
}

static void close_training(training *t)
{
    drop(&t->given);
    for (int k = 0; device && k < t->count; k++) device->backend->free(device, t->placed[k].data);
    graph_close(&t->g);
}

/* --- runs --- */

static pare_status plan_part(training *t, pare_plan **out, int part, int stages)
{
    const pare_plan_options options = {.threads = 1,
                                       .deterministic = true,
                                       .device = device,
                                       .placed = t->placed,
                                       .placed_count = device ? t->count : 0,
                                       .stage = part,
                                       .stages = stages,
                                       .split = stages > 1 ? &t->split : NULL};
    return pare_plan_new(&t->g.ctx, out, t->g.model, NULL, 0, &options);
}

static bool is_placed(const training *t, const char *name)
{
    for (int k = 0; device && k < t->count; k++)
        if (!strcmp(t->weight[k], name)) return true;
    return false;
}

/* Of a graph, or of a part of another stage: the host brings it up. On a device what the stage has
   is copied there. */
static void set_input(training *t, pare_runner *runner, int i, const store *has, bool received)
{
    static const float old[SIDE * SIDE];
    const pare_value *v = pare_plan_input(pare_runner_plan(runner), i);
    const void *kept = find(has, v->name), *given = find(&t->given, v->name);
    size_t bytes = 0;
    if (!kept && !given) fail_msg("no part has made '%s'", v->name);
    if (is_placed(t, v->name)) {
        pare_runner_set_input(runner, i, old);
        return;
    }
    if (!device || received || given) {
        pare_runner_set_input(runner, i, kept ? kept : given);
        return;
    }
    assert_true(pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes));
    void *there = pare_runner_input_there(runner, i);
    assert_non_null(there);
    assert_int_equal(device->backend->upload(&t->g.ctx, device->setup, there, kept, bytes),
                     PARE_OK);
    assert_int_equal(device->backend->sync(&t->g.ctx, device->setup), PARE_OK);
}

/* What is there of an input or an output; on the CPU nothing is. */
static size_t fetch(training *t, const pare_runner *runner, const pare_value *v, void *data)
{
    const void *there = pare_runner_find_there(runner, v->name);
    size_t bytes = 0;
    assert_true((there != NULL) == (device != NULL));
    if (!device) return 0;
    assert_true(pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes));
    assert_true(bytes <= LARGEST);
    assert_int_equal(device->backend->download(&t->g.ctx, device->setup, data, there, bytes),
                     PARE_OK);
    assert_int_equal(device->backend->sync(&t->g.ctx, device->setup), PARE_OK);
    return bytes;
}

static bool is_result(const training *t, const char *name)
{
    const pare_values *out = &t->g.model->graph->out;
    for (int i = 0; i < out->count; i++)
        if (!strcmp(out->item[i]->name, name)) return true;
    return false;
}

/* Runs a part; `has`: what its rank has, and gets. The message is what it is sent, and becomes what
   it sends. */
static void run_part(training *t, int part, int stages, store *has, store *message, store *results)
{
    pare_plan *plan;
    pare_runner *runner;
    int received, sent;
    char data[LARGEST];
    if (plan_part(t, &plan, part, stages) != PARE_OK) fail_msg("%s", t->g.ctx.message);
    assert_int_equal(pare_runner_new(&t->g.ctx, &runner, plan), PARE_OK);
    pare_plan_part_ends(plan, &received, &sent);
    assert_int_equal(received, message->count);
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        const char *name = pare_plan_input(plan, i)->name;
        if (i < received) {
            assert_string_equal(name, message->name[i]);
            keep(has, name, message->data[i], message->bytes[i]);
        }
        set_input(t, runner, i, has, i < received);
    }
    assert_int_equal(pare_runner_run(runner), PARE_OK);
    for (int i = 0; i < received; i++) {
        const size_t bytes = fetch(t, runner, pare_plan_input(plan, i), data);
        if (device) assert_memory_equal(data, message->data[i], bytes);
    }
    drop(message);
    for (int i = 0; i < pare_plan_output_count(plan); i++) {
        const pare_view y = pare_runner_output(runner, i);
        const char *name = pare_plan_output(plan, i)->name;
        if (i < sent) keep(message, name, y.data, pare_view_bytes(&y));
        const size_t bytes = fetch(t, runner, pare_plan_output(plan, i), data);
        const bool stays = device && i >= sent && !is_result(t, name);
        assert_true(!stays || y.data == pare_runner_find_there(runner, name));
        if (device) keep(has, name, data, bytes);
        if (!stays) keep(has, name, y.data, pare_view_bytes(&y));
        if (is_result(t, name)) keep(results, name, y.data, pare_view_bytes(&y));
    }
    assert_null(pare_runner_find_there(runner, "no such tensor"));
    pare_runner_free(runner);
    pare_plan_free(plan);
}

static void assert_results(training *t, const store *whole, const store *results)
{
    const pare_values *out = &t->g.model->graph->out;
    for (int i = 0; i < out->count; i++) {
        const void *x = find(whole, out->item[i]->name), *y = find(results, out->item[i]->name);
        assert_non_null(x);
        if (!y) fail_msg("'%s' was not made", out->item[i]->name);
        for (int k = 0; k < whole->count; k++)
            if (!strcmp(whole->name[k], out->item[i]->name))
                assert_memory_equal(x, y, whole->bytes[k]);
    }
}

/* Weights and gradients are where the split says. */
static void assert_parts(training *t, int stages)
{
    store whole = {.count = 0}, none = {.count = 0}, message = {.count = 0}, results = {.count = 0};
    store has[MOST] = {{.count = 0}};
    store *first = &has[MOST - 1];
    const int parts = t->split.loss ? 2 * stages - 1 : stages;
    for (int k = 0; k < t->count; k++) t->stage[k] = -1;
    run_part(t, 0, 1, first, &none, &whole);
    drop(first);
    for (int part = 0; part < parts; part++) {
        const int stage = part < stages ? part : 2 * stages - 2 - part, made = results.count;
        run_part(t, part, stages, &has[stage], &message, &results);
        for (int i = made; i < results.count && t->split.gradient; i++)
            for (int k = 0; k < t->count; k++)
                if (!strcmp(results.name[i], t->split.gradient[k]))
                    assert_int_equal(t->stage[k], stage);
    }
    assert_int_equal(message.count, 0);
    assert_results(t, &whole, &results);
    drop(&whole);
    drop(&results);
    for (int s = 0; s < MOST; s++) drop(&has[s]);
}

/* --- tests --- */

static void open_layers(training *t, int layers)
{
    static const char *const names[] = {"w0", "w1", "w2", "w3", "w4", "w5"};
    char in[32], product[16], out[16];
    open_training(t);
    for (int i = 0; i < layers; i++) {
        add_weight(t, names[i]);
        if (i)
            (void)snprintf(in, sizeof in, "y%d %s", i - 1, names[i]);
        else
            (void)snprintf(in, sizeof in, "x %s", names[i]);
        (void)snprintf(product, sizeof product, "p%d", i);
        (void)snprintf(out, sizeof out, "y%d", i);
        graph_node(&t->g, "MatMul", in, product);
        graph_node(&t->g, "Sigmoid", product, out);
    }
}

static void parts_of_a_chain_give_the_whole(void **state)
{
    (void)state;
    training t;
    open_layers(&t, 6);
    differentiate(&t, "y5");
    for (int stages = 2; stages <= 6; stages++) {
        assert_parts(&t, stages);
        for (int k = 1; k < t.count; k++) assert_true(t.stage[k] >= t.stage[k - 1]);
        assert_int_equal(t.stage[0], 0);
    }
    close_training(&t);
}

/* What is read much later, forward and backward, is passed on by the stages between. */
static void skip_connections_pass_on(void **state)
{
    (void)state;
    training t;
    open_layers(&t, 4);
    graph_node(&t.g, "Sum", "y3 y0 x", "s");
    add_weight(&t, "last");
    graph_node(&t.g, "MatMul", "s last", "q");
    graph_node(&t.g, "Mul", "q y1", "z");
    differentiate(&t, "z");
    for (int stages = 2; stages <= 5; stages++) assert_parts(&t, stages);
    close_training(&t);
}

/* A weight that two layers read is of one stage, with all that is between them. */
static void a_shared_weight_joins_its_readers(void **state)
{
    (void)state;
    training t;
    open_training(&t);
    add_weight(&t, "a");
    add_weight(&t, "b");
    add_weight(&t, "c");
    graph_node(&t.g, "MatMul", "x a", "p");
    graph_node(&t.g, "Sigmoid", "p", "y");
    graph_node(&t.g, "MatMul", "y b", "q");
    graph_node(&t.g, "Sigmoid", "q", "z");
    graph_node(&t.g, "MatMul", "z a", "r");
    graph_node(&t.g, "Sigmoid", "r", "u");
    graph_node(&t.g, "MatMul", "u c", "v");
    differentiate(&t, "v");
    assert_parts(&t, 2);
    assert_int_equal(t.stage[0], t.stage[1]);
    assert_int_equal(t.stage[2], 1);
    pare_plan *plan;
    for (int k = 0; k < t.count; k++) t.stage[k] = -1;
    assert_int_equal(plan_part(&t, &plan, 0, 5), PARE_INPUT);
    assert_non_null(strstr(t.g.ctx.message, "m.onnx: 5 stages were asked for, but only"));
    assert_non_null(strstr(t.g.ctx.message, "nodes that read the same weight are of one stage"));
    close_training(&t);
}

/* What crosses is a view of a weight: its bytes are the device's where the host's are old. */
static void views_of_weights_cross(void **state)
{
    (void)state;
    training t;
    open_training(&t);
    add_weight_of(&t, "flat", 1, (const int64_t[]){SIDE * SIDE});
    add_weight(&t, "b");
    graph_ints(&t.g, "dims", 1, (const int64_t[]){2}, square);
    graph_node(&t.g, "Reshape", "flat dims", "a");
    graph_node(&t.g, "MatMul", "x a", "p");
    graph_node(&t.g, "Sigmoid", "p", "y");
    graph_node(&t.g, "MatMul", "y b", "q");
    graph_node(&t.g, "Sigmoid", "q", "z");
    graph_node(&t.g, "MatMul", "z a", "r");
    differentiate(&t, "r");
    for (int stages = 2; stages <= 3; stages++) {
        pare_plan *plan;
        int received, sent, views = 0;
        assert_parts(&t, stages);
        assert_int_equal(plan_part(&t, &plan, 0, stages), PARE_OK);
        pare_plan_part_ends(plan, &received, &sent);
        for (int i = 0; i < sent; i++) views += !strcmp(pare_plan_output(plan, i)->name, "a");
        if (device) assert_int_equal(views, 1); /* a CPU's costs cut elsewhere */
        pare_plan_free(plan);
    }
    close_training(&t);
}

/* What is computed of weights alone is in the stage of what reads it, though it comes first. */
static void weights_are_computed_where_they_are_read(void **state)
{
    (void)state;
    training t;
    open_training(&t);
    add_weight(&t, "a");
    add_weight(&t, "b");
    add_weight(&t, "c");
    graph_node(&t.g, "Sigmoid", "c", "c1");
    graph_node(&t.g, "Sigmoid", "c1", "c2");
    graph_node(&t.g, "MatMul", "x a", "p");
    graph_node(&t.g, "Sigmoid", "p", "y");
    graph_node(&t.g, "MatMul", "y b", "q");
    graph_node(&t.g, "Sigmoid", "q", "z");
    graph_node(&t.g, "MatMul", "z c2", "r");
    differentiate(&t, "r");
    for (int stages = 2; stages <= 3; stages++) {
        assert_parts(&t, stages);
        if (!device) assert_int_equal(t.stage[2], stages - 1); /* a GPU's costs cut elsewhere */
    }
    close_training(&t);
}

/* A graph without a loss has forward parts alone. Its outputs leave the last one. */
static void outputs_of_forward_parts_leave_the_last(void **state)
{
    (void)state;
    training t;
    open_layers(&t, 4);
    graph_output(&t.g, "y3");
    graph_output(&t.g, "y0");
    t.split = (pare_stage_split){.weight = t.weight, .stage = t.stage, .count = t.count};
    for (int stages = 2; stages <= 4; stages++) assert_parts(&t, stages);
    close_training(&t);
}

/* Stages that are given are kept, however unequal; ones that contradict the graph are refused. */
static void given_stages_are_kept(void **state)
{
    (void)state;
    training t;
    pare_plan *plan;
    int count;
    open_layers(&t, 4);
    graph_output(&t.g, "y3");
    t.split = (pare_stage_split){.weight = t.weight, .stage = t.stage, .count = t.count};
    memcpy(t.stage, (const int[]){0, 1, 1, 1}, 4 * sizeof(int));
    assert_int_equal(plan_part(&t, &plan, 0, 2), PARE_OK);
    assert_int_equal(pare_plan_stages(plan, &count)[0].macs, ROWS * SIDE * SIDE);
    assert_int_equal(count, 2);
    pare_plan_free(plan);
    memcpy(t.stage, (const int[]){1, 0, 1, 1}, 4 * sizeof(int));
    assert_int_equal(plan_part(&t, &plan, 0, 2), PARE_UNSUPPORTED);
    assert_string_equal(
        t.g.ctx.message,
        "m.onnx: cannot be cut into 2 stages where the graph that is trained is cut; take "
        "fewer");
    close_training(&t);
}

static void a_failed_allocation_is_told(void **state)
{
    (void)state;
    training t;
    pare_plan *plan = NULL;
    pare_status st = PARE_MEMORY;
    int failed = -1;
    open_layers(&t, 3);
    differentiate(&t, "y2");
    for (int part = 0; part < 3; part++, st = PARE_MEMORY) {
        for (int64_t n = 0; st != PARE_OK; n++, failed++) {
            for (int k = 0; k < t.count; k++) t.stage[k] = -1;
            t.g.ctx.fail_after = n;
            st = plan_part(&t, &plan, part, 2);
            assert_true(st == PARE_OK || st == PARE_MEMORY);
        }
        pare_plan_free(plan);
    }
    assert_true(failed > 30);
    t.g.ctx.fail_after = -1;
    close_training(&t);
}

#ifdef CASE_DEVICE
static pare_ctx of_device;

static int open_device(void **state)
{
    (void)state;
    pare_ctx_init(&of_device);
    return pare_device_open(&of_device, &device, "cuda") != PARE_OK;
}

static int close_device(void **state)
{
    (void)state;
    pare_device_close(device);
    return 0;
}
#else
#define open_device  NULL
#define close_device NULL
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_chain_give_the_whole),
        cmocka_unit_test(skip_connections_pass_on),
        cmocka_unit_test(a_shared_weight_joins_its_readers),
        cmocka_unit_test(views_of_weights_cross),
        cmocka_unit_test(weights_are_computed_where_they_are_read),
        cmocka_unit_test(outputs_of_forward_parts_leave_the_last),
        cmocka_unit_test(given_stages_are_kept),
        cmocka_unit_test(a_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}

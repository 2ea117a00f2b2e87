/* SPDX-License-Identifier: Apache-2.0 */
/* A flow that begins at what a flow through another model kept: where both compute it in the same
   way it reads no data and shows the same bits, elsewhere it computes everything. */
#include "calib/capture.h"
#include "tests/quant/quant_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SAMPLES = 40, WIDTH = 8, CLASSES = 3 };
static char path[64];

typedef struct models {
    graph_case g; /* y = Relu(x first) second */
    pare_data *data;
    pare_model *other; /* a copy, to be changed */
    pare_capture *kept;
    int64_t sample[SAMPLES];
} models;

static pare_capture *flow(models *m, const pare_model *model, const pare_capture *begin_at)
{
    pare_capture *out = NULL;
    const pare_capture_options options = {.samples = m->sample,
                                          .sample_count = SAMPLES,
                                          .threads = 2,
                                          .room = 1 << 20,
                                          .begin_at = begin_at};
    if (pare_capture_new(&m->g.ctx, &out, model, m->data, &options) != PARE_OK)
        fail_msg("%s", m->g.ctx.message);
    return out;
}

/* What the flow shows of a tensor of `width` numbers a run. */
static void shown(models *m, pare_capture *f, const char *name, bool keep, int width, float *out)
{
    pare_capture_batch batch;
    if (pare_capture_begin(f, &name, &keep, 1) != PARE_OK) fail_msg("%s", m->g.ctx.message);
    for (;;) {
        if (pare_capture_next(f, &batch) != PARE_OK) fail_msg("%s", m->g.ctx.message);
        if (!batch.count) return;
        assert_int_equal(batch.size[0], width);
        memcpy(out + batch.first * width, batch.value[0],
               (size_t)(batch.count * width) * sizeof *out);
    }
}

static void models_open(models *m)
{
    static float first[WIDTH * WIDTH], second[WIDTH * CLASSES], kept[SAMPLES * WIDTH];
    const pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    for (int i = 0; i < WIDTH * WIDTH; i++) first[i] = (float)(i * 29 % 64 - 31) / 16;
    for (int i = 0; i < WIDTH * CLASSES; i++) second[i] = (float)(i * 37 % 64 - 31) / 16;
    for (int i = 0; i < SAMPLES; i++) m->sample[i] = i;
    graph_open(&m->g, 17);
    graph_input(&m->g, "x", PARE_f32, 2, (int64_t[]){-1, WIDTH});
    graph_floats(&m->g, "first", 2, (int64_t[]){WIDTH, WIDTH}, first);
    graph_floats(&m->g, "second", 2, (int64_t[]){WIDTH, CLASSES}, second);
    graph_node(&m->g, "MatMul", "x first", "made");
    graph_node(&m->g, "Relu", "made", "kept");
    graph_node(&m->g, "MatMul", "kept second", "y");
    graph_output(&m->g, "y");
    assert_int_equal(pare_data_open(&m->g.ctx, &m->data, path, &in, 1), PARE_OK);
    assert_int_equal(pare_model_clone(&m->g.ctx, &m->other, m->g.model), PARE_OK);
    m->kept = flow(m, m->g.model, NULL);
    shown(m, m->kept, "kept", true, WIDTH, kept);
}

static void models_close(models *m)
{
    pare_capture_free(m->kept);
    pare_model_free(m->other);
    pare_data_close(m->data);
    graph_close(&m->g);
}

/* The weight becomes its negative in the copy. */
static void change(models *m, const char *name)
{
    pare_value *w = pare_graph_find_own(m->other->graph, name);
    float negative[WIDTH * WIDTH];
    pare_tensor *made;
    for (int64_t i = 0; i < w->data->count; i++) negative[i] = -((const float *)w->data->data)[i];
    assert_int_equal(
        pare_tensor_new(m->other, &made, name, PARE_f32, w->data->rank, w->data->dims, negative),
        PARE_OK);
    assert_int_equal(pare_value_set_init(w, made), PARE_OK);
}

/* y of the copy with and without what was kept: equal bits; was the data read? */
static void check(models *m, bool reads)
{
    float with[SAMPLES * CLASSES], without[SAMPLES * CLASSES], before[SAMPLES * CLASSES];
    pare_hash hash;
    pare_capture *plain = flow(m, m->other, NULL), *late = flow(m, m->other, m->kept);
    shown(m, plain, "y", false, CLASSES, without);
    shown(m, late, "y", false, CLASSES, with);
    assert_memory_equal(with, without, sizeof with);
    assert_true(pare_capture_hash(plain, &hash));
    assert_int_equal(pare_capture_hash(late, &hash), reads);
    pare_capture_free(late);
    pare_capture_free(plain);
    shown(m, m->kept, "y", false, CLASSES, before); /* whose tensor is still there */
    assert_memory_not_equal(before, without, sizeof before);
}

static void what_lies_after_a_change_is_computed(void **state)
{
    (void)state;
    models m;
    models_open(&m);
    change(&m, "second");
    check(&m, false);
    models_close(&m);
}

static void what_lies_before_it_is_not_taken(void **state)
{
    (void)state;
    models m;
    models_open(&m);
    change(&m, "first");
    check(&m, true);
    models_close(&m);
}

static void another_operator_is_not_taken(void **state)
{
    (void)state;
    models m;
    models_open(&m);
    pare_graph_find_own(m.other->graph, "kept")->producer->op_type = "Neg";
    check(&m, true);
    models_close(&m);
}

static void fewer_samples_are_not_taken(void **state)
{
    float y[SAMPLES * CLASSES];
    pare_hash hash;
    (void)state;
    models m;
    models_open(&m);
    const pare_capture_options half = {
        .samples = m.sample, .sample_count = SAMPLES / 2, .threads = 1, .begin_at = m.kept};
    pare_capture *f = NULL;
    assert_int_equal(pare_capture_new(&m.g.ctx, &f, m.other, m.data, &half), PARE_OK);
    shown(&m, f, "y", false, CLASSES, y);
    assert_true(pare_capture_hash(f, &hash));
    pare_capture_free(f);
    models_close(&m);
}

/* A tensor of 16 bits is shown as the f32 numbers that it holds, and never kept. */
static void a_half_tensor_is_shown(void **state)
{
    float x[SAMPLES * WIDTH], half[SAMPLES * WIDTH];
    pare_value *y;
    pare_node *node;
    (void)state;
    models m;
    models_open(&m);
    pare_graph *g = m.other->graph;
    pare_value *made = pare_graph_find_own(g, "made");
    assert_int_equal(pare_value_new(g, &y, "half"), PARE_OK);
    assert_int_equal(pare_node_new(g, &node, g->node_count, "Cast", "", "cast", &made, 1, &y, 1),
                     PARE_OK);
    assert_int_equal(pare_node_set_int(node, "to", PARE_f16), PARE_OK);
    pare_capture *f = flow(&m, m.other, NULL);
    shown(&m, f, "made", false, WIDTH, x);
    for (int pass = 0; pass < 2; pass++) {
        shown(&m, f, "half", true, WIDTH, half);
        for (int i = 0; i < SAMPLES * WIDTH; i++)
            assert_true(half[i] == pare_f16_to_f32(pare_f32_to_f16(x[i])));
    }
    pare_capture_free(f);
    models_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_after_a_change_is_computed),
        cmocka_unit_test(what_lies_before_it_is_not_taken),
        cmocka_unit_test(another_operator_is_not_taken),
        cmocka_unit_test(fewer_samples_are_not_taken),
        cmocka_unit_test(a_half_tensor_is_shown),
    };
    float x[SAMPLES * WIDTH];
    pare_ctx ctx;
    pare_ctx_init(&ctx);
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i] = (float)(i * 37 % 255 - 127) / 64;
    snprintf(path, sizeof path, "capture.%d.h5", (int)getpid());
    write_rows(&ctx, path, WIDTH, x, SAMPLES);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/distill/distill_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

float distill_x[SAMPLES][WIDTH];
int64_t distill_label[SAMPLES];
static char folder[] = "/tmp/pare_distill_XXXXXX", files[3][64];

static float number(int i) { return sinf((float)i * 1.7f) + 0.3f * cosf((float)i * 0.31f); }

static void fill(float *to, int count, int seed)
{
    for (int i = 0; i < count; i++) to[i] = 0.6f * number(i + seed);
}

static void fill_net(distill_net *net, int seed)
{
    fill(&net->w1[0][0], WIDTH * HIDDEN, seed);
    fill(&net->w2[0][0], HIDDEN * CLASSES, seed + 300);
    fill(net->b, CLASSES, seed + 500);
}

static void write_data(pare_ctx *ctx, const char *path, distill_labels labels)
{
    pare_data_column column[2] = {
        {.name = "x", .dtype = PARE_f32, .shape = {.rank = 1, .dim = {WIDTH}}},
        {.name = "labels", .dtype = PARE_s64, .shape = {.rank = 0}}};
    int64_t given[SAMPLES];
    pare_data_writer *w = NULL;
    memcpy(given, distill_label, sizeof given);
    if (labels == LABELS_WRONG) given[9] = CLASSES;
    const void *block[2] = {distill_x, given};
    assert_int_equal(pare_data_create(ctx, &w, path, column, 1 + (labels != LABELS_NONE)), PARE_OK);
    assert_int_equal(pare_data_append(w, block, SAMPLES), PARE_OK);
    assert_int_equal(pare_data_commit(w), PARE_OK);
}

int distill_setup(void **state)
{
    pare_ctx ctx;
    (void)state;
    pare_ctx_init(&ctx);
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < SAMPLES * WIDTH; i++) distill_x[i / WIDTH][i % WIDTH] = 1.5f * number(i);
    for (int i = 0; i < SAMPLES; i++) distill_label[i] = i * 5 % CLASSES;
    for (int i = 0; i < 3; i++) {
        snprintf(files[i], sizeof files[i], "%s/%d.h5", folder, i);
        write_data(&ctx, files[i], (distill_labels)i);
    }
    return 0;
}

int distill_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) unlink(files[i]);
    return rmdir(folder);
}

pare_data *distill_data(pare_ctx *ctx, distill_labels labels)
{
    pare_data *data = NULL;
    pare_data_input in = {"x", PARE_f32, {2, {-1, WIDTH}, {0}}, NULL};
    if (pare_data_open(ctx, &data, files[labels], &in, 1) != PARE_OK) fail_msg("%s", ctx->message);
    return data;
}

void distill_usual_net(graph_case *g, const distill_net *net, int64_t batch)
{
    graph_open(g, 17);
    graph_input(g, "x", PARE_f32, 2, (int64_t[]){batch, WIDTH});
    graph_floats(g, "w1", 2, (int64_t[]){WIDTH, HIDDEN}, &net->w1[0][0]);
    graph_floats(g, "w2", 2, (int64_t[]){HIDDEN, CLASSES}, &net->w2[0][0]);
    graph_floats(g, "b", 1, (int64_t[]){CLASSES}, net->b);
    graph_node(g, "MatMul", "x w1", "z");
    graph_node(g, "Relu", "z", "h");
    graph_node(g, "Gemm", "h w2 b", "y");
    graph_output(g, "y");
}

static void note(void *user, pare_log_level level, const char *line)
{
    distill_case *c = user;
    size_t at = strlen(c->log);
    if (level != PARE_LOG_DEBUG) snprintf(c->log + at, sizeof c->log - at, "%s\n", line);
}

static pare_status on_event(void *user, const pare_distill_event *event)
{
    distill_case *c = user;
    assert_int_equal(event->step, c->events);
    c->events++;
    c->validations += event->score != NULL;
    c->last_loss = event->loss;
    c->zeros_told = event->zero_count;
    if (c->stop_at && event->step == c->stop_at) c->stop = 1;
    return PARE_OK;
}

/* The norm of the gradients that an event shows. */
static double shown_norm(const pare_distill_event *e)
{
    double sum = 0;
    for (int k = 0; k < e->tensor_count; k++)
        for (int64_t i = 0; i < e->tensor[k].count; i++)
            sum += pow((double)e->tensor[k].gradient[i] * e->gradient_factor, 2);
    return sqrt(sum);
}

static pare_status on_tensors(void *user, const pare_distill_event *e)
{
    static const struct {
        const char *name;
        size_t at, count;
    } of[] = {{"w1", offsetof(distill_net, w1), WIDTH * HIDDEN},
              {"w2", offsetof(distill_net, w2), HIDDEN * CLASSES},
              {"b", offsetof(distill_net, b), CLASSES}};
    distill_case *c = user;
    assert_int_equal(e->tensor_count, e->score ? 3 : 0);
    assert_true((e->tensor != NULL) == (e->score != NULL));
    for (int k = 0; k < e->tensor_count; k++) {
        assert_string_equal(e->tensor[k].name, of[k].name);
        assert_int_equal(e->tensor[k].count, of[k].count);
        if (e->best)
            memcpy((char *)&c->shown + of[k].at, e->tensor[k].value, of[k].count * sizeof(float));
    }
    if (e->score && e->step) distill_expect_near(shown_norm(e), e->norm, 1e-5 * e->norm);
    assert_true((e->gradient_factor > 0) == (e->step > 0));
    return on_event(user, e);
}

void distill_check_tensors(distill_case *c)
{
    c->options.event_tensors = true;
    c->options.event = on_tensors;
    c->options.validate_every = 3;
    c->options.steps = 12;
    distill_expect_ok(c, NULL);
    assert_true(c->result.best_step > 0);
    assert_memory_equal(c->shown.w1, distill_weight(&c->student, "w1"), sizeof c->shown.w1);
    assert_memory_equal(c->shown.w2, distill_weight(&c->student, "w2"), sizeof c->shown.w2);
    assert_memory_equal(c->shown.b, distill_weight(&c->student, "b"), sizeof c->shown.b);
}

void distill_open(distill_case *c, int64_t batch, distill_labels labels)
{
    memset(c, 0, sizeof *c);
    fill_net(&c->t, 0);
    fill_net(&c->s, 1000);
    distill_usual_net(&c->teacher, &c->t, -1);
    distill_usual_net(&c->student, &c->s, batch);
    c->ctx = &c->student.ctx;
    c->ctx->log = note;
    c->ctx->log_user = c;
    c->ctx->interrupted = &c->stop;
    c->data = distill_data(c->ctx, labels);
    pare_distill_options_init(&c->options);
    c->options.held_out = distill_data(c->ctx, labels);
    c->options.threads = 1;
    c->options.batch = 16;
    c->options.event = on_event;
    c->options.event_user = c;
}

void distill_close(distill_case *c)
{
    graph_close(&c->teacher);
    graph_close(&c->student);
    pare_data_close(c->data);
    if (c->options.held_out) pare_data_close(c->options.held_out);
}

pare_status distill_run(distill_case *c, const char *loss)
{
    pare_arena arena;
    c->events = c->validations = c->stop = 0;
    pare_arena_init(&arena, &c->teacher.ctx);
    if (loss) assert_int_equal(pare_distill_parse_loss(&arena, loss, &c->options.loss), PARE_OK);
    pare_status st =
        pare_distill(c->ctx, &c->result, c->teacher.model, c->student.model, c->data, &c->options);
    pare_arena_free(&arena);
    c->options.loss = (pare_distill_loss){0};
    return st;
}

void distill_expect_ok(distill_case *c, const char *loss)
{
    if (distill_run(c, loss) != PARE_OK) fail_msg("%s", c->ctx->message);
}

void distill_expect_refusal(distill_case *c, const char *loss, pare_status status,
                            const char *words)
{
    pare_status st = distill_run(c, loss);
    if (st != status || !strstr(c->ctx->message, words))
        fail_msg("status %d: %s\nexpected %d: ... %s", st, c->ctx->message, status, words);
    pare_ctx_clear(c->ctx);
}

const float *distill_weight(const graph_case *g, const char *name)
{
    const pare_value *v = graph_value(g, name);
    assert_non_null(v);
    assert_non_null(v->data);
    return v->data->data;
}

void distill_expect_near(double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed)) fail_msg("%.9g, expected %.9g", got, want);
}

void distill_same_net(const distill_case *a, const distill_case *b, bool same)
{
    assert_int_equal(!memcmp(distill_weight(&a->student, "w1"), distill_weight(&b->student, "w1"),
                             sizeof a->s.w1),
                     same);
    assert_int_equal(!memcmp(distill_weight(&a->student, "w2"), distill_weight(&b->student, "w2"),
                             sizeof a->s.w2),
                     same);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Models that keep states between requests: the bytes of a sequence alone, whatever runs beside it;
   order, ends and failures. */
#include "tests/tools/serve_desk.h"

#include "formats/onnx.h"
#include "tests/passes/graph_case.h"
#include "tools/serve/traffic/sequences.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { WIDE = 4, FLAGS = 4, SEQUENCES = 24, STEPS = 10 };

/* --- models --- */

static void write_model(graph_case *g, const desk *d, const char *name)
{
    char folder[128], path[160];
    snprintf(folder, sizeof folder, "%s/%s/1", d->folder, name);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    desk_run("mkdir -p '%s'%s", folder, "");
    g->model->ir_version = 8;
    if (pare_onnx_write(&g->ctx, g->model, path, NULL) != PARE_OK) fail_msg("%s", g->ctx.message);
    graph_close(g);
}

static void write_config(const desk *d, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", d->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void add_weight(graph_case *g, const char *name, float scale)
{
    const int64_t dims[] = {WIDE, WIDE};
    float data[WIDE * WIDE];
    for (int i = 0; i < WIDE * WIDE; i++) data[i] = scale * (float)(i * 7 % 11 - 5);
    graph_floats(g, name, 2, dims, data);
}

/* state' = tanh(x W + state U), y = 2 state', flags = (start, end, ready, id). */
static void make_cell(const desk *d, const char *name)
{
    graph_case g;
    const int64_t wide[] = {-1, WIDE}, one[] = {-1, 1}, scalar[] = {1};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 2, wide);
    graph_input(&g, "state", PARE_f32, 2, wide);
    graph_input(&g, "start", PARE_f32, 2, one);
    graph_input(&g, "end", PARE_s32, 2, one);
    graph_input(&g, "ready", PARE_bool, 2, one);
    graph_input(&g, "id", PARE_u64, 2, one);
    add_weight(&g, "W", 0.11f);
    add_weight(&g, "U", 0.17f);
    graph_floats(&g, "two", 1, scalar, (const float[]){2});
    graph_node(&g, "MatMul", "x W", "xw");
    graph_node(&g, "MatMul", "state U", "su");
    graph_node(&g, "Add", "xw su", "sum");
    graph_node(&g, "Tanh", "sum", "next");
    graph_node(&g, "Mul", "next two", "y");
    static const char *const casts[][2] = {{"end", "e"}, {"ready", "r"}, {"id", "i"}};
    for (int i = 0; i < 3; i++) {
        pare_node *cast = graph_node(&g, "Cast", casts[i][0], casts[i][1]);
        assert_int_equal(pare_node_set_int(cast, "to", PARE_f32), PARE_OK);
    }
    pare_node *concat = graph_node(&g, "Concat", "start e r i", "flags");
    assert_int_equal(pare_node_set_int(concat, "axis", 1), PARE_OK);
    graph_output(&g, "y");
    graph_output(&g, "flags");
    graph_output(&g, "next");
    write_model(&g, d, name);
}

/* present = past with x behind it, y = the sum over all so far. */
static void make_cache(const desk *d)
{
    graph_case g;
    const int64_t x[] = {-1, 1, 2}, past[] = {-1, -1, 2}, one[] = {1};
    graph_open(&g, 17);
    graph_input(&g, "x", PARE_f32, 3, x);
    graph_input(&g, "past", PARE_f32, 3, past);
    graph_ints(&g, "axis", 1, one, (const int64_t[]){1});
    pare_node *concat = graph_node(&g, "Concat", "past x", "present");
    assert_int_equal(pare_node_set_int(concat, "axis", 1), PARE_OK);
    graph_node(&g, "ReduceSum", "present axis", "y");
    graph_output(&g, "y");
    graph_output(&g, "present");
    write_model(&g, d, "cache");
}

#define CONTROLS                                                                                   \
    "control_input { name: \"start\" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, " \
    "1] } } control_input { name: \"end\" control { kind: CONTROL_SEQUENCE_END int32_false_true: " \
    "[0, 1] } } control_input { name: \"ready\" control { kind: CONTROL_SEQUENCE_READY "           \
    "bool_false_true: [false, true] } } control_input { name: \"id\" control { kind: "             \
    "CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } "
#define STATE                                                                                      \
    "state { input_name: \"state\" output_name: \"next\" data_type: TYPE_FP32 dims: 4 "            \
    "initial_state { data_type: TYPE_FP32 dims: 4 zero_data: true name: \"zeros\" } } "

/* Models of the folder: cell with sequences, and free, the same net without. */
static void open_cell(desk *d, const char *batching)
{
    char config[2048];
    const pare_serve_config served = desk_config(8, 0, 2);
    make_cell(d, "cell");
    make_cell(d, "free");
    snprintf(config, sizeof config, "max_batch_size: 8 sequence_batching { %s " CONTROLS STATE "}",
             batching);
    write_config(d, "cell", config);
    desk_open(d, d->path, 1, &served);
}

/* --- requests --- */

static float x_of(int sequence, int step, int i)
{
    return sinf((float)(sequence * 100 + step * 10 + i));
}

/* A step of a sequence. flags: "start", "end". */
static ask *send_step(desk *d, int id, int step, bool start, bool end)
{
    char body[1024];
    const int n = snprintf(
        body, sizeof body,
        "{\"parameters\": {\"binary_data_output\": true, \"sequence_id\": %d, \"sequence_start\": "
        "%s, \"sequence_end\": %s}, \"inputs\": [{\"name\": \"x\", \"shape\": [1, 4], "
        "\"datatype\": \"FP32\", \"data\": [%.9g, %.9g, %.9g, %.9g]}]}",
        id, start ? "true" : "false", end ? "true" : "false", (double)x_of(id, step, 0),
        (double)x_of(id, step, 1), (double)x_of(id, step, 2), (double)x_of(id, step, 3));
    return desk_send(d, "POST", "/v2/models/cell/infer", body, (size_t)n, (size_t)n);
}

typedef struct reply {
    float y[WIDE], flags[FLAGS];
} reply;

static void take(ask *a, reply *out)
{
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != 200) fail_msg("%d %.*s", r->code, (int)r->bytes, r->body);
    assert_int_equal(r->bytes - r->json_bytes, sizeof *out); /* and no state */
    memcpy(out, r->body + r->json_bytes, sizeof *out);
    ask_forget(a);
}

static void has_flags(const reply *r, bool start, bool end, int id)
{
    assert_true(r->flags[0] == (float)start && r->flags[1] == (float)end);
    assert_true(r->flags[2] == 1 && r->flags[3] == (float)id);
}

/* The reply's words where there are some. */
static void fails(ask *a, int code, const char *words)
{
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != code || !memmem(r->body, r->bytes, words, strlen(words)))
        fail_msg("%d %.*s, expected %d %s", r->code, (int)r->bytes, r->body, code, words);
    ask_forget(a);
}

/* The steps of a sequence by the net without states, which are handed on here. */
static void run_free(desk *d, int id, float (*y)[WIDE])
{
    float state[WIDE] = {0};
    for (int step = 0; step < STEPS; step++) {
        char body[2048];
        int n =
            snprintf(body, sizeof body,
                     "{\"parameters\": {\"binary_data_output\": true}, \"outputs\": [{\"name\": "
                     "\"y\"}, {\"name\": \"next\"}], \"inputs\": [{\"name\": \"start\", "
                     "\"shape\": [1, 1], \"datatype\": \"FP32\", \"data\": [0]}, {\"name\": "
                     "\"end\", \"shape\": [1, 1], \"datatype\": \"INT32\", \"data\": [0]}, "
                     "{\"name\": \"ready\", \"shape\": [1, 1], \"datatype\": \"BOOL\", "
                     "\"data\": [true]}, {\"name\": \"id\", \"shape\": [1, 1], \"datatype\": "
                     "\"UINT64\", \"data\": [1]}, {\"name\": \"state\", \"shape\": [1, 4], "
                     "\"datatype\": \"FP32\", \"data\": [%.9g, %.9g, %.9g, %.9g]}, {\"name\": "
                     "\"x\", \"shape\": [1, 4], \"datatype\": \"FP32\", \"data\": [%.9g, %.9g, "
                     "%.9g, %.9g]}]}",
                     (double)state[0], (double)state[1], (double)state[2], (double)state[3],
                     (double)x_of(id, step, 0), (double)x_of(id, step, 1),
                     (double)x_of(id, step, 2), (double)x_of(id, step, 3));
        ask *a = desk_send(d, "POST", "/v2/models/free/infer", body, (size_t)n, (size_t)n);
        ask_await(a);
        if (a->x.reply.code != 200) fail_msg("%.*s", (int)a->x.reply.bytes, a->x.reply.body);
        memcpy(y[step], a->x.reply.body + a->x.reply.json_bytes, sizeof *y);
        memcpy(state, a->x.reply.body + a->x.reply.json_bytes + sizeof *y, sizeof state);
        ask_forget(a);
    }
}

/* A sequence ends behind its last reply. */
static void await_none(desk *d, const char *name)
{
    pare_served *s;
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, name, 0), PARE_OK);
    while (pare_sequences_count(s->sequences))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pare_served_release(s);
}

/* All steps of all sequences at once: each gives the bytes of its sequence alone. */
static void run_together(void **state, const char *batching, uint64_t most_runs)
{
    static ask *asked[SEQUENCES][STEPS];
    static float alone[STEPS][WIDE];
    desk *d = *state;
    open_cell(d, batching);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < SEQUENCES; i++)
            asked[i][step] = send_step(d, i + 1, step, !step, step == STEPS - 1);
    for (int i = 0; i < SEQUENCES; i++) {
        run_free(d, i + 1, alone);
        for (int step = 0; step < STEPS; step++) {
            reply r;
            take(asked[i][step], &r);
            assert_memory_equal(r.y, alone[step], sizeof r.y);
            has_flags(&r, !step, step == STEPS - 1, i + 1);
        }
    }
    const pare_served_stats stats = desk_stats(d, "cell");
    await_none(d, "cell");
    assert_int_equal(stats.rows, SEQUENCES * STEPS);
    assert_true(stats.runs <= most_runs);
    desk_gives(d, "GET", "/metrics", "", 200,
               "pare_open_sequences{model=\"cell\",version=\"1\"} 0\n");
}

/* 8 at a time and a delay: requests of different sequences are in one run. */
static void sequences_are_batched(void **state)
{
    run_together(state,
                 "oldest { max_candidate_sequences: 16 max_queue_delay_microseconds: 100000 }",
                 SEQUENCES * STEPS * 3 / 4);
}

static void sequences_wait_for_a_place(void **state)
{
    run_together(state, "direct { }", SEQUENCES * STEPS);
}

static void one_at_a_time_is_enough(void **state)
{
    run_together(state, "oldest { max_candidate_sequences: 1 }", SEQUENCES * STEPS);
}

static void what_is_wrong_is_refused(void **state)
{
    static const struct {
        const char *parameters, *shape, *more, *words;
    } cases[] = {
        {"", "[1, 4]", "", "expected a sequence_id that is neither 0 nor empty"},
        {"\"sequence_id\": 0, \"sequence_start\": true", "[1, 4]", "", "neither 0 nor empty"},
        {"\"sequence_id\": \"\", \"sequence_start\": true", "[1, 4]", "", "neither 0 nor empty"},
        {"\"sequence_id\": -1", "[1, 4]", "", "'sequence_id' is not a whole number from 0"},
        {"\"sequence_id\": 5, \"sequence_start\": 1", "[1, 4]", "", "'sequence_start' is neither"},
        {"\"sequence_id\": 5", "[1, 4]", "", "the sequence '5' has not begun or has ended"},
        {"\"sequence_id\": 5, \"sequence_end\": true", "[1, 4]", "", "has not begun or has ended"},
        {"\"sequence_id\": 5, \"sequence_start\": true", "[2, 2]", "", "expected [?,4]"},
        {"\"sequence_id\": \"a\", \"sequence_start\": true", "[1, 4]", "", "a number that UINT64"},
        {"\"sequence_id\": 5, \"sequence_start\": true", "[1, 4]",
         ", {\"name\": \"state\", \"shape\": [1, 4], \"datatype\": \"FP32\", \"data\": [0, 0, 0, "
         "0]}",
         "has no input 'state'"},
        {"\"sequence_id\": 5, \"sequence_start\": true", "[1, 4]",
         "], \"outputs\": [{\"name\": \"next\"}", "has no output 'next'"},
    };
    desk *d = *state;
    reply r;
    char body[1024];
    open_cell(d, "direct { } max_sequence_idle_microseconds: 60000000");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(body, sizeof body,
                 "{\"parameters\": {%s}, \"inputs\": [{\"name\": \"x\", \"shape\": %s, "
                 "\"datatype\": \"FP32\", \"data\": [1, 2, 3, 4]}%s]}",
                 cases[i].parameters, cases[i].shape, cases[i].more);
        desk_gives(d, "POST", "/v2/models/cell/infer", body, 400, cases[i].words);
    }
    desk_gives(
        d, "POST", "/v2/models/cell/infer",
        "{\"parameters\": {\"sequence_id\": 5, \"sequence_start\": true}, \"inputs\": "
        "[{\"name\": \"x\", \"shape\": [2, 4], \"datatype\": \"FP32\", \"data\": [1, 2, 3, 4, "
        "5, 6, 7, 8]}]}",
        400, "a request of 2 samples, in a sequence it has one");
    desk_gives(d, "GET", "/v2/models/cell", "", 200,
               "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,4]}]");
    desk_gives(d, "GET", "/v2/models/cell/config", "", 200, "\"output_name\":\"next\"");
    /* After its end a sequence has ended, and its id may begin again. */
    take(send_step(d, 7, 0, true, false), &r);
    take(send_step(d, 7, 1, false, true), &r);
    fails(send_step(d, 7, 2, false, false), 400, "the sequence '7' has not begun or has ended");
    take(send_step(d, 7, 2, true, true), &r);
    has_flags(&r, true, true, 7);
}

/* A start where a sequence is open begins it anew, in order of arrival. */
static void a_start_begins_anew(void **state)
{
    desk *d = *state;
    reply r[4];
    ask *asked[4];
    open_cell(d, "direct { } max_sequence_idle_microseconds: 60000000");
    for (int i = 0; i < 4; i++) asked[i] = send_step(d, 3, i % 2, i % 2 == 0, false);
    for (int i = 0; i < 4; i++) take(asked[i], &r[i]);
    assert_memory_equal(r[0].y, r[2].y, sizeof r[0].y);
    assert_memory_equal(r[1].y, r[3].y, sizeof r[0].y);
    assert_memory_not_equal(r[0].y, r[1].y, sizeof r[0].y);
    desk_gives(d, "POST", "/v2/repository/models/cell/load", "", 200, "");
    fails(send_step(d, 3, 1, false, false), 400, "has not begun or has ended");
}

/* NaN cannot be written as JSON: the request fails, and with it the sequence. */
static void a_failure_ends_the_sequence(void **state)
{
    static const char json[] =
        "{\"parameters\": {\"sequence_id\": 9}, \"inputs\": [{\"name\": \"x\", \"shape\": [1, 4], "
        "\"datatype\": \"FP32\", \"parameters\": {\"binary_data_size\": 16}}]}";
    desk *d = *state;
    reply r;
    char body[sizeof json + 16];
    const float nan[] = {NAN, NAN, NAN, NAN};
    open_cell(d, "direct { } max_sequence_idle_microseconds: 60000000");
    memcpy(body, json, sizeof json - 1);
    memcpy(body + sizeof json - 1, nan, sizeof nan);
    take(send_step(d, 9, 0, true, false), &r);
    ask *bad = desk_send(d, "POST", "/v2/models/cell/infer", body, sizeof json - 1 + sizeof nan,
                         sizeof json - 1);
    ask *behind = send_step(d, 9, 1, false, false), *anew = send_step(d, 9, 0, true, false);
    fails(bad, 400, "cannot be written as JSON");
    fails(behind, 400, "has ended");
    reply first = r;
    take(anew, &r);
    assert_memory_equal(&r, &first, sizeof r);
}

/* The second sequence waits until the first has ended. */
static void later_sequences_wait(void **state)
{
    desk *d = *state;
    reply r;
    open_cell(d, "oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 60000000");
    take(send_step(d, 1, 0, true, false), &r);
    ask *other = send_step(d, 2, 0, true, true);
    take(send_step(d, 1, 1, false, false), &r);
    pthread_mutex_lock(&d->lock);
    assert_false(other->done);
    pthread_mutex_unlock(&d->lock);
    take(send_step(d, 1, 2, false, true), &r);
    take(other, &r);
    has_flags(&r, true, true, 2);
}

/* The first is idle for too long, and the second has its place. */
static void idle_sequences_end(void **state)
{
    desk *d = *state;
    reply r;
    open_cell(d, "oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 20000");
    take(send_step(d, 1, 0, true, false), &r);
    take(send_step(d, 2, 0, true, true), &r);
    fails(send_step(d, 1, 1, false, false), 400, "has not begun or has ended");
}

static void put_cache(const desk *d)
{
    make_cache(d);
    write_config(d, "cache",
                 "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 60000000 "
                 "state { input_name: \"past\" output_name: \"present\" data_type: TYPE_FP32 dims: "
                 "[-1, 2] initial_state { data_type: TYPE_FP32 dims: [0, 2] zero_data: true } } }");
}

/* The step from 1 of the one sequence gives this. */
static void cache_gives(desk *d, int step, int code, const char *words)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"parameters\": {\"sequence_id\": \"a text\", \"sequence_start\": %s}, "
             "\"inputs\": [{\"name\": \"x\", \"shape\": [1, 1, 2], \"datatype\": \"FP32\", "
             "\"data\": [%d, 1]}]}",
             step == 1 ? "true" : "false", step);
    desk_gives(d, "POST", "/v2/models/cache/infer", body, code, words);
}

/* A state that grows, from nothing. */
static void states_may_grow(void **state)
{
    desk *d = *state;
    const pare_serve_config served = desk_config(8, 0, 1);
    put_cache(d);
    desk_open(d, d->path, 1, &served);
    for (int step = 1; step <= 20; step++) {
        char words[64];
        snprintf(words, sizeof words, "\"data\":[%d.0,%d.0]", step * (step + 1) / 2, step);
        cache_gives(d, step, 200, words);
    }
}

static void states_count_as_what_requests_hold(void **state)
{
    desk *d = *state;
    static size_t held; /* sequences last until the repository ends */
    reply r;
    held = 0;
    put_cache(d);
    open_cell(d, "max_sequence_idle_microseconds: 60000000 direct { }");
    d->held = &held;
    d->most_held = 24;
    take(send_step(d, 1, 0, true, false), &r);
    assert_int_equal(held, WIDE * sizeof(float));
    fails(send_step(d, 2, 0, true, false), 503,
          "model 'cell': state 'state': requests and replies of 24 bytes are waiting already");
    take(send_step(d, 1, 1, false, false), &r);
    assert_int_equal(held, WIDE * sizeof(float));
    take(send_step(d, 1, 2, false, true), &r);
    await_none(d, "cell");
    assert_int_equal(held, 0);
    for (int step = 1; step <= 3; step++) {
        cache_gives(d, step, 200, "");
        assert_int_equal(held, step * 2 * sizeof(float));
    }
    cache_gives(d, 4, 503, "requests and replies of 24 bytes are waiting already");
    await_none(d, "cache");
    assert_int_equal(held, 0);
}

static void models_must_have_what_is_said(void **state)
{
    static const struct {
        const char *batching, *words;
    } cases[] = {
        {"control_input { name: \"none\" control { kind: CONTROL_SEQUENCE_START fp32_false_true: "
         "[0, 1] } }",
         "has no input 'none'"},
        {"control_input { name: \"start\" control { kind: CONTROL_SEQUENCE_START "
         "int32_false_true: [0, 1] } }",
         "input 'start' is f32, sequence_batching has s32"},
        {"control_input { name: \"x\" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, "
         "1] } }",
         "input 'x' is a control, expected one element"},
        {"state { input_name: \"state\" output_name: \"none\" data_type: TYPE_FP32 dims: 4 }",
         "has no output 'none'"},
        {"state { input_name: \"state\" output_name: \"next\" data_type: TYPE_FP32 dims: 5 }",
         "input 'state' is [?,4], its state is [5]"},
        {STATE STATE, "names input 'state' twice"},
    };
    desk *d = *state;
    open_cell(d, "direct { }");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[2048];
        snprintf(config, sizeof config, "max_batch_size: 8 sequence_batching { %s }",
                 cases[i].batching);
        write_config(d, "cell", config);
        desk_gives(d, "POST", "/v2/repository/models/cell/load", "", 400, cases[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sequences_are_batched, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(sequences_wait_for_a_place, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(one_at_a_time_is_enough, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_refused, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(a_start_begins_anew, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(a_failure_ends_the_sequence, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(later_sequences_wait, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(idle_sequences_end, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(states_may_grow, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(states_count_as_what_requests_hold, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(models_must_have_what_is_said, desk_setup, desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

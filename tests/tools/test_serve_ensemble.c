/* SPDX-License-Identifier: Apache-2.0 */
/* Ensembles: steps run as their inputs are there and in batches, what does not fit is refused when
   it is loaded, a step's failure is the request's, and a model that goes makes them unready. */
#include "tests/formats/pictures.h"
#include "tests/tools/serve_desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { WIDTH = 4 };

/* --- models --- */

/* A model of one node: inputs "a" and "b", or "a" alone, of floats (samples, 4). */
static void put_node(const desk *d, const char *name, const char *op, const char *in,
                     const char *config)
{
    const int64_t dims[] = {-1, WIDTH};
    graph_case g;
    graph_open(&g, 17);
    graph_input(&g, "a", PARE_f32, 2, dims);
    if (strchr(in, 'b')) graph_input(&g, "b", PARE_f32, 2, dims);
    graph_node(&g, op, in, "y");
    graph_output(&g, "y");
    desk_put_graph(d, &g, name, config);
}

static void put_models(const desk *d)
{
    put_node(d, "double", "Add", "a a", NULL);
    put_node(d, "square", "Mul", "a a", NULL);
    put_node(d, "sum", "Add", "a b", NULL);
}

#define HEAD                                                                                       \
    "platform: 'ensemble' max_batch_size: 8 "                                                      \
    "input { name: 'x' data_type: TYPE_FP32 dims: 4 } "                                            \
    "output { name: 'z' data_type: TYPE_FP32 dims: 4 } "
#define ONE(model, in, out)                                                                        \
    "{ model_name: '" model "' model_version: -1 input_map { key: 'a' value: '" in                 \
    "' } output_map { key: 'y' value: '" out "' } } "
#define TWO(model, first, second, out)                                                             \
    "{ model_name: '" model "' input_map [ { key: 'a' value: '" first                              \
    "' }, { key: 'b' value: '" second "' } ] output_map { key: 'y' value: '" out "' } } "
/* z = 2 x + x^2, its last step listed first */
#define DIAMOND                                                                                    \
    HEAD "ensemble_scheduling { step [ " TWO("sum", "d", "s", "z") ", " ONE(                       \
        "double", "x", "d") ", " ONE("square", "x", "s") " ] }"

static void open_folder(desk *d, int64_t delay)
{
    const pare_serve_config config = desk_config(32, delay, 2);
    desk_open(d, d->path, 1, &config);
}

/* --- requests --- */

static float value_of(int seed, int i) { return (float)(seed * 7 + i) / 16; }

static ask *send_floats(desk *d, const char *model, int seed, int rows)
{
    char body[4096], path[64];
    const size_t bytes = (size_t)rows * WIDTH * sizeof(float);
    const int n = snprintf(body, sizeof body,
                           "{\"id\": \"i\", \"parameters\": {\"binary_data_output\": true}, "
                           "\"inputs\": [{\"name\": \"x\", \"shape\": [%d, 4], \"datatype\": "
                           "\"FP32\", \"parameters\": {\"binary_data_size\": %zu}}]}",
                           rows, bytes);
    for (int i = 0; i < rows * WIDTH; i++) {
        const float value = value_of(seed, i);
        memcpy(body + n + (size_t)i * sizeof value, &value, sizeof value);
    }
    snprintf(path, sizeof path, "/v2/models/%s/infer", model);
    return desk_send(d, "POST", path, body, (size_t)n + bytes, (size_t)n);
}

/* Is the reply z = 2 x + x^2? */
static void takes_diamond(ask *a, int seed, int rows)
{
    float z;
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != 200) fail_msg("%d %.*s", r->code, (int)r->bytes, r->body);
    assert_int_equal(r->bytes - r->json_bytes, (size_t)rows * WIDTH * sizeof z);
    for (int i = 0; i < rows * WIDTH; i++) {
        const float x = value_of(seed, i);
        memcpy(&z, r->body + r->json_bytes + (size_t)i * sizeof z, sizeof z);
        if (z != 2 * x + x * x) fail_msg("%d: %g of %g", i, (double)z, (double)x);
    }
    ask_forget(a);
}

/* --- tests --- */

static void steps_run_as_their_inputs_are_there(void **state)
{
    desk *d = *state;
    put_models(d);
    desk_put_text(d, "diamond/config.pbtxt", DIAMOND);
    open_folder(d, 0);
    assert_string_equal(warning, "");
    desk_gives(d, "GET", "/v2/models/diamond", "", 200, "\"platform\":\"ensemble\"");
    desk_gives(d, "GET", "/v2/models/diamond", "", 200,
               "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,4]}]");
    desk_gives(d, "GET", "/v2/models/diamond/config", "", 200,
               "\"ensemble_scheduling\":{\"step\":[{\"model_name\":\"sum\",\"model_version\":-1,"
               "\"input_map\":{\"a\":\"d\",\"b\":\"s\"},\"output_map\":{\"y\":\"z\"}}");
    desk_gives(d, "GET", "/v2/models/diamond/ready", "", 200, "");
    for (int i = 0; i < 8; i++) takes_diamond(send_floats(d, "diamond", i, i + 1), i, i + 1);
    desk_gives(d, "GET", "/v2/models/diamond/stats", "", 200, "\"success\":{\"count\":8");
    desk_gives(d, "GET", "/v2/models/double/stats", "", 200, "\"success\":{\"count\":8");
    desk_gives(d, "GET", "/v2/models/sum/stats", "", 200, "\"inference_count\":36");
    desk_gives(d, "GET", "/metrics", "", 200,
               "pare_requests_total{model=\"diamond\",version=\"1\",outcome=\"success\"} 8");
    ask *a = send_floats(d, "diamond", 1, 9);
    ask_await(a);
    assert_int_equal(a->x.reply.code, 400);
    assert_non_null(strstr(a->x.reply.body, "a request of 9 samples, expected 1 to 8"));
    ask_forget(a);
}

static void steps_of_many_requests_run_in_batches(void **state)
{
    enum { REQUESTS = 200 };
    static ask *asked[REQUESTS];
    desk *d = *state;
    put_models(d);
    desk_put_text(d, "diamond/config.pbtxt", DIAMOND);
    open_folder(d, 1000);
    for (int i = 0; i < REQUESTS; i++) asked[i] = send_floats(d, "diamond", i, 1 + i % 3);
    for (int i = 0; i < REQUESTS; i++) takes_diamond(asked[i], i, 1 + i % 3);
    static const char *const members[] = {"double", "square", "sum"};
    for (int i = 0; i < 3; i++) {
        const pare_served_stats stats = desk_stats(d, members[i]);
        assert_int_equal(stats.stage[PARE_STAGE_REQUEST].count, REQUESTS);
        assert_true(stats.runs < REQUESTS);
    }
    assert_int_equal(desk_stats(d, "diamond").stage[PARE_STAGE_REQUEST].count, REQUESTS);
}

/* An ensemble of an ensemble, which is loaded before it, by its name, by what it needs. */
static void an_ensemble_may_be_a_step(void **state)
{
    desk *d = *state;
    put_models(d);
    desk_put_text(d, "diamond/config.pbtxt", DIAMOND);
    desk_put_text(d, "all/config.pbtxt",
                  HEAD
                  "ensemble_scheduling { step { model_name: 'diamond' input_map { key: 'x' value: "
                  "'x' } output_map { key: 'z' value: 'z' } } }");
    open_folder(d, 0);
    takes_diamond(send_floats(d, "all", 3, 2), 3, 2);
    desk_gives(d, "GET", "/v2/models/diamond/stats", "", 200, "\"success\":{\"count\":1");
    desk_gives(d, "POST", "/v2/repository/models/square/unload", "", 200, "");
    desk_gives(d, "GET", "/v2/models/all/ready", "", 400,
               "model 'all' is not ready, for model 'diamond'");
    desk_put_text(d, "diamond/config.pbtxt",
                  HEAD
                  "ensemble_scheduling { step { model_name: 'all' input_map { key: 'x' value: 'x' "
                  "} output_map { key: 'z' value: 'z' } } }");
    desk_gives(d, "POST", "/v2/repository/models/square/load", "", 200, "");
    desk_gives(d, "POST", "/v2/repository/models/diamond/load", "", 400,
               "step 0: model 'all' is made of this one");
    takes_diamond(send_floats(d, "all", 3, 2), 3, 2);
}

static void a_model_that_goes_makes_it_unready(void **state)
{
    desk *d = *state;
    put_models(d);
    desk_put_text(d, "diamond/config.pbtxt", DIAMOND);
    open_folder(d, 0);
    desk_gives(d, "POST", "/v2/repository/models/double/unload", "", 200, "");
    desk_gives(d, "GET", "/v2/models/diamond/ready", "", 400,
               "model 'diamond' is not ready, for model 'double' is not");
    desk_gives(d, "POST", "/v2/models/diamond/infer", "{}", 404, "is not ready");
    desk_gives(d, "POST", "/v2/repository/index", "", 200,
               "\"reason\":\"model 'double' is not ready\"");
    desk_gives(d, "POST", "/v2/repository/models/diamond/load", "", 400,
               "step 1: model 'double' is not ready");
    desk_gives(d, "POST", "/v2/repository/models/double/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/diamond/ready", "", 200, "");
    takes_diamond(send_floats(d, "diamond", 5, 4), 5, 4);
    desk_gives(d, "POST", "/v2/repository/models/diamond/unload", "", 200, "");
    desk_gives(d, "POST", "/v2/models/double/infer", "{}", 400, "no array 'inputs'");
}

/* Every request has its reply, and none of another kind. */
static void unloading_a_step_loses_no_request(void **state)
{
    enum { REQUESTS = 300 };
    static ask *asked[REQUESTS];
    desk *d = *state;
    int well = 0;
    put_models(d);
    desk_put_text(d, "diamond/config.pbtxt", DIAMOND);
    open_folder(d, 200);
    for (int i = 0; i < REQUESTS; i++) {
        asked[i] = send_floats(d, "diamond", i, 1);
        if (i % 50 == 20) desk_gives(d, "POST", "/v2/repository/models/sum/unload", "", 200, "");
        if (i % 50 == 30) desk_gives(d, "POST", "/v2/repository/models/sum/load", "", 200, "");
    }
    for (int i = 0; i < REQUESTS; i++) {
        ask_await(asked[i]);
        const int code = asked[i]->x.reply.code;
        if (code == 200) {
            well++;
            takes_diamond(asked[i], i, 1);
            continue;
        }
        assert_int_equal(code, 404);
        assert_non_null(
            memmem(asked[i]->x.reply.body, asked[i]->x.reply.bytes, "is not ready", 12));
        ask_forget(asked[i]);
    }
    assert_true(well > 0 && well < REQUESTS);
}

/* An ensemble may answer, and another one be compared with it. */
static void ensembles_shadow_each_other(void **state)
{
    enum { REQUESTS = 12 };
    desk *d = *state;
    const char *rule = "diamond=other";
    const pare_shadows_options options = {.rule = &rule, .count = 1, .share = 1, .queue = 64};
    put_models(d);
    desk_put_text(d, "diamond/config.pbtxt", DIAMOND);
    desk_put_text(d, "other/config.pbtxt", DIAMOND);
    const pare_shadow_stats *stats =
        pare_shadow_stats_of(desk_open_shadow(d, d->path, 1, &options));
    for (int i = 0; i < REQUESTS; i++) takes_diamond(send_floats(d, "diamond", i, 2), i, 2);
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->compared, REQUESTS);
    assert_int_equal(stats->samples, 2 * REQUESTS);
    assert_int_equal(stats->agreed, 2 * REQUESTS);
    assert_int_equal(stats->output[0].same, REQUESTS);
    assert_int_equal(stats->compute[1].count, REQUESTS);
}

#define NAMED_AS_MODEL                                                                             \
    "platform: 'ensemble' max_batch_size: 8 "                                                      \
    "input { name: 'a' data_type: TYPE_FP32 dims: 4 } "                                            \
    "output { name: 'y' data_type: TYPE_FP32 dims: 4 } "
#define WAITS                                                                                      \
    "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 60000000 "                 \
    "default_queue_policy { max_queue_size: 1 } }"

static ask *send_four(desk *d, const char *model)
{
    char path[64];
    static const char body[] = "{\"inputs\": [{\"name\": \"a\", \"shape\": [1, 4], \"datatype\": "
                               "\"FP32\", \"data\": [1, 2, 3, 4]}]}";
    snprintf(path, sizeof path, "/v2/models/%s/infer", model);
    return desk_send(d, "POST", path, body, sizeof body - 1, sizeof body - 1);
}

static void ends_with(ask *a, int code, const char *words)
{
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != code || !memmem(r->body, r->bytes, words, strlen(words)))
        fail_msg("%d %.*s, expected %d %s", r->code, (int)r->bytes, r->body, code, words);
    ask_forget(a);
}

/* Its runs of the model are no requests, which would be compared again. */
static void a_shadow_may_have_the_model_as_a_step(void **state)
{
    enum { REQUESTS = 8 };
    desk *d = *state;
    const char *rule = "double=all";
    const pare_shadows_options options = {.rule = &rule, .count = 1, .share = 0.5, .queue = 64};
    put_models(d);
    desk_put_text(d, "all/config.pbtxt",
                  NAMED_AS_MODEL "ensemble_scheduling { step " ONE("double", "a", "y") "}");
    const pare_shadow_stats *stats =
        pare_shadow_stats_of(desk_open_shadow(d, d->path, 1, &options));
    for (int i = 0; i < REQUESTS; i++) ends_with(send_four(d, "double"), 200, "[2.0,4.0,6.0,8.0]");
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->offered, REQUESTS);
    assert_int_equal(stats->compared, REQUESTS / 2);
    assert_int_equal(stats->output[0].same, REQUESTS / 2);
}

/* Returns when so many requests wait in the model's queue. */
static pare_served *await_waiting(desk *d, const char *name, int64_t count)
{
    pare_served *s;
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, name, 0), PARE_OK);
    while (pare_batcher_waiting(s->batcher) != count) usleep(1000);
    return s;
}

/* The steps of a shadow's run wait behind requests, take no room of theirs, and what they hold
   counts. */
static void steps_of_a_shadow_are_in_no_ones_way(void **state)
{
    desk *d = *state;
    static size_t held;
    const char *rule = "double=twice";
    const pare_shadows_options options = {.rule = &rule, .count = 1, .share = 1, .queue = 64};
    held = 0;
    put_node(d, "double", "Add", "a a", NULL);
    put_node(d, "square", "Mul", "a a", WAITS);
    put_node(d, "root", "Sqrt", "a", WAITS);
    desk_put_text(d, "twice/config.pbtxt",
                  NAMED_AS_MODEL "ensemble_scheduling { step [ " ONE("square", "a", "m") ", " ONE(
                      "root", "m", "y") " ] }");
    const pare_shadow_stats *stats =
        pare_shadow_stats_of(desk_open_shadow(d, d->path, 1, &options));
    d->held = &held;
    d->most_held = 1 << 20;
    ends_with(send_four(d, "double"), 200, "[2.0,4.0,6.0,8.0]");
    pare_served *square = await_waiting(d, "square", 1);
    const size_t copy = __atomic_load_n(&held, __ATOMIC_RELAXED);
    assert_true(copy > 0);
    ask *real = send_four(d, "square"); /* one may wait, and goes first, alone */
    assert_int_equal(pare_batcher_waiting(square->batcher), 2);
    ends_with(send_four(d, "square"), 503, "1 requests are waiting already");
    pare_jobs first = {0};
    double until;
    assert_true(pare_batcher_choose(square->batcher, 1e30, &first, &until));
    assert_int_equal(first.rows, 1);
    assert_true(first.jobs->priority < PARE_BACKGROUND);
    pare_batcher_put_back(square->batcher, first.jobs);
    pare_batcher_hurry(square->batcher);
    ends_with(real, 200, "[1.0,4.0,9.0,16.0]");
    pare_served *root = await_waiting(d, "root", 1);
    assert_int_equal(__atomic_load_n(&held, __ATOMIC_RELAXED), copy + WIDTH * sizeof(float));
    pare_batcher_hurry(root->batcher);
    pare_shadows_drain(d->api.shadows);
    assert_int_equal(stats->compared, 1);
    assert_int_equal(held, 0);
    assert_int_equal(desk_stats(d, "square").runs, 2);
    pare_served_release(square);
    pare_served_release(root);
}

/* A step that waits in a queue is not computed for a request that no one waits for any more. */
static void a_step_goes_with_its_request(void **state)
{
    desk *d = *state;
    put_node(d, "double", "Add", "a a", WAITS);
    desk_put_text(d, "inner/config.pbtxt",
                  NAMED_AS_MODEL "ensemble_scheduling { step " ONE("double", "a", "y") "}");
    desk_put_text(d, "outer/config.pbtxt",
                  NAMED_AS_MODEL "ensemble_scheduling { step " ONE("inner", "a", "y") "}");
    open_folder(d, 0);
    ask *a = send_four(d, "outer");
    pare_served *s = await_waiting(d, "double", 1);
    __atomic_store_n(&a->x.gone, true, __ATOMIC_RELAXED);
    pare_batcher_hurry(s->batcher);
    ends_with(a, 503, "model 'outer': step 0: model 'inner': step 0: model 'double': ");
    assert_int_equal(desk_stats(d, "double").runs, 0);
    pare_served_release(s);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *config, *words;
    } cases[] = {
        {"platform: 'ensemble'", "ensemble_scheduling is missing"},
        {HEAD "ensemble_scheduling { }", "has 0 steps, expected 1 to 256"},
        {HEAD "ensemble_scheduling { step { } }", "no model_name"},
        {HEAD "ensemble_scheduling { step { model_name: 'double' input_map { key: 'a' } } }",
         "input_map: expected { key"},
        {HEAD "dynamic_batching { } ensemble_scheduling { step " ONE("double", "x", "z") "}",
         "dynamic_batching is for a model of its own"},
        {"ensemble_scheduling { step " ONE("double", "x", "z") "}", "lists input and output"},
        {HEAD "ensemble_scheduling { step " ONE("none", "x", "z") "}",
         "step 0: there is no model 'none'"},
        {HEAD "ensemble_scheduling { step " ONE("net", "x", "z") "}",
         "step 0: the ensemble is a step of its own"},
        {HEAD "ensemble_scheduling { step " ONE("double", "w", "z") "}",
         "step 0 (model 'double'): takes tensor 'w', which no step makes"},
        {HEAD "ensemble_scheduling { step " ONE("double", "x", "y") "}",
         "no step makes output 'z'"},
        {HEAD "ensemble_scheduling { step " ONE("double", "x", "x") "}",
         "step 0 makes tensor 'x', which is there already"},
        {HEAD
         "ensemble_scheduling { step [ " ONE("double", "x", "z") "," ONE("square", "x", "z") "] }",
         "step 1 makes tensor 'z', which is there already"},
        {HEAD "ensemble_scheduling { step [ " ONE("double", "q", "p") "," ONE(
             "square", "p", "q") "," ONE("double", "x", "z") "] }",
         "step 0 (model 'double') waits for what is made of its own outputs"},
        {HEAD "ensemble_scheduling { step " ONE("sum", "x", "z") "}",
         "step 0: input 'b' of model 'sum' is not in input_map"},
        {HEAD "ensemble_scheduling { step " TWO("double", "x", "x", "z") "}",
         "step 0: input 'b' of model 'double' is not there"},
        {HEAD "ensemble_scheduling { step { model_name: 'double' input_map { key: 'a' value: 'x' } "
              "output_map { key: 'o' value: 'z' } } }",
         "step 0: output 'o' of model 'double' is not there"},
        {HEAD "ensemble_scheduling { step [ " ONE("double", "x",
                                                  "z") ", { model_name: 'double' "
                                                       "input_map { key: 'a' value: 'x' } } ] }",
         "step 1 (model 'double'): has no output_map"},
        {"max_batch_size: 64 input { name: 'x' data_type: TYPE_FP32 dims: 4 } output { name: 'z' "
         "data_type: TYPE_FP32 dims: 4 } ensemble_scheduling { step " ONE("double", "x", "z") "}",
         "step 0: model 'double' has max_batch_size 32, the ensemble 64"},
        {"input { name: 'x' data_type: TYPE_FP16 dims: [-1, 4] } output { name: 'z' data_type: "
         "TYPE_FP32 dims: [-1, 4] } ensemble_scheduling { step " ONE("double", "x", "z") "}",
         "step 0: input 'a' of model 'double' is FP32 [?,4], tensor 'x' is FP16 [?,4]"},
        {"input { name: 'x' data_type: TYPE_FP32 dims: [-1, 5] } output { name: 'z' data_type: "
         "TYPE_FP32 dims: [-1, 4] } ensemble_scheduling { step " ONE("double", "x", "z") "}",
         "tensor 'x' is FP32 [?,5]"},
        {"input { name: 'x' data_type: TYPE_FP32 dims: [-1, 4] } output { name: 'z' data_type: "
         "TYPE_FP64 dims: [-1, 4] } ensemble_scheduling { step " ONE("double", "x", "z") "}",
         "output 'z' is FP32"},
    };
    desk *d = *state;
    put_models(d);
    desk_put_text(d, "net/config.pbtxt",
                  HEAD "ensemble_scheduling { step " ONE("double", "x", "z") "}");
    open_folder(d, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        desk_put_text(d, "net/config.pbtxt", cases[i].config);
        desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, cases[i].words);
    }
    desk_gives(d, "GET", "/v2/models/net/ready", "", 200, ""); /* as it was */
    desk_put_text(
        d, "net/config.pbtxt",
        "input { name: 'x' data_type: TYPE_FP32 dims: [-1, 4] } output { name: 'z' data_type: "
        "TYPE_FP32 dims: [2, -1] } ensemble_scheduling { step " ONE("double", "x", "z") "}");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"max_batch_size\":0");
}

/* Two ensembles that need each other are not loaded, whichever comes first. */
static void ensembles_that_wait_for_each_other_are_refused(void **state)
{
    desk *d = *state;
    pare_serve_config config = desk_config(32, 0, 1);
    const pare_repository_options options = {.path = d->path, .count = 1, .config = config};
    put_models(d);
    desk_put_text(d, "one/config.pbtxt",
                  HEAD
                  "ensemble_scheduling { step { model_name: 'two' input_map { key: 'x' value: 'x' "
                  "} output_map { key: 'z' value: 'z' } } }");
    desk_put_text(d, "two/config.pbtxt",
                  HEAD
                  "ensemble_scheduling { step { model_name: 'one' input_map { key: 'x' value: 'x' "
                  "} output_map { key: 'z' value: 'z' } } }");
    assert_int_equal(pare_repository_open(&d->ctx, &d->api.repository, &options), PARE_INPUT);
    assert_non_null(strstr(d->ctx.message, "model 'one' waits for this one to be loaded"));
    d->api.repository = NULL;
}

/* Pictures, a step's failure, and labels of the ensemble's own. */
static void a_step_may_take_pictures(void **state)
{
    desk *d = *state;
    const int64_t dims[] = {-1, 3, 8, 8};
    graph_case g;
    pare_image image;
    char path[128], file[4096];
    graph_open(&g, 17);
    graph_input(&g, "image", PARE_f32, 4, dims);
    graph_node(&g, "GlobalAveragePool", "image", "mean");
    graph_node(&g, "Flatten", "mean", "y");
    graph_output(&g, "y");
    desk_put_graph(
        d, &g, "color",
        "max_batch_size: 8 parameters { key: 'preprocess' value { string_value: 'resize 8, "
        "crop 8' } }");
    desk_put_text(d, "names/labels.txt", "red\ngreen\nblue\n");
    desk_put_text(
        d, "names/config.pbtxt",
        "max_batch_size: 4 input { name: 'picture' data_type: TYPE_STRING dims: 1 } output { "
        "name: 'color' data_type: TYPE_FP32 dims: 3 label_filename: 'labels.txt' } "
        "ensemble_scheduling { step { model_name: 'color' input_map { key: 'image' value: "
        "'picture' } output_map { key: 'y' value: 'color' } } }");
    open_folder(d, 0);
    desk_gives(d, "GET", "/v2/models/names/config", "", 200, "\"label_filename\":\"labels.txt\"");
    paint(&image, 8, 8);
    for (int i = 0; i < 64; i++) memcpy(image.rgb + 3 * i, (uint8_t[]){10, 200, 90}, 3);
    snprintf(path, sizeof path, "%s/green.png", d->folder);
    write_png(path, &image, PNG_OF_RGB);
    free(image.rgb);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const uint32_t size = (uint32_t)fread(file, 1, sizeof file, f);
    fclose(f);
    ask *whole = desk_send(d, "POST", "/v2/models/names/infer", file, size, 0);
    ask_await(whole);
    assert_int_equal(whole->x.reply.code, 400);
    char *why = strndup(whole->x.reply.body, whole->x.reply.bytes);
    assert_non_null(strstr(why, "an ensemble takes them as BYTES tensors"));
    free(why);
    ask_forget(whole);
    for (int cut = 0; cut < 2; cut++) {
        char body[8192];
        const uint32_t bytes = cut ? size / 2 : size;
        const int n = snprintf(body, sizeof body,
                               "{\"inputs\": [{\"name\": \"picture\", \"shape\": [1, 1], "
                               "\"datatype\": \"BYTES\", \"parameters\": {\"binary_data_size\": "
                               "%u}}], \"outputs\": [{\"name\": \"color\", \"parameters\": "
                               "{\"classification\": 2}}]}",
                               bytes + 4);
        memcpy(body + n, &bytes, sizeof bytes);
        memcpy(body + n + sizeof bytes, file, bytes);
        ask *a =
            desk_send(d, "POST", "/v2/models/names/infer", body, (size_t)n + 4 + bytes, (size_t)n);
        ask_await(a);
        char *text = strndup(a->x.reply.body, a->x.reply.bytes);
        const char *want = cut ? "model 'names': step 0: model 'color': input 'image': picture 0: "
                                 "broken PNG image"
                               : ":1:green\",\"0.352941:2:blue\"";
        if (a->x.reply.code != (cut ? 400 : 200) || !strstr(text, want))
            fail_msg("%d %s", a->x.reply.code, text);
        free(text);
        ask_forget(a);
    }
    desk_gives(d, "GET", "/v2/models/names/stats", "", 200, "\"fail\":{\"count\":2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_run_as_their_inputs_are_there, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(steps_of_many_requests_run_in_batches, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(an_ensemble_may_be_a_step, desk_setup_heard, desk_teardown),
        cmocka_unit_test_setup_teardown(a_model_that_goes_makes_it_unready, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(unloading_a_step_loses_no_request, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(ensembles_shadow_each_other, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(a_shadow_may_have_the_model_as_a_step, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(steps_of_a_shadow_are_in_no_ones_way, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(a_step_goes_with_its_request, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, desk_setup_heard,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(ensembles_that_wait_for_each_other_are_refused,
                                        desk_setup_heard, desk_teardown),
        cmocka_unit_test_setup_teardown(a_step_may_take_pictures, desk_setup_heard, desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

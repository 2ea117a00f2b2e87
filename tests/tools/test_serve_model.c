/* SPDX-License-Identifier: Apache-2.0 */
/* Served models without a transport: routes, batches that give the bytes of single requests,
   loading and unloading while requests are under way. */
#include "formats/onnx.h"
#include "tests/tools/serve_desk.h"
#include "tools/serve/infer_job.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* --- routes --- */

static void routes_answer(void **state)
{
    desk *d = *state;
    const char *const paths[] = {"datasets/zoo/mlp.onnx", "datasets/zoo/cnn.onnx"};
    const pare_serve_config config = desk_config(32, 0, 1);
    desk_open(d, paths, 2, &config);
    desk_gives(d, "GET", "/v2/health/live", "", 200, "");
    desk_gives(d, "GET", "/v2/health/ready", "", 200, "");
    desk_gives(d, "HEAD", "/v2/health/ready", "", 200, "");
    desk_gives(d, "GET", "/v2", "", 200, "\"binary_tensor_data\"");
    desk_gives(d, "GET", "/v2/", "", 200, "\"name\":\"pare\"");
    desk_gives(d, "GET", "/v2/models/mlp", "", 200, "\"shape\":[-1,1,28,28]");
    desk_gives(d, "GET", "/v2/models/mlp/versions/1", "", 200, "\"versions\":[\"1\"]");
    desk_gives(d, "GET", "/v2/models/mlp/ready", "", 200, "");
    desk_gives(d, "GET", "/v2/models/mlp/config", "", 200, "\"max_batch_size\":32");
    desk_gives(d, "GET", "/v2/models/mlp/config", "", 200, "\"dims\":[1,28,28]");
    desk_gives(d, "GET", "/v2/models/mlp/stats", "", 200, "\"execution_count\":0");
    desk_gives(d, "GET", "/v2/models/stats", "", 200, "\"name\":\"cnn\"");
    desk_gives(d, "GET", "/metrics", "", 200, "pare_runs_total{model=\"cnn\",version=\"1\"} 0\n");
    desk_gives(d, "GET", "/metrics", "", 200, "# EOF\n");
    desk_gives(d, "POST", "/v2/repository/index", "", 200, "\"state\":\"READY\"");
    desk_gives(d, "GET", "/v2/models/none", "", 404, "there is no model 'none'");
    desk_gives(d, "GET", "/v2/models/none/ready", "", 400, "there is no model 'none'");
    desk_gives(d, "GET", "/v2/models/mlp/versions/2", "", 404, "version 2 is not ready");
    desk_gives(d, "GET", "/v2/models/mlp/versions/x/ready", "", 400, "version 'x'");
    desk_gives(d, "POST", "/v2/models/none/infer", "{}", 404, "there is no model 'none'");
    desk_gives(d, "GET", "/v2/models/mlp/infer", "", 405, "expected POST, not GET");
    desk_gives(d, "DELETE", "/v2", "", 405, "expected GET, not DELETE");
    desk_gives(d, "GET", "/", "", 404, "there is nothing");
    desk_gives(d, "GET", "/v2/models//ready", "", 404, "there is nothing");
    desk_gives(d, "POST", "/v2/repository/index", "[1]", 400, "no JSON object");
    desk_gives(d, "POST", "/v2/repository/models/none/load", "", 400, "there is no model 'none'");
    desk_gives(d, "POST", "/v2/repository/models/mlp/load",
               "{\"parameters\": {\"config\": \"{}\"}}", 501, "'config'");
    d->api.draining = true;
    desk_gives(d, "GET", "/v2/health/ready", "", 503, "about to end");
    desk_gives(d, "GET", "/v2/health/live", "", 200, "");
}

static void wrong_requests_are_refused(void **state)
{
    static const struct {
        const char *json, *words;
        int code;
    } cases[] = {
        {"", "the request's JSON", 400},
        {"{\"inputs\": []}", "input 'input' is missing", 400},
        {"{\"inputs\": [{\"name\": \"x\", \"shape\": [1], \"datatype\": \"FP32\", \"data\": [1]}]}",
         "has no input 'x'", 400},
        {"{\"inputs\": [{\"name\": \"input\", \"shape\": [1], \"datatype\": \"INT8\", \"data\": "
         "[1]}]}",
         "is INT8, expected FP32", 400},
        {"{\"inputs\": [{\"name\": \"input\", \"shape\": [1], \"datatype\": \"FP32\", \"data\": "
         "[1]}]}",
         "has shape [1], expected [batch,1,28,28]", 400},
        {"{\"inputs\": [{\"name\": \"input\", \"shape\": [0,1,28,28], \"datatype\": \"FP32\", "
         "\"data\": []}]}",
         "a request of 0 samples, expected 1 to 32", 400},
        {"{\"inputs\": [{\"name\": \"input\", \"shape\": [1,1,28,28], \"datatype\": \"FP32\", "
         "\"parameters\": {\"shared_memory_region\": \"r\", \"shared_memory_byte_size\": "
         "3136}}]}",
         "shared memory is not served", 501},
    };
    desk *d = *state;
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    const pare_serve_config config = desk_config(32, 0, 1);
    desk_open(d, paths, 1, &config);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        desk_gives(d, "POST", "/v2/models/mlp/infer", cases[i].json, cases[i].code, cases[i].words);
    desk_gives(d, "GET", "/v2/models/mlp/stats", "", 200, "\"fail\":{\"count\":7");
}

/* --- batches --- */

enum { REQUESTS = 96 };

static ask *send_images(desk *d, uint32_t seed, int rows)
{
    return desk_send_images(d, "/v2/models/mlp/infer", "", seed, rows);
}

static void batches_give_the_bytes_of_single_requests(void **state)
{
    desk *d = *state;
    static float alone[REQUESTS][3 * CLASSES], together[3 * CLASSES];
    static ask *asked[REQUESTS];
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    const pare_serve_config single = desk_config(32, 0, 1), batched = desk_config(16, 2000, 2);
    hear_warnings(&d->ctx);
    desk_open(d, paths, 1, &single);
    assert_int_equal(warnings, 0);
    for (int i = 0; i < REQUESTS; i++)
        ask_take_logits(send_images(d, (uint32_t)i, desk_rows(i)), desk_rows(i), alone[i]);
    pare_repository_close(d->api.repository);
    desk_open(d, paths, 1, &batched);
    for (int i = 0; i < REQUESTS; i++) asked[i] = send_images(d, (uint32_t)i, desk_rows(i));
    for (int i = 0; i < REQUESTS; i++) {
        ask_take_logits(asked[i], desk_rows(i), together);
        assert_memory_equal(together, alone[i], (size_t)desk_rows(i) * CLASSES * sizeof(float));
    }
    const pare_served_stats stats = desk_stats(d, "mlp");
    assert_int_equal(stats.rows, REQUESTS + 2 * (REQUESTS / 5));
    assert_int_equal(stats.stage[PARE_STAGE_REQUEST].count, REQUESTS);
    assert_true(stats.runs < REQUESTS); /* requests were run together */
}

static void timeouts_and_full_queues_are_told(void **state)
{
    desk *d = *state;
    ask *asked[8];
    int shed = 0, late = 0;
    pare_serve_config config = desk_config(64, 5000000, 1);
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    config.queue = 4;
    config.timeout = 300000; /* shorter than the delay, longer than asking takes */
    desk_open(d, paths, 1, &config);
    for (int i = 0; i < 8; i++) asked[i] = send_images(d, 1, 1);
    for (int i = 0; i < 8; i++) {
        ask_await(asked[i]);
        const pare_reply *r = &asked[i]->x.reply;
        assert_int_equal(r->code, 503);
        shed += r->retry_after == 1 && memmem(r->body, r->bytes, "waiting already", 15);
        late += memmem(r->body, r->bytes, "timeout passed", 14) != NULL;
        ask_forget(asked[i]);
    }
    assert_true(shed >= 1 && late >= 4 && shed + late == 8);
}

/* What config.pbtxt and the request say of order and patience. */
static void priorities_and_timeouts_are_those_asked_for(void **state)
{
    static const struct {
        const char *parameters;
        bool own_timeout;
        int64_t priority, timeout; /* timeout: microseconds, 0: none */
    } cases[] = {
        {"{}", true, 2, 7000000},
        {"{\"priority\": 1}", true, 1, 7000000},
        {"{\"priority\": 9, \"timeout\": 2000000}", true, 3, 2000000},
        {"{\"priority\": 3, \"timeout\": 2000000}", false, 3, 7000000},
    };
    desk *d = *state;
    const char *const paths[] = {"datasets/zoo/mlp.onnx"};
    pare_serve_config config = desk_config(32, 0, 1);
    pare_served *s;
    config.levels = 3;
    config.level = 2;
    config.timeout = 7000000;
    desk_open(d, paths, 1, &config);
    assert_int_equal(pare_repository_find(d->api.repository, &d->ctx, &s, "mlp", 1), PARE_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static float pixels[28 * 28];
        char json[512], body[512 + sizeof pixels];
        pare_exchange x;
        pare_infer_job *job;
        const int n = snprintf(json, sizeof json,
                               "{\"parameters\": %s, \"inputs\": [{\"name\": \"input\", \"shape\": "
                               "[1, 1, 28, 28], \"datatype\": \"FP32\", \"parameters\": "
                               "{\"binary_data_size\": %zu}}]}",
                               cases[i].parameters, sizeof pixels);
        memcpy(body, json, (size_t)n);
        memcpy(body + n, pixels, sizeof pixels);
        pare_exchange_init(&x, &d->ctx);
        x.body = body;
        x.bytes = (size_t)n + sizeof pixels;
        x.json_bytes = pare_arena_printf(&x.arena, "%d", n);
        s->options.config.own_timeout = cases[i].own_timeout;
        if (pare_infer_job_new(&job, s, &x, NULL, NULL) != PARE_OK) fail_msg("%s", x.ctx.message);
        assert_int_equal(job->job.priority, cases[i].priority);
        const double patience = job->job.deadline - job->job.queued;
        assert_true(patience > 1e-6 * (double)cases[i].timeout - 1e-3 &&
                    patience < 1e-6 * (double)cases[i].timeout + 1e-3);
        pare_infer_job_release(job);
        pare_exchange_free(&x);
    }
    pare_served_release(s);
}

/* --- a repository --- */

static void open_folder(desk *d)
{
    const pare_serve_config config = desk_config(32, 0, 1);
    desk_open(d, d->path, 1, &config);
}

static void versions_are_chosen(void **state)
{
    desk *d = *state;
    desk_put_model(d, "mlp", 1);
    desk_put_model(d, "mlp", 2);
    desk_put_model(d, "cnn", 10);
    open_folder(d);
    desk_gives(d, "GET", "/v2/models/net", "", 200, "\"versions\":[\"10\"]");
    desk_gives(d, "GET", "/v2/models/net/versions/2", "", 404, "version 2 is not ready");
    desk_put_config(d, "version_policy { latest { num_versions: 2 } }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net", "", 200, "\"versions\":[\"2\",\"10\"]");
    desk_put_config(d, "version_policy { specific { versions: 1 } }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net", "", 200, "\"versions\":[\"1\"]");
    desk_put_config(d, "version_policy { all { } } max_batch_size: 7 instance_group { count: 3 }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "{}", 200, "");
    desk_gives(d, "GET", "/v2/models/net", "", 200, "\"versions\":[\"1\",\"2\",\"10\"]");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"count\":3");
    desk_gives(d, "GET", "/v2/models/net/config", "", 200, "\"max_batch_size\":7");
    desk_put_config(d, "max_batch_size: x");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400,
               "config.pbtxt: max_batch_size");
    desk_gives(d, "GET", "/v2/models/net/ready", "", 200, ""); /* it goes on as it was */
    desk_put_config(d, "input { name: \"input\" data_type: TYPE_FP16 dims: [1, 28, 28] }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "config.pbtxt has f16");
    desk_put_config(d, "input { name: \"none\" data_type: TYPE_FP32 dims: 1 }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "has no input 'none'");
    desk_put_config(d, "input { name: \"input\" data_type: TYPE_FP32 dims: [1, 28, -1] }");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    desk_gives(d, "POST", "/v2/repository/models/net/unload", "", 200, "");
    desk_gives(d, "GET", "/v2/models/net/ready", "", 400, "model 'net' is not ready");
    desk_gives(d, "POST", "/v2/repository/index", "", 200, "\"reason\":\"unloaded\"");
    desk_gives(d, "POST", "/v2/repository/index", "{\"ready\": true}", 200, "[]");
}

static void loads_with(desk *d, const char *config, int code, const char *words)
{
    desk_put_config(d, config);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", code, words);
}

/* Without max_batch_size: dims behind an axis of samples, or of whole tensors. */
static void dims_say_whether_there_are_samples(void **state)
{
    desk *d = *state;
    const char *config = "/v2/models/net/config";
    desk_put_model(d, "mlp", 1);
    hear_warnings(&d->ctx);
    open_folder(d);
    loads_with(d, "input { name: 'input' data_type: TYPE_FP32 dims: [1, 28, 28] }", 200, "");
    desk_gives(d, "GET", config, "", 200, "\"max_batch_size\":32");
    loads_with(d, "input { name: 'input' data_type: TYPE_FP32 dims: [-1, 1, 28, 28] }", 200, "");
    desk_gives(d, "GET", config, "", 200, "\"max_batch_size\":0");
    desk_gives(d, "GET", config, "", 200, "\"dims\":[-1,1,28,28]");
    loads_with(d, "output { name: 'logits' data_type: TYPE_FP32 dims: [-1, 10] }", 200, "");
    desk_gives(d, "GET", config, "", 200, "\"max_batch_size\":0");
    loads_with(d,
               "input { name: 'input' data_type: TYPE_FP32 dims: [1, 28, 28] } "
               "output { name: 'logits' data_type: TYPE_FP32 dims: [-1, 10] }",
               400, "as max_batch_size is not given; with 0 dims are whole");
    loads_with(d, "max_batch_size: 4 output { name: 'logits' data_type: TYPE_FP32 dims: [-1, 10] }",
               400, "behind the axis of samples\"");
    assert_int_equal(warnings, 0);
    loads_with(d,
               "dynamic_batching { } output { name: 'logits' data_type: TYPE_FP32 dims: [-1, 10] }",
               200, "");
    assert_non_null(strstr(warning, "dynamic_batching makes no batches: dims of config.pbtxt are"));
    loads_with(d, "version_policy { specific { versions: [1, 7] } }", 200, "");
    assert_non_null(strstr(warning, "net: version_policy names version 7, which has no folder"));
    assert_int_equal(warnings, 2);
}

static void nothing_outside_is_read(void **state)
{
    desk *d = *state;
    char cwd[256], path[512], to[512];
    desk_put_model(d, "mlp", 1);
    open_folder(d);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(path, sizeof path, "%s/net/1/model.onnx", d->folder);
    snprintf(to, sizeof to, "%s/datasets/zoo/cnn.onnx", cwd);
    unlink(path);
    assert_int_equal(symlink(to, path), 0);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "outside of the repository");
    desk_gives(d, "POST", "/v2/repository/models/..%2Fnet/load", "", 400, "there is no model");
    unlink(path);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "model.onnx: No such file");
    desk_gives(d, "GET", "/v2/models/net/ready", "", 200, "");
}

/* The sample net with its weights in a file beside it; what the file is called. */
static void put_external(desk *d, char *data, size_t size)
{
    char path[256];
    glob_t found;
    pare_model *model;
    desk_put_model(d, "mlp", 1);
    snprintf(path, sizeof path, "%s/net/1/model.onnx", d->folder);
    assert_int_equal(pare_onnx_read(&d->ctx, &model, "datasets/zoo/mlp.onnx"), PARE_OK);
    assert_int_equal(
        pare_onnx_write(&d->ctx, model, path, &(pare_onnx_write_options){.external_data = true}),
        PARE_OK);
    pare_model_free(model);
    snprintf(path, sizeof path, "%s/net/1/*.data", d->folder);
    assert_true(!glob(path, 0, NULL, &found) && found.gl_pathc == 1);
    snprintf(data, size, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* A model owns its bytes: plans that are made later are of those, too. */
static void files_may_be_overwritten(void **state)
{
    desk *d = *state;
    char data[256], model[256];
    float before[CLASSES], after[9 * CLASSES];
    put_external(d, data, sizeof data);
    snprintf(model, sizeof model, "%s/net/1/model.onnx", d->folder);
    open_folder(d);
    const char *infer = "/v2/models/net/infer";
    ask_take_logits(desk_send_images(d, infer, "", 7, 1), 1, before);
    desk_run("yes | head -c $(stat -c %%s '%s') | dd of='%s' conv=notrunc status=none", data, data);
    ask_take_logits(desk_send_images(d, infer, "", 7, 9), 9, after);
    assert_memory_equal(after, before, sizeof before);
    desk_run("echo a >'%s'; echo a >'%s'", data, model);
    ask_take_logits(desk_send_images(d, infer, "", 7, 5), 5, after);
    assert_memory_equal(after, before, sizeof before);
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 400, "model.onnx");
    ask_take_logits(desk_send_images(d, infer, "", 7, 3), 3, after);
    assert_memory_equal(after, before, sizeof before);
    desk_run("cp datasets/zoo/cnn.onnx '%s'%s", model, "");
    desk_gives(d, "POST", "/v2/repository/models/net/load", "", 200, "");
    ask_take_logits(desk_send_images(d, infer, "", 7, 1), 1, after);
    assert_memory_not_equal(after, before, sizeof before);
}

static void unloading_loses_no_request(void **state)
{
    desk *d = *state;
    enum { ROUNDS = 6, EACH = 40 };
    ask *asked[ROUNDS][EACH], *change;
    char from[128];
    const pare_serve_config config = desk_config(4, 500, 2);
    snprintf(from, sizeof from, "%s/mlp/1", d->folder);
    desk_run("mkdir -p '%s'%s", from, "");
    desk_run("cp datasets/zoo/mlp.onnx '%s'%s", from, "/model.onnx");
    desk_open(d, d->path, 1, &config);
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < EACH; i++) asked[r][i] = send_images(d, (uint32_t)i, 1);
        change =
            desk_send(d, "POST",
                      r % 2 ? "/v2/repository/models/mlp/unload" : "/v2/repository/models/mlp/load",
                      "", 0, 0);
        ask_await(change);
        assert_int_equal(change->x.reply.code, 200);
        ask_forget(change);
        if (r % 2) desk_gives(d, "POST", "/v2/repository/models/mlp/load", "", 200, "");
    }
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < EACH; i++) {
            float logits[CLASSES];
            ask_take_logits(asked[r][i], 1, logits);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(routes_answer, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(wrong_requests_are_refused, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(batches_give_the_bytes_of_single_requests, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(timeouts_and_full_queues_are_told, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(priorities_and_timeouts_are_those_asked_for, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(versions_are_chosen, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(dims_say_whether_there_are_samples, desk_setup,
                                        desk_teardown),
        cmocka_unit_test_setup_teardown(nothing_outside_is_read, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(files_may_be_overwritten, desk_setup, desk_teardown),
        cmocka_unit_test_setup_teardown(unloading_loses_no_request, desk_setup, desk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

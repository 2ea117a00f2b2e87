/* SPDX-License-Identifier: Apache-2.0 */
/* Forecasts of a zoo, with steps that only tell how they were called: which trials are made, what
   fails, what is taken from others. */
#include "tests/tools/zoo_case.h"
#include "tools/zoo/forecast.h"
#include "tools/zoo/process.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char calls_path[128]; /* a line for each call of tell() */

/* Writes its command line down, and its model; "--seed 13" is bad luck. */
static pare_status tell(pare_ctx *ctx, char *const *words, int count)
{
    FILE *calls = fopen(calls_path, "a");
    for (int i = 0; calls && i < count; i++) {
        const char *slash = strrchr(words[i], '/');
        fprintf(calls, "%s%s", i ? " " : "", slash ? slash + 1 : words[i]);
        if (!strcmp(words[i], "-o")) fclose(fopen(words[i + 1], "w"));
        if (!strcmp(words[i], "13")) return fclose(calls), PARE_FAIL(ctx, INPUT, "bad luck");
        if (i == 2 && !strcmp(words[0], "validate") && access(words[2], F_OK))
            return fclose(calls), PARE_FAIL(ctx, IO, "no model to judge");
    }
    if (calls) fprintf(calls, "\n");
    return calls && !fclose(calls) ? PARE_OK : PARE_IO;
}

static int set_up(void **state)
{
    if (zoo_case_open(state)) return -1;
    zoo_case *z = *state;
    char path[128];
    pare_process_prepare();
    snprintf(calls_path, sizeof calls_path, "%s/calls", z->folder);
    snprintf(path, sizeof path, "%s/tmp", z->folder);
    return mkdir(path, 0777) || setenv("TMPDIR", path, 1);
}

static int tear_down(void **state)
{
    unsetenv("TMPDIR");
    return zoo_case_close(state);
}

static void forecast(zoo_case *z, const char *text, const bool *done, double budget,
                     pare_zoo_forecast *out)
{
    zoo_case_plan(z, text, (pare_zoo_plan_options){.cache = "cache", .append = "rows.csv"});
    const pare_zoo_forecast_options options = {
        .done = done, .jobs = 2, .budget = budget, .quiet = true, .step = tell};
    if (pare_zoo_forecast_make(&z->arena, out, z->zoo, z->plan, &options) != PARE_OK)
        fail_msg("%s", z->ctx.message);
    int left = 0;
    DIR *dir = opendir(getenv("TMPDIR"));
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) left += entry->d_name[0] != '.';
    closedir(dir);
    assert_int_equal(left, 0); /* trials leave nothing */
}

/* Everything that was called, one line each. */
static const char *calls(zoo_case *z)
{
    char *text = pare_arena_alloc(&z->arena, 1, 65536);
    FILE *file = fopen(calls_path, "r");
    if (file) {
        text[fread(text, 1, 65535, file)] = 0;
        fclose(file);
        unlink(calls_path);
    }
    return text;
}

#define HEAD "models: [{files: [b/x.onnx, c/x.onnx]}]\ndata: train.h5\ntest: test.h5\n"
#define ONE  "models: [{files: [a.onnx]}]\ndata: train.h5\ntest: test.h5\n"

static void each_step_is_tried_on_what_the_one_before_wrote(void **state)
{
    zoo_case *z = *state;
    pare_zoo_forecast f;
    forecast(z,
             ONE "latency: true\nvariants: [{name: v, steps: [prune --macs 0.5, distill --epochs "
                 "3]}]\n",
             NULL, 1e9, &f);
    assert_string_equal(
        calls(z),
        "prune a.onnx -o 0.onnx --data train.h5 --json facts.json --macs 0.5 --samples 8\n"
        "prune a.onnx -o 0.onnx --data train.h5 --json facts.json --macs 0.5 --samples "
        "40\n"
        "prune a.onnx -o 0.onnx --data train.h5 --json facts.json --macs 0.5 --samples "
        "160\n"
        "distill --teacher a.onnx --student 0.onnx -o 1.onnx --data train.h5 --json "
        "facts.json --steps 2 --validate-every 1000000000\n"
        "distill --teacher a.onnx --student 0.onnx -o 1.onnx --data train.h5 --json "
        "facts.json --steps 6 --validate-every 1000000000\n"
        "distill --teacher a.onnx --student 0.onnx -o 1.onnx --data train.h5 --json "
        "facts.json --steps 24 --validate-every 1000000000\n"
        "distill --teacher a.onnx --student 0.onnx -o 1.onnx --data train.h5 --json "
        "facts.json --steps 96 --validate-every 1000000000\n"
        "validate a.onnx 1.onnx --data test.h5 --json facts.json --samples 8\n"
        "validate a.onnx 1.onnx --data test.h5 --json facts.json --samples 40\n"
        "validate a.onnx 1.onnx --data test.h5 --json facts.json --samples 160\n"
        "validate a.onnx 1.onnx --data test.h5 --json facts.json --samples 8 --latency\n");
    assert_true(f.whole && f.models == 1 && f.tried == 1);
    for (int i = 0; i < 3; i++) assert_true(f.node[i].known && f.node[i].tried);
    assert_true(f.elapsed <= f.seconds && f.bytes > 0);
}

static void variants_of_a_model_are_judged_alike(void **state)
{
    zoo_case *z = *state;
    pare_zoo_forecast f;
    forecast(z,
             ONE "latency: false\nvariants: [{name: v, steps: [quantize]}, {name: w, steps: "
                 "[quantize --activations u8]}]\n",
             NULL, 1e9, &f);
    assert_true(f.node[1].tried && f.node[2].tried && !f.node[3].tried && f.node[3].known);
    assert_true(f.node[3].seconds > 0 && f.node[3].seconds <= f.node[1].seconds);
}

static void what_is_done_costs_nothing(void **state)
{
    zoo_case *z = *state;
    pare_zoo_forecast f;
    const bool done[3] = {true, true, true};
    forecast(z, ONE "variants: [{name: v, steps: [prune --macs 0.5, quantize]}]\n", done, 1e9, &f);
    assert_string_equal(calls(z), "");
    assert_true(f.whole && f.seconds == 0 && f.models == 0);
}

static void behind_a_failure_nothing_is_known(void **state)
{
    zoo_case *z = *state;
    pare_zoo_forecast f;
    forecast(z,
             ONE "variants: [{name: v, steps: [prune --macs 0.5 --score random --seed 13, "
                 "quantize]}, {name: w, steps: [quantize]}]\n",
             NULL, 1e9, &f);
    assert_false(f.whole);
    assert_string_equal(f.node[0].failure, "bad model: bad luck");
    assert_true(!f.node[1].known && !f.node[1].tried && !f.node[2].known);
    assert_true(f.node[3].known && f.node[4].known);
    json_t *facts = pare_zoo_forecast_json(&f, z->zoo, z->plan);
    assert_true(json_is_null(json_object_get(facts, "seconds")));
    const json_t *first = json_array_get(json_object_get(facts, "tasks"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "failure")),
                        "bad model: bad luck");
    json_decref(facts);
}

static void models_beyond_the_budget_are_taken_as_the_mean(void **state)
{
    zoo_case *z = *state;
    pare_zoo_forecast f;
    forecast(z, HEAD "latency: false\nvariants: [{name: v, steps: [quantize]}]\n", NULL, 0, &f);
    assert_true(f.whole && f.models == 2 && f.tried == 1);
    assert_true(f.node[0].tried && f.node[2].known && !f.node[2].tried);
    assert_true(f.node[2].seconds == f.node[0].seconds && f.node[3].bytes == f.node[1].bytes);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_step_is_tried_on_what_the_one_before_wrote),
        TEST(variants_of_a_model_are_judged_alike),
        TEST(what_is_done_costs_nothing),
        TEST(behind_a_failure_nothing_is_known),
        TEST(models_beyond_the_budget_are_taken_as_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

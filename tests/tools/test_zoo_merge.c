/* SPDX-License-Identifier: Apache-2.0 */
/* From tasks.json and facts to summary, tables and page: goals, the best variant, the ranking,
   failures; the same bytes in whatever order the facts came to be. */
#include "tools/zoo/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64];
static pare_ctx ctx;
static const pare_zoo_goals none = {.drop = -1, .latency = -1, .speed_up = -1, .size = -1};

/* --- a zoo of two models and two variants --- */

static const char *at(const char *name)
{
    static char path[4][160];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static char *content(const char *name)
{
    static char text[1 << 20];
    FILE *file = fopen(at(name), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void put(const char *name, const json_t *json)
{
    assert_int_equal(json_dump_file(json, at(name), JSON_INDENT(2)), 0);
}

/* What validate measured of a variant. */
typedef struct measured {
    const char *model, *variant;
    double bytes, drop, speed; /* the original: 1000 bytes; speed 0: no latency */
} measured;

static json_t *model_json(const char *file, double bytes, double top1)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:[f, f]}", "file", file, "hash", file, "precision",
                     "int8", "bytes", (json_int_t)bytes, "top1", top1, "top1_interval", top1 - 1,
                     top1 + 1);
}

static void put_latency(json_t *model, double ms)
{
    json_object_set_new(
        model, "latency_ms",
        json_pack("{s:f, s:f, s:f, s:f}", "median", ms, "mean", ms, "min", ms, "max", ms));
    json_object_set_new(model, "latency_interval", json_pack("[f, f]", ms * 0.99, ms * 1.01));
}

static json_t *validate_json(const measured *m)
{
    char first[64], file[160];
    snprintf(first, sizeof first, "zoo/%s.onnx", m->model);
    snprintf(file, sizeof file, "%s/models/%s.%s.onnx", folder, m->model, m->variant);
    json_t *a = model_json(first, 1000, 90), *b = model_json(file, m->bytes, 90 - m->drop);
    json_object_set_new(b, "drop", json_real(m->drop));
    json_object_set_new(b, "drop_interval", json_pack("[f, f]", m->drop - 0.25, m->drop + 0.25));
    json_object_set_new(b, "kept", json_real(100 - m->drop));
    json_object_set_new(b, "kept_interval", json_pack("[f, f]", 99.75 - m->drop, 100.25 - m->drop));
    json_object_set_new(b, "outputs",
                        json_pack("[{s:s, s:f, s:f, s:f, s:f}]", "name", "y", "sqnr_db", 30.5,
                                  "cosine", 0.5, "mse", 0.25, "max_abs_error", 2.0));
    if (m->speed > 0) {
        put_latency(a, 2);
        put_latency(b, 2 / m->speed);
        json_object_set_new(b, "speed_up", json_real(m->speed));
        json_object_set_new(b, "speed_up_interval",
                            json_pack("[f, f]", m->speed * 0.9, m->speed * 1.1));
    }
    return json_pack("{s:i, s:s, s:s, s:{s:s, s:i}, s:{s:s}, s:[o, o]}", "schema", 1, "command",
                     "validate", "version", "1", "data", "file", "test.h5", "samples", 9, "device",
                     "name", "cpu", "models", a, b);
}

static json_t *task_json(const char *model, const char *variant, const char *class,
                         const char *message)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:I, s:[]}", "model", model, "variant",
                     variant, "class", class, "message", message, "command",
                     "pare bad 'x <y>.onnx'", "seconds", 1.5, "cpu_seconds", 1.25, "peak_bytes",
                     (json_int_t)2000000, "facts");
}

/* A task that is done, with its facts written. */
static json_t *measured_task(const measured *m)
{
    char name[80];
    snprintf(name, sizeof name, "%s-%s.json", m->model, m->variant);
    json_t *facts = validate_json(m), *task = task_json(m->model, m->variant, "done", "");
    put(name, facts);
    json_array_append_new(json_object_get(task, "facts"), json_string(at(name)));
    json_decref(facts);
    return task;
}

static const measured usual[] = {
    {"a", "int8", 250, 0.6, 2}, {"a", "fp16", 500, 0.0, 1.5}, {"b", "int8", 250, 0.2, 4}};

static void put_tasks(const char *zoo, json_t *tasks)
{
    json_t *all =
        json_pack("{s:i, s:s, s:s, s:o}", "schema", 1, "zoo", zoo, "version", "1", "tasks", tasks);
    put("tasks.json", all);
    json_decref(all);
}

static void put_usual(void)
{
    json_t *tasks = json_array();
    for (int i = 0; i < 3; i++) json_array_append_new(tasks, measured_task(&usual[i]));
    json_array_append_new(tasks, task_json("b", "fp16", "crash", "killed by signal 11 <&>"));
    put_tasks("demo", tasks);
}

static pare_status merge_with(const pare_zoo_goals *goals)
{
    const pare_zoo zoo = {.name = "demo", .model_count = 2, .variant_count = 2, .goals = *goals};
    FILE *file = fopen(at("stdout"), "w");
    assert_non_null(file);
    const pare_status st = pare_zoo_merge(&ctx, &zoo, folder, file);
    fclose(file);
    return st;
}

static json_t *summary_with(const pare_zoo_goals *goals)
{
    json_t *summary;
    assert_int_equal(merge_with(goals), PARE_OK);
    assert_int_equal(pare_zoo_summary_read(&ctx, &summary, folder), PARE_OK);
    return summary;
}

static const char *text(const json_t *list, size_t i, const char *key)
{
    const char *value = json_string_value(json_object_get(json_array_get(list, i), key));
    return value ? value : "";
}

static int begin(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    snprintf(folder, sizeof folder, "/tmp/pare-merge-%ld", (long)getpid());
    mkdir(folder, 0777);
    put_usual();
    return 0;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* --- goals --- */

static void goals_are_judged(void **state)
{
    (void)state;
    pare_zoo_goals goals = {.drop = 0.5, .latency = 1.0, .speed_up = 1.75, .size = 400};
    json_t *summary = summary_with(&goals), *tasks = json_object_get(summary, "tasks");
    assert_string_equal(text(tasks, 0, "class"), "goal missed");
    assert_string_equal(text(tasks, 0, "message"),
                        "drop 0.6 points, at most 0.5 wanted (0.1 over)");
    assert_string_equal(text(tasks, 1, "message"),
                        "size 500 B, at most 400 B wanted (100 B over); latency 1.33 ms, at most 1 "
                        "wanted (0.333 over); speed-up 1.5x, at least 1.75 wanted (0.25 short)");
    assert_string_equal(text(tasks, 2, "class"), "done");
    assert_string_equal(text(tasks, 2, "message"), "");
    assert_string_equal(text(tasks, 3, "class"), "crash");
    json_decref(summary);
    goals.drop = 0.6, goals.latency = 1.34, goals.speed_up = 1.5,
    goals.size = 500; /* at the edge */
    summary = summary_with(&goals);
    assert_string_equal(text(json_object_get(summary, "tasks"), 1, "class"), "done");
    json_decref(summary);
}

static void what_was_not_measured_is_missed(void **state)
{
    (void)state;
    const measured one = {"a", "int8", 250, 0.1, 0};
    const pare_zoo_goals goals = {.drop = -1, .latency = 2, .speed_up = -1, .size = -1};
    put_tasks("demo", json_pack("[o]", measured_task(&one)));
    json_t *summary = summary_with(&goals), *tasks = json_object_get(summary, "tasks");
    assert_string_equal(text(tasks, 0, "message"), "latency was not measured, at most 2 ms wanted");
    json_decref(summary);
    put_usual();
}

/* A pruning's own target is a goal, too. */
static void prunings_that_fell_short(void **state)
{
    (void)state;
    json_t *chain = json_pack("[{s:[{s:{s:s, s:f, s:f, s:f}}]}]", "smaller", "target", "of", "macs",
                              "before", 100.0, "goal", 50.0, "reached", 62.5);
    json_t *row = json_object(), *missed = pare_zoo_goals_missed(&none, row, chain);
    char words[160];
    assert_int_equal(json_array_size(missed), 1);
    assert_string_equal(pare_zoo_goal_text(json_array_get(missed, 0), words, sizeof words),
                        "prune --macs 0.625 of the cost, at most 0.5 wanted (0.125 over)");
    json_decref(missed);
    json_t *made = json_array_get(json_object_get(json_array_get(chain, 0), "smaller"), 0);
    json_object_set_new(made, "latency",
                        json_pack("{s:f, s:f, s:b}", "goal", 0.5, "measured", 0.52, "met", 1));
    missed = pare_zoo_goals_missed(&none, row, chain);
    assert_int_equal(json_array_size(missed), 0); /* within what --latency calls met */
    json_decref(missed);
    json_object_set_new(json_object_get(made, "latency"), "met", json_false());
    missed = pare_zoo_goals_missed(&none, row, chain);
    assert_int_equal(json_array_size(missed), 1);
    json_decref(missed);
    json_decref(row);
    json_decref(chain);
}

/* --- the best, and the ranking --- */

/* The best variant of model a among such ones. */
static void best_among(const measured *list, size_t count, const pare_zoo_goals *goals,
                       const char *best)
{
    json_t *tasks = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(tasks, measured_task(&list[i]));
    put_tasks("demo", tasks);
    json_t *summary = summary_with(goals);
    assert_string_equal(text(json_object_get(summary, "best"), 0, "best"), best);
    json_decref(summary);
    put_usual();
}

static void the_best_of_a_model(void **state)
{
    (void)state;
    pare_zoo_goals goals = none;
    const measured faster[] = {{"a", "x", 500, 0.1, 1.5}, {"a", "y", 600, 0.2, 2}};
    best_among(faster, 2, &goals, "y");
    const measured alike[] = {{"a", "x", 500, 0.1, 1.9}, {"a", "y", 400, 0.2, 2}};
    best_among(alike, 2, &goals, "x"); /* the intervals overlap: the smaller drop */
    const measured equal[] = {{"a", "x", 500, 0.2, 1.9}, {"a", "y", 400, 0.2, 2}};
    best_among(equal, 2, &goals, "y"); /* the smaller file */
    const measured untimed[] = {{"a", "x", 500, 0.0, 0}, {"a", "y", 250, 0.2, 0}};
    best_among(untimed, 2, &goals, "y");
    const measured broken[] = {{"a", "x", 500, 0.1, 1.5}, {"a", "y", 250, 5, 4}};
    best_among(broken, 2, &goals, "x"); /* below the floor */
    goals.drop = 6;
    best_among(broken, 2, &goals, "y");
    goals.drop = 0.05;
    best_among(broken, 2, &goals, "");
}

static void the_ranking(void **state)
{
    (void)state;
    json_t *summary = summary_with(&none), *ranking = json_object_get(summary, "ranking");
    const json_t *first = json_array_get(ranking, 0);
    assert_int_equal(json_array_size(ranking), 2);
    assert_string_equal(text(ranking, 0, "variant"), "int8");
    assert_int_equal(json_integer_value(json_object_get(first, "met")), 2);
    assert_int_equal(json_integer_value(json_object_get(first, "best")), 2);
    assert_float_equal(json_real_value(json_object_get(first, "mean_drop")), 0.4, 1e-9);
    assert_float_equal(json_real_value(json_object_get(first, "worst_drop")), 0.6, 1e-9);
    assert_string_equal(text(ranking, 0, "worst_model"), "a");
    assert_float_equal(json_real_value(json_object_get(first, "speed_up")), 2.8284271247, 1e-9);
    assert_float_equal(json_real_value(json_object_get(first, "smaller")), 4, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(ranking, 1), "done")), 1);
    json_decref(summary);
}

/* Marks that change the direction of text, and control characters, reach no view as they are. */
static void odd_names_are_escaped(void **state)
{
    static const char *const files[] = {"summary.json", "report.html", "report.md", "results.csv",
                                        "stdout"};
    const measured odd[] = {{"a\xc2\x9b", "v\xe2\x80\xae", 500, 0.1, 1.5},
                            {"b\x7f", "v\xe2\x80\xae", 500, 0.5, 1.2}};
    (void)state;
    json_t *tasks = json_array();
    for (int i = 0; i < 2; i++) json_array_append_new(tasks, measured_task(&odd[i]));
    json_array_append_new(tasks, task_json("c\x7f", "w\xc2\x9b", "crash", "\xe2\x80\xae"));
    put_tasks("demo", tasks);
    assert_int_equal(merge_with(&none), PARE_OK);
    for (int i = 0; i < 5; i++) {
        const char *words = content(files[i]);
        assert_null(strstr(words, "\xc2\x9b"));
        assert_null(strstr(words, "\xe2\x80\xae"));
        assert_null(strchr(words, 0x7f));
        assert_non_null(strstr(words, "\\x7F"));
    }
    json_t *summary = summary_with(&none), *ranking = json_object_get(summary, "ranking");
    assert_string_equal(text(ranking, 0, "variant"), "v\\xE2\\x80\\xAE");
    assert_string_equal(text(ranking, 0, "worst_model"), "b\\x7F");
    assert_string_equal(text(json_object_get(summary, "best"), 0, "model"), "a\\xC2\\x9B");
    json_decref(summary);
    put_usual();
}

/* --- views --- */

static void tables_name_everything(void **state)
{
    (void)state;
    assert_int_equal(merge_with(&none), PARE_OK);
    const char *words = content("stdout");
    assert_non_null(strstr(words, "net     precision    size")); /* both int8: told apart by name */
    assert_non_null(strstr(words, "a.fp16  int8"));
    assert_non_null(strstr(words, "3 of 4 tasks are done; crash: 1"));
    assert_non_null(strstr(words, "b.fp16: crash: killed by signal 11 <&>\n    pare bad "));
    const char *csv = content("results.csv");
    assert_non_null(strstr(csv, "\ndemo,a,int8,done,,models/a.int8.onnx,"));
    assert_non_null(strstr(csv, ",best,seconds,cpu_seconds,peak_bytes\n"));
    assert_non_null(strstr(csv, ",1.5,1.25,2000000\n"));
    const char *page = content("report.html");
    assert_non_null(strstr(page, "<h1>Zoo demo</h1>"));
    assert_non_null(strstr(page, "killed by signal 11 &lt;&amp;&gt;"));
    assert_non_null(strstr(page, "<code>pare bad &#39;x &lt;y&gt;.onnx&#39;</code>"));
    const char *down = content("report.md");
    assert_non_null(strstr(down, "- **b.fp16**: crash: killed by signal 11 \\<&\\>\n"));
    assert_non_null(strstr(down, "## Best of each model"));
}

static void the_same_bytes(void **state)
{
    static const char *const files[] = {"summary.json", "results.csv", "report.md", "report.html",
                                        "stdout"};
    (void)state;
    assert_int_equal(merge_with(&none), PARE_OK);
    char *was[5];
    for (int i = 0; i < 5; i++) was[i] = strdup(content(files[i]));
    for (int i = 3; i-- > 0;) json_decref(measured_task(&usual[i])); /* written in another order */
    assert_int_equal(merge_with(&none), PARE_OK);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(content(files[i]), was[i]);
        free(was[i]);
    }
}

/* A page over a thousand models stays one that a browser opens at once. */
static void a_thousand_models(void **state)
{
    (void)state;
    enum { MODELS = 1000, MOST = 5000000 };
    json_t *tasks = json_array();
    char model[32];
    struct stat page;
    for (int i = 0; i < 2 * MODELS; i++) {
        snprintf(model, sizeof model, "network-%04d-resnet", i / 2);
        const measured one = {model, i % 2 ? "fp16" : "int8", 250 + i, (i % 7) * 0.1,
                              1 + (i % 50) * 0.02};
        json_array_append_new(tasks, measured_task(&one));
    }
    put_tasks("demo", tasks);
    json_t *summary = summary_with(&none);
    assert_int_equal(json_array_size(json_object_get(summary, "best")), MODELS);
    json_decref(summary);
    assert_int_equal(stat(at("report.html"), &page), 0);
    assert_true(page.st_size > MODELS * 1000 && page.st_size < MOST);
    put_usual();
}

/* --- what is wrong --- */

static void facts_that_cannot_be_read(void **state)
{
    (void)state;
    FILE *file = fopen(at("a-int8.json"), "w");
    assert_non_null(file);
    fputs("{\"schema\": 1,", file);
    fclose(file);
    unlink(at("a-fp16.json"));
    json_t *summary = summary_with(&none), *tasks = json_object_get(summary, "tasks");
    assert_string_equal(text(tasks, 0, "class"), "failed");
    assert_non_null(strstr(text(tasks, 0, "message"), "a-int8.json: line 1"));
    assert_string_equal(text(tasks, 1, "class"), "failed");
    assert_non_null(strstr(text(tasks, 1, "message"), "a-fp16.json"));
    assert_string_equal(text(tasks, 2, "class"), "done");
    json_decref(summary);
    put_usual();
}

static void refused(const char *words)
{
    assert_int_equal(merge_with(&none), PARE_INPUT);
    assert_non_null(strstr(ctx.message, "tasks.json: "));
    assert_non_null(strstr(ctx.message, words));
    pare_ctx_clear(&ctx);
}

static void tasks_of_another_zoo(void **state)
{
    (void)state;
    put_tasks("other", json_array());
    refused("holds tasks of the zoo 'other', expected 'demo'");
    json_t *odd = json_pack("{s:i, s:s, s:[]}", "schema", 2, "zoo", "demo", "tasks");
    put("tasks.json", odd);
    json_decref(odd);
    refused("holds no tasks of a zoo that this version knows");
    put_tasks("demo", json_pack("[{s:s}]", "model", "a"));
    refused("tasks[0] lacks model, variant or class");
    put_usual();
}

static void no_summary(const char *path, const char *words)
{
    json_t *summary;
    assert_int_not_equal(pare_zoo_summary_read(&ctx, &summary, path), PARE_OK);
    assert_non_null(strstr(ctx.message, words));
    pare_ctx_clear(&ctx);
}

static void folders_without_a_summary(void **state)
{
    (void)state;
    unlink(at("summary.json"));
    no_summary(folder, "holds no summary.json; expected the folder of a zoo that ran");
    no_summary(at("tasks.json"), "holds no summary.json");
    no_summary("/nowhere", "/nowhere: No such file");
    assert_int_equal(merge_with(&none), PARE_OK);
    assert_int_equal(truncate(at("summary.json"), 200), 0);
    no_summary(folder, "summary.json: line");
    json_t *odd = json_pack("{s:i, s:s, s:s}", "schema", 2, "command", "zoo", "version", "1");
    put("summary.json", odd);
    no_summary(folder, "summary.json: schema is 2, which this version does not know");
    json_object_set_new(odd, "schema", json_integer(1));
    put("summary.json", odd);
    no_summary(folder, "expected a zoo's summary");
    json_decref(odd);
}

/* Each allocation failed in turn ends in a message or in what is whole. */
static void out_of_memory(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        ctx.fail_after = n;
        const pare_status st = merge_with(&none);
        if (st == PARE_OK && ctx.fail_after > 0) break;
        if (st != PARE_OK) assert_true(*ctx.message);
        pare_ctx_clear(&ctx);
        assert_true(n < 5000);
    }
    ctx.fail_after = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goals_are_judged),
        cmocka_unit_test(what_was_not_measured_is_missed),
        cmocka_unit_test(prunings_that_fell_short),
        cmocka_unit_test(the_best_of_a_model),
        cmocka_unit_test(the_ranking),
        cmocka_unit_test(odd_names_are_escaped),
        cmocka_unit_test(tables_name_everything),
        cmocka_unit_test(the_same_bytes),
        cmocka_unit_test(a_thousand_models),
        cmocka_unit_test(facts_that_cannot_be_read),
        cmocka_unit_test(tasks_of_another_zoo),
        cmocka_unit_test(folders_without_a_summary),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

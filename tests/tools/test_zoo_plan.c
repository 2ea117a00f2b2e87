/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a zoo: which steps are shared, in which order, and what keys depend on. */
#include "formats/file.h"
#include "tests/tools/zoo_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utime.h>
#include <cmocka.h>

#define HEAD "models: [{files: [b/x.onnx, c/x.onnx]}]\ndata: train.h5\ntest: test.h5\n"
#define TREE                                                                                       \
    HEAD "variants:\n"                                                                             \
         "  - {name: half, steps: [prune --macs 0.5]}\n"                                           \
         "  - {name: tuned, steps: [prune --macs=0.5, distill --epochs 1]}\n"                      \
         "  - {name: int8, steps: [quantize]}\n"                                                   \
         "  - {name: again, steps: [prune --macs 0.5, distill --epochs 1]}\n"
#define ONE HEAD "variants: [{name: half, steps: [prune --macs 0.5, quantize]}]\n"

static void equal_beginnings_are_one_node(void **state)
{
    zoo_case *z = *state;
    static const int nodes[8][3] = {{0, 1}, {0, 2, 3}, {4, 5},   {0, 2, 3},
                                    {6, 7}, {6, 8, 9}, {10, 11}, {6, 8, 9}};
    static const int parents[12] = {-1, 0, 0, 2, -1, 4, -1, 6, 6, 8, -1, 10};
    zoo_case_plan(z, TREE, (pare_zoo_plan_options){0});
    assert_int_equal(z->plan->task_count, 8);
    assert_int_equal(z->plan->node_count, 12);
    for (int i = 0; i < 8; i++) {
        const pare_zoo_task *task = &z->plan->tasks[i];
        assert_int_equal(task->model, i / 4);
        assert_int_equal(task->variant, i % 4);
        assert_int_equal(task->node_count, i % 2 ? 3 : 2);
        assert_memory_equal(task->nodes, nodes[i], (size_t)task->node_count * sizeof(int));
    }
    for (int i = 0; i < 12; i++) {
        assert_int_equal(z->plan->nodes[i].parent, parents[i]);
        assert_int_equal(z->plan->nodes[i].model, i / 6);
    }
    assert_int_equal(z->plan->nodes[2].variant, 1);
}

/* Puts the case's folder for "@" and the key of a node for "#". */
static void expect_command(zoo_case *z, int node, int before, const char *expected)
{
    char text[2000], *to = text;
    for (; *expected; expected++) {
        const char *put = *expected == '@'   ? z->folder
                          : *expected == '#' ? z->plan->nodes[node].key
                          : *expected == '<' ? z->plan->nodes[before].key
                                             : NULL;
        to += put ? sprintf(to, "%s", put) : sprintf(to, "%c", *expected);
    }
    assert_string_equal(pare_zoo_node_command(&z->arena, &z->plan->nodes[node]), text);
}

static void commands_are_what_a_shell_takes(void **state)
{
    zoo_case *z = *state;
    zoo_case_plan(z,
                  HEAD "samples: 20\nvariants: [{name: v, steps: [\"prune --latency 1ms --keep "
                       "\\\"it's\\\"\", distill --val test.h5]}]\n",
                  (pare_zoo_plan_options){.cache = "c", .device = "cpu", .threads = 2});
    expect_command(z, 0, 0,
                   "pare prune @/b/x.onnx -o @/out/steps/#/model.onnx --data @/train.h5 --cache c "
                   "--json @/out/steps/#/facts.json --device cpu --threads 2 --latency 1ms --keep "
                   "'it'\\''s'");
    expect_command(z, 1, 0,
                   "pare distill --teacher @/b/x.onnx --student @/out/steps/</model.onnx "
                   "--checkpoint @/out/steps/# --resume -o @/out/steps/#/model.onnx --data "
                   "@/train.h5 --json @/out/steps/#/facts.json --device cpu --threads 2 --val "
                   "@/test.h5");
    expect_command(z, 2, 0,
                   "pare validate @/b/x.onnx @/out/models/b-x.v.onnx --data @/test.h5 --samples 20 "
                   "--latency --cache c --json @/out/steps/#/facts.json --device cpu");
    assert_true(z->plan->nodes[0].alone && !z->plan->nodes[1].alone && z->plan->nodes[2].alone);
    assert_null(z->plan->nodes[2].output);
    assert_null(z->plan->nodes[2].words[z->plan->nodes[2].word_count]);
}

static void trainings_are_kept_while_they_run(void **state)
{
    zoo_case *z = *state;
    zoo_case_plan(z, HEAD "variants: [{name: v, steps: [prune --macs 0.5 --distill epochs=1]}]\n",
                  (pare_zoo_plan_options){0});
    expect_command(z, 0, 0,
                   "pare prune @/b/x.onnx --checkpoint @/out/steps/# --resume -o "
                   "@/out/steps/#/model.onnx --data @/train.h5 --json @/out/steps/#/facts.json "
                   "--macs 0.5 --distill epochs=1");
}

/* Keys of the first model's nodes: prune, quantize, validate. */
typedef struct keys {
    char text[3][33];
} keys;

static keys keys_of(zoo_case *z, const char *text, pare_zoo_plan_options options)
{
    keys k;
    zoo_case_plan(z, text, options);
    for (int i = 0; i < 3; i++) strcpy(k.text[i], z->plan->nodes[i].key);
    return k;
}

/* From which node on they differ; 3: nowhere. After a key that differs all must. */
static int differ_from(const keys *a, const keys *b)
{
    int first = 0;
    while (first < 3 && !strcmp(a->text[first], b->text[first])) first++;
    for (int i = first; i < 3; i++) assert_string_not_equal(a->text[i], b->text[i]);
    return first;
}

/* What can be shared is; a step that variants share has the fewest of their ranks. */
static void ranks_share_what_they_can(void **state)
{
    zoo_case *z = *state;
    static const char text[] =
        HEAD "latency: false\nlauncher: srun --mpi=pmix\nvariants:\n"
             "  - {name: v, ranks: 4, steps: [prune --macs 0.5, quantize]}\n"
             "  - {name: w, nodes: 2, ranks: 8, steps: [prune --macs 0.6, distill]}\n"
             "  - {name: u, ranks: 2, steps: [prune --macs 0.6]}\n";
    zoo_case_plan(z, text, (pare_zoo_plan_options){.cache = "c", .threads = 8});
    static const int ranks[] = {4, 1, 4, 2, 8, 8, 2};
    for (int i = 0; i < 7; i++) assert_int_equal(z->plan->nodes[i].ranks, ranks[i]);
    expect_command(z, 0, 0,
                   "mpirun -n 4 pare prune @/b/x.onnx -o @/out/steps/#/model.onnx --data "
                   "@/train.h5 --json @/out/steps/#/facts.json --threads 2 --macs 0.5");
    expect_command(z, 1, 0,
                   "pare quantize @/out/steps/</model.onnx -o @/out/steps/#/model.onnx --data "
                   "@/train.h5 --cache c --json @/out/steps/#/facts.json --threads 8");
    expect_command(z, 2, 0,
                   "mpirun -n 4 pare validate @/b/x.onnx @/out/models/b-x.v.onnx --data @/test.h5 "
                   "--json @/out/steps/#/facts.json --threads 2");
    keys here = keys_of(z, text, (pare_zoo_plan_options){.threads = 8});
    zoo_case_plan(z, text, (pare_zoo_plan_options){.threads = 8, .batch = true});
    expect_command(z, 6, 3,
                   "srun --mpi=pmix -n 2 pare validate @/b/x.onnx @/out/models/b-x.u.onnx --data "
                   "@/test.h5 --json @/out/steps/#/facts.json --threads 4");
    keys alone = keys_of(z,
                         HEAD "latency: false\nvariants: [{name: v, steps: [prune --macs 0.5, "
                              "quantize]}]\n",
                         (pare_zoo_plan_options){0});
    assert_int_equal(differ_from(&here, &alone), 3);
}

static void keys_do_not_depend_on_how_it_is_run(void **state)
{
    zoo_case *z = *state;
    keys base = keys_of(z, ONE, (pare_zoo_plan_options){0});
    keys other = keys_of(z, "name: other\nlimits: {time: 3, memory: 1GB}\ngoals: {drop: 1}\n" ONE,
                         (pare_zoo_plan_options){.threads = 3, .cache = "/x", .device = "cpu"});
    assert_int_equal(differ_from(&base, &other), 3);
    other = keys_of(z, HEAD "variants: [{name: w, steps: [prune   --macs='0.5', quantize]}]\n",
                    (pare_zoo_plan_options){0});
    assert_int_equal(differ_from(&base, &other), 3);
    other = keys_of(z,
                    HEAD "variants: [{name: w, steps: [prune --data train.h5 --macs 0.5, "
                         "quantize]}]\n",
                    (pare_zoo_plan_options){0});
    assert_int_equal(differ_from(&base, &other), 3);
}

static void keys_depend_on_what_decides(void **state)
{
    zoo_case *z = *state;
    const pare_zoo_plan_options none = {0};
    keys base = keys_of(z, ONE, none);
    keys other = keys_of(z, ONE, (pare_zoo_plan_options){.version = "0.0.9"});
    assert_int_equal(differ_from(&base, &other), 0);
    other = keys_of(z, ONE, (pare_zoo_plan_options){.machine = "NVIDIA H100"});
    assert_int_equal(differ_from(&base, &other), 0);
    other =
        keys_of(z, HEAD "variants: [{name: half, steps: [prune --macs 0.4, quantize]}]\n", none);
    assert_int_equal(differ_from(&base, &other), 0);
    other = keys_of(z,
                    HEAD "variants: [{name: half, steps: [prune --macs 0.5, quantize "
                         "--activations u8]}]\n",
                    none);
    assert_int_equal(differ_from(&base, &other), 1);
    other = keys_of(z, ONE "samples: 3\n", none);
    assert_int_equal(differ_from(&base, &other), 2);
    other = keys_of(z, ONE "latency: false\n", none);
    assert_int_equal(differ_from(&base, &other), 2);
    zoo_case_write(z, "test.h5", "other", 5);
    other = keys_of(z, ONE, none);
    assert_int_equal(differ_from(&base, &other), 2);
    zoo_case_write(z, "test.h5", "test.h5", 7);
    other = keys_of(z, ONE, none);
    assert_int_equal(differ_from(&base, &other), 3);
    zoo_case_write(z, "train.h5", "other", 5);
    other = keys_of(z, ONE, none);
    assert_int_equal(differ_from(&base, &other), 0);
    zoo_case_write(z, "train.h5", "train.h5", 8);
    zoo_case_write(z, "b/x.onnx", "other", 5);
    other = keys_of(z, ONE, none);
    assert_int_equal(differ_from(&base, &other), 0);
}

/* A model that is one has the hash that facts show, its external data included. */
static void a_real_model_decides_too(void **state)
{
    zoo_case *z = *state;
    char command[200];
    const pare_zoo_plan_options none = {0};
    keys base = keys_of(z, ONE, none);
    snprintf(command, sizeof command, "cp datasets/zoo/mlp.onnx %s/b/x.onnx", z->folder);
    if (system(command)) skip();
    keys first = keys_of(z, ONE, none), again = keys_of(z, ONE, none);
    assert_int_equal(differ_from(&base, &first), 0);
    assert_int_equal(differ_from(&first, &again), 3);
    snprintf(command, sizeof command, "cp datasets/zoo/cnn.onnx %s/b/x.onnx", z->folder);
    assert_int_equal(system(command), 0);
    keys other = keys_of(z, ONE, none);
    assert_int_equal(differ_from(&first, &other), 0);
}

static void content_of_named_files_decides(void **state)
{
    zoo_case *z = *state;
    const pare_zoo_plan_options none = {0};
    const char *text = HEAD "variants: [{name: v, steps: [prune --macs 0.5, quantize --ranges "
                            "ranges.json]}]\n";
    keys base = keys_of(z, text, none);
    zoo_case_write(z, "ranges.json", "{}", 2);
    keys other = keys_of(z, text, none);
    assert_int_equal(differ_from(&base, &other), 1);
}

static void models_of_one_content_share_their_work(void **state)
{
    zoo_case *z = *state;
    zoo_case_write(z, "c/x.onnx", "b/x.onnx", 8);
    zoo_case_plan(z, ONE, (pare_zoo_plan_options){0});
    assert_int_equal(z->plan->task_count, 2);
    assert_int_equal(z->plan->node_count, 3);
    assert_string_not_equal(z->plan->tasks[0].link, z->plan->tasks[1].link);
}

static void names_grow_until_they_differ(void **state)
{
    zoo_case *z = *state;
    char command[300];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p p/b && echo >p/b/x.onnx && echo >b-x.onnx && echo >net",
             z->folder);
    assert_int_equal(system(command), 0);
    zoo_case_plan(z,
                  "models: [{files: [c/x.onnx, b/x.onnx, p/b/x.onnx, net]}]\ndata: train.h5\n"
                  "test: test.h5\nvariants: [{name: v, steps: [quantize]}]\n",
                  (pare_zoo_plan_options){0});
    assert_string_equal(z->zoo->models[0].name, "c-x");
    const char *own = strrchr(z->folder, '/') + 1;
    char expected[100];
    snprintf(expected, sizeof expected, "%s-b-x", own);
    assert_string_equal(z->zoo->models[1].name, expected);
    assert_string_equal(z->zoo->models[2].name, "p-b-x");
    assert_string_equal(z->zoo->models[3].name, "net");
    zoo_case_plan(z,
                  "models: [{files: [b-x.onnx, b/x.onnx, c/x.onnx]}]\ndata: train.h5\n"
                  "test: test.h5\nvariants: [{name: v, steps: [quantize]}]\n",
                  (pare_zoo_plan_options){0});
    snprintf(expected, sizeof expected, "%s-b-x", own);
    assert_string_equal(z->zoo->models[1].name, expected);
}

static void two_tasks_of_one_link_are_refused(void **state)
{
    zoo_case *z = *state;
    zoo_case_write(z, "a.b.onnx", "x", 1);
    assert_int_equal(zoo_case_read(z, "models: [{files: [a.onnx, a.b.onnx]}]\ndata: train.h5\n"
                                      "test: test.h5\nvariants:\n"
                                      "  - {name: c, steps: [quantize]}\n"
                                      "  - {name: b.c, steps: [quantize]}\n"),
                     PARE_OK);
    const pare_zoo_plan_options options = {.out = "out/"};
    assert_int_equal(pare_zoo_plan_make(&z->arena, &z->plan, z->zoo, &options), PARE_INPUT);
    assert_non_null(strstr(z->ctx.message, "would both be out/models/a.b.c.onnx"));
}

static void every_allocation_may_fail(void **state)
{
    zoo_case *z = *state;
    zoo_case_plan(z, TREE, (pare_zoo_plan_options){0});
    pare_zoo_plan *first = z->plan, *plan = NULL;
    const pare_zoo_plan_options options = {.out = "out", .threads = 2};
    pare_arena own;
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        pare_arena_init(&own, &z->ctx);
        pare_ctx_clear(&z->ctx);
        z->ctx.fail_after = n;
        st = pare_zoo_plan_make(&own, &plan, z->zoo, &options);
        z->ctx.fail_after = -1;
        if (st != PARE_OK) {
            assert_int_equal(st, PARE_MEMORY);
            assert_true(z->ctx.message[0]);
            pare_arena_free(&own);
        }
        assert_true(n < 5000);
    }
    assert_int_equal(plan->node_count, first->node_count);
    for (int i = 0; i < plan->node_count; i++)
        assert_string_equal(plan->nodes[i].key, first->nodes[i].key);
    pare_arena_free(&own);
}

/* Beyond 1 GiB: blocks, size and time decide. The file is sparse. */
static void large_files_are_hashed_by_blocks(void **state)
{
    zoo_case *z = *state;
    char path[128], command[300];
    pare_hash a, b;
    const struct utimbuf then = {1000000000, 1000000000};
    snprintf(path, sizeof path, "%s/large", z->folder);
    snprintf(command, sizeof command, "truncate -s 1073741825 '%s'", path);
    if (system(command)) skip();
    assert_int_equal(utime(path, &then), 0);
    assert_int_equal(pare_file_hash_quick(&z->ctx, path, &a), PARE_OK);
    assert_int_equal(pare_file_hash_quick(&z->ctx, path, &b), PARE_OK);
    assert_true(a.low == b.low && a.high == b.high);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc('x', file);
    fclose(file);
    assert_int_equal(utime(path, &then), 0);
    assert_int_equal(pare_file_hash_quick(&z->ctx, path, &b), PARE_OK);
    assert_true(a.low != b.low);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, zoo_case_open, zoo_case_close)
    const struct CMUnitTest tests[] = {
        TEST(equal_beginnings_are_one_node),
        TEST(commands_are_what_a_shell_takes),
        TEST(trainings_are_kept_while_they_run),
        TEST(keys_do_not_depend_on_how_it_is_run),
        TEST(ranks_share_what_they_can),
        TEST(keys_depend_on_what_decides),
        TEST(a_real_model_decides_too),
        TEST(content_of_named_files_decides),
        TEST(models_of_one_content_share_their_work),
        TEST(names_grow_until_they_differ),
        TEST(two_tasks_of_one_link_are_refused),
        TEST(every_allocation_may_fail),
        TEST(large_files_are_hashed_by_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

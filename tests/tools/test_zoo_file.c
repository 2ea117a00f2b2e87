/* SPDX-License-Identifier: Apache-2.0 */
/* Zoo files: what is read, and that each thing that can be wrong is one message with its line. */
#include "tests/tools/zoo_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

static const char whole[] = "name: demo            # a comment\n"
                            "models:\n"
                            "  - files: [b/*.onnx, 'c/x.onnx']\n"
                            "  - files: [a.onnx]\n"
                            "    data: test.h5\n"
                            "    test: train.h5\n"
                            "data: train.h5\n"
                            "test: test.h5\n"
                            "samples: 1000\n"
                            "latency: false\n"
                            "variants:\n"
                            "  - name: int8\n"
                            "    steps: [quantize]\n"
                            "  - name: half-int8\n"
                            "    steps:\n"
                            "      - prune --macs 0.5 --keep 'a \"b' --keep c\\ d\n"
                            "      - distill --epochs 1 --val test.h5\n"
                            "      - quantize --ranges ranges.json --activations u8\n"
                            "limits: {time: 600, memory: 4GB}\n"
                            "goals: {drop: 0.5, size: 1MB}\n"
                            "any_accuracy: true\n"
                            "slurm: [--partition=gpu, '--gres=gpu:1']\n";

static void all_keys_are_read(void **state)
{
    zoo_case *z = *state;
    char path[200];
    if (zoo_case_read(z, whole) != PARE_OK) fail_msg("%s", z->ctx.message);
    const pare_zoo *zoo = z->zoo;
    assert_string_equal(zoo->name, "demo");
    assert_string_equal(zoo->file, z->path);
    assert_int_equal(zoo->model_count, 3);
    assert_string_equal(zoo->models[0].name, "b-x");
    assert_string_equal(zoo->models[1].name, "c-x");
    assert_string_equal(zoo->models[2].name, "a");
    snprintf(path, sizeof path, "%s/c/x.onnx", z->folder);
    assert_string_equal(zoo->models[1].file, path);
    snprintf(path, sizeof path, "%s/test.h5", z->folder);
    assert_string_equal(zoo->models[0].test, path);
    assert_string_equal(zoo->models[2].data, path);
    snprintf(path, sizeof path, "%s/train.h5", z->folder);
    assert_string_equal(zoo->models[2].test, path);
    assert_int_equal(zoo->samples, 1000);
    assert_false(zoo->latency);
    assert_true(zoo->any_accuracy);
    assert_true(zoo->limits.seconds == 600 && zoo->limits.memory_bytes == 4000000000);
    assert_true(zoo->goals.drop == 0.5 && zoo->goals.latency < 0 && zoo->goals.speed_up < 0);
    assert_int_equal(zoo->goals.size, 1000000);
    assert_int_equal(zoo->slurm_count, 2);
    assert_string_equal(zoo->slurm[1], "--gres=gpu:1");
}

static void steps_are_read_with_the_commands_table(void **state)
{
    zoo_case *z = *state;
    char path[200];
    if (zoo_case_read(z, whole) != PARE_OK) fail_msg("%s", z->ctx.message);
    assert_int_equal(z->zoo->variant_count, 2);
    assert_int_equal(z->zoo->variants[0].step_count, 1);
    assert_true(z->zoo->variants[0].steps[0].takes_data);
    assert_int_equal(z->zoo->variants[1].step_count, 3);
    const pare_zoo_step *steps = z->zoo->variants[1].steps;
    assert_string_equal(steps[0].command->name, "prune");
    assert_int_equal(steps[0].line, 16);
    assert_int_equal(steps[0].option_count, 3);
    assert_string_equal(steps[0].options[0].row->name, "macs");
    assert_string_equal(steps[0].options[1].value, "a \"b");
    assert_string_equal(steps[0].options[2].value, "c d");
    assert_true(steps[1].takes_data && !steps[2].takes_data);
    snprintf(path, sizeof path, "%s/ranges.json", z->folder);
    assert_string_equal(steps[2].options[0].value, path);
    assert_false(steps[0].times);
}

static void what_is_left_out_has_its_default(void **state)
{
    zoo_case *z = *state;
    assert_int_equal(zoo_case_read(z, "models: [{files: ['?.onnx'], test: test.h5}]\n"
                                      "variants: [{name: half, steps: [prune --latency 0.5]}]\n"),
                     PARE_OK);
    assert_string_equal(z->zoo->name, "zoo");
    assert_string_equal(z->zoo->models[0].name, "a");
    assert_null(z->zoo->models[0].data);
    assert_true(z->zoo->latency && z->zoo->samples == -1 && z->zoo->slurm_count == 0);
    assert_true(z->zoo->limits.seconds == 0 && z->zoo->limits.memory_bytes == 0);
    assert_true(z->zoo->goals.drop < 0 && z->zoo->goals.size < 0);
    assert_true(z->zoo->variants[0].steps[0].times);
}

#define MODELS     "models: [{files: [a.onnx]}]\n"
#define DATA       "data: train.h5\ntest: test.h5\n"
#define VARIANTS   "variants: [{name: int8, steps: [quantize]}]\n"
#define STEP(text) MODELS DATA "variants:\n  - name: v\n    steps:\n      - " text "\n"

#define RANKS(keys, text)                                                                          \
    MODELS DATA "variants:\n  - name: v\n    " keys "\n    steps:\n      - " text "\n"

static const struct bad {
    int line;
    const char *says, *text;
} bad[] = {
    /* no YAML */
    {1, "is empty, expected keys and values", ""},
    {1, "is empty, expected keys and values", "# nothing\n"},
    {2, "is no YAML: ", "models:\n\t- files: [a]\n"},
    {2, "is no YAML: ", "models: [a\n"},
    {2, "is no YAML: ", "name: x\nname: \"a\xff\"\n"},
    {1, "is no YAML: ",
     "\x7f"
     "ELF\x02\x01\x01"},
    {1, "is one value, expected a map", "models\n"},
    {1, "is a list, expected a map", "- a\n- b\n"},
    {2, "has an anchor (&)", MODELS "data: &d train.h5\ntest: *d\n"},
    {2, "has an alias (*)", MODELS "data: *d\n"},
    {1, "has a tag (!)", "name: !!str x\n"},
    {2, "begins a second document", "name: x\n---\nname: y\n"},
    {3, "has a list or map as its key", MODELS "data: train.h5\n? [a]\n: b\n"},
    {1, "is nested deeper than 8 levels", "models: [[[[[[[[[[[[[[[[[[[["},
    {2, "has a byte 0 in its text", MODELS "name: \"a\\0b\"\n"},
    /* keys */
    {1, "no key 'modles' here, did you mean 'models'", "modles: []\n"},
    {2, "no key 'file' here, did you mean 'files'", "models:\n  - file: [a.onnx]\n"},
    {1, "no key 'color' here, expected one of drop, latency, speed_up, size",
     "goals: {color: red}\n"},
    {3, "name: is in line 1 already", "name: x\n" MODELS "name: y\n"},
    {1, "'variants' is missing", MODELS DATA},
    {1, "'models' is missing", DATA VARIANTS},
    {4, "'steps' is missing", MODELS DATA "variants: [{name: v}]\n"},
    /* types */
    {1, "models: is one value, expected a list", "models: a.onnx\n" DATA VARIANTS},
    {1, "models: is empty, expected at least one entry", "models: []\n" DATA VARIANTS},
    {4, "variants: is empty, expected at least one entry", MODELS DATA "variants: []\n"},
    {1, "files: is empty, expected at least one entry", "models: [{files: []}]\n" DATA VARIANTS},
    {5, "steps: is empty, expected at least one entry",
     MODELS DATA "variants:\n  - {name: v, steps: []}\n"},
    {1, "goals: is one value, expected a map", "goals: 3\n"},
    {1, "data: is a list, expected one value", "data: [a]\n"},
    {1, "data: is empty, expected text", "data:\n"},
    {1, "samples: 'many', expected a whole number", "samples: many\n"},
    {1, "samples: '10.5', expected a whole number", "samples: 10.5\n"},
    {1, "latency: 'yes', expected true or false", "latency: yes\n"},
    {1, "time: 'nan', expected a number", "limits: {time: nan}\n"},
    {6, "is a map, expected one value",
     MODELS DATA "variants:\n  - name: v\n    steps: [prune: 1]\n"},
    /* values */
    {5, "samples: 0, expected 1 or more", MODELS DATA VARIANTS "samples: 0\n"},
    {5, "time: -1, expected more than 0", MODELS DATA VARIANTS "limits: {time: -1}\n"},
    {7, "memory: '4', expected a size with its unit",
     MODELS DATA VARIANTS "limits:\n  time: 3\n  memory: 4\n"},
    {5, "size: 'big', expected a size with its unit", MODELS DATA VARIANTS "goals: {size: big}\n"},
    {5, "drop: -0.5, expected 0 or more", MODELS DATA VARIANTS "goals: {drop: -0.5}\n"},
    {6, "goals: latency and speed_up are not measured with 'latency: false'",
     MODELS DATA VARIANTS "latency: false\ngoals: {speed_up: 2}\n"},
    /* files */
    {3, "files: 'z*.onnx' matches no file",
     "models:\n  - files: [a.onnx]\n  - files: [z*.onnx]\n" DATA VARIANTS},
    {1, "files: 'b' matches no file", "models: [{files: [b]}]\n" DATA VARIANTS},
    {4, "a.onnx is named twice, first in line 2",
     "models:\n  - files: [a.onnx]\n  - files:\n      - '*.onnx'\n" DATA VARIANTS},
    {2, "train.hdf: No such file or directory", MODELS "data: train.hdf\ntest: test.h5\n" VARIANTS},
    {3, "is a folder, expected a file", MODELS "data: train.h5\ntest: b\n" VARIANTS},
    {1, "'test' is missing here and for the whole zoo", MODELS "data: train.h5\n" VARIANTS},
    {3, "step 'quantize' needs data, but there is no 'data' for ",
     MODELS "test: test.h5\n" VARIANTS},
    {3, "step 'distill' needs data",
     MODELS "test: test.h5\nvariants: [{name: v, steps: [distill]}]\n"},
    {3, "step 'prune --macs 0.5 --score taylor' needs data",
     MODELS "test: test.h5\nvariants: [{name: v, steps: [prune --macs 0.5 --score taylor]}]\n"},
    /* variants and their steps */
    {6, "name: variant 'v' is there already",
     MODELS DATA "variants:\n  - {name: v, steps: [quantize]}\n  - {name: v, steps: [quantize]}\n"},
    {4, "name: 'a/b', expected up to 100 letters",
     MODELS DATA "variants: [{name: a/b, steps: [quantize]}]\n"},
    {4, "name: '.', expected up to 100 letters",
     MODELS DATA "variants: [{name: ., steps: [quantize]}]\n"},
    {7, "step 'quantise': 'quantise' is no step, did you mean 'quantize'; expected",
     STEP("quantise")},
    {7, "step 'bench x': 'bench' is no step; expected prune, distill or quantize", STEP("bench x")},
    {7, "step 'prune --mac 0.5': prune: no option '--mac', did you mean --macs",
     STEP("prune --mac 0.5")},
    {7, "prune: --macs 2: expected a number from", STEP("prune --macs 2")},
    {7, "prune: --macs needs a value", STEP("prune --macs")},
    {7, "prune: one of --sparsity, --nm, --macs, --params, --size, --latency is needed",
     STEP("prune")},
    {7, "prune: --sparsity, --nm, --macs, --params, --size and --latency exclude each other",
     STEP("prune --macs 0.5 --nm 2:4")},
    {7, "distill: --epochs and --steps exclude each other", STEP("distill --epochs 1 --steps 3")},
    {7, "quantize: 'a.onnx' is one argument too many", STEP("quantize a.onnx")},
    {7, "--output is not for a step: the zoo sets it", STEP("quantize -o x.onnx")},
    {7, "--tensorboard is not for a step", STEP("distill --tensorboard events")},
    {7, "--threads is not for a step", STEP("quantize --threads 2")},
    {7, "--gpus is not for a step", STEP("distill --gpus 0-1")},
    {7, "--checkpoint is not for a step", STEP("distill --checkpoint=x")},
    {7, "--sweep is not for a step", STEP("prune --macs 0.5 --sweep 0.1,0.2")},
    {7, "--help is not for a step", STEP("prune --help")},
    {7, "a quote does not end", STEP("\"prune --keep 'x\"")},
    {7, "has no command", STEP("' '")},
    {7, "none.json: No such file or directory", STEP("quantize --ranges none.json")},
    /* ranks */
    {6, "ranks: 0, expected 1 or more", RANKS("ranks: 0", "distill")},
    {6, "ranks: 'four', expected a whole number", RANKS("ranks: four", "distill")},
    {6, "gpus: 5000, expected 1 to 4096", RANKS("gpus: 5000", "distill")},
    {6, "no key 'rank' here, did you mean 'ranks'", RANKS("rank: 2", "distill")},
    {5, "variant 'v': 3 ranks on 2 nodes, expected a multiple of the nodes",
     RANKS("ranks: 3\n    nodes: 2", "distill")},
    {5, "variant 'v': 4 ranks, but none of its steps can be shared", RANKS("ranks: 4", "quantize")},
    {5, "none of its steps can be shared", RANKS("gpus: 2", "prune --latency 0.5")},
};

/* Without a number of ranks one a GPU, or one a machine. */
static void ranks_are_read(void **state)
{
    zoo_case *z = *state;
    static const struct {
        const char *text;
        int ranks, gpus, nodes;
    } good[] = {{RANKS("ranks: 4", "prune --macs 0.5"), 4, 0, 1},
                {RANKS("gpus: 4", "distill"), 4, 4, 1},
                {RANKS("nodes: 2\n    gpus: 4", "distill"), 8, 4, 2},
                {RANKS("nodes: 2\n    ranks: 6", "distill"), 6, 0, 2},
                {RANKS("nodes: 2", "prune --macs 0.5 --distill lr=1e-3"), 2, 0, 2},
                {RANKS("ranks: 1", "quantize"), 1, 0, 1},
                {"latency: false\n" RANKS("ranks: 2", "quantize"), 2, 0, 1},
                {STEP("quantize"), 1, 0, 1}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (zoo_case_read(z, good[i].text) != PARE_OK) fail_msg("%s", z->ctx.message);
        const pare_zoo_variant *v = &z->zoo->variants[0];
        assert_int_equal(v->ranks, good[i].ranks);
        assert_int_equal(v->gpus, good[i].gpus);
        assert_int_equal(v->nodes, good[i].nodes);
        assert_null(z->zoo->launcher);
    }
}

static void each_fault_is_one_message_with_its_line(void **state)
{
    zoo_case *z = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char place[128];
        snprintf(place, sizeof place, "%s:%d: ", z->path, bad[i].line);
        pare_status st = zoo_case_read(z, bad[i].text);
        if (st == PARE_INPUT && !strncmp(z->ctx.message, place, strlen(place)) &&
            strstr(z->ctx.message, bad[i].says))
            continue;
        fail_msg("row %zu gave %s '%s', expected line %d, '%s'", i, pare_status_text(st),
                 z->ctx.message, bad[i].line, bad[i].says);
    }
}

static void a_file_that_is_none_is_said(void **state)
{
    zoo_case *z = *state;
    char path[100];
    assert_int_equal(zoo_case_read(z, MODELS DATA VARIANTS), PARE_OK);
    snprintf(path, sizeof path, "%s/none.yaml", z->folder);
    assert_int_equal(pare_zoo_read(&z->arena, &z->zoo, path), PARE_IO);
    assert_non_null(strstr(z->ctx.message, "none.yaml: No such file"));
    pare_ctx_clear(&z->ctx);
    assert_int_equal(pare_zoo_read(&z->arena, &z->zoo, z->folder), PARE_IO);
    assert_non_null(strstr(z->ctx.message, "Is a directory"));
}

static void a_file_too_large_is_refused(void **state)
{
    zoo_case *z = *state;
    const size_t bytes = 10 << 20;
    char *text = malloc(bytes);
    memset(text, '#', bytes);
    assert_int_equal(zoo_case_read_bytes(z, text, bytes), PARE_INPUT);
    assert_non_null(strstr(z->ctx.message, "is larger than 4 MiB"));
    memset(text, '[', bytes); /* 4 MiB of nesting */
    assert_int_equal(zoo_case_read_bytes(z, text, 4 << 20), PARE_INPUT);
    assert_non_null(strstr(z->ctx.message, ":1: is nested deeper than 8 levels"));
    free(text);
}

/* Cut at every byte: a status, and on failure a message that names the file. */
static void a_file_cut_anywhere_is_refused_or_read(void **state)
{
    zoo_case *z = *state;
    for (size_t n = 0; n < sizeof whole; n++) {
        pare_status st = zoo_case_read_bytes(z, whole, n);
        if (st != PARE_OK) assert_int_equal(strncmp(z->ctx.message, z->path, strlen(z->path)), 0);
        pare_arena_free(&z->arena);
        pare_arena_init(&z->arena, &z->ctx);
    }
}

static void every_allocation_may_fail(void **state)
{
    zoo_case *z = *state;
    assert_int_equal(zoo_case_read(z, whole), PARE_OK);
    pare_status st = PARE_MEMORY;
    long n = 0;
    for (; st != PARE_OK; n++) {
        pare_arena_free(&z->arena);
        pare_arena_init(&z->arena, &z->ctx);
        pare_ctx_clear(&z->ctx);
        z->ctx.fail_after = n;
        st = pare_zoo_read(&z->arena, &z->zoo, z->path);
        z->ctx.fail_after = -1;
        if (st != PARE_OK && (st != PARE_MEMORY || !z->ctx.message[0]))
            fail_msg("allocation %ld gave %s '%s'", n, pare_status_text(st), z->ctx.message);
        assert_true(n < 2000);
    }
    assert_true(n > 2);
    assert_int_equal(z->zoo->model_count, 3);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, zoo_case_open, zoo_case_close)
    const struct CMUnitTest tests[] = {
        TEST(all_keys_are_read),
        TEST(steps_are_read_with_the_commands_table),
        TEST(what_is_left_out_has_its_default),
        TEST(each_fault_is_one_message_with_its_line),
        TEST(a_file_that_is_none_is_said),
        TEST(ranks_are_read),
        TEST(a_file_too_large_is_refused),
        TEST(a_file_cut_anywhere_is_refused_or_read),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

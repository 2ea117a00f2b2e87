/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* Two kernels that do the same; each trial is counted, and the second takes a millisecond. */
static int trials;

static pare_status run_quick(const pare_call *c)
{
    (void)c;
    trials++;
    return PARE_OK;
}

static pare_status run_slow(const pare_call *c)
{
    (void)c;
    trials++;
    usleep(1000);
    return PARE_OK;
}

static bool never(const pare_prep *p)
{
    (void)p;
    return false;
}

static const pare_kernel unable = {.name = "unable", .can = never, .run = run_quick};
static const pare_kernel slow = {.name = "slow", .run = run_slow};
static const pare_kernel quick = {.name = "quick", .run = run_quick};
static const pare_kernel *const list[] = {&unable, &slow, &quick, NULL};

typedef struct fixture {
    pare_ctx ctx;
    pare_model *model;
    pare_view in, out;
    pare_prep prep;
    char folder[32], file[64];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pare_value *x, *y;
    pare_node *node;
    pare_ctx_init(&f->ctx);
    if (pare_model_new(&f->ctx, &f->model, "tune.onnx") != PARE_OK ||
        pare_value_new(f->model->graph, &x, "x") != PARE_OK ||
        pare_value_new(f->model->graph, &y, "y") != PARE_OK ||
        pare_node_new(f->model->graph, &node, 0, "Relu", "", "r", &x, 1, &y, 1) != PARE_OK)
        return 1;
    pare_view_set(&f->in, PARE_f32, &(pare_shape){.rank = 1, .dim = {4}}, false);
    f->out = f->in;
    f->prep = (pare_prep){.ctx = &f->ctx, .node = node, .in = &f->in, .out = &f->out,
                          .in_count = 1, .out_count = 1, .threads = 1, .share = -1};
    strcpy(f->folder, "/tmp/pare-tune-XXXXXX");
    if (!mkdtemp(f->folder)) return 1;
    snprintf(f->file, sizeof f->file, "%s/timing.json", f->folder);
    trials = 0;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    unlink(f->file);
    rmdir(f->folder);
    pare_model_free(f->model);
    free(f);
    return 0;
}

static const pare_kernel *choose(fixture *f)
{
    pare_tuner *tuner;
    const pare_kernel *chosen;
    pare_plan_options options = {.tune = true, .cache_dir = f->folder};
    assert_int_equal(pare_tuner_open(&f->ctx, &tuner, &options), PARE_OK);
    assert_int_equal(pare_tuner_choose(tuner, &f->prep, list, &chosen), PARE_OK);
    assert_int_equal(pare_tuner_close(tuner), PARE_OK);
    return chosen;
}

static void the_stopwatch_decides_once(void **state)
{
    fixture *f = *state;
    assert_string_equal(choose(f)->name, "quick");
    assert_true(trials > 0);
    trials = 0;
    assert_string_equal(choose(f)->name, "quick");
    assert_int_equal(trials, 0);
}

static void the_file_is_an_input_and_its_key_holds_the_shape(void **state)
{
    fixture *f = *state;
    char text[256] = "";
    choose(f);
    FILE *file = fopen(f->file, "r+");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    char *word = strstr(text, "\"quick\"");
    assert_non_null(word);
    memcpy(word, "\"slow\" ", 7);
    rewind(file);
    fwrite(text, 1, strlen(text), file);
    fclose(file);
    trials = 0;
    assert_string_equal(choose(f)->name, "slow");
    f->in.dim[0] = f->out.dim[0] = 5;
    assert_string_equal(choose(f)->name, "quick");
    assert_true(trials > 0);
}

/* A cut or foreign cache is measured anew, and said. */
static void a_damaged_file_costs_only_time(void **state)
{
    fixture *f = *state;
    FILE *file = fopen(f->file, "w");
    fputs("{\"a\": ", file);
    fclose(file);
    assert_string_equal(choose(f)->name, "quick");
    assert_string_equal(f->ctx.message, "");
    trials = 0;
    choose(f);
    assert_int_equal(trials, 0);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(the_stopwatch_decides_once),
        WITH_FOLDER(the_file_is_an_input_and_its_key_holds_the_shape),
        WITH_FOLDER(a_damaged_file_costs_only_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

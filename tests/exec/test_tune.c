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
static bool timing = true; /* may the tuner use the stopwatch? */

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

/* Its first run takes longer, as where pages are touched for the first time. */
static int late_runs;

static pare_status run_late(const pare_call *c)
{
    (void)c;
    if (!late_runs++) usleep(500);
    return PARE_OK;
}

static pare_status run_short(const pare_call *c)
{
    (void)c;
    usleep(100);
    return PARE_OK;
}

/* Kernels on a machine whose pace drops after some runs, by so much that the second's slow runs
   take longer than the first's quick ones. */
static int paced_runs;

static void paced(useconds_t us) { usleep(paced_runs++ < 4 ? us : 2 * us); }

static pare_status run_paced_slow(const pare_call *c)
{
    (void)c;
    paced(4000);
    return PARE_OK;
}

static pare_status run_paced_quick(const pare_call *c)
{
    (void)c;
    paced(2800);
    return PARE_OK;
}

static const pare_kernel unable = {.name = "unable", .can = never, .run = run_quick};
static const pare_kernel slow = {.name = "slow", .run = run_slow};
static const pare_kernel quick = {.name = "quick", .run = run_quick};
static const pare_kernel same = {.name = "same", .run = run_slow};
static const pare_kernel brief = {.name = "brief", .run = run_short};
static const pare_kernel late = {.name = "late", .run = run_late};
static const pare_kernel paced_slow = {.name = "paced slow", .run = run_paced_slow};
static const pare_kernel paced_quick = {.name = "paced quick", .run = run_paced_quick};
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
    f->prep = (pare_prep){.ctx = &f->ctx,
                          .node = node,
                          .in = &f->in,
                          .out = &f->out,
                          .in_count = 1,
                          .out_count = 1,
                          .threads = 1,
                          .share = -1};
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

static const pare_kernel *choose_of(fixture *f, const pare_kernel *const *kernels)
{
    pare_tuner *tuner;
    const pare_kernel *chosen;
    pare_plan_options options = {.tune = timing, .cache_dir = f->folder};
    assert_int_equal(pare_tuner_open(&f->ctx, &tuner, &options), PARE_OK);
    assert_int_equal(pare_tuner_choose(tuner, &f->prep, kernels, &chosen), PARE_OK);
    assert_int_equal(pare_tuner_close(tuner), PARE_OK);
    return chosen;
}

static const pare_kernel *choose(fixture *f) { return choose_of(f, list); }

/* How many of 10 choices, each for a shape of its own, fall on the kernel; a machine that others
   share may disturb some. */
static int chosen_of_ten(fixture *f, const pare_kernel *const *kernels, const char *name)
{
    int count = 0;
    for (int i = 0; i < 10; i++) {
        f->in.dim[0] = f->out.dim[0] = 10 + i;
        late_runs = paced_runs = 0;
        count += !strcmp(choose_of(f, kernels)->name, name);
    }
    return count;
}

static void a_first_run_that_takes_long_decides_nothing(void **state)
{
    static const pare_kernel *const kernels[] = {&brief, &late, NULL};
    assert_true(chosen_of_ten(*state, kernels, "late") >= 3);
}

static void of_equals_the_first_serves(void **state)
{
    static const pare_kernel *const kernels[] = {&slow, &same, NULL};
    static const pare_kernel *const turned[] = {&same, &slow, NULL};
    assert_true(chosen_of_ten(*state, kernels, "slow") >= 7);
    assert_true(chosen_of_ten(*state, turned, "same") >= 7);
}

static void kernels_that_are_close_run_in_turn(void **state)
{
    static const pare_kernel *const kernels[] = {&paced_slow, &paced_quick, NULL};
    assert_true(chosen_of_ten(*state, kernels, "paced quick") >= 7);
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
    char text[512] = "";
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

/* A cut or foreign cache is measured again, and said. */
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

static void file_write(const fixture *f, const char *text, size_t bytes)
{
    FILE *file = fopen(f->file, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static size_t file_read(const fixture *f, char *text, size_t size)
{
    FILE *file = fopen(f->file, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, size - 1, file);
    text[n] = 0;
    fclose(file);
    return n;
}

static int warnings;

static void count_warning(void *user, pare_log_level level, const char *line)
{
    (void)user;
    warnings += level == PARE_LOG_WARNING;
    if (level == PARE_LOG_WARNING) assert_non_null(strstr(line, "timing.json"));
}

/* Cut after every byte: said once, timed again, and whole again afterwards. */
static void a_file_cut_anywhere_is_rebuilt(void **state)
{
    fixture *f = *state;
    char whole[512], now[512];
    choose(f);
    size_t n = file_read(f, whole, sizeof whole), m = n;
    while (m && (whole[m - 1] == '\n' || whole[m - 1] == ' ')) m--;
    f->ctx.log = count_warning;
    for (size_t cut = 0; cut < m; cut++) {
        file_write(f, whole, cut);
        warnings = trials = 0;
        assert_string_equal(choose(f)->name, "quick");
        assert_int_equal(warnings, 1);
        assert_true(trials > 0);
        assert_int_equal(file_read(f, now, sizeof now), n);
        assert_memory_equal(now, whole, n);
    }
    warnings = 0;
    choose(f);
    assert_int_equal(warnings, 0);
}

static void other_versions_and_machines_are_said_once(void **state)
{
    fixture *f = *state;
    static const char older[] = "{\"pare_timing\": 0, \"machines\": {}}";
    static const char other[] = "{\"pare_timing\": 1, \"machines\": {\"abacus\": {\"k\": \"v\"}}}";
    char now[512];
    f->ctx.log = count_warning;
    file_write(f, older, sizeof older - 1);
    warnings = 0;
    assert_string_equal(choose(f)->name, "quick");
    assert_int_equal(warnings, 1);
    file_write(f, other, sizeof other - 1);
    warnings = 0;
    assert_string_equal(choose(f)->name, "quick");
    assert_int_equal(warnings, 1);
    file_read(f, now, sizeof now);
    assert_non_null(strstr(now, "\"abacus\"")); /* theirs is kept beside ours */
    trials = 0;
    choose(f);
    assert_int_equal(trials, 0);
}

/* Without the stopwatch the file is asked; the first kernel that can serves where it does not know.
 */
static void without_the_stopwatch_the_file_alone_decides(void **state)
{
    fixture *f = *state;
    timing = false;
    assert_string_equal(choose(f)->name, "slow");
    assert_int_equal(access(f->file, F_OK), -1);
    timing = true;
    choose(f);
    timing = false;
    trials = 0;
    assert_string_equal(choose(f)->name, "quick");
    f->in.dim[0] = f->out.dim[0] = 7;
    assert_string_equal(choose(f)->name, "slow");
    assert_int_equal(trials, 0);
    timing = true;
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(the_stopwatch_decides_once),
        WITH_FOLDER(a_first_run_that_takes_long_decides_nothing),
        WITH_FOLDER(of_equals_the_first_serves),
        WITH_FOLDER(kernels_that_are_close_run_in_turn),
        WITH_FOLDER(the_file_is_an_input_and_its_key_holds_the_shape),
        WITH_FOLDER(a_damaged_file_costs_only_time),
        WITH_FOLDER(a_file_cut_anywhere_is_rebuilt),
        WITH_FOLDER(other_versions_and_machines_are_said_once),
        WITH_FOLDER(without_the_stopwatch_the_file_alone_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

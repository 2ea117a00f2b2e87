/* SPDX-License-Identifier: Apache-2.0 */
/* Times of steps by shape: what is asked for, what is kept, and files of no use. The stopwatch is a
   function that counts. */
#include "runtime/exec/step_times.h"
#include "tests/passes/graph_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct fixture {
    graph_case g;
    pare_plan *plan;
    pare_step_times_options options;
    int asked;
    bool fails;
    char folder[32], file[64];
} fixture;

/* A time that says which shape was asked for. */
static pare_status count(void *user, const pare_node *step, const pare_shape *in, double *seconds)
{
    fixture *f = user;
    f->asked++;
    *seconds = (double)in[0].dim[1] + 1000 * (double)in[1].dim[0];
    return f->fails ? PARE_FAIL_NODE(step, DEVICE, "no time") : PARE_OK;
}

/* Depthwise, 4 channels, fused with its Relu. */
static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    float w[36] = {0};
    if (!f) return 1;
    graph_open(&f->g, 17);
    graph_input(&f->g, "x", PARE_f32, 4, (int64_t[]){1, 4, 5, 5});
    graph_floats(&f->g, "w", 4, (int64_t[]){4, 1, 3, 3}, w);
    pare_node *conv = graph_node(&f->g, "Conv", "x w", "a");
    assert_int_equal(pare_node_set_int(conv, "group", 4), PARE_OK);
    graph_node(&f->g, "Relu", "a", "y");
    graph_output(&f->g, "y");
    strcpy(f->folder, "/tmp/pare-steps-XXXXXX");
    if (!mkdtemp(f->folder)) return 1;
    snprintf(f->file, sizeof f->file, "%s/steps.json", f->folder);
    assert_int_equal(
        pare_plan_new(&f->g.ctx, &f->plan, f->g.model, NULL, 0, &(pare_plan_options){.threads = 1}),
        PARE_OK);
    f->options = (pare_step_times_options){
        .threads = 1, .cache_dir = f->folder, .measure = count, .measure_user = f};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    unlink(f->file);
    rmdir(f->folder);
    pare_plan_free(f->plan);
    graph_close(&f->g);
    free(f);
    return 0;
}

/* The convolution; copies into another memory order may be before it. */
static const pare_node *conv_of(const fixture *f)
{
    for (int i = 0; i < pare_plan_step_count(f->plan); i++) {
        pare_step_info info;
        pare_plan_step(f->plan, i, &info);
        if (info.macs > 0) return pare_plan_node(f->plan, i);
    }
    fail_msg("no step with multiply-adds");
    return NULL;
}

static pare_status find_in(const fixture *f, pare_step_times *t, int64_t channels, double *seconds)
{
    const pare_node *conv = conv_of(f);
    pare_shape in[4];
    for (int i = 0; i < conv->in_count; i++)
        if (conv->in[i]) in[i] = conv->in[i]->shape;
    in[0].dim[1] = in[1].dim[0] = channels;
    return pare_step_times_find(t, conv, in, seconds);
}

static pare_step_times *open_times(fixture *f)
{
    pare_step_times *t;
    assert_int_equal(pare_step_times_open(&f->g.ctx, &t, &f->options), PARE_OK);
    return t;
}

static void expect(fixture *f, pare_step_times *t, int64_t channels, int asked)
{
    double seconds;
    f->asked = 0;
    assert_int_equal(find_in(f, t, channels, &seconds), PARE_OK);
    assert_true(seconds == (double)(channels + 1000 * channels));
    assert_int_equal(f->asked, asked);
}

static void write_file(const fixture *f, const char *text)
{
    FILE *file = fopen(f->file, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static void read_file(const fixture *f, char *text, size_t size)
{
    FILE *file = fopen(f->file, "r");
    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static void each_shape_is_measured_once(void **state)
{
    fixture *f = *state;
    pare_step_times *t = open_times(f);
    expect(f, t, 4, 1);
    expect(f, t, 3, 1);
    expect(f, t, 4, 0);
    assert_int_equal(pare_step_times_measured(t), 2);
    pare_step_times_close(t);
    t = open_times(f);
    expect(f, t, 3, 0);
    expect(f, t, 2, 1);
    pare_step_times_close(t);
}

static void threads_have_times_of_their_own(void **state)
{
    fixture *f = *state;
    pare_step_times *t = open_times(f);
    expect(f, t, 4, 1);
    pare_step_times_close(t);
    f->options.threads = 2;
    t = open_times(f);
    expect(f, t, 4, 1);
    pare_step_times_close(t);
}

static void writers_keep_what_others_wrote(void **state)
{
    fixture *f = *state;
    pare_step_times *a = open_times(f), *b = open_times(f);
    expect(f, a, 3, 1);
    expect(f, b, 2, 1);
    pare_step_times_close(a);
    pare_step_times_close(b);
    a = open_times(f);
    expect(f, a, 3, 0);
    expect(f, a, 2, 0);
    pare_step_times_close(a);
}

/* Cut anywhere, of another format, or with a table that is none: measured again, and written whole.
 */
static void a_damaged_file_costs_only_time(void **state)
{
    fixture *f = *state;
    char whole[4096], cut[4096];
    static const char *const foreign[] = {"[]", "{}", "{\"pare_timing\": 1, \"machines\": {}}",
                                          "{\"pare_steps\": 2, \"machines\": {}}",
                                          "{\"pare_steps\": 1, \"machines\": 3}"};
    pare_step_times *t = open_times(f);
    expect(f, t, 4, 1);
    pare_step_times_close(t);
    read_file(f, whole, sizeof whole);
    const size_t n = strlen(whole);
    for (size_t at = 0; at + 2 < n; at += 7) {
        memcpy(cut, whole, at);
        cut[at] = 0;
        write_file(f, cut);
        t = open_times(f);
        expect(f, t, 4, 1);
        pare_step_times_close(t);
        assert_string_equal(f->g.ctx.message, "");
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        write_file(f, foreign[i]);
        t = open_times(f);
        expect(f, t, 4, 1);
        pare_step_times_close(t);
        t = open_times(f);
        expect(f, t, 4, 0);
        pare_step_times_close(t);
    }
}

/* A time in the file that can be none is measured again. */
static void numbers_that_are_no_time(void **state)
{
    fixture *f = *state;
    static const char *const wrong[] = {"-1.00", "0.000", "\"4s\"", "null ", "[4.0]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[4096];
        unlink(f->file);
        pare_step_times *t = open_times(f);
        expect(f, t, 4, 1);
        pare_step_times_close(t);
        read_file(f, text, sizeof text);
        char *number = strstr(text, "4004");
        assert_non_null(number);
        char *end = number + strspn(number, "0123456789.");
        char after[4096];
        strcpy(after, end);
        sprintf(number, "%s%s", wrong[i], after);
        write_file(f, text);
        t = open_times(f);
        expect(f, t, 4, 1);
        pare_step_times_close(t);
    }
}

static void a_failure_is_kept_nowhere(void **state)
{
    fixture *f = *state;
    double seconds;
    pare_step_times *t = open_times(f);
    f->fails = true;
    assert_int_equal(find_in(f, t, 4, &seconds), PARE_DEVICE);
    pare_ctx_clear(&f->g.ctx);
    f->fails = false;
    expect(f, t, 4, 1);
    pare_step_times_close(t);
}

/* Without a function of the caller's: the step is compiled and runs, its groups follow. */
static void a_step_runs_alone(void **state)
{
    fixture *f = *state;
    double seconds;
    f->options.measure = NULL;
    f->options.cache_dir = NULL;
    pare_step_times *t = open_times(f);
    for (int64_t channels = 1; channels <= 9; channels += 4) {
        seconds = 0;
        if (find_in(f, t, channels, &seconds) != PARE_OK) fail_msg("%s", f->g.ctx.message);
        assert_true(seconds > 0 && seconds < 1e9);
    }
    assert_int_equal(pare_step_times_measured(t), 3);
    pare_step_times_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_shape_is_measured_once, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_have_times_of_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(writers_keep_what_others_wrote, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_costs_only_time, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_that_are_no_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failure_is_kept_nowhere, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_runs_alone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

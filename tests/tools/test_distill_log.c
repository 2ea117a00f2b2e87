/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a training, and TensorBoard's file, where the disk is full: from a limit on the size
   of files. */
#include "tests/warnings.h"
#include "tools/distill/log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/file_limit.h"

static pare_ctx ctx;
static const pare_common common = {.quiet = true};
static pare_tool tool = {.ctx = &ctx, .common = &common};
static pare_distill_log train_log;
static char path[64], folder[64];

static int begin(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    pare_ctx_init(&ctx);
    hear_warnings(&ctx);
    snprintf(path, sizeof path, "/tmp/pare-log-%ld.jsonl", (long)getpid());
    pare_distill_log_open(&train_log, &tool, path, NULL);
    return 0;
}

static int begin_tensorboard(void **state)
{
    begin(state);
    strcpy(folder, "/tmp/pare-log-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    pare_distill_log_open(&train_log, &tool, NULL, folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    limit(RLIM_INFINITY);
    (void)(pare_distill_log_close(&train_log) == PARE_OK); /* a line that had failed may stay */
    return unlink(path);
}

static int end_tensorboard(void **state)
{
    char command[128];
    (void)state;
    limit(RLIM_INFINITY);
    assert_int_equal(pare_distill_log_close(&train_log), PARE_OK);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static pare_status tell(int64_t step)
{
    static const float values[64] = {1};
    static const pare_distill_tensor tensor = {"w", values, values, 64};
    const pare_distill_event event = {.step = step,
                                      .steps = 100,
                                      .samples = step,
                                      .learning_rate = 0.5,
                                      .loss = 0.25,
                                      .norm = 1,
                                      .tensor = &tensor,
                                      .tensor_count = 1,
                                      .gradient_factor = 1};
    return pare_distill_log_event(&train_log, &event);
}

/* Lines of the file; it ends with a whole one. */
static int lines(void)
{
    char text[4096];
    int count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t i = 0; i < n; i++) count += text[i] == '\n';
    assert_true(!n || text[n - 1] == '\n');
    return count;
}

static void a_full_disk_ends_the_log_alone(void **state)
{
    (void)state;
    for (int64_t step = 0; step < 3; step++) assert_int_equal(tell(step), PARE_OK);
    limit((rlim_t)train_log.good + 10);
    for (int64_t step = 3; step < 6; step++) assert_int_equal(tell(step), PARE_OK);
    limit(RLIM_INFINITY);
    assert_int_equal(tell(6), PARE_OK); /* no line after a gap */
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, path));
    assert_non_null(strstr(warning, "training continues, the log ends before step 3"));
    assert_string_equal(ctx.message, "");
    assert_int_equal(lines(), 3);
}

/* Nothing is lost yet. */
static void a_log_that_cannot_begin_is_refused(void **state)
{
    (void)state;
    limit(5);
    assert_int_equal(tell(0), PARE_IO);
    assert_non_null(strstr(ctx.message, path));
    assert_int_equal(warnings, 0);
}

/* Bytes of the only file in the folder. */
static off_t bytes_there(void)
{
    struct stat info;
    assert_non_null(train_log.tensorboard.file);
    assert_int_equal(stat(pare_tfevents_path(train_log.tensorboard.file), &info), 0);
    return info.st_size;
}

static void a_full_disk_ends_tensorboards_file_alone(void **state)
{
    (void)state;
    for (int64_t step = 0; step < 3; step++) assert_int_equal(tell(step), PARE_OK);
    const off_t good = bytes_there();
    limit((rlim_t)good + 10);
    for (int64_t step = 3; step < 6; step++) assert_int_equal(tell(step), PARE_OK);
    limit(RLIM_INFINITY);
    assert_int_equal(tell(6), PARE_OK);
    assert_null(train_log.tensorboard.file);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, folder));
    assert_non_null(strstr(warning, "training continues, TensorBoard's file ends in step 3"));
    assert_string_equal(ctx.message, "");
}

static void a_file_of_tensorboard_that_cannot_begin_is_refused(void **state)
{
    (void)state;
    limit(5);
    assert_int_equal(tell(0), PARE_IO);
    assert_non_null(strstr(ctx.message, folder));
    assert_int_equal(warnings, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_ends_the_log_alone, begin, end),
        cmocka_unit_test_setup_teardown(a_log_that_cannot_begin_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_tensorboards_file_alone, begin_tensorboard,
                                        end_tensorboard),
        cmocka_unit_test_setup_teardown(a_file_of_tensorboard_that_cannot_begin_is_refused,
                                        begin_tensorboard, end_tensorboard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

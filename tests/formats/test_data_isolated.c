/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets opened in a child process: the same data, the same refusals, and one message where the
   child dies. */
#include "tests/formats/hdf5_files.h"

#include <signal.h>
#include <sys/wait.h>

/* The first sample of the file at `path`, opened apart or here; fails the test where it cannot be.
 */
static pare_hash hash_of(bool apart, float *first)
{
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    pare_data *d;
    pare_reader *r;
    pare_batch batch;
    const int64_t all[6] = {0, 1, 2, 3, 4, 5};
    pare_ctx_clear(&ctx);
    pare_status st = (apart ? pare_data_open_isolated : pare_data_open)(&ctx, &d, path, &in, 1);
    if (st != PARE_OK) fail_msg("%s", ctx.message);
    assert_int_equal(pare_data_count(d), 6);
    assert_int_equal(pare_reader_open(&ctx, &r, d, all, 6, 4, 2), PARE_OK);
    assert_int_equal(pare_reader_next(r, &batch), PARE_OK);
    memcpy(first, batch.input[0], 4 * sizeof *first);
    assert_int_equal(pare_reader_next(r, &batch), PARE_OK);
    pare_hash hash = pare_reader_hash(r);
    pare_reader_close(r);
    pare_data_close(d);
    return hash;
}

static void test_same_data(void **state)
{
    (void)state;
    const make kinds[] = {
        {H5T_IEEE_F32LE, 2, {6, 4}, {2, 4}, .deflate = true, .shuffle = true, .name = "/input"},
        {H5T_IEEE_F32LE, 2, {6, 4}, {0}, .name = "/input"},
        {H5T_IEEE_F32BE, 2, {6, 4}, {4, 4}, .name = "/only"}, /* read by H5Dread, by the child */
        {H5T_STD_U8LE, 2, {6, 4}, {2, 4}, .fletcher = true, .name = "/input"},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        float here[4], apart[4];
        write_file(&kinds[k]);
        pare_hash a = hash_of(false, here), b = hash_of(true, apart);
        assert_true(a.low == b.low && a.high == b.high);
        assert_memory_equal(here, apart, sizeof here);
        assert_true(fabsf(apart[1] - (kinds[k].type == H5T_STD_U8LE ? 37 / 255.0f : 37)) < 1e-6f);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static void refused_apart(const pare_data_input *in, const char *words)
{
    pare_data *d = NULL;
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_data_open_isolated(&ctx, &d, path, in, 1), PARE_INPUT);
    assert_non_null(strstr(ctx.message, words));
    assert_non_null(strstr(ctx.message, path));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_same_refusals(void **state)
{
    (void)state;
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    make a = {H5T_IEEE_F32LE, 2, {6, 4}, {2, 4}, .name = "/a"}, b = a;
    b.name = "/b";
    hid_t file = file_new(false);
    dataset_fill(file, &a);
    dataset_fill(file, &b);
    H5Fclose(file);
    refused_apart(&in, "the file has /a, /b; choose one with --map input=/dataset");
    in.dataset = "/c";
    refused_apart(&in, "dataset '/c'");
    in.dataset = "/a";
    in.shape.dim[1] = 5;
    refused_apart(&in, "takes [?,5]");
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    in.dataset = name;
    refused_apart(&in, "too long");
    assert_int_equal(truncate(path, 1500), 0);
    in.dataset = NULL;
    refused_apart(&in, "cut off or damaged");
}

/* The process id of the only child. */
static pid_t child_of_this(void)
{
    char name[64];
    int pid = 0;
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(name, "r");
    if (!f) return 0;
    if (fscanf(f, "%d", &pid) != 1) pid = 0;
    fclose(f);
    return pid;
}

static void child_dies_by(int number, pare_status status, const char *words)
{
    const make m = {H5T_IEEE_F32BE, 2, {6, 4}, {4, 4}, .name = "/input"};
    pare_data_input in = wants(PARE_f32, 2, 4, 0, 0);
    pare_data *d;
    pare_reader *r;
    const int64_t all[6] = {0, 1, 2, 3, 4, 5};
    write_file(&m);
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_data_open_isolated(&ctx, &d, path, &in, 1), PARE_OK);
    pid_t child = child_of_this();
    if (!child) skip(); /* a kernel that does not list children */
    assert_int_equal(kill(child, number), 0);
    assert_int_equal(pare_reader_open(&ctx, &r, d, all, 6, 4, 2), status);
    assert_non_null(strstr(ctx.message, words));
    assert_non_null(strstr(ctx.message, path));
    pare_data_close(d);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_child_dies(void **state)
{
    (void)state;
    child_dies_by(SIGBUS, PARE_INPUT, "libhdf5 crashed on its metadata: Bus error");
    child_dies_by(SIGKILL, PARE_IO, "was ended from outside: Killed; try again");
}

/* A file whose metadata crash libhdf5 1.10.8; other releases refuse or read it. */
static void test_hostile_file(void **state)
{
    (void)state;
    pare_data_input in = {.name = "input", .dtype = PARE_f32, .shape = {.rank = 4}};
    pare_data *d = NULL;
    for (int i = 0; i < 4; i++) in.shape.dim[i] = i < 1 ? -1 : i < 2 ? 1 : 28;
    pare_ctx_clear(&ctx);
    pare_status st = pare_data_open_isolated(&ctx, &d, "tests/cli/hostile.h5", &in, 1);
    if (st == PARE_OK) pare_data_close(d);
    assert_true(st == PARE_OK || (st == PARE_INPUT && strstr(ctx.message, "hostile.h5: ")));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_data),
        cmocka_unit_test(test_same_refusals),
        cmocka_unit_test(test_child_dies),
        cmocka_unit_test(test_hostile_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

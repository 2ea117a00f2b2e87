/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/checkpoint.h"
#include "formats/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { WEIGHTS = 1000 };

/* A small run: what it saves, and what it is known by. */
typedef struct run {
    pare_ctx ctx;
    char folder[64], path[96];
    float weight[WEIGHTS];
    int64_t step;
    pare_checkpoint_fact fact[3];
    pare_checkpoint_blob blob[4];
    pare_checkpoint checkpoint;
} run;

static void fill(run *r, int64_t step)
{
    for (int i = 0; i < WEIGHTS; i++) r->weight[i] = (float)(step * 1000 + i);
    r->step = step;
}

static int setup(void **state)
{
    run *r = calloc(1, sizeof *r);
    pare_ctx_init(&r->ctx);
    strcpy(r->folder, "/tmp/pare-checkpoint-XXXXXX");
    if (!mkdtemp(r->folder)) return -1;
    snprintf(r->path, sizeof r->path, "%s/checkpoint.pare", r->folder);
    r->fact[0] = (pare_checkpoint_fact){"student", "0123"};
    r->fact[1] = (pare_checkpoint_fact){"options", "rate 0.001 seed 1"};
    r->fact[2] = (pare_checkpoint_fact){"ISA", ""};
    r->blob[0] = (pare_checkpoint_blob){"weight/a", r->weight, sizeof r->weight - 8};
    r->blob[1] = (pare_checkpoint_blob){"none", NULL, 0};
    r->blob[2] = (pare_checkpoint_blob){"weight/b", r->weight + WEIGHTS - 2, 8};
    r->blob[3] = (pare_checkpoint_blob){"step", &r->step, sizeof r->step};
    r->checkpoint = (pare_checkpoint){r->fact, 3, r->blob, 4};
    fill(r, 1);
    *state = r;
    return 0;
}

static int count_entries(const char *folder)
{
    int n = -2;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static int teardown(void **state)
{
    run *r = *state;
    int failed = (unlink(r->path) && !access(r->path, F_OK)) || rmdir(r->folder);
    free(r);
    return failed; /* also where something is beside the checkpoint */
}

static void write_now(run *r)
{
    if (pare_checkpoint_write(&r->ctx, r->path, &r->checkpoint) != PARE_OK)
        fail_msg("%s", r->ctx.message);
}

/* The file holds the run as it was at this step. */
static void assert_holds(run *r, int64_t step)
{
    static run want;
    fill(&want, step);
    fill(r, 99);
    pare_ctx_clear(&r->ctx);
    if (pare_checkpoint_read(&r->ctx, r->path, &r->checkpoint) != PARE_OK)
        fail_msg("%s", r->ctx.message);
    assert_memory_equal(r->weight, want.weight, sizeof r->weight);
    assert_int_equal(r->step, step);
}

/* Reading fails with these words, and nothing of the run is touched. */
static void assert_refused(run *r, const char *words)
{
    static run want;
    fill(&want, 99);
    fill(r, 99);
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_checkpoint_read(&r->ctx, r->path, &r->checkpoint), PARE_INPUT);
    if (!strstr(r->ctx.message, words)) fail_msg("'%s' in: %s", words, r->ctx.message);
    assert_non_null(strstr(r->ctx.message, r->path));
    assert_memory_equal(r->weight, want.weight, sizeof r->weight);
    assert_int_equal(r->step, 99);
}

static uint8_t *slurp(run *r, size_t *size)
{
    pare_map map;
    assert_int_equal(pare_map_open(&r->ctx, &map, r->path), PARE_OK);
    uint8_t *copy = malloc(map.size);
    memcpy(copy, map.data, *size = map.size);
    pare_map_close(&map);
    return copy;
}

static void spit(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void it_goes_there_and_back(void **state)
{
    run *r = *state;
    size_t size, again;
    write_now(r);
    uint8_t *one = slurp(r, &size);
    assert_holds(r, 1);
    write_now(r);
    uint8_t *two = slurp(r, &again);
    assert_int_equal(size, again); /* same content, same bytes */
    assert_memory_equal(one, two, size);
    fill(r, 2);
    write_now(r);
    assert_holds(r, 2);
    assert_int_equal(count_entries(r->folder), 1);
    free(one);
    free(two);
}

/* Blobs in pieces of so many bytes. */
static pare_status write_pieces(run *r, size_t piece, pare_status status)
{
    pare_checkpoint_writer *w;
    const pare_status st = pare_checkpoint_begin(&r->ctx, &w, r->path, &r->checkpoint);
    if (st != PARE_OK) return st;
    for (int i = 0; i < r->checkpoint.blob_count; i++)
        for (size_t at = 0; at < r->blob[i].bytes; at += piece) {
            const size_t left = r->blob[i].bytes - at;
            pare_checkpoint_put(w, (const char *)r->blob[i].data + at, left < piece ? left : piece);
        }
    return pare_checkpoint_end(w, status);
}

static void pieces_make_the_same_file(void **state)
{
    run *r = *state;
    size_t size, again;
    write_now(r);
    uint8_t *one = slurp(r, &size);
    for (size_t piece = 1; piece < 5000; piece = 3 * piece + 1) {
        assert_int_equal(unlink(r->path), 0);
        assert_int_equal(write_pieces(r, piece, PARE_OK), PARE_OK);
        uint8_t *two = slurp(r, &again);
        assert_int_equal(size, again);
        assert_memory_equal(one, two, size);
        free(two);
    }
    free(one);
}

/* A caller that fails on its way leaves the file as it was, and its own message. */
static void a_failing_caller_writes_nothing(void **state)
{
    run *r = *state;
    write_now(r);
    fill(r, 2);
    const pare_status st = PARE_FAIL(&r->ctx, INPUT, "stopped half-way");
    assert_int_equal(write_pieces(r, 64, st), PARE_INPUT);
    assert_string_equal(r->ctx.message, "stopped half-way");
    assert_int_equal(count_entries(r->folder), 1);
    assert_holds(r, 1);
}

/* What is opened are the blobs' bytes in the file; nothing of the run is touched. */
static void blobs_are_read_in_the_file(void **state)
{
    run *r = *state;
    static run want;
    pare_map map;
    const uint8_t *blobs;
    write_now(r);
    fill(&want, 1);
    fill(r, 99);
    assert_int_equal(pare_checkpoint_open(&r->ctx, &map, &blobs, r->path, &r->checkpoint), PARE_OK);
    assert_int_equal(r->step, 99);
    assert_memory_equal(blobs, want.weight, r->blob[0].bytes);
    assert_ptr_equal(blobs + sizeof r->weight + sizeof r->step, map.data + map.size);
    pare_map_close(&map);
    r->fact[0].value = "another";
    assert_int_equal(pare_checkpoint_open(&r->ctx, &map, &blobs, r->path, &r->checkpoint),
                     PARE_INPUT);
}

static void other_runs_are_refused(void **state)
{
    run *r = *state;
    write_now(r);
    r->fact[1].value = "rate 0.01 seed 1";
    assert_refused(r, "belongs to another run: its options is rate 0.001 seed 1, this run's is "
                      "rate 0.01 seed 1");
    r->fact[1].value = "rate 0.001 seed 1 and more";
    assert_refused(r, "its options is");
    r->fact[1] = (pare_checkpoint_fact){"recipe", "rate 0.001 seed 1"};
    assert_refused(r, "options, this run's is recipe");
    r->fact[1] = (pare_checkpoint_fact){"options", "rate 0.001 seed 1"};
    r->checkpoint.fact_count = 2;
    assert_refused(r, "has 3 facts about it, this run has 2");
    r->checkpoint.fact_count = 3;
    r->blob[0].bytes -= 4;
    assert_refused(r, "its weight/a is 3992 bytes long, this run's is 3988");
    r->blob[0].bytes += 4;
    r->blob[0].name = "weight/c";
    assert_refused(r, "its next tensor is weight/a, this run's is weight/c");
    r->blob[0].name = "weight/a";
    r->checkpoint.blob_count = 3;
    assert_refused(r, "has 4 tensors, this run has 3");
    r->checkpoint.blob_count = 4;
    assert_holds(r, 1);
}

static void other_files_are_refused(void **state)
{
    run *r = *state;
    size_t size;
    write_now(r);
    uint8_t *file = slurp(r, &size);
    file[8] = 2;
    spit(r->path, file, size);
    assert_refused(r, "has version 2 of the format, this program reads version 1");
    spit(r->path, (const uint8_t *)"{\"step\": 1}", 11);
    assert_refused(r, "is no checkpoint");
    spit(r->path, (const uint8_t *)"", 0);
    assert_refused(r, "is no checkpoint");
    assert_int_equal(unlink(r->path), 0);
    pare_ctx_clear(&r->ctx);
    assert_int_equal(pare_checkpoint_read(&r->ctx, r->path, &r->checkpoint), PARE_IO);
    assert_non_null(strstr(r->ctx.message, "No such file"));
    free(file);
}

/* Cut at every byte, longer by one, and every byte changed in turn. */
static void damage_is_found(void **state)
{
    run *r = *state;
    size_t size;
    write_now(r);
    uint8_t *file = slurp(r, &size), memory[sizeof r->weight];
    memcpy(memory, r->weight, sizeof memory);
    for (size_t i = 0; i < 2 * size + 1; i++) {
        bool cut = i < size;
        size_t at = cut ? i : i - size, bytes = cut ? i : size;
        uint8_t *damaged = malloc(bytes + 1);
        memcpy(damaged, file, bytes);
        damaged[bytes] = 7;
        if (at < bytes) damaged[at] ^= 0x10;
        if (at == size) bytes++; /* nothing changed, but longer */
        pare_ctx_clear(&r->ctx);
        damaged = realloc(damaged, bytes ? bytes : 1); /* so that reading beyond is seen */
        assert_int_equal(pare_checkpoint_parse(&r->ctx, r->path, damaged, bytes, &r->checkpoint),
                         PARE_INPUT);
        assert_non_null(strstr(r->ctx.message, r->path));
        if (cut && i >= 8 && !strstr(r->ctx.message, "is cut")) fail_msg("%s", r->ctx.message);
        free(damaged);
    }
    assert_memory_equal(memory, r->weight, sizeof memory);
    free(file);
}

static void every_allocation_may_fail(void **state)
{
    run *r = *state;
    pare_status st = PARE_MEMORY;
    write_now(r);
    fill(r, 2);
    for (long n = 0; st != PARE_OK; n++) {
        assert_true(n < 50);
        pare_ctx_clear(&r->ctx);
        r->ctx.fail_after = n;
        st = pare_checkpoint_write(&r->ctx, r->path, &r->checkpoint);
        r->ctx.fail_after = -1;
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_string_not_equal(r->ctx.message, "");
        assert_int_equal(count_entries(r->folder), 1);
        assert_holds(r, 1);
        fill(r, 2);
    }
    assert_holds(r, 2);
}

/* A full disk at every size (the limit on a file's size fails write in the same way): the old
   checkpoint stays, nothing is beside it, and the run can continue and save later. */
static void a_full_disk_keeps_the_old_one(void **state)
{
    run *r = *state;
    struct rlimit old, small;
    size_t size;
    write_now(r);
    free(slurp(r, &size));
    fill(r, 2);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t most = 0; most < size; most += most < 300 ? 7 : 500) {
        small = (struct rlimit){most, old.rlim_max};
        pare_ctx_clear(&r->ctx);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        pare_status st = pare_checkpoint_write(&r->ctx, r->path, &r->checkpoint);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(st, PARE_IO);
        assert_non_null(strstr(r->ctx.message, r->path));
        assert_int_equal(count_entries(r->folder), 1);
        assert_holds(r, 1);
        fill(r, 2);
    }
    pare_ctx_clear(&r->ctx);
    write_now(r);
    assert_holds(r, 2);
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(pare_checkpoint_write(&r->ctx, "/dev/full", &r->checkpoint), PARE_IO);
        assert_non_null(strstr(r->ctx.message, "No space left on device"));
    }
}

/* A process killed at any moment leaves the old file or the new one. The child writes again and
   again and is killed at another time in each round; steps never go back. */
static void a_kill_leaves_a_whole_one(void **state)
{
    run *r = *state;
    int64_t last = 1;
    write_now(r);
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int64_t step = last;; step++) {
                fill(r, step);
                if (pare_checkpoint_write(&r->ctx, r->path, &r->checkpoint)) _exit(3);
            }
        }
        usleep(500 + (useconds_t)round * 700);
        kill(child, SIGKILL);
        int how;
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how));
        fill(r, 99);
        if (pare_checkpoint_read(&r->ctx, r->path, &r->checkpoint) != PARE_OK)
            fail_msg("%s", r->ctx.message);
        assert_true(r->step >= last);
        last = r->step;
        assert_holds(r, last);
    }
    char command[128]; /* of file systems without nameless files */
    snprintf(command, sizeof command, "rm -f %s/*.pare.*", r->folder);
    assert_int_equal(system(command), 0);
}

/* Asked to stop, one still saves. */
static void a_stop_is_saved(void **state)
{
    run *r = *state;
    volatile int stop = 1;
    r->ctx.interrupted = &stop;
    write_now(r);
    r->ctx.interrupted = NULL;
    assert_holds(r, 1);
}

static void bad_places_are_named(void **state)
{
    run *r = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/none/checkpoint.pare", r->folder);
    assert_int_equal(pare_checkpoint_write(&r->ctx, path, &r->checkpoint), PARE_IO);
    assert_non_null(strstr(r->ctx.message, path));
    assert_int_equal(count_entries(r->folder), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_goes_there_and_back),     TEST(other_runs_are_refused),
        TEST(other_files_are_refused),    TEST(damage_is_found),
        TEST(every_allocation_may_fail),  TEST(a_full_disk_keeps_the_old_one),
        TEST(a_kill_leaves_a_whole_one),  TEST(a_stop_is_saved),
        TEST(bad_places_are_named),       TEST(pieces_make_the_same_file),
        TEST(blobs_are_read_in_the_file), TEST(a_failing_caller_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

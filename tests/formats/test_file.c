/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/file.h"
#include "formats/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct place {
    pare_ctx ctx;
    char folder[64];
    char path[96]; /* folder/file */
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    pare_ctx_init(&p->ctx);
    strcpy(p->folder, "/tmp/pare-file-XXXXXX");
    if (!mkdtemp(p->folder)) return -1;
    snprintf(p->path, sizeof p->path, "%s/file", p->folder);
    *state = p;
    return 0;
}

/* Entries of the folder, apart from . and .. */
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
    place *p = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", p->folder);
    int failed = system(command);
    free(p);
    return failed;
}

static void assert_content(place *p, const char *text)
{
    pare_map map;
    assert_int_equal(pare_map_open(&p->ctx, &map, p->path), PARE_OK);
    assert_int_equal(map.size, strlen(text));
    assert_memory_equal(map.data, text, map.size);
    pare_map_close(&map);
}

static void content_appears_at_commit(void **state)
{
    place *p = *state;
    pare_output *o;
    assert_int_equal(pare_output_open(&p->ctx, &o, p->path), PARE_OK);
    assert_int_equal(pare_output_write(o, "one ", 4), PARE_OK);
    assert_int_equal(pare_output_write(o, "two", 3), PARE_OK);
    assert_int_equal(access(p->path, F_OK), -1);
    assert_int_equal(pare_output_commit(o), PARE_OK);
    assert_content(p, "one two");
    assert_int_equal(count_entries(p->folder), 1);
    assert_int_equal(pare_file_write(&p->ctx, p->path, "", 0), PARE_OK);
    assert_content(p, "");
    assert_int_equal(count_entries(p->folder), 1);
}

/* What is known last may stand first; more can be written behind the rest. */
static void the_beginning_is_written_over(void **state)
{
    place *p = *state;
    pare_output *o;
    assert_int_equal(pare_output_open(&p->ctx, &o, p->path), PARE_OK);
    assert_int_equal(pare_output_write(o, "... body", 8), PARE_OK);
    assert_int_equal(pare_output_overwrite(o, "one", 3), PARE_OK);
    assert_int_equal(pare_output_write(o, " end", 4), PARE_OK);
    assert_int_equal(pare_output_overwrite(o, "", 0), PARE_OK);
    assert_int_equal(pare_output_commit(o), PARE_OK);
    assert_content(p, "one body end");
    volatile int stop = 1;
    assert_int_equal(pare_output_open(&p->ctx, &o, p->path), PARE_OK);
    assert_int_equal(pare_output_write(o, "x", 1), PARE_OK);
    p->ctx.interrupted = &stop;
    assert_int_equal(pare_output_overwrite(o, "y", 1), PARE_INTERRUPTED);
    p->ctx.interrupted = NULL;
    pare_output_discard(o);
    assert_content(p, "one body end");
}

static void no_beginning_but_a_file_s_is_written_over(void **state)
{
    place *p = *state;
    pare_output *o;
    assert_int_equal(pare_output_open(&p->ctx, &o, "/dev/null"), PARE_OK);
    assert_int_equal(pare_output_write(o, "... body", 8), PARE_OK);
    assert_int_equal(pare_output_overwrite(o, "", 0), PARE_OK);
    assert_int_equal(pare_output_overwrite(o, "one", 3), PARE_IO);
    assert_string_equal(p->ctx.message,
                        "/dev/null: is a pipe or a device, and its beginning is written last; "
                        "write to a file");
    pare_output_discard(o);
}

static void discard_keeps_the_old_file(void **state)
{
    place *p = *state;
    pare_output *o;
    assert_int_equal(pare_file_write(&p->ctx, p->path, "old", 3), PARE_OK);
    assert_int_equal(pare_output_open(&p->ctx, &o, p->path), PARE_OK);
    assert_int_equal(pare_output_write(o, "new", 3), PARE_OK);
    pare_output_discard(o);
    pare_output_discard(NULL);
    assert_content(p, "old");
    assert_int_equal(count_entries(p->folder), 1);
}

/* Can this file system hold files without a name? Where not, a kill leaves an unfinished one. */
static bool has_nameless_files(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* A process killed while it writes leaves the old file and nothing else. */
static void a_killed_writer_leaves_nothing(void **state)
{
    place *p = *state;
    assert_int_equal(pare_file_write(&p->ctx, p->path, "old", 3), PARE_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pare_output *o;
        if (pare_output_open(&p->ctx, &o, p->path) || pare_output_write(o, "new", 3)) _exit(3);
        kill(getpid(), SIGKILL);
    }
    int how;
    waitpid(child, &how, 0);
    assert_true(WIFSIGNALED(how));
    assert_content(p, "old");
    assert_int_equal(count_entries(p->folder), has_nameless_files(p->folder) ? 1 : 2);
}

/* A writer killed between the name beside and the rename leaves a whole file there: the next write
   takes it away, but not while its writer lives (the lock is held). */
static void what_a_kill_left_is_taken_away(void **state)
{
    place *p = *state;
    if (!has_nameless_files(p->folder)) {
        print_message("this file system has no nameless files\n");
        skip();
    }
    char left[320];
    snprintf(left, sizeof left, "%s.pare-new", p->path);
    assert_int_equal(pare_file_write(&p->ctx, p->path, "old", 3), PARE_OK);
    int fd = open(left, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(pare_file_write(&p->ctx, p->path, "two", 3), PARE_OK);
    assert_content(p, "two");
    assert_int_equal(count_entries(p->folder), 2);
    close(fd);
    assert_int_equal(pare_file_write(&p->ctx, p->path, "new", 3), PARE_OK);
    assert_content(p, "new");
    assert_int_equal(count_entries(p->folder), 1);
}

static void room_is_taken_before_the_work(void **state)
{
    place *p = *state;
    struct rlimit old, small = {4096, RLIM_INFINITY};
    struct stat info;
    pare_output *room;
    assert_int_equal(pare_output_reserve(&p->ctx, &room, p->path, 4096), PARE_OK);
    if (!room) skip(); /* no nameless files here */
    assert_int_equal(fstat(pare_output_fd(room), &info), 0);
    assert_int_equal(info.st_size, 4096);
    assert_true(info.st_blocks * 512 >= 4096);
    assert_int_equal(count_entries(p->folder), 0);
    assert_int_equal(pare_file_write(&p->ctx, p->path, "new", 3), PARE_OK);
    pare_output_discard(room);
    assert_content(p, "new");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pare_status st = pare_output_reserve(&p->ctx, &room, p->path, 8192);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(st, PARE_IO);
    assert_null(room);
    assert_non_null(strstr(p->ctx.message, p->path));
    assert_content(p, "new");
    pare_ctx_clear(&p->ctx);
    assert_int_equal(pare_output_reserve(&p->ctx, &room, "/dev/null", 1), PARE_OK);
    assert_null(room);
}

/* A full disk: the limit on a file's size gives the same failure of write. */
static void a_full_disk_is_named(void **state)
{
    place *p = *state;
    struct rlimit old, small = {4096, RLIM_INFINITY};
    char block[8192] = {0};
    pare_output *o;
    assert_int_equal(pare_output_open(&p->ctx, &o, p->path), PARE_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pare_status st = pare_output_write(o, block, sizeof block);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(st, PARE_IO);
    assert_non_null(strstr(p->ctx.message, p->path));
    assert_non_null(strstr(p->ctx.message, strerror(EFBIG)));
    pare_output_discard(o);
    assert_int_equal(count_entries(p->folder), 0);
    if (access("/dev/full", W_OK) == 0) {
        pare_ctx_clear(&p->ctx);
        assert_int_equal(pare_file_write(&p->ctx, "/dev/full", "x", 1), PARE_IO);
        assert_non_null(strstr(p->ctx.message, "No space left on device; free some space"));
    }
}

static void bad_places_are_refused(void **state)
{
    place *p = *state;
    pare_output *o;
    pare_map map;
    char path[128];
    snprintf(path, sizeof path, "%s/none/file", p->folder);
    assert_int_equal(pare_output_open(&p->ctx, &o, path), PARE_IO);
    assert_non_null(strstr(p->ctx.message, "its folder must exist"));
    pare_ctx_clear(&p->ctx);
    assert_int_equal(pare_output_open(&p->ctx, &o, p->folder), PARE_IO);
    assert_non_null(strstr(p->ctx.message, "Is a directory"));
    pare_ctx_clear(&p->ctx);
    assert_int_equal(pare_map_open(&p->ctx, &map, p->folder), PARE_IO);
    assert_non_null(strstr(p->ctx.message, "is a folder"));
    pare_ctx_clear(&p->ctx);
    assert_int_equal(pare_map_open(&p->ctx, &map, p->path), PARE_IO);
    assert_non_null(strstr(p->ctx.message, "No such file"));
    assert_int_equal(count_entries(p->folder), 0);
}

static void a_link_stays_a_link(void **state)
{
    place *p = *state;
    char link[128];
    struct stat info;
    snprintf(link, sizeof link, "%s/link", p->folder);
    assert_int_equal(pare_file_write(&p->ctx, p->path, "old", 3), PARE_OK);
    assert_int_equal(symlink(p->path, link), 0);
    assert_true(pare_file_same(link, p->path));
    assert_false(pare_file_same(p->path, "/nowhere"));
    assert_int_equal(pare_file_write(&p->ctx, link, "new", 3), PARE_OK);
    assert_content(p, "new");
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void an_interrupted_write_stops(void **state)
{
    place *p = *state;
    volatile int stop = 1;
    pare_output *o;
    assert_int_equal(pare_output_open(&p->ctx, &o, p->path), PARE_OK);
    p->ctx.interrupted = &stop;
    assert_int_equal(pare_output_write(o, "x", 1), PARE_INTERRUPTED);
    pare_output_discard(o);
    assert_int_equal(count_entries(p->folder), 0);
}

static void every_allocation_may_fail(void **state)
{
    place *p = *state;
    pare_status st = PARE_MEMORY;
    for (long n = 0; st != PARE_OK; n++) {
        assert_true(n < 50);
        pare_ctx_clear(&p->ctx);
        p->ctx.fail_after = n;
        st = pare_file_write(&p->ctx, p->path, "x", 1);
        if (st == PARE_OK) break;
        assert_int_equal(st, PARE_MEMORY);
        assert_string_not_equal(p->ctx.message, "");
        assert_int_equal(count_entries(p->folder), 0);
    }
    assert_content(p, "x");
}

/* A file's hash is that of its bytes, in how many pieces it may be read. */
static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && !fclose(file));
}

static void a_copy_stays_as_it_was_read(void **state)
{
    place *p = *state;
    pare_map map;
    write_text(p->path, "as it was");
    assert_int_equal(pare_map_read(&p->ctx, &map, p->path), PARE_OK);
    write_text(p->path, "other");
    assert_int_equal(map.size, 9);
    assert_memory_equal(map.data, "as it was", 9);
    pare_map_close(&map);
    write_text(p->path, "");
    assert_int_equal(pare_map_read(&p->ctx, &map, p->path), PARE_OK);
    assert_int_equal(map.size, 0);
    pare_map_close(&map);
    assert_int_equal(pare_map_read(&p->ctx, &map, p->folder), PARE_IO);
    assert_non_null(strstr(p->ctx.message, "is a folder"));
}

/* A file of the system, which is shorter than it says, is as one that is cut meanwhile. */
static void a_file_that_changes_is_not_read(void **state)
{
    place *p = *state;
    pare_map map;
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (access(path, R_OK)) skip();
    assert_int_equal(pare_map_read(&p->ctx, &map, path), PARE_INPUT);
    assert_non_null(strstr(p->ctx.message, "enabled: was changed while it was read"));
    assert_int_equal(map.size, 0);
}

static void a_file_hashes_as_its_bytes(void **state)
{
    enum { MOST = (8 << 20) + 5000 };
    static const size_t sizes[] = {0, 1, 4096, 4 << 20, (4 << 20) + 1, MOST};
    place *p = *state;
    unsigned char *bytes = malloc(MOST);
    assert_non_null(bytes);
    for (size_t i = 0; i < MOST; i++) bytes[i] = (unsigned char)(i * 2654435761U >> 13);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pare_hash want = pare_hash_bytes(bytes, sizes[i]), got;
        assert_int_equal(pare_file_write(&p->ctx, p->path, bytes, sizes[i]), PARE_OK);
        assert_int_equal(pare_file_hash(&p->ctx, p->path, &got), PARE_OK);
        assert_true(got.low == want.low && got.high == want.high);
        assert_int_equal(unlink(p->path), 0);
    }
    free(bytes);
}

static void json_goes_there_and_back(void **state)
{
    place *p = *state;
    json_t *json = json_pack("{s:i, s:f, s:[s, b, n]}", "zebra", 3, "apple", 0.1, "list", "x", 1);
    assert_int_equal(pare_json_write(&p->ctx, json, p->path), PARE_OK);
    assert_content(p, "{\n  \"zebra\": 3,\n  \"apple\": 0.10000000000000001,\n  \"list\": [\n"
                      "    \"x\",\n    true,\n    null\n  ]\n}\n");
    json_t *back;
    assert_int_equal(pare_json_read(&p->ctx, &back, p->path), PARE_OK);
    assert_true(json_equal(json, back));
    json_decref(back);
    json_decref(json);
}

static void bad_json_is_located(void **state)
{
    place *p = *state;
    const char *const text[] = {"{\n \"a\": 1,\n \"b\" 2}", "", "[1, 2", "{\"a\": 1, \"a\": 2}"};
    const char *const where[] = {"line 3, column 6", "line 1, column 0", "line 1", "duplicate"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        json_t *json;
        pare_ctx_clear(&p->ctx);
        assert_int_equal(pare_file_write(&p->ctx, p->path, text[i], strlen(text[i])), PARE_OK);
        assert_int_equal(pare_json_read(&p->ctx, &json, p->path), PARE_INPUT);
        assert_non_null(strstr(p->ctx.message, p->path));
        assert_non_null(strstr(p->ctx.message, where[i]));
    }
}

/* More than one buffer's worth, and a disk that is full at its end. */
static void long_json_is_whole(void **state)
{
    place *p = *state;
    json_t *list = json_array();
    for (int i = 0; i < 20000; i++) json_array_append_new(list, json_integer(i));
    assert_int_equal(pare_json_write(&p->ctx, list, p->path), PARE_OK);
    json_t *back;
    assert_int_equal(pare_json_read(&p->ctx, &back, p->path), PARE_OK);
    assert_true(json_equal(list, back));
    json_decref(back);
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(pare_json_write(&p->ctx, list, "/dev/full"), PARE_IO);
    json_decref(list);
}

/* A log goes back to a step: what it is, the step, how many bytes stay (-1: it is refused). */
static void a_log_is_cut_back(void **state)
{
    place *p = *state;
    static const struct cut {
        const char *text;
        int64_t last;
        int kept;
    } cuts[] = {
        {"{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 2, 22},
        {"{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 3, 33},
        {"{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 0, 0},
        {"{\"step\":1}\n{\"step\":1,\"loss\":0.5}\n{\"step\":2}\n", 1, 33},
        {"{\"seed\":1}\n{\"step\":1}\n{\"step\":2}\n", 0, 11},
        {"{\"seed\":1}\n{\"step\":1}\n{\"end\":true}\n", 1, 22}, /* told after the step */
        {"{\"step\":1}\n{\"note\":0}\n{\"step\":2}\n", 2, 33},
        {"{\"step\":1}\n{\"step\":2}", 2, 11}, /* unfinished */
        {"{\"step\":1}\n{\"ste", 2, 11},
        {"{\"step\":1}\n{\"step\":\"2\"}\n", 2, 11}, /* no number: told after step 1 */
        {"", 2, 0},
        {"no log", 2, -1},
        {"{\"ste", 2, 0},
        {"no log\n", 2, -1},
        {"{\"step\":1}\n\n{\"step\":2}\n", 2, -1},
        {"{\"step\":1}\n[2]\n", 2, -1},
    };
    assert_int_equal(pare_json_lines_cut(&p->ctx, p->path, 7), PARE_OK); /* not there */
    assert_int_equal(count_entries(p->folder), 0);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const struct cut *c = &cuts[i];
        char want[64] = "";
        size_t kept = c->kept < 0 ? strlen(c->text) : (size_t)c->kept;
        memcpy(want, c->text, kept);
        pare_ctx_clear(&p->ctx);
        assert_int_equal(pare_file_write(&p->ctx, p->path, c->text, strlen(c->text)), PARE_OK);
        assert_int_equal(pare_json_lines_cut(&p->ctx, p->path, c->last),
                         c->kept < 0 ? PARE_INPUT : PARE_OK);
        assert_content(p, want);
        if (c->kept < 0) assert_non_null(strstr(p->ctx.message, p->path));
    }
    assert_non_null(strstr(p->ctx.message, "byte 11: begins a line that is no JSON object"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(content_appears_at_commit),
        TEST(the_beginning_is_written_over),
        TEST(no_beginning_but_a_file_s_is_written_over),
        TEST(discard_keeps_the_old_file),
        TEST(a_killed_writer_leaves_nothing),
        TEST(what_a_kill_left_is_taken_away),
        TEST(room_is_taken_before_the_work),
        TEST(a_full_disk_is_named),
        TEST(bad_places_are_refused),
        TEST(a_link_stays_a_link),
        TEST(an_interrupted_write_stops),
        TEST(every_allocation_may_fail),
        TEST(a_copy_stays_as_it_was_read),
        TEST(a_file_that_changes_is_not_read),
        TEST(a_file_hashes_as_its_bytes),
        TEST(json_goes_there_and_back),
        TEST(bad_json_is_located),
        TEST(long_json_is_whole),
        TEST(a_log_is_cut_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

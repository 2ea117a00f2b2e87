/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the cache: what is kept comes back, what is damaged does not, whoever writes beside.
 */
#include "tests/warnings.h"
#include "tools/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { TRAILER = 64 };

static pare_ctx ctx;
static pare_cache cache;
static char folder[64], kind[96];

static int begin(void **state)
{
    (void)state;
    pare_ctx_init(&ctx);
    hear_warnings(&ctx);
    snprintf(folder, sizeof folder, "/tmp/pare-cache-%ld", (long)getpid());
    snprintf(kind, sizeof kind, "%s/things", folder);
    cache = (pare_cache){.ctx = &ctx, .folder = folder, .kind = "things"};
    return 0;
}

/* Removes all entries; how many there were, and their bytes. */
static int sweep(int64_t *bytes)
{
    char path[400];
    int count = 0;
    struct stat info;
    *bytes = 0;
    DIR *dir = opendir(kind);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", kind, e->d_name);
        if (stat(path, &info) || !S_ISREG(info.st_mode)) continue;
        *bytes += info.st_size;
        count += unlink(path) == 0;
    }
    if (dir) closedir(dir);
    return count;
}

static int end(void **state)
{
    int64_t bytes;
    (void)state;
    chmod(folder, 0700);
    sweep(&bytes);
    rmdir(kind);
    rmdir(folder);
    return 0;
}

static pare_hash key_of(uint64_t i)
{
    pare_hash key;
    pare_cache_key_begin(&key, &cache, NULL);
    pare_cache_key_add(&key, &i, sizeof i);
    return key;
}

static const char *path_of(const pare_hash *key)
{
    static char path[200];
    char text[33];
    pare_hash_text(*key, text);
    snprintf(path, sizeof path, "%s/%s", kind, text);
    return path;
}

static void fill(uint8_t *data, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 131 + seed * 7 + (i >> 8));
}

static void keep(const pare_hash *key, const void *data, size_t size)
{
    pare_cache_writer *w = pare_cache_begin(&cache, key);
    const size_t half = size / 2;
    pare_cache_write(w, data, half);
    pare_cache_write(w, (const uint8_t *)data + half, size - half);
    pare_cache_commit(w);
}

static bool holds(const pare_hash *key, const void *data, size_t size)
{
    pare_cache_entry entry;
    if (!pare_cache_find(&cache, key, &entry)) return false;
    const bool same = entry.size == size && !memcmp(entry.data, data, size);
    pare_cache_close(&entry);
    return same;
}

static void test_what_is_kept_comes_back(void **state)
{
    static uint8_t data[100000];
    (void)state;
    const size_t sizes[] = {0, 1, 63, 64, 65, 4096, sizeof data};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const pare_hash key = key_of(i);
        fill(data, sizes[i], (unsigned)i);
        assert_false(holds(&key, data, sizes[i]));
        keep(&key, data, sizes[i]);
        assert_true(holds(&key, data, sizes[i]));
        assert_true(holds(&key, data, sizes[i]));
    }
    assert_int_equal(warnings, 0);
}

static void test_without_a_folder(void **state)
{
    (void)state;
    cache.folder = NULL;
    const pare_hash key = key_of(1);
    keep(&key, "x", 1);
    assert_false(holds(&key, "x", 1));
    assert_int_equal(warnings, 0);
}

static void test_discarded(void **state)
{
    int64_t bytes;
    (void)state;
    const pare_hash key = key_of(1);
    pare_cache_writer *w = pare_cache_begin(&cache, &key);
    pare_cache_write(w, "abc", 3);
    pare_cache_discard(w);
    assert_int_equal(sweep(&bytes), 0);
}

/* Not used, said, and made again. */
static void refused(const pare_hash *key, const void *data, size_t size, const char *why)
{
    warnings = 0;
    assert_false(holds(key, data, size));
    assert_int_equal(warnings, 1);
    if (!strstr(warning, why) || !strstr(warning, path_of(key))) fail_msg("%s", warning);
    keep(key, data, size);
    assert_true(holds(key, data, size));
    assert_int_equal(warnings, 1);
}

static void test_cut_at_every_length(void **state)
{
    uint8_t data[200];
    (void)state;
    const pare_hash key = key_of(1);
    fill(data, sizeof data, 1);
    keep(&key, data, sizeof data);
    for (off_t n = 0; n < (off_t)(sizeof data + TRAILER); n++) {
        assert_int_equal(truncate(path_of(&key), n), 0);
        refused(&key, data, sizeof data, "is cut or was changed");
    }
}

static void flip(const pare_hash *key, off_t at, int bit)
{
    uint8_t byte;
    const int fd = open(path_of(key), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_every_bit_counts(void **state)
{
    uint8_t data[40];
    (void)state;
    const pare_hash key = key_of(1);
    fill(data, sizeof data, 1);
    keep(&key, data, sizeof data);
    for (off_t n = 0; n < (off_t)(sizeof data + TRAILER); n++)
        for (int bit = 0; bit < 8; bit++) {
            flip(&key, n, bit);
            refused(&key, data, sizeof data, "is cut or was changed");
        }
}

static void test_longer(void **state)
{
    (void)state;
    const pare_hash key = key_of(1);
    keep(&key, "abc", 3);
    FILE *file = fopen(path_of(&key), "a");
    assert_non_null(file);
    fputc('x', file);
    fclose(file);
    refused(&key, "abc", 3, "is cut or was changed");
}

/* The head says another format and all its sums agree. */
static void test_other_version(void **state)
{
    uint8_t file[3 + TRAILER];
    (void)state;
    const pare_hash key = key_of(1);
    keep(&key, "abc", 3);
    int fd = open(path_of(&key), O_RDWR);
    assert_int_equal(pread(fd, file, sizeof file, 0), sizeof file);
    file[3 + 8]++; /* the format, after eight letters */
    const uint64_t check = pare_hash_bytes(file + 3, TRAILER - sizeof check).low;
    memcpy(file + 3 + TRAILER - sizeof check, &check, sizeof check);
    assert_int_equal(pwrite(fd, file, sizeof file, 0), sizeof file);
    close(fd);
    refused(&key, "abc", 3, "is of another version");
}

static void test_another_ones(void **state)
{
    char from[200];
    (void)state;
    const pare_hash a = key_of(1), b = key_of(2);
    keep(&a, "abc", 3);
    snprintf(from, sizeof from, "%s", path_of(&a));
    assert_int_equal(rename(from, path_of(&b)), 0);
    refused(&b, "abc", 3, "is another one's");
}

static void test_dropped(void **state)
{
    (void)state;
    const pare_hash key = key_of(1);
    keep(&key, "abc", 3);
    pare_cache_drop(&cache, &key, "is of other data");
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "is of other data"));
    assert_false(holds(&key, "abc", 3));
    assert_int_equal(warnings, 1);
}

static void test_keys(void **state)
{
    (void)state;
    pare_cache other = cache;
    pare_hash a, b;
    other.kind = "others";
    pare_cache_key_begin(&a, &cache, NULL);
    pare_cache_key_begin(&b, &other, NULL);
    assert_memory_not_equal(&a, &b, sizeof a);
    b = a;
    pare_cache_key_add_text(&a, "ab");
    pare_cache_key_add_text(&a, "c");
    pare_cache_key_add_text(&b, "a");
    pare_cache_key_add_text(&b, "bc");
    assert_memory_not_equal(&a, &b, sizeof a);
    b = a;
    pare_cache_key_add_text(&a, NULL);
    pare_cache_key_add_text(&b, "");
    assert_memory_not_equal(&a, &b, sizeof a);
}

static void test_key_of_a_file(void **state)
{
    char path[100];
    pare_hash a = {0}, b = {0}, c = {0};
    (void)state;
    snprintf(path, sizeof path, "%s.data", folder);
    FILE *file = fopen(path, "w");
    fputs("one", file);
    fclose(file);
    assert_int_equal(pare_cache_key_add_file(&ctx, &a, path), PARE_OK);
    assert_int_equal(pare_cache_key_add_file(&ctx, &b, path), PARE_OK);
    assert_memory_equal(&a, &b, sizeof a);
    file = fopen(path, "w");
    fputs("two", file);
    fclose(file);
    assert_int_equal(pare_cache_key_add_file(&ctx, &c, path), PARE_OK);
    assert_memory_not_equal(&a, &c, sizeof a);
    /* above 1 GiB, of holes: pieces of it, and its time */
    assert_int_equal(truncate(path, (off_t)5 << 28), 0);
    a = b = c = (pare_hash){0};
    assert_int_equal(pare_cache_key_add_file(&ctx, &a, path), PARE_OK);
    assert_int_equal(pare_cache_key_add_file(&ctx, &b, path), PARE_OK);
    assert_memory_equal(&a, &b, sizeof a);
    const struct timespec times[2] = {{1, 1}, {1, 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(pare_cache_key_add_file(&ctx, &c, path), PARE_OK);
    assert_memory_not_equal(&a, &c, sizeof a);
    unlink(path);
    assert_int_equal(pare_cache_key_add_file(&ctx, &a, path), PARE_IO);
}

/* What cannot be written is one warning, and the work continues. */
static void test_no_place(void **state)
{
    (void)state;
    const pare_hash key = key_of(1);
    FILE *file = fopen(folder, "w"); /* a file where the folder should be */
    assert_non_null(file);
    fclose(file);
    keep(&key, "abc", 3);
    unlink(folder);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "the cache keeps no things"));
    assert_int_equal(ctx.message[0], 0);
}

static void test_memory(void **state)
{
    (void)state;
    const pare_hash key = key_of(1);
    bool kept = false;
    for (long n = 0; !kept; n++) {
        ctx.fail_after = n;
        keep(&key, "abc", 3);
        ctx.fail_after = -1;
        assert_int_equal(ctx.message[0], 0);
        kept = holds(&key, "abc", 3);
        assert_true(n < 50);
    }
}

static void test_bound(void **state)
{
    static uint8_t data[1000];
    int64_t bytes;
    (void)state;
    cache.most = 10 * (int64_t)(sizeof data + TRAILER);
    for (uint64_t i = 0; i < 30; i++) {
        const pare_hash first = key_of(0), key = key_of(i);
        fill(data, sizeof data, (unsigned)i);
        keep(&key, data, sizeof data);
        const struct timespec times[2] = {{(time_t)i + 1, 0}, {(time_t)i + 1, 0}};
        assert_int_equal(utimensat(AT_FDCWD, path_of(&key), times, 0), 0);
        fill(data, sizeof data, 0);
        assert_true(holds(&first, data, sizeof data)); /* used again and again, so it stays */
    }
    const pare_hash gone = key_of(5), last = key_of(29);
    fill(data, sizeof data, 29);
    assert_true(holds(&last, data, sizeof data));
    fill(data, sizeof data, 5);
    assert_false(holds(&gone, data, sizeof data));
    assert_int_equal(sweep(&bytes), 10);
    assert_true(bytes <= cache.most);
    assert_int_equal(warnings, 0);
}

/* Eight processes write and read the same forty entries, sixteen times each. */
static void test_writers(void **state)
{
    static uint8_t data[30000];
    enum { WRITERS = 8, ENTRIES = 40, ROUNDS = 16 };
    pid_t child[WRITERS];
    int64_t bytes;
    (void)state;
    for (int w = 0; w < WRITERS; w++) {
        child[w] = fork();
        assert_true(child[w] >= 0);
        if (child[w]) continue;
        for (unsigned k = 0; k < ENTRIES * ROUNDS; k++) {
            const unsigned i = (k * 7 + (unsigned)w * 5) % ENTRIES;
            const pare_hash key = key_of(i);
            pare_cache_entry entry;
            fill(data, sizeof data - i, i);
            if (pare_cache_find(&cache, &key, &entry)) {
                if (entry.size != sizeof data - i || memcmp(entry.data, data, entry.size) != 0)
                    _exit(1);
                pare_cache_close(&entry);
            }
            if ((k + (unsigned)w) % 3 == 0) keep(&key, data, sizeof data - i);
        }
        _exit(warnings ? 2 : 0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(child[w], &status, 0), child[w]);
        assert_int_equal(status, 0);
    }
    for (unsigned i = 0; i < ENTRIES; i++) {
        const pare_hash key = key_of(i);
        fill(data, sizeof data - i, i);
        assert_true(holds(&key, data, sizeof data - i));
    }
    assert_int_equal(sweep(&bytes), ENTRIES);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_kept_comes_back),
        TEST(test_without_a_folder),
        TEST(test_discarded),
        TEST(test_cut_at_every_length),
        TEST(test_every_bit_counts),
        TEST(test_longer),
        TEST(test_other_version),
        TEST(test_another_ones),
        TEST(test_dropped),
        TEST(test_keys),
        TEST(test_key_of_a_file),
        TEST(test_no_place),
        TEST(test_memory),
        TEST(test_bound),
        TEST(test_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

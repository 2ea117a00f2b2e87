/* SPDX-License-Identifier: Apache-2.0 */
/* Many processes that put times into one table: nothing is lost, nothing is torn. */
#include "runtime/exec/machine_table.h"
#include "tests/warnings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { WRITERS = 8, ENTRIES = 12 };

static const pare_machine_table_kind kind = {"times.json", "test_times", "a table of times",
                                             "all is measured again"};

static const char *key_of(int writer, int i)
{
    static char key[32];
    snprintf(key, sizeof key, "writer %d, %d", writer, i);
    return key;
}

/* Each entry is put and stored by itself: tables are read and written all the time. */
static int write_entries(const char *folder, int writer)
{
    pare_ctx ctx;
    pare_machine_table *table;
    pare_ctx_init(&ctx);
    hear_warnings(&ctx);
    for (int i = 0; i < ENTRIES; i++) {
        if (pare_machine_table_open(&ctx, &table, folder, NULL, &kind) != PARE_OK) return 1;
        for (int k = 0; k < i; k++)
            if (json_integer_value(pare_machine_table_find(table, key_of(writer, k))) != k + 1)
                return 2;
        if (pare_machine_table_put(table, key_of(writer, i), json_integer(i + 1)) != PARE_OK)
            return 3;
        pare_machine_table_store(table);
        pare_machine_table_free(table);
    }
    return warnings ? 4 : 0;
}

static void eight_writers_lose_nothing(void **state)
{
    char folder[64], file[96];
    pid_t child[WRITERS];
    pare_ctx ctx;
    pare_machine_table *table;
    int status;
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/pare-table-%ld", (long)getpid());
    snprintf(file, sizeof file, "%s/times.json", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int w = 0; w < WRITERS; w++) {
        child[w] = fork();
        assert_true(child[w] >= 0);
        if (!child[w]) _exit(write_entries(folder, w));
    }
    for (int w = 0; w < WRITERS; w++) {
        assert_int_equal(waitpid(child[w], &status, 0), child[w]);
        assert_int_equal(status, 0);
    }
    pare_ctx_init(&ctx);
    hear_warnings(&ctx);
    assert_int_equal(pare_machine_table_open(&ctx, &table, folder, NULL, &kind), PARE_OK);
    for (int w = 0; w < WRITERS; w++)
        for (int i = 0; i < ENTRIES; i++)
            assert_int_equal(json_integer_value(pare_machine_table_find(table, key_of(w, i))),
                             i + 1);
    assert_int_equal(warnings, 0);
    pare_machine_table_free(table);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else is there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(eight_writers_lose_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How a command ended, by way of a file. */
#include "tools/ending.h"
#include "tools/memory_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static char path[64];
static pare_ctx ctx;

static int begin(void **state)
{
    char folder[] = "/tmp/pare-ending-XXXXXX";
    (void)state;
    pare_ctx_init(&ctx);
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/ending.txt", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)unlink(path);
    path[strlen(path) - strlen("/ending.txt")] = 0;
    return rmdir(path);
}

static void every_failure_comes_through(void **state)
{
    static const pare_status all[] = {PARE_USAGE,  PARE_INPUT,  PARE_UNSUPPORTED, PARE_IO,
                                      PARE_MEMORY, PARE_DEVICE, PARE_INTERRUPTED, PARE_MISSED};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        (void)unlink(path);
        assert_int_equal(pare_ending_find(&ctx, path), PARE_OK);
        pare_ending_leave(path, all[i], "net.onnx: node 'a' (Relu): why");
        assert_int_equal(pare_ending_find(&ctx, path), all[i]);
        assert_string_equal(ctx.message, "net.onnx: node 'a' (Relu): why");
        pare_ctx_clear(&ctx);
    }
}

static void the_first_counts(void **state)
{
    (void)state;
    (void)unlink(path);
    pare_ending_leave(path, PARE_INPUT, "first");
    pare_ending_leave(path, PARE_IO, "second");
    assert_int_equal(pare_ending_find(&ctx, path), PARE_INPUT);
    assert_string_equal(ctx.message, "first");
    pare_ctx_clear(&ctx);
}

/* Nothing to write to, and the longest message. */
static void no_room_is_no_failure(void **state)
{
    char text[sizeof ctx.message];
    (void)state;
    pare_ending_leave("/no/such/folder/ending.txt", PARE_INPUT, "unheard");
    assert_int_equal(pare_ending_find(&ctx, "/no/such/folder/ending.txt"), PARE_OK);
    (void)unlink(path);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    pare_ending_leave(path, PARE_UNSUPPORTED, text);
    assert_int_equal(pare_ending_find(&ctx, path), PARE_UNSUPPORTED);
    assert_string_equal(ctx.message, text);
    pare_ctx_clear(&ctx);
}

static void what_is_no_ending_is_none(void **state)
{
    static const char whole[] = "bad input\nwhy\n";
    (void)state;
    for (size_t n = 0; n <= sizeof whole; n++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        if (n < sizeof whole)
            (void)fwrite(whole, 1, n, file);
        else
            fputs("bad luck\nwhy\n", file);
        fclose(file);
        assert_int_equal(pare_ending_find(&ctx, path),
                         n == sizeof whole - 1 ? PARE_INPUT : PARE_OK);
        pare_ctx_clear(&ctx);
    }
}

/* A library that calls abort where it gets no memory. */
static void memory_that_a_library_lacks_is_told(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* it has no room under such a limit */
#endif
    (void)unlink(path);
    const pid_t child = fork();
    if (!child) {
        (void)!freopen("/dev/null", "w", stderr);
        pare_memory_guard_install();
        pare_memory_guard_tell(path);
        pare_memory_guard_set("net.onnx", "free some");
        setrlimit(RLIMIT_AS, &(struct rlimit){1, 1});
        abort();
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_int_equal(pare_ending_find(&ctx, path), PARE_MEMORY);
    assert_string_equal(ctx.message, "net.onnx: out of memory inside a library; free some");
    pare_ctx_clear(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure_comes_through),
        cmocka_unit_test(the_first_counts),
        cmocka_unit_test(no_room_is_no_failure),
        cmocka_unit_test(what_is_no_ending_is_none),
        cmocka_unit_test(memory_that_a_library_lacks_is_told),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opening NCCL at run time, with made libraries: FAKE_NCCL is whole, OLD_NCCL lacks a function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "runtime/cuda/comm/nccl.h"

/* PARE_NCCL names the folder of this file, behind one that does not exist. */
static void look_beside(const char *file)
{
    char folder[4096] = "/nowhere:";
    strncat(folder, file, sizeof folder - 64);
    *strrchr(folder, '/') = 0;
    setenv("PARE_NCCL", folder, 1);
}

static void each_field_holds_its_function(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_nccl_api api;
    int version, number = 100;
    pare_ctx_init(&ctx);
    look_beside(FAKE_NCCL);
    assert_int_equal(pare_nccl_open(&ctx, &api, &version), PARE_OK);
    assert_int_equal(version, 22703);
#define CHECK(returns, name, symbol, parameters)                                                   \
    {                                                                                              \
        int (*function)(void);                                                                     \
        memcpy(&function, &api.name, sizeof function);                                             \
        if (number != 100 && number != 107) assert_int_equal(function(), number);                  \
        number++;                                                                                  \
    }
    PARE_NCCL_FUNCTIONS(CHECK)
#undef CHECK
    assert_int_equal(number, 112);
    assert_string_equal(api.text(2), "a fake's error");
}

static void a_version_that_is_not_told_is_a_failure(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_nccl_api api;
    int version;
    pare_ctx_init(&ctx);
    look_beside(FAKE_NCCL);
    setenv("FAKE_NCCL_VERSION", "0", 1);
    assert_int_equal(pare_nccl_open(&ctx, &api, &version), PARE_UNSUPPORTED);
    assert_string_equal(ctx.message, "ncclGetVersion failed: a fake's error");
    unsetenv("FAKE_NCCL_VERSION");
}

static void a_missing_function_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_nccl_api api;
    int version;
    pare_ctx_init(&ctx);
    look_beside(OLD_NCCL);
    assert_int_equal(pare_nccl_open(&ctx, &api, &version), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "ncclCommFinalize"));
    assert_non_null(strstr(ctx.message, "2.14"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_holds_its_function),
        cmocka_unit_test(a_version_that_is_not_told_is_a_failure),
        cmocka_unit_test(a_missing_function_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opening cuBLAS at run time, with made libraries in the folders that the build names: FAKE_FOLDER
   has both, OLD_FOLDER a cuBLAS that lacks a function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "runtime/cuda/blas.h"

static void the_first_folder_that_has_it_serves(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_blas *b;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_blas_open(&ctx, &b, "/nowhere::" FAKE_FOLDER ":" OLD_FOLDER), PARE_OK);
    /* each field holds the function of its own name: the list's numbers */
    int number = 100;
#define CHECK(library, name, symbol, parameters)                                                   \
    {                                                                                              \
        int (*function)(void);                                                                     \
        memcpy(&function, &b->api.name, sizeof function);                                          \
        assert_int_equal(function(), number++);                                                    \
    }
    PARE_BLAS_FUNCTIONS(CHECK)
    assert_int_equal(number, 121);
    pare_blas_close(b);
}

static void a_missing_function_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_blas *b = NULL;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_blas_open(&ctx, &b, OLD_FOLDER), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "cublasSetMathMode"));
    assert_null(b);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_blas *b = NULL;
    pare_ctx_init(&ctx);
    ctx.fail_after = 0;
    assert_int_equal(pare_blas_open(&ctx, &b, FAKE_FOLDER), PARE_MEMORY);
    assert_null(b);
    pare_blas_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_folder_that_has_it_serves),
        cmocka_unit_test(a_missing_function_is_named),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

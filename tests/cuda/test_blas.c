/* SPDX-License-Identifier: Apache-2.0 */
/* Opening cuBLAS at run time, with made libraries in the folders that the build names: FAKE_FOLDER
   has both, OLD_FOLDER a cuBLAS that lacks a function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "runtime/cuda/gemm/blas.h"

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
    assert_int_equal(number, 123);
    pare_blas_close(b);
}

/* Whether the library that opens without a folder is the made one. */
static bool made_one_opens(void)
{
    pare_ctx ctx;
    pare_blas *b;
    int (*function)(void);
    pare_ctx_init(&ctx);
    if (pare_blas_open(&ctx, &b, NULL) != PARE_OK) return false;
    memcpy(&function, &b->api, sizeof function);
    bool made = function() == 100;
    pare_blas_close(b);
    return made;
}

static void the_environment_names_folders(void **state)
{
    (void)state;
    setenv("PARE_CUBLAS", "/nowhere:" FAKE_FOLDER, 1);
    assert_true(made_one_opens());
    unsetenv("PARE_CUBLAS");
}

static void a_wheel_in_an_environment_is_found(void **state)
{
    (void)state;
    static const char *const folder[] = {"/lib", "/lib/python3.99", "/lib/python3.99/site-packages",
                                         "/lib/python3.99/site-packages/nvidia",
                                         "/lib/python3.99/site-packages/nvidia/cu13"};
    char path[1024], link[1100];
    void *system = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (system) skip(); /* the loader's path comes first */
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s%s", FAKE_FOLDER, folder[i]);
        (void)mkdir(path, 0777);
    }
    snprintf(link, sizeof link, "%s/lib", path);
    (void)symlink(FAKE_FOLDER, link);
    setenv("VIRTUAL_ENV", FAKE_FOLDER, 1);
    assert_true(made_one_opens());
    unsetenv("VIRTUAL_ENV");
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
        cmocka_unit_test(the_environment_names_folders),
        cmocka_unit_test(a_wheel_in_an_environment_is_found),
        cmocka_unit_test(a_missing_function_is_named),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

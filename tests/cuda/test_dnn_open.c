/* SPDX-License-Identifier: Apache-2.0 */
/* Opening cuDNN at run time, with made libraries: FAKE_DNN is whole, OLD_DNN lacks a function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "runtime/cuda/conv/dnn.h"

/* PARE_CUDNN names the folder of this file, behind one that does not exist. */
static void look_beside(const char *file)
{
    char folder[4096] = "/nowhere:";
    strncat(folder, file, sizeof folder - 64);
    *strrchr(folder, '/') = 0;
    setenv("PARE_CUDNN", folder, 1);
}

static void each_field_holds_its_function(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_dnn_api api;
    int number = 100;
    pare_ctx_init(&ctx);
    look_beside(FAKE_DNN);
    assert_int_equal(pare_dnn_open(&ctx, &api), PARE_OK);
#define CHECK(returns, name, symbol, parameters)                                                   \
    {                                                                                              \
        int (*function)(void);                                                                     \
        memcpy(&function, &api.name, sizeof function);                                             \
        assert_int_equal(function(), number);                                                      \
        number++;                                                                                  \
    }
    PARE_DNN_FUNCTIONS(CHECK)
#undef CHECK
    assert_int_equal(number, 112);
}

static void a_missing_function_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_dnn_api api;
    pare_ctx_init(&ctx);
    look_beside(OLD_DNN);
    assert_int_equal(pare_dnn_open(&ctx, &api), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "cudnnGetLastErrorString"));
    assert_non_null(strstr(ctx.message, "version 9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_holds_its_function),
        cmocka_unit_test(a_missing_function_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

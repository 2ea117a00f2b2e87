/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and reading NVML, with made libraries: FAKE_NVML knows one GPU, OLD_NVML lacks what older
   drivers lack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include "runtime/cuda/device/nvml.h"

static const char bus[] = "00000000:01:00.0";

static void readings_come_in_their_units(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_nvml *m;
    pare_telemetry v;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_nvml_open(&ctx, &m, bus, FAKE_NVML), PARE_OK);
    pare_nvml_read(m, &v);
    assert_true(v.power_w == 312.5 && v.power_limit_w == 700);
    assert_true(v.sm_mhz == 1980 && v.memory_mhz == 3201 && v.temperature_c == 51);
    assert_true(v.memory_used == 53687091200.0 && v.memory_total == 161061273600.0);
    assert_int_equal(v.slowed, 0x24);
    assert_string_equal(pare_nvml_driver(m), "580.95.05");
    pare_nvml_close(m);
}

static void what_is_not_told_is_nan(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_nvml *m;
    pare_telemetry v;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_nvml_open(&ctx, &m, bus, OLD_NVML), PARE_OK);
    pare_nvml_read(m, &v);
    assert_true(isnan(v.temperature_c) && v.power_w == 312.5);
    assert_int_equal(v.slowed, 0);
    pare_nvml_close(m);
}

static void an_absent_library_and_an_unknown_gpu_are_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_nvml *m = NULL;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_nvml_open(&ctx, &m, bus, "/nowhere/nvml.so"), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "/nowhere/nvml.so"));
    pare_ctx_clear(&ctx);
    assert_int_equal(pare_nvml_open(&ctx, &m, "00000000:77:00.0", FAKE_NVML), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, "00000000:77:00.0"));
    pare_ctx_clear(&ctx);
    ctx.fail_after = 0;
    assert_int_equal(pare_nvml_open(&ctx, &m, bus, FAKE_NVML), PARE_MEMORY);
    assert_null(m);
    pare_nvml_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readings_come_in_their_units),
        cmocka_unit_test(what_is_not_told_is_nan),
        cmocka_unit_test(an_absent_library_and_an_unknown_gpu_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

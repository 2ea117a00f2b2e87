/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and reading DCGM, with made libraries: FAKE_DCGM knows two GPUs, OLD_DCGM has no host
   engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <math.h>
#include "runtime/cuda/device/dcgm.h"
#include "runtime/cuda/device/dcgm_api.h"

static const char bus[] = "00000000:01:00.0", quiet_bus[] = "00000000:41:00.0";

/* As dcgm_structs.h of releases 3 and 4 has it. */
static void values_have_dcgms_layout(void **state)
{
    (void)state;
    assert_int_equal(sizeof(pare_dcgm_entity), 8);
    assert_int_equal(offsetof(pare_dcgm_value, field), 12);
    assert_int_equal(offsetof(pare_dcgm_value, type), 14);
    assert_int_equal(offsetof(pare_dcgm_value, status), 16);
    assert_int_equal(offsetof(pare_dcgm_value, time), 24);
    assert_int_equal(offsetof(pare_dcgm_value, as), 32);
    assert_int_equal(sizeof(pare_dcgm_value), 32 + 4096);
}

static pare_telemetry reading(pare_dcgm *d)
{
    pare_telemetry v = {.power_w = 100};
    usleep(1000); /* samples have times in microseconds */
    pare_dcgm_read(d, &v);
    assert_true(v.power_w == 100);
    return v;
}

static bool is_untold(const pare_telemetry *v)
{
    return isnan(v->sm_active) && isnan(v->tensor_active) && isnan(v->dram_active) &&
           isnan(v->pcie_tx) && isnan(v->pcie_rx) && isnan(v->nvlink_tx) && isnan(v->nvlink_rx);
}

/* The first sample began before the opening; the third call has the second's. */
static void each_sample_counts_once(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_dcgm *d;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_dcgm_open(&ctx, &d, bus, FAKE_DCGM), PARE_OK);
    int told = 0;
    for (int i = 0; i < 6; i++) {
        const pare_telemetry v = reading(d);
        if (is_untold(&v)) continue;
        assert_true(v.sm_active == 0.75 && v.tensor_active == 0.5);
        assert_true(v.pcie_tx == 12.5e9 && v.pcie_rx == 0);
        assert_true(isnan(v.dram_active));                     /* not supported */
        assert_true(isnan(v.nvlink_tx) && isnan(v.nvlink_rx)); /* nor this; not watched */
        told++;
    }
    assert_int_equal(told, 3);
    pare_dcgm_close(d);
}

static void what_nobody_watches_is_nan(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_dcgm *d;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_dcgm_open(&ctx, &d, quiet_bus, FAKE_DCGM), PARE_OK);
    for (int i = 0; i < 3; i++) {
        const pare_telemetry v = reading(d);
        assert_true(is_untold(&v));
    }
    pare_dcgm_close(d);
}

static void expect_none(const char *at, const char *library, const char *words)
{
    pare_ctx ctx;
    pare_dcgm *d = NULL;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_dcgm_open(&ctx, &d, at, library), PARE_UNSUPPORTED);
    assert_non_null(strstr(ctx.message, words));
    assert_null(d);
}

static void what_is_absent_is_named(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_dcgm *d = NULL;
    expect_none(bus, "/nowhere/libdcgm.so", "/nowhere/libdcgm.so");
    expect_none(bus, OLD_DCGM, "host engine does not run");
    expect_none("00000000:77:00.0", FAKE_DCGM, "00000000:77:00.0");
    pare_ctx_init(&ctx);
    ctx.fail_after = 0;
    assert_int_equal(pare_dcgm_open(&ctx, &d, bus, FAKE_DCGM), PARE_MEMORY);
    assert_null(d);
    pare_dcgm_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_dcgms_layout),
        cmocka_unit_test(each_sample_counts_once),
        cmocka_unit_test(what_nobody_watches_is_nan),
        cmocka_unit_test(what_is_absent_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* emulation.h for tests that are linked to CUDA's own runtime: nothing is counted, nothing fails on
   demand; without a device they are skipped (the linker's --wrap leads cmocka's start here). */
#include "testing.h"

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t count,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (!device_is_present()) return 77;
    return __real__cmocka_run_group_tests(name, tests, count, setup, teardown);
}

simt_settings simt_set = {.streams = SIMT_EAGER};

bool simt_emulated(void) { return false; }
bool simt_checks(void) { return false; }
uint64_t simt_reports(void) { return 0; }
uint64_t simt_launches(void) { return 0; }
uint64_t simt_dependents(void) { return 0; }
uint64_t simt_calls(void) { return 0; }

uint64_t simt_calls_of(const char *name)
{
    (void)name;
    return 0;
}

uint64_t simt_copies_on(int device)
{
    (void)device;
    return 0;
}

int simt_live(char *text, size_t size)
{
    if (size) *text = 0;
    return 0;
}

void simt_fail_call(const char *name, uint64_t n, int code)
{
    (void)name;
    (void)n;
    (void)code;
}

void simt_fail_at(uint64_t n, int code, bool sticky)
{
    (void)n;
    (void)code;
    (void)sticky;
}

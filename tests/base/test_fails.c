/* SPDX-License-Identifier: Apache-2.0 */
/* The test that must fail (WILL_FAIL): if it ever passes, the harness does not see failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void fails(void **state)
{
    (void)state;
    assert_int_equal(1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

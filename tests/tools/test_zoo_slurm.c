/* SPDX-License-Identifier: Apache-2.0 */
/* Which tasks an array of jobs is asked for. */
#include "tools/zoo/slurm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void ranges_are_short(void **state)
{
    (void)state;
    static const int all[] = {0, 1, 2, 3}, some[] = {0, 2, 3, 4, 7, 9, 10}, one[] = {1005};
    pare_ctx ctx;
    pare_arena arena;
    pare_ctx_init(&ctx);
    pare_arena_init(&arena, &ctx);
    assert_string_equal(pare_zoo_batch_ranges(&arena, all, 4, 0), "0-3");
    assert_string_equal(pare_zoo_batch_ranges(&arena, some, 7, 0), "0,2-4,7,9-10");
    assert_string_equal(pare_zoo_batch_ranges(&arena, some + 1, 6, 2), "0-2,5,7-8");
    assert_string_equal(pare_zoo_batch_ranges(&arena, one, 1, 1001), "4");
    ctx.fail_after = 0;
    assert_null(pare_zoo_batch_ranges(&arena, one, 1, 1001));
    pare_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

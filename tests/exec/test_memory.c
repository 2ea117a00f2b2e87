/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void plan_of(pare_ctx *ctx, pare_plan *plan, pare_storage *roots, int count)
{
    *plan = (pare_plan){.ctx = ctx, .root = roots, .storage_count = count};
    assert_int_equal(pare_memory_plan(ctx, plan), PARE_OK);
}

/* Roots that are alive together never overlap, whatever their sizes and lifetimes. */
static void living_roots_do_not_overlap(void **state)
{
    (void)state;
    enum { N = 200 };
    pare_ctx ctx;
    pare_plan plan;
    pare_storage root[N];
    pare_ctx_init(&ctx);
    srand(7);
    for (int round = 0; round < 50; round++) {
        size_t sum = 0;
        for (int i = 0; i < N; i++) {
            int first = rand() % 100;
            root[i] = (pare_storage){.where = rand() % 8 ? PARE_AT_BUFFER : PARE_AT_CONSTANT,
                                     .bytes = (size_t)(rand() % 5000),
                                     .first = first,
                                     .last = first + rand() % 20};
            sum += root[i].bytes + 64;
        }
        plan_of(&ctx, &plan, root, N);
        assert_true(plan.buffer_bytes < sum);
        for (int i = 0; i < N; i++)
            for (int k = 0; k < i; k++) {
                const pare_storage *a = &root[i], *b = &root[k];
                if (a->where != PARE_AT_BUFFER || b->where != PARE_AT_BUFFER || !a->bytes ||
                    !b->bytes || a->first > b->last || b->first > a->last)
                    continue;
                assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
                assert_int_equal(a->offset % 64, 0);
                assert_true(a->offset + a->bytes <= plan.buffer_bytes);
            }
    }
}

/* A chain of equal tensors needs room for two of them, not for all. */
static void a_chain_takes_two_buffers(void **state)
{
    (void)state;
    pare_ctx ctx;
    pare_plan plan;
    pare_storage root[10];
    pare_ctx_init(&ctx);
    for (int i = 0; i < 10; i++)
        root[i] = (pare_storage){.where = PARE_AT_BUFFER, .bytes = 1024, .first = i, .last = i + 1};
    plan_of(&ctx, &plan, root, 10);
    assert_int_equal(plan.buffer_bytes, 2048);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(living_roots_do_not_overlap),
        cmocka_unit_test(a_chain_takes_two_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

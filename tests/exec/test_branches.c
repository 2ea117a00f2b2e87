/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of a list run side by side. */
#include "runtime/exec/branches.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 200 };

typedef struct branch_list {
    pare_ctx ctx;
    pare_branch_step step[MOST];
    int count;
} branch_list;

/* A small product that follows the steps whose numbers are listed; -1 ends the list. */
static void add(branch_list *l, int a, int b)
{
    pare_branch_step *s = &l->step[l->count];
    *s = (pare_branch_step){.macs = 1e6, .bytes = 1e5, .outputs = 1e6, .type = PARE_f32};
    if (a >= 0) s->after |= (uint64_t)1 << (l->count - 1 - a);
    if (b >= 0) s->after |= (uint64_t)1 << (l->count - 1 - b);
    l->count++;
}

/* The region's number and, in the second stream, a star: "00*0-". */
static void regions_are(branch_list *l, const char *wanted)
{
    char text[2 * MOST + 1];
    int n = 0;
    assert_int_equal(pare_branches_choose(&l->ctx, l->step, l->count), PARE_OK);
    for (int i = 0; i < l->count; i++) {
        const pare_branch_step *s = &l->step[i];
        text[n++] = s->region < 0 ? '-' : (char)('0' + s->region);
        if (s->side) text[n++] = '*';
    }
    text[n] = 0;
    assert_string_equal(text, wanted);
}

static branch_list *list_new(void)
{
    branch_list *l = calloc(1, sizeof *l);
    pare_ctx_init(&l->ctx);
    return l;
}

/* Of a residual block the shortcut is beside the main path, between what makes the input of both
   and what adds them up. */
static void a_shortcut_is_beside_its_main_path(void **state)
{
    (void)state;
    branch_list *l = list_new();
    add(l, -1, -1);
    add(l, 0, -1);
    add(l, 1, -1);
    add(l, 0, -1);
    add(l, 2, 3);
    add(l, 4, -1);
    regions_are(l, "-000*--");
    free(l);
}

/* Steps of two branches may alternate in the list. */
static void steps_of_branches_may_alternate(void **state)
{
    (void)state;
    branch_list *l = list_new();
    add(l, -1, -1);
    add(l, -1, -1);
    for (int i = 0; i < 6; i++) add(l, i, -1);
    add(l, 6, 7);
    regions_are(l, "00*00*00*00*-");
    free(l);
}

/* A chain has no branches, nor has what joins every other step to the one before. */
static void chains_have_no_regions(void **state)
{
    (void)state;
    branch_list *l = list_new();
    for (int i = 0; i < 100; i++) add(l, i - 1, -1);
    char none[101];
    memset(none, '-', 100);
    none[100] = 0;
    regions_are(l, none);
    l->count = 0;
    regions_are(l, "");
    free(l);
}

/* What fills the device gains nothing, be it by bytes or by multiply-adds. */
static void steps_that_fill_the_device_stay_alone(void **state)
{
    (void)state;
    branch_list *l = list_new();
    add(l, -1, -1);
    add(l, -1, -1);
    regions_are(l, "00*");
    for (int i = 0; i < 2; i++) l->step[i].bytes = 100e6;
    regions_are(l, "--");
    for (int i = 0; i < 2; i++) l->step[i].bytes = 1e5, l->step[i].macs = 1e9;
    regions_are(l, "--");
    for (int i = 0; i < 2; i++) l->step[i].outputs = 1e5; /* a fifth of it */
    regions_are(l, "00*");
    for (int i = 0; i < 2; i++) l->step[i].type = PARE_s8; /* 30 times as fast */
    regions_are(l, "00*");
    for (int i = 0; i < 2; i++) l->step[i].macs = 1e11; /* the depth is split */
    regions_are(l, "--");
    for (int i = 0; i < 2; i++) l->step[i].macs = 0; /* too short for an event */
    regions_are(l, "--");
    free(l);
}

/* A step of the host parts regions; one that has its stream for good stays in the first. */
static void some_steps_are_in_no_region(void **state)
{
    (void)state;
    branch_list *l = list_new();
    for (int i = 0; i < 4; i++) add(l, -1, -1);
    regions_are(l, "00*00*");
    l->step[2].alone = true;
    regions_are(l, "00*--");
    l->step[2].alone = false;
    l->step[1].first_stream = l->step[2].first_stream = true;
    regions_are(l, "0*000*");
    for (int i = 0; i < 4; i++) l->step[i].first_stream = true;
    regions_are(l, "----");
    free(l);
}

/* Of lists of any form: regions are stretches, their two sets need nothing of each other, and the
   same list has the same regions. */
static void sets_need_nothing_of_each_other(void **state)
{
    (void)state;
    branch_list *l = list_new(), *again = list_new();
    int sides = 0;
    srand(3);
    for (int round = 0; round < 400; round++) {
        const int sparse = 1 + rand() % 12;
        l->count = 1 + rand() % MOST;
        for (int i = 0; i < l->count; i++) {
            l->step[i] = (pare_branch_step){.macs = rand() % 2 ? 1e3 * (rand() % 100000) : 0,
                                            .bytes = 1e2 * (rand() % 100000),
                                            .outputs = rand() % 1000000,
                                            .type = rand() % 2 ? PARE_s8 : PARE_f32,
                                            .alone = rand() % 20 == 0,
                                            .first_stream = rand() % 20 == 0};
            for (int k = 0; k < PARE_BRANCH_REACH && k < i; k++)
                if (rand() % (4 * sparse) == 0) l->step[i].after |= (uint64_t)1 << k;
        }
        memcpy(again, l, sizeof *l);
        assert_int_equal(pare_branches_choose(&l->ctx, l->step, l->count), PARE_OK);
        assert_int_equal(pare_branches_choose(&l->ctx, again->step, l->count), PARE_OK);
        assert_memory_equal(l->step, again->step, sizeof l->step);
        for (int i = 0; i < l->count; i++) {
            const pare_branch_step *s = &l->step[i];
            sides += s->side;
            assert_false(s->region >= 0 && s->alone);
            assert_false(s->side && (s->region < 0 || s->first_stream));
            for (int k = 0; k < i && k < PARE_BRANCH_REACH; k++) {
                const pare_branch_step *t = &l->step[i - 1 - k];
                if (s->region < 0 || t->region != s->region) continue;
                assert_int_equal(l->step[i - 1].region, s->region);
                if (s->after >> k & 1) assert_int_equal(s->side, t->side);
            }
        }
    }
    assert_true(sides > 400);
    free(l);
    free(again);
}

static void memory_that_is_not_granted_is_told(void **state)
{
    (void)state;
    branch_list *l = list_new();
    add(l, -1, -1);
    for (int n = 0; n < 2; n++) {
        l->ctx.fail_after = n;
        assert_int_equal(pare_branches_choose(&l->ctx, l->step, l->count), PARE_MEMORY);
    }
    free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shortcut_is_beside_its_main_path),
        cmocka_unit_test(steps_of_branches_may_alternate),
        cmocka_unit_test(chains_have_no_regions),
        cmocka_unit_test(steps_that_fill_the_device_stay_alone),
        cmocka_unit_test(some_steps_are_in_no_region),
        cmocka_unit_test(sets_need_nothing_of_each_other),
        cmocka_unit_test(memory_that_is_not_granted_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

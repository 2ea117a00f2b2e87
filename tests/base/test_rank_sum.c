/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of all ranks of a job, played by one process: every step finds its partner's, and all
   ranks end with the tree's sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/base/rank_sum.h"

#include <math.h>
#include <string.h>

enum { RANKS = 33, COUNT = 37 };

typedef struct job {
    float x[RANKS][COUNT];
    pare_rank_sum_step step[RANKS][PARE_RANK_SUM_STEPS];
    int steps[RANKS], adding[RANKS], at[RANKS];
    int size;
    size_t count;
} job;

/* Of very different sizes, so that every order has a sum of its own. */
static float part(int rank, size_t i)
{
    const uint32_t mix = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u * 65537u);
    return ldexpf((float)(int32_t)mix, (int)(mix >> 7 & 31) - 40);
}

static float tree(int first, int count, size_t i)
{
    int half = 1;
    if (count == 1) return part(first, i);
    while (half * 2 < count) half *= 2;
    return tree(first, half, i) + tree(first + half, count - half, i);
}

/* The next step of both ranks, where they are each other's. */
static bool meet(job *j, int a)
{
    const pare_rank_sum_step *mine = &j->step[a][j->at[a]];
    const int b = mine->other;
    const pare_rank_sum_step *its = &j->step[b][j->at[b]];
    float given[2][COUNT];
    if (j->at[b] == j->steps[b] || its->other != a) return false;
    assert_int_equal(mine->give, its->take);
    assert_int_equal(mine->take, its->give);
    memcpy(given[0], &j->x[a][mine->give_at], mine->give * sizeof(float));
    memcpy(given[1], &j->x[b][its->give_at], its->give * sizeof(float));
    const pare_rank_sum_step *step[] = {mine, its};
    const int rank[] = {a, b};
    for (int k = 0; k < 2; k++) {
        const size_t room = pare_rank_sum_room(j->size, j->count);
        assert_true(step[k]->take_at + step[k]->take <= j->count);
        assert_true(!step[k]->add || step[k]->take <= room);
        assert_true(!step[k]->add || j->at[rank[k]] < j->adding[rank[k]]);
        for (size_t i = 0; i < step[k]->take; i++) {
            float *to = &j->x[rank[k]][step[k]->take_at + i];
            *to = step[k]->add ? *to + given[!k][i] : given[!k][i];
        }
        j->at[rank[k]]++;
    }
    return true;
}

static void play(int size, size_t count)
{
    static job j;
    memset(&j, 0, sizeof j);
    j.size = size;
    j.count = count;
    for (int r = 0; r < size; r++) {
        j.steps[r] = pare_rank_sum_plan(j.step[r], r, size, count, &j.adding[r]);
        assert_true(j.steps[r] <= PARE_RANK_SUM_STEPS);
        for (size_t i = 0; i < count; i++) j.x[r][i] = part(r, i);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < size; r++)
            while (j.at[r] < j.steps[r] && meet(&j, r)) moved = true;
    }
    for (int r = 0; r < size; r++) {
        assert_int_equal(j.at[r], j.steps[r]); /* none waits for ever */
        for (size_t i = 0; i < count; i++) {
            const float want = tree(0, size, i);
            assert_memory_equal(&j.x[r][i], &want, sizeof want);
        }
    }
}

static void test_all_have_the_trees_sum(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++)
        for (size_t count = 0; count <= COUNT; count += size > 9 ? 12 : 1) play(size, count);
}

static void test_steps_of_a_large_job(void **state)
{
    (void)state;
    pare_rank_sum_step step[PARE_RANK_SUM_STEPS];
    int adding;
    assert_int_equal(pare_rank_sum_plan(step, 0, INT32_MAX, 1, &adding), 62);
    assert_int_equal(pare_rank_sum_plan(step, 5, 1 << 30, 7, &adding), 60);
    assert_int_equal(step[29].other, 5 + (1 << 29));
    assert_int_equal(pare_rank_sum_plan(step, 0, 1, 7, &adding), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_have_the_trees_sum),
        cmocka_unit_test(test_steps_of_a_large_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

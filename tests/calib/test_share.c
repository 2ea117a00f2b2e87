/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over runs that ranks share: started by one process and by mpirun (ranks.sh), each rank
   asserts that its part and the sums are those that the blocks in order give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/moments.h"
#include "calib/share.h"

#include <math.h>
#include <string.h>

enum { NUMBERS = 5 };

typedef struct world {
    pare_ctx ctx;
    pare_comm *comm;
} world;

static int begin(void **state)
{
    static world w;
    pare_ctx_init(&w.ctx);
    *state = &w;
    return pare_comm_open(&w.ctx, &w.comm) != PARE_OK;
}

static int end(void **state)
{
    pare_comm_close(((world *)*state)->comm);
    return 0;
}

/* Of very different sizes, so that every order has a sum of its own. */
static double part(int64_t run, int i)
{
    const uint32_t mix = (uint32_t)run * 2654435761u ^ (uint32_t)i * 40503u * 65537u;
    return ldexp((double)(int32_t)mix / 3, (int)(mix >> 7 & 31) - 40);
}

/* As pare_run_share_open cuts them, of runs without a model. */
static pare_run_share share_of(pare_comm *comm, int64_t runs)
{
    const int64_t blocks = runs < PARE_SHARE_BLOCKS ? runs : PARE_SHARE_BLOCKS,
                  ranks = pare_comm_size(comm), rank = pare_comm_rank(comm);
    pare_run_share s = {.comm = ranks > blocks ? NULL : comm, .runs = runs, .count = runs};
    if (!s.comm) return s;
    s.first = rank * blocks / ranks * runs / blocks;
    s.count = (rank + 1) * blocks / ranks * runs / blocks - s.first;
    return s;
}

/* Block by block, then the blocks in order. */
static double expected(int64_t runs, int i)
{
    const int64_t blocks = runs < PARE_SHARE_BLOCKS ? runs : PARE_SHARE_BLOCKS;
    double all = 0;
    for (int64_t b = 0; b < blocks; b++) {
        double sum = 0;
        for (int64_t r = b * runs / blocks; r < (b + 1) * runs / blocks; r++) sum += part(r, i);
        all = b ? all + sum : sum;
    }
    return all;
}

static void test_sums(void **state)
{
    world *w = *state;
    for (int64_t runs = 1; runs < 70; runs += runs < 20 ? 1 : 17) {
        const pare_run_share share = share_of(w->comm, runs);
        pare_block_sum *sum;
        double *x;
        assert_int_equal(pare_block_sum_new(&w->ctx, &sum, &share, NUMBERS), PARE_OK);
        for (int64_t r = share.first; r < share.first + share.count; r++) {
            assert_int_equal(pare_block_sum_at(sum, r, &x), PARE_OK);
            assert_false(pare_block_sum_turns(sum, r));
            for (int i = 0; i < NUMBERS; i++) x[i] += part(r, i);
        }
        assert_int_equal(pare_block_sum_end(sum, &x), PARE_OK);
        for (int i = 0; i < NUMBERS; i++) {
            const double want = expected(runs, i);
            assert_memory_equal(&x[i], &want, sizeof want);
        }
        pare_block_sum_free(sum);
    }
}

static void test_join(void **state)
{
    world *w = *state;
    enum { RUNS = 37 };
    const pare_run_share share = share_of(w->comm, RUNS);
    double x[RUNS] = {0};
    for (int64_t r = share.first; r < share.first + share.count; r++) x[r] = -part(r, 0);
    assert_int_equal(pare_run_share_join(&share, x, RUNS), PARE_OK);
    for (int r = 0; r < RUNS; r++) assert_true(x[r] == -part(r, 0));
}

/* Both sets of an observer, of runs whose fifth is held out; rows of whole numbers are exact. */
static void test_moments(void **state)
{
    world *w = *state;
    enum { RUNS = 41, ROWS = 3, WIDTH = 2 };
    const pare_run_share share = share_of(w->comm, RUNS);
    const pare_columns columns = {
        .groups = 1, .columns = WIDTH, .channels = WIDTH, .outputs = 1, .rows = ROWS, .batch = 1};
    pare_observer *o;
    double rows[2] = {0}, xx[2] = {0}, x0[2] = {0};
    for (int r = 0; r < RUNS; r++)
        for (int i = 0; i < ROWS; i++) {
            const int set = pare_is_held_out(r);
            rows[set]++, x0[set] += r, xx[set] += r * (i + 1);
        }
    assert_int_equal(pare_observer_new(&w->ctx, &o, &columns, 2, false, &share, 1), PARE_OK);
    for (int64_t r = share.first; r < share.first + share.count; r++) {
        float x[ROWS * WIDTH];
        for (int i = 0; i < ROWS; i++) x[i * WIDTH] = (float)r, x[i * WIDTH + 1] = (float)(i + 1);
        assert_int_equal(pare_observer_add(o, r, x, NULL, NULL), PARE_OK);
    }
    assert_int_equal(pare_observer_finish(o), PARE_OK);
    for (int set = 0; set < 2; set++) {
        const pare_moments *m = pare_observer_moments(o, set, 0);
        assert_true(m->rows == rows[set] && m->x[0] == x0[set] && m->xx[1] == xx[set]);
    }
    pare_observer_free(o);
}

static void test_allocation_fails(void **state)
{
    world *w = *state;
    const pare_run_share share = share_of(NULL, 20);
    pare_status st = PARE_MEMORY;
    int n = 0;
    for (; st != PARE_OK; n++) {
        pare_block_sum *sum = NULL;
        double *x;
        w->ctx.fail_after = n;
        st = pare_block_sum_new(&w->ctx, &sum, &share, NUMBERS);
        for (int r = 0; st == PARE_OK && r < 20; r++) st = pare_block_sum_at(sum, r, &x);
        if (st == PARE_OK) st = pare_block_sum_end(sum, &x);
        pare_block_sum_free(sum);
        w->ctx.fail_after = -1;
        assert_true(st == PARE_OK || st == PARE_MEMORY);
        pare_ctx_clear(&w->ctx);
    }
    assert_int_equal(n, 1 + 1 + PARE_SHARE_BLOCKS); /* the object and each block */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_allocation_fails),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a served model: which requests become a batch, and when. */
#include "tools/serve/batcher.h"

#include "runtime/base/clock.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* A request of a kind; those of one kind are alike. */
typedef struct wish {
    pare_job job; /* first */
    int kind;
} wish;

static bool alike(const pare_job *a, const pare_job *b)
{
    return ((const wish *)a)->kind == ((const wish *)b)->kind;
}

enum { MOST = 64 };
typedef struct line {
    pare_ctx ctx;
    pare_batcher *batcher;
    wish wish[MOST];
    int count;
    double wait; /* of the last push */
} line;

static void line_open(line *l, const pare_batcher_options *options)
{
    pare_batcher_options o = *options;
    memset(l, 0, sizeof *l);
    pare_ctx_init(&l->ctx);
    o.alike = alike;
    if (!o.limit) o.limit = MOST;
    assert_int_equal(pare_batcher_new(&l->ctx, &l->batcher, &o), PARE_OK);
}

static bool add(line *l, int kind, int64_t rows, double at, int64_t priority, double deadline)
{
    wish *w = &l->wish[l->count];
    *w = (wish){{.rows = rows, .priority = priority, .queued = at, .deadline = deadline}, kind};
    const bool fits = pare_batcher_push(l->batcher, &w->job, &l->wait);
    l->count += fits;
    return fits;
}

static bool add_plain(line *l, int kind, int64_t rows, double at)
{
    return add(l, kind, rows, at, 0, INFINITY);
}

/* Are these, by their numbers, the jobs of a list? -1 ends. */
static void holds(const line *l, const pare_job *list, const int *numbers)
{
    for (; *numbers >= 0; numbers++, list = list->next) {
        assert_non_null(list);
        assert_ptr_equal(list, &l->wish[*numbers].job);
    }
    assert_null(list);
}
#define HOLDS(l, list, ...) holds(l, list, (const int[]){__VA_ARGS__, -1})

static void a_batch_is_alike_and_in_order(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 4, .merge = true});
    for (int i = 0; i < 7; i++) add_plain(&l, i == 1 || i == 4, 1, 0);
    assert_int_equal(pare_batcher_waiting(l.batcher), 7);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 0, 2, 3, 5);
    assert_int_equal(batch.rows, 4);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 1, 4);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 6);
    assert_false(pare_batcher_choose(l.batcher, 0, &batch, &until));
    assert_true(isinf(until));
    assert_int_equal(pare_batcher_waiting(l.batcher), 0);
    add_plain(&l, 0, 1, 0); /* the list is whole after it was empty */
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 7);
    pare_batcher_free(l.batcher);
}

static void rows_do_not_pass_the_most(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 4, .merge = true, .delay = 1});
    add_plain(&l, 0, 3, 0);
    add_plain(&l, 0, 2, 0); /* does not fit behind it, and nothing goes before it */
    add_plain(&l, 0, 1, 0);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 0);
    assert_false(pare_batcher_choose(l.batcher, 0.5, &batch, &until));
    assert_true(pare_batcher_choose(l.batcher, 1, &batch, &until));
    HOLDS(&l, batch.jobs, 1, 2);
    add_plain(&l, 0, 9, 2); /* more than a batch: alone, at once */
    add_plain(&l, 0, 1, 2);
    assert_true(pare_batcher_choose(l.batcher, 2, &batch, &until));
    HOLDS(&l, batch.jobs, 3);
    assert_true(pare_batcher_choose(l.batcher, 4, &batch, &until));
    pare_batcher_free(l.batcher);
}

static void without_merging_each_is_alone(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 4});
    add_plain(&l, 0, 1, 0);
    add_plain(&l, 0, 1, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
        HOLDS(&l, batch.jobs, i);
    }
    pare_batcher_free(l.batcher);
}

static void a_delay_lets_a_batch_fill(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 3, .merge = true, .delay = 0.25});
    add_plain(&l, 0, 1, 10);
    assert_false(pare_batcher_choose(l.batcher, 10, &batch, &until));
    assert_true(until == 10.25);
    add_plain(&l, 0, 1, 10.125);
    assert_false(pare_batcher_choose(l.batcher, 10.125, &batch, &until));
    assert_true(until == 10.25);
    add_plain(&l, 0, 1, 10.1875);
    assert_true(pare_batcher_choose(l.batcher, 10.1875, &batch, &until));
    HOLDS(&l, batch.jobs, 0, 1, 2);
    add_plain(&l, 0, 1, 11);
    assert_false(pare_batcher_choose(l.batcher, 11.125, &batch, &until));
    assert_true(pare_batcher_choose(l.batcher, 11.25, &batch, &until));
    HOLDS(&l, batch.jobs, 3);
    add_plain(&l, 0, 1, 12);
    pare_batcher_hurry(l.batcher); /* no one waits for others any more */
    assert_true(pare_batcher_choose(l.batcher, 12, &batch, &until));
    HOLDS(&l, batch.jobs, 4);
    pare_batcher_free(l.batcher);
}

static void preferred_sizes_do_not_wait(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l,
              &(pare_batcher_options){
                  .rows = 8, .merge = true, .delay = 1, .preferred = {2, 4}, .preferred_count = 2});
    for (int i = 0; i < 7; i++) add_plain(&l, 0, 1, 0);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 0, 1, 2, 3); /* the largest of them */
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    HOLDS(&l, batch.jobs, 4, 5);
    assert_false(pare_batcher_choose(l.batcher, 0, &batch, &until));
    assert_true(pare_batcher_choose(l.batcher, 1, &batch, &until));
    HOLDS(&l, batch.jobs, 6);
    pare_batcher_free(l.batcher);
}

static void urgent_ones_go_first(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    const int priority[] = {2, 3, 1, 2, 1, 3}, order[] = {2, 4, 0, 3, 1, 5};
    line_open(&l, &(pare_batcher_options){.rows = 1, .merge = true});
    for (int i = 0; i < 6; i++) add(&l, 0, 1, 0, priority[i], INFINITY);
    for (int i = 0; i < 6; i++) {
        assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
        HOLDS(&l, batch.jobs, order[i]);
    }
    pare_batcher_free(l.batcher);
}

static void late_ones_are_handed_out_apart(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 4, .merge = true, .delay = 8});
    add(&l, 0, 1, 0, 0, 2);
    add(&l, 0, 1, 0, 0, INFINITY);
    add(&l, 0, 1, 0, 0, 1);
    assert_false(pare_batcher_choose(l.batcher, 0, &batch, &until));
    assert_true(until == 1);
    assert_true(pare_batcher_choose(l.batcher, 1, &batch, &until));
    HOLDS(&l, batch.late, 2);
    assert_null(batch.jobs);
    assert_true(pare_batcher_choose(l.batcher, 9, &batch, &until));
    HOLDS(&l, batch.late, 0);
    HOLDS(&l, batch.jobs, 1);
    pare_batcher_free(l.batcher);
}

static void a_full_queue_refuses(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 1, .merge = true, .limit = 2});
    assert_true(add_plain(&l, 0, 1, 0) && add_plain(&l, 0, 1, 0));
    assert_false(add_plain(&l, 0, 1, 0));
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    assert_true(add_plain(&l, 0, 1, 0));
    while (pare_batcher_choose(l.batcher, 0, &batch, &until)) {
    }
    pare_batcher_free(l.batcher);
}

/* It goes last, takes room that is left, and none of a request's. */
static void background_takes_no_room(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 1, .limit = 2});
    for (int i = 0; i < 3; i++)
        assert_int_equal(add(&l, 0, 1, 0, PARE_BACKGROUND, INFINITY), i < 2);
    for (int i = 0; i < 3; i++) assert_int_equal(add_plain(&l, 0, 1, 0), i < 2);
    static const int order[] = {2, 3, 0, 1};
    for (int i = 0; i < 4; i++) {
        assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
        HOLDS(&l, batch.jobs, order[i]);
    }
    assert_true(add_plain(&l, 0, 1, 0) && add_plain(&l, 0, 1, 0));
    assert_false(add_plain(&l, 0, 1, 0));
    while (pare_batcher_choose(l.batcher, 0, &batch, &until)) {
    }
    pare_batcher_free(l.batcher);
}

static void what_is_put_back_has_its_place(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 2, .merge = true, .limit = 3});
    add(&l, 0, 1, 1, 5, INFINITY);
    add(&l, 0, 1, 2, 7, 90);
    assert_true(pare_batcher_choose(l.batcher, 3, &batch, &until));
    HOLDS(&l, batch.jobs, 0, 1);
    add(&l, 0, 1, 3, 4, INFINITY);
    add(&l, 0, 1, 4, 5, INFINITY);
    add(&l, 0, 1, 5, 9, INFINITY);
    pare_batcher_put_back(l.batcher, batch.jobs); /* there is no room for a request */
    assert_false(add_plain(&l, 0, 1, 6));
    assert_int_equal(pare_batcher_waiting(l.batcher), 5);
    assert_true(pare_batcher_choose(l.batcher, 6, &batch, &until));
    HOLDS(&l, batch.jobs, 2, 0);
    assert_true(pare_batcher_choose(l.batcher, 99, &batch, &until));
    HOLDS(&l, batch.late, 1);
    HOLDS(&l, batch.jobs, 3, 4);
    assert_false(pare_batcher_choose(l.batcher, 99, &batch, &until));
    pare_batcher_free(l.batcher);
}

/* Two instances at a second for ten rows: a row that waits is 50 ms for those behind it. */
static void too_long_a_wait_is_refused(void **state)
{
    (void)state;
    line l;
    pare_jobs batch;
    double until;
    line_open(&l, &(pare_batcher_options){.rows = 4, .merge = true, .wait = 0.4, .instances = 2});
    for (int i = 0; i < 3; i++) assert_true(add_plain(&l, 0, 4, 0)); /* nothing is known yet */
    pare_batcher_ran(l.batcher, 10, 1);
    assert_false(add_plain(&l, 0, 1, 0));
    assert_float_equal(l.wait, 0.6, 1e-12);
    assert_true(add(&l, 0, 1, 0, -1, INFINITY)); /* goes before them */
    assert_float_equal(l.wait, 0, 0);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    assert_int_equal(batch.rows, 1);
    assert_true(pare_batcher_choose(l.batcher, 0, &batch, &until));
    assert_true(add_plain(&l, 0, 1, 0)); /* behind 8 rows */
    for (int i = 0; i < 64; i++) pare_batcher_ran(l.batcher, 10, 2);
    assert_false(add_plain(&l, 0, 1, 0));
    assert_float_equal(l.wait, 0.9, 1e-3); /* 9 rows at half the pace */
    while (pare_batcher_choose(l.batcher, 0, &batch, &until)) {
    }
    assert_true(add_plain(&l, 0, 8, 0)); /* what finds no one is taken, however slow the model is */
    pare_batcher_free(l.batcher);
}

/* --- several threads --- */

enum { EACH = 5000, WRITERS = 3, READERS = 3 };
static wish crowd[WRITERS][EACH];
static atomic_int taken[WRITERS][EACH], batches;

static void *push_all(void *user)
{
    line *l = ((void **)user)[0];
    wish *own = ((void **)user)[1];
    double wait;
    for (int i = 0; i < EACH; i++) {
        own[i] = (wish){{.rows = 1, .queued = pare_seconds(), .deadline = INFINITY}, i % 2};
        while (!pare_batcher_push(l->batcher, &own[i].job, &wait)) {
            const struct timespec pause = {.tv_nsec = 20000};
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

static void *take_all(void *user)
{
    line *l = user;
    pare_jobs batch;
    while (pare_batcher_take(l->batcher, &batch)) {
        atomic_fetch_add(&batches, 1);
        for (pare_job *j = batch.jobs; j; j = j->next) {
            const ptrdiff_t at = (wish *)(void *)j - &crowd[0][0];
            atomic_fetch_add(&taken[at / EACH][at % EACH], 1);
        }
    }
    return NULL;
}

static void each_is_taken_once(void **state)
{
    (void)state;
    line l;
    pthread_t writer[WRITERS], reader[READERS];
    void *given[WRITERS][2];
    line_open(&l, &(pare_batcher_options){.rows = 8, .merge = true, .delay = 1e-5, .limit = 50});
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&reader[i], NULL, take_all, &l), 0);
    for (int i = 0; i < WRITERS; i++) {
        given[i][0] = &l;
        given[i][1] = crowd[i];
        assert_int_equal(pthread_create(&writer[i], NULL, push_all, given[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(writer[i], NULL);
    pare_batcher_close(l.batcher);
    for (int i = 0; i < READERS; i++) pthread_join(reader[i], NULL);
    for (int i = 0; i < WRITERS; i++)
        for (int k = 0; k < EACH; k++) assert_int_equal(atomic_load(&taken[i][k]), 1);
    assert_true(atomic_load(&batches) <= WRITERS * EACH);
    assert_int_equal(pare_batcher_waiting(l.batcher), 0);
    pare_batcher_free(l.batcher);
}

typedef struct waiter {
    line *line;
    pare_jobs batch;
    atomic_bool ended;
} waiter;

static void *take_one(void *user)
{
    waiter *w = user;
    (void)pare_batcher_take(w->line->batcher, &w->batch);
    atomic_store(&w->ended, true);
    return NULL;
}

/* Pushes jobs while a thread waits, with a delay that the test would not outlive. */
static void wakes(const pare_batcher_options *options, int count, int64_t rows)
{
    line l;
    waiter w = {.line = &l};
    pthread_t thread;
    const struct timespec pause = {.tv_nsec = 2000000};
    line_open(&l, options);
    assert_int_equal(pthread_create(&thread, NULL, take_one, &w), 0);
    for (int i = 0; i < count; i++) {
        nanosleep(&pause, NULL);
        assert_false(atomic_load(&w.ended));
        assert_true(add_plain(&l, 0, 1, pare_seconds()));
    }
    pthread_join(thread, NULL);
    assert_int_equal(w.batch.rows, rows);
    pare_batcher_free(l.batcher);
}

static void who_waits_hears_of_a_batch(void **state)
{
    (void)state;
    wakes(&(pare_batcher_options){.rows = 4, .merge = true, .delay = 1e6}, 4, 4);
    wakes(&(pare_batcher_options){.rows = 4, .merge = false, .delay = 1e6}, 1, 1);
    wakes(
        &(pare_batcher_options){
            .rows = 8, .merge = true, .delay = 1e6, .preferred = {3}, .preferred_count = 1},
        3, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_alike_and_in_order),
        cmocka_unit_test(rows_do_not_pass_the_most),
        cmocka_unit_test(without_merging_each_is_alone),
        cmocka_unit_test(a_delay_lets_a_batch_fill),
        cmocka_unit_test(preferred_sizes_do_not_wait),
        cmocka_unit_test(urgent_ones_go_first),
        cmocka_unit_test(late_ones_are_handed_out_apart),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(background_takes_no_room),
        cmocka_unit_test(what_is_put_back_has_its_place),
        cmocka_unit_test(too_long_a_wait_is_refused),
        cmocka_unit_test(each_is_taken_once),
        cmocka_unit_test(who_waits_hears_of_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

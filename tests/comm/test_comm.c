/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks give each other. Started by one process it asserts what a job of one is; by mpirun
   (ranks.sh) each rank asserts, against what it can compute of the others by itself. With OWN_MPI
   it is a program that is linked to MPI and has begun with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/comm/comm.h"

#ifdef OWN_MPI
#include <mpi.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct world {
    pare_ctx ctx;
    pare_comm *comm;
    int rank, size;
} world;

static int begin(void **state)
{
    static world w;
#ifdef OWN_MPI
    int threads;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads)) return 1;
#endif
    pare_ctx_init(&w.ctx);
    if (pare_comm_open(&w.ctx, &w.comm) != PARE_OK) {
        print_error("%s\n", w.ctx.message);
        return 1;
    }
    w.rank = pare_comm_rank(w.comm);
    w.size = pare_comm_size(w.comm);
    *state = &w;
    return 0;
}

static int end(void **state)
{
    world *w = *state;
    pare_comm_close(w->comm);
#ifdef OWN_MPI
    int size;
    MPI_Errhandler handler; /* the program's world goes on, as it was */
    if (MPI_Comm_size(MPI_COMM_WORLD, &size) || size != w->size) return 1;
    if (MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler) || handler != MPI_ERRORS_ARE_FATAL)
        return 1;
    return MPI_Finalize();
#else
    return 0;
#endif
}

static void test_place(void **state)
{
    const world *w = *state;
    assert_int_equal(w->size, pare_comm_launched_size());
    assert_int_equal(w->rank, pare_comm_launched_rank());
    assert_true(w->rank >= 0 && w->rank < w->size);
    if (!w->comm) return;
    assert_int_equal(pare_comm_local_rank(w->comm), w->rank); /* all are on this machine */
    assert_true(pare_comm_threads(w->comm) >= 1);
    assert_true(*pare_comm_library(w->comm));
}

static void test_whole_numbers(void **state)
{
    world *w = *state;
    enum { COUNT = 1000 };
    uint64_t sum[COUNT];
    int64_t most[COUNT];
    float largest[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sum[i] = ((uint64_t)i << 60) + (uint64_t)w->rank;
        most[i] = i * (w->rank % 2 ? 1 : -1) - w->rank;
        largest[i] = (float)(w->rank * i) - 5;
    }
    assert_int_equal(pare_comm_allreduce(w->comm, sum, COUNT, PARE_COMM_SUM_U64), PARE_OK);
    assert_int_equal(pare_comm_allreduce(w->comm, most, COUNT, PARE_COMM_MAX_I64), PARE_OK);
    assert_int_equal(pare_comm_allreduce(w->comm, largest, COUNT, PARE_COMM_MAX_F32), PARE_OK);
    const uint64_t n = (uint64_t)w->size;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(sum[i], n * ((uint64_t)i << 60) + n * (n - 1) / 2);
        const int64_t even = -i, odd = w->size > 1 ? i - 1 : -i;
        assert_int_equal(most[i], even > odd ? even : odd);
        assert_true(largest[i] == (float)((w->size - 1) * i) - 5);
    }
}

/* Number i of a rank: of very different sizes, so that every order has a sum of its own. */
static float part(int rank, size_t i)
{
    const uint32_t mix = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u * 65537u);
    return ldexpf((float)(int32_t)mix, (int)(mix >> 7 & 31) - 40);
}

/* The tree's sum of ranks first .. first + count - 1. */
static float tree(int first, int count, size_t i)
{
    int half = 1;
    if (count == 1) return part(first, i);
    while (half * 2 < count) half *= 2;
    return tree(first, half, i) + tree(first + half, count - half, i);
}

static void test_sum_is_the_trees(void **state)
{
    world *w = *state;
    static const size_t counts[] = {0, 1, 2, 3, 5, 64, 1000, 100003};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        float *x = malloc((counts[k] + 1) * sizeof *x);
        for (size_t i = 0; i <= counts[k]; i++) x[i] = part(w->rank, i);
        assert_int_equal(pare_comm_sum_f32(w->comm, x, counts[k]), PARE_OK);
        for (size_t i = 0; i < counts[k]; i++) {
            const float want = tree(0, w->size, i);
            assert_memory_equal(&x[i], &want, sizeof want);
        }
        const float kept = part(w->rank, counts[k]);
        assert_memory_equal(&x[counts[k]], &kept, sizeof kept); /* nothing behind the last */
        free(x);
    }
}

/* Numbers that f32 does not hold, in the same tree. */
static double wide(int first, int count, size_t i)
{
    int half = 1;
    if (count == 1) return (double)part(first, i) / 3;
    while (half * 2 < count) half *= 2;
    return wide(first, half, i) + wide(first + half, count - half, i);
}

static void test_sum_of_doubles(void **state)
{
    world *w = *state;
    enum { COUNT = 101 };
    double x[COUNT];
    for (size_t i = 0; i < COUNT; i++) x[i] = wide(w->rank, 1, i);
    assert_int_equal(pare_comm_sum_f64(w->comm, x, COUNT), PARE_OK);
    for (size_t i = 0; i < COUNT; i++) assert_true(x[i] == wide(0, w->size, i));
}

static void test_copies(void **state)
{
    world *w = *state;
    for (int root = 0; root < w->size; root++) {
        char text[5000] = "";
        for (size_t i = 0; w->rank == root && i < sizeof text; i++) text[i] = (char)(i + root);
        assert_int_equal(pare_comm_broadcast(w->comm, text, sizeof text, root), PARE_OK);
        for (size_t i = 0; i < sizeof text; i++) assert_int_equal(text[i], (char)(i + root));
    }
    int *all = w->rank ? NULL : calloc((size_t)w->size, sizeof *all);
    const int mine = w->rank * 3;
    assert_int_equal(pare_comm_gather(w->comm, &mine, sizeof mine, all), PARE_OK);
    for (int i = 0; all && i < w->size; i++) assert_int_equal(all[i], i * 3);
    free(all);
}

/* Rank r has r numbers for rank 0. */
static void test_first_gets(void **state)
{
    world *w = *state;
    int mine[64], got[64];
    assert_in_range(w->size, 1, 64);
    for (int i = 0; i < w->rank; i++) mine[i] = w->rank * 100 + i;
    assert_int_equal(pare_comm_settle(w->comm, PARE_OK), PARE_OK);
    for (int from = w->size - 1; from >= 0; from--) {
        const size_t bytes = (size_t)from * sizeof *mine;
        memset(got, 0, sizeof got);
        assert_int_equal(pare_comm_bring(w->comm, mine, bytes, from, got), PARE_OK);
        for (int i = 0; i < from; i++) assert_int_equal(got[i], w->rank ? 0 : from * 100 + i);
    }
    if (w->rank) return;
    mine[0] = 7;
    assert_int_equal(pare_comm_bring(w->comm, mine, sizeof *mine, 0, got), PARE_OK);
    assert_int_equal(got[0], 7);
}

/* Rank r has r + 1 numbers, but rank 1 none. */
static void test_all_have_all(void **state)
{
    world *w = *state;
    int mine[64], all[64 * 64], count = 0;
    size_t bytes[64];
    assert_in_range(w->size, 1, 64);
    for (int i = 0; i <= w->rank; i++) mine[i] = w->rank * 100 + i;
    for (int r = 0; r < w->size; r++) bytes[r] = r == 1 ? 0 : (size_t)(r + 1) * sizeof *mine;
    assert_int_equal(pare_comm_all_gather(w->comm, mine, bytes, all), PARE_OK);
    for (int r = 0; r < w->size; r++)
        for (int i = 0; r != 1 && i <= r; i++) assert_int_equal(all[count++], r * 100 + i);
    if (!w->comm) return;
    bytes[0] = SIZE_MAX;
    assert_int_equal(pare_comm_all_gather(w->comm, mine, bytes, all), PARE_UNSUPPORTED);
    assert_non_null(strstr(w->ctx.message, "more than 1 GiB"));
    pare_ctx_clear(&w->ctx);
}

static void test_same(void **state)
{
    world *w = *state;
    assert_int_equal(pare_comm_same(w->comm, "model", "abc", 3), PARE_OK);
    assert_int_equal(pare_comm_same(w->comm, "model", "", 0), PARE_OK);
    if (!w->comm) return;
    assert_int_equal(pare_comm_same(w->comm, "model", w->rank == 1 ? "abd" : "abc", 3), PARE_INPUT);
    assert_int_equal(strncmp(w->ctx.message, "rank 1 (", 8), 0);
    assert_non_null(strstr(w->ctx.message, "another model than rank 0"));
    assert_true(pare_comm_failed(w->comm));
    pare_comm_forget(w->comm);
    pare_ctx_clear(&w->ctx);
    assert_false(pare_comm_failed(w->comm));
}

static void test_network(void **state)
{
    world *w = *state;
    pare_network network;
    assert_int_equal(pare_comm_measure(w->comm, &network), PARE_OK);
    if (w->comm) assert_true(network.alpha > 0 && network.beta > 0 && network.alpha < 10);
    if (!w->comm) assert_true(network.alpha == 0 && network.beta == 0);
    assert_int_equal(pare_comm_same(w->comm, "network", &network, sizeof network), PARE_OK);
}

static void test_wide_numbers(void **state)
{
    world *w = *state;
    const pare_int128 n = w->size, large = (pare_int128)1 << 100;
    pare_int128 x[] = {w->rank - 1000, -(large + w->rank), large * 7, 0};
    bool fits;
    assert_int_equal(pare_comm_sum_i128(w->comm, x, 4, &fits), PARE_OK);
    assert_true(fits);
    assert_true(x[0] == n * (n - 1) / 2 - 1000 * n);
    assert_true(x[1] == -(large * n + n * (n - 1) / 2));
    assert_true(x[2] == large * 7 * n);
    assert_true(x[3] == 0);
    pare_int128 most = (((pare_int128)1 << 126) - 1) * 2 + 1;
    assert_int_equal(pare_comm_sum_i128(w->comm, &most, 1, &fits), PARE_OK);
    assert_int_equal(fits, n == 1);
}

/* The first rank is asked to stop; all go on together. */
static void test_a_stop_is_forgotten(void **state)
{
    world *w = *state;
    uint64_t one = 1;
    pare_status st = w->rank ? pare_comm_allreduce(w->comm, &one, 1, PARE_COMM_SUM_U64)
                             : pare_comm_settle(w->comm, PARE_FAIL(&w->ctx, INTERRUPTED, "stop"));
    assert_int_equal(st, PARE_INTERRUPTED);
    assert_string_equal(w->ctx.message, "stop");
    pare_comm_forget(w->comm);
    pare_ctx_clear(&w->ctx);
    assert_int_equal(pare_comm_settle(w->comm, PARE_OK), PARE_OK);
    assert_int_equal(pare_comm_allreduce(w->comm, &one, 1, PARE_COMM_SUM_U64), PARE_OK);
    assert_int_equal(one, w->size);
}

/* Ranks that work on until they hear of a failure, each at its own pace; the one that speaks is the
   one that failed. In a second round two fail. */
static void test_failure_is_heard_at_work(void **state)
{
    world *w = *state;
    const int last = w->size - 1;
    assert_int_equal(pare_comm_listen(w->comm, &w->ctx), PARE_OK);
    assert_int_equal(pare_comm_settle(w->comm, PARE_OK), PARE_OK); /* all have listened */
    for (int round = 1; w->comm && round <= 2; round++) {
        pare_status st = PARE_OK;
        if (w->rank > last - round) {
            st = PARE_FAIL(&w->ctx, INPUT, "sample 7 is broken");
        } else {
            while (st == PARE_OK) st = pare_comm_listen(w->comm, &w->ctx);
            assert_int_equal(st, PARE_INTERRUPTED);
        }
        assert_int_equal(pare_comm_settle(w->comm, st), PARE_INPUT);
        assert_int_equal(strncmp(w->ctx.message, "rank ", w->size > round ? 5 : 0), 0);
        assert_non_null(strstr(w->ctx.message, "sample 7 is broken"));
        assert_int_equal(pare_comm_listen(w->comm, &w->ctx), PARE_INPUT);
        pare_comm_forget(w->comm);
        pare_ctx_clear(&w->ctx);
        assert_int_equal(pare_comm_settle(w->comm, PARE_OK), PARE_OK);
        pare_sleep_ms(60); /* what was heard is heard no more */
        assert_int_equal(pare_comm_listen(w->comm, &w->ctx), PARE_OK);
        assert_int_equal(pare_comm_settle(w->comm, PARE_OK), PARE_OK);
    }
}

/* --- channels: rank 0 sends numbers round all ranks, each of which adds its own --- */

enum { MESSAGES = 40, WINDOW = 3 };

/* Of a rank behind the first: hands on what comes until the end comes. Message `broken` and those
   behind it are sent as failed. */
static void hand_on(world *w, pare_channel *from, pare_channel *to, int broken)
{
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    for (int64_t m = 0; kind != PARE_CHANNEL_END; m++) {
        int64_t number;
        const void *in;
        void *out;
        assert_int_equal(pare_channel_receive(from, &kind, &number, &in), PARE_OK);
        if (kind != PARE_CHANNEL_END) assert_int_equal(number, m);
        assert_int_equal(pare_channel_next(to, &out), PARE_OK);
        assert_int_equal((uintptr_t)out % 64, 0);
        for (int i = 0; kind == PARE_CHANNEL_DATA && i <= m * 1000; i++)
            ((int32_t *)out)[i] = ((const int32_t *)in)[i] + w->rank;
        const size_t bytes = (size_t)(m * 1000 + 1) * sizeof(int32_t);
        if (kind == PARE_CHANNEL_DATA && m >= broken) kind = PARE_CHANNEL_FAILED;
        assert_int_equal(pare_channel_send(to, kind, bytes, m), PARE_OK);
    }
}

/* Of rank 0: returns how many came back with what all ranks made of them. */
static int send_round(world *w, pare_channel *to, pare_channel *from)
{
    int good = 0, sent = 0;
    pare_channel_kind kind = PARE_CHANNEL_DATA;
    for (int got = 0; kind != PARE_CHANNEL_END; got++) {
        int64_t number;
        const void *in;
        void *out;
        for (; sent <= MESSAGES && sent < got + WINDOW; sent++) {
            const pare_channel_kind what = sent < MESSAGES ? PARE_CHANNEL_DATA : PARE_CHANNEL_END;
            const int count = sent * 1000 + 1;
            assert_int_equal(pare_channel_next(to, &out), PARE_OK);
            for (int i = 0; i < count && what == PARE_CHANNEL_DATA; i++)
                ((int32_t *)out)[i] = sent * i;
            assert_int_equal(pare_channel_send(to, what, (size_t)count * sizeof(int32_t), sent),
                             PARE_OK);
        }
        assert_int_equal(pare_channel_receive(from, &kind, &number, &in), PARE_OK);
        if (kind != PARE_CHANNEL_DATA) continue;
        assert_int_equal(number, got);
        for (int i = 0; i <= got * 1000; i++)
            assert_int_equal(((const int32_t *)in)[i], got * i + w->size * (w->size - 1) / 2);
        good++;
    }
    return good;
}

static void go_round(world *w, int broken_rank, int broken, int good)
{
    pare_channel *to, *from;
    const size_t bytes = (size_t)(MESSAGES * 1000) * sizeof(int32_t);
    assert_int_equal(pare_comm_settle(w->comm, PARE_OK), PARE_OK);
    assert_int_equal(pare_channel_open(w->comm, &to, w->rank, (w->rank + 1) % w->size, bytes),
                     PARE_OK);
    assert_int_equal(
        pare_channel_open(w->comm, &from, (w->rank + w->size - 1) % w->size, w->rank, bytes),
        PARE_OK);
    assert_true(pare_channel_bytes(to) > 2 * bytes && pare_channel_bytes(to) < 2 * bytes + 512);
    assert_int_equal(pare_channel_bytes(from), pare_channel_bytes(to));
    assert_int_equal(pare_channel_bytes(NULL), 0);
    if (w->rank)
        hand_on(w, from, to, w->rank == broken_rank ? broken : MESSAGES);
    else
        assert_int_equal(send_round(w, to, from), good);
    pare_channel_close(to);
    pare_channel_close(from);
}

static void test_channels(void **state)
{
    world *w = *state;
    pare_channel *channel;
    if (!w->comm) return; /* one rank has no other to send to */
    go_round(w, -1, 0, MESSAGES);
    go_round(w, w->size - 1, 7, 7); /* the last rank fails at message 7 */
    go_round(w, 1, 0, 0);
    assert_int_equal(pare_channel_open(w->comm, &channel, w->rank, 0, (size_t)1 << 30),
                     PARE_UNSUPPORTED);
    assert_non_null(strstr(w->ctx.message, "more than 1 GiB"));
    pare_ctx_clear(&w->ctx);
}

/* The last test: a failure stays. The last rank fails where the others ask for a sum. */
static void test_failure_reaches_all(void **state)
{
    world *w = *state;
    const int last = w->size - 1;
    uint64_t one = 1;
    pare_status st;
    char begins[32] = "";
    if (w->rank == last)
        st = pare_comm_settle(w->comm, PARE_FAIL(&w->ctx, IO, "the disk is full"));
    else
        st = pare_comm_allreduce(w->comm, &one, 1, PARE_COMM_SUM_U64);
    if (last) (void)snprintf(begins, sizeof begins, "rank %d (", last);
    assert_int_equal(st, PARE_IO);
    assert_int_equal(strncmp(w->ctx.message, begins, strlen(begins)), 0);
    assert_non_null(strstr(w->ctx.message, "the disk is full"));
    if (!w->comm) return;
    assert_int_equal(pare_comm_settle(w->comm, PARE_OK),
                     PARE_IO); /* without a word to the others */
    assert_int_equal(pare_comm_sum_f32(w->comm, NULL, 0), PARE_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_sum_is_the_trees),
        cmocka_unit_test(test_sum_of_doubles),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_first_gets),
        cmocka_unit_test(test_all_have_all),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_wide_numbers),
        cmocka_unit_test(test_a_stop_is_forgotten),
        cmocka_unit_test(test_failure_is_heard_at_work),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_failure_reaches_all),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

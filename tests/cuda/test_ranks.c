/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks from device to device: those of MPI byte for byte, in one process and, started by
   mpirun (ranks.sh), in several, each on a device of its own. */
#include "runtime/comm/comm.h"
#include "runtime/cuda/comm/rank_sum.h"
#include "runtime/device/ranks.h"
#include "runtime/exec/exec.h"
#include "tests/simt/testing.h"

#include <math.h>

typedef struct world {
    pare_ctx ctx;
    pare_comm *comm;
    pare_device *device;
    const pare_ranks_table *table;
    unsigned char id[PARE_RANKS_ID];
} world;

static world w;

static pare_ranks_options options_of(size_t room)
{
    return (pare_ranks_options){.rank = pare_comm_rank(w.comm),
                                .size = pare_comm_size(w.comm),
                                .room = room,
                                .seconds = 20};
}

static void ok(pare_status st)
{
    if (st != PARE_OK) fail_msg("%s", w.ctx.message);
}

static void share_id(void)
{
    if (!pare_comm_rank(w.comm)) ok(w.table->make_id(&w.ctx, w.id));
    ok(pare_comm_broadcast(w.comm, w.id, sizeof w.id, 0));
}

static int begin(void **state)
{
    char name[32], library[32];
    (void)state;
    pare_ctx_init(&w.ctx);
    snprintf(name, sizeof name, "cuda:%d", pare_comm_launched_rank());
    if (pare_comm_open(&w.ctx, &w.comm) != PARE_OK ||
        pare_device_open(&w.ctx, &w.device, name) != PARE_OK) {
        print_error("%s\n", w.ctx.message);
        return 1;
    }
    w.table = w.device->ranks;
    if (w.table->find(&w.ctx, library, sizeof library) == PARE_OK) return 0;
    printf("%s\n", w.ctx.message);
    exit(77);
}

static int end(void **state)
{
    (void)state;
    pare_device_close(w.device);
    pare_comm_close(w.comm);
    return device_is_clean(NULL);
}

/* Number i of a rank: of very different sizes, so that every order has a sum of its own. */
static double part(int rank, size_t i)
{
    const uint32_t mix = ((uint32_t)i * 2654435761u) ^ ((uint32_t)rank * 40503u * 65537u);
    return ldexp((double)(int32_t)mix, (int)(mix >> 7 & 31) - 40);
}

static void set(pare_dtype dtype, void *x, size_t i, double v)
{
    if (dtype == PARE_f64)
        ((double *)x)[i] = v / 3;
    else
        ((float *)x)[i] = (float)v;
}

/* Twice, one sum after the other in the stream; nothing beyond the end changes. */
static void compare(pare_device_ranks *ranks, pare_dtype dtype, size_t count)
{
    const pare_backend *b = w.device->backend;
    const size_t each = dtype == PARE_f64 ? 8 : 4, bytes = (count + 1) * each;
    char *mine = calloc(count + 1, each), *got = calloc(count + 1, each),
         *sent = malloc(bytes); /* is read when the stream comes to it */
    void *there;
    for (size_t i = 0; i <= count; i++) set(dtype, mine, i, part(pare_comm_rank(w.comm), i));
    memcpy(sent, mine, bytes);
    ok(b->alloc(&w.ctx, w.device, &there, bytes));
    ok(b->upload(&w.ctx, w.device->setup, there, sent, bytes));
    for (int turn = 0; turn < 2; turn++) {
        ok(w.table->sum(&w.ctx, ranks, w.device->setup, dtype, there, count));
        ok(dtype == PARE_f64 ? pare_comm_sum_f64(w.comm, (double *)(void *)mine, count)
                             : pare_comm_sum_f32(w.comm, (float *)(void *)mine, count));
    }
    ok(b->download(&w.ctx, w.device->setup, got, there, bytes));
    ok(w.table->wait(&w.ctx, ranks, w.device->setup));
    assert_memory_equal(got, mine, bytes);
    b->free(w.device, there);
    free(sent);
    free(mine);
    free(got);
}

static void sums_are_those_of_mpi(void **state)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 31, 64, 1000, 10007},
                        rooms[] = {8, 1000, 1 << 16};
    (void)state;
    for (size_t r = 0; r < sizeof rooms / sizeof *rooms; r++) {
        const pare_ranks_options options = options_of(rooms[r]);
        pare_device_ranks *ranks;
        share_id();
        ok(w.table->open(&w.ctx, &ranks, w.device, w.id, &options));
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            if (rooms[r] < 1000 && counts[k] > 31) break; /* a group for each number */
            compare(ranks, PARE_f32, counts[k]);
            compare(ranks, PARE_f64, counts[k]);
        }
        w.table->close(ranks);
    }
}

/* As the loop of runtime/comm/comm.c; numbers near the ends of the type among them. */
static void add_one(pare_dtype dtype, size_t count)
{
    static const double special[] = {0, -0.0, 1e-45, -1e-310, 3e38, -3e38, 1e308, INFINITY};
    const size_t each = dtype == PARE_f64 ? 8 : 4;
    char *a = calloc(count + 1, each), *b = calloc(count + 1, each), *got = calloc(count + 1, each);
    for (size_t i = 0; i < count; i++) {
        set(dtype, a, i, i % 5 ? part(1, i) : special[i / 5 % 8]);
        set(dtype, b, i, i % 3 ? part(2, i) : special[i / 3 % 7]);
    }
    void *x = device_copy(a, (count + 1) * each), *y = device_copy(b, (count + 1) * each);
    CUDA_OK(pare_cuda_rank_add(dtype, x, y, (int64_t)count, NULL));
    device_fetch(got, x, (count + 1) * each);
    CUDA_OK(cudaFree(y));
    for (size_t i = 0; i < count; i++)
        if (dtype == PARE_f64)
            ((double *)(void *)a)[i] += ((double *)(void *)b)[i];
        else
            ((float *)(void *)a)[i] += ((float *)(void *)b)[i];
    assert_memory_equal(got, a, (count + 1) * each);
    free(a);
    free(b);
    free(got);
}

static void additions_round_as_the_hosts(void **state)
{
    static const size_t counts[] = {0, 1, 2, 31, 32, 33, 257, 10007, 600000};
    (void)state;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        add_one(PARE_f32, counts[k]);
        add_one(PARE_f64, counts[k]);
    }
}

/* The others do not come. */
static void joining_has_an_end(void **state)
{
    pare_ranks_options options = options_of(64);
    pare_device_ranks *ranks = NULL;
    (void)state;
    options.seconds = 0.2;
    if (options.size == 1) return;
    share_id();
    if (!options.rank) {
        assert_int_equal(w.table->open(&w.ctx, &ranks, w.device, w.id, &options), PARE_IO);
        assert_non_null(strstr(w.ctx.message, "ncclCommInitRankConfig did not end within 0.2 s"));
        pare_ctx_clear(&w.ctx);
    }
    ok(pare_comm_settle(w.comm, PARE_OK));
}

/* A job of one rank: none waits for it. */
static pare_status whole_life(void)
{
    const pare_ranks_options options = {.size = 1, .room = 64, .seconds = 5};
    unsigned char id[PARE_RANKS_ID];
    char library[32];
    pare_device_ranks *ranks;
    PARE_TRY(w.table->find(&w.ctx, library, sizeof library));
    PARE_TRY(w.table->make_id(&w.ctx, id));
    PARE_TRY(w.table->open(&w.ctx, &ranks, w.device, id, &options));
    pare_status st = w.table->sum(&w.ctx, ranks, w.device->setup, PARE_f32, NULL, 0);
    if (st == PARE_OK) st = w.table->wait(&w.ctx, ranks, w.device->setup);
    w.table->close(ranks);
    return st;
}

static void failures_are_passed_on(void **state)
{
    int failed = 0, calls = 0;
    (void)state;
    if (!simt_emulated()) return;
    const int alive = simt_live(NULL, 0);
    const uint64_t before = simt_calls();
    ok(whole_life());
    calls = (int)(simt_calls() - before);
    assert_true(calls > 10);
    for (int n = 1; n <= calls; n++) {
        simt_fail_at((uint64_t)n, cudaErrorLaunchFailure, false);
        const pare_status st = whole_life();
        simt_fail_at(0, 0, false);
        assert_true((st == PARE_OK) == !w.ctx.message[0]);
        failed += st != PARE_OK;
        pare_ctx_clear(&w.ctx);
        assert_int_equal(simt_live(NULL, 0), alive);
    }
    assert_true(failed > calls / 2);
    w.ctx.fail_after = 0;
    assert_int_equal(whole_life(), PARE_MEMORY);
    pare_ctx_init(&w.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(additions_round_as_the_hosts),
        cmocka_unit_test(sums_are_those_of_mpi),
        cmocka_unit_test(joining_has_an_end),
        cmocka_unit_test(failures_are_passed_on),
    };
    if (!device_is_present()) return 77;
    return cmocka_run_group_tests(tests, begin, end);
}

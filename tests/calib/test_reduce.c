/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' tables added up, against pare_ranges_merge of the same tables in one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "calib/ranges.h"
#include "runtime/comm/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 7, VALUES = 500 };

static const char *const names[TENSORS] = {"a", "b", "c", "d", "e", "f", "g"};

static float value_of(int tensor, int rank, int i)
{
    const uint32_t mix = (uint32_t)i * 2654435761u ^ (uint32_t)(rank * 7 + tensor) * 0x9e3779b9u;
    const float x = ldexpf((float)(int32_t)mix, (int)(mix >> 9 & 15) - 36 + 3 * rank);
    return tensor == 1 ? fabsf(x) : tensor == 3 ? 0 : i % 97 == 5 && tensor == 4 ? NAN : x;
}

/* Tensors: 0 plain, 1 without negative values, 2 seen by odd ranks alone, 3 zeros, 4 with NaN (its
   channels have no means), 5 with another number of channels in each rank, 6 seen by none. */
static void add(pare_ctx *ctx, pare_ranges *r, int rank)
{
    float x[VALUES];
    for (int t = 0; t < TENSORS - 1; t++) {
        const int64_t channels = t == 5 ? (rank % 2 ? 5 : 10) : 20;
        pare_view view = {.dtype = PARE_f32, .rank = 2, .data = x};
        view.dim[0] = VALUES / channels, view.dim[1] = channels;
        view.stride[0] = channels, view.stride[1] = 1;
        if (t == 2 && rank % 2 == 0) continue;
        for (int i = 0; i < VALUES; i++) x[i] = value_of(t, rank, i);
        assert_int_equal(pare_histogram_add(ctx, r->stats[t].histogram, PARE_f32, x, VALUES),
                         PARE_OK);
        assert_int_equal(pare_channels_add(ctx, r->stats[t].channels, &view, 1), PARE_OK);
    }
    r->samples = 3 + rank;
    r->data = (pare_hash){.low = UINT64_MAX - (uint64_t)rank, .high = (uint64_t)rank << 62};
}

static pare_ranges *table_of(pare_ctx *ctx, int rank)
{
    pare_ranges *r;
    assert_int_equal(pare_ranges_new(ctx, &r, names, TENSORS), PARE_OK);
    add(ctx, r, rank);
    return r;
}

/* The sum as replicas are added up: a tensor that a rank has not seen says nothing of the others.
 */
static void merge(pare_ctx *ctx, pare_ranges *to, const pare_ranges *from)
{
    for (int t = 0; t < TENSORS; t++) {
        pare_stats *a = &to->stats[t], *b = &from->stats[t];
        assert_int_equal(pare_histogram_merge(ctx, a->histogram, b->histogram), PARE_OK);
        assert_int_equal(pare_channels_merge(ctx, a->channels, b->channels), PARE_OK);
    }
    to->samples += from->samples;
    to->data = pare_hash_sum(to->data, from->data);
}

static void test_reduce(void **state)
{
    pare_ctx ctx;
    pare_comm *comm;
    (void)state;
    pare_ctx_init(&ctx);
    assert_int_equal(pare_comm_open(&ctx, &comm), PARE_OK);
    pare_ranges *mine = table_of(&ctx, pare_comm_rank(comm)), *want = table_of(&ctx, 0);
    for (int r = 1; r < pare_comm_size(comm); r++) {
        pare_ranges *more = table_of(&ctx, r);
        merge(&ctx, want, more);
        pare_ranges_free(more);
    }
    assert_int_equal(pare_ranges_reduce(&ctx, mine, comm), PARE_OK);
    void *a, *b;
    size_t a_bytes, b_bytes;
    assert_int_equal(pare_ranges_pack(&ctx, mine, &a, &a_bytes), PARE_OK);
    assert_int_equal(pare_ranges_pack(&ctx, want, &b, &b_bytes), PARE_OK);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    assert_int_equal(mine->stats[5].channels->mixed, pare_comm_size(comm) > 1);
    assert_true(mine->stats[0].histogram->min < 0 && mine->stats[3].histogram->min == 0);
    assert_false(signbit(mine->stats[3].histogram->min));
    pare_free(a);
    pare_free(b);
    pare_ranges_free(mine);
    pare_ranges_free(want);
    pare_comm_close(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reduce)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

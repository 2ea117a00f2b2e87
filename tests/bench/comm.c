/* SPDX-License-Identifier: Apache-2.0 */
/* bench_comm [MEGABYTES ROUNDS]: what ranks' sums take beside MPI_Allreduce of the same bytes, in
   turns, and the network between ranks 0 and 1: alpha, seconds of a short message, and beta,
   seconds a byte (Hockney 1994, Parallel Computing 20:389). Started by mpirun; rank 0 prints JSON.
 */
#include "runtime/base/clock.h"
#include "runtime/comm/comm.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct bench {
    pare_comm *comm;
    size_t count; /* floats, or half as many words of 64 bits */
    float *data;
} bench;

static pare_status integers(bench *b)
{
    return pare_comm_allreduce(b->comm, b->data, b->count / 2, PARE_COMM_SUM_U64);
}

static pare_status floats(bench *b) { return pare_comm_sum_f32(b->comm, b->data, b->count); }

static pare_status mpi_integers(bench *b)
{
    return MPI_Allreduce(MPI_IN_PLACE, b->data, (int)(b->count / 2), MPI_UINT64_T, MPI_SUM,
                         MPI_COMM_WORLD)
               ? PARE_IO
               : PARE_OK;
}

static pare_status mpi_floats(bench *b)
{
    return MPI_Allreduce(MPI_IN_PLACE, b->data, (int)b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD)
               ? PARE_IO
               : PARE_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Medians of both, in turns. */
static pare_status pair(bench *b, pare_status (*of[2])(bench *), int rounds, double median[2])
{
    double *took[2] = {malloc((size_t)rounds * sizeof **took),
                       malloc((size_t)rounds * sizeof **took)};
    pare_status st = took[0] && took[1] ? PARE_OK : PARE_MEMORY;
    for (int i = -1; st == PARE_OK && i < rounds; i++) /* the first is not counted */
        for (int k = 0; st == PARE_OK && k < 2; k++) {
            for (size_t n = 0; n < b->count; n++) b->data[n] = 1;
            MPI_Barrier(MPI_COMM_WORLD);
            const double start = pare_seconds();
            st = of[k](b);
            if (i >= 0) took[k][i] = pare_seconds() - start;
        }
    for (int k = 0; st == PARE_OK && k < 2; k++) {
        qsort(took[k], (size_t)rounds, sizeof **took, ascending);
        median[k] = took[k][rounds / 2];
        free(took[k]);
    }
    return st;
}

/* Half a round trip of so many bytes between ranks 0 and 1. */
static double trip(bench *b, int bytes, int rounds)
{
    const int rank = pare_comm_rank(b->comm), other = 1 - rank;
    double start = 0;
    for (int i = -2; i < rounds && rank < 2; i++) {
        if (i == 0) start = pare_seconds();
        for (int way = 0; way < 2; way++)
            if (way == rank)
                MPI_Send(b->data, bytes, MPI_BYTE, other, 7, MPI_COMM_WORLD);
            else
                MPI_Recv(b->data, bytes, MPI_BYTE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return (pare_seconds() - start) / (2 * rounds);
}

int main(int argc, char **argv)
{
    pare_ctx ctx;
    bench b = {0};
    double sum[2], tree[2];
    const int megabytes = argc > 1 ? atoi(argv[1]) : 100, rounds = argc > 2 ? atoi(argv[2]) : 11;
    pare_ctx_init(&ctx);
    b.count = (size_t)megabytes * 250000;
    b.data = malloc(b.count * sizeof *b.data);
    pare_status st = pare_comm_open(&ctx, &b.comm);
    if (st != PARE_OK || !b.comm || !b.data || megabytes < 1 || rounds < 1) {
        fprintf(stderr, "bench_comm: %s\n",
                *ctx.message ? ctx.message : "start it with mpirun -n 2");
        return 1;
    }
    st = pair(&b, (pare_status(*[])(bench *)){integers, mpi_integers}, rounds, sum);
    if (st == PARE_OK) st = pair(&b, (pare_status(*[])(bench *)){floats, mpi_floats}, rounds, tree);
    const double alpha = trip(&b, 8, 1000), large = trip(&b, megabytes * 1000000, rounds);
    if (st == PARE_OK && !pare_comm_rank(b.comm))
        printf("{\"ranks\": %d, \"megabytes\": %d, \"integers_s\": %.6f, \"mpi_integers_s\": %.6f, "
               "\"floats_s\": %.6f, \"mpi_floats_s\": %.6f, \"alpha_s\": %.3e, \"beta_s\": %.3e}\n",
               pare_comm_size(b.comm), megabytes, sum[0], sum[1], tree[0], tree[1], alpha,
               (large - alpha) / (megabytes * 1e6));
    pare_comm_close(b.comm);
    free(b.data);
    return st != PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of scores.h for CUDA: numbers there and back. */
#include "runtime/cuda/score.h"

#include "runtime/cuda/error.h"
#include "runtime/cuda/queue.h"

/* Blocks of the device's memory that one call needs; the first holds the sums. */
typedef struct loan {
    pare_ctx *ctx;
    pare_device *device;
    void *block[4];
    int count;
} loan;

static pare_status lend(loan *l, const void *data, size_t bytes)
{
    void **to = &l->block[l->count];
    PARE_TRY(data ? pare_device_copy(l->ctx, l->device, to, data, bytes)
                  : l->device->backend->alloc(l->ctx, l->device, to, bytes));
    l->count++;
    return PARE_OK;
}

/* The sums come back where all went well; the memory is given back in any case. */
static pare_status settle(loan *l, pare_status st, double *sum, int64_t count)
{
    const pare_backend *b = l->device->backend;
    pare_queue *queue = l->device->setup;
    if (st == PARE_OK)
        st = b->download(l->ctx, queue, sum, l->block[0], (size_t)count * sizeof *sum);
    if (st == PARE_OK) st = b->sync(l->ctx, queue);
    while (l->count > 0) b->free(l->device, l->block[--l->count]);
    return st;
}

static pare_status launched(const loan *l, cudaError_t error, const char *launcher)
{
    return error == cudaSuccess ? PARE_OK : pare_cuda_fail(l->ctx, error, launcher);
}

static pare_status units(pare_ctx *ctx, pare_device *device, double *sum, const float *x,
                         const pare_score_units *u)
{
    loan l = {.ctx = ctx, .device = device};
    const int64_t count = u->parts * u->dim;
    pare_status st = lend(&l, sum, (size_t)count * sizeof *sum);
    if (st == PARE_OK) st = lend(&l, x, (size_t)(u->outer * u->dim * u->inner) * sizeof *x);
    if (st == PARE_OK)
        st = launched(
            &l, pare_cuda_units_launch(l.block[0], l.block[1], u, pare_cuda_stream(device->setup)),
            "pare_cuda_units_launch");
    return settle(&l, st, sum, count);
}

static pare_status distances(pare_ctx *ctx, pare_device *device, double *sum, const float *rows,
                             const int *part, int count, int64_t width)
{
    loan l = {.ctx = ctx, .device = device};
    const size_t n = (size_t)count;
    pare_status st = lend(&l, sum, n * sizeof *sum);
    if (st == PARE_OK) st = lend(&l, rows, n * (size_t)width * sizeof *rows);
    if (st == PARE_OK) st = lend(&l, part, n * sizeof *part);
    if (st == PARE_OK) st = lend(&l, NULL, n * PARE_CUDA_SCORE_ROWS * sizeof *sum);
    if (st == PARE_OK)
        st = launched(&l,
                      pare_cuda_distances_launch(l.block[0], l.block[1], l.block[2], count, width,
                                                 l.block[3], pare_cuda_stream(device->setup)),
                      "pare_cuda_distances_launch");
    return settle(&l, st, sum, count);
}

const pare_score_table pare_cuda_scores = {.units = units, .distances = distances};

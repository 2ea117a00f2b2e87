/* SPDX-License-Identifier: Apache-2.0 */
/* The table of training.h for CUDA. */
#include "runtime/cuda/training.h"

#include "runtime/cuda/error.h"
#include "runtime/cuda/queue.h"

#define LAUNCH(ctx, queue, launcher, ...)                                                          \
    do {                                                                                           \
        cudaError_t error_ = launcher(__VA_ARGS__, pare_cuda_stream(queue));                       \
        if (error_ != cudaSuccess) return pare_cuda_fail((ctx), error_, #launcher);                \
    } while (0)

/* As many terms a launch as it takes, the sum so far in y[0]; then the other y in such lots. */
static pare_status slices(pare_ctx *ctx, pare_queue *queue, const pare_slice_sums *sums)
{
    pare_cuda_slices s = {.dtype = sums->dtype, .count = sums->count};
    int x = 0, y = 0;
    do {
        s.before = x ? sums->y[0] : NULL;
        for (s.x_count = 0; s.x_count < PARE_CUDA_SLICES && x < sums->slices; x++)
            s.x[s.x_count++] = sums->x[x];
        if (s.x_count) y = 0;
        const int most = x < sums->slices ? 1 : sums->slices;
        for (s.y_count = 0; s.y_count < PARE_CUDA_SLICES && y < most; y++)
            s.y[s.y_count++] = sums->y[y];
        LAUNCH(ctx, queue, pare_cuda_slices_launch, &s);
    } while (y < sums->slices);
    return PARE_OK;
}

static pare_status gather(pare_ctx *ctx, pare_queue *queue, const pare_train_blocks *blocks,
                          const float *const *from, bool set)
{
    LAUNCH(ctx, queue, pare_cuda_gather_gradients_launch, blocks, from, set);
    return PARE_OK;
}

static pare_status squares(pare_ctx *ctx, pare_queue *queue, const pare_train_blocks *blocks)
{
    LAUNCH(ctx, queue, pare_cuda_squares_launch, blocks);
    return PARE_OK;
}

static pare_status step(pare_ctx *ctx, pare_queue *queue, const pare_train_blocks *blocks,
                        const pare_train_rule *rule, float part)
{
    LAUNCH(ctx, queue, pare_cuda_step_launch, blocks, rule, part);
    return PARE_OK;
}

const pare_training_table pare_cuda_training = {
    .slices = slices, .gather = gather, .squares = squares, .step = step};

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of samples.h for CUDA: views to what the kernels take, failures to statuses. */
#include "runtime/cuda/calib/calib.h"

#include "runtime/cuda/device/error.h"
#include "runtime/cuda/device/stream.h"

enum { BLOCKS = 264 }; /* two on each of the multiprocessors of a large GPU */

static pare_status launched(pare_ctx *ctx, cudaError_t error, const char *launcher)
{
    return error == cudaSuccess ? PARE_OK : pare_cuda_fail(ctx, error, launcher);
}

static pare_status on_device(pare_ctx *ctx, const pare_stream *stream)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(stream->device->index));
    return PARE_OK;
}

static pare_status pixels(pare_ctx *ctx, pare_stream *stream, float *out, const uint8_t *raw,
                          const pare_pixels *p, int64_t samples)
{
    return launched(ctx, pare_cuda_pixels_launch(out, raw, p, samples, pare_cuda_stream(stream)),
                    "pare_cuda_pixels_launch");
}

static pare_status histogram_clear(pare_ctx *ctx, pare_stream *stream, void *histograms,
                                   size_t step, int count)
{
    PARE_TRY(on_device(ctx, stream));
    return launched(ctx,
                    pare_cuda_histogram_clear(histograms, step, count, pare_cuda_stream(stream)),
                    "pare_cuda_histogram_clear");
}

static pare_status histogram_add(pare_ctx *ctx, pare_stream *stream, pare_histogram_dev *histogram,
                                 bool bins, pare_dtype dtype, const void *values, int64_t n)
{
    if (!pare_type_is_float(dtype) || pare_type(dtype)->bits < 16)
        return PARE_FAIL(ctx, UNSUPPORTED, "histograms count floats, not %s",
                         pare_type(dtype)->name);
    return launched(ctx,
                    pare_cuda_histogram_add(histogram, bins, dtype, values, n, BLOCKS,
                                            pare_cuda_stream(stream)),
                    "pare_cuda_histogram_add");
}

/* Axes of one sample but the channels', those of size 1 left out, neighbours that are one in memory
   made one. */
static void merge_axes(pare_cuda_channels *v, const pare_view *view, int axis)
{
    for (int k = 0; k < view->rank; k++) {
        int64_t dim = k ? view->dim[k] : view->dim[0] / v->samples;
        if (k == axis || dim == 1) continue;
        int last = v->rank - 1;
        if (last >= 0 && v->stride[last] == dim * view->stride[k]) {
            v->dim[last] *= dim;
            v->stride[last] = view->stride[k];
        } else {
            v->dim[v->rank] = dim;
            v->stride[v->rank++] = view->stride[k];
        }
        v->n *= dim;
    }
}

static pare_status channels_add(pare_ctx *ctx, pare_stream *stream, const pare_channel_sums *sums,
                                const pare_view *view, int axis, int64_t samples)
{
    pare_cuda_channels v = {.x = view->data, .step = view->stride[axis], .n = 1};
    v.samples = axis == 0 || samples < 1 || view->dim[0] % samples ? 1 : samples;
    v.sample_step = view->dim[0] / v.samples * view->stride[0];
    merge_axes(&v, view, axis);
    return launched(ctx, pare_cuda_channels_add(sums, &v, pare_cuda_stream(stream)),
                    "pare_cuda_channels_add");
}

static pare_status search(pare_ctx *ctx, pare_stream *stream, const pare_search *what)
{
    PARE_TRY(on_device(ctx, stream));
    return launched(ctx, pare_cuda_search(what, pare_cuda_stream(stream)), "pare_cuda_search");
}

const pare_sample_table pare_cuda_samples = {.pixels = pixels,
                                             .histogram_clear = histogram_clear,
                                             .histogram_add = histogram_add,
                                             .channels_add = channels_add,
                                             .search = search,
                                             .work_bytes = PARE_CUDA_SEARCH_BYTES};

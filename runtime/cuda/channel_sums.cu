/* SPDX-License-Identifier: Apache-2.0 */
/* Each channel's elements are dealt to blocks, in a block to threads; threads add theirs up in
   order, then halves of the block are added until one is left, then the blocks' parts in order: an
   order that does not depend on when anything runs. Where channels lie side by side in memory a
   warp's lanes are 32 channels, else neighbours of one channel. */
#include "runtime/cuda/channel_sums.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/levels.cuh"

enum { ACROSS = 32 };

typedef struct two {
    double a, b;
} two;

SIMT_INLINE two fake_terms(const pare_cuda_sums &s, int64_t c, float dy, float x)
{
    const float z = pare_zero_at(s.zero, s.levels.zero, c * s.zero_step), v = x / s.scale[c],
                r = rintf(v), q = r + z, held = pare_level_hold(q, s.levels);
    two t = {(double)dy * (double)(held == q ? r - v : held - z), 0};
    return t;
}

/* What one element adds. */
template <int KIND>
SIMT_INLINE two terms_of(const pare_cuda_sums &s, int64_t c, const int64_t at[3])
{
    const float first = pare_number_at(s.w.data[0], s.dtype, at[0] + c * s.step[0]);
    if constexpr (KIND == PARE_CUDA_SUMS_STATS) {
        const double d = (double)first - (double)s.shift[c];
        two t = {d, d * d};
        return t;
    } else {
        const float x = pare_number_at(s.w.data[1], s.dtype, at[1] + c * s.step[1]);
        if constexpr (KIND == PARE_CUDA_SUMS_FAKE) return fake_terms(s, c, first, x);
        if constexpr (KIND == PARE_CUDA_SUMS_GRAD) {
            two t = {(double)first, (double)first * ((double)x - s.stats[2 * c])};
            return t;
        }
        const double *row = static_cast<const double *>(s.w.data[2]) + at[2];
        two t = {(double)first * ((double)x - row[0]) * row[1], (double)first};
        return t;
    }
}

template <int LANES, int KIND>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK, 4) sum_parts(pare_cuda_sums s)
{
    enum { EACH = PARE_CUDA_BLOCK / LANES };
    SIMT_SHARED(two, held, [PARE_CUDA_BLOCK]);
    const int me = (int)threadIdx.x;
    const int64_t c = (int64_t)blockIdx.x * LANES + me % LANES;
    two sum = {0, 0};
    if (c < s.channels)
        for (int64_t i = (int64_t)blockIdx.y * EACH + me / LANES; i < s.w.walk.count;
             i += (int64_t)s.parts * EACH) {
            int64_t at[3];
            pare_iterator_at<3>(s.w.walk, i, at);
            const two t = terms_of<KIND>(s, c, at);
            sum.a += t.a;
            sum.b += t.b;
        }
    held[me] = sum;
    __syncthreads();
    for (int apart = PARE_CUDA_BLOCK / 2; apart >= LANES; apart /= 2) {
        if (me < apart) {
            held[me].a += held[me + apart].a;
            held[me].b += held[me + apart].b;
        }
        __syncthreads();
    }
    if (me >= LANES || c >= s.channels) return;
    double *to = s.part + (c * s.parts + blockIdx.y) * 2;
    to[0] = held[me].a;
    to[1] = held[me].b;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) join_sums(pare_cuda_sums s)
{
    PARE_CUDA_EACH (c, s.channels) {
        double a = 0, b = 0;
        for (int k = 0; k < s.parts; k++) {
            a += s.part[(c * s.parts + k) * 2];
            b += s.part[(c * s.parts + k) * 2 + 1];
        }
        if (s.sums) s.sums[c] = a, s.sums[s.channels + c] = b;
        if (s.kind == PARE_CUDA_SUMS_STATS) s.sums[2 * s.channels + c] = (double)s.w.walk.count;
        if (s.kind == PARE_CUDA_SUMS_GRAD) {
            const double beta = a;
            a = b * s.stats[2 * c + 1];
            b = beta;
        }
        if (s.first) pare_number_store(s.first, s.vectors, c, (float)a);
        if (s.second) pare_number_store(s.second, s.vectors, c, (float)b);
    }
}

/* --- launcher --- */

template <int LANES> static cudaError_t parts_launch(const pare_cuda_sums *s, cudaStream_t stream)
{
    const dim3 grid(pare_cuda_blocks((s->channels + LANES - 1) / LANES), (unsigned)s->parts);
    const dim3 block(PARE_CUDA_BLOCK);
    switch (s->kind) {
    case PARE_CUDA_SUMS_FAKE:
        SIMT_LAUNCH((sum_parts<LANES, PARE_CUDA_SUMS_FAKE>), grid, block, 0, stream, *s);
        break;
    case PARE_CUDA_SUMS_STATS:
        SIMT_LAUNCH((sum_parts<LANES, PARE_CUDA_SUMS_STATS>), grid, block, 0, stream, *s);
        break;
    case PARE_CUDA_SUMS_GRAD:
        SIMT_LAUNCH((sum_parts<LANES, PARE_CUDA_SUMS_GRAD>), grid, block, 0, stream, *s);
        break;
    case PARE_CUDA_SUMS_LAYER:
        SIMT_LAUNCH((sum_parts<LANES, PARE_CUDA_SUMS_LAYER>), grid, block, 0, stream, *s);
        break;
    }
    return cudaGetLastError();
}

extern "C" cudaError_t pare_cuda_sums_launch(const pare_cuda_sums *s, cudaStream_t stream)
{
    if (s->channels == 0) return cudaSuccess;
    const cudaError_t error =
        s->step[0] == 1 ? parts_launch<ACROSS>(s, stream) : parts_launch<1>(s, stream);
    if (error != cudaSuccess) return error;
    PARE_CUDA_LAUNCH_EACH(join_sums, s->channels, *s);
}

/* --- setting one up --- */

size_t pare_cuda_sums_set(pare_cuda_sums *s, const pare_view *const *v, int operands, int axis)
{
    enum { ELEMENTS = 2048, MOST_PARTS = 64 }; /* a part's elements, at least */
    pare_view one[3];
    const pare_view *all[3];
    s->channels = axis < 0 ? 1 : v[0]->dim[axis];
    for (int k = 0; k < 3; k++) {
        one[k] = *v[k < operands ? k : 0];
        s->step[k] = axis < 0 ? 0 : one[k].stride[axis];
        if (axis >= 0) one[k].dim[axis] = 1;
        all[k] = &one[k];
    }
    pare_iterator_init(&s->w.walk, all, 3);
    const int64_t parts = s->channels ? s->w.walk.count / ELEMENTS : 1;
    s->parts = (int)(parts < 1 ? 1 : parts > MOST_PARTS ? (int64_t)MOST_PARTS : parts);
    return 2 * sizeof(double) * (size_t)s->parts * (size_t)s->channels;
}

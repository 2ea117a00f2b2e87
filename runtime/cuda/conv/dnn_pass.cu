/* SPDX-License-Identifier: Apache-2.0 */
/* Passes around sums of cuDNN (dnn_pass.h), an element a thread. Bytes an element: 1 read and 1
   written of pictures; of sums 4 read and 1 written, and 1 of the residual. */
#include "runtime/cuda/conv/dnn_pass.h"
#include "runtime/cuda/device/common.cuh"

/* Takes the remainder by d off i, and divides it. */
SIMT_INLINE int coordinate_take(int *i, const pare_cuda_fast_divisor &d)
{
    const int whole = fast_divide(*i, d), part = *i - whole * (int)d.by;
    *i = whole;
    return part;
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) signs_pad(pare_dnn_signs s)
{
    const uint8_t *from = static_cast<const uint8_t *>(s.from);
    uint8_t *to = static_cast<uint8_t *>(s.to);
    PARE_CUDA_EACH (i, s.count) {
        int64_t at = 0;
        int rest = (int)i, channel = 0;
        bool inside = true;
        if (s.last) channel = coordinate_take(&rest, s.channels);
        for (int a = 2; a >= 0; a--) {
            const int place = coordinate_take(&rest, s.out[a]) - s.begin[a];
            inside = inside && place >= 0 && place < s.in[a];
            at += place * s.from_stride[2 + a];
        }
        if (!s.last) channel = coordinate_take(&rest, s.channels);
        at += channel * s.from_stride[1] + rest * s.from_stride[0];
        uint8_t v = (uint8_t)s.zero;
        if (inside) v = (uint8_t)(from[at] ^ (s.flips ? 0x80 : 0));
        to[i] = v;
    }
}

static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) sums_requantize(pare_dnn_requantize r)
{
    PARE_CUDA_EACH (i, r.count) {
        int rest = fast_divide((int)i, r.inner);
        const int c = coordinate_take(&rest, r.channels);
        float v =
            ((float)(int)((unsigned)r.sums[i] - (unsigned)r.shift[c]) + r.bias[c]) * r.scale[c];
        if (r.z) v = pare_epilogue_residual(&r.epilogue, v, r.z, i);
        pare_epilogue_store(&r.epilogue, v, r.y, i);
    }
}

extern "C" cudaError_t pare_dnn_signs_launch(const pare_dnn_signs *s, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(signs_pad, s->count, *s);
}

extern "C" cudaError_t pare_dnn_requantize_launch(const pare_dnn_requantize *r, cudaStream_t stream)
{
    PARE_CUDA_LAUNCH_EACH(sums_requantize, r->count, *r);
}

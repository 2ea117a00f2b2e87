/* SPDX-License-Identifier: Apache-2.0 */
/* Packing: a block takes 32 rows and runs through their depth in tiles of 32 x 32, read along
   whichever axis is together in memory and written along depth. Each element is read and written
   once. Sums of rows are of integers, modulo 2^32. */
#include "runtime/base/f8.h"
#include "runtime/cuda/device/vec.cuh"
#include "runtime/cuda/gemm/pack.h"

enum { TILE = 32, LINES = 8, MINE = TILE / LINES };

/* A byte's number, or 0 where elements are wider and no sums are asked for. */
SIMT_INLINE int number_of(uint8_t v, bool is_signed) { return is_signed ? (int8_t)v : v; }
SIMT_INLINE int number_of(uint16_t, bool) { return 0; }

SIMT_INLINE int zero_of(const pare_cuda_pack &p) { return p.flip ? p.zero - 128 : p.zero; }

template <typename T>
static __global__ void __launch_bounds__(TILE *LINES) pack_rows(pare_cuda_pack p)
{
    SIMT_SHARED(T, tile, [TILE][TILE + 1]);
    const int lane = (int)threadIdx.x % TILE, line = (int)threadIdx.x / TILE;
    const int64_t row0 = (int64_t)blockIdx.x * TILE;
    const bool is_signed = p.type == PARE_s8 || p.flip, along = p.step == 1;
    int64_t at[2];
    pare_iterator_at<2>(p.batch, blockIdx.y, at);
    const T *from = static_cast<const T *>(p.from) + at[1];
    T *to = static_cast<T *>(p.to) + at[0];
    int sum[MINE] = {0, 0, 0, 0};
    for (int k0 = 0; k0 < p.depth; k0 += TILE) {
        PARE_UNROLL for (int i = 0; i < MINE; i++)
        {
            const int major = line + i * LINES, r = along ? major : lane, k = along ? lane : major;
            T v = 0;
            if (row0 + r < p.rows && k0 + k < p.depth) {
                v = from[(row0 + r) * p.row + (k0 + k) * p.step];
                if (p.flip) v = (T)(v ^ 0x80);
            }
            tile[r][k] = v;
        }
        __syncthreads();
        PARE_UNROLL for (int i = 0; i < MINE; i++)
        {
            const int r = line + i * LINES;
            sum[i] += number_of(tile[r][lane], is_signed);
            if (row0 + r < p.rows && k0 + lane < p.pitch) /* 0 behind the depth */
                to[(row0 + r) * p.pitch + k0 + lane] = tile[r][lane];
        }
        __syncthreads();
    }
    if (!p.side) return;
    pare_cuda_side *side = p.side + at[0] / p.pitch;
    PARE_UNROLL for (int i = 0; i < MINE; i++)
    {
        const int64_t row = row0 + line + i * LINES;
        const int all = pare_lanes_sum(sum[i]);
        if (lane == 0 && row < p.rows) side[row] = {zero_of(p), all};
    }
}

extern "C" cudaError_t pare_cuda_pack_launch(const pare_cuda_pack *p, cudaStream_t stream)
{
    if (p->rows == 0 || p->matrices == 0) return cudaSuccess;
    dim3 grid(pare_cuda_blocks((p->rows + TILE - 1) / TILE), pare_cuda_blocks_beside(p->matrices));
    if (pare_type_is_int8(p->type) || pare_type_is_f8(p->type))
        SIMT_LAUNCH((pack_rows<uint8_t>), grid, dim3(TILE * LINES), 0, stream, *p);
    else
        SIMT_LAUNCH((pack_rows<uint16_t>), grid, dim3(TILE * LINES), 0, stream, *p);
    return cudaGetLastError();
}

/* --- few channels --- */

/* A pixel a thread. WORD: of PARE_CUDA_STEM_CHANNELS elements. */
template <typename T, typename WORD>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) widen_pixels(pare_cuda_widen w)
{
    PARE_CUDA_EACH (i, w.pixels) {
        const int line = fast_divide((int)i, w.by_width), image = fast_divide(line, w.by_height);
        const int first = ((int)i - line * w.width) * w.step - w.begin;
        const T *from =
            static_cast<const T *>(w.from) + image * w.image + (line - image * w.height) * w.line;
        WORD words[PARE_CUDA_STEM_PIXELS];
        PARE_UNROLL for (int p = 0; p < PARE_CUDA_STEM_PIXELS; p++)
        {
            const int x = first + p;
            const bool inside = x >= 0 && x < w.from_width;
            words[p] = 0;
            PARE_UNROLL for (int c = 0; c < PARE_CUDA_STEM_CHANNELS; c++) if (c < w.channels)
            {
                const T v = inside ? from[x * w.pixel + c] : static_cast<T>(w.zero);
                words[p] |= static_cast<WORD>(v) << c * (int)sizeof(T) * 8;
            }
        }
        vec_store<PARE_CUDA_STEM_PIXELS>(static_cast<WORD *>(w.to), i * PARE_CUDA_STEM_PIXELS,
                                         words);
    }
}

/* The same of 32-bit elements: a neighbour of a pixel a thread. */
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) widen_floats(pare_cuda_widen w)
{
    PARE_CUDA_EACH (i, w.pixels * PARE_CUDA_STEM_PIXELS) {
        const int pixel = (int)(i / PARE_CUDA_STEM_PIXELS), line = fast_divide(pixel, w.by_width),
                  image = fast_divide(line, w.by_height);
        const int x =
            (pixel - line * w.width) * w.step - w.begin + (int)(i % PARE_CUDA_STEM_PIXELS);
        const float *from = static_cast<const float *>(w.from) + image * w.image +
                            (line - image * w.height) * w.line;
        const bool inside = x >= 0 && x < w.from_width;
        float v[PARE_CUDA_STEM_CHANNELS];
        PARE_UNROLL for (int c = 0; c < PARE_CUDA_STEM_CHANNELS; c++) v[c] =
            inside && c < w.channels ? from[x * w.pixel + c] : 0;
        vec_store<PARE_CUDA_STEM_CHANNELS>(static_cast<float *>(w.to), i * PARE_CUDA_STEM_CHANNELS,
                                           v);
    }
}

extern "C" cudaError_t pare_cuda_widen_launch(const pare_cuda_widen *w, cudaStream_t stream)
{
    if (w->pixels == 0) return cudaSuccess;
    dim3 grid = pare_cuda_grid(w->pixels * (w->bytes == 4 ? PARE_CUDA_STEM_PIXELS : 1));
    if (w->bytes == 4)
        SIMT_LAUNCH(widen_floats, grid, dim3(PARE_CUDA_BLOCK), 0, stream, *w);
    else if (w->bytes == 1)
        SIMT_LAUNCH((widen_pixels<uint8_t, uint32_t>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *w);
    else
        SIMT_LAUNCH((widen_pixels<uint16_t, uint64_t>), grid, dim3(PARE_CUDA_BLOCK), 0, stream, *w);
    return cudaGetLastError();
}

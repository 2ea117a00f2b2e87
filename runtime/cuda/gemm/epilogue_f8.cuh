/* SPDX-License-Identifier: Apache-2.0 */
/* What a block makes of sums of FP8 products (ops/epilogue_f8.h): from sums in shared memory, four
   neighbours at a time. Scales and biases are of columns; Y is FP8 of X's type, or floats. */
#ifndef PARE_RUNTIME_CUDA_GEMM_EPILOGUE_F8_CUH
#define PARE_RUNTIME_CUDA_GEMM_EPILOGUE_F8_CUH

#include "runtime/cuda/gemm/epilogue.cuh"
#include "runtime/ops/epilogue_f8.h"

/* Element at of a tensor of FP8 or floats. */
SIMT_INLINE float f8_number_at(const void *data, pare_dtype type, int64_t at)
{
    if (type != PARE_f8e4m3 && type != PARE_f8e5m2) return pare_number_at(data, type, at);
    return pare_f8_value(type, static_cast<const uint8_t *>(data)[at]);
}

/* Stores up to four neighbours as vec4_store does, of FP8, too. */
template <int KIND>
SIMT_INLINE void f8_vec4_store(pare_dtype type, char *y, int64_t at, const float v[4], int left,
                               bool words)
{
    if (type != KIND) return vec4_store(type, y, at, v, left, words);
    const unsigned codes = simt_floats_to_f8<KIND == PARE_f8e5m2>(v);
    if (words && left >= 4)
        *reinterpret_cast<unsigned *>(y + at) = codes;
    else
        PARE_UNROLL PARE_VEC4 if (k < left) y[at + k] = (char)(codes >> 8 * k);
}

/* Up to four sums of a row's neighbours from y[at] on, finished and stored. */
template <int KIND>
SIMT_INLINE void f8_vec4_finish(const pare_cuda_gemm_args &p, const operands &o, const float sum[4],
                                const float *scale, const float *bias, int64_t at, int left,
                                bool words)
{
    const pare_epilogue &e = p.epilogue;
    float v[4];
    PARE_UNROLL PARE_VEC4
    {
        v[k] = (sum[k] + bias[k]) * scale[k];
        if (o.z && k < left) v[k] = pare_f8_residual(&e, v[k], f8_number_at(o.z, e.z_type, at + k));
    }
    vec4_act(e.act, v);
    if (e.curved) PARE_UNROLL PARE_VEC4 v[k] /= e.y_scale;
    f8_vec4_store<KIND>(p.y_type, o.y, at, v, left, words);
}

/* A tile's sums. */
template <int KIND, typename T>
SIMT_INLINE void f8_finish(const pare_cuda_gemm_args &p, const operands &o,
                           const accumulators<KIND, T> &sums, char *shared, int64_t m0, int n0)
{
    float(*out)[T::BN + 8] = reinterpret_cast<float(*)[T::BN + 8]>(shared);
    tile_columns<T::BN> *k = reinterpret_cast<tile_columns<T::BN> *>(out + T::BM);
    const int bytes = bytes_of(p.y_type), mine = (int)threadIdx.x;
    const bool words = p.lot * bytes >= (bytes == 4 ? 16 : 4);
    sums_store(sums, out);
    if (mine < T::BN) { /* no tile has more columns than threads */
        const bool there = n0 + mine < p.columns;
        k->scale[mine] = there ? o.scale[n0 + mine] : 0;
        k->bias[mine] =
            o.bias && there ? reinterpret_cast<const float *>(o.bias)[n0 + mine] : -0.0f;
    }
    __syncthreads();
    PARE_ROLLED for (int i = mine; i < T::BM * T::BN / 4; i += T::THREADS)
    {
        const int r = i / (T::BN / 4), c = i % (T::BN / 4) * 4, left = p.columns - n0 - c;
        const int64_t row = m0 + r;
        if (row >= p.rows || left <= 0) continue;
        f8_vec4_finish<KIND>(p, o, &out[r][c], k->scale + c, k->bias + c, row * p.y_row + n0 + c,
                             left, words);
    }
}

/* One sum, of column c. */
template <int KIND>
SIMT_INLINE void f8_sum_finish(const pare_cuda_gemm_args &p, const operands &o, float sum, int c,
                               int64_t at)
{
    const float all[4] = {sum, 0, 0, 0}, scale[4] = {o.scale[c], 0, 0, 0};
    const float bias[4] = {o.bias ? reinterpret_cast<const float *>(o.bias)[c] : -0.0f, 0, 0, 0};
    f8_vec4_finish<KIND>(p, o, all, scale, bias, at, 1, false);
}

#endif

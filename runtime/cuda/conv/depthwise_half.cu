/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions of 16 bits with the pointwise one behind them (depthwise_tile.cuh). The
   depthwise one's sums are f32 multiply-adds in the order of taps, with the bias behind them, as
   conv_direct.cu's: an infinity reaches the outputs whose windows hold it, and no others. */
#include "runtime/cuda/conv/depthwise_tile.cuh"

/* A thread makes two channels, a word, of a few positions: 4 neighbours of some lines. */
enum { WORDS = PARE_CUDA_STEP / 4, ACROSS = 4 };

SIMT_INLINE float2 word_floats(unsigned word, __half2 *)
{
    const __half2 v = *reinterpret_cast<const __half2 *>(&word);
    return make_float2(__low2float(v), __high2float(v));
}
SIMT_INLINE float2 word_floats(unsigned word, __nv_bfloat162 *)
{
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

template <typename PAIR> SIMT_INLINE unsigned pair_word(const PAIR &v)
{
    return *reinterpret_cast<const unsigned *>(&v);
}

SIMT_INLINE unsigned floats_word(float2 v, __half2 *)
{
    return pair_word(__floats2half2_rn(v.x, v.y));
}
SIMT_INLINE unsigned floats_word(float2 v, __nv_bfloat162 *)
{
    return pair_word(__floats2bfloat162_rn(v.x, v.y));
}

template <int KIND, int STRIDE> struct half_maker {
    typedef pare_cuda_depthwise_half record;
    typedef typename pair_of<KIND>::type pair;
    enum {
        WIDE = strip_of<STRIDE>::WIDE,
        HIGH = strip_of<STRIDE>::HIGH,
        MADE = 2 / STRIDE,                   /* lines of Y */
        READ = (MADE - 1) * STRIDE + KERNEL, /* of X */
        PIXELS = (ACROSS - 1) * STRIDE + KERNEL,
        LINE = WIDE * PITCH,          /* bytes of X in shared memory */
        LINE_ROWS = POSITIONS * PITCH /* of Y */
    };

    int word, x, rows; /* the channels; bytes where X and rows begin */

    SIMT_INLINE half_maker open(void)
    {
        const int word = (int)threadIdx.x % WORDS, spot = (int)threadIdx.x / WORDS;
        const int across = spot % 2 * ACROSS, which = spot / 2 % STRIPS,
                  line = spot / (2 * STRIPS) * MADE;
        half_maker m = {
            word, ((which * HIGH + line * STRIDE) * WIDE + across * STRIDE) * PITCH + word * 4,
            (line * POSITIONS + which * STRIP + across) * PITCH + word * 4};
        simt_opaque(m.word), simt_opaque(m.x), simt_opaque(m.rows);
        return m;
    }

    /* Adds what a line of X is to all lines of Y whose windows hold it. */
    SIMT_INLINE void line_add(float2 sum[MADE][ACROSS], const float2 x[PIXELS],
                              const float2 tap[PARE_CUDA_DEPTHWISE_TAPS], int line)
    {
        PARE_UNROLL for (int i = 0; i < MADE; i++)
        {
            const int row = line - i * STRIDE;
            if (row < 0 || row >= KERNEL) continue;
            PARE_UNROLL for (int k = 0; k < KERNEL; k++)
                PARE_UNROLL for (int j = 0; j < ACROSS; j++)
            {
                const float2 d = tap[row * KERNEL + k], v = x[j * STRIDE + k];
                sum[i][j].x = fmaf(v.x, d.x, sum[i][j].x);
                sum[i][j].y = fmaf(v.y, d.y, sum[i][j].y);
            }
        }
    }

    SIMT_INLINE unsigned finish(const separable_args &a, float2 v, float2 bias)
    {
        v.x = clamped(v.x + bias.x, a.made), v.y = clamped(v.y + bias.y, a.made);
        return floats_word(v, (pair *)NULL);
    }

    SIMT_INLINE void make(const half_maker &m, const separable_args &a, const uint4 *constants,
                          const uint4 *x, uint4 *rows, int chunks)
    {
        const record &r = *reinterpret_cast<const record *>(constants);
        char *to = reinterpret_cast<char *>(rows) + m.rows;
        if (m.word / (PARE_CUDA_CHUNK / 4) >= chunks) { /* behind the last channel */
            PARE_UNROLL for (int i = 0; i < MADE; i++)
                    PARE_UNROLL for (int j = 0; j < ACROSS; j++) *
                reinterpret_cast<unsigned *>(to + i * LINE_ROWS + j * PITCH) = 0;
            return;
        }
        const char *from = reinterpret_cast<const char *>(x) + m.x;
        float2 tap[PARE_CUDA_DEPTHWISE_TAPS], sum[MADE][ACROSS];
        PARE_UNROLL for (int t = 0; t < PARE_CUDA_DEPTHWISE_TAPS; t++) tap[t] =
            *reinterpret_cast<const float2 *>(&r.tap[t][2 * m.word]);
        const float2 bias = *reinterpret_cast<const float2 *>(&r.bias[2 * m.word]);
        PARE_UNROLL for (int i = 0; i < MADE; i++) PARE_UNROLL for (int j = 0; j < ACROSS; j++)
            sum[i][j] = make_float2(0, 0);
        PARE_UNROLL for (int l = 0; l < READ; l++)
        {
            float2 line[PIXELS];
            PARE_UNROLL for (int p = 0; p < PIXELS; p++) line[p] = word_floats(
                *reinterpret_cast<const unsigned *>(from + l * LINE + p * PITCH), (pair *)NULL);
            line_add(sum, line, tap, l);
        }
        PARE_UNROLL for (int i = 0; i < MADE; i++) PARE_UNROLL for (int j = 0; j < ACROSS; j++) *
            reinterpret_cast<unsigned *>(to + i * LINE_ROWS + j * PITCH) =
            finish(a, sum[i][j], bias);
    }
};

/* --- launchers --- */

template <int KIND>
static cudaError_t kind_launch(const pare_cuda_separable *s, cudaStream_t stream)
{
    const separable_args a = {*s, float_clamp(s->d.epilogue.act), float_clamp(s->p.epilogue.act)};
    if (s->d.in.stride[0] > 1)
        return separable_columns_launch<KIND, 2, EPILOGUE_CLAMP, half_maker<KIND, 2>>(a, stream);
    if (s->p.z)
        return separable_columns_launch<KIND, 1, EPILOGUE_CLAMP_RESIDUAL, half_maker<KIND, 1>>(
            a, stream);
    return separable_columns_launch<KIND, 1, EPILOGUE_CLAMP, half_maker<KIND, 1>>(a, stream);
}

extern "C" cudaError_t pare_cuda_separable_half_launch(const pare_cuda_separable *s,
                                                       cudaStream_t stream)
{
    return s->d.x_type == PARE_f16 ? kind_launch<PARE_f16>(s, stream)
                                   : kind_launch<PARE_bf16>(s, stream);
}

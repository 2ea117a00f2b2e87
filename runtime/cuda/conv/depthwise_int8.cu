/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolutions of 8 bits with the pointwise one behind them (depthwise_tile.cuh). Sums of
   the depthwise one come from tensor cores, too. A row of their instruction has two neighbouring
   positions of four channels: its depth are words of four channels of one pixel, those under both
   windows, and of a column, a channel of one of the positions, W is 0 for all other channels and
   for pixels that its window has not. So words are multiplied as they lie in memory. */
#include "runtime/cuda/conv/depthwise_tile.cuh"

/* Of a warp: 16 of the channels, a part of the lines of Y, of both strips. A lane has two
   neighbours of each word of channels, at one position. */
enum { GROUPS = CHUNKS, PARTS = 2, WORDS = 4 };

/* What lane l multiplies: word q of a line's four pixels, or of `last`, one pixel of each line, by
   W of column l / 4. */
typedef struct tap_words {
    unsigned mask, last_mask;
    int tap, last_tap; /* of the first line */
} tap_words;

template <int STRIDE> SIMT_INLINE tap_words tap_words_find(void)
{
    const int lane = (int)threadIdx.x & 31, q = lane & 3, column = lane >> 2;
    const int far = column >> 2 /* of the two positions */, tap = q - far * STRIDE;
    const unsigned byte = 0xffu << (column & 3) * 8;
    const bool inside = tap >= 0 && tap < KERNEL, last = far && q < KERNEL;
    return {inside ? byte : 0, last ? byte : 0, inside ? tap : 0,
            (last ? q : 0) * KERNEL + KERNEL - 1};
}

/* The words of 16 channels. */
SIMT_INLINE void words_read(const char *at, unsigned to[WORDS])
{
    const uint4 v = *reinterpret_cast<const uint4 *>(at);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

SIMT_INLINE void taps_read(const char *at, unsigned mask, unsigned b[WORDS])
{
    words_read(at, b);
    PARE_UNROLL for (int w = 0; w < WORDS; w++) b[w] &= mask;
}

/* What follows a lane's two sums of a word. */
typedef struct word_end {
    float2 bias, scale;
} word_end;

SIMT_INLINE void word_finish(const int *sum, const word_end &k, float v[2])
{
    const float none = 12582912; /* 1.5 * 2^23: what sums begin at, as floats */
    v[0] = ((__int_as_float(sum[0]) - none) + k.bias.x) * k.scale.x;
    v[1] = ((__int_as_float(sum[1]) - none) + k.bias.y) * k.scale.y;
}

/* Four channels: two neighbours of each of two words. */
template <bool BOUNDS>
SIMT_INLINE unsigned four_make(const separable_args &a, const int *low, const int *high,
                               const word_end k[2])
{
    float v[4];
    word_finish(low, k[0], v);
    word_finish(high, k[1], v + 2);
    return four_pack<BOUNDS>(a.made, v);
}

template <int KIND, int STRIDE, bool BOUNDS> struct int8_maker {
    typedef pare_cuda_depthwise_s8 record;
    enum {
        WIDE = strip_of<STRIDE>::WIDE,
        HIGH = strip_of<STRIDE>::HIGH,
        MADE = strip_of<STRIDE>::LINES / PARTS, /* lines of Y */
        APART = 2 / STRIDE, /* of these, from an instruction's row to the eighth after */
        SUMS = MADE / 2,    /* of two such lines */
        READ = (MADE - 1) * STRIDE + KERNEL, /* lines of X */
        LINE = WIDE * PITCH,                 /* bytes of X in shared memory */
        LINE_ROWS = POSITIONS * PITCH        /* of Y */
    };

    /* A word of channels of all lines: rows of an instruction and those eight after are two lines
       of X apart. With one a step the same words serve two sums, the second a line down. */
    SIMT_INLINE void word_add(int sum[SUMS][4], const unsigned x[READ + 2][WORDS],
                              const unsigned b[KERNEL + 1][WORDS], int w)
    {
        const unsigned up[] = {x[0][w], x[2][w], x[1][w], x[3][w]};
        const unsigned down[] = {x[2][w], x[4][w], x[READ - (STRIDE == 1 ? 3 : 0)][w],
                                 x[READ + (STRIDE == 1 ? -1 : 1)][w]};
        const unsigned first[] = {b[0][w], b[1][w]}, third[] = {b[2][w], b[3][w]};
        multiply<KIND>(sum[0], up, first);
        multiply<KIND>(sum[0], down, third);
        if constexpr (STRIDE == 1) {
            const unsigned second[] = {0, b[0][w]}, last[] = {b[1][w], b[2][w]};
            multiply<KIND>(sum[SUMS - 1], up, second);
            multiply<KIND>(sum[SUMS - 1], down, last);
        }
    }

    /* Bytes, of a lane: where its lines of X begin, those of the pixels behind, its weights, its
       rows, its scales; the group of channels. */
    int x, behind, tap, last_tap, rows, scale, group;
    unsigned mask, last_mask;

    SIMT_INLINE int8_maker open(void)
    {
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x / 32, q = lane & 3;
        const int group = warp % GROUPS, part = warp / GROUPS, which = lane / 16,
                  pair = lane / 4 % 4, mine = (lane & 1) * 2, chunk = group * PARE_CUDA_CHUNK;
        const int first =
            (which * HIGH + part * MADE * STRIDE) * LINE + pair * 2 * STRIDE * PITCH + chunk;
        const tap_words t = tap_words_find<STRIDE>();
        int8_maker m;
        m.x = first + q * PITCH;
        m.behind = first + min(q, KERNEL - 1) * LINE + 4 * PITCH;
        m.tap = t.tap * PARE_CUDA_DEPTHWISE_CHANNELS + chunk;
        m.last_tap = t.last_tap * PARE_CUDA_DEPTHWISE_CHANNELS + chunk;
        m.mask = t.mask, m.last_mask = t.last_mask;
        m.rows =
            part * MADE * LINE_ROWS + (which * STRIP + pair * 2 + q / 2) * PITCH + chunk + mine * 4;
        m.scale = (chunk + mine) * 4;
        m.group = group;
        simt_opaque(m.x), simt_opaque(m.tap), simt_opaque(m.rows), simt_opaque(m.scale);
        simt_opaque(m.group), simt_opaque(m.mask);
        if (STRIDE > 1) simt_opaque(m.behind), simt_opaque(m.last_tap), simt_opaque(m.last_mask);
        return m;
    }

    /* Lines of X, and with two a step the pixels behind the four of each. */
    SIMT_INLINE void lines_read(const int8_maker &m, const char *from, unsigned l[READ + 2][WORDS])
    {
        PARE_UNROLL for (int i = 0; i < READ; i++) words_read(from + m.x + i * LINE, l[i]);
        if constexpr (STRIDE > 1)
            PARE_UNROLL for (int i = 0; i < 2; i++)
                words_read(from + m.behind + 2 * i * LINE, l[READ + i]);
    }

    SIMT_INLINE void factors_read(const int8_maker &m, const record &r,
                                  unsigned b[KERNEL + 1][WORDS])
    {
        const char *taps = reinterpret_cast<const char *>(r.tap);
        PARE_UNROLL for (int l = 0; l < KERNEL; l++)
            taps_read(taps + m.tap + l * KERNEL * PARE_CUDA_DEPTHWISE_CHANNELS, m.mask, b[l]);
        PARE_UNROLL for (int w = 0; w < WORDS; w++) b[KERNEL][w] = 0;
        if (STRIDE > 1) taps_read(taps + m.last_tap, m.last_mask, b[KERNEL]);
    }

    SIMT_INLINE void make(const int8_maker &m, const separable_args &a, const uint4 *constants,
                          const uint4 *x, uint4 *rows, int chunks)
    {
        const record &r = *reinterpret_cast<const record *>(constants);
        const char *starts = reinterpret_cast<const char *>(r.start) + 2 * m.scale,
                   *ends = reinterpret_cast<const char *>(r.bias) + m.scale;
        unsigned made[MADE][2] = {};
        if (m.group < chunks) { /* else behind the last channel */
            unsigned l[READ + 2][WORDS], b[KERNEL + 1][WORDS];
            lines_read(m, reinterpret_cast<const char *>(x), l);
            factors_read(m, r, b);
            PARE_UNROLL for (int two = 0; two < 2; two++)
            {
                int sum[2][SUMS][4];
                word_end k[2];
                PARE_UNROLL for (int w = 0; w < 2; w++)
                {
                    const int at = (two * 2 + w) * 16;
                    const int4 start = *reinterpret_cast<const int4 *>(starts + 2 * at);
                    k[w].bias = *reinterpret_cast<const float2 *>(ends + at);
                    k[w].scale = *reinterpret_cast<const float2 *>(ends + sizeof r.bias + at);
                    PARE_UNROLL for (int i = 0; i < SUMS; i++)
                    {
                        sum[w][i][0] = start.x, sum[w][i][1] = start.y;
                        sum[w][i][2] = start.z, sum[w][i][3] = start.w;
                    }
                    word_add(sum[w], l, b, two * 2 + w);
                }
                PARE_UNROLL for (int i = 0; i < SUMS; i++) PARE_UNROLL for (int n = 0; n < 2; n++)
                    made[i + n * APART][two] =
                        four_make<BOUNDS>(a, sum[0][i] + 2 * n, sum[1][i] + 2 * n, k);
            }
        }
        char *to = reinterpret_cast<char *>(rows) + m.rows;
        PARE_UNROLL for (int l = 0; l < MADE; l++) * reinterpret_cast<uint2 *>(to + l * LINE_ROWS) =
            make_uint2(made[l][0], made[l][1]);
    }
};

/* --- launchers --- */

template <int KIND, int STRIDE, bool RESIDUAL>
static cudaError_t end_launch(const separable_args &a, bool bounds, cudaStream_t stream)
{
    if (bounds)
        return separable_columns_launch < KIND, STRIDE,
               RESIDUAL ? EPILOGUE_BOUNDS_RESIDUAL : EPILOGUE_BOUNDS, int8_maker < KIND, STRIDE,
               true >> (a, stream);
    return separable_columns_launch < KIND, STRIDE,
           RESIDUAL ? EPILOGUE_CLAMP_RESIDUAL : EPILOGUE_CLAMP, int8_maker < KIND, STRIDE,
           false >> (a, stream);
}

/* Both convolutions have the epilogue with bounds where one needs it. */
template <int KIND>
static cudaError_t kind_launch(const pare_cuda_separable *s, cudaStream_t stream)
{
    const separable_args a = {*s, integer_clamp(s->d.epilogue), integer_clamp(s->p.epilogue)};
    const bool bounds = !integers_are_plain(s->d) || !integers_are_plain(s->p);
    if (s->d.in.stride[0] > 1) return end_launch<KIND, 2, false>(a, bounds, stream);
    if (s->p.z) return end_launch<KIND, 1, true>(a, bounds, stream);
    return end_launch<KIND, 1, false>(a, bounds, stream);
}

extern "C" cudaError_t pare_cuda_separable_int8_launch(const pare_cuda_separable *s,
                                                       cudaStream_t stream)
{
    return s->d.x_type == PARE_s8 ? kind_launch<PARE_s8>(s, stream)
                                  : kind_launch<PARE_u8>(s, stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels of first convolutions bring pictures of up to four channels to shared memory: four
   channels a pixel, whose last ones are 0 or have weights of 0. Where pixels are three numbers, one
   after the other, four of them are three words, which a thread reads at once. */
#ifndef PARE_RUNTIME_CUDA_CONV_CONV_STEM_CUH
#define PARE_RUNTIME_CUDA_CONV_CONV_STEM_CUH

#include "runtime/cuda/conv/conv_stem.h"
#include "runtime/cuda/gemm/gemm_tiles.cuh"

enum { LOT = 4 }; /* pixels */

/* Are a lot's pixels three words, or of 16 bits six, wherever it begins? */
static inline bool stem_is_packed(const pare_cuda_gemm_args &p)
{
    return p.in.channels == 3 && p.in.pixel == 3 && p.in.row % LOT == 0 && p.in.image % LOT == 0;
}

/* LOT pixels as they are read: of four channels each, or packed. */
template <int PARTS> struct pixel_lot {
    unsigned word[LOT * PARTS];
    bool packed;
};

template <int PARTS, typename PART>
SIMT_INLINE void pixels_read(const pare_cuda_gemm_args &p, const PART *line, int w,
                             pixel_lot<PARTS> &lot)
{
    enum { BITS = 8 * PARTS, A_WORD = 4 / PARTS };
    PARE_UNROLL for (int u = 0; u < LOT; u++)
    {
        const bool there = (unsigned)(w + u) < (unsigned)p.in.width;
        PARE_UNROLL for (int c = 0; c < PARE_CUDA_STEM_CHANNELS; c++)
        {
            PART v = c < p.in.channels ? (PART)p.fill : (PART)0;
            if (there && c < p.in.channels) v = line[(w + u) * p.in.pixel + c];
            unsigned &word = lot.word[u * PARTS + c / A_WORD];
            word = (c % A_WORD ? word : 0) | (unsigned)v << BITS * (c % A_WORD);
        }
    }
}

/* A lot of line h of X, which begins at `line`, from pixel w on, a multiple of LOT. Beside the
   picture X is `fill`. packed: what stem_is_packed says, and the picture begins at 16 bytes. */
template <int PARTS, typename PART>
SIMT_INLINE void lot_read(const pare_cuda_gemm_args &p, bool packed, const PART *line, int h, int w,
                          pixel_lot<PARTS> &lot)
{
    lot.packed = false;
    PARE_UNROLL for (int k = 0; k < LOT * PARTS; k++) lot.word[k] = p.fill;
    if ((unsigned)h >= (unsigned)p.in.height || w <= -LOT || w >= p.in.width) return;
    lot.packed = packed && w >= 0 && w + LOT <= p.in.width;
    if (lot.packed) {
        const unsigned *words = reinterpret_cast<const unsigned *>(line + w * 3);
        PARE_UNROLL for (int k = 0; k < 3; k++)
            vec_load<PARTS>(words, k * PARTS, 1, lot.word + k * PARTS);
    } else {
        pixels_read<PARTS>(p, line, w, lot);
    }
}

/* Three numbers a pixel become four. Of bytes the fourth is any: its weights are 0. Of floats it is
   0, as no number times 0 may be NaN. */
SIMT_INLINE void lot_spread(unsigned (&v)[LOT])
{
    v[3] = v[2] >> 8;
    v[2] = v[1] >> 16 | v[2] << 16;
    v[1] = v[0] >> 24 | v[1] << 8;
}
SIMT_INLINE void lot_spread(unsigned (&v)[2 * LOT])
{
    v[7] = v[5] >> 16, v[6] = v[4] >> 16 | v[5] << 16;
    v[5] = v[4] & 0xffff, v[4] = v[3];
    v[3] = v[2] >> 16, v[2] = v[1] >> 16 | v[2] << 16;
    v[1] &= 0xffff;
}

template <int PARTS> SIMT_INLINE void lot_store(pixel_lot<PARTS> &lot, unsigned *to)
{
    if (lot.packed) lot_spread(lot.word);
    PARE_UNROLL for (int k = 0; k < PARTS; k++) vec_store<4>(to, 4 * k, lot.word + 4 * k);
}

#endif

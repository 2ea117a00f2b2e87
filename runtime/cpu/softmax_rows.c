/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/softmax_rows.h"
#include "runtime/cpu/int8_rows.h"
#include "runtime/cpu/vmath.h"

enum { LANES = 16 };

/* Sixteen numbers at once; the compiler splits them where registers are shorter. */
typedef float floats __attribute__((vector_size(LANES * 4)));
typedef int32_t ints __attribute__((vector_size(LANES * 4)));

/* Macros, not functions: vectors as arguments would change with the instruction set. */
#define LOAD(v, from)    memcpy(&(v), (from), sizeof(v))
#define PICK(mask, a, b) ((floats)(((ints)(a) & (mask)) | ((ints)(b) & ~(mask))))

/* y = e^x of x <= 0, as pare_vexp, but 0 below -87: no subnormals. NaN stays NaN. */
#define EXP16(y, from)                                                                             \
    do {                                                                                           \
        floats x_ = (from), zero_ = {0};                                                           \
        ints gone_ = x_ < -87.0f;                                                                  \
        x_ = PICK(gone_, zero_ - 87.0f, x_);                                                       \
        floats t_ = x_ * 1.44269504088896341f + 12582912.0f, n_ = t_ - 12582912.0f;                \
        floats r_ = (x_ - n_ * 0.693359375f) + n_ * 2.12194440e-4f;                                \
        floats p_ = r_ * (1.0f / 5040) + 1.0f / 720;                                               \
        p_ = p_ * r_ + 1.0f / 120;                                                                 \
        p_ = p_ * r_ + 1.0f / 24;                                                                  \
        p_ = p_ * r_ + 1.0f / 6;                                                                   \
        p_ = p_ * r_ + 0.5f;                                                                       \
        p_ = p_ * r_ + 1.0f;                                                                       \
        p_ = p_ * r_ + 1.0f;                                                                       \
        ints power_ = ((ints)t_ - 0x4b400000 + 127) << 23; /* less the bits of 1.5 * 2^23 */       \
        (y) = PICK(gone_, zero_, p_ * (floats)power_);                                             \
    } while (0)

/* The vector with its lanes moved by half, a quarter, ... : four steps fold sixteen lanes. */
#define TURN(v, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                    \
    __builtin_shufflevector(v, v, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
#define FOLD(v, step)                                                                              \
    do {                                                                                           \
        floats w_ = TURN(v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);                 \
        step;                                                                                      \
        w_ = TURN(v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);                        \
        step;                                                                                      \
        w_ = TURN(v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);                        \
        step;                                                                                      \
        w_ = TURN(v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);                        \
        step;                                                                                      \
    } while (0)
#define LARGER(v, w)                                                                               \
    do {                                                                                           \
        ints mask_ = (w) > (v);                                                                    \
        (v) = PICK(mask_, (w), (v));                                                               \
    } while (0)

/* The first n of 16 elements, in pieces of fixed size: no call. */
#define COPY_PIECE(size)                                                                           \
    if (n & (size)) {                                                                              \
        memcpy(to, from, (size) * sizeof *to);                                                     \
        to += (size), from += (size);                                                              \
    }
static inline void copy_rest(float *to, const float *from,
                             int64_t n){COPY_PIECE(8) COPY_PIECE(4) COPY_PIECE(2) COPY_PIECE(1)}

/* e^(x - top) / sum; the elements behind the last whole vector are padded with -Inf: a row that
   another one follows is read beyond its end. Partial maxima and sums are always taken in the same
   order. */
PARE_CLONES_SUMS void pare_softmax_rows(float *x, int64_t rows, int64_t n)
{
    int64_t whole = n / LANES * LANES, rest = n - whole;
    ints own = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    own = own < (int32_t)rest;
    for (int64_t r = 0; r < rows; r++, x += n) {
        floats none = {0}, tops = none - INFINITY, last = tops, sums = none, v;
        if (rest && (rows - 1 - r) * n >= LANES) {
            LOAD(v, x + whole);
            last = PICK(own, v, last);
        } else {
            copy_rest((float *)&last, x + whole, rest);
        }
        for (int64_t i = 0; i < whole; i += LANES) {
            LOAD(v, x + i);
            LARGER(tops, v);
        }
        LARGER(tops, last);
        FOLD(tops, LARGER(tops, w_));
        const float top = tops[0];
        for (int64_t i = 0; i < whole; i += LANES) {
            LOAD(v, x + i);
            EXP16(v, v - top);
            memcpy(x + i, &v, sizeof v);
            sums += v;
        }
        EXP16(last, last - top);
        sums += last;
        FOLD(sums, sums += w_);
        const float scale = 1 / sums[0];
        for (int64_t i = 0; i < whole; i += LANES) {
            LOAD(v, x + i);
            v *= scale;
            memcpy(x + i, &v, sizeof v);
        }
        last *= scale;
        copy_rest(x + whole, (const float *)&last, rest);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A transform of n = p m numbers is p transforms of m numbers, each p-th one, and m of p numbers
   (Cooley, Tukey 1965, "An algorithm for the machine calculation of complex Fourier series"). Where
   p is a large prime the whole is a convolution with a chirp, by transforms of a power of 2
   (Bluestein 1970, "A linear filtering approach to the computation of discrete Fourier
   transform"): j k = (j j + k k - (k - j)(k - j)) / 2. */
#include "runtime/cpu/fft.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static void factor(pare_fft *f)
{
    int64_t left = f->n;
    f->spare = 1;
    for (int64_t p = 4; left > 1; p = p == 4 ? 2 : p == 2 ? 3 : p + 2) {
        if (p > 4 && p > left / p) p = left;
        for (; left % p == 0; left /= p) {
            f->factor[f->factors++] = p;
            if (p > f->spare) f->spare = p;
        }
    }
}

static inline pare_complex times(pare_complex a, pare_complex b)
{
    return (pare_complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static inline pare_complex plus(pare_complex a, pare_complex b)
{
    return (pare_complex){a.re + b.re, a.im + b.im};
}

static inline pare_complex minus(pare_complex a, pare_complex b)
{
    return (pare_complex){a.re - b.re, a.im - b.im};
}

/* m transforms of 2 numbers, m apart; step: from one root of the level to the next. */
static void radix_2(const pare_fft *f, pare_complex *x, int64_t m, int64_t step)
{
    for (int64_t j = 0; j < m; j++) {
        const pare_complex a = x[j], b = times(x[m + j], f->root[j * step]);
        x[j] = plus(a, b);
        x[m + j] = minus(a, b);
    }
}

static void radix_4(const pare_fft *f, pare_complex *x, int64_t m, int64_t step)
{
    for (int64_t j = 0; j < m; j++) {
        const pare_complex a = x[j], b = times(x[m + j], f->root[j * step]);
        const pare_complex c = times(x[2 * m + j], f->root[2 * j * step]);
        const pare_complex d = times(x[3 * m + j], f->root[3 * j * step]);
        const pare_complex even = plus(a, c), odd = plus(b, d), ac = minus(a, c), bd = minus(b, d);
        const pare_complex turned =
            f->inverse ? (pare_complex){-bd.im, bd.re} : (pare_complex){bd.im, -bd.re};
        x[j] = plus(even, odd);
        x[m + j] = plus(ac, turned);
        x[2 * m + j] = minus(even, odd);
        x[3 * m + j] = minus(ac, turned);
    }
}

static void radix_any(const pare_fft *f, pare_complex *x, int64_t m, int64_t step, int64_t p,
                      pare_complex *spare)
{
    const int64_t turn = f->n / p;
    for (int64_t j = 0; j < m; j++) {
        for (int64_t r = 0; r < p; r++) spare[r] = times(x[r * m + j], f->root[r * j * step]);
        for (int64_t q = 0; q < p; q++) {
            pare_complex sum = spare[0];
            int64_t at = 0; /* q r mod p */
            for (int64_t r = 1; r < p; r++) {
                at += q;
                if (at >= p) at -= p;
                sum = plus(sum, times(spare[r], f->root[at * turn]));
            }
            x[q * m + j] = sum;
        }
    }
}

/* The transform of n numbers of `in`, `stride` apart, by the factors from `level` on. */
static void transform(const pare_fft *f, const pare_complex *in, int64_t stride, pare_complex *out,
                      int64_t n, int level, pare_complex *spare)
{
    if (n == 1) {
        out[0] = in[0];
        return;
    }
    const int64_t p = f->factor[level], m = n / p;
    for (int64_t r = 0; r < p; r++)
        transform(f, in + r * stride, stride * p, out + r * m, m, level + 1, spare);
    if (p == 2)
        radix_2(f, out, m, stride);
    else if (p == 4)
        radix_4(f, out, m, stride);
    else
        radix_any(f, out, m, stride, p, spare);
}

/* --- by a chirp --- */

/* c[j] = e^(-pi i j j / n), or + where inverse: a[j] = in[j] c[j] convolved with the conjugate of
   c, which is even, times c is the transform. */
static pare_status with_chirp(pare_arena *arena, pare_fft *f)
{
    int64_t m = 1;
    while (m < 2 * f->n - 1) m *= 2;
    PARE_TRY(pare_fft_new(arena, &f->there, m, false));
    PARE_TRY(pare_fft_new(arena, &f->back, m, true));
    f->chirp = pare_arena_alloc(arena, (size_t)f->n, sizeof *f->chirp);
    f->filter = pare_arena_alloc(arena, (size_t)m, sizeof *f->filter);
    pare_complex *even = pare_arena_alloc(arena, (size_t)m, sizeof *even), spare[4];
    if (!f->chirp || !f->filter || !even) return PARE_MEMORY;
    memset(even, 0, (size_t)m * sizeof *even);
    int64_t square = 0; /* j j mod 2 n */
    for (int64_t j = 0; j < f->n; j++) {
        const double angle = (f->inverse ? PI : -PI) * (double)square / (double)f->n;
        f->chirp[j] = (pare_complex){cos(angle), sin(angle)};
        even[j] = even[j ? m - j : 0] = (pare_complex){cos(angle), -sin(angle)};
        square = (square + 2 * j + 1) % (2 * f->n);
    }
    transform(f->there, even, 1, f->filter, m, 0, spare);
    f->spare = 2 * m + 4;
    return PARE_OK;
}

static void transform_by_chirp(const pare_fft *f, const pare_complex *in, pare_complex *out,
                               pare_complex *spare)
{
    const int64_t m = f->there->n;
    pare_complex *a = spare, *b = spare + m, *rest = spare + 2 * m;
    memset(a, 0, (size_t)m * sizeof *a);
    for (int64_t j = 0; j < f->n; j++) a[j] = times(in[j], f->chirp[j]);
    transform(f->there, a, 1, b, m, 0, rest);
    for (int64_t j = 0; j < m; j++) b[j] = times(b[j], f->filter[j]);
    transform(f->back, b, 1, a, m, 0, rest);
    for (int64_t k = 0; k < f->n; k++) {
        out[k] = times(a[k], f->chirp[k]);
        out[k].re /= (double)m;
        out[k].im /= (double)m;
    }
}

pare_status pare_fft_new(pare_arena *arena, pare_fft **out, int64_t n, bool inverse)
{
    enum { LARGE = 64 }; /* a prime factor from which on a chirp is faster */
    pare_fft *f = pare_arena_alloc(arena, 1, sizeof *f);
    if (!f) return PARE_MEMORY;
    *f = (pare_fft){.n = n, .inverse = inverse};
    f->root = pare_arena_alloc(arena, (size_t)n, sizeof *f->root);
    if (!f->root) return PARE_MEMORY;
    const double turn = (inverse ? 2 : -2) * PI / (double)n;
    for (int64_t k = 0; k < n; k++)
        f->root[k] = (pare_complex){cos(turn * (double)k), sin(turn * (double)k)};
    factor(f);
    *out = f;
    return f->spare > LARGE ? with_chirp(arena, f) : PARE_OK;
}

void pare_fft_fast(const pare_fft *f, const pare_complex *in, pare_complex *out,
                   pare_complex *spare)
{
    if (f->chirp)
        transform_by_chirp(f, in, out, spare);
    else
        transform(f, in, 1, out, f->n, 0, spare);
}

void pare_fft_plain(const pare_fft *f, const pare_complex *in, pare_complex *out,
                    pare_complex *spare)
{
    (void)spare;
    for (int64_t k = 0; k < f->n; k++) {
        pare_complex sum = {0, 0};
        int64_t at = 0; /* j k mod n */
        for (int64_t j = 0; j < f->n; j++) {
            sum = plus(sum, times(in[j], f->root[at]));
            at += k;
            if (at >= f->n) at -= f->n;
        }
        out[k] = sum;
    }
}

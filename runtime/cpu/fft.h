/* SPDX-License-Identifier: Apache-2.0 */
/* Discrete Fourier transforms of one length in double precision. */
#ifndef PARE_RUNTIME_CPU_FFT_H
#define PARE_RUNTIME_CPU_FFT_H

#include "runtime/base/arena.h"

#include <stdint.h>

typedef struct pare_complex {
    double re, im;
} pare_complex;

enum { PARE_FFT_FACTORS = 64 };

typedef struct pare_fft pare_fft;
struct pare_fft {
    int64_t n;
    bool inverse;
    int64_t factor[PARE_FFT_FACTORS]; /* of n: 4s, then primes in order */
    int factors;
    int64_t spare;      /* numbers of scratch that a transform needs */
    pare_complex *root; /* e^(-2 pi i k / n), or + where inverse; k < n */
    /* where n has a large prime factor; else NULL */
    pare_complex *chirp, *filter; /* n numbers, and the transform of a filter of them */
    pare_fft *there, *back;       /* of a power of 2 */
};

/* A transform of n >= 1 numbers, in the arena. */
PARE_NODISCARD pare_status pare_fft_new(pare_arena *arena, pare_fft **out, int64_t n, bool inverse);

/* out[k] = sum over j of in[j] root[j k mod n], not divided by n. spare has f->largest numbers; in
   and out are apart. fast: O(n times the sum of the factors of n); plain: O(n^2), the definition.
 */
typedef void (*pare_fft_fn)(const pare_fft *f, const pare_complex *in, pare_complex *out,
                            pare_complex *spare);
void pare_fft_fast(const pare_fft *f, const pare_complex *in, pare_complex *out,
                   pare_complex *spare);
void pare_fft_plain(const pare_fft *f, const pare_complex *in, pare_complex *out,
                    pare_complex *spare);

#endif

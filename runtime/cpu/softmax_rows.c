/* SPDX-License-Identifier: Apache-2.0 */
/* e^(x - top) / sum, a vector at a time; the elements after the last whole vector are padded with
   -Inf: a row that another one follows is read beyond its end. Partial maxima and sums are always
   taken in the same order, which follows from the width of a vector. One wider than the machine's
   would be compared lane by lane, so that each instruction set has its own. */
#include "runtime/cpu/softmax_rows.h"
#include "runtime/base/clones.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/vmath.h"

typedef float floats_8 __attribute__((vector_size(8 * 4)));
typedef int32_t ints_8 __attribute__((vector_size(8 * 4)));
typedef float floats_16 __attribute__((vector_size(16 * 4)));
typedef int32_t ints_16 __attribute__((vector_size(16 * 4)));
#define JOIN(a, b)    a##b
#define FLOATS(lanes) JOIN(floats_, lanes)
#define INTS(lanes)   JOIN(ints_, lanes)

/* The first n of at most 16 elements, in pieces of fixed size: no call. */
#define COPY_PIECE(size)                                                                           \
    if (n & (size)) {                                                                              \
        memcpy(to, from, (size) * sizeof *to);                                                     \
        to += (size), from += (size);                                                              \
    }
static inline void copy_rest(float *to, const float *from, int64_t n)
{
    COPY_PIECE(8) COPY_PIECE(4) COPY_PIECE(2) COPY_PIECE(1)
}

#define LANES  16
#define NAME   rows_16
#define CLONES PARE_CLONES_SUMS
#include "runtime/cpu/softmax_lanes.inc"

#define LANES  8
#define NAME   rows_8
#define CLONES PARE_CLONES_SUMS
#include "runtime/cpu/softmax_lanes.inc"

void pare_softmax_rows(float *x, int64_t rows, int64_t n)
{
    if (pare_cpu_isa() >= PARE_ISA_AVX512)
        rows_16(x, rows, n);
    else
        rows_8(x, rows, n);
}

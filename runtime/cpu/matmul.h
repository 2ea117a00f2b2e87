/* SPDX-License-Identifier: Apache-2.0 */
/* How the plain matrix products lay out their work; integer products (matmul_integer.c) share it.
 */
#ifndef PARE_RUNTIME_CPU_MATMUL_H
#define PARE_RUNTIME_CPU_MATMUL_H

#include "runtime/cpu/ref.h"

/* C (m, n) = A (m, k) B (k, n), all dense row-major. */
typedef void (*pare_product_fn)(void *c, const void *a, const void *b, int64_t m, int64_t n,
                                int64_t k, int threads);

/* One operand as matrices of the type computed in. */
typedef struct pare_packed {
    pare_view view; /* rank at least 2, the last two axes are the matrix */
    bool copy;      /* packed dense into scratch at offset */
    size_t offset;
} pare_packed;

typedef struct pare_matmul {
    pare_product_fn product;
    pare_dtype calc;
    int ia, ib;          /* positions of the factors among the inputs */
    pare_packed a, b, c; /* c: the result before it goes to the output */
    pare_view batch;     /* dims of the leading axes */
    int64_t m, n, k;
    size_t size; /* bytes of one calc element */
} pare_matmul;

/* Makes the pare_matmul that p->state then points to, computing in calc (f16 and bf16: in f32). */
PARE_NODISCARD pare_status pare_matmul_plan(pare_prep *p, int ia, int ib, bool trans_a,
                                            bool trans_b, pare_dtype calc);

/* The operand's matrices: its own memory, or packed. */
pare_view pare_matmul_pack(const pare_call *c, const pare_matmul *mm, const pare_packed *x,
                           void *data);

/* All products of packed factors, into dense memory that is returned: the output's own where it is
   dense and of the type computed in. */
pare_view pare_matmul_multiply(const pare_call *c, const pare_matmul *mm, const pare_view *a,
                               const pare_view *b);

#endif

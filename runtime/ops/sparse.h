/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 2:4: at most two of each four neighbours along a product's depth are not 0. */
#ifndef PARE_RUNTIME_OPS_SPARSE_H
#define PARE_RUNTIME_OPS_SPARSE_H

#include "runtime/ops/product.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number i, of 1 or 2 bytes; either zero of a 16-bit float is one. */
static inline bool pare_sparse_is_zero(const void *from, int bytes, int64_t i)
{
    uint16_t v;
    if (bytes == 1) return ((const uint8_t *)from)[i] == 0;
    memcpy(&v, (const char *)from + i * 2, sizeof v);
    return (v & 0x7fff) == 0;
}

/* Are at most two of each four of these `count` numbers (of 1 or 2 bytes, `step` numbers apart) not
   0? */
bool pare_sparse_fits(const void *from, int bytes, int64_t step, int64_t count);
/* Is constant W of a matrix product, or of a convolution, of 2:4 along depth: rows of W, input
   channels at one position of the window? False of types that are not 8 or 16 bits wide. */
bool pare_matmul_is_sparse(const pare_view *w, const pare_matmul_args *a);
bool pare_conv_is_sparse(const pare_view *w, const pare_conv_args *a);

#ifdef __cplusplus
}
#endif
#endif

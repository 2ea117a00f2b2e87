/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/sparse.h"

enum { GROUP = 4, KEPT = 2 };

bool pare_sparse_fits(const void *from, int bytes, int64_t step, int64_t count)
{
    for (int64_t i = 0; i < count; i += GROUP) {
        int kept = 0;
        for (int64_t j = i; j < i + GROUP && j < count; j++)
            kept += !pare_sparse_is_zero(from, bytes, j * step);
        if (kept > KEPT) return false;
    }
    return true;
}

/* Of a number; 0: of a type whose zeros are not looked for. */
static int bytes_of(const pare_view *w)
{
    const int bits = pare_type(w->dtype)->bits;
    return bits == 8 || bits == 16 ? bits / 8 : 0;
}

bool pare_matmul_is_sparse(const pare_view *w, const pare_matmul_args *a)
{
    const int bytes = bytes_of(w);
    const int64_t column = w->stride[a->trans_b ? 0 : 1], step = w->stride[a->trans_b ? 1 : 0];
    if (!bytes) return false;
    for (int64_t c = 0; c < a->columns; c++)
        if (!pare_sparse_fits((const char *)w->data + c * column * bytes, bytes, step, a->depth))
            return false;
    return true;
}

/* A missing axis has one position. Groups of four may not reach into the next position: channels
   are in fours. */
bool pare_conv_is_sparse(const pare_view *w, const pare_conv_args *a)
{
    const int64_t lines = a->win.kernel[1], across = a->win.kernel[2], taps = lines * across;
    const int64_t row = w->rank > 3 ? w->stride[2] : 0, pixel = w->stride[w->rank - 1];
    const int bytes = bytes_of(w);
    if (!bytes || a->cg % GROUP) return false;
    for (int64_t i = 0; i < a->m * taps; i++) {
        const int64_t m = i / taps, h = i % taps / across, l = i % across;
        const int64_t at = m * w->stride[0] + h * row + l * pixel;
        if (!pare_sparse_fits((const char *)w->data + at * bytes, bytes, w->stride[1], a->cg))
            return false;
    }
    return true;
}

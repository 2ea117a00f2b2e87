/* SPDX-License-Identifier: Apache-2.0 */
/* Plan of a copy: drop axes of length 1, sort by dst's stride, merge neighbours. Where dst runs
   along one axis and src along another, go by tiles of both, so that each cache line is used whole;
   short rows that are dense on both sides without a call for each; else rows (ref.h). */
#include "runtime/cpu/copy.h"

#include <string.h>

enum { TILE = 32 };

typedef struct plan {
    int rank;
    int64_t dim[PARE_MAX_RANK], dst[PARE_MAX_RANK], src[PARE_MAX_RANK]; /* outermost first */
} plan;

static void plan_init(plan *p, const pare_view *dst, const pare_view *src)
{
    int order[PARE_MAX_RANK], rank = 0;
    for (int i = 0; i < dst->rank; i++) {
        if (dst->dim[i] == 1) continue;
        int at = rank++;
        for (; at > 0 && dst->stride[order[at - 1]] < dst->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    p->rank = 0;
    for (int r = 0; r < rank; r++) {
        int64_t n = dst->dim[order[r]], to = dst->stride[order[r]], from = src->stride[order[r]];
        int last = p->rank - 1;
        bool joins = last >= 0 && p->dst[last] == to * n && p->src[last] == from * n;
        if (!joins) p->dim[++last] = 1;
        p->dim[last] *= n;
        p->dst[last] = to;
        p->src[last] = from;
        p->rank = last + 1;
    }
}

/* The axis src runs along, where tiles pay; else -1. */
static int tile_axis(const plan *p)
{
    int inner = p->rank - 1;
    if (p->rank < 2 || p->dst[inner] != 1 || p->src[inner] == 1 || p->src[inner] == 0) return -1;
    for (int i = 0; i < inner; i++)
        if (p->src[i] == 1) return i;
    return -1;
}

/* By memcpy: large constants are in the mapped file, where nothing is aligned. A few columns (the
   colours of an image) are copied by a loop of known length. */
#define ROWS_COPY(rows, from, to)                                                                  \
    for (int64_t r = 0; r < rows; r++)                                                             \
        for (int64_t c = from; c < to; c++)                                                        \
            memcpy(y + (r * dst_step + c) * BYTES, x + (r + c * src_step) * BYTES, BYTES);
#define TILE_COPY(bits)                                                                            \
    static void tile_copy_##bits(char *y, const char *x, int64_t rows, int64_t columns,            \
                                 int64_t dst_step, int64_t src_step)                               \
    {                                                                                              \
        enum { BYTES = bits / 8 };                                                                 \
        if (columns == 3) {                                                                        \
            ROWS_COPY(rows, 0, 3)                                                                  \
            return;                                                                                \
        }                                                                                          \
        for (int64_t c0 = 0; c0 < columns; c0 += TILE) {                                           \
            int64_t c1 = c0 + TILE < columns ? c0 + TILE : columns;                                \
            ROWS_COPY(rows, c0, c1)                                                                \
        }                                                                                          \
    }
TILE_COPY(8)
TILE_COPY(16)
TILE_COPY(32)
TILE_COPY(64)
TILE_COPY(128)

typedef void (*tile_fn)(char *y, const char *x, int64_t rows, int64_t columns, int64_t dst_step,
                        int64_t src_step);

/* One task: TILE steps of axis a, all of the inner axis, one index of every other axis. */
static void tiled(const plan *p, int a, char *dst, const char *src, int bytes, int threads)
{
    tile_fn fn = bytes == 1   ? tile_copy_8
                 : bytes == 2 ? tile_copy_16
                 : bytes == 4 ? tile_copy_32
                 : bytes == 8 ? tile_copy_64
                              : tile_copy_128;
    int inner = p->rank - 1;
    int64_t tiles = (p->dim[a] + TILE - 1) / TILE, tasks = tiles, total = p->dim[inner] * p->dim[a];
    for (int i = 0; i < inner; i++)
        if (i != a) {
            tasks *= p->dim[i];
            total *= p->dim[i];
        }
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && total > 32768)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t left = t / tiles, first = t % tiles * TILE, to = first * p->dst[a], from = first;
        for (int i = inner - 1; i >= 0; i--) {
            if (i == a) continue;
            to += left % p->dim[i] * p->dst[i];
            from += left % p->dim[i] * p->src[i];
            left /= p->dim[i];
        }
        int64_t rows = p->dim[a] - first < TILE ? p->dim[a] - first : TILE;
        fn(dst + to * bytes, src + from * bytes, rows, p->dim[inner], p->dst[a], p->src[inner]);
    }
}

/* --- rows of a few bytes --- */

enum { SHORT_ROW = 256 }; /* bytes; a longer row is worth the calls of ref.h */

#define COPY_PIECE(size)                                                                           \
    if (bytes & (size)) {                                                                          \
        memcpy(y, x, (size));                                                                      \
        y += (size), x += (size);                                                                  \
    }

/* count rows in pieces of fixed sizes. */
static void copy_rows(char *to, const char *from, int64_t count, int64_t bytes, int64_t dst_step,
                      int64_t src_step)
{
    for (int64_t r = 0; r < count; r++) {
        char *y = to + r * dst_step;
        const char *x = from + r * src_step;
        for (int64_t i = bytes / 16; i > 0; i--, y += 16, x += 16) memcpy(y, x, 16);
        COPY_PIECE(8)
        COPY_PIECE(4)
        COPY_PIECE(2)
        COPY_PIECE(1)
    }
}

static bool has_short_rows(const plan *p, int bytes)
{
    int inner = p->rank - 1;
    return p->rank > 1 && p->dst[inner] == 1 && p->src[inner] == 1 &&
           p->dim[inner] * bytes <= SHORT_ROW;
}

/* One task: all rows along the second axis from the end, one index of every other axis. */
static void short_rows(const plan *p, char *dst, const char *src, int bytes, int threads)
{
    int axis = p->rank - 2;
    int64_t tasks = 1, n = p->dim[axis], row = p->dim[axis + 1] * bytes;
    for (int i = 0; i < axis; i++) tasks *= p->dim[i];
#pragma omp parallel for num_threads(threads)                                                      \
    schedule(static) if (threads > 1 && tasks * n * row > 131072)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t left = t, to = 0, from = 0;
        for (int i = axis - 1; i >= 0; i--) {
            to += left % p->dim[i] * p->dst[i];
            from += left % p->dim[i] * p->src[i];
            left /= p->dim[i];
        }
        copy_rows(dst + to * bytes, src + from * bytes, n, row, p->dst[axis] * bytes,
                  p->src[axis] * bytes);
    }
}

void pare_copy_view(const pare_view *dst, const pare_view *src, int threads)
{
    int bits = pare_type(dst->dtype)->bits;
    plan p;
    if (!pare_view_count(dst)) return;
    if (bits < 8) {
        pare_ref_copy(dst, src, threads);
        return;
    }
    plan_init(&p, dst, src);
    int a = tile_axis(&p);
    if (a >= 0)
        tiled(&p, a, dst->data, src->data, bits / 8, threads);
    else if (has_short_rows(&p, bits / 8))
        short_rows(&p, dst->data, src->data, bits / 8, threads);
    else if (p.rank == 0)
        memcpy(dst->data, src->data, (size_t)bits / 8);
    else
        pare_ref_copy(dst, src, threads);
}

/* Row-major strides for the dims. */
static void pack(pare_view *v)
{
    int64_t stride = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        v->stride[i] = stride;
        stride *= v->dim[i];
    }
}

void pare_copy_reshape(const pare_view *dst, const pare_view *src, int threads)
{
    if (!pare_view_count(dst) || dst->data == src->data) return;
    if (pare_view_rowmajor(dst)) {
        pare_view to = *src;
        to.data = dst->data;
        pack(&to);
        pare_copy_view(&to, src, threads);
        return;
    }
    if (pare_view_rowmajor(src)) {
        pare_view from = *dst;
        from.data = src->data;
        pack(&from);
        pare_copy_view(dst, &from, threads);
        return;
    }
    int64_t i[PARE_MAX_RANK] = {0}, k[PARE_MAX_RANK] = {0};
    size_t bytes = (size_t)pare_type(dst->dtype)->bits / 8;
    do {
        memcpy(pare_ref_at(dst, pare_ref_offset(dst, i)), pare_ref_at(src, pare_ref_offset(src, k)),
               bytes);
    } while (pare_ref_next(dst, i) && pare_ref_next(src, k));
}

void pare_copy_fill(const pare_view *dst, const void *value, int threads)
{
    static const uint64_t zero[2] = {0};
    pare_view v = *dst;
    memset(v.stride, 0, sizeof v.stride);
    union {
        const void *read;
        void *data;
    } from = {value ? value : zero};
    v.data = from.data;
    if (pare_view_count(dst)) pare_copy_view(dst, &v, threads);
}

bool pare_copy_can(const pare_prep *prep) { return pare_type(prep->in[0].dtype)->bits >= 8; }

/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel does the work: an 8 x 16 tile of c that stays in registers while rows of a and b,
   packed into panels, stream by. Cholesky and the triangular solves are blocked so that most of
   their work is that product (Golub, Van Loan, "Matrix Computations", 4.2.5 and 3.1.4). */
#include "calib/linear.h"
#include "runtime/base/clones.h"

#include <math.h>
#include <string.h>

enum { TILE_M = 8, TILE_N = 16, BLOCK = 64 };
enum { WORTH = 20000000 }; /* multiply-adds for which a second thread is woken */

typedef double lanes __attribute__((vector_size(8 * sizeof(double))));
typedef double half __attribute__((vector_size(4 * sizeof(double))));

/* t (8, 16) = a^T b over packed panels a (rows, 8), b (rows, 16), all of it in 16 wide registers.
   Its sums, and those of tile_narrow, are the same chains of multiply-adds. */
PARE_CLONES_SUMS static void tile_wide(double *t, const double *a, const double *b, int64_t rows)
{
    lanes s[TILE_M][2] = {0}, x, y;
    for (int64_t r = 0; r < rows; r++, a += TILE_M, b += TILE_N) {
        memcpy(&x, b, sizeof x);
        memcpy(&y, b + 8, sizeof y);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_M; i++) {
            s[i][0] += a[i] * x;
            s[i][1] += a[i] * y;
        }
    }
    memcpy(t, s, sizeof s);
}

/* The same a quarter at a time, for 16 registers of half the width. */
PARE_CLONES_SUMS static void tile_narrow(double *t, const double *a, const double *b, int64_t rows)
{
    enum { HIGH = TILE_M / 2, WIDE = TILE_N / 2 };
    for (int q = 0; q < 4; q++) {
        const double *left = a + q / 2 * HIGH, *right = b + q % 2 * WIDE;
        half s[HIGH][2] = {0}, x, y;
        for (int64_t r = 0; r < rows; r++, left += TILE_M, right += TILE_N) {
            memcpy(&x, right, sizeof x);
            memcpy(&y, right + WIDE / 2, sizeof y);
#pragma GCC unroll 4
            for (int i = 0; i < HIGH; i++) {
                s[i][0] += left[i] * x;
                s[i][1] += left[i] * y;
            }
        }
        for (int i = 0; i < HIGH; i++)
            memcpy(t + (q / 2 * HIGH + i) * TILE_N + q % 2 * WIDE, s[i], sizeof s[i]);
    }
}

typedef void (*tile_fn)(double *t, const double *a, const double *b, int64_t rows);

static tile_fn choose_tile(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx512f")) return tile_narrow;
#endif
    return tile_wide;
}

/* Rows of a factor: `step` apart, or each where row[r] says. */
typedef struct rows_of {
    pare_mat_view part;
    const double *const *row;
} rows_of;

/* Columns first .. first + width - 1 of p (rows, n) side by side, zeros after the last. */
static void pack(double *to, const rows_of *p, int64_t rows, int64_t n, int64_t first, int width)
{
    int64_t have = n - first < width ? n - first : width;
    for (int64_t r = 0; r < rows; r++, to += width) {
        const double *from = (p->row ? p->row[r] : p->part.data + r * p->part.step) + first;
        for (int64_t i = 0; i < have; i++) to[i] = from[i];
        for (int64_t i = have; i < width; i++) to[i] = 0;
    }
}

static void add_tile(pare_mat_view c, const double *t, int64_t i0, int64_t j0, int64_t m, int64_t n,
                     double sign)
{
    int64_t high = m - i0 < TILE_M ? m - i0 : TILE_M, wide = n - j0 < TILE_N ? n - j0 : TILE_N;
    for (int64_t i = 0; i < high; i++) {
        double *row = c.data + (i0 + i) * c.step + j0;
        for (int64_t j = 0; j < wide; j++) row[j] += sign * t[i * TILE_N + j];
    }
}

static pare_status product(pare_ctx *ctx, pare_mat_view c, const rows_of *a, const rows_of *b,
                           int64_t rows, int64_t m, int64_t n, double sign, bool upper, int threads)
{
    const tile_fn tile = choose_tile();
    int64_t high = (m + TILE_M - 1) / TILE_M, wide = (n + TILE_N - 1) / TILE_N;
    if (rows < 1 || m < 1 || n < 1) return PARE_OK;
    double *left = pare_alloc(ctx, (size_t)(high * rows), TILE_M * sizeof *left);
    double *right = pare_alloc(ctx, (size_t)(wide * rows), TILE_N * sizeof *right);
    if (left && right) {
        bool worth = threads > 1 && (double)rows * (double)m * (double)n > WORTH;
#pragma omp parallel num_threads(worth ? threads : 1)
        {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < high; i++)
                pack(left + i * rows * TILE_M, a, rows, m, i * TILE_M, TILE_M);
#pragma omp for schedule(static)
            for (int64_t j = 0; j < wide; j++)
                pack(right + j * rows * TILE_N, b, rows, n, j * TILE_N, TILE_N);
#pragma omp for schedule(dynamic, 4)
            for (int64_t j = wide - 1; j >= 0; j--)
                for (int64_t i = 0; i < high; i++) {
                    double t[TILE_M * TILE_N];
                    if (upper && i * TILE_M > j * TILE_N + TILE_N - 1) break;
                    tile(t, left + i * rows * TILE_M, right + j * rows * TILE_N, rows);
                    add_tile(c, t, i * TILE_M, j * TILE_N, m, n, sign);
                }
        }
    }
    bool ok = left && right;
    pare_free(left);
    pare_free(right);
    return ok ? PARE_OK : PARE_MEMORY;
}

pare_status pare_linear_product(pare_ctx *ctx, pare_mat_view c, pare_mat_view a, pare_mat_view b,
                                int64_t rows, int64_t m, int64_t n, double sign, bool upper,
                                int threads)
{
    return product(ctx, c, &(rows_of){a, NULL}, &(rows_of){b, NULL}, rows, m, n, sign, upper,
                   threads);
}

pare_status pare_linear_gathered(pare_ctx *ctx, pare_mat_view c, const double *const *a,
                                 const double *const *b, int64_t rows, int64_t m, int64_t n,
                                 double sign, bool upper)
{
    return product(ctx, c, &(rows_of){{0}, a}, &(rows_of){{0}, b}, rows, m, n, sign, upper, 1);
}

static pare_mat_view at(pare_mat_view p, int64_t row, int64_t column)
{
    return (pare_mat_view){p.data + row * p.step + column, p.step};
}

PARE_CLONES_SUMS static void take(double *y, const double *x, double f, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] -= f * x[i];
}

void pare_linear_take(double *y, const double *x, double f, int64_t n) { take(y, x, f, n); }

bool pare_linear_cholesky_small(pare_mat_view a, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double *row = a.data + k * a.step, pivot = row[k];
        if (!(pivot > 0) || !isfinite(pivot)) return false;
        pivot = sqrt(pivot);
        row[k] = pivot;
        for (int64_t j = k + 1; j < n; j++) row[j] /= pivot;
        for (int64_t i = k + 1; i < n; i++) take(a.data + i * a.step + i, row + i, row[i], n - i);
    }
    return true;
}

/* b = u^-T b for one block of u. Columns are shared out in runs, each solved whole. */
static void forward_small(pare_mat_view u, int64_t n, pare_mat_view b, int64_t columns, int threads)
{
    enum { RUN = 128 };
#pragma omp parallel for schedule(static) num_threads(n *n *columns > WORTH ? threads : 1)
    for (int64_t j = 0; j < columns; j += RUN) {
        int64_t run = columns - j < RUN ? columns - j : RUN;
        for (int64_t k = 0; k < n; k++) {
            double *row = b.data + k * b.step + j, pivot = u.data[k * u.step + k];
            for (int64_t i = 0; i < run; i++) row[i] /= pivot;
            for (int64_t i = k + 1; i < n; i++)
                take(b.data + i * b.step + j, row, u.data[k * u.step + i], run);
        }
    }
}

/* b = u^-1 b for one block of u. */
static void backward_small(pare_mat_view u, int64_t n, pare_mat_view b, int64_t columns,
                           int threads)
{
    enum { RUN = 128 };
#pragma omp parallel for schedule(static) num_threads(n *n *columns > WORTH ? threads : 1)
    for (int64_t j = 0; j < columns; j += RUN) {
        int64_t run = columns - j < RUN ? columns - j : RUN;
        for (int64_t k = n - 1; k >= 0; k--) {
            double *row = b.data + k * b.step + j, pivot = u.data[k * u.step + k];
            for (int64_t i = k + 1; i < n; i++)
                take(row, b.data + i * b.step + j, u.data[k * u.step + i], run);
            for (int64_t i = 0; i < run; i++) row[i] /= pivot;
        }
    }
}

pare_status pare_linear_cholesky(pare_ctx *ctx, pare_mat_view a, int64_t n, int threads, bool *ok)
{
    *ok = true;
    for (int64_t k = 0; k < n && *ok; k += BLOCK) {
        int64_t size = n - k < BLOCK ? n - k : BLOCK, rest = n - k - size;
        *ok = pare_linear_cholesky_small(at(a, k, k), size);
        if (!*ok) break;
        forward_small(at(a, k, k), size, at(a, k, k + size), rest, threads);
        PARE_TRY(pare_linear_product(ctx, at(a, k + size, k + size), at(a, k, k + size),
                                     at(a, k, k + size), size, rest, rest, -1, true, threads));
        PARE_TRY(pare_ctx_poll(ctx));
    }
    return PARE_OK;
}

/* to (columns, rows) = from (rows, columns)^T */
static void transpose(double *to, pare_mat_view from, int64_t rows, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) to[j * rows + i] = from.data[i * from.step + j];
}

/* lower: b is the identity, and of the solution, which is symmetric, the lower triangle will do. On
   the way to it neither half of the work touches a block above the diagonal. */
static pare_status solve(pare_ctx *ctx, pare_mat_view u, int64_t n, pare_mat_view b,
                         int64_t columns, bool lower, int threads)
{
    double *turned = pare_alloc(ctx, (size_t)n * BLOCK, sizeof *turned);
    pare_status st = turned ? PARE_OK : PARE_MEMORY;
    for (int64_t k = 0; k < n && st == PARE_OK; k += BLOCK) {
        int64_t size = n - k < BLOCK ? n - k : BLOCK, rest = n - k - size;
        int64_t wide = lower ? k + size : columns;
        forward_small(at(u, k, k), size, at(b, k, 0), wide, threads);
        st = pare_linear_product(ctx, at(b, k + size, 0), at(u, k, k + size), at(b, k, 0), size,
                                 rest, wide, -1, false, threads);
    }
    for (int64_t k = (n - 1) / BLOCK * BLOCK; k >= 0 && st == PARE_OK; k -= BLOCK) {
        int64_t size = n - k < BLOCK ? n - k : BLOCK, rest = n - k - size;
        int64_t wide = lower ? k + size : columns;
        transpose(turned, at(u, k, k + size), size, rest);
        st = pare_linear_product(ctx, at(b, k, 0), (pare_mat_view){turned, size},
                                 at(b, k + size, 0), rest, size, wide, -1, false, threads);
        backward_small(at(u, k, k), size, at(b, k, 0), wide, threads);
        if (st == PARE_OK) st = pare_ctx_poll(ctx);
    }
    pare_free(turned);
    return st;
}

pare_status pare_linear_solve(pare_ctx *ctx, pare_mat_view u, int64_t n, pare_mat_view b,
                              int64_t columns, int threads)
{
    return solve(ctx, u, n, b, columns, false, threads);
}

void pare_linear_fill_lower(double *a, int64_t n)
{
    enum { SIDE = 32 }; /* squares that a cache holds */
    for (int64_t i0 = 0; i0 < n; i0 += SIDE)
        for (int64_t j0 = 0; j0 <= i0; j0 += SIDE)
            for (int64_t i = i0; i < i0 + SIDE && i < n; i++)
                for (int64_t j = j0; j < j0 + SIDE && j < i; j++) a[i * n + j] = a[j * n + i];
}

static void fill_upper(double *a, int64_t n)
{
    enum { SIDE = 32 };
    for (int64_t i0 = 0; i0 < n; i0 += SIDE)
        for (int64_t j0 = 0; j0 <= i0; j0 += SIDE)
            for (int64_t i = i0; i < i0 + SIDE && i < n; i++)
                for (int64_t j = j0; j < j0 + SIDE && j < i; j++) a[j * n + i] = a[i * n + j];
}

pare_status pare_linear_inverse(pare_ctx *ctx, double *out, pare_mat_view u, int64_t n, int threads)
{
    memset(out, 0, (size_t)(n * n) * sizeof *out);
    for (int64_t i = 0; i < n; i++) out[i * n + i] = 1;
    PARE_TRY(solve(ctx, u, n, (pare_mat_view){out, n}, n, true, threads));
    fill_upper(out, n);
    return PARE_OK;
}

void pare_linear_solve_one(const double *u, int64_t step, int64_t n, double *b)
{
    for (int64_t k = 0; k < n; k++) {
        b[k] /= u[k * step + k];
        take(b + k + 1, u + k * step + k + 1, b[k], n - k - 1);
    }
    for (int64_t k = n - 1; k >= 0; k--) {
        double sum = b[k];
        for (int64_t i = k + 1; i < n; i++) sum -= u[k * step + i] * b[i];
        b[k] = sum / u[k * step + k];
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Plain matrix products: MatMul (13), Gemm (13). Sums run over k in ascending order in f32 (f16 and
   bf16 too), f64 or wrapping integers; the node's output is rounded once.

   Plan: both factors are packed dense into scratch where they are not row-major in the type
   computed in; then a tile of 4 rows x 128 columns is summed in registers and cache while k
   advances, so that B is read in rows. One tile is one thread's: results do not depend on the
   number of threads. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/matmul.h"
#include "runtime/ops/moves.h"
#include "runtime/base/size.h"

#include <string.h>

enum { TILE_ROWS = 4, TILE_COLUMNS = 128 };

/* C = A B for dense A (m, k), B (k, n), C (m, n). */
#define PRODUCT(type, calc, sum, clones)                                                           \
    clones static void tile_##type(calc *c, const calc *a, const calc *b, int64_t rows,            \
                                   int64_t columns, int64_t n, int64_t k)                          \
    {                                                                                              \
        sum acc[TILE_ROWS][TILE_COLUMNS];                                                          \
        memset(acc, 0, sizeof acc);                                                                \
        if (rows == TILE_ROWS && columns == TILE_COLUMNS)                                          \
            for (int64_t i = 0; i < k; i++) {                                                      \
                const calc *br = b + i * n;                                                        \
                const sum a0 = (sum)a[i], a1 = (sum)a[k + i], a2 = (sum)a[2 * k + i],              \
                          a3 = (sum)a[3 * k + i];                                                  \
                for (int j = 0; j < TILE_COLUMNS; j++) {                                           \
                    acc[0][j] += a0 * (sum)br[j];                                                  \
                    acc[1][j] += a1 * (sum)br[j];                                                  \
                    acc[2][j] += a2 * (sum)br[j];                                                  \
                    acc[3][j] += a3 * (sum)br[j];                                                  \
                }                                                                                  \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < k; i++)                                                        \
                for (int64_t r = 0; r < rows; r++) {                                               \
                    const sum f = (sum)a[r * k + i];                                               \
                    for (int64_t j = 0; j < columns; j++) acc[r][j] += f * (sum)b[i * n + j];      \
                }                                                                                  \
        for (int64_t r = 0; r < rows; r++)                                                         \
            for (int64_t j = 0; j < columns; j++) c[r * n + j] = (calc)acc[r][j];                  \
    }                                                                                              \
    static void product_##type(void *c, const void *a, const void *b, int64_t m, int64_t n,        \
                               int64_t k, int threads)                                             \
    {                                                                                              \
        int64_t strips = (m + TILE_ROWS - 1) / TILE_ROWS;                                          \
        bool wide = threads > 1 && strips > 1 && m * n * k > 1 << 18;                              \
        _Pragma(                                                                                   \
            "omp parallel for num_threads(threads) schedule(static) if (wide)") for (int64_t s =   \
                                                                                         0;        \
                                                                                     s < strips;   \
                                                                                     s++)          \
        {                                                                                          \
            int64_t i = s * TILE_ROWS, rows = m - i < TILE_ROWS ? m - i : TILE_ROWS;               \
            for (int64_t j = 0; j < n; j += TILE_COLUMNS)                                          \
                tile_##type((calc *)c + i * n + j, (const calc *)a + i * k, (const calc *)b + j,   \
                            rows, n - j < TILE_COLUMNS ? n - j : TILE_COLUMNS, n, k);              \
        }                                                                                          \
    }
PRODUCT(f32, float, float, PARE_CLONES)
PRODUCT(f64, double, double, )
PRODUCT(s32, int32_t, uint32_t, )
PRODUCT(u32, uint32_t, uint32_t, )
PRODUCT(s64, int64_t, uint64_t, )
PRODUCT(u64, uint64_t, uint64_t, )

/* The type computed in, and its product; NULL where there is none. */
static pare_product_fn product_of(pare_dtype type, pare_dtype *calc)
{
    *calc = type == PARE_f16 || type == PARE_bf16 ? PARE_f32 : type;
    switch (*calc) {
    case PARE_f32: return product_f32;
    case PARE_f64: return product_f64;
    case PARE_s32: return product_s32;
    case PARE_u32: return product_u32;
    case PARE_s64: return product_s64;
    case PARE_u64: return product_u64;
    default: return NULL;
    }
}

static size_t reserve(pare_prep *p, int64_t count, size_t size)
{
    size_t at = p->scratch;
    p->scratch += pare_align_up((size_t)count * size, 64);
    return at;
}

static void pack_plan(pare_prep *p, const pare_matmul *mm, pare_packed *x)
{
    int64_t stride = 1;
    x->copy = x->view.dtype != mm->calc;
    for (int i = x->view.rank - 1; i >= 0; i--) {
        if (x->view.dim[i] != 1 && x->view.stride[i] != stride) x->copy = true;
        stride *= x->view.dim[i];
    }
    if (x->copy) x->offset = reserve(p, pare_view_count(&x->view), mm->size);
}

/* Dense strides for the view's dims. */
static pare_view dense(const pare_view *like, pare_dtype dtype, void *data)
{
    pare_view v = *like;
    int64_t stride = 1;
    v.dtype = dtype;
    v.data = data;
    for (int i = v.rank - 1; i >= 0; i--) {
        v.stride[i] = stride;
        stride *= v.dim[i];
    }
    return v;
}

#define WIDEN(type, memory)                                                                        \
    static void widen_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)         \
    {                                                                                              \
        (void)arg;                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((int32_t *)p[0])[i * s[0]] = ((const memory *)p[1])[i * s[1]];                        \
    }
WIDEN(s8, int8_t)
WIDEN(u8, uint8_t)

/* Copies between memory orders and, for the short types, to the one computed in and back. */
static void convert(const pare_view *dst, const pare_view *src, int threads)
{
    if (dst->dtype == src->dtype)
        pare_ref_copy(dst, src, threads);
    else if (dst->dtype == PARE_s32)
        pare_ref_each(dst, &src, 1, threads, src->dtype == PARE_s8 ? widen_s8 : widen_u8, NULL);
    else if (dst->dtype == PARE_f32)
        pare_ref_to_f32(dst->data, src);
    else
        pare_ref_from_f32(dst, src->data);
}

/* The dense matrices of an operand. */
pare_view pare_matmul_pack(const pare_call *c, const pare_matmul *mm, const pare_packed *x,
                           void *data)
{
    pare_view source = x->view;
    source.data = data;
    if (!x->copy) return source;
    pare_view v = dense(&x->view, mm->calc, (char *)c->scratch + x->offset);
    convert(&v, &source, c->threads);
    return v;
}

/* Adds a leading (row) or trailing (column) axis of 1 to a vector. */
static pare_view as_matrix(const pare_view *v, bool left)
{
    pare_view w = *v;
    if (v->rank != 1) return w;
    w.rank = 2;
    w.dim[left] = v->dim[0];
    w.stride[left] = v->stride[0];
    w.dim[!left] = 1;
    w.stride[!left] = 0;
    return w;
}

static void swap_last(pare_view *v)
{
    int order[PARE_MAX_RANK];
    for (int i = 0; i < v->rank; i++) order[i] = i;
    order[v->rank - 1] = v->rank - 2;
    order[v->rank - 2] = v->rank - 1;
    *v = pare_view_permute(v, order);
}

pare_status pare_matmul_plan(pare_prep *p, int ia, int ib, bool trans_a, bool trans_b,
                             pare_dtype calc)
{
    pare_matmul *mm = pare_arena_alloc(p->arena, 1, sizeof *mm);
    if (!mm) return PARE_MEMORY;
    mm->product = product_of(calc, &mm->calc);
    mm->ia = ia;
    mm->ib = ib;
    mm->size = (size_t)pare_type(mm->calc)->bits / 8;
    mm->a.view = as_matrix(&p->in[ia], true);
    mm->b.view = as_matrix(&p->in[ib], false);
    if (trans_a) swap_last(&mm->a.view);
    if (trans_b) swap_last(&mm->b.view);
    int ra = mm->a.view.rank, rb = mm->b.view.rank;
    mm->m = mm->a.view.dim[ra - 2];
    mm->k = mm->a.view.dim[ra - 1];
    mm->n = mm->b.view.dim[rb - 1];
    mm->batch.rank = (ra > rb ? ra : rb) - 2;
    for (int i = 0; i < mm->batch.rank; i++) {
        int ka = i - (mm->batch.rank - (ra - 2)), kb = i - (mm->batch.rank - (rb - 2));
        int64_t da = ka < 0 ? 1 : mm->a.view.dim[ka], db = kb < 0 ? 1 : mm->b.view.dim[kb];
        mm->batch.dim[i] = da == 1 ? db : da;
    }
    pack_plan(p, mm, &mm->a);
    pack_plan(p, mm, &mm->b);
    mm->c.view = p->out[0];
    mm->c.copy = p->out[0].dtype != mm->calc || !pare_view_rowmajor(&p->out[0]);
    if (mm->c.copy) mm->c.offset = reserve(p, pare_view_count(&p->out[0]), mm->size);
    p->state = mm;
    return PARE_OK;
}

/* The offset in elements of the matrix that batch index belongs to. */
static int64_t matrix_at(const pare_view *v, const int64_t *index, int rank)
{
    int64_t at = 0;
    for (int i = 0; i < v->rank - 2; i++) {
        int k = i + rank - (v->rank - 2);
        if (v->dim[i] != 1) at += index[k] * v->stride[i];
    }
    return at;
}

pare_view pare_matmul_multiply(const pare_call *c, const pare_matmul *mm, const pare_view *a,
                               const pare_view *b)
{
    pare_view y = c->out[0];
    if (mm->c.copy) y = dense(&c->out[0], mm->calc, (char *)c->scratch + mm->c.offset);
    int64_t index[PARE_MAX_RANK] = {0}, at = 0;
    if (pare_view_count(&y) == 0) return y;
    do {
        mm->product((char *)y.data + at * mm->m * mm->n * (int64_t)mm->size,
                    (char *)a->data + matrix_at(a, index, mm->batch.rank) * (int64_t)mm->size,
                    (char *)b->data + matrix_at(b, index, mm->batch.rank) * (int64_t)mm->size,
                    mm->m, mm->n, mm->k, c->threads);
        at++;
    } while (pare_ref_next(&mm->batch, index));
    return y;
}

/* Packs both factors and multiplies them. */
static pare_view matmul_products(const pare_call *c, const pare_matmul *mm)
{
    pare_view a = pare_matmul_pack(c, mm, &mm->a, c->in[mm->ia].data);
    pare_view b = pare_matmul_pack(c, mm, &mm->b, c->in[mm->ib].data);
    return pare_matmul_multiply(c, mm, &a, &b);
}

static bool matmul_can(const pare_prep *p)
{
    pare_dtype calc;
    return product_of(p->in[0].dtype, &calc) && p->in[1].dtype == p->in[0].dtype;
}

static pare_status matmul_prepare(pare_prep *p)
{
    return pare_matmul_plan(p, 0, 1, false, false, p->in[0].dtype);
}

static pare_status matmul_run(const pare_call *c)
{
    const pare_matmul *mm = c->state;
    pare_view y = matmul_products(c, mm);
    if (mm->c.copy) convert(&c->out[0], &y, c->threads);
    return PARE_OK;
}

static const pare_kernel ref_matmul = {.name = "ref_matmul",
                                       .can = matmul_can,
                                       .prepare = matmul_prepare,
                                       .run = matmul_run,
                                       .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_matmul[] = {
    &pare_float_matmul_small, PARE_WITH_ONEDNN(&pare_onednn_matmul) & pare_float_matmul,
    &ref_matmul, NULL};

/* --- Gemm --- */

/* What Gemm adds to the product; a bias of a short type is widened into scratch. */
typedef struct gemm {
    pare_matmul product; /* first: matmul_products sees only this */
    float factor[2];     /* alpha, beta */
    bool bias;
    pare_packed c;
} gemm;

static pare_status gemm_prepare(pare_prep *p)
{
    gemm *g = pare_arena_alloc(p->arena, 1, sizeof *g);
    if (!g) return PARE_MEMORY;
    PARE_TRY(pare_matmul_plan(p, 0, 1, pare_node_int(p->node, "transA", 0) != 0,
                              pare_node_int(p->node, "transB", 0) != 0, p->in[0].dtype));
    g->product = *(pare_matmul *)p->state;
    g->factor[0] = pare_node_float(p->node, "alpha", 1);
    g->factor[1] = pare_node_float(p->node, "beta", 1);
    g->bias = p->in_count > 2 && p->in[2].dtype;
    if (g->bias) {
        g->c.view = p->in[2];
        g->c.copy = p->in[2].dtype != g->product.calc;
        if (g->c.copy) g->c.offset = reserve(p, pare_view_count(&p->in[2]), g->product.size);
    }
    p->state = g;
    return PARE_OK;
}

/* y = alpha y + beta c, in the type computed in. */
#define SCALE(type, calc)                                                                          \
    static void scale_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)         \
    {                                                                                              \
        const float *factor = arg;                                                                 \
        calc *y = (calc *)p[0];                                                                    \
        const calc *c = (const calc *)p[1];                                                        \
        if (factor[0] == 1 && factor[1] == 1)                                                      \
            for (int64_t i = 0; i < n; i++) y[i * s[0]] += c[i * s[1]];                            \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i * s[0]] =                                                                      \
                    (calc)((calc)factor[0] * y[i * s[0]] + (calc)factor[1] * c[i * s[1]]);         \
    }
SCALE(f32, float)
SCALE(f64, double)
SCALE(u32, uint32_t) /* the bits of s32, too */
SCALE(u64, uint64_t)

static pare_ref_row scale_of(pare_dtype calc)
{
    return calc == PARE_f32                       ? scale_f32
           : calc == PARE_f64                     ? scale_f64
           : calc == PARE_s32 || calc == PARE_u32 ? scale_u32
                                                  : scale_u64;
}

static pare_status gemm_run(const pare_call *c)
{
    const gemm *g = c->state;
    const pare_matmul *mm = &g->product;
    double zero = 0;
    pare_view y = matmul_products(c, mm), bias = {.dtype = mm->calc, .data = &zero};
    if (g->bias) bias = pare_matmul_pack(c, mm, &g->c, c->in[2].data);
    if (g->bias || g->factor[0] != 1)
        pare_ref_each(&y, (const pare_view *const[]){&bias}, 1, c->threads, scale_of(mm->calc),
                      g->factor);
    if (mm->c.copy) convert(&c->out[0], &y, c->threads);
    return PARE_OK;
}

static const pare_kernel ref_gemm = {.name = "ref_gemm",
                                     .can = matmul_can,
                                     .prepare = gemm_prepare,
                                     .run = gemm_run,
                                     .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_gemm[] = {
    &pare_float_matmul_small, PARE_WITH_ONEDNN(&pare_onednn_matmul) & pare_float_matmul, &ref_gemm,
    NULL};

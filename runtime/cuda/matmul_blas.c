/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm and FusedMatMul of f32, f16 and bf16 on cuBLASLt, and batches of products on cuBLAS.
   Both libraries read columns: row-major Y (rows, columns) is their D (columns, rows), with W as
   their first factor and X as their second, so that output channels are D's rows, where a bias
   belongs. Constant weights are packed with depth contiguous: the form "TN" that Hopper's kernels
   are made for. Sums of f32 are of f32 products (never TF32). Epilogues: bias, ReLU, GELU in the
   tanh form, which is the one these libraries have; a residual is C with a factor of 1. Which
   algorithm serves is asked of the library while preparing; each of its first few answers is an
   entry of its own, so that a stopwatch can choose among them. Weights of 4 or 8 bits stay so in
   memory, and become f32 in scratch before each product: that costs little beside many rows.
   Integer products are left to our own kernels: the libraries add no bias to them and do not say
   how they round. */
#include "runtime/base/size.h"
#include "runtime/cuda/gemm/blas_device.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/gemm/prepack.h"

#include <string.h>

enum { ASKED = 8, MOST_WIDENED = 256 << 20 /* bytes of weights in scratch */ };

/* One product as a library sees it: D (m, n) = op(W) op(X), columns contiguous but for ld. */
typedef struct blas_product {
    int type, trans_w, trans_x, epilogue;
    int64_t m, n, k, ld_w, ld_x, count, w_batch, x_batch, d_batch;
    bool packs;         /* W is constant and gets copied, depth contiguous */
    bool widens;        /* it is copied in 4 or 8 bits, and f32 in scratch */
    int bias, residual; /* input positions; -1: none */
    float alpha;
} blas_product;

static int blas_type(pare_dtype t)
{
    return t == PARE_f32 ? PARE_BLAS_F32 : t == PARE_f16 ? PARE_BLAS_F16 : PARE_BLAS_BF16;
}

static int epilogue_of(pare_act_kind act, bool biased)
{
    switch (act) {
    case PARE_ACT_NONE: return biased ? PARE_LT_EPILOGUE_BIAS : PARE_LT_EPILOGUE_NONE;
    case PARE_ACT_RELU: return biased ? PARE_LT_EPILOGUE_RELU_BIAS : PARE_LT_EPILOGUE_RELU;
    case PARE_ACT_GELU_TANH: return biased ? PARE_LT_EPILOGUE_GELU_BIAS : PARE_LT_EPILOGUE_GELU;
    default: return 0;
    }
}

/* A matrix whose axis `inner` (or else `outer`) is contiguous: is it transposed, and how far apart
   are its lines? False where neither is. */
static bool lines_of(const pare_view *v, int inner, int outer, int *trans, int64_t *ld)
{
    bool in = v->stride[inner] == 1 || v->dim[inner] == 1;
    bool out = v->stride[outer] == 1 || v->dim[outer] == 1;
    int64_t lines = in ? v->stride[outer] : v->stride[inner];
    int64_t least = in ? v->dim[inner] : v->dim[outer];
    if (!in && !out) return false;
    if (v->dim[in ? outer : inner] == 1) lines = least;
    *trans = !in;
    *ld = lines;
    return lines >= least && lines <= INT32_MAX;
}

/* Batches of one distance each; rows of X that follow each other over all batches become one
   matrix. */
static bool batches_set(const pare_cuda_factors *f, blas_product *p)
{
    pare_tensor_iterator walk;
    pare_view y = pare_cuda_leading(&f->y, &f->y), a = pare_cuda_leading(&f->a, &f->y),
              b = pare_cuda_leading(&f->b, &f->y);
    pare_iterator_init(&walk, (const pare_view *const[]){&y, &a, &b}, 3);
    p->count = walk.count;
    if (walk.count == 1) return true;
    if (walk.rank != 1) return false;
    p->d_batch = walk.stride[0][0], p->x_batch = walk.stride[1][0], p->w_batch = walk.stride[2][0];
    if (p->w_batch == 0 && !p->trans_x && p->x_batch == p->n * p->ld_x) {
        p->n *= p->count;
        p->count = 1;
    }
    return p->count <= PARE_CUDA_MOST_BATCHES;
}

static bool bias_is_vector(const pare_prep *prep, int at, int64_t columns)
{
    const pare_view *b = pare_operand(prep->in, prep->in_count, at);
    return !b || (b->data && b->dtype == prep->out[0].dtype && pare_view_count(b) == columns &&
                  b->rank > 0 && b->dim[b->rank - 1] == columns);
}

static bool residual_is_like(const pare_prep *prep, int at)
{
    const pare_view *z = pare_operand(prep->in, prep->in_count, at);
    return !z || (z->dtype == prep->out[0].dtype && pare_view_same_order(z, &prep->out[0]));
}

/* Reads a node that the libraries can compute, epilogue apart. Results of other batch sizes may
   come from other algorithms: not in deterministic execution. */
static bool product_read(const pare_prep *prep, blas_product *p)
{
    pare_matmul_args a;
    pare_cuda_factors f;
    const pare_view *x = &prep->in[0], *w = &prep->in[1], *y = &prep->out[0];
    if (prep->deterministic || !pare_cuda_is_float(x->dtype) || y->dtype != x->dtype ||
        x->rank < 2 || w->rank < 2 || !pare_view_rowmajor(y))
        return false;
    pare_cuda_gemm_args narrow;
    const bool widens = w->dtype != x->dtype;
    if (widens && !pare_cuda_weights_read(prep, &a, &narrow)) return false;
    if (!pare_cuda_readable(prep, pare_matmul_args_read(prep, &a))) return false;
    pare_cuda_factors_read(prep->node, x, w, y, &f);
    *p = (blas_product){.type = blas_type(x->dtype),
                        .m = f.columns,
                        .n = f.rows,
                        .k = f.depth,
                        .bias = a.at.bias,
                        .residual = a.at.residual,
                        .widens = widens,
                        .alpha = a.alpha};
    p->packs = w->data && w->rank == 2;
    p->epilogue = epilogue_of(a.act.kind, p->bias >= 0);
    int ra = f.a.rank, rb = f.b.rank;
    if (!lines_of(&f.a, ra - 1, ra - 2, &p->trans_x, &p->ld_x) ||
        !lines_of(&f.b, rb - 2, rb - 1, &p->trans_w, &p->ld_w))
        return false;
    p->trans_w = !p->trans_w; /* depth contiguous is "transposed" for the first factor */
    if (p->packs) p->trans_w = 1, p->ld_w = pare_cuda_pitch(f.depth, x->dtype);
    if (widens && p->m * p->ld_w * 4 > MOST_WIDENED) return false;
    return f.depth && pare_view_count(y) && f.depth < INT32_MAX && (widens || a.at.w_scale < 0) &&
           (p->bias < 0 || a.beta == 1) && batches_set(&f, p) && p->m * 4 < INT32_MAX &&
           p->n < INT32_MAX;
}

/* --- cuBLASLt --- */

typedef struct lt_product {
    const pare_blas_api *api;
    void *lt, *desc, *w, *x, *d;
    pare_lt_algo algo;
    size_t workspace, scratch; /* bytes, and where they are in scratch */
    pare_device *device;
    void *block;                /* packed weights, then the bias */
    pare_cuda_gemm_args narrow; /* W in 4 or 8 bits, its type is none where there is no such W */
    void *narrow_block;
    size_t wide; /* where W as f32 is in scratch */
    int residual;
    float alpha;
    bool packs;
} lt_product;

#define LT(call, name) PARE_TRY(pare_cuda_blas_status(ctx, node, api->call, name))

static void lt_close(lt_product *s)
{
    if (!s) return;
    void *layouts[] = {s->w, s->x, s->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) (void)s->api->lt_layout_destroy(layouts[i]);
    if (s->desc) (void)s->api->lt_desc_destroy(s->desc);
    if (s->block) s->device->backend->free(s->device, s->block);
    if (s->narrow_block) s->device->backend->free(s->device, s->narrow_block);
    s->w = s->x = s->d = s->desc = s->block = s->narrow_block = NULL;
}

static pare_status layout_make(pare_ctx *ctx, const pare_node *node, const pare_blas_api *api,
                               void **out, int type, int64_t rows, int64_t columns, int64_t ld,
                               int64_t count, int64_t stride)
{
    int batches = (int)count;
    LT(lt_layout_create(out, type, (uint64_t)rows, (uint64_t)columns, ld),
       "cublasLtMatrixLayoutCreate");
    if (count == 1) return PARE_OK;
    LT(lt_layout_set(*out, PARE_LT_LAYOUT_BATCH_COUNT, &batches, sizeof batches),
       "cublasLtMatrixLayoutSetAttribute");
    LT(lt_layout_set(*out, PARE_LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride),
       "cublasLtMatrixLayoutSetAttribute");
    return PARE_OK;
}

/* Descriptor and layouts; the bias's address is set where it is known. */
static pare_status lt_describe(pare_ctx *ctx, const pare_node *node, const blas_product *p,
                               lt_product *s)
{
    const pare_blas_api *api = s->api;
    const char *set = "cublasLtMatmulDescSetAttribute";
    LT(lt_desc_create(&s->desc, PARE_BLAS_COMPUTE_F32, PARE_BLAS_F32), "cublasLtMatmulDescCreate");
    LT(lt_desc_set(s->desc, PARE_LT_DESC_TRANSA, &p->trans_w, sizeof p->trans_w), set);
    LT(lt_desc_set(s->desc, PARE_LT_DESC_TRANSB, &p->trans_x, sizeof p->trans_x), set);
    LT(lt_desc_set(s->desc, PARE_LT_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue), set);
    if (p->bias >= 0)
        LT(lt_desc_set(s->desc, PARE_LT_DESC_BIAS_TYPE, &p->type, sizeof p->type), set);
    PARE_TRY(layout_make(ctx, node, api, &s->w, p->type, p->trans_w ? p->k : p->m,
                         p->trans_w ? p->m : p->k, p->ld_w, p->count, p->w_batch));
    PARE_TRY(layout_make(ctx, node, api, &s->x, p->type, p->trans_x ? p->n : p->k,
                         p->trans_x ? p->k : p->n, p->ld_x, p->count, p->x_batch));
    return layout_make(ctx, node, api, &s->d, p->type, p->m, p->n, p->m, p->count, p->d_batch);
}

/* The library's answers for this product, best first. */
static pare_status lt_ask(pare_ctx *ctx, const pare_node *node, const lt_product *s,
                          pare_lt_result results[ASKED], int *count)
{
    const pare_blas_api *api = s->api;
    uint64_t most = PARE_CUDA_WORKSPACE;
    void *preference = NULL;
    *count = 0;
    LT(lt_preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    int code = api->lt_preference_set(preference, PARE_LT_PREFERENCE_WORKSPACE, &most, sizeof most);
    if (!code)
        code = api->lt_heuristic(s->lt, s->desc, s->w, s->x, s->d, s->d, preference, ASKED, results,
                                 count);
    (void)api->lt_preference_destroy(preference);
    int kept = 0;
    for (int i = 0; i < *count; i++)
        if (results[i].status == PARE_BLAS_SUCCESS) results[kept++] = results[i];
    *count = kept;
    return pare_cuda_blas_status(ctx, node, code, "cublasLtMatmulAlgoGetHeuristic");
}

/* Describes the product, and takes answer `rank`. PARE_UNSUPPORTED: there are fewer. */
static pare_status lt_choose(const pare_prep *prep, const blas_product *p, int rank, lt_product *s)
{
    pare_lt_result results[ASKED];
    int count;
    PARE_TRY(lt_describe(prep->ctx, prep->node, p, s));
    PARE_TRY(lt_ask(prep->ctx, prep->node, s, results, &count));
    if (rank >= count)
        return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "cuBLASLt knows %d ways to compute it",
                              count);
    s->algo = results[rank].algo;
    s->workspace = results[rank].workspace;
    return PARE_OK;
}

static bool lt_can(const pare_prep *prep, int rank)
{
    blas_product p;
    lt_product s = {0};
    if (!product_read(prep, &p) || !p.epilogue || !bias_is_vector(prep, p.bias, p.m) ||
        !residual_is_like(prep, p.residual))
        return false;
    const pare_cuda_blas *blas = pare_cuda_blas_find(prep->ctx, prep->device);
    if (!blas) return false;
    s.api = blas->api, s.lt = blas->lt;
    bool able = pare_cuda_readable(prep, lt_choose(prep, &p, rank, &s));
    lt_close(&s);
    return able;
}

/* W (depth, columns) as rows of `pitch`, depth contiguous; then the bias. */
static pare_status lt_pack(const pare_prep *prep, const blas_product *p, lt_product *s)
{
    pare_cuda_factors f;
    const pare_view *w = &prep->in[1];
    size_t bytes = (size_t)pare_cuda_bytes(prep->out[0].dtype);
    const bool copies = p->packs && !p->widens;
    size_t bias = copies ? pare_align_up((size_t)p->m * (size_t)p->ld_w * bytes, 256) : 0;
    size_t all = bias + (p->bias >= 0 ? (size_t)p->m * bytes : 0);
    if (!all) return PARE_OK;
    char *host = pare_alloc(prep->ctx, all, 1);
    if (!host) return PARE_MEMORY;
    pare_cuda_factors_read(prep->node, &prep->in[0], w, &prep->out[0], &f);
    for (int64_t c = 0; copies && c < p->m; c++)
        for (int64_t k = 0; k < p->k; k++)
            memcpy(host + (size_t)(c * p->ld_w + k) * bytes,
                   (const char *)w->data + (size_t)(k * f.b.stride[0] + c * f.b.stride[1]) * bytes,
                   bytes);
    if (p->bias >= 0) memcpy(host + bias, prep->in[p->bias].data, (size_t)p->m * bytes);
    pare_status st = pare_device_copy(prep->ctx, prep->device, &s->block, host, all);
    pare_free(host);
    if (st != PARE_OK || p->bias < 0) return st;
    const char *at = (char *)s->block + bias;
    return pare_cuda_blas_status(
        prep->ctx, prep->node,
        s->api->lt_desc_set(s->desc, PARE_LT_DESC_BIAS_POINTER, &at, sizeof at),
        "cublasLtMatmulDescSetAttribute");
}

/* W goes to the device as it is, and has room in scratch. */
static pare_status lt_narrow(pare_prep *prep, const blas_product *p, lt_product *s)
{
    pare_matmul_args a;
    if (!p->widens) return PARE_OK;
    (void)pare_cuda_weights_read(prep, &a, &s->narrow);
    s->narrow.y_row = p->ld_w;
    s->wide = prep->scratch;
    prep->scratch += pare_align_up((size_t)(p->m * p->ld_w) * sizeof(float), 256);
    return pare_cuda_weights_make(prep, &a, &s->narrow, &s->narrow_block);
}

static pare_status lt_prepare(pare_prep *prep, int rank)
{
    blas_product p;
    lt_product *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    const pare_cuda_blas *blas = pare_cuda_blas_find(prep->ctx, prep->device);
    if (!s) return PARE_MEMORY;
    (void)product_read(prep, &p);
    s->api = blas->api, s->lt = blas->lt, s->device = prep->device;
    s->residual = p.residual, s->alpha = p.alpha, s->packs = p.packs;
    pare_status st = lt_choose(prep, &p, rank, s);
    if (st == PARE_OK) st = lt_pack(prep, &p, s);
    if (st == PARE_OK) st = lt_narrow(prep, &p, s);
    if (st != PARE_OK) {
        lt_close(s);
        return st;
    }
    s->scratch = prep->scratch;
    prep->scratch += pare_align_up(s->workspace, 256);
    if (p.packs) prep->packed |= 2;
    if (p.bias >= 0) prep->packed |= 1u << p.bias;
    prep->state = s;
    return PARE_OK;
}

static pare_status lt_run(const pare_call *c)
{
    const lt_product *s = c->state;
    const float beta = s->residual < 0 ? 0 : 1;
    void *y = c->out[0].data, *z = s->residual < 0 ? y : c->in[s->residual].data;
    const void *w = s->packs ? s->block : c->in[1].data;
    if (s->narrow.weights.type) {
        pare_cuda_gemm_args narrow = s->narrow;
        w = narrow.y = (char *)c->scratch + s->wide;
        PARE_TRY(PARE_CUDA_LAUNCH(c, pare_cuda_widen_weights_launch, &narrow));
    }
    int code = s->api->lt_matmul(s->lt, s->desc, &s->alpha, w, s->w, c->in[0].data, s->x, &beta, z,
                                 s->d, y, s->d, &s->algo, (char *)c->scratch + s->scratch,
                                 s->workspace, pare_cuda_stream(c->stream));
    return pare_cuda_blas_status(c->ctx, c->node, code, "cublasLtMatmul");
}

static void lt_release(void *state) { lt_close(state); }

#define LT_ENTRY(rank)                                                                             \
    static bool lt_can_##rank(const pare_prep *prep) { return lt_can(prep, rank); }                \
    static pare_status lt_prepare_##rank(pare_prep *prep) { return lt_prepare(prep, rank); }       \
    const pare_kernel pare_cuda_matmul_lt_##rank = {.name = "cublaslt_" #rank,                     \
                                                    .can = lt_can_##rank,                          \
                                                    .prepare = lt_prepare_##rank,                  \
                                                    .run = lt_run,                                 \
                                                    .release = lt_release};
LT_ENTRY(0)
LT_ENTRY(1)
LT_ENTRY(2)
LT_ENTRY(3)
LT_ENTRY(4)
LT_ENTRY(5)
LT_ENTRY(6)
LT_ENTRY(7)

/* --- cuBLAS: batches of factors that are both computed --- */

typedef struct batched {
    const pare_blas_api *api;
    blas_product p;
} batched;

static bool batched_can(const pare_prep *prep)
{
    blas_product p;
    return product_read(prep, &p) && p.epilogue == PARE_LT_EPILOGUE_NONE && p.residual < 0 &&
           !p.packs && p.count > 1 && pare_cuda_blas_find(prep->ctx, prep->device);
}

static pare_status batched_prepare(pare_prep *prep)
{
    batched *s = pare_arena_alloc(prep->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    (void)product_read(prep, &s->p);
    s->api = pare_cuda_blas_find(prep->ctx, prep->device)->api;
    prep->state = s;
    return PARE_OK;
}

static pare_status batched_bind(pare_call *call, pare_arena *arena)
{
    (void)arena;
    return pare_cuda_blas_handle(call->ctx, call->stream, &call->bound);
}

static pare_status batched_run(const pare_call *c)
{
    const batched *s = c->state;
    const blas_product *p = &s->p;
    const float beta = 0;
    int code = s->api->blas_gemm_batched(
        c->bound, p->trans_w ? PARE_BLAS_T : PARE_BLAS_N, p->trans_x ? PARE_BLAS_T : PARE_BLAS_N,
        (int)p->m, (int)p->n, (int)p->k, &p->alpha, c->in[1].data, p->type, (int)p->ld_w,
        p->w_batch, c->in[0].data, p->type, (int)p->ld_x, p->x_batch, &beta, c->out[0].data,
        p->type, (int)p->m, p->d_batch, (int)p->count, PARE_BLAS_COMPUTE_F32,
        PARE_BLAS_ALGO_DEFAULT);
    return pare_cuda_blas_status(c->ctx, c->node, code, "cublasGemmStridedBatchedEx");
}

const pare_kernel pare_cuda_matmul_batched = {.name = "cublas_batched",
                                              .can = batched_can,
                                              .prepare = batched_prepare,
                                              .bind = batched_bind,
                                              .run = batched_run};

/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt on the same products, bare: no bias, no activation. D (columns, rows), all in column
   order: A is the weights, transposed, B the activations as they are; the best of 8 that the
   heuristics offer, each timed. */
#include "tests/gpu/bench.h"

#include <string.h>

enum { OFFERS = 8 };

typedef struct blas_kind {
    const char *who;
    pare_dtype in, out;
    int in_type, out_type, compute, scale;
} blas_kind;

static const blas_kind kinds[] = {
    {"cublaslt_s32", PARE_s8, PARE_s32, PARE_BLAS_S8, PARE_BLAS_S32, PARE_BLAS_COMPUTE_S32,
     PARE_BLAS_S32},
    {"cublaslt_s8", PARE_s8, PARE_s8, PARE_BLAS_S8, PARE_BLAS_S8, PARE_BLAS_COMPUTE_S32,
     PARE_BLAS_F32},
    {"cublaslt", PARE_f8e4m3, PARE_f16, PARE_BLAS_E4M3, PARE_BLAS_F16, PARE_BLAS_COMPUTE_F32,
     PARE_BLAS_F32},
    {"cublaslt", PARE_f16, PARE_f16, PARE_BLAS_F16, PARE_BLAS_F16, PARE_BLAS_COMPUTE_F32,
     PARE_BLAS_F32},
    {"cublaslt", PARE_f32, PARE_f32, PARE_BLAS_F32, PARE_BLAS_F32, PARE_BLAS_COMPUTE_F32,
     PARE_BLAS_F32},
    {"cublaslt_tf32", PARE_f32, PARE_f32, PARE_BLAS_F32, PARE_BLAS_F32, PARE_BLAS_COMPUTE_TF32,
     PARE_BLAS_F32},
};

typedef struct blas_run {
    const blas_kind *kind;
    void *desc, *a, *b, *d, *preference;
    void *w, *x[BENCH_SETS], *y[BENCH_SETS];
    int sets;
    const pare_lt_result *offer;
} blas_run;

static pare_status checked(bench *b, int status, const char *call)
{
    if (status == PARE_BLAS_SUCCESS) return PARE_OK;
    return PARE_FAIL(&b->ctx, DEVICE, "%s: status %d", call, status);
}
#define LT(b, call) PARE_TRY(checked((b), (b)->blas->call, #call))

static pare_status once(bench *b, void *user, int run)
{
    blas_run *r = user;
    const int one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    bool whole = r->kind->scale == PARE_BLAS_S32;
    void *x = r->x[run % r->sets], *y = r->y[run % r->sets];
    LT(b, lt_matmul(b->lt, r->desc, whole ? (const void *)&one : &one_f, r->w, r->a, x, r->b,
                    whole ? (const void *)&zero : &zero_f, y, r->d, y, r->d, &r->offer->algo,
                    b->workspace, BENCH_WORKSPACE, b->stream));
    return PARE_OK;
}

static pare_status run_make(bench *b, blas_run *r, const bench_product *p)
{
    const blas_kind *kind = r->kind;
    const int transposed = PARE_BLAS_T;
    const uint64_t workspace = BENCH_WORKSPACE;
    size_t in = (size_t)pare_type(kind->in)->bits / 8, out = (size_t)pare_type(kind->out)->bits / 8;
    size_t x = (size_t)(p->rows * p->depth) * in, y = (size_t)(p->rows * p->columns) * out;
    LT(b, lt_desc_create(&r->desc, kind->compute, kind->scale));
    LT(b, lt_desc_set(r->desc, PARE_LT_DESC_TRANSA, &transposed, sizeof transposed));
    LT(b,
       lt_layout_create(&r->a, kind->in_type, (uint64_t)p->depth, (uint64_t)p->columns, p->depth));
    LT(b, lt_layout_create(&r->b, kind->in_type, (uint64_t)p->depth, (uint64_t)p->rows, p->depth));
    LT(b, lt_layout_create(&r->d, kind->out_type, (uint64_t)p->columns, (uint64_t)p->rows,
                           p->columns));
    LT(b, lt_preference_create(&r->preference));
    LT(b, lt_preference_set(r->preference, PARE_LT_PREFERENCE_WORKSPACE, &workspace,
                            sizeof workspace));
    PARE_TRY(bench_random(b, &r->w, kind->in, (size_t)(p->depth * p->columns) * in));
    r->sets = x + y < 32 << 20 ? BENCH_SETS : 2;
    for (int s = 0; s < r->sets; s++) {
        PARE_TRY(bench_random(b, &r->x[s], kind->in, x));
        BENCH_CUDA(b, cudaMalloc(&r->y[s], y));
        BENCH_CUDA(b, cudaMemset(r->y[s], 0, y));
    }
    return PARE_OK;
}

static void run_close(bench *b, blas_run *r)
{
    if (r->preference) (void)b->blas->lt_preference_destroy(r->preference);
    if (r->d) (void)b->blas->lt_layout_destroy(r->d);
    if (r->b) (void)b->blas->lt_layout_destroy(r->b);
    if (r->a) (void)b->blas->lt_layout_destroy(r->a);
    if (r->desc) (void)b->blas->lt_desc_destroy(r->desc);
    for (int s = 0; s < BENCH_SETS; s++) {
        (void)cudaFree(r->x[s]);
        (void)cudaFree(r->y[s]);
    }
    (void)cudaFree(r->w);
}

/* The shortest median; an offer that fails is passed over as long as another works. */
static pare_status best(bench *b, blas_run *r, bench_times *out)
{
    pare_lt_result offers[OFFERS];
    int count = 0, worked = 0;
    LT(b,
       lt_heuristic(b->lt, r->desc, r->a, r->b, r->d, r->d, r->preference, OFFERS, offers, &count));
    pare_status st = count ? PARE_OK : PARE_FAIL(&b->ctx, DEVICE, "the heuristics offer nothing");
    for (int i = 0; i < count; i++) {
        bench_times times;
        if (offers[i].status) continue;
        r->offer = &offers[i];
        if ((st = bench_measure(b, once, r, &times)) != PARE_OK) continue;
        if (!worked++ || times.median < out->median) *out = times;
    }
    if (worked) pare_ctx_clear(&b->ctx);
    return worked ? PARE_OK : st;
}

/* Ada and later have products of FP8. */
static bool device_has(pare_dtype type)
{
    int major = 0, minor = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    return type != PARE_f8e4m3 || major * 10 + minor >= 89;
}

void bench_blas(bench *b, const char *suite, const bench_product *p, pare_dtype type)
{
    for (size_t k = 0; b->blas && k < sizeof kinds / sizeof *kinds; k++) {
        bench_times times = {0};
        blas_run r = {.kind = &kinds[k]};
        if (kinds[k].in != type || !device_has(type)) continue;
        pare_status st = run_make(b, &r, p);
        if (st == PARE_OK) st = best(b, &r, &times);
        if (st)
            bench_failed(b, suite, p->name, p->batch, pare_type(type)->name, kinds[k].who);
        else
            bench_line(b, suite, p->name, p->batch, pare_type(type)->name, kinds[k].who, &times,
                       2.0 * (double)(p->rows * p->depth * p->columns), false);
        run_close(b, &r);
    }
}

/* --- how an s8 result is rounded, which the documentation leaves open --- */

enum { SIDE = 16 };

/* Column 0 of D: half of -8 to 7. */
static pare_status halves_make(bench *b, blas_run *r, int8_t *d)
{
    static int8_t w[SIDE * SIDE], x[SIDE * SIDE];
    const float half = 0.5f, zero = 0;
    pare_lt_result offer;
    int count = 0;
    for (int i = 0; i < SIDE; i++) {
        w[i * SIDE] = (int8_t)(i - SIDE / 2); /* the depth of row i is together */
        x[i * SIDE] = 1;
    }
    BENCH_CUDA(b, cudaMemcpy(r->w, w, sizeof w, cudaMemcpyHostToDevice));
    BENCH_CUDA(b, cudaMemcpy(r->x[0], x, sizeof x, cudaMemcpyHostToDevice));
    LT(b, lt_heuristic(b->lt, r->desc, r->a, r->b, r->d, r->d, r->preference, 1, &offer, &count));
    if (!count) return PARE_FAIL(&b->ctx, DEVICE, "the heuristics offer nothing");
    LT(b, lt_matmul(b->lt, r->desc, &half, r->w, r->a, r->x[0], r->b, &zero, r->y[0], r->d, r->y[0],
                    r->d, &offer.algo, b->workspace, BENCH_WORKSPACE, b->stream));
    BENCH_CUDA(b, cudaStreamSynchronize(b->stream));
    BENCH_CUDA(b, cudaMemcpy(d, r->y[0], SIDE, cudaMemcpyDeviceToHost));
    return PARE_OK;
}

/* -3.5, -2.5, ... 3.5 to even: -4 -2 -2 0 0 2 2 4; away from zero: -4 -3 -2 -1 1 2 3 4. */
static const char *rounding_name(const int8_t *d)
{
    const int8_t even[] = {-4, -2, -2, 0, 0, 2, 2, 4}, away[] = {-4, -3, -2, -1, 1, 2, 3, 4},
                 cut[] = {-3, -2, -1, 0, 0, 1, 2, 3};
    int8_t got[8];
    for (int i = 0; i < 8; i++) got[i] = d[2 * i + 1];
    if (!memcmp(got, even, sizeof got)) return "halves to even";
    if (!memcmp(got, away, sizeof got)) return "halves away from zero";
    return memcmp(got, cut, sizeof got) ? "in no way we know" : "towards zero";
}

void bench_rounding(bench *b)
{
    const bench_product p = {"rounding", SIDE, SIDE, SIDE, 0, 0, 0, 0, 1, false};
    blas_run r = {.kind = &kinds[1]};
    int8_t d[SIDE];
    if (!b->blas) {
        printf("SKIP rounding: cuBLASLt is not there\n");
        return;
    }
    pare_status st = run_make(b, &r, &p);
    if (st == PARE_OK) st = halves_make(b, &r, d);
    if (st)
        printf("SKIP rounding: %s\n", b->ctx.message);
    else
        printf("PASS rounding: cuBLASLt rounds s8 results %s\n", rounding_name(d));
    if (st) pare_ctx_clear(&b->ctx);
    run_close(b, &r);
}

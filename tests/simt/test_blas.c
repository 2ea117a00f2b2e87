/* SPDX-License-Identifier: Apache-2.0 */
/* The stubs of cuBLAS and cuBLASLt: they compute, and they refuse what NVIDIA's documentation of
   cublasLtMatmul() and cublasGemmEx() forbids on Hopper. */
#include "testing.h"
#include <math.h>
#include "blas_table.h"
#include "runtime/base/f8.h"
#include "runtime/base/types.h"

static pare_blas_api api;

/* d (m, n) = a^T b with A stored (k, m), B (k, n), all column order. */
typedef struct lt_case {
    int m, n, k, in, out, compute, scale, trans_a, epilogue, pointers, order, ld_extra;
} lt_case;

typedef struct lt_run {
    void *handle, *desc, *a, *b, *d, *preference;
} lt_run;

static void lt_open(lt_run *r, const lt_case *c, const void *bias)
{
    int64_t rows_a = c->trans_a ? c->k : c->m, cols_a = c->trans_a ? c->m : c->k;
    uint64_t workspace = 4 << 20;
    int64_t ld_d = c->order == PARE_LT_ORDER_ROW ? c->n : c->m;
    assert_int_equal(api.lt_create(&r->handle), 0);
    assert_int_equal(api.lt_desc_create(&r->desc, c->compute, c->scale), 0);
    assert_int_equal(api.lt_desc_set(r->desc, PARE_LT_DESC_TRANSA, &c->trans_a, 4), 0);
    assert_int_equal(api.lt_desc_set(r->desc, PARE_LT_DESC_EPILOGUE, &c->epilogue, 4), 0);
    assert_int_equal(api.lt_desc_set(r->desc, PARE_LT_DESC_POINTER_MODE, &c->pointers, 4), 0);
    assert_int_equal(api.lt_desc_set(r->desc, PARE_LT_DESC_BIAS_POINTER, &bias, sizeof bias), 0);
    assert_int_equal(api.lt_layout_create(&r->a, c->in, (uint64_t)rows_a, (uint64_t)cols_a,
                                          rows_a + c->ld_extra),
                     0);
    assert_int_equal(api.lt_layout_create(&r->b, c->in, (uint64_t)c->k, (uint64_t)c->n, c->k), 0);
    assert_int_equal(api.lt_layout_create(&r->d, c->out, (uint64_t)c->m, (uint64_t)c->n, ld_d), 0);
    assert_int_equal(api.lt_layout_set(r->d, PARE_LT_LAYOUT_ORDER, &c->order, 4), 0);
    assert_int_equal(api.lt_preference_create(&r->preference), 0);
    assert_int_equal(
        api.lt_preference_set(r->preference, PARE_LT_PREFERENCE_WORKSPACE, &workspace, 8), 0);
}

static void lt_close(lt_run *r)
{
    assert_int_equal(api.lt_preference_destroy(r->preference), 0);
    assert_int_equal(api.lt_layout_destroy(r->a), 0);
    assert_int_equal(api.lt_layout_destroy(r->b), 0);
    assert_int_equal(api.lt_layout_destroy(r->d), 0);
    assert_int_equal(api.lt_desc_destroy(r->desc), 0);
    assert_int_equal(api.lt_destroy(r->handle), 0);
}

static int lt_ask(const lt_case *c)
{
    lt_run r;
    pare_lt_result results[4];
    int count = -1;
    lt_open(&r, c, NULL);
    int status =
        api.lt_heuristic(r.handle, r.desc, r.a, r.b, r.d, r.d, r.preference, 4, results, &count);
    assert_int_equal(count, status ? 0 : 2);
    lt_close(&r);
    return status;
}

static const lt_case int8 = {16,
                             8,
                             32,
                             PARE_BLAS_S8,
                             PARE_BLAS_S8,
                             PARE_BLAS_COMPUTE_S32,
                             PARE_BLAS_F32,
                             1,
                             PARE_LT_EPILOGUE_NONE,
                             PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST,
                             0,
                             0};
static const lt_case f8 = {16,
                           8,
                           32,
                           PARE_BLAS_E4M3,
                           PARE_BLAS_F16,
                           PARE_BLAS_COMPUTE_F32,
                           PARE_BLAS_F32,
                           1,
                           PARE_LT_EPILOGUE_NONE,
                           PARE_LT_POINTERS_HOST,
                           0,
                           0};
static const lt_case half = {16,
                             8,
                             32,
                             PARE_BLAS_F16,
                             PARE_BLAS_F16,
                             PARE_BLAS_COMPUTE_F32,
                             PARE_BLAS_F32,
                             1,
                             PARE_LT_EPILOGUE_RELU_BIAS,
                             PARE_LT_POINTERS_HOST,
                             0,
                             0};

static void lt_refuses_what_is_not_documented(void **state)
{
    (void)state;
    lt_case c = int8;
    assert_int_equal(lt_ask(&c), 0);
    c = int8, c.trans_a = 0; /* only TN */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = int8, c.k = 30; /* k a multiple of 4 */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = int8, c.m = 18;
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = int8, c.ld_extra = 1;
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = int8, c.epilogue = PARE_LT_EPILOGUE_BIAS; /* no epilogue at all */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = int8, c.out = PARE_BLAS_F16;
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = int8, c.out = PARE_BLAS_S32; /* s32 output needs s32 scale */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c.scale = PARE_BLAS_S32;
    assert_int_equal(lt_ask(&c), 0);
    c = int8, c.order = 2; /* COL32 ended with Ampere */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = half;
    assert_int_equal(lt_ask(&c), 0);
    c.order = PARE_LT_ORDER_ROW; /* ReLU with bias */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c.epilogue = PARE_LT_EPILOGUE_BIAS;
    assert_int_equal(lt_ask(&c), 0);
    c = half, c.compute = PARE_BLAS_COMPUTE_TF32; /* for f32 */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = half, c.pointers = PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST; /* for int8 */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = half, c.ld_extra = -1;
    assert_int_equal(lt_ask(&c), PARE_BLAS_INVALID_VALUE);
}

static int lt_multiply(lt_run *r, const void *alpha, const void *a, const void *b, void *d,
                       const pare_lt_algo *algo, void *workspace, size_t size, cudaStream_t on)
{
    float beta = 0;
    return api.lt_matmul(r->handle, r->desc, alpha, a, r->a, b, r->b, &beta, d, r->d, d, r->d, algo,
                         workspace, size, on);
}

/* d[i][j] = saturate(round(alpha[i] * sum)) */
static void lt_requantizes_rows(void **state)
{
    (void)state;
    int8_t a[16][32], b[8][32], d[8][16];
    float alpha[16];
    uint32_t seed = 1;
    lt_run r;
    for (int i = 0; i < 16 * 32; i++) a[i / 32][i % 32] = (int8_t)test_random(&seed);
    for (int i = 0; i < 8 * 32; i++) b[i / 32][i % 32] = (int8_t)test_random(&seed);
    for (int i = 0; i < 16; i++) alpha[i] = 0.0009765625f * (float)(i + 1);
    void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
         *dd = device_copy(NULL, sizeof d), *dl = device_copy(alpha, sizeof alpha);
    lt_open(&r, &int8, NULL);
    assert_int_equal(lt_multiply(&r, dl, da, db, dd, NULL, NULL, 0, NULL), 0);
    device_fetch(d, dd, sizeof d);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int sum = 0;
            for (int k = 0; k < 32; k++) sum += a[i][k] * b[j][k];
            double v = nearbyint((double)alpha[i] * sum);
            assert_int_equal(d[j][i], v < -128 ? -128 : v > 127 ? 127 : (int)v);
        }
    lt_close(&r);
    CUDA_OK(cudaFree(da));
    CUDA_OK(cudaFree(db));
    CUDA_OK(cudaFree(dl));
}

static void lt_adds_bias_and_clamps_in_f16(void **state)
{
    (void)state;
    uint16_t a[16][32], b[8][32], bias[16], d[8][16];
    lt_run r;
    pare_lt_result results[4];
    int count;
    float alpha = 0.5f;
    for (int i = 0; i < 16 * 32; i++) a[i / 32][i % 32] = pare_f32_to_f16((float)(i % 7 - 3));
    for (int i = 0; i < 8 * 32; i++) b[i / 32][i % 32] = pare_f32_to_f16((float)(i % 5 - 2));
    for (int i = 0; i < 16; i++) bias[i] = pare_f32_to_f16((float)i - 8);
    void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
         *dd = device_copy(NULL, sizeof d), *dl = device_copy(bias, sizeof bias), *workspace;
    CUDA_OK(cudaMalloc(&workspace, 1 << 20));
    lt_open(&r, &half, dl);
    assert_int_equal(
        api.lt_heuristic(r.handle, r.desc, r.a, r.b, r.d, r.d, r.preference, 4, results, &count),
        0);
    /* less workspace than the algorithm asks for; one for another problem */
    assert_int_equal(lt_multiply(&r, &alpha, da, db, dd, &results[0].algo, workspace, 64, NULL),
                     PARE_BLAS_INVALID_VALUE);
    pare_lt_algo other = results[1].algo;
    other.data[0]++;
    assert_int_equal(lt_multiply(&r, &alpha, da, db, dd, &other, NULL, 0, NULL),
                     PARE_BLAS_NOT_SUPPORTED);
    assert_int_equal(
        lt_multiply(&r, &alpha, da, db, dd, &results[0].algo, workspace, 1 << 20, NULL), 0);
    device_fetch(d, dd, sizeof d);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 32; k++) sum += pare_f16_to_f32(a[i][k]) * pare_f16_to_f32(b[j][k]);
            float v = 0.5f * sum + (float)i - 8;
            assert_int_equal(d[j][i], pare_f32_to_f16(v > 0 ? v : 0));
        }
    lt_close(&r);
    CUDA_OK(cudaFree(da));
    CUDA_OK(cudaFree(db));
    CUDA_OK(cudaFree(dl));
    CUDA_OK(cudaFree(workspace));
}

/* Ada and later have products of FP8. */
static bool has_f8(void)
{
    int major = 0, minor = 0;
    CUDA_OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA_OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    return major * 10 + minor >= 89;
}

static void lt_refuses_f8_that_is_not_documented(void **state)
{
    (void)state;
    lt_case c = f8;
    assert_int_equal(lt_ask(&c), has_f8() ? 0 : PARE_BLAS_NOT_SUPPORTED);
    c = f8, c.trans_a = 0; /* only TN */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = f8, c.k = 24; /* rows of 16 bytes */
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = f8, c.m = 12;
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = f8, c.ld_extra = 8;
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
    c = f8, c.compute = PARE_BLAS_COMPUTE_S32;
    assert_int_equal(lt_ask(&c), PARE_BLAS_NOT_SUPPORTED);
}

static void lt_multiplies_f8(void **state)
{
    (void)state;
    uint8_t a[16][32], b[8][32];
    uint16_t d[8][16];
    const float alpha = 0.5f;
    lt_run r;
    for (int i = 0; i < 16 * 32; i++) a[i / 32][i % 32] = pare_f8e4m3_code((float)(i % 7 - 3));
    for (int i = 0; i < 8 * 32; i++) b[i / 32][i % 32] = pare_f8e4m3_code((float)(i % 5 - 2));
    void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
         *dd = device_copy(NULL, sizeof d);
    lt_open(&r, &f8, NULL);
    assert_int_equal(lt_multiply(&r, &alpha, da, db, dd, NULL, NULL, 0, NULL),
                     has_f8() ? 0 : PARE_BLAS_NOT_SUPPORTED);
    device_fetch(d, dd, sizeof d);
    for (int i = 0; has_f8() && i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 32; k++)
                sum += pare_f8e4m3_value(a[i][k]) * pare_f8e4m3_value(b[j][k]);
            assert_int_equal(d[j][i], pare_f32_to_f16(0.5f * sum));
        }
    lt_close(&r);
    CUDA_OK(cudaFree(da));
    CUDA_OK(cudaFree(db));
}

/* Matrices must lie as well as the heuristic was told that they do: at 256 bytes where it was told
   nothing. */
static void lt_holds_callers_to_the_alignment_told(void **state)
{
    (void)state;
    lt_run r;
    pare_lt_result results[4];
    int count;
    lt_case c = half;
    const float alpha = 1;
    const uint32_t less = 16;
    uint16_t zero[16 * 40] = {0};
    c.epilogue = PARE_LT_EPILOGUE_NONE;
    void *a = device_copy(zero, sizeof zero), *d = device_copy(NULL, 16 * 8 * 2);
    const void *b = (const char *)a + less;
    lt_open(&r, &c, NULL);
    for (int told = 0; told < 2; told++) {
        if (told)
            assert_int_equal(
                api.lt_preference_set(r.preference, PARE_LT_PREFERENCE_ALIGNMENT_B, &less, 4), 0);
        assert_int_equal(api.lt_heuristic(r.handle, r.desc, r.a, r.b, r.d, r.d, r.preference, 4,
                                          results, &count),
                         0);
        assert_int_equal(lt_multiply(&r, &alpha, a, b, d, &results[1].algo, NULL, 0, NULL),
                         told ? 0 : PARE_BLAS_NOT_SUPPORTED);
        assert_int_equal(lt_multiply(&r, &alpha, b, a, d, &results[1].algo, NULL, 0, NULL),
                         PARE_BLAS_NOT_SUPPORTED);
    }
    CUDA_OK(cudaDeviceSynchronize());
    lt_close(&r);
    CUDA_OK(cudaFree(a));
    CUDA_OK(cudaFree(d));
}

/* A capture takes a product only with an algorithm and after a first run outside. */
static void lt_is_captured_when_warm(void **state)
{
    (void)state;
    lt_run r;
    pare_lt_result results[4];
    int count;
    uint16_t zero[16 * 32] = {0};
    lt_case c = half;
    cudaStream_t stream;
    cudaGraph_t graph;
    float alpha = 1;
    c.epilogue = PARE_LT_EPILOGUE_NONE;
    void *a = device_copy(zero, sizeof zero), *d = device_copy(NULL, sizeof zero);
    lt_open(&r, &c, NULL);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(
        api.lt_heuristic(r.handle, r.desc, r.a, r.b, r.d, r.d, r.preference, 4, results, &count),
        PARE_BLAS_INTERNAL_ERROR);
    CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
    assert_int_equal(
        api.lt_heuristic(r.handle, r.desc, r.a, r.b, r.d, r.d, r.preference, 4, results, &count),
        0);
    for (int warm = 0; warm < 2; warm++) {
        CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        int status = lt_multiply(&r, &alpha, a, a, d, &results[1].algo, NULL, 0, stream);
        assert_int_equal(status, warm ? 0 : PARE_BLAS_INTERNAL_ERROR);
        if (warm)
            CUDA_OK(cudaStreamEndCapture(stream, &graph));
        else
            CUDA_IS(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
        assert_int_equal(lt_multiply(&r, &alpha, a, a, d, &results[1].algo, NULL, 0, stream), 0);
    }
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
    lt_close(&r);
    CUDA_OK(cudaFree(a));
    CUDA_OK(cudaFree(d));
}

/* Row-major C (count, m, n) = A (count, m, k) B (count, k, n) as columns: C^T = B^T A^T. */
static void blas_multiplies_batches(void **state)
{
    (void)state;
    enum { COUNT = 3, M = 5, N = 7, K = 4 };
    float a[COUNT][M][K], b[COUNT][K][N], c[COUNT][M][N], alpha = 2, beta = 0;
    void *h;
    for (int i = 0; i < COUNT * M * K; i++) a[i / (M * K)][i / K % M][i % K] = (float)(i % 11 - 5);
    for (int i = 0; i < COUNT * K * N; i++) b[i / (K * N)][i / N % K][i % N] = (float)(i % 13 - 6);
    void *da = device_copy(a, sizeof a), *db = device_copy(b, sizeof b),
         *dc = device_copy(NULL, sizeof c);
    assert_int_equal(api.blas_create(&h), 0);
    assert_int_equal(api.blas_gemm_batched(h, 0, 0, N, M, K, &alpha, db, PARE_BLAS_F32, N, K * N,
                                           da, PARE_BLAS_F32, K, M * K, &beta, dc, PARE_BLAS_F32, N,
                                           M * N, COUNT, PARE_BLAS_COMPUTE_F32, -1),
                     0);
    assert_int_equal(api.blas_gemm(h, 0, 0, N, M, K, &alpha, db, PARE_BLAS_F32, N - 1, da,
                                   PARE_BLAS_F32, K, &beta, dc, PARE_BLAS_F32, N,
                                   PARE_BLAS_COMPUTE_F32, -1),
                     PARE_BLAS_INVALID_VALUE);
    assert_int_equal(api.blas_gemm(h, 0, 0, N, M, K, &alpha, db, PARE_BLAS_F32, N, da,
                                   PARE_BLAS_F16, K, &beta, dc, PARE_BLAS_F32, N,
                                   PARE_BLAS_COMPUTE_F32, -1),
                     PARE_BLAS_NOT_SUPPORTED);
    device_fetch(c, dc, sizeof c);
    for (int n = 0; n < COUNT; n++)
        for (int i = 0; i < M * N; i++) {
            float sum = 0;
            for (int k = 0; k < K; k++) sum += a[n][i / N][k] * b[n][k][i % N];
            assert_true(c[n][i / N][i % N] == 2 * sum);
        }
    assert_int_equal(api.blas_destroy(h), 0);
    CUDA_OK(cudaFree(da));
    CUDA_OK(cudaFree(db));
}

static void blas_fails_on_demand(void **state)
{
    (void)state;
    void *h;
    simt_fail_at(1, cudaErrorMemoryAllocation, false);
    assert_int_equal(api.blas_create(&h), PARE_BLAS_ALLOC_FAILED);
    simt_fail_at(1, cudaErrorLaunchFailure, true);
    assert_int_equal(api.lt_create(&h), PARE_BLAS_EXECUTION_FAILED);
    assert_int_equal(api.lt_create(&h), PARE_BLAS_EXECUTION_FAILED);
    simt_fail_at(0, 0, false);
}

static void both_say_their_version(void **state)
{
    (void)state;
    static const int wanted[] = {13, 1, 0};
    for (int i = 0; i < 3; i++) {
        int blas = -1, lt = -1;
        assert_int_equal(api.blas_property(i, &blas), 0);
        assert_int_equal(api.lt_property(i, &lt), 0);
        assert_int_equal(blas, lt);
        if (simt_emulated()) assert_int_equal(blas, wanted[i]);
    }
    int none;
    assert_int_equal(api.blas_property(3, &none), PARE_BLAS_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(lt_refuses_what_is_not_documented),
        device_test(lt_refuses_f8_that_is_not_documented),
        device_test(lt_requantizes_rows),
        device_test(lt_multiplies_f8),
        device_test(lt_adds_bias_and_clamps_in_f16),
        device_test(lt_is_captured_when_warm),
        device_test(lt_holds_callers_to_the_alignment_told),
        device_test(blas_multiplies_batches),
        device_test(both_say_their_version),
        device_test(blas_fails_on_demand),
    };
    simt_blas_api(&api);
    return device_is_present() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}

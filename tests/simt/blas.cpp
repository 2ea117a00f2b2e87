// SPDX-License-Identifier: Apache-2.0
// cuBLAS: the few functions that pare calls, with what their documentation asks for, and the table
// of both libraries' functions.
#include "blas_stub.h"
#include "blas_table.h"
#include "simt_device.h"
#include <set>

using namespace simt;

extern "C" {
#define DECLARE(library, name, symbol, parameters) int symbol parameters;
PARE_BLAS_FUNCTIONS(DECLARE)
#undef DECLARE
}

namespace
{

struct handle {
    int device; // that was the current one
    cudaStream_t stream;
    void *workspace;
    int math, pointers;
};

std::set<handle *> &handles(void)
{
    static auto *t = new std::set<handle *>;
    return *t;
}
handle *find(void *p)
{
    handle *h = static_cast<handle *>(p);
    return handles().count(h) ? h : nullptr;
}

int no(const char *why)
{
    return refuse("cuBLAS", why);
}

struct side {
    const void *p;
    int type, trans, rows, cols, ld; // rows, cols: of the operand as the product uses it
    long long stride;
};

int check_side(const side &s)
{
    int stored = s.trans ? s.cols : s.rows;
    if (s.ld < (stored > 1 ? stored : 1)) return PARE_BLAS_INVALID_VALUE;
    if (!type_bytes(s.type)) return no("a type that is not modelled");
    if (reinterpret_cast<uintptr_t>(s.p) % type_bytes(s.type)) return PARE_BLAS_INVALID_VALUE;
    return PARE_BLAS_SUCCESS;
}

matrix view(const side &s)
{
    return {s.p, s.type, s.rows, s.cols, s.trans ? s.ld : 1, s.trans ? 1 : s.ld, s.stride};
}

int check_types(int in, int in2, int out, int compute)
{
    if (in == PARE_BLAS_S8)
        return in2 == in && out == PARE_BLAS_S32 && compute == PARE_BLAS_COMPUTE_S32
                   ? PARE_BLAS_SUCCESS
                   : no("int8: s8 times s8 to s32, computed in s32");
    bool half_in = in == PARE_BLAS_F16 || in == PARE_BLAS_BF16;
    bool types = in2 == in && (out == in || (half_in && out == PARE_BLAS_F32));
    bool f32 = compute == PARE_BLAS_COMPUTE_F32 && (half_in || in == PARE_BLAS_F32);
    bool wide = in == PARE_BLAS_F32 &&
                (compute == PARE_BLAS_COMPUTE_TF32 || compute == PARE_BLAS_COMPUTE_F32_PEDANTIC);
    return types && (f32 || wide) ? PARE_BLAS_SUCCESS
                                  : no("this combination of types is not supported");
}

int gemm(void *p, const side &a, const side &b, const void *alpha, const void *beta, const side &c,
         int count, int compute)
{
    handle *h = find(p);
    if (!h) return PARE_BLAS_NOT_INITIALIZED;
    if (!alpha || !beta || c.rows < 0 || c.cols < 0 || a.cols < 0 || count < 0)
        return PARE_BLAS_INVALID_VALUE;
    for (const side *s : {&a, &b, &c})
        if (int status = check_side(*s)) return status;
    if (int status = check_types(a.type, b.type, c.type, compute)) return status;
    if (a.type == PARE_BLAS_S8 && (a.ld % 4 || b.ld % 4))
        return no("int8: leading dimensions are multiples of 4");
    if (capturing(h->stream) && !h->workspace)
        return no("in a capture: the workspace is set, after the stream, before it");
    if (!c.rows || !c.cols || !count) return PARE_BLAS_SUCCESS;
    product x = {view(a), view(b), view(c), view(c), count, 1,
                 0,       nullptr, nullptr, nullptr, false, PARE_LT_EPILOGUE_NONE,
                 nullptr, compute == PARE_BLAS_COMPUTE_TF32};
    x.integer_scale = compute == PARE_BLAS_COMPUTE_S32;
    auto value = [&](const void *v) {
        return x.integer_scale ? static_cast<double>(*static_cast<const int *>(v))
                               : static_cast<double>(*static_cast<const float *>(v));
    };
    if (h->pointers == PARE_BLAS_POINTERS_HOST)
        x.alpha = value(alpha), x.beta = value(beta);
    else
        x.alpha_device = alpha, x.beta_device = beta;
    return queue_product(x, h->stream);
}

} // namespace

#define BLAS_CALL(name)                                                                            \
    call here(name);                                                                               \
    if (here.code) return injected(here.code)

extern "C" {

int cublasCreate_v2(void **out)
{
    BLAS_CALL("cublasCreate");
    handle *h = new handle{device_current(), nullptr, nullptr, PARE_BLAS_MATH_DEFAULT, PARE_BLAS_POINTERS_HOST};
    handles().insert(h);
    live_add("cuBLAS handles", 1);
    *out = h;
    return PARE_BLAS_SUCCESS;
}

int cublasDestroy_v2(void *p)
{
    call here("cublasDestroy");
    handle *h = find(p);
    if (!h) return PARE_BLAS_NOT_INITIALIZED;
    handles().erase(h);
    delete h;
    live_add("cuBLAS handles", -1);
    return here.code ? injected(here.code) : PARE_BLAS_SUCCESS;
}

int cublasGetProperty(int which, int *value)
{
    BLAS_CALL("cublasGetProperty");
    return library_property(which, value);
}

// Takes the workspace back to the library's own, as documented.
int cublasSetStream_v2(void *p, void *stream)
{
    BLAS_CALL("cublasSetStream");
    handle *h = find(p);
    if (!h || !stream_known(static_cast<cudaStream_t>(stream))) return PARE_BLAS_NOT_INITIALIZED;
    const int at = stream_device(static_cast<cudaStream_t>(stream));
    if (at >= 0 && at != h->device) return no("the stream is of another device than the handle");
    h->stream = static_cast<cudaStream_t>(stream);
    h->workspace = nullptr;
    return PARE_BLAS_SUCCESS;
}

int cublasSetWorkspace_v2(void *p, void *workspace, size_t size)
{
    BLAS_CALL("cublasSetWorkspace");
    handle *h = find(p);
    if (!h) return PARE_BLAS_NOT_INITIALIZED;
    if (reinterpret_cast<uintptr_t>(workspace) % 256) return PARE_BLAS_INVALID_VALUE;
    need_device(workspace, size, "the workspace");
    h->workspace = workspace;
    return PARE_BLAS_SUCCESS;
}

int cublasSetMathMode(void *p, int mode)
{
    BLAS_CALL("cublasSetMathMode");
    if (!find(p)) return PARE_BLAS_NOT_INITIALIZED;
    find(p)->math = mode;
    return PARE_BLAS_SUCCESS;
}

int cublasSetPointerMode_v2(void *p, int mode)
{
    BLAS_CALL("cublasSetPointerMode");
    if (!find(p)) return PARE_BLAS_NOT_INITIALIZED;
    find(p)->pointers = mode;
    return PARE_BLAS_SUCCESS;
}

int cublasGemmEx(void *h, int trans_a, int trans_b, int m, int n, int k, const void *alpha,
                 const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                 const void *beta, void *c, int c_type, int ldc, int compute, int)
{
    BLAS_CALL("cublasGemmEx");
    return gemm(h, {a, a_type, trans_a, m, k, lda, 0}, {b, b_type, trans_b, k, n, ldb, 0}, alpha,
                beta, {c, c_type, 0, m, n, ldc, 0}, 1, compute);
}

int cublasGemmStridedBatchedEx(void *h, int trans_a, int trans_b, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda,
                               long long a_stride, const void *b, int b_type, int ldb,
                               long long b_stride, const void *beta, void *c, int c_type, int ldc,
                               long long c_stride, int count, int compute, int)
{
    BLAS_CALL("cublasGemmStridedBatchedEx");
    return gemm(h, {a, a_type, trans_a, m, k, lda, a_stride},
                {b, b_type, trans_b, k, n, ldb, b_stride}, alpha, beta,
                {c, c_type, 0, m, n, ldc, c_stride}, count, compute);
}

void simt_blas_api(pare_blas_api *out)
{
#define FILL(library, name, symbol, parameters) out->name = symbol;
    PARE_BLAS_FUNCTIONS(FILL)
#undef FILL
}
}

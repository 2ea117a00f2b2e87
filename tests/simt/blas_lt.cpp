// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, as strict as its documentation (cublasLtMatmul, "supported data types", Hopper): what
// the real library refuses, or runs off the tensor cores, is refused here with the reason.
#include "blas_stub.h"
#include "simt_device.h"
#include <map>

using namespace simt;

extern "C" {
#define DECLARE(library, name, symbol, parameters) int symbol parameters;
PARE_BLAS_FUNCTIONS(DECLARE)
#undef DECLARE
}

namespace
{

struct handle {
    bool warm;  // a product has run outside of a capture
    int device; // that was the current one when it was made
};
struct desc {
    int compute, scale, pointers, trans_a, trans_b, epilogue, bias_type;
    const void *bias;
};
struct layout {
    int type, order;
    uint64_t rows, cols;
    int64_t ld;
    int batch;
    int64_t stride;
};
struct preference {
    uint64_t workspace;
    uint32_t aligned[4]; // of A, B, C, D, in bytes
};

// What was made and not destroyed, with its kind.
std::map<const void *, const char *> &made(void)
{
    static auto *t = new std::map<const void *, const char *>;
    return *t;
}
template <class T> int make(void **out, T value, const char *kind)
{
    T *p = new T(value);
    made()[p] = kind;
    live_add(kind, 1);
    *out = p;
    return PARE_BLAS_SUCCESS;
}
template <class T> T *find(const void *p, const char *kind)
{
    auto at = made().find(p);
    bool same = at != made().end() && !strcmp(at->second, kind);
    return same ? const_cast<T *>(static_cast<const T *>(p)) : nullptr;
}
template <class T> int destroy(void *p, const char *kind)
{
    T *x = find<T>(p, kind);
    if (!x) return PARE_BLAS_INVALID_VALUE;
    made().erase(x);
    live_add(kind, -1);
    delete x;
    return PARE_BLAS_SUCCESS;
}

const char *const HANDLE = "cuBLASLt handles", *const DESC = "cuBLASLt descriptors",
                  *const LAYOUT = "cuBLASLt layouts", *const PREFERENCE = "cuBLASLt preferences";

int no(const char *why)
{
    return refuse("cuBLASLt", why);
}

int set(void *to, size_t wanted, const void *value, size_t size)
{
    if (!to) return no("an attribute that is not modelled");
    if (size != wanted) return PARE_BLAS_INVALID_VALUE;
    memcpy(to, value, size);
    return PARE_BLAS_SUCCESS;
}

struct problem {
    const desc *d;
    const layout *a, *b, *c, *out;
};

uint64_t rows_of(const layout *l, int trans)
{
    return trans ? l->cols : l->rows;
}

int check_shapes(const problem &p)
{
    uint64_t m = p.out->rows, n = p.out->cols, k = rows_of(p.a, !p.d->trans_a);
    if (rows_of(p.a, p.d->trans_a) != m || rows_of(p.b, !p.d->trans_b) != n ||
        rows_of(p.b, p.d->trans_b) != k || p.c->rows != m || p.c->cols != n)
        return PARE_BLAS_INVALID_VALUE;
    if (!m || !n || !k) return PARE_BLAS_INVALID_VALUE;
    const layout *all[] = {p.a, p.b, p.c, p.out};
    for (const layout *l : all) {
        uint64_t least = l->order == PARE_LT_ORDER_ROW ? l->cols : l->rows;
        if (l->ld < static_cast<int64_t>(least)) return PARE_BLAS_INVALID_VALUE;
        if (l->order != PARE_LT_ORDER_COLUMN && l->order != PARE_LT_ORDER_ROW)
            return no("COL32 and its kin end with Ampere");
        if (l->batch != p.out->batch) return PARE_BLAS_INVALID_VALUE;
    }
    return p.c->type == p.out->type ? PARE_BLAS_SUCCESS : no("C and D are of one type");
}

int check_int8(const problem &p)
{
    const desc &d = *p.d;
    bool to_s32 = d.scale == PARE_BLAS_S32 && p.out->type == PARE_BLAS_S32;
    bool to_s8 = d.scale == PARE_BLAS_F32 && p.out->type == PARE_BLAS_S8;
    if (p.b->type != PARE_BLAS_S8 || d.compute != PARE_BLAS_COMPUTE_S32 || !(to_s32 || to_s8))
        return no(
            "int8: s8 times s8 computed in s32, to s32 with s32 scale or to s8 with f32 scale");
    if (!d.trans_a || d.trans_b) return no("int8: A is transposed and B is not");
    if (p.a->order || p.b->order || p.c->order || p.out->order)
        return no("int8: column order only");
    if (p.out->rows % 4 || p.a->rows % 4 || p.a->ld % 4 || p.b->ld % 4 || p.c->ld % 4 ||
        p.out->ld % 4)
        return no("int8: m, k and every leading dimension are multiples of 4");
    if (d.epilogue != PARE_LT_EPILOGUE_NONE) return no("int8: no epilogue is supported");
    return PARE_BLAS_SUCCESS;
}

int check_float(const problem &p)
{
    const desc &d = *p.d;
    int in = p.a->type, out = p.out->type;
    bool half_in = in == PARE_BLAS_F16 || in == PARE_BLAS_BF16;
    bool types = in == p.b->type && (out == in || (half_in && out == PARE_BLAS_F32));
    bool f32 = d.compute == PARE_BLAS_COMPUTE_F32 && d.scale == PARE_BLAS_F32 &&
               (half_in || in == PARE_BLAS_F32);
    bool wide =
        (d.compute == PARE_BLAS_COMPUTE_TF32 || d.compute == PARE_BLAS_COMPUTE_F32_PEDANTIC) &&
        d.scale == PARE_BLAS_F32 && in == PARE_BLAS_F32;
    if (!types || !(f32 || wide)) return no("this combination of types is not supported");
    if (d.pointers == PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST)
        return no("a vector of alphas is for int8");
    int e = d.epilogue, known = PARE_LT_EPILOGUE_NONE | PARE_LT_EPILOGUE_RELU |
                                PARE_LT_EPILOGUE_BIAS | PARE_LT_EPILOGUE_GELU;
    if (e & ~known || (e & PARE_LT_EPILOGUE_RELU && e & PARE_LT_EPILOGUE_GELU))
        return no("an epilogue that is not modelled");
    if (!(e & PARE_LT_EPILOGUE_BIAS)) return PARE_BLAS_SUCCESS;
    if (e != PARE_LT_EPILOGUE_BIAS && p.out->order == PARE_LT_ORDER_ROW)
        return no("ReLU or GELU with bias where D is in row order");
    if (d.bias_type >= 0 && d.bias_type != out) return no("a bias of another type than D's");
    return PARE_BLAS_SUCCESS;
}

// E4M3 to f16 alone: the other results are not modelled. The library's guide asks for A transposed,
// B not, and 16 bytes in every contiguous dimension.
int check_f8(const problem &p)
{
    const desc &d = *p.d;
    if (simt_set.major * 10 + simt_set.minor < 89) return no("FP8: begins with Ada");
    if (p.b->type != PARE_BLAS_E4M3 || p.out->type != PARE_BLAS_F16 ||
        d.compute != PARE_BLAS_COMPUTE_F32 || d.scale != PARE_BLAS_F32)
        return no("FP8: E4M3 times E4M3 computed in f32, to f16");
    if (!d.trans_a || d.trans_b) return no("FP8: A is transposed and B is not");
    if (p.a->order || p.b->order || p.c->order || p.out->order)
        return no("FP8: column order only");
    if (p.a->rows % 16 || p.a->ld % 16 || p.b->ld % 16 || p.out->rows % 8 || p.c->ld % 8 ||
        p.out->ld % 8)
        return no("FP8: rows of 16 bytes");
    if (d.epilogue != PARE_LT_EPILOGUE_NONE) return no("FP8: an epilogue that is not modelled");
    return PARE_BLAS_SUCCESS;
}

int check_problem(const problem &p)
{
    if (!p.d || !p.a || !p.b || !p.c || !p.out) return PARE_BLAS_INVALID_VALUE;
    int status = check_shapes(p);
    if (status) return status;
    if (p.a->type == PARE_BLAS_E4M3) return check_f8(p);
    return p.a->type == PARE_BLAS_S8 ? check_int8(p) : check_float(p);
}

// FNV-1a over what an algorithm was chosen for.
uint64_t key_of(const problem &p)
{
    const layout *all[] = {p.a, p.b, p.c, p.out};
    uint64_t values[64], hash = 0xcbf29ce484222325u;
    size_t n = 0;
    for (const layout *l : all)
        for (uint64_t v : {static_cast<uint64_t>(l->type), static_cast<uint64_t>(l->order), l->rows,
                           l->cols, static_cast<uint64_t>(l->ld), static_cast<uint64_t>(l->batch)})
            values[n++] = v;
    for (int v : {p.d->compute, p.d->scale, p.d->trans_a, p.d->trans_b, p.d->epilogue})
        values[n++] = static_cast<uint64_t>(v);
    for (size_t i = 0; i < n; i++) hash = (hash ^ values[i]) * 0x100000001b3u;
    return hash;
}

matrix view(const void *p, const layout *l)
{
    bool row = l->order == PARE_LT_ORDER_ROW;
    return {p,
            l->type,
            static_cast<int64_t>(l->rows),
            static_cast<int64_t>(l->cols),
            row ? l->ld : 1,
            row ? 1 : l->ld,
            l->stride};
}

// Scale factors: host values are read now, device values when the product runs.
void set_factors(product *x, const desc &d, const void *alpha, const void *beta)
{
    x->integer_scale = d.scale == PARE_BLAS_S32;
    bool host = d.pointers == PARE_LT_POINTERS_HOST;
    auto value = [&](const void *p) {
        return x->integer_scale ? static_cast<double>(*static_cast<const int *>(p))
                                : static_cast<double>(*static_cast<const float *>(p));
    };
    if (host) x->alpha = value(alpha);
    if (host || d.pointers == PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST) x->beta = value(beta);
    if (d.pointers == PARE_LT_POINTERS_ALPHA_VECTOR_BETA_HOST) x->alpha_vector = alpha;
    if (d.pointers == PARE_LT_POINTERS_DEVICE) x->alpha_device = alpha, x->beta_device = beta;
}

bool aligned(const void *p, size_t to)
{
    return reinterpret_cast<uintptr_t>(p) % to == 0;
}

int check_pointers(const product &x)
{
    size_t least = x.a.type == PARE_BLAS_S8 ? 4 : x.a.type == PARE_BLAS_E4M3 ? 16 : 0;
    for (const matrix *m : {&x.a, &x.b, &x.c, &x.d})
        if (m->p && !aligned(m->p, least ? least : type_bytes(m->type)))
            return no("a matrix is not aligned to its elements, int8 to 4 bytes, FP8 to 16");
    if (x.c.p == x.d.p && (x.c.row_step != x.d.row_step || x.c.col_step != x.d.col_step))
        return PARE_BLAS_INVALID_VALUE;
    if (x.epilogue & PARE_LT_EPILOGUE_BIAS && !x.bias) return PARE_BLAS_INVALID_VALUE;
    return PARE_BLAS_SUCCESS;
}

int check_algo(const pare_lt_algo *algo, const problem &p, const void *workspace, size_t size)
{
    if (!algo) return PARE_BLAS_SUCCESS;
    if (algo->data[0] != key_of(p)) return no("an algorithm that was chosen for another problem");
    if (size < algo->data[1]) return PARE_BLAS_INVALID_VALUE;
    if (algo->data[1]) need_device(workspace, algo->data[1], "the workspace");
    return aligned(workspace, 256) ? PARE_BLAS_SUCCESS : PARE_BLAS_INVALID_VALUE;
}

// Matrices lie as the heuristic was told that they would.
int check_alignment(const pare_lt_algo *algo, const product &x)
{
    const void *all[] = {x.a.p, x.b.p, x.c.p, x.d.p};
    for (int i = 0; algo && i < 4; i++)
        if (!aligned(all[i], algo->data[2 + i]))
            return no("a matrix is less aligned than the heuristic was told");
    return PARE_BLAS_SUCCESS;
}

// A library that is not warm loads and allocates, which a capture forbids.
int check_device(const handle *h, cudaStream_t stream)
{
    const int at = stream_known(stream) ? stream_device(stream) : -1;
    if (at < 0 || at == h->device) return PARE_BLAS_SUCCESS;
    return no("the stream is of another device than the handle");
}

int check_capture(const handle *h, const pare_lt_algo *algo, cudaStream_t stream)
{
    if (!capturing(stream) || (h->warm && algo)) return PARE_BLAS_SUCCESS;
    (void)capture_forbids();
    (void)no("in a capture: run once before it, with an algorithm from the heuristic");
    return PARE_BLAS_INTERNAL_ERROR;
}

} // namespace

#define LT_CALL(name)                                                                              \
    call here(name);                                                                               \
    if (here.code) return injected(here.code)
#define LT_END(name, T, p, kind)                                                                   \
    call here(name);                                                                               \
    int status = destroy<T>(p, kind);                                                              \
    return here.code && !status ? injected(here.code) : status

extern "C" {

int cublasLtCreate(void **out)
{
    LT_CALL("cublasLtCreate");
    return make(out, handle{false, device_current()}, HANDLE);
}
int cublasLtDestroy(void *h)
{
    LT_END("cublasLtDestroy", handle, h, HANDLE);
}

int cublasLtGetProperty(int which, int *value)
{
    LT_CALL("cublasLtGetProperty");
    return library_property(which, value);
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    LT_CALL("cublasLtMatmulDescCreate");
    return make(out, desc{compute, scale, 0, 0, 0, PARE_LT_EPILOGUE_NONE, -1, nullptr}, DESC);
}
int cublasLtMatmulDescDestroy(void *d)
{
    LT_END("cublasLtMatmulDescDestroy", desc, d, DESC);
}

int cublasLtMatmulDescSetAttribute(void *p, int attribute, const void *value, size_t size)
{
    LT_CALL("cublasLtMatmulDescSetAttribute");
    desc *d = find<desc>(p, DESC);
    if (!d) return PARE_BLAS_INVALID_VALUE;
    switch (attribute) {
    case PARE_LT_DESC_POINTER_MODE:
        return set(&d->pointers, 4, value, size);
    case PARE_LT_DESC_TRANSA:
        return set(&d->trans_a, 4, value, size);
    case PARE_LT_DESC_TRANSB:
        return set(&d->trans_b, 4, value, size);
    case PARE_LT_DESC_EPILOGUE:
        return set(&d->epilogue, 4, value, size);
    case PARE_LT_DESC_BIAS_POINTER:
        return set(&d->bias, 8, value, size);
    case PARE_LT_DESC_BIAS_TYPE:
        return set(&d->bias_type, 4, value, size);
    default:
        return set(nullptr, 0, value, size);
    }
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    LT_CALL("cublasLtMatrixLayoutCreate");
    if (!type_bytes(type)) return no("a type that is not modelled");
    return make(out, layout{type, PARE_LT_ORDER_COLUMN, rows, cols, ld, 1, 0}, LAYOUT);
}
int cublasLtMatrixLayoutDestroy(void *l)
{
    LT_END("cublasLtMatrixLayoutDestroy", layout, l, LAYOUT);
}

int cublasLtMatrixLayoutSetAttribute(void *p, int attribute, const void *value, size_t size)
{
    LT_CALL("cublasLtMatrixLayoutSetAttribute");
    layout *l = find<layout>(p, LAYOUT);
    if (!l) return PARE_BLAS_INVALID_VALUE;
    switch (attribute) {
    case PARE_LT_LAYOUT_ORDER:
        return set(&l->order, 4, value, size);
    case PARE_LT_LAYOUT_BATCH_COUNT:
        return set(&l->batch, 4, value, size);
    case PARE_LT_LAYOUT_BATCH_STRIDE:
        return set(&l->stride, 8, value, size);
    default:
        return set(nullptr, 0, value, size);
    }
}

int cublasLtMatmulPreferenceCreate(void **out)
{
    LT_CALL("cublasLtMatmulPreferenceCreate");
    return make(out, preference{0, {256, 256, 256, 256}}, PREFERENCE);
}
int cublasLtMatmulPreferenceDestroy(void *p)
{
    LT_END("cublasLtMatmulPreferenceDestroy", preference, p, PREFERENCE);
}
int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t size)
{
    LT_CALL("cublasLtMatmulPreferenceSetAttribute");
    preference *x = find<preference>(p, PREFERENCE);
    if (!x) return PARE_BLAS_INVALID_VALUE;
    int operand = attribute - PARE_LT_PREFERENCE_ALIGNMENT_A;
    if (operand >= 0 && operand < 4) return set(&x->aligned[operand], 4, value, size);
    return set(attribute == PARE_LT_PREFERENCE_WORKSPACE ? &x->workspace : nullptr, 8, value, size);
}

// Two algorithms: one that needs 1 MiB of workspace where that is granted, then one that needs
// none.
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *out,
                                   void *pref, int asked, pare_lt_result *results, int *count)
{
    LT_CALL("cublasLtMatmulAlgoGetHeuristic");
    *count = 0;
    preference *limit = find<preference>(pref, PREFERENCE);
    if (!find<handle>(h, HANDLE) || !limit || asked < 1) return PARE_BLAS_INVALID_VALUE;
    if (capture_forbids()) {
        (void)no("the heuristic in a capture: ask before it");
        return PARE_BLAS_INTERNAL_ERROR;
    }
    problem p = {find<desc>(d, DESC), find<layout>(a, LAYOUT), find<layout>(b, LAYOUT),
                 find<layout>(c, LAYOUT), find<layout>(out, LAYOUT)};
    int status = check_problem(p);
    if (status) return status;
    for (uint64_t workspace : {uint64_t(1) << 20, uint64_t(0)}) {
        if (workspace > limit->workspace || *count == asked) continue;
        pare_lt_result *r = &results[(*count)++];
        *r = {};
        r->algo.data[0] = key_of(p);
        r->algo.data[1] = r->workspace = workspace;
        for (int i = 0; i < 4; i++) r->algo.data[2 + i] = limit->aligned[i];
        r->waves = 1;
    }
    return PARE_BLAS_SUCCESS;
}

int cublasLtMatmul(void *h, void *d, const void *alpha, const void *a, void *a_layout,
                   const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                   void *out, void *out_layout, const pare_lt_algo *algo, void *workspace,
                   size_t size, void *on)
{
    LT_CALL("cublasLtMatmul");
    handle *lt = find<handle>(h, HANDLE);
    if (!lt || !alpha || !beta) return PARE_BLAS_INVALID_VALUE;
    problem p = {find<desc>(d, DESC), find<layout>(a_layout, LAYOUT),
                 find<layout>(b_layout, LAYOUT), find<layout>(c_layout, LAYOUT),
                 find<layout>(out_layout, LAYOUT)};
    cudaStream_t stream = static_cast<cudaStream_t>(on);
    int status = check_device(lt, stream);
    if (!status) status = check_problem(p);
    if (!status) status = check_algo(algo, p, workspace, size);
    if (!status) status = check_capture(lt, algo, stream);
    if (status) return status;
    product x = {
        view(a, p.a), view(b, p.b), view(c, p.c), view(out, p.out), p.out->batch, 1, 0, nullptr,
        nullptr,      nullptr,      false,        p.d->epilogue,    p.d->bias,
        p.d->compute == PARE_BLAS_COMPUTE_TF32};
    if (p.d->trans_a) x.a = transposed(x.a);
    if (p.d->trans_b) x.b = transposed(x.b);
    set_factors(&x, *p.d, alpha, beta);
    status = check_pointers(x);
    if (!status) status = check_alignment(algo, x);
    if (!status) status = queue_product(x, stream);
    if (!status && !capturing(stream)) lt->warm = true;
    return status;
}
}

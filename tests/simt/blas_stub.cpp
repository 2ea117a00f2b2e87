// SPDX-License-Identifier: Apache-2.0
// Plain matrix products after the stubs: sums of integers exact, sums of floats in double, one
// rounding to the result's type. The real library's last bits differ.
#include "blas_stub.h"
#include "simt_device.h"

#include "runtime/base/f8.h"

namespace simt
{

size_t type_bytes(int type)
{
    switch (type) {
    case PARE_BLAS_F64:
        return 8;
    case PARE_BLAS_F32:
    case PARE_BLAS_S32:
        return 4;
    case PARE_BLAS_F16:
    case PARE_BLAS_BF16:
        return 2;
    case PARE_BLAS_S8:
    case PARE_BLAS_E4M3:
        return 1;
    default:
        return 0;
    }
}

matrix transposed(const matrix &m)
{
    return {m.p, m.type, m.cols, m.rows, m.col_step, m.row_step, m.stride};
}

size_t matrix_bytes(const matrix &m, int64_t batch)
{
    if (!m.rows || !m.cols) return 0;
    int64_t last = (m.rows - 1) * m.row_step + (m.cols - 1) * m.col_step + (batch - 1) * m.stride;
    return static_cast<size_t>(last + 1) * type_bytes(m.type);
}

void need_device(const void *p, size_t bytes, const char *what)
{
    if (bytes && !device_covers(p, bytes))
        simt_fault("a library call needs %zu bytes of device memory for %s: they are not there",
                   bytes, what);
}

int refuse(const char *library, const char *why)
{
    say("%s refuses: %s", library, why);
    return PARE_BLAS_NOT_SUPPORTED;
}

int library_property(int which, int *value)
{
    const int part[] = {simt_set.blas / 10000, simt_set.blas / 100 % 100, simt_set.blas % 100};
    if (which < 0 || which > 2) return PARE_BLAS_INVALID_VALUE;
    *value = part[which];
    return PARE_BLAS_SUCCESS;
}

int injected(int code)
{
    return code == cudaErrorMemoryAllocation ? PARE_BLAS_ALLOC_FAILED : PARE_BLAS_EXECUTION_FAILED;
}

double load(const void *p, int type, int64_t i)
{
    switch (type) {
    case PARE_BLAS_F64:
        return static_cast<const double *>(p)[i];
    case PARE_BLAS_F32:
        return static_cast<double>(static_cast<const float *>(p)[i]);
    case PARE_BLAS_S32:
        return static_cast<const int *>(p)[i];
    case PARE_BLAS_S8:
        return static_cast<const int8_t *>(p)[i];
    case PARE_BLAS_E4M3:
        return static_cast<double>(pare_f8e4m3_value(static_cast<const uint8_t *>(p)[i]));
    case PARE_BLAS_F16:
        return static_cast<double>(__half2float(static_cast<const __half *>(p)[i]));
    default:
        return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]));
    }
}

// TF32 keeps 10 bits behind the point: to nearest, ties away, as cvt.rna.tf32.f32 does.
double load_tf32(const float *p, int64_t i)
{
    uint32_t bits;
    memcpy(&bits, p + i, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
    float v;
    memcpy(&v, &bits, sizeof v);
    return static_cast<double>(v);
}

static double factor(const product &x, const void *p, int type, int64_t i)
{
    return x.tf32 && type == PARE_BLAS_F32 ? load_tf32(static_cast<const float *>(p), i)
                                           : load(p, type, i);
}

static double clamped(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

void store(void *p, int type, int64_t i, double v)
{
    float f = static_cast<float>(v);
    switch (type) {
    case PARE_BLAS_F64:
        static_cast<double *>(p)[i] = v;
        break;
    case PARE_BLAS_F32:
        static_cast<float *>(p)[i] = f;
        break;
    case PARE_BLAS_S32:
        static_cast<int *>(p)[i] = static_cast<int>(static_cast<int64_t>(v));
        break;
    case PARE_BLAS_S8:
        static_cast<int8_t *>(p)[i] = static_cast<int8_t>(clamped(nearbyint(v), -128, 127));
        break;
    case PARE_BLAS_F16:
        static_cast<__half *>(p)[i] = __float2half(f);
        break;
    default:
        static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16(f);
        break;
    }
}

// The library's GELU is the tanh form.
static double finished(const product &x, double v, int64_t row)
{
    int e = x.epilogue;
    if (e & PARE_LT_EPILOGUE_BIAS) v += load(x.bias, x.d.type, row);
    if (e & PARE_LT_EPILOGUE_RELU) v = v > 0 ? v : 0;
    if (e & PARE_LT_EPILOGUE_GELU)
        v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v;
}

static void run_matrix(const product &x, int64_t n)
{
    size_t depth = static_cast<size_t>(x.a.cols);
    std::vector<double> a(depth * static_cast<size_t>(x.a.rows)), b(depth);
    for (int64_t i = 0; i < x.a.rows; i++)
        for (int64_t k = 0; k < x.a.cols; k++)
            a[static_cast<size_t>(i * x.a.cols + k)] =
                factor(x, x.a.p, x.a.type, n * x.a.stride + i * x.a.row_step + k * x.a.col_step);
    int scale = x.integer_scale ? PARE_BLAS_S32 : PARE_BLAS_F32;
    double beta = x.beta_device ? load(x.beta_device, scale, 0) : x.beta;
    for (int64_t j = 0; j < x.b.cols; j++) {
        for (int64_t k = 0; k < x.a.cols; k++)
            b[static_cast<size_t>(k)] =
                factor(x, x.b.p, x.b.type, n * x.b.stride + k * x.b.row_step + j * x.b.col_step);
        for (int64_t i = 0; i < x.a.rows; i++) {
            const double *row = a.data() + static_cast<size_t>(i * x.a.cols);
            double sum = 0, alpha = x.alpha;
            for (size_t k = 0; k < depth; k++) sum += row[k] * b[k];
            if (x.alpha_vector) alpha = load(x.alpha_vector, scale, i);
            if (x.alpha_device) alpha = load(x.alpha_device, scale, 0);
            double v = alpha * sum;
            if (beta != 0)
                v += beta *
                     load(x.c.p, x.c.type, n * x.c.stride + i * x.c.row_step + j * x.c.col_step);
            store(const_cast<void *>(x.d.p), x.d.type,
                  n * x.d.stride + i * x.d.row_step + j * x.d.col_step, finished(x, v, i));
        }
    }
}

static void need_operands(const product &x)
{
    need_device(x.a.p, matrix_bytes(x.a, x.batch), "A");
    need_device(x.b.p, matrix_bytes(x.b, x.batch), "B");
    if (x.beta != 0 || x.beta_device) need_device(x.c.p, matrix_bytes(x.c, x.batch), "C");
    need_device(x.d.p, matrix_bytes(x.d, x.batch), "D");
    size_t rows = static_cast<size_t>(x.d.rows);
    if (x.epilogue & PARE_LT_EPILOGUE_BIAS)
        need_device(x.bias, rows * type_bytes(x.d.type), "the bias");
    if (x.alpha_vector) need_device(x.alpha_vector, rows * 4, "the vector of alphas");
}

void run_product(const product &x)
{
    need_operands(x);
    for (int64_t n = 0; n < x.batch; n++) run_matrix(x, n);
    if (check)
        for (int64_t n = 0; n < x.batch; n++)
            for (int64_t j = 0; j < x.d.cols; j++)
                for (int64_t i = 0; i < x.d.rows; i++)
                    check->written(static_cast<const char *>(x.d.p) +
                                       static_cast<size_t>(n * x.d.stride + i * x.d.row_step +
                                                           j * x.d.col_step) *
                                           type_bytes(x.d.type),
                                   type_bytes(x.d.type));
}

int queue_product(const product &x, cudaStream_t stream)
{
    need_operands(x);
    cudaError_t e = enqueue(stream, {WORK_LIBRARY, "matrix product", [x]() { run_product(x); }});
    return e ? PARE_BLAS_EXECUTION_FAILED : PARE_BLAS_SUCCESS;
}

} // namespace simt

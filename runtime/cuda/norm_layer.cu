/* SPDX-License-Identifier: Apache-2.0 */
/* LayerNormalization (17) and its gradient.
     y = (x - mean) / sqrt(variance + epsilon) * scale + bias; the variance from the differences to
     the mean
   Dense rows. One warp a row, partial results joined by shuffles. A row of at most 1,024 numbers is
   read once, in vectors of four, and stays in registers; lanes stride three times through others.
   Sums are kept in double per lane. dScale and dBias are sums over rows: channel_sums.cu. Scale and
   bias are of the rows' type, or f32. */
#include "runtime/cuda/channel_sums.h"
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/device/dependent.cuh"
#include "runtime/cuda/device/rows.cuh"
#include "runtime/ops/infer.h"
#include "runtime/ops/norm.h"

/* The type of scale and bias. */
template <bool WIDE> SIMT_INLINE pare_dtype factors_type(const pare_cuda_rows &r)
{
    return WIDE ? PARE_f32 : r.dtype;
}

template <bool WIDE>
static __global__ void __launch_bounds__(WARPS * 32)
    layer_norm_rows(pare_cuda_rows r, const void *scale, const void *bias, float epsilon,
                    float *mean_out, float *inverse_out)
{
    pare_dependent_begin();
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= r.rows) return;
    const int64_t at = row_start(r, row);
    double sum = 0, squares = 0;
    for (int64_t i = lane; i < r.n; i += 32) sum += (double)pare_number_at(r.x, r.dtype, at + i);
    const double mean = pare_lanes_sum(sum) / (double)r.n;
    for (int64_t i = lane; i < r.n; i += 32) {
        double d = (double)pare_number_at(r.x, r.dtype, at + i) - mean;
        squares += d * d;
    }
    const double inverse = 1 / sqrt(pare_lanes_sum(squares) / (double)r.n + (double)epsilon);
    const float m = (float)mean, f = (float)inverse;
    for (int64_t i = lane; i < r.n; i += 32) {
        float v = (pare_number_at(r.x, r.dtype, at + i) - m) * f *
                  pare_number_at(scale, factors_type<WIDE>(r), i);
        if (bias) v += pare_number_at(bias, factors_type<WIDE>(r), i);
        row_number_store(r, at + i, v);
    }
    if (lane == 0 && mean_out) mean_out[row] = m;
    if (lane == 0 && inverse_out) inverse_out[row] = f;
}

template <bool WIDE>
static __global__ void __launch_bounds__(WARPS * 32)
    layer_norm_registers(pare_cuda_rows r, const void *scale, const void *bias, float epsilon,
                         float *mean_out, float *inverse_out)
{
    pare_dependent_begin();
    const int64_t row = row_of(r.rows), at = row * r.outer_step;
    if (row < 0) return;
    float v[ROW_VECS][4];
    double sum = 0, squares = 0;
    row_load<ROW_VECS>(r, at, 0, v);
    PARE_UNROLL for (int g = 0; g < ROW_VECS; g++) PARE_VEC4 sum += (double)v[g][k];
    const double mean = pare_lanes_sum(sum) / (double)r.n;
    PARE_UNROLL for (int g = 0; g < ROW_VECS; g++) if (vec_start(g) < r.n) PARE_VEC4
    {
        const double d = (double)v[g][k] - mean;
        squares += d * d;
    }
    const double inverse = 1 / sqrt(pare_lanes_sum(squares) / (double)r.n + (double)epsilon);
    const float m = (float)mean, f = (float)inverse;
    PARE_UNROLL for (int g = 0; g < ROW_VECS; g++)
    {
        float by[4] = {0, 0, 0, 0}, plus[4] = {-0.0f, -0.0f, -0.0f, -0.0f};
        if (vec_start(g) < r.n)
            vec_load_floats<4>(scale, factors_type<WIDE>(r), vec_start(g), 1, by);
        if (vec_start(g) < r.n && bias)
            vec_load_floats<4>(bias, factors_type<WIDE>(r), vec_start(g), 1, plus);
        PARE_UNROLL PARE_VEC4 v[g][k] = (v[g][k] - m) * f * by[k] + plus[k];
    }
    row_store<ROW_VECS>(r, at, v);
    const bool first = (threadIdx.x & 31) == 0;
    if (first && mean_out) mean_out[row] = m;
    if (first && inverse_out) inverse_out[row] = f;
}

template <bool WIDE>
static __global__ void __launch_bounds__(WARPS * 32)
    layer_norm_grad_rows(pare_cuda_rows r, const void *dy, const void *scale, double epsilon,
                         double *stats)
{
    const int lane = (int)threadIdx.x & 31;
    const int64_t row = row_of(r.rows), at = row * r.n;
    if (row < 0) return;
    double sum = 0, squares = 0, g_sum = 0, gx_sum = 0;
    for (int64_t i = lane; i < r.n; i += 32) sum += (double)pare_number_at(r.x, r.dtype, at + i);
    const double mean = pare_lanes_sum(sum) / (double)r.n;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double d = (double)pare_number_at(r.x, r.dtype, at + i) - mean;
        squares += d * d;
    }
    const double inv = 1 / sqrt(pare_lanes_sum(squares) / (double)r.n + epsilon);
    if (lane == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = inv;
    }
    if (!r.y) return;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double norm = ((double)pare_number_at(r.x, r.dtype, at + i) - mean) * inv;
        const double g = (double)pare_number_at(dy, r.dtype, at + i) *
                         (double)pare_number_at(scale, factors_type<WIDE>(r), i);
        g_sum += g;
        gx_sum += g * norm;
    }
    g_sum = pare_lanes_sum(g_sum) / (double)r.n;
    gx_sum = pare_lanes_sum(gx_sum) / (double)r.n;
    for (int64_t i = lane; i < r.n; i += 32) {
        const double norm = ((double)pare_number_at(r.x, r.dtype, at + i) - mean) * inv;
        const double g = (double)pare_number_at(dy, r.dtype, at + i) *
                         (double)pare_number_at(scale, factors_type<WIDE>(r), i);
        pare_number_store(r.y, r.dtype, at + i, (float)(inv * (g - g_sum - norm * gx_sum)));
    }
}

/* --- launchers --- */

/* Scale and bias of LayerNormalization (17), (n) each; bias may be NULL. */
typedef struct layer_factors {
    const void *scale, *bias;
    bool wide; /* f32 */
} layer_factors;

/* Dense rows; mean and inverse (rows), f32, or NULL: the optional outputs. */
static cudaError_t layer_norm_launch(const pare_cuda_rows *r, const layer_factors *f, float epsilon,
                                     float *mean, float *inverse, cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    const bool aligned = ((uintptr_t)f->scale | (uintptr_t)f->bias) % 16 == 0;
    auto kernel = aligned && row_fits_registers(r)
                      ? (f->wide ? layer_norm_registers<true> : layer_norm_registers<false>)
                      : (f->wide ? layer_norm_rows<true> : layer_norm_rows<false>);
    PARE_LAUNCH_DEPENDENT(kernel, rows_grid(r->rows), dim3(WARPS * 32), 0, stream, *r, f->scale,
                          f->bias, epsilon, mean, inverse);
    return cudaGetLastError();
}

/* r: x is LayerNormalization's input, y its gradient or NULL; dense rows. stats (rows, 2): gets
   mean and 1 / deviation. */
static cudaError_t layer_norm_grad_launch(const pare_cuda_rows *r, const void *dy,
                                          const layer_factors *f, double epsilon, double *stats,
                                          cudaStream_t stream)
{
    if (r->rows == 0 || r->n == 0) return cudaSuccess;
    auto kernel = f->wide ? layer_norm_grad_rows<true> : layer_norm_grad_rows<false>;
    SIMT_LAUNCH(kernel, rows_grid(r->rows), dim3(WARPS * 32), 0, stream, *r, dy, f->scale, epsilon,
                stats);
    return cudaGetLastError();
}

/* --- LayerNormalization --- */

static pare_status axis_read(const pare_prep *p, int *axis)
{
    return pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, axis);
}

/* type: of the other factor, which is the same. */
static bool factor_fits(const pare_prep *p, int i, pare_dtype type, int axis)
{
    const pare_view *x = &p->in[0], *f = &p->in[i];
    return i >= p->in_count || !f->dtype ||
           (f->dtype == type && pare_view_rowmajor(f) &&
            pare_norm_factor_is_row(x->dim, x->rank, axis, f->dim, f->rank));
}

static int64_t row_length(const pare_view *x, int axis)
{
    int64_t n = 1;
    for (int i = axis; i < x->rank; i++) n *= x->dim[i];
    return n;
}

static bool stash_fits(const pare_prep *p, int i)
{
    return i >= p->out_count || !p->out[i].dtype || p->out[i].dtype == PARE_f32;
}

/* Of rows whose results are floats or codes. */
static bool rows_can(const pare_prep *p)
{
    int axis;
    if (!pare_cuda_can_float(p, 1) || p->in[0].rank == 0 || axis_read(p, &axis) != PARE_OK)
        return false;
    const pare_dtype type = p->in[1].dtype;
    return pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->out[0]) &&
           (type == p->in[0].dtype || type == PARE_f32) && factor_fits(p, 1, type, axis) &&
           factor_fits(p, 2, type, axis);
}

static bool layer_norm_can(const pare_prep *p)
{
    return rows_can(p) && p->out[0].dtype == p->in[0].dtype && stash_fits(p, 1) && stash_fits(p, 2);
}

static pare_status layer_norm_prepare(pare_prep *p)
{
    int axis;
    pare_cuda_rows *r = (pare_cuda_rows *)pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(axis_read(p, &axis));
    r->n = row_length(&p->in[0], axis);
    r->rows = r->n ? pare_view_count(&p->in[0]) / r->n : 0;
    r->step = 1;
    r->inner = 1;
    r->outer_step = r->n;
    r->dtype = p->in[0].dtype;
    p->state = r;
    return PARE_OK;
}

static void *optional(const pare_view *views, int count, int i)
{
    return i < count && views[i].dtype ? views[i].data : NULL;
}

static pare_status layer_norm_run(const pare_call *c)
{
    pare_cuda_rows r = *(const pare_cuda_rows *)c->state;
    r.x = c->in[0].data;
    r.y = c->out[0].data;
    const layer_factors f = {c->in[1].data, optional(c->in, c->in_count, 2),
                             c->in[1].dtype == PARE_f32};
    return PARE_CUDA_LAUNCH(
        c, layer_norm_launch, &r, &f, pare_node_float(c->node, "epsilon", 1e-5f),
        (float *)optional(c->out, c->out_count, 1), (float *)optional(c->out, c->out_count, 2));
}

static const pare_kernel cuda_layer_norm = {.name = "cuda_layer_norm",
                                            .can = layer_norm_can,
                                            .prepare = layer_norm_prepare,
                                            .run = layer_norm_run,
                                            .flags = PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cuda_layer_norm[] = {&cuda_layer_norm, NULL};

/* --- QLayerNormalization: the same, then QuantizeLinear (25) --- */

static bool q_layer_norm_can(const pare_prep *p) { return rows_can(p) && rows_can_quantize(p); }

static pare_status q_layer_norm_prepare(pare_prep *p)
{
    PARE_TRY(layer_norm_prepare(p));
    return rows_quantize(p, (pare_cuda_rows *)p->state);
}

static const pare_kernel cuda_q_layer_norm = {.name = "cuda_q_layer_norm",
                                              .can = q_layer_norm_can,
                                              .prepare = q_layer_norm_prepare,
                                              .run = layer_norm_run};
const pare_kernel *const pare_cuda_q_layer_norm[] = {&cuda_q_layer_norm, NULL};

/* --- LayerNormGrad (dY, X, scale) -> dX, dScale, dBias --- */

typedef struct layer {
    pare_cuda_rows rows;
    pare_cuda_sums sums;
    double epsilon;
    size_t stats; /* bytes: scratch holds these, then parts of sums */
} layer;

static bool layer_can(const pare_prep *p)
{
    if (!pare_cuda_can_float(p, 2)) return false;
    if (p->in[2].dtype != p->in[0].dtype && p->in[2].dtype != PARE_f32) return false;
    for (int i = 0; i < 3; i++)
        if (!pare_view_rowmajor(&p->in[i]) ||
            (i < p->out_count && p->out[i].dtype && !pare_view_rowmajor(&p->out[i])))
            return false;
    return true;
}

static pare_status layer_prepare(pare_prep *p)
{
    layer *s = (layer *)pare_arena_alloc(p->arena, 1, sizeof *s);
    const pare_view *x = &p->in[1];
    if (!s) return PARE_MEMORY;
    int64_t n = 1;
    for (int i = (int)pare_node_int(p->node, "axis", 0); i < x->rank; i++) n *= x->dim[i];
    const int64_t rows = n ? pare_view_count(x) / n : 0;
    s->rows = (pare_cuda_rows){
        .rows = rows, .n = n, .step = 1, .inner = 1, .outer_step = n, .dtype = x->dtype};
    s->epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    s->stats = (2 * sizeof(double) * (size_t)rows + 255) & ~(size_t)255;
    const pare_view matrix = {.dtype = x->dtype, .rank = 2, .dim = {rows, n}, .stride = {n, 1}};
    const pare_view stats = {.dtype = PARE_f64, .rank = 2, .dim = {rows, n}, .stride = {2, 0}};
    const pare_view *const operands[] = {&matrix, &matrix, &stats};
    p->scratch = s->stats + pare_cuda_sums_set(&s->sums, operands, 3, 1);
    p->state = s;
    return PARE_OK;
}

static void *wanted(const pare_call *c, int i)
{
    return i < c->out_count && c->out[i].dtype ? c->out[i].data : NULL;
}

static pare_status layer_run(const pare_call *c)
{
    const layer *s = (const layer *)c->state;
    pare_cuda_rows r = s->rows;
    pare_cuda_sums sums = s->sums;
    r.x = c->in[1].data;
    r.y = wanted(c, 0);
    const layer_factors f = {c->in[2].data, NULL, c->in[2].dtype == PARE_f32};
    PARE_TRY(PARE_CUDA_LAUNCH(c, layer_norm_grad_launch, &r, c->in[0].data, &f, s->epsilon,
                              (double *)c->scratch));
    sums.kind = PARE_CUDA_SUMS_LAYER;
    sums.dtype = r.dtype;
    sums.vectors = c->in[2].dtype;
    sums.w.data[0] = c->in[0].data;
    sums.w.data[1] = c->in[1].data;
    sums.w.data[2] = c->scratch;
    sums.part = (double *)((char *)c->scratch + s->stats);
    sums.first = wanted(c, 1);
    sums.second = wanted(c, 2);
    if (!sums.first && !sums.second) return PARE_OK;
    return PARE_CUDA_LAUNCH(c, pare_cuda_sums_launch, &sums);
}

static const pare_kernel cuda_layer_norm_grad = {
    .name = "cuda_layer_norm_grad", .can = layer_can, .prepare = layer_prepare, .run = layer_run};
const pare_kernel *const pare_cuda_layer_norm_grad[] = {&cuda_layer_norm_grad, NULL};

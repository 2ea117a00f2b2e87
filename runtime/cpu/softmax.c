/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and LogSoftmax (13) along one axis, the maximum subtracted:
     softmax x = e^(x - top) / sum e^(x - top),  log softmax x = x - top - log sum e^(x - top)
   The plain kernel computes in double and rounds once; the vector kernel takes f32, f16 and bf16
   with the axis innermost and computes in f32, as the strided kernel does for f32 of any axis.
   Gradients sum in double. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/float16.h"
#include "runtime/cpu/ref.h"
#include "runtime/cpu/softmax_rows.h"
#include "runtime/cpu/vmath.h"
#include "runtime/ops/infer.h"

#include <math.h>
#include <string.h>

typedef struct softmax {
    int axis;
    bool log;
} softmax;

static pare_status softmax_prepare(pare_prep *p)
{
    softmax *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    if (p->in[0].rank > 0)
        PARE_TRY(
            pare_infer_axis(p->node, pare_node_int(p->node, "axis", -1), p->in[0].rank, &s->axis));
    s->log = !strcmp(p->node->op_type, "LogSoftmax");
    p->state = s;
    return PARE_OK;
}

/* The output holds the lane's input on the way, so in and out may be the same memory. */
static void lane_run(const pare_view *out, int64_t to, int64_t out_stride, const pare_view *in,
                     int64_t from, int64_t in_stride, int64_t n, bool log_form)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = pare_ref_get(in, from + i * in_stride);
        top = x > top || x != x ? x : top;
    }
    for (int64_t i = 0; i < n; i++) sum += exp(pare_ref_get(in, from + i * in_stride) - top);
    for (int64_t i = 0; i < n; i++) {
        double x = pare_ref_get(in, from + i * in_stride) - top;
        pare_ref_set(out, to + i * out_stride, log_form ? x - log(sum) : exp(x) / sum);
    }
}

static pare_status softmax_run(const pare_call *c)
{
    const softmax *s = c->state;
    pare_view in = c->in[0], out = c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    if (pare_view_count(&out) == 0) return PARE_OK;
    if (in.rank == 0) {
        pare_ref_set(&out, 0, s->log ? 0 : 1);
        return PARE_OK;
    }
    int64_t n = in.dim[s->axis];
    pare_view walk = out;
    walk.dim[s->axis] = 1;
    do
        lane_run(&out, pare_ref_offset(&out, index), out.stride[s->axis], &in,
                 pare_ref_offset(&in, index), in.stride[s->axis], n, s->log);
    while (pare_ref_next(&walk, index));
    return PARE_OK;
}

PARE_CLONES static void log_lane(float *y, const float *x, int64_t n)
{
    enum { LANES = 16 };
    float tops[LANES], sums[LANES] = {0}, top = -INFINITY, sum = 0;
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) tops[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) tops[j] = x[i + j] > tops[j] ? x[i + j] : tops[j];
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int j = 0; j < LANES; j++) top = tops[j] > top ? tops[j] : top;
    for (i = 0; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += pare_vexp(x[i + j] - top);
    for (; i < n; i++) sum += pare_vexp(x[i] - top);
    for (int j = 0; j < LANES; j++) sum += sums[j];
    const float shift = top + logf(sum);
#pragma omp simd
    for (int64_t k = 0; k < n; k++) y[k] = x[k] - shift;
}

enum { ROWS = 32 }; /* lanes that are worked on at a time; they stay in cache */

static void lanes_f32(float *y, const float *x, int64_t lanes, int64_t n, bool log_form)
{
    for (int64_t i = 0; log_form && i < lanes; i++) log_lane(y + i * n, x + i * n, n);
    for (int64_t i = 0; !log_form && i < lanes; i += ROWS) {
        int64_t rows = lanes - i < ROWS ? lanes - i : ROWS;
        if (y != x) memcpy(y + i * n, x + i * n, (size_t)(rows * n) * sizeof *y);
        pare_softmax_rows(y + i * n, rows, n);
    }
}

static void lanes_run(const pare_call *c, int64_t first, int64_t last, int64_t n, float *buffer)
{
    const softmax *s = c->state;
    pare_dtype type = c->in[0].dtype;
    if (type == PARE_f32) {
        lanes_f32((float *)c->out[0].data + first * n, (const float *)c->in[0].data + first * n,
                  last - first, n, s->log);
        return;
    }
    for (int64_t i = first; i < last; i++) {
        pare_widen(buffer, (const uint16_t *)c->in[0].data + i * n, type, n, 1);
        lanes_f32(buffer, buffer, 1, n, s->log);
        pare_narrow((uint16_t *)c->out[0].data + i * n, buffer, type, n, 1);
    }
}

static pare_status vec_softmax_run(const pare_call *c)
{
    int64_t n = c->in[0].dim[c->in[0].rank - 1], lanes = n ? pare_view_count(&c->in[0]) / n : 0;
    int parts = c->threads > 1 && lanes * n > 1 << 15 ? c->threads : 1;
    float *rows = c->in[0].dtype == PARE_f32 ? NULL : c->scratch;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        lanes_run(c, lanes * t / parts, lanes * (t + 1) / parts, n, rows ? rows + t * n : NULL);
    return PARE_OK;
}

static pare_status vec_softmax_prepare(pare_prep *p)
{
    if (p->in[0].dtype != PARE_f32)
        p->scratch = sizeof(float) * (size_t)p->threads * (size_t)p->in[0].dim[p->in[0].rank - 1];
    return softmax_prepare(p);
}

static bool vec_softmax_can(const pare_prep *p)
{
    int rank = p->in[0].rank;
    int64_t axis = pare_node_int(p->node, "axis", -1);
    pare_dtype type = p->in[0].dtype;
    return (type == PARE_f32 || type == PARE_f16 || type == PARE_bf16) && rank > 0 &&
           (axis == -1 || axis == rank - 1) && pare_view_rowmajor(&p->in[0]) &&
           pare_view_rowmajor(&p->out[0]);
}

static const pare_kernel vec_softmax = {.name = "vec_softmax",
                                        .can = vec_softmax_can,
                                        .prepare = vec_softmax_prepare,
                                        .run = vec_softmax_run,
                                        .flags = PARE_KERNEL_INPLACE};
/* --- f32, any axis and strides: lanes are copied together, then handled as rows --- */

/* How lanes follow one another: those beside one another in memory in blocks. */
typedef struct lane_blocks {
    pare_view in, out;            /* without the axis */
    int64_t n, in_step, out_step; /* along the axis */
    int beside;                   /* axis of a block's lanes; -1: a block is one lane */
    int64_t count;                /* blocks */
} lane_blocks;

static lane_blocks blocks_of(const pare_call *c)
{
    const softmax *s = c->state;
    bool flag[PARE_MAX_RANK] = {false};
    pare_view in_lane, out_lane;
    lane_blocks b = {.beside = -1, .count = 1};
    flag[s->axis] = true;
    pare_ref_split(&c->in[0], flag, &b.in, &in_lane);
    pare_ref_split(&c->out[0], flag, &b.out, &out_lane);
    b.n = in_lane.dim[0];
    b.in_step = in_lane.stride[0];
    b.out_step = out_lane.stride[0];
    for (int i = 0; i < b.in.rank; i++)
        if (b.in.dim[i] > 1 && b.in.stride[i] == 1) b.beside = i;
    for (int i = 0; i < b.in.rank; i++)
        b.count *= i == b.beside ? (b.in.dim[i] + ROWS - 1) / ROWS : b.in.dim[i];
    return b;
}

static void block_run(const pare_call *c, const lane_blocks *b, int64_t at, float *rows)
{
    const softmax *s = c->state;
    int64_t from = 0, to = 0, lanes = 1, out_beside = 0;
    for (int i = b->in.rank - 1; i >= 0; i--) {
        const bool block = i == b->beside;
        const int64_t many = block ? (b->in.dim[i] + ROWS - 1) / ROWS : b->in.dim[i];
        const int64_t first = at % many * (block ? ROWS : 1);
        if (block) {
            lanes = b->in.dim[i] - first < ROWS ? b->in.dim[i] - first : ROWS;
            out_beside = b->out.stride[i];
        }
        from += first * b->in.stride[i];
        to += first * b->out.stride[i];
        at /= many;
    }
    const float *x = (const float *)c->in[0].data + from;
    float *y = (float *)c->out[0].data + to;
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t j = 0; j < lanes; j++) rows[j * b->n + i] = x[i * b->in_step + j];
    lanes_f32(rows, rows, lanes, b->n, s->log);
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t j = 0; j < lanes; j++)
            y[i * b->out_step + j * out_beside] = rows[j * b->n + i];
}

static pare_status strided_softmax_run(const pare_call *c)
{
    if (!pare_view_count(&c->in[0])) return PARE_OK;
    const lane_blocks b = blocks_of(c);
    const int parts = c->threads > 1 && pare_view_count(&c->in[0]) > 1 << 15 ? c->threads : 1;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int t = 0; t < parts; t++)
        for (int64_t i = b.count * t / parts; i < b.count * (t + 1) / parts; i++)
            block_run(c, &b, i, (float *)c->scratch + t * ROWS * b.n);
    return PARE_OK;
}

static pare_status strided_softmax_prepare(pare_prep *p)
{
    PARE_TRY(softmax_prepare(p));
    const int64_t n = p->in[0].dim[((softmax *)p->state)->axis];
    p->scratch = sizeof(float) * ROWS * (size_t)n * (size_t)p->threads;
    return PARE_OK;
}

static bool strided_softmax_can(const pare_prep *p)
{
    return p->in[0].dtype == PARE_f32 && p->in[0].rank > 0;
}

static const pare_kernel strided_softmax = {.name = "strided_softmax",
                                            .can = strided_softmax_can,
                                            .prepare = strided_softmax_prepare,
                                            .run = strided_softmax_run,
                                            .flags = PARE_KERNEL_INPLACE};
static const pare_kernel ref_softmax = {.name = "ref_softmax",
                                        .can = pare_ref_can_floats,
                                        .prepare = softmax_prepare,
                                        .run = softmax_run,
                                        .flags = PARE_KERNEL_REF};
/* Hardmax (13): 1 at the first largest number of a lane, else 0. */
static void hard_lane(const pare_view *out, int64_t to, int64_t out_stride, const pare_view *in,
                      int64_t from, int64_t in_stride, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (pare_ref_get(in, from + i * in_stride) > pare_ref_get(in, from + best * in_stride))
            best = i;
    for (int64_t i = 0; i < n; i++) pare_ref_set(out, to + i * out_stride, i == best);
}

static pare_status hardmax_run(const pare_call *c)
{
    const softmax *s = c->state;
    const pare_view *in = &c->in[0], *out = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    pare_view walk = *out;
    if (pare_view_count(out) == 0) return PARE_OK;
    if (out->rank) walk.dim[s->axis] = 1;
    do
        hard_lane(out, pare_ref_offset(out, index), out->rank ? out->stride[s->axis] : 0, in,
                  pare_ref_offset(in, index), out->rank ? in->stride[s->axis] : 0,
                  out->rank ? out->dim[s->axis] : 1);
    while (pare_ref_next(&walk, index));
    return PARE_OK;
}

static const pare_kernel ref_hardmax = {.name = "ref_hardmax",
                                        .can = pare_ref_can_floats,
                                        .prepare = softmax_prepare,
                                        .run = hardmax_run,
                                        .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_hardmax[] = {&ref_hardmax, NULL};
const pare_kernel *const pare_cpu_softmax[] = {&vec_softmax, &strided_softmax, &pare_widened,
                                               &ref_softmax, NULL};

/* --- gradient: dX = Y (dY - sum dY Y); log form: dX = dY - e^Y sum dY --- */

#define GRAD_LANE(type, ctype, exponential)                                                        \
    static void grad_lane_##type(ctype *dx, int64_t sx, const ctype *dy, int64_t sd,               \
                                 const ctype *y, int64_t sy, int64_t n, bool log)                  \
    {                                                                                              \
        double sum = 0;                                                                            \
        for (int64_t i = 0; i < n; i++)                                                            \
            sum += log ? (double)dy[i * sd] : (double)dy[i * sd] * (double)y[i * sy];              \
        const ctype s = (ctype)sum;                                                                \
        if (log)                                                                                   \
            for (int64_t i = 0; i < n; i++) dx[i * sx] = dy[i * sd] - exponential(y[i * sy]) * s;  \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) dx[i * sx] = y[i * sy] * (dy[i * sd] - s);             \
    }
GRAD_LANE(f32, float, expf)
GRAD_LANE(f64, double, exp)

static pare_status grad_run(const pare_call *c)
{
    const pare_view *dy = &c->in[0], *y = &c->in[1], *dx = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    pare_view walk = *dx;
    bool log = pare_node_int(c->node, "log", 0) != 0;
    int a = 0;
    if (!pare_view_count(dx)) return PARE_OK;
    if (dx->rank)
        PARE_TRY(pare_infer_axis(c->node, pare_node_int(c->node, "axis", -1), dx->rank, &a));
    int64_t n = dx->rank ? dx->dim[a] : 1;
    if (dx->rank) walk.dim[a] = 1;
    do {
        void *to = pare_ref_at(dx, pare_ref_offset(dx, index));
        const void *d = pare_ref_at(dy, pare_ref_offset(dy, index));
        const void *v = pare_ref_at(y, pare_ref_offset(y, index));
        if (dx->dtype == PARE_f64)
            grad_lane_f64(to, dx->stride[a], d, dy->stride[a], v, y->stride[a], n, log);
        else
            grad_lane_f32(to, dx->stride[a], d, dy->stride[a], v, y->stride[a], n, log);
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

/* Lanes that are whole, one after another, in vectors. */
PARE_CLONES static void grad_rows(float *restrict dx, const float *dy, const float *y, int64_t rows,
                                  int64_t n, bool log)
{
    for (int64_t r = 0; r < rows; r++, dx += n, dy += n, y += n) {
        double sum = 0;
        if (log)
            _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum +=
                (double)dy[i];
        else
            _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum +=
                (double)dy[i] * (double)y[i];
        const float s = (float)sum;
        if (log)
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - pare_vexp(y[i]) * s;
        else
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - s);
    }
}

static bool grad_rows_can(const pare_prep *p)
{
    const int rank = p->in[0].rank;
    const int64_t axis = pare_node_int(p->node, "axis", -1);
    if (rank < 1 || (axis != -1 && axis != rank - 1) || p->out[0].dtype != PARE_f32) return false;
    for (int i = 0; i < 2; i++)
        if (p->in[i].dtype != PARE_f32 || !pare_view_rowmajor(&p->in[i])) return false;
    return pare_view_rowmajor(&p->out[0]);
}

static pare_status grad_rows_run(const pare_call *c)
{
    const int64_t n = c->out[0].dim[c->out[0].rank - 1];
    const int64_t rows = n ? pare_view_count(&c->out[0]) / n : 0;
    grad_rows(c->out[0].data, c->in[0].data, c->in[1].data, rows, n,
              pare_node_int(c->node, "log", 0) != 0);
    return PARE_OK;
}

static const pare_kernel vec_softmax_grad = {
    .name = "vec_softmax_grad", .can = grad_rows_can, .run = grad_rows_run};
static const pare_kernel ref_softmax_grad = {.name = "ref_softmax_grad",
                                             .can = pare_ref_can_f32_f64,
                                             .run = grad_run,
                                             .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_softmax_grad[] = {&vec_softmax_grad, &pare_widened,
                                                    &ref_softmax_grad, NULL};

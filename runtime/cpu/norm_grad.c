/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of softmax and LayerNormalization, and softmax cross-entropy with its own. Plain
   kernels sum in double. Sums over rows (dScale, dBias) are made in a fixed number of slices, one
   after the other, and added in slice order, so that results do not depend on threads. */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/vmath.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- softmax: dX = Y (dY - sum dY Y); log form: dX = dY - e^Y sum dY --- */

#define LANE(type, ctype, exponential)                                                             \
    static void softmax_lane_##type(ctype *dx, int64_t sx, const ctype *dy, int64_t sd,            \
                                    const ctype *y, int64_t sy, int64_t n, bool log)               \
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
LANE(f32, float, expf)
LANE(f64, double, exp)

static pare_status softmax_run(const pare_call *c)
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
            softmax_lane_f64(to, dx->stride[a], d, dy->stride[a], v, y->stride[a], n, log);
        else
            softmax_lane_f32(to, dx->stride[a], d, dy->stride[a], v, y->stride[a], n, log);
    } while (pare_ref_next(&walk, index));
    return PARE_OK;
}

/* Lanes that are whole, one after another, in vectors. */
PARE_CLONES static void softmax_rows(float *restrict dx, const float *dy, const float *y,
                                     int64_t rows, int64_t n, bool log)
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

static bool softmax_rows_can(const pare_prep *p)
{
    const int rank = p->in[0].rank;
    const int64_t axis = pare_node_int(p->node, "axis", -1);
    if (rank < 1 || (axis != -1 && axis != rank - 1) || p->out[0].dtype != PARE_f32) return false;
    for (int i = 0; i < 2; i++)
        if (p->in[i].dtype != PARE_f32 || !pare_view_rowmajor(&p->in[i])) return false;
    return pare_view_rowmajor(&p->out[0]);
}

static pare_status softmax_rows_run(const pare_call *c)
{
    const int64_t n = c->out[0].dim[c->out[0].rank - 1];
    const int64_t rows = n ? pare_view_count(&c->out[0]) / n : 0;
    softmax_rows(c->out[0].data, c->in[0].data, c->in[1].data, rows, n,
                 pare_node_int(c->node, "log", 0) != 0);
    return PARE_OK;
}

/* --- LayerNormalization: with X' = (X - mean) inv, g = dY scale,
       dX = inv (g - mean g - X' mean (g X')), dScale = sum dY X', dBias = sum dY --- */

enum { SLICES = 8 };

typedef struct layer {
    int64_t rows, size;
    double epsilon;
} layer;

static bool layer_can(const pare_prep *p)
{
    if (p->in[0].dtype != PARE_f32 && p->in[0].dtype != PARE_f64) return false;
    for (int i = 0; i < 3; i++)
        if (p->in[i].dtype != p->in[0].dtype || !pare_view_rowmajor(&p->in[i]) ||
            (p->out[i].dtype && !pare_view_rowmajor(&p->out[i])))
            return false;
    return true;
}

static pare_status layer_prepare(pare_prep *p)
{
    layer *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->size = 1;
    s->epsilon = (double)pare_node_float(p->node, "epsilon", 1e-5f);
    for (int i = (int)pare_node_int(p->node, "axis", 0); i < p->in[1].rank; i++)
        s->size *= p->in[1].dim[i];
    s->rows = s->size ? pare_view_count(&p->in[1]) / s->size : 0;
    p->scratch = sizeof(double) * 2 * SLICES * (size_t)s->size;
    p->state = s;
    return PARE_OK;
}

#define ROWS(type, ctype)                                                                          \
    PARE_CLONES static void layer_row_##type(ctype *dx, const ctype *dy, const ctype *x,           \
                                             const ctype *scale, const layer *s, double *dscale,   \
                                             double *dbias)                                        \
    {                                                                                              \
        const int64_t n = s->size;                                                                 \
        double sum = 0, squares = 0, g_sum = 0, gx_sum = 0;                                        \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum +=              \
            (double)x[i];                                                                          \
        const double mean = sum / (double)n;                                                       \
        _Pragma("omp simd reduction(+ : squares)") for (int64_t i = 0; i < n; i++) squares +=      \
            ((double)x[i] - mean) * ((double)x[i] - mean);                                         \
        const double inv = 1 / sqrt(squares / (double)n + s->epsilon);                             \
        _Pragma("omp simd reduction(+ : g_sum, gx_sum)") for (int64_t i = 0; i < n; i++)           \
        {                                                                                          \
            const double norm = ((double)x[i] - mean) * inv, d = (double)dy[i];                    \
            const double g = d * (double)scale[i];                                                 \
            g_sum += g;                                                                            \
            gx_sum += g * norm;                                                                    \
            dscale[i] += d * norm;                                                                 \
            dbias[i] += d;                                                                         \
        }                                                                                          \
        if (!dx) return;                                                                           \
        g_sum /= (double)n;                                                                        \
        gx_sum /= (double)n;                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double norm = ((double)x[i] - mean) * inv;                                       \
            dx[i] = (ctype)(inv * ((double)dy[i] * (double)scale[i] - g_sum - norm * gx_sum));     \
        }                                                                                          \
    }
ROWS(f32, float)
ROWS(f64, double)

/* Rows of one slice. */
static void layer_slice(const pare_call *c, int slice)
{
    const layer *s = c->state;
    double *dscale = (double *)c->scratch + (int64_t)slice * 2 * s->size, *dbias = dscale + s->size;
    const bool wide = c->in[0].dtype == PARE_f64, has = c->out[0].dtype != PARE_NOTYPE;
    memset(dscale, 0, sizeof(double) * 2 * (size_t)s->size);
    for (int64_t r = s->rows * slice / SLICES; r < s->rows * (slice + 1) / SLICES; r++) {
        const int64_t at = r * s->size;
        if (wide)
            layer_row_f64(has ? (double *)c->out[0].data + at : NULL,
                          (const double *)c->in[0].data + at, (const double *)c->in[1].data + at,
                          c->in[2].data, s, dscale, dbias);
        else
            layer_row_f32(has ? (float *)c->out[0].data + at : NULL,
                          (const float *)c->in[0].data + at, (const float *)c->in[1].data + at,
                          c->in[2].data, s, dscale, dbias);
    }
}

static pare_status layer_run(const pare_call *c)
{
    const layer *s = c->state;
#pragma omp parallel for num_threads(c->threads) schedule(static) if (c->threads > 1)
    for (int slice = 0; slice < SLICES; slice++) layer_slice(c, slice);
    for (int which = 0; which < 2; which++) {
        const pare_view *to = &c->out[1 + which];
        if (!to->dtype) continue;
        for (int64_t i = 0; i < s->size; i++) {
            double sum = 0;
            for (int k = 0; k < SLICES; k++)
                sum += ((const double *)c->scratch)[((int64_t)k * 2 + which) * s->size + i];
            if (to->dtype == PARE_f64)
                ((double *)to->data)[i] = sum;
            else
                ((float *)to->data)[i] = (float)sum;
        }
    }
    return PARE_OK;
}

/* --- cross-entropy --- */

/* The label of a row: given, or the first largest logit. */
static pare_status label_of(const pare_call *c, int64_t row, int64_t *out)
{
    const pare_view *x = &c->in[0];
    int64_t classes = x->dim[1];
    if (c->in_count > 1 && c->in[1].dtype) {
        *out = pare_ref_get_int(&c->in[1], row * c->in[1].stride[0]);
        if (*out >= 0 && *out < classes) return PARE_OK;
        return PARE_FAIL_NODE(c->node, INPUT,
                              "label %" PRId64 " of sample %" PRId64 " is outside the %" PRId64
                              " classes of '%s'",
                              *out, row, classes, c->node->in[0]->name);
    }
    double best = -INFINITY;
    *out = 0;
    for (int64_t i = 0; i < classes; i++) {
        double v = pare_ref_get(x, row * x->stride[0] + i * x->stride[1]);
        if (v > best) best = v, *out = i;
    }
    return PARE_OK;
}

/* loss = mean over rows of ln sum e^x - x[label]; dx = (softmax x - 1[label]) / rows */
static pare_status cross_entropy_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *dx = &c->out[1];
    const int64_t rows = x->dim[0], classes = x->dim[1];
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t label, at = r * x->stride[0];
        double top = -INFINITY, sum = 0;
        PARE_TRY(label_of(c, r, &label));
        for (int64_t i = 0; i < classes; i++)
            top = fmax(top, pare_ref_get(x, at + i * x->stride[1]));
        for (int64_t i = 0; i < classes; i++)
            sum += exp(pare_ref_get(x, at + i * x->stride[1]) - top);
        loss += top + log(sum) - pare_ref_get(x, at + label * x->stride[1]);
        for (int64_t i = 0; dx->dtype && i < classes; i++) {
            double p = exp(pare_ref_get(x, at + i * x->stride[1]) - top) / sum;
            pare_ref_set(dx, r * dx->stride[0] + i * dx->stride[1],
                         (p - (i == label)) / (double)rows);
        }
    }
    pare_ref_set(&c->out[0], 0, loss / (double)rows);
    return PARE_OK;
}

static const pare_kernel vec_softmax_grad = {
    .name = "vec_softmax_grad", .can = softmax_rows_can, .run = softmax_rows_run};
static const pare_kernel ref_softmax_grad = {.name = "ref_softmax_grad",
                                             .can = pare_ref_can_f32_f64,
                                             .run = softmax_run,
                                             .flags = PARE_KERNEL_REF};
static const pare_kernel ref_layer_norm_grad = {.name = "ref_layer_norm_grad",
                                                .can = layer_can,
                                                .prepare = layer_prepare,
                                                .run = layer_run,
                                                .flags = PARE_KERNEL_REF};
static const pare_kernel ref_cross_entropy = {.name = "ref_cross_entropy",
                                              .can = pare_ref_can_f32_f64,
                                              .run = cross_entropy_run,
                                              .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_softmax_grad[] = {&vec_softmax_grad, &ref_softmax_grad, NULL};
const pare_kernel *const pare_cpu_layer_norm_grad[] = {&ref_layer_norm_grad, NULL};
const pare_kernel *const pare_cpu_cross_entropy[] = {&ref_cross_entropy, NULL};

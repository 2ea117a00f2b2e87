/* SPDX-License-Identifier: Apache-2.0 */
/* Resize (10 to 19).
   Nearest: one table of input positions an axis, elements copied. Linear and cubic: separable; each
   axis that changes has a table of taps (first position, weights), and the tensor is resized axis
   by axis in dense doubles. Weights: triangle and Keys' cubic (1981); with antialias the filter is
   stretched by 1 / scale when shrinking. Taps outside the tensor read its border. */
#include "runtime/base/size.h"
#include "runtime/cpu/copy.h"
#include "runtime/cpu/dense.h"
#include "runtime/cpu/fast.h"
#include "runtime/ops/resize.h"

#include <math.h>
#include <string.h>

typedef struct resize_state {
    pare_resize r;
    int64_t *at[PARE_MAX_RANK]; /* nearest: (out) input positions */
    pare_resize_axis axis[PARE_MAX_RANK];
    size_t half; /* doubles in each of the two buffers */
} resize_state;

static pare_status read(pare_prep *p, resize_state **out)
{
    resize_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    pare_shape x = {.rank = p->in[0].rank};
    memcpy(x.dim, p->in[0].dim, sizeof x.dim);
    PARE_TRY(pare_resize_read(p->node, &x, &s->r));
    if (!s->r.known)
        return PARE_FAIL_NODE(
            p->node, UNSUPPORTED,
            "its scales or sizes are computed while it runs; they must be constant");
    p->state = *out = s;
    return PARE_OK;
}

/* --- nearest --- */

static pare_status nearest_prepare(pare_prep *p)
{
    resize_state *s;
    PARE_TRY(read(p, &s));
    return pare_resize_positions(&s->r, p->arena, s->at);
}

/* Rows along the axis on which y is contiguous: copied whole where it does not change. */
static void nearest_rows(const resize_state *s, const pare_view *y, const pare_view *x, int inner,
                         int64_t first, int64_t last)
{
    size_t bytes = (size_t)pare_type(y->dtype)->bits / 8;
    int64_t n = y->dim[inner];
    bool whole = s->r.in[inner] == n && x->stride[inner] == 1;
    for (int64_t o = 0; whole && o < n; o++) whole = s->at[inner][o] == o;
    for (int64_t t = first; t < last; t++) {
        int64_t left = t, to = 0, from = 0;
        for (int a = y->rank - 1; a >= 0; a--) {
            if (a == inner) continue;
            int64_t i = left % y->dim[a];
            left /= y->dim[a];
            to += i * y->stride[a];
            from += s->at[a][i] * x->stride[a];
        }
        char *row = pare_ref_at(y, to);
        const char *source = pare_ref_at(x, from);
        if (whole)
            memcpy(row, source, (size_t)n * bytes);
        else
            for (int64_t o = 0; o < n; o++)
                memcpy(row + o * y->stride[inner] * (int64_t)bytes,
                       source + s->at[inner][o] * x->stride[inner] * (int64_t)bytes, bytes);
    }
}

static pare_status nearest_run(const pare_call *c)
{
    const resize_state *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int inner = 0;
    int64_t count = pare_view_count(y);
    if (!count) return PARE_OK;
    if (!y->rank) {
        pare_copy_view(y, x, 1);
        return PARE_OK;
    }
    for (int a = 0; a < y->rank; a++)
        if (y->dim[a] > 1 && (y->dim[inner] == 1 || y->stride[a] < y->stride[inner])) inner = a;
    int64_t rows = count / y->dim[inner], parts = c->threads > 1 && count > 32768 ? c->threads : 1;
#pragma omp parallel for num_threads((int)parts) schedule(static) if (parts > 1)
    for (int64_t t = 0; t < parts; t++)
        nearest_rows(s, y, x, inner, rows * t / parts, rows * (t + 1) / parts);
    return PARE_OK;
}

static bool nearest_can(const pare_prep *p)
{
    const pare_attr *mode = pare_node_attr(p->node, "mode");
    const pare_attr *coord = pare_node_attr(p->node, "coordinate_transformation_mode");
    bool crop = coord && coord->s.size == 18 && !memcmp(coord->s.data, "tf_crop_and_resize", 18);
    return pare_copy_can(p) && !crop &&
           (!mode || (mode->s.size && *(const char *)mode->s.data == 'n'));
}

/* --- linear and cubic --- */

static pare_status smooth_prepare(pare_prep *p)
{
    resize_state *s;
    PARE_TRY(read(p, &s));
    int64_t dims[PARE_MAX_RANK], most = 0, count;
    memcpy(dims, s->r.in, sizeof dims);
    for (int a = -1; a < s->r.rank; a++) {
        if (a >= 0) {
            dims[a] = s->r.out[a];
            PARE_TRY(pare_resize_taps(p->node, &s->r, a, p->arena, &s->axis[a]));
        }
        if (!pare_count_dims(dims, s->r.rank, &count) || count > INT64_MAX / 64)
            return PARE_FAIL_NODE(p->node, INPUT, "its dimensions overflow");
        if (count > most) most = count;
    }
    s->half = (size_t)most;
    p->scratch = 2 * s->half * sizeof(double);
    return PARE_OK;
}

/* x (outer, in, inner) to y (outer, out, inner). */
static void smooth_axis(double *y, const double *x, const pare_resize_axis *t, int64_t outer,
                        int64_t in, int64_t out, int64_t inner, double extrapolation, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t row = 0; row < outer * out; row++) {
        int64_t o = row % out;
        const double *from = x + row / out * in * inner, *w = t->weight + o * t->count;
        double *to = y + row * inner;
        for (int64_t i = 0; i < inner; i++) to[i] = t->outside[o] ? extrapolation : 0;
        for (int k = 0; k < t->count && !t->outside[o]; k++) {
            int64_t at = t->first[o] + k;
            at = at < 0 ? 0 : at >= in ? in - 1 : at;
            for (int64_t i = 0; i < inner; i++) to[i] += w[k] * from[at * inner + i];
        }
    }
}

/* An axis resized later must not mix extrapolated values: they are written once more at the end. */
static void extrapolate(const resize_state *s, double *y)
{
    int64_t index[PARE_MAX_RANK] = {0}, at = 0;
    pare_view v = {.rank = s->r.rank};
    memcpy(v.dim, s->r.out, sizeof v.dim);
    do {
        bool outside = false;
        for (int a = 0; a < s->r.rank; a++)
            outside = outside || (s->axis[a].count && s->axis[a].outside[index[a]]);
        if (outside) y[at] = (double)s->r.extrapolation;
        at++;
    } while (pare_ref_next(&v, index));
}

static pare_status smooth_run(const pare_call *c)
{
    const resize_state *s = c->state;
    double *x = c->scratch, *y = x + s->half;
    int64_t outer = 1;
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    pare_dense_load(x, &c->in[0], 0);
    for (int a = 0; a < s->r.rank; a++) {
        int64_t inner = 1;
        for (int b = a + 1; b < s->r.rank; b++) inner *= s->r.in[b];
        if (s->axis[a].count) {
            smooth_axis(y, x, &s->axis[a], outer, s->r.in[a], s->r.out[a], inner,
                        (double)s->r.extrapolation, c->threads);
            double *swap = x;
            x = y;
            y = swap;
        }
        outer *= s->r.out[a];
    }
    if (s->r.coord == PARE_TF_CROP_AND_RESIZE) extrapolate(s, x);
    bool whole = !pare_type_is_float(c->out[0].dtype);
    for (int64_t i = 0; whole && i < pare_view_count(&c->out[0]); i++) {
        double low = c->out[0].dtype == PARE_s8 ? -128 : 0, high = low + 255, v = rint(x[i]);
        x[i] = v < low ? low : v > high ? high : v;
    }
    pare_dense_store(&c->out[0], x);
    return PARE_OK;
}

static bool smooth_can(const pare_prep *p)
{
    pare_dtype t = p->in[0].dtype;
    return pare_type_is_float(t) || t == PARE_s8 || t == PARE_u8;
}

/* --- linear and cubic, dense f32 in one order of axes: in f32, innermost axis first --- */

typedef struct vec_axis {
    int64_t outer, in, out, inner; /* elements around the axis when its turn comes */
    int taps;
    const int64_t *at;   /* (out, taps) input positions, inside the tensor */
    const float *weight; /* (out, taps) */
} vec_axis;

typedef struct vec_axes {
    int count;
    vec_axis axis[PARE_MAX_RANK]; /* in the order they are resized */
    size_t half;                  /* floats of each of the two buffers */
} vec_axes;

/* Axes from the outermost in memory on; false where v is not dense. */
static bool memory_order(const pare_view *v, int *order)
{
    int64_t step = 1;
    for (int i = 0; i < v->rank; i++) order[i] = i;
    for (int i = 1; i < v->rank; i++)
        for (int j = i; j > 0 && v->stride[order[j]] > v->stride[order[j - 1]]; j--) {
            const int swap = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swap;
        }
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->dim[order[i]] != 1 && v->stride[order[i]] != step) return false;
        step *= v->dim[order[i]];
    }
    return true;
}

static pare_status vec_axis_make(pare_prep *p, const resize_state *s, int a, vec_axis *to)
{
    pare_resize_axis t = {0};
    PARE_TRY(pare_resize_taps(p->node, &s->r, a, p->arena, &t));
    if (!t.count) return PARE_OK;
    const size_t n = (size_t)to->out * (size_t)t.count;
    int64_t *at = pare_arena_alloc(p->arena, n + 1, sizeof *at);
    float *weight = pare_arena_alloc(p->arena, n + 1, sizeof *weight);
    if (!at || !weight) return PARE_MEMORY;
    for (int64_t o = 0; o < to->out; o++)
        for (int k = 0; k < t.count; k++) {
            const int64_t i = t.first[o] + k;
            at[o * t.count + k] = i < 0 ? 0 : i >= to->in ? to->in - 1 : i;
            weight[o * t.count + k] = (float)t.weight[o * t.count + k];
        }
    to->taps = t.count;
    to->at = at;
    to->weight = weight;
    return PARE_OK;
}

static pare_status vec_resize_prepare(pare_prep *p)
{
    resize_state *s;
    int order[PARE_MAX_RANK];
    int64_t dims[PARE_MAX_RANK];
    PARE_TRY(read(p, &s));
    vec_axes *v = pare_arena_alloc(p->arena, 1, sizeof *v);
    if (!v) return PARE_MEMORY;
    memory_order(&p->in[0], order);
    memcpy(dims, s->r.in, sizeof dims);
    *v = (vec_axes){.count = 0};
    for (int i = s->r.rank - 1; i >= 0; i--) {
        const int a = order[i];
        int64_t total;
        vec_axis *to = &v->axis[v->count];
        *to = (vec_axis){.outer = 1, .in = s->r.in[a], .out = s->r.out[a], .inner = 1};
        PARE_TRY(vec_axis_make(p, s, a, to));
        if (!to->taps) continue; /* the axis stays as it is */
        v->count++;
        dims[a] = s->r.out[a];
        for (int j = 0; j < i; j++) to->outer *= dims[order[j]];
        for (int j = i + 1; j < s->r.rank; j++) to->inner *= dims[order[j]];
        if (!pare_count_dims(dims, s->r.rank, &total) || total > INT64_MAX / 64)
            return PARE_FAIL_NODE(p->node, INPUT, "its dimensions overflow");
        if ((size_t)total > v->half) v->half = (size_t)total;
    }
    p->scratch = 2 * v->half * sizeof(float);
    p->state = v;
    return PARE_OK;
}

/* Rows [first, last) of (outer, out); one row has inner elements. */
PARE_CLONES static void vec_rows(const vec_axis *t, float *y, const float *x, int64_t first,
                                 int64_t last)
{
    for (int64_t row = first; row < last; row++) {
        const int64_t o = row % t->out, *at = t->at + o * t->taps;
        const float *from = x + row / t->out * t->in * t->inner, *w = t->weight + o * t->taps;
        float *to = y + row * t->inner;
        if (t->inner == 1) {
            float sum = 0;
            for (int k = 0; k < t->taps; k++) sum += w[k] * from[at[k]];
            to[0] = sum;
            continue;
        }
        for (int64_t i = 0; i < t->inner; i++) to[i] = w[0] * from[at[0] * t->inner + i];
        for (int k = 1; k < t->taps; k++)
            for (int64_t i = 0; i < t->inner; i++) to[i] += w[k] * from[at[k] * t->inner + i];
    }
}

static pare_status vec_resize_run(const pare_call *c)
{
    const vec_axes *v = c->state;
    const float *x = c->in[0].data;
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    if (!v->count) pare_copy_view(&c->out[0], &c->in[0], c->threads);
    for (int a = 0; a < v->count; a++) {
        const vec_axis *t = &v->axis[a];
        float *y = a == v->count - 1 ? c->out[0].data : (float *)c->scratch + (a % 2) * v->half;
        const int64_t rows = t->outer * t->out;
        const int parts = c->threads > 1 && rows * t->inner > 1 << 15 ? c->threads : 1;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
        for (int i = 0; i < parts; i++) vec_rows(t, y, x, rows * i / parts, rows * (i + 1) / parts);
        x = y;
    }
    return PARE_OK;
}

static bool vec_resize_can(const pare_prep *p)
{
    int in[PARE_MAX_RANK], out[PARE_MAX_RANK];
    const pare_view *x = &p->in[0], *y = &p->out[0];
    pare_resize r;
    pare_shape shape = {.rank = x->rank};
    memcpy(shape.dim, x->dim, sizeof shape.dim);
    if (x->dtype != PARE_f32 || !memory_order(x, in) || !memory_order(y, out)) return false;
    if (pare_resize_read(p->node, &shape, &r) != PARE_OK) {
        pare_ctx_clear(p->ctx);
        return false;
    }
    for (int i = 0; i < x->rank; i++)
        if (in[i] != out[i]) return false;
    return r.known && r.mode != PARE_NEAREST && r.coord != PARE_TF_CROP_AND_RESIZE;
}

static const pare_kernel vec_resize = {.name = "vec_resize",
                                       .can = vec_resize_can,
                                       .prepare = vec_resize_prepare,
                                       .run = vec_resize_run};
static const pare_kernel copy_resize_nearest = {.name = "copy_resize_nearest",
                                                .can = nearest_can,
                                                .prepare = nearest_prepare,
                                                .run = nearest_run,
                                                .flags = PARE_KERNEL_REF};
static const pare_kernel ref_resize = {.name = "ref_resize",
                                       .can = smooth_can,
                                       .prepare = smooth_prepare,
                                       .run = smooth_run,
                                       .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_resize[] = {&copy_resize_nearest, &vec_resize, &pare_widened,
                                              &ref_resize, NULL};

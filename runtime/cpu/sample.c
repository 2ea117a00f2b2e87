/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample (22) and AffineGrid (20) in double. The pixels that a value reads, and
   their weights, are found once for all channels. */
#include "runtime/cpu/sample.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/sample.h"

#include <math.h>

#define SAMPLE(type, memory, calc, load, store)                                                    \
    static void sample_##type(const pare_pixels_of *p, const void *x, void *y, int64_t step)       \
    {                                                                                              \
        const memory *plane = x;                                                                   \
        memory *to = y;                                                                            \
        for (int64_t i = 0; i < p->count; i++) {                                                   \
            double sum = 0;                                                                        \
            for (int32_t k = p->first[i]; k < p->first[i + 1]; k++)                                \
                sum += p->pixel[k].weight * (double)load(plane[p->pixel[k].at]);                   \
            to[i * step] = store((calc)sum);                                                       \
        }                                                                                          \
    }
PARE_REF_FLOATS(SAMPLE)

pare_sample_fn pare_sample_for(pare_dtype type)
{
    switch (type) {
    case PARE_f32: return sample_f32;
    case PARE_f64: return sample_f64;
    case PARE_f16: return sample_f16;
    case PARE_bf16: return sample_bf16;
    default: return NULL;
    }
}

/* --- GridSample --- */

enum { BLOCK = 128, MOST_PIXELS = 64 }; /* values at a time; pixels of one, cubic in 3 axes */

typedef struct grid_sample {
    pare_grid_sample s;
    int axes;       /* spatial */
    int64_t dim[3]; /* of X, in memory order */
    int64_t pixels; /* of a plane of X */
    int64_t values; /* of a plane of Y */
} grid_sample;

/* Where coordinates stay: the centres of the outer pixels, or their edges. */
static double low(const grid_sample *g) { return g->s.align_corners ? 0 : -0.5; }
static double high(const grid_sample *g, int axis)
{
    return (double)g->dim[axis] - (g->s.align_corners ? 1 : 0.5);
}

/* -1 .. 1 to pixels; what is no number is far outside. */
static double denormal(const grid_sample *g, int axis, double v)
{
    const double n = (double)g->dim[axis];
    v = g->s.align_corners ? (v + 1) / 2 * (n - 1) : ((v + 1) * n - 1) / 2;
    return v > 1e9 ? 1e9 : v >= -1e9 ? v : -1e9;
}

static double reflected(double v, double from, double to)
{
    const double length = to - from;
    if (length <= 0) return from;
    if (v >= from && v <= to) return v;
    const double over = v < from ? from - v : v - to, times = floor(over / length);
    const double rest = over - times * length;
    const bool at_from = (v < from) == (fmod(times, 2) == 0);
    return at_from ? from + rest : to - rest;
}

/* The pixel that stands for place i of an axis; -1: none, it counts as 0. */
static int64_t place(const grid_sample *g, int axis, double i)
{
    const double last = (double)g->dim[axis] - 1;
    if (i >= 0 && i <= last) return (int64_t)i;
    if (g->s.padding == PARE_GRID_ZEROS || last < 0) return -1;
    if (g->s.padding == PARE_GRID_REFLECTION) i = trunc(reflected(i, low(g), high(g, axis)));
    return (int64_t)fmin(fmax(i, 0), last);
}

/* Cubic convolution with a = -0.75 (Keys 1981), for t in [0, 1). */
static void cubic(double t, double w[4])
{
    const double a = -0.75;
    for (int i = 0; i < 4; i++) {
        const double d = fabs(t + 1 - i);
        w[i] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

/* The places along one axis and their weights; how many. A cubic one outside the border keeps its
   weights, as in PyTorch and ONNX Runtime: its places are moved to the border one by one. */
static int along(const grid_sample *g, int axis, double v, int64_t at[4], double w[4])
{
    v = denormal(g, axis, v);
    if (g->s.mode == PARE_GRID_NEAREST) v = rint(v);
    if (g->s.padding == PARE_GRID_BORDER && g->s.mode != PARE_GRID_CUBIC)
        v = fmin(fmax(v, 0), (double)g->dim[axis] - 1);
    if (g->s.padding == PARE_GRID_REFLECTION) v = reflected(v, low(g), high(g, axis));
    const double whole = floor(v);
    int count = 2, from = 0;
    w[0] = 1 - (v - whole);
    w[1] = v - whole;
    if (g->s.mode == PARE_GRID_NEAREST) {
        count = 1;
        w[0] = 1;
    } else if (g->s.mode == PARE_GRID_CUBIC) {
        count = 4;
        from = -1;
        cubic(v - whole, w);
    }
    for (int i = 0; i < count; i++) at[i] = place(g, axis, whole + from + i);
    return count;
}

/* The pixels of one value, whose grid has the last axis first. */
static int32_t pixels_of(const grid_sample *g, const double *grid, pare_pixel *out)
{
    int64_t at[3][4];
    double w[3][4];
    int n[3] = {1, 1, 1};
    int32_t count = 0;
    for (int a = 0; a < g->axes; a++) n[a] = along(g, a, grid[g->axes - 1 - a], at[a], w[a]);
    for (int k = 0; k < n[0] * n[1] * n[2]; k++) {
        const int step[3] = {k / (n[1] * n[2]), k / n[2] % n[1], k % n[2]};
        pare_pixel p = {0, 1};
        bool inside = true;
        for (int a = 0; a < g->axes; a++) {
            inside = inside && at[a][step[a]] >= 0;
            p.at = p.at * g->dim[a] + at[a][step[a]];
            p.weight *= w[a][step[a]];
        }
        if (inside) out[count++] = p;
    }
    return count;
}

static pare_status grid_sample_prepare(pare_prep *p)
{
    grid_sample *g = pare_arena_alloc(p->arena, 1, sizeof *g);
    const pare_view *x = &p->in[0];
    if (!g) return PARE_MEMORY;
    PARE_TRY(pare_grid_sample_of(p->node, &g->s));
    g->axes = x->rank - 2;
    g->pixels = g->values = 1;
    for (int a = 0; a < g->axes; a++) {
        g->dim[a] = x->dim[2 + a];
        g->pixels *= x->dim[2 + a];
        g->values *= p->out[0].dim[2 + a];
    }
    p->state = g;
    p->scratch = (size_t)p->threads *
                 (BLOCK * MOST_PIXELS * sizeof(pare_pixel) + (BLOCK + 2) * sizeof(int32_t));
    return PARE_OK;
}

/* Values first .. first + count - 1 of all planes of picture n. */
static void grid_block(const pare_call *c, int64_t n, int64_t first, int64_t count, char *scratch)
{
    const grid_sample *g = c->state;
    const pare_view *x = &c->in[0], *grid = &c->in[1], *y = &c->out[0];
    pare_pixel *pixel = (pare_pixel *)scratch;
    int32_t *start = (int32_t *)(pixel + (size_t)BLOCK * MOST_PIXELS);
    const size_t size = (size_t)pare_type(x->dtype)->bits / 8;
    start[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        double at[3];
        for (int a = 0; a < g->axes; a++)
            at[a] = pare_ref_get(grid, (n * g->values + first + i) * g->axes + a);
        start[i + 1] = start[i] + pixels_of(g, at, pixel + start[i]);
    }
    const pare_pixels_of p = {pixel, start, count};
    for (int64_t k = n * x->dim[1]; k < (n + 1) * x->dim[1]; k++)
        pare_sample_for(x->dtype)(&p, (const char *)x->data + (size_t)(k * g->pixels) * size,
                                  (char *)y->data + (size_t)(k * g->values + first) * size, 1);
}

static pare_status grid_sample_run(const pare_call *c)
{
    const grid_sample *g = c->state;
    const int64_t blocks = (g->values + BLOCK - 1) / BLOCK, all = c->in[0].dim[0] * blocks;
    const size_t room = BLOCK * MOST_PIXELS * sizeof(pare_pixel) + (BLOCK + 2) * sizeof(int32_t);
    if (!pare_view_count(&c->out[0])) return PARE_OK;
    const int64_t parts = c->threads < all ? c->threads : all;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t b = all * part / parts; b < all * (part + 1) / parts; b++) {
            const int64_t first = b % blocks * BLOCK;
            const int64_t left = g->values - first;
            grid_block(c, b / blocks, first, left < BLOCK ? left : BLOCK,
                       (char *)c->scratch + (size_t)part * room);
        }
    return PARE_OK;
}

static const pare_kernel ref_grid_sample = {.name = "ref_grid_sample",
                                            .can = pare_ref_can_floats,
                                            .prepare = grid_sample_prepare,
                                            .run = grid_sample_run,
                                            .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_grid_sample[] = {&ref_grid_sample, NULL};

/* --- AffineGrid --- */

static double grid_place(int64_t i, int64_t n, bool align)
{
    if (!align) return (double)(2 * i + 1) / (double)n - 1;
    return n > 1 ? 2 * (double)i / (double)(n - 1) - 1 : 0;
}

static pare_status affine_grid_run(const pare_call *c)
{
    const pare_view *theta = &c->in[0], *y = &c->out[0];
    const bool align = pare_node_int(c->node, "align_corners", 0);
    const int axes = y->rank - 2;
    int64_t index[PARE_MAX_RANK] = {0};
    if (!pare_view_count(y)) return PARE_OK;
    do {
        const int64_t row = (index[0] * axes + index[axes + 1]) * (axes + 1);
        double sum = pare_ref_get(theta, row + axes);
        for (int k = 0; k < axes; k++) /* x is the last axis */
            sum +=
                pare_ref_get(theta, row + k) * grid_place(index[axes - k], y->dim[axes - k], align);
        pare_ref_set(y, pare_ref_offset(y, index), sum);
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

static const pare_kernel ref_affine_grid = {.name = "ref_affine_grid",
                                            .can = pare_ref_can_floats,
                                            .run = affine_grid_run,
                                            .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_affine_grid[] = {&ref_affine_grid, NULL};

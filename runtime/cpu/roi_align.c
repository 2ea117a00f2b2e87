/* SPDX-License-Identifier: Apache-2.0 */
/* RoiAlign (22; He et al. 2017, Mask R-CNN) in double. A sample's weight is a product of one of its
   row and one of its column, so that a bin's mean is a sum over the rows and columns it touches:
   both are listed once for all channels. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/infer.h"
#include "runtime/ops/sample.h"

#include <inttypes.h>
#include <math.h>

/* A row or column with its weight. */
typedef struct line {
    int64_t at;
    double weight;
} line;

/* Those of each bin of a box along one axis: first[b] .. first[b + 1] - 1. */
typedef struct lines {
    line *line;
    int32_t *first;
    int64_t samples; /* of a bin */
} lines;

/* The two lines around a place and the second one's share; false: outside. */
static bool neighbours(double v, int64_t n, int64_t at[2], double *share)
{
    if (!(v >= -1 && v <= (double)n)) return false;
    v = fmax(v, 0);
    at[0] = (int64_t)v;
    at[1] = at[0] + 1;
    if (at[0] >= n - 1) {
        at[0] = at[1] = n - 1;
        v = (double)at[0];
    }
    *share = v - (double)at[0];
    return true;
}

/* Adds to the bin's last line where it is the same one and weights are summed. */
static int32_t add(lines *l, int32_t count, int32_t first, int64_t at, double weight, bool max)
{
    for (int32_t k = count - 1; !max && k >= first && k >= count - 2; k--)
        if (l->line[k].at == at) {
            l->line[k].weight += weight;
            return count;
        }
    l->line[count] = (line){at, weight};
    return count + 1;
}

/* Lists the lines of `bins` bins of this length from `start` on, over an axis of n. Of samples
   outside, which count as 0, one is listed for the largest product. */
static void list_lines(lines *l, double start, double length, int64_t bins, int64_t n,
                       int64_t sampling, bool max)
{
    const double wanted = ceil(length);
    int32_t count = 0;
    l->samples = sampling > 0 ? sampling : wanted > 0 ? (int64_t)fmin(wanted, 0x1p40) : 0;
    if (!isfinite(start) || !isfinite(length)) l->samples = 0;
    const double step = l->samples ? length / (double)l->samples : 0;
    for (int64_t b = 0; b < bins; b++) {
        const int32_t first = l->first[b] = count;
        const double from = start + (double)b * length;
        bool outside = false;
        int64_t i = 0, end = l->samples;
        if (step > 0) { /* samples far outside are not walked over */
            const double before = (-2 - from) / step, after = ((double)n + 2 - from) / step;
            i = before > 0 ? (int64_t)fmin(before, (double)end) : 0;
            end = after < 0 ? i : after < (double)end ? (int64_t)after + 1 : end;
            outside = i > 0 || end < l->samples;
        }
        for (; i < end; i++) {
            int64_t at[2];
            double share;
            if (!neighbours(from + ((double)i + 0.5) * step, n, at, &share)) {
                outside = true;
                continue;
            }
            count = add(l, count, first, at[0], 1 - share, max);
            count = add(l, count, first, at[1], share, max);
        }
        if (outside && max) l->line[count++] = (line){0, 0};
    }
    l->first[bins] = count;
}

/* Lines that all bins along an axis of n list at most: samples inside are half a line apart or
   more. */
static int64_t most_lines(const pare_roi_align *r, int64_t bins, int64_t n)
{
    return r->sampling > 0 ? bins * (2 * r->sampling + 1) : 4 * (n + 6) + 5 * bins;
}

static size_t room_of(const pare_roi_align *r, const pare_view *x)
{
    const int64_t rows = most_lines(r, r->height, x->dim[2]);
    const int64_t columns = most_lines(r, r->width, x->dim[3]);
    return (size_t)(rows + columns) * sizeof(line) +
           (size_t)(r->height + r->width + 4) * sizeof(int64_t);
}

typedef struct box {
    lines row, column;
    int64_t width; /* of X */
} box;

/* The sum of weighted elements of a bin's columns, and the largest of them times the row's. */
#define PLANE(type, memory, calc, load, store)                                                     \
    static double mean_##type(const line *l, const line *end, const memory *row)                   \
    {                                                                                              \
        double sum = 0;                                                                            \
        for (; l < end; l++) sum += l->weight * (double)load(row[l->at]);                          \
        return sum;                                                                                \
    }                                                                                              \
    static double most_##type(const line *l, const line *end, const memory *row, double weight,    \
                              double most)                                                         \
    {                                                                                              \
        for (; l < end; l++) most = fmax(most, l->weight * (double)load(row[l->at]) * weight);     \
        return most;                                                                               \
    }                                                                                              \
    static void plane_##type(const box *b, const pare_roi_align *r, const void *x, void *y)        \
    {                                                                                              \
        memory *to = y;                                                                            \
        const double n = fmax(1, (double)b->row.samples * (double)b->column.samples);              \
        for (int64_t i = 0; i < r->height * r->width; i++) {                                       \
            const int32_t *of_row = b->row.first + i / r->width;                                   \
            const int32_t *of_column = b->column.first + i % r->width;                             \
            const line *first = b->column.line + of_column[0];                                     \
            const line *end = b->column.line + of_column[1];                                       \
            double all = 0, most = -INFINITY;                                                      \
            for (int32_t k = of_row[0]; k < of_row[1]; k++) {                                      \
                const memory *row = (const memory *)x + b->row.line[k].at * b->width;              \
                const double weight = b->row.line[k].weight;                                       \
                if (r->max)                                                                        \
                    most = most_##type(first, end, row, weight, most);                             \
                else                                                                               \
                    all += mean_##type(first, end, row) * weight;                                  \
            }                                                                                      \
            to[i] = store((calc)(r->max ? (most == -INFINITY ? 0 : most) : all / n));              \
        }                                                                                          \
    }
PARE_REF_FLOATS(PLANE)

typedef void (*plane_fn)(const box *b, const pare_roi_align *r, const void *x, void *y);
static const plane_fn planes[] = {[PARE_f32] = plane_f32,
                                  [PARE_f64] = plane_f64,
                                  [PARE_f16] = plane_f16,
                                  [PARE_bf16] = plane_bf16};

/* The box n's lines in scratch. */
static box box_of(const pare_call *c, const pare_roi_align *r, int64_t n, char *scratch)
{
    const pare_view *x = &c->in[0];
    const int64_t bins[2] = {r->height, r->width};
    double start[2], length[2];
    box b = {.width = x->dim[3]};
    for (int a = 0; a < 2; a++) { /* rows, then columns; a box is x1, y1, x2, y2 */
        const double shift = r->half_pixel ? 0.5 : 0, scale = (double)r->scale;
        start[a] = pare_ref_get(&c->in[1], n * 4 + 1 - a) * scale - shift;
        length[a] = pare_ref_get(&c->in[1], n * 4 + 3 - a) * scale - shift - start[a];
        if (!r->half_pixel) length[a] = fmax(length[a], 1);
        length[a] /= (double)bins[a];
    }
    b.row.line = (line *)scratch;
    b.column.line = b.row.line + most_lines(r, r->height, x->dim[2]);
    b.row.first = (int32_t *)(b.column.line + most_lines(r, r->width, x->dim[3]));
    b.column.first = b.row.first + r->height + 1;
    list_lines(&b.row, start[0], length[0], bins[0], x->dim[2], r->sampling, r->max);
    list_lines(&b.column, start[1], length[1], bins[1], x->dim[3], r->sampling, r->max);
    return b;
}

static pare_status roi_align_prepare(pare_prep *p)
{
    pare_roi_align *r = pare_arena_alloc(p->arena, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    PARE_TRY(pare_roi_align_of(p->node, r));
    p->state = r;
    p->scratch = (size_t)p->threads * room_of(r, &p->in[0]);
    return PARE_OK;
}

/* Boxes first .. last - 1. */
static void run_boxes(const pare_call *c, int64_t first, int64_t last, char *scratch)
{
    const pare_roi_align *r = c->state;
    const pare_view *x = &c->in[0];
    const size_t size = (size_t)pare_type(x->dtype)->bits / 8;
    const int64_t channels = x->dim[1];
    const size_t plane = (size_t)(x->dim[2] * x->dim[3]) * size;
    const size_t bins = (size_t)(r->height * r->width) * size;
    for (int64_t n = first; n < last; n++) {
        const box b = box_of(c, r, n, scratch);
        const int64_t batch = pare_ref_get_int(&c->in[2], n);
        for (int64_t k = 0; k < channels; k++)
            planes[x->dtype](&b, r, (const char *)x->data + (size_t)(batch * channels + k) * plane,
                             (char *)c->out[0].data + (size_t)(n * channels + k) * bins);
    }
}

static pare_status roi_align_run(const pare_call *c)
{
    const pare_roi_align *r = c->state;
    const int64_t boxes = c->in[1].dim[0];
    for (int64_t n = 0; n < boxes; n++) {
        const int64_t batch = pare_ref_get_int(&c->in[2], n);
        if (batch < 0 || batch >= c->in[0].dim[0])
            return PARE_FAIL_CALL(c, INPUT,
                                  "batch index %" PRId64 " in '%s' is outside %" PRId64 " pictures",
                                  batch, c->node->in[2]->name, c->in[0].dim[0]);
    }
    if (!pare_view_count(&c->out[0]) || !pare_view_count(&c->in[0])) return PARE_OK;
    const int64_t parts = c->threads < boxes ? c->threads : boxes;
#pragma omp parallel for num_threads(parts) schedule(static) if (parts > 1)
    for (int64_t part = 0; part < parts; part++)
        run_boxes(c, boxes * part / parts, boxes * (part + 1) / parts,
                  (char *)c->scratch + (size_t)part * room_of(r, &c->in[0]));
    return PARE_OK;
}

static const pare_kernel ref_roi_align = {.name = "ref_roi_align",
                                          .can = pare_ref_can_floats,
                                          .prepare = roi_align_prepare,
                                          .run = roi_align_run,
                                          .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_roi_align[] = {&ref_roi_align, NULL};

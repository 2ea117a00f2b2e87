/* SPDX-License-Identifier: Apache-2.0 */
/* Compress (11), Unique (11) and NonMaxSuppression (11). What each selects is found when its
   outputs are measured. */
#include "runtime/cpu/copy.h"
#include "runtime/ops/infer.h"

#include <math.h>
#include <stdlib.h>

/* A view as one axis of whole slices: all elements, or along an axis. */
static int64_t slices_of(const pare_view *x, int axis)
{
    return axis < 0 ? pare_view_count(x) : x->dim[axis];
}

static int axis_of(const pare_node *node, int rank)
{
    return pare_node_attr(node, "axis") ? pare_node_axis(node, 0, rank) : -1;
}

/* Slice i of x in its own memory order; without an axis one element of a row-major view. */
static pare_view slice_at(const pare_view *x, int axis, int64_t i)
{
    pare_view v = *x;
    if (axis < 0) {
        v.rank = 0;
        v.data = pare_ref_at(x, i);
        return v;
    }
    v.data = pare_ref_at(x, i * x->stride[axis]);
    for (int a = axis; a + 1 < v.rank; a++) {
        v.dim[a] = v.dim[a + 1];
        v.stride[a] = v.stride[a + 1];
    }
    v.rank--;
    return v;
}

static void slice_copy(const pare_view *y, int64_t to, const pare_view *x, int64_t from, int axis)
{
    const pare_view src = slice_at(x, axis, from), dst = slice_at(y, axis, to);
    pare_copy_view(&dst, &src, 1);
}

static pare_shape slices_shape(const pare_view *x, int axis, int64_t count)
{
    pare_shape s = {.rank = 1, .dim = {count}};
    if (axis < 0) return s;
    s.rank = x->rank;
    for (int i = 0; i < x->rank; i++) s.dim[i] = i == axis ? count : x->dim[i];
    return s;
}

/* --- Compress 11: slices where the condition, which may be shorter, is true --- */

static int64_t compress(const pare_call *c, int axis, const pare_view *y)
{
    const pare_view *x = &c->in[0], *condition = &c->in[1];
    int64_t n = slices_of(x, axis), found = 0;
    if (condition->dim[0] < n) n = condition->dim[0];
    for (int64_t i = 0; i < n; i++) {
        if (!*(const uint8_t *)pare_ref_at(condition, i * condition->stride[0])) continue;
        if (y) slice_copy(y, found, x, i, axis);
        found++;
    }
    return found;
}

static pare_status compress_measure(pare_call *c, pare_shape *out)
{
    int axis = axis_of(c->node, c->in[0].rank);
    out[0] = slices_shape(&c->in[0], axis, compress(c, axis, NULL));
    return PARE_OK;
}

static pare_status compress_run(const pare_call *c)
{
    compress(c, axis_of(c->node, c->in[0].rank), &c->out[0]);
    return PARE_OK;
}

/* --- Unique 11 --- */

typedef struct slices {
    const pare_view *x;
    int axis;
    bool real;
} slices;

/* -1, 0, 1: of numbers, NaN after all others and equal to itself. */
static int numbers_compare(const slices *s, const pare_view *a, int64_t i, const pare_view *b,
                           int64_t j)
{
    if (s->real) {
        double x = pare_ref_get(a, i), y = pare_ref_get(b, j);
        if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
        return (x > y) - (x < y);
    }
    int64_t x = pare_ref_get_int(a, i), y = pare_ref_get_int(b, j);
    if (s->x->dtype == PARE_u64) return ((uint64_t)x > (uint64_t)y) - ((uint64_t)x < (uint64_t)y);
    return (x > y) - (x < y);
}

/* Element by element in row-major order. */
static int slices_compare(const slices *s, int64_t i, int64_t j)
{
    const pare_view a = slice_at(s->x, s->axis, i), b = slice_at(s->x, s->axis, j);
    int64_t index[PARE_MAX_RANK] = {0};
    if (!pare_view_count(&a)) return 0;
    do {
        int64_t at = pare_ref_offset(&a, index);
        int order = numbers_compare(s, &a, at, &b, at);
        if (order) return order;
    } while (pare_ref_next(&a, index));
    return 0;
}

/* Positions in order of their slices, equal ones in their own: bottom-up merge sort. */
static int64_t *slices_sort(const slices *s, int64_t *list, int64_t *spare, int64_t n)
{
    for (int64_t i = 0; i < n; i++) list[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t from = 0; from < n; from += 2 * width) {
            int64_t mid = from + width < n ? from + width : n;
            int64_t end = from + 2 * width < n ? from + 2 * width : n, i = from, j = mid;
            for (int64_t k = from; k < end; k++) {
                bool left = i < mid && (j >= end || slices_compare(s, list[i], list[j]) <= 0);
                spare[k] = left ? list[i++] : list[j++];
            }
        }
        int64_t *t = list;
        list = spare;
        spare = t;
    }
    return list;
}

/* What is found: of group g, in order of the output, its first slice and how many it has; of each
   slice, its group. */
typedef struct groups {
    int64_t count;
    int64_t *first, *size, *of; /* (slices) each */
} groups;

static int ascending(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Groups numbered by their first appearance instead of by value. */
static void groups_by_appearance(groups *g, int64_t *spare, int64_t n)
{
    qsort(g->first, (size_t)g->count, sizeof *g->first, ascending);
    int64_t next = 0;
    for (int64_t i = 0; i < n; i++)
        if (next < g->count && g->first[next] == i) spare[g->of[i]] = next++;
    for (int64_t i = 0; i < g->count; i++) g->size[i] = 0;
    for (int64_t i = 0; i < n; i++) g->size[g->of[i] = spare[g->of[i]]]++;
}

static void groups_find(const slices *s, bool sorted, int64_t n, int64_t *memory, groups *g)
{
    int64_t *order = slices_sort(s, memory, memory + n, n);
    int64_t *spare = order == memory ? memory + n : memory;
    *g = (groups){.first = memory + 2 * n, .size = memory + 3 * n, .of = memory + 4 * n};
    for (int64_t k = 0; k < n; k++) {
        if (!k || slices_compare(s, order[k - 1], order[k])) {
            g->first[g->count] = order[k];
            g->size[g->count++] = 0;
        }
        g->size[g->count - 1]++;
        g->of[order[k]] = g->count - 1;
    }
    if (!sorted) groups_by_appearance(g, spare, n);
}

enum { UNIQUE_LISTS = 5 }; /* of as many numbers as there are slices */

/* The groups, and after them the memory of their lists. */
static pare_status unique_find(const pare_call *c, int axis, groups **out)
{
    const pare_view *x = &c->in[0];
    const slices s = {x, axis, pare_type_is_float(x->dtype)};
    int64_t n = slices_of(x, axis);
    groups *g = pare_alloc(c->ctx, 1, sizeof *g + UNIQUE_LISTS * (size_t)n * sizeof(int64_t));
    if (!g) return PARE_MEMORY;
    groups_find(&s, pare_node_int(c->node, "sorted", 1), n, (int64_t *)(g + 1), g);
    *out = g;
    return PARE_OK;
}

static pare_status unique_measure(pare_call *c, pare_shape *out)
{
    int axis = axis_of(c->node, c->in[0].rank);
    groups *g;
    PARE_TRY(unique_find(c, axis, &g));
    c->bound = g;
    out[0] = slices_shape(&c->in[0], axis, g->count);
    const pare_shape lists[] = {pare_shape_vector(g->count),
                                pare_shape_vector(slices_of(&c->in[0], axis)),
                                pare_shape_vector(g->count)};
    for (int i = 1; i < c->out_count && i < 4; i++) out[i] = lists[i - 1];
    return PARE_OK;
}

static void list_write(const pare_call *c, int i, const int64_t *list, int64_t n)
{
    if (i >= c->out_count || c->out[i].dtype == PARE_NOTYPE) return;
    for (int64_t k = 0; k < n; k++) pare_ref_set_int(&c->out[i], k * c->out[i].stride[0], list[k]);
}

static pare_status unique_run(const pare_call *c)
{
    int axis = axis_of(c->node, c->in[0].rank);
    groups *g = c->bound;
    if (!g) PARE_TRY(unique_find(c, axis, &g));
    for (int64_t i = 0; i < g->count && c->out[0].dtype != PARE_NOTYPE; i++)
        slice_copy(&c->out[0], i, &c->in[0], g->first[i], axis);
    list_write(c, 1, g->first, g->count);
    list_write(c, 2, g->of, slices_of(&c->in[0], axis));
    list_write(c, 3, g->size, g->count);
    if (!c->bound) pare_free(g);
    return PARE_OK;
}

/* --- NonMaxSuppression 11 --- */

/* Boxes as lists of their edges. */
typedef struct edges {
    float *low[2], *high[2], *area;
} edges;

typedef struct suppression {
    const pare_view *boxes, *scores;
    int64_t most, count; /* count: boxes of a batch */
    float overlap, least;
    bool centers, limited; /* scores must be above `least` */
    edges all, kept;       /* of a batch; of those of one class that are kept, in order */
    float *score;          /* (count) of one class */
    int64_t *chosen;       /* (count) of one class */
    int64_t *order;        /* (count) candidates, best first, and as many for sorting */
} suppression;

static void edges_set(edges *e, int64_t i, const float *low, const float *high)
{
    e->area[i] = (high[0] - low[0]) * (high[1] - low[1]);
    for (int k = 0; k < 2; k++) {
        e->low[k][i] = low[k];
        e->high[k][i] = high[k];
    }
}

/* Corners [y1,x1,y2,x2] in any order of the two, or [x_center,y_center,width,height]. */
static void edges_read(suppression *s, int64_t batch)
{
    const pare_view *b = s->boxes;
    const int64_t step = b->stride[2];
    for (int64_t i = 0; i < s->count; i++) {
        const float *at = pare_ref_at(b, batch * b->stride[0] + i * b->stride[1]);
        float low[2], high[2];
        for (int k = 0; k < 2; k++) {
            float one = at[k * step], two = at[(k + 2) * step];
            low[k] = s->centers ? one - two / 2 : fminf(one, two);
            high[k] = s->centers ? one + two / 2 : fmaxf(one, two);
        }
        edges_set(&s->all, i, low, high);
    }
}

/* Of kept boxes [from, to): is the intersection over union of one with the box above the
   threshold? Boxes without area overlap nothing. */
PARE_CLONES
static bool overlaps_some(const edges *k, int64_t from, int64_t to, const float *low,
                          const float *high, float area, float threshold)
{
    int hits = 0;
    for (int64_t i = from; i < to; i++) {
        float bottom = k->low[0][i] > low[0] ? k->low[0][i] : low[0];
        float left = k->low[1][i] > low[1] ? k->low[1][i] : low[1];
        float top = k->high[0][i] < high[0] ? k->high[0][i] : high[0];
        float right = k->high[1][i] < high[1] ? k->high[1][i] : high[1];
        float height = top - bottom, width = right - left;
        float common = height * width, either = area + k->area[i] - common;
        hits |= (height > 0) & (width > 0) & (k->area[i] > 0) & (either > 0) &
                (common / either > threshold);
    }
    return hits;
}

static bool suppressed(const suppression *s, int64_t box, int64_t kept)
{
    enum { BLOCK = 64 };
    const edges *e = &s->all;
    const float low[2] = {e->low[0][box], e->low[1][box]},
                high[2] = {e->high[0][box], e->high[1][box]};
    if (!(e->area[box] > 0)) return false;
    for (int64_t from = 0; from < kept; from += BLOCK) {
        int64_t to = from + BLOCK < kept ? from + BLOCK : kept;
        if (overlaps_some(&s->kept, from, to, low, high, e->area[box], s->overlap)) return true;
    }
    return false;
}

static void scores_read(const suppression *s, int64_t batch, int64_t class)
{
    const int64_t *step = s->scores->stride;
    const float *at = pare_ref_at(s->scores, batch * step[0] + class * step[1]);
    for (int64_t i = 0; i < s->count; i++) s->score[i] = at[i * step[2]];
}

/* Candidates by falling score, equal ones in their own order. */
static int64_t *candidates(const suppression *s, int64_t *count)
{
    int64_t n = 0, *list = s->order, *spare = s->order + s->count;
    for (int64_t i = 0; i < s->count; i++)
        if (!s->limited || s->score[i] > s->least) list[n++] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t from = 0; from < n; from += 2 * width) {
            int64_t mid = from + width < n ? from + width : n;
            int64_t end = from + 2 * width < n ? from + 2 * width : n, i = from, j = mid;
            for (int64_t k = from; k < end; k++) {
                bool left = i < mid && (j >= end || s->score[list[i]] >= s->score[list[j]]);
                spare[k] = left ? list[i++] : list[j++];
            }
        }
        int64_t *t = list;
        list = spare;
        spare = t;
    }
    *count = n;
    return list;
}

/* The boxes of one class that are kept; how many. */
static int64_t class_choose(suppression *s, int64_t batch, int64_t class)
{
    int64_t count, chosen = 0;
    scores_read(s, batch, class);
    const int64_t *list = candidates(s, &count);
    for (int64_t k = 0; k < count && chosen < s->most; k++) {
        const int64_t box = list[k];
        if (suppressed(s, box, chosen)) continue;
        const float low[2] = {s->all.low[0][box], s->all.low[1][box]},
                    high[2] = {s->all.high[0][box], s->all.high[1][box]};
        edges_set(&s->kept, chosen, low, high);
        s->chosen[chosen++] = box;
    }
    return chosen;
}

static float threshold(const pare_call *c, int i, float missing)
{
    bool there = i < c->in_count && c->in[i].dtype && pare_view_count(&c->in[i]);
    return there ? (float)pare_ref_get(&c->in[i], 0) : missing;
}

/* The rows of the output. */
typedef struct selection {
    int64_t count, *row; /* (count, 3) */
    size_t capacity;
} selection;

static void selection_free(void *bound)
{
    selection *found = bound;
    if (found) pare_free(found->row);
    pare_free(found);
}

static pare_status selection_add(pare_ctx *ctx, selection *f, int64_t batch, int64_t class,
                                 const int64_t *box, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!pare_grow(ctx, &f->row, &f->capacity, (size_t)f->count, 3 * sizeof *f->row))
            return PARE_MEMORY;
        int64_t *row = f->row + 3 * f->count++;
        row[0] = batch;
        row[1] = class;
        row[2] = box[i];
    }
    return PARE_OK;
}

enum { FLOAT_LISTS = 11, INT_LISTS = 3 }; /* of as many as there are boxes */

static pare_status suppression_open(const pare_call *c, suppression *s)
{
    *s = (suppression){.boxes = &c->in[0],
                       .scores = &c->in[1],
                       .count = c->in[0].dim[1],
                       .overlap = threshold(c, 3, 0),
                       .least = threshold(c, 4, 0),
                       .centers = pare_node_int(c->node, "center_point_box", 0),
                       .limited = c->in_count > 4 && c->in[4].dtype};
    if (c->in_count > 2 && c->in[2].dtype && pare_view_count(&c->in[2]))
        s->most = pare_ref_get_int(&c->in[2], 0);
    size_t each = INT_LISTS * sizeof(int64_t) + FLOAT_LISTS * sizeof(float);
    s->chosen = pare_alloc(c->ctx, (size_t)s->count + 1, each);
    if (!s->chosen) return PARE_MEMORY;
    s->order = s->chosen + s->count;
    float *next = (float *)(s->chosen + INT_LISTS * s->count);
    float **const lists[FLOAT_LISTS] = {&s->score,        &s->all.low[0],  &s->all.low[1],
                                        &s->all.high[0],  &s->all.high[1], &s->all.area,
                                        &s->kept.low[0],  &s->kept.low[1], &s->kept.high[0],
                                        &s->kept.high[1], &s->kept.area};
    for (int i = 0; i < FLOAT_LISTS; i++, next += s->count) *lists[i] = next;
    return PARE_OK;
}

static pare_status suppress(const pare_call *c, selection **out)
{
    suppression s;
    selection *found = pare_alloc(c->ctx, 1, sizeof *found);
    if (!found) return PARE_MEMORY;
    pare_status st = suppression_open(c, &s);
    for (int64_t b = 0; b < s.scores->dim[0] && st == PARE_OK; b++) {
        edges_read(&s, b);
        for (int64_t k = 0; k < s.scores->dim[1] && st == PARE_OK; k++) {
            int64_t n = class_choose(&s, b, k);
            st = selection_add(c->ctx, found, b, k, s.chosen, n);
        }
    }
    pare_free(s.chosen);
    *out = found;
    if (st != PARE_OK) selection_free(found);
    return st;
}

static pare_status non_max_suppression_measure(pare_call *c, pare_shape *out)
{
    selection *found;
    PARE_TRY(suppress(c, &found));
    c->bound = found;
    out[0] = (pare_shape){.rank = 2, .dim = {found->count, 3}};
    return PARE_OK;
}

static pare_status non_max_suppression_run(const pare_call *c)
{
    const pare_view *y = &c->out[0];
    selection *found = c->bound;
    if (!found) PARE_TRY(suppress(c, &found));
    for (int64_t i = 0; i < found->count; i++)
        for (int k = 0; k < 3; k++)
            pare_ref_set_int(y, i * y->stride[0] + k * y->stride[1], found->row[3 * i + k]);
    if (!c->bound) selection_free(found);
    return PARE_OK;
}

static const pare_kernel ref_compress = {.name = "ref_compress",
                                         .can = pare_copy_can,
                                         .run = compress_run,
                                         .measure = compress_measure,
                                         .flags = PARE_KERNEL_REF};
static const pare_kernel ref_unique = {.name = "ref_unique",
                                       .can = pare_ref_can_all,
                                       .run = unique_run,
                                       .measure = unique_measure,
                                       .unbind = pare_free,
                                       .flags = PARE_KERNEL_REF};
static const pare_kernel ref_non_max_suppression = {.name = "ref_non_max_suppression",
                                                    .run = non_max_suppression_run,
                                                    .measure = non_max_suppression_measure,
                                                    .unbind = selection_free,
                                                    .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_compress[] = {&ref_compress, NULL};
const pare_kernel *const pare_cpu_unique[] = {&ref_unique, NULL};
const pare_kernel *const pare_cpu_non_max_suppression[] = {&ref_non_max_suppression, NULL};

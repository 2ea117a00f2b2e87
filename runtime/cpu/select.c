/* SPDX-License-Identifier: Apache-2.0 */
/* Compress (11), Unique (11) and NonMaxSuppression (11). What each selects is found twice: when its
   outputs are measured, and when they are written. */
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

static pare_status compress_measure(const pare_call *c, pare_shape *out)
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

static pare_status unique_find(const pare_call *c, int axis, groups *g, int64_t **memory)
{
    const pare_view *x = &c->in[0];
    const slices s = {x, axis, pare_type_is_float(x->dtype)};
    int64_t n = slices_of(x, axis);
    *memory = pare_alloc(c->ctx, UNIQUE_LISTS * (size_t)n + 1, sizeof **memory);
    if (!*memory) return PARE_MEMORY;
    groups_find(&s, pare_node_int(c->node, "sorted", 1), n, *memory, g);
    return PARE_OK;
}

static pare_status unique_measure(const pare_call *c, pare_shape *out)
{
    int axis = axis_of(c->node, c->in[0].rank);
    int64_t *memory;
    groups g;
    PARE_TRY(unique_find(c, axis, &g, &memory));
    pare_free(memory);
    out[0] = slices_shape(&c->in[0], axis, g.count);
    const pare_shape lists[] = {pare_shape_vector(g.count),
                                pare_shape_vector(slices_of(&c->in[0], axis)),
                                pare_shape_vector(g.count)};
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
    int64_t *memory;
    groups g;
    PARE_TRY(unique_find(c, axis, &g, &memory));
    for (int64_t i = 0; i < g.count && c->out[0].dtype != PARE_NOTYPE; i++)
        slice_copy(&c->out[0], i, &c->in[0], g.first[i], axis);
    list_write(c, 1, g.first, g.count);
    list_write(c, 2, g.of, slices_of(&c->in[0], axis));
    list_write(c, 3, g.size, g.count);
    pare_free(memory);
    return PARE_OK;
}

/* --- NonMaxSuppression 11 --- */

typedef struct corners {
    float low[2], high[2];
} corners;

typedef struct suppression {
    const pare_view *boxes, *scores;
    int64_t most;
    float overlap, least;
    bool centers, limited; /* scores must be above `least` */
    int64_t *chosen;       /* (boxes) of one class */
    int64_t *order;        /* (boxes) candidates, best first, and as many for sorting */
} suppression;

/* corners [y1,x1,y2,x2] in any order of the two, or [x_center,y_center,width,height]. */
static corners corners_of(const suppression *s, int64_t batch, int64_t i)
{
    const pare_view *b = s->boxes;
    const float *at = pare_ref_at(b, batch * b->stride[0] + i * b->stride[1]);
    const int64_t step = b->stride[2];
    corners c;
    for (int k = 0; k < 2; k++) {
        float one = at[k * step], two = at[(k + 2) * step];
        c.low[k] = s->centers ? one - two / 2 : fminf(one, two);
        c.high[k] = s->centers ? one + two / 2 : fmaxf(one, two);
    }
    return c;
}

/* Is the intersection over union of two boxes above the threshold? Boxes without area overlap
   nothing. */
static bool overlaps(const suppression *s, int64_t batch, int64_t i, int64_t j)
{
    const corners a = corners_of(s, batch, i), b = corners_of(s, batch, j);
    float common = 1, first = 1, second = 1;
    for (int k = 0; k < 2; k++) {
        float length = fminf(a.high[k], b.high[k]) - fmaxf(a.low[k], b.low[k]);
        if (length <= 0) return false;
        common *= length;
        first *= a.high[k] - a.low[k];
        second *= b.high[k] - b.low[k];
    }
    float either = first + second - common;
    return first > 0 && second > 0 && either > 0 && common / either > s->overlap;
}

static float score_at(const suppression *s, int64_t batch, int64_t class, int64_t i)
{
    const int64_t *step = s->scores->stride;
    return *(const float *)pare_ref_at(s->scores, batch * step[0] + class * step[1] + i * step[2]);
}

/* Candidates by falling score, equal ones in their own order. */
static int64_t *candidates(const suppression *s, int64_t batch, int64_t class, int64_t *count)
{
    int64_t n = 0, boxes = s->boxes->dim[1], *list = s->order, *spare = s->order + boxes;
    for (int64_t i = 0; i < boxes; i++)
        if (!s->limited || score_at(s, batch, class, i) > s->least) list[n++] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t from = 0; from < n; from += 2 * width) {
            int64_t mid = from + width < n ? from + width : n;
            int64_t end = from + 2 * width < n ? from + 2 * width : n, i = from, j = mid;
            for (int64_t k = from; k < end; k++) {
                bool left = i < mid && (j >= end || score_at(s, batch, class, list[i]) >=
                                                        score_at(s, batch, class, list[j]));
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
static int64_t class_choose(const suppression *s, int64_t batch, int64_t class)
{
    int64_t count, chosen = 0, *list = candidates(s, batch, class, &count);
    for (int64_t k = 0; k < count && chosen < s->most; k++) {
        bool free_of_all = true;
        for (int64_t i = 0; i < chosen && free_of_all; i++)
            free_of_all = !overlaps(s, batch, list[k], s->chosen[i]);
        if (free_of_all) s->chosen[chosen++] = list[k];
    }
    return chosen;
}

static float threshold(const pare_call *c, int i, float missing)
{
    bool there = i < c->in_count && c->in[i].dtype && pare_view_count(&c->in[i]);
    return there ? (float)pare_ref_get(&c->in[i], 0) : missing;
}

/* All that are kept, into y where it is given; *total: how many. */
static pare_status suppress(const pare_call *c, const pare_view *y, int64_t *total)
{
    const pare_view *boxes = &c->in[0], *scores = &c->in[1];
    suppression s = {.boxes = boxes,
                     .scores = scores,
                     .overlap = threshold(c, 3, 0),
                     .least = threshold(c, 4, 0),
                     .centers = pare_node_int(c->node, "center_point_box", 0),
                     .limited = c->in_count > 4 && c->in[4].dtype};
    if (c->in_count > 2 && c->in[2].dtype && pare_view_count(&c->in[2]))
        s.most = pare_ref_get_int(&c->in[2], 0);
    s.chosen = pare_alloc(c->ctx, 3 * (size_t)boxes->dim[1] + 1, sizeof *s.chosen);
    if (!s.chosen) return PARE_MEMORY;
    s.order = s.chosen + boxes->dim[1];
    *total = 0;
    for (int64_t b = 0; b < scores->dim[0]; b++)
        for (int64_t k = 0; k < scores->dim[1]; k++) {
            int64_t n = class_choose(&s, b, k);
            for (int64_t i = 0; i < n && y; i++) {
                const int64_t row = (*total + i) * y->stride[0], step = y->stride[1];
                pare_ref_set_int(y, row, b);
                pare_ref_set_int(y, row + step, k);
                pare_ref_set_int(y, row + 2 * step, s.chosen[i]);
            }
            *total += n;
        }
    pare_free(s.chosen);
    return PARE_OK;
}

static pare_status non_max_suppression_measure(const pare_call *c, pare_shape *out)
{
    int64_t total;
    PARE_TRY(suppress(c, NULL, &total));
    out[0] = (pare_shape){.rank = 2, .dim = {total, 3}};
    return PARE_OK;
}

static pare_status non_max_suppression_run(const pare_call *c)
{
    int64_t total;
    return suppress(c, &c->out[0], &total);
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
                                       .flags = PARE_KERNEL_REF};
static const pare_kernel ref_non_max_suppression = {.name = "ref_non_max_suppression",
                                                    .run = non_max_suppression_run,
                                                    .measure = non_max_suppression_measure,
                                                    .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_compress[] = {&ref_compress, NULL};
const pare_kernel *const pare_cpu_unique[] = {&ref_unique, NULL};
const pare_kernel *const pare_cpu_non_max_suppression[] = {&ref_non_max_suppression, NULL};

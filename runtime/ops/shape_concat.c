/* SPDX-License-Identifier: Apache-2.0 */
/* Concat, Split, Slice, Expand, Tile, DepthToSpace, SpaceToDepth: shapes, version conversion; the
   gradients of the first three. Slice's rule
   emits SliceGrad (dY, starts, ends, axes, steps) -> dX, attribute `shape` of X. */
#include "runtime/ops/constant.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/infer.h"

#include <inttypes.h>
#include <string.h>

/* Concat 4: equal dims but on axis, where they add up. */
pare_status pare_infer_concat(pare_node *node)
{
    pare_value *x;
    int axis = -1;
    PARE_TRY(pare_infer_need(node, 0, &x));
    pare_shape y = pare_shape_unknown(-1);
    for (int i = 0; i < node->in_count; i++) {
        PARE_TRY(pare_infer_need(node, i, &x));
        PARE_TRY(pare_infer_same_type(node, 0, i));
        const pare_shape *s = &x->shape;
        if (s->rank < 0) {
            y = pare_shape_unknown(-1);
            break;
        }
        if (y.rank < 0) {
            y = *s;
            PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 1), s->rank, &axis));
            continue;
        }
        if (s->rank != y.rank)
            return PARE_FAIL_NODE(node, INPUT, "inputs have ranks %d and %d", y.rank, s->rank);
        for (int a = 0; a < y.rank; a++) {
            if (a == axis) {
                y.dim[a] = y.dim[a] < 0 || s->dim[a] < 0 ? -1 : y.dim[a] + s->dim[a];
                y.name[a] = NULL;
            } else if (y.dim[a] < 0) {
                y.dim[a] = s->dim[a];
                y.name[a] = y.name[a] && s->dim[a] < 0 ? y.name[a] : s->name[a];
            } else if (s->dim[a] >= 0 && s->dim[a] != y.dim[a]) {
                return PARE_FAIL_NODE(node, INPUT,
                                      "input '%s' has %" PRId64 " on axis %d, expected %" PRId64,
                                      x->name, s->dim[a], a, y.dim[a]);
            }
        }
    }
    pare_infer_out(node, 0, pare_infer_dtype(node, 0), &y);
    return PARE_OK;
}

/* Concat 4: axis, 1 where missing, must be given. */
pare_status pare_upgrade_concat(pare_node *node, int64_t version)
{
    if (version >= 4 || pare_node_attr(node, "axis")) return PARE_OK;
    return pare_node_set_int(node, "axis", 1);
}

/* Split 18: given sizes, or equal parts, the last one smaller. */
pare_status pare_infer_split(pare_node *node)
{
    pare_value *x;
    const int64_t *sizes;
    int count, axis;
    bool known;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints_or_attr(node, 1, "split", &sizes, &count, &known));
    int parts = node->out_count;
    pare_shape y = x->shape;
    if (sizes && count != parts)
        return PARE_FAIL_NODE(node, INPUT, "split has %d values, expected %d", count, parts);
    int64_t n = -1, left = -1, asked = pare_node_int(node, "num_outputs", parts);
    if (asked != parts)
        return PARE_FAIL_NODE(node, INPUT, "num_outputs is %" PRId64 ", expected %d", asked, parts);
    if (y.rank >= 0) {
        PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), y.rank, &axis));
        n = left = y.dim[axis];
        y.name[axis] = NULL;
    }
    for (int i = 0; i < parts; i++) {
        int64_t part = !known ? -1 : sizes ? sizes[i] : n < 0 ? -1 : (n + parts - 1) / parts;
        if (sizes && part < 0) return PARE_FAIL_NODE(node, INPUT, "split has a negative value");
        if (known && !sizes && n >= 0 && part > left) part = left;
        if (n >= 0 && part > left) /* before the sum of the parts overflows */
            return PARE_FAIL_NODE(node, INPUT,
                                  "its parts make more than the %" PRId64 " of its axis", n);
        if (y.rank >= 0) y.dim[axis] = part;
        if (n >= 0 && part >= 0) left -= part;
        pare_infer_out(node, i, x->dtype, &y);
    }
    if (n >= 0 && known && left != 0)
        return PARE_FAIL_NODE(node, INPUT, "its parts make %" PRId64 ", the axis has %" PRId64,
                              n - left, n);
    return PARE_OK;
}

/* Split 1: sizes as an input of x's type, or an attribute; they become what 13 takes. */
static pare_status split_1(pare_node *node)
{
    const pare_tensor *t = pare_infer_constant(node, 1);
    int64_t *sizes, count = t ? t->count : 0;
    if (!pare_node_in(node, 1)) return PARE_OK;
    if (!t || t->rank > 1 || count > node->out_count)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "its sizes are not constant");
    if (!(sizes = pare_arena_alloc(&node->graph->model->arena, (size_t)count + 1, sizeof *sizes)))
        return PARE_MEMORY;
    for (int i = 0; i < count; i++) sizes[i] = pare_tensor_int(t, i);
    PARE_TRY(pare_upgrade_constant(node, 1, "split", PARE_s64, 1, &count, sizes));
    return pare_upgrade_opset(node, 13);
}

/* Split 13: split became an input. 18: equal parts ask for num_outputs. The rule of another node
   may yet raise the opset to 18: sizes written out hold in both. */
pare_status pare_upgrade_split(pare_node *node, int64_t version)
{
    if (version < 2) PARE_TRY(split_1(node));
    if (version < 13 && pare_node_attr(node, "split")) {
        PARE_TRY(pare_upgrade_ints(node, "split", 1));
        return pare_upgrade_opset(node, 13);
    }
    bool equal = !pare_node_in(node, 1) && !pare_node_attr(node, "num_outputs");
    if (version >= 18 || !equal) return PARE_OK;
    if (pare_model_opset(node->graph->model, "") >= 18)
        return pare_node_set_int(node, "num_outputs", node->out_count);
    const pare_value *x = pare_node_in(node, 0);
    int64_t sizes[64], parts = node->out_count;
    int axis;
    if (!x || x->shape.rank < 0 || parts < 1 || parts > 64) return PARE_OK;
    PARE_TRY(pare_infer_axis(node, pare_node_int(node, "axis", 0), x->shape.rank, &axis));
    if (x->shape.dim[axis] < 0 || x->shape.dim[axis] % parts) return PARE_OK;
    for (int64_t i = 0; i < parts; i++) sizes[i] = x->shape.dim[axis] / parts;
    PARE_TRY(pare_upgrade_constant(node, 1, "split", PARE_s64, 1, &parts, sizes));
    return pare_upgrade_opset(node, 13);
}

/* Length of start:end:step on an axis of n (Slice 10). */
static int64_t sliced(int64_t n, int64_t start, int64_t end, int64_t step)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (start < 0) start += n;
    if (end < 0) end += n;
    start = start < 0 ? 0 : start > high ? high : start;
    end = end < low ? low : end > n ? n : end;
    int64_t room = step < 0 ? start - end : end - start, stride = step < 0 ? -step : step;
    return room <= 0 ? 0 : (room - 1) / stride + 1;
}

typedef struct slice_args {
    const int64_t *starts, *ends, *axes, *steps;
    int n, axes_count, steps_count;
    bool known;
} slice_args;

static pare_status slice_read(const pare_node *node, slice_args *a)
{
    int ends;
    PARE_TRY(pare_infer_ints(node, 1, &a->starts, &a->n));
    PARE_TRY(pare_infer_ints(node, 2, &a->ends, &ends));
    PARE_TRY(pare_infer_ints(node, 3, &a->axes, &a->axes_count));
    PARE_TRY(pare_infer_ints(node, 4, &a->steps, &a->steps_count));
    a->known = a->starts && a->ends && (a->axes || !pare_node_in(node, 3)) &&
               (a->steps || !pare_node_in(node, 4));
    int64_t length = -1;
    for (int i = 1; i < 5; i++) {
        const pare_value *v = pare_node_in(node, i);
        const int64_t n = v ? pare_shape_count(&v->shape) : -1;
        if (n >= 0 && length >= 0 && n != length)
            return PARE_FAIL_NODE(node, INPUT,
                                  "starts, ends, axes and steps have different lengths");
        if (n >= 0) length = n;
    }
    return PARE_OK;
}

pare_status pare_infer_slice(pare_node *node)
{
    pare_value *x;
    slice_args a;
    bool seen[PARE_MAX_RANK] = {false};
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(slice_read(node, &a));
    pare_shape y = x->shape;
    if (y.rank >= 0 && a.axes) PARE_TRY(pare_infer_axes(node, a.axes, a.axes_count, y.rank, seen));
    if (!a.known && y.rank >= 0)
        for (int i = 0; i < y.rank; i++)
            if (!a.axes || !a.axes_count || seen[i]) {
                y.dim[i] = -1;
                y.name[i] = NULL;
            }
    for (int i = 0; a.known && y.rank >= 0 && i < a.n; i++) {
        int axis;
        int64_t step = a.steps ? a.steps[i] : 1;
        PARE_TRY(pare_infer_axis(node, a.axes ? a.axes[i] : i, y.rank, &axis));
        if (step == 0 || step == INT64_MIN)
            return PARE_FAIL_NODE(node, INPUT, "a step of %" PRId64 " is not possible", step);
        bool whole = a.starts[i] == 0 && step == 1 && a.ends[i] >= INT32_MAX;
        if (x->shape.dim[axis] >= 0)
            y.dim[axis] = sliced(x->shape.dim[axis], a.starts[i], a.ends[i], step);
        if (!whole) y.name[axis] = NULL;
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

/* Slice 10: starts, ends and axes became inputs. */
pare_status pare_upgrade_slice(pare_node *node, int64_t version)
{
    if (version >= 10) return PARE_OK;
    PARE_TRY(pare_upgrade_ints(node, "starts", 1));
    PARE_TRY(pare_upgrade_ints(node, "ends", 2));
    PARE_TRY(pare_upgrade_ints(node, "axes", 3));
    return pare_upgrade_opset(node, 10);
}

static pare_status infer_blocks(pare_node *node, bool to_space)
{
    pare_value *x;
    PARE_TRY(pare_infer_need(node, 0, &x));
    int64_t b = pare_node_int(node, "blocksize", 0);
    const char *mode = pare_node_string(node, "mode", "DCR");
    if (b < 1 || b > INT16_MAX || (strcmp(mode, "DCR") && strcmp(mode, "CRD")))
        return PARE_FAIL_NODE(node, INPUT,
                              "blocksize %" PRId64 " with mode '%s', expected at least 1 "
                              "with DCR or CRD",
                              b, mode);
    pare_shape y = pare_shape_unknown(x->shape.rank >= 0 ? 4 : -1);
    if (x->shape.rank >= 0 && x->shape.rank != 4)
        return PARE_FAIL_NODE(node, INPUT, "its input has rank %d, expected 4", x->shape.rank);
    const int64_t *d = x->shape.dim;
    if (y.rank == 4) {
        y.dim[0] = d[0];
        y.name[0] = x->shape.name[0];
        bool whole = to_space ? d[1] < 0 || d[1] % (b * b) == 0
                              : (d[2] < 0 || d[2] % b == 0) && (d[3] < 0 || d[3] % b == 0);
        if (!whole)
            return PARE_FAIL_NODE(node, INPUT, "blocksize %" PRId64 " does not divide its input",
                                  b);
        if (d[1] >= 0) y.dim[1] = to_space ? d[1] / (b * b) : d[1] * b * b;
        for (int i = 2; i < 4; i++)
            if (d[i] >= 0) y.dim[i] = to_space ? d[i] * b : d[i] / b;
    }
    pare_infer_out(node, 0, x->dtype, &y);
    return PARE_OK;
}

pare_status pare_infer_depth_to_space(pare_node *node) { return infer_blocks(node, true); }
pare_status pare_infer_space_to_depth(pare_node *node) { return infer_blocks(node, false); }

/* Expand 8: broadcast of the input and the shape. */
pare_status pare_infer_expand(pare_node *node)
{
    pare_value *x;
    pare_shape s;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_shape_input(node, 1, &s));
    PARE_TRY(pare_infer_broadcast(node, &s, &x->shape));
    pare_infer_out(node, 0, x->dtype, &s);
    return PARE_OK;
}

/* Tile 6: each dim times its repeats. */
/* Tile (1): how often along which axis, as two numbers; (6): repeats of all axes. */
pare_status pare_upgrade_tile(pare_node *node, int64_t version)
{
    pare_value *x;
    int64_t repeats[PARE_MAX_RANK], rank;
    int axis;
    if (version >= 6) return PARE_OK;
    const pare_tensor *tiles = pare_infer_constant(node, 1), *along = pare_infer_constant(node, 2);
    PARE_TRY(pare_infer_need(node, 0, &x));
    if (!tiles || !along || tiles->count != 1 || along->count != 1 || x->shape.rank < 0)
        return PARE_FAIL_NODE(node, UNSUPPORTED,
                              "its form of opset 1 is only understood with constant tiles and axis "
                              "and a known rank: export the model at opset 6 or newer");
    rank = x->shape.rank;
    PARE_TRY(pare_infer_axis(node, pare_tensor_int(along, 0), x->shape.rank, &axis));
    for (int i = 0; i < rank; i++) repeats[i] = i == axis ? pare_tensor_int(tiles, 0) : 1;
    PARE_TRY(pare_upgrade_constant(node, 1, "repeats", PARE_s64, 1, &rank, repeats));
    PARE_TRY(pare_node_set_in(node, 2, NULL));
    node->in_count = 2;
    return pare_upgrade_opset(node, 6);
}

pare_status pare_infer_tile(pare_node *node)
{
    pare_value *x;
    const int64_t *times;
    int count;
    PARE_TRY(pare_infer_need(node, 0, &x));
    PARE_TRY(pare_infer_ints(node, 1, &times, &count));
    pare_shape s = pare_shape_unknown(x->shape.rank);
    if (times && s.rank >= 0 && count != s.rank)
        return PARE_FAIL_NODE(node, INPUT, "repeats has %d values, expected %d", count, s.rank);
    for (int i = 0; times && i < s.rank; i++) {
        if (times[i] < 0) return PARE_FAIL_NODE(node, INPUT, "repeats has a negative value");
        if (x->shape.dim[i] >= 0 && __builtin_mul_overflow(x->shape.dim[i], times[i], &s.dim[i]))
            return PARE_FAIL_NODE(node, INPUT, "its output's dimensions overflow");
        if (times[i] == 1) s.name[i] = x->shape.name[i];
    }
    pare_infer_out(node, 0, x->dtype, &s);
    return PARE_OK;
}

pare_value *pare_grad_part(pare_grad *g, pare_value *v, int axis, int64_t first, int64_t n)
{
    pare_value *in[] = {v, pare_grad_ints(g, &first, 1),
                        pare_grad_ints(g, &(int64_t){first + n}, 1),
                        pare_grad_ints(g, &(int64_t){axis}, 1)};
    return pare_grad_emit(g, "Slice", in, 4);
}

pare_status pare_grad_concat(pare_grad *g, const pare_node *node)
{
    int axis;
    int64_t at = 0;
    PARE_TRY(
        pare_infer_axis(node, pare_node_int(node, "axis", 1), node->out[0]->shape.rank, &axis));
    for (int i = 0; i < node->in_count; i++) {
        int64_t n = node->in[i]->shape.dim[axis];
        if (pare_grad_wants(g, node->in[i]))
            pare_grad_give(g, node->in[i],
                           pare_grad_part(g, pare_grad_of(g, node->out[0]), axis, at, n));
        at += n;
    }
    return g->status;
}

pare_status pare_grad_split(pare_grad *g, const pare_node *node)
{
    pare_value *all[64];
    if (node->out_count > 64)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "it has no gradient rule for more than 64 parts");
    for (int i = 0; i < node->out_count; i++) {
        all[i] = node->out[i] ? pare_grad_of(g, node->out[i]) : NULL;
        if (!all[i]) all[i] = pare_grad_zeros(g, node->out[i]);
    }
    pare_node *made = pare_grad_begin(g, "Concat", all, node->out_count, 1);
    pare_grad_int(g, made, "axis", pare_node_int(node, "axis", 0));
    pare_grad_give(g, node->in[0], pare_grad_end(g, made));
    return g->status;
}

/* dY put back where it came from, zeros elsewhere. */
pare_status pare_grad_slice(pare_grad *g, const pare_node *node)
{
    const pare_value *x = node->in[0];
    pare_value *in[5] = {pare_grad_of(g, node->out[0])};
    for (int i = 1; i < 5; i++) {
        in[i] = pare_node_in(node, i);
        if (in[i] && !in[i]->data)
            return PARE_FAIL_NODE(node, UNSUPPORTED,
                                  "it has no gradient rule for bounds that are computed");
    }
    pare_node *made = pare_grad_begin(g, "SliceGrad", in, 5, 1);
    pare_grad_shape(g, made, &x->shape);
    pare_grad_give(g, x, pare_grad_end(g, made));
    return g->status;
}

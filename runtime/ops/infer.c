/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/infer.h"
#include "runtime/base/size.h"

#include <inttypes.h>
#include <string.h>

void pare_infer_out(pare_node *node, int i, pare_dtype dtype, const pare_shape *shape)
{
    if (i >= node->out_count || !node->out[i]) return;
    pare_value *v = node->out[i];
    if (dtype != v->dtype) v->origin = (pare_bytes){0};
    v->dtype = dtype;
    v->shape = *shape;
}

pare_status pare_infer_need(const pare_node *node, int i, pare_value **out)
{
    *out = pare_node_in(node, i);
    return *out ? PARE_OK : PARE_FAIL_NODE(node, INPUT, "input %d is missing", i);
}

pare_dtype pare_infer_dtype(const pare_node *node, int i)
{
    const pare_value *v = pare_node_in(node, i);
    return v ? v->dtype : PARE_NOTYPE;
}

pare_status pare_infer_same_type(const pare_node *node, int i, int j)
{
    pare_dtype a = pare_infer_dtype(node, i), b = pare_infer_dtype(node, j);
    if (!a || !b || a == b) return PARE_OK;
    return PARE_FAIL_NODE(node, INPUT, "inputs '%s' (%s) and '%s' (%s) must have the same type",
                          node->in[i]->name, pare_type(a)->name, node->in[j]->name,
                          pare_type(b)->name);
}

pare_shape pare_shape_unknown(int rank)
{
    pare_shape s = {.rank = rank};
    for (int i = 0; i < rank; i++) s.dim[i] = -1;
    return s;
}

pare_shape pare_shape_vector(int64_t n) { return (pare_shape){.rank = 1, .dim = {n}}; }

/* ONNX "Multidirectional Broadcasting": axes are aligned at the end, 1 stretches. */
pare_status pare_infer_broadcast(const pare_node *node, pare_shape *into, const pare_shape *other)
{
    if (into->rank < 0 || other->rank < 0) {
        *into = pare_shape_unknown(-1);
        return PARE_OK;
    }
    pare_shape a = *into;
    int rank = a.rank > other->rank ? a.rank : other->rank;
    *into = (pare_shape){.rank = rank};
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - a.rank), ib = i - (rank - other->rank);
        int64_t da = ia < 0 ? 1 : a.dim[ia], db = ib < 0 ? 1 : other->dim[ib];
        bool take_b = da == 1 || (da < 0 && db > 1);
        if (da != db && da >= 0 && db >= 0 && da != 1 && db != 1) {
            char ta[128], tb[128];
            return PARE_FAIL_NODE(node, INPUT, "shapes %s and %s do not broadcast",
                                  pare_shape_text(&a, ta, sizeof ta),
                                  pare_shape_text(other, tb, sizeof tb));
        }
        if (da < 0 && db == 0) take_b = true;
        into->dim[i] = take_b ? db : da;
        into->name[i] = into->dim[i] >= 0 ? NULL : take_b ? other->name[ib] : a.name[ia];
        if (da < 0 && db < 0 && a.name[ia] != other->name[ib] &&
            (!a.name[ia] || !other->name[ib] || strcmp(a.name[ia], other->name[ib])))
            into->name[i] = NULL;
    }
    return PARE_OK;
}

pare_status pare_infer_broadcast_all(const pare_node *node, int first, int last, pare_shape *out)
{
    *out = (pare_shape){.rank = 0};
    for (int i = first; i <= last && i < node->in_count; i++)
        if (node->in[i]) PARE_TRY(pare_infer_broadcast(node, out, &node->in[i]->shape));
    return PARE_OK;
}

pare_status pare_infer_axis(const pare_node *node, int64_t axis, int rank, int *out)
{
    int64_t a = axis < 0 ? axis + rank : axis;
    if (a < 0 || a >= rank)
        return PARE_FAIL_NODE(node, INPUT, "axis %" PRId64 " is outside a tensor of rank %d", axis,
                              rank);
    *out = (int)a;
    return PARE_OK;
}

pare_status pare_infer_axes(const pare_node *node, const int64_t *axes, int count, int rank,
                            bool out[PARE_MAX_RANK])
{
    memset(out, 0, PARE_MAX_RANK * sizeof *out);
    for (int i = 0; i < count; i++) {
        int a;
        PARE_TRY(pare_infer_axis(node, axes[i], rank, &a));
        if (out[a]) return PARE_FAIL_NODE(node, INPUT, "axis %" PRId64 " is listed twice", axes[i]);
        out[a] = true;
    }
    return PARE_OK;
}

int64_t pare_shape_product(const pare_shape *shape, int first, int last)
{
    int64_t n = 1;
    for (int i = first; i < last; i++)
        if (shape->dim[i] < 0 || __builtin_mul_overflow(n, shape->dim[i], &n)) return -1;
    return n;
}

/* --- constants --- */

const pare_tensor *pare_infer_constant(const pare_node *node, int i)
{
    pare_value *v = pare_node_in(node, i);
    if (!v) return NULL;
    if (v->data) return v->data;
    const pare_tensor *t = v->producer ? pare_node_constant(v->producer) : NULL;
    if (!t && !v->asked) v->asked = true;
    return t;
}

static const void *element(const pare_tensor *t, int64_t i)
{
    return (const char *)t->data + i * (pare_type(t->dtype)->bits / 8);
}

double pare_tensor_number(const pare_tensor *tensor, int64_t i)
{
    if (tensor->dtype == PARE_f64) {
        double v;
        memcpy(&v, element(tensor, i), sizeof v);
        return v;
    }
    if (pare_type_is_float(tensor->dtype))
        return (double)pare_type(tensor->dtype)->to_f32(element(tensor, i));
    return tensor->dtype == PARE_u64 ? (double)(uint64_t)pare_tensor_int(tensor, i)
                                     : (double)pare_tensor_int(tensor, i);
}

int64_t pare_tensor_int(const pare_tensor *tensor, int64_t i)
{
#define PARE_READ(type, ctype)                                                                     \
    case PARE_##type: {                                                                            \
        ctype v;                                                                                   \
        memcpy(&v, element(tensor, i), sizeof v);                                                  \
        return (int64_t)v;                                                                         \
    }
    switch (tensor->dtype) {
        PARE_READ(s8, int8_t)
        PARE_READ(u8, uint8_t)
        PARE_READ(s16, int16_t)
        PARE_READ(u16, uint16_t)
        PARE_READ(s32, int32_t)
        PARE_READ(u32, uint32_t)
        PARE_READ(s64, int64_t)
        PARE_READ(u64, uint64_t)
    case PARE_bool: return *(const uint8_t *)element(tensor, i) != 0;
    default:
        if (pare_type_is_packed(tensor->dtype))
            return pare_packed_get(tensor->dtype, tensor->data, i);
        return pare_type_is_float(tensor->dtype) ? (int64_t)pare_tensor_number(tensor, i) : 0;
    }
#undef PARE_READ
}

static bool readable(const pare_tensor *t)
{
    return pare_type(t->dtype)->to_f32 || pare_type_is_packed(t->dtype);
}

static pare_status constant_of(const pare_node *node, int i, const pare_tensor **out)
{
    *out = pare_infer_constant(node, i);
    if (*out && !readable(*out))
        return PARE_FAIL_NODE(node, UNSUPPORTED, "input '%s' of type %s cannot be read as numbers",
                              node->in[i]->name, pare_type((*out)->dtype)->name);
    if (*out && (*out)->count > INT32_MAX / 2)
        return PARE_FAIL_NODE(node, INPUT, "input '%s' has too many elements for a list",
                              node->in[i]->name);
    return PARE_OK;
}

pare_status pare_infer_ints(const pare_node *node, int i, const int64_t **out, int *count)
{
    const pare_tensor *t;
    *out = NULL;
    *count = 0;
    PARE_TRY(constant_of(node, i, &t));
    if (!t) return PARE_OK;
    int64_t *list =
        pare_arena_alloc(&node->graph->model->arena, (size_t)t->count + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (int64_t k = 0; k < t->count; k++) list[k] = pare_tensor_int(t, k);
    *out = list;
    *count = (int)t->count;
    return PARE_OK;
}

pare_status pare_infer_floats(const pare_node *node, int i, const float **out, int *count)
{
    const pare_tensor *t;
    *out = NULL;
    *count = 0;
    PARE_TRY(constant_of(node, i, &t));
    if (!t) return PARE_OK;
    float *list = pare_arena_alloc(&node->graph->model->arena, (size_t)t->count + 1, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (int64_t k = 0; k < t->count; k++) list[k] = (float)pare_tensor_number(t, k);
    *out = list;
    *count = (int)t->count;
    return PARE_OK;
}

pare_status pare_infer_ints_or_attr(const pare_node *node, int i, const char *attr,
                                    const int64_t **out, int *count, bool *known)
{
    PARE_TRY(pare_infer_ints(node, i, out, count));
    *known = *out || !pare_node_in(node, i);
    if (!*out && *known) *out = pare_node_ints(node, attr, count);
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Casts at borders and constants of the short type. */
#include "quant/lowp.h"

#include <math.h>
#include <string.h>

static pare_status keep(pare_lowp *h, pare_value *v)
{
    if (!pare_arena_grow(h->arena, &h->kept, &h->kept_capacity, (size_t)h->kept_count,
                         sizeof *h->kept))
        return PARE_MEMORY;
    h->kept[h->kept_count++] = v;
    return PARE_OK;
}

pare_status pare_lowp_pair(pare_lowp *h, pare_value *a, pare_value *b)
{
    PARE_TRY(keep(h, b));
    PARE_TRY(keep(h, a));
    PARE_TRY(pare_ptr_map_put(&h->twin, a, h->kept_count - 2));
    return pare_ptr_map_put(&h->twin, b, h->kept_count - 1);
}

pare_status pare_lowp_cast(pare_lowp *h, int at, pare_value *from, pare_value *to, pare_dtype type)
{
    pare_node *cast;
    (void)h;
    PARE_TRY(pare_quant_insert(to->graph, at, &cast, "Cast", to->name, &from, 1, to));
    return pare_node_set_int(cast, "to", type);
}

pare_status pare_lowp_convert(pare_lowp *h, const pare_tensor *t, void **out)
{
    const char *from = t->data; /* at any address */
    uint16_t *data = pare_alloc(h->ctx, (size_t)t->count, sizeof *data);
    if (!data) return PARE_MEMORY;
    for (int64_t i = 0; i < t->count; i++) {
        float x;
        memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);
        if (isfinite(x) && fabsf(x) > h->largest) x = copysignf(h->clamp, x);
        data[i] = h->type == PARE_f16 ? pare_f32_to_f16(x) : pare_f32_to_bf16(x);
    }
    *out = data;
    return PARE_OK;
}

pare_status pare_lowp_constant(pare_lowp *h, const pare_value *v, pare_value **out)
{
    const pare_tensor *t = v->data;
    void *data;
    PARE_TRY(pare_lowp_convert(h, t, &data));
    pare_status st = pare_quant_constant(v->graph, out, v->name, pare_type(h->type)->name, h->type,
                                         t->rank, t->dims, data);
    pare_free(data);
    return st;
}

/* The integer or other tensor a conversion node made v from, where v may be made from it again: two
   Casts in a row say less than one. */
static pare_value *origin_of(const pare_lowp *h, const pare_value *v)
{
    const pare_node *node = v->producer;
    const pare_op *op = node ? pare_op_of(node) : NULL;
    if (!op || op->quant.half != PARE_LOWP_CAST || node->graph != v->graph) return NULL;
    pare_value *from = node->in[0];
    bool number = from && from->dtype != PARE_NOTYPE && from->dtype != PARE_f32 &&
                  from->dtype != h->type && from->dtype != PARE_f64;
    return number ? from : NULL;
}

pare_status pare_lowp_as(pare_lowp *h, pare_value *v, pare_dtype wanted, pare_value **out)
{
    *out = v;
    if (v->dtype == wanted) return PARE_OK;
    int known = pare_ptr_map_find(&h->twin, v);
    if (known >= 0) {
        *out = h->kept[known];
        return PARE_OK;
    }
    if (v->data && v->data->dtype == PARE_f32)
        PARE_TRY(pare_lowp_constant(h, v, out));
    else {
        pare_value *from = origin_of(h, v);
        PARE_TRY(pare_quant_value(v->graph, out, v->name, pare_type(wanted)->name));
        pare_value_set_type(*out, wanted, &v->shape);
        int at = v->producer ? pare_node_index(v->producer) + 1 : 0;
        PARE_TRY(pare_lowp_cast(h, at, from ? from : v, *out, wanted));
    }
    return pare_lowp_pair(h, v, *out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats: what is measured and compared is f32; what readers of a model with FP16 around
   its pairs read is f16. */
#include "quant/diagnose/internal.h"
#include "runtime/base/minifloat.h"

bool pare_diag_takes(pare_dtype type)
{
    return type == PARE_f32 || type == PARE_f16 || type == PARE_bf16;
}

pare_dtype pare_diag_read_type(const pare_diag *d, const pare_part_read *read)
{
    const pare_dtype type = d->master->graph->node[read->node]->in[read->input]->dtype;
    return pare_diag_takes(type) ? type : PARE_f32;
}

/* Number i, at any address. */
static float number(const pare_tensor *t, int64_t i)
{
    uint16_t half;
    if (t->dtype == PARE_f8e8m0)
        return pare_minifloat_to_f32(t->dtype, ((const uint8_t *)t->data)[i]);
    memcpy(&half, (const char *)t->data + (size_t)i * sizeof half, sizeof half);
    return pare_type(t->dtype)->to_f32(&half);
}

pare_status pare_diag_floats(pare_diag *d, const pare_tensor *t, const pare_tensor **out)
{
    pare_tensor *made;
    *out = t && t->dtype == PARE_f32 ? t : NULL;
    if (*out || !t || !(pare_diag_takes(t->dtype) || t->dtype == PARE_f8e8m0)) return PARE_OK;
    PARE_TRY(pare_tensor_new(d->master, &made, t->name, PARE_f32, t->rank, t->dims, NULL));
    float *to = (float *)(uintptr_t)made->data;
    for (int64_t i = 0; i < t->count; i++) to[i] = number(t, i);
    *out = made;
    return PARE_OK;
}

pare_status pare_diag_constant(pare_diag *d, const char *base, const char *suffix, pare_dtype dtype,
                               const pare_tensor *t, pare_value **out)
{
    pare_graph *g = d->master->graph;
    PARE_TRY(pare_quant_constant(g, out, base, suffix, dtype, t->rank, t->dims,
                                 dtype == PARE_f32 ? t->data : NULL));
    uint16_t *to = (uint16_t *)(uintptr_t)(*out)->data->data;
    for (int64_t i = 0; dtype != PARE_f32 && i < t->count; i++)
        pare_type(dtype)->from_f32_ref(&to[i], pare_quant_number(t->data, i));
    return PARE_OK;
}

pare_status pare_diag_cast(pare_diag *d, pare_value *v, pare_dtype dtype, pare_value **out)
{
    *out = v;
    if (v->dtype == dtype) return PARE_OK;
    PARE_TRY(pare_diag_append(d, "Cast", v->name, &v, 1, out));
    pare_value_set_type(*out, dtype, &v->shape);
    return pare_node_set_int((*out)->producer, "to", dtype);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/int8_elementwise.h"

bool pare_int8_pair_can(const pare_prep *p)
{
    return pare_type_is_int8(p->in[0].dtype) && pare_type_is_int8(p->in[1].dtype);
}

pare_status pare_int8_pair_read(const pare_prep *p, bool product, pare_int8_pair *pair)
{
    pare_quant_args q;
    pare_act act;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&pair->epilogue, &q, &act, PARE_NOTYPE);
    float y_scale = pair->epilogue.real ? 1 : q.y_scale;
    pair->a_factor = (product ? q.x_scale * q.z_scale : q.x_scale) / y_scale;
    pair->b_factor = q.z_scale / y_scale;
    pair->a_zero = q.x_zero, pair->b_zero = q.z_zero;
    pair->a_type = p->in[0].dtype, pair->b_type = p->in[1].dtype;
    pair->product = product;
    return PARE_OK;
}

bool pare_requantize_can(const pare_prep *p)
{
    for (int i = 0; i < p->in_count; i++)
        if (!pare_type_is_int8(p->in[i].dtype)) return false;
    return pare_type_is_int8(p->out[0].dtype);
}

/* The table of x -> y for x of this type; e's units are steps of y. */
static void fill(uint8_t *table, pare_dtype type, int32_t zero, float factor,
                 const pare_epilogue *e)
{
    for (int i = 0; i < 256; i++) {
        int32_t x = type == PARE_s8 ? (int8_t)i : i;
        pare_epilogue_store(e, (float)(x - zero) * factor, table, i);
    }
}

pare_status pare_requantize_table(const pare_prep *p, uint8_t table[256])
{
    pare_quant_args q;
    pare_act act;
    pare_epilogue e;
    PARE_TRY(pare_quant_read(p->node, &q));
    PARE_TRY(pare_act_read(p->node, &act));
    pare_epilogue_init(&e, &q, &act, PARE_NOTYPE);
    fill(table, p->in[0].dtype, q.x_zero, e.real ? q.x_scale : q.x_scale / q.y_scale, &e);
    return PARE_OK;
}

bool pare_concat_is_copy(const pare_node *concat, int i)
{
    const float *scales = pare_node_attr(concat, "scales")->floats;
    const int64_t *zeros = pare_node_attr(concat, "zero_points")->ints;
    int last = concat->in_count;
    return scales[i] == scales[last] && zeros[i] == zeros[last] &&
           concat->in[i]->dtype == concat->out[0]->dtype;
}

void pare_concat_tables(const pare_prep *p, uint8_t *tables)
{
    const float *scales = pare_node_attr(p->node, "scales")->floats;
    const int64_t *zeros = pare_node_attr(p->node, "zero_points")->ints;
    int last = p->in_count;
    pare_quant_args q = {
        .y_scale = scales[last], .y_zero = (int32_t)zeros[last], .to = p->out[0].dtype};
    pare_act act = {0};
    pare_epilogue e;
    pare_epilogue_init(&e, &q, &act, PARE_NOTYPE);
    for (int i = 0; i < last; i++, tables += 256) {
        fill(tables, p->in[i].dtype, (int32_t)zeros[i], scales[i] / q.y_scale, &e);
        if (pare_concat_is_copy(p->node, i))
            for (int k = 0; k < 256; k++) tables[k] = (uint8_t)k;
    }
}

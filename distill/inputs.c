/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/inputs.h"

#include <string.h>

pare_value *pare_inputs_at(const pare_model *model, int i)
{
    const pare_values *in = &model->graph->in;
    for (int k = 0; k < in->count; k++)
        if (!in->item[k]->is_init && i-- == 0) return in->item[k];
    return NULL;
}

int pare_inputs_count(const pare_model *model)
{
    int count = 0;
    while (pare_inputs_at(model, count)) count++;
    return count;
}

int pare_inputs_place(const pare_model *model, const char *name)
{
    const pare_value *v;
    for (int i = 0; (v = pare_inputs_at(model, i)); i++)
        if (!strcmp(v->name, name)) return i;
    return -1;
}

static bool takes(const pare_shape *wanted, const pare_shape *given)
{
    if (wanted->rank < 0) return true;
    if (wanted->rank != given->rank) return false;
    for (int i = 1; i < given->rank; i++)
        if (wanted->dim[i] >= 0 && wanted->dim[i] != given->dim[i]) return false;
    return true;
}

pare_status pare_inputs_set_rows(pare_ctx *ctx, pare_model *model, const pare_data *data,
                                 const int *source, int64_t rows)
{
    pare_value *v;
    char want[256], have[256];
    for (int i = 0; (v = pare_inputs_at(model, i)); i++) {
        pare_shape shape = *pare_data_shape(data, source ? source[i] : i);
        if (!takes(&v->shape, &shape))
            return PARE_FAIL(ctx, INPUT, "%s: input '%s' has shape %s, but a sample is %s",
                             model->path, v->name, pare_shape_text(&v->shape, want, sizeof want),
                             pare_shape_text(&shape, have, sizeof have));
        shape.dim[0] = rows;
        pare_value_set_type(v, v->dtype, &shape);
    }
    return PARE_OK;
}

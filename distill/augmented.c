/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/augmented.h"
#include "distill/inputs.h"

static pare_status open_input(pare_augmented *p, int i, const pare_value *v, const pare_data *data)
{
    const pare_shape *shape = pare_data_shape(data, i);
    PARE_TRY(pare_augment_fit(p->ctx, &p->axes[i], &p->augment, v->name, v->dtype, shape));
    p->floats[i] = (size_t)pare_shape_count(shape);
    for (int s = 0; s < p->microbatches; s++) {
        float **image = &p->image[s * p->inputs + i];
        *image = pare_alloc(p->ctx, (size_t)(p->rows + 1) * p->floats[i], sizeof **image);
        if (!*image) return PARE_MEMORY;
    }
    return PARE_OK;
}

pare_status pare_augmented_open(pare_ctx *ctx, pare_augmented *out, const pare_augment *augment,
                                uint64_t seed, const pare_model *student, const pare_data *data,
                                int microbatches, int64_t rows)
{
    *out = (pare_augmented){
        .ctx = ctx, .augment = *augment, .seed = seed, .microbatches = microbatches, .rows = rows};
    if (!augment->flip && !augment->shift && !(augment->mixup > 0)) return PARE_OK;
    out->inputs = pare_inputs_count(student);
    const size_t inputs = (size_t)out->inputs;
    out->axes = pare_alloc(ctx, inputs, sizeof *out->axes);
    out->floats = pare_alloc(ctx, inputs, sizeof *out->floats);
    out->image = pare_alloc(ctx, inputs * (size_t)microbatches, sizeof *out->image);
    if (!out->axes || !out->floats || !out->image) return PARE_MEMORY;
    for (int i = 0; i < out->inputs; i++)
        PARE_TRY(open_input(out, i, pare_inputs_at(student, i), data));
    return PARE_OK;
}

void pare_augmented_free(pare_augmented *p)
{
    for (int i = 0; p->image && i < p->inputs * p->microbatches; i++) pare_free(p->image[i]);
    pare_free(p->image);
    pare_free(p->floats);
    pare_free(p->axes);
    *p = (pare_augmented){0};
}

void pare_augmented_fill(const pare_augmented *p, const pare_loader_batch *batch, int slice,
                         const void **input)
{
    for (int i = 0; i < p->inputs; i++) {
        float *image = p->image[slice * p->inputs + i];
        float *scratch = image + (size_t)p->rows * p->floats[i];
        for (int64_t r = 0; r < p->rows; r++)
            pare_augment_sample(&p->augment, &p->axes[i], p->seed, batch, i,
                                (int)(slice * p->rows + r), scratch,
                                image + (size_t)r * p->floats[i]);
        input[i] = image;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Augmented images: the text of the option, one sample, the microbatches of a batch. */
#include "distill/augment.h"
#include "distill/graph.h"
#include "distill/loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what is asked for --- */

static bool is_word(const char *text, size_t size, const char *word)
{
    return size == strlen(word) && !memcmp(text, word, size);
}

/* "name:VALUE", a value in (0, most] that ends with the part. */
static bool read_value(const char *text, size_t size, const char *name, double most, double *out)
{
    size_t n = strlen(name);
    char *end;
    if (size <= n || memcmp(text, name, n) || strspn(text + n, "0123456789.") != size - n)
        return false;
    *out = strtod(text + n, &end);
    return end == text + size && *out > 0 && *out <= most;
}

static pare_status parse_part(pare_ctx *ctx, pare_augment *out, const char *text, size_t size)
{
    double value;
    bool again = false;
    if (is_word(text, size, "flip")) {
        again = out->flip;
        out->flip = true;
    } else if (read_value(text, size, "shift:", 4096, &value) && value == floor(value)) {
        again = out->shift != 0;
        out->shift = (int)value;
    } else if (read_value(text, size, "mixup:", 100, &value) && value >= 1e-3) {
        again = out->mixup != 0;
        out->mixup = value;
    } else {
        return PARE_FAIL(ctx, USAGE,
                         "augmentation '%.*s': expected flip, shift:PIXELS (1 to 4096) or "
                         "mixup:ALPHA (0.001 to 100)",
                         (int)(size < 64 ? size : 64), text);
    }
    if (again)
        return PARE_FAIL(ctx, USAGE, "augmentation '%.*s': there is one of its kind already",
                         (int)size, text);
    return PARE_OK;
}

pare_status pare_augment_parse(pare_ctx *ctx, pare_augment *out, const char *text)
{
    *out = (pare_augment){0};
    for (;;) {
        size_t size = strcspn(text, ",");
        PARE_TRY(parse_part(ctx, out, text, size));
        if (!text[size]) return PARE_OK;
        text += size + 1;
    }
}

static bool few(int64_t channels) { return channels == 1 || channels == 3 || channels == 4; }

pare_status pare_augment_fit(pare_ctx *ctx, pare_image_axes *out, const pare_augment *augment,
                             const char *input, pare_dtype dtype, const pare_shape *shape)
{
    char text[256];
    bool image = dtype == PARE_f32 && shape->rank == 4, last = image && !few(shape->dim[1]);
    pare_shape_text(shape, text, sizeof text);
    if (!image || (last && !few(shape->dim[3])))
        return PARE_FAIL(ctx, INPUT,
                         "input '%s': has type %s and shape %s, expected images to augment: f32, 4 "
                         "axes, 1, 3 or 4 channels on axis 1 or 3",
                         input, pare_type(dtype)->name, text);
    const int64_t *dim = shape->dim;
    *out = last ? (pare_image_axes){dim[3], dim[1], dim[2], true}
                : (pare_image_axes){dim[1], dim[2], dim[3], false};
    if (augment->shift >= out->height || augment->shift >= out->width)
        return PARE_FAIL(ctx, INPUT,
                         "input '%s': has images of %lld x %lld pixels, too small to shift by %d",
                         input, (long long)out->height, (long long)out->width, augment->shift);
    return PARE_OK;
}

/* --- moving one image --- */

static int64_t clamp(int64_t i, int64_t count) { return i < 0 ? 0 : i < count ? i : count - 1; }

/* One plane or picture of height rows of width pixels of step floats each. */
static void move(const pare_image_axes *a, size_t step, bool flip, int64_t down, int64_t right,
                 const float *in, float *out)
{
    for (int64_t y = 0; y < a->height; y++) {
        const float *row = in + (size_t)(clamp(y - down, a->height) * a->width) * step;
        for (int64_t x = 0; x < a->width; x++, out += step) {
            int64_t from = clamp(x - right, a->width);
            if (flip) from = a->width - 1 - from;
            memcpy(out, row + (size_t)from * step, step * sizeof *out);
        }
    }
}

static size_t image_size(const pare_image_axes *a)
{
    return (size_t)(a->channels * a->height * a->width);
}

static void move_sample(const pare_augment *augment, const pare_image_axes *a, uint64_t seed,
                        const pare_loader_batch *batch, int input, int i, float *out)
{
    const float *in = (const float *)batch->input[input] + (size_t)i * image_size(a);
    pare_random r = pare_random_of(seed, PARE_RANDOM_AUGMENT, batch->epoch[i], batch->sample[i]);
    uint64_t span = 2 * (uint64_t)augment->shift + 1;
    bool flip = (pare_random_next(&r) >> 63) && augment->flip;
    int64_t down = (int64_t)pare_random_below(&r, span) - augment->shift;
    int64_t right = (int64_t)pare_random_below(&r, span) - augment->shift;
    if (a->last) {
        move(a, (size_t)a->channels, flip, down, right, in, out);
        return;
    }
    size_t plane = (size_t)(a->height * a->width);
    for (int64_t c = 0; c < a->channels; c++, in += plane, out += plane)
        move(a, 1, flip, down, right, in, out);
}

/* --- mixing two --- */

/* Normal deviate, polar method (Marsaglia, Bray 1964). */
static double draw_normal(pare_random *r)
{
    double x, y, s;
    do {
        x = 2 * pare_random_unit(r) - 1;
        y = 2 * pare_random_unit(r) - 1;
        s = x * x + y * y;
    } while (s >= 1 || s == 0);
    return x * sqrt(-2 * log(s) / s);
}

/* Logarithm of a Gamma(a, 1) deviate (Marsaglia, Tsang 2000, "A simple method for generating gamma
   variables"; below 1: Gamma(a + 1) U^(1 / a), section 6). */
static double draw_log_gamma(pare_random *r, double a)
{
    double boost = a < 1 ? log(1 - pare_random_unit(r)) / a : 0;
    double d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = draw_normal(r), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(1 - pare_random_unit(r)) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d * v) + boost;
    }
}

int pare_augment_partner(int i, int count) { return (int)(((int64_t)i + count / 2) % count); }

double pare_augment_share(const pare_augment *augment, uint64_t seed,
                          const pare_loader_batch *batch, int i)
{
    if (augment->mixup == 0 || pare_augment_partner(i, batch->count) == i) return 1;
    pare_random r = pare_random_of(seed, PARE_RANDOM_MIX, batch->epoch[i], batch->sample[i]);
    double x = draw_log_gamma(&r, augment->mixup), y = draw_log_gamma(&r, augment->mixup);
    return 1 / (1 + exp(y - x)); /* X / (X + Y) */
}

void pare_augment_sample(const pare_augment *augment, const pare_image_axes *axes, uint64_t seed,
                         const pare_loader_batch *batch, int input, int i, float *scratch,
                         float *out)
{
    double share = pare_augment_share(augment, seed, batch, i);
    move_sample(augment, axes, seed, batch, input, i, out);
    if (share == 1) return;
    move_sample(augment, axes, seed, batch, input, pare_augment_partner(i, batch->count), scratch);
    float own = (float)share, other = (float)(1 - share);
    for (size_t k = 0; k < image_size(axes); k++) out[k] = own * out[k] + other * scratch[k];
}

/* --- the microbatches of a batch --- */

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
                                (int)((p->first + slice) * p->rows + r), scratch,
                                image + (size_t)r * p->floats[i]);
        input[i] = image;
    }
}

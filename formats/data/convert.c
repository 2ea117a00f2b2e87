/* SPDX-License-Identifier: Apache-2.0 */
/* Stored samples to the model's: memory order, pixels to floats, number formats. A value that the
   model's type cannot hold, NaN and Inf are refused; float64 is rounded to the model's float. */
#include "formats/data/source.h"
#include "formats/picture.h"
#include "runtime/base/size.h"

#include <math.h>
#include <string.h>

/* --- fitting a dataset to an input --- */

/* Does the file's sample, its axes permuted (NULL: as they are), have the model's dims? */
static bool dims_fit(const pare_h5_set *set, const pare_shape *wanted, const int *permutation)
{
    for (int i = 1; i < wanted->rank; i++) {
        int64_t have = set->dim[permutation ? permutation[i] : i];
        if (wanted->dim[i] >= 0 && wanted->dim[i] != have) return false;
    }
    return true;
}

static pare_status fail_dims(pare_ctx *ctx, const pare_data_source *s, const pare_shape *wanted)
{
    char want[256], have[256];
    pare_shape stored = {.rank = s->set.scalar ? 0 : s->set.rank};
    memcpy(stored.dim, s->set.dim, sizeof stored.dim);
    pare_shape_text(wanted, want, sizeof want);
    pare_shape_text(&stored, have, sizeof have);
    return PARE_FAIL(ctx, INPUT,
                     "%s: dataset '%s': has shape %s%s%s, but input '%s' takes %s; store samples "
                     "%s",
                     s->set.file->path, s->set.name, have,
                     s->set.image.layout[0] ? " with layout " : "", s->set.image.layout, s->name,
                     want,
                     wanted->rank <= 0 ? "along one axis"
                                       : "along the first of these axes, or along one before them");
}

/* Chooses the order of axes: a layout attribute turns images into the model's N, C, H, W (or back,
   where only that fits). False: there is none. */
static bool choose_order(pare_data_source *s, const pare_shape *wanted)
{
    static const int to_nchw[4] = {0, 3, 1, 2}, to_nhwc[4] = {0, 2, 3, 1};
    const pare_h5_set *set = &s->set;
    const int *turn = NULL;
    bool image = set->rank == 4, plain = wanted->rank < 0 || dims_fit(set, wanted, NULL);
    if (image && !strcmp(set->image.layout, "nhwc") &&
        (wanted->rank < 0 || dims_fit(set, wanted, to_nchw)))
        turn = to_nchw;
    else if (image && !plain && !strcmp(set->image.layout, "nchw") &&
             dims_fit(set, wanted, to_nhwc))
        turn = to_nhwc;
    else if (!plain)
        return false;
    s->shape = (pare_shape){.rank = set->rank};
    s->shape.dim[0] = 1;
    s->count = 1;
    for (int i = 1; i < set->rank; i++) {
        s->shape.dim[i] = set->dim[turn ? turn[i] : i];
        s->count *= s->shape.dim[i];
    }
    if (turn == to_nchw) s->rows = set->dim[1] * set->dim[2], s->columns = set->dim[3];
    if (turn == to_nhwc) s->rows = set->dim[1], s->columns = set->dim[2] * set->dim[3];
    return true;
}

/* With the input's rank the dataset's first axis is the input's own; with one more it is before
   them. */
static pare_status fit_dims(pare_ctx *ctx, pare_data_source *s, const pare_shape *wanted)
{
    pare_shape rows = *wanted;
    s->whole = wanted->rank >= 0 && s->set.rank == wanted->rank + 1;
    if (s->whole) {
        rows = (pare_shape){.rank = s->set.rank, .dim = {-1}};
        memcpy(rows.dim + 1, wanted->dim, (size_t)wanted->rank * sizeof *rows.dim);
    }
    bool fits = rows.rank < 0 || rows.rank == s->set.rank;
    if (s->set.scalar && wanted->rank) fits = false;
    return fits && choose_order(s, &rows) ? PARE_OK : fail_dims(ctx, s, wanted);
}

/* What a pixel value of each channel means. */
static pare_status make_table(pare_ctx *ctx, pare_data_source *s)
{
    const pare_h5_image *image = &s->set.image;
    int n = image->mean_count > image->std_count ? image->mean_count : image->std_count;
    /* the model's order: the file's, or where it was turned the other */
    bool last = !strcmp(image->layout, s->rows ? "nchw" : "nhwc");
    int axis = last ? s->shape.rank - 1 : 1;
    int64_t channels = s->shape.rank > 1 ? s->shape.dim[axis] : 1;
    if (n == 0) n = 1;
    if ((image->mean_count > 1 && image->mean_count != channels) ||
        (image->std_count > 1 && image->std_count != channels))
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': attributes mean and std have %d values for "
                         "%lld channels",
                         s->set.file->path, s->set.name, n, (long long)channels);
    s->channels = n;
    s->inner = n > 1 ? 1 : s->count;
    for (int i = axis + 1; n > 1 && i < s->shape.rank; i++) s->inner *= s->shape.dim[i];
    s->table = pare_alloc(ctx, (size_t)n * 256, sizeof *s->table);
    if (!s->table) return PARE_MEMORY;
    for (int c = 0; c < n; c++) {
        float mean = image->mean_count ? image->mean[image->mean_count > 1 ? c : 0] : 0;
        float std = image->std_count ? image->std[image->std_count > 1 ? c : 0] : 1;
        pare_picture_table(s->table + (size_t)c * 256, mean, std);
    }
    return PARE_OK;
}

pare_status pare_data_fit(pare_ctx *ctx, pare_data_source *s, const pare_shape *wanted)
{
    bool float_file = pare_type_is_float(s->set.dtype), float_model = pare_type_is_float(s->dtype);
    const pare_type_info *type = pare_type(s->dtype);
    if (!type->to_f32 || (float_file && !float_model))
        return PARE_FAIL(ctx, INPUT, "%s: dataset '%s': has type %s, but input '%s' takes %s",
                         s->set.file->path, s->set.name, pare_type(s->set.dtype)->name, s->name,
                         type->name);
    if (float_model && !float_file && s->set.dtype != PARE_u8)
        return PARE_FAIL(
            ctx, INPUT,
            "%s: dataset '%s': has type %s, but input '%s' takes %s; store ready values "
            "as float32, or pixels as uint8 with attributes mean and std",
            s->set.file->path, s->set.name, pare_type(s->set.dtype)->name, s->name, type->name);
    PARE_TRY(fit_dims(ctx, s, wanted));
    if (!pare_type_bytes(s->dtype, s->count, &s->bytes) || s->bytes > PARE_H5_MAX_BYTES)
        return PARE_FAIL(ctx, INPUT, "%s: dataset '%s': one sample is larger than 1 GiB",
                         s->set.file->path, s->set.name);
    return s->set.dtype == PARE_u8 && float_model ? make_table(ctx, s) : PARE_OK;
}

bool pare_data_take_pixels(pare_data *data, int i, pare_pixels *out)
{
    pare_data_source *s = &data->source[i];
    if (!s->table || s->dtype != PARE_f32) return false;
    s->raw = true;
    s->bytes = (size_t)s->count;
    return pare_data_has_pixels(data, i, out);
}

void pare_data_take_floats(pare_data *data)
{
    for (int i = 0; i < data->source_count; i++) {
        pare_data_source *s = &data->source[i];
        if (!s->raw) continue;
        s->raw = false;
        s->bytes = (size_t)s->count * sizeof(float); /* only f32 can be raw */
    }
}

bool pare_data_has_pixels(const pare_data *data, int i, pare_pixels *out)
{
    const pare_data_source *s = &data->source[i];
    if (s->raw)
        *out = (pare_pixels){.table = s->table,
                             .channels = s->channels,
                             .inner = s->inner,
                             .rows = s->rows,
                             .columns = s->columns,
                             .count = s->count};
    return s->raw;
}

/* --- converting --- */

static void transpose(const pare_data_source *s, const uint8_t *in, uint8_t *out)
{
    size_t e = s->set.element;
    for (int64_t c = 0; c < s->columns; c++)
        for (int64_t r = 0; r < s->rows; r++) {
            const uint8_t *from = in + (size_t)(r * s->columns + c) * e;
            uint8_t *to = out + (size_t)(c * s->rows + r) * e;
            if (e == 1)
                *to = *from;
            else
                memcpy(to, from, e);
        }
}

void pare_data_read_ints(pare_dtype dtype, const uint8_t *raw, int64_t count, int64_t *out)
{
    size_t bytes = (size_t)pare_type(dtype)->bits / 8;
    bool with_sign = dtype == PARE_s8 || dtype == PARE_s16 || dtype == PARE_s32;
    int unused = 64 - 8 * (int)bytes;
    for (int64_t i = 0; i < count; i++) {
        uint64_t v = 0; /* little-endian, as the type's bytes are */
        memcpy(&v, raw + (size_t)i * bytes, bytes);
        out[i] = with_sign ? (int64_t)(v << unused) >> unused : (int64_t)v;
    }
}

static pare_status fail_value(pare_ctx *ctx, const pare_data_source *s, int64_t sample,
                              const char *what, const char *cure)
{
    return PARE_FAIL(ctx, INPUT, "%s: dataset '%s': sample %lld has %s; %s", s->set.file->path,
                     s->set.name, (long long)sample, what, cure);
}

static pare_status fail_finite(pare_ctx *ctx, const pare_data_source *s, int64_t sample)
{
    return fail_value(ctx, s, sample, "a NaN or an infinite value", "mend or remove the sample");
}

static pare_status check_finite(pare_ctx *ctx, const pare_data_source *s, int64_t sample,
                                const uint8_t *raw)
{
    bool bad = false;
    for (int64_t i = 0; i < s->count && s->set.dtype == PARE_f32; i++) {
        uint32_t v;
        memcpy(&v, raw + 4 * i, 4);
        bad |= (v & 0x7f800000u) == 0x7f800000u;
    }
    const pare_type_info *type = pare_type(s->set.dtype);
    for (int64_t i = 0; i < s->count && s->set.element == 2; i++)
        bad |= !isfinite(type->to_f32(raw + 2 * i));
    for (int64_t i = 0; i < s->count && s->set.dtype == PARE_f64; i++) {
        double v;
        memcpy(&v, raw + 8 * i, 8);
        bad |= !isfinite(v);
    }
    return bad ? fail_finite(ctx, s, sample) : PARE_OK;
}

static void store(const pare_data_source *s, void *out, int64_t i, double value)
{
    if (s->dtype == PARE_f32)
        ((float *)out)[i] = (float)value;
    else if (s->dtype == PARE_f64)
        ((double *)out)[i] = value;
    else
        pare_type(s->dtype)->from_f32_ref((uint16_t *)out + i, (float)value);
}

static void convert_pixels(const pare_data_source *s, const uint8_t *raw, void *out)
{
    for (int64_t i = 0, c = 0; i < s->count; c = c + 1 == s->channels ? 0 : c + 1) {
        const float *table = s->table + c * 256;
        int64_t end = i + s->inner;
        if (s->dtype == PARE_f32)
            for (float *o = out; i < end; i++) o[i] = table[raw[i]];
        else
            for (; i < end; i++) store(s, out, i, (double)table[raw[i]]);
    }
}

static pare_status convert_floats(pare_ctx *ctx, const pare_data_source *s, int64_t sample,
                                  const uint8_t *raw, void *out)
{
    const pare_type_info *from = pare_type(s->set.dtype), *to = pare_type(s->dtype);
    size_t step = (size_t)to->bits / 8;
    bool bad = false;
    for (int64_t i = 0; i < s->count; i++) {
        double v;
        if (s->set.dtype == PARE_f64)
            memcpy(&v, raw + 8 * i, 8);
        else
            v = (double)from->to_f32(raw + (size_t)i * s->set.element);
        store(s, out, i, v);
        bad |= s->dtype != PARE_f64 && !isfinite(to->to_f32((uint8_t *)out + (size_t)i * step));
    }
    return bad ? fail_value(ctx, s, sample, "a value too large for the model's type",
                            "scale the data or convert the model to f32")
               : PARE_OK;
}

/* The integers a type holds exactly, as a closed interval. */
static void exact_integers(pare_dtype dtype, int64_t *low, int64_t *high)
{
    int bits = pare_type(dtype)->bits;
    bool no_sign = dtype == PARE_u8 || dtype == PARE_u16 || dtype == PARE_u32;
    *high = dtype == PARE_bool ? 1 : no_sign ? ((int64_t)1 << bits) - 1 : INT64_MAX >> (64 - bits);
    *low = no_sign || dtype == PARE_bool || dtype == PARE_u64 ? 0 : -*high - 1;
    if (dtype == PARE_u64) *high = INT64_MAX;
}

static pare_status convert_integers(pare_ctx *ctx, const pare_data_source *s, int64_t sample,
                                    const uint8_t *raw, void *out)
{
    int64_t low, high, v;
    size_t step = (size_t)pare_type(s->dtype)->bits / 8;
    bool bad = false;
    exact_integers(s->dtype, &low, &high);
    for (int64_t i = 0; i < s->count; i++) {
        pare_data_read_ints(s->set.dtype, raw + (size_t)i * s->set.element, 1, &v);
        bad |= v < low || v > high || (s->set.dtype == PARE_u64 && v < 0);
        memcpy((uint8_t *)out + (size_t)i * step, &v, step);
    }
    char what[80], cure[80];
    if (!bad) return PARE_OK;
    strcpy(what, "an integer that the model's ");
    strcat(strcat(what, pare_type(s->dtype)->name), " cannot hold");
    strcat(strcpy(cure, "store the dataset as "), pare_type(s->dtype)->name);
    return fail_value(ctx, s, sample, what, cure);
}

pare_status pare_data_convert(pare_ctx *ctx, const pare_data_source *s, int64_t sample,
                              const uint8_t *raw, uint8_t *mixed, void *out)
{
    bool float_file = pare_type_is_float(s->set.dtype);
    if (s->raw) {
        memcpy(out, raw, s->bytes);
        return PARE_OK;
    }
    if (s->rows) {
        transpose(s, raw, mixed);
        raw = mixed;
    }
    if (float_file) PARE_TRY(check_finite(ctx, s, sample, raw));
    if (s->table)
        convert_pixels(s, raw, out);
    else if (s->set.dtype == s->dtype)
        memcpy(out, raw, s->bytes);
    else if (float_file)
        return convert_floats(ctx, s, sample, raw, out);
    else
        return convert_integers(ctx, s, sample, raw, out);
    return PARE_OK;
}

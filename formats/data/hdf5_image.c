/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes `mean`, `std` and `layout` of a dataset of images. */
#include "formats/data/hdf5.h"

#include <hdf5.h>
#include <math.h>
#include <string.h>

enum { MAX_CHANNELS = 4096 };

/* A scalar or a list of numbers; absent leaves NULL. */
static pare_status read_numbers(pare_ctx *ctx, const pare_h5_set *set, const char *name,
                                float **out, int *count)
{
    if (H5Aexists(set->id, name) <= 0) return PARE_OK;
    hid_t a = H5Aopen(set->id, name, H5P_DEFAULT);
    hid_t space = a < 0 ? -1 : H5Aget_space(a), type = a < 0 ? -1 : H5Aget_type(a);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    pare_status st = PARE_OK;
    if (n < 1 || n > MAX_CHANNELS || (class != H5T_FLOAT && class != H5T_INTEGER)) n = -1;
    float *values = n < 0 ? NULL : pare_alloc(ctx, (size_t)n, sizeof *values);
    if (n < 0 || (values && H5Aread(a, H5T_NATIVE_FLOAT, values) < 0))
        st = PARE_FAIL(ctx, INPUT,
                       "%s: dataset '%s': attribute '%s' is damaged, expected one number "
                       "or one per channel",
                       set->file->path, set->name, name);
    else if (!values)
        st = PARE_MEMORY;
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    if (a >= 0) H5Aclose(a);
    for (hssize_t i = 0; st == PARE_OK && i < n; i++)
        if (!isfinite(values[i]) || (!strcmp(name, "std") && values[i] == 0))
            st = PARE_FAIL(ctx, INPUT, "%s: dataset '%s': attribute '%s' has %g for channel %d",
                           set->file->path, set->name, name, (double)values[i], (int)i);
    if (st != PARE_OK) {
        pare_free(values);
        return st;
    }
    *out = values;
    *count = (int)n;
    return PARE_OK;
}

static bool read_text(hid_t a, hid_t type, char *out, size_t size)
{
    if (H5Tget_class(type) != H5T_STRING) return false;
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        if (H5Aread(a, type, &text) < 0 || !text) return false;
        strncpy(out, text, size - 1);
        H5free_memory(text);
        return true;
    }
    return H5Tget_size(type) < size && H5Aread(a, type, out) >= 0;
}

static pare_status read_layout(pare_ctx *ctx, pare_h5_set *set)
{
    if (H5Aexists(set->id, "layout") <= 0) return PARE_OK;
    hid_t a = H5Aopen(set->id, "layout", H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    hid_t space = a < 0 ? -1 : H5Aget_space(a);
    char *text = set->image.layout;
    bool good = type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
                read_text(a, type, text, sizeof set->image.layout);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    if (a >= 0) H5Aclose(a);
    for (char *c = text; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    if (!good || (strcmp(text, "nchw") != 0 && strcmp(text, "nhwc") != 0))
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': attribute 'layout' is '%.15s', expected nchw "
                         "or nhwc",
                         set->file->path, set->name, good ? text : "");
    return PARE_OK;
}

pare_status pare_h5_read_image(pare_ctx *ctx, pare_h5_set *set)
{
    PARE_TRY(read_numbers(ctx, set, "mean", &set->image.mean, &set->image.mean_count));
    PARE_TRY(read_numbers(ctx, set, "std", &set->image.std, &set->image.std_count));
    return read_layout(ctx, set);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* pare data: makes HDF5 data sets. */
#include "formats/import.h"
#include "formats/json.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "tools/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* --- fashion-mnist --- */

typedef struct fashion_options {
    pare_common common;
    const char *output, *source;
} fashion_options;

#define OPTIONS fashion_options
static const pare_option fashion_table[] = {
    PARE_OPT_SHORT('o', FOLDER, "output", "DIR", output,
                   "folder for train.h5 and test.h5 (made where missing)"),
    PARE_OPT_FOLDER(
        "source", "DIR", source,
        "folder with the four IDX files (where Debian's package dataset-fashion-mnist puts them)"),
    {0},
};

static pare_status run_fashion(pare_tool *tool, const void *options)
{
    const fashion_options *o = options;
    pare_progress bar;
    PARE_TRY(pare_need_option(tool, o->output, "-o DIR", "the folder for train.h5 and test.h5"));
    pare_progress_begin(&bar, stderr, o->common.quiet, "fashion-mnist", "images");
    pare_import_options import = {
        .progress = pare_progress_step, .progress_user = &bar, .threads = (int)o->common.threads};
    pare_status st = pare_data_fashion_mnist(tool->ctx, o->output, o->source, &import);
    pare_progress_end(&bar);
    PARE_TRY(st);
    static const char *const names[] = {"train.h5", "test.h5"};
    json_t *files = json_array();
    for (int i = 0; i < 2; i++) {
        const char *slash = o->output[strlen(o->output) - 1] == '/' ? "" : "/";
        char *path = pare_arena_printf(&tool->arena, "%s%s%s", o->output, slash, names[i]);
        if (!path) return PARE_MEMORY;
        json_array_append_new(files, pare_json_text(path));
        pare_print(stdout, "%s\n", path);
    }
    json_object_set_new(tool->facts, "outputs", files);
    return PARE_OK;
}

const pare_command pare_command_data_fashion_mnist = {
    .name = "data fashion-mnist",
    .arguments = "-o DIR",
    .summary = "make train.h5 and test.h5 from Fashion-MNIST",
    .example = "pare data fashion-mnist -o data/",
    .options = fashion_table,
    .size = sizeof(fashion_options),
    .run = run_fashion,
};

/* --- import --- */

typedef struct import_options {
    pare_common common;
    const char *output, *images, *mean, *std, *name;
    bool idx, npy;
    int layout;
    int64_t resize, crop;
} import_options;

#undef OPTIONS
#define OPTIONS import_options
static const pare_option import_table[] = {
    PARE_OPT_SHORT('o', OUTPUT, "output", "F.h5", output, "data set to write"),
    PARE_OPT_FOLDER("images", "DIR", images,
                    "folder of class folders of PNG and JPEG files; a label is the number of the "
                    "sorted folder"),
    PARE_OPT_FLAG("idx", idx, "X and Y are IDX files (may be .gz): values, labels"),
    PARE_OPT_FLAG("npy", npy, "X and Y are NPY files: values, labels (Y may be left out)"),
    PARE_OPT_INT("resize", "N", resize, 1, 65535,
                 "shorter side of each image after resizing (256)"),
    PARE_OPT_INT("crop", "N", crop, 1, 65535, "side of the square cut from the middle (224)"),
    PARE_OPT_TEXT("mean", "R,G,B", mean,
                  "mean of each channel of v/255, kept in the file and used when reading (0)"),
    PARE_OPT_TEXT("std", "R,G,B", std, "standard deviation of each channel likewise (1)"),
    PARE_OPT_CHOICE("layout", "nchw|nhwc", layout, "order of the axes in the file (nchw)"),
    PARE_OPT_TEXT("name", "NAME", name,
                  "name of the dataset, best that of the model's input (input)"),
    {0},
};

static const import_options import_defaults = {.resize = 256, .crop = 224};

/* "0.1,0.2,0.3" to values; *count 0 for NULL. */
static pare_status parse_floats(pare_ctx *ctx, const char *option, const char *text, float *out,
                                int most, int *count)
{
    *count = 0;
    for (const char *at = text; at;) {
        char *end;
        float value = strtof(at, &end);
        if (end == at || (*end && *end != ',') || *count == most || !(value - value == 0))
            return PARE_FAIL(ctx, USAGE,
                             "--%s %s: expected up to %d numbers with commas between them", option,
                             text, most);
        out[(*count)++] = value;
        at = *end ? end + 1 : NULL;
    }
    return PARE_OK;
}

/* A picture is an input, too. */
static pare_status check_in_images(pare_tool *tool, const import_options *o)
{
    struct stat st;
    const char *dot = strrchr(o->output, '.');
    if (stat(o->output, &st) || !dot ||
        (strcasecmp(dot, ".png") != 0 && strcasecmp(dot, ".jpg") != 0 && strcasecmp(dot, ".jpeg")))
        return PARE_OK;
    return PARE_FAIL(tool->ctx, INPUT,
                     "%s: is a picture; choose another name for the output, as in photos.h5",
                     o->output);
}

static pare_status check_import(pare_tool *tool, const import_options *o)
{
    int ways = (o->images != NULL) + o->idx + o->npy, least = o->idx ? 2 : o->npy ? 1 : 0;
    PARE_TRY(pare_need_option(tool, o->output, "-o F.h5", "the data set to write"));
    if (ways != 1)
        return PARE_FAIL(tool->ctx, USAGE,
                         "data import: expected one of --images DIR, --idx X Y, "
                         "--npy X [Y]; %d were given",
                         ways);
    if (tool->arg_count < least || tool->arg_count > (o->images ? 0 : 2))
        return PARE_FAIL(tool->ctx, USAGE, "data import: %d files were given; expected %s",
                         tool->arg_count,
                         o->images ? "none beside --images"
                         : o->idx  ? "--idx VALUES LABELS"
                                   : "--npy VALUES [LABELS]");
    if (o->name && (!*o->name || !strcmp(o->name, "labels")))
        return PARE_FAIL(tool->ctx, USAGE,
                         "data import: --name '%s': expected the name of a model's input", o->name);
    static const char *const of_images[] = {"resize", "crop", NULL};
    if (!o->images)
        PARE_TRY(pare_refuse_options(tool, o->npy ? "with --npy" : "with --idx", of_images));
    if (o->images) PARE_TRY(check_in_images(tool, o));
    if (o->images && o->crop > o->resize)
        return PARE_FAIL(tool->ctx, USAGE, "--crop %lld is larger than --resize %lld",
                         (long long)o->crop, (long long)o->resize);
    return PARE_OK;
}

static pare_status run_import(pare_tool *tool, const void *options)
{
    const import_options *o = options;
    float mean[64], std[64];
    int means, stds;
    PARE_TRY(check_import(tool, o));
    PARE_TRY(parse_floats(tool->ctx, "mean", o->mean, mean, 64, &means));
    PARE_TRY(parse_floats(tool->ctx, "std", o->std, std, 64, &stds));
    for (int i = means; i < stds; i++) mean[i] = means == 1 ? mean[0] : 0;
    for (int i = stds; i < means; i++) std[i] = stds == 1 ? std[0] : 1;
    for (int i = 0; i < stds; i++)
        if (!(std[i] > 0))
            return PARE_FAIL(tool->ctx, USAGE, "--std %s: expected numbers above 0", o->std);
    pare_progress bar;
    pare_progress_begin(&bar, stderr, o->common.quiet, "import", "samples");
    int channels = means > stds ? means : stds;
    pare_import_options import = {
        .name = o->name,
        .mean = channels ? mean : NULL,
        .std = channels ? std : NULL,
        .channels = channels,
        .layout = o->layout ? "nhwc" : "nchw",
        .resize = (int)o->resize,
        .crop = (int)o->crop,
        .threads = (int)o->common.threads,
        .progress = pare_progress_step,
        .progress_user = &bar,
    };
    const char *x = tool->arg_count ? tool->arg[0] : NULL,
               *y = tool->arg_count > 1 ? tool->arg[1] : NULL;
    pare_status st = o->images ? pare_import_images(tool->ctx, o->output, o->images, &import)
                     : o->idx  ? pare_import_idx(tool->ctx, o->output, x, y, &import)
                               : pare_import_npy(tool->ctx, o->output, x, y, &import);
    pare_progress_end(&bar);
    PARE_TRY(st);
    pare_print(stdout, "%s\n", o->output);
    json_object_set_new(tool->facts, "outputs", json_pack("[o]", pare_json_text(o->output)));
    return PARE_OK;
}

const pare_command pare_command_data_import = {
    .name = "data import",
    .arguments = "-o F.h5 (--images DIR | --idx X Y | --npy X [Y])",
    .max = 2,
    .summary = "make a data set from images, IDX or NPY files",
    .example = "pare data import -o photos.h5 --images photos/ --resize 256 --crop 224 \\\n"
               "      --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225",
    .options = import_table,
    .size = sizeof(import_options),
    .defaults = &import_defaults,
    .run = run_import,
};

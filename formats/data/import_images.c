/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of images. The list of files is made and sorted first (its length is the only memory that
   grows); then blocks of images are decoded by several threads and appended in order. */
#include "formats/data.h"
#include "formats/file.h"
#include "formats/import.h"
#include "formats/picture.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

typedef struct entry {
    char *path;
    int64_t label;
} entry;

typedef struct image_list {
    pare_ctx *ctx;
    entry *item;
    size_t count, capacity;
} image_list;

/* --- listing --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot &&
           (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) pare_free(names[i]);
    pare_free(names);
}

/* Sorted paths of what is in a folder: subfolders, or files with an image's name. */
static pare_status list_folder(pare_ctx *ctx, const char *folder, bool folders, char ***out,
                               size_t *out_count)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return PARE_FAIL(ctx, IO,
                         "%s: cannot be listed: %s; expected a folder with one subfolder of "
                         "PNG or JPEG files per class",
                         folder, strerror(errno));
    char **names = NULL;
    size_t count = 0, capacity = 0;
    pare_status st = PARE_OK;
    for (struct dirent *e; st == PARE_OK && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || (!folders && !is_image_name(e->d_name))) continue;
        size_t size = strlen(folder) + strlen(e->d_name) + 2;
        char *path = pare_alloc(ctx, size, 1);
        if (!path)
            st = PARE_MEMORY;
        else
            snprintf(path, size, "%s/%s", folder, e->d_name);
        if (path && folders && !is_folder(path))
            pare_free(path);
        else if (path && pare_grow(ctx, &names, &capacity, count, sizeof *names))
            names[count++] = path;
        else if (path) {
            pare_free(path);
            st = PARE_MEMORY;
        }
    }
    closedir(dir);
    if (st != PARE_OK) {
        free_names(names, count);
        return st;
    }
    if (count) qsort(names, count, sizeof *names, by_name);
    *out = names;
    *out_count = count;
    return PARE_OK;
}

static pare_status list_class(image_list *list, const char *folder, int64_t label)
{
    char **files = NULL;
    size_t count = 0;
    PARE_TRY(list_folder(list->ctx, folder, false, &files, &count));
    pare_status st = PARE_OK;
    for (size_t i = 0; st == PARE_OK && i < count; i++) {
        if (!pare_grow(list->ctx, &list->item, &list->capacity, list->count, sizeof *list->item)) {
            st = PARE_MEMORY;
        } else {
            list->item[list->count++] = (entry){files[i], label};
            files[i] = NULL;
        }
    }
    free_names(files, count);
    return st;
}

static pare_status list_all(image_list *list, const char *folder)
{
    char **classes = NULL;
    size_t count = 0;
    PARE_TRY(list_folder(list->ctx, folder, true, &classes, &count));
    pare_status st = PARE_OK;
    for (size_t i = 0; st == PARE_OK && i < count; i++)
        st = list_class(list, classes[i], (int64_t)i);
    free_names(classes, count);
    if (st == PARE_OK && list->count == 0)
        st = PARE_FAIL(list->ctx, INPUT,
                       "%s: has no PNG or JPEG files in its subfolders; expected one "
                       "subfolder per class",
                       folder);
    return st;
}

/* --- decoding --- */

static pare_picture_options picture_of(const pare_import_options *o)
{
    return (pare_picture_options){.resize = o->resize,
                                  .crop = o->crop,
                                  .last = o->layout && !strcmp(o->layout, "nhwc"),
                                  .advice = "; mend it or take it out of the folder"};
}

static pare_status read_one(pare_ctx *ctx, const char *path, const pare_import_options *o,
                            uint8_t *out)
{
    pare_map map;
    const pare_picture_options picture = picture_of(o);
    PARE_TRY(pare_map_open(ctx, &map, path));
    const pare_status st = pare_picture_decode(ctx, out, path, map.data, map.size, &picture);
    pare_map_close(&map);
    return st;
}

/* One thread's share of a block: images start, start + step, ... */
typedef struct share {
    pthread_t thread;
    bool started;
    pare_ctx ctx;
    const entry *item;
    const pare_import_options *options;
    uint8_t *out;
    size_t bytes; /* of one image */
    int64_t start, step, count, failed;
    pare_status status;
} share;

static void *decode_share(void *user)
{
    share *s = user;
    for (int64_t i = s->start; i < s->count && s->status == PARE_OK; i += s->step) {
        s->status = read_one(&s->ctx, s->item[i].path, s->options, s->out + (size_t)i * s->bytes);
        s->failed = i;
    }
    return NULL;
}

/* Decodes a block; the failure reported is the first in the list's order. */
static pare_status decode_block(pare_ctx *ctx, share *shares, int threads, share common)
{
    for (int t = 0; t < threads; t++) {
        shares[t] = common;
        shares[t].start = t;
        shares[t].step = threads;
        pare_ctx_child(&shares[t].ctx, ctx);
        shares[t].started =
            t > 0 && !pthread_create(&shares[t].thread, NULL, decode_share, &shares[t]);
    }
    for (int t = 0; t < threads; t++)
        if (!shares[t].started) decode_share(&shares[t]);
    const share *first = NULL;
    for (int t = 0; t < threads; t++) {
        if (shares[t].started) pthread_join(shares[t].thread, NULL);
        if (shares[t].status != PARE_OK && (!first || shares[t].failed < first->failed))
            first = &shares[t];
    }
    return first ? pare_fail(ctx, first->status, "%s", first->ctx.message) : PARE_OK;
}

static pare_status copy_images(const image_list *list, pare_data_writer *w,
                               const pare_import_options *o, share *shares, int threads,
                               uint8_t *pixels, int64_t *labels)
{
    size_t bytes = 3 * (size_t)o->crop * (size_t)o->crop;
    int64_t all = (int64_t)list->count, block = 4 * threads;
    for (int64_t done = 0; done < all;) {
        int64_t n = all - done < block ? all - done : block;
        share common = {
            .item = list->item + done, .options = o, .out = pixels, .bytes = bytes, .count = n};
        PARE_TRY(decode_block(list->ctx, shares, threads, common));
        for (int64_t i = 0; i < n; i++) labels[i] = list->item[done + i].label;
        const void *columns[2] = {pixels, labels};
        PARE_TRY(pare_data_append(w, columns, n));
        done += n;
        if (o->progress) o->progress(o->progress_user, done, all);
    }
    return PARE_OK;
}

static pare_status import_list(const image_list *list, const char *path,
                               const pare_import_options *o)
{
    bool last = o->layout && !strcmp(o->layout, "nhwc");
    int threads = o->threads < 1 ? 1 : o->threads;
    pare_data_column columns[2] = {{.name = o->name ? o->name : "input",
                                    .dtype = PARE_u8,
                                    .mean = o->mean,
                                    .std = o->std,
                                    .channels = o->channels,
                                    .layout = last ? "nhwc" : "nchw"},
                                   {.name = "labels", .dtype = PARE_s64}};
    columns[0].shape =
        (pare_shape){.rank = 3, .dim = {last ? o->crop : 3, o->crop, last ? 3 : o->crop}};
    size_t bytes = 3 * (size_t)o->crop * (size_t)o->crop;
    share *shares = pare_alloc(list->ctx, (size_t)threads, sizeof *shares);
    uint8_t *pixels = pare_alloc(list->ctx, 4 * (size_t)threads, bytes);
    int64_t *labels = pare_alloc(list->ctx, 4 * (size_t)threads, sizeof *labels);
    pare_data_writer *w = NULL;
    pare_status st = PARE_MEMORY;
    if (shares && pixels && labels) st = pare_data_create(list->ctx, &w, path, columns, 2);
    if (st == PARE_OK) st = copy_images(list, w, o, shares, threads, pixels, labels);
    pare_free(shares);
    pare_free(pixels);
    pare_free(labels);
    if (st == PARE_OK) return pare_data_commit(w);
    pare_data_discard(w);
    return st;
}

pare_status pare_import_images(pare_ctx *ctx, const char *path, const char *folder,
                               const pare_import_options *options)
{
    const pare_picture_options picture = picture_of(options);
    PARE_TRY(pare_picture_check(ctx, &picture));
    if (options->channels != 0 && options->channels != 1 && options->channels != 3)
        return PARE_FAIL(ctx, USAGE, "mean and std have %d values, expected one or three",
                         options->channels);
    if (options->layout && strcmp(options->layout, "nchw") != 0 &&
        strcmp(options->layout, "nhwc") != 0)
        return PARE_FAIL(ctx, USAGE, "layout '%s': expected nchw or nhwc", options->layout);
    image_list list = {.ctx = ctx};
    pare_status st = list_all(&list, folder);
    if (st == PARE_OK) st = import_list(&list, path, options);
    for (size_t i = 0; i < list.count; i++) pare_free(list.item[i].path);
    pare_free(list.item);
    return st;
}

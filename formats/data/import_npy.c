/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/data.h"
#include "formats/data/source.h"
#include "formats/import.h"
#include "formats/npy.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

typedef struct npy_pair {
    pare_npy x, y;
    bool labelled;
    int64_t row, block; /* elements of a sample, samples of a block */
    size_t element;
    void *values, *stored;
    int64_t *labels;
} npy_pair;

static pare_status check_pair(pare_ctx *ctx, npy_pair *p)
{
    if (p->x.rank < 1 || p->x.count < 1)
        return PARE_FAIL(ctx, INPUT, "%s: has 0 samples, expected (samples, ...)", p->x.path);
    if (!p->labelled) return PARE_OK;
    bool column = p->y.rank == 1 || (p->y.rank == 2 && p->y.dim[1] == 1);
    if (!column || pare_type_is_float(p->y.dtype) || p->y.dtype == PARE_u64)
        return PARE_FAIL(ctx, INPUT, "%s: has %d axes of %s, expected one axis of integer labels",
                         p->y.path, p->y.rank, pare_type(p->y.dtype)->name);
    if (p->y.dim[0] != p->x.dim[0])
        return PARE_FAIL(ctx, INPUT, "%s: has %lld labels for the %lld samples of %s", p->y.path,
                         (long long)p->y.dim[0], (long long)p->x.dim[0], p->x.path);
    return PARE_OK;
}

static pare_status copy_blocks(pare_ctx *ctx, npy_pair *p, pare_data_writer *w,
                               const pare_import_options *options)
{
    int64_t all = p->x.dim[0];
    for (int64_t done = 0; done < all;) {
        int64_t n = all - done < p->block ? all - done : p->block;
        PARE_TRY(pare_npy_read(ctx, &p->x, done * p->row, n * p->row, p->values));
        if (p->labelled) {
            PARE_TRY(pare_npy_read(ctx, &p->y, done, n, p->stored));
            pare_data_read_ints(p->y.dtype, p->stored, n, p->labels);
        }
        const void *columns[2] = {p->values, p->labels};
        PARE_TRY(pare_data_append(w, columns, n));
        done += n;
        if (options->progress) options->progress(options->progress_user, done, all);
    }
    return PARE_OK;
}

static pare_status import_pair(pare_ctx *ctx, const char *path, npy_pair *p,
                               const pare_import_options *options)
{
    PARE_TRY(check_pair(ctx, p));
    bool pixels = p->x.dtype == PARE_u8, nhwc = options->layout && !strcmp(options->layout, "nhwc");
    if ((!pixels && (options->mean || options->std)) || (p->x.rank != 4 && nhwc))
        return PARE_FAIL(
            ctx, USAGE, "%s: has %d axes of %s; %s", p->x.path, p->x.rank,
            pare_type(p->x.dtype)->name,
            nhwc && p->x.rank != 4
                ? "--layout nhwc applies to 4 axes"
                : "--mean and --std apply to uint8, other values are taken as they are");
    p->row = p->x.count / p->x.dim[0];
    p->element = (size_t)pare_type(p->x.dtype)->bits / 8;
    p->block = BLOCK_BYTES / (int64_t)p->element / p->row;
    if (p->block < 1) p->block = 1;
    if (p->block > p->x.dim[0]) p->block = p->x.dim[0];
    p->values = pare_alloc(ctx, (size_t)(p->block * p->row), p->element);
    p->stored = pare_alloc(ctx, (size_t)p->block, 8);
    p->labels = pare_alloc(ctx, (size_t)p->block, sizeof *p->labels);
    if (!p->values || !p->stored || !p->labels) return PARE_MEMORY;
    pare_data_column columns[2] = {{.name = options->name ? options->name : "input",
                                    .dtype = p->x.dtype,
                                    .mean = pixels ? options->mean : NULL,
                                    .std = pixels ? options->std : NULL,
                                    .channels = options->channels,
                                    .layout = p->x.rank == 4 ? options->layout : NULL},
                                   {.name = "labels", .dtype = PARE_s64}};
    columns[0].shape.rank = p->x.rank - 1;
    memcpy(columns[0].shape.dim, p->x.dim + 1, (size_t)(p->x.rank - 1) * sizeof *p->x.dim);
    pare_data_writer *w = NULL;
    PARE_TRY(pare_data_create(ctx, &w, path, columns, p->labelled ? 2 : 1));
    pare_status st = copy_blocks(ctx, p, w, options);
    if (st == PARE_OK) return pare_data_commit(w);
    pare_data_discard(w);
    return st;
}

pare_status pare_import_npy(pare_ctx *ctx, const char *path, const char *values, const char *labels,
                            const pare_import_options *options)
{
    static const pare_import_options none = {0};
    npy_pair p = {.x = {.fd = -1}, .y = {.fd = -1}, .labelled = labels != NULL};
    pare_status st = pare_npy_open(ctx, &p.x, values);
    if (st == PARE_OK && labels) st = pare_npy_open(ctx, &p.y, labels);
    if (st == PARE_OK) st = import_pair(ctx, path, &p, options ? options : &none);
    pare_free(p.values);
    pare_free(p.stored);
    pare_free(p.labels);
    pare_npy_close(&p.x);
    pare_npy_close(&p.y);
    return st;
}

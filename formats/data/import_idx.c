/* SPDX-License-Identifier: Apache-2.0 */
/* IDX (the format of MNIST): two zero bytes, a type code, the rank, big-endian u32 dims, then
   big-endian values. zlib reads plain and gzip files alike. */
#include "formats/data.h"
#include "formats/import.h"
#include "formats/data/swap.h"
#include "runtime/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

void pare_import_options_init(pare_import_options *out) { *out = (pare_import_options){0}; }

enum { BLOCK_BYTES = 1 << 20 };

typedef struct idx_file {
    pare_ctx *ctx;
    const char *path;
    gzFile file;
    pare_dtype dtype;
    int rank;
    int64_t dim[PARE_MAX_RANK];
    size_t row_bytes;
} idx_file;

static pare_dtype idx_type(int code)
{
    switch (code) {
    case 0x08: return PARE_u8;
    case 0x09: return PARE_s8;
    case 0x0b: return PARE_s16;
    case 0x0c: return PARE_s32;
    case 0x0d: return PARE_f32;
    case 0x0e: return PARE_f64;
    default: return PARE_NOTYPE;
    }
}

static pare_status idx_read(const idx_file *f, void *out, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        size_t part = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
        int n = gzread(f->file, (char *)out + done, (unsigned)part);
        if (n <= 0) break;
        done += (size_t)n;
    }
    int code = Z_OK;
    if (done < bytes) (void)gzerror(f->file, &code);
    if (code == Z_MEM_ERROR)
        return PARE_FAIL(f->ctx, MEMORY, "%s: out of memory inside zlib", f->path);
    if (done < bytes)
        return PARE_FAIL(f->ctx, INPUT, "%s: is cut off or damaged: %zu bytes are missing", f->path,
                         bytes - done);
    return PARE_OK;
}

static pare_status idx_open(pare_ctx *ctx, idx_file *f, const char *path)
{
    uint8_t head[4], dims[4 * PARE_MAX_RANK];
    *f = (idx_file){.ctx = ctx, .path = path};
    errno = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang */
    struct stat info;
    if (fd >= 0 && !fstat(fd, &info) && !S_ISREG(info.st_mode)) {
        close(fd);
        return PARE_FAIL(ctx, INPUT, "%s: is not a regular file, expected an IDX file", path);
    }
    f->file = fd < 0 ? NULL : gzdopen(fd, "rb");
    if (!f->file) {
        pare_status st = PARE_FAIL(ctx, IO, "%s: cannot be opened: %s", path,
                                   errno ? strerror(errno) : "out of memory");
        if (fd >= 0) close(fd);
        return st;
    }
    PARE_TRY(idx_read(f, head, 4));
    f->dtype = idx_type(head[2]);
    f->rank = head[3];
    if (head[0] || head[1] || f->dtype == PARE_NOTYPE || f->rank < 1 || f->rank >= PARE_MAX_RANK)
        return PARE_FAIL(ctx, INPUT, "%s: is not an IDX file (first bytes %02x %02x %02x %02x)",
                         path, head[0], head[1], head[2], head[3]);
    PARE_TRY(idx_read(f, dims, 4 * (size_t)f->rank));
    f->row_bytes = (size_t)pare_type(f->dtype)->bits / 8;
    for (int i = 0; i < f->rank; i++) {
        const uint8_t *d = dims + 4 * i;
        f->dim[i] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
        if (i > 0 && (!pare_mul_size(f->row_bytes, (size_t)f->dim[i], &f->row_bytes) ||
                      f->row_bytes < 1 || f->row_bytes > (size_t)1 << 30))
            return PARE_FAIL(ctx, INPUT, "%s: axis %d has size %lld", path, i,
                             (long long)f->dim[i]);
    }
    return PARE_OK;
}

/* Rows in our byte order. */
static pare_status idx_rows(const idx_file *f, int64_t rows, void *out)
{
    size_t element = (size_t)pare_type(f->dtype)->bits / 8, bytes = (size_t)rows * f->row_bytes;
    PARE_TRY(idx_read(f, out, bytes));
    pare_swap_bytes(out, bytes / element, element);
    return PARE_OK;
}

static pare_status copy_rows(const idx_file *x, const idx_file *y, pare_data_writer *w,
                             const pare_import_options *options, uint8_t *values, uint8_t *stored,
                             int64_t *labels, int64_t block)
{
    for (int64_t done = 0; done < x->dim[0];) {
        int64_t n = x->dim[0] - done < block ? x->dim[0] - done : block;
        PARE_TRY(idx_rows(x, n, values));
        if (y) PARE_TRY(idx_rows(y, n, stored));
        for (int64_t i = 0; y && i < n; i++) {
            int32_t v = 0;
            if (y->dtype == PARE_u8)
                v = stored[i];
            else if (y->dtype == PARE_s8)
                v = (int8_t)stored[i];
            else if (y->dtype == PARE_s16)
                v = ((int16_t *)stored)[i];
            else
                memcpy(&v, stored + 4 * i, 4);
            labels[i] = v;
        }
        const void *columns[2] = {values, labels};
        PARE_TRY(pare_data_append(w, columns, n));
        done += n;
        if (options->progress) options->progress(options->progress_user, done, x->dim[0]);
    }
    return PARE_OK;
}

static pare_status copy_blocks(const idx_file *x, const idx_file *y, pare_data_writer *w,
                               const pare_import_options *options)
{
    int64_t block = (int64_t)(BLOCK_BYTES / x->row_bytes);
    if (block < 1) block = 1;
    uint8_t *values = pare_alloc(x->ctx, (size_t)block, x->row_bytes);
    uint8_t *stored = pare_alloc(x->ctx, (size_t)block, 8);
    int64_t *labels = pare_alloc(x->ctx, (size_t)block, sizeof *labels);
    pare_status st = PARE_MEMORY;
    if (values && stored && labels) st = copy_rows(x, y, w, options, values, stored, labels, block);
    pare_free(values);
    pare_free(stored);
    pare_free(labels);
    return st;
}

static pare_status check_pair(const idx_file *x, const idx_file *y)
{
    if (x->dim[0] < 1) return PARE_FAIL(x->ctx, INPUT, "%s: has 0 samples", x->path);
    if (y && (y->rank != 1 || pare_type_is_float(y->dtype)))
        return PARE_FAIL(x->ctx, INPUT,
                         "%s: has %d axes of %s, expected one axis of integer labels", y->path,
                         y->rank, pare_type(y->dtype)->name);
    if (y && y->dim[0] != x->dim[0])
        return PARE_FAIL(x->ctx, INPUT, "%s: has %lld labels for the %lld samples of %s", y->path,
                         (long long)y->dim[0], (long long)x->dim[0], x->path);
    return PARE_OK;
}

static pare_status import_pair(pare_ctx *ctx, const char *path, const idx_file *x,
                               const idx_file *y, const pare_import_options *options)
{
    PARE_TRY(check_pair(x, y));
    pare_data_column columns[2] = {{.name = options->name ? options->name : "input",
                                    .dtype = x->dtype,
                                    .mean = options->mean,
                                    .std = options->std,
                                    .channels = options->channels},
                                   {.name = "labels", .dtype = PARE_s64, .shape = {.rank = 0}}};
    int rank = 0;
    bool image = x->rank == 3, last = options->layout && !strcmp(options->layout, "nhwc");
    if ((last && !image) || (x->dtype != PARE_u8 && (options->mean || options->std)))
        return PARE_FAIL(ctx, USAGE, "%s: has %d axes of %s; %s", x->path, x->rank,
                         pare_type(x->dtype)->name,
                         last && !image ? "--layout nhwc applies to images: 3 axes"
                                        : "--mean and --std apply to uint8, other values are taken "
                                          "as they are");
    if (image && !last) columns[0].shape.dim[rank++] = 1;
    for (int i = 1; i < x->rank; i++) columns[0].shape.dim[rank++] = x->dim[i];
    if (image && last) columns[0].shape.dim[rank++] = 1;
    columns[0].shape.rank = rank;
    if (image && x->dtype == PARE_u8) columns[0].layout = last ? "nhwc" : "nchw";
    pare_data_writer *w = NULL;
    PARE_TRY(pare_data_create(ctx, &w, path, columns, y ? 2 : 1));
    pare_status st = copy_blocks(x, y, w, options);
    if (st == PARE_OK) return pare_data_commit(w);
    pare_data_discard(w);
    return st;
}

pare_status pare_import_idx(pare_ctx *ctx, const char *path, const char *values, const char *labels,
                            const pare_import_options *options)
{
    static const pare_import_options none = {0};
    idx_file x = {0}, y = {0};
    pare_status st = idx_open(ctx, &x, values);
    if (st == PARE_OK && labels) st = idx_open(ctx, &y, labels);
    if (st == PARE_OK)
        st = import_pair(ctx, path, &x, labels ? &y : NULL, options ? options : &none);
    if (x.file) gzclose(x.file);
    if (y.file) gzclose(y.file);
    return st;
}

/* --- Fashion-MNIST --- */

static pare_status import_part(pare_ctx *ctx, const char *folder, const char *source,
                               const char *part, const char *file,
                               const pare_import_options *options)
{
    char values[4096], labels[4096], path[4096];
    int n = snprintf(values, sizeof values, "%s/%s-images-idx3-ubyte.gz", source, part);
    int m = snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte.gz", source, part);
    int k = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (n >= (int)sizeof values || m >= (int)sizeof labels || k >= (int)sizeof path)
        return PARE_FAIL(ctx, INPUT, "%s: the path is too long", folder);
    return pare_import_idx(ctx, path, values, labels, options);
}

pare_status pare_data_fashion_mnist(pare_ctx *ctx, const char *folder, const char *source,
                                    const pare_import_options *options)
{
    static const float mean = 0.2860f, std = 0.3530f;
    pare_import_options o = options ? *options : (pare_import_options){0};
    struct stat info;
    o.mean = &mean;
    o.std = &std;
    o.channels = 1;
    if (!source) source = "/usr/share/datasets/fashion-mnist";
    if (stat(source, &info))
        return PARE_FAIL(ctx, IO, "%s: %s; install Debian's package dataset-fashion-mnist", source,
                         strerror(errno));
    bool made = !mkdir(folder, 0777);
    if (!made && errno != EEXIST)
        return PARE_FAIL(ctx, IO, "%s: the folder cannot be made: %s", folder, strerror(errno));
    pare_status st = import_part(ctx, folder, source, "train", "train.h5", &o);
    if (st == PARE_OK) st = import_part(ctx, folder, source, "t10k", "test.h5", &o);
    if (st != PARE_OK && made) (void)rmdir(folder); /* only where nothing is in it */
    return st;
}

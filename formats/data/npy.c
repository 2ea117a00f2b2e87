/* SPDX-License-Identifier: Apache-2.0 */
/* NPY: "\x93NUMPY", version, header length, then a Python dict as text:
   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } */
#include "formats/npy.h"
#include "formats/data.h"
#include "formats/data/source.h"
#include "formats/data/swap.h"
#include "formats/file.h"
#include "formats/import.h"
#include "runtime/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 64 << 10 };

static const struct {
    char code[3];
    pare_dtype dtype;
} npy_types[] = {{"b1", PARE_bool}, {"u1", PARE_u8},  {"i1", PARE_s8},  {"u2", PARE_u16},
                 {"i2", PARE_s16},  {"u4", PARE_u32}, {"i4", PARE_s32}, {"u8", PARE_u64},
                 {"i8", PARE_s64},  {"f2", PARE_f16}, {"f4", PARE_f32}, {"f8", PARE_f64}};
enum { TYPE_COUNT = sizeof npy_types / sizeof *npy_types };

/* --- reading --- */

/* The text after 'key':, or NULL. */
static const char *find_key(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    at++;
    return at + strspn(at, " ");
}

static pare_status parse_shape(pare_ctx *ctx, pare_npy *n, const char *text)
{
    if (!text || *text != '(')
        return PARE_FAIL(ctx, INPUT, "%s: NPY header without a shape", n->path);
    for (text++; *text && *text != ')';) {
        char *end;
        errno = 0;
        long long dim = strtoll(text, &end, 10);
        if (end == text || dim < 0 || errno || n->rank == PARE_MAX_RANK)
            return PARE_FAIL(ctx, INPUT, "%s: its shape is damaged or has more than %d axes",
                             n->path, PARE_MAX_RANK);
        n->dim[n->rank++] = dim;
        text = end + strspn(end, "L ,");
    }
    return PARE_OK;
}

static pare_status parse_header(pare_ctx *ctx, pare_npy *n, const char *header, uint64_t size)
{
    const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order");
    size_t bytes;
    for (int i = 0; descr && strlen(descr) >= 5 && i < TYPE_COUNT; i++)
        if (descr[0] == '\'' && descr[4] == '\'' && strchr("<>|=", descr[1]) &&
            !strncmp(descr + 2, npy_types[i].code, 2))
            n->dtype = npy_types[i].dtype;
    if (n->dtype == PARE_NOTYPE)
        return PARE_FAIL(ctx, INPUT,
                         "%s: has a type that is not bool, integer or float; convert it "
                         "with x.astype('float32')",
                         n->path);
    n->swap = descr[1] == '>';
    if (!order || strncmp(order, "False", 5) != 0)
        return PARE_FAIL(ctx, INPUT,
                         "%s: is in Fortran order, expected C order; save "
                         "np.ascontiguousarray(x)",
                         n->path);
    PARE_TRY(parse_shape(ctx, n, find_key(header, "shape")));
    if (!pare_count_dims(n->dim, n->rank, &n->count) ||
        !pare_type_bytes(n->dtype, n->count, &bytes) || n->offset > size ||
        bytes > size - n->offset)
        return PARE_FAIL(ctx, INPUT,
                         "%s: is cut off: it has %" PRIu64 " bytes, its shape needs more", n->path,
                         size);
    return PARE_OK;
}

static pare_status read_header(pare_ctx *ctx, pare_npy *n)
{
    struct stat info;
    uint8_t head[12] = {0};
    n->fd = open(n->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (n->fd < 0 || fstat(n->fd, &info))
        return PARE_FAIL(ctx, IO, "%s: cannot be opened: %s", n->path, strerror(errno));
    ssize_t got = S_ISREG(info.st_mode) ? pread(n->fd, head, sizeof head, 0) : 0;
    if (got < 10 || memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return PARE_FAIL(ctx, INPUT, "%s: is not an NPY file, expected what numpy.save writes",
                         n->path);
    bool old = head[6] == 1;
    uint32_t length = old ? head[8] | (uint32_t)head[9] << 8
                          : head[8] | (uint32_t)head[9] << 8 | (uint32_t)head[10] << 16 |
                                (uint32_t)head[11] << 24;
    n->offset = length + (old ? 10u : 12u);
    if (length > MAX_HEADER)
        return PARE_FAIL(ctx, INPUT,
                         "%s: its NPY header has %" PRIu32 " bytes, expected at most %d", n->path,
                         length, MAX_HEADER);
    char *header = pare_alloc(ctx, length + 1, 1);
    if (!header) return PARE_MEMORY;
    pare_status st = PARE_OK;
    if (pread(n->fd, header, length, old ? 10 : 12) != (ssize_t)length)
        st = PARE_FAIL(ctx, INPUT, "%s: is cut off inside its header", n->path);
    if (st == PARE_OK) st = parse_header(ctx, n, header, (uint64_t)info.st_size);
    pare_free(header);
    return st;
}

pare_status pare_npy_open(pare_ctx *ctx, pare_npy *out, const char *path)
{
    *out = (pare_npy){.path = pare_strdup(ctx, path), .fd = -1};
    pare_status st = out->path ? read_header(ctx, out) : PARE_MEMORY;
    if (st != PARE_OK) pare_npy_close(out);
    return st;
}

void pare_npy_close(pare_npy *npy)
{
    if (npy->fd >= 0) close(npy->fd);
    pare_free(npy->path);
    *npy = (pare_npy){.fd = -1};
}

pare_status pare_npy_read(pare_ctx *ctx, const pare_npy *npy, int64_t first, int64_t count,
                          void *out)
{
    size_t element = (size_t)pare_type(npy->dtype)->bits / 8, bytes = (size_t)count * element;
    uint64_t from = npy->offset + (uint64_t)first * element;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(npy->fd, (uint8_t *)out + done, bytes - done, (off_t)(from + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return PARE_FAIL(ctx, IO, "%s: cannot be read: %s", npy->path,
                             n < 0 ? strerror(errno) : "the file became shorter");
        done += (size_t)n;
    }
    if (npy->swap) pare_swap_bytes(out, (size_t)count, element);
    return PARE_OK;
}

pare_status pare_npy_load(pare_ctx *ctx, const char *path, pare_dtype *dtype, pare_shape *shape,
                          void **data)
{
    pare_npy npy;
    PARE_TRY(pare_npy_open(ctx, &npy, path));
    pare_status st = PARE_OK;
    void *all = pare_alloc(ctx, (size_t)npy.count, (size_t)pare_type(npy.dtype)->bits / 8);
    if (!all) st = PARE_MEMORY;
    if (st == PARE_OK) st = pare_npy_read(ctx, &npy, 0, npy.count, all);
    *dtype = npy.dtype;
    *shape = (pare_shape){.rank = npy.rank};
    memcpy(shape->dim, npy.dim, sizeof npy.dim);
    pare_npy_close(&npy);
    if (st != PARE_OK)
        pare_free(all);
    else
        *data = all;
    return st;
}

/* --- writing --- */

static pare_status write_header(pare_ctx *ctx, pare_output *o, pare_dtype dtype,
                                const pare_shape *shape, const char *path)
{
    char header[512], dims[256] = "";
    const char *code = NULL;
    for (int i = 0; i < TYPE_COUNT; i++)
        if (npy_types[i].dtype == dtype) code = npy_types[i].code;
    if (!code)
        return PARE_FAIL(ctx, UNSUPPORTED, "%s: NPY files cannot hold %s", path,
                         pare_type(dtype)->name);
    for (int i = 0; i < shape->rank; i++) {
        size_t used = strlen(dims);
        snprintf(dims + used, sizeof dims - used, "%" PRId64 "%s", shape->dim[i],
                 i + 1 < shape->rank ? ", "
                 : shape->rank == 1  ? ","
                                     : "");
    }
    int n = snprintf(header + 10, sizeof header - 10,
                     "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                     pare_type(dtype)->bits == 8 ? '|' : '<', code, dims);
    size_t total = pare_align_up(10 + (size_t)n + 1, 64); /* data begins at a multiple of 64 */
    memcpy(header, "\x93NUMPY\1\0", 8);
    header[8] = (char)((total - 10) & 255);
    header[9] = (char)((total - 10) >> 8);
    memset(header + 10 + n, ' ', total - 10 - (size_t)n);
    header[total - 1] = '\n';
    return pare_output_write(o, header, total);
}

static pare_status write_widened(pare_ctx *ctx, pare_output *o, const uint16_t *data, int64_t count)
{
    float part[1024];
    for (int64_t i = 0; i < count;) {
        int n = 0;
        for (; n < 1024 && i < count; n++, i++) part[n] = pare_bf16_to_f32(data[i]);
        PARE_TRY(pare_output_write(o, part, (size_t)n * sizeof *part));
    }
    return pare_ctx_poll(ctx);
}

pare_status pare_npy_save(pare_ctx *ctx, const char *path, pare_dtype dtype,
                          const pare_shape *shape, const void *data)
{
    pare_output *o;
    size_t bytes;
    int64_t count = pare_shape_count(shape);
    if (count < 0 || !pare_type_bytes(dtype, count, &bytes))
        return PARE_FAIL(ctx, INPUT, "%s: a tensor of unknown size cannot be written", path);
    PARE_TRY(pare_output_open(ctx, &o, path));
    pare_status st = write_header(ctx, o, dtype == PARE_bf16 ? PARE_f32 : dtype, shape, path);
    if (st == PARE_OK)
        st = dtype == PARE_bf16 ? write_widened(ctx, o, data, count)
                                : pare_output_write(o, data, bytes);
    if (st == PARE_OK) return pare_output_commit(o);
    pare_output_discard(o);
    return st;
}

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

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes data sets: chunks of about 64 KiB, deflate 4 (shuffled where elements have several bytes),
   no time stamps, so that the same content gives the same bytes. A column whose samples turn out to
   have different shapes becomes a group with a dataset for each. The HDF5 library writes into the
   nameless file of a pare_output, which gets its name at commit. */
#include "formats/data.h"
#include "formats/file.h"
#include "runtime/base/size.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 64 << 10, MAX_CHUNK_ROWS = 4096 };

typedef struct writer_column {
    char *name;
    hid_t dataset, type;
    hid_t group; /* of a dataset for each sample; negative: all are in one */
    int rank;    /* with the batch axis */
    hsize_t dim[PARE_MAX_RANK + 1];
    size_t element, row_bytes;
    bool strings;
} writer_column;

struct pare_data_writer {
    pare_ctx *ctx;
    char *path;
    pare_output *output;
    hid_t file;
    writer_column *column;
    int column_count;
    int64_t count;
};

static pare_status fail_write(const pare_data_writer *w, const char *what)
{
    int code = errno;
    return PARE_FAIL(w->ctx, IO, "%s: %s failed%s%s; is there enough space?", w->path, what,
                     code ? ": " : "", code ? strerror(code) : "");
}

/* HDF5's type of ours, little-endian; negative where data sets have none. The caller closes it. */
static hid_t file_type(pare_dtype dtype)
{
    switch (dtype) {
    case PARE_f32: return H5Tcopy(H5T_IEEE_F32LE);
    case PARE_f64: return H5Tcopy(H5T_IEEE_F64LE);
    case PARE_u8: return H5Tcopy(H5T_STD_U8LE);
    case PARE_bool: return H5Tcopy(H5T_STD_U8LE);
    case PARE_s8: return H5Tcopy(H5T_STD_I8LE);
    case PARE_u16: return H5Tcopy(H5T_STD_U16LE);
    case PARE_s16: return H5Tcopy(H5T_STD_I16LE);
    case PARE_u32: return H5Tcopy(H5T_STD_U32LE);
    case PARE_s32: return H5Tcopy(H5T_STD_I32LE);
    case PARE_u64: return H5Tcopy(H5T_STD_U64LE);
    case PARE_s64: return H5Tcopy(H5T_STD_I64LE);
    case PARE_f16:
    case PARE_bf16: {
        size_t exponent = dtype == PARE_f16 ? 5 : 8, mantissa = 15 - exponent;
        hid_t type = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(type, 15, mantissa, exponent, 0, mantissa);
        H5Tset_precision(type, 16);
        H5Tset_ebias(type, dtype == PARE_f16 ? 15 : 127);
        H5Tset_size(type, 2);
        return type;
    }
    case PARE_string: {
        hid_t type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, H5T_VARIABLE);
        H5Tset_cset(type, H5T_CSET_UTF8);
        return type;
    }
    default: return -1;
    }
}

static bool write_floats(hid_t dataset, const char *name, const float *values, int count)
{
    hsize_t n = (hsize_t)count;
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t a = H5Acreate2(dataset, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = a >= 0 && H5Awrite(a, H5T_NATIVE_FLOAT, values) >= 0;
    if (a >= 0) H5Aclose(a);
    H5Sclose(space);
    return good;
}

static bool write_text(hid_t dataset, const char *name, const char *text)
{
    hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(text) + 1);
    hid_t a = H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = a >= 0 && H5Awrite(a, type, text) >= 0;
    if (a >= 0) H5Aclose(a);
    H5Tclose(type);
    H5Sclose(space);
    return good;
}

static pare_status make_dataset(pare_data_writer *w, writer_column *c, size_t row_bytes,
                                size_t element)
{
    hsize_t most[PARE_MAX_RANK + 1], chunk[PARE_MAX_RANK + 1];
    memcpy(most, c->dim, sizeof most);
    memcpy(chunk, c->dim, sizeof chunk);
    most[0] = H5S_UNLIMITED;
    chunk[0] = 1;
    while (2 * chunk[0] <= MAX_CHUNK_ROWS && 2 * chunk[0] * row_bytes <= CHUNK_BYTES) chunk[0] *= 2;
    hid_t space = H5Screate_simple(c->rank, c->dim, most), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, c->rank, chunk);
    H5Pset_obj_track_times(plist, false);
    if (element > 1) H5Pset_shuffle(plist);
    H5Pset_deflate(plist, 4);
    hid_t link = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(link, 1); /* inputs may be called "group/name" */
    c->dataset = H5Dcreate2(w->file, c->name, c->type, space, link, plist, H5P_DEFAULT);
    H5Pclose(link);
    H5Pclose(plist);
    H5Sclose(space);
    return c->dataset < 0 ? fail_write(w, "making a dataset") : PARE_OK;
}

static bool is_empty(const pare_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (!shape->dim[i]) return true;
    return false;
}

static pare_status make_group(pare_data_writer *w, writer_column *c)
{
    hid_t plist = H5Pcreate(H5P_GROUP_CREATE), link = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_link_creation_order(plist, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_create_intermediate_group(link, 1);
    c->group = H5Gcreate2(w->file, c->name, link, plist, H5P_DEFAULT);
    H5Pclose(link);
    H5Pclose(plist);
    return c->group < 0 ? fail_write(w, "making a group") : PARE_OK;
}

static pare_status make_column(pare_data_writer *w, writer_column *c, const pare_data_column *from)
{
    size_t element = (size_t)pare_type(from->dtype)->bits / 8, row_bytes = element;
    c->rank = from->shape.rank + 1;
    if (!(c->name = pare_strdup(w->ctx, from->name))) return PARE_MEMORY;
    for (int i = 1; i < c->rank; i++) {
        c->dim[i] = (hsize_t)from->shape.dim[i - 1];
        if (from->shape.dim[i - 1] < 1 || !pare_mul_size(row_bytes, c->dim[i], &row_bytes))
            row_bytes = SIZE_MAX;
    }
    c->type = file_type(from->dtype);
    c->element = element;
    c->strings = from->dtype == PARE_string;
    c->row_bytes = row_bytes;
    if (c->type >= 0 && from->varies && is_empty(&from->shape)) return make_group(w, c);
    if (c->type < 0 || c->rank < 1 || c->rank > PARE_MAX_RANK || row_bytes > (size_t)1 << 30)
        return PARE_FAIL(w->ctx, INPUT,
                         "%s: column '%s': samples of type %s and rank %d cannot be "
                         "stored (1 byte to 1 GiB a sample, no empty axis)",
                         w->path, from->name, pare_type(from->dtype)->name, from->shape.rank);
    PARE_TRY(make_dataset(w, c, row_bytes, element));
    bool good = (!from->mean || write_floats(c->dataset, "mean", from->mean, from->channels)) &&
                (!from->std || write_floats(c->dataset, "std", from->std, from->channels)) &&
                (!from->layout || write_text(c->dataset, "layout", from->layout));
    return good ? PARE_OK : fail_write(w, "writing attributes");
}

static pare_status create(pare_data_writer *w, const pare_data_column *columns, int count)
{
    char self[64];
    PARE_TRY(pare_output_open(w->ctx, &w->output, w->path));
    w->column = pare_alloc(w->ctx, (size_t)count, sizeof *w->column);
    if (!w->column) return PARE_MEMORY;
    w->column_count = count;
    for (int i = 0; i < count; i++)
        w->column[i].dataset = w->column[i].type = w->column[i].group = -1;
    snprintf(self, sizeof self, "/proc/self/fd/%d", pare_output_fd(w->output));
    H5dont_atexit(); /* at exit it would write once more what a full disk refused, and crash */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    errno = 0;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access); /* the default driver wants a path that can be resolved */
    w->file = H5Fcreate(self, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    if (w->file < 0) return fail_write(w, "starting an HDF5 file");
    for (int i = 0; i < count; i++) PARE_TRY(make_column(w, &w->column[i], &columns[i]));
    return PARE_OK;
}

pare_status pare_data_create(pare_ctx *ctx, pare_data_writer **out, const char *path,
                             const pare_data_column *columns, int column_count)
{
    pare_data_writer *w = pare_alloc(ctx, 1, sizeof *w);
    if (!w) return PARE_MEMORY;
    *w = (pare_data_writer){.ctx = ctx, .file = -1};
    w->path = pare_strdup(ctx, path);
    pare_status st = w->path ? create(w, columns, column_count) : PARE_MEMORY;
    if (st != PARE_OK) {
        pare_data_discard(w);
        return st;
    }
    *out = w;
    return PARE_OK;
}

/* H5Dwrite; of strings HDF5 takes pointers, and text up to the first NUL. */
static herr_t write_elements(const pare_data_writer *w, const writer_column *c, hid_t dataset,
                             hid_t memory, hid_t space, const void *data, size_t count)
{
    if (!c->strings) return H5Dwrite(dataset, c->type, memory, space, H5P_DEFAULT, data);
    const pare_bytes *from = data;
    const char **text = pare_alloc(w->ctx, count, sizeof *text);
    if (!text) return -1;
    for (size_t i = 0; i < count; i++) text[i] = from[i].size ? from[i].data : "";
    const herr_t e = H5Dwrite(dataset, c->type, memory, space, H5P_DEFAULT, text);
    pare_free(text);
    return e;
}

static pare_status append(pare_data_writer *w, writer_column *c, const void *data, hsize_t count)
{
    hsize_t at[PARE_MAX_RANK + 1] = {(hsize_t)w->count}, size[PARE_MAX_RANK + 1];
    memcpy(size, c->dim, sizeof size);
    size[0] = count;
    c->dim[0] += count;
    errno = 0;
    if (H5Dset_extent(c->dataset, c->dim) < 0) return fail_write(w, "growing a dataset");
    hid_t space = H5Dget_space(c->dataset), memory = H5Screate_simple(c->rank, size, NULL);
    herr_t e = H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, size, NULL);
    if (e >= 0)
        e = write_elements(w, c, c->dataset, memory, space, data,
                           (size_t)count * (c->row_bytes / c->element));
    H5Sclose(memory);
    H5Sclose(space);
    return e < 0 ? fail_write(w, "writing samples") : PARE_OK;
}

pare_status pare_data_append(pare_data_writer *writer, const void *const *data, int64_t count)
{
    PARE_TRY(pare_ctx_poll(writer->ctx));
    if (count < 1) return PARE_OK;
    for (int i = 0; i < writer->column_count; i++)
        PARE_TRY(append(writer, &writer->column[i], data[i], (hsize_t)count));
    writer->count += count;
    return PARE_OK;
}

/* --- samples with shapes of their own --- */

static pare_status append_own(pare_data_writer *w, writer_column *c, int64_t sample,
                              const pare_shape *shape, const void *data)
{
    char name[24];
    hsize_t dim[PARE_MAX_RANK + 1] = {0};
    for (int i = 0; i < shape->rank; i++) dim[i] = (hsize_t)shape->dim[i];
    hid_t space = shape->rank ? H5Screate_simple(shape->rank, dim, NULL) : H5Screate(H5S_SCALAR);
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(plist, false);
    snprintf(name, sizeof name, "%lld", (long long)sample);
    errno = 0;
    hid_t dataset = H5Dcreate2(c->group, name, c->type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    herr_t e = dataset < 0 || is_empty(shape)
                   ? 0
                   : write_elements(w, c, dataset, H5S_ALL, H5S_ALL, data,
                                    (size_t)pare_shape_count(shape));
    if (dataset >= 0) H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
    return dataset < 0 || e < 0 ? fail_write(w, "writing a sample") : PARE_OK;
}

static pare_status read_row(pare_data_writer *w, const writer_column *c, hsize_t row, void *out)
{
    hsize_t at[PARE_MAX_RANK + 1] = {row}, size[PARE_MAX_RANK + 1];
    memcpy(size, c->dim, sizeof size);
    size[0] = 1;
    hid_t space = H5Dget_space(c->dataset), memory = H5Screate_simple(c->rank, size, NULL);
    herr_t e = H5Sselect_hyperslab(space, H5S_SELECT_SET, at, NULL, size, NULL);
    if (e >= 0) e = H5Dread(c->dataset, c->type, memory, space, H5P_DEFAULT, out);
    H5Sclose(memory);
    H5Sclose(space);
    return e < 0 ? fail_write(w, "reading a sample again") : PARE_OK;
}

/* The dataset becomes a group: the samples that are in it move into datasets of their own. */
static pare_status split(pare_data_writer *w, writer_column *c)
{
    pare_shape shape = {.rank = c->rank - 1};
    if (c->strings)
        return PARE_FAIL(w->ctx, INPUT, "%s: column '%s': strings need one shape for all samples",
                         w->path, c->name);
    for (int i = 1; i < c->rank; i++) shape.dim[i - 1] = (int64_t)c->dim[i];
    void *row = pare_alloc(w->ctx, c->row_bytes, 1);
    if (!row) return PARE_MEMORY;
    pare_status st = H5Ldelete(w->file, c->name, H5P_DEFAULT) < 0 ? fail_write(w, "making a group")
                                                                  : make_group(w, c);
    for (hsize_t i = 0; st == PARE_OK && i < c->dim[0]; i++) {
        st = read_row(w, c, i, row);
        if (st == PARE_OK) st = append_own(w, c, (int64_t)i, &shape, row);
    }
    pare_free(row);
    if (st == PARE_OK && H5Dclose(c->dataset) < 0) st = fail_write(w, "making a group");
    if (st == PARE_OK) c->dataset = -1;
    return st;
}

/* Is a sample's shape that of the column's dataset? */
static bool fits(const writer_column *c, const pare_shape *shape)
{
    bool same = shape->rank + 1 == c->rank;
    for (int i = 1; same && i < c->rank; i++) same = (int64_t)c->dim[i] == shape->dim[i - 1];
    return same;
}

static pare_status append_sample(pare_data_writer *w, writer_column *c, const void *data,
                                 const pare_shape *shape)
{
    if (shape->rank > PARE_MAX_RANK)
        return PARE_FAIL(w->ctx, INPUT,
                         "%s: column '%s': a sample has %d axes, expected at most %d", w->path,
                         c->name, shape->rank, PARE_MAX_RANK);
    if (c->group < 0 && fits(c, shape)) return append(w, c, data, 1);
    if (c->group < 0) PARE_TRY(split(w, c));
    return append_own(w, c, w->count, shape, data);
}

/* Sample by sample, so that the file does not depend on how many come at a time. */
static pare_status append_samples(pare_data_writer *w, const char **at,
                                  const pare_shape *const *shape, int64_t count)
{
    for (int64_t s = 0; s < count; s++) {
        for (int i = 0; i < w->column_count; i++) {
            writer_column *c = &w->column[i];
            PARE_TRY(shape[i] ? append_sample(w, c, at[i], &shape[i][s]) : append(w, c, at[i], 1));
            at[i] += shape[i] ? (size_t)pare_shape_count(&shape[i][s]) * c->element : c->row_bytes;
        }
        w->count++;
    }
    return PARE_OK;
}

pare_status pare_data_append_varied(pare_data_writer *writer, const void *const *data,
                                    const pare_shape *const *shape, int64_t count)
{
    bool varied = false; /* else whole batches are rows of datasets */
    for (int i = 0; i < writer->column_count; i++) varied |= shape[i] != NULL;
    if (!varied) return pare_data_append(writer, data, count);
    PARE_TRY(pare_ctx_poll(writer->ctx));
    const char **at = pare_alloc(writer->ctx, (size_t)writer->column_count, sizeof *at);
    if (!at) return PARE_MEMORY;
    for (int i = 0; i < writer->column_count; i++) at[i] = data[i];
    pare_status st = append_samples(writer, at, shape, count);
    pare_free(at);
    return st;
}

/* Closes HDF5's handles; false where what was buffered could not be written. */
static bool close_file(pare_data_writer *w)
{
    bool good = true;
    for (int i = 0; i < w->column_count; i++) {
        writer_column *c = &w->column[i];
        if (c->type >= 0) H5Tclose(c->type);
        if (c->dataset >= 0) good &= H5Dclose(c->dataset) >= 0;
        if (c->group >= 0) good &= H5Gclose(c->group) >= 0;
        c->dataset = c->type = c->group = -1;
    }
    if (w->file >= 0) good &= H5Fflush(w->file, H5F_SCOPE_GLOBAL) >= 0 && H5Fclose(w->file) >= 0;
    w->file = -1;
    return good;
}

static void writer_free(pare_data_writer *w)
{
    for (int i = 0; i < w->column_count; i++) pare_free(w->column[i].name);
    pare_free(w->column);
    pare_free(w->path);
    pare_free(w);
}

pare_status pare_data_commit(pare_data_writer *writer)
{
    errno = 0;
    pare_status st = close_file(writer) ? PARE_OK : fail_write(writer, "writing the HDF5 file");
    if (st == PARE_OK)
        st = pare_output_commit(writer->output);
    else
        pare_output_discard(writer->output);
    writer_free(writer);
    return st;
}

void pare_data_discard(pare_data_writer *writer)
{
    if (!writer) return;
    (void)close_file(writer);
    pare_output_discard(writer->output);
    writer_free(writer);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opens HDF5 files and says what a dataset is: type, dims, filters, how it can be read. */
#include "formats/data/hdf5.h"
#include "runtime/base/room.h"
#include "runtime/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(hid_t) == sizeof(int64_t), "handles are kept as int64_t");

/* --- files --- */

static pare_status check_signature(pare_ctx *ctx, const pare_h5_file *file)
{
    static const char magic[8] = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
    char head[8];
    /* the superblock is at 0, 512, 1024, 2048 ... (a user block before it) */
    for (uint64_t at = 0; at + sizeof head <= file->size; at = at ? 2 * at : 512) {
        if (pread(file->fd, head, sizeof head, (off_t)at) != (ssize_t)sizeof head) break;
        if (!memcmp(head, magic, sizeof head)) return PARE_OK;
    }
    return PARE_FAIL(ctx, INPUT, "%s: %s, expected an HDF5 file; `pare data import` makes one",
                     file->path, file->size ? "is not HDF5" : "is empty");
}

static pare_status open_file(pare_ctx *ctx, pare_h5_file *file, bool apart)
{
    struct stat info;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &info))
        return PARE_FAIL(ctx, IO,
                         "%s: cannot be opened: %s; expected an HDF5 data set, "
                         "`pare data import` makes one",
                         file->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return PARE_FAIL(ctx, INPUT, "%s: is not a regular file, expected an HDF5 file",
                         file->path);
    file->size = (uint64_t)info.st_size;
    PARE_TRY(check_signature(ctx, file));
    return apart ? pare_h5_helper_start(ctx, file) : pare_h5_open_here(ctx, file);
}

pare_status pare_h5_open_here(pare_ctx *ctx, pare_h5_file *file)
{
    H5dont_atexit();                       /* counts only before the first call; see writer.c */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* failures become messages here, not text on stderr */
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, false, true);
    file->id = H5Fopen(file->path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (file->id < 0 && !pare_has_room(PARE_ROOM_LEAST))
        return PARE_FAIL(ctx, MEMORY, "%s: out of memory inside libhdf5", file->path);
    if (file->id < 0)
        return PARE_FAIL(ctx, INPUT,
                         "%s: the HDF5 file is cut off or damaged (%llu bytes); "
                         "copy or make it again",
                         file->path, (unsigned long long)file->size);
    return PARE_OK;
}

pare_status pare_h5_open(pare_ctx *ctx, pare_h5_file *out, const char *path, bool apart)
{
    *out = (pare_h5_file){.path = pare_strdup(ctx, path), .fd = -1, .id = -1};
    pare_status st = out->path ? open_file(ctx, out, apart) : PARE_MEMORY;
    if (st != PARE_OK) pare_h5_close(out);
    return st;
}

void pare_h5_release(pare_h5_file *file)
{
    if (file->id >= 0) H5Fclose(file->id);
    file->id = -1;
    pare_h5_helper_end(file);
}

void pare_h5_close(pare_h5_file *file)
{
    pare_h5_release(file);
    pare_h5_helper_free(file);
    if (file->fd >= 0) close(file->fd);
    pare_free(file->path);
    *file = (pare_h5_file){.fd = -1, .id = -1};
}

/* --- names --- */

typedef struct name_list {
    pare_ctx *ctx;
    char *joined, *first;
    int count;
} name_list;

static herr_t collect(hid_t group, const char *name, const H5L_info_t *info, void *user)
{
    name_list *list = user;
    if (info->type != H5L_TYPE_HARD || !strcmp(name, "labels")) return 0;
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    if (dataset < 0) return 0;
    H5Dclose(dataset);
    list->count++;
    if (list->count > 16) return 0; /* enough for a message */
    size_t old = list->joined ? strlen(list->joined) : 0;
    char *more = pare_alloc(list->ctx, old + strlen(name) + 4, 1);
    if (!more) return -1;
    memcpy(more, list->joined ? list->joined : "", old);
    strcat(strcat(more, old ? ", /" : "/"), name);
    pare_free(list->joined);
    list->joined = more;
    if (!list->first && !(list->first = pare_strdup(list->ctx, more))) return -1;
    return 0;
}

pare_status pare_h5_names(pare_ctx *ctx, const pare_h5_file *file, char **joined, char **first,
                          int *count)
{
    name_list list = {.ctx = ctx};
    hsize_t at = 0;
    if (file->helper) return pare_h5_helper_names(ctx, file, joined, first, count);
    herr_t e = H5Literate(file->id, H5_INDEX_NAME, H5_ITER_INC, &at, collect, &list);
    if (e < 0) {
        pare_free(list.joined);
        pare_free(list.first);
        return PARE_FAIL(ctx, INPUT, "%s: its list of datasets is damaged; make the file again",
                         file->path);
    }
    *joined = list.joined;
    *first = list.first;
    *count = list.count;
    return PARE_OK;
}

pare_status pare_h5_has(pare_ctx *ctx, const pare_h5_file *file, const char *name, bool *out)
{
    if (file->helper) return pare_h5_helper_has(ctx, file, name, out);
    hid_t dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    if (dataset >= 0) H5Dclose(dataset);
    *out = dataset >= 0;
    return PARE_OK;
}

/* --- types --- */

/* f16 and bf16 are told by their fields; HDF5 has no names for them. */
static pare_dtype float_type(hid_t type, size_t size)
{
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return PARE_NOTYPE;
    size_t bias = H5Tget_ebias(type);
    if (mantissa != 0 || exponent != mantissa_bits || sign != 8 * size - 1) return PARE_NOTYPE;
    if (size == 2 && exponent_bits == 5 && bias == 15) return PARE_f16;
    if (size == 2 && exponent_bits == 8 && bias == 127) return PARE_bf16;
    if (size == 4 && exponent_bits == 8 && bias == 127) return PARE_f32;
    if (size == 8 && exponent_bits == 11 && bias == 1023) return PARE_f64;
    return PARE_NOTYPE;
}

static pare_dtype integer_type(hid_t type, size_t size)
{
    bool with_sign = H5Tget_sign(type) == H5T_SGN_2;
    if (H5Tget_precision(type) != 8 * size || H5Tget_offset(type) != 0) return PARE_NOTYPE;
    switch (size) {
    case 1: return with_sign ? PARE_s8 : PARE_u8;
    case 2: return with_sign ? PARE_s16 : PARE_u16;
    case 4: return with_sign ? PARE_s32 : PARE_u32;
    case 8: return with_sign ? PARE_s64 : PARE_u64;
    default: return PARE_NOTYPE;
    }
}

static pare_status read_type(pare_ctx *ctx, pare_h5_set *set)
{
    hid_t type = H5Dget_type(set->id);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    bool truth = class == H5T_ENUM; /* h5py's booleans: an enum over int8 */
    if (truth) {
        hid_t base = H5Tget_super(type);
        H5Tclose(type);
        type = base;
        class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    }
    set->element = type < 0 ? 0 : H5Tget_size(type);
    if (class == H5T_FLOAT) set->dtype = float_type(type, set->element);
    if (class == H5T_INTEGER) set->dtype = integer_type(type, set->element);
    if (truth)
        set->dtype = set->dtype == PARE_s8 || set->dtype == PARE_u8 ? PARE_bool : PARE_NOTYPE;
    if (set->dtype != PARE_NOTYPE) {
        set->serial = set->element > 1 && H5Tget_order(type) != H5T_ORDER_LE;
        set->memory_type = H5Tcopy(type);
        if (set->element > 1) H5Tset_order(set->memory_type, H5T_ORDER_LE);
    }
    if (type >= 0) H5Tclose(type);
    if (set->dtype == PARE_NOTYPE || set->memory_type < 0)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': its type is not a number of 8 to 64 bits; "
                         "store uint8, int64 or float32",
                         set->file->path, set->name);
    return PARE_OK;
}

/* --- dims, layout, filters --- */

static pare_status read_dims(pare_ctx *ctx, pare_h5_set *set, hid_t space)
{
    hsize_t dims[H5S_MAX_RANK];
    const char *path = set->file->path;
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    set->scalar = rank == 0 && H5Sget_simple_extent_type(space) == H5S_SCALAR;
    if (set->scalar) {
        set->rank = 1;
        set->dim[0] = 1;
        set->row_bytes = set->element;
        return PARE_OK;
    }
    if (rank < 1 || rank > PARE_MAX_RANK)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': has %d axes, expected 1 to %d with samples "
                         "along the first",
                         path, set->name, rank < 0 ? 0 : rank, PARE_MAX_RANK);
    if (H5Sget_simple_extent_dims(space, dims, NULL) != rank)
        return PARE_FAIL(ctx, INPUT, "%s: dataset '%s': its shape is damaged", path, set->name);
    set->rank = rank;
    set->row_bytes = set->element;
    for (int i = 0; i < rank; i++) {
        if (dims[i] > INT64_MAX || (i > 0 && dims[i] == 0))
            return PARE_FAIL(ctx, INPUT, "%s: dataset '%s': axis %d has size %llu", path, set->name,
                             i, (unsigned long long)dims[i]);
        set->dim[i] = (int64_t)dims[i];
        if (i > 0 && (!pare_mul_size(set->row_bytes, dims[i], &set->row_bytes) ||
                      set->row_bytes > PARE_H5_MAX_BYTES))
            return PARE_FAIL(ctx, INPUT,
                             "%s: dataset '%s': one sample is larger than 1 GiB; the "
                             "first axis must count samples",
                             path, set->name);
    }
    size_t all;
    if (!pare_mul_size(set->row_bytes, (size_t)set->dim[0], &all) || all > INT64_MAX)
        return PARE_FAIL(ctx, INPUT, "%s: dataset '%s': its size overflows", path, set->name);
    return PARE_OK;
}

/* Filters our own reader undoes: deflate and shuffle, each at most once. */
static void read_filters(pare_h5_set *set, hid_t plist)
{
    int n = H5Pget_nfilters(plist);
    if (n < 0) set->serial = true;
    for (int i = 0; i < n; i++) {
        unsigned flags, values[8];
        size_t value_count = 8;
        H5Z_filter_t filter =
            H5Pget_filter2(plist, (unsigned)i, &flags, &value_count, values, 0, NULL, NULL);
        if (filter == H5Z_FILTER_DEFLATE && set->deflate < 0)
            set->deflate = i;
        else if (filter == H5Z_FILTER_SHUFFLE && set->shuffle < 0)
            set->shuffle = i;
        else
            set->serial = true;
    }
    unsigned options = 0;
    if (H5Pget_chunk_opts(plist, &options) < 0 || options) set->serial = true;
}

static void read_layout(pare_h5_set *set, hid_t plist)
{
    hsize_t chunk[H5S_MAX_RANK];
    H5D_layout_t layout = H5Pget_layout(plist);
    set->contiguous = layout == H5D_CONTIGUOUS;
    if (layout == H5D_CHUNKED && H5Pget_chunk(plist, PARE_MAX_RANK, chunk) == set->rank) {
        for (int i = 0; i < set->rank; i++) set->chunk[i] = (int64_t)chunk[i];
        read_filters(set, plist);
    } else if (!set->contiguous) {
        set->serial = true; /* compact, virtual */
    }
    if (set->contiguous || set->serial) { /* groups of about 64 KiB */
        int64_t rows = (int64_t)((64 << 10) / set->row_bytes);
        memcpy(set->chunk, set->dim, sizeof set->chunk);
        set->chunk[0] = rows < 1 ? 1 : rows;
    }
}

/* Asked only where a chunk is missing: HDF5 1.10 does not survive every damaged fill value. */
static void read_fill(pare_h5_set *set, hid_t plist)
{
    H5D_fill_value_t kind = H5D_FILL_VALUE_ERROR;
    bool missing = false;
    for (int64_t i = 0; set->chunks && i < set->group_count * set->group_chunks; i++)
        missing |= set->chunks[i].size == 0;
    if (!missing || H5Pfill_value_defined(plist, &kind) < 0 || kind != H5D_FILL_VALUE_USER_DEFINED)
        return;
    if (H5Pget_fill_value(plist, set->memory_type, set->fill) < 0)
        memset(set->fill, 0, sizeof set->fill);
}

static pare_status read_storage(pare_ctx *ctx, pare_h5_set *set, hid_t plist)
{
    char own[4096], its[4096];
    const char *path = set->file->path;
    if (H5Fget_name(set->file->id, own, sizeof own) < 0 ||
        H5Fget_name(set->id, its, sizeof its) < 0 || strcmp(own, its) != 0 ||
        H5Pget_external_count(plist) > 0)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': its content is in another file; copy it "
                         "into this one",
                         path, set->name);
    read_layout(set, plist);
    hid_t creation = H5Fget_create_plist(set->file->id);
    hsize_t user_block = 0;
    if (creation < 0 || H5Pget_userblock(creation, &user_block) < 0 || user_block)
        set->serial = true;
    if (creation >= 0) H5Pclose(creation);
    return PARE_OK;
}

static pare_status describe(pare_ctx *ctx, pare_h5_set *set)
{
    hid_t space = H5Dget_space(set->id), plist = H5Dget_create_plist(set->id);
    pare_status st = read_type(ctx, set);
    if (st == PARE_OK) st = read_dims(ctx, set, space);
    if (st == PARE_OK && plist < 0)
        st = PARE_FAIL(ctx, INPUT, "%s: dataset '%s': its description is damaged", set->file->path,
                       set->name);
    if (st == PARE_OK) st = read_storage(ctx, set, plist);
    if (st == PARE_OK) st = pare_h5_read_image(ctx, set);
    if (st == PARE_OK) st = pare_h5_list_chunks(ctx, set);
    if (st == PARE_OK) read_fill(set, plist);
    if (space >= 0) H5Sclose(space);
    if (plist >= 0) H5Pclose(plist);
    return st;
}

pare_status pare_h5_set_open(pare_ctx *ctx, pare_h5_set *out, const pare_h5_file *file,
                             const char *name)
{
    if (file->helper) return pare_h5_helper_set(ctx, out, file, name);
    *out = (pare_h5_set){.file = file, .deflate = -1, .shuffle = -1, .id = -1, .memory_type = -1};
    if (!(out->name = pare_strdup(ctx, name))) return PARE_MEMORY;
    out->id = H5Dopen2(file->id, name, H5P_DEFAULT);
    pare_status st = out->id < 0 ? PARE_FAIL(ctx, INPUT, "%s: dataset '%s': is missing or damaged",
                                             file->path, name)
                                 : describe(ctx, out);
    if (st == PARE_OK && !out->serial) { /* all that HDF5 could say is known */
        H5Tclose(out->memory_type);
        H5Dclose(out->id);
        out->id = out->memory_type = -1;
    }
    if (st != PARE_OK) pare_h5_set_close(out);
    return st;
}

void pare_h5_set_close(pare_h5_set *set)
{
    if (set->memory_type >= 0) H5Tclose(set->memory_type);
    if (set->id >= 0) H5Dclose(set->id);
    pare_free(set->chunks);
    pare_free(set->image.mean);
    pare_free(set->image.std);
    pare_free(set->name);
    *set = (pare_h5_set){.id = -1, .memory_type = -1};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: listed once by the opening thread, read by any. H5Dread_chunk trusts sizes in the file
   and overflows on damaged ones; here every address and size is checked against the file and every
   inflated chunk must have exactly its size. Filters: HDF5 File Format Specification 3.0, IV.A.2.l.
 */
#include "formats/data/hdf5.h"
#include "runtime/base/room.h"
#include "runtime/base/size.h"

#include <errno.h>
#include <hdf5.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_CHUNKS = 1 << 24, MAX_INFLATION = 1040 }; /* deflate makes at most 1032 bytes of one */

/* --- listing --- */

pare_status pare_h5_check_chunk(pare_ctx *ctx, const pare_h5_set *set, const pare_h5_chunk *c,
                                uint64_t size, int64_t index, uint64_t plain)
{
    uint64_t end = set->file->size;
    bool packed = set->deflate >= 0 && !(c->mask >> set->deflate & 1);
    if (c->address > end || size > end - c->address || size > PARE_H5_MAX_BYTES)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': chunk %lld is outside the file (address "
                         "%llu, %llu bytes); the file is cut or damaged, make it again",
                         set->file->path, set->name, (long long)index,
                         (unsigned long long)c->address, (unsigned long long)size);
    if (packed ? plain / MAX_INFLATION > size : size != plain)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': chunk %lld has %llu bytes, too few for its "
                         "%llu; the file is damaged, make it again",
                         set->file->path, set->name, (long long)index, (unsigned long long)size,
                         (unsigned long long)plain);
    return PARE_OK;
}

/* Plain runs of rows, one after the other from the dataset's address. */
static pare_status list_contiguous(pare_ctx *ctx, pare_h5_set *set)
{
    haddr_t at = H5Dget_offset(set->id);
    for (int64_t i = 0; at != HADDR_UNDEF && i < set->group_count; i++) {
        int64_t first = i * set->group_rows, rows = set->dim[0] - first;
        if (rows > set->group_rows) rows = set->group_rows;
        uint64_t bytes = (uint64_t)rows * set->row_bytes;
        uint64_t offset = (uint64_t)first * set->row_bytes;
        if (offset > UINT64_MAX - at) offset = UINT64_MAX - at;
        set->chunks[i] = (pare_h5_chunk){.address = at + offset, .size = (uint32_t)bytes};
        PARE_TRY(pare_h5_check_chunk(ctx, set, &set->chunks[i], bytes, i, bytes));
    }
    return PARE_OK;
}

/* What libhdf5 could not do where it got no memory. */
static pare_status out_of_memory(pare_ctx *ctx, const pare_h5_set *set)
{
    return PARE_FAIL(ctx, MEMORY, "%s: out of memory inside libhdf5", set->file->path);
}

static pare_status list_chunked(pare_ctx *ctx, pare_h5_set *set)
{
    hsize_t at[PARE_MAX_RANK] = {0};
    int64_t n = set->group_count * set->group_chunks;
    for (int64_t i = 0; i < n; i++) {
        unsigned mask = 0;
        haddr_t address = HADDR_UNDEF;
        hsize_t size = 0;
        int64_t rest = i;
        for (int k = set->rank - 1; k >= 0; rest /= set->grid[k], k--)
            at[k] = (hsize_t)(rest % set->grid[k] * set->chunk[k]);
        const herr_t e = H5Dget_chunk_info_by_coord(set->id, at, &mask, &address, &size);
        if (e < 0 && !pare_has_room(PARE_ROOM_LEAST)) return out_of_memory(ctx, set);
        if (e < 0)
            return PARE_FAIL(ctx, INPUT,
                             "%s: dataset '%s': the list of its chunks is damaged at "
                             "chunk %lld; make the file again",
                             set->file->path, set->name, (long long)i);
        if (address == HADDR_UNDEF || size == 0) continue;
        set->chunks[i] = (pare_h5_chunk){.address = address, .size = (uint32_t)size, .mask = mask};
        PARE_TRY(pare_h5_check_chunk(ctx, set, &set->chunks[i], size, i, set->chunk_bytes));
    }
    return PARE_OK;
}

bool pare_h5_measure(pare_h5_set *set)
{
    size_t bytes = set->element, group = set->row_bytes;
    set->group_chunks = 1;
    for (int k = 0; k < set->rank; k++) {
        if (set->chunk[k] < 1 || !pare_mul_size(bytes, (size_t)set->chunk[k], &bytes)) return false;
        set->grid[k] = set->dim[k] / set->chunk[k] + (set->dim[k] % set->chunk[k] != 0);
        if (k > 0 && __builtin_mul_overflow(set->group_chunks, set->grid[k], &set->group_chunks))
            return false;
    }
    set->group_rows = set->chunk[0];
    set->group_count = set->grid[0];
    set->chunk_bytes = bytes;
    return pare_mul_size(group, (size_t)set->group_rows, &group) && group <= PARE_H5_MAX_BYTES &&
           bytes <= PARE_H5_MAX_BYTES;
}

pare_status pare_h5_list_chunks(pare_ctx *ctx, pare_h5_set *set)
{
    int64_t n;
    if (!pare_h5_measure(set))
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': its chunks are larger than 1 GiB; rewrite it "
                         "with smaller chunks",
                         set->file->path, set->name);
    if (set->serial) return PARE_OK;
    if (__builtin_mul_overflow(set->group_count, set->group_chunks, &n) || n > MAX_CHUNKS)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': has more than %d chunks; rewrite it with "
                         "larger ones",
                         set->file->path, set->name, MAX_CHUNKS);
    set->chunks = pare_alloc(ctx, (size_t)n, sizeof *set->chunks);
    if (!set->chunks) return PARE_MEMORY;
    return set->contiguous ? list_contiguous(ctx, set) : list_chunked(ctx, set);
}

/* --- reading --- */

static uint8_t *room(pare_ctx *ctx, uint8_t **buffer, size_t *size, size_t need)
{
    if (*size >= need) return *buffer;
    pare_free(*buffer);
    *buffer = pare_alloc(ctx, need, 1);
    *size = *buffer ? need : 0;
    return *buffer;
}

static pare_status read_stored(pare_ctx *ctx, const pare_h5_set *set, const pare_h5_chunk *c,
                               uint8_t *out)
{
    for (size_t done = 0; done < c->size;) {
        ssize_t n = pread(set->file->fd, out + done, c->size - done, (off_t)(c->address + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return PARE_FAIL(ctx, IO, "%s: dataset '%s': cannot be read: %s", set->file->path,
                             set->name, n < 0 ? strerror(errno) : "the file became shorter");
        done += (size_t)n;
    }
    return PARE_OK;
}

static pare_status unpack(pare_ctx *ctx, const pare_h5_set *set, int64_t index,
                          const uint8_t *stored, size_t size, uint8_t *out)
{
    uLongf got = set->chunk_bytes;
    int e = uncompress(out, &got, stored, size);
    if (e == Z_MEM_ERROR) return PARE_FAIL(ctx, MEMORY, "out of memory: inflating a chunk");
    if (e != Z_OK || got != set->chunk_bytes)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': chunk %lld is damaged (%s, rows from %lld); "
                         "make the file again",
                         set->file->path, set->name, (long long)index,
                         e == Z_DATA_ERROR ? "its checksum or code is wrong"
                                           : "it has not the size the file says",
                         (long long)(index / set->group_chunks * set->group_rows));
    return PARE_OK;
}

/* Byte k of element i is at k * count + i. */
static void unshuffle(const uint8_t *in, uint8_t *out, size_t bytes, size_t element)
{
    size_t count = bytes / element;
    for (size_t k = 0; k < element; k++)
        for (size_t i = 0; i < count; i++) out[i * element + k] = in[k * count + i];
    memcpy(out + count * element, in + count * element, bytes - count * element);
}

/* The content of one chunk into out (chunk_bytes). */
static pare_status read_chunk(pare_ctx *ctx, const pare_h5_set *set, pare_h5_scratch *s,
                              int64_t index, uint8_t *out)
{
    const pare_h5_chunk *c = &set->chunks[index];
    bool packed = set->deflate >= 0 && !(c->mask >> set->deflate & 1);
    bool mixed = set->shuffle >= 0 && !(c->mask >> set->shuffle & 1) && set->element > 1;
    /* a shuffle that came after deflate mixed the stored bytes; nothing writes that, nor do we read
     * it */
    if (packed && mixed && set->shuffle > set->deflate)
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "%s: dataset '%s': its filters are deflate, then shuffle; "
                         "expected shuffle, then deflate",
                         set->file->path, set->name);
    uint8_t *plain = mixed ? room(ctx, &s->mixed, &s->mixed_size, set->chunk_bytes) : out;
    if (!plain) return PARE_MEMORY;
    if (packed) {
        uint8_t *stored = room(ctx, &s->stored, &s->stored_size, c->size);
        if (!stored) return PARE_MEMORY;
        PARE_TRY(read_stored(ctx, set, c, stored));
        PARE_TRY(unpack(ctx, set, index, stored, c->size, plain));
    } else {
        PARE_TRY(read_stored(ctx, set, c, plain));
    }
    if (mixed) unshuffle(plain, out, set->chunk_bytes, set->element);
    return PARE_OK;
}

static void fill(const pare_h5_set *set, uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) out[i] = set->fill[i % set->element];
}

/* Copies the part of a chunk that is inside the dataset to its place among the group's rows. */
static void place(const pare_h5_set *set, const int64_t *at, const uint8_t *chunk, uint8_t *out)
{
    int64_t extent[PARE_MAX_RANK], step[PARE_MAX_RANK], from[PARE_MAX_RANK], i[PARE_MAX_RANK] = {0};
    int last = set->rank - 1;
    int64_t inside = (int64_t)set->element, whole = (int64_t)set->element;
    for (int k = last; k >= 0; k--) {
        int64_t left = set->dim[k] - at[k];
        extent[k] = left < set->chunk[k] ? left : set->chunk[k];
        from[k] = inside;
        step[k] = whole;
        inside *= set->chunk[k];
        whole *= k > 0 ? set->dim[k] : 1;
    }
    size_t run = (size_t)extent[last] * set->element;
    for (int k = 0; k >= 0;) {
        int64_t source = 0, target = 0;
        for (k = 0; k < last; k++) {
            source += i[k] * from[k];
            target += (i[k] + (k > 0 ? at[k] : 0)) * step[k];
        }
        if (last > 0) target += at[last] * step[last];
        memcpy(out + target, chunk + source, run);
        for (k = last - 1; k >= 0 && ++i[k] == extent[k]; k--) i[k] = 0;
    }
}

pare_status pare_h5_read_group(pare_ctx *ctx, const pare_h5_set *set, pare_h5_scratch *scratch,
                               int64_t group, uint8_t *out)
{
    size_t row_chunk = set->chunk_bytes / (size_t)set->chunk[0];
    bool direct = set->group_chunks == 1 && row_chunk == set->row_bytes;
    for (int64_t j = 0; j < set->group_chunks; j++) {
        int64_t index = group * set->group_chunks + j, rest = j, at[PARE_MAX_RANK];
        uint8_t *chunk =
            direct ? out : room(ctx, &scratch->plain, &scratch->plain_size, set->chunk_bytes);
        if (!chunk) return PARE_MEMORY;
        if (set->chunks[index].size)
            PARE_TRY(read_chunk(ctx, set, scratch, index, chunk));
        else
            fill(set, chunk, set->chunk_bytes);
        if (direct) break;
        for (int k = set->rank - 1; k > 0; rest /= set->grid[k], k--)
            at[k] = rest % set->grid[k] * set->chunk[k];
        at[0] = group * set->chunk[0];
        place(set, at, chunk, out);
    }
    return PARE_OK;
}

void pare_h5_scratch_free(pare_h5_scratch *s)
{
    pare_free(s->stored);
    pare_free(s->plain);
    pare_free(s->mixed);
    *s = (pare_h5_scratch){0};
}

pare_status pare_h5_read_rows(pare_ctx *ctx, const pare_h5_set *set, int64_t first, int64_t count,
                              uint8_t *out)
{
    hsize_t at[PARE_MAX_RANK] = {0}, size[PARE_MAX_RANK] = {0};
    if (set->file->helper) return pare_h5_helper_rows(ctx, set, first, count, out);
    for (int k = 0; k < set->rank; k++) size[k] = (hsize_t)set->dim[k];
    at[0] = (hsize_t)first;
    size[0] = (hsize_t)count;
    hid_t file_space = H5Dget_space(set->id), memory = H5Screate_simple(set->rank, size, NULL);
    herr_t e = file_space < 0 || memory < 0 ? -1 : 0;
    if (e >= 0 && !set->scalar)
        e = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, at, NULL, size, NULL);
    if (e >= 0) e = H5Dread(set->id, set->memory_type, memory, file_space, H5P_DEFAULT, out);
    if (file_space >= 0) H5Sclose(file_space);
    if (memory >= 0) H5Sclose(memory);
    if (e < 0 && !pare_has_room(PARE_ROOM_LEAST)) return out_of_memory(ctx, set);
    if (e < 0)
        return PARE_FAIL(ctx, INPUT,
                         "%s: dataset '%s': rows from %lld cannot be read; the file is "
                         "damaged or its filter is not installed, make it again with gzip",
                         set->file->path, set->name, (long long)first);
    return PARE_OK;
}

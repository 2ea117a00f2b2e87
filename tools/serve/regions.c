/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/regions.h"

#include "formats/json.h"
#include "tools/serve/gpu/gpu_region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_REGIONS = 1024 }; /* each holds a descriptor */

struct pare_region {
    pare_region *next;
    pare_region_kind kind;
    char *name, *key; /* key, fd: of system regions */
    int fd;
    int64_t offset, bytes;
    pare_gpu_region there; /* of CUDA's */
    atomic_int references;
};

void pare_regions_init(pare_regions *r)
{
    r->first = NULL;
    r->has_system = true;
    r->gpus = NULL;
    (void)pthread_mutex_init(&r->lock, NULL); /* on Linux it does not fail */
}

void pare_regions_free(pare_regions *r)
{
    pare_regions_remove(r, PARE_REGION_SYSTEM, NULL);
    pare_regions_remove(r, PARE_REGION_CUDA, NULL);
    (void)pthread_mutex_destroy(&r->lock);
}

void pare_region_release(pare_region *one)
{
    if (atomic_fetch_sub(&one->references, 1) > 1) return;
    if (one->fd >= 0) close(one->fd);
    pare_gpu_region_close(&one->there);
    pare_free(one->name);
    pare_free(one->key);
    pare_free(one);
}

/* Under the lock: where the region of this name hangs; NULL: there is none. */
static pare_region **find(pare_regions *r, const char *name)
{
    for (pare_region **at = &r->first; *at; at = &(*at)->next)
        if (!strcmp((*at)->name, name)) return at;
    return NULL;
}

/* Under the lock. */
static int count_regions(const pare_regions *r)
{
    int count = 0;
    for (const pare_region *one = r->first; one; one = one->next) count++;
    return count;
}

static pare_status open_object(pare_ctx *ctx, pare_region *one)
{
    struct stat info;
    one->fd = shm_open(one->key, O_RDWR | O_CLOEXEC, 0);
    if (one->fd < 0 || fstat(one->fd, &info))
        return PARE_FAIL(ctx, INPUT, "region '%s': shared memory '%s': %s", one->name, one->key,
                         strerror(errno));
    if (one->offset <= info.st_size && one->bytes <= info.st_size - one->offset) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "region '%s': shared memory '%s' has %lld bytes, expected %lld behind %lld",
                     one->name, one->key, (long long)info.st_size, (long long)one->bytes,
                     (long long)one->offset);
}

/* A region with one reference, of no memory yet; NULL: memory is out. */
static pare_region *region_new(pare_ctx *ctx, pare_region_kind kind, const char *name,
                               int64_t bytes)
{
    pare_region *one = pare_alloc(ctx, 1, sizeof *one);
    if (!one) return NULL;
    one->kind = kind;
    one->fd = -1;
    one->bytes = bytes;
    atomic_init(&one->references, 1);
    one->name = pare_strdup(ctx, name);
    if (one->name) return one;
    pare_region_release(one);
    return NULL;
}

/* Takes the region, which opening has given this status. */
static pare_status add(pare_regions *r, pare_ctx *ctx, pare_region *one, pare_status st)
{
    (void)pthread_mutex_lock(&r->lock);
    if (st == PARE_OK && find(r, one->name))
        st = PARE_FAIL(ctx, INPUT, "region '%s' is registered already", one->name);
    if (st == PARE_OK && count_regions(r) == MOST_REGIONS)
        st = PARE_FAIL(ctx, INPUT, "region '%s': %d regions are registered, more are not taken",
                       one->name, MOST_REGIONS);
    if (st == PARE_OK) {
        one->next = r->first;
        r->first = one;
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (st != PARE_OK) pare_region_release(one);
    return st;
}

pare_status pare_regions_add(pare_regions *r, pare_ctx *ctx, const char *name, const char *key,
                             int64_t offset, int64_t bytes)
{
    pare_region *one = region_new(ctx, PARE_REGION_SYSTEM, name, bytes);
    if (!one) return PARE_MEMORY;
    one->offset = offset;
    one->key = pare_strdup(ctx, key);
    return add(r, ctx, one, one->key ? open_object(ctx, one) : PARE_MEMORY);
}

static pare_status open_cuda(const pare_regions *r, pare_ctx *ctx, pare_region *one,
                             const void *handle, int64_t device)
{
    pare_gpu *gpu = pare_gpus_find(r->gpus, device);
    if (!gpu)
        return PARE_FAIL(ctx, INPUT, "region '%s': no model is served on GPU %lld", one->name,
                         (long long)device);
    const pare_status st = pare_gpu_region_open(ctx, &one->there, gpu, handle, (size_t)one->bytes);
    return st == PARE_OK ? st : pare_fail_prefix(ctx, st, "region '%s'", one->name);
}

pare_status pare_regions_add_cuda(pare_regions *r, pare_ctx *ctx, const char *name,
                                  const void *handle, int64_t device, int64_t bytes)
{
    pare_region *one = region_new(ctx, PARE_REGION_CUDA, name, bytes);
    if (!one) return PARE_MEMORY;
    return add(r, ctx, one, open_cuda(r, ctx, one, handle, device));
}

void pare_regions_remove(pare_regions *r, pare_region_kind kind, const char *name)
{
    (void)pthread_mutex_lock(&r->lock);
    for (pare_region **at = &r->first; *at;) {
        pare_region *one = *at;
        if (one->kind != kind || (name && strcmp(one->name, name) != 0)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        pare_region_release(one);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

static json_t *region_json(const pare_region *one)
{
    json_t *name = pare_json_text(one->name);
    const json_int_t bytes = one->bytes;
    if (one->kind == PARE_REGION_CUDA)
        return json_pack("{s:o, s:i, s:I}", "name", name, "device_id",
                         one->there.gpu->device->index, "byte_size", bytes);
    return json_pack("{s:o, s:o, s:I, s:I}", "name", name, "key", pare_json_text(one->key),
                     "offset", (json_int_t)one->offset, "byte_size", bytes);
}

json_t *pare_regions_json(pare_regions *r, pare_region_kind kind, const char *name)
{
    json_t *list = json_array();
    (void)pthread_mutex_lock(&r->lock);
    for (const pare_region *one = r->first; one; one = one->next)
        if (one->kind == kind && (!name || !strcmp(one->name, name)))
            json_array_append_new(list, region_json(one));
    (void)pthread_mutex_unlock(&r->lock);
    if (!name || json_array_size(list)) return list;
    json_decref(list);
    return NULL;
}

pare_status pare_regions_find(pare_regions *r, pare_ctx *ctx, pare_region **out, const char *name,
                              int64_t offset, int64_t bytes)
{
    (void)pthread_mutex_lock(&r->lock);
    pare_region **at = find(r, name), *one = at ? *at : NULL;
    const bool fits = one && offset <= one->bytes && bytes <= one->bytes - offset;
    if (fits) atomic_fetch_add(&one->references, 1);
    const int64_t has = one ? one->bytes : 0;
    (void)pthread_mutex_unlock(&r->lock);
    *out = fits ? one : NULL;
    if (fits) return PARE_OK;
    if (!one) return PARE_FAIL(ctx, INPUT, "there is no shared memory region '%s'", name);
    return PARE_FAIL(ctx, INPUT,
                     "shared memory region '%s' has %lld bytes, expected %lld behind %lld", name,
                     (long long)has, (long long)bytes, (long long)offset);
}

void *pare_region_there(const pare_region *one, const pare_gpu *gpu, int64_t offset)
{
    return gpu && one && one->there.gpu == gpu ? one->there.memory + offset : NULL;
}

static pare_status fail_short(const pare_region *one, pare_ctx *ctx, ssize_t done)
{
    return PARE_FAIL(ctx, INPUT, "shared memory region '%s': %s", one->name,
                     done < 0 ? strerror(errno) : "its memory has become smaller");
}

pare_status pare_region_read(const pare_region *one, pare_ctx *ctx, void *to, int64_t offset,
                             size_t bytes)
{
    if (one->kind == PARE_REGION_CUDA)
        return pare_gpu_region_read(&one->there, ctx, to, offset, bytes);
    for (ssize_t done; bytes; to = (char *)to + done, bytes -= (size_t)done, offset += done) {
        done = pread(one->fd, to, bytes, one->offset + offset);
        if (done <= 0) return fail_short(one, ctx, done);
    }
    return PARE_OK;
}

/* A file that is shorter would grow: its end is looked at before. */
pare_status pare_region_write(const pare_region *one, pare_ctx *ctx, const void *from,
                              int64_t offset, size_t bytes)
{
    struct stat info;
    if (one->kind == PARE_REGION_CUDA)
        return pare_gpu_region_write(&one->there, ctx, from, offset, bytes);
    if (fstat(one->fd, &info)) return fail_short(one, ctx, -1);
    if (info.st_size < one->offset + offset + (int64_t)bytes) return fail_short(one, ctx, 0);
    for (ssize_t done; bytes;
         from = (const char *)from + done, bytes -= (size_t)done, offset += done) {
        done = pwrite(one->fd, from, bytes, one->offset + offset);
        if (done <= 0) return fail_short(one, ctx, done);
    }
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* An entry is its content and, after it, 64 bytes that say what the content must be. */
#include "tools/cache.h"

#include "runtime/base/version.h"
#include "runtime/exec/machine_table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, PATH = 4096 };

typedef struct trailer {
    char magic[8];
    uint32_t format, order; /* order: 1, of this machine's bytes */
    uint64_t size;
    pare_hash key, sum;
    uint64_t check; /* of what is before it */
} trailer;

static const char magic[8] = "parecach";

static uint64_t check_of(const trailer *t)
{
    return pare_hash_bytes(t, offsetof(trailer, check)).low;
}

static bool folder_of(const pare_cache *c, char out[PATH])
{
    return c->folder && snprintf(out, PATH, "%s/%s", c->folder, c->kind) < PATH;
}

static bool path_of(const pare_cache *c, const pare_hash *key, char out[PATH])
{
    char text[33];
    pare_hash_text(*key, text);
    return c->folder && snprintf(out, PATH, "%s/%s/%s", c->folder, c->kind, text) < PATH;
}

/* --- keys --- */

void pare_cache_key_add(pare_hash *key, const void *data, size_t bytes)
{
    const pare_hash both[2] = {*key, pare_hash_bytes(data, bytes)};
    *key = pare_hash_bytes(both, sizeof both);
}

void pare_cache_key_add_text(pare_hash *key, const char *text)
{
    pare_cache_key_add(key, text ? text : "", text ? strlen(text) + 1 : 0);
}

void pare_cache_key_begin(pare_hash *key, const pare_cache *cache, pare_device *device)
{
    char machine[PARE_MACHINE_NAME];
    *key = (pare_hash){0};
    pare_machine_name(cache->ctx, machine, sizeof machine, device);
    pare_cache_key_add_text(key, PARE_VERSION);
    pare_cache_key_add_text(key, cache->kind);
    pare_cache_key_add_text(key, machine);
    if (device && device->tf32) pare_cache_key_add_text(key, "tf32");
}

pare_status pare_cache_key_add_file(pare_ctx *ctx, pare_hash *key, const char *path)
{
    pare_hash sum;
    PARE_TRY(pare_file_hash_quick(ctx, path, &sum));
    pare_cache_key_add(key, &sum, sizeof sum);
    return PARE_OK;
}

/* --- reading --- */

/* What is wrong with an entry, or NULL. */
static const char *wrong(const pare_map *map, const pare_hash *key)
{
    trailer t;
    if (map->size < sizeof t) return "is cut or was changed";
    memcpy(&t, map->data + map->size - sizeof t, sizeof t);
    if (memcmp(t.magic, magic, sizeof magic) != 0 || t.check != check_of(&t))
        return "is cut or was changed";
    if (t.format != FORMAT || t.order != 1) return "is of another version";
    const pare_hash sum = pare_hash_map(map->data, map->size - sizeof t);
    if (t.size != map->size - sizeof t || memcmp(&sum, &t.sum, sizeof sum) != 0)
        return "is cut or was changed";
    return memcmp(key, &t.key, sizeof *key) != 0 ? "is another one's" : NULL;
}

bool pare_cache_find(const pare_cache *cache, const pare_hash *key, pare_cache_entry *out)
{
    char path[PATH];
    *out = (pare_cache_entry){0};
    if (!path_of(cache, key, path) || access(path, F_OK)) return false;
    const char *why = "cannot be read";
    if (pare_map_open(cache->ctx, &out->map, path) == PARE_OK)
        why = wrong(&out->map, key);
    else
        pare_ctx_clear(cache->ctx);
    if (why) {
        pare_map_close(&out->map);
        pare_log(cache->ctx, PARE_LOG_WARNING, "%s: this entry of the cache %s; it is made again",
                 path, why);
        return false;
    }
    (void)!utimensat(AT_FDCWD, path, NULL, 0); /* it was used now */
    out->data = out->map.data;
    out->size = out->map.size - sizeof(trailer);
    return true;
}

void pare_cache_close(pare_cache_entry *entry)
{
    pare_map_close(&entry->map);
    *entry = (pare_cache_entry){0};
}

void pare_cache_drop(const pare_cache *cache, const pare_hash *key, const char *why)
{
    char path[PATH];
    if (!path_of(cache, key, path)) return;
    pare_log(cache->ctx, PARE_LOG_WARNING, "%s: this entry of the cache %s; it is not used", path,
             why);
    unlink(path);
}

/* --- the bound --- */

typedef struct file {
    struct timespec used;
    int64_t bytes;
    char name[40];
} file;

static int longest_unused(const void *a, const void *b)
{
    const file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int64_t list_files(pare_ctx *ctx, DIR *folder, file **list, size_t *count)
{
    size_t capacity = 0;
    int64_t all = 0;
    struct stat info;
    for (const struct dirent *e; (e = readdir(folder));) {
        if (strlen(e->d_name) < 32 || strlen(e->d_name) >= sizeof(*list)->name ||
            fstatat(dirfd(folder), e->d_name, &info, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(info.st_mode) || !pare_grow(ctx, list, &capacity, *count, sizeof **list))
            continue;
        file *f = &(*list)[(*count)++];
        f->used = info.st_mtim;
        f->bytes = info.st_size;
        memcpy(f->name, e->d_name, strlen(e->d_name) + 1);
        all += f->bytes;
    }
    return all;
}

/* Others may do the same meanwhile, or still read what goes: their maps stay. */
static void keep_bound(const pare_cache *c)
{
    char path[PATH];
    const int64_t most = c->most ? c->most : (int64_t)4 << 30;
    file *list = NULL;
    size_t count = 0;
    DIR *folder = folder_of(c, path) ? opendir(path) : NULL;
    if (!folder) return;
    int64_t all = list_files(c->ctx, folder, &list, &count);
    if (all > most) qsort(list, count, sizeof *list, longest_unused);
    for (size_t i = 0; i < count && all > most; i++) {
        unlinkat(dirfd(folder), list[i].name, 0);
        all -= list[i].bytes;
    }
    closedir(folder);
    pare_free(list);
    pare_ctx_clear(c->ctx);
}

/* --- writing --- */

struct pare_cache_writer {
    pare_cache cache;
    pare_hash key;
    pare_output *output; /* NULL: it failed */
    pare_hasher *hasher;
    uint64_t size;
};

/* Writes nothing from now on; the warning is given once. */
static void give_up(pare_cache_writer *w)
{
    pare_ctx *ctx = w->cache.ctx;
    if (!ctx->interrupted || !*ctx->interrupted)
        pare_log(ctx, PARE_LOG_WARNING, "the cache keeps no %s: %s", w->cache.kind, ctx->message);
    pare_ctx_clear(ctx);
    pare_output_discard(w->output);
    w->output = NULL;
}

static pare_status open_output(pare_cache_writer *w)
{
    char path[PATH];
    pare_ctx *ctx = w->cache.ctx;
    if (!folder_of(&w->cache, path) || (mkdir(w->cache.folder, 0777) && errno != EEXIST) ||
        (mkdir(path, 0777) && errno != EEXIST))
        return PARE_FAIL(ctx, IO, "%s/%s: the folder cannot be made: %s", w->cache.folder,
                         w->cache.kind, strerror(errno));
    w->hasher = pare_hasher_new();
    if (!w->hasher || !path_of(&w->cache, &w->key, path))
        return PARE_FAIL(ctx, MEMORY, "out of memory");
    return pare_output_open(ctx, &w->output, path);
}

pare_cache_writer *pare_cache_begin(const pare_cache *cache, const pare_hash *key)
{
    if (!cache->folder) return NULL;
    pare_cache_writer *w = pare_alloc(cache->ctx, 1, sizeof *w);
    if (!w) {
        pare_ctx_clear(cache->ctx);
        return NULL;
    }
    w->cache = *cache;
    w->key = *key;
    if (open_output(w) != PARE_OK) give_up(w);
    return w;
}

void pare_cache_write(pare_cache_writer *w, const void *data, size_t bytes)
{
    if (!w || !w->output) return;
    pare_hasher_add(w->hasher, data, bytes);
    w->size += bytes;
    if (pare_output_write(w->output, data, bytes) != PARE_OK) give_up(w);
}

static void writer_free(pare_cache_writer *w)
{
    pare_output_discard(w->output);
    if (w->hasher) pare_hasher_end(w->hasher);
    pare_free(w);
}

void pare_cache_discard(pare_cache_writer *w)
{
    if (w) writer_free(w);
}

void pare_cache_commit(pare_cache_writer *w)
{
    enum { LARGE = 16 << 20, ONE_IN = 16 };
    if (!w) return;
    trailer t = {.format = FORMAT, .order = 1, .size = w->size, .key = w->key};
    const pare_cache cache = w->cache;
    memcpy(t.magic, magic, sizeof t.magic);
    if (w->hasher) t.sum = pare_hasher_end(w->hasher);
    w->hasher = NULL;
    t.check = check_of(&t);
    if (w->output && pare_output_write(w->output, &t, sizeof t) != PARE_OK) give_up(w);
    pare_output *output = w->output;
    w->output = NULL;
    if (output && pare_output_commit_unflushed(output) != PARE_OK) give_up(w);
    /* the folder is looked through seldom: small entries do not add up fast */
    const bool look = cache.most || t.size >= LARGE || t.key.low % ONE_IN == 0;
    writer_free(w);
    if (output && look) keep_bound(&cache);
}

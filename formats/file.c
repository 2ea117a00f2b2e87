/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs are written to a file without a name (O_TMPFILE), so that a process that is killed leaves
   nothing; commit gives it a name beside the target and renames it over. A kill between those two
   leaves the whole file under that name, TARGET.pare-new, and the next write to the target takes it
   away. Where the file system has no nameless files, a file beside is used from the start. Devices
   and pipes are written directly.
 */
#include "formats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEFT_BEHIND ".pare-new"

/* --- maps --- */

static pare_status look_at(pare_ctx *ctx, struct stat *out, const char *path, int fd)
{
    if (fstat(fd, out)) return PARE_FAIL(ctx, IO, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(out->st_mode)) return PARE_FAIL(ctx, IO, "%s: is a folder, expected a file", path);
    if (!S_ISREG(out->st_mode))
        return PARE_FAIL(ctx, IO, "%s: is not a regular file; copy its content to a file first",
                         path);
    return PARE_OK;
}

/* Maps the file, or as many bytes of no file. */
static pare_status map_bytes(pare_ctx *ctx, pare_map *out, const char *path, int fd, off_t bytes,
                             bool is_copy)
{
    *out = (pare_map){(const uint8_t *)"", 0};
    if (bytes == 0) return PARE_OK;
    void *data = is_copy ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                         : mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return pare_fail(ctx, errno == ENOMEM ? PARE_MEMORY : PARE_IO, "%s: cannot be mapped: %s",
                         path, strerror(errno));
    *out = (pare_map){data, (size_t)bytes};
    return PARE_OK;
}

static bool is_as_before(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static pare_status fill_map(pare_ctx *ctx, pare_map *map, const char *path, int fd,
                            const struct stat *before)
{
    struct stat after;
    size_t done = 0;
    ssize_t got = 0;
    while (done < map->size) {
        got = read(fd, (uint8_t *)map->data + done, map->size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    if (got < 0) return PARE_FAIL(ctx, IO, "%s: cannot be read: %s", path, strerror(errno));
    PARE_TRY(look_at(ctx, &after, path, fd));
    if (done < map->size || !is_as_before(before, &after))
        return PARE_FAIL(ctx, INPUT,
                         "%s: was changed while it was read; try again once it is whole", path);
    return PARE_OK;
}

static pare_status open_map(pare_ctx *ctx, pare_map *out, const char *path, bool is_copy)
{
    struct stat info;
    *out = (pare_map){0};
    /* non-blocking: opening a pipe without a writer must not hang */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return PARE_FAIL(ctx, IO, "%s: cannot be opened: %s", path, strerror(errno));
    pare_status st = look_at(ctx, &info, path, fd);
    if (st == PARE_OK) st = map_bytes(ctx, out, path, fd, info.st_size, is_copy);
    if (st == PARE_OK && is_copy) st = fill_map(ctx, out, path, fd, &info);
    close(fd);
    if (st != PARE_OK) pare_map_close(out);
    return st;
}

pare_status pare_map_open(pare_ctx *ctx, pare_map *out, const char *path)
{
    return open_map(ctx, out, path, false);
}

pare_status pare_map_read(pare_ctx *ctx, pare_map *out, const char *path)
{
    return open_map(ctx, out, path, true);
}

void pare_map_close(pare_map *map)
{
    if (map->size) munmap((void *)map->data, map->size);
    *map = (pare_map){0};
}

/* --- outputs --- */

struct pare_output {
    pare_ctx *ctx;
    char *path;   /* as the user named it, for messages */
    char *target; /* where the content goes: links followed */
    char *beside; /* name of the unfinished file, NULL while it has none */
    int fd;
    bool direct; /* a device or pipe: nothing to rename */
};

static void output_free(pare_output *o)
{
    if (o->fd >= 0) close(o->fd);
    if (o->beside) unlink(o->beside);
    pare_free(o->beside);
    pare_free(o->target);
    pare_free(o->path);
    pare_free(o);
}

static pare_status output_fails(const pare_output *o, int code)
{
    const char *cure = code == ENOSPC || code == EDQUOT ? "; free some space or write elsewhere"
                       : code == EACCES || code == EPERM || code == EROFS
                           ? "; choose a place you may write to"
                       : code == ENOENT || code == ENOTDIR ? "; its folder must exist"
                                                           : "";
    return PARE_FAIL(o->ctx, IO, "%s: cannot be written: %s%s", o->path, strerror(code), cure);
}

/* The folder of a path, in text. */
static char *folder_of(pare_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = pare_strdup(ctx, slash ? path : ".");
    if (folder && slash) folder[slash == path ? 1 : slash - path] = 0;
    return folder;
}

/* Takes away what a killed writer left under this name. Who links a file there holds a lock on it
   until it is renamed: a file that can be locked has no writer any more. */
static void remove_left_behind(const char *name)
{
    int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat locked, named;
    if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &locked) && !lstat(name, &named) &&
        S_ISREG(locked.st_mode) && locked.st_dev == named.st_dev && locked.st_ino == named.st_ino)
        unlink(name);
    close(fd);
}

/* A free name beside the target; the file is made by make(name), which returns 0 or an errno. A
   whole file (it is only to be renamed) tries LEFT_BEHIND first. */
static pare_status name_beside(pare_output *o, int (*make)(pare_output *o, const char *name))
{
    size_t size = strlen(o->target) + sizeof LEFT_BEHIND;
    char *name = pare_alloc(o->ctx, size, 1);
    if (!name) return PARE_MEMORY;
    int code = EEXIST;
    if (o->fd >= 0 && !flock(o->fd, LOCK_EX | LOCK_NB)) {
        snprintf(name, size, "%s" LEFT_BEHIND, o->target);
        remove_left_behind(name);
        code = make(o, name);
    }
    for (int attempt = 0; attempt < 100 && code == EEXIST; attempt++) {
        uint32_t random = 0;
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
            random = (uint32_t)getpid() * 101u + (uint32_t)attempt;
        snprintf(name, size, "%s.%06" PRIx32, o->target, random & 0xffffff);
        code = make(o, name);
    }
    if (code) {
        pare_free(name);
        return output_fails(o, code);
    }
    o->beside = name;
    return PARE_OK;
}

static int make_file(pare_output *o, const char *name)
{
    o->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return o->fd < 0 ? errno : 0;
}

static int make_link(pare_output *o, const char *name)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", o->fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? errno : 0;
}

/* Opens what is at the target now: refuses folders and files that may not be written, and notes
   devices. */
static pare_status look_at_target(pare_output *o)
{
    struct stat info;
    if (stat(o->target, &info)) return errno == ENOENT ? PARE_OK : output_fails(o, errno);
    if (S_ISDIR(info.st_mode)) return output_fails(o, EISDIR);
    if (access(o->target, W_OK)) return output_fails(o, errno);
    o->direct = !S_ISREG(info.st_mode);
    return PARE_OK;
}

/* False where there is no such thing: nothing is open then. */
static pare_status open_nameless(pare_output *o, bool *opened)
{
    char *folder = folder_of(o->ctx, o->target);
    if (!folder) return PARE_MEMORY;
    if (!access("/proc/self/fd", X_OK)) o->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    pare_free(folder);
    *opened = o->fd >= 0;
    return PARE_OK;
}

static pare_status output_start(pare_output *o)
{
    bool opened;
    PARE_TRY(look_at_target(o));
    if (o->direct) {
        o->fd = open(o->target, O_WRONLY | O_CLOEXEC); /* a pipe waits here for its reader */
        if (o->fd < 0 && errno == EINTR) PARE_TRY(pare_ctx_poll(o->ctx));
        return o->fd < 0 ? output_fails(o, errno) : PARE_OK;
    }
    PARE_TRY(open_nameless(o, &opened));
    return opened ? PARE_OK : name_beside(o, make_file);
}

/* What a link says that leads to nothing yet, seen from the link's folder; else the path itself. */
static void read_link(const char *path, char *out, size_t size)
{
    char to[2048];
    ssize_t n = readlink(path, to, sizeof to - 1);
    const char *slash = strrchr(path, '/');
    if (n <= 0) {
        snprintf(out, size, "%s", path);
        return;
    }
    to[n] = 0;
    snprintf(out, size, "%.*s%s", *to == '/' || !slash ? 0 : (int)(slash - path) + 1, path, to);
}

/* The file a path leads to: symbolic links are followed, so that the link stays. */
static char *follow(pare_ctx *ctx, const char *path)
{
    char *real = realpath(path, NULL), to[4096];
    bool missing = !real && errno == ENOENT && strlen(path) < sizeof to;
    if (missing) read_link(path, to, sizeof to);
    char *copy = pare_strdup(ctx, real ? real : missing ? to : path);
    free(real);
    return copy;
}

/* With its names; nothing is open. */
static pare_output *output_new(pare_ctx *ctx, const char *path)
{
    pare_output *o = pare_alloc(ctx, 1, sizeof *o);
    if (!o) return NULL;
    *o = (pare_output){.ctx = ctx, .fd = -1};
    o->path = pare_strdup(ctx, path);
    o->target = follow(ctx, path);
    if (o->path && o->target) return o;
    output_free(o);
    return NULL;
}

pare_status pare_output_open(pare_ctx *ctx, pare_output **out, const char *path)
{
    pare_output *o = output_new(ctx, path);
    pare_status st = o ? output_start(o) : PARE_MEMORY;
    if (st == PARE_OK)
        *out = o;
    else
        pare_output_discard(o);
    return st;
}

/* A file system that knows nothing of room is none that lacks it. */
static pare_status take_room(pare_output *o, uint64_t bytes, bool *taken)
{
    *taken = false;
    PARE_TRY(look_at_target(o));
    if (!o->direct) PARE_TRY(open_nameless(o, taken));
    int code;
    do {
        PARE_TRY(pare_ctx_poll(o->ctx));
        code = *taken && bytes ? posix_fallocate(o->fd, 0, (off_t)bytes) : 0;
    } while (code == EINTR);
    return code == ENOSPC || code == EDQUOT || code == EFBIG ? output_fails(o, code) : PARE_OK;
}

pare_status pare_output_reserve(pare_ctx *ctx, pare_output **out, const char *path, uint64_t bytes)
{
    bool taken = false;
    pare_output *o = output_new(ctx, path);
    *out = NULL;
    pare_status st = o ? take_room(o, bytes, &taken) : PARE_MEMORY;
    if (taken && st == PARE_OK)
        *out = o;
    else
        pare_output_discard(o);
    return st;
}

pare_status pare_output_write(pare_output *output, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        PARE_TRY(pare_ctx_poll(output->ctx));
        size_t most = bytes < (size_t)64 << 20 ? bytes : (size_t)64 << 20;
        ssize_t n = write(output->fd, from, most);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return output_fails(output, errno);
        from += n;
        bytes -= (size_t)n;
    }
    return PARE_OK;
}

pare_status pare_output_overwrite(pare_output *output, const void *data, size_t bytes)
{
    if (output->direct && bytes)
        return PARE_FAIL(output->ctx, IO,
                         "%s: is a pipe or a device, and its beginning is written last; write to a "
                         "file",
                         output->path);
    for (size_t at = 0; at < bytes;) {
        PARE_TRY(pare_ctx_poll(output->ctx));
        ssize_t n = pwrite(output->fd, (const char *)data + at, bytes - at, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return output_fails(output, errno);
        at += (size_t)n;
    }
    return PARE_OK;
}

int pare_output_fd(pare_output *output) { return output->fd; }

/* The rename itself must survive a power cut, too; a folder that cannot be flushed is no failure.
 */
static void flush_folder(pare_output *o)
{
    char *folder = folder_of(o->ctx, o->target);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    pare_free(folder);
    if (fd < 0) return;
    (void)!fsync(fd);
    close(fd);
}

pare_status pare_output_flush(pare_output *output)
{
    if (output->direct) return PARE_OK;
    if (fsync(output->fd) && errno != EINVAL && errno != ENOSYS) return output_fails(output, errno);
    return PARE_OK;
}

/* Gives the file its name. */
static pare_status output_name(pare_output *o)
{
    if (o->direct) return PARE_OK;
    if (!o->beside) {
        if (access(o->target, F_OK) && make_link(o, o->target) == 0) return PARE_OK;
        PARE_TRY(name_beside(o, make_link));
    }
    if (rename(o->beside, o->target)) return output_fails(o, errno);
    pare_free(o->beside);
    o->beside = NULL;
    return PARE_OK;
}

pare_status pare_output_commit(pare_output *output)
{
    pare_status st = pare_output_flush(output);
    if (st == PARE_OK) st = output_name(output);
    if (st == PARE_OK && !output->direct) flush_folder(output);
    output_free(output);
    return st;
}

pare_status pare_output_commit_unflushed(pare_output *output)
{
    pare_status st = output_name(output);
    output_free(output);
    return st;
}

void pare_output_discard(pare_output *output)
{
    if (output) output_free(output);
}

pare_status pare_file_write(pare_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    pare_output *o;
    PARE_TRY(pare_output_open(ctx, &o, path));
    pare_status st = pare_output_write(o, data, bytes);
    if (st != PARE_OK) {
        pare_output_discard(o);
        return st;
    }
    return pare_output_commit(o);
}

/* --- folders --- */

pare_status pare_folder_make(pare_ctx *ctx, const char *folder, const char *what)
{
    struct stat info;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return PARE_FAIL(ctx, IO, "%s: the folder cannot be made: %s", folder, strerror(errno));
    if (stat(folder, &info) || !S_ISDIR(info.st_mode))
        return PARE_FAIL(ctx, IO, "%s: is no folder, expected one for %s", folder, what);
    if (access(folder, W_OK | X_OK))
        return PARE_FAIL(ctx, IO, "%s: the folder cannot be written to: %s", folder,
                         strerror(errno));
    return PARE_OK;
}

/* --- questions --- */

bool pare_file_same(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

pare_status pare_file_hash(pare_ctx *ctx, const char *path, pare_hash *out)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, path));
    *out = pare_hash_map(map.data, map.size);
    pare_map_close(&map);
    return PARE_OK;
}

/* 512 blocks of 4 KiB, from the first to the last, with size and time of change. */
static pare_status hash_blocks(pare_ctx *ctx, int fd, const char *path, const struct stat *info,
                               pare_hash *out)
{
    enum { BLOCKS = 512, BYTES = 4096 };
    const int64_t head[3] = {(int64_t)info->st_size, (int64_t)info->st_mtim.tv_sec,
                             (int64_t)info->st_mtim.tv_nsec};
    char block[BYTES];
    pare_hash both[2];
    *out = pare_hash_bytes(head, sizeof head);
    for (int64_t i = 0; i < BLOCKS; i++) {
        const int64_t last = (int64_t)info->st_size - BYTES, at = last / (BLOCKS - 1) * i;
        ssize_t got = pread(fd, block, sizeof block, (off_t)(i == BLOCKS - 1 ? last : at));
        if (got != BYTES)
            return PARE_FAIL(ctx, IO, "%s: %s", path, got < 0 ? strerror(errno) : "became shorter");
        both[0] = *out;
        both[1] = pare_hash_bytes(block, sizeof block);
        *out = pare_hash_bytes(both, sizeof both);
    }
    return PARE_OK;
}

pare_status pare_file_hash_quick(pare_ctx *ctx, const char *path, pare_hash *out)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return PARE_FAIL(ctx, IO, "%s: %s", path, strerror(errno));
    pare_status st = PARE_OK;
    if (fstat(fd, &info)) st = PARE_FAIL(ctx, IO, "%s: %s", path, strerror(errno));
    const bool large = st == PARE_OK && info.st_size > (off_t)1 << 30;
    if (large) st = hash_blocks(ctx, fd, path, &info, out);
    close(fd);
    return large || st != PARE_OK ? st : pare_file_hash(ctx, path, out);
}

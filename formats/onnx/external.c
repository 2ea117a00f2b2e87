/* SPDX-License-Identifier: Apache-2.0 */
/* Names of external data files. Two files cannot appear at once, so the data file is named after
   its content, OUT.<8 hex digits>.data: it can take no other content's place, and whenever the
   process dies, the model under OUT finds its own data. What the model before used is removed at
   the end; a process killed just then leaves it behind, which harms no one. */
#include "formats/onnx/inner.h"
#include "runtime/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 8 };

pare_status pare_onnx_external_begin(pare_onnx_builder *b, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat info;
    if (!lstat(path, &info) && S_ISLNK(info.st_mode))
        return PARE_FAIL(
            b->ctx, INPUT,
            "%s: is a link, and readers look for external data beside the name they are "
            "given; name the file itself",
            path);
    if (!stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return PARE_FAIL(
            b->ctx, INPUT,
            "%s: is a device or pipe, beside which no external data can be; name a file", path);
    b->data_path = pare_arena_printf(&b->scratch, "%s.%0*d.data", path, DIGITS, 0);
    if (!b->data_path) return PARE_MEMORY;
    b->location = b->data_path + (slash ? slash + 1 - path : 0);
    return PARE_OK;
}

pare_status pare_onnx_external_name(pare_onnx_builder *b)
{
    pare_hash sum = {0};
    char digits[DIGITS + 1];
    for (size_t i = 0; i < b->external_count; i++) {
        const struct pare_onnx_external *e = &b->external[i];
        pare_hash part[2] = {pare_hash_bytes(e->payload.data, e->payload.size), {e->offset, 0}};
        PARE_TRY(pare_ctx_poll(b->ctx));
        sum = pare_hash_sum(sum, pare_hash_bytes(part, sizeof part));
    }
    snprintf(digits, sizeof digits, "%08" PRIx32, (uint32_t)sum.low);
    memcpy(b->data_path + strlen(b->data_path) - DIGITS - strlen(".data"), digits, DIGITS);
    return PARE_OK;
}

int pare_onnx_external_lock(const char *path)
{
    enum { ATTEMPTS = 1000 };
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    if (slash && (size_t)(slash - path) >= sizeof folder) return -1;
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < ATTEMPTS; i++) { /* ten seconds; the holder renames two files */
        if (!flock(fd, LOCK_EX | LOCK_NB)) return fd;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        pare_sleep_ms(10);
    }
    if (fd >= 0) close(fd);
    return -1;
}

/* NAME.data or NAME.xxxxxxxx.data for a model called NAME. */
static bool is_named_after(const char *location, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(location, name, n) != 0) return false;
    location += n;
    if (location[0] == '.' && strspn(location + 1, "0123456789abcdef") == DIGITS)
        location += DIGITS + 1;
    return !strcmp(location, ".data");
}

static const pare_onnx_files *files_of(const pare_model *model)
{
    return model && model->release == pare_onnx_files_free ? model->release_user : NULL;
}

/* Does the model read this file? */
static bool reads(const pare_model *model, const char *file)
{
    const pare_onnx_files *files = files_of(model);
    char source[4096];
    for (size_t i = 0; files && i < files->count; i++) {
        snprintf(source, sizeof source, "%s/%s", files->folder, files->file[i].location);
        if (pare_file_same(source, file)) return true;
    }
    return false;
}

/* The model at path, NULL where there is none that can be read. */
static pare_status read_quietly(pare_ctx *ctx, pare_model **out, const char *path)
{
    pare_ctx quiet;
    pare_ctx_child(&quiet, ctx);
    quiet.log = NULL;
    *out = NULL;
    pare_status st = access(path, R_OK) ? PARE_OK : pare_onnx_read(&quiet, out, path);
    return st == PARE_MEMORY ? pare_fail(ctx, st, "%s", quiet.message) : PARE_OK;
}

pare_status pare_onnx_uses(pare_ctx *ctx, const char *model, const char *file, bool *out)
{
    pare_model *m;
    PARE_TRY(read_quietly(ctx, &m, model));
    *out = reads(m, file);
    pare_model_free(m);
    return PARE_OK;
}

pare_status pare_onnx_external_old(pare_onnx_builder *b, const char *path)
{
    pare_model *old;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool itself = pare_file_same(b->model->path, path);
    PARE_TRY(read_quietly(b->ctx, &old, path));
    const pare_onnx_files *files = files_of(old);
    pare_status st = PARE_OK;
    for (size_t i = 0; files && st == PARE_OK && !b->old_data && i < files->count; i++) {
        const char *location = files->file[i].location;
        if (!is_named_after(location, name)) continue;
        char *file = pare_arena_printf(&b->scratch, "%.*s%s", (int)(name - path), path, location);
        if (!file) st = PARE_MEMORY;
        if (file && (itself || !reads(b->model, file))) b->old_data = file;
    }
    pare_model_free(old);
    return st;
}

void pare_onnx_external_end(const pare_onnx_builder *b)
{
    bool same = b->external_count && b->old_data && !strcmp(b->old_data, b->data_path);
    if (b->old_data && !same) unlink(b->old_data);
}

pare_status pare_onnx_external_check(const pare_onnx_builder *b, const char *path)
{
    const pare_model *model = b->model;
    const char *data = b->external_count ? b->data_path : NULL, *bad = NULL;
    if (pare_file_same(path, model->path)) return PARE_OK;
    if (data && (pare_file_same(data, model->path) || reads(model, data))) bad = data;
    if (reads(model, path)) bad = path;
    if (!bad) return PARE_OK;
    return PARE_FAIL(b->ctx, INPUT,
                     "%s: output and input are the same file: '%s' needs it; choose another name "
                     "for the output",
                     bad, model->path);
}

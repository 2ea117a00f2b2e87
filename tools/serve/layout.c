/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/layout.h"

#include "tools/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Folders in a folder, ascending by name; hidden ones are left out. */
static pare_status list_folders(pare_arena *arena, const char *path, char ***out, int *count)
{
    size_t capacity = 0;
    pare_status st = PARE_OK;
    DIR *dir = opendir(path);
    *out = NULL;
    *count = 0;
    if (!dir) return PARE_FAIL(arena->ctx, IO, "%s: %s", path, strerror(errno));
    for (struct dirent *e; st == PARE_OK && (e = readdir(dir));) {
        const char *whole = pare_arena_printf(arena, "%s/%s", path, e->d_name);
        if (!whole || !pare_arena_grow(arena, out, &capacity, (size_t)*count, sizeof **out))
            st = PARE_MEMORY;
        else if (e->d_name[0] != '.' && is_folder(whole) &&
                 !((*out)[(*count)++] = pare_arena_strdup(arena, e->d_name)))
            st = PARE_MEMORY;
    }
    closedir(dir);
    if (st == PARE_OK && *count) qsort(*out, (size_t)*count, sizeof **out, by_name);
    return st;
}

/* The number of a version's folder; 0: it is none. */
static int64_t version_of(const char *name)
{
    char *end;
    errno = 0;
    const long long number = strtoll(name, &end, 10);
    return errno || *end || *name < '1' || *name > '9' ? 0 : number;
}

/* Holds the folder a file whose name ends so? */
static bool holds_file(const char *path, const char *end)
{
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir));)
        found = pare_ends_with(e->d_name, end);
    if (dir) closedir(dir);
    return found;
}

/* Models in folders; what else the folder may be is told. */
static pare_status list_models(pare_arena *arena, const char *path, char ***out, int *count)
{
    struct stat info;
    if (!stat(path, &info) && !S_ISDIR(info.st_mode))
        return PARE_FAIL(arena->ctx, INPUT, "%s: expected a folder or FILE.onnx", path);
    PARE_TRY(list_folders(arena, path, out, count));
    for (int i = 0; i < *count; i++) {
        const char *inner = pare_arena_printf(arena, "%s/%s", path, (*out)[i]);
        if (!inner) return PARE_MEMORY;
        if (version_of((*out)[i]) && holds_file(inner, ".onnx"))
            return PARE_FAIL(arena->ctx, INPUT,
                             "%s: is the folder of one model, with its version %s; expected the "
                             "folder around it, %s/..",
                             path, (*out)[i], path);
    }
    if (!*count && holds_file(path, ".onnx"))
        return PARE_FAIL(arena->ctx, INPUT,
                         "%s: holds no model: expected NET/1/model.onnx in it; name single files: "
                         "pare serve %s/*.onnx",
                         path, path);
    return PARE_OK;
}

pare_status pare_layout_list(pare_arena *arena, const char *path, char ***out, int *count)
{
    if (!pare_ends_with(path, ".onnx")) return list_models(arena, path, out, count);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *out = pare_arena_alloc(arena, 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    **out = pare_arena_strndup(arena, name, strlen(name) - strlen(".onnx"));
    *count = 1;
    return **out ? PARE_OK : PARE_MEMORY;
}

/* --- a file of the repository --- */

/* PARE_INPUT where the file, all links followed, is outside the folder. kind: what that is. */
static pare_status check_under(pare_arena *arena, const char *folder, const char *kind,
                               const char *file)
{
    char *root = realpath(folder, NULL), *real = realpath(file, NULL);
    const size_t n = root ? strlen(root) : 0;
    pare_status st = PARE_OK;
    if (!root || !real)
        st = PARE_FAIL(arena->ctx, INPUT, "%s: %s", file, strerror(errno));
    else if (n > 1 && (strncmp(real, root, n) != 0 || real[n] != '/'))
        st = PARE_FAIL(arena->ctx, INPUT, "%s: leads to %s, which is outside of the %s %s", file,
                       real, kind, root);
    free(root);
    free(real);
    return st;
}

/* The same of the folder around the model's. */
static pare_status check_inside(pare_arena *arena, const char *folder, const char *file)
{
    const char *slash = strrchr(folder, '/');
    const char *parent = pare_arena_strndup(arena, folder, (size_t)(slash - folder));
    if (!parent) return PARE_MEMORY;
    return check_under(arena, *parent ? parent : "/", "repository", file);
}

pare_status pare_layout_file(pare_arena *arena, const char *folder, int64_t version,
                             const char *file, const char **out)
{
    *out = pare_arena_printf(arena, "%s/%lld/%s", folder, (long long)version, file);
    return *out ? check_inside(arena, folder, *out) : PARE_MEMORY;
}

/* --- versions --- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool has_share(const pare_shares *shares, int64_t number)
{
    for (int i = 0; i < shares->count; i++)
        if (shares->share[i].version == number) return true;
    return false;
}

/* Without a policy, versions that share the requests are those. */
static bool is_by_share(const pare_serve_config *config)
{
    return config->shares.count && !config->has_policy;
}

static bool is_asked(const pare_serve_config *config, int64_t number)
{
    if (is_by_share(config)) return has_share(&config->shares, number);
    if (config->latest >= 0) return true;
    for (int i = 0; i < config->specific_count; i++)
        if (config->specific[i] == number) return true;
    return false;
}

/* Versions that the policy names, and that are not there. */
static void warn_of_missing(pare_ctx *ctx, const char *folder, const pare_serve_config *config,
                            const int64_t *number, int count)
{
    for (int i = 0; i < config->specific_count && !config->step_count; i++)
        if (!bsearch(&config->specific[i], number, (size_t)count, sizeof *number, by_number))
            pare_log(ctx, PARE_LOG_WARNING,
                     "%s: version_policy names version %lld, which has no folder", folder,
                     (long long)config->specific[i]);
}

/* Versions that are there and asked for, ascending. */
static pare_status choose_versions(pare_arena *arena, const char *folder,
                                   const pare_serve_config *config, int64_t **out, int *count)
{
    char **names;
    int n, kept = 0;
    PARE_TRY(list_folders(arena, folder, &names, &n));
    int64_t *number = pare_arena_alloc(arena, (size_t)n + 1, sizeof *number);
    if (!number) return PARE_MEMORY;
    for (int i = 0; i < n; i++)
        if (version_of(names[i]) && is_asked(config, version_of(names[i])))
            number[kept++] = version_of(names[i]);
    qsort(number, (size_t)kept, sizeof *number, by_number);
    warn_of_missing(arena->ctx, folder, config, number, kept);
    const bool is_cut = config->latest > 0 && kept > config->latest && !is_by_share(config);
    const int skip = is_cut ? kept - (int)config->latest : 0;
    *out = number + skip;
    *count = kept - skip;
    if (*count) return PARE_OK;
    if (config->step_count) { /* which has no files */
        number[0] = *count = 1;
        *out = number;
        return PARE_OK;
    }
    return PARE_FAIL(arena->ctx, INPUT,
                     "%s: holds no version to serve, expected a folder 1 with a file %s in it",
                     folder, config->file);
}

/* Where the files of labels lie, which the model's own folder holds. */
static pare_status find_labels(pare_arena *arena, const char *folder, pare_serve_config *config)
{
    for (int i = 0; i < config->output_count; i++) {
        pare_config_tensor *t = &config->output[i];
        if (!t->labels) continue;
        t->labels_path = pare_arena_printf(arena, "%s/%s", folder, t->labels);
        if (!t->labels_path) return PARE_MEMORY;
        PARE_TRY(check_under(arena, folder, "model's folder", t->labels_path));
    }
    return PARE_OK;
}

pare_status pare_layout_read(pare_arena *arena, const char *folder, const char *name,
                             pare_serve_config *config, int64_t **out, int *count)
{
    const char *path = pare_arena_printf(arena, "%s/config.pbtxt", folder);
    if (!path) return PARE_MEMORY;
    if (!access(path, F_OK)) {
        PARE_TRY(check_inside(arena, folder, path));
        PARE_TRY(pare_serve_config_read(arena, config, path, name));
        PARE_TRY(find_labels(arena, folder, config));
    }
    return choose_versions(arena, folder, config, out, count);
}

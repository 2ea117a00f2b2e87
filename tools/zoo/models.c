/* SPDX-License-Identifier: Apache-2.0 */
/* The models of a zoo: files of patterns, and a name for each that no other has. */
#include "tools/zoo/file_inner.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct found {
    pare_zoo_model model;
    int line;
    int parts; /* of its path that its name has */
} found;

typedef struct gathered {
    const pare_zoo_reader *reader;
    found *item;
    size_t count, capacity;
} gathered;

/* The path with what a pattern would take as signs escaped. */
static char *escaped(pare_arena *arena, const char *folder)
{
    char *text = pare_arena_alloc(arena, 2 * strlen(folder) + 1, 1), *to = text;
    for (; text && *folder; folder++) {
        if (strchr("*?[]\\", *folder)) *to++ = '\\';
        *to++ = *folder;
    }
    return text;
}

static pare_status add(gathered *m, const pare_zoo_model *like, const char *file, int line)
{
    pare_arena *arena = m->reader->arena;
    if (!pare_arena_grow(arena, &m->item, &m->capacity, m->count, sizeof *m->item))
        return PARE_MEMORY;
    found *f = &m->item[m->count++];
    *f = (found){.model = *like, .line = line, .parts = 1};
    f->model.file = pare_arena_strdup(arena, file);
    return f->model.file ? PARE_OK : PARE_MEMORY;
}

/* The files of one pattern in the order of strcmp; folders and devices are none. */
static pare_status add_pattern(gathered *m, const pare_zoo_model *like, const char *pattern,
                               int line)
{
    pare_ctx *ctx = m->reader->arena->ctx;
    const size_t before = m->count;
    glob_t matched;
    char *folder = escaped(m->reader->arena, *pattern == '/' ? "" : m->reader->folder);
    const char *dot = folder && !*folder && *pattern == '-' ? "./" : "";
    char *whole =
        folder ? pare_arena_printf(m->reader->arena, "%s%s%s", dot, folder, pattern) : NULL;
    if (!whole) return PARE_MEMORY;
    int code = glob(whole, 0, NULL, &matched);
    if (code == GLOB_NOSPACE) return PARE_FAIL(ctx, MEMORY, "out of memory");
    pare_status st = PARE_OK;
    for (size_t i = 0; !code && i < matched.gl_pathc && st == PARE_OK; i++) {
        struct stat info;
        if (!stat(matched.gl_pathv[i], &info) && S_ISREG(info.st_mode))
            st = add(m, like, matched.gl_pathv[i], line);
    }
    globfree(&matched);
    if (st != PARE_OK || m->count > before) return st;
    return PARE_FAIL(ctx, INPUT, "%s:%d: files: '%.300s' matches no file", m->reader->path, line,
                     pattern);
}

/* --- names --- */

/* The last parts of a path without its ".onnx", joined by '-'; *all: there are no more of them. */
static char *tail_name(pare_arena *arena, const char *path, int parts, bool *all)
{
    const char *at = path + strlen(path);
    for (int had = 0; at > path; at--)
        if (at[-1] == '/' && ++had == parts) break;
    *all = at == path || at == path + 1;
    char *name = pare_arena_strdup(arena, at + strspn(at, "/"));
    if (!name) return NULL;
    size_t n = strlen(name);
    if (n > 5 && !strcmp(name + n - 5, ".onnx")) name[n - 5] = 0;
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '-';
    return name;
}

static int by_name(const void *a, const void *b)
{
    const found *x = *(found *const *)a, *y = *(found *const *)b;
    int order = strcmp(x->model.name, y->model.name);
    return order ? order : (x > y) - (x < y);
}

static int by_file(const void *a, const void *b)
{
    const found *x = *(found *const *)a, *y = *(found *const *)b;
    int order = strcmp(x->model.file, y->model.file);
    return order ? order : (x > y) - (x < y);
}

static pare_status refuse_twice(const gathered *m, found **list)
{
    qsort(list, m->count, sizeof *list, by_file);
    for (size_t i = 1; i < m->count; i++) {
        const found *a = list[i - 1], *b = list[i];
        if (!strcmp(a->model.file, b->model.file))
            return PARE_FAIL(m->reader->arena->ctx, INPUT,
                             "%s:%d: files: %s is named twice, first in line %d", m->reader->path,
                             b->line, b->model.file, a->line);
    }
    return PARE_OK;
}

/* Of `count` that share a name, those that have the most parts of their paths in it get one more,
 * so that "b-x.onnx" stays what it is and "b/x.onnx" gives way. False: no path has more. */
static bool grow(const gathered *m, found **list, size_t count, const bool *all)
{
    int most = 0;
    for (size_t i = 0; i < count; i++)
        if (!all[list[i] - m->item] && list[i]->parts > most) most = list[i]->parts;
    for (size_t i = 0; i < count; i++)
        if (!all[list[i] - m->item] && list[i]->parts == most) list[i]->parts++;
    return most > 0;
}

/* Gives longer names to those that share one; *again: there were such. */
static pare_status part(const gathered *m, found **list, const bool *all, bool *again)
{
    *again = false;
    qsort(list, m->count, sizeof *list, by_name);
    for (size_t i = 0, next; i < m->count; i = next) {
        for (next = i + 1; next < m->count; next++)
            if (strcmp(list[next]->model.name, list[i]->model.name) != 0) break;
        if (next == i + 1) continue;
        *again = true;
        if (!grow(m, list + i, next - i, all))
            return PARE_FAIL(m->reader->arena->ctx, INPUT,
                             "%s:%d: files: %s and %s would both be called '%s'", m->reader->path,
                             list[i + 1]->line, list[i]->model.file, list[i + 1]->model.file,
                             list[i]->model.name);
    }
    return PARE_OK;
}

static pare_status name_all(gathered *m)
{
    pare_arena *arena = m->reader->arena;
    found **list = pare_arena_alloc(arena, m->count, sizeof *list);
    bool *all = pare_arena_alloc(arena, m->count, sizeof *all);
    if (!list || !all) return PARE_MEMORY;
    for (size_t i = 0; i < m->count; i++) list[i] = &m->item[i];
    PARE_TRY(refuse_twice(m, list));
    for (bool again = true; again;) {
        for (size_t i = 0; i < m->count; i++) {
            found *f = &m->item[i];
            f->model.name = tail_name(arena, f->model.file, f->parts, &all[i]);
            if (!f->model.name) return PARE_MEMORY;
        }
        PARE_TRY(part(m, list, all, &again));
    }
    return PARE_OK;
}

/* --- all --- */

/* The data set of a key where the entry, or else the whole zoo, names one. */
static pare_status data_set(const pare_zoo_reader *r, const pare_yaml *entry, const char *key,
                            const char *own, const char *of_all, const char **out)
{
    const pare_yaml *line = pare_yaml_find(own ? entry : r->lines, key);
    *out = NULL;
    if (!own && !of_all) return PARE_OK;
    *out = pare_zoo_path(r, own ? own : of_all);
    return *out ? pare_zoo_need_file(r, pare_yaml_line(line, 1), key, *out) : PARE_MEMORY;
}

pare_status pare_zoo_read_models(const pare_zoo_reader *r, pare_zoo *zoo)
{
    const pare_yaml *entry = pare_yaml_find(r->lines, "models")->first;
    gathered m = {.reader = r};
    for (unsigned i = 0; i < r->text->models_count; i++, entry = entry->next) {
        const pare_zoo_text_models *text = &r->text->models[i];
        const pare_yaml *file = pare_yaml_find(entry, "files")->first;
        pare_zoo_model like = {0};
        PARE_TRY(data_set(r, entry, "data", text->data, r->text->data, &like.data));
        PARE_TRY(data_set(r, entry, "test", text->test, r->text->test, &like.test));
        if (!like.test)
            return PARE_FAIL(r->arena->ctx, INPUT,
                             "%s:%d: models: 'test' is missing here and for the whole zoo: the "
                             "data set that variants are judged on",
                             r->path, entry->line);
        for (unsigned j = 0; j < text->files_count; j++, file = file->next)
            PARE_TRY(add_pattern(&m, &like, text->files[j], file->line));
    }
    PARE_TRY(name_all(&m));
    pare_zoo_model *models = pare_arena_alloc(r->arena, m.count, sizeof *models);
    if (!models) return PARE_MEMORY;
    for (size_t i = 0; i < m.count; i++) models[i] = m.item[i].model;
    zoo->models = models;
    zoo->model_count = (int)m.count;
    return PARE_OK;
}

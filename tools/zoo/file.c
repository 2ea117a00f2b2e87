/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a zoo: what its keys mean, its models with a name for each that no other has, its
   variants. */
#include "tools/zoo/reader.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- keys --- */

/* An entry of models, and one of variants. */
typedef struct models_entry {
    const char *data, *test;
    const pare_yaml *files;
} models_entry;

typedef struct variant_entry {
    const char *name;
    const pare_yaml *steps;
    int64_t ranks, gpus, nodes; /* 0: not given */
} variant_entry;

static const pare_yaml_key model_keys[] = {
    {"files", PARE_YAML_ENTRIES, true, offsetof(models_entry, files), NULL},
    {"data", PARE_YAML_TEXT, false, offsetof(models_entry, data), NULL},
    {"test", PARE_YAML_TEXT, false, offsetof(models_entry, test), NULL},
    {0},
};
static const pare_yaml_key variant_keys[] = {
    {"name", PARE_YAML_TEXT, true, offsetof(variant_entry, name), NULL},
    {"steps", PARE_YAML_ENTRIES, true, offsetof(variant_entry, steps), NULL},
    {"ranks", PARE_YAML_COUNT, false, offsetof(variant_entry, ranks), NULL},
    {"gpus", PARE_YAML_COUNT, false, offsetof(variant_entry, gpus), NULL},
    {"nodes", PARE_YAML_COUNT, false, offsetof(variant_entry, nodes), NULL},
    {0},
};

#define FIELD(name) offsetof(pare_zoo_reader, name)
static const pare_yaml_key limit_keys[] = {
    {"time", PARE_YAML_POSITIVE, false, FIELD(zoo.limits.seconds), NULL},
    {"memory", PARE_YAML_SIZE, false, FIELD(zoo.limits.memory_bytes), NULL},
    {0},
};
static const pare_yaml_key goal_keys[] = {
    {"drop", PARE_YAML_AMOUNT, false, FIELD(zoo.goals.drop), NULL},
    {"latency", PARE_YAML_POSITIVE, false, FIELD(zoo.goals.latency), NULL},
    {"speed_up", PARE_YAML_POSITIVE, false, FIELD(zoo.goals.speed_up), NULL},
    {"size", PARE_YAML_SIZE, false, FIELD(zoo.goals.size), NULL},
    {0},
};
static const pare_yaml_key zoo_keys[] = {
    {"name", PARE_YAML_TEXT, false, FIELD(zoo.name), NULL},
    {"models", PARE_YAML_ENTRIES, true, FIELD(models), model_keys},
    {"data", PARE_YAML_TEXT, false, FIELD(data), NULL},
    {"test", PARE_YAML_TEXT, false, FIELD(test), NULL},
    {"samples", PARE_YAML_COUNT, false, FIELD(zoo.samples), NULL},
    {"latency", PARE_YAML_SWITCH, false, FIELD(zoo.latency), NULL},
    {"any_accuracy", PARE_YAML_SWITCH, false, FIELD(zoo.any_accuracy), NULL},
    {"variants", PARE_YAML_ENTRIES, true, FIELD(variants), variant_keys},
    {"limits", PARE_YAML_PARTS, false, 0, limit_keys},
    {"goals", PARE_YAML_PARTS, false, 0, goal_keys},
    {"slurm", PARE_YAML_ENTRIES, false, FIELD(slurm), NULL},
    {"launcher", PARE_YAML_TEXT, false, FIELD(zoo.launcher), NULL},
    {0},
};
#undef FIELD

pare_status pare_zoo_read_keys(pare_zoo_reader *r)
{
    r->zoo.latency = true;
    r->zoo.samples = -1;
    r->zoo.goals = (pare_zoo_goals){-1, -1, -1, -1};
    PARE_TRY(pare_yaml_fill(r->arena->ctx, r->path, r->root, zoo_keys, r));
    if (r->zoo.latency || (r->zoo.goals.latency < 0 && r->zoo.goals.speed_up < 0)) return PARE_OK;
    return PARE_FAIL(r->arena->ctx, INPUT,
                     "%s:%d: goals: latency and speed_up are not measured with 'latency: false'",
                     r->path, pare_yaml_find(r->root, "goals")->line);
}

/* --- paths --- */

const char *pare_zoo_path(const pare_zoo_reader *r, const char *path)
{
    const char *folder = *path == '/' ? "" : r->folder;
    return pare_arena_printf(r->arena, "%s%s%s", !*folder && *path == '-' ? "./" : "", folder,
                             path);
}

pare_status pare_zoo_need_file(const pare_zoo_reader *r, int line, const char *key,
                               const char *path)
{
    struct stat info;
    if (!stat(path, &info) && !S_ISDIR(info.st_mode)) return PARE_OK;
    return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: %s: %s: %s", r->path, line, key, path,
                     stat(path, &info) ? strerror(errno) : "is a folder, expected a file");
}

/* --- models --- */

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

/* --- data sets --- */

/* The data set of a key where the entry, or else the whole zoo, names one. */
static pare_status data_set(const pare_zoo_reader *r, const pare_yaml *entry, const char *key,
                            const char *own, const char *of_all, const char **out)
{
    *out = NULL;
    if (!own && !of_all) return PARE_OK;
    *out = pare_zoo_path(r, own ? own : of_all);
    if (!*out) return PARE_MEMORY;
    return pare_zoo_need_file(r, pare_yaml_find(own ? entry : r->root, key)->line, key, *out);
}

static pare_status read_models(pare_zoo_reader *r)
{
    gathered m = {.reader = r};
    for (const pare_yaml *entry = r->models->first; entry; entry = entry->next) {
        models_entry says = {0};
        pare_zoo_model like = {0};
        PARE_TRY(pare_yaml_fill(r->arena->ctx, r->path, entry, model_keys, &says));
        PARE_TRY(data_set(r, entry, "data", says.data, r->data, &like.data));
        PARE_TRY(data_set(r, entry, "test", says.test, r->test, &like.test));
        if (!like.test)
            return PARE_FAIL(r->arena->ctx, INPUT,
                             "%s:%d: models: 'test' is missing here and for the whole zoo: the "
                             "data set that variants are judged on",
                             r->path, entry->line);
        for (const pare_yaml *file = says.files->first; file; file = file->next)
            PARE_TRY(add_pattern(&m, &like, file->text, file->line));
    }
    PARE_TRY(name_all(&m));
    pare_zoo_model *models = pare_arena_alloc(r->arena, m.count, sizeof *models);
    if (!models) return PARE_MEMORY;
    for (size_t i = 0; i < m.count; i++) models[i] = m.item[i].model;
    r->zoo.models = models;
    r->zoo.model_count = (int)m.count;
    return PARE_OK;
}

/* --- variants --- */

/* The name goes into files' names. */
static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-+.";
    return strchr("-.", *text) == NULL && !text[strspn(text, letters)] && strlen(text) <= 100;
}

static pare_status check_name(const pare_zoo_reader *r, const pare_yaml *name,
                              const pare_zoo_variant *before, int count)
{
    if (!is_name(name->text))
        return PARE_FAIL(r->arena->ctx, INPUT,
                         "%s:%d: name: '%.100s', expected up to 100 letters, digits and _ - + . "
                         "(the last two not first)",
                         r->path, name->line, name->text);
    for (int i = 0; i < count; i++)
        if (!strcmp(before[i].name, name->text))
            return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: name: variant '%s' is there already",
                             r->path, name->line, name->text);
    return PARE_OK;
}

static pare_status check_data(const pare_zoo_reader *r, const pare_zoo_step *step)
{
    for (int i = 0; pare_zoo_step_needs_data(step) && i < r->zoo.model_count; i++)
        if (!r->zoo.models[i].data)
            return PARE_FAIL(r->arena->ctx, INPUT,
                             "%s:%d: step '%.200s' needs data, but there is no 'data' for %s",
                             r->path, step->line, step->text, r->zoo.models[i].file);
    return PARE_OK;
}

static int count_of(const pare_yaml *list)
{
    int count = 0;
    for (const pare_yaml *at = list ? list->first : NULL; at; at = at->next) count++;
    return count;
}

/* What the variant's processes are; without a number of them one a GPU, or one a machine. */
static pare_status read_ranks(const pare_zoo_reader *r, const pare_yaml *entry,
                              const variant_entry *says, pare_zoo_variant *out)
{
    enum { MOST = 4096 };
    const int64_t nodes = says->nodes ? says->nodes : 1, each = says->gpus ? says->gpus : 1;
    const int64_t numbers[] = {says->ranks, says->gpus, says->nodes};
    static const char *const keys[] = {"ranks", "gpus", "nodes"};
    bool shares = !r->zoo.latency;
    for (int i = 0; i < 3; i++)
        if (numbers[i] > MOST)
            return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: %s: %lld, expected 1 to %d", r->path,
                             pare_yaml_find(entry, keys[i])->line, keys[i], (long long)numbers[i],
                             MOST);
    const int64_t ranks = says->ranks ? says->ranks : nodes * each;
    for (int i = 0; i < out->step_count; i++) shares |= out->steps[i].shares;
    if (ranks % nodes || ranks > MOST)
        return PARE_FAIL(r->arena->ctx, INPUT,
                         "%s:%d: variant '%s': %lld ranks on %lld nodes, expected a multiple of "
                         "the nodes, at most %d",
                         r->path, entry->line, out->name, (long long)ranks, (long long)nodes, MOST);
    if (ranks > 1 && !shares)
        return PARE_FAIL(r->arena->ctx, INPUT,
                         "%s:%d: variant '%s': %lld ranks, but none of its steps can be shared: "
                         "expected distill, prune (without latency or training), or 'latency: "
                         "false' for the validation",
                         r->path, entry->line, out->name, (long long)ranks);
    out->ranks = (int)ranks;
    out->gpus = (int)says->gpus;
    out->nodes = (int)nodes;
    return PARE_OK;
}

static pare_status read_variant(const pare_zoo_reader *r, const pare_yaml *entry,
                                const pare_zoo_variant *before, int count, pare_zoo_variant *out)
{
    variant_entry says = {0};
    PARE_TRY(pare_yaml_fill(r->arena->ctx, r->path, entry, variant_keys, &says));
    PARE_TRY(check_name(r, pare_yaml_find(entry, "name"), before, count));
    *out = (pare_zoo_variant){.name = says.name, .step_count = count_of(says.steps)};
    pare_zoo_step *step = pare_arena_alloc(r->arena, (size_t)out->step_count, sizeof *step);
    if (!step) return PARE_MEMORY;
    out->steps = step;
    for (const pare_yaml *at = says.steps->first; at; at = at->next, step++) {
        PARE_TRY(pare_zoo_read_step(r, step, at->text, at->line));
        PARE_TRY(check_data(r, step));
    }
    return read_ranks(r, entry, &says, out);
}

static pare_status read_variants(pare_zoo_reader *r)
{
    const int count = count_of(r->variants);
    pare_zoo_variant *variants = pare_arena_alloc(r->arena, (size_t)count, sizeof *variants);
    if (!variants) return PARE_MEMORY;
    for (const pare_yaml *entry = r->variants->first; entry; entry = entry->next) {
        const int i = r->zoo.variant_count++;
        PARE_TRY(read_variant(r, entry, variants, i, &variants[i]));
    }
    r->zoo.variants = variants;
    return PARE_OK;
}

/* --- all --- */

static pare_status read_slurm(pare_zoo_reader *r)
{
    const int count = count_of(r->slurm);
    if (!count) return PARE_OK;
    r->zoo.slurm = pare_arena_alloc(r->arena, (size_t)count, sizeof *r->zoo.slurm);
    if (!r->zoo.slurm) return PARE_MEMORY;
    for (const pare_yaml *at = r->slurm->first; at; at = at->next)
        r->zoo.slurm[r->zoo.slurm_count++] = at->text;
    return PARE_OK;
}

/* The file's name without folder and ending. */
static const char *stem(pare_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return pare_arena_strndup(arena, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

pare_status pare_zoo_read(pare_arena *arena, pare_zoo **out, const char *path)
{
    const char *slash = strrchr(path, '/');
    pare_zoo_reader r = {.arena = arena, .path = path};
    pare_yaml *root;
    *out = pare_arena_alloc(arena, 1, sizeof **out);
    r.folder = pare_arena_strndup(arena, path, slash ? (size_t)(slash - path) + 1 : 0);
    r.zoo.file = pare_arena_strdup(arena, path);
    r.zoo.name = stem(arena, path);
    if (!*out || !r.folder || !r.zoo.file || !r.zoo.name) return PARE_MEMORY;
    PARE_TRY(pare_yaml_read(arena, &root, path));
    r.root = root;
    PARE_TRY(pare_zoo_read_keys(&r));
    PARE_TRY(read_slurm(&r));
    PARE_TRY(read_models(&r));
    PARE_TRY(read_variants(&r));
    **out = r.zoo;
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/file_inner.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

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

/* A size of one byte or more with its unit; `none` where the file has no such key. */
static pare_status size_of(const pare_zoo_reader *r, const pare_yaml *of, const char *key,
                           const char *text, int64_t none, int64_t *out)
{
    *out = none;
    if (!text) return PARE_OK;
    double bytes = pare_bytes_parse(text);
    if (bytes >= 1 && bytes <= 1e18) {
        *out = (int64_t)bytes;
        return PARE_OK;
    }
    return PARE_FAIL(r->arena->ctx, INPUT,
                     "%s:%d: %s: '%.100s', expected a size with its unit: 512MB, 1.5GB, 2GiB",
                     r->path, pare_yaml_line(pare_yaml_find(of, key), of->line), key, text);
}

static pare_status number_of(const pare_zoo_reader *r, const pare_yaml *of, const char *key,
                             const double *value, bool zero_too, double none, double *out)
{
    *out = value ? *value : none;
    if (!value || *value > 0 || (zero_too && *value == 0)) return PARE_OK;
    return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: %s: %g, expected %s", r->path,
                     pare_yaml_line(pare_yaml_find(of, key), of->line), key, *value,
                     zero_too ? "0 or more" : "more than 0");
}

static pare_status read_limits(const pare_zoo_reader *r, pare_zoo *zoo)
{
    const pare_yaml *of = pare_yaml_find(r->lines, "limits");
    const pare_zoo_text_limits *text = r->text->limits;
    if (!text) return PARE_OK;
    PARE_TRY(number_of(r, of, "time", text->time, false, 0, &zoo->limits.seconds));
    return size_of(r, of, "memory", text->memory, 0, &zoo->limits.memory_bytes);
}

static pare_status read_goals(const pare_zoo_reader *r, pare_zoo *zoo)
{
    const pare_yaml *of = pare_yaml_find(r->lines, "goals");
    const pare_zoo_text_goals *text = r->text->goals;
    zoo->goals = (pare_zoo_goals){-1, -1, -1, -1};
    if (!text) return PARE_OK;
    PARE_TRY(number_of(r, of, "drop", text->drop, true, -1, &zoo->goals.drop));
    PARE_TRY(number_of(r, of, "latency", text->latency, false, -1, &zoo->goals.latency));
    PARE_TRY(number_of(r, of, "speed_up", text->speed_up, false, -1, &zoo->goals.speed_up));
    PARE_TRY(size_of(r, of, "size", text->size, -1, &zoo->goals.size));
    if (zoo->latency || (!text->latency && !text->speed_up)) return PARE_OK;
    return PARE_FAIL(r->arena->ctx, INPUT,
                     "%s:%d: goals: latency and speed_up are not measured with 'latency: false'",
                     r->path, of->line);
}

/* The name goes into files' names. */
static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-+.";
    return strchr("-.", *text) == NULL && !text[strspn(text, letters)] && strlen(text) <= 100;
}

static pare_status check_name(const pare_zoo_reader *r, const pare_yaml *entry,
                              const pare_zoo_variant *variants, int before, const char *name)
{
    const int line = pare_yaml_line(pare_yaml_find(entry, "name"), entry->line);
    if (!is_name(name))
        return PARE_FAIL(r->arena->ctx, INPUT,
                         "%s:%d: name: '%.100s', expected up to 100 letters, digits and _ - + . "
                         "(the last two not first)",
                         r->path, line, name);
    for (int i = 0; i < before; i++)
        if (!strcmp(variants[i].name, name))
            return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: name: variant '%s' is there already",
                             r->path, line, name);
    return PARE_OK;
}

static pare_status check_data(const pare_zoo_reader *r, const pare_zoo *zoo,
                              const pare_zoo_step *step)
{
    for (int i = 0; pare_zoo_step_needs_data(step) && i < zoo->model_count; i++)
        if (!zoo->models[i].data)
            return PARE_FAIL(r->arena->ctx, INPUT,
                             "%s:%d: step '%.200s' needs data, but there is no 'data' for %s",
                             r->path, step->line, step->text, zoo->models[i].file);
    return PARE_OK;
}

static pare_status read_variants(const pare_zoo_reader *r, pare_zoo *zoo)
{
    const pare_yaml *entry = pare_yaml_find(r->lines, "variants")->first;
    const unsigned count = r->text->variants_count;
    pare_zoo_variant *variants = pare_arena_alloc(r->arena, count, sizeof *variants);
    if (!variants) return PARE_MEMORY;
    for (unsigned i = 0; i < count; i++, entry = entry->next) {
        const pare_zoo_text_variant *text = &r->text->variants[i];
        const pare_yaml *line = pare_yaml_find(entry, "steps")->first;
        pare_zoo_step *steps = pare_arena_alloc(r->arena, text->steps_count, sizeof *steps);
        if (!steps) return PARE_MEMORY;
        PARE_TRY(check_name(r, entry, variants, (int)i, text->name));
        for (unsigned j = 0; j < text->steps_count; j++, line = line->next) {
            PARE_TRY(pare_zoo_read_step(r, &steps[j], text->steps[j], line->line));
            PARE_TRY(check_data(r, zoo, &steps[j]));
        }
        variants[i] = (pare_zoo_variant){text->name, steps, (int)text->steps_count};
    }
    zoo->variants = variants;
    zoo->variant_count = (int)count;
    return PARE_OK;
}

/* The file's name without folder and ending. */
static const char *stem(pare_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return pare_arena_strndup(arena, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

static pare_status read_zoo(pare_zoo_reader *r, pare_zoo *zoo)
{
    const pare_zoo_text *text = r->text;
    const char *slash = strrchr(r->path, '/');
    r->folder = pare_arena_strndup(r->arena, r->path, slash ? (size_t)(slash - r->path) + 1 : 0);
    zoo->file = pare_arena_strdup(r->arena, r->path);
    zoo->name = text->name ? text->name : stem(r->arena, r->path);
    if (!r->folder || !zoo->file || !zoo->name) return PARE_MEMORY;
    zoo->latency = !text->latency || *text->latency;
    zoo->any_accuracy = text->any_accuracy && *text->any_accuracy;
    zoo->samples = text->samples ? *text->samples : -1;
    if (text->samples && *text->samples < 1)
        return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: samples: %lld, expected 1 or more", r->path,
                         pare_yaml_find(r->lines, "samples")->line, (long long)*text->samples);
    zoo->slurm = (const char **)text->slurm;
    zoo->slurm_count = (int)text->slurm_count;
    PARE_TRY(read_limits(r, zoo));
    PARE_TRY(read_goals(r, zoo));
    PARE_TRY(pare_zoo_read_models(r, zoo));
    return read_variants(r, zoo);
}

pare_status pare_zoo_read(pare_arena *arena, pare_zoo **out, const char *path)
{
    pare_zoo_text *text;
    pare_yaml *lines;
    pare_zoo *zoo = pare_arena_alloc(arena, 1, sizeof *zoo);
    if (!zoo) return PARE_MEMORY;
    PARE_TRY(pare_zoo_text_read(arena, &text, &lines, path));
    pare_zoo_reader reader = {.arena = arena, .path = path, .text = text, .lines = lines};
    PARE_TRY(read_zoo(&reader, zoo));
    *out = zoo;
    return PARE_OK;
}

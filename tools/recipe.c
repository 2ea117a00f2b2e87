/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/recipe.h"

#include "formats/file.h"
#include "formats/json.h"
#include "formats/onnx.h"
#include "runtime/base/hash.h"
#include "runtime/base/version.h"
#include "tools/check_output.h"
#include "tools/report/page.h"
#include "tools/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- what was written --- */

pare_status pare_recipe_hash(pare_ctx *ctx, const char *path, char text[33])
{
    uint64_t bytes;
    pare_hash hash;
    if (pare_ends_with(path, ".onnx")) return pare_onnx_hash(ctx, path, text, &bytes);
    PARE_TRY(pare_file_hash(ctx, path, &hash));
    pare_hash_text(hash, text);
    return PARE_OK;
}

/* Models and tables of ranges; reports and logs hold times. */
static bool is_product(const pare_option *o, const char *path)
{
    struct stat info;
    if (o->kind != PARE_OPTION_OUTPUT || (strcmp(o->name, "output") && strcmp(o->name, "fix")))
        return false;
    const bool is_one = pare_ends_with(path, ".onnx") || pare_ends_with(path, ".json") ||
                        pare_ends_with(path, ".cache");
    return is_one && !stat(path, &info) && S_ISREG(info.st_mode);
}

/* --- what was told --- */

/* An option's value, NULL where it has none: what is beyond its limits stands for "not given". */
static json_t *value_of(const pare_option *o, const void *options)
{
    const void *field = (const char *)options + o->offset;
    const pare_list *list = field;
    const char *text = o->kind >= PARE_OPTION_TEXT && o->kind <= PARE_OPTION_FOLDER
                           ? *(const char *const *)field
                           : NULL;
    switch (o->kind) {
    case PARE_OPTION_FLAG: return json_boolean(*(const bool *)field);
    case PARE_OPTION_INT: {
        const int64_t v = *(const int64_t *)field;
        return (double)v >= o->low && (double)v <= o->high ? json_integer(v) : NULL;
    }
    case PARE_OPTION_BYTES: {
        char bytes[32];
        const int64_t v = *(const int64_t *)field;
        if (!((double)v >= o->low && (double)v <= o->high)) return NULL;
        return json_string(pare_bytes_exact(v, bytes, sizeof bytes));
    }
    case PARE_OPTION_REAL: {
        const double v = *(const double *)field;
        return v >= o->low && v <= o->high ? json_real(v) : NULL;
    }
    case PARE_OPTION_CHOICE: {
        const char *at = o->value;
        const int place = *(const int *)field;
        for (int i = 0; i < place && at; i++) at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL;
        return place >= 0 && at ? json_stringn(at, strcspn(at, "|")) : NULL;
    }
    case PARE_OPTION_LIST: {
        json_t *all = list->count ? json_array() : NULL;
        for (int i = 0; i < list->count; i++)
            json_array_append_new(all, pare_json_text(list->item[i]));
        return all;
    }
    default: return text ? pare_json_text(text) : NULL;
    }
}

/* How it is said, and nothing of what is done. */
static bool is_manner(const char *name)
{
    static const char *const names[] = {"json", "recipe", "quiet", "verbose", "help"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

/* What ranks have of their machine's cores is no option: the recipe is for any number of them. */
static bool is_share(const pare_tool *tool, const char *name)
{
    return tool->comm && !strcmp(name, "threads") && !pare_is_given(tool, name);
}

/* Options that were given, and those that were not with what they stand for: some are refused where
   they do nothing, so that a recipe gives no more than was given. */
static pare_status add_options(pare_tool *tool, const pare_option *table, const void *options,
                               json_t *given, json_t *defaults, json_t *wrote)
{
    for (const pare_option *o = table; o && o->name; o++) {
        json_t *value = is_manner(o->name) || is_share(tool, o->name) ? NULL : value_of(o, options);
        if (!value || json_is_false(value)) continue;
        json_object_set_new(pare_is_given(tool, o->name) ? given : defaults, o->name, value);
        const char *path = json_string_value(value);
        char hash[33];
        if (!path || !is_product(o, path)) continue;
        PARE_TRY(pare_recipe_hash(tool->ctx, path, hash));
        json_object_set_new(wrote, path, json_string(hash));
    }
    return PARE_OK;
}

json_t *pare_recipe_json(pare_tool *tool, const void *options)
{
    json_t *arguments = json_array(), *given = json_object(), *defaults = json_object();
    json_t *wrote = json_object();
    for (int i = 0; i < tool->arg_count; i++)
        json_array_append_new(arguments, pare_json_text(tool->arg[i]));
    pare_status st = add_options(tool, tool->command->options, options, given, defaults, wrote);
    if (st == PARE_OK) st = add_options(tool, pare_common_options, options, given, defaults, wrote);
    json_t *made = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "pare", PARE_VERSION, "command",
                             tool->command->name, "arguments", arguments, "options", given,
                             "defaults", defaults, "wrote", wrote);
    if (made && st == PARE_OK) return made;
    json_decref(made);
    if (st == PARE_OK) (void)PARE_FAIL(tool->ctx, MEMORY, "out of memory");
    return NULL;
}

/* --- YAML --- */

/* In double quotes JSON's escapes are YAML's. */
static void put_scalar(pare_text *t, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    pare_text_add(t, "%s", text ? text : "");
    if (!text) t->failed = true;
    free(text);
}

static void put_map(pare_text *t, const json_t *map)
{
    const char *key;
    json_t *value, *item;
    size_t i;
    json_object_foreach((json_t *)map, key, value)
    {
        json_t *name = json_string(key);
        pare_text_add(t, "  ");
        put_scalar(t, name);
        pare_text_add(t, ":");
        json_decref(name);
        if (!json_is_array(value)) {
            pare_text_add(t, " ");
            put_scalar(t, value);
        }
        pare_text_add(t, "\n");
        if (json_is_array(value)) json_array_foreach(value, i, item)
            {
                pare_text_add(t, "    - ");
                put_scalar(t, item);
                pare_text_add(t, "\n");
            }
    }
}

static void put_section(pare_text *t, const json_t *recipe, const char *key, const char *comment)
{
    const json_t *map = json_object_get(recipe, key);
    if (!json_object_size(map)) return;
    pare_text_add(t, "%s:%s\n", key, comment);
    put_map(t, map);
}

pare_status pare_recipe_write(pare_ctx *ctx, const json_t *recipe, const char *path)
{
    pare_text t = {.ctx = ctx};
    size_t i;
    json_t *item;
    pare_text_add(&t, "# pare replay FILE runs this again\npare: ");
    put_scalar(&t, json_object_get(recipe, "pare"));
    pare_text_add(&t, "\ncommand: ");
    put_scalar(&t, json_object_get(recipe, "command"));
    pare_text_add(&t, "\narguments:%s\n",
                  json_array_size(json_object_get(recipe, "arguments")) ? "" : " []");
    json_array_foreach(json_object_get(recipe, "arguments"), i, item)
    {
        pare_text_add(&t, "  - ");
        put_scalar(&t, item);
        pare_text_add(&t, "\n");
    }
    put_section(&t, recipe, "options", "");
    put_section(&t, recipe, "defaults", " # what was not given");
    put_section(&t, recipe, "wrote", " # the hash of each file");
    return pare_page_write(&t, path);
}

/* --- reading --- */

typedef struct reader {
    pare_arena *arena;
    const char *path, *folder;
    pare_recipe *out;
    const pare_command *command;
} reader;

static pare_status add(reader *r, pare_list *list, const char *text)
{
    const char **more = pare_arena_alloc(r->arena, (size_t)list->count + 1, sizeof *more);
    if (!more || !text) return PARE_MEMORY;
    if (list->count) memcpy(more, list->item, (size_t)list->count * sizeof *more);
    more[list->count++] = text;
    list->item = more;
    return PARE_OK;
}

/* Where a written file goes now. */
static const char *moved(const reader *r, const char *path)
{
    const char *base = strrchr(path, '/');
    return r->folder ? pare_arena_printf(r->arena, "%s/%s", r->folder, base ? base + 1 : path)
                     : path;
}

static pare_status wants(const reader *r, const pare_yaml *at, bool good, const char *what)
{
    if (good) return PARE_OK;
    return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: %s: expected %s", r->path, at->line,
                     at->key ? at->key : "the file", what);
}

static pare_status add_value(reader *r, const pare_option *o, const pare_yaml *at)
{
    PARE_TRY(wants(r, at, at->kind == PARE_YAML_SCALAR && *at->text, "a value"));
    const char *text = o->kind == PARE_OPTION_OUTPUT ? moved(r, at->text) : at->text;
    return text ? add(r, &r->out->words, pare_arena_printf(r->arena, "--%s=%s", o->name, text))
                : PARE_MEMORY;
}

/* Is this value what the option stands for where it is not given? */
static bool is_default(const reader *r, const pare_option *o, const pare_yaml *at)
{
    const void *defaults = r->command->defaults;
    if (!defaults) defaults = pare_arena_alloc(r->arena, 1, r->command->size); /* zeros */
    json_t *value = defaults ? value_of(o, defaults) : NULL;
    char *text = value && !json_is_string(value)
                     ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17))
                     : NULL;
    const char *own = text ? text : json_string_value(value);
    const bool same = at->kind == PARE_YAML_SCALAR && own && !strcmp(own, at->text);
    free(text);
    json_decref(value);
    return same;
}

static pare_status read_option(reader *r, const pare_yaml *at, bool given)
{
    const char *word = pare_arena_printf(r->arena, "--%s", at->key), *value;
    const pare_option *o = word ? pare_option_find(r->command, word, &value) : NULL;
    if (!word) return PARE_MEMORY;
    if (!o || is_manner(o->name))
        return PARE_FAIL(r->arena->ctx, INPUT, "%s:%d: %s: is no option of pare %s", r->path,
                         at->line, at->key, r->command->name);
    if (!given && is_default(r, o, at)) return PARE_OK;
    if (o->kind == PARE_OPTION_LIST && at->kind == PARE_YAML_LIST) {
        for (const pare_yaml *item = at->first; item; item = item->next)
            PARE_TRY(add_value(r, o, item));
        return PARE_OK;
    }
    if (o->kind != PARE_OPTION_FLAG) return add_value(r, o, at);
    const bool on = at->kind == PARE_YAML_SCALAR && !strcmp(at->text, "true");
    PARE_TRY(wants(r, at, on || (at->kind == PARE_YAML_SCALAR && !strcmp(at->text, "false")),
                   "true or false"));
    return on ? add(r, &r->out->words, word) : PARE_OK;
}

static pare_status read_command(reader *r, const pare_yaml *at)
{
    int used = 0;
    PARE_TRY(wants(r, at, at->kind == PARE_YAML_SCALAR, "a command"));
    char *text = pare_arena_strdup(r->arena, at->text), *words[2] = {text, NULL};
    if (!text) return PARE_MEMORY;
    if (strchr(text, ' ')) {
        words[1] = strchr(text, ' ') + 1;
        words[1][-1] = 0;
    }
    const pare_status st =
        pare_command_find(r->arena->ctx, &r->command, words, words[1] ? 2 : 1, &used);
    if (st != PARE_OK)
        return pare_fail_prefix(r->arena->ctx, PARE_INPUT, "%s:%d", r->path, at->line);
    if (!strcmp(r->command->name, "replay"))
        return wants(r, at, false, "another command than replay");
    for (int i = 0; i < used; i++) PARE_TRY(add(r, &r->out->words, words[i]));
    return PARE_OK;
}

static pare_status read_rest(reader *r, const pare_yaml *root)
{
    static const char *const keys[] = {"pare",    "command",  "arguments",
                                       "options", "defaults", "wrote"};
    for (const pare_yaml *at = root->first; at; at = at->next) {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) known |= !strcmp(keys[i], at->key);
        if (!known)
            return PARE_FAIL(r->arena->ctx, INPUT,
                             "%s:%d: %s: is no key of a recipe; it has pare, command, arguments, "
                             "options, defaults and wrote",
                             r->path, at->line, at->key);
        const bool is_list = !strcmp(at->key, "arguments");
        const bool given = !strcmp(at->key, "options");
        if (given || !strcmp(at->key, "defaults") || !strcmp(at->key, "wrote"))
            PARE_TRY(wants(r, at, at->kind == PARE_YAML_MAP, "keys and values"));
        if (is_list) PARE_TRY(wants(r, at, at->kind == PARE_YAML_LIST, "a list"));
        if (!strcmp(at->key, "pare") && at->kind == PARE_YAML_SCALAR) r->out->version = at->text;
        for (const pare_yaml *e = at->first; e; e = e->next) {
            if (is_list) {
                PARE_TRY(wants(r, e, e->kind == PARE_YAML_SCALAR && *e->text, "a file"));
            } else if (given || !strcmp(at->key, "defaults")) {
                PARE_TRY(read_option(r, e, given));
            } else if (!strcmp(at->key, "wrote")) {
                PARE_TRY(wants(r, e, e->kind == PARE_YAML_SCALAR, "a hash"));
                PARE_TRY(add(r, &r->out->file, moved(r, e->key)));
                PARE_TRY(add(r, &r->out->hash, e->text));
            }
        }
    }
    const pare_yaml *arguments = pare_yaml_find(root, "arguments");
    if (arguments) PARE_TRY(add(r, &r->out->words, "--"));
    for (const pare_yaml *e = arguments ? arguments->first : NULL; e; e = e->next)
        PARE_TRY(add(r, &r->out->words, e->text));
    return PARE_OK;
}

/* Facts are JSON, and may be large. */
static pare_status read_tree(reader *r, pare_yaml **root)
{
    json_t *facts = NULL;
    if (!pare_ends_with(r->path, ".json")) return pare_yaml_read(r->arena, root, r->path);
    PARE_TRY(pare_json_read(r->arena->ctx, &facts, r->path));
    const json_t *run = json_object_get(facts, "run");
    char *text = run ? json_dumps(run, JSON_INDENT(1)) : NULL;
    pare_status st = PARE_OK;
    if (!run)
        st = PARE_FAIL(r->arena->ctx, INPUT,
                       "%s: holds no run; expected what a command of this version wrote with "
                       "--json, or a recipe in YAML",
                       r->path);
    else
        st = text ? pare_yaml_parse(r->arena, root, r->path, text, strlen(text)) : PARE_MEMORY;
    free(text);
    json_decref(facts);
    return st;
}

pare_status pare_recipe_read(pare_arena *arena, pare_recipe *out, const char *path,
                             const char *folder)
{
    reader r = {.arena = arena, .path = path, .folder = folder, .out = out};
    pare_yaml *root;
    *out = (pare_recipe){0};
    PARE_TRY(read_tree(&r, &root));
    PARE_TRY(wants(&r, root, root->kind == PARE_YAML_MAP, "keys and values"));
    const pare_yaml *command = pare_yaml_find(root, "command");
    if (!command)
        return PARE_FAIL(arena->ctx, INPUT, "%s:%d: command: is missing", path, root->line);
    PARE_TRY(read_command(&r, command));
    return read_rest(&r, root);
}

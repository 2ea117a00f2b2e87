/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/check_output.h"

#include "formats/file.h"
#include "formats/onnx.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pare_status check_folder(pare_ctx *ctx, const char *path)
{
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    struct stat st;
    if (slash) {
        size_t n = slash == path ? 1 : (size_t)(slash - path);
        if (n >= sizeof folder) return PARE_FAIL(ctx, IO, "%.64s...: the path is too long", path);
        memcpy(folder, path, n);
        folder[n] = 0;
    }
    if (stat(folder, &st) || !S_ISDIR(st.st_mode))
        return PARE_FAIL(ctx, IO, "%s: the folder '%s' does not exist; make it first", path,
                         folder);
    if (access(folder, W_OK))
        return PARE_FAIL(ctx, IO, "%s: the folder '%s' cannot be written: %s; choose another place",
                         path, folder, strerror(errno));
    return PARE_OK;
}

/* Fails where path is the input itself, or a file that a model among the inputs reads. */
static pare_status check_input(pare_ctx *ctx, const char *path, const char *input)
{
    bool used = false;
    if (pare_file_same(path, input))
        return PARE_FAIL(ctx, INPUT,
                         "%s: output and input are the same file; choose another name "
                         "for the output",
                         path);
    if (!access(path, F_OK)) PARE_TRY(pare_onnx_uses(ctx, input, path, &used));
    if (!used) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: output and input are the same file: the model '%s' reads it; choose "
                     "another name for the output",
                     path, input);
}

pare_status pare_check_output(pare_ctx *ctx, const char *path, const char *const *inputs,
                              int input_count)
{
    struct stat st;
    if (!path) return PARE_OK;
    size_t n = strlen(path);
    if (!n) return PARE_FAIL(ctx, USAGE, "the name of the output is empty");
    for (int i = 0; i < input_count; i++)
        if (inputs[i]) PARE_TRY(check_input(ctx, path, inputs[i]));
    if (path[n - 1] == '/' || (!stat(path, &st) && S_ISDIR(st.st_mode)))
        return PARE_FAIL(ctx, IO, "%s: is a folder, expected the name of a file", path);
    if (!stat(path, &st) && access(path, W_OK))
        return PARE_FAIL(ctx, IO, "%s: exists and cannot be written: %s", path, strerror(errno));
    return check_folder(ctx, path);
}

/* --- all of a command --- */

static bool same_name(const char *a, const char *b)
{
    return !strcmp(a, b) || pare_file_same(a, b);
}

static const char *file_of(const pare_option *o, const void *options)
{
    if (o->kind != PARE_OPTION_FILE && o->kind != PARE_OPTION_OUTPUT) return NULL;
    return *(const char *const *)((const char *)options + o->offset);
}

/* One of words is NAME=FILE with this file. */
static bool in_pairs(const char *const *words, int count, const char *path)
{
    for (int i = 0; i < count; i++) {
        const char *equals = strchr(words[i], '=');
        if (equals && pare_file_same(equals + 1, path)) return true;
    }
    return false;
}

/* Does option o name the file, itself or in its list? */
static bool names_file(const pare_option *o, const void *options, const char *path)
{
    const char *file = file_of(o, options);
    if (file) return same_name(file, path);
    if (o->kind != PARE_OPTION_LIST) return false;
    const pare_list *list = (const void *)((const char *)options + o->offset);
    return in_pairs(list->item, list->count, path);
}

static pare_status check_one(pare_tool *tool, const void *options, const pare_option *out)
{
    const char *path = file_of(out, options);
    const pare_option *const tables[] = {tool->command->options, pare_common_options};
    PARE_TRY(pare_check_output(tool->ctx, path, tool->arg, tool->arg_count));
    if (path && in_pairs(tool->arg, tool->arg_count, path))
        return PARE_FAIL(tool->ctx, INPUT,
                         "%s: output and input are the same file; choose another "
                         "name for the output",
                         path);
    for (int t = 0; path && t < 2; t++)
        for (const pare_option *o = tables[t]; o && o->name; o++)
            if (o != out && names_file(o, options, path))
                return PARE_FAIL(tool->ctx, INPUT,
                                 "%s: --%s and --%s name the same file; choose another name for "
                                 "the output",
                                 path, out->name, o->name);
    return PARE_OK;
}

pare_status pare_check_outputs(pare_tool *tool, const void *options)
{
    const pare_option *const tables[] = {tool->command->options, pare_common_options};
    for (int t = 0; t < 2; t++)
        for (const pare_option *o = tables[t]; o && o->name; o++)
            if (o->kind == PARE_OPTION_OUTPUT) PARE_TRY(check_one(tool, options, o));
    return PARE_OK;
}

/* --- options that go together --- */

const char *const pare_source_names[] = {"samples", "range", "batch", "shuffle", "map", NULL};

bool pare_is_given(const pare_tool *tool, const char *option)
{
    for (int i = 0; i < tool->common->given.count; i++)
        if (!strcmp(tool->common->given.item[i], option)) return true;
    return false;
}

pare_status pare_refuse_options(pare_tool *tool, const char *where, const char *const *names)
{
    for (; *names; names++)
        if (pare_is_given(tool, *names))
            return PARE_FAIL(tool->ctx, USAGE, "%s: --%s does nothing %s; leave it out",
                             tool->command->name, *names, where);
    return PARE_OK;
}

pare_status pare_need_option(pare_tool *tool, const char *value, const char *name, const char *why)
{
    if (value) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE, "%s: %s is needed: %s; see 'pare %s --help'",
                     tool->command->name, name, why, tool->command->name);
}

void pare_make_cache(pare_ctx *ctx, const char *folder)
{
    if (mkdir(folder, 0777) && errno != EEXIST)
        pare_log(ctx, PARE_LOG_WARNING,
                 "%s: the folder cannot be made: %s; kernel timings are not kept", folder,
                 strerror(errno));
}

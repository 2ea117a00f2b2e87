/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/check_output.h"

#include "formats/file.h"

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

pare_status pare_check_output(pare_ctx *ctx, const char *path, const char *const *inputs,
                              int input_count)
{
    struct stat st;
    if (!path) return PARE_OK;
    size_t n = strlen(path);
    if (!n) return PARE_FAIL(ctx, USAGE, "the name of the output is empty");
    for (int i = 0; i < input_count; i++)
        if (inputs[i] && pare_file_same(path, inputs[i]))
            return PARE_FAIL(ctx, INPUT,
                             "%s: output and input are the same file; choose another name "
                             "for the output",
                             path);
    if (path[n - 1] == '/' || (!stat(path, &st) && S_ISDIR(st.st_mode)))
        return PARE_FAIL(ctx, IO, "%s: is a folder, expected the name of a file", path);
    if (!stat(path, &st) && access(path, W_OK))
        return PARE_FAIL(ctx, IO, "%s: exists and cannot be written: %s", path, strerror(errno));
    return check_folder(ctx, path);
}

pare_status pare_need_option(pare_tool *tool, const char *value, const char *name, const char *why)
{
    if (value) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE, "%s: %s is needed: %s; see 'pare %s --help'",
                     tool->command->name, name, why, tool->command->name);
}

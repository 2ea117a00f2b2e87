/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/distill/checkpoint.h"
#include "formats/file.h"
#include "tools/check_output.h"
#include "tools/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pare_status make_folder(pare_ctx *ctx, const char *folder)
{
    struct stat info;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return PARE_FAIL(ctx, IO, "%s: the folder cannot be made: %s", folder, strerror(errno));
    if (stat(folder, &info) || !S_ISDIR(info.st_mode))
        return PARE_FAIL(ctx, IO, "%s: is no folder, expected one for checkpoints", folder);
    if (access(folder, W_OK | X_OK))
        return PARE_FAIL(ctx, IO, "%s: the folder cannot be written to: %s", folder,
                         strerror(errno));
    return PARE_OK;
}

pare_status pare_checkpoint_prepare(pare_tool *tool, const pare_checkpoint_options *o)
{
    static const char *const rows[] = {"checkpoint-every", "resume", NULL};
    if (!o->folder) return pare_refuse_options(tool, "without --checkpoint", rows);
    return make_folder(tool->ctx, o->folder);
}

pare_status pare_checkpoint_at(pare_tool *tool, const pare_checkpoint_options *o, const char *name,
                               const char *const *outputs, int output_count,
                               pare_distill_checkpoint *out)
{
    *out = (pare_distill_checkpoint){.every = o->every, .resume = o->resume};
    if (!o->folder) return PARE_OK;
    const size_t n = strlen(o->folder);
    out->path = pare_arena_printf(&tool->arena, "%s%s%s", o->folder,
                                  n && o->folder[n - 1] == '/' ? "" : "/", name);
    if (!out->path) return PARE_MEMORY;
    for (int i = 0; i < output_count; i++)
        if (outputs[i] && (!strcmp(outputs[i], out->path) || pare_file_same(outputs[i], out->path)))
            return PARE_FAIL(tool->ctx, INPUT,
                             "%s: is the checkpoint, too; choose another name for the output",
                             outputs[i]);
    return PARE_OK;
}

void pare_checkpoint_log_none(const pare_tool *tool, const pare_distill_checkpoint *c)
{
    if (c->path && c->resume && access(c->path, F_OK) && !tool->common->quiet)
        pare_print(stderr, "%s: there is no checkpoint yet; training starts from the beginning\n",
                   c->path);
}

void pare_checkpoint_log(const pare_tool *tool, const pare_distill_checkpoint *c, int64_t step)
{
    if (c->path && step >= 0 && !tool->common->quiet)
        pare_print(stderr,
                   "%s: holds step %lld; the same command with --resume continues after it\n",
                   c->path, (long long)step);
}

static void say(const pare_tool *tool, const pare_distill_checkpoint *c,
                const pare_distill_result *r)
{
    if (r->end != PARE_DISTILL_INTERRUPTED && r->resumed == r->steps)
        pare_print(stderr, "%s: training had ended before; nothing was left to train\n", c->path);
    if (r->end == PARE_DISTILL_INTERRUPTED) pare_checkpoint_log(tool, c, r->checkpoint);
    if (r->end == PARE_DISTILL_INTERRUPTED && r->checkpoint < 0)
        pare_print(stderr, "%s: could not be written; there is nothing to resume from\n", c->path);
}

void pare_checkpoint_report(pare_tool *tool, const pare_distill_checkpoint *c,
                            const pare_distill_result *r)
{
    if (!c->path) return;
    json_t *row = json_pack("{s:s}", "file", c->path);
    if (r->checkpoint >= 0) json_object_set_new(row, "step", json_integer(r->checkpoint));
    json_object_set_new(tool->facts, "checkpoint", row);
    if (!tool->common->quiet) say(tool, c, r);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* --checkpoint DIR of a training: its options, and what is said about it. */
#include "tools/distill/checkpoint.h"
#include "tools/check_output.h"
#include "tools/text.h"

#include <unistd.h>

pare_status pare_checkpoint_prepare(pare_tool *tool, const pare_checkpoint_options *o)
{
    static const char *const rows[] = {"checkpoint-every", "resume", NULL};
    if (!o->folder) return pare_refuse_options(tool, "without --checkpoint", rows);
    return pare_distill_checkpoint_folder(tool->ctx, o->folder);
}

pare_status pare_checkpoint_at(pare_tool *tool, const pare_checkpoint_options *o, const char *name,
                               const char *const *outputs, int output_count,
                               pare_distill_checkpoint *out)
{
    *out = (pare_distill_checkpoint){.every = o->every, .resume = o->resume};
    if (!o->folder) return PARE_OK;
    return pare_distill_checkpoint_file(&tool->arena, o->folder, name, outputs, output_count, out);
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

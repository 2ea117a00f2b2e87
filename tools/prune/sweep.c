/* SPDX-License-Identifier: Apache-2.0 */
/* --sweep: one model after the other, each in a file of its own. */
#include "tools/check_output.h"
#include "tools/prune/prune.h"

#include <stdlib.h>
#include <string.h>

/* The next number of the list; *at moves after it, to NULL after the last. None of everything is
   no target of what is kept. */
static pare_status next_value(pare_ctx *ctx, const pare_prune_options *o, const char **at,
                              double *out)
{
    char *end;
    bool zeroed = o->sparsity >= 0;
    *out = strtod(*at, &end);
    if (end == *at || (*end && *end != ',') || !(*out >= (zeroed ? 0 : 1e-6) && *out <= 1))
        return PARE_FAIL(ctx, USAGE,
                         "prune: --sweep %s: expected numbers %s 0 %s 1, as 0.9,0.7,0.5", o->sweep,
                         zeroed ? "from" : "above", zeroed ? "to" : "and up to");
    *at = *end ? end + 1 : NULL;
    return PARE_OK;
}

/* OUT-0.90.onnx */
static pare_status sweep_path(pare_tool *tool, const pare_prune_options *o, double value,
                              const char **path)
{
    const char *out = o->output;
    const char *dot = strrchr(out, '.'), *slash = strrchr(out, '/');
    int stem = dot && (!slash || dot > slash) ? (int)(dot - out) : (int)strlen(out);
    char number[32];
    snprintf(number, sizeof number, "%.2f", value);
    if (strtod(number, NULL) != value) snprintf(number, sizeof number, "%.10g", value);
    *path = pare_arena_printf(&tool->arena, "%.*s-%s%s", stem, out, number, out + stem);
    if (!*path) return PARE_MEMORY;
    const char *const other[] = {o->report, o->common.json};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (other[i] && !strcmp(other[i], *path))
            return PARE_FAIL(tool->ctx, USAGE,
                             "prune: '%s' is a model of the sweep; give %s another name", *path,
                             i ? "--json" : "--report");
    return pare_check_output(tool->ctx, *path, tool->arg, tool->arg_count);
}

pare_status pare_prune_sweep(pare_tool *tool, const pare_prune_options *o,
                             pare_status (*each)(void *user, double value, const char *path),
                             void *user)
{
    const char *path;
    double value;
    for (const char *at = o->sweep; at;) {
        PARE_TRY(next_value(tool->ctx, o, &at, &value));
        PARE_TRY(sweep_path(tool, o, value, &path));
        for (const char *more = at; more;) {
            double other;
            PARE_TRY(next_value(tool->ctx, o, &more, &other));
            if (other == value)
                return PARE_FAIL(tool->ctx, USAGE, "prune: --sweep %s: %g is there twice", o->sweep,
                                 value);
        }
    }
    for (const char *at = o->sweep; at;) {
        PARE_TRY(next_value(tool->ctx, o, &at, &value));
        PARE_TRY(sweep_path(tool, o, value, &path));
        PARE_TRY(each(user, value, path));
    }
    return PARE_OK;
}

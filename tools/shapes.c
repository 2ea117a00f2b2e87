/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shapes.h"

#include "tools/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "in:32x1x28x28" up to `end`; a name may hold ':' itself, the last one counts. */
static pare_status parse_shape(pare_ctx *ctx, pare_arena *arena, const char *text, const char *end,
                               pare_input_shape *out)
{
    const char *colon = end, *at;
    while (colon > text && *colon != ':') colon--;
    out->name = pare_arena_strndup(arena, text, (size_t)(colon - text));
    if (!out->name) return PARE_MEMORY;
    out->shape = (pare_shape){0};
    for (at = colon + 1; at < end || at == colon + 1;) {
        char *behind;
        errno = 0;
        long long dim = strtoll(at, &behind, 10);
        if (colon == text || behind == at || behind > end || dim < 0 || errno ||
            (behind < end && (*behind != 'x' || behind + 1 == end)) ||
            out->shape.rank == PARE_MAX_RANK)
            return PARE_FAIL(ctx, USAGE, "--shapes %s: expected NAME:AxBxC, up to %d dims", text,
                             PARE_MAX_RANK);
        out->shape.dim[out->shape.rank++] = dim;
        at = behind + (behind < end);
    }
    return PARE_OK;
}

/* Is it an input of the model, and the first time that it is given? */
static pare_status check_name(pare_tool *tool, const pare_model *model, const pare_input_shape *one,
                              const pare_input_shape *before, int before_count, const char *text)
{
    int count, i = 0;
    pare_value **inputs = pare_model_inputs(&tool->arena, model, &count);
    if (!inputs) return PARE_MEMORY;
    while (i < count && strcmp(inputs[i]->name, one->name) != 0) i++;
    if (i == count)
        return PARE_FAIL(tool->ctx, INPUT, "%s: has no input '%s' (--shapes); its first is '%s'",
                         model->path, one->name, count ? inputs[0]->name : "(none)");
    for (i = 0; i < before_count; i++)
        if (!strcmp(before[i].name, one->name))
            return PARE_FAIL(tool->ctx, USAGE, "--shapes %s: input '%s' is given twice", text,
                             one->name);
    return PARE_OK;
}

pare_status pare_shapes_parse(pare_tool *tool, const pare_model *model, const pare_list *list,
                              pare_input_shape **out, int *count)
{
    size_t capacity = 0;
    *out = NULL;
    *count = 0;
    for (int s = 0; s < list->count; s++)
        for (const char *at = list->item[s]; *at;) {
            pare_input_shape one;
            const char *end = at + strcspn(at, ",");
            PARE_TRY(parse_shape(tool->ctx, &tool->arena, at, end, &one));
            PARE_TRY(check_name(tool, model, &one, *out, *count, list->item[s]));
            if (!pare_arena_grow(&tool->arena, out, &capacity, (size_t)*count, sizeof **out))
                return PARE_MEMORY;
            (*out)[(*count)++] = one;
            at = *end ? end + 1 : end;
        }
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan keeps on its device: the constants that steps read there, in one block, uploaded
   once; and room for the graph's inputs after the activations of each runner. */
#include "runtime/base/size.h"
#include "runtime/exec/plan.h"

#include <string.h>

enum { ALIGN = 256 };

static pare_status block_add(pare_plan *p, pare_storage *r, size_t bytes, size_t *end)
{
    r->offset = *end;
    if (pare_add_size(*end, pare_align_up(bytes, ALIGN), end)) return PARE_OK;
    return PARE_FAIL(p->ctx, MEMORY, "%s: tensors need more memory than can be addressed",
                     p->model->path);
}

static const pare_placed *find_placed(const pare_plan *p, const char *name)
{
    for (int i = 0; i < p->options.placed_count; i++)
        if (!strcmp(p->options.placed[i].name, name)) return &p->options.placed[i];
    return NULL;
}

static pare_status inputs_place(pare_plan *p)
{
    p->buffer_bytes = pare_align_up(p->buffer_bytes, ALIGN);
    for (int i = 0; i < p->input_count; i++) {
        const pare_placed *placed = find_placed(p, p->input[i]->name);
        pare_storage *root = &p->root[p->input_place[i].root];
        if (placed)
            root->there = placed->data;
        else
            PARE_TRY(
                block_add(p, root, pare_view_bytes(&p->input_place[i].view), &p->buffer_bytes));
    }
    return PARE_OK;
}

/* Constants among those that stay must be there. */
static pare_status outputs_place(pare_plan *p)
{
    p->stays = pare_arena_alloc(&p->arena, (size_t)p->output_count + 1, sizeof *p->stays);
    if (!p->stays) return PARE_MEMORY;
    for (int i = 0; i < p->output_count; i++) {
        p->stays[i] = find_placed(p, pare_plan_output(p, i)->name) != NULL;
        if (p->stays[i]) p->root[p->output_place[i].root].uploaded = true;
    }
    return PARE_OK;
}

static pare_status constants_upload(pare_plan *p, size_t bytes)
{
    pare_device *d = p->options.device;
    pare_status st = d->backend->alloc(p->ctx, d, &p->device_constants, bytes);
    if (st != PARE_OK)
        return pare_fail_prefix(p->ctx, st, "%s: %zu bytes for weights", p->model->path, bytes);
    for (int i = 0; i < p->storage_count; i++) {
        const pare_storage *r = &p->root[i];
        if (r->where == PARE_AT_CONSTANT && r->uploaded && r->bytes)
            PARE_TRY(d->backend->upload(p->ctx, d->setup, (char *)p->device_constants + r->offset,
                                        r->constant, r->bytes));
    }
    return d->backend->sync(p->ctx, d->setup);
}

pare_status pare_device_place(pare_plan *plan)
{
    size_t bytes = 0;
    PARE_TRY(inputs_place(plan));
    PARE_TRY(outputs_place(plan));
    for (int i = 0; i < plan->storage_count; i++) {
        pare_storage *r = &plan->root[i];
        if (r->where == PARE_AT_CONSTANT && r->uploaded && r->bytes)
            PARE_TRY(block_add(plan, r, r->bytes, &bytes));
    }
    plan->weight_bytes += bytes;
    return bytes ? constants_upload(plan, bytes) : PARE_OK;
}

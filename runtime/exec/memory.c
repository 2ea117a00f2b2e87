/* SPDX-License-Identifier: Apache-2.0 */
/* Where a plan's tensors lie: the offsets of activations, and on a device the constants that steps
   read there, in one block, uploaded once; the graph's inputs lie after the activations of each
   runner. */
#include "runtime/base/size.h"
#include "runtime/exec/plan.h"

#include <stdlib.h>
#include <string.h>

/* Libraries on a GPU choose their fastest kernels for tensors at multiples of 256 bytes. */
enum { HOST_ALIGN = 64, DEVICE_ALIGN = 256 };

size_t pare_memory_align(const pare_plan *p)
{
    return p->options.device ? DEVICE_ALIGN : HOST_ALIGN;
}

static int larger_first(const void *a, const void *b)
{
    const pare_storage *x = *(pare_storage *const *)a, *y = *(pare_storage *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;
}

static bool alive_together(const pare_storage *a, const pare_storage *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* placed[] is ordered by offset. The lowest gap between roots alive with r that is wide enough. */
static size_t gap_for(const pare_storage *r, pare_storage *const *placed, int count, size_t align)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const pare_storage *p = placed[i];
        if (!alive_together(r, p)) continue;
        if (p->offset >= at && p->offset - at >= r->bytes) break;
        size_t end = pare_align_up(p->offset + p->bytes, align);
        if (end > at) at = end;
    }
    return at;
}

pare_status pare_memory_plan(pare_ctx *ctx, pare_plan *plan)
{
    int n = 0;
    pare_storage **todo = pare_alloc(ctx, (size_t)plan->storage_count, sizeof *todo);
    pare_storage **placed = pare_alloc(ctx, (size_t)plan->storage_count, sizeof *placed);
    pare_status st = PARE_MEMORY;
    if (!todo || !placed) goto done;
    for (int i = 0; i < plan->storage_count; i++)
        if (plan->root[i].where == PARE_AT_BUFFER) todo[n++] = &plan->root[i];
    qsort(todo, (size_t)n, sizeof *todo, larger_first);
    plan->buffer_bytes = 0;
    for (int i = 0; i < n; i++) {
        pare_storage *r = todo[i];
        r->offset = gap_for(r, placed, i, pare_memory_align(plan));
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > r->offset; at--) placed[at] = placed[at - 1];
        placed[at] = r;
        size_t end;
        if (!pare_add_size(r->offset, pare_align_up(r->bytes, pare_memory_align(plan)), &end)) {
            st = PARE_FAIL(ctx, MEMORY, "activations need more memory than can be addressed");
            goto done;
        }
        if (end > plan->buffer_bytes) plan->buffer_bytes = end;
    }
    st = PARE_OK;
done:
    pare_free(todo);
    pare_free(placed);
    return st;
}

/* --- on a device --- */

static pare_status block_add(pare_plan *p, size_t *offset, size_t bytes, size_t *end)
{
    *offset = *end;
    if (pare_add_size(*end, pare_align_up(bytes, DEVICE_ALIGN), end)) return PARE_OK;
    return PARE_FAIL(p->ctx, MEMORY, "%s: tensors need more memory than can be addressed",
                     p->model->path);
}

static const pare_placed *find_placed(const pare_plan *p, const char *name)
{
    for (int i = 0; i < p->options.placed_count; i++)
        if (!strcmp(p->options.placed[i].name, name)) return &p->options.placed[i];
    return NULL;
}

/* Libraries' products, which deterministic execution has none of, want more than vectors do. */
static pare_status placed_check(const pare_plan *p, const pare_placed *placed)
{
    const int least = p->options.deterministic ? HOST_ALIGN : DEVICE_ALIGN;
    if ((uintptr_t)placed->data % (uintptr_t)least == 0) return PARE_OK;
    return PARE_FAIL(p->ctx, INPUT,
                     "%s: input '%s' was placed at %p: a device's kernels want a multiple of %d",
                     p->model->path, placed->name, placed->data, least);
}

static pare_status inputs_place(pare_plan *p)
{
    pare_single *s = p->single;
    p->buffer_bytes = pare_align_up(p->buffer_bytes, DEVICE_ALIGN);
    if (s) s->buffer_bytes = pare_align_up(s->buffer_bytes, DEVICE_ALIGN);
    for (int i = 0; i < p->input_count; i++) {
        const pare_placed *placed = find_placed(p, p->input[i]->name);
        const int at = p->input_place[i].root;
        const size_t bytes = pare_view_bytes(&p->input_place[i].view);
        if (placed) {
            PARE_TRY(placed_check(p, placed));
            p->root[at].there = placed->data;
            continue;
        }
        PARE_TRY(block_add(p, &p->root[at].offset, bytes, &p->buffer_bytes));
        if (s) PARE_TRY(block_add(p, &s->offset[at], bytes, &s->buffer_bytes));
    }
    return PARE_OK;
}

bool pare_plan_input_stays(const pare_plan *p, int i)
{
    return p->options.device && p->received <= i && i < p->received + p->kept_in;
}

/* Constants among those that stay must be there. */
static pare_status outputs_place(pare_plan *p)
{
    p->stays = pare_arena_alloc(&p->arena, (size_t)p->output_count + 1, sizeof *p->stays);
    if (!p->stays) return PARE_MEMORY;
    for (int i = 0; i < p->output_count; i++) {
        const bool kept = p->sent <= i && i < p->sent + p->kept_out;
        p->stays[i] = kept || find_placed(p, p->model->graph->out.item[i]->name) != NULL;
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
            PARE_TRY(block_add(plan, &r->offset, r->bytes, &bytes));
    }
    plan->weight_bytes += bytes;
    return bytes ? constants_upload(plan, bytes) : PARE_OK;
}

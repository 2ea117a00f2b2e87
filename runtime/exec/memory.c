/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/size.h"
#include "runtime/exec/plan.h"

#include <stdlib.h>

enum { ALIGN = 64 };

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
static size_t gap_for(const pare_storage *r, pare_storage *const *placed, int count)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const pare_storage *p = placed[i];
        if (!alive_together(r, p)) continue;
        if (p->offset >= at && p->offset - at >= r->bytes) break;
        size_t end = pare_align_up(p->offset + p->bytes, ALIGN);
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
        r->offset = gap_for(r, placed, i);
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > r->offset; at--) placed[at] = placed[at - 1];
        placed[at] = r;
        size_t end;
        if (!pare_add_size(r->offset, pare_align_up(r->bytes, ALIGN), &end)) {
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

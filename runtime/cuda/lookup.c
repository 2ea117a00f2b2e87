/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/lookup.h"
#include "runtime/cuda/kernel.h"

#include <string.h>

pare_status pare_cuda_lookup_new(pare_prep *p, int64_t *const *at)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    pare_cuda_lookup *l = pare_arena_alloc(p->arena, 1, sizeof *l);
    if (!l) return PARE_MEMORY;
    l->device = p->device;
    l->rank = y->rank;
    l->bytes = pare_cuda_bytes(y->dtype);
    l->count = pare_view_count(y);
    int64_t entries = 0;
    for (int a = 0; a < y->rank; a++) {
        l->dim[a] = y->dim[a];
        l->y_stride[a] = y->stride[a];
        l->begin[a] = entries;
        entries += y->dim[a];
    }
    int64_t *table = pare_arena_alloc(p->arena, (size_t)entries + 1, sizeof *table);
    if (!table) return PARE_MEMORY;
    for (int a = 0; a < y->rank; a++)
        for (int64_t o = 0; o < y->dim[a]; o++) table[l->begin[a] + o] = at[a][o] * x->stride[a];
    void *there;
    PARE_TRY(
        pare_device_copy(p->ctx, p->device, &there, table, (size_t)(entries + 1) * sizeof *table));
    l->table = there;
    p->state = l;
    return PARE_OK;
}

pare_status pare_cuda_lookup_run(const pare_call *c)
{
    pare_cuda_lookup l = *(const pare_cuda_lookup *)c->state;
    l.x = c->in[0].data;
    l.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_lookup_launch, &l);
}

void pare_cuda_lookup_release(void *state)
{
    pare_cuda_lookup *l = state;
    if (l) l->device->backend->free(l->device, (void *)l->table);
}

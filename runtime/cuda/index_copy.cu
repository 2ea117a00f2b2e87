/* SPDX-License-Identifier: Apache-2.0 */
/* y[o0, o1, ...] = x[at0[o0], at1[o1], ...]: one thread an element. Reads an entry an axis (small
   tables that stay in the cache), the element, and writes it. */
#include "runtime/cuda/device/common.cuh"
#include "runtime/cuda/index_copy.h"
#include "runtime/cuda/kernel.h"

#include <string.h>

template <class T>
static __global__ void __launch_bounds__(PARE_CUDA_BLOCK) lookup_each(pare_cuda_index_copy l)
{
    const T *x = static_cast<const T *>(l.x);
    T *y = static_cast<T *>(l.y);
    PARE_CUDA_EACH (i, l.count) {
        int64_t left = i, to = 0, from = 0;
        for (int a = l.rank - 1; a >= 0; a--) {
            int64_t whole = left / l.dim[a], o = left - whole * l.dim[a];
            to += o * l.y_stride[a];
            from += l.table[l.begin[a] + o];
            left = whole;
        }
        y[to] = x[from];
    }
}

#define LAUNCH(T)                                                                                  \
    SIMT_LAUNCH(lookup_each<T>, pare_cuda_grid(l->count), dim3(PARE_CUDA_BLOCK), 0, stream, *l)

extern "C" cudaError_t pare_cuda_index_copy_launch(const pare_cuda_index_copy *l,
                                                   cudaStream_t stream)
{
    if (l->count == 0) return cudaSuccess;
    switch (l->bytes) {
    case 1: LAUNCH(uint8_t); break;
    case 2: LAUNCH(uint16_t); break;
    case 4: LAUNCH(uint32_t); break;
    default: LAUNCH(uint64_t);
    }
    return cudaGetLastError();
}

pare_status pare_cuda_index_copy_new(pare_prep *p, int64_t *const *at)
{
    const pare_view *x = &p->in[0], *y = &p->out[0];
    pare_cuda_index_copy *l = (pare_cuda_index_copy *)pare_arena_alloc(p->arena, 1, sizeof *l);
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
    int64_t *table = (int64_t *)pare_arena_alloc(p->arena, (size_t)entries + 1, sizeof *table);
    if (!table) return PARE_MEMORY;
    for (int a = 0; a < y->rank; a++)
        for (int64_t o = 0; o < y->dim[a]; o++) table[l->begin[a] + o] = at[a][o] * x->stride[a];
    void *copy;
    PARE_TRY(pare_cuda_copy_kept(p, &copy, table, (size_t)(entries + 1) * sizeof *table));
    l->table = (const int64_t *)copy;
    p->state = l;
    return PARE_OK;
}

pare_status pare_cuda_index_copy_run(const pare_call *c)
{
    pare_cuda_index_copy l = *(const pare_cuda_index_copy *)c->state;
    l.x = c->in[0].data;
    l.y = c->out[0].data;
    return PARE_CUDA_LAUNCH(c, pare_cuda_index_copy_launch, &l);
}

void pare_cuda_index_copy_release(void *state)
{
    pare_cuda_index_copy *l = (pare_cuda_index_copy *)state;
    if (l) l->device->backend->free(l->device, (void *)l->table);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/kernel.h"
#include "runtime/cuda/tensor_iterator.h"

bool pare_cuda_can_float(const pare_prep *prep, int inputs)
{
    if (prep->in_count < inputs) return false;
    for (int i = 1; i < inputs; i++)
        if (prep->in[i].dtype != prep->in[0].dtype) return false;
    return pare_cuda_is_float(prep->in[0].dtype);
}

int pare_cuda_bytes(pare_dtype dtype)
{
    return dtype == PARE_string ? 0 : pare_type(dtype)->bits / 8;
}

void pare_cuda_strides(const pare_view *v, int64_t stride[5])
{
    stride[0] = v->stride[0];
    stride[1] = v->stride[1];
    for (int i = 0; i < 3; i++) {
        int axis = i - (5 - v->rank);
        stride[2 + i] = axis < 0 ? 0 : v->stride[2 + axis];
    }
}

pare_status pare_cuda_launched(const pare_call *call, cudaError_t error, const char *launcher)
{
    if (error == cudaSuccess) return PARE_OK;
    pare_status st = pare_cuda_fail(call->ctx, error, launcher);
    const pare_node *n = call->node;
    return pare_fail_prefix(call->ctx, st, "node '%s' (%s), tensor '%s'", n->name, n->op_type,
                            n->out_count && n->out[0] ? n->out[0]->name : "");
}

pare_status pare_cuda_copy_kept(pare_prep *p, void **out, const void *data, size_t bytes)
{
    PARE_TRY(pare_device_copy(p->ctx, p->device, out, data, bytes));
    p->kept += bytes;
    return PARE_OK;
}

pare_status pare_cuda_keep(pare_prep *p, const void *data, size_t bytes)
{
    pare_cuda_kept *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->device = p->device;
    PARE_TRY(pare_cuda_copy_kept(p, &s->data, data, bytes));
    p->state = s;
    return PARE_OK;
}

void pare_cuda_kept_release(void *state)
{
    pare_cuda_kept *s = state;
    if (s) s->device->backend->free(s->device, s->data);
}

void pare_cuda_iterator_call(pare_cuda_iterator *out, const pare_call *call, int inputs)
{
    pare_view wide[PARE_ITERATOR_OPERANDS];
    const pare_view *all[PARE_ITERATOR_OPERANDS] = {&call->out[0]};
    for (int i = 0; i < inputs; i++) {
        wide[i] = pare_view_stretch(&call->in[i], &call->out[0]);
        all[i + 1] = &wide[i];
    }
    pare_cuda_iterator_set(out, all, inputs + 1);
}

void pare_cuda_iterator_set(pare_cuda_iterator *out, const pare_view *const *views, int operands)
{
    pare_iterator_init(&out->walk, views, operands);
    for (int k = 0; k < operands; k++) out->data[k] = views[k]->data;
}

/* Is every `step`-th element of an operand at such a multiple, as its rows are? */
static bool rows_lie(const pare_cuda_iterator *w, int operand, int64_t step, size_t bytes)
{
    const pare_tensor_iterator *it = &w->walk;
    bool well = (uintptr_t)w->data[operand] % bytes == 0;
    for (int a = 0; a < it->rank - 1; a++) well = well && it->stride[operand][a] % step == 0;
    return well;
}

bool pare_cuda_iterator_vectorizes(const pare_cuda_iterator *w, int width)
{
    const pare_tensor_iterator *it = &w->walk;
    const int last = it->rank - 1;
    bool well = it->dim[last] % width == 0 && it->stride[0][last] == 1;
    for (int k = 0; k < it->operands; k++)
        well = well && (it->stride[k][last] == 0 ||
                        (it->stride[k][last] == 1 && rows_lie(w, k, width, 16)));
    return well;
}

void pare_cuda_iterator_widen(pare_cuda_iterator *w, int *bytes)
{
    pare_tensor_iterator *it = &w->walk;
    const int last = it->rank - 1;
    while (*bytes < 16) {
        bool well = it->dim[last] % 2 == 0;
        for (int k = 0; k < it->operands; k++)
            well = well && it->stride[k][last] == 1 && rows_lie(w, k, 2, 2 * (size_t)*bytes);
        if (!well) return;
        *bytes *= 2;
        it->count /= 2, it->dim[last] /= 2;
        for (int k = 0; k < it->operands; k++)
            for (int a = 0; a < last; a++) it->stride[k][a] /= 2;
    }
}

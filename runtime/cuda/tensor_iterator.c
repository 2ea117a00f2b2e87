/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cuda/tensor_iterator.h"

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

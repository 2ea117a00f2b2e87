/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/tensor_iterator.h"

pare_view pare_view_stretch(const pare_view *in, const pare_view *to)
{
    pare_view v = *in;
    v.rank = to->rank;
    for (int i = 0; i < to->rank; i++) {
        int k = i - (to->rank - in->rank);
        bool stretched = k < 0 || (in->dim[k] == 1 && to->dim[i] != 1);
        v.dim[i] = to->dim[i];
        v.stride[i] = stretched ? 0 : in->stride[k];
    }
    return v;
}

/* Axes longer than 1 by the stride of v, largest first; their number. */
static int axes_sort(const pare_view *v, int *order)
{
    int rank = 0;
    for (int i = 0; i < v->rank; i++) {
        if (v->dim[i] == 1) continue;
        int at = rank++;
        for (; at > 0 && v->stride[order[at - 1]] < v->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return rank;
}

void pare_iterator_init(pare_tensor_iterator *w, const pare_view *const *v, int operands)
{
    int order[PARE_MAX_RANK], rank = axes_sort(v[0], order);
    *w = (pare_tensor_iterator){.operands = operands, .count = pare_view_count(v[0])};
    for (int r = 0; r < rank; r++) {
        bool joins = w->rank > 0;
        int64_t n = v[0]->dim[order[r]];
        for (int k = 0; joins && k < operands; k++)
            joins = w->stride[k][w->rank - 1] == v[k]->stride[order[r]] * n;
        if (!joins) w->dim[w->rank++] = 1;
        w->dim[w->rank - 1] *= n;
        for (int k = 0; k < operands; k++) w->stride[k][w->rank - 1] = v[k]->stride[order[r]];
    }
    if (!w->rank) w->dim[w->rank++] = 1;
}

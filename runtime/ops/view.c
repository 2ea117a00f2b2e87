/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/kernel.h"

int64_t pare_view_count(const pare_view *view)
{
    int64_t n = 1;
    for (int i = 0; i < view->rank; i++) n *= view->dim[i];
    return n;
}

size_t pare_view_bytes(const pare_view *view)
{
    size_t bytes;
    return pare_type_bytes(view->dtype, pare_view_count(view), &bytes) ? bytes : 0;
}

/* Dense when walked with axis[rank - 1] fastest? Axes of length 1 may have any stride. */
static bool dense(const pare_view *v, const int *axis)
{
    int64_t expected = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        int a = axis ? axis[i] : i;
        if (v->dim[a] == 1) continue;
        if (v->stride[a] != expected) return false;
        expected *= v->dim[a];
    }
    return true;
}

bool pare_view_rowmajor(const pare_view *view) { return dense(view, NULL); }

bool pare_view_nhwc(const pare_view *view)
{
    static const int order[4] = {0, 2, 3, 1};
    return view->rank == 4 && dense(view, order);
}

bool pare_view_same_order(const pare_view *a, const pare_view *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i] || (a->dim[i] != 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

void pare_view_set(pare_view *view, pare_dtype dtype, const pare_shape *shape, bool nhwc)
{
    static const int channels_last[4] = {0, 2, 3, 1};
    view->dtype = dtype;
    view->rank = shape->rank;
    int64_t stride = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        int a = nhwc && shape->rank == 4 ? channels_last[i] : i;
        view->dim[a] = shape->dim[a];
        view->stride[a] = stride;
        stride *= shape->dim[a];
    }
}

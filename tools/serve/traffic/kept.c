/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/traffic/kept.h"

#include "runtime/base/size.h"

#include <string.h>

void pare_kept_free(pare_kept *k)
{
    if (k->held) (void)__atomic_fetch_sub(k->held, k->bytes, __ATOMIC_RELAXED);
    pare_free(k->data);
    *k = (pare_kept){0};
}

/* The request holds the bytes first, and hands them over. */
static pare_status take(pare_kept *k, pare_exchange *x, size_t bytes)
{
    pare_kept_free(k);
    if (!pare_exchange_hold(x, bytes)) return PARE_MEMORY;
    k->held = pare_exchange_hand_over(x, bytes);
    k->bytes = bytes;
    k->data = pare_alloc(&x->ctx, bytes + 1, 1);
    return k->data ? PARE_OK : PARE_MEMORY;
}

pare_status pare_kept_begin(pare_kept *k, pare_exchange *x, pare_dtype dtype,
                            const pare_shape *shape)
{
    int64_t count;
    size_t bytes;
    if (!pare_count_dims(shape->dim, shape->rank, &count) || !pare_type_bytes(dtype, count, &bytes))
        return PARE_FAIL(&x->ctx, INPUT, "the state is too large");
    PARE_TRY(take(k, x, bytes));
    k->shape = *shape;
    return PARE_OK;
}

pare_status pare_kept_put(pare_kept *k, pare_exchange *x, const char *model, const pare_port *input,
                          const pare_infer_tensor *t)
{
    char has[256], says[256];
    pare_shape shape = {.rank = t->rank};
    memcpy(shape.dim, t->dim, sizeof shape.dim);
    bool fits = t->dtype == input->dtype && shape.rank == input->shape.rank;
    for (int d = 0; fits && d < shape.rank; d++)
        fits = input->shape.dim[d] < 0 || input->shape.dim[d] == shape.dim[d];
    if (!fits)
        return PARE_FAIL(&x->ctx, INPUT,
                         "model '%s': output '%s' is %s %s, as the next input '%s' it would be %s",
                         model, t->name, pare_type(t->dtype)->name,
                         pare_shape_text(&shape, has, sizeof has), input->name,
                         pare_shape_text(&input->shape, says, sizeof says));
    if (t->bytes != k->bytes) PARE_TRY(take(k, x, t->bytes));
    k->shape = shape;
    if (t->bytes) memcpy(k->data, t->data, t->bytes);
    return PARE_OK;
}

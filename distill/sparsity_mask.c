/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse weights stay sparse: the pattern of a tensor with many zeros is what pruning left. */
#include "distill/weights.h"

#include <inttypes.h>
#include <string.h>

static float number_at(const pare_tensor *t, int64_t i)
{
    float v;
    memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
    return v;
}

static pare_status mark(pare_weights *w, pare_weight *item, double from, const char *path)
{
    const pare_tensor *t = item->tensor;
    int64_t zeros = 0;
    for (int64_t i = 0; i < t->count; i++) zeros += number_at(t, i) == 0;
    if (t->rank < 2 || !zeros || (double)zeros < from * (double)t->count) return PARE_OK;
    item->zero = pare_alloc(w->ctx, (size_t)t->count, 1);
    if (!item->zero) return PARE_MEMORY;
    for (int64_t i = 0; i < t->count; i++) item->zero[i] = number_at(t, i) == 0;
    pare_log(w->ctx, PARE_LOG_INFO, "%s: the %" PRId64 " zeros of weight '%s' (%.0f %%) stay zero",
             path, zeros, item->name, 100 * (double)zeros / (double)t->count);
    return PARE_OK;
}

pare_status pare_weights_keep_sparsity(pare_weights *weights, double from, const char *path)
{
    for (int i = 0; i < weights->trained; i++)
        PARE_TRY(mark(weights, &weights->item[i], from, path));
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "distill/labels.h"

#include <inttypes.h>

static bool are_wanted(const pare_trainer *t)
{
    for (int i = 0; i < t->options.loss.count; i++)
        if (t->options.loss.term[i].kind == PARE_TERM_CE) return true;
    return false;
}

pare_status pare_labels_need(const pare_trainer *t)
{
    const pare_data *const all[] = {t->data, t->held.data};
    for (int i = 0; i < 2 && are_wanted(t); i++)
        if (!pare_data_labels(all[i]))
            return PARE_FAIL(t->ctx, INPUT,
                             "%s: there is no dataset '/labels', which the loss ce needs: a class "
                             "number per sample",
                             pare_data_path(all[i]));
    return PARE_OK;
}

static pare_status check(const pare_trainer *t, const pare_data *data, const int64_t *sample,
                         int64_t count)
{
    const int64_t classes = t->check.nodes.classes, *label = pare_data_labels(data);
    for (int64_t i = 0; i < count; i++)
        if (label[sample[i]] >= classes)
            return PARE_FAIL(t->ctx, INPUT,
                             "%s: dataset '/labels': sample %" PRId64 " has label %" PRId64
                             ", but output '%s' of %s has %" PRId64 " classes",
                             pare_data_path(data), sample[i], label[sample[i]],
                             t->student->graph->out.item[0]->name, t->student->path, classes);
    return PARE_OK;
}

pare_status pare_labels_check(const pare_trainer *t)
{
    if (!are_wanted(t)) return PARE_OK;
    PARE_TRY(check(t, t->data, t->sample, t->sample_count));
    return check(t, t->held.data, t->held_sample, t->held.count);
}

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

/* The first sample whose label is beyond the output's classes, or -1. */
static int64_t find_wrong(const pare_trainer *t, const pare_data *data, const int64_t *sample,
                          int64_t count)
{
    const int64_t *label = pare_data_labels(data);
    for (int64_t i = 0; i < count; i++)
        if (label[sample[i]] >= t->check.nodes.classes) return sample[i];
    return -1;
}

static pare_status check(const pare_trainer *t, const pare_data *data, const int64_t *sample,
                         int64_t count)
{
    const int64_t wrong = find_wrong(t, data, sample, count);
    if (wrong < 0) return PARE_OK;
    return PARE_FAIL(t->ctx, INPUT,
                     "%s: dataset '/labels': sample %" PRId64 " has label %" PRId64
                     ", but output '%s' of %s has %" PRId64 " classes",
                     pare_data_path(data), wrong, pare_data_labels(data)[wrong],
                     t->student->graph->out.item[0]->name, t->student->path,
                     t->check.nodes.classes);
}

/* Labels that the loss does not need may be those of another task. */
static bool can_judge(const pare_trainer *t)
{
    const pare_held_out *h = &t->held;
    if (!pare_data_has_labels(h->data) || !t->check.nodes.logits) return false;
    const int64_t wrong = find_wrong(t, h->data, t->held_sample, h->count);
    if (wrong >= 0)
        pare_log(t->ctx, PARE_LOG_WARNING,
                 "%s: dataset '/labels': sample %" PRId64 " has label %" PRId64
                 ", but output '%s' of %s has %" PRId64
                 " classes; held-out samples are judged without labels",
                 pare_data_path(h->data), wrong, pare_data_labels(h->data)[wrong],
                 t->check.nodes.logits, t->student->path, t->check.nodes.classes);
    return wrong < 0;
}

pare_status pare_labels_check(pare_trainer *t)
{
    if (are_wanted(t)) {
        PARE_TRY(check(t, t->data, t->sample, t->sample_count));
        PARE_TRY(check(t, t->held.data, t->held_sample, t->held.count));
    }
    t->held.labels = can_judge(t);
    return PARE_OK;
}

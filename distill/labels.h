/* SPDX-License-Identifier: Apache-2.0 */
/* What training needs of the data's labels: those that the loss ce is made of, and those that
   held-out samples are judged by (internal to distill/). */
#ifndef PARE_DISTILL_LABELS_H
#define PARE_DISTILL_LABELS_H

#include "distill/trainer.h"

/* Once the samples are chosen. PARE_INPUT: the loss has ce, and the samples trained on or those
   held out have no labels. */
PARE_NODISCARD pare_status pare_labels_need(const pare_trainer *trainer);

/* Once there are graphs; says whether held-out samples can be judged by labels. A label beyond the
   output's classes is PARE_INPUT where the loss has ce, else a warning where it is of a held-out
   sample. */
PARE_NODISCARD pare_status pare_labels_check(pare_trainer *trainer);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the loss ce needs of the data (internal to distill/). */
#ifndef PARE_DISTILL_LABELS_H
#define PARE_DISTILL_LABELS_H

#include "distill/trainer.h"

/* Once the samples are chosen. PARE_INPUT: the loss has ce, and the samples trained on or those
   held out have no labels. */
PARE_NODISCARD pare_status pare_labels_need(const pare_trainer *trainer);

/* Once there are graphs. PARE_INPUT: the loss has ce, and a label is beyond the output's classes.
 */
PARE_NODISCARD pare_status pare_labels_check(const pare_trainer *trainer);

#endif

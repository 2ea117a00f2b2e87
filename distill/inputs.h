/* SPDX-License-Identifier: Apache-2.0 */
/* A net's inputs and the data (internal to distill/). */
#ifndef PARE_DISTILL_INPUTS_H
#define PARE_DISTILL_INPUTS_H

#include "formats/data.h"
#include "runtime/graph/graph.h"

/* The inputs that must be given, in order: the i-th of them; NULL after the last. */
pare_value *pare_inputs_at(const pare_model *model, int i);
int pare_inputs_count(const pare_model *model);
/* Place among them of the input of this name, or -1. */
int pare_inputs_place(const pare_model *model, const char *name);

/* Gives every input of the model, which takes what the data's input source[i] holds (NULL: in
   order), the data's shape with so many rows. PARE_INPUT: they contradict each other. */
PARE_NODISCARD pare_status pare_inputs_set_rows(pare_ctx *ctx, pare_model *model,
                                                const pare_data *data, const int *source,
                                                int64_t rows);

#endif

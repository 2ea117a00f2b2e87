/* SPDX-License-Identifier: Apache-2.0 */
/* The outputs of a comparison's first model over the samples, kept in the cache: the next
   comparison with the same model on the same samples reads them instead of running it. They are
   the very numbers a run gives: whatever these depend on is part of the key, the cut of samples
   into batches and threads included. */
#ifndef PARE_TOOLS_REFERENCE_H
#define PARE_TOOLS_REFERENCE_H

#include "runtime/eval/eval.h"
#include "tools/cache.h"
#include "tools/source.h"

typedef struct pare_reference pare_reference;

/* folder NULL: *out is NULL, which the functions below take. model_hash: of the model's file. */
PARE_NODISCARD pare_status pare_reference_open(pare_tool *tool, pare_reference **out,
                                               const char *folder, const pare_model *model,
                                               const char *model_hash, const pare_source *source,
                                               const pare_source_options *options);
/* complete: every batch was kept, and what was written becomes an entry. */
void pare_reference_close(pare_reference *reference, bool complete);

/* Are there outputs to be read? */
bool pare_reference_found(const pare_reference *reference);

/* The outputs of the next batch, one pare_rows an output, valid until the next call; seen: the
   reader's hash of all samples up to its end. NULL: the model must run (from here on, too). */
const pare_rows *pare_reference_next(pare_reference *reference, int count, pare_hash seen);

/* Keeps what the model gave for the next batch. */
void pare_reference_keep(pare_reference *reference, const pare_predictor *predictor, int count,
                         pare_hash seen);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A state that a sequence keeps between two requests. It counts among what requests hold. */
#ifndef PARE_TOOLS_SERVE_KEPT_H
#define PARE_TOOLS_SERVE_KEPT_H

#include "tools/serve/served.h"

typedef struct pare_kept {
    pare_shape shape;
    char *data; /* (bytes) from pare_alloc; NULL: none */
    size_t bytes;
    size_t *held; /* where they count; NULL: nowhere */
} pare_kept;

/* Zeros of this shape, in place of what it had. x: the request. PARE_MEMORY: requests and states
   hold as much as they may, or there is no memory. PARE_INPUT: no memory could be so large. */
PARE_NODISCARD pare_status pare_kept_begin(pare_kept *kept, pare_exchange *x, pare_dtype dtype,
                                           const pare_shape *shape);
/* A copy of an output of the request, as the next value of `input`. PARE_MEMORY as above.
   PARE_INPUT: it does not fit there. */
PARE_NODISCARD pare_status pare_kept_put(pare_kept *kept, pare_exchange *x, const char *model,
                                         const pare_port *input, const pare_infer_tensor *output);
void pare_kept_free(pare_kept *kept); /* which may be empty, and is empty then */
#endif

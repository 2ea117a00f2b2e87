/* SPDX-License-Identifier: Apache-2.0 */
/* What a model in memory is known by (internal to distill/). */
#ifndef PARE_DISTILL_MODEL_HASH_H
#define PARE_DISTILL_MODEL_HASH_H

#include "runtime/base/hash.h"
#include "runtime/graph/graph.h"

/* Of its opsets and its graph: nodes in order with their names and attributes, constants with what
   they hold, inputs and outputs. Texts for people and the file it came from do not count. */
pare_hash pare_model_hash(const pare_model *model);

#endif

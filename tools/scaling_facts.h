/* SPDX-License-Identifier: Apache-2.0 */
/* What pare scale needs of a job, as facts: {start_s, steps, parts, part_s, each_s, bytes,
   reductions} (pare_scaling_job). */
#ifndef PARE_TOOLS_SCALING_FACTS_H
#define PARE_TOOLS_SCALING_FACTS_H

#include "runtime/comm/scaling.h"

#include <jansson.h>
#include <stdbool.h>

/* NULL: out of memory. */
json_t *pare_scaling_json(const pare_scaling_job *job);
/* False: these are no such facts. */
bool pare_scaling_of_json(const json_t *facts, pare_scaling_job *out);
#endif

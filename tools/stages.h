/* SPDX-License-Identifier: Apache-2.0 */
/* What was planned for a pipeline of processes, before it runs. */
#ifndef PARE_TOOLS_STAGES_H
#define PARE_TOOLS_STAGES_H

#include "runtime/eval/pipeline.h"
#include "tools/options.h"

/* In rank 0: the facts "pipeline", and on standard error a table of the stages. */
PARE_NODISCARD pare_status pare_stages_show(pare_tool *tool, const pare_pipeline_plan *plan);
#endif

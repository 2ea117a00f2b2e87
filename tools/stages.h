/* SPDX-License-Identifier: Apache-2.0 */
/* What was planned for a pipeline of processes, in rank 0, or of GPUs. */
#ifndef PARE_TOOLS_STAGES_H
#define PARE_TOOLS_STAGES_H

#include "runtime/eval/pipeline.h"
#include "tools/options.h"

/* On standard error: a table of the stages, and what they wait for. */
void pare_stages_print(pare_tool *tool, const pare_pipeline_plan *plan);
void pare_stages_print_table(pare_tool *tool, const pare_pipeline_plan *plan);
/* The facts "pipeline"; NULL: no memory. */
json_t *pare_stages_json(const pare_pipeline_plan *plan);
/* Their "stages" alone. */
json_t *pare_stages_list(const pare_pipeline_plan *plan);
#endif

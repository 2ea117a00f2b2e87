/* SPDX-License-Identifier: Apache-2.0 */
/* --parallel: how processes that mpirun started share a model. */
#ifndef PARE_TOOLS_PARALLEL_H
#define PARE_TOOLS_PARALLEL_H

#include "runtime/eval/eval.h"
#include "tools/options.h"

/* The words are in the order of pare_parallel. */
#define PARE_OPT_PARALLEL(field, with)                                                             \
    PARE_OPT_CHOICE("parallel", "pipeline|tensor", field,                                          \
                    with "how processes that mpirun started share the model: each has a stage of " \
                         "its nodes (pipeline), or a part of each large product's channels "       \
                         "(tensor), with their weights")

/* Warns where one process was started. */
void pare_parallel_begin(pare_tool *tool);
/* Fails where the ranks have other models. */
PARE_NODISCARD pare_status pare_parallel_same(pare_tool *tool, const char *path);

/* In rank 0, on standard error: a table of what each rank has. */
void pare_parallel_print(pare_tool *tool, const pare_shared_plan *plan);
/* Adds "pipeline" or "tensor" to facts; nothing where the model is not shared. */
PARE_NODISCARD pare_status pare_parallel_facts(json_t *facts, const pare_shared_plan *plan);
#endif

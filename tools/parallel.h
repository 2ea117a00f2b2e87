/* SPDX-License-Identifier: Apache-2.0 */
/* --parallel: how processes that mpirun started share a model. */
#ifndef PARE_TOOLS_PARALLEL_H
#define PARE_TOOLS_PARALLEL_H

#include "runtime/eval/eval.h"
#include "tools/options.h"

/* In the order of the option's words; none where it is not given. */
typedef enum pare_parallel { PARE_PARALLEL_NONE = -1, PARE_PIPELINE, PARE_TENSOR } pare_parallel;

#define PARE_OPT_PARALLEL(field, with)                                                             \
    PARE_OPT_CHOICE("parallel", "pipeline|tensor", field,                                          \
                    with "how processes that mpirun started share the model: each has a stage of " \
                         "its nodes (pipeline), or a part of each large product's channels "       \
                         "(tensor), with their weights")

/* Warns where one process was started, and fails where the ranks have other models. */
PARE_NODISCARD pare_status pare_parallel_begin(pare_tool *tool, const char *path);

/* In rank 0: the facts "tensor", and on standard error a table of what each rank has. All ranks
   call it, once the predictor is planned. */
PARE_NODISCARD pare_status pare_shards_show(pare_tool *tool, const pare_plan_sharding *sharding,
                                            size_t activations, int runs);
#endif

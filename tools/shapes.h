/* SPDX-License-Identifier: Apache-2.0 */
/* --shapes and --static: concrete shapes for a model's inputs. */
#ifndef PARE_TOOLS_SHAPES_H
#define PARE_TOOLS_SHAPES_H

#include "runtime/exec/exec.h"
#include "tools/options.h"

/* The shapes asked for by this option ("--shapes"), "in:32x1x28x28" or "in=32x1x28x28" each,
   several separated by commas: in the tool's arena. Fails where the model has no such input, or one
   is given twice. */
PARE_NODISCARD pare_status pare_shapes_parse(pare_tool *tool, const pare_model *model,
                                             const char *option, const pare_list *list,
                                             pare_input_shape **out, int *count);

/* A shape for every input that must be given: the one given, else the model's, unknown dims 1.
   Fails where the rank is unknown, or where nothing would run ("0 samples"). */
PARE_NODISCARD pare_status pare_shapes_choose(pare_tool *tool, const pare_model *model,
                                              const pare_input_shape *given, int given_count,
                                              pare_input_shape **out, int *count);

/* Samples of a run of the plan: the first input's first axis, where it is free or the first output
   has it, too; else the input has no batch axis. */
int64_t pare_shapes_samples(const pare_model *model, const pare_plan *plan,
                            const pare_input_shape *shapes, int count);
#endif

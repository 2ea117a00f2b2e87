/* SPDX-License-Identifier: Apache-2.0 */
/* pare inspect --device: what a model would take on a GPU that need not be there. */
#ifndef PARE_TOOLS_ROOFLINE_H
#define PARE_TOOLS_ROOFLINE_H

#include "runtime/eval/roofline.h"
#include "tools/options.h"

/* Prints a row a step and the sum, and puts them into the facts as "prediction". shapes: of
   --shapes. batch: first axis of the inputs that leave it open and have no shape there; 0: 1.
   measured: a profile of it, whose times stand beside the predicted ones (measured.h), or NULL.
   PARE_USAGE: a batch without an input that leaves it open. */
PARE_NODISCARD pare_status pare_roofline_show(pare_tool *tool, const pare_model *model,
                                              const pare_gpu_spec *spec, int64_t batch,
                                              const pare_list *shapes, const char *measured);
#endif

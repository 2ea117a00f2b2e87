/* SPDX-License-Identifier: Apache-2.0 */
/* --prefer latency: nodes that are not faster as int8 on the device at hand, or with --predict on a
   GPU that is not there, stay float. */
#ifndef PARE_TOOLS_PREFER_H
#define PARE_TOOLS_PREFER_H

#include "quant/latency.h"
#include "tools/source.h"

#include <jansson.h>

typedef struct pare_prefer {
    const pare_list *shapes; /* --shapes: of a timed run; inputs without one have that of one run of
                                the data, else the model's with 1 for unknown dims */
    const char *cache;       /* folder for times, or NULL */
    const char *gpu;         /* --predict: of pare_gpu_spec_find, or NULL */
    bool may_fp16;           /* nodes that stay float may be FP16 on a GPU */
    /* out */
    pare_quant_latency found;
    bool gave_up; /* float nodes cost accuracy that --max-drop does not allow: all int8 it is */
} pare_prefer;

/* Sets options->float_for_latency and f32_for_latency of a prepared model. source: the samples that
 * were opened, or NULL. */
PARE_NODISCARD pare_status pare_prefer_latency(pare_tool *tool, pare_model *prepared,
                                               const pare_ranges *ranges,
                                               pare_quant_options *options,
                                               const pare_source *source, pare_prefer *asked);

/* Before hours of calibration: PARE_USAGE where no GPU is called so, PARE_INPUT where --shapes
   names what is no input, or shapes that the model does not take. */
PARE_NODISCARD pare_status pare_prefer_check(pare_tool *tool, const pare_model *prepared,
                                             const pare_prefer *asked);

/* What was found, for facts and for people; and PARE_MISSED with its message where the written
   model is slower than the float one. */
json_t *pare_prefer_json(const pare_prefer *asked);
void pare_prefer_print(pare_tool *tool, const pare_prefer *asked);
PARE_NODISCARD pare_status pare_prefer_verdict(pare_tool *tool, const pare_prefer *asked,
                                               const char *output);
#endif

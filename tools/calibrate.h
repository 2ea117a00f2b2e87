/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration that calibrate and quantize share. */
#ifndef PARE_TOOLS_CALIBRATE_H
#define PARE_TOOLS_CALIBRATE_H

#include "calib/calib.h"
#include "tools/source.h"

enum { PARE_CALIBRATION_SAMPLES = 512 }; /* unless asked otherwise */

typedef struct pare_calibrate_how {
    const char *model_hash; /* of the file the model came from */
    bool minmax_only;       /* as in calib.h */
    bool tf32;              /* a GPU may round factors of f32 products to TF32 */
    bool again;             /* on samples that were calibrated on before: no word on how few */
    const char *trace;      /* file for a Chrome trace of the first runs, or NULL */
    const char *cache; /* folder where statistics are kept, or NULL: a table of the same prepared
                          model on the same samples is read there (but not to be traced) */
} pare_calibrate_how;

/* Runs the prepared model over the samples and puts what was read into the facts as "data". */
PARE_NODISCARD pare_status pare_tool_calibrate(pare_tool *tool, pare_ranges **out,
                                               const pare_model *prepared,
                                               const pare_source_options *options,
                                               const pare_calibrate_how *how);
/* The same over samples that the caller opened with these options, before the device; they stay
   open. */
PARE_NODISCARD pare_status pare_tool_calibrate_on(pare_tool *tool, pare_ranges **out,
                                                  const pare_model *prepared,
                                                  const pare_source_options *options,
                                                  const pare_source *source,
                                                  const pare_calibrate_how *how);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Per-step times of a runner as JSON and as a Chrome trace (chrome://tracing, Perfetto). */
#ifndef PARE_TOOLS_PROFILE_H
#define PARE_TOOLS_PROFILE_H

#include "runtime/exec/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the runner some more times with the clock on each step. profile: {model, steps: [{node,
   op_type, kernel, precision, output, shape, bytes_in, bytes_out, macs, time_ms, share}], time_ms};
   times are medians over the runs. trace: the last run. Either path may be NULL. */
PARE_NODISCARD pare_status pare_profile_write(pare_ctx *ctx, pare_runner *runner, const char *model,
                                              const char *profile, const char *trace);

#ifdef __cplusplus
}
#endif
#endif

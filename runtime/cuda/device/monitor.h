/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's meter: NVML, and DCGM beside it where its host engine runs. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_MONITOR_H
#define PARE_RUNTIME_CUDA_DEVICE_MONITOR_H

#include "runtime/base/ctx.h"
#include "runtime/device/telemetry.h"

/* Fails as pare_nvml_open; without DCGM an info line says why. */
PARE_NODISCARD pare_status pare_cuda_monitor_open(pare_ctx *ctx, pare_monitor **out,
                                                  const char *bus);
void pare_cuda_monitor_close(pare_monitor *meter);
/* What one cannot tell is NaN (0 for `slowed`). One thread at a time. */
void pare_cuda_monitor_read(const pare_monitor *meter, pare_telemetry *out);
/* The driver's version. */
const char *pare_cuda_monitor_driver(const pare_monitor *meter);

#endif

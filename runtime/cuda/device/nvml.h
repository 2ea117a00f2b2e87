/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, opened at run time. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_NVML_H
#define PARE_RUNTIME_CUDA_DEVICE_NVML_H

#include "runtime/base/ctx.h"
#include "runtime/device/telemetry.h"

typedef struct pare_nvml pare_nvml;

/* The meter of the GPU on this bus ("00000000:65:00.0"); library: its path, NULL is the driver's
   own name. PARE_UNSUPPORTED where it is absent, lacks a function or does not know the GPU. */
PARE_NODISCARD pare_status pare_nvml_open(pare_ctx *ctx, pare_nvml **out, const char *bus,
                                          const char *library);
void pare_nvml_close(pare_nvml *meter);

/* What one cannot tell is NaN (0 for `slowed`). One thread at a time. */
void pare_nvml_read(const pare_nvml *meter, pare_telemetry *out);

/* The driver's version: "580.95.05". */
const char *pare_nvml_driver(const pare_nvml *meter);

#endif

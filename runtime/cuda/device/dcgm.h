/* SPDX-License-Identifier: Apache-2.0 */
/* What DCGM's host engine (nv-hostengine) on this machine has measured of a GPU. Only what the
   engine watches for others is read: a cluster's exporter makes it watch, or, beside a run,
   "dcgmi dmon -d 100 -e 1002,1004,1005,1009,1010,1011,1012". A watch of pare's own would take the
   GPU's counters from Nsight, and work while something is timed. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_DCGM_H
#define PARE_RUNTIME_CUDA_DEVICE_DCGM_H

#include "runtime/base/ctx.h"
#include "runtime/device/telemetry.h"

typedef struct pare_dcgm pare_dcgm;

/* The engine's values of the GPU on this bus ("00000000:65:00.0"); library: its path, NULL:
   libdcgm.so.4, then libdcgm.so.3. PARE_UNSUPPORTED where it is absent or lacks a function, or
   where no engine runs or knows the GPU. */
PARE_NODISCARD pare_status pare_dcgm_open(pare_ctx *ctx, pare_dcgm **out, const char *bus,
                                          const char *library);
void pare_dcgm_close(pare_dcgm *dcgm); /* NULL is allowed */

/* Activities and rates. NaN: not watched, not told, or the same sample as at the call before. A
   sample is an interval's mean: that which had begun before the opening is left out. */
void pare_dcgm_read(pare_dcgm *dcgm, pare_telemetry *out);

#endif

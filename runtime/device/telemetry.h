/* SPDX-License-Identifier: Apache-2.0 */
/* What an accelerator says about itself while it works: a meter is opened on a device and read as
   often as wanted (some milliseconds each). */
#ifndef PARE_RUNTIME_DEVICE_TELEMETRY_H
#define PARE_RUNTIME_DEVICE_TELEMETRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pare_monitor pare_monitor;

/* One reading; NaN: not told. */
typedef struct pare_telemetry {
    double power_w, power_limit_w;
    double sm_mhz, memory_mhz; /* clocks now */
    double temperature_c;
    double memory_used, memory_total; /* bytes, of all processes */
    uint64_t slowed;                  /* bits of PARE_SLOWED: why the clocks are not higher */
    /* parts of the time, 0 to 1: an SM has work, its tensor cores have, device memory has */
    double sm_active, tensor_active, dram_active;
    double pcie_tx, pcie_rx, nvlink_tx, nvlink_rx; /* bytes a second that it sends, receives */
} pare_telemetry;

/* X(bit, text), the bits are NVML's. */
#define PARE_SLOWED(X)                                                                             \
    X(0x1, "idle")                                                                                 \
    X(0x2, "clocks set by the user")                                                               \
    X(0x4, "power limit")                                                                          \
    X(0x8, "hardware slowdown")                                                                    \
    X(0x10, "sync boost")                                                                          \
    X(0x20, "temperature, by software")                                                            \
    X(0x40, "temperature, by hardware")                                                            \
    X(0x80, "power brake")                                                                         \
    X(0x100, "display clocks")                                                                     \
    X(0x200, "board limit")                                                                        \
    X(0x400, "reliability")

#ifdef __cplusplus
}
#endif
#endif

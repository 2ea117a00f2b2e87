/* SPDX-License-Identifier: Apache-2.0 */
/* Which device computed, and how it was meanwhile: power, clocks, temperature, memory; and the
   process' own memory. */
#ifndef PARE_TOOLS_TELEMETRY_H
#define PARE_TOOLS_TELEMETRY_H

#include "runtime/exec/exec.h"
#include "tools/options.h"

#include <jansson.h>
#include <stdio.h>

typedef struct pare_watch pare_watch;

/* Begins to read the device's meter ten times a second on a thread of its own. device NULL (the
   CPU) or without a meter: nothing is read. */
PARE_NODISCARD pare_status pare_watch_start(pare_ctx *ctx, pare_watch **out, pare_device *device);

/* Ends it: pare_cpu_info_json of the CPU; {name, cuda, driver, vitals} of a GPU. driver and vitals
   are null where there is no meter; vitals: {readings, power_w, sm_mhz, memory_mhz, temperature_c,
   memory_used_bytes, and of DCGM's host engine, where it watches them, sm_active, tensor_active,
   dram_active, pcie_tx_bytes_per_s, pcie_rx_..., nvlink_tx_..., nvlink_rx_...: {min, mean, max}
   each, power_limit_w, memory_total_bytes, slowed: [text]}, null what is not told. NULL with the
   message set. */
json_t *pare_watch_end(pare_watch *watch);

/* "NVIDIA H200 (sm_90), CUDA 13.0, driver 580.95.05" into text; returns text. */
const char *pare_device_text(const json_t *device, char *text, size_t size);
/* "312 W, limit 700 W, SM 1980 MHz, memory 3201 MHz, 51 C, 50.0 GB used, SM active 83 %, tensor
   cores 41 %, memory 55 %; slowed by: power limit" into text, "" without vitals; returns text. */
const char *pare_telemetry_text(const json_t *device, char *text, size_t size);

/* --- memory, said before long work begins: what the process holds once its plans are made, and
   what they will touch when they run --- */

/* Bytes of this process that are in memory now; 0 where the system does not say. */
size_t pare_resident_memory(void);

/* Greatest resident size of this process so far, bytes. */
int64_t pare_peak_memory(void);

/* One line, "needs about 240 MB of memory", unless quiet, and "planned_memory_bytes" in the facts.
   to_come: bytes that will be touched beyond those that are resident now. */
void pare_log_memory(pare_tool *tool, size_t to_come);

/* The same of the memory of the tool's device, "planned_device_memory_bytes". */
void pare_log_device_memory(pare_tool *tool, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Which device computed, and how it was meanwhile: power, clocks, temperature, memory. */
#ifndef PARE_TOOLS_VITALS_H
#define PARE_TOOLS_VITALS_H

#include "runtime/exec/exec.h"

#include <jansson.h>
#include <stdio.h>

typedef struct pare_watch pare_watch;

/* Begins to read the device's meter ten times a second on a thread of its own. device NULL (the
   CPU) or without a meter: nothing is read. */
PARE_NODISCARD pare_status pare_watch_start(pare_ctx *ctx, pare_watch **out, pare_device *device);

/* Ends it: pare_cpu_info_json of the CPU; {name, cuda, driver, vitals} of a GPU. driver and vitals
   are null where there is no meter; vitals: {readings, power_w, sm_mhz, memory_mhz, temperature_c,
   memory_used_bytes: {min, mean, max} each, power_limit_w, memory_total_bytes, slowed: [text]},
   null what is not told. NULL with the message set. */
json_t *pare_watch_end(pare_watch *watch);

/* "NVIDIA H200 (sm_90), CUDA 13.0, driver 580.95.05" into text; returns text. */
const char *pare_device_text(const json_t *device, char *text, size_t size);
/* "312 W of 700 W, SM 1980 MHz, memory 3201 MHz, 51 C, 50.0 GB used; slowed by: power limit" into
   text, "" without vitals; returns text. */
const char *pare_telemetry_text(const json_t *device, char *text, size_t size);
#endif

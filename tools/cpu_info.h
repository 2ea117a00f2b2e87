/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor of this machine is. */
#ifndef PARE_TOOLS_CPU_INFO_H
#define PARE_TOOLS_CPU_INFO_H

#include <jansson.h>
#include <stdbool.h>

/* {name: "cpu", processor, cores, isa, mhz}: as /proc/cpuinfo has them; mhz is the mean of the
   cores' clocks at this moment, null where the kernel does not tell. NULL: out of memory. */
json_t *pare_cpu_info_json(void);

/* "Intel Xeon ..., 2 cores, AVX2, 2600 MHz" of that into text, its name where it says no more;
   returns text. */
const char *pare_cpu_info_text(const json_t *device, char *text, size_t size);

/* What tells devices apart in tables: "Intel Xeon ... (AVX2)", a GPU's name, "cpu" where facts say
   no more; into text, "" without a device; returns text. */
const char *pare_device_label(const json_t *device, char *text, size_t size);

/* The widest instruction set that kernels ask for. *vnni: it multiplies 8-bit integers. */
const char *pare_cpu_info_isa(bool *vnni);

/* The value after the first "key ... :" in a file of such lines, or "". */
void pare_line_value(const char *path, const char *key, char *text, size_t size);
#endif

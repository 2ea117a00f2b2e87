/* SPDX-License-Identifier: Apache-2.0 */
/* Peak memory, said before long work begins: what the process holds once its plans are made, and
   what they will touch when they run. */
#ifndef PARE_TOOLS_MEMORY_H
#define PARE_TOOLS_MEMORY_H

#include "tools/options.h"

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

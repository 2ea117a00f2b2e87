/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/memory.h"

#include "tools/table.h"
#include "tools/text.h"

#include <sys/resource.h>
#include <unistd.h>

size_t pare_resident_memory(void)
{
    unsigned long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lu %lu", &all, &resident) != 2) resident = 0;
    fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

int64_t pare_peak_memory(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (int64_t)usage.ru_maxrss * 1024;
}

void pare_log_memory(pare_tool *tool, size_t to_come)
{
    char text[32];
    size_t peak = (size_t)pare_peak_memory(), need = pare_resident_memory() + to_come;
    if (need < peak) need = peak;
    json_object_set_new(tool->facts, "planned_memory_bytes", json_integer((json_int_t)need));
    if (!tool->common->quiet)
        pare_print(stderr, "needs about %s of memory\n",
                   pare_bytes_text((double)need, text, sizeof text));
}

void pare_log_device_memory(pare_tool *tool, size_t bytes)
{
    char text[32];
    json_object_set_new(tool->facts, "planned_device_memory_bytes",
                        json_integer((json_int_t)bytes));
    if (!tool->common->quiet)
        pare_print(stderr, "needs about %s of the memory of %s\n",
                   pare_bytes_text((double)bytes, text, sizeof text), tool->device->name);
}

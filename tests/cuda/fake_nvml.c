/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the names of NVML and its strictness: calls before nvmlInit_v2, unknown buses and
   sensors, short buffers and wrong handles are refused. FAKE_WITHOUT leaves what only some drivers
   have out. Readings are fixed: those that the tests expect. */
#include "runtime/cuda/device/nvml_api.h"

#include <string.h>

enum { UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

static int begun;
static char gpu; /* its address is the handle */

#define DECLARE(name, symbol, parameters) int symbol parameters;
PARE_NVML_FUNCTIONS(DECLARE)
#undef DECLARE

static int refused(const void *device, const void *out)
{
    return begun <= 0 ? UNINITIALIZED : device != &gpu || !out ? INVALID : 0;
}

static int answer(const void *device, unsigned *out, unsigned value)
{
    int code = refused(device, out);
    if (!code) *out = value;
    return code;
}

int nvmlInit_v2(void)
{
    begun++;
    return 0;
}

int nvmlShutdown(void)
{
    if (begun <= 0) return UNINITIALIZED;
    begun--;
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    static const char version[] = "580.95.05";
    if (begun <= 0) return UNINITIALIZED;
    if (!text) return INVALID;
    if (size < sizeof version) return TOO_SMALL;
    memcpy(text, version, sizeof version);
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    if (begun <= 0) return UNINITIALIZED;
    if (!bus || !device) return INVALID;
    if (strcmp(bus, "00000000:01:00.0") != 0) return NOT_FOUND;
    *device = &gpu;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    return answer(device, milliwatts, 312500);
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    return answer(device, milliwatts, 700000);
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz)
{
    if (clock != PARE_NVML_CLOCK_SM && clock != PARE_NVML_CLOCK_MEMORY) return INVALID;
    return answer(device, mhz, clock == PARE_NVML_CLOCK_SM ? 1980 : 3201);
}

#ifdef FAKE_WITHOUT
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)device, (void)sensor, (void)celsius;
    return NOT_SUPPORTED;
}
#else
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    return sensor == PARE_NVML_TEMPERATURE_GPU ? answer(device, celsius, 51) : INVALID;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits)
{
    int code = refused(device, bits);
    if (!code) *bits = 0x4 | 0x20;
    return code;
}
#endif

int nvmlDeviceGetMemoryInfo(void *device, pare_nvml_memory *out)
{
    int code = refused(device, out);
    if (!code)
        *out = (pare_nvml_memory){.total = 150ull << 30, .free = 100ull << 30, .used = 50ull << 30};
    return code;
}

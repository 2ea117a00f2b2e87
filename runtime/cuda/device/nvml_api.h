/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML, the library of NVIDIA's driver that watches GPUs, which pare calls. It is
   opened at run time, so that neither its header is needed to build nor the library to start. Types
   are those of the C calling convention; a test compares all of it with NVIDIA's header where that
   is. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_NVML_API_H
#define PARE_RUNTIME_CUDA_DEVICE_NVML_API_H

#ifdef __cplusplus
extern "C" {
#endif

enum { PARE_NVML_SUCCESS = 0 };
enum { PARE_NVML_CLOCK_SM = 1, PARE_NVML_CLOCK_MEMORY = 2 }; /* nvmlClockType_t */
enum { PARE_NVML_TEMPERATURE_GPU = 0 };                      /* nvmlTemperatureSensors_t */

/* nvmlMemory_t, bytes */
typedef struct pare_nvml_memory {
    unsigned long long total, free, used;
} pare_nvml_memory;

/* X(name, symbol, parameters): every function returns a status. Power is in milliwatts, clocks in
   MHz, temperatures in degrees Celsius. */
#define PARE_NVML_FUNCTIONS(X)                                                                     \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(shutdown, nvmlShutdown, (void))                                                              \
    X(driver, nvmlSystemGetDriverVersion, (char *text, unsigned size))                             \
    X(by_bus, nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, void **device))                  \
    X(power, nvmlDeviceGetPowerUsage, (void *device, unsigned *milliwatts))                        \
    X(power_limit, nvmlDeviceGetEnforcedPowerLimit, (void *device, unsigned *milliwatts))          \
    X(clock, nvmlDeviceGetClockInfo, (void *device, int clock, unsigned *mhz))                     \
    X(temperature, nvmlDeviceGetTemperature, (void *device, int sensor, unsigned *celsius))        \
    X(memory, nvmlDeviceGetMemoryInfo, (void *device, pare_nvml_memory *out))                      \
    X(slowed, nvmlDeviceGetCurrentClocksEventReasons, (void *device, unsigned long long *bits))

/* A function that the library lacks is NULL, but for the first four. */
typedef struct pare_nvml_api {
#define PARE_NVML_FIELD(name, symbol, parameters) int(*name) parameters;
    PARE_NVML_FUNCTIONS(PARE_NVML_FIELD)
#undef PARE_NVML_FIELD
} pare_nvml_api;

#ifdef __cplusplus
}
#endif
#endif

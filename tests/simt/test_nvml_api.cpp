// SPDX-License-Identifier: Apache-2.0
// runtime/cuda/device/nvml_api.h against NVIDIA's header: built and run where a toolkit has it.
#include <cstdio>
#include <nvml.h>
#include <cstddef>
#include "runtime/cuda/device/nvml_api.h"
#include "runtime/device/telemetry.h"
#include "same_call.h"

#define SAME_CALL(name, symbol, parameters)                                                        \
    static_assert(same_call<decltype(pare_nvml_api::name), std::decay_t<decltype(symbol)>>::value, \
                  #symbol);
PARE_NVML_FUNCTIONS(SAME_CALL)

#define SAME(ours, theirs) static_assert(static_cast<long long>(ours) == theirs, #theirs)
SAME(PARE_NVML_SUCCESS, NVML_SUCCESS);
SAME(PARE_NVML_CLOCK_SM, NVML_CLOCK_SM);
SAME(PARE_NVML_CLOCK_MEMORY, NVML_CLOCK_MEM);
SAME(PARE_NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_GPU);
SAME(sizeof(pare_nvml_memory), sizeof(nvmlMemory_t));
SAME(offsetof(pare_nvml_memory, total), offsetof(nvmlMemory_t, total));
SAME(offsetof(pare_nvml_memory, used), offsetof(nvmlMemory_t, used));

// Every bit that NVIDIA names has a text of ours.
#define BIT(bit, text) | bit
static_assert((0 PARE_SLOWED(BIT)) == nvmlClocksEventReasonAll, "reasons");
SAME(0x4, nvmlClocksEventReasonSwPowerCap);
SAME(0x8, nvmlClocksThrottleReasonHwSlowdown);
SAME(0x20, nvmlClocksEventReasonSwThermalSlowdown);
SAME(0x40, nvmlClocksThrottleReasonHwThermalSlowdown);
SAME(0x80, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
SAME(0x400, nvmlClocksEventReasonReliability);

int main()
{
    puts("the functions of NVML are declared as its header declares them");
    return 0;
}

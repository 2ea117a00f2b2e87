// SPDX-License-Identifier: Apache-2.0
// runtime/cuda/device/dcgm_api.h against NVIDIA's headers: built and run where they are.
#include <cstdio>
#include <dcgm_agent.h>
#include <cstddef>
#include "runtime/cuda/device/dcgm_api.h"
#include "same_call.h"

#define SAME_CALL(name, symbol, parameters)                                                        \
    static_assert(same_call<decltype(pare_dcgm_api::name), std::decay_t<decltype(symbol)>>::value, \
                  #symbol);
PARE_DCGM_FUNCTIONS(SAME_CALL)

#define SAME(ours, theirs) static_assert(static_cast<long long>(ours) == theirs, #theirs)
SAME(PARE_DCGM_OK, DCGM_ST_OK);
SAME(PARE_DCGM_GPU, DCGM_FE_GPU);
SAME(PARE_DCGM_LIVE, DCGM_FV_FLAG_LIVE_DATA);
SAME(PARE_DCGM_MOST_GPUS, DCGM_MAX_NUM_DEVICES);
SAME(PARE_DCGM_FLOAT, DCGM_FT_DOUBLE);
SAME(PARE_DCGM_INTEGER, DCGM_FT_INT64);
SAME(PARE_DCGM_TEXT, DCGM_FT_STRING);
SAME(PARE_DCGM_FLOAT_BLANK, DCGM_FP64_BLANK);
SAME(PARE_DCGM_INTEGER_BLANK, DCGM_INT64_BLANK);
SAME(PARE_DCGM_BUS, DCGM_FI_DEV_PCI_BUSID);
SAME(PARE_DCGM_SM, DCGM_FI_PROF_SM_ACTIVE);
SAME(PARE_DCGM_TENSOR, DCGM_FI_PROF_PIPE_TENSOR_ACTIVE);
SAME(PARE_DCGM_DRAM, DCGM_FI_PROF_DRAM_ACTIVE);
SAME(PARE_DCGM_PCIE_TX, DCGM_FI_PROF_PCIE_TX_BYTES);
SAME(PARE_DCGM_PCIE_RX, DCGM_FI_PROF_PCIE_RX_BYTES);
SAME(PARE_DCGM_NVLINK_TX, DCGM_FI_PROF_NVLINK_TX_BYTES);
SAME(PARE_DCGM_NVLINK_RX, DCGM_FI_PROF_NVLINK_RX_BYTES);
SAME(sizeof(pare_dcgm_entity), sizeof(dcgmGroupEntityPair_t));
SAME(sizeof(pare_dcgm_value), sizeof(dcgmFieldValue_v2));
SAME(offsetof(pare_dcgm_value, kind), offsetof(dcgmFieldValue_v2, entityGroupId));
SAME(offsetof(pare_dcgm_value, id), offsetof(dcgmFieldValue_v2, entityId));
SAME(offsetof(pare_dcgm_value, field), offsetof(dcgmFieldValue_v2, fieldId));
SAME(offsetof(pare_dcgm_value, type), offsetof(dcgmFieldValue_v2, fieldType));
SAME(offsetof(pare_dcgm_value, status), offsetof(dcgmFieldValue_v2, status));
SAME(offsetof(pare_dcgm_value, time), offsetof(dcgmFieldValue_v2, ts));
SAME(offsetof(pare_dcgm_value, as), offsetof(dcgmFieldValue_v2, value));

int main() { puts("the functions of DCGM are declared as its header declares them"); }

/* SPDX-License-Identifier: Apache-2.0 */
/* A library with the names of NCCL: each function but the version's, which FAKE_NCCL_VERSION in the
   environment sets, gives its number in the list. FAKE_WITHOUT leaves out what came with 2.14. */
#include "runtime/cuda/comm/nccl_api.h"

#include <stdlib.h>

#ifndef FAKE_WITHOUT
int ncclCommFinalize(void) { return 103; }
#endif
#define NUMBERED(symbol, number)                                                                   \
    int symbol(void);                                                                              \
    int symbol(void) { return number; }
NUMBERED(ncclGetUniqueId, 101)
NUMBERED(ncclCommInitRankConfig, 102)
NUMBERED(ncclCommDestroy, 104)
NUMBERED(ncclCommAbort, 105)
NUMBERED(ncclCommGetAsyncError, 106)
NUMBERED(ncclGroupStart, 108)
NUMBERED(ncclGroupEnd, 109)
NUMBERED(ncclSend, 110)
NUMBERED(ncclRecv, 111)

int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : 22703;
    return *version ? 0 : 2;
}

const char *ncclGetErrorString(int status);
const char *ncclGetErrorString(int status) { return status == 2 ? "a fake's error" : "?"; }

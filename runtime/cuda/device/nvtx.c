/* SPDX-License-Identifier: Apache-2.0 */
/* Named ranges for tools that watch a program (NVTX 3, which is headers only: without a tool each
   call is a test of one pointer). A toolkit without the headers leaves them out. */
#include "runtime/cuda/device/stream.h"

#if defined __has_include
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define RANGES 1
#endif
#endif

#ifdef RANGES
void pare_cuda_range_begin(const char *name) { (void)nvtxRangePushA(name); }

void pare_cuda_range_end(void) { (void)nvtxRangePop(); }
#else
void pare_cuda_range_begin(const char *name) { (void)name; }

void pare_cuda_range_end(void) {}
#endif

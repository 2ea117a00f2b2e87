/* SPDX-License-Identifier: Apache-2.0 */
/* What devices can do. */
#include "runtime/eval/roofline.h"

#include <stdio.h>
#include <string.h>

/* SMs, shared memory: NVIDIA H100 Tensor Core GPU Architecture (whitepaper, 2022), SXM5; 128 bytes
   a cycle and SM: CUDA C++ best practices guide, 32 banks of 4 bytes. Multiply-adds: datasheets of
   the H100 SXM and the H200 SXM, dense, halves of their operations: 1,979 T of INT8, 989 T of
   FP16, 67 T of FP32. HBM: what kernels that only move bytes reached on an H200 (2.76 TB/s in
   copies, 2.8 to 3.1 in casts and histograms, 2026-11-26), the H100's in the ratio of the
   datasheets' 3.35 and 4.8 TB/s. Clock: 1.755 GHz, the boost clock of the whitepaper's SXM5 tables.
   Host: PCIe 5.0 x16, 64 GB/s, of which copies from pinned memory reach 55. Reached: ResNet-50's
   layers by mma.sync took 1.5 to 1.65 of a grid's modelled time on an H200 (2026-11-26). */
static const pare_gpu_spec specs[] = {
    {"h200", "NVIDIA H200 SXM", 132, 1.755e9, 2.9e12, 55e9, 1979e12 / 2, 989e12 / 2, 67e12 / 2, 128,
     0.65, false},
    {"h100", "NVIDIA H100 SXM", 132, 1.755e9, 2.0e12, 55e9, 1979e12 / 2, 989e12 / 2, 67e12 / 2, 128,
     0.65, false},
};

pare_status pare_gpu_spec_find(pare_ctx *ctx, const pare_gpu_spec **out, const char *name)
{
    char known[128] = "";
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const size_t n = strlen(known);
        if (!strcmp(specs[i].name, name)) {
            *out = &specs[i];
            return PARE_OK;
        }
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", specs[i].name);
    }
    return PARE_FAIL(ctx, USAGE, "no figures of a device '%s'; known are: %s", name, known);
}

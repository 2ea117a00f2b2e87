/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels on trial for one node of a device read and write: some sets of all its tensors, so
   many that together they are larger than the device's L2, up to MOST_SETS. Runs that follow each
   other take another set each, and what is behind the sets is written before, so that each finds
   the cache cold, as a kernel does in a net. Constants are as they are, floats, bytes and bools
   random, other numbers zeros: they may be indices. */
#ifndef PARE_RUNTIME_EXEC_BENCHMARK_MEMORY_H
#define PARE_RUNTIME_EXEC_BENCHMARK_MEMORY_H

#include "runtime/exec/plan.h"

enum { PARE_BENCHMARK_SETS = 8 };

typedef struct pare_benchmark_memory {
    pare_device *device; /* NULL: not open */
    char *memory;        /* (sets, set_bytes), then flush bytes */
    int sets;
    size_t set_bytes, flush;
    pare_arena arena; /* what copies that are not done yet may still read: */
    char *pattern[PARE_DTYPE_COUNT];
} pare_benchmark_memory;

/* PARE_MEMORY where the device has no room for one set; with less than for all there is one, and no
   flush. */
PARE_NODISCARD pare_status pare_benchmark_memory_open(pare_benchmark_memory *out,
                                                      const pare_prep *prep);
void pare_benchmark_memory_close(pare_benchmark_memory *m);

/* Sets the addresses of a set's tensors: in and out have prep's types and shapes. Out 0 is on input
   prep->share where that is not negative. */
void pare_benchmark_memory_place(const pare_benchmark_memory *m, int set, const pare_prep *prep,
                                 pare_view *in, pare_view *out);

/* Puts work into the setup stream that leaves nothing of the sets in the cache, where they are
   small enough to stay there. */
PARE_NODISCARD pare_status pare_benchmark_memory_flush(pare_ctx *ctx,
                                                       const pare_benchmark_memory *m);

#endif

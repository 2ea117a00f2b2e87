/* SPDX-License-Identifier: Apache-2.0 */
/* The part of kernel_benchmark.h that is a device's. */
#ifndef PARE_RUNTIME_EXEC_DEVICE_BENCHMARK_H
#define PARE_RUNTIME_EXEC_DEVICE_BENCHMARK_H

#include "runtime/exec/kernel_benchmark.h"

/* Scratch and events; its calls get their memory. What was made stays for close. */
PARE_NODISCARD pare_status pare_device_benchmark_open(pare_kernel_benchmark *t, pare_view *in,
                                                      pare_view *out);
void pare_device_benchmark_close(pare_kernel_benchmark *t);
PARE_NODISCARD pare_status pare_device_benchmark_time(pare_kernel_benchmark *t, double rival,
                                                      double *seconds);

#endif

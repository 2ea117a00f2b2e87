/* SPDX-License-Identifier: Apache-2.0 */
/* A device for tests: its memory is the host's, but its addresses carry a bit that makes the
   processor refuse them, so that whoever reads them on the host faults at that line. It has no
   kernels; copies are done at once. Counts what is open. */
#ifndef PARE_TESTS_EXEC_FAKE_DEVICE_H
#define PARE_TESTS_EXEC_FAKE_DEVICE_H

#include "runtime/device/device.h"

typedef struct fake_counts {
    long blocks, streams, pinned, events, uploads, downloads;
    long fail_after; /* calls that still succeed; negative: all do */
} fake_counts;

typedef struct fake_device {
    pare_device device; /* first */
    pare_stream setup;
    fake_counts *counts;
} fake_device;

void fake_device_open(fake_device *fake, fake_counts *counts);

#endif

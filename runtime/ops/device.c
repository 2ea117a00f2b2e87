/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ops/device.h"

pare_status pare_device_copy(pare_ctx *ctx, pare_device *device, void **out, const void *data,
                             size_t bytes)
{
    const pare_backend *b = device->backend;
    void *memory;
    PARE_TRY(b->alloc(ctx, device, &memory, bytes));
    pare_status st = b->upload(ctx, device->setup, memory, data, bytes);
    if (st == PARE_OK) st = b->sync(ctx, device->setup);
    if (st != PARE_OK) {
        b->free(device, memory);
        return st;
    }
    *out = memory;
    return PARE_OK;
}

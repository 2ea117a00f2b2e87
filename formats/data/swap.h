/* SPDX-License-Identifier: Apache-2.0 */
/* Byte order: turns the bytes of each element around. */
#ifndef PARE_FORMATS_DATA_SWAP_H
#define PARE_FORMATS_DATA_SWAP_H

#include <stddef.h>
#include <stdint.h>

static inline void pare_swap_bytes(void *data, size_t count, size_t element)
{
    uint8_t *at = (uint8_t *)data;
    for (size_t i = 0; i < count; i++, at += element)
        for (size_t k = 0; k < element / 2; k++) {
            uint8_t low = at[k];
            at[k] = at[element - 1 - k];
            at[element - 1 - k] = low;
        }
}

#endif

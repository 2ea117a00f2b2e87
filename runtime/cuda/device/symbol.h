/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of libraries that are opened at run time. */
#ifndef PARE_RUNTIME_CUDA_DEVICE_SYMBOL_H
#define PARE_RUNTIME_CUDA_DEVICE_SYMBOL_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* Fills the function pointer at out, NULL where the library has no such symbol: C has no cast from
   an object's address to a function's. */
static inline void pare_symbol_find(void *library, const char *symbol, void *out, size_t size)
{
    void *address = dlsym(library, symbol);
    memcpy(out, &address, size);
}

#endif

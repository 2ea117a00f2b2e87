/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/library.h"

#ifdef PARE_GRPC

#include <dlfcn.h>

pare_status pare_grpc_library_open(pare_ctx *ctx, pare_grpc_library *out)
{
    void *library = dlopen(PARE_GRPC, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return PARE_FAIL(ctx, UNSUPPORTED, "gRPC cannot be opened: %s; its library is %s",
                         dlerror(), PARE_GRPC);
#define FIND(name)                                                                                 \
    out->name = (__typeof__(out->name))dlsym(library, #name);                                      \
    if (!out->name) return PARE_FAIL(ctx, UNSUPPORTED, "%s has no function %s", PARE_GRPC, #name);
    PARE_GRPC_FUNCTIONS(FIND)
#undef FIND
    return PARE_OK;
}

#else

typedef int pare_grpc_library_is_not_built; /* a source file is not empty */

#endif

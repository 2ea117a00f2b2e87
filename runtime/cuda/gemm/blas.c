/* SPDX-License-Identifier: Apache-2.0 */
/* The table of blas_api.h filled by the dynamic loader. cuBLAS itself loads cuBLASLt by name, so
   that one is opened first and for all to see: both then come from one place. */
#include "runtime/cuda/gemm/blas.h"
#include "runtime/cuda/device/library.h"

#include <dlfcn.h>
#include <string.h>

static pare_status open_library(pare_ctx *ctx, void **out, const char *folders, const char *name)
{
    const pare_library_place place = {.name = name,
                                      .folders = folders,
                                      .variable = "PARE_CUBLAS",
                                      .wheel = "nvidia/cu13/lib",
                                      .global = true};
    *out = pare_library_open(&place);
    if (*out) return PARE_OK;
    return PARE_FAIL(
        ctx, UNSUPPORTED,
        "%s was not found in %s%sthe loader's path, Python's packages or a toolkit: "
        "install CUDA 13's cuBLAS, or pip install nvidia-cublas and name the folder of "
        "its libraries in PARE_CUBLAS",
        name, folders ? folders : "", folders ? ", " : "");
}

/* A function by its name, as the pointer that the table keeps. */
static pare_status find(pare_ctx *ctx, void *library, const char *symbol, void *out, size_t size)
{
    void *address = dlsym(library, symbol);
    if (!address)
        return PARE_FAIL(ctx, UNSUPPORTED, "the installed cuBLAS has no %s: CUDA 13's is needed",
                         symbol);
    memcpy(out, &address, size);
    return PARE_OK;
}

static pare_status fill(pare_ctx *ctx, pare_blas *b)
{
#define FIND(library, name, symbol, parameters)                                                    \
    PARE_TRY(find(ctx, b->library, #symbol, &b->api.name, sizeof b->api.name));
    PARE_BLAS_FUNCTIONS(FIND)
#undef FIND
    return PARE_OK;
}

pare_status pare_blas_open(pare_ctx *ctx, pare_blas **out, const char *folders)
{
    pare_status status;
    pare_blas *b = pare_alloc(ctx, 1, sizeof *b);
    if (!b) return PARE_MEMORY;
    if ((status = open_library(ctx, &b->lt, folders, "libcublasLt.so.13"))) goto done;
    if ((status = open_library(ctx, &b->blas, folders, "libcublas.so.13"))) goto done;
    if ((status = fill(ctx, b))) goto done;
    *out = b;
    return PARE_OK;
done:
    pare_blas_close(b);
    return status;
}

void pare_blas_close(pare_blas *b)
{
    if (!b) return;
    if (b->blas) dlclose(b->blas);
    if (b->lt) dlclose(b->lt);
    pare_free(b);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of blas_api.h filled by the dynamic loader. cuBLAS itself loads cuBLASLt by name, so
   that one is opened first and for all to see: both then come from one place. */
#include "runtime/cuda/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 1024 };
static const char usual[] = "/usr/local/cuda/lib64:/usr/lib/x86_64-linux-gnu:/opt/cuda/lib64";

/* Opens folder/name for each folder of the list; NULL where none has it. */
static void *open_in(const char *folders, const char *name)
{
    void *library = NULL;
    while (!library && folders && *folders) {
        char path[PATH];
        size_t n = strcspn(folders, ":");
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, folders, name);
        if (n && length > 0 && length < PATH) library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        folders += n + (folders[n] == ':');
    }
    return library;
}

static pare_status open_library(pare_ctx *ctx, void **out, const char *folders, const char *name)
{
    *out = open_in(folders, name);
    if (!*out) *out = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!*out) *out = open_in(usual, name);
    if (*out) return PARE_OK;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "%s was not found in %s%sthe loader's path or a toolkit: install CUDA 13's "
                     "cuBLAS, or pip install nvidia-cublas and name its folder",
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of blas_api.h filled by the dynamic loader. cuBLAS itself loads cuBLASLt by name, so
   that one is opened first and for all to see: both then come from one place. They stay loaded:
   what they register with the driver is not made for less. Where it is looked for: the caller's
   folders, PARE_CUBLAS (folders, ':' between them), the loader's path, wheels of PyPI
   (nvidia-cublas) in an active environment, the user's or the system's packages, toolkits. */
#include "runtime/cuda/gemm/blas.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 1024, LOADED = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE };
static const char *const below_home[] = {
    "VIRTUAL_ENV",  "lib/python3*/site-packages/nvidia/cu13/lib",
    "CONDA_PREFIX", "lib/python3*/site-packages/nvidia/cu13/lib",
    "HOME",         ".local/lib/python3*/site-packages/nvidia/cu13/lib",
    "CUDA_HOME",    "lib64",
};
static const char *const usual[] = {
    "/usr/local/lib/python3*/dist-packages/nvidia/cu13/lib",
    "/usr/local/lib/python3*/site-packages/nvidia/cu13/lib",
    "/usr/local/cuda/lib64",
    "/opt/cuda/lib64",
};

/* Opens folder/name for each folder of the list; NULL where none has it. */
static void *open_in(const char *folders, const char *name)
{
    void *library = NULL;
    while (!library && folders && *folders) {
        char path[PATH];
        size_t n = strcspn(folders, ":");
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, folders, name);
        if (n && length > 0 && length < PATH) library = dlopen(path, LOADED);
        folders += n + (folders[n] == ':');
    }
    return library;
}

static void *open_pattern(const char *pattern, const char *name)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found)) return NULL;
    for (size_t i = 0; !library && i < found.gl_pathc; i++)
        library = open_in(found.gl_pathv[i], name);
    globfree(&found);
    return library;
}

static void *open_installed(const char *name)
{
    void *library = NULL;
    char path[PATH];
    for (size_t i = 0; !library && i < sizeof below_home / sizeof *below_home; i += 2) {
        const char *home = getenv(below_home[i]);
        int length = snprintf(path, sizeof path, "%s/%s", home ? home : "", below_home[i + 1]);
        if (home && *home && length < PATH) library = open_pattern(path, name);
    }
    for (size_t i = 0; !library && i < sizeof usual / sizeof *usual; i++)
        library = open_pattern(usual[i], name);
    return library;
}

static pare_status open_library(pare_ctx *ctx, void **out, const char *folders, const char *name)
{
    *out = open_in(folders, name);
    if (!*out) *out = open_in(getenv("PARE_CUBLAS"), name);
    if (!*out) *out = dlopen(name, LOADED);
    if (!*out) *out = open_installed(name);
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

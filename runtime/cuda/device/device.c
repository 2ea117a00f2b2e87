/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a GPU and its memory. All memory comes from one stream-ordered pool that keeps what it
   was given, so that plans made one after the other do not pay the driver twice. Memory is asked
   for and returned while plans and runners are made and freed, never inside a run; both wait for
   the device. */
#include "runtime/cuda/cuda.h"
#include <dlfcn.h>
#include "runtime/cuda/gemm/blas.h"
#include "runtime/cuda/device/dependent.h"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"
#include "runtime/cuda/device/nvml.h"
#include "runtime/cuda/gemm/blas_device.h"
#include "runtime/cuda/device/stream.h"

#include <stdio.h>
#include <string.h>

typedef struct cuda_device {
    pare_device device; /* first */
    cudaMemPool_t pool;
    size_t limit; /* 0: none */
    pare_cuda_blas_slot blas;
    pare_cuda_dnn_slot dnn;
    uint64_t peers;
} cuda_device;

pare_cuda_blas_slot *pare_cuda_device_blas(pare_device *device)
{
    return &((cuda_device *)device)->blas;
}

pare_cuda_dnn_slot *pare_cuda_device_dnn(pare_device *device)
{
    return &((cuda_device *)device)->dnn;
}

void pare_cuda_allow_dnn(pare_device *device) { pare_cuda_device_dnn(device)->allowed = true; }

bool pare_cuda_allows_dnn(const pare_device *device)
{
    return ((const cuda_device *)device)->dnn.allowed;
}

cudaMemPool_t pare_cuda_device_pool(const pare_device *device)
{
    return ((const cuda_device *)device)->pool;
}

uint64_t *pare_cuda_device_peers(pare_device *device) { return &((cuda_device *)device)->peers; }

static pare_status pool_new(pare_ctx *ctx, cuda_device *d)
{
    struct cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = d->device.index;
    PARE_CUDA_TRY(ctx, cudaMemPoolCreate(&d->pool, &props));
    unsigned long long keep = d->limit ? d->limit : ~0ull;
    PARE_CUDA_TRY(ctx, cudaMemPoolSetAttribute(d->pool, cudaMemPoolAttrReleaseThreshold, &keep));
    return PARE_OK;
}

static void device_close(pare_device *device)
{
    cuda_device *d = (cuda_device *)device;
    if (device->setup) pare_cuda_streams.close(device->setup);
    pare_cuda_blas_close(d->blas.blas);
    pare_cuda_dnn_close(d->dnn.dnn);
    if (d->pool) (void)cudaMemPoolDestroy(d->pool);
    pare_free(d);
}

static pare_status check_code(pare_ctx *ctx, const char *name, int major, int minor)
{
    char code[128];
    pare_cuda_code(code, sizeof code);
    switch (pare_cuda_fits(major, minor)) {
    case PARE_CUDA_NATIVE: break;
    case PARE_CUDA_BY_PTX:
        pare_log(ctx, PARE_LOG_WARNING,
                 "%s: this build has code for %s; the driver compiles the last one at first use, "
                 "which takes a while (PARE_CUDA_ARCHITECTURES=%d%d builds the GPU's own)",
                 name, code, major, minor);
        break;
    case PARE_CUDA_TOO_OLD:
        return PARE_FAIL(ctx, DEVICE,
                         "%s: the GPU is older than what this build has code for: %s; "
                         "use --device cpu",
                         name, code);
    }
    return PARE_OK;
}

static pare_status device_fill(pare_ctx *ctx, cuda_device *d)
{
    struct cudaDeviceProp facts;
    PARE_CUDA_TRY(ctx, cudaSetDevice(d->device.index));
    PARE_CUDA_TRY(ctx, cudaGetDeviceProperties(&facts, d->device.index));
    snprintf(d->device.name, sizeof d->device.name, "%.200s (sm_%d%d)", facts.name, facts.major,
             facts.minor);
    PARE_TRY(check_code(ctx, d->device.name, facts.major, facts.minor));
    int driver = 0;
    PARE_CUDA_TRY(ctx, cudaDriverGetVersion(&driver));
    snprintf(d->device.driver, sizeof d->device.driver, "%d.%d", driver / 1000, driver % 1000 / 10);
    snprintf(d->device.bus, sizeof d->device.bus, "%08x:%02x:%02x.0", (unsigned)facts.pciDomainID,
             (unsigned)facts.pciBusID, (unsigned)facts.pciDeviceID);
    if (d->limit >= facts.totalGlobalMem) d->limit = 0;
    d->device.memory_bytes = d->limit ? d->limit : facts.totalGlobalMem;
    d->device.cache = facts.l2CacheSize > 0 ? (size_t)facts.l2CacheSize : 0;
    if (!facts.memoryPoolsSupported)
        return PARE_FAIL(ctx, DEVICE,
                         "%s: the driver has no memory pools for it, which pare takes its memory "
                         "from (a virtual GPU may lack them); use --device cpu",
                         d->device.name);
    PARE_TRY(pool_new(ctx, d));
    return pare_cuda_streams.open(ctx, &d->device, &d->device.setup);
}

pare_status pare_cuda_open(pare_ctx *ctx, pare_device **out, int index, size_t memory_limit)
{
    int count = 0;
    PARE_CUDA_TRY(ctx, cudaGetDeviceCount(&count));
    if (index < 0 || index >= count)
        return PARE_FAIL(ctx, DEVICE,
                         "GPU %d does not exist: this machine has %d (cuda:0 to cuda:%d)", index,
                         count, count - 1);
    cuda_device *d = pare_alloc(ctx, 1, sizeof *d);
    if (!d) return PARE_MEMORY;
    d->device.backend = &pare_cuda_backend;
    d->device.streams = &pare_cuda_streams;
    d->device.samples = &pare_cuda_samples;
    d->device.training = &pare_cuda_training;
    d->device.sharing = &pare_cuda_sharing;
    d->device.peers = &pare_cuda_peers;
    d->device.ranks = &pare_cuda_ranks;
    d->device.index = index;
    d->limit = memory_limit;
    pare_status st = device_fill(ctx, d);
    if (st != PARE_OK) {
        device_close(&d->device);
        return st;
    }
    *out = &d->device;
    return PARE_OK;
}

static pare_status open_whole(pare_ctx *ctx, pare_device **out, int index)
{
    return pare_cuda_open(ctx, out, index, 0);
}

static pare_status fail_memory(pare_ctx *ctx, const cuda_device *d, size_t bytes,
                               unsigned long long used)
{
    return PARE_FAIL(ctx, MEMORY,
                     "out of GPU memory: %s did not grant %zu bytes: %llu of %s%zu are "
                     "in use",
                     d->device.name, bytes, used, d->limit ? "--memory-limit " : "",
                     d->device.memory_bytes);
}

/* cudaErrorMemoryAllocation where the limit or the GPU does not hold them; *used: bytes in use. */
static cudaError_t grant(const cuda_device *d, void **out, size_t bytes, unsigned long long *used)
{
    cudaError_t error = cudaMemPoolGetAttribute(d->pool, cudaMemPoolAttrUsedMemCurrent, used);
    if (error != cudaSuccess) return error;
    if (d->limit && (*used > d->limit || bytes > d->limit - *used))
        return cudaErrorMemoryAllocation;
    return cudaMallocFromPoolAsync(out, bytes ? bytes : 1, d->pool,
                                   pare_cuda_stream(d->device.setup));
}

static pare_status device_alloc(pare_ctx *ctx, pare_device *device, void **out, size_t bytes)
{
    const cuda_device *d = (cuda_device *)device;
    cudaStream_t stream = pare_cuda_stream(device->setup);
    unsigned long long used = 0;
    PARE_CUDA_TRY(ctx, cudaSetDevice(device->index));
    cudaError_t error = grant(d, out, bytes, &used);
    if (error == cudaErrorMemoryAllocation) { /* what was returned may still be on its way */
        (void)cudaGetLastError();
        PARE_CUDA_TRY(ctx, cudaStreamSynchronize(stream));
        error = grant(d, out, bytes, &used);
    }
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return fail_memory(ctx, d, bytes, used);
    }
    if (error != cudaSuccess) return pare_cuda_fail(ctx, error, "cudaMallocFromPoolAsync");
    error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) return PARE_OK;
    (void)cudaFreeAsync(*out, stream);
    return pare_cuda_fail(ctx, error, "cudaStreamSynchronize");
}

static void device_free(pare_device *device, void *memory)
{
    if (!memory) return;
    /* a run that failed half way may still be at work on it */
    const cudaError_t set = cudaSetDevice(device->index), done = cudaDeviceSynchronize();
    const cudaError_t freed = cudaFreeAsync(memory, pare_cuda_stream(device->setup));
    if (set != cudaSuccess || done != cudaSuccess || freed != cudaSuccess)
        (void)cudaGetLastError(); /* it is not the next launch that failed */
}

static pare_status upload(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                          size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaSetDevice(stream->device->index));
    PARE_CUDA_TRY(
        ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, pare_cuda_stream(stream)));
    return PARE_OK;
}

static pare_status download(pare_ctx *ctx, pare_stream *stream, void *dst, const void *src,
                            size_t bytes)
{
    PARE_CUDA_TRY(
        ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, pare_cuda_stream(stream)));
    return PARE_OK;
}

static pare_status fill(pare_ctx *ctx, pare_stream *stream, void *dst, int byte, size_t bytes)
{
    PARE_CUDA_TRY(ctx, cudaMemsetAsync(dst, byte, bytes, pare_cuda_stream(stream)));
    return PARE_OK;
}

static pare_status sync(pare_ctx *ctx, pare_stream *stream)
{
    PARE_CUDA_TRY(ctx, cudaStreamSynchronize(pare_cuda_stream(stream)));
    return PARE_OK;
}

const pare_backend pare_cuda_backend = {.name = "cuda",
                                        .open = open_whole,
                                        .close = device_close,
                                        .alloc = device_alloc,
                                        .free = device_free,
                                        .upload = upload,
                                        .download = download,
                                        .fill = fill,
                                        .sync = sync};

/* What can be said of GPU support without opening a device. */

static const int built[] = {PARE_CUDA_ARCHITECTURES};
enum { BUILT = sizeof built / sizeof *built };

const char *pare_cuda_code(char *text, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < BUILT && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "sm_%d, ", built[i]);
    if (at < bytes) snprintf(text + at, bytes - at, "PTX of compute_%d", built[0]);
    return text;
}

pare_cuda_fit pare_cuda_fits(int major, int minor)
{
    int device = 10 * major + minor;
    for (int i = 0; i < BUILT; i++) /* machine code serves later minors of its own major */
        if (built[i] / 10 == major && built[i] <= device) return PARE_CUDA_NATIVE;
    return device > built[0] ? PARE_CUDA_BY_PTX : PARE_CUDA_TOO_OLD;
}

int pare_cuda_count(char *why, size_t bytes)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (why && bytes) snprintf(why, bytes, "%s", error ? pare_cuda_reason(error) : "");
    if (error == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}

void pare_cuda_versions(int *runtime, int *driver)
{
    *runtime = *driver = 0;
    (void)cudaRuntimeGetVersion(runtime);
    (void)cudaDriverGetVersion(driver);
    (void)cudaGetLastError();
}

/* "13.1.0", or "none" where the library does not say. */
static const char *version_text(int (*property)(int which, int *value), char *text, size_t bytes)
{
    int part[3] = {0};
    for (int i = 0; i < 3; i++)
        if (!property || property(PARE_BLAS_VERSION_MAJOR + i, &part[i])) return "none";
    snprintf(text, bytes, "%d.%d.%d", part[0], part[1], part[2]);
    return text;
}

void pare_cuda_library_versions(pare_ctx *ctx, pare_device *device, char *text, size_t bytes)
{
    char blas[40], lt[40], dnn[40];
    pare_nvml *meter = NULL;
    const pare_cuda_blas *b = pare_cuda_blas_find(ctx, device);
    const pare_cuda_dnn *n = pare_cuda_dnn_find(ctx, device);
    if (pare_nvml_open(ctx, &meter, device->bus, NULL) != PARE_OK) pare_ctx_clear(ctx);
    const char *driver = meter ? pare_nvml_driver(meter) : "";
    snprintf(text, bytes, "driver %.30s, cuBLAS %s, cuBLASLt %s, cuDNN %s%s",
             driver[0] ? driver : "none",
             version_text(b ? b->api->blas_property : NULL, blas, sizeof blas),
             version_text(b ? b->api->lt_property : NULL, lt, sizeof lt),
             version_text(n ? n->api.property : NULL, dnn, sizeof dnn),
             pare_cuda_dependents_off() ? ", no PDL" : "");
    pare_nvml_close(meter);
}

pare_status pare_cuda_name(pare_ctx *ctx, int index, char *text, size_t bytes, size_t *memory)
{
    struct cudaDeviceProp facts;
    PARE_CUDA_TRY(ctx, cudaGetDeviceProperties(&facts, index));
    snprintf(text, bytes, "%.200s (sm_%d%d)", facts.name, facts.major, facts.minor);
    *memory = facts.totalGlobalMem;
    return PARE_OK;
}

pare_status pare_cuda_blas_path(pare_ctx *ctx, char *text, size_t bytes)
{
    pare_blas *blas;
    Dl_info info;
    void *symbol;
    PARE_TRY(pare_blas_open(ctx, &blas, NULL));
    symbol = dlsym(blas->lt, "cublasLtCreate");
    bool found = symbol && dladdr(symbol, &info) && info.dli_fname;
    snprintf(text, bytes, "%s", found ? info.dli_fname : "found");
    pare_blas_close(blas);
    return PARE_OK;
}

pare_status pare_cuda_dnn_text(pare_ctx *ctx, char *text, size_t bytes)
{
    char version[40];
    pare_dnn_api api;
    Dl_info info;
    void *symbol;
    PARE_TRY(pare_dnn_open(ctx, &api));
    memcpy(&symbol, &api.create, sizeof symbol);
    const bool found = dladdr(symbol, &info) && info.dli_fname;
    snprintf(text, bytes, "%s%s%s", version_text(api.property, version, sizeof version),
             found ? ", " : "", found ? info.dli_fname : "");
    return PARE_OK;
}

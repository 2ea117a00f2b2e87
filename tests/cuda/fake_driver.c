/* SPDX-License-Identifier: Apache-2.0 */
/* A driver without GPUs, as far as cuDNN asks for one while it makes plans for a GPU that need not
   be there: code that was compiled is taken and runs nowhere. */
#define NONE(symbol)                                                                               \
    int symbol(void);                                                                              \
    int symbol(void) { return 100; } /* CUDA_ERROR_NO_DEVICE */
#define DONE(symbol)                                                                               \
    int symbol(void);                                                                              \
    int symbol(void) { return 0; }
#define MADE(symbol)                                                                               \
    int symbol(void **out);                                                                        \
    int symbol(void **out)                                                                         \
    {                                                                                              \
        static int made;                                                                           \
        *out = &made;                                                                              \
        return 0;                                                                                  \
    }

NONE(cuInit)
NONE(cuCtxGetCurrent)
NONE(cuCtxGetLimit)
NONE(cuCtxPopCurrent)
NONE(cuCtxPushCurrent)
NONE(cuDeviceGet)
NONE(cuDeviceGetCount)
NONE(cuLaunchCooperativeKernel)
NONE(cuLaunchKernel)
NONE(cuLaunchKernelEx)
NONE(cuOccupancyMaxPotentialClusterSize)
NONE(cuStreamGetCtx)
DONE(cuGetErrorName)
DONE(cuGetErrorString)
DONE(cuKernelGetAttribute)
DONE(cuKernelSetAttribute)
DONE(cuLibraryUnload)
DONE(cuLinkAddData)
DONE(cuLinkComplete)
DONE(cuLinkDestroy)
DONE(cuModuleUnload)
DONE(cuTensorMapEncodeIm2col)
DONE(cuTensorMapEncodeTiled)
MADE(cuKernelGetFunction)
MADE(cuLibraryGetKernel)
MADE(cuLibraryLoadData)
MADE(cuLibraryLoadFromFile)
MADE(cuLinkCreate)
MADE(cuModuleGetFunction)
MADE(cuModuleLoadData)

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

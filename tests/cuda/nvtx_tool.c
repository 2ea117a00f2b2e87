/* SPDX-License-Identifier: Apache-2.0 */
/* A tool that watches a program through NVTX, as profilers do: NVTX loads it where
   NVTX_INJECTION64_PATH names it. Writes each range to the file NVTX_LOG, indented by its depth; an
   end without a begin is "unbalanced". */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file;
static int depth;

static int NVTX_API push(const char *name)
{
    fprintf(file, "%*s%s\n", 2 * depth, "", name);
    return depth++;
}

static int NVTX_API pop(void)
{
    if (!depth) fputs("unbalanced\n", file);
    fflush(file);
    return depth ? --depth : 0;
}

static void set(NvtxFunctionTable table, unsigned which, const void *function, size_t size)
{
    memcpy((void *)table[which], function, size);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    int(NVTX_API *const begin)(const char *) = push;
    int(NVTX_API *const end)(void) = pop;
    const char *path = getenv("NVTX_LOG");
    unsigned size = 0;
    NvtxFunctionTable table;
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    file = path ? fopen(path, "w") : NULL;
    if (!file || !callbacks ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
        size <= NVTX_CBID_CORE_RangePop)
        return 0;
    set(table, NVTX_CBID_CORE_RangePushA, &begin, sizeof begin);
    set(table, NVTX_CBID_CORE_RangePop, &end, sizeof end);
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A client that has tensors in the emulated GPU's memory: regions "in" and "out" of a desk. */
#ifndef PARE_TESTS_CUDA_REGION_CLIENT_H
#define PARE_TESTS_CUDA_REGION_CLIENT_H

#include "testing.h"
#include "tests/tools/serve_desk.h"
#include "tools/serve/base64.h"

enum { ROW = PIXELS * sizeof(float), LOGITS = CLASSES * sizeof(float) }; /* bytes */

static inline const char *handle_text(void *memory)
{
    static char text[96];
    cudaIpcMemHandle_t handle;
    CUDA_OK(cudaIpcGetMemHandle(&handle, memory));
    pare_base64_put(text, &handle, sizeof handle);
    return text;
}

static inline void enlist(desk *d, const char *name, const char *handle, int gpu, size_t bytes,
                          int code, const char *words)
{
    char path[96], body[256];
    snprintf(path, sizeof path, "/v2/cudasharedmemory/region/%s/register", name);
    snprintf(body, sizeof body,
             "{\"raw_handle\": {\"b64\": \"%s\"}, \"device_id\": %d, \"byte_size\": %zu}", handle,
             gpu, bytes);
    desk_gives(d, "POST", path, body, code, words);
}

static inline void *enlist_new(desk *d, const char *name, const void *host, size_t bytes)
{
    void *memory = device_copy(host, bytes);
    CUDA_OK(cudaDeviceSynchronize()); /* a fill may be under way */
    enlist(d, name, handle_text(memory), 0, bytes, 200, "");
    return memory;
}

static inline void strike(desk *d, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "/v2/cudasharedmemory/region/%s/unregister", name);
    desk_gives(d, "POST", path, "", 200, "");
}

/* Rows from a region; logits into "out" from this offset, or, where that is below 0, in the
   body. */
static inline ask *send_from(desk *d, const char *model, const char *region, int rows, size_t from,
                             long to)
{
    char path[64], output[160], json[768];
    snprintf(path, sizeof path, "/v2/models/%s/infer", model);
    if (to < 0)
        snprintf(output, sizeof output, "\"binary_data\": true");
    else
        snprintf(output, sizeof output,
                 "\"shared_memory_region\": \"out\", \"shared_memory_offset\": %ld, "
                 "\"shared_memory_byte_size\": %zu",
                 to, (size_t)rows * LOGITS);
    snprintf(json, sizeof json,
             "{\"inputs\": [{\"name\": \"input\", \"shape\": [%d, 1, 28, 28], \"datatype\": "
             "\"FP32\", \"parameters\": {\"shared_memory_region\": \"%s\", "
             "\"shared_memory_offset\": %zu, \"shared_memory_byte_size\": %zu}}], \"outputs\": "
             "[{\"name\": \"logits\", \"parameters\": {%s}}]}",
             rows, region, from, (size_t)rows * ROW, output);
    return desk_send(d, "POST", path, json, strlen(json), strlen(json));
}

static inline ask *send_region(desk *d, const char *model, int rows, size_t from, long to)
{
    return send_from(d, model, "in", rows, from, to);
}

/* The reply says that the logits are in the region. */
static inline void await_put(ask *a)
{
    static const char words[] = "\"shared_memory_region\":\"out\"";
    ask_await(a);
    const pare_reply *r = &a->x.reply;
    if (r->code != 200) fail_msg("%d %.*s", r->code, (int)r->bytes, r->body);
    assert_non_null(memmem(r->body, r->bytes, words, sizeof words - 1));
    ask_forget(a);
}

static inline void fetch_logits(const void *out, size_t from, int rows, float *logits)
{
    CUDA_OK(cudaMemcpy(logits, (const char *)out + from, (size_t)rows * LOGITS,
                       cudaMemcpyDeviceToHost));
}
#endif

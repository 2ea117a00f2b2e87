/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/gpu/gpus.h"

#include "runtime/exec/exec.h"

#include <stdio.h>

struct pare_gpus {
    size_t memory_limit;
    pthread_mutex_t lock; /* of what follows */
    pare_gpu **gpu;       /* (count) in the order in which they were opened */
    size_t count, capacity;
    bool has_first; /* the first is the caller's */
};

enum { MOST_PINNED = 256 << 20 }; /* bytes of bodies' memory on a GPU's behalf */

/* Not while someone may record, or makes or frees plans: then bodies are in ordinary memory. */
static void *pin(void *user, size_t bytes)
{
    pare_ctx quiet;
    pare_gpu *gpu = user;
    void *memory = NULL;
    pare_ctx_init(&quiet);
    if (pthread_mutex_trylock(&gpu->making)) return NULL;
    if (gpu->device->streams->pin(&quiet, gpu->device, &memory, bytes) != PARE_OK) memory = NULL;
    (void)pthread_mutex_unlock(&gpu->making);
    return memory;
}

/* A free would end what is being recorded. */
static bool unpin(void *user, void *memory)
{
    pare_gpu *gpu = user;
    if (pthread_mutex_trylock(&gpu->making)) return false;
    gpu->device->streams->unpin(gpu->device, memory);
    (void)pthread_mutex_unlock(&gpu->making);
    return true;
}

/* Takes the device where it succeeds. */
static pare_status add(pare_gpus *g, pare_ctx *ctx, pare_device *device)
{
    if (!pare_grow(ctx, &g->gpu, &g->capacity, g->count, sizeof(pare_gpu *))) return PARE_MEMORY;
    pare_gpu *one = pare_alloc(ctx, 1, sizeof *one);
    if (!one) return PARE_MEMORY;
    one->device = device;
    (void)pthread_mutex_init(&one->making, NULL); /* on Linux it does not fail */
    pare_bodies_init_pinned(&one->pinned, MOST_PINNED, pin, unpin, one);
    g->gpu[g->count++] = one;
    return PARE_OK;
}

pare_status pare_gpus_new(pare_ctx *ctx, pare_gpus **out, pare_device *first, size_t memory_limit)
{
    pare_gpus *g = pare_alloc(ctx, 1, sizeof *g);
    if (!g) return PARE_MEMORY;
    g->memory_limit = memory_limit;
    g->has_first = first != NULL;
    (void)pthread_mutex_init(&g->lock, NULL);
    const pare_status st = first ? add(g, ctx, first) : PARE_OK;
    if (st == PARE_OK)
        *out = g;
    else
        pare_gpus_free(g);
    return st;
}

void pare_gpus_free(pare_gpus *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->count; i++) {
        pare_bodies_free(&g->gpu[i]->pinned);
        if (i || !g->has_first) pare_device_close(g->gpu[i]->device);
        (void)pthread_mutex_destroy(&g->gpu[i]->making);
        pare_free(g->gpu[i]);
    }
    pare_free(g->gpu);
    (void)pthread_mutex_destroy(&g->lock);
    pare_free(g);
}

pare_gpu *pare_gpus_first(pare_gpus *g) { return g->has_first ? g->gpu[0] : NULL; }

/* Under the lock. */
static pare_gpu *find(const pare_gpus *g, int64_t index)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->gpu[i]->device->index == index) return g->gpu[i];
    return NULL;
}

pare_gpu *pare_gpus_find(pare_gpus *g, int64_t index)
{
    (void)pthread_mutex_lock(&g->lock);
    pare_gpu *found = find(g, index);
    (void)pthread_mutex_unlock(&g->lock);
    return found;
}

static pare_status open_gpu(pare_gpus *g, pare_ctx *ctx, int index)
{
    char name[32];
    pare_device *device;
    snprintf(name, sizeof name, "cuda:%d", index);
    PARE_TRY(pare_device_open_within(ctx, &device, name, g->memory_limit));
    const pare_status st = add(g, ctx, device);
    if (st != PARE_OK) pare_device_close(device);
    return st;
}

pare_status pare_gpus_get(pare_gpus *g, pare_ctx *ctx, pare_gpu **out, int index)
{
    pare_status st = PARE_OK;
    *out = NULL;
    if (index < 0 && (*out = pare_gpus_first(g))) return PARE_OK;
    if (index < 0) index = 0;
    (void)pthread_mutex_lock(&g->lock);
    *out = find(g, index);
    if (!*out && (st = open_gpu(g, ctx, index)) == PARE_OK) *out = g->gpu[g->count - 1];
    (void)pthread_mutex_unlock(&g->lock);
    return st;
}

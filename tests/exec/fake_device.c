/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exec/fake_device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Not deterministic on x86-64 nor translated on AArch64: a dereference faults. */
static const uintptr_t FOREIGN = (uintptr_t)1 << 60;

struct pare_event {
    fake_counts *counts;
    struct timespec at;
};

static fake_counts *counts_of(const pare_device *d) { return ((const fake_device *)d)->counts; }

static void *here(const void *there) { return (void *)((uintptr_t)there ^ FOREIGN); }

static pare_status allowed(pare_ctx *ctx, const pare_device *d)
{
    fake_counts *c = counts_of(d);
    if (c->fail_after == 0) return PARE_FAIL(ctx, DEVICE, "fake device: told to fail");
    if (c->fail_after > 0) c->fail_after--;
    return PARE_OK;
}

static pare_status fake_alloc(pare_ctx *ctx, pare_device *d, void **out, size_t bytes)
{
    PARE_TRY(allowed(ctx, d));
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) return PARE_MEMORY;
    memset(memory, 0xff, bytes);
    counts_of(d)->blocks++;
    *out = here(memory);
    return PARE_OK;
}

static void fake_free(pare_device *d, void *memory)
{
    if (!memory) return;
    counts_of(d)->blocks--;
    free(here(memory));
}

static pare_status fake_upload(pare_ctx *ctx, pare_stream *q, void *dst, const void *src,
                               size_t bytes)
{
    PARE_TRY(allowed(ctx, q->device));
    counts_of(q->device)->uploads++;
    memcpy(here(dst), src, bytes);
    return PARE_OK;
}

static pare_status fake_download(pare_ctx *ctx, pare_stream *q, void *dst, const void *src,
                                 size_t bytes)
{
    PARE_TRY(allowed(ctx, q->device));
    counts_of(q->device)->downloads++;
    memcpy(dst, here(src), bytes);
    return PARE_OK;
}

static pare_status fake_fill(pare_ctx *ctx, pare_stream *q, void *dst, int byte, size_t bytes)
{
    PARE_TRY(allowed(ctx, q->device));
    memset(here(dst), byte, bytes);
    return PARE_OK;
}

static pare_status fake_sync(pare_ctx *ctx, pare_stream *q) { return allowed(ctx, q->device); }

static pare_status stream_open(pare_ctx *ctx, pare_device *d, pare_stream **out)
{
    PARE_TRY(allowed(ctx, d));
    *out = malloc(sizeof **out);
    if (!*out) return PARE_MEMORY;
    (*out)->device = d;
    counts_of(d)->streams++;
    return PARE_OK;
}

static void stream_close(pare_stream *q)
{
    counts_of(q->device)->streams--;
    free(q);
}

static pare_status stream_enter(pare_ctx *ctx, pare_device *d) { return allowed(ctx, d); }

static pare_status stream_pin(pare_ctx *ctx, pare_device *d, void **out, size_t bytes)
{
    PARE_TRY(allowed(ctx, d));
    *out = malloc(bytes ? bytes : 1);
    if (!*out) return PARE_MEMORY;
    counts_of(d)->pinned++;
    return PARE_OK;
}

static void stream_unpin(pare_device *d, void *memory)
{
    counts_of(d)->pinned--;
    free(memory);
}

static pare_status event_open(pare_ctx *ctx, pare_device *d, pare_event **out)
{
    PARE_TRY(allowed(ctx, d));
    *out = calloc(1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    (*out)->counts = counts_of(d);
    counts_of(d)->events++;
    return PARE_OK;
}

static void event_close(pare_event *event)
{
    event->counts->events--;
    free(event);
}

static pare_status event_mark(pare_ctx *ctx, pare_stream *q, pare_event *event)
{
    PARE_TRY(allowed(ctx, q->device));
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return PARE_OK;
}

static pare_status event_seconds(pare_ctx *ctx, pare_event *from, pare_event *to, double *out)
{
    (void)ctx;
    *out = (double)(to->at.tv_sec - from->at.tv_sec) +
           1e-9 * (double)(to->at.tv_nsec - from->at.tv_nsec);
    return PARE_OK;
}

static const pare_backend backend = {.name = "fake",
                                     .alloc = fake_alloc,
                                     .free = fake_free,
                                     .upload = fake_upload,
                                     .download = fake_download,
                                     .fill = fake_fill,
                                     .sync = fake_sync};

static const pare_stream_table streams = {.open = stream_open,
                                          .close = stream_close,
                                          .enter = stream_enter,
                                          .pin = stream_pin,
                                          .unpin = stream_unpin,
                                          .event_open = event_open,
                                          .event_close = event_close,
                                          .event_mark = event_mark,
                                          .event_seconds = event_seconds};

void fake_device_open(fake_device *fake, fake_counts *counts)
{
    *counts = (fake_counts){.fail_after = -1};
    *fake = (fake_device){.device = {.backend = &backend, .streams = &streams, .name = "fake"},
                          .setup = {&fake->device},
                          .counts = counts};
    fake->device.setup = &fake->setup;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of work. On a device each has two events in its stream, and times are distances from an
   event that was reached before any of them; on the CPU the clock is read. */
#include "runtime/exec/exec.h"
#include "runtime/base/clock.h"

typedef struct mark {
    pare_event *from, *to; /* NULL on the CPU */
    pare_stream *stream;
    bool open;
} mark;

struct pare_timeline {
    pare_ctx *ctx;
    pare_device *device;
    pare_event *zero;
    double start; /* of the clock */
    pare_span *span;
    mark *mark; /* of each span */
    int count;
    size_t span_capacity, mark_capacity;
};

static pare_status zero_mark(pare_timeline *t)
{
    pare_device *d = t->device;
    PARE_TRY(d->streams->event_open(t->ctx, d, &t->zero));
    PARE_TRY(d->streams->event_mark(t->ctx, d->setup, t->zero));
    return d->backend->sync(t->ctx, d->setup);
}

pare_status pare_timeline_new(pare_ctx *ctx, pare_timeline **out, pare_device *device)
{
    pare_timeline *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->ctx = ctx;
    t->device = device;
    t->start = pare_seconds();
    pare_status st = device ? zero_mark(t) : PARE_OK;
    if (st == PARE_OK)
        *out = t;
    else
        pare_timeline_free(t);
    return st;
}

void pare_timeline_free(pare_timeline *t)
{
    if (!t) return;
    for (int i = 0; i < t->count; i++) {
        if (t->mark[i].from) t->device->streams->event_close(t->mark[i].from);
        if (t->mark[i].to) t->device->streams->event_close(t->mark[i].to);
    }
    if (t->zero) t->device->streams->event_close(t->zero);
    pare_free(t->span);
    pare_free(t->mark);
    pare_free(t);
}

pare_status pare_timeline_begin(pare_timeline *t, pare_stream *stream, const pare_span *what)
{
    size_t n = (size_t)t->count;
    if (!pare_grow(t->ctx, &t->span, &t->span_capacity, n, sizeof *t->span) ||
        !pare_grow(t->ctx, &t->mark, &t->mark_capacity, n, sizeof *t->mark))
        return PARE_MEMORY;
    mark *m = &t->mark[t->count];
    t->span[t->count++] = *what;
    *m = (mark){.stream = stream, .open = true};
    if (!stream) {
        t->span[n].start = pare_seconds() - t->start;
        return PARE_OK;
    }
    const pare_stream_table *q = t->device->streams;
    PARE_TRY(q->event_open(t->ctx, t->device, &m->from));
    PARE_TRY(q->event_open(t->ctx, t->device, &m->to));
    return q->event_mark(t->ctx, stream, m->from);
}

pare_status pare_timeline_end(pare_timeline *t, pare_stream *stream)
{
    int i = t->count - 1;
    while (i >= 0 && (!t->mark[i].open || t->mark[i].stream != stream)) i--;
    if (i < 0) return PARE_OK;
    t->mark[i].open = false;
    if (stream) return t->device->streams->event_mark(t->ctx, stream, t->mark[i].to);
    t->span[i].seconds = pare_seconds() - t->start - t->span[i].start;
    return PARE_OK;
}

pare_status pare_timeline_read(pare_timeline *t)
{
    for (int i = 0; i < t->count; i++) {
        const mark *m = &t->mark[i];
        pare_span *s = &t->span[i];
        if (!m->stream || m->open) continue;
        PARE_TRY(t->device->streams->event_seconds(t->ctx, t->zero, m->from, &s->start));
        PARE_TRY(t->device->streams->event_seconds(t->ctx, m->from, m->to, &s->seconds));
    }
    return PARE_OK;
}

int pare_timeline_count(const pare_timeline *timeline) { return timeline->count; }

const pare_span *pare_timeline_span(const pare_timeline *timeline, int i)
{
    return &timeline->span[i];
}

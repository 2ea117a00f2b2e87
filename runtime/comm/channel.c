/* SPDX-License-Identifier: Apache-2.0 */
/* A channel's two buffers in turn. A sender waits for a buffer before it fills it again. A receiver
   has the next receive begun while its caller works with the message before, so that a message has
   somewhere to go. */
#include "runtime/comm/transport.h"

#include <stdlib.h>

enum { ALIGN = 64, LARGEST = 1 << 30 };

/* Before the data of a message; as long as the data's alignment. */
typedef struct header {
    int64_t kind, number;
    char rest[ALIGN - 2 * sizeof(int64_t)];
} header;

typedef struct slot {
    header *message;
    pare_request request;
    bool busy; /* on its way */
} slot;

struct pare_channel {
    pare_comm *comm;
    slot slot[2];
    int at, other; /* at: the slot that is next */
    size_t bytes;  /* of a message, header included */
    bool sends;
};

static pare_status begin_receive(pare_channel *c)
{
    slot *s = &c->slot[c->at];
    pare_transport *t = c->comm->transport;
    PARE_TRY(pare_comm_checked(c->comm,
                               t->start_receive(t, s->message, c->bytes, c->other, &s->request)));
    s->busy = true;
    return PARE_OK;
}

static pare_status wait_for(pare_channel *c, slot *s)
{
    pare_transport *t = c->comm->transport;
    if (!s->busy) return PARE_OK;
    s->busy = false;
    return pare_comm_checked(c->comm, t->wait(t, &s->request));
}

pare_status pare_channel_open(pare_comm *comm, pare_channel **out, int from, int to, size_t bytes)
{
    if (bytes > LARGEST - sizeof(header))
        return PARE_FAIL(comm->ctx, UNSUPPORTED,
                         "%zu bytes cross from rank %d to rank %d at once, more than 1 GiB; take a "
                         "smaller batch",
                         bytes, from, to);
    pare_channel *c = pare_alloc(comm->ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    *c = (pare_channel){.comm = comm, .sends = comm->rank == from};
    c->other = c->sends ? to : from;
    c->bytes = (bytes + sizeof(header) + ALIGN - 1) / ALIGN * ALIGN;
    for (int i = 0; i < 2; i++) c->slot[i].message = aligned_alloc(ALIGN, c->bytes);
    pare_status st =
        c->slot[0].message && c->slot[1].message
            ? PARE_OK
            : PARE_FAIL(comm->ctx, MEMORY, "out of memory: 2 messages of %zu bytes", c->bytes);
    if (st == PARE_OK)
        *out = c;
    else
        pare_channel_close(c);
    return st;
}

void pare_channel_close(pare_channel *c)
{
    if (!c) return;
    bool left = true;
    for (int i = 0; i < 2; i++) {
        slot *s = &c->slot[i];
        /* a receive that was begun, and that no message ends, keeps its memory */
        if (c->sends && !c->comm->broken) left = wait_for(c, s) == PARE_OK;
        if (left && !s->busy) free(s->message);
    }
    pare_free(c);
}

size_t pare_channel_bytes(const pare_channel *c) { return c ? 2 * c->bytes : 0; }

pare_status pare_channel_next(pare_channel *c, void **data)
{
    PARE_TRY(wait_for(c, &c->slot[c->at]));
    *data = c->slot[c->at].message + 1;
    return PARE_OK;
}

pare_status pare_channel_send(pare_channel *c, pare_channel_kind kind, size_t bytes, int64_t number)
{
    slot *s = &c->slot[c->at];
    pare_transport *t = c->comm->transport;
    s->message->kind = kind;
    s->message->number = number;
    const size_t all = sizeof *s->message + (kind == PARE_CHANNEL_DATA ? bytes : 0);
    PARE_TRY(pare_comm_checked(c->comm, t->start_send(t, s->message, all, c->other, &s->request)));
    s->busy = true;
    c->at ^= 1;
    return PARE_OK;
}

pare_status pare_channel_receive(pare_channel *c, pare_channel_kind *kind, int64_t *number,
                                 const void **data)
{
    slot *s = &c->slot[c->at];
    if (!s->busy) PARE_TRY(begin_receive(c)); /* the first */
    PARE_TRY(wait_for(c, s));
    *kind = (pare_channel_kind)s->message->kind;
    *number = s->message->number;
    *data = s->message + 1;
    c->at ^= 1;
    return *kind == PARE_CHANNEL_END ? PARE_OK : begin_receive(c);
}

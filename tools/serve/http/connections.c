/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/connections.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

/* One of them. Its transport's thread changes state and events, by pare_connection_note alone. */
struct pare_connection {
    pare_connection *previous, *next;
    int fd;
    atomic_int state;
    atomic_uint events;  /* changes with everything that comes of a request */
    unsigned events_old; /* as the last sweep has seen it */
    double since;        /* seconds, when a sweep saw it change; 0: it has seen none */
    bool ended;          /* the last sweep has seen the end of what the client sends */
};

void pare_connections_init(pare_connections *all)
{
    *all = (pare_connections){.first = NULL};
    (void)pthread_mutex_init(&all->lock, NULL);
}

pare_connection *pare_connections_add(pare_connections *all, int fd)
{
    pare_connection *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->fd = fd;
    pthread_mutex_lock(&all->lock);
    c->next = all->first;
    if (c->next) c->next->previous = c;
    all->first = c;
    pthread_mutex_unlock(&all->lock);
    return c;
}

void pare_connections_remove(pare_connections *all, pare_connection *c)
{
    if (!c) return;
    pthread_mutex_lock(&all->lock);
    if (c->next) c->next->previous = c->previous;
    *(c->previous ? &c->previous->next : &all->first) = c->next;
    pthread_mutex_unlock(&all->lock);
    free(c);
}

void pare_connection_note(pare_connection *c, int state)
{
    if (!c) return;
    atomic_store(&c->state, state);
    atomic_fetch_add(&c->events, 1);
}

/* What the socket has, without taking it. */
enum { NOTHING, DATA, END };

static int peek(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return DATA;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? NOTHING : END;
}

/* The end alone says little: the transport may have read a whole request and not noted it yet. */
static void look_at(pare_connection *c, double now, double idle, double stalled)
{
    const unsigned events = atomic_load(&c->events);
    const int state = atomic_load(&c->state);
    const bool is_new = c->since <= 0 || events != c->events_old;
    const bool was_ended = c->ended && !is_new;
    const double most = state == PARE_CONNECTION_COMES ? stalled : idle;
    const int has = state == PARE_CONNECTION_WHOLE ? DATA : peek(c->fd);
    if (is_new) c->since = now;
    c->events_old = events;
    c->ended = has == END;
    if ((has == END && was_ended) || (has == NOTHING && now - c->since >= most))
        (void)shutdown(c->fd, SHUT_RDWR); /* the transport sees it and closes */
}

void pare_connections_sweep(pare_connections *all, double now, double idle, double stalled)
{
    pthread_mutex_lock(&all->lock);
    for (pare_connection *c = all->first; c; c = c->next) look_at(c, now, idle, stalled);
    pthread_mutex_unlock(&all->lock);
}

void pare_connections_free(pare_connections *all)
{
    assert(!all->first);
    (void)pthread_mutex_destroy(&all->lock);
}

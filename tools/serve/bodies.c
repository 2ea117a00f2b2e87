/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/bodies.h"

#include "tools/serve/exchange.h"

#include <stdint.h>
#include <stdlib.h>

enum { SMALLEST = 32 << 10 }; /* bytes of what is kept, and begins with a page */

void pare_bodies_init(pare_bodies *bodies, size_t most)
{
    *bodies = (pare_bodies){.most = most};
    (void)pthread_mutex_init(&bodies->lock, NULL);
}

static void discard(pare_body *body)
{
    free(body->data);
    free(body);
}

void pare_bodies_free(pare_bodies *bodies)
{
    for (pare_body *b = bodies->free, *next; b; b = next) {
        next = b->next;
        discard(b);
    }
    (void)pthread_mutex_destroy(&bodies->lock);
}

/* The first that is large enough and not far too large. */
static pare_body *find(pare_bodies *bodies, size_t bytes)
{
    for (pare_body **at = &bodies->free, *b; (b = *at); at = &b->next) {
        if (b->room < bytes || b->room / 2 > bytes) continue;
        *at = b->next;
        bodies->kept -= b->room;
        return b;
    }
    return NULL;
}

static pare_body *make(size_t bytes)
{
    const size_t align = bytes < SMALLEST ? PARE_BODY_ALIGN : PARE_BODY_PAGE;
    pare_body *body = malloc(sizeof *body);
    if (!body || bytes > SIZE_MAX - align) {
        free(body);
        return NULL;
    }
    const size_t room = (bytes + align - 1) / align * align;
    *body = (pare_body){.data = aligned_alloc(align, room), .room = room};
    if (body->data) return body;
    free(body);
    return NULL;
}

pare_body *pare_bodies_get(pare_bodies *bodies, size_t bytes)
{
    pare_body *body = NULL;
    if (bytes >= SMALLEST) {
        (void)pthread_mutex_lock(&bodies->lock);
        body = find(bodies, bytes);
        (void)pthread_mutex_unlock(&bodies->lock);
    }
    return body ? body : make(bytes ? bytes : 1);
}

/* Takes those that were put first, until so many bytes can be kept. */
static pare_body *make_room(pare_bodies *bodies, size_t bytes)
{
    pare_body *old = NULL;
    while (bodies->free && bytes > bodies->most - bodies->kept) {
        pare_body **at = &bodies->free;
        while ((*at)->next) at = &(*at)->next;
        bodies->kept -= (*at)->room;
        (*at)->next = old;
        old = *at;
        *at = NULL;
    }
    return old;
}

void pare_bodies_put(pare_bodies *bodies, pare_body *body)
{
    if (!body) return;
    pare_body *old = body;
    body->next = NULL;
    if (body->room >= SMALLEST && body->room <= bodies->most) {
        (void)pthread_mutex_lock(&bodies->lock);
        old = make_room(bodies, body->room);
        body->next = bodies->free;
        bodies->free = body;
        bodies->kept += body->room;
        (void)pthread_mutex_unlock(&bodies->lock);
    }
    for (pare_body *next; old; old = next) {
        next = old->next;
        discard(old);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/bodies.h"

#include "tools/serve/exchange.h"

#include <stdint.h>
#include <stdlib.h>

enum {
    PINNED_STEP = 256 << 10, /* bytes: pinned memory is made in multiples, to fit again */
    PINNED_PART = 8          /* of all that may be pinned, one body has at most 1 / PINNED_PART */
};

void pare_bodies_init(pare_bodies *bodies, size_t most)
{
    *bodies = (pare_bodies){.most = most};
    (void)pthread_mutex_init(&bodies->lock, NULL);
}

void pare_bodies_init_pinned(pare_bodies *bodies, size_t most,
                             void *(*pin)(void *user, size_t bytes),
                             bool (*unpin)(void *user, void *memory), void *user)
{
    pare_bodies_init(bodies, most);
    bodies->pin = pin;
    bodies->unpin = unpin;
    bodies->user = user;
}

static void discard(pare_body *body)
{
    if (body->pool->pin)
        (void)body->pool->unpin(body->pool->user, body->data);
    else
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
    pare_body *found = NULL;
    const size_t more = bodies->pin ? PINNED_STEP : 0;
    (void)pthread_mutex_lock(&bodies->lock);
    for (pare_body **at = &bodies->free, *b; (b = *at); at = &b->next) {
        if (b->room < bytes || b->room / 2 > bytes + more) continue;
        *at = b->next;
        if (!bodies->pin) bodies->kept -= b->room;
        found = b;
        break;
    }
    (void)pthread_mutex_unlock(&bodies->lock);
    return found;
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

/* Counts bytes of pinned memory, in place of *old, which is to be unpinned. False: there would be
   too many, whatever goes. */
static bool reserve(pare_bodies *bodies, pare_body **old, size_t bytes)
{
    (void)pthread_mutex_lock(&bodies->lock);
    size_t most = bodies->most - bodies->kept;
    for (const pare_body *b = bodies->free; b; b = b->next) most += b->room;
    const bool good = bytes <= most;
    *old = good ? make_room(bodies, bytes) : NULL;
    if (good) bodies->kept += bytes;
    (void)pthread_mutex_unlock(&bodies->lock);
    return good;
}

/* Takes back what was reserved; what could not be unpinned stays. */
static void give_up(pare_bodies *bodies, pare_body *old, size_t bytes)
{
    (void)pthread_mutex_lock(&bodies->lock);
    bodies->kept -= bytes;
    for (pare_body *next; old; old = next) {
        next = old->next;
        old->next = bodies->free;
        bodies->free = old;
        bodies->kept += old->room;
    }
    (void)pthread_mutex_unlock(&bodies->lock);
}

static void *take_pinned(pare_bodies *bodies, size_t room)
{
    pare_body *old;
    if (!reserve(bodies, &old, room)) return NULL;
    for (pare_body *next; old && bodies->unpin(bodies->user, old->data); old = next) {
        next = old->next;
        free(old);
    }
    void *data = old ? NULL : bodies->pin(bodies->user, room);
    if (!data) give_up(bodies, old, room);
    return data;
}

static pare_body *make(pare_bodies *bodies, size_t bytes)
{
    const size_t align = bodies->pin               ? PINNED_STEP
                         : bytes < PARE_BODY_LARGE ? PARE_BODY_ALIGN
                                                   : PARE_BODY_PAGE;
    pare_body *body = malloc(sizeof *body);
    if (!body || bytes > SIZE_MAX - align) {
        free(body);
        return NULL;
    }
    const size_t room = (bytes + align - 1) / align * align;
    *body = (pare_body){.pool = bodies, .room = room};
    body->data = bodies->pin ? take_pinned(bodies, room) : aligned_alloc(align, room);
    if (body->data) return body;
    free(body);
    return NULL;
}

pare_body *pare_bodies_get(pare_bodies *bodies, size_t bytes)
{
    if (bodies->pin && bytes > bodies->most / PINNED_PART) return NULL;
    if (bytes < PARE_BODY_LARGE) return bodies->pin ? NULL : make(bodies, bytes ? bytes : 1);
    pare_body *body = find(bodies, bytes);
    return body ? body : make(bodies, bytes);
}

void pare_bodies_put(pare_body *body)
{
    if (!body) return;
    pare_bodies *bodies = body->pool;
    pare_body *old = body;
    body->next = NULL;
    if (body->room >= PARE_BODY_LARGE && body->room <= bodies->most) {
        (void)pthread_mutex_lock(&bodies->lock);
        old = bodies->pin ? NULL : make_room(bodies, body->room);
        if (!bodies->pin) bodies->kept += body->room;
        body->next = bodies->free;
        bodies->free = body;
        (void)pthread_mutex_unlock(&bodies->lock);
    }
    for (pare_body *next; old; old = next) {
        next = old->next;
        discard(old);
    }
}

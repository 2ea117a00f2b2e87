/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of requests' bodies, used again: what the system gives anew is slow at its first use, and
   what a GPU copies from by itself (pinned) is slow to get. Any thread may call. */
#ifndef PARE_TOOLS_SERVE_BODIES_H
#define PARE_TOOLS_SERVE_BODIES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { PARE_BODY_PAGE = 4096, PARE_BODY_LARGE = 32 << 10 }; /* bytes */

typedef struct pare_body {
    struct pare_body *next; /* of the pool */
    struct pare_bodies *pool;
    char *data; /* (room) bytes, aligned as bodies are, large ones to a page */
    size_t room;
} pare_body;

typedef struct pare_bodies {
    pthread_mutex_t lock;
    pare_body *free;   /* the ones put last first */
    size_t kept, most; /* bytes of these, and at most; pinned: of all that were made */
    void *(*pin)(void *user, size_t bytes); /* NULL: it is ordinary memory */
    bool (*unpin)(void *user, void *memory);
    void *user;
} pare_bodies;

/* most: bytes that are kept for later, at most. */
void pare_bodies_init(pare_bodies *bodies, size_t most);
/* Of pinned memory, at most so many bytes in all, and an eighth of them for one body. pin returns
   NULL where there is none now, unpin false where it cannot now; in pare_bodies_free it can. */
void pare_bodies_init_pinned(pare_bodies *bodies, size_t most,
                             void *(*pin)(void *user, size_t bytes),
                             bool (*unpin)(void *user, void *memory), void *user);
void pare_bodies_free(pare_bodies *bodies); /* all were put back */
/* At least so many bytes, of which none is set. NULL: there are none; pinned, fewer than
   PARE_BODY_LARGE are never there. Where all that may be pinned is, what no one uses makes room. */
pare_body *pare_bodies_get(pare_bodies *bodies, size_t bytes);
void pare_bodies_put(pare_body *body); /* or NULL */
#endif

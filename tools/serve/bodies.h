/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of requests' bodies, used again: what the system gives anew is slow at its first use.
   Any thread may call. */
#ifndef PARE_TOOLS_SERVE_HTTP_BODIES_H
#define PARE_TOOLS_SERVE_HTTP_BODIES_H

#include <pthread.h>
#include <stddef.h>

enum { PARE_BODY_PAGE = 4096 };
typedef struct pare_body {
    struct pare_body *next; /* of the pool */
    char *data;             /* (room) bytes, aligned as bodies are, large ones to a page */
    size_t room;
} pare_body;

typedef struct pare_bodies {
    pthread_mutex_t lock;
    pare_body *free;   /* the ones put last first */
    size_t kept, most; /* bytes of these, and at most */
} pare_bodies;

/* most: bytes that are kept for later, at most. */
void pare_bodies_init(pare_bodies *bodies, size_t most);
void pare_bodies_free(pare_bodies *bodies); /* all were put back */
/* At least so many bytes, of which none is set. NULL: memory is out. */
pare_body *pare_bodies_get(pare_bodies *bodies, size_t bytes);
void pare_bodies_put(pare_bodies *bodies, pare_body *body); /* or NULL */
#endif

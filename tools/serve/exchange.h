/* SPDX-License-Identifier: Apache-2.0 */
/* One request and its reply, whatever transport brings them: api.h makes replies, http.h is a
   transport. */
#ifndef PARE_TOOLS_SERVE_EXCHANGE_H
#define PARE_TOOLS_SERVE_EXCHANGE_H

#include "runtime/base/arena.h"

#include <jansson.h>

/* Status codes of HTTP that replies have. */
enum {
    PARE_HTTP_OK = 200,
    PARE_HTTP_BAD_REQUEST = 400,
    PARE_HTTP_UNAUTHORIZED = 401,
    PARE_HTTP_NOT_FOUND = 404,
    PARE_HTTP_NOT_ALLOWED = 405,
    PARE_HTTP_TOO_LARGE = 413,
    PARE_HTTP_HEADERS_TOO_LARGE = 431,
    PARE_HTTP_BROKEN = 500,
    PARE_HTTP_NOT_SERVED = 501,
    PARE_HTTP_UNAVAILABLE = 503,
    PARE_HTTP_VERSION = 505
};

enum {
    PARE_BODY_ALIGN = 64
}; /* where a tensor's data lie so, a model on the CPU reads them there */

typedef struct pare_reply {
    int code;                    /* 0: not made yet */
    const char *type, *encoding; /* of the body; encoding NULL: it is as it is */
    char *body;                  /* from malloc, the transport frees it; NULL: none */
    size_t bytes;                /* of the body */
    size_t json_bytes;           /* of the JSON before binary data; 0: there are no binary data */
    int retry_after;             /* seconds; 0: not said */
    const char *allow;           /* methods, with PARE_HTTP_NOT_ALLOWED */
} pare_reply;

typedef struct pare_exchange_form pare_exchange_form; /* protocol.h */
typedef struct pare_memo pare_memo;                   /* memo.h */
typedef struct pare_exchange pare_exchange;
struct pare_exchange {
    pare_ctx ctx;
    pare_arena arena; /* ends with the body */
    const char *method, *path;
    const char *json_bytes; /* the header Inference-Header-Content-Length; NULL: not given */
    const char *encoding;   /* Content-Encoding; NULL: not given */
    const char *accept_encoding, *authorization;
    size_t limit;     /* bytes that the body may have once it is unpacked */
    const char *body; /* 64-byte aligned behind the JSON that json_bytes tells of */
    size_t bytes;     /* of the body */
    bool is_pinned;   /* a GPU copies from the body by itself */
    char *unpacked;   /* the memory of a body that was compressed; NULL: it was not */
    size_t *held; /* bytes of all exchanges, and of what outlives them, changed atomically; NULL:
                     they are not counted */
    size_t most_held; /* of *held */
    size_t holds;     /* bytes of this one in *held */
    double deadline;  /* pare_seconds, after which no one waits for the reply; 0: none is given */
    bool gone;        /* set atomically: no one waits for it any more */
    bool is_unseen;   /* the reply is thrown away: it is the run of a shadow, or a step of it */
    const pare_exchange *request; /* of which this is a step; NULL: it is none */
    const pare_exchange_form *form;
    pare_memo **memo; /* of its connection, for its form; NULL: none */
    pare_reply reply;
    /* Called once, by any thread, when the reply is made. The exchange may be gone when it returns.
     */
    void (*done)(pare_exchange *x);
    void *kept; /* for who puts a function of its own in place of done */
};

/* Its form is pare_form_json. */
void pare_exchange_init(pare_exchange *x, const pare_ctx *parent);
/* The reply's body, too. */
void pare_exchange_free(pare_exchange *x);
/* Counts bytes of memory that came for the request. False: there would be too many; the context
   says so, and the reply is to be tried again. No bytes are never too many. */
bool pare_exchange_hold(pare_exchange *x, size_t bytes);
/* So many of them count no longer: that memory went. */
void pare_exchange_let_go(pare_exchange *x, size_t bytes);
/* So many of them are no longer this one's: who has them takes them off the counter that is
   returned when they go. NULL: they are not counted. */
size_t *pare_exchange_hand_over(pare_exchange *x, size_t bytes);
/* None counts any longer, for the body and what the arena holds go: the reply is made. */
void pare_exchange_drop_body(pare_exchange *x);
/* Counts the reply's bytes until the exchange ends, where they are too many, too: it is made. */
void pare_exchange_hold_reply(pare_exchange *x);

/* Does no one wait for it any more, or for the request that it is a step of? Any thread. */
bool pare_exchange_is_gone(const pare_exchange *x);

/* The code for a failure that is the request's fault or not. */
int pare_reply_code(pare_status st);
/* The code where a model was not found: `missing`, or that its GPU failed. */
int pare_reply_code_missing(pare_status st, int missing);

/* Each of these makes the reply and calls done. */
void pare_exchange_empty(pare_exchange *x);
/* Takes the reference; NULL: memory is out. */
void pare_exchange_json(pare_exchange *x, json_t *json);
/* {"error": the context's message} */
void pare_exchange_fail(pare_exchange *x, int code);
/* The same with a message of its own. */
void pare_exchange_refuse(pare_exchange *x, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Takes text from malloc. */
void pare_exchange_text(pare_exchange *x, const char *type, char *text, size_t bytes);
#endif

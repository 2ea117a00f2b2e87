/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: one request after another, each with its reply. It has one owner at a time: its
   loop, or, from when a request is handed out until its reply is written, whoever makes the reply.

       SHAKING --> HEAD --> BODY or CHUNKS --> OUT --> SENDING --> HEAD, or LINGERING --> CLOSED
                    |           ^                                   ^
                    +-CONTINUE--+      what is refused or no HTTP --+

   SHAKING is TLS's handshake. HEAD reads a request's lines, BODY and CHUNKS its body, CONTINUE
   tells the client to send it. OUT waits for the reply, SENDING for the client to read it.
   LINGERING has sent the last reply and waits for the client's end: a socket that is closed with
   something unread loses what was sent. BROKEN is to be closed by the loop. Any step but OUT leads
   to CLOSED when its time is over. */
#ifndef PARE_TOOLS_SERVE_CONNECTION_H
#define PARE_TOOLS_SERVE_CONNECTION_H
#ifdef PARE_HTTP

#include "tools/serve/http/head.h"
#include "tools/serve/http/http.h"
#include "tools/serve/http/parser.h"
#include "tools/serve/http/tls.h"

#include <stdatomic.h>
#include <sys/types.h>

typedef struct pare_connection pare_connection;

/* What connections share. */
typedef struct pare_http_common {
    pare_ctx ctx; /* of requests */
    pare_http_options options;
    pare_bodies bodies;
    pare_tls_files *tls; /* NULL: it is not spoken */
    atomic_bool draining;
    double (*seconds)(void); /* the clock: pare_seconds */
    double drained;          /* pare_seconds, since when; set before `draining` */
    /* Hands the connection, which is out, to its loop, which calls pare_connection_run. Any thread;
       the connection may be gone when it returns. */
    void (*give_back)(pare_connection *c);
} pare_http_common;

enum { PARE_SLOW_SECONDS = 30 }; /* draining: for a request to come, and for its reply to be read */

typedef enum pare_step {
    PARE_STEP_SHAKING,
    PARE_STEP_HEAD,
    PARE_STEP_CONTINUE,
    PARE_STEP_BODY,
    PARE_STEP_CHUNKS,
    PARE_STEP_OUT,
    PARE_STEP_SENDING,
    PARE_STEP_LINGERING,
    PARE_STEP_BROKEN,
    PARE_STEP_CLOSED
} pare_step;

/* Headers that are read. */
#define PARE_FIELDS(X)                                                                             \
    X(HOST, "Host")                                                                                \
    X(LENGTH, "Content-Length")                                                                    \
    X(TRANSFER, "Transfer-Encoding")                                                               \
    X(EXPECT, "Expect")                                                                            \
    X(JSON, "Inference-Header-Content-Length")                                                     \
    X(ENCODING, "Content-Encoding")                                                                \
    X(ACCEPT, "Accept-Encoding")                                                                   \
    X(AUTHORIZATION, "Authorization")

enum {
#define X(name, text) PARE_FIELD_##name,
    PARE_FIELDS(X)
#undef X
        PARE_FIELD_COUNT
};

/* Text in the connection's buffer. */
typedef struct pare_span {
    size_t at, bytes;
    int count; /* headers of this name */
} pare_span;

/* A body that comes in chunks. */
typedef struct pare_chunks {
    pare_parser parser;
    char gap[4096]; /* (gap_bytes) what came behind the last data: a chunk's end, sizes, trailers */
    size_t gap_bytes;
    const char *from; /* behind the data that the parser has handed out, in what it is given now */
    uint64_t left;    /* bytes of the chunk's data that have not come */
    bool is_begun;    /* data have come */
    bool is_new;      /* of this chunk none have */
    bool is_whole, is_wrong;
} pare_chunks;

/* Whose turn it is: bits. The events are those that came while the connection was out. */
enum {
    PARE_TURN_OUT = 1,   /* not the loop's */
    PARE_TURN_READ = 2,  /* there is something to read, or to write */
    PARE_TURN_ENDED = 4, /* the client has closed its side */
    PARE_TURN_GONE = 8   /* the client reads no more, either */
};

struct pare_connection {
    pare_exchange x; /* first: the others know only this; there while has_request */
    pare_http_common *common;
    void *loop;                              /* of give_back */
    pare_connection *next, *last, *returned; /* of the loop */
    pare_tls *tls;                           /* NULL: it is not spoken */
    int fd;
    atomic_uint turn;
    pare_step step;
    double now;          /* of this turn, pare_seconds */
    double since, begun; /* when something came or went last; when the step's whole time began */
    double paced;        /* since when `piece` is counted */
    size_t piece;        /* bytes of a body that came, or of a reply that went */
    bool is_readable;    /* something may be there to read */
    bool has_ended;      /* the client's end may be there to read */
    /* --- what was read --- */
    char *buffer;      /* (room) */
    size_t room, have; /* bytes of it that are filled */
    size_t used;       /* of these that belong to the request: its lines, and what is taken */
    pare_head head;    /* of the lines at the buffer's begin */
    /* --- the request --- */
    bool has_request;
    pare_span target, field[PARE_FIELD_COUNT];
    int found;             /* the header whose value comes; -1: one that is not read */
    bool is_last;          /* the connection ends with this request's reply */
    bool is_refused;       /* the reply is there before the request's end */
    bool has_version_1_0;  /* of HTTP */
    bool is_head;          /* the reply's body is not sent */
    uint64_t length, left; /* bytes of the body, and of those that have not come */
    pare_bodies *pool;     /* that the body's memory is of, if it has some; NULL: the shared one */
    pare_body *memory;     /* the body's memory; NULL: none */
    size_t from;           /* where in it the body begins */
    pare_body *spare;      /* memory of an earlier body, for small ones; NULL: none */
    uint64_t came;         /* bytes of the body, taken or not */
    pare_chunks *chunks;   /* NULL: it comes in one piece */
    pare_memo *memo;       /* of earlier requests; NULL: none */
    /* --- the reply --- */
    char lines[640]; /* its head */
    size_t line_bytes, sent;
};

/* Takes the socket, which does not block. NULL: memory is out, or TLS does not begin; the socket
   is the caller's. */
pare_connection *pare_connection_new(pare_http_common *common, int fd, double now);
void pare_connection_free(pare_connection *c); /* closed, and not out; or NULL */

/* Something has happened to the socket: bits of PARE_TURN_*. False: it is noted for later, for the
   connection is out. The loop alone calls. */
bool pare_connection_note(pare_connection *c, unsigned events);
/* Does what can be done without waiting. The loop alone calls, for a connection that is not out, or
   was given back. At most some dozen steps: what remains is given back. */
void pare_connection_run(pare_connection *c, double now);
/* Closes it where a time is over. The loop alone calls. */
void pare_connection_tick(pare_connection *c, double now);
bool pare_connection_is_out(const pare_connection *c);

/* --- what the parts of a connection have of each other --- */

/* request.c: the lines are whole: makes the exchange, and what comes next its step. What is wrong
   with them is refused. */
void pare_request_begin(pare_connection *c);
/* The body's next `bytes` are at `at`: in their place, or to be copied there; or are dropped. */
void pare_request_take(pare_connection *c, const char *at, size_t bytes);
/* Where a body of known length goes on; NULL: it is dropped. */
char *pare_request_place(const pare_connection *c);
/* More of a body in chunks has come to the buffer. */
void pare_request_take_chunks(pare_connection *c);
/* A refusal before the exchange is handed out, behind which the connection ends. */
void pare_request_refuse(pare_connection *c, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The body's memory goes, and counts no longer: the reply is made. */
void pare_request_drop_body(pare_connection *c);
/* What is kept of earlier requests for later ones goes; between requests. */
void pare_request_forget(pare_connection *c);
/* The request is over, and its memory goes. */
void pare_request_end(pare_connection *c);

/* reply.c: the exchange has its reply: makes the lines before it, and its step SENDING. */
void pare_reply_begin(pare_connection *c);
typedef enum pare_sent { PARE_SENT_ALL, PARE_SENT_SOME, PARE_SENT_BROKEN } pare_sent;
/* Sends what the socket takes: of the reply, or of the word to go on. */
pare_sent pare_reply_send(pare_connection *c);
pare_sent pare_reply_send_continue(pare_connection *c);

/* connection.c: the exchange's done. */
void pare_connection_done(pare_exchange *x);
/* A body's or a reply's step begins, of which so much has to move in so long. */
void pare_connection_pace(pare_connection *c);
/* Has more come than the request? Looks at the socket. */
bool pare_connection_has_more(const pare_connection *c);
#endif
#endif

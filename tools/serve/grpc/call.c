/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/call.h"

#ifdef PARE_GRPC

#include "runtime/base/clock.h"
#include "tools/serve/grpc/infer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STREAMED = 128 /* messages of a stream that are not answered yet; more are not read */
};

static const char ending[] = "the server is about to end";

typedef struct message message;

/* A call, until the last of what it waits for has come. */
typedef struct call {
    pare_grpc *grpc;
    grpc_call *call; /* NULL: it has not come */
    grpc_call_details details;
    grpc_metadata_array metadata;
    const pare_grpc_method *method;
    bool streams;
    char *authorization; /* NULL: not given */
    double deadline;     /* pare_seconds; 0: none */
    grpc_byte_buffer *received;
    int cancelled;
    bool is_gone;   /* the client has cancelled it; this and the next: the events' thread's alone */
    message *asked; /* those that are not answered */
    pare_grpc_event arrives, receives, closes, opens, ends;
    atomic_int references;
    /* of a stream, under the lock */
    pthread_mutex_t lock;
    message *first, **last; /* replies to send; the first is being sent */
    int under_way;          /* messages that are not answered */
    bool reads, has_all, is_over;
    bool is_late; /* a message came after the server was closed */
} call;

/* A message and its reply. */
struct message {
    pare_grpc_request q; /* first: the others know only this */
    call *call;
    message *next;
    message *asked, **before;   /* the next one that is not answered, and what leads here */
    char *block;                /* the body's memory; NULL: it is in `received` */
    grpc_byte_buffer *received; /* NULL: the body was copied */
    grpc_byte_buffer *reply;
    size_t unread; /* bytes of this reply that count as such */
    pare_grpc_event sent;
};

/* --- calls --- */

static void start_batch(call *c, const grpc_op *ops, size_t count, pare_grpc_event *e)
{
    atomic_fetch_add(&c->references, 1);
    const grpc_call_error wrong = c->grpc->lib.grpc_call_start_batch(c->call, ops, count, e, NULL);
    assert(wrong == GRPC_CALL_OK); /* else the batch is not one that may be */
    (void)wrong;
}

static void release(call *c)
{
    pare_grpc *grpc = c->grpc;
    const pare_grpc_library *lib = &grpc->lib;
    if (atomic_fetch_sub(&c->references, 1) > 1) return;
    if (c->received) lib->grpc_byte_buffer_destroy(c->received);
    if (c->call) lib->grpc_call_unref(c->call);
    lib->grpc_call_details_destroy(&c->details);
    lib->grpc_metadata_array_destroy(&c->metadata);
    (void)pthread_mutex_destroy(&c->lock);
    free(c->authorization);
    pare_free(c);
    if (atomic_exchange(&grpc->lacks, false)) pare_grpc_expect_call(grpc);
    atomic_fetch_sub(&grpc->calls, 1);
}

static void on_over(void *user, bool ok)
{
    (void)ok; /* the client may be gone */
    release(user);
}

/* Ends the call with a status; begins: nothing was sent yet. */
static void end(call *c, bool begins, int code, const char *text)
{
    const pare_grpc_library *lib = &c->grpc->lib;
    grpc_slice details = lib->grpc_slice_from_copied_string(text);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_SEND_INITIAL_METADATA}};
    ops[0].data.send_status_from_server.status = (grpc_status_code)code;
    ops[0].data.send_status_from_server.status_details = &details;
    start_batch(c, ops, begins ? 2 : 1, &c->ends);
    lib->grpc_slice_unref(details);
}

static void on_closed(void *user, bool ok)
{
    call *c = user;
    c->is_gone = !ok || c->cancelled;
    for (message *m = c->asked; m && c->is_gone; m = m->asked)
        __atomic_store_n(&m->q.x.gone, true, __ATOMIC_RELAXED);
    release(c);
}

/* --- replies --- */

static void message_free(message *m)
{
    const pare_grpc_library *lib = &m->call->grpc->lib;
    if (m->received) lib->grpc_byte_buffer_destroy(m->received);
    if (m->reply) lib->grpc_byte_buffer_destroy(m->reply);
    atomic_fetch_sub(&m->call->grpc->unread, m->unread);
    pare_exchange_free(&m->q.x);
    free(m->block);
    free(m);
}

/* The reply's body, which it takes. */
static grpc_byte_buffer *take_body(const pare_grpc_library *lib, pare_reply *r)
{
    if (!r->body) return lib->grpc_raw_byte_buffer_create(NULL, 0);
    grpc_slice slice = lib->grpc_slice_new(r->body, r->bytes, free);
    r->body = NULL;
    grpc_byte_buffer *buffer = lib->grpc_raw_byte_buffer_create(&slice, 1);
    lib->grpc_slice_unref(slice);
    return buffer;
}

/* The reply and the call's end. */
static void send_last(message *m, int code)
{
    call *c = m->call;
    const pare_grpc_library *lib = &c->grpc->lib;
    const char *text = code == PARE_GRPC_OK ? "" : m->q.x.reply.body;
    grpc_slice details = lib->grpc_slice_from_copied_string(text ? text : "out of memory");
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_SEND_MESSAGE}};
    ops[1].data.send_status_from_server.status = (grpc_status_code)code;
    ops[1].data.send_status_from_server.status_details = &details;
    if (code == PARE_GRPC_OK) {
        m->reply = take_body(lib, &m->q.x.reply);
        ops[2].data.send_message.send_message = m->reply;
    }
    start_batch(c, ops, code == PARE_GRPC_OK ? 3 : 2, &m->sent);
    lib->grpc_slice_unref(details);
}

/* Under the lock: sends the first reply. */
static void send_next(call *c)
{
    message *m = c->first;
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    m->reply = take_body(&c->grpc->lib, &m->q.x.reply);
    op.data.send_message.send_message = m->reply;
    start_batch(c, &op, 1, &m->sent);
}

static void send_in_turn(message *m)
{
    call *c = m->call;
    (void)pthread_mutex_lock(&c->lock);
    const bool is_first = !c->first;
    *c->last = m;
    c->last = &m->next;
    if (is_first) send_next(c);
    (void)pthread_mutex_unlock(&c->lock);
}

/* Counts a reply until it is sent. False: clients leave too many unread. Refusals, and replies to
   what is no inference, are small. */
static bool hold_reply(message *m)
{
    pare_exchange *x = &m->q.x;
    pare_grpc *grpc = m->call->grpc;
    if (x->reply.code != PARE_HTTP_OK || !pare_grpc_method_infers(m->q.method)) return true;
    m->unread = x->reply.bytes;
    if (atomic_fetch_add(&grpc->unread, m->unread) < (size_t)grpc->options.pending) return true;
    atomic_fetch_sub(&grpc->unread, m->unread);
    m->unread = 0;
    return false;
}

static void on_done(pare_exchange *x)
{
    message *m = (message *)(void *)x;
    pare_grpc *grpc = m->call->grpc;
    if (!hold_reply(m)) {
        pare_exchange_refuse(x, PARE_HTTP_UNAVAILABLE, "replies of %lld bytes are not read yet",
                             (long long)grpc->options.pending);
        return;
    }
    const int code = pare_grpc_request_finish(&m->q);
    atomic_fetch_add(&grpc->sending, 1);
    atomic_fetch_add(&grpc->unsent, 1);
    pare_exchange_drop_body(x);
    pare_exchange_hold_reply(x);
    if (m->received) grpc->lib.grpc_byte_buffer_destroy(m->received);
    m->received = NULL;
    free(m->block);
    m->block = NULL;
    if (m->call->streams)
        send_in_turn(m);
    else
        send_last(m, code);
    atomic_fetch_sub(&grpc->answering, 1); /* by now the message may be gone */
    atomic_fetch_sub(&grpc->sending, 1);
}

/* --- messages --- */

static void receive(call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &c->received;
    start_batch(c, &op, 1, &c->receives);
}

/* Under the lock of a stream: reads on, or ends it. */
static void go_on(call *c)
{
    if (!c->reads && !c->has_all && c->under_way < MOST_STREAMED) {
        c->reads = true;
        receive(c);
    }
    if (!c->has_all || c->under_way || c->is_over) return;
    c->is_over = true;
    end(c, false, c->is_late ? PARE_GRPC_UNAVAILABLE : PARE_GRPC_OK, c->is_late ? ending : "");
}

static void on_sent(void *user, bool ok)
{
    message *m = user;
    call *c = m->call;
    (void)ok; /* the client may be gone */
    *m->before = m->asked;
    if (m->asked) m->asked->before = m->before;
    if (c->streams) {
        (void)pthread_mutex_lock(&c->lock);
        c->first = m->next;
        if (!c->first) c->last = &c->first;
        if (c->first) send_next(c);
        c->under_way--;
        go_on(c);
        (void)pthread_mutex_unlock(&c->lock);
    }
    atomic_fetch_sub(&c->grpc->unsent, 1);
    message_free(m);
    release(c); /* of the batch that sent it */
    release(c); /* of the message */
}

static message *message_new(call *c)
{
    pare_grpc *grpc = c->grpc;
    message *m = malloc(sizeof *m);
    if (!m) return NULL;
    *m = (message){.call = c, .sent = {on_sent, m}};
    pare_grpc_request_init(&m->q, &grpc->ctx, c->method);
    pare_exchange *x = &m->q.x;
    x->done = on_done;
    x->deadline = c->deadline;
    x->limit = (size_t)grpc->options.limit;
    x->held = grpc->options.held;
    x->most_held = (size_t)grpc->options.pending;
    x->gone = c->is_gone;
    m->asked = c->asked;
    m->before = &c->asked;
    if (m->asked) m->asked->before = &m->asked;
    c->asked = m;
    atomic_fetch_add(&c->references, 1);
    return m;
}

/* The message as one body: as it lies, where that is in one piece, else copied to where its first
   tensor is aligned. False: memory is out. */
static bool take_message(message *m, grpc_byte_buffer *buffer)
{
    pare_exchange *x = &m->q.x;
    const pare_grpc_library *lib = &m->call->grpc->lib;
    const grpc_slice_buffer *pieces = &buffer->data.raw.slice_buffer;
    const grpc_compression_algorithm packed = buffer->data.raw.compression;
    if (packed != GRPC_COMPRESS_NONE)
        x->encoding = packed == GRPC_COMPRESS_GZIP ? "gzip" : "deflate";
    m->received = buffer;
    x->bytes = lib->grpc_byte_buffer_length(buffer);
    x->body = pieces->count ? (const char *)GRPC_SLICE_START_PTR(pieces->slices[0]) : "";
    if (pieces->count < 2) return true;
    const size_t first = pare_grpc_first_tensor(x->body, GRPC_SLICE_LENGTH(pieces->slices[0]));
    const size_t from = (PARE_BODY_ALIGN - first % PARE_BODY_ALIGN) % PARE_BODY_ALIGN;
    m->block = aligned_alloc(PARE_BODY_ALIGN, (from + x->bytes + PARE_BODY_ALIGN - 1) /
                                                  PARE_BODY_ALIGN * PARE_BODY_ALIGN);
    if (!m->block) return false;
    char *at = m->block + from;
    x->body = at;
    for (size_t i = 0; i < pieces->count; i++) {
        const grpc_slice *piece = &pieces->slices[i];
        memcpy(at, GRPC_SLICE_START_PTR(*piece), GRPC_SLICE_LENGTH(*piece));
        at += GRPC_SLICE_LENGTH(*piece);
    }
    lib->grpc_byte_buffer_destroy(buffer);
    m->received = NULL;
    return true;
}

static void handle(message *m, grpc_byte_buffer *buffer)
{
    pare_exchange *x = &m->q.x;
    pare_grpc *grpc = m->call->grpc;
    if (!pare_exchange_hold(x, grpc->lib.grpc_byte_buffer_length(buffer))) {
        m->received = buffer;
        pare_exchange_fail(x, PARE_HTTP_UNAVAILABLE);
    } else if (!take_message(m, buffer)) {
        pare_exchange_refuse(x, PARE_HTTP_UNAVAILABLE, "out of memory for a request");
    } else {
        pare_grpc_request_handle(&m->q, grpc->options.api);
    }
}

/* Counts a message as one that is answered. False: the server was closed before, and it is not. */
static bool is_in_time(pare_grpc *grpc)
{
    atomic_fetch_add(&grpc->seen, 1);
    if (atomic_load(&grpc->closed)) return false;
    atomic_fetch_add(&grpc->answering, 1); /* before it looks whether that is too late */
    if (!atomic_load(&grpc->closed)) return true;
    atomic_fetch_sub(&grpc->answering, 1);
    return false;
}

/* The message that has come; NULL: none will, or it is not answered. */
static message *admit_message(call *c, bool came)
{
    if (!came) return NULL;
    c->is_late = !is_in_time(c->grpc);
    if (c->is_late) return NULL;
    message *m = message_new(c);
    if (!m) atomic_fetch_sub(&c->grpc->answering, 1);
    return m;
}

/* Ends a call, of one message, that has no reply. */
static void end_unanswered(call *c, bool came)
{
    if (c->is_late)
        end(c, true, PARE_GRPC_UNAVAILABLE, ending);
    else if (came)
        end(c, true, PARE_GRPC_UNAVAILABLE, "out of memory for a request");
    else
        end(c, true, PARE_GRPC_INVALID_ARGUMENT, "the call has no message");
}

/* A message has come, or none will. */
static void on_received(void *user, bool ok)
{
    call *c = user;
    grpc_byte_buffer *buffer = c->received;
    const bool came = ok && buffer;
    c->received = NULL;
    message *m = admit_message(c, came);
    if (c->streams) {
        (void)pthread_mutex_lock(&c->lock);
        c->reads = false;
        c->has_all = !m;
        c->under_way += m != NULL;
        go_on(c);
        (void)pthread_mutex_unlock(&c->lock);
    } else if (!m) {
        end_unanswered(c, came);
    }
    if (m)
        handle(m, buffer);
    else if (buffer)
        c->grpc->lib.grpc_byte_buffer_destroy(buffer);
    release(c);
}

/* --- arriving --- */

/* A copy of the metadata of this key; NULL: there are none. */
static char *metadata_of(const call *c, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *one = &c->metadata.metadata[i];
        if (GRPC_SLICE_LENGTH(one->key) == n && !memcmp(GRPC_SLICE_START_PTR(one->key), key, n))
            return strndup((const char *)GRPC_SLICE_START_PTR(one->value),
                           GRPC_SLICE_LENGTH(one->value));
    }
    return NULL;
}

/* The call's deadline on the clock of pare_seconds; 0: it has none. */
static double deadline_of(const call *c)
{
    const pare_grpc_library *lib = &c->grpc->lib;
    const gpr_timespec at = lib->gpr_convert_clock_type(c->details.deadline, GPR_CLOCK_MONOTONIC);
    if (at.tv_sec == INT64_MAX) return 0;
    const gpr_timespec left = lib->gpr_time_sub(at, lib->gpr_now(GPR_CLOCK_MONOTONIC));
    return pare_seconds() + (double)left.tv_sec + 1e-9 * left.tv_nsec;
}

static void on_refused(pare_exchange *x) { (void)x; }

/* False: the call was ended. */
static bool admit(call *c)
{
    pare_grpc_request q;
    pare_grpc_request_init(&q, &c->grpc->ctx, c->method);
    q.x.authorization = c->authorization;
    q.x.done = on_refused;
    const bool is_admitted = pare_api_admit(c->grpc->options.api, &q.x);
    if (!is_admitted) end(c, true, PARE_GRPC_UNAUTHENTICATED, q.x.reply.body ? q.x.reply.body : "");
    pare_exchange_free(&q.x);
    return is_admitted;
}

static void begin(call *c)
{
    grpc_op closed = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    grpc_op opened = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    const grpc_slice *path = &c->details.method;
    c->method =
        pare_grpc_method_find((const char *)GRPC_SLICE_START_PTR(*path), GRPC_SLICE_LENGTH(*path));
    c->authorization = metadata_of(c, "authorization");
    c->deadline = deadline_of(c);
    closed.data.recv_close_on_server.cancelled = &c->cancelled;
    start_batch(c, &closed, 1, &c->closes);
    if (!c->method) {
        end(c, true, PARE_GRPC_UNIMPLEMENTED, "there is no such method");
        return;
    }
    if (!admit(c)) return;
    c->streams = pare_grpc_method_streams(c->method);
    if (c->streams) start_batch(c, &opened, 1, &c->opens);
    c->reads = true;
    receive(c);
}

static void on_arrived(void *user, bool ok)
{
    call *c = user;
    if (ok) {
        pare_grpc_expect_call(c->grpc);
        begin(c);
    }
    release(c);
}

/* A call that has not come; NULL: memory is out. */
static call *call_new(pare_grpc *grpc)
{
    call *c = pare_alloc(&grpc->ctx, 1, sizeof *c);
    if (!c) return NULL;
    atomic_fetch_add(&grpc->calls, 1);
    c->grpc = grpc;
    c->last = &c->first;
    c->arrives = (pare_grpc_event){on_arrived, c};
    c->receives = (pare_grpc_event){on_received, c};
    c->closes = (pare_grpc_event){on_closed, c};
    c->opens = c->ends = (pare_grpc_event){on_over, c};
    (void)pthread_mutex_init(&c->lock, NULL); /* on Linux it does not fail */
    grpc->lib.grpc_call_details_init(&c->details);
    grpc->lib.grpc_metadata_array_init(&c->metadata);
    atomic_init(&c->references, 1);
    return c;
}

/* The one that tries it is there itself, so that one always ends later. */
void pare_grpc_expect_call(pare_grpc *grpc)
{
    call *c = call_new(grpc);
    if (c &&
        grpc->lib.grpc_server_request_call(grpc->server, &c->call, &c->details, &c->metadata,
                                           grpc->queue, grpc->queue, &c->arrives) == GRPC_CALL_OK)
        return;
    if (c) release(c);
    pare_ctx_clear(&grpc->ctx);
    atomic_store(&grpc->lacks, true);
}

#else

typedef int pare_grpc_call_is_not_built; /* a source file is not empty */

#endif

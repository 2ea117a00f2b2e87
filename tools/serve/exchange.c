/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/protocol.h"

#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

void pare_exchange_init(pare_exchange *x, const pare_ctx *parent)
{
    *x = (pare_exchange){.method = "", .path = "", .form = &pare_form_json};
    pare_ctx_child(&x->ctx, parent);
    pare_arena_init(&x->arena, &x->ctx);
}

void pare_exchange_free(pare_exchange *x)
{
    pare_exchange_drop_body(x);
    free(x->reply.body);
}

void pare_exchange_drop_body(pare_exchange *x)
{
    if (x->held) (void)__atomic_fetch_sub(x->held, x->holds, __ATOMIC_RELAXED);
    x->holds = 0;
    free(x->unpacked);
    x->unpacked = NULL;
    pare_arena_free(&x->arena);
    x->body = "";
    x->bytes = 0;
}

bool pare_exchange_hold(pare_exchange *x, size_t bytes)
{
    if (!x->held || !bytes) return true;
    if (__atomic_add_fetch(x->held, bytes, __ATOMIC_RELAXED) <= x->most_held) {
        x->holds += bytes;
        return true;
    }
    (void)__atomic_fetch_sub(x->held, bytes, __ATOMIC_RELAXED);
    x->reply.retry_after = 1;
    (void)PARE_FAIL(&x->ctx, MEMORY, "requests and replies of %zu bytes are waiting already",
                    x->most_held);
    return false;
}

void pare_exchange_hold_reply(pare_exchange *x)
{
    if (!x->held) return;
    (void)__atomic_fetch_add(x->held, x->reply.bytes, __ATOMIC_RELAXED);
    x->holds += x->reply.bytes;
}

void pare_exchange_let_go(pare_exchange *x, size_t bytes)
{
    if (!x->held) return;
    (void)__atomic_fetch_sub(x->held, bytes, __ATOMIC_RELAXED);
    x->holds -= bytes;
}

size_t *pare_exchange_hand_over(pare_exchange *x, size_t bytes)
{
    if (x->held) x->holds -= bytes;
    return x->held;
}

bool pare_exchange_is_gone(const pare_exchange *x)
{
    while (x && !__atomic_load_n(&x->gone, __ATOMIC_RELAXED)) x = x->request;
    return x != NULL;
}

int pare_reply_code(pare_status st)
{
    switch (st) {
    case PARE_OK: return PARE_HTTP_OK;
    case PARE_USAGE:
    case PARE_INPUT: return PARE_HTTP_BAD_REQUEST;
    case PARE_UNSUPPORTED: return PARE_HTTP_NOT_SERVED;
    case PARE_MEMORY: return PARE_HTTP_UNAVAILABLE;
    case PARE_IO:
    case PARE_DEVICE:
    case PARE_INTERRUPTED:
    case PARE_MISSED: break;
    }
    return PARE_HTTP_BROKEN;
}

int pare_reply_code_missing(pare_status st, int missing)
{
    return st == PARE_DEVICE ? PARE_HTTP_UNAVAILABLE : missing;
}

void pare_exchange_empty(pare_exchange *x)
{
    x->reply.code = PARE_HTTP_OK;
    x->done(x);
}

void pare_exchange_text(pare_exchange *x, const char *type, char *text, size_t bytes)
{
    x->reply.code = text ? PARE_HTTP_OK : PARE_HTTP_UNAVAILABLE;
    x->reply.type = type;
    x->reply.body = text;
    x->reply.bytes = text ? bytes : 0;
    x->done(x);
}

static void put_json(pare_exchange *x, int code, json_t *json)
{
    free(x->reply.body); /* of a response that could not be finished */
    x->reply.body = NULL;
    x->reply.bytes = x->reply.json_bytes = 0;
    x->reply.encoding = NULL;
    x->form->put(x, code, json);
    x->done(x);
}

void pare_exchange_json(pare_exchange *x, json_t *json) { put_json(x, PARE_HTTP_OK, json); }

void pare_exchange_fail(pare_exchange *x, int code)
{
    const char *message = x->ctx.message[0] ? x->ctx.message : "out of memory";
    put_json(x, code, json_pack("{s:o}", "error", pare_json_text(message)));
}

void pare_exchange_refuse(pare_exchange *x, int code, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    pare_ctx_clear(&x->ctx);
    (void)PARE_FAIL(&x->ctx, INPUT, "%s", message);
    pare_exchange_fail(x, code);
}

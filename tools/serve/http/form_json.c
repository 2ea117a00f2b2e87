/* SPDX-License-Identifier: Apache-2.0 */
/* The form of requests and replies in HTTP. */
#include "tools/serve/http/encoding.h"
#include "tools/serve/http/memo.h"
#include "tools/serve/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of JSON before the binary data: what the header says, else all. */
static pare_status json_bytes(pare_exchange *x, size_t *out)
{
    char *end;
    *out = x->bytes;
    if (!x->json_bytes) return PARE_OK;
    errno = 0;
    const unsigned long long bytes = strtoull(x->json_bytes, &end, 10);
    if (errno || end == x->json_bytes || *end || *x->json_bytes == '-' || bytes > x->bytes)
        return PARE_FAIL(&x->ctx, INPUT,
                         "Inference-Header-Content-Length is '%s', the body has %zu bytes",
                         x->json_bytes, x->bytes);
    *out = (size_t)bytes;
    return PARE_OK;
}

static pare_status read_request(pare_exchange *x, pare_infer_request *out)
{
    size_t json;
    PARE_TRY(pare_encoding_decode(x));
    PARE_TRY(json_bytes(x, &json));
    if (x->memo) return pare_memo_read(x->memo, &x->arena, out, x->body, x->bytes, json);
    return pare_infer_read(&x->arena, out, x->body, x->bytes, json);
}

static pare_status write_result(pare_exchange *x, const pare_infer_result *result)
{
    PARE_TRY(pare_memo_write(x->memo ? *x->memo : NULL, &x->arena, &x->reply, result));
    return pare_encoding_encode(x);
}

static void put(pare_exchange *x, int code, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    x->reply.code = text ? code : PARE_HTTP_UNAVAILABLE;
    x->reply.type = "application/json";
    x->reply.body = text;
    x->reply.bytes = text ? strlen(text) : 0;
}

const pare_exchange_form pare_form_json = {read_request, write_result, put};

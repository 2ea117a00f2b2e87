/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/memo.h"

#include "runtime/base/size.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NEW = 4 }; /* requests in a row of new words, after which no more are noted */

typedef struct request_words {
    size_t bytes, json_bytes; /* of the body */
    char *json;               /* (json_bytes), and behind it the texts; NULL: none are noted */
    pare_infer_request request;
    size_t *at; /* (input_count) where in the body a tensor begins */
} request_words;

typedef struct reply_words {
    char *json; /* (json_bytes), and behind it the texts; NULL: none are noted */
    size_t json_bytes;
    const char *model, *id; /* id NULL: none */
    int64_t version;
    pare_infer_tensor *output; /* (count) names, types and shapes */
    int count;
} reply_words;

struct pare_memo {
    request_words asked;
    reply_words said;
    int new_words; /* requests in a row */
};

static void forget_request(request_words *w)
{
    free(w->json);
    free(w->request.input);
    free(w->request.wanted);
    free(w->at);
    *w = (request_words){0};
}

static void forget_reply(reply_words *w)
{
    free(w->json);
    free(w->output);
    *w = (reply_words){0};
}

void pare_memo_free(pare_memo *m)
{
    if (!m) return;
    forget_request(&m->asked);
    forget_reply(&m->said);
    free(m);
}

static size_t text_bytes(const char *text) { return text ? strlen(text) + 1 : 0; }

/* NULL stays NULL. */
static const char *copy_text(char **to, const char *text)
{
    char *copy = *to;
    if (!text) return NULL;
    memcpy(copy, text, text_bytes(text));
    *to += text_bytes(text);
    return copy;
}

static bool is_same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

/* --- the request --- */

static bool has_strings(const pare_infer_request *r)
{
    for (int i = 0; i < r->input_count; i++)
        if (r->input[i].dtype == PARE_string) return true;
    return false;
}

/* Is each tensor in shared memory, or in the body as binary data? */
static bool find_tensors(request_words *w, const pare_infer_request *r, const char *body)
{
    size_t at = w->json_bytes;
    for (int i = 0; i < r->input_count; i++) {
        w->at[i] = at;
        if (r->input[i].place.region) continue;
        if ((const char *)r->input[i].data != body + at) return false;
        at += r->input[i].bytes;
    }
    return at == w->bytes;
}

static bool make_room(request_words *w, const pare_infer_request *r)
{
    const size_t inputs = (size_t)r->input_count + 1, wanted = (size_t)r->wanted_count + 1;
    size_t texts = text_bytes(r->id) + text_bytes(r->sequence.id);
    for (int i = 0; i < r->input_count; i++)
        texts += text_bytes(r->input[i].name) + text_bytes(r->input[i].place.region);
    for (int i = 0; i < r->wanted_count; i++)
        texts += text_bytes(r->wanted[i].name) + text_bytes(r->wanted[i].place.region);
    w->json = malloc(w->json_bytes + texts + 1);
    w->request.input = calloc(inputs, sizeof *w->request.input);
    w->request.wanted = calloc(wanted, sizeof *w->request.wanted);
    w->at = calloc(inputs, sizeof *w->at);
    return w->json && w->request.input && w->request.wanted && w->at;
}

static void copy_request(request_words *w, const pare_infer_request *r)
{
    pare_infer_tensor *input = w->request.input;
    pare_infer_wanted *wanted = w->request.wanted;
    char *to = w->json + w->json_bytes;
    w->request = *r;
    w->request.input = input;
    w->request.wanted = wanted;
    w->request.id = copy_text(&to, r->id);
    w->request.sequence.id = copy_text(&to, r->sequence.id);
    for (int i = 0; i < r->input_count; i++) {
        input[i] = r->input[i];
        input[i].name = copy_text(&to, r->input[i].name);
        input[i].place.region = copy_text(&to, r->input[i].place.region);
    }
    for (int i = 0; i < r->wanted_count; i++) {
        wanted[i] = r->wanted[i];
        wanted[i].name = copy_text(&to, r->wanted[i].name);
        wanted[i].place.region = copy_text(&to, r->wanted[i].place.region);
    }
}

static void note_request(request_words *w, const pare_infer_request *r, const char *body,
                         size_t bytes, size_t json_bytes)
{
    forget_request(w);
    if (has_strings(r) || json_bytes > PARE_MEMO_JSON) return;
    w->bytes = bytes;
    w->json_bytes = json_bytes;
    if (!make_room(w, r) || !find_tensors(w, r, body)) {
        forget_request(w);
        return;
    }
    memcpy(w->json, body, json_bytes);
    copy_request(w, r);
}

static bool was_asked(const request_words *w, const char *body, size_t bytes, size_t json_bytes)
{
    return w->json && w->bytes == bytes && w->json_bytes == json_bytes &&
           !memcmp(w->json, body, json_bytes);
}

static pare_status recall(const request_words *w, pare_arena *arena, pare_infer_request *out,
                          const char *body)
{
    const size_t inputs = (size_t)w->request.input_count;
    *out = w->request; /* the outputs that are wanted are only read */
    out->input = pare_arena_alloc(arena, inputs + 1, sizeof *out->input);
    if (!out->input) return PARE_MEMORY;
    for (size_t i = 0; i < inputs; i++) {
        out->input[i] = w->request.input[i];
        if (!out->input[i].place.region) out->input[i].data = body + w->at[i];
    }
    return PARE_OK;
}

pare_status pare_memo_read(pare_memo **memo, pare_arena *arena, pare_infer_request *out,
                           const char *body, size_t bytes, size_t json_bytes)
{
    pare_memo *m = *memo;
    if (m && was_asked(&m->asked, body, bytes, json_bytes)) {
        m->new_words = 0;
        return recall(&m->asked, arena, out, body);
    }
    PARE_TRY(pare_infer_read(arena, out, body, bytes, json_bytes));
    if (!m) m = *memo = calloc(1, sizeof *m); /* where memory is out it goes without, too */
    if (m && m->new_words < MOST_NEW) {
        m->new_words++;
        note_request(&m->asked, out, body, bytes, json_bytes);
    }
    return PARE_OK;
}

/* --- the reply --- */

static bool is_plain(const pare_infer_result *r)
{
    for (int i = 0; i < r->count; i++) {
        const pare_infer_wanted *w = &r->wanted[i];
        if (!w->binary || w->classes || w->place.region || r->output[i].dtype == PARE_string)
            return false;
    }
    return r->count > 0;
}

static bool is_like(const pare_infer_tensor *a, const pare_infer_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes &&
           !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) && !strcmp(a->name, b->name);
}

static bool was_said(const reply_words *w, const pare_infer_result *r)
{
    if (!w->json || !is_plain(r) || w->count != r->count || w->version != r->version ||
        strcmp(w->model, r->model) != 0 || !is_same_text(w->id, r->id))
        return false;
    for (int i = 0; i < r->count; i++)
        if (!is_like(&w->output[i], &r->output[i])) return false;
    return true;
}

static pare_status say_again(const reply_words *w, pare_arena *arena, pare_reply *reply,
                             const pare_infer_result *r)
{
    size_t bytes = w->json_bytes;
    for (int i = 0; i < r->count; i++) bytes += r->output[i].bytes;
    char *body = malloc(bytes), *at = body + w->json_bytes;
    if (!body)
        return PARE_FAIL(arena->ctx, MEMORY, "out of memory: %zu bytes for a response", bytes);
    memcpy(body, w->json, w->json_bytes);
    for (int i = 0; i < r->count; i++) at = pare_infer_binary_put(at, &r->output[i]);
    reply->type = "application/octet-stream";
    reply->body = body;
    reply->bytes = bytes;
    reply->json_bytes = w->json_bytes;
    return PARE_OK;
}

static void note_reply(reply_words *w, const pare_reply *reply, const pare_infer_result *r)
{
    const size_t count = (size_t)r->count;
    size_t texts = text_bytes(r->model) + text_bytes(r->id);
    forget_reply(w);
    if (!is_plain(r) || reply->json_bytes > PARE_MEMO_JSON) return;
    for (int i = 0; i < r->count; i++) texts += text_bytes(r->output[i].name);
    w->json = malloc(reply->json_bytes + texts);
    w->output = calloc(count, sizeof *w->output);
    if (!w->json || !w->output) {
        forget_reply(w);
        return;
    }
    char *to = w->json + reply->json_bytes;
    w->json_bytes = reply->json_bytes;
    w->model = copy_text(&to, r->model);
    w->id = copy_text(&to, r->id);
    w->version = r->version;
    w->count = r->count;
    memcpy(w->json, reply->body, w->json_bytes);
    for (int i = 0; i < r->count; i++) {
        w->output[i] = r->output[i];
        w->output[i].name = copy_text(&to, r->output[i].name);
    }
}

pare_status pare_memo_write(pare_memo *m, pare_arena *arena, pare_reply *reply,
                            const pare_infer_result *result)
{
    if (m && was_said(&m->said, result)) return say_again(&m->said, arena, reply, result);
    PARE_TRY(pare_infer_write(arena, reply, result));
    if (m && m->new_words < MOST_NEW) note_reply(&m->said, reply, result);
    return PARE_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of HTTP/1.1: llhttp, or http-parser where the system has only that; nothing else knows
   which. */
#ifndef PARE_TOOLS_SERVE_HTTP_PARSER_H
#define PARE_TOOLS_SERVE_HTTP_PARSER_H
#ifdef PARE_HTTP

#include <stdbool.h>
#include <stddef.h>

#if PARE_LLHTTP

#include <llhttp.h>

typedef llhttp_t pare_parser;
typedef llhttp_settings_t pare_parser_calls;

static inline void pare_parser_init(pare_parser *p, const pare_parser_calls *calls, void *user)
{
    llhttp_init(p, HTTP_REQUEST, calls);
    p->data = user;
}

static inline bool pare_parser_take(pare_parser *p, const pare_parser_calls *calls,
                                    const char *data, size_t bytes, size_t *taken)
{
    (void)calls; /* it has them */
    const llhttp_errno_t code = llhttp_execute(p, data, bytes);
    *taken = code == HPE_OK ? bytes : (size_t)(llhttp_get_error_pos(p) - data);
    return code == HPE_OK || code == HPE_PAUSED;
}

static inline int pare_parser_stop(pare_parser *p)
{
    (void)p;
    return HPE_PAUSED;
}

static inline const char *pare_parser_method(const pare_parser *p)
{
    return llhttp_method_name((llhttp_method_t)p->method);
}

static inline bool pare_parser_keeps_alive(const pare_parser *p)
{
    return llhttp_should_keep_alive(p);
}

static inline const char *pare_parser_why(const pare_parser *p)
{
    const char *why = llhttp_get_error_reason(p);
    return why && *why ? why : llhttp_errno_name(llhttp_get_errno(p));
}

#else

#include <http_parser.h>

typedef http_parser pare_parser;
typedef http_parser_settings pare_parser_calls;

/* For one request; its callbacks find the user in p->data. */
static inline void pare_parser_init(pare_parser *p, const pare_parser_calls *calls, void *user)
{
    (void)calls;
    http_parser_init(p, HTTP_REQUEST);
    p->data = user;
}

/* Takes bytes until they, or the request, end. False: they are no HTTP. */
static inline bool pare_parser_take(pare_parser *p, const pare_parser_calls *calls,
                                    const char *data, size_t bytes, size_t *taken)
{
    *taken = http_parser_execute(p, calls, data, bytes);
    const enum http_errno code = HTTP_PARSER_ERRNO(p);
    return code == HPE_OK || code == HPE_PAUSED;
}

/* What on_message_complete returns, so that the parser takes nothing behind the request. */
static inline int pare_parser_stop(pare_parser *p)
{
    http_parser_pause(p, 1);
    return 0;
}

static inline const char *pare_parser_method(const pare_parser *p)
{
    return http_method_str((enum http_method)p->method);
}

/* In on_headers_complete. */
static inline bool pare_parser_keeps_alive(const pare_parser *p)
{
    return http_should_keep_alive(p);
}

/* After a failure. */
static inline const char *pare_parser_why(const pare_parser *p)
{
    return http_errno_description(HTTP_PARSER_ERRNO(p));
}

#endif
#endif
#endif

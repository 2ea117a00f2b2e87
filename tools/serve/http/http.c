/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/http.h"

#ifdef PARE_HTTP

#include "runtime/base/clock.h"
#include "tools/serve/http/loop.h"
#include "tools/serve/listen.h"

enum {
    MOST_CONNECTIONS = 8192,
    FILES = 32,           /* descriptors that are no connections */
    KEPT_BYTES = 64 << 20 /* of memory for bodies, for later ones */
};

struct pare_http {
    pare_http_common common;
    pare_loops *loops;
    int port;
};

/* As many connections as descriptors allow, with some left for files. */
static int most_connections(void)
{
    const unsigned half = pare_listen_most();
    const unsigned most = half > 2 * FILES ? half - FILES : FILES;
    return most < MOST_CONNECTIONS ? (int)most : MOST_CONNECTIONS;
}

static pare_status start(pare_http *http)
{
    int listener;
    pare_ctx *ctx = &http->common.ctx;
    const pare_http_options *o = &http->common.options;
    if (o->certificate)
        PARE_TRY(pare_tls_files_new(ctx, &http->common.tls, o->certificate, o->key));
    PARE_TRY(pare_listen(ctx, &listener, o->host, o->port, &http->port));
    return pare_loops_new(ctx, &http->loops, &http->common, listener, o->threads,
                          most_connections());
}

pare_status pare_http_open(pare_ctx *ctx, pare_http **out, const pare_http_options *options)
{
    pare_http *http = pare_alloc(ctx, 1, sizeof *http);
    if (!http) return PARE_MEMORY;
    pare_ctx_child(&http->common.ctx, ctx);
    http->common.ctx.interrupted = NULL; /* they are answered after the first signal, too */
    http->common.options = *options;
    http->common.seconds = pare_seconds;
    pare_bodies_init(&http->common.bodies, KEPT_BYTES);
    const pare_status st = start(http);
    if (st == PARE_OK) {
        *out = http;
        return PARE_OK;
    }
    (void)pare_fail(ctx, st, "%s", http->common.ctx.message);
    pare_http_close(http);
    return st;
}

int pare_http_port(const pare_http *http) { return http->port; }

void pare_http_drain(pare_http *http)
{
    if (!atomic_load(&http->common.draining)) http->common.drained = pare_seconds();
    atomic_store(&http->common.draining, true);
    pare_loops_drain(http->loops);
}

void pare_http_close(pare_http *http)
{
    if (!http) return;
    if (http->loops) pare_http_drain(http);
    pare_loops_free(http->loops);
    pare_tls_files_free(http->common.tls);
    pare_bodies_free(&http->common.bodies);
    pare_free(http);
}

#else

pare_status pare_http_open(pare_ctx *ctx, pare_http **out, const pare_http_options *options)
{
    (void)out;
    (void)options;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "this build has no HTTP library: install libhttp-parser-dev or libllhttp-dev "
                     "and build again");
}

int pare_http_port(const pare_http *http)
{
    (void)http;
    return 0;
}

void pare_http_drain(pare_http *http) { (void)http; }

void pare_http_close(pare_http *http) { (void)http; }

#endif

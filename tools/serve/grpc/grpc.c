/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/grpc.h"

#ifdef PARE_GRPC

#include "runtime/base/clock.h"
#include "tools/serve/grpc/accept.h"
#include "tools/serve/listen.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_CALLS = 1024, /* of a connection at a time */
    IDLE_MS = 600000,  /* a connection without calls is closed */
    SPARE = 64 << 20   /* bytes of the library's own, over those of messages */
};

/* Seconds. Draining ends when no request came for QUIET, or after BUSY where they do not cease; a
   reply that is still sent SLOW after the last was made is lost. */
static const double QUIET = 0.3, BUSY = 5, SLOW = 30;

static void *grpc_main(void *user)
{
    pare_grpc *grpc = user;
    const gpr_timespec never = grpc->lib.gpr_inf_future(GPR_CLOCK_REALTIME);
    for (;;) {
        const grpc_event came = grpc->lib.grpc_completion_queue_next(grpc->queue, never, NULL);
        if (came.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        const pare_grpc_event *e = came.tag;
        e->on(e->user, came.success);
    }
}

/* --- opening --- */

static void be_quiet(gpr_log_func_args *args) { (void)args; }

static grpc_arg number_arg(const char *key, int64_t value)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)key};
    arg.value.integer = value < INT_MAX ? (int)value : INT_MAX;
    return arg;
}

static void make_server(pare_grpc *grpc)
{
    const pare_grpc_library *lib = &grpc->lib;
    grpc_resource_quota *quota = lib->grpc_resource_quota_create("pare");
    lib->grpc_resource_quota_resize(quota, (size_t)grpc->options.pending + SPARE);
    grpc_arg args[] = {
        number_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, grpc->options.limit),
        number_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1),
        number_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, MOST_CALLS),
        number_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, IDLE_MS),
        number_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0), /* it knows no limit */
        number_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
        {.type = GRPC_ARG_POINTER, .key = (char *)GRPC_ARG_RESOURCE_QUOTA},
    };
    const size_t count = sizeof args / sizeof *args;
    args[count - 1].value.pointer.p = quota;
    args[count - 1].value.pointer.vtable = lib->grpc_resource_quota_arg_vtable();
    const grpc_channel_args list = {count, args};
    grpc->server = lib->grpc_server_create(&list, NULL);
    lib->grpc_resource_quota_unref(quota);
    grpc->queue = lib->grpc_completion_queue_create_for_next(NULL);
    lib->grpc_server_register_completion_queue(grpc->server, grpc->queue, NULL);
}

/* The library does not say why an address cannot be had: it is tried before. */
static pare_status take_address(pare_grpc *grpc)
{
    const pare_grpc_options *o = &grpc->options;
    PARE_TRY(pare_listen(&grpc->ctx, &grpc->listener, o->host, o->port, &grpc->port));
    if (!o->certificate) return PARE_OK;
    close(grpc->listener);
    grpc->listener = -1;
    return PARE_OK;
}

/* With TLS the library listens: it takes no connection that another accepted. */
static pare_status let_listen(pare_grpc *grpc)
{
    char address[512];
    const pare_grpc_library *lib = &grpc->lib;
    const pare_grpc_options *o = &grpc->options;
    const bool is_v6 = strchr(o->host, ':') != NULL;
    grpc_ssl_pem_key_cert_pair pair = {o->key, o->certificate};
    grpc_server_credentials *secret =
        lib->grpc_ssl_server_credentials_create(NULL, &pair, 1, 0, NULL);
    snprintf(address, sizeof address, "%s%s%s:%d", is_v6 ? "[" : "", o->host, is_v6 ? "]" : "",
             grpc->port);
    const int port = secret ? lib->grpc_server_add_http2_port(grpc->server, address, secret) : 0;
    if (secret) lib->grpc_server_credentials_release(secret);
    if (port) return PARE_OK;
    return PARE_FAIL(&grpc->ctx, INPUT,
                     "the certificate and the key cannot be used; expected PEM, and the key "
                     "of the certificate");
}

static pare_status start(pare_grpc *grpc)
{
    PARE_TRY(take_address(grpc));
    PARE_TRY(pare_grpc_library_open(&grpc->ctx, &grpc->lib));
    grpc->lib.gpr_set_log_function(be_quiet);
    grpc->lib.grpc_init();
    make_server(grpc);
    if (grpc->options.certificate) PARE_TRY(let_listen(grpc));
    grpc->lib.grpc_server_start(grpc->server);
    if (!grpc->options.certificate) PARE_TRY(pare_grpc_accept_start(grpc));
    if (pthread_create(&grpc->thread, NULL, grpc_main, grpc))
        return PARE_FAIL(&grpc->ctx, MEMORY, "no thread for gRPC");
    grpc->is_running = true;
    pare_grpc_expect_call(grpc);
    return PARE_OK;
}

static void on_shutdown(void *user, bool ok)
{
    pare_grpc *grpc = user;
    (void)ok;
    atomic_store(&grpc->ended, true);
}

pare_status pare_grpc_open(pare_ctx *ctx, pare_grpc **out, const pare_grpc_options *options)
{
    pare_grpc *grpc = pare_alloc(ctx, 1, sizeof *grpc);
    if (!grpc) return PARE_MEMORY;
    pare_ctx_child(&grpc->ctx, ctx);
    grpc->ctx.interrupted = NULL; /* requests are answered after the first signal, too */
    grpc->options = *options;
    grpc->listener = -1;
    grpc->shutdown = (pare_grpc_event){on_shutdown, grpc};
    const pare_status st = start(grpc);
    if (st == PARE_OK) {
        *out = grpc;
        return PARE_OK;
    }
    (void)pare_fail(ctx, st, "%s", grpc->ctx.message);
    pare_grpc_close(grpc);
    return st;
}

int pare_grpc_port(const pare_grpc *grpc) { return grpc->port; }

/* --- the end --- */

/* Waits until all that came in time are answered, and none has come for a while, or for BUSY.
   Replies that are only sent are waited for as long as a client may be slow. */
static void await_quiet(pare_grpc *grpc)
{
    const double start = pare_seconds();
    double made = start, busy = start; /* when a reply was being made, or anything done, last */
    unsigned seen = atomic_load(&grpc->seen);
    for (double now = start; now < busy + QUIET; now = pare_seconds()) {
        const bool answers = atomic_load(&grpc->answering) > 0;
        const bool comes = atomic_load(&grpc->seen) != seen && now < start + BUSY;
        if (answers) made = now;
        const bool sends = atomic_load(&grpc->unsent) > 0 && now < made + SLOW;
        if (answers || comes || sends) busy = now;
        seen = atomic_load(&grpc->seen);
        pare_sleep_ms(5);
    }
}

/* False: it has not ended after a while. */
static bool await_end(pare_grpc *grpc)
{
    const double until = pare_seconds() + QUIET;
    while (!atomic_load(&grpc->ended) && pare_seconds() < until) pare_sleep_ms(1);
    return atomic_load(&grpc->ended);
}

/* Clients are told, and calls end; streams on which nothing happens are ended. */
static void shut_down(pare_grpc *grpc)
{
    pare_grpc_accept_stop(grpc);
    grpc->lib.grpc_server_shutdown_and_notify(grpc->server, grpc->queue, &grpc->shutdown);
    while (atomic_load(&grpc->answering)) pare_sleep_ms(1);
    if (!await_end(grpc)) grpc->lib.grpc_server_cancel_all_calls(grpc->server);
    while (!await_end(grpc)) continue;
    while (atomic_load(&grpc->calls)) pare_sleep_ms(1); /* what they wait for comes by the queue */
}

void pare_grpc_drain(pare_grpc *grpc)
{
    if (!grpc) return;
    atomic_store(&grpc->closed, true);
    await_quiet(grpc);
    shut_down(grpc);
}

void pare_grpc_close(pare_grpc *grpc)
{
    if (!grpc) return;
    const pare_grpc_library *lib = &grpc->lib;
    pare_grpc_accept_stop(grpc);
    while (atomic_load(&grpc->sending)) pare_sleep_ms(1);
    if (grpc->server && !grpc->is_running) { /* it was not started */
        lib->grpc_server_shutdown_and_notify(grpc->server, grpc->queue, &grpc->shutdown);
        (void)lib->grpc_completion_queue_next(grpc->queue, lib->gpr_inf_future(GPR_CLOCK_REALTIME),
                                              NULL);
    }
    if (grpc->queue) lib->grpc_completion_queue_shutdown(grpc->queue);
    if (grpc->is_running)
        (void)pthread_join(grpc->thread, NULL);
    else if (grpc->queue)
        (void)lib->grpc_completion_queue_next(grpc->queue, lib->gpr_inf_future(GPR_CLOCK_REALTIME),
                                              NULL);
    if (grpc->server) {
        lib->grpc_server_destroy(grpc->server);
        lib->grpc_completion_queue_destroy(grpc->queue);
        lib->grpc_shutdown();
    }
    pare_free(grpc);
}

#else

pare_status pare_grpc_open(pare_ctx *ctx, pare_grpc **out, const pare_grpc_options *options)
{
    (void)out;
    (void)options;
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "--grpc-port: this build has no gRPC: install libgrpc-dev and build again");
}

int pare_grpc_port(const pare_grpc *grpc)
{
    (void)grpc;
    return 0;
}

void pare_grpc_drain(pare_grpc *grpc) { (void)grpc; }

void pare_grpc_close(pare_grpc *grpc) { (void)grpc; }

#endif

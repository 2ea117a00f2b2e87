/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/grpc/accept.h"

#ifdef PARE_GRPC

#include "runtime/base/clock.h"
#include "tools/serve/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* The library does not say when a connection ends. Descriptors are given out from the lowest on:
   one below a limit says that there are no more connections than that. */
static void take(pare_grpc *grpc, int fd)
{
    const int one = 1;
    if (fd >= (int)pare_listen_most()) {
        close(fd);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    grpc->lib.grpc_server_add_channel_from_fd(grpc->server, fd, grpc->open);
}

static void *accept_main(void *user)
{
    pare_grpc *grpc = user;
    struct pollfd at = {.fd = grpc->listener, .events = POLLIN};
    while (!atomic_load(&grpc->is_deaf)) {
        (void)poll(&at, 1, -1);
        const int fd = accept4(grpc->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            take(grpc, fd);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pare_sleep_ms(10); /* others may end */
    }
    return NULL;
}

pare_status pare_grpc_accept_start(pare_grpc *grpc)
{
    grpc->open = grpc->lib.grpc_insecure_server_credentials_create();
    if (pthread_create(&grpc->acceptor, NULL, accept_main, grpc))
        return PARE_FAIL(&grpc->ctx, MEMORY, "no thread for gRPC");
    grpc->accepts = true;
    return PARE_OK;
}

void pare_grpc_accept_stop(pare_grpc *grpc)
{
    atomic_store(&grpc->is_deaf, true);
    if (grpc->listener >= 0) (void)shutdown(grpc->listener, SHUT_RDWR); /* which wakes it */
    if (grpc->accepts) (void)pthread_join(grpc->acceptor, NULL);
    grpc->accepts = false;
    if (grpc->listener >= 0) close(grpc->listener);
    grpc->listener = -1;
    if (grpc->open) grpc->lib.grpc_server_credentials_release(grpc->open);
    grpc->open = NULL;
}

#else

typedef int pare_grpc_accept_is_not_built; /* a source file is not empty */

#endif

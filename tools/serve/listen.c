/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int try_listen(const struct addrinfo *at)
{
    const int one = 1;
    const int fd =
        socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, SOMAXCONN)) return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static pare_status read_port(pare_ctx *ctx, int fd, const char *host, int *out)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &bytes))
        return PARE_FAIL(ctx, IO, "%s: %s", host, strerror(errno));
    *out = ntohs(name.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)&name)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)&name)->sin_port);
    return PARE_OK;
}

pare_status pare_listen(pare_ctx *ctx, int *fd, const char *host, int port, int *bound)
{
    char text[16];
    struct addrinfo *list, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(text, sizeof text, "%d", port);
    *fd = -1;
    const int code = getaddrinfo(host, text, &hints, &list);
    if (code) return PARE_FAIL(ctx, IO, "--host %s: %s", host, gai_strerror(code));
    for (const struct addrinfo *at = list; at && *fd < 0; at = at->ai_next) *fd = try_listen(at);
    freeaddrinfo(list);
    if (*fd < 0) return PARE_FAIL(ctx, IO, "%s port %d: %s", host, port, strerror(errno));
    return read_port(ctx, *fd, host, bound);
}

unsigned pare_listen_most(void)
{
    enum { MOST = 16384 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return 512;
    if (limit.rlim_cur < limit.rlim_max) {
        const struct rlimit all = {limit.rlim_max, limit.rlim_max};
        if (!setrlimit(RLIMIT_NOFILE, &all)) limit = all;
    }
    const rlim_t half = limit.rlim_cur / 2;
    return half < MOST ? (unsigned)half : MOST;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve/http/loop.h"

#include "runtime/base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS = 128,
    ACCEPTED = 64,  /* at once */
    TICK_MS = 1000, /* between looks at connections whose time may be over */
    DRAIN_MS = 50   /* the same while draining */
};

typedef struct loop {
    pare_loops *all;
    int epoll, bell; /* bell: an eventfd that ends its waiting */
    pthread_t thread;
    bool is_started;
    atomic_ulong self;                   /* its thread's own word for it; 0: it has not begun */
    pare_connection *first;              /* its connections */
    _Atomic(pare_connection *) returned; /* what was given back, the last first */
    pare_connection *closed;             /* of this round: an event of it may still name them */
    double ticked;                       /* pare_seconds, the last time */
} loop;

struct pare_loops {
    pare_http_common *common;
    int listener, count, most;
    unsigned next;         /* whose turn it is to be given a connection */
    bool is_listening;     /* of the first loop */
    atomic_bool is_closed; /* no connection comes any more */
    atomic_int connections;
    atomic_int returning; /* threads that give a connection back */
    loop loop[];          /* (count) */
};

static void ring(const loop *l)
{
    const uint64_t one = 1;
    /* it fails only where it has rung 2^64 times already */
    if (write(l->bell, &one, sizeof one) < 0) return;
}

/* Of threads that push at once the one that finds nothing rings; a loop looks before it waits. */
static void give_back(pare_connection *c)
{
    loop *l = c->loop;
    pare_loops *all = l->all;
    atomic_fetch_add(&all->returning, 1);
    pare_connection *last = atomic_load(&l->returned);
    do c->returned = last;
    while (!atomic_compare_exchange_weak(&l->returned, &last, c));
    if (!last && atomic_load(&l->self) != (unsigned long)pthread_self()) ring(l);
    atomic_fetch_sub(&all->returning, 1); /* by now the connection may be gone */
}

/* --- accepting --- */

static void listen_to(pare_loops *all, bool is_listening)
{
    struct epoll_event event = {.events = is_listening ? EPOLLIN : 0, .data.ptr = all};
    if (is_listening != all->is_listening)
        (void)epoll_ctl(all->loop[0].epoll, EPOLL_CTL_MOD, all->listener, &event);
    all->is_listening = is_listening;
}

static void take(pare_loops *all, int fd, double now)
{
    const int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pare_connection *c = pare_connection_new(all->common, fd, now);
    if (!c) {
        close(fd);
        return;
    }
    atomic_fetch_add(&all->connections, 1);
    c->loop = &all->loop[all->next++ % (unsigned)all->count];
    give_back(c);
}

/* At most so many. Where there are no descriptors left it waits for the next tick. */
static void accept_some(pare_loops *all, int most, double now)
{
    for (int i = 0; i < most; i++) {
        if (atomic_load(&all->connections) >= all->most) {
            listen_to(all, false);
            return;
        }
        const int fd = accept4(all->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            take(all, fd, now);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            listen_to(all, false);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return;
    }
}

/* What the system has accepted is taken; from now on connections are refused. */
static void stop_listening(pare_loops *all, double now)
{
    if (all->listener < 0) return;
    accept_some(all, all->most, now);
    close(all->listener);
    all->listener = -1;
    atomic_store(&all->is_closed, true);
    for (int i = 1; i < all->count; i++) ring(&all->loop[i]);
}

/* --- connections --- */

static bool add(loop *l, pare_connection *c)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    c->last = NULL;
    c->next = l->first;
    if (l->first) l->first->last = c;
    l->first = c;
    return !epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &event);
}

static void drop(loop *l, pare_connection *c)
{
    *(c->last ? &c->last->next : &l->first) = c->next;
    if (c->next) c->next->last = c->last;
    c->loop = NULL;
    c->next = l->closed;
    l->closed = c;
}

static void drop_where_closed(loop *l, pare_connection *c)
{
    if (c->loop && !pare_connection_is_out(c) && c->step == PARE_STEP_CLOSED) drop(l, c);
}

static void free_closed(loop *l)
{
    for (pare_connection *c; (c = l->closed);) {
        l->closed = c->next;
        atomic_fetch_sub(&l->all->connections, 1);
        pare_connection_free(c);
    }
}

static void run(loop *l, pare_connection *c, double now)
{
    pare_connection_run(c, now);
    drop_where_closed(l, c);
}

static bool is_of(const loop *l, const pare_connection *c) { return c->last || l->first == c; }

static void take_returned(loop *l, double now)
{
    pare_connection *c = atomic_exchange(&l->returned, NULL), *ordered = NULL;
    for (pare_connection *next; c; c = next) {
        next = c->returned;
        c->returned = ordered;
        ordered = c;
    }
    for (pare_connection *next; ordered; ordered = next) {
        next = ordered->returned;
        if (!is_of(l, ordered) && !add(l, ordered)) ordered->step = PARE_STEP_BROKEN;
        run(l, ordered, now);
    }
}

static void note(loop *l, pare_connection *c, uint32_t events, double now)
{
    unsigned turn = 0;
    if (events & EPOLLIN) turn |= PARE_TURN_READ;
    if (events & EPOLLRDHUP) turn |= PARE_TURN_ENDED;
    if (events & (EPOLLHUP | EPOLLERR)) turn |= PARE_TURN_GONE;
    if (pare_connection_note(c, turn)) run(l, c, now);
}

static void look_after(loop *l, double now)
{
    const bool drains = atomic_load(&l->all->common->draining);
    if (now < l->ticked + 1e-3 * (drains ? DRAIN_MS : TICK_MS)) return;
    l->ticked = now;
    for (pare_connection *c = l->first, *next; c; c = next) {
        next = c->next;
        pare_connection_tick(c, now);
        drop_where_closed(l, c);
    }
    if (l == l->all->loop && l->all->listener >= 0) listen_to(l->all, true);
}

/* --- the threads --- */

static int patience(const loop *l)
{
    if (atomic_load(&l->returned)) return 0;
    if (atomic_load(&l->all->common->draining)) return DRAIN_MS;
    return l->first || (l == l->all->loop && !l->all->is_listening) ? TICK_MS : -1;
}

static bool has_ended(const loop *l)
{
    return atomic_load(&l->all->is_closed) && !l->first && !atomic_load(&l->returned);
}

static void *loop_main(void *user)
{
    loop *l = user;
    pare_loops *all = l->all;
    struct epoll_event event[EVENTS];
    atomic_store(&l->self, (unsigned long)pthread_self());
    while (!has_ended(l)) {
        const int count = epoll_wait(l->epoll, event, EVENTS, patience(l));
        const double now = pare_seconds();
        for (int i = 0; i < count; i++) {
            uint64_t rings;
            if (event[i].data.ptr == l)
                (void)!read(l->bell, &rings, sizeof rings);
            else if (event[i].data.ptr == all)
                accept_some(all, ACCEPTED, now);
            else
                note(l, event[i].data.ptr, event[i].events, now);
        }
        if (l == all->loop && atomic_load(&all->common->draining)) stop_listening(all, now);
        take_returned(l, now);
        look_after(l, now);
        free_closed(l);
    }
    return NULL;
}

static pare_status start(pare_ctx *ctx, loop *l)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = l};
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->epoll < 0 || l->bell < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->bell, &event))
        return PARE_FAIL(ctx, IO, "a thread of HTTP's cannot wait: %s", strerror(errno));
    event.data.ptr = l->all;
    if (l == l->all->loop && epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->all->listener, &event))
        return PARE_FAIL(ctx, IO, "HTTP's thread cannot listen: %s", strerror(errno));
    const int code = pthread_create(&l->thread, NULL, loop_main, l);
    if (code) return PARE_FAIL(ctx, IO, "a thread of HTTP's does not start: %s", strerror(code));
    l->is_started = true;
    return PARE_OK;
}

pare_status pare_loops_new(pare_ctx *ctx, pare_loops **out, pare_http_common *common, int listener,
                           int threads, int most)
{
    pare_loops *all = *out = calloc(1, sizeof *all + (size_t)threads * sizeof *all->loop);
    if (!all) {
        close(listener);
        return PARE_FAIL(ctx, MEMORY, "out of memory for HTTP's threads");
    }
    all->common = common;
    all->listener = listener;
    all->count = threads;
    all->most = most;
    all->is_listening = true;
    common->give_back = give_back;
    for (int i = 0; i < threads; i++) all->loop[i] = (loop){.all = all, .epoll = -1, .bell = -1};
    for (int i = threads - 1; i >= 0; i--) PARE_TRY(start(ctx, &all->loop[i]));
    return PARE_OK;
}

void pare_loops_drain(pare_loops *all)
{
    if (!all->loop[0].is_started) atomic_store(&all->is_closed, true);
    for (int i = 0; i < all->count; i++)
        if (all->loop[i].is_started) ring(&all->loop[i]);
    for (int i = 0; i < all->count; i++) {
        if (all->loop[i].is_started) (void)pthread_join(all->loop[i].thread, NULL);
        all->loop[i].is_started = false;
    }
}

void pare_loops_free(pare_loops *all)
{
    if (!all) return;
    while (atomic_load(&all->returning)) pare_sleep_ms(1);
    for (int i = 0; i < all->count; i++) {
        if (all->loop[i].epoll >= 0) close(all->loop[i].epoll);
        if (all->loop[i].bell >= 0) close(all->loop[i].bell);
    }
    if (all->listener >= 0) close(all->listener);
    free(all);
}

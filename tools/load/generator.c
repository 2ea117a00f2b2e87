/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/generator.h"

#include <math.h>

/* Requests wait in order of when they are due: those from `next` on have not been sent. */
typedef struct generator {
    pare_ctx *ctx;
    const pare_load *load;
    const pare_load_port *port;
    pare_load_result *result;
    double start, freed, answered; /* freed: when the first of the idle connections became so;
                                      answered: the last answer */
    size_t next;
    size_t *request; /* (connections) what each one carries */
    int *idle, idle_count;
} generator;

static double due_at(const generator *g, size_t request)
{
    return g->start + g->load->due[request];
}

static bool is_counted(const generator *g, size_t request)
{
    return g->load->due[request] >= g->load->warm_up;
}

static pare_status send_next(generator *g, double lag)
{
    const size_t request = g->next++;
    const int connection = g->idle[--g->idle_count];
    g->request[connection] = request;
    if (is_counted(g, request)) {
        g->result->sent++;
        g->result->late += lag > 1e-3;
    }
    return g->port->send(g->port->user, connection, request, due_at(g, request) + g->load->timeout);
}

/* Sends what is due while there are connections, and gives up what has waited too long. */
static pare_status send_due(generator *g, double now)
{
    while (g->next < g->load->count && due_at(g, g->next) <= now) {
        const double due = due_at(g, g->next);
        if (due + g->load->timeout <= now) {
            if (is_counted(g, g->next)) {
                g->result->failed++;
                g->result->unsent++;
            }
            g->next++;
        } else if (g->idle_count) {
            PARE_TRY(send_next(g, now - fmax(due, g->freed)));
        } else {
            break;
        }
    }
    return PARE_OK;
}

static void note_end(generator *g, int connection, pare_load_end end, double now)
{
    const size_t request = g->request[connection];
    pare_load_result *r = g->result;
    if (!g->idle_count) g->freed = now;
    g->idle[g->idle_count++] = connection;
    if (!is_counted(g, request)) return;
    if (end == PARE_LOAD_ANSWERED) {
        g->answered = now;
        r->ms[r->answered++] = 1e3 * (now - due_at(g, request));
    } else if (end == PARE_LOAD_SHED)
        r->shed++;
    else
        r->failed++;
}

/* When there is something to do if no request ends before. */
static double next_time(const generator *g)
{
    if (g->next == g->load->count) return INFINITY;
    return due_at(g, g->next) + (g->idle_count ? 0 : g->load->timeout);
}

/* Notes the requests that are over by now; were there any? */
static bool take_ended(generator *g)
{
    const double now = g->port->now(g->port->user);
    pare_load_end end;
    bool any = false;
    for (int c; (c = g->port->next(g->port->user, &end)) >= 0; any = true) note_end(g, c, end, now);
    return any;
}

/* A request may end while another is sent: no wait begins before that is noted. */
static pare_status run(generator *g)
{
    const double step = 0.1; /* s: an interruption is seen after so long */
    g->freed = g->answered = g->start;
    for (;;) {
        const double now = g->port->now(g->port->user);
        PARE_TRY(pare_ctx_poll(g->ctx));
        PARE_TRY(send_due(g, now));
        if (take_ended(g)) continue;
        if (g->next == g->load->count && g->idle_count == g->load->connections) return PARE_OK;
        PARE_TRY(g->port->wait(g->port->user, fmin(next_time(g), now + step)));
        (void)take_ended(g);
    }
}

/* Requests that were due by now. */
static size_t count_due(const generator *g, double now)
{
    size_t n = 0;
    for (size_t i = 0; i < g->load->count && due_at(g, i) <= now; i++) n += is_counted(g, i);
    return n;
}

pare_status pare_load_run(pare_ctx *ctx, pare_load_result *out, const pare_load *load,
                          const pare_load_port *port)
{
    generator g = {.ctx = ctx, .load = load, .port = port, .result = out};
    const size_t connections = (size_t)load->connections;
    pare_status st = PARE_MEMORY;
    *out = (pare_load_result){.ms = pare_alloc(ctx, load->count, sizeof *out->ms)};
    g.request = pare_alloc(ctx, connections, sizeof *g.request);
    g.idle = pare_alloc(ctx, connections, sizeof *g.idle);
    if (!out->ms || !g.request || !g.idle) goto done;
    while (g.idle_count < load->connections) {
        g.idle[g.idle_count] = load->connections - 1 - g.idle_count;
        g.idle_count++;
    }
    g.start = port->now(port->user);
    st = run(&g);
    const double now = port->now(port->user), begin = g.start + load->warm_up;
    out->due = count_due(&g, now);
    out->seconds = st == PARE_OK ? fmax(g.answered - begin, load->duration) : fmax(now - begin, 0);
done:
    pare_free(g.request);
    pare_free(g.idle);
    if (st == PARE_MEMORY) pare_load_free(out);
    return st;
}

void pare_load_free(pare_load_result *result)
{
    pare_free(result->ms);
    result->ms = NULL;
}

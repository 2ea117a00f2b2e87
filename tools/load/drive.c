/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load/drive.h"

#include "runtime/base/clock.h"
#include "tools/load/schedule.h"

#include <math.h>
#include <stdio.h>

/* A rate under way. */
typedef struct under_way {
    pare_load_drive *drive;
    pare_load_row *row;
    size_t *request; /* (connections) what each carries */
    const double *due;
    size_t count, over;
    char ended[300]; /* why no one listens any more, or "" */
} under_way;

static double now(void *user)
{
    (void)user;
    return pare_seconds();
}

static pare_status check_there(const under_way *u)
{
    const pare_load_target *t = u->drive->target;
    if (!u->ended[0]) return PARE_OK;
    return PARE_FAIL(u->drive->tool->ctx, IO, "%s: model '%s': the server has ended: %s", t->url,
                     t->model, u->ended);
}

static pare_client_request request_of(const pare_load_drive *d, size_t i, double seconds)
{
    return (pare_client_request){.path = d->target->infer,
                                 .body = pare_load_requests_body(d->requests, i),
                                 .bytes = d->requests->bytes,
                                 .json_bytes = d->requests->json_bytes,
                                 .seconds = seconds};
}

static pare_status send(void *user, int connection, size_t request, double deadline)
{
    under_way *u = user;
    const pare_client_request r = request_of(u->drive, request, deadline - pare_seconds());
    PARE_TRY(check_there(u));
    u->request[connection] = request;
    return pare_client_send(u->drive->client, connection, &r);
}

static pare_status wait(void *user, double until)
{
    under_way *u = user;
    PARE_TRY(check_there(u));
    pare_progress_step(&u->drive->bar, (int64_t)u->over, (int64_t)u->count);
    return pare_client_wait(u->drive->client, until);
}

/* The first error of a rate. What the client was given is what was left of the timeout: a request
   that waited long for a connection gets less, which would say little. */
static void note_error(const under_way *u, const pare_client_reply *reply)
{
    pare_load_row *row = u->row;
    if (reply->timed_out)
        snprintf(row->error, sizeof row->error, "no answer within %.7g s of when it was due",
                 u->drive->load.timeout);
    else
        (void)pare_client_error(reply, row->error, sizeof row->error);
}

static int next(void *user, pare_load_end *end)
{
    enum { UNAVAILABLE = 503 };
    under_way *u = user;
    pare_client_reply reply;
    const int c = pare_client_next(u->drive->client, &reply);
    if (c < 0) return c;
    const size_t i = u->request[c];
    const bool is_counted = u->due[i] >= u->drive->load.warm_up;
    u->over++;
    if (reply.refused) snprintf(u->ended, sizeof u->ended, "%s", reply.error);
    *end = reply.status == 200           ? PARE_LOAD_ANSWERED
           : reply.status == UNAVAILABLE ? PARE_LOAD_SHED
                                         : PARE_LOAD_FAILED;
    if (*end == PARE_LOAD_ANSWERED && is_counted)
        pare_load_top1_add(&u->row->top1, u->drive->requests, i, &reply);
    if (*end == PARE_LOAD_FAILED && is_counted && !u->row->error[0]) note_error(u, &reply);
    return c;
}

static pare_status run(under_way *u)
{
    pare_load_drive *d = u->drive;
    pare_load load = d->load;
    pare_ctx *ctx = d->tool->ctx;
    const pare_load_port port = {now, send, wait, next, u};
    load.due = u->due;
    load.count = u->count;
    u->request = pare_alloc(ctx, (size_t)load.connections, sizeof *u->request);
    if (!u->request) return PARE_MEMORY;
    pare_progress_begin(&d->bar, stderr, d->tool->common->quiet, "load", "requests");
    const pare_status st = pare_load_run(ctx, &u->row->result, &load, &port);
    pare_progress_end(&d->bar);
    pare_client_stop(d->client);
    u->row->is_partial = st != PARE_OK;
    pare_free(u->request);
    return st;
}

static pare_status schedule(const pare_load_drive *d, double per_s, double **due, size_t *count)
{
    return pare_load_schedule(d->tool->ctx, due, count, d->is_poisson, per_s,
                              d->load.warm_up + d->load.duration, d->seed);
}

pare_status pare_load_rate_check(const pare_load_drive *d, double per_s)
{
    double *due;
    size_t count;
    PARE_TRY(schedule(d, per_s, &due, &count));
    const bool is_counted = due[count - 1] >= d->load.warm_up;
    pare_free(due);
    if (is_counted) return PARE_OK;
    return PARE_FAIL(d->tool->ctx, USAGE,
                     "--rate: at %.7g per second no request is due in the %.7g s after the warm-up "
                     "of %.7g s",
                     per_s, d->load.duration, d->load.warm_up);
}

pare_status pare_load_rate(pare_load_drive *d, pare_load_row *row, double per_s)
{
    pare_ctx *ctx = d->tool->ctx;
    pare_arena *arena = &d->tool->arena;
    under_way u = {.drive = d, .row = row};
    pare_load_work before, after;
    double *due;
    *row = (pare_load_row){.offered = per_s, .work = {.samples = NAN, .runs = NAN}};
    PARE_TRY(pare_load_top1_init(ctx, &row->top1, d->requests));
    PARE_TRY(pare_load_target_work(arena, d->target, d->client, &before));
    PARE_TRY(schedule(d, per_s, &due, &u.count));
    u.due = due;
    pare_status st = run(&u);
    pare_free(due);
    PARE_TRY(st);
    PARE_TRY(pare_load_target_work(arena, d->target, d->client, &after));
    row->work = pare_load_work_between(&before, &after);
    return PARE_OK;
}

void pare_load_row_free(pare_load_row *row)
{
    pare_load_free(&row->result);
    pare_load_top1_free(&row->top1);
}

/* --- before the load --- */

pare_status pare_load_probe(pare_load_drive *d)
{
    char text[512];
    pare_client_reply reply;
    pare_load_top1 top1;
    pare_ctx *ctx = d->tool->ctx;
    const pare_load_target *t = d->target;
    const double step = 0.1;
    const pare_client_request r =
        request_of(d, 0, fmax(d->load.timeout, PARE_CLIENT_SECONDS)); /* a cold server is slow */
    PARE_TRY(pare_client_send(d->client, 0, &r));
    while (pare_client_next(d->client, &reply) < 0) {
        PARE_TRY(pare_ctx_poll(ctx));
        PARE_TRY(pare_client_wait(d->client, pare_seconds() + step));
    }
    if (reply.status != 200)
        return PARE_FAIL(ctx, INPUT, "%s: model '%s': the first request failed: %s", t->url,
                         t->model, pare_client_error(&reply, text, sizeof text));
    PARE_TRY(pare_load_top1_init(ctx, &top1, d->requests));
    pare_load_top1_add(&top1, d->requests, 0, &reply);
    pare_load_top1_free(&top1);
    if (!top1.unread) return PARE_OK;
    return PARE_FAIL(ctx, INPUT,
                     "%s: model '%s': output '%s' came without (%lld, classes) scores as binary "
                     "data, which the labels are compared with",
                     t->url, t->model, t->output, (long long)d->requests->batch);
}

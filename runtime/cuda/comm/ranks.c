/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks through NCCL. Its own reductions leave the order of a float sum open; here it
   carries numbers, in the steps of rank_sum.h, and the additions are ours. No call of it blocks.
   What a call began is waited for here, joining with an end to it. Sums are waited for until NCCL's
   state names an error: it notes a rank that is gone there, while the stream just stands. A network
   that is silent is NCCL's to find out (NCCL_IB_TIMEOUT, TCP's own times). */
#include "runtime/base/clock.h"
#include "runtime/base/rank_sum.h"
#include "runtime/cuda/comm/nccl.h"
#include "runtime/cuda/comm/rank_sum.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/device/device_parts.h"
#include "runtime/cuda/device/error.h"
#include "runtime/device/ranks.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(pare_nccl_id) == PARE_RANKS_ID, "ids");

struct pare_device_ranks {
    pare_nccl_api api;
    pare_device *device;
    pare_ranks_options options;
    void *comm; /* NULL: not joined, or given up */
    char *room;
};

/* --- waiting --- */

/* Gives the core away; after a while it sleeps in between. */
static void pause_since(double start)
{
    if (pare_seconds() - start < 1e-3)
        sched_yield();
    else
        pare_sleep_ms(1);
}

/* The status that a call ends with. */
static int settled(const pare_device_ranks *r, int status)
{
    const double start = pare_seconds();
    while (status == PARE_NCCL_IN_PROGRESS && r->comm) {
        const int asked = r->api.state(r->comm, &status);
        if (asked) return asked;
        if (status != PARE_NCCL_IN_PROGRESS || pare_seconds() - start > r->options.seconds) break;
        pause_since(start);
    }
    return status;
}

static void give_up(pare_device_ranks *r)
{
    if (r->comm) (void)r->api.abort(r->comm);
    r->comm = NULL;
}

/* NCCL tells of a rank that is gone before the rank itself, or its launcher, has ended the job. One
   rank after the other speaks where no one has done so. */
static pare_status fail_remote(pare_ctx *ctx, const pare_device_ranks *r, const char *text)
{
    const int rank = r->options.rank;
    const double until = pare_seconds() + 3 + 0.25 * (rank < 12 ? rank : 12);
    while (pare_seconds() < until) pare_sleep_ms(50); /* a launcher's signals end no wait */
    return PARE_FAIL(ctx, IO, "a process that shares the work is gone, NCCL says: %s", text);
}

static pare_status fail_call(pare_ctx *ctx, pare_device_ranks *r, int status, const char *call)
{
    const bool late = status == PARE_NCCL_IN_PROGRESS;
    const char *text = r->api.text(status);
    give_up(r);
    if (status == PARE_NCCL_REMOTE_ERROR) return fail_remote(ctx, r, text);
    if (late)
        return PARE_FAIL(ctx, IO, "%s did not end within %g seconds", call, r->options.seconds);
    return PARE_FAIL(ctx, IO, "%s failed: %s", call, text);
}

static pare_status check(pare_ctx *ctx, pare_device_ranks *r, int status, const char *call)
{
    status = settled(r, status);
    return status ? fail_call(ctx, r, status, call) : PARE_OK;
}

/* --- joining --- */

pare_status pare_cuda_nccl(pare_ctx *ctx, char *text, size_t bytes)
{
    pare_nccl_api api;
    int version;
    PARE_TRY(pare_nccl_open(ctx, &api, &version));
    if (version < PARE_NCCL_OLDEST)
        return PARE_FAIL(ctx, UNSUPPORTED,
                         "the installed NCCL is older than 2.14: its version is %d", version);
    snprintf(text, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return PARE_OK;
}

static pare_status find(pare_ctx *ctx, char *library, size_t bytes)
{
    char version[32];
    PARE_TRY(pare_cuda_nccl(ctx, version, sizeof version));
    snprintf(library, bytes, "nccl %s", version);
    return PARE_OK;
}

static pare_status make_id(pare_ctx *ctx, void *out)
{
    pare_device_ranks r = {0};
    pare_nccl_id id;
    int version;
    PARE_TRY(pare_nccl_open(ctx, &r.api, &version));
    PARE_TRY(check(ctx, &r, r.api.make_id(&id), "ncclGetUniqueId"));
    memcpy(out, &id, sizeof id);
    return PARE_OK;
}

static pare_status join(pare_ctx *ctx, pare_device_ranks *r, const void *from)
{
    pare_nccl_config config = {.size = sizeof config,
                               .magic = PARE_NCCL_CONFIG_MAGIC,
                               .version = PARE_NCCL_OLDEST,
                               .blocking = 0,
                               .later = INT_MIN};
    pare_nccl_id id;
    memcpy(&id, from, sizeof id);
    PARE_CUDA_TRY(ctx, cudaSetDevice(r->device->index));
    const int status = r->api.init(&r->comm, r->options.size, id, r->options.rank, &config);
    return check(ctx, r, status, "ncclCommInitRankConfig");
}

static void ranks_close(pare_device_ranks *r)
{
    if (!r) return;
    if (r->comm && settled(r, r->api.finalize(r->comm)) == PARE_NCCL_SUCCESS) {
        (void)r->api.destroy(r->comm);
        r->comm = NULL;
    }
    give_up(r);
    r->device->backend->free(r->device, r->room);
    pare_free(r);
}

static pare_status ranks_open(pare_ctx *ctx, pare_device_ranks **out, pare_device *device,
                              const void *id, const pare_ranks_options *options)
{
    void *room = NULL;
    int version;
    pare_device_ranks *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    *r = (pare_device_ranks){.device = device, .options = *options};
    pare_status st = pare_nccl_open(ctx, &r->api, &version);
    if (st == PARE_OK) st = device->backend->alloc(ctx, device, &room, options->room);
    r->room = room;
    if (st == PARE_OK) st = join(ctx, r, id);
    if (st == PARE_OK)
        *out = r;
    else
        ranks_close(r);
    return st;
}

/* --- sums --- */

typedef struct numbers {
    pare_dtype dtype;
    size_t each;
    int type; /* NCCL's */
    char *data;
    cudaStream_t stream;
} numbers;

/* To and from the same rank at once: a group, which is closed whatever came. */
static pare_status exchange(pare_ctx *ctx, pare_device_ranks *r, const numbers *n,
                            const pare_rank_sum_step *s, void *to)
{
    const pare_nccl_api *api = &r->api;
    const char *call = "ncclSend";
    int status = PARE_NCCL_SUCCESS;
    PARE_TRY(check(ctx, r, api->group_start(), "ncclGroupStart"));
    if (s->give)
        status = api->send(n->data + s->give_at * n->each, s->give, n->type, s->other, r->comm,
                           n->stream);
    if (s->take && (!status || status == PARE_NCCL_IN_PROGRESS)) {
        call = "ncclRecv";
        status = api->receive(to, s->take, n->type, s->other, r->comm, n->stream);
    }
    const int ended = api->group_end();
    if (status && status != PARE_NCCL_IN_PROGRESS) return fail_call(ctx, r, status, call);
    return check(ctx, r, ended, "ncclGroupEnd");
}

static pare_status take_step(pare_ctx *ctx, pare_device_ranks *r, const numbers *n,
                             const pare_rank_sum_step *s)
{
    char *place = n->data + s->take_at * n->each;
    if (!s->give && !s->take) return PARE_OK;
    PARE_TRY(exchange(ctx, r, n, s, s->add ? r->room : place));
    if (!s->add) return PARE_OK;
    const cudaError_t error =
        pare_cuda_rank_add(n->dtype, place, r->room, (int64_t)s->take, n->stream);
    return error == cudaSuccess ? PARE_OK : pare_cuda_fail(ctx, error, "pare_cuda_rank_add");
}

/* In pieces that the room holds. */
static pare_status sum(pare_ctx *ctx, pare_device_ranks *r, pare_stream *stream, pare_dtype dtype,
                       void *data, size_t count)
{
    const bool wide = dtype == PARE_f64;
    numbers n = {.dtype = dtype,
                 .each = wide ? sizeof(double) : sizeof(float),
                 .type = wide ? PARE_NCCL_F64 : PARE_NCCL_F32,
                 .data = data,
                 .stream = pare_cuda_stream(stream)};
    const size_t most = r->options.room / n.each;
    while (count) {
        pare_rank_sum_step step[PARE_RANK_SUM_STEPS];
        int adding;
        const size_t piece = count < most ? count : most;
        const int steps =
            pare_rank_sum_plan(step, r->options.rank, r->options.size, piece, &adding);
        for (int i = 0; i < steps; i++) PARE_TRY(take_step(ctx, r, &n, &step[i]));
        n.data += piece * n.each;
        count -= piece;
    }
    return PARE_OK;
}

/* A communicator that was given up tells nothing; what it had put into the stream ends. */
static pare_status wait_for(pare_ctx *ctx, pare_device_ranks *r, pare_stream *stream)
{
    const double start = pare_seconds();
    for (;;) {
        const cudaError_t error = cudaStreamQuery(pare_cuda_stream(stream));
        int status = PARE_NCCL_SUCCESS;
        if (error == cudaErrorNotReady)
            (void)cudaGetLastError(); /* it is not the next launch that failed */
        else if (error != cudaSuccess) {
            give_up(r);
            return pare_cuda_fail(ctx, error, "cudaStreamQuery");
        }
        const int asked = r->comm ? r->api.state(r->comm, &status) : 0;
        if (asked || (status && status != PARE_NCCL_IN_PROGRESS))
            return fail_call(ctx, r, asked ? asked : status, "a sum over ranks");
        if (error == cudaSuccess) return PARE_OK;
        pause_since(start);
    }
}

const pare_ranks_table pare_cuda_ranks = {.find = find,
                                          .make_id = make_id,
                                          .open = ranks_open,
                                          .close = ranks_close,
                                          .sum = sum,
                                          .wait = wait_for};

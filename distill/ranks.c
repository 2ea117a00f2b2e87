/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other. Sums of floats have one order (tree_sum.h); all else is exact. Sums
   of what GPUs hold go from GPU to GPU where all can; MPI carries what that takes to begin, and
   before each sum the news that no rank has failed. */
#include "distill/trainer.h"
#include "runtime/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

pare_status pare_ranks_sum(void *user, pare_dtype dtype, void *x, int64_t count)
{
    const pare_rank_sums *s = user;
    if (dtype == PARE_f64) return pare_comm_sum_f64(s->comm, x, (size_t)count);
    return pare_comm_sum_f32(s->comm, x, (size_t)count);
}

/* The bits of 0.0 are 0: those of a number and of zeros add up to the number's. */
pare_status pare_ranks_join(pare_comm *comm, double *x, int64_t count)
{
    return pare_comm_allreduce(comm, x, (size_t)count, PARE_COMM_SUM_U64);
}

/* --- from device to device --- */

enum {
    WHY = 512,          /* bytes of a reason */
    MOST_ROOM = 1 << 24 /* bytes: messages of some MiB have the network's full speed */
};
static const double JOINING = 30; /* seconds */

typedef struct place {
    char host[256], bus[32];
    char library[32]; /* "": none, and why: */
    char why[WHY];
} place;

/* A failure here is only the reason for another way. */
static void note_why(pare_ctx *ctx, pare_status st, char *why)
{
    const char *text = ctx->message[0] ? ctx->message : pare_status_text(st);
    snprintf(why, WHY, "%.*s", WHY - 1, text);
    pare_ctx_clear(ctx);
}

/* The same of this rank in particular: all tell it. */
static void note_own(const pare_rank_sums *s, pare_status st, char *why)
{
    enum { NAME = 24 };
    char text[WHY];
    note_why(s->ctx, st, text);
    snprintf(why, WHY, "rank %d: %.*s", pare_comm_rank(s->comm), WHY - NAME, text);
}

static void find_place(const pare_rank_sums *s, place *mine)
{
    const pare_ranks_table *ranks = s->device->ranks;
    memset(mine, 0, sizeof *mine);
    (void)gethostname(mine->host, sizeof mine->host - 1);
    snprintf(mine->bus, sizeof mine->bus, "%s", s->device->bus);
    if (!ranks) {
        snprintf(mine->why, sizeof mine->why, "%.200s cannot", s->device->name);
        return;
    }
    const pare_status st = ranks->find(s->ctx, mine->library, sizeof mine->library);
    if (st == PARE_OK) return;
    note_why(s->ctx, st, mine->why);
    mine->library[0] = 0;
}

/* The first reason against it, the same in all ranks. */
static void judge(const place *all, int size, char *why)
{
    for (int i = 0; i < size && !*why; i++) {
        if (!all[i].library[0])
            snprintf(why, WHY, "%s", all[i].why);
        else if (strcmp(all[i].library, all[0].library) != 0)
            snprintf(why, WHY, "rank 0 has %s, rank %d %s", all[0].library, i, all[i].library);
        for (int k = 0; k < i && !*why; k++)
            if (!strcmp(all[i].host, all[k].host) && !strcmp(all[i].bus, all[k].bus))
                snprintf(why, WHY, "ranks %d and %d share a GPU, which NCCL refuses", k, i);
    }
}

static pare_status compare_places(const pare_rank_sums *s, place *mine, char *why)
{
    const int size = pare_comm_size(s->comm);
    place *all = pare_alloc(s->ctx, (size_t)size, sizeof *all);
    pare_status st = pare_comm_settle(s->comm, all ? PARE_OK : PARE_MEMORY);
    find_place(s, mine);
    if (st == PARE_OK) st = pare_comm_gather(s->comm, mine, sizeof *mine, all);
    if (st == PARE_OK) st = pare_comm_broadcast(s->comm, all, (size_t)size * sizeof *all, 0);
    if (st == PARE_OK) judge(all, size, why);
    pare_free(all);
    return st;
}

static pare_status share_id(const pare_rank_sums *s, void *id, char *why)
{
    if (!pare_comm_rank(s->comm)) {
        const pare_status st = s->device->ranks->make_id(s->ctx, id);
        if (st != PARE_OK) note_own(s, st, why);
    }
    PARE_TRY(pare_comm_broadcast(s->comm, why, WHY, 0));
    return *why ? PARE_OK : pare_comm_broadcast(s->comm, id, PARE_RANKS_ID, 0);
}

/* The reason of the lowest rank that has one, rather of one that did not just wait for others. */
static pare_status share_why(const pare_rank_sums *s, bool waited, char *why)
{
    const int size = pare_comm_size(s->comm), rank = pare_comm_rank(s->comm);
    int64_t worst = *why ? size - rank + (waited ? 0 : size) : 0;
    PARE_TRY(pare_comm_allreduce(s->comm, &worst, 1, PARE_COMM_MAX_I64));
    const int root = size - 1 - (int)((worst + size - 1) % size);
    return worst ? pare_comm_broadcast(s->comm, why, WHY, root) : PARE_OK;
}

/* All join, or none. */
static pare_status join_devices(pare_rank_sums *s, size_t floats, char *why)
{
    unsigned char id[PARE_RANKS_ID];
    const size_t bytes = floats * sizeof(float);
    const pare_ranks_options options = {.rank = pare_comm_rank(s->comm),
                                        .size = pare_comm_size(s->comm),
                                        .room = bytes < 4096        ? 4096
                                                : bytes < MOST_ROOM ? bytes
                                                                    : MOST_ROOM,
                                        .seconds = JOINING};
    const pare_ranks_table *ranks = s->device->ranks;
    PARE_TRY(share_id(s, id, why));
    if (*why) return PARE_OK;
    const double start = pare_seconds();
    pare_status st = ranks->open(s->ctx, &s->there, s->device, id, &options);
    if (st != PARE_OK) note_own(s, st, why);
    st = share_why(s, pare_seconds() - start >= JOINING, why);
    s->room = options.room;
    if (st != PARE_OK || *why) pare_rank_sums_close(s);
    return st;
}

pare_status pare_rank_sums_open(pare_ctx *ctx, pare_rank_sums *out, pare_comm *comm,
                                pare_device *device, size_t floats)
{
    char why[WHY] = "";
    place mine;
    *out = (pare_rank_sums){.ctx = ctx, .comm = comm, .device = device};
    if (!comm) return PARE_OK;
    snprintf(out->transport, sizeof out->transport, "mpi");
    if (!device) return PARE_OK;
    PARE_TRY(compare_places(out, &mine, why));
    if (!*why) PARE_TRY(join_devices(out, floats, why));
    if (out->there) memcpy(out->transport, mine.library, sizeof out->transport);
    if (out->there)
        pare_log(ctx, PARE_LOG_INFO, "gradients go from GPU to GPU: %s", out->transport);
    else
        pare_log(ctx, PARE_LOG_INFO, "gradients go through the hosts, by MPI: %s", why);
    return PARE_OK;
}

void pare_rank_sums_close(pare_rank_sums *s)
{
    if (s->there) s->device->ranks->close(s->there);
    s->there = NULL;
    s->room = 0;
}

/* A rank that fails in between leaves the others waiting for its device. */
pare_status pare_rank_sums_make(void *user, pare_stream *stream, pare_dtype dtype, void *y,
                                int64_t count)
{
    const pare_rank_sums *s = user;
    const pare_ranks_table *ranks = s->device->ranks;
    PARE_TRY(pare_comm_settle(s->comm, PARE_OK));
    pare_status st = ranks->sum(s->ctx, s->there, stream, dtype, y, (size_t)count);
    if (st == PARE_OK) st = ranks->wait(s->ctx, s->there, stream);
    return pare_comm_break(s->comm, st);
}

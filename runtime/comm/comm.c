/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/comm.h"
#include "runtime/base/clock.h"
#include "runtime/base/rank_sum.h"
#include "runtime/comm/transport.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what the launcher says --- */

/* The first of these variables that holds a number. Slurm's are those of a step: a batch script
   that starts one process has none above 1. */
static int number_of(const char *const *names, int otherwise)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        char *end;
        const long value = text && *text ? strtol(text, &end, 10) : -1;
        if (value >= 0 && value < 1 << 24 && !*end) return (int)value;
    }
    return otherwise;
}

int pare_comm_launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
    return pare_comm_launched_size() > 1 ? number_of(names, 0) : 0;
}

int pare_comm_launched_size(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        NULL};
    return number_of(names, 1);
}

int pare_comm_rank(const pare_comm *c) { return c ? c->rank : 0; }

int pare_comm_size(const pare_comm *c) { return c ? c->size : 1; }

int pare_comm_local_rank(const pare_comm *c) { return c ? c->transport->local_rank : 0; }

int pare_comm_threads(const pare_comm *c) { return c ? c->threads : 0; }

const char *pare_comm_library(const pare_comm *c) { return c ? c->transport->library : ""; }

pare_status pare_comm_checked(pare_comm *c, pare_status st)
{
    if (st != PARE_OK) {
        c->failed = st;
        c->broken = true;
    }
    return st;
}

/* --- failures --- */

/* Takes the alarms that were raised for this rank; own: it raised one, too. */
static pare_status clear_alarms(pare_comm *c, bool own)
{
    int64_t raised = own;
    c->heard = false;
    PARE_TRY(c->transport->allreduce(c->transport, &raised, 1, PARE_COMM_SUM_U64));
    return c->transport->clear(c->transport, raised - own);
}

/* Before this rank's message, which others than rank 0 sign. */
static void sign(const pare_comm *c, pare_status status)
{
    char host[256] = "";
    if (!c->rank || !c->ctx->message[0]) return;
    (void)gethostname(host, sizeof host - 1);
    (void)pare_fail_prefix(c->ctx, status, "rank %d (%s)", c->rank, host);
}

/* Takes the message of the rank that failed. */
static pare_status adopt(pare_comm *c, int root, pare_status status)
{
    char message[sizeof c->ctx->message];
    if (c->rank == root) sign(c, status);
    memcpy(message, c->ctx->message, sizeof message);
    PARE_TRY(
        pare_comm_checked(c, c->transport->broadcast(c->transport, message, sizeof message, root)));
    c->failed = status;
    memcpy(c->ctx->message, message, sizeof message);
    return status;
}

pare_status pare_comm_settle(pare_comm *c, pare_status status)
{
    if (!c) return status;
    if (c->failed != PARE_OK) return c->failed;
    if (c->heard) status = PARE_OK; /* it stopped because of the rank whose failure this is */
    const bool own = status != PARE_OK;
    int64_t worst = own ? (int64_t)(c->size - c->rank) << 8 | status : 0;
    if (own) PARE_TRY(pare_comm_checked(c, c->transport->raise(c->transport)));
    PARE_TRY(
        pare_comm_checked(c, c->transport->allreduce(c->transport, &worst, 1, PARE_COMM_MAX_I64)));
    if (!worst) return PARE_OK;
    PARE_TRY(pare_comm_checked(c, clear_alarms(c, own)));
    return adopt(c, c->size - (int)(worst >> 8), (pare_status)(worst & 0xff));
}

pare_status pare_comm_listen(pare_comm *c, pare_ctx *ctx)
{
    static const double EVERY = 0.05; /* seconds */
    if (!c) return PARE_OK;
    if (c->failed != PARE_OK) return c->failed;
    const double now = pare_seconds();
    if (!c->heard && now - c->looked >= EVERY) {
        c->looked = now;
        PARE_TRY(pare_comm_checked(c, c->transport->raised(c->transport, &c->heard)));
    }
    return c->heard ? PARE_FAIL(ctx, INTERRUPTED, "another rank has failed") : PARE_OK;
}

void pare_comm_log_heard(const pare_comm *c, int64_t done, int64_t all)
{
    if (c && c->heard)
        pare_log(c->ctx, PARE_LOG_INFO,
                 "stopped after %lld of %lld samples: another rank has failed", (long long)done,
                 (long long)all);
}

pare_status pare_comm_break(pare_comm *c, pare_status status)
{
    if (!c || status == PARE_OK) return status;
    sign(c, status);
    return pare_comm_checked(c, status);
}

bool pare_comm_failed(const pare_comm *c) { return c && c->failed != PARE_OK && !c->broken; }

bool pare_comm_is_broken(const pare_comm *c) { return c && c->broken; }

void pare_comm_forget(pare_comm *c)
{
    if (c && !c->broken) c->failed = PARE_OK;
}

/* --- joining --- */

/* Ranks of this machine that may use the same cores share them. */
static pare_status share_cores(pare_comm *c)
{
    enum { MOST = 1 << 13 }; /* cores */
    cpu_set_t cores[MOST / CPU_SETSIZE];
    int same = 0;
    if (sched_getaffinity(0, sizeof cores, cores)) memset(cores, 0, sizeof cores);
    struct {
        char host[256];
        pare_hash cores;
    } mine = {.cores = pare_hash_bytes(cores, sizeof cores)}, *all = NULL;
    (void)gethostname(mine.host, sizeof mine.host - 1);
    all = pare_alloc(c->ctx, (size_t)c->size, sizeof *all);
    pare_status st = pare_comm_settle(c, all ? PARE_OK : PARE_MEMORY);
    if (st == PARE_OK)
        st = pare_comm_checked(c, c->transport->gather(c->transport, &mine, sizeof mine, all));
    if (st == PARE_OK)
        st = pare_comm_checked(
            c, c->transport->broadcast(c->transport, all, (size_t)c->size * sizeof *all, 0));
    for (int i = 0; st == PARE_OK && i < c->size; i++) same += !memcmp(&all[i], &mine, sizeof mine);
    pare_free(all);
    if (st != PARE_OK) return st;
    const int count = CPU_COUNT_S(sizeof cores, cores);
    c->threads = count > same ? count / same : 1;
    return PARE_OK;
}

pare_status pare_comm_open(pare_ctx *ctx, pare_comm **out)
{
    const int launched = pare_comm_launched_size();
    *out = NULL;
    if (launched < 2) return PARE_OK;
    pare_comm *c = pare_alloc(ctx, 1, sizeof *c);
    if (!c) return PARE_MEMORY;
    c->ctx = ctx;
    pare_status st = pare_mpi_open(ctx, &c->transport);
    if (st != PARE_OK) {
        pare_free(c);
        return st;
    }
    c->rank = c->transport->rank;
    c->size = c->transport->size;
    if (c->size != launched && pare_comm_launched_rank())
        st = PARE_UNSUPPORTED; /* one of them says it */
    else if (c->size != launched)
        st = PARE_FAIL(ctx, UNSUPPORTED,
                       "%s sees %d process%s where %d were started; start them with its own "
                       "mpirun, or by srun --mpi=pmix",
                       c->transport->library, c->size, c->size == 1 ? "" : "es", launched);
    if (st == PARE_OK) st = share_cores(c);
    if (st == PARE_OK)
        *out = c;
    else
        pare_comm_close(c);
    return st;
}

void pare_comm_close(pare_comm *c)
{
    if (!c) return;
    c->transport->close(c->transport, c->broken);
    pare_free(c);
}

/* --- data --- */

pare_status pare_comm_allreduce(pare_comm *c, void *data, size_t count, pare_comm_op op)
{
    PARE_TRY(pare_comm_settle(c, PARE_OK));
    return c ? pare_comm_checked(c, c->transport->allreduce(c->transport, data, count, op))
             : PARE_OK;
}

/* In four parts of 32 bits, the highest with its sign: in 64 bits their sums have room for what is
   carried. */
enum { PARTS = 4 };

__extension__ typedef unsigned __int128 uint128;

static void split(pare_int128 x, uint64_t *part)
{
    for (int k = 0; k < PARTS - 1; k++, x >>= 32) part[k] = (uint32_t)x;
    part[PARTS - 1] = (uint64_t)(int64_t)x;
}

static bool join(const uint64_t *part, pare_int128 *out)
{
    uint128 x = 0;
    uint64_t carry = 0;
    for (int k = 0; k < PARTS - 1; k++) {
        carry += part[k];
        x |= (uint128)(uint32_t)carry << 32 * k;
        carry >>= 32;
    }
    const int64_t top = (int64_t)(part[PARTS - 1] + carry);
    *out = (pare_int128)(x | (uint128)(uint32_t)top << 96);
    return top >= INT32_MIN && top <= INT32_MAX;
}

pare_status pare_comm_sum_i128(pare_comm *c, pare_int128 *x, size_t count, bool *fits)
{
    *fits = true;
    if (!c) return PARE_OK;
    uint64_t *part = pare_alloc(c->ctx, count, PARTS * sizeof *part);
    pare_status st = pare_comm_settle(c, part ? PARE_OK : PARE_MEMORY);
    for (size_t i = 0; st == PARE_OK && i < count; i++) split(x[i], part + i * PARTS);
    if (st == PARE_OK) st = pare_comm_allreduce(c, part, count * PARTS, PARE_COMM_SUM_U64);
    for (size_t i = 0; st == PARE_OK && i < count; i++) *fits &= join(part + i * PARTS, &x[i]);
    pare_free(part);
    return st;
}

pare_status pare_comm_sum_hash(pare_comm *c, pare_hash *x)
{
    bool fits; /* a hash is modulo 2^128 */
    pare_int128 sum = (pare_int128)((uint128)x->high << 64 | x->low);
    PARE_TRY(pare_comm_sum_i128(c, &sum, 1, &fits));
    *x = (pare_hash){.low = (uint64_t)sum, .high = (uint64_t)(sum >> 64)};
    return PARE_OK;
}

pare_status pare_comm_broadcast(pare_comm *c, void *data, size_t bytes, int root)
{
    PARE_TRY(pare_comm_settle(c, PARE_OK));
    return c ? pare_comm_checked(c, c->transport->broadcast(c->transport, data, bytes, root))
             : PARE_OK;
}

pare_status pare_comm_gather(pare_comm *c, const void *mine, size_t bytes, void *all)
{
    PARE_TRY(pare_comm_settle(c, PARE_OK));
    if (c) return pare_comm_checked(c, c->transport->gather(c->transport, mine, bytes, all));
    memcpy(all, mine, bytes);
    return PARE_OK;
}

pare_status pare_comm_bring(pare_comm *c, const void *mine, size_t bytes, int from, void *out)
{
    const int rank = pare_comm_rank(c);
    if (rank && rank == from)
        return pare_comm_checked(c, c->transport->send(c->transport, mine, bytes, 0));
    if (!rank && from)
        return pare_comm_checked(c, c->transport->receive(c->transport, out, bytes, from));
    if (!rank && bytes) memcpy(out, mine, bytes);
    return PARE_OK;
}

pare_status pare_comm_all_gather(pare_comm *c, const void *mine, const size_t *bytes, void *all)
{
    enum { LARGEST = 1 << 30 };
    size_t sum = 0;
    PARE_TRY(pare_comm_settle(c, PARE_OK));
    for (int r = 0; r < pare_comm_size(c) && sum <= LARGEST; r++)
        sum = bytes[r] <= LARGEST ? sum + bytes[r] : bytes[r];
    if (c && sum > LARGEST)
        return PARE_FAIL(c->ctx, UNSUPPORTED,
                         "ranks have more than 1 GiB for each other at once; take a smaller batch");
    if (c) return pare_comm_checked(c, c->transport->all_gather(c->transport, mine, bytes, all));
    if (*bytes) memcpy(all, mine, *bytes);
    return PARE_OK;
}

pare_status pare_comm_same(pare_comm *c, const char *what, const void *data, size_t bytes)
{
    if (!c) return PARE_OK;
    const pare_hash mine = pare_hash_bytes(data, bytes);
    pare_hash first = mine;
    PARE_TRY(pare_comm_broadcast(c, &first, sizeof first, 0));
    const bool same = !memcmp(&first, &mine, sizeof mine);
    return pare_comm_settle(c, same ? PARE_OK
                                    : PARE_FAIL(c->ctx, INPUT,
                                                "has another %s than rank 0; all ranks need the "
                                                "same",
                                                what));
}

/* --- sums in a fixed order --- */

/* Numbers that are summed: of so many bytes each, and how two arrays of them are added. */
typedef struct summed {
    size_t each;
    void (*add)(void *to, const void *from, size_t count);
} summed;

#define ADD(type, ctype)                                                                           \
    static void add_##type(void *to, const void *from, size_t count)                               \
    {                                                                                              \
        ctype *sum = to;                                                                           \
        const ctype *x = from;                                                                     \
        for (size_t i = 0; i < count; i++) sum[i] += x[i];                                         \
    }
ADD(f32, float)
ADD(f64, double)

/* One step of the plan. */
static pare_status sum_step(pare_comm *c, const summed *s, char *data, char *other,
                            const pare_rank_sum_step *step)
{
    pare_transport *t = c->transport;
    const size_t give = step->give * s->each, take = step->take * s->each;
    char *const from = data + step->give_at * s->each, *const to = data + step->take_at * s->each;
    char *const in = step->add ? other : to;
    if (give && take)
        PARE_TRY(t->exchange(t, from, give, in, take, step->other));
    else if (give)
        PARE_TRY(t->send(t, from, give, step->other));
    else if (take)
        PARE_TRY(t->receive(t, in, take, step->other));
    if (step->add) s->add(to, other, step->take);
    return PARE_OK;
}

/* MPI scatters and gathers what goes back from rank 0 where it is large. */
static pare_status sum_steps(pare_comm *c, const summed *s, char *data, char *other, size_t count)
{
    pare_rank_sum_step step[PARE_RANK_SUM_STEPS];
    const bool halves = pare_rank_sum_halves(c->size);
    int adding;
    const int steps = pare_rank_sum_plan(step, c->rank, c->size, count, &adding);
    for (int i = 0; i < (halves ? steps : adding); i++)
        PARE_TRY(sum_step(c, s, data, other, &step[i]));
    return halves ? PARE_OK : c->transport->broadcast(c->transport, data, count * s->each, 0);
}

static pare_status sum(pare_comm *c, const summed *s, void *data, size_t count)
{
    if (!c) return PARE_OK;
    char *other = pare_alloc(c->ctx, pare_rank_sum_room(c->size, count), s->each);
    pare_status st = pare_comm_settle(c, other ? PARE_OK : PARE_MEMORY);
    if (st == PARE_OK) st = pare_comm_checked(c, sum_steps(c, s, data, other, count));
    pare_free(other);
    return st;
}

pare_status pare_comm_sum_f32(pare_comm *c, float *data, size_t count)
{
    return sum(c, &(summed){sizeof *data, add_f32}, data, count);
}

pare_status pare_comm_sum_f64(pare_comm *c, double *data, size_t count)
{
    return sum(c, &(summed){sizeof *data, add_f64}, data, count);
}

/* --- the network --- */

/* Half the quickest of some round trips. */
static pare_status time_trips(pare_comm *c, char *data, size_t bytes, int trips, double *out)
{
    const int other = c->rank ? 0 : c->size - 1;
    *out = 1e30;
    for (int i = 0; i < trips && (!c->rank || c->rank == c->size - 1); i++) {
        pare_transport *t = c->transport;
        const double start = pare_seconds();
        PARE_TRY(c->rank ? t->receive(t, data, bytes, other) : t->send(t, data, bytes, other));
        PARE_TRY(c->rank ? t->send(t, data, bytes, other) : t->receive(t, data, bytes, other));
        const double took = (pare_seconds() - start) / 2;
        if (took < *out) *out = took;
    }
    return PARE_OK;
}

static pare_status measure(pare_comm *c, char *data, size_t large, pare_network *out)
{
    enum { SMALL = 8 };
    double first = 0, second = 0;
    PARE_TRY(time_trips(c, data, SMALL, 200, &first));
    PARE_TRY(time_trips(c, data, large, 10, &second));
    *out = (pare_network){first, second > first ? (second - first) / (double)(large - SMALL) : 0};
    return c->transport->broadcast(c->transport, out, sizeof *out, 0);
}

pare_status pare_comm_measure(pare_comm *c, pare_network *out)
{
    const size_t large = 16 << 20;
    *out = (pare_network){0};
    if (!c) return PARE_OK;
    char *data = pare_alloc(c->ctx, large, 1);
    pare_status st = pare_comm_settle(c, data ? PARE_OK : PARE_MEMORY);
    if (st == PARE_OK) st = pare_comm_checked(c, measure(c, data, large, out));
    pare_free(data);
    return st;
}

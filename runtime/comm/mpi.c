/* SPDX-License-Identifier: Apache-2.0 */
/* The library is opened at run time; the header that names its types is of the build. Lengths are
   cut into what MPI's int can count. */
#include "runtime/comm/transport.h"

#ifdef PARE_MPI

#include <dlfcn.h>
#include <mpi.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
    X(Initialized)                                                                                 \
    X(Query_thread)                                                                                \
    X(Init_thread)                                                                                 \
    X(Finalize)                                                                                    \
    X(Abort)                                                                                       \
    X(Comm_rank)                                                                                   \
    X(Comm_size)                                                                                   \
    X(Comm_dup)                                                                                    \
    X(Comm_split_type)                                                                             \
    X(Comm_free)                                                                                   \
    X(Comm_set_errhandler)                                                                         \
    X(Error_string)                                                                                \
    X(Get_library_version)                                                                         \
    X(Allreduce)                                                                                   \
    X(Bcast)                                                                                       \
    X(Gather)                                                                                      \
    X(Allgatherv)                                                                                  \
    X(Send)                                                                                        \
    X(Recv)                                                                                        \
    X(Sendrecv)                                                                                    \
    X(Isend)                                                                                       \
    X(Irecv)                                                                                       \
    X(Iprobe)                                                                                      \
    X(Wait)

typedef struct pare_mpi {
    pare_transport transport; /* first: the one is the other */
    pare_ctx *ctx;
    void *library;
    bool joined; /* here, not by the program before */
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Comm world;      /* the program's: it is left as it is */
    MPI_Comm all, alarm; /* the same processes, for messages and for alarms */
    bool own;            /* all and alarm are made */
    MPI_Request *told;   /* (size): alarms of this rank on their way; NULL: none */
    MPI_Datatype byte, u64, i64, f32;
    MPI_Op sum, max;
#define X(name) __typeof__(MPI_##name) *name;
    FUNCTIONS(X)
#undef X
} pare_mpi;

enum { PIECE = 1 << 30, TAG = 1, STARTED = 2 };

/* Constants of Open MPI are addresses: in its library, or in a program that is linked to it, where
   the linker put copies. Those of MPICH and its relatives are numbers. */
#ifdef OPEN_MPI
#define CONSTANT(symbol, constant) dlsym(RTLD_DEFAULT, symbol)
#else
#define CONSTANT(symbol, constant) (constant)
#endif

static pare_status find(pare_mpi *m)
{
#define X(name)                                                                                    \
    m->name = (__typeof__(m->name))dlsym(m->library, "MPI_" #name);                                \
    if (!m->name)                                                                                  \
        return PARE_FAIL(m->ctx, UNSUPPORTED, "%s has no function MPI_%s", PARE_MPI, #name);
    FUNCTIONS(X)
#undef X
    m->world = CONSTANT("ompi_mpi_comm_world", MPI_COMM_WORLD);
    m->byte = CONSTANT("ompi_mpi_byte", MPI_BYTE);
    m->u64 = CONSTANT("ompi_mpi_uint64_t", MPI_UINT64_T);
    m->i64 = CONSTANT("ompi_mpi_int64_t", MPI_INT64_T);
    m->f32 = CONSTANT("ompi_mpi_float", MPI_FLOAT);
    m->sum = CONSTANT("ompi_mpi_op_sum", MPI_SUM);
    m->max = CONSTANT("ompi_mpi_op_max", MPI_MAX);
#ifdef OPEN_MPI
    if (!m->world || !m->byte || !m->u64 || !m->i64 || !m->f32 || !m->sum || !m->max)
        return PARE_FAIL(m->ctx, UNSUPPORTED, "%s is no library of Open MPI", PARE_MPI);
#endif
    return PARE_OK;
}

static pare_status check(pare_mpi *m, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return PARE_OK;
    m->Error_string(code, text, &length);
    return PARE_FAIL(m->ctx, IO, "MPI_%s failed in rank %d: %s", call, m->transport.rank, text);
}
#define CALL(m, name, ...) PARE_TRY(check(m, (m)->name(__VA_ARGS__), #name))

/* Its place among the ranks of this machine. */
static pare_status join_local(pare_mpi *m)
{
    MPI_Comm local;
    CALL(m, Comm_split_type, m->all, MPI_COMM_TYPE_SHARED, m->transport.rank,
         CONSTANT("ompi_mpi_info_null", MPI_INFO_NULL), &local);
    CALL(m, Comm_rank, local, &m->transport.local_rank);
    CALL(m, Comm_free, &local);
    return PARE_OK;
}

/* Communicators whose errors come back to their caller. */
static pare_status make_own(pare_mpi *m)
{
    const MPI_Errhandler handler = CONSTANT("ompi_mpi_errors_return", MPI_ERRORS_RETURN);
    CALL(m, Comm_dup, m->world, &m->all);
    CALL(m, Comm_dup, m->world, &m->alarm);
    m->own = true;
    CALL(m, Comm_set_errhandler, m->all, handler);
    CALL(m, Comm_set_errhandler, m->alarm, handler);
    return PARE_OK;
}

static pare_status join(pare_mpi *m)
{
    int threads, before, length = 0;
    CALL(m, Initialized, &before);
    if (before)
        CALL(m, Query_thread, &threads);
    else
        CALL(m, Init_thread, NULL, NULL, MPI_THREAD_SERIALIZED, &threads);
    m->joined = !before;
    CALL(m, Comm_rank, m->world, &m->transport.rank);
    CALL(m, Comm_size, m->world, &m->transport.size);
    PARE_TRY(make_own(m));
    CALL(m, Get_library_version, m->version, &length);
    m->version[strcspn(m->version, ",\n")] = 0;
    m->transport.library = m->version;
    if (threads < MPI_THREAD_SERIALIZED)
        return PARE_FAIL(m->ctx, UNSUPPORTED, "%s cannot be called by several threads", m->version);
    return join_local(m);
}

static void leave(pare_transport *t, bool all)
{
    pare_mpi *m = (pare_mpi *)t;
    if (all)
        m->Abort(m->world, 1);
    else if (m->own) {
        m->Comm_free(&m->all);
        m->Comm_free(&m->alarm);
    }
    if (!all && m->joined) m->Finalize();
    pare_free(m->told);
    pare_free(m); /* the library stays: it has threads and handlers of its own */
}

/* --- data --- */

static int piece(size_t left) { return left < PIECE ? (int)left : PIECE; }

static pare_status allreduce(pare_transport *t, void *data, size_t count, pare_comm_op op)
{
    pare_mpi *m = (pare_mpi *)t;
    const MPI_Datatype type = op == PARE_COMM_SUM_U64   ? m->u64
                              : op == PARE_COMM_MAX_I64 ? m->i64
                                                        : m->f32;
    const size_t size = op == PARE_COMM_MAX_F32 ? sizeof(float) : sizeof(uint64_t);
    for (size_t at = 0; at < count; at += PIECE)
        CALL(m, Allreduce, MPI_IN_PLACE, (char *)data + at * size, piece(count - at), type,
             op == PARE_COMM_SUM_U64 ? m->sum : m->max, m->all);
    return PARE_OK;
}

static pare_status broadcast(pare_transport *t, void *data, size_t bytes, int root)
{
    pare_mpi *m = (pare_mpi *)t;
    for (size_t at = 0; at < bytes; at += PIECE)
        CALL(m, Bcast, (char *)data + at, piece(bytes - at), m->byte, root, m->all);
    return PARE_OK;
}

static pare_status gather(pare_transport *t, const void *mine, size_t bytes, void *all)
{
    pare_mpi *m = (pare_mpi *)t;
    if (bytes > PIECE) return PARE_FAIL(m->ctx, UNSUPPORTED, "more than 1 GiB to gather of a rank");
    CALL(m, Gather, mine, (int)bytes, m->byte, all, (int)bytes, m->byte, 0, m->all);
    return PARE_OK;
}

static pare_status all_gather(pare_transport *t, const void *mine, const size_t *bytes, void *all)
{
    pare_mpi *m = (pare_mpi *)t;
    int *counts = pare_alloc(m->ctx, (size_t)t->size * 2, sizeof *counts), *at = counts + t->size;
    if (!counts) return PARE_MEMORY;
    for (int r = 0, next = 0; r < t->size; next += counts[r++]) {
        counts[r] = (int)bytes[r];
        at[r] = next;
    }
    pare_status st =
        check(m, m->Allgatherv(mine, counts[t->rank], m->byte, all, counts, at, m->byte, m->all),
              "Allgatherv");
    pare_free(counts);
    return st;
}

static pare_status send(pare_transport *t, const void *data, size_t bytes, int to)
{
    pare_mpi *m = (pare_mpi *)t;
    for (size_t at = 0; at < bytes; at += PIECE)
        CALL(m, Send, (const char *)data + at, piece(bytes - at), m->byte, to, TAG, m->all);
    return PARE_OK;
}

static pare_status receive(pare_transport *t, void *data, size_t bytes, int from)
{
    pare_mpi *m = (pare_mpi *)t;
    for (size_t at = 0; at < bytes; at += PIECE)
        CALL(m, Recv, (char *)data + at, piece(bytes - at), m->byte, from, TAG, m->all,
             MPI_STATUS_IGNORE);
    return PARE_OK;
}

static pare_status exchange(pare_transport *t, const void *out, size_t out_bytes, void *in,
                            size_t in_bytes, int other)
{
    pare_mpi *m = (pare_mpi *)t;
    const size_t most = out_bytes > in_bytes ? out_bytes : in_bytes;
    for (size_t at = 0; at < most; at += PIECE) {
        const int to = at < out_bytes ? piece(out_bytes - at) : 0,
                  from = at < in_bytes ? piece(in_bytes - at) : 0;
        CALL(m, Sendrecv, (const char *)out + at, to, m->byte, other, TAG, (char *)in + at, from,
             m->byte, other, TAG, m->all, MPI_STATUS_IGNORE);
    }
    return PARE_OK;
}

/* Open MPI's handle is an address, that of MPICH and its relatives a number. */
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request holds MPI's handle");

static pare_status start_send(pare_transport *t, const void *data, size_t bytes, int to,
                              pare_request *request)
{
    pare_mpi *m = (pare_mpi *)t;
    MPI_Request handle;
    CALL(m, Isend, data, (int)bytes, m->byte, to, STARTED, m->all, &handle);
    memcpy(&request->handle, &handle, sizeof handle);
    return PARE_OK;
}

static pare_status start_receive(pare_transport *t, void *data, size_t bytes, int from,
                                 pare_request *request)
{
    pare_mpi *m = (pare_mpi *)t;
    MPI_Request handle;
    CALL(m, Irecv, data, (int)bytes, m->byte, from, STARTED, m->all, &handle);
    memcpy(&request->handle, &handle, sizeof handle);
    return PARE_OK;
}

static pare_status wait_for(pare_transport *t, pare_request *request)
{
    pare_mpi *m = (pare_mpi *)t;
    MPI_Request handle;
    memcpy(&handle, &request->handle, sizeof handle);
    CALL(m, Wait, &handle, MPI_STATUS_IGNORE);
    return PARE_OK;
}

/* --- alarms --- */

static pare_status raise_alarm(pare_transport *t)
{
    pare_mpi *m = (pare_mpi *)t;
    m->told = pare_alloc(m->ctx, (size_t)t->size, sizeof *m->told);
    if (!m->told) return PARE_MEMORY;
    for (int i = 0; i < t->size; i++)
        if (i != t->rank) CALL(m, Isend, NULL, 0, m->byte, i, TAG, m->alarm, &m->told[i]);
    return PARE_OK;
}

static pare_status alarm_raised(pare_transport *t, bool *out)
{
    pare_mpi *m = (pare_mpi *)t;
    int waits = 0;
    CALL(m, Iprobe, MPI_ANY_SOURCE, TAG, m->alarm, &waits, MPI_STATUS_IGNORE);
    *out = waits;
    return PARE_OK;
}

static pare_status clear_alarms(pare_transport *t, int64_t count)
{
    pare_mpi *m = (pare_mpi *)t;
    for (; count > 0; count--)
        CALL(m, Recv, NULL, 0, m->byte, MPI_ANY_SOURCE, TAG, m->alarm, MPI_STATUS_IGNORE);
    for (int i = 0; m->told && i < t->size; i++)
        if (i != t->rank) CALL(m, Wait, &m->told[i], MPI_STATUS_IGNORE);
    pare_free(m->told);
    m->told = NULL;
    return PARE_OK;
}

pare_status pare_mpi_open(pare_ctx *ctx, pare_transport **out)
{
    pare_mpi *m = pare_alloc(ctx, 1, sizeof *m);
    if (!m) return PARE_MEMORY;
    m->ctx = ctx;
    m->transport = (pare_transport){.close = leave,
                                    .allreduce = allreduce,
                                    .broadcast = broadcast,
                                    .gather = gather,
                                    .all_gather = all_gather,
                                    .send = send,
                                    .receive = receive,
                                    .exchange = exchange,
                                    .start_send = start_send,
                                    .start_receive = start_receive,
                                    .wait = wait_for,
                                    .raise = raise_alarm,
                                    .raised = alarm_raised,
                                    .clear = clear_alarms};
    m->library = dlopen(PARE_MPI, RTLD_NOW | RTLD_GLOBAL); /* its plugins look for its symbols */
    pare_status st =
        m->library ? find(m)
                   : PARE_FAIL(ctx, UNSUPPORTED, "MPI cannot be opened: %s; its library is %s",
                               dlerror(), PARE_MPI);
    if (st == PARE_OK) st = join(m);
    if (st == PARE_OK)
        *out = &m->transport;
    else
        pare_free(m);
    return st;
}

#else

pare_status pare_mpi_open(pare_ctx *ctx, pare_transport **out)
{
    *out = NULL;
    if (pare_comm_launched_rank()) return PARE_UNSUPPORTED; /* one of them says it */
    return PARE_FAIL(ctx, UNSUPPORTED,
                     "%d processes were started together, but this build has no MPI; install it "
                     "(libopenmpi-dev) and build again",
                     pare_comm_launched_size());
}

#endif

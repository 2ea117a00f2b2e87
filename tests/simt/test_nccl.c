/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation's NCCL between processes that this one forks: what is right is carried out, and
   every planted mistake is a refusal or a fault that names both sides. */
#include "nccl_table.h"
#include "testing.h"

#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 5000, RANKS = 2 };

typedef struct side {
    int rank;
    pare_nccl_api nccl;
    void *comm;
    cudaStream_t stream;
    float *a, *b; /* (COUNT) of the device; a: the rank's number + 1 */
} side;

typedef void (*role)(side *s);

/* How a process ends beside its exit status; EITHER: by the fault, or as the other one is gone. */
enum { KILLED = -1, EITHER = -2, FAULT = SIMT_STATUS_FAULT };

/* --- what a process does --- */

#define NCCL_OK(call) settle(s, (call), #call)

static void settle(side *s, int status, const char *call)
{
    while (status == PARE_NCCL_IN_PROGRESS)
        if (s->nccl.state(s->comm, &status)) break;
    if (!status) return;
    fprintf(stderr, "%s: %s\n", call, s->nccl.text(status));
    _exit(1);
}

static void join_as(side *s, int device)
{
    pare_nccl_config config = {sizeof config, PARE_NCCL_CONFIG_MAGIC, PARE_NCCL_OLDEST, 0, INT_MIN};
    pare_nccl_id id = {"simt-nccl-"};
    const char *job = getenv("TEST_JOB");
    memcpy(id.bytes + 10, job, strlen(job));
    if (cudaSetDevice(device)) _exit(1);
    NCCL_OK(s->nccl.init(&s->comm, RANKS, id, s->rank, &config));
    float one[COUNT], none[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) one[i] = (float)(s->rank + 1);
    if (cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking)) _exit(1);
    s->a = device_copy(one, sizeof one);
    s->b = device_copy(none, sizeof none);
}

static int swap_in(side *s, size_t give, size_t take, int type, cudaStream_t stream)
{
    (void)s->nccl.group_start();
    (void)s->nccl.send(s->a, give, type, !s->rank, s->comm, stream);
    (void)s->nccl.receive(s->b, take, type, !s->rank, s->comm, stream);
    return s->nccl.group_end();
}

static int swap(side *s, size_t give, size_t take)
{
    return swap_in(s, give, take, PARE_NCCL_F32, s->stream);
}

static void leave(side *s)
{
    float got[COUNT];
    CUDA_OK(cudaStreamSynchronize(s->stream));
    NCCL_OK(s->nccl.finalize(s->comm));
    NCCL_OK(s->nccl.destroy(s->comm));
    device_fetch(got, s->b, sizeof got);
    CUDA_OK(cudaFree(s->a));
    CUDA_OK(cudaStreamDestroy(s->stream));
    for (int i = 0; i < COUNT; i++)
        if (got[i] != (float)(2 - s->rank)) {
            fprintf(stderr, "number %d is %g\n", i, (double)got[i]);
            _exit(1);
        }
    char text[200];
    if (!simt_live(text, sizeof text) && !simt_reports()) return;
    fprintf(stderr, "not released: %s\n", text);
    _exit(1);
}

static void right(side *s)
{
    join_as(s, s->rank);
    for (int i = 0; i < 3; i++) NCCL_OK(swap(s, COUNT, COUNT));
    leave(s);
}

static void alone(side *s) /* without a group, one after the other */
{
    join_as(s, s->rank);
    for (int turn = 0; turn < 2; turn++)
        NCCL_OK(turn == s->rank
                    ? s->nccl.send(s->a, COUNT, PARE_NCCL_F32, !s->rank, s->comm, s->stream)
                    : s->nccl.receive(s->b, COUNT, PARE_NCCL_F32, !s->rank, s->comm, s->stream));
    leave(s);
}

static void end_of(side *s)
{
    int status = PARE_NCCL_SUCCESS;
    while (cudaStreamQuery(s->stream) == cudaErrorNotReady && !status)
        (void)s->nccl.state(s->comm, &status);
    fprintf(stderr, "rank %d ends with: %s\n", s->rank, s->nccl.text(status));
    _exit(1);
}

static void other_size(side *s)
{
    join_as(s, s->rank);
    (void)swap(s, COUNT, s->rank ? 7 : COUNT);
    end_of(s);
}

static void other_type(side *s)
{
    join_as(s, s->rank);
    (void)swap_in(s, 10, 10, s->rank ? PARE_NCCL_F64 : PARE_NCCL_F32, s->stream);
    end_of(s);
}

static void other_order(side *s)
{
    join_as(s, s->rank);
    for (int i = 0; i < 2; i++) (void)swap(s, i == s->rank ? 3 : 4, i == s->rank ? 3 : 4);
    end_of(s);
}

static void both_send(side *s) /* and would receive after that */
{
    join_as(s, s->rank);
    (void)s->nccl.send(s->a, 9, PARE_NCCL_F32, !s->rank, s->comm, s->stream);
    (void)s->nccl.receive(s->b, 9, PARE_NCCL_F32, !s->rank, s->comm, s->stream);
    end_of(s);
}

static void one_is_idle(side *s)
{
    join_as(s, s->rank);
    if (s->rank) pause();
    (void)swap(s, 6, 6);
    end_of(s);
}

static void one_goes(side *s)
{
    join_as(s, s->rank);
    if (s->rank) raise(SIGKILL);
    (void)swap(s, 6, 6);
    end_of(s);
}

static void two_streams(side *s) /* the second does not wait for the first */
{
    cudaStream_t other;
    join_as(s, s->rank);
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    simt_set.streams = SIMT_LAZY;
    (void)swap(s, 6, 6);
    (void)swap_in(s, 6, 6, PARE_NCCL_F32, other);
    (void)cudaStreamSynchronize(other);
    _exit(0);
}

static void open_group(side *s)
{
    int status;
    join_as(s, s->rank);
    (void)s->nccl.group_start();
    (void)s->nccl.state(s->comm, &status);
    _exit(0);
}

static void after_destroy(side *s)
{
    join_as(s, s->rank);
    NCCL_OK(s->nccl.finalize(s->comm));
    (void)s->nccl.destroy(s->comm);
    (void)s->nccl.send(s->a, 6, PARE_NCCL_F32, !s->rank, s->comm, s->stream);
    _exit(0);
}

static void not_run(side *s)
{
    join_as(s, s->rank);
    simt_set.streams = SIMT_LAZY;
    (void)swap(s, 6, 6);
    (void)s->nccl.destroy(s->comm);
    _exit(0);
}

static void overlapping(side *s)
{
    join_as(s, s->rank);
    (void)s->nccl.group_start();
    (void)s->nccl.send(s->a, 6, PARE_NCCL_F32, !s->rank, s->comm, s->stream);
    (void)s->nccl.receive(s->a + 5, 6, PARE_NCCL_F32, !s->rank, s->comm, s->stream);
    (void)s->nccl.group_end();
    _exit(0);
}

static void freed(side *s) /* in a stream that does not wait for the message */
{
    cudaStream_t other;
    void *b;
    join_as(s, s->rank);
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CUDA_OK(cudaMallocAsync(&b, COUNT, other));
    CUDA_OK(cudaStreamSynchronize(other));
    simt_set.streams = SIMT_LAZY;
    s->b = b;
    (void)swap(s, 6, 6);
    CUDA_OK(cudaFreeAsync(b, other));
    CUDA_OK(cudaStreamSynchronize(other));
    (void)cudaStreamSynchronize(s->stream);
    _exit(0);
}

static void one_device(side *s) { join_as(s, 0); }

static void other_version(side *s)
{
    simt_set.nccl += s->rank;
    join_as(s, s->rank);
}

static void refused(side *s)
{
    int bad = 0;
    float here[4] = {0};
    join_as(s, s->rank);
    const pare_nccl_api *n = &s->nccl;
    bad +=
        n->send(here, 4, PARE_NCCL_F32, !s->rank, s->comm, s->stream) == PARE_NCCL_INVALID_ARGUMENT;
    bad += n->send(s->a, COUNT + 1, PARE_NCCL_F32, !s->rank, s->comm, s->stream) ==
           PARE_NCCL_INVALID_ARGUMENT;
    bad += n->send(s->a, 4, PARE_NCCL_F32, 2, s->comm, s->stream) == PARE_NCCL_INVALID_ARGUMENT;
    bad += n->send(s->a, 4, 99, !s->rank, s->comm, s->stream) == PARE_NCCL_INVALID_ARGUMENT;
    bad += n->send(s->a, 4, PARE_NCCL_F32, !s->rank, s->comm, &bad) == PARE_NCCL_INVALID_ARGUMENT;
    bad += n->group_end() == PARE_NCCL_INVALID_USAGE;
    if (bad != 6) _exit(1);
    (void)swap(s, COUNT, COUNT);
    leave(s);
}

/* --- processes --- */

static const struct scene {
    const char *name;
    role play;
    int status[RANKS];    /* of the processes */
    const char *words[4]; /* in what they say */
} scenes[] = {
    {"right", right, {0, 0}, {NULL}},
    {"alone", alone, {0, 0}, {NULL}},
    {"refused", refused, {0, 0}, {"no such rank", "not memory of the communicator's device"}},
    {"other_size",
     other_size,
     {FAULT, 1},
     {"rank 0 sends 5000 f32, but rank 1 receives 7 f32 from it", "rank 1 is in group 1"}},
    {"other_type", other_type, {EITHER, EITHER}, {"FAULT", "10 f32", "10 f64"}},
    {"other_order",
     other_order,
     {EITHER, EITHER},
     {"rank 0 sends 3 f32, but rank 1 receives 4 f32"}},
    {"both_send",
     both_send,
     {EITHER, EITHER},
     {"no end after", "rank 0 is in group 1: sends 9 f32 to rank 1",
      "rank 1 is in group 1: sends 9 f32 to rank 0"}},
    {"one_is_idle",
     one_is_idle,
     {FAULT, KILLED},
     {"no end after", "rank 0 is in group 1: sends 6 f32 to rank 1, receives 6 f32 from rank 1",
      "rank 1 has joined"}},
    {"one_goes", one_goes, {1, KILLED}, {"rank 0 ends with: remote process exited"}},
    {"two_streams",
     two_streams,
     {FAULT, FAULT},
     {"group 2 of rank 0 runs before group 1: they are in different streams"}},
    {"open_group", open_group, {FAULT, FAULT}, {"within a group that was not closed"}},
    {"after_destroy", after_destroy, {FAULT, FAULT}, {"ncclSend: the communicator was destroyed"}},
    {"not_run", not_run, {FAULT, FAULT}, {"ncclCommDestroy: 1 groups have not run"}},
    {"overlapping", overlapping, {FAULT, FAULT}, {"receives into memory that it sends from"}},
    {"freed", freed, {FAULT, FAULT}, {"a message runs when its device memory is gone"}},
    {"other_version", other_version, {1, 1}, {"ranks have different versions", "invalid usage"}},
    {"one_device", one_device, {1, 1}, {"two ranks are on one device", "invalid usage"}},
};

static void begin(const struct scene *scene, int rank, int output)
{
    static side s;
    dup2(output, 2);
    s.rank = rank;
    simt_set.devices = RANKS;
    simt_nccl_api(&s.nccl);
    scene->play(&s);
    _exit(0);
}

/* Runs a scene; what both processes said in text. */
static void run(const struct scene *scene, int status[RANKS], char *text, size_t size)
{
    pid_t process[RANKS];
    int ends[2];
    char job[64];
    snprintf(job, sizeof job, "%d-%s", (int)getpid(), scene->name);
    setenv("TEST_JOB", job, 1);
    assert_int_equal(pipe(ends), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        process[rank] = fork();
        if (!process[rank]) begin(scene, rank, ends[1]);
    }
    close(ends[1]);
    for (int rank = 0; rank < RANKS; rank++) {
        int raw;
        if (rank && scene->status[rank] == KILLED) (void)kill(process[rank], SIGKILL);
        waitpid(process[rank], &raw, 0);
        status[rank] = WIFEXITED(raw) ? WEXITSTATUS(raw) : KILLED;
    }
    size_t n = 0;
    for (ssize_t got; n < size - 1 && (got = read(ends[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
}

static void test_scenes(void **state)
{
    static char text[1 << 16];
    int failed = 0;
    (void)state;
    setenv("SIMT_NCCL_LIMIT", "1", 1);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        const struct scene *scene = &scenes[i];
        int status[RANKS];
        run(scene, status, text, sizeof text);
        bool good = true;
        for (int rank = 0; rank < RANKS; rank++)
            good &= scene->status[rank] == EITHER ? status[rank] == FAULT || status[rank] == 1
                                                  : status[rank] == scene->status[rank];
        for (int k = 0; k < 4 && scene->words[k]; k++)
            good &= strstr(text, scene->words[k]) != NULL;
        if (!good) print_error("%s: ends %d, %d\n%s\n", scene->name, status[0], status[1], text);
        failed += !good;
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

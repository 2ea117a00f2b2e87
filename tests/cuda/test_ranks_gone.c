/* SPDX-License-Identifier: Apache-2.0 */
/* A process that dies within a job that no launcher watches: the other one does not wait for it,
   says so, and releases what it has. */
#include "runtime/device/ranks.h"
#include "runtime/exec/exec.h"
#include "tests/simt/testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 300, WRONG = 99 };

static void need(pare_ctx *ctx, pare_status st)
{
    if (st == PARE_OK) return;
    fprintf(stderr, "%s\n", ctx->message);
    _exit(WRONG);
}

/* Ends with the status of the second sum, its message in `words`. */
static void play(int rank, const int id_pipe[2], int words)
{
    pare_ctx ctx;
    pare_device *device;
    pare_device_ranks *ranks;
    unsigned char id[PARE_RANKS_ID];
    void *x;
    const pare_ranks_options options = {.rank = rank, .size = 2, .room = 512, .seconds = 20};
    simt_set.devices = 2;
    pare_ctx_init(&ctx);
    need(&ctx, pare_device_open(&ctx, &device, rank ? "cuda:1" : "cuda:0"));
    if (!rank) need(&ctx, device->ranks->make_id(&ctx, id));
    if (rank ? read(id_pipe[0], id, sizeof id) != sizeof id
             : write(id_pipe[1], id, sizeof id) != sizeof id)
        _exit(WRONG);
    need(&ctx, device->ranks->open(&ctx, &ranks, device, id, &options));
    need(&ctx, device->backend->alloc(&ctx, device, &x, COUNT * sizeof(float)));
    need(&ctx, device->backend->fill(&ctx, device->setup, x, 0, COUNT * sizeof(float)));
    need(&ctx, device->ranks->sum(&ctx, ranks, device->setup, PARE_f32, x, COUNT));
    need(&ctx, device->ranks->wait(&ctx, ranks, device->setup));
    if (rank) raise(SIGKILL);
    pare_status st = device->ranks->sum(&ctx, ranks, device->setup, PARE_f32, x, COUNT);
    if (st == PARE_OK) st = device->ranks->wait(&ctx, ranks, device->setup);
    device->ranks->close(ranks);
    device->backend->free(device, x);
    pare_device_close(device);
    if (simt_live(NULL, 0) || write(words, ctx.message, sizeof ctx.message) < 0) _exit(WRONG);
    _exit((int)st);
}

static void a_process_that_is_gone_is_told_of(void **state)
{
    int id_pipe[2], words[2], raw[2];
    char message[sizeof((pare_ctx *)0)->message] = "";
    pid_t process[2];
    (void)state;
    assert_int_equal(pipe(id_pipe) || pipe(words), 0);
    for (int rank = 0; rank < 2; rank++) {
        process[rank] = fork();
        if (!process[rank]) play(rank, id_pipe, words[1]);
    }
    close(words[1]);
    for (int rank = 1; rank >= 0; rank--) waitpid(process[rank], &raw[rank], 0);
    assert_true(WIFSIGNALED(raw[1]) && WIFEXITED(raw[0]));
    assert_int_equal(WEXITSTATUS(raw[0]), PARE_IO);
    assert_int_equal(read(words[0], message, sizeof message), sizeof message);
    assert_string_equal(message, "a process that shares the work is gone, NCCL says: "
                                 "remote process exited or there was a network error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_process_that_is_gone_is_told_of)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

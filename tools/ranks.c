/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ranks.h"
#include "runtime/base/version.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/machine_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- --gpus --- */

pare_status pare_gpus_parse(pare_ctx *ctx, const char *text, int *gpu, int *count)
{
    const char *at = text;
    *count = 0;
    do {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        bool good = end > at && *at >= '0' && *at <= '9';
        at = end;
        if (good && *at == '-') {
            last = strtol(at + 1, &end, 10);
            good = end > at + 1 && at[1] >= '0' && at[1] <= '9';
            at = end;
        }
        good = good && (!*at || *at == ',') && last >= first && last < 1000 &&
               *count < PARE_MOST_LISTED && last - first < PARE_MOST_LISTED - *count;
        for (long i = first; good && i <= last; i++) {
            for (int k = 0; k < *count; k++) good = good && gpu[k] != i;
            gpu[(*count)++] = (int)i;
        }
        if (!good)
            return PARE_FAIL(ctx, USAGE,
                             "--gpus %s: expected numbers of GPUs, each once: 0-3 or 0,2", text);
    } while (*at++);
    return PARE_OK;
}

void pare_ranks_environment(void)
{
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

/* mpirun takes this process's place; it starts this program with the same words. */
static pare_status become_mpirun(pare_tool *tool, int gpus, char *const *words, int count)
{
    char **argument = pare_arena_alloc(&tool->arena, (size_t)count + 5, sizeof *argument);
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 1) return PARE_FAIL(tool->ctx, IO, "/proc/self/exe: %s", strerror(errno));
    program[length] = 0;
    if (!argument) return PARE_MEMORY;
    int n = 0;
    argument[n++] = pare_arena_strdup(&tool->arena, "mpirun");
    argument[n++] = pare_arena_strdup(&tool->arena, "-n");
    argument[n++] = pare_arena_printf(&tool->arena, "%d", gpus);
    argument[n++] = program;
    for (int i = 0; i < count; i++) argument[n++] = words[i];
    for (int i = 0; i < 3; i++)
        if (!argument[i]) return PARE_MEMORY;
    pare_ranks_environment();
    execvp("mpirun", argument);
    return PARE_FAIL(tool->ctx, UNSUPPORTED,
                     "--gpus %s: mpirun cannot be started: %s; install MPI (openmpi-bin)",
                     tool->common->gpus, strerror(errno));
}

static pare_status check_gpus(pare_tool *tool, const pare_common *common, char *const *words,
                              int count)
{
    int gpu[PARE_MOST_LISTED], gpus;
    if (!common->gpus) return PARE_OK;
    if (common->device)
        return PARE_FAIL(tool->ctx, USAGE, "--gpus and --device exclude each other");
    PARE_TRY(pare_gpus_parse(tool->ctx, common->gpus, gpu, &gpus));
    if (!tool->comm && gpus > 1) return become_mpirun(tool, gpus, words, count);
    if (gpus == pare_comm_size(tool->comm)) return PARE_OK;
    return PARE_FAIL(tool->ctx, USAGE, "--gpus %s: names %d, but %d processes were started",
                     common->gpus, gpus, pare_comm_size(tool->comm));
}

/* --- ranks --- */

/* The word that differs first, of two lists of words that each end in a newline. */
static pare_status say_word(pare_ctx *ctx, const char *mine, const char *first)
{
    size_t at = 0;
    for (size_t i = 0; mine[i] && mine[i] == first[i]; i++)
        if (mine[i] == '\n') at = i + 1;
    const char *own = mine + at, *other = first + at;
    const int own_size = (int)strcspn(own, "\n"), other_size = (int)strcspn(other, "\n");
    return PARE_FAIL(ctx, INPUT,
                     "has another command line than rank 0; all ranks need the same: %s%.*s%s "
                     "where rank 0 has %s%.*s%s",
                     *own ? "'" : "the end", own_size, own, *own ? "'" : "",
                     *other ? "'" : "the end", other_size, other, *other ? "'" : "");
}

static pare_status check_words(pare_tool *tool, const char *line)
{
    size_t size = strlen(line) + 1;
    PARE_TRY(pare_comm_broadcast(tool->comm, &size, sizeof size, 0));
    char *first = pare_arena_alloc(&tool->arena, size, 1);
    PARE_TRY(pare_comm_settle(tool->comm, first ? PARE_OK : PARE_MEMORY));
    if (!pare_comm_rank(tool->comm)) memcpy(first, line, size);
    PARE_TRY(pare_comm_broadcast(tool->comm, first, size, 0));
    return pare_comm_settle(tool->comm,
                            strcmp(line, first) ? say_word(tool->ctx, line, first) : PARE_OK);
}

/* Ranks give the same bytes where they run the same words with the same kernels. */
static pare_status check_ranks(pare_tool *tool, const pare_common *common, char *const *words,
                               int count)
{
    if (!tool->comm) return PARE_OK;
    if (!tool->command->ranks && !common->help)
        return PARE_FAIL(tool->ctx, USAGE, "%s: runs in one process; %d were started",
                         tool->command->name, pare_comm_size(tool->comm));
    const char *line = "", *kernels;
    for (int i = 0; line && i < count; i++)
        line = pare_arena_printf(&tool->arena, "%s%s\n", line, words[i]);
    kernels = pare_arena_printf(&tool->arena, "%s %s %s", PARE_VERSION, pare_kernels_id,
                                pare_cpu_isa_name());
    if (!line || !kernels) return PARE_MEMORY;
    PARE_TRY(check_words(tool, line));
    return pare_comm_same(tool->comm, "build of pare, or instruction set,", kernels,
                          strlen(kernels));
}

pare_status pare_ranks_begin(pare_tool *tool, const pare_common *common, char *const *words,
                             int count)
{
    PARE_TRY(check_ranks(tool, common, words, count));
    return check_gpus(tool, common, words, count);
}

void pare_ranks_set(const pare_tool *tool, pare_common *common)
{
    if (!tool->comm) return;
    common->quiet |= !pare_tool_leads(tool);
    if (!common->threads) common->threads = pare_comm_threads(tool->comm);
    json_object_set_new(tool->facts, "ranks", json_integer(pare_comm_size(tool->comm)));
    pare_log(tool->ctx, PARE_LOG_INFO, "%d ranks, %s", pare_comm_size(tool->comm),
             pare_comm_library(tool->comm));
}

pare_status pare_ranks_device(const pare_tool *tool, const char *name, char *text, size_t size,
                              const char **out)
{
    pare_gpu_facts facts;
    int gpu[PARE_MOST_LISTED], gpus, at = -1;
    *out = name;
    if (tool->common->gpus) {
        PARE_TRY(pare_gpus_parse(tool->ctx, tool->common->gpus, gpu, &gpus));
        at = gpu[pare_comm_local_rank(tool->comm) % gpus];
    } else if (tool->comm && (!strcmp(name, "auto") || !strcmp(name, "cuda"))) {
        pare_gpu_find(&facts);
        if (facts.count) at = pare_comm_local_rank(tool->comm) % facts.count;
    }
    if (at < 0) return PARE_OK;
    snprintf(text, size, "cuda:%d", at);
    *out = text;
    return PARE_OK;
}

pare_status pare_ranks_log_device(const pare_tool *tool, const char *name)
{
    typedef struct place {
        char host[64], name[32], device[256];
    } place;
    const int size = pare_comm_size(tool->comm);
    const bool leads = pare_tool_leads(tool);
    place mine = {0}, *all = leads ? pare_alloc(tool->ctx, (size_t)size, sizeof *all) : NULL;
    (void)gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.name, sizeof mine.name, "%s", name);
    snprintf(mine.device, sizeof mine.device, "%s", tool->device->name);
    pare_status st = pare_comm_settle(tool->comm, all || !leads ? PARE_OK : PARE_MEMORY);
    if (st == PARE_OK) st = pare_comm_gather(tool->comm, &mine, sizeof mine, all);
    for (int i = 0; st == PARE_OK && leads && i < size; i++)
        pare_log(tool->ctx, PARE_LOG_INFO, "rank %d (%s): on %s, %s", i, all[i].host, all[i].name,
                 all[i].device);
    pare_free(all);
    return st;
}

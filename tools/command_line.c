/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command_line.h"
#include "formats/json.h"
#include "runtime/base/clock.h"
#include "runtime/exec/exec.h"
#include "tools/check_output.h"
#include "tools/commands.h"
#include "tools/ending.h"
#include "tools/memory_guard.h"
#include "tools/options.h"
#include "tools/ranks.h"
#include "tools/recipe.h"
#include "tools/text.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A signal handler can reach nothing else. */
static volatile int interrupted;
static volatile double since;

/* The second signal ends the program at once. One that comes with the first is the same request:
   timeout(1) sends its signal to the program and to the program's group. */
static void on_signal(int number)
{
    const double apart = 0.2, now = pare_seconds();
    if (!interrupted) {
        since = now;
        interrupted = number;
    } else if (now - since > apart) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

const volatile int *pare_catch_signals(void)
{
    interrupted = 0;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction hangup;
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) /* nohup ignores it */
        sigaction(SIGHUP, &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
    return &interrupted;
}

void pare_print_line(const char *before, const char *line)
{
    pare_print(stderr, "%s%s\n", before, line);
}

static void on_log(void *user, pare_log_level level, const char *line)
{
    const pare_common *common = user;
    bool wanted = level == PARE_LOG_WARNING || common->verbose;
    if (wanted && !common->quiet)
        pare_print_line(level == PARE_LOG_WARNING ? "warning: " : "", line);
}

/* The files that the command wrote stay where its facts cannot be written: the message says so. */
static pare_status say_written(const pare_tool *tool, const void *options, pare_status st)
{
    char *message = tool->ctx->message;
    for (const pare_option *o = tool->command->options; st != PARE_OK && o && o->name; o++) {
        const char *const *path = (const void *)((const char *)options + o->offset);
        const size_t n = strlen(message);
        if (o->kind != PARE_OPTION_OUTPUT || !*path || access(*path, F_OK)) continue;
        snprintf(message + n, sizeof tool->ctx->message - n, "; %s is written", *path);
    }
    return st;
}

static pare_status write_facts(pare_tool *tool, const void *options)
{
    const pare_common *common = tool->common;
    if (!common->json && !common->recipe) return PARE_OK;
    json_t *recipe = pare_recipe_json(tool, options);
    if (!recipe) return PARE_MEMORY;
    json_object_set_new(tool->facts, "run", recipe);
    if (common->recipe) PARE_TRY(pare_recipe_write(tool->ctx, recipe, common->recipe));
    return common->json ? pare_json_write(tool->ctx, tool->facts, common->json) : PARE_OK;
}

/* What was printed must have arrived (a full disk after standard output). */
static pare_status flush_output(pare_ctx *ctx)
{
    if (fflush(stdout) || ferror(stdout))
        return PARE_FAIL(ctx, IO, "standard output: %s", strerror(errno));
    return PARE_OK;
}

static bool has_option(const pare_command *command, const char *name)
{
    for (const pare_option *o = command->options; o && o->name; o++)
        if (!strcmp(o->name, name)) return true;
    return false;
}

/* What would need less memory, of the GPU or of the machine. */
enum { CURE = 160 };
static void cure_of(const pare_tool *tool, bool gpu, char *cure)
{
    snprintf(cure, CURE, "%s, or use %s%s",
             gpu ? tool->common->memory_limit ? "raise --memory-limit" : "free some of the GPU's"
                 : "free some memory",
             has_option(tool->command, "batch")    ? "a smaller --batch or "
             : has_option(tool->command, "shapes") ? "a smaller batch in --shapes or "
                                                   : "",
             gpu ? "--device cpu" : "fewer --threads");
}

/* Memory runs out anywhere; here it is known what was worked on and what would need less. */
static pare_status finish_message(pare_tool *tool, pare_status st)
{
    char *message = tool->ctx->message;
    const char *file = tool->arg_count ? tool->arg[0] : NULL;
    if (st != PARE_MEMORY || pare_comm_failed(tool->comm)) return st;
    if (!message[0]) (void)pare_fail(tool->ctx, st, "out of memory");
    if (file && !strstr(message, file)) (void)pare_fail_prefix(tool->ctx, st, "%s", file);
    char cure[CURE];
    cure_of(tool, tool->device && strstr(message, "GPU memory"), cure);
    size_t n = strlen(message);
    snprintf(message + n, sizeof tool->ctx->message - n, "; %s", cure);
    return st;
}

static pare_status run_command(pare_tool *tool, const void *options)
{
    const char *device = tool->common->device;
    pare_status st = device ? pare_device_check(tool->ctx, device) : PARE_OK;
    if (st != PARE_OK) return pare_fail_prefix(tool->ctx, st, "--device %s", device);
    if (pare_tool_leads(tool)) PARE_TRY(pare_check_outputs(tool, options));
    st = tool->command->run(tool, options);
    if (st != PARE_OK && st != PARE_MISSED && !tool->found) return st;
    if (!pare_tool_leads(tool)) return st;
    PARE_TRY(flush_output(tool->ctx));
    PARE_TRY(say_written(tool, options, write_facts(tool, options)));
    return st;
}

static pare_status run_words(pare_ctx *ctx, pare_comm *comm, char *const *words, int count)
{
    const pare_command *command;
    int used;
    PARE_TRY(pare_command_find(ctx, &command, words, count, &used));
    pare_tool tool = {.ctx = ctx, .command = command, .comm = comm};
    pare_arena_init(&tool.arena, ctx);
    pare_list arguments;
    void *options = pare_alloc(ctx, 1, command->size);
    pare_status st = PARE_MEMORY;
    if (!options) goto done;
    st = pare_options_parse(&tool.arena, command, options, &arguments, words + used, count - used);
    if (st != PARE_OK) goto done;
    tool.common = options;
    st = pare_ranks_begin(&tool, options, words, count);
    if (st != PARE_OK) goto done;
    ctx->log_user = options;
    ctx->log = on_log;
    if (tool.common->help) {
        if (pare_tool_leads(&tool)) pare_help_print(stdout, command);
        st = flush_output(ctx);
        goto done;
    }
    tool.arg = arguments.item;
    tool.arg_count = arguments.count;
    tool.facts = json_pack("{s:i, s:s, s:s}", "schema", 1, "command", command->name, "version",
                           PARE_VERSION);
    pare_ranks_set(&tool, options);
    char cure[CURE];
    cure_of(&tool, false, cure);
    pare_memory_guard_set(tool.arg_count ? tool.arg[0] : NULL, cure);
    st = finish_message(&tool, run_command(&tool, options));
done:
    pare_memory_guard_clear();
    pare_device_close(tool.device);
    json_decref(tool.facts);
    pare_arena_free(&tool.arena);
    ctx->log = NULL;
    pare_free(options);
    return st;
}

/* Of several processes, while all are still joined: a launcher ends the others when one has gone.
   Rank 0 says what all have agreed on; else each says its own. Processes that did not find each
   other say nothing of the command. */
static void say_failure(const pare_ctx *ctx, const pare_comm *comm, pare_status st,
                        const char *ending)
{
    const bool agreed = pare_comm_failed(comm);
    const bool several = pare_comm_launched_size() > 1;
    const char *message = ctx->message[0] ? ctx->message : pare_status_text(st);
    if (st == PARE_OK) return;
    if (pare_comm_launched_rank() && (agreed || !ctx->message[0])) return;
    if (ending) pare_ending_leave(ending, several && !comm ? PARE_IO : st, message);
    if (several) pare_print_line("pare: ", message);
}

pare_status pare_run_argv(pare_ctx *ctx, char *const *words, int count)
{
    pare_comm *comm;
    const bool tells = count > 2 && !strcmp(words[0], PARE_ENDING);
    const int used = tells ? 2 : 0;
    pare_memory_guard_tell(tells ? words[1] : NULL);
    pare_status st = pare_comm_open(ctx, &comm);
    if (st == PARE_OK)
        st = pare_comm_settle(comm, run_words(ctx, comm, words + used, count - used));
    say_failure(ctx, comm, st, tells ? words[1] : NULL);
    pare_comm_close(comm);
    return st;
}

pare_status pare_tool_open_device(pare_tool *tool)
{
    const pare_common *common = tool->common;
    const char *name = common->device ? common->device : "auto";
    if (tool->device_chosen) return PARE_OK;
    tool->device_chosen = true;
    const char *asked = name;
    char own[32];
    PARE_TRY(pare_ranks_device(tool, name, own, sizeof own, &name));
    pare_status st =
        pare_device_open_within(tool->ctx, &tool->device, name, (size_t)common->memory_limit);
    if (st != PARE_OK && name == own && !strcmp(asked, "auto") && !common->gpus) {
        pare_log(tool->ctx, PARE_LOG_WARNING, "on the CPU: %s", tool->ctx->message);
        pare_ctx_clear(tool->ctx);
        st = PARE_OK;
    }
    if (st != PARE_OK)
        return pare_fail_prefix(tool->ctx, st, "--%s %s", common->gpus ? "gpus" : "device",
                                common->gpus ? common->gpus : name);
    const char *found = tool->device ? tool->device->name : "cpu";
    PARE_TRY(pare_comm_same(tool->comm, "device", found, strlen(found)));
    if (tool->device && tool->comm) return pare_ranks_log_device(tool, name);
    if (tool->device) pare_log(tool->ctx, PARE_LOG_INFO, "on %s", tool->device->name);
    return PARE_OK;
}

void pare_tool_allow_tf32(pare_tool *tool)
{
    if (!tool->device) {
        pare_log(tool->ctx, PARE_LOG_WARNING, "--tf32 changes nothing on the CPU");
        return;
    }
    tool->device->tf32 = true;
    json_object_set_new(tool->facts, "tf32", json_true());
}

pare_status pare_tool_allow_cudnn(pare_tool *tool)
{
    char text[1024];
    if (!tool->device) {
        pare_log(tool->ctx, PARE_LOG_WARNING, "--cudnn changes nothing on the CPU");
        return PARE_OK;
    }
    pare_status st = pare_gpu_dnn(tool->ctx, text, sizeof text);
    if (st != PARE_OK) return pare_fail_prefix(tool->ctx, st, "--cudnn");
    PARE_TRY(pare_comm_same(tool->comm, "cuDNN", text, strcspn(text, ",")));
    pare_gpu_allow_dnn(tool->device);
    json_object_set_new(tool->facts, "cudnn", json_string(text));
    return PARE_OK;
}

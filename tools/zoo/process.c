/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/process.h"

#include "runtime/base/clock.h"
#include "tools/command_line.h"
#include "tools/table.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often the memory of a session is looked at, and which share of the time looking may take. */
static const double LOOK_SECONDS = 0.2, LOOK_SHARE = 0.01;

/* What a process says at its end. Its size is below PIPE_BUF: it comes whole or not at all. */
typedef struct verdict {
    pare_status status;
    double seconds;
    char message[sizeof((pare_ctx *)0)->message];
} verdict;

static const char *const texts[] = {
#define X(code, text) text,
    PARE_OUTCOMES(X)
#undef X
};

const char *pare_outcome_text(pare_outcome outcome)
{
    return outcome < PARE_OUTCOME_COUNT ? texts[outcome] : "unknown";
}

pare_outcome pare_outcome_find(const char *text)
{
    int i = 0;
    while (text && i < PARE_OUTCOME_COUNT && strcmp(text, texts[i]) != 0) i++;
    return text ? (pare_outcome)i : PARE_OUTCOME_COUNT;
}

void pare_process_prepare(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* --- the new process --- */

/* Standard input, output and error, and the result's pipe as number 3; nothing else. */
static bool arrange_files(const char *log, int *result)
{
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) return false;
    int pipe = fcntl(*result, F_DUPFD, 10); /* above what is about to be replaced */
    int words = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666) : STDOUT_FILENO;
    if (pipe < 0 || words < 0) return false;
    if (log && (dup2(words, STDOUT_FILENO) < 0 || dup2(words, STDERR_FILENO) < 0)) return false;
    *result = dup2(pipe, 3);
    close_range(4, ~0u, 0);
    return *result == 3;
}

static void reset_signals(void)
{
    sigset_t none;
    for (int number = 1; number < SIGRTMIN; number++) signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Where the machine runs out of memory, the kernel shall end this process, not the caller's. */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    if (fd < 0) return;
    (void)!write(fd, "500", 3);
    close(fd);
}

_Noreturn static void live(const pare_process_job *job, int result, pid_t caller)
{
    verdict v = {.status = PARE_IO};
    pare_ctx ctx;
    reset_signals();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != caller) _exit(1);
    setsid();
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    offer_to_oom_killer();
    pare_ctx_init(&ctx);
    const volatile int *stopped = pare_catch_signals();
    ctx.interrupted = stopped;
    const double start = pare_seconds();
    if (arrange_files(job->log, &result))
        v.status = job->work(&ctx, job->user);
    else
        (void)PARE_FAIL(&ctx, IO, "%s: cannot be written: %s", job->log, strerror(errno));
    v.seconds = pare_seconds() - start;
    if (*stopped && (v.status == PARE_OK || v.status == PARE_MISSED)) {
        pare_ctx_clear(&ctx); /* a training that is stopped writes what it has */
        v.status = PARE_FAIL(&ctx, INTERRUPTED, "interrupted");
    }
    memcpy(v.message, ctx.message, sizeof v.message);
    fflush(NULL);
    _exit(write(result, &v, sizeof v) == sizeof v ? 0 : 1);
}

/* --- the caller --- */

pare_status pare_process_start(pare_ctx *ctx, pare_process *process, const pare_process_job *job)
{
    int ends[2];
    *process = (pare_process){.job = *job, .killed = PARE_OUTCOME_DONE};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return PARE_FAIL(ctx, IO, "no process can be started: %s", strerror(errno));
    process->oom_kills = pare_session_oom_kills();
    process->start = pare_seconds();
    process->look = process->start + LOOK_SECONDS;
    process->pipe = ends[0];
    fflush(NULL);
    const pid_t caller = getpid(), pid = fork();
    if (pid == 0) live(job, ends[1], caller);
    const int code = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return PARE_FAIL(ctx, IO,
                         "no process can be started: %s; end some others, or use fewer "
                         "--jobs",
                         strerror(code));
    }
    process->pid = pid;
    return PARE_OK;
}

static void over_limit(pare_process *p, pare_outcome limit)
{
    if (p->killed == PARE_OUTCOME_DONE) p->killed = limit;
    pare_session_kill(p->pid);
}

/* The process itself is looked at each time; its session costs a walk through /proc, so that the
   next look waits for as long as keeps looking below its share. */
static void look(pare_process *p)
{
    const double now = pare_seconds();
    if (p->job.seconds > 0 && now - p->start > p->job.seconds) {
        over_limit(p, PARE_OUTCOME_TIME);
        return;
    }
    int64_t bytes = pare_session_process_bytes(p->pid);
    if (now >= p->look) {
        const int64_t all = pare_session_bytes(p->pid);
        const double pause = (pare_seconds() - now) / LOOK_SHARE;
        p->look = now + (pause > LOOK_SECONDS ? pause : LOOK_SECONDS);
        if (all > bytes) bytes = all;
    }
    if (bytes > p->peak) p->peak = bytes;
    if (p->job.bytes > 0 && bytes > p->job.bytes) over_limit(p, PARE_OUTCOME_MEMORY);
}

static pare_outcome outcome_of(pare_status status)
{
    switch (status) {
    case PARE_OK: return PARE_OUTCOME_DONE;
    case PARE_INPUT: return PARE_OUTCOME_BAD_MODEL;
    case PARE_UNSUPPORTED: return PARE_OUTCOME_UNSUPPORTED;
    case PARE_MEMORY: return PARE_OUTCOME_MEMORY;
    case PARE_INTERRUPTED: return PARE_OUTCOME_STOPPED;
    case PARE_USAGE:
    case PARE_IO:
    case PARE_DEVICE:
    case PARE_MISSED: break;
    }
    return PARE_OUTCOME_FAILED;
}

static void say_limit(const pare_process *p, pare_process_result *r)
{
    char bytes[32];
    r->outcome = p->killed;
    if (p->killed == PARE_OUTCOME_TIME)
        snprintf(r->message, sizeof r->message, "took longer than its limit of %.6g s",
                 p->job.seconds);
    else
        snprintf(r->message, sizeof r->message, "needed more memory than its limit of %s",
                 pare_bytes_text((double)p->job.bytes, bytes, sizeof bytes));
}

/* It ended without a word. */
static void say_crash(const pare_process *p, pare_process_result *r, int status)
{
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    r->outcome = PARE_OUTCOME_CRASH;
    if (number == SIGKILL && p->oom_kills >= 0 && pare_session_oom_kills() > p->oom_kills) {
        r->outcome = PARE_OUTCOME_MEMORY;
        snprintf(r->message, sizeof r->message, "was killed when the machine ran out of memory");
    } else if (number) {
        snprintf(r->message, sizeof r->message, "was ended by signal %d (%s)", number,
                 strsignal(number));
    } else {
        snprintf(r->message, sizeof r->message, "ended with exit status %d and no result",
                 WEXITSTATUS(status));
    }
}

/* A limit of time holds for work that ended before anybody looked, too. */
static void judge(pare_process *p, pare_process_result *r, int status)
{
    verdict v;
    const bool told = read(p->pipe, &v, sizeof v) == sizeof v;
    if (told && p->job.seconds > 0 && v.seconds > p->job.seconds && p->killed == PARE_OUTCOME_DONE)
        p->killed = PARE_OUTCOME_TIME;
    if (p->killed != PARE_OUTCOME_DONE) {
        say_limit(p, r);
    } else if (p->asked) {
        r->outcome = PARE_OUTCOME_STOPPED;
        snprintf(r->message, sizeof r->message, "interrupted");
    } else if (!told) {
        say_crash(p, r, status);
    } else {
        v.message[sizeof v.message - 1] = 0;
        r->outcome = outcome_of(v.status);
        r->seconds = v.seconds;
        snprintf(r->message, sizeof r->message, "%s",
                 v.message[0] || v.status == PARE_OK ? v.message : pare_status_text(v.status));
    }
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

bool pare_process_poll(pare_process *process, pare_process_result *result)
{
    struct rusage used;
    int status;
    const pid_t pid = wait4(process->pid, &status, WNOHANG, &used);
    if (pid == 0 || (pid < 0 && errno == EINTR)) {
        look(process);
        return false;
    }
    *result = (pare_process_result){.seconds = pare_seconds() - process->start};
    if (pid > 0) {
        const int64_t most = (int64_t)used.ru_maxrss * 1024;
        result->cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
        result->peak_bytes = most > process->peak ? most : process->peak;
    }
    judge(process, result, pid > 0 ? status : 0);
    close(process->pipe);
    process->pid = 0;
    return true;
}

void pare_process_sweep(const pare_process *all, int count)
{
    enum { MOST = 4096 };
    pid_t running[MOST];
    int n = 0;
    for (int i = 0; i < count && n < MOST; i++)
        if (all[i].pid) running[n++] = all[i].pid;
    pare_session_sweep(running, n);
}

void pare_process_wait(double seconds)
{
    sigset_t ends;
    const long whole = (long)seconds;
    const struct timespec most = {whole, (long)((seconds - (double)whole) * 1e9)};
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigtimedwait(&ends, NULL, &most); /* EINTR: another signal; the caller looks */
}

void pare_process_stop(pare_process *process)
{
    if (!process->pid || process->asked) return;
    process->asked = true;
    kill(process->pid, SIGTERM);
}

void pare_process_kill(pare_process *process)
{
    if (!process->pid) return;
    process->asked = true;
    pare_session_kill(process->pid);
}

pare_status pare_process_run(pare_ctx *ctx, const pare_process_job *job,
                             pare_process_result *result)
{
    pare_process process;
    PARE_TRY(pare_process_start(ctx, &process, job));
    while (!pare_process_poll(&process, result)) {
        if (ctx->interrupted && *ctx->interrupted) pare_process_kill(&process);
        pare_process_wait(0.05);
    }
    pare_process_sweep(&process, 1);
    return pare_ctx_poll(ctx);
}

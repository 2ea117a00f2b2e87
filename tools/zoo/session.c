/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What /proc/PID/stat says that is needed here (proc(5): fields 3, 4, 6 and 24). */
typedef struct facts {
    char state;
    int parent, session;
    long pages;
} facts;

/* The beginning of a file of /proc as text; "" where it cannot be read. */
static void read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    for (ssize_t more = 1; fd >= 0 && more > 0 && n<size - 1; n += more> 0 ? (size_t)more : 0)
        more = read(fd, text + n, size - 1 - n);
    if (fd >= 0) close(fd);
    text[n] = 0;
}

static bool read_facts(pid_t pid, facts *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    read_text(path, text, sizeof text);
    const char *name_end = strrchr(text, ')'); /* a name may hold anything */
    return name_end && sscanf(name_end + 1,
                              " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                              "%*d %*d %*u %*u %ld",
                              &out->state, &out->parent, &out->session, &out->pages) == 4;
}

/* The next process of a listing of /proc; 0 at its end. */
static pid_t next_process(DIR *list)
{
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (*entry->d_name >= '1' && *entry->d_name <= '9') return atoi(entry->d_name);
    return 0;
}

int64_t pare_session_process_bytes(pid_t pid)
{
    facts f;
    return read_facts(pid, &f) ? (int64_t)f.pages * sysconf(_SC_PAGESIZE) : 0;
}

int64_t pare_session_bytes(pid_t session)
{
    int64_t pages = 0;
    DIR *list = opendir("/proc");
    facts f;
    for (pid_t pid; (pid = next_process(list));)
        if (read_facts(pid, &f) && f.session == session) pages += f.pages;
    if (list) closedir(list);
    return pages * sysconf(_SC_PAGESIZE);
}

/* One round; false where nothing that lives was found. */
static bool kill_round(pid_t session)
{
    bool found = false;
    DIR *list = opendir("/proc");
    facts f;
    for (pid_t pid; (pid = next_process(list));) {
        if (pid == getpid() || !read_facts(pid, &f) || f.session != session) continue;
        if (f.state == 'Z' || f.state == 'X') continue;
        found |= kill(pid, SIGKILL) == 0;
    }
    if (list) closedir(list);
    return found;
}

void pare_session_kill(pid_t session)
{
    kill(-session, SIGKILL);
    for (int round = 0; round < 200 && kill_round(session); round++) usleep(500);
}

/* --- what was left behind --- */

/* The processes that this one started, each the leader of its session. */
typedef struct family {
    const pid_t *running;
    int count;
} family;

static bool is_running(const family *own, pid_t pid)
{
    for (int i = 0; i < own->count; i++)
        if (own->running[i] == pid) return true;
    return false;
}

/* True where it was one, and has ended. */
static bool end_stray(const family *own, pid_t pid)
{
    facts f;
    if (is_running(own, pid) || !read_facts(pid, &f) || f.parent != getpid()) return false;
    if (f.state != 'Z' && is_running(own, f.session)) return false;
    kill(pid, SIGKILL);
    for (int i = 0; i < 200; i++) {
        if (waitpid(pid, NULL, WNOHANG)) return true;
        usleep(500);
    }
    return false;
}

/* Where the kernel does not list children. */
static bool sweep_all(const family *own)
{
    bool ended = false;
    DIR *list = opendir("/proc");
    for (pid_t pid; (pid = next_process(list));) ended |= end_stray(own, pid);
    if (list) closedir(list);
    return ended;
}

static bool sweep_round(const family *own)
{
    char path[64], text[4096];
    bool ended = false;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    if (access(path, R_OK)) return sweep_all(own);
    read_text(path, text, sizeof text); /* a number that is cut has no space after it */
    char *at = text, *end;
    for (long pid; (pid = strtol(at, &end, 10)) > 0 && *end; at = end)
        ended |= end_stray(own, (pid_t)pid);
    return ended;
}

void pare_session_sweep(const pid_t *running, int count)
{
    const family own = {running, count};
    for (int round = 0; round < 1000 && sweep_round(&own);) round++;
}

long pare_session_oom_kills(void)
{
    char text[16384];
    read_text("/proc/vmstat", text, sizeof text);
    const char *at = strstr(text, "\noom_kill ");
    return at ? atol(at + 10) : -1;
}

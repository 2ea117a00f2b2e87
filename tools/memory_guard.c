/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing here allocates: texts are made before, and the last one is written with writev. A
   crash counts as a lack of memory only where memory is in fact short; any other stays a crash. */
#include "tools/memory_guard.h"
#include "runtime/base/room.h"
#include "runtime/base/text.h"
#include "tools/ending.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

typedef void (*on_terminate)(void);

static struct {
    pid_t owner;
    bool working;
    on_terminate before; /* what std::terminate called */
    const char *ending;  /* file for the message, too; NULL: none */
    char head[1024], cure[256];
    char said[4096];      /* buffer of standard error */
    char stack[64 << 10]; /* of the signal handler: the program's own may be what does not grow */
} guard;
static atomic_flag ended = ATOMIC_FLAG_INIT;
static const char program[] = "pare: ";

static char *append(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

/* The message as one text, without the program's name and the newline. */
static void leave_ending(const char *what, size_t bytes)
{
    enum { WHAT = 256 };
    static char text[sizeof guard.head + WHAT + sizeof guard.cure];
    const char *head = guard.head + sizeof program - 1;
    if (!guard.ending) return;
    char *at = append(text, head, strlen(head));
    at = append(at, what, bytes < WHAT ? bytes : WHAT);
    at = append(at, guard.cure, strlen(guard.cure) - 1);
    *at = 0;
    pare_ending_leave(guard.ending, PARE_MEMORY, text);
}

_Noreturn static void end_with(const char *what, size_t bytes)
{
    if (atomic_flag_test_and_set(&ended))
        for (;;) pause(); /* another thread is writing its message */
    const struct iovec text[] = {
        {guard.head, strlen(guard.head)}, {(char *)what, bytes}, {guard.cure, strlen(guard.cure)}};
    (void)!writev(STDERR_FILENO, text, sizeof text / sizeof *text);
    leave_ending(what, bytes);
    _exit(1);
}

_Noreturn static void end_out_of_memory(void)
{
    static const char what[] = "out of memory inside a library";
    end_with(what, sizeof what - 1);
}

static bool is_short_of_memory(void) { return !pare_has_room(PARE_ROOM_LEAST); }

static bool serves(void) { return guard.working && guard.owner == getpid(); }

static void on_crash(int number)
{
    if (serves() && is_short_of_memory()) end_out_of_memory();
    signal(number, SIG_DFL);
    raise(number);
}

/* A function of the C++ runtime, which is there where oneDNN is; NULL where it is not. */
static void *find_cxx(const char *symbol) { return dlsym(RTLD_DEFAULT, symbol); }

/* Is the exception that ends the program a std::bad_alloc? */
static bool is_bad_alloc(void)
{
    union {
        void *address;
        void *(*call)(void);
    } type = {find_cxx("__cxa_current_exception_type")};
    return type.address && type.call() && type.call() == find_cxx("_ZTISt9bad_alloc");
}

static void on_uncaught(void)
{
    if (serves() && (is_bad_alloc() || is_short_of_memory())) end_out_of_memory();
    if (guard.before) guard.before();
    abort();
}

/* The OpenMP runtime's line is in the buffer of standard error. What was said before it is written,
   the line itself becomes part of the message. */
static void on_exit_of_library(void)
{
    static const char mark[] = "\nlibgomp: ";
    if (!serves()) return;
    size_t bytes = __fpending(stderr);
    if (bytes >= sizeof guard.said) bytes = sizeof guard.said - 1;
    guard.said[bytes] = 0;
    char *line = strstr(guard.said, mark);
    if (!line) end_out_of_memory();
    (void)!write(STDERR_FILENO, guard.said, (size_t)(line - guard.said));
    line++;
    end_with(line, strcspn(line, "\n"));
}

/* pthread_exit loads libgcc_s at its first call, and aborts where that fails; backtrace loads the
   same. */
static void load_unwinder(void)
{
    void *frame;
    (void)backtrace(&frame, 1);
}

void pare_memory_guard_install(void)
{
    const stack_t stack = {.ss_sp = guard.stack, .ss_size = sizeof guard.stack};
    const struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK};
    union {
        void *address;
        on_terminate (*call)(on_terminate);
    } set = {find_cxx("_ZSt13set_terminatePFvvE")}; /* std::set_terminate(void (*)()) */
    load_unwinder();
    guard.owner = getpid();
    if (set.address) guard.before = set.call(on_uncaught);
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &crash, NULL);
    sigaction(SIGBUS, &crash, NULL);
    sigaction(SIGABRT, &crash, NULL);
    atexit(on_exit_of_library);
    setvbuf(stderr, guard.said, _IOFBF, sizeof guard.said); /* pare_print flushes it */
}

void pare_memory_guard_set(const char *file, const char *cure)
{
    char name[sizeof guard.head - 16];
    pare_text_escape(name, sizeof name, file ? file : "", file ? strlen(file) : 0);
    snprintf(guard.head, sizeof guard.head, "%s%s%s", program, name, file ? ": " : "");
    snprintf(guard.cure, sizeof guard.cure, "; %s\n", cure);
    guard.working = true;
}

void pare_memory_guard_clear(void) { guard.working = false; }

void pare_memory_guard_tell(const char *path) { guard.ending = path; }

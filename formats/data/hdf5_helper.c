/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 in a process of its own. Release 1.10 does not survive every damaged file, so a child,
   forked when the file is opened, makes all HDF5 calls and answers questions over a socket: the
   names of datasets, what one of them is and where its chunks are, rows that only H5Dread can read.
   When the child dies, the question in flight becomes one message. What it answers is checked again
   here, for a damaged heap may answer before it dies. */
#include "formats/data/hdf5.h"
#include "runtime/base/room.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_SECONDS = 60, BYTES_PER_SECOND = 100000, NAME_SIZE = 4096 };

struct pare_h5_helper {
    pid_t pid;
    int fd;   /* the parent's end; -1 once the child is gone */
    int sets; /* opened so far */
};

typedef enum question { ASK_OPEN, ASK_NAMES, ASK_HAS, ASK_SET, ASK_ROWS } question;

typedef struct request {
    question what;
    int set; /* ROWS: which of the sets opened so far */
    int64_t first, count;
    size_t text; /* bytes of the name that follows */
} request;

typedef struct reply {
    pare_status status;
    char message[sizeof((pare_ctx *)0)->message];
    size_t bytes; /* that follow */
} reply;

/* --- bytes over the socket --- */

static bool send_all(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ctx: whose interruption ends the waiting; NULL in the child. */
static bool receive_all(pare_ctx *ctx, int fd, void *data, size_t bytes)
{
    for (char *at = data; bytes > 0;) {
        ssize_t n = recv(fd, at, bytes, 0);
        if (n < 0 && errno == EINTR && (!ctx || !ctx->interrupted || !*ctx->interrupted)) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* --- the child --- */

typedef struct server {
    int fd;
    pare_ctx ctx;
    pare_h5_file file;
    pare_h5_set **set;
    size_t count, capacity;
} server;

/* Sends status, message and the answer's bytes in up to four parts. */
static bool answer(server *s, pare_status status, const void *const *part, const size_t *size,
                   int parts)
{
    reply r = {.status = status};
    memcpy(r.message, s->ctx.message, sizeof r.message);
    pare_ctx_clear(&s->ctx);
    for (int i = 0; i < parts && status == PARE_OK; i++) r.bytes += size[i];
    bool good = send_all(s->fd, &r, sizeof r);
    for (int i = 0; i < parts && status == PARE_OK && good; i++)
        good = !size[i] || send_all(s->fd, part[i], size[i]);
    return good;
}

static bool answer_names(server *s)
{
    char *joined = NULL, *first = NULL;
    int count = 0;
    pare_status st = pare_h5_names(&s->ctx, &s->file, &joined, &first, &count);
    const void *part[] = {&count, first ? first : "", joined ? joined : ""};
    size_t size[] = {sizeof count, first ? strlen(first) + 1 : 1, joined ? strlen(joined) + 1 : 1};
    bool good = answer(s, st, part, size, 3);
    pare_free(joined);
    pare_free(first);
    return good;
}

static bool answer_set(server *s, const char *name)
{
    pare_h5_set *set = pare_alloc(&s->ctx, 1, sizeof *set);
    pare_status st = set ? pare_h5_set_open(&s->ctx, set, &s->file, name) : PARE_MEMORY;
    if (st == PARE_OK && !pare_grow(&s->ctx, &s->set, &s->capacity, s->count, sizeof(void *)))
        st = PARE_MEMORY;
    if (st != PARE_OK) return answer(s, st, NULL, NULL, 0);
    s->set[s->count++] = set;
    size_t chunks = set->chunks ? (size_t)(set->group_count * set->group_chunks) : 0;
    const void *part[] = {set, set->chunks, set->image.mean, set->image.std};
    size_t size[] = {sizeof *set, chunks * sizeof *set->chunks,
                     (size_t)set->image.mean_count * sizeof(float),
                     (size_t)set->image.std_count * sizeof(float)};
    return answer(s, st, part, size, 4);
}

static bool answer_rows(server *s, const request *r)
{
    const pare_h5_set *set = s->set[r->set];
    size_t bytes = (size_t)r->count * set->row_bytes;
    uint8_t *rows = pare_alloc(&s->ctx, bytes, 1);
    pare_status st = rows ? pare_h5_read_rows(&s->ctx, set, r->first, r->count, rows) : PARE_MEMORY;
    const void *part[] = {rows};
    bool good = answer(s, st, part, &bytes, 1);
    pare_free(rows);
    return good;
}

static bool answer_one(server *s, const request *r, const char *text)
{
    switch (r->what) {
    case ASK_OPEN: return answer(s, pare_h5_open_here(&s->ctx, &s->file), NULL, NULL, 0);
    case ASK_NAMES: return answer_names(s);
    case ASK_HAS: {
        bool has;
        const void *part[] = {&has};
        pare_status st = pare_h5_has(&s->ctx, &s->file, text, &has);
        return answer(s, st, part, &(size_t){sizeof has}, 1);
    }
    case ASK_SET: return answer_set(s, text);
    case ASK_ROWS: return answer_rows(s, r);
    }
    return false;
}

/* Damaged lists send HDF5 round in circles: a question may take a minute of the processor, and more
   for large files, whose chunks it lists in time that grows with their square. */
static void allow_time(uint64_t file_bytes)
{
    struct rusage used;
    struct rlimit limit;
    if (getrusage(RUSAGE_SELF, &used) || getrlimit(RLIMIT_CPU, &limit)) return;
    rlim_t end = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + ANSWER_SECONDS +
                 file_bytes / BYTES_PER_SECOND;
    if (limit.rlim_max == RLIM_INFINITY || end < limit.rlim_max) limit.rlim_cur = end;
    setrlimit(RLIMIT_CPU, &limit);
}

/* Until the parent closes its end. A crash must not print, nor leave a core of the parent's size.
 */
static void serve(const pare_h5_file *file, int fd)
{
    server s = {.fd = fd, .file = *file};
    request r;
    char text[NAME_SIZE];
    pare_ctx_init(&s.ctx);
    s.file.helper = NULL;
    for (int number = 1; number < SIGRTMIN; number++)
        signal(number, SIG_DFL); /* not the caller's */
    signal(SIGINT, SIG_IGN);     /* the terminal sends it to both; the parent decides */
    signal(SIGHUP, SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (quiet >= 0) dup2(quiet, STDERR_FILENO);
    while (receive_all(NULL, fd, &r, sizeof r) && r.text < sizeof text &&
           receive_all(NULL, fd, text, r.text)) {
        text[r.text] = 0;
        allow_time(file->size);
        if (!answer_one(&s, &r, text)) return;
    }
}

/* --- the parent --- */

/* Closes the socket, at which the child ends, and waits; the signal that ended it, else 0. */
static int end(pare_h5_helper *h)
{
    int status = 0;
    pid_t pid;
    if (h->fd < 0) return 0;
    close(h->fd);
    h->fd = -1;
    while ((pid = waitpid(h->pid, &status, 0)) < 0 && errno == EINTR) {
    }
    return pid == h->pid && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The child died, or answered nonsense, or was not waited for. */
static pare_status fail_helper(pare_ctx *ctx, const pare_h5_file *file)
{
    PARE_TRY(pare_ctx_poll(ctx));
    int number = end(file->helper);
    if (number == SIGKILL || number == SIGTERM) /* nothing that libhdf5 does to itself */
        return PARE_FAIL(ctx, IO,
                         "%s: the process that reads it was ended from outside: %s; try again",
                         file->path, strsignal(number));
    if (!pare_has_room(PARE_ROOM_LEAST))
        return PARE_FAIL(ctx, MEMORY, "%s: out of memory inside libhdf5", file->path);
    return PARE_FAIL(ctx, INPUT,
                     "%s: libhdf5 crashed on its metadata%s%s; the file is damaged, copy or make "
                     "it again",
                     file->path, number ? ": " : "", number ? strsignal(number) : "");
}

/* Asks and waits for the answer; *out (*bytes of it) is the caller's. */
static pare_status ask(pare_ctx *ctx, const pare_h5_file *file, request r, const char *text,
                       uint8_t **out, size_t *bytes)
{
    reply back;
    int fd = file->helper->fd;
    r.text = text ? strlen(text) : 0;
    *out = NULL;
    if (r.text >= NAME_SIZE)
        return PARE_FAIL(ctx, INPUT, "%s: the name of a dataset is too long", file->path);
    if (fd < 0 || !send_all(fd, &r, sizeof r) || !send_all(fd, text, r.text) ||
        !receive_all(ctx, fd, &back, sizeof back))
        return fail_helper(ctx, file);
    back.message[sizeof back.message - 1] = 0;
    if (back.status != PARE_OK) return pare_fail(ctx, back.status, "%s", back.message);
    if (!(*out = pare_alloc(ctx, back.bytes, 1))) return PARE_MEMORY;
    *bytes = back.bytes;
    if (receive_all(ctx, fd, *out, back.bytes)) return PARE_OK;
    pare_free(*out);
    *out = NULL;
    return fail_helper(ctx, file);
}

pare_status pare_h5_helper_start(pare_ctx *ctx, pare_h5_file *file)
{
    int pair[2];
    uint8_t *none;
    size_t bytes;
    pare_h5_helper *h = pare_alloc(ctx, 1, sizeof *h);
    if (!h) return PARE_MEMORY;
    h->fd = -1;
    file->helper = h;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return PARE_FAIL(ctx, IO, "%s: no process to read it in: %s", file->path, strerror(errno));
    h->pid = fork();
    if (h->pid == 0) {
        close(pair[0]);
        serve(file, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    h->fd = pair[0];
    if (h->pid < 0) {
        close(h->fd);
        h->fd = -1;
        return PARE_FAIL(ctx, IO, "%s: no process to read it in: %s", file->path, strerror(errno));
    }
    pare_status st = ask(ctx, file, (request){.what = ASK_OPEN}, NULL, &none, &bytes);
    pare_free(none);
    return st;
}

void pare_h5_helper_end(pare_h5_file *file)
{
    if (!file->helper || file->helper->fd < 0) return;
    kill(file->helper->pid, SIGKILL); /* it holds nothing that could be lost */
    end(file->helper);
}

void pare_h5_helper_free(pare_h5_file *file)
{
    pare_h5_helper_end(file);
    pare_free(file->helper);
    file->helper = NULL;
}

pare_status pare_h5_helper_names(pare_ctx *ctx, const pare_h5_file *file, char **joined,
                                 char **first, int *count)
{
    uint8_t *data;
    size_t bytes, n;
    PARE_TRY(ask(ctx, file, (request){.what = ASK_NAMES}, NULL, &data, &bytes));
    pare_status st = PARE_MEMORY;
    *joined = *first = NULL;
    const char *text = (const char *)data + sizeof *count;
    if (bytes < sizeof *count + 2 || data[bytes - 1] ||
        (n = strlen(text) + 1) >= bytes - sizeof *count) {
        st = fail_helper(ctx, file);
    } else {
        memcpy(count, data, sizeof *count);
        *first = pare_strdup(ctx, text);
        *joined = pare_strdup(ctx, text + n);
        if (*first && *joined) st = PARE_OK;
    }
    if (st != PARE_OK) {
        pare_free(*first);
        pare_free(*joined);
    }
    pare_free(data);
    return st;
}

pare_status pare_h5_helper_has(pare_ctx *ctx, const pare_h5_file *file, const char *name, bool *out)
{
    uint8_t *data;
    size_t bytes;
    PARE_TRY(ask(ctx, file, (request){.what = ASK_HAS}, name, &data, &bytes));
    *out = bytes && data[0];
    pare_free(data);
    return PARE_OK;
}

/* Sizes that the answer's arrays must have; false where the answer is not whole. */
static bool measure_answer(const pare_h5_set *s, size_t bytes, size_t *chunks)
{
    const pare_h5_image *image = &s->image;
    pare_h5_set again = *s;
    if (s->rank < 1 || s->rank > PARE_MAX_RANK || image->mean_count < 0 || image->std_count < 0)
        return false;
    size_t numbers = ((size_t)image->mean_count + (size_t)image->std_count) * sizeof(float);
    if (!pare_h5_measure(&again) || again.chunk_bytes != s->chunk_bytes ||
        again.group_count != s->group_count || again.group_chunks != s->group_chunks ||
        (size_t)pare_type(s->dtype)->bits != 8 * s->element || s->element < 1 ||
        s->image.layout[sizeof image->layout - 1])
        return false;
    *chunks = s->chunks ? (size_t)(s->group_count * s->group_chunks) : 0;
    return !s->chunks == s->serial && bytes == sizeof *s + *chunks * sizeof *s->chunks + numbers;
}

/* A copy of count items at *at, which moves after them; NULL for none. */
static void *take(pare_ctx *ctx, const uint8_t **at, size_t count, size_t size)
{
    void *copy = count ? pare_alloc(ctx, count, size) : NULL;
    if (copy) memcpy(copy, *at, count * size);
    *at += count * size;
    return copy;
}

static pare_status take_set(pare_ctx *ctx, pare_h5_set *out, const pare_h5_file *file,
                            const char *name, const uint8_t *data, size_t bytes)
{
    size_t chunks;
    const uint8_t *at = data + sizeof *out;
    pare_h5_set s;
    if (bytes < sizeof s) return fail_helper(ctx, file);
    memcpy(&s, data, sizeof s);
    if (!measure_answer(&s, bytes, &chunks)) return fail_helper(ctx, file);
    *out = s;
    out->file = file;
    out->id = out->memory_type = -1;
    out->name = pare_strdup(ctx, name);
    out->chunks = take(ctx, &at, chunks, sizeof *s.chunks);
    out->image.mean = take(ctx, &at, (size_t)s.image.mean_count, sizeof(float));
    out->image.std = take(ctx, &at, (size_t)s.image.std_count, sizeof(float));
    if (!out->name || (chunks && !out->chunks) || (s.image.mean_count && !out->image.mean) ||
        (s.image.std_count && !out->image.std))
        return PARE_MEMORY;
    for (size_t i = 0; i < chunks; i++) {
        const pare_h5_chunk *c = &out->chunks[i];
        uint64_t plain = s.contiguous ? c->size : s.chunk_bytes;
        if (plain > s.chunk_bytes) return fail_helper(ctx, file);
        if (c->size) PARE_TRY(pare_h5_check_chunk(ctx, out, c, c->size, (int64_t)i, plain));
    }
    return PARE_OK;
}

pare_status pare_h5_helper_set(pare_ctx *ctx, pare_h5_set *out, const pare_h5_file *file,
                               const char *name)
{
    uint8_t *data;
    size_t bytes;
    *out = (pare_h5_set){.id = -1, .memory_type = -1};
    PARE_TRY(ask(ctx, file, (request){.what = ASK_SET}, name, &data, &bytes));
    pare_status st = take_set(ctx, out, file, name, data, bytes);
    pare_free(data);
    int number = file->helper->sets++;
    if (st != PARE_OK)
        pare_h5_set_close(out);
    else
        out->number = number;
    return st;
}

pare_status pare_h5_helper_rows(pare_ctx *ctx, const pare_h5_set *set, int64_t first, int64_t count,
                                uint8_t *out)
{
    uint8_t *data;
    size_t bytes, wanted = (size_t)count * set->row_bytes;
    request r = {.what = ASK_ROWS, .set = set->number, .first = first, .count = count};
    PARE_TRY(ask(ctx, set->file, r, NULL, &data, &bytes));
    pare_status st = bytes == wanted ? PARE_OK : fail_helper(ctx, set->file);
    if (st == PARE_OK) memcpy(out, data, wanted);
    pare_free(data);
    return st;
}

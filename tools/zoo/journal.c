/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pare_status fails(pare_ctx *ctx, const char *path)
{
    return PARE_FAIL(ctx, IO, "%s: cannot be written: %s%s", path, strerror(errno),
                     errno == ENOSPC || errno == EDQUOT || errno == EFBIG
                         ? "; free some space, then continue with --resume"
                         : "");
}

/* --- writing --- */

static bool ends_within_line(int fd)
{
    struct stat info;
    char last = '\n';
    return !fstat(fd, &info) && info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) == 1 &&
           last != '\n';
}

pare_status pare_journal_open(pare_ctx *ctx, pare_journal *journal, const char *folder)
{
    char host[256] = "", path[4096];
    *journal = (pare_journal){.fd = -1};
    if (mkdir(folder, 0777) && errno != EEXIST) return fails(ctx, folder);
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    snprintf(path, sizeof path, "%s/%s-%d.jsonl", folder, host, (int)getpid());
    if (!(journal->path = pare_strdup(ctx, path))) return PARE_MEMORY;
    journal->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (journal->fd < 0) return fails(ctx, path);
    journal->cut = ends_within_line(journal->fd);
    return PARE_OK;
}

void pare_journal_close(pare_journal *journal)
{
    if (journal->fd >= 0) close(journal->fd);
    pare_free(journal->path);
    *journal = (pare_journal){.fd = -1};
}

/* Takes the object. */
static pare_status add(pare_ctx *ctx, pare_journal *journal, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    char *line = NULL;
    json_decref(object);
    const int size = text ? asprintf(&line, "%s%s\n", journal->cut ? "\n" : "", text) : -1;
    free(text);
    if (size < 0) return PARE_FAIL(ctx, MEMORY, "%s: out of memory", journal->path);
    const ssize_t n = write(journal->fd, line, (size_t)size);
    if (n >= 0 && n < size) errno = ENOSPC; /* a short write: the rest did not fit */
    if (n > 0) journal->cut = n < size;
    free(line);
    return n == size ? PARE_OK : fails(ctx, journal->path);
}

double pare_journal_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

pare_status pare_journal_start(pare_ctx *ctx, pare_journal *journal, const char *key,
                               const char *verb)
{
    return add(
        ctx, journal,
        json_pack("{s:f, s:s, s:s}", "started", pare_journal_now(), "key", key, "verb", verb));
}

pare_status pare_journal_finish(pare_ctx *ctx, pare_journal *journal, const pare_journal_line *line)
{
    json_t *object = json_pack(
        "{s:f, s:s, s:s, s:s, s:f, s:f, s:I}", "finished",
        line->finished > 0 ? line->finished : pare_journal_now(), "key", line->key, "verb",
        line->verb, "class", pare_outcome_text(line->outcome), "seconds", line->seconds,
        "cpu_seconds", line->cpu_seconds, "peak_bytes", (json_int_t)line->peak_bytes);
    const char *const names[] = {"message", "model_hash", "facts_hash", "command"};
    const char *const values[] = {line->message, line->model_hash, line->facts_hash, line->command};
    for (int i = 0; i < 4; i++) { /* a message may hold bytes of a file that are no UTF-8 */
        json_t *value = json_string(values[i]);
        json_object_set_new(object, names[i], value ? value : json_string("?"));
    }
    return add(ctx, journal, object);
}

/* --- reading --- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* False where the object is neither a start nor an end. */
static bool take_object(const json_t *object, void (*take)(void *, const pare_journal_line *),
                        void *user)
{
    const pare_outcome outcome = pare_outcome_find(text_of(object, "class"));
    if (!json_is_string(json_object_get(object, "key"))) return false;
    if (json_is_number(json_object_get(object, "started"))) return true;
    if (!json_is_number(json_object_get(object, "finished")) || outcome == PARE_OUTCOME_COUNT)
        return false;
    const pare_journal_line line = {
        .key = text_of(object, "key"),
        .verb = text_of(object, "verb"),
        .outcome = outcome,
        .message = text_of(object, "message"),
        .finished = json_number_value(json_object_get(object, "finished")),
        .seconds = json_number_value(json_object_get(object, "seconds")),
        .cpu_seconds = json_number_value(json_object_get(object, "cpu_seconds")),
        .peak_bytes = json_integer_value(json_object_get(object, "peak_bytes")),
        .model_hash = text_of(object, "model_hash"),
        .facts_hash = text_of(object, "facts_hash"),
        .command = text_of(object, "command"),
    };
    take(user, &line);
    return true;
}

static pare_status read_file(pare_ctx *ctx, const char *path,
                             void (*take)(void *, const pare_journal_line *), void *user)
{
    char *line = NULL;
    size_t room = 0;
    int wrong = 0;
    ssize_t n;
    FILE *file = fopen(path, "re");
    if (!file) return PARE_FAIL(ctx, IO, "%s: cannot be read: %s", path, strerror(errno));
    while ((n = getline(&line, &room, file)) > 0) {
        json_t *object = line[n - 1] == '\n' ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
        if (*line != '\n' && !take_object(object, take, user)) wrong++;
        json_decref(object);
    }
    const bool failed = ferror(file);
    free(line);
    fclose(file);
    if (wrong)
        pare_log(ctx, PARE_LOG_WARNING,
                 "%s: %d %s cut or changed, and count as if they were not there", path, wrong,
                 wrong == 1 ? "line is" : "lines are");
    return failed ? PARE_FAIL(ctx, IO, "%s: cannot be read", path) : PARE_OK;
}

pare_status pare_journal_read(pare_ctx *ctx, const char *folder,
                              void (*take)(void *user, const pare_journal_line *line), void *user)
{
    pare_status st = PARE_OK;
    char path[4096];
    DIR *list = opendir(folder);
    if (!list && errno == ENOENT) return PARE_OK;
    if (!list) return PARE_FAIL(ctx, IO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; st == PARE_OK && (entry = readdir(list));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".jsonl") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        st = read_file(ctx, path, take, user);
    }
    closedir(list);
    return st;
}

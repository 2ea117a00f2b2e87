/* SPDX-License-Identifier: Apache-2.0 */
/* Journals, and the records of a plan's nodes that are read from them. */
#include "tools/zoo/journal.h"

#include "formats/file.h"
#include "formats/json.h"

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
    for (int i = 0; i < 4; i++) json_object_set_new(object, names[i], pare_json_text(values[i]));
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
    char path[4096 + 256];
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

/* --- records: places by key --- */

static int by_key(const void *a, const void *b, void *user)
{
    const pare_zoo_node *nodes = user;
    return strcmp(nodes[*(const int *)a].key, nodes[*(const int *)b].key);
}

static int find(const pare_zoo_records *r, const char *key)
{
    int low = 0, high = r->plan->node_count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(r->plan->nodes[r->by_key[middle]].key, key);
        if (!order) return r->by_key[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

pare_status pare_zoo_records_init(pare_arena *arena, pare_zoo_records *records,
                                  const pare_zoo_plan *plan)
{
    const size_t n = (size_t)plan->node_count;
    *records = (pare_zoo_records){.plan = plan, .ctx = arena->ctx};
    records->of = pare_arena_alloc(arena, n, sizeof *records->of);
    records->by_key = pare_arena_alloc(arena, n, sizeof *records->by_key);
    if (!records->of || !records->by_key) return PARE_MEMORY;
    for (int i = 0; i < plan->node_count; i++) {
        records->of[i].outcome = PARE_OUTCOME_COUNT;
        records->by_key[i] = i;
    }
    qsort_r(records->by_key, n, sizeof *records->by_key, by_key, plan->nodes);
    return PARE_OK;
}

void pare_zoo_records_free(pare_zoo_records *records)
{
    for (int i = 0; records->of && i < records->plan->node_count; i++) {
        pare_free(records->of[i].message);
        records->of[i].message = NULL;
    }
}

/* --- journals --- */

void pare_zoo_records_take(pare_zoo_records *records, const pare_journal_line *line)
{
    const int node = find(records, line->key);
    if (node < 0) return; /* of a plan before this one */
    pare_zoo_record *r = &records->of[node];
    if (r->outcome != PARE_OUTCOME_COUNT && line->finished < r->finished) return;
    pare_free(r->message);
    *r = (pare_zoo_record){.outcome = line->outcome,
                           .finished = line->finished,
                           .seconds = line->seconds,
                           .cpu_seconds = line->cpu_seconds,
                           .peak_bytes = line->peak_bytes};
    if (*line->message) r->message = pare_strdup(records->ctx, line->message);
    snprintf(r->model_hash, sizeof r->model_hash, "%s", line->model_hash);
    snprintf(r->facts_hash, sizeof r->facts_hash, "%s", line->facts_hash);
}

static void take_line(void *user, const pare_journal_line *line)
{
    pare_zoo_records_take(user, line);
}

pare_status pare_zoo_records_read(pare_zoo_records *records, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/journal", folder);
    return pare_journal_read(records->ctx, path, take_line, records);
}

/* --- files --- */

/* External data of a model are beside it as MODEL.xxxxxxxx.data. */
static bool is_external(const char *name, const char *model)
{
    const size_t n = strlen(name), m = strlen(model);
    return n > m && !strncmp(name, model, m) && !strcmp(name + n - 5, ".data");
}

static pare_status add_external(pare_ctx *ctx, const char *model, pare_hash *sum)
{
    char folder[4096], path[4096 + 256];
    const char *slash = strrchr(model, '/');
    pare_status st = PARE_OK;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - model) : 1, slash ? model : ".");
    DIR *list = opendir(folder);
    for (struct dirent *entry; st == PARE_OK && list && (entry = readdir(list));) {
        pare_hash part;
        if (!is_external(entry->d_name, slash ? slash + 1 : model)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        st = pare_file_hash(ctx, path, &part);
        if (st == PARE_OK) *sum = pare_hash_sum(*sum, part);
    }
    if (list) closedir(list);
    return st;
}

pare_status pare_zoo_node_hashes(pare_ctx *ctx, const pare_zoo_node *node, char model[33],
                                 char facts[33])
{
    pare_hash hash;
    *model = *facts = 0;
    if (node->output && !access(node->output, F_OK)) {
        PARE_TRY(pare_file_hash(ctx, node->output, &hash));
        PARE_TRY(add_external(ctx, node->output, &hash));
        pare_hash_text(hash, model);
    }
    if (access(node->facts, F_OK)) return PARE_OK;
    PARE_TRY(pare_file_hash(ctx, node->facts, &hash));
    pare_hash_text(hash, facts);
    return PARE_OK;
}

bool pare_zoo_records_check(pare_zoo_records *records, int node)
{
    const pare_zoo_node *n = &records->plan->nodes[node];
    pare_zoo_record *r = &records->of[node];
    pare_ctx *ctx = records->ctx;
    char model[33], facts[33];
    if (r->outcome != PARE_OUTCOME_DONE) return false;
    if (pare_zoo_node_hashes(ctx, n, model, facts) != PARE_OK) pare_ctx_clear(ctx);
    const bool model_good = !strcmp(model, r->model_hash);
    const bool facts_good = *facts && !strcmp(facts, r->facts_hash);
    if (model_good && facts_good && (*model || !n->output)) return true;
    const char *file = model_good && (*model || !n->output) ? n->facts : n->output;
    pare_log(ctx, PARE_LOG_WARNING, "%s: %s; it is made again", file,
             access(file, F_OK) ? "is missing" : "is not what was written: cut or changed");
    r->outcome = PARE_OUTCOME_COUNT;
    return false;
}

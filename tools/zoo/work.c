/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a zoo's results, and what the process of a node does in it. */
#include "tools/zoo/work.h"

#include "formats/file.h"
#include "formats/json.h"
#include "runtime/base/version.h"
#include "tools/text.h"
#include "tools/zoo/journal.h"
#include "tools/zoo/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- links --- */

static pare_status copy(pare_ctx *ctx, const char *to, const char *from)
{
    pare_map map;
    PARE_TRY(pare_map_open(ctx, &map, from));
    const pare_status st = pare_file_write(ctx, to, map.data, map.size);
    pare_map_close(&map);
    return st;
}

static pare_status link_one(pare_ctx *ctx, const char *to, const char *from)
{
    if (pare_file_same(to, from)) return PARE_OK;
    if (unlink(to) && errno != ENOENT)
        return PARE_FAIL(ctx, IO, "%s: cannot be replaced: %s", to, strerror(errno));
    if (!link(from, to) || errno == EEXIST)
        return PARE_OK; /* EEXIST: another process was quicker */
    return copy(ctx, to, from);
}

/* External data keep their name, which has their hash in it: the model looks for it beside itself.
 */
pare_status pare_zoo_link(pare_ctx *ctx, const char *link, const char *model)
{
    char folder[4096], from[8192], to[8192];
    const char *slash = strrchr(model, '/'), *end = strrchr(link, '/');
    pare_status st = link_one(ctx, link, model);
    if (!slash || !end) return st;
    const size_t stem = strlen(slash + 1);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - model), model);
    DIR *list = opendir(folder);
    for (struct dirent *entry; st == PARE_OK && list && (entry = readdir(list));) {
        const size_t n = strlen(entry->d_name);
        if (n <= stem + 5 || strncmp(entry->d_name, slash + 1, stem) != 0 ||
            strcmp(entry->d_name + n - 5, ".data") != 0)
            continue;
        snprintf(from, sizeof from, "%s/%s", folder, entry->d_name);
        snprintf(to, sizeof to, "%.*s/%s", (int)(end - link), link, entry->d_name);
        st = link_one(ctx, to, from);
    }
    if (list) closedir(list);
    return st;
}

/* --- the work --- */

/* What an earlier try left behind must not pass for this one's. */
static pare_status clear(pare_ctx *ctx, const pare_zoo_node *node)
{
    const char *const files[] = {node->facts, node->output};
    for (int i = 0; i < 2; i++)
        if (files[i] && unlink(files[i]) && errno != ENOENT)
            return PARE_FAIL(ctx, IO, "%s: cannot be replaced: %s", files[i], strerror(errno));
    return PARE_OK;
}

/* Into the step's log, whose warnings the zoo tells; a command leaves a silent context behind. */
static void warn(const pare_ctx *ctx, const char *then)
{
    pare_print(stderr, "warning: %s; %s\n", ctx->message, then);
}

/* The zoo's file was read with the command's own checks: what is bad usage only now is a number of
   ranks that this model's batch cannot be shared among. Results are those of one process. */
static pare_status run_once(pare_ctx *ctx, const pare_zoo_work *w)
{
    const pare_zoo_node *n = w->node;
    const pare_status st = n->ranks > 1 ? pare_zoo_launch(ctx, n) : PARE_USAGE;
    if (st != PARE_USAGE) return st;
    if (n->ranks > 1) warn(ctx, "the step runs in one process");
    pare_ctx_clear(ctx);
    return w->run(ctx, (char *const *)n->words, n->word_count);
}

/* A checkpoint that cannot be gone on from, cut or of another machine, is no fault of the model:
   the step begins again. */
static pare_status run(pare_ctx *ctx, const pare_zoo_work *w)
{
    const pare_zoo_node *n = w->node;
    const pare_status st = run_once(ctx, w);
    if (st != PARE_INPUT || !strstr(ctx->message, n->folder) || !strstr(ctx->message, ".pare:"))
        return st;
    warn(ctx, "the step begins again");
    pare_zoo_drop_checkpoints(n);
    pare_ctx_clear(ctx);
    return run_once(ctx, w);
}

pare_status pare_zoo_work_do(pare_ctx *ctx, void *user)
{
    const pare_zoo_work *w = user;
    char model[33], facts[33];
    PARE_TRY(clear(ctx, w->node));
    if (w->input) PARE_TRY(pare_zoo_link(ctx, w->link, w->input));
    PARE_TRY(run(ctx, w));
    pare_ctx_clear(ctx);
    PARE_TRY(pare_zoo_node_hashes(ctx, w->node, model, facts));
    if (!*facts || (w->node->output && !*model))
        return PARE_FAIL(ctx, IO, "%s: was not written", *facts ? w->node->output : w->node->facts);
    snprintf(ctx->message, sizeof ctx->message, "%s %s", *model ? model : "-", facts);
    return PARE_OK;
}

void pare_zoo_drop_checkpoints(const pare_zoo_node *node)
{
    static const char end[] = ".pare";
    char path[8192];
    DIR *list = opendir(node->folder);
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        const size_t n = strlen(entry->d_name);
        if (n < sizeof end || strcmp(entry->d_name + n - (sizeof end - 1), end) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", node->folder, entry->d_name);
        (void)unlink(path);
    }
    if (list) closedir(list);
}

bool pare_zoo_work_hashes(const char *message, char model[33], char facts[33])
{
    *model = *facts = 0;
    if (sscanf(message, "%32s %32s", model, facts) != 2) return false;
    if (!strcmp(model, "-")) *model = 0;
    return true;
}

/* --- the folder --- */

static const char *const parts[] = {"journal", "steps", "models"};

static pare_status make(pare_ctx *ctx, const char *path)
{
    struct stat info;
    if (!mkdir(path, 0777)) return PARE_OK;
    const int code = errno;
    if (code == EEXIST && !stat(path, &info) && S_ISDIR(info.st_mode)) return PARE_OK;
    return PARE_FAIL(ctx, IO, "%s: the folder cannot be made: %s", path, strerror(code));
}

/* Does the folder hold an entry that is none of the names? */
static bool holds_others(const char *folder, const char *const *names, size_t count)
{
    DIR *list = opendir(folder);
    bool found = false;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        bool known = *entry->d_name == '.';
        for (size_t i = 0; i < count; i++) known |= !strcmp(entry->d_name, names[i]);
        found |= !known;
    }
    if (list) closedir(list);
    return found;
}

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "?";
}

static pare_status check_owner(pare_ctx *ctx, const char *folder, const char *path,
                               const char *name)
{
    json_t *json;
    PARE_TRY(pare_json_read(ctx, &json, path));
    const char *owner = text_of(json, "name"), *version = text_of(json, "version");
    json_t *expected = pare_json_text(name);
    pare_status st = expected ? PARE_OK : PARE_FAIL(ctx, MEMORY, "out of memory");
    if (expected && strcmp(owner, json_string_value(expected)) != 0)
        st =
            PARE_FAIL(ctx, INPUT,
                      "%s: holds the results of the zoo '%s', expected '%s'; choose another folder",
                      folder, owner, name);
    else if (strcmp(version, PARE_VERSION) != 0 ||
             json_integer_value(json_object_get(json, "schema")) != 1)
        st = PARE_FAIL(ctx, INPUT,
                       "%s: holds results of pare %s, and this is pare %s; choose another folder",
                       folder, version, PARE_VERSION);
    json_decref(expected);
    json_decref(json);
    return st;
}

/* One of several who begin at once makes the file, all of the same content; what others see in the
   folder before they see the file may be the file. */
static pare_status own(pare_ctx *ctx, const char *folder, const char *name)
{
    static const char *const ours[] = {"journal", "steps", "models", "cache", "lock"};
    char path[4096];
    snprintf(path, sizeof path, "%s/zoo.json", folder);
    if (!access(path, F_OK)) return check_owner(ctx, folder, path, name);
    const bool others = holds_others(folder, ours, sizeof ours / sizeof *ours);
    if (others && !access(path, F_OK)) return check_owner(ctx, folder, path, name);
    if (others)
        return PARE_FAIL(
            ctx, INPUT,
            "%s: holds files that are no zoo's, expected an empty folder, a new one or "
            "that of an earlier run",
            folder);
    json_t *json = json_pack("{s:i, s:s, s:o}", "schema", 1, "version", PARE_VERSION, "name",
                             pare_json_text(name));
    const pare_status st =
        json ? pare_json_write(ctx, json, path) : PARE_FAIL(ctx, MEMORY, "out of memory");
    json_decref(json);
    return st;
}

static pare_status taken(pare_ctx *ctx, const char *folder, int lock)
{
    char who[200] = "";
    const ssize_t n = pread(lock, who, sizeof who - 1, 0);
    who[n > 0 ? n : 0] = 0;
    return PARE_FAIL(
        ctx, INPUT,
        "%s: another pare works in this folder%s%s; wait for its end, or choose another "
        "folder",
        folder, *who ? ": " : "", who);
}

static pare_status hold(pare_ctx *ctx, int *lock, const char *folder, pare_zoo_holder holder)
{
    char path[4096];
    const bool alone = holder == PARE_ZOO_ALONE;
    snprintf(path, sizeof path, "%s/lock", folder);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock < 0) return PARE_FAIL(ctx, IO, "%s: cannot be made: %s", path, strerror(errno));
    if (flock(*lock, (alone ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
        if (errno == EWOULDBLOCK) return taken(ctx, folder, *lock);
        pare_log(ctx, PARE_LOG_WARNING,
                 "%s: cannot be locked: %s; see to it that no other pare works in this folder",
                 path, strerror(errno));
    }
    return PARE_OK;
}

/* For those who find the folder taken. */
static void sign(int lock, pare_zoo_holder holder)
{
    char who[200] = "tasks of a batch system", host[128] = "";
    gethostname(host, sizeof host - 1);
    if (holder == PARE_ZOO_ALONE)
        snprintf(who, sizeof who, "process %d on %s", (int)getpid(), host);
    if (!ftruncate(lock, 0)) (void)!pwrite(lock, who, strlen(who), 0);
}

pare_status pare_zoo_workdir_open(pare_ctx *ctx, int *lock, const char *folder, const char *name,
                                  pare_zoo_holder holder, bool resume)
{
    char path[4096];
    *lock = -1;
    PARE_TRY(make(ctx, folder));
    pare_status st = hold(ctx, lock, folder, holder);
    if (st == PARE_OK) st = own(ctx, folder, name);
    for (size_t i = 0; st == PARE_OK && i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        st = make(ctx, path);
    }
    snprintf(path, sizeof path, "%s/journal", folder);
    if (st == PARE_OK && !resume && holds_others(path, NULL, 0))
        st = PARE_FAIL(
            ctx, INPUT,
            "%s: holds the work of an earlier run; continue with it by --resume, or choose "
            "another folder",
            folder);
    if (st == PARE_OK) sign(*lock, holder);
    if (st != PARE_OK && *lock >= 0) {
        close(*lock);
        *lock = -1;
    }
    return st;
}

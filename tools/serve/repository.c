/* SPDX-License-Identifier: Apache-2.0 */
/* Changes are made by one thread at a time, which reads and compiles without the lock; the lock
   guards the table that requests look into. */
#include "tools/serve/repository.h"

#include "formats/json.h"
#include "tools/serve/layout.h"
#include "tools/serve/traffic/shadow.h"
#include "tools/text.h"

#include <stdlib.h>
#include <string.h>

/* A version of a model. */
typedef struct version {
    int64_t number;
    pare_served *served; /* NULL: it is not ready, */
    char *reason;        /* and why */
} version;

/* A model. */
typedef struct entry {
    char *name;
    char *path;     /* its folder, or the file */
    bool is_folder; /* of versions */
    bool loading;   /* its models are being opened */
    version *version;
    size_t count;
    pare_shares shares; /* of requests between the versions */
} entry;

struct pare_repository {
    pare_ctx ctx; /* what models are opened with */
    pare_repository_options options;
    pare_tasks *tasks;
    pthread_mutex_t changing; /* held by who changes the table, from beginning to end */
    pthread_mutex_t lock;
    pthread_cond_t closed;
    /* under the lock */
    entry *entry; /* in order of name */
    size_t count, capacity;
    int open; /* versions that are not closed yet, those of requests among them */
};

static pare_status find_ready(void *repository, pare_ctx *ctx, pare_served **out, const char *name,
                              int64_t number);
static pare_status load_member(void *repository, pare_ctx *ctx, pare_served **out, const char *name,
                               int64_t number);

/* --- versions --- */

/* A model without references is closed by a thread that is none of its own. */
static void close_later(void *user)
{
    pare_served *served = user;
    pare_repository *r = served->options.user;
    pare_served_close(served);
    (void)pthread_mutex_lock(&r->lock);
    r->open--;
    (void)pthread_cond_signal(&r->closed);
    (void)pthread_mutex_unlock(&r->lock);
}

static void on_idle(void *user, pare_served *served)
{
    pare_repository *r = user;
    pare_tasks_add(r->tasks, &served->closing, close_later, served);
}

static void versions_free(version *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].served) pare_served_release(list[i].served);
        pare_free(list[i].reason);
    }
    pare_free(list);
}

static pare_status open_version(pare_repository *r, const entry *e, const pare_serve_config *config,
                                int64_t number, version *out)
{
    pare_arena arena;
    const char *path = e->path;
    pare_arena_init(&arena, &r->ctx);
    pare_status st = PARE_OK;
    if (e->is_folder && !config->step_count)
        st = pare_layout_file(&arena, e->path, number, config->file, &path);
    const pare_served_options options = {.name = e->name,
                                         .path = path,
                                         .version = number,
                                         .config = *config,
                                         .gpus = r->options.gpus,
                                         .shadow = pare_shadows_find(r->options.shadows, e->name),
                                         .is_background =
                                             pare_shadows_runs(r->options.shadows, e->name),
                                         .find = find_ready,
                                         .member = load_member,
                                         .idle = on_idle,
                                         .user = r};
    if (st == PARE_OK) st = pare_served_open(&r->ctx, &out->served, &options);
    out->number = number;
    pare_arena_free(&arena);
    if (st != PARE_OK) return st;
    (void)pthread_mutex_lock(&r->lock);
    r->open++;
    (void)pthread_mutex_unlock(&r->lock);
    return PARE_OK;
}

/* What the command line says of requests to this model. */
static pare_status read_traffic(pare_repository *r, const char *name, pare_shares *out)
{
    const size_t n = strlen(name);
    for (int i = 0; i < r->options.traffic_count; i++) {
        const char *rule = r->options.traffic[i];
        if (!strncmp(rule, name, n) && rule[n] == '=')
            return pare_shares_read(&r->ctx, out, "--traffic", rule + n + 1);
    }
    return PARE_OK;
}

/* Opens all versions of a model that its configuration asks for. */
static pare_status open_versions(pare_repository *r, pare_arena *arena, const entry *e,
                                 version **out, size_t *count, pare_shares *shares)
{
    int64_t one = 1, *number = &one;
    int n = 1;
    pare_serve_config config = r->options.config;
    PARE_TRY(read_traffic(r, e->name, &config.shares));
    if (e->is_folder) PARE_TRY(pare_layout_read(arena, e->path, e->name, &config, &number, &n));
    PARE_TRY(pare_shares_check(&r->ctx, &config.shares, e->path, number, n));
    *shares = config.shares;
    *out = pare_alloc(&r->ctx, (size_t)n, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (int i = 0; i < n; i++) {
        PARE_TRY(open_version(r, e, &config, number[i], *out + i));
        ++*count;
    }
    return PARE_OK;
}

/* --- the table, under the lock --- */

static entry *find(const pare_repository *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->entry[i].name, name)) return &r->entry[i];
    return NULL;
}

static pare_status add_entry(pare_repository *r, const char *name, const char *path, bool is_folder)
{
    size_t at = 0;
    entry *same = find(r, name);
    if (same && !strcmp(same->path, path)) return PARE_OK;
    if (same)
        return PARE_FAIL(&r->ctx, INPUT, "model '%s' is in %s and in %s", name, same->path, path);
    if (!pare_grow(&r->ctx, &r->entry, &r->capacity, r->count, sizeof *r->entry))
        return PARE_MEMORY;
    entry e = {.name = pare_strdup(&r->ctx, name),
               .path = pare_strdup(&r->ctx, path),
               .is_folder = is_folder};
    if (!e.name || !e.path) {
        pare_free(e.name);
        pare_free(e.path);
        return PARE_MEMORY;
    }
    while (at < r->count && strcmp(r->entry[at].name, name) < 0) at++;
    memmove(r->entry + at + 1, r->entry + at, (r->count - at) * sizeof e);
    r->entry[at] = e;
    r->count++;
    return PARE_OK;
}

/* Replaces a model's versions; what was there lives on with the requests that have it. */
static void exchange(pare_repository *r, const char *name, version *list, size_t count,
                     const pare_shares *shares)
{
    (void)pthread_mutex_lock(&r->lock);
    entry *e = find(r, name);
    version *old = e->version;
    const size_t old_count = e->count;
    e->version = list;
    e->count = count;
    e->shares = *shares;
    (void)pthread_mutex_unlock(&r->lock);
    versions_free(old, old_count);
}

/* --- loading and unloading, by one thread at a time --- */

/* The entry's name and path, which stay as they are while the table grows. */
static bool copy_entry(pare_repository *r, const char *name, entry *out)
{
    (void)pthread_mutex_lock(&r->lock);
    const entry *e = find(r, name);
    if (e) *out = *e;
    (void)pthread_mutex_unlock(&r->lock);
    return e != NULL;
}

static void set_loading(pare_repository *r, const char *name, bool loading)
{
    (void)pthread_mutex_lock(&r->lock);
    find(r, name)->loading = loading;
    (void)pthread_mutex_unlock(&r->lock);
}

static pare_status load(pare_repository *r, const entry *e)
{
    version *list = NULL;
    size_t count = 0;
    pare_arena arena;
    pare_shares shares;
    pare_arena_init(&arena, &r->ctx);
    set_loading(r, e->name, true);
    const pare_status st = open_versions(r, &arena, e, &list, &count, &shares);
    set_loading(r, e->name, false);
    pare_arena_free(&arena);
    if (st == PARE_OK)
        exchange(r, e->name, list, count, &shares);
    else
        versions_free(list, count);
    return st;
}

/* A member of an ensemble that is loaded. One that never was is loaded first. */
static pare_status load_member(void *repository, pare_ctx *ctx, pare_served **out, const char *name,
                               int64_t number)
{
    entry e;
    pare_repository *r = repository;
    if (copy_entry(r, name, &e) && !e.count) {
        if (e.loading)
            return PARE_FAIL(ctx, INPUT, "model '%s' waits for this one to be loaded", name);
        const pare_status st = load(r, &e);
        if (st != PARE_OK) return pare_fail(ctx, st, "%s", r->ctx.message);
    }
    return find_ready(r, ctx, out, name, number);
}

/* Models of the folders that were not there before. */
static pare_status scan(pare_repository *r)
{
    for (int i = 0; i < r->options.count; i++) {
        char **names;
        int count;
        pare_arena arena;
        pare_arena_init(&arena, &r->ctx);
        const char *path = r->options.path[i];
        pare_status st = pare_layout_list(&arena, path, &names, &count);
        (void)pthread_mutex_lock(&r->lock);
        for (int k = 0; st == PARE_OK && k < count; k++) {
            const bool is_folder = !pare_ends_with(path, ".onnx");
            const char *at = is_folder ? pare_arena_printf(&arena, "%s/%s", path, names[k]) : path;
            st = at ? add_entry(r, names[k], at, is_folder) : PARE_MEMORY;
        }
        (void)pthread_mutex_unlock(&r->lock);
        pare_arena_free(&arena);
        PARE_TRY(st);
    }
    return PARE_OK;
}

/* Hands the message of the repository's context to the caller's. */
static pare_status tell(pare_repository *r, pare_ctx *ctx, pare_status st)
{
    if (st != PARE_OK) (void)pare_fail(ctx, st, "%s", r->ctx.message);
    pare_ctx_clear(&r->ctx);
    return st;
}

pare_status pare_repository_load(pare_repository *r, pare_ctx *ctx, const char *name)
{
    entry e;
    (void)pthread_mutex_lock(&r->changing);
    pare_status st = scan(r);
    if (st == PARE_OK && !copy_entry(r, name, &e))
        st = PARE_FAIL(&r->ctx, INPUT, "there is no model '%s' in the repository", name);
    else if (st == PARE_OK)
        st = load(r, &e);
    st = tell(r, ctx, st);
    (void)pthread_mutex_unlock(&r->changing);
    return st;
}

/* What is left of a model that is not served: its versions, without them. */
static pare_status unloaded(pare_repository *r, const entry *e, version **out)
{
    *out = pare_alloc(&r->ctx, e->count + 1, sizeof **out);
    if (!*out) return PARE_MEMORY;
    for (size_t i = 0; i < e->count; i++) {
        (*out)[i] =
            (version){.number = e->version[i].number, .reason = pare_strdup(&r->ctx, "unloaded")};
        if ((*out)[i].reason) continue;
        versions_free(*out, i);
        return PARE_MEMORY;
    }
    return PARE_OK;
}

pare_status pare_repository_unload(pare_repository *r, pare_ctx *ctx, const char *name)
{
    entry e;
    version *list;
    (void)pthread_mutex_lock(&r->changing);
    pare_status st = PARE_OK;
    if (!copy_entry(r, name, &e))
        st = PARE_FAIL(&r->ctx, INPUT, "there is no model '%s' in the repository", name);
    else if ((st = unloaded(r, &e, &list)) == PARE_OK)
        exchange(r, e.name, list, e.count, &(pare_shares){0});
    st = tell(r, ctx, st);
    (void)pthread_mutex_unlock(&r->changing);
    return st;
}

void pare_repository_later(pare_repository *r, pare_task *task, void (*work)(void *user),
                           void *user)
{
    pare_tasks_add(r->tasks, task, work, user);
}

/* --- opening --- */

static pare_status check_traffic(pare_repository *r)
{
    for (int i = 0; i < r->options.traffic_count; i++) {
        bool found = false;
        const char *rule = r->options.traffic[i];
        const size_t n = strcspn(rule, "=");
        for (size_t k = 0; k < r->count; k++)
            found |= strlen(r->entry[k].name) == n && !strncmp(r->entry[k].name, rule, n);
        if (!found) return PARE_FAIL(&r->ctx, INPUT, "--traffic %s: there is no such model", rule);
    }
    return PARE_OK;
}

static pare_status load_all(pare_repository *r, pare_ctx *ctx)
{
    PARE_TRY(scan(r));
    PARE_TRY(check_traffic(r));
    if (!r->count) return PARE_FAIL(&r->ctx, INPUT, "%s: holds no model", r->options.path[0]);
    for (size_t i = 0; i < r->count; i++) {
        PARE_TRY(pare_ctx_poll(ctx));
        if (!r->entry[i].count) PARE_TRY(load(r, &r->entry[i])); /* else for an ensemble */
    }
    return PARE_OK;
}

pare_status pare_repository_open(pare_ctx *ctx, pare_repository **out,
                                 const pare_repository_options *options)
{
    pare_repository *r = pare_alloc(ctx, 1, sizeof *r);
    if (!r) return PARE_MEMORY;
    pare_ctx_child(&r->ctx, ctx);
    r->ctx.interrupted = NULL; /* requests are answered after the first signal, too */
    r->options = *options;
    (void)pthread_mutex_init(&r->changing, NULL); /* on Linux none of these fails */
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->closed, NULL);
    pare_status st = pare_tasks_new(ctx, &r->tasks);
    if (st == PARE_OK) st = load_all(r, ctx);
    if (st == PARE_OK) {
        *out = r;
        return PARE_OK;
    }
    if (r->ctx.message[0]) (void)pare_fail(ctx, st, "%s", r->ctx.message);
    pare_repository_close(r);
    return st;
}

/* A request gives its reference back after its reply was sent. */
static void await_closed(pare_repository *r)
{
    (void)pthread_mutex_lock(&r->lock);
    while (r->open) (void)pthread_cond_wait(&r->closed, &r->lock);
    (void)pthread_mutex_unlock(&r->lock);
}

void pare_repository_close(pare_repository *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->count; i++) {
        versions_free(r->entry[i].version, r->entry[i].count);
        pare_free(r->entry[i].name);
        pare_free(r->entry[i].path);
    }
    await_closed(r);
    pare_tasks_free(r->tasks);
    pare_free(r->entry);
    (void)pthread_cond_destroy(&r->closed);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_mutex_destroy(&r->changing);
    pare_free(r);
}

/* --- looking --- */

static bool is_ready(const version *v) { return v->served && !pare_served_reason(v->served); }

/* Why a version is not ready, or "". */
static const char *reason_of(const version *v)
{
    if (!v->served) return v->reason ? v->reason : "";
    const char *reason = pare_served_reason(v->served);
    return reason ? reason : "";
}

static pare_served *ready_of(const pare_repository *r, const entry *e, int64_t number);

/* The step whose model an ensemble lacks, under the lock; NULL: none, it is ready. */
static const pare_ensemble_step *missing_of(const pare_repository *r, const pare_served *served)
{
    const pare_ensemble *ensemble = served->ensemble;
    for (int i = 0; ensemble && i < ensemble->step_count; i++) {
        const pare_ensemble_step *step = &ensemble->step[i];
        const entry *e = find(r, step->model);
        if (!e || !ready_of(r, e, step->version)) return step;
    }
    return NULL;
}

/* The version that is asked for; 0: the highest that is ready. */
static pare_served *ready_of(const pare_repository *r, const entry *e, int64_t number)
{
    pare_served *found = NULL;
    for (size_t i = 0; i < e->count; i++)
        if (is_ready(&e->version[i]) && (!number || e->version[i].number == number) &&
            !missing_of(r, e->version[i].served))
            found = e->version[i].served;
    return found;
}

/* Tells of a version whose GPU failed, or that of an ensemble's model, where it is one that is
   asked for. */
static pare_status fail_lost(const pare_repository *r, const entry *e, pare_ctx *ctx,
                             int64_t number)
{
    for (size_t i = 0; i < e->count; i++) {
        const version *v = &e->version[i];
        if (!v->served || (number && v->number != number)) continue;
        if (!is_ready(v))
            return PARE_FAIL(ctx, DEVICE, "model '%s' is not ready: %s", e->name, reason_of(v));
        const pare_ensemble_step *lacks = missing_of(r, v->served);
        const entry *member = lacks ? find(r, lacks->model) : NULL;
        const pare_status st = member ? fail_lost(r, member, ctx, lacks->version) : PARE_OK;
        if (st != PARE_OK) return pare_fail_prefix(ctx, st, "model '%s' is not ready", e->name);
    }
    return PARE_OK;
}

pare_status pare_repository_check(pare_repository *r, pare_ctx *ctx)
{
    pare_status st = PARE_OK;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count && st == PARE_OK; i++) st = fail_lost(r, &r->entry[i], ctx, 0);
    (void)pthread_mutex_unlock(&r->lock);
    return st;
}

static pare_status find_ready(void *repository, pare_ctx *ctx, pare_served **out, const char *name,
                              int64_t number)
{
    return pare_repository_find(repository, ctx, out, name, number);
}

/* Under the lock: why there is none; empty where no ensemble lacks a model. */
static void explain(const pare_repository *r, const entry *e, char *why, size_t size)
{
    *why = 0;
    for (size_t i = 0; i < e->count; i++) {
        const version *v = &e->version[i];
        const pare_ensemble_step *missing = v->served ? missing_of(r, v->served) : NULL;
        if (missing) snprintf(why, size, ", for model '%s' is not", missing->model);
    }
}

pare_status pare_repository_find(pare_repository *r, pare_ctx *ctx, pare_served **out,
                                 const char *name, int64_t number)
{
    char why[1024] = "";
    (void)pthread_mutex_lock(&r->lock);
    const entry *e = find(r, name);
    pare_served *found = e ? ready_of(r, e, number) : NULL;
    if (found) pare_served_keep(found);
    const pare_status st = e && !found ? fail_lost(r, e, ctx, number) : PARE_OK;
    if (e && !found) explain(r, e, why, sizeof why);
    (void)pthread_mutex_unlock(&r->lock);
    *out = found;
    if (found || st != PARE_OK) return st;
    if (!e) return PARE_FAIL(ctx, INPUT, "there is no model '%s'", name);
    if (!number) return PARE_FAIL(ctx, INPUT, "model '%s' is not ready%s", name, why);
    return PARE_FAIL(ctx, INPUT, "model '%s': version %lld is not ready", name, (long long)number);
}

bool pare_repository_shares(pare_repository *r, const char *name)
{
    (void)pthread_mutex_lock(&r->lock);
    const entry *e = find(r, name);
    const bool found = e && e->shares.count;
    (void)pthread_mutex_unlock(&r->lock);
    return found;
}

pare_status pare_repository_choose(pare_repository *r, pare_ctx *ctx, pare_served **out,
                                   const char *name, const char *id)
{
    int64_t number = 0;
    (void)pthread_mutex_lock(&r->lock);
    entry *e = find(r, name);
    if (e && e->shares.count)
        number = id ? pare_shares_of(&e->shares, id) : pare_shares_next(&e->shares);
    pare_served *found = number ? ready_of(r, e, number) : NULL;
    if (found) pare_served_keep(found);
    (void)pthread_mutex_unlock(&r->lock);
    *out = found; /* else it was unloaded meanwhile */
    return found ? PARE_OK : pare_repository_find(r, ctx, out, name, 0);
}

static json_t *version_json(const pare_repository *r, const entry *e, const version *v)
{
    char number[32], lacks[1024] = "";
    const pare_ensemble_step *missing = v->served ? missing_of(r, v->served) : NULL;
    if (missing) snprintf(lacks, sizeof lacks, "model '%s' is not ready", missing->model);
    snprintf(number, sizeof number, "%lld", (long long)v->number);
    return json_pack("{s:o, s:s, s:s, s:s}", "name", pare_json_text(e->name), "version", number,
                     "state", is_ready(v) && !missing ? "READY" : "UNAVAILABLE", "reason",
                     missing ? lacks : reason_of(v));
}

json_t *pare_repository_index(pare_repository *r, bool ready)
{
    json_t *list = json_array();
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count; i++) {
        const entry *e = &r->entry[i];
        if (!e->count && !ready)
            json_array_append_new(list, json_pack("{s:o}", "name", pare_json_text(e->name)));
        for (size_t k = 0; k < e->count; k++)
            if (!ready || ready_of(r, e, e->version[k].number))
                json_array_append_new(list, version_json(r, e, &e->version[k]));
    }
    (void)pthread_mutex_unlock(&r->lock);
    return list;
}

json_t *pare_repository_versions(pare_repository *r, const char *name)
{
    char number[32];
    json_t *list = json_array();
    (void)pthread_mutex_lock(&r->lock);
    const entry *e = find(r, name);
    for (size_t k = 0; e && k < e->count; k++) {
        snprintf(number, sizeof number, "%lld", (long long)e->version[k].number);
        if (ready_of(r, e, e->version[k].number)) json_array_append_new(list, json_string(number));
    }
    (void)pthread_mutex_unlock(&r->lock);
    return list;
}

pare_status pare_repository_hurry(pare_repository *r, pare_ctx *ctx)
{
    pare_served **all;
    int count;
    PARE_TRY(pare_repository_all(r, ctx, &all, &count));
    for (int i = 0; i < count; i++) {
        pare_batcher_hurry(all[i]->batcher);
        pare_served_release(all[i]);
    }
    pare_free(all);
    return PARE_OK;
}

pare_status pare_repository_all(pare_repository *r, pare_ctx *ctx, pare_served ***out, int *count)
{
    size_t all = 0;
    *count = 0;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count; i++) all += r->entry[i].count;
    *out = pare_alloc(ctx, all, sizeof **out);
    for (size_t i = 0; *out && i < r->count; i++)
        for (size_t k = 0; k < r->entry[i].count; k++) {
            pare_served *s = r->entry[i].version[k].served;
            if (!s) continue;
            pare_served_keep(s);
            (*out)[(*count)++] = s;
        }
    (void)pthread_mutex_unlock(&r->lock);
    return *out ? PARE_OK : PARE_MEMORY;
}

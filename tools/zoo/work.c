/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/work.h"

#include "formats/file.h"
#include "tools/zoo/records.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
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

/* A checkpoint that cannot be gone on from, cut or of another machine, is no fault of the model:
   the step begins again. */
static pare_status run(pare_ctx *ctx, const pare_zoo_work *w)
{
    const pare_zoo_node *n = w->node;
    const pare_status st = w->run(ctx, (char *const *)n->words, n->word_count);
    if (st != PARE_INPUT || !strstr(ctx->message, n->folder) || !strstr(ctx->message, ".pare:"))
        return st;
    pare_log(ctx, PARE_LOG_WARNING, "%s; the step begins again", ctx->message);
    pare_zoo_drop_checkpoints(n);
    pare_ctx_clear(ctx);
    return w->run(ctx, (char *const *)n->words, n->word_count);
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

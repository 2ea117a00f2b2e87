/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/records.h"

#include "formats/file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- places by key --- */

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

static void take(void *user, const pare_journal_line *line) { pare_zoo_records_take(user, line); }

pare_status pare_zoo_records_read(pare_zoo_records *records, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/journal", folder);
    return pare_journal_read(records->ctx, path, take, records);
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

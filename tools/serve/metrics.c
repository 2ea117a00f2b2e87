/* SPDX-License-Identifier: Apache-2.0 */
/* OpenMetrics 1.0: a family is its type, its help, and then a line for each model. */
#include "tools/serve/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What the lines of a family are made of. */
typedef struct sample {
    const pare_served *served;
    pare_served_stats stats;
    int64_t waiting;
} sample;

static void put_label(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"') fputc('\\', file);
        if (*text == '\n')
            fputs("\\n", file);
        else
            fputc(*text, file);
    }
}

/* NAME{model="...",version="...",KEY="WORD"} without its value. */
static void put_name(FILE *file, const char *name, const sample *s, const char *key,
                     const char *word)
{
    fprintf(file, "%s{model=\"", name);
    put_label(file, s->served->name);
    fprintf(file, "\",version=\"%lld\"", (long long)s->served->options.version);
    if (key) fprintf(file, ",%s=\"%s\"", key, word);
    fputs("} ", file);
}

static void put_family(FILE *file, const char *name, const char *type, const char *unit,
                       const char *help)
{
    fprintf(file, "# TYPE %s %s\n", name, type);
    if (unit) fprintf(file, "# UNIT %s %s\n", name, unit);
    fprintf(file, "# HELP %s %s\n", name, help);
}

static void put_requests(FILE *file, const sample *s, int count)
{
    put_family(file, "pare_requests", "counter", NULL, "Inference requests by how they ended.");
    for (int i = 0; i < count; i++) {
        const struct {
            const char *word;
            uint64_t n;
        } ends[] = {{"success", s[i].stats.stage[PARE_STAGE_REQUEST].count},
                    {"failure", s[i].stats.failed.count},
                    {"shed", s[i].stats.shed}};
        for (int k = 0; k < 3; k++) {
            put_name(file, "pare_requests_total", &s[i], "outcome", ends[k].word);
            fprintf(file, "%" PRIu64 "\n", ends[k].n);
        }
    }
}

static void put_stages(FILE *file, const sample *s, int count)
{
    put_family(file, "pare_stage_seconds", "counter", "seconds",
               "Time of successful requests by stage.");
    for (int i = 0; i < count; i++)
        for (int k = 0; k < PARE_STAGES; k++) {
            put_name(file, "pare_stage_seconds_total", &s[i], "stage", pare_stage_name(k));
            fprintf(file, "%.9f\n", 1e-9 * (double)s[i].stats.stage[k].ns);
        }
}

static void put_runs(FILE *file, const sample *s, int count)
{
    put_family(file, "pare_samples", "counter", NULL, "Samples that were computed.");
    for (int i = 0; i < count; i++) {
        put_name(file, "pare_samples_total", &s[i], NULL, NULL);
        fprintf(file, "%" PRIu64 "\n", s[i].stats.rows);
    }
    put_family(file, "pare_runs", "counter", NULL, "Runs of the model, each of a batch.");
    for (int i = 0; i < count; i++) {
        put_name(file, "pare_runs_total", &s[i], NULL, NULL);
        fprintf(file, "%" PRIu64 "\n", s[i].stats.runs);
    }
    put_family(file, "pare_waiting_requests", "gauge", NULL, "Requests in the model's queue.");
    for (int i = 0; i < count; i++) {
        put_name(file, "pare_waiting_requests", &s[i], NULL, NULL);
        fprintf(file, "%lld\n", (long long)s[i].waiting);
    }
}

char *pare_metrics_text(pare_served *const *served, int count, size_t *bytes)
{
    char *text = NULL;
    sample *s = calloc((size_t)count + 1, sizeof *s);
    FILE *file = s ? open_memstream(&text, bytes) : NULL;
    if (!file) {
        free(s);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        s[i].served = served[i];
        s[i].waiting = pare_batcher_waiting(served[i]->batcher);
        pare_served_stats_read(&served[i]->stats, &s[i].stats);
    }
    put_requests(file, s, count);
    put_stages(file, s, count);
    put_runs(file, s, count);
    fputs("# EOF\n", file);
    free(s);
    if (!fclose(file)) return text;
    free(text);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* OpenMetrics 1.0: a family is its type, its help, and then a line for each model. */
#include "tools/serve/api.h"
#include "tools/serve/traffic/sequences.h"
#include "tools/serve/traffic/shadow.h"

#include <inttypes.h>
#include <math.h>
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

static void put_sequences(FILE *file, const sample *s, int count)
{
    bool is_begun = false;
    for (int i = 0; i < count; i++) {
        if (!s[i].served->sequences) continue;
        if (!is_begun)
            put_family(file, "pare_open_sequences", "gauge", NULL,
                       "Sequences that have begun and not ended.");
        is_begun = true;
        put_name(file, "pare_open_sequences", &s[i], NULL, NULL);
        fprintf(file, "%" PRId64 "\n", pare_sequences_count(s[i].served->sequences));
    }
}

/* --- shadows --- */

static void put_pair(FILE *file, const char *name, const pare_shadow *shadow)
{
    fprintf(file, "%s{model=\"", name);
    put_label(file, pare_shadow_model(shadow));
    fputs("\",shadow=\"", file);
    put_label(file, pare_shadow_other(shadow));
    fputc('"', file);
}

static void put_shadow_counts(FILE *file, const char *name, const pare_shadow *shadow,
                              const pare_shadow_stats *s)
{
    const struct {
        const char *word;
        uint64_t n;
    } ends[] = {{"compared", s->compared}, {"dropped", s->dropped}, {"failed", s->failed}};
    for (int k = 0; k < 3; k++) {
        put_pair(file, name, shadow);
        fprintf(file, ",outcome=\"%s\"} %" PRIu64 "\n", ends[k].word, ends[k].n);
    }
}

static void put_shadow_samples(FILE *file, const char *name, const pare_shadow *shadow,
                               const pare_shadow_stats *s)
{
    const int64_t n[] = {s->agreed, s->samples - s->agreed};
    for (int k = 0; k < 2; k++) {
        put_pair(file, name, shadow);
        fprintf(file, ",agrees=\"%s\"} %" PRId64 "\n", k ? "no" : "yes", n[k]);
    }
}

static void put_shadow_errors(FILE *file, const char *name, const pare_shadow *shadow,
                              const pare_shadow_stats *s)
{
    for (size_t i = 0; i < s->output_count; i++) {
        const double sqnr = pare_error_sqnr(&s->output[i].error);
        if (!s->output[i].error.count) continue;
        put_pair(file, name, shadow);
        fputs(",output=\"", file);
        put_label(file, s->output[i].name);
        fprintf(file, isinf(sqnr) ? "\"} +Inf\n" : "\"} %.3f\n", sqnr);
    }
}

static void put_shadow_times(FILE *file, const char *name, const pare_shadow *shadow,
                             const pare_shadow_stats *s)
{
    for (int k = 0; k < 2; k++) {
        put_pair(file, name, shadow);
        fprintf(file, ",by=\"%s\"} %.9f\n", k ? "shadow" : "model", s->compute[k].seconds);
    }
}

static void put_shadows(FILE *file, const pare_shadows *shadows)
{
    static const struct {
        const char *name, *type, *unit, *end, *help;
        void (*put)(FILE *file, const char *name, const pare_shadow *shadow,
                    const pare_shadow_stats *s);
    } families[] = {
        {"pare_shadow_requests", "counter", NULL, "_total",
         "Requests that were to be compared, by how that ended.", put_shadow_counts},
        {"pare_shadow_samples", "counter", NULL, "_total",
         "Samples by whether both models give them the same class.", put_shadow_samples},
        {"pare_shadow_sqnr_decibels", "gauge", "decibels", "",
         "Signal over difference of an output.", put_shadow_errors},
        {"pare_shadow_compute_seconds", "counter", "seconds", "_total",
         "Time of the runs that compared requests were in.", put_shadow_times},
    };
    for (size_t f = 0; pare_shadows_count(shadows) && f < sizeof families / sizeof *families; f++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", families[f].name, families[f].end);
        put_family(file, families[f].name, families[f].type, families[f].unit, families[f].help);
        for (int i = 0; i < pare_shadows_count(shadows); i++) {
            pare_shadow *shadow = pare_shadows_at(shadows, i);
            pare_shadow_stats *s = pare_shadow_stats_of(shadow);
            (void)pthread_mutex_lock(&s->lock);
            families[f].put(file, name, shadow, s);
            (void)pthread_mutex_unlock(&s->lock);
        }
    }
}

/* --- all --- */

char *pare_metrics_text(pare_served *const *served, int count, const pare_shadows *shadows,
                        size_t *bytes)
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
    put_sequences(file, s, count);
    put_shadows(file, shadows);
    fputs("# EOF\n", file);
    free(s);
    if (!fclose(file)) return text;
    free(text);
    return NULL;
}

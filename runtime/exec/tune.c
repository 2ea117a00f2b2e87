/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel choice by the stopwatch, remembered in a file. The file is a cache: it may be deleted, cut
   or foreign at any time, and is then measured anew. */
#include "formats/json.h"
#include "runtime/base/hash.h"
#include "runtime/base/size.h"
#include "runtime/exec/plan.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct pare_tuner {
    pare_ctx *ctx;
    char *path;     /* NULL: nothing on disk */
    json_t *table;  /* key -> kernel's name */
    bool changed;
    pare_hash machine; /* processor, instruction set in force */
};

enum { MIN_RUNS = 3, MAX_RUNS = 20 };
static const double ENOUGH_SECONDS = 2e-3, LONG_SECONDS = 5e-2;
static const double HOPELESS = 3, BEHIND = 1.5; /* times the best so far: a first run, a warm one */

static pare_hash machine_hash(void)
{
    char line[256] = "";
    pare_hash sum = {0};
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) || !strncmp(line, "flags", 5)) {
            sum = pare_hash_sum(sum, pare_hash_bytes(line, strlen(line)));
            if (line[0] == 'f') break;
        }
    if (f) fclose(f);
    static const char *const limits[] = {"DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"};
    for (int i = 0; i < 2; i++) {
        const char *isa = getenv(limits[i]);
        if (isa) sum = pare_hash_sum(sum, pare_hash_bytes(isa, strlen(isa)));
    }
    return sum;
}

static json_t *table_read(pare_ctx *ctx, const char *path)
{
    json_t *table = NULL;
    struct stat info;
    if (stat(path, &info)) return json_object();
    if (pare_json_read(ctx, &table, path) != PARE_OK || !json_is_object(table)) {
        pare_log(ctx, PARE_LOG_WARNING, "%s is not a timing cache; kernels are timed anew", path);
        pare_ctx_clear(ctx);
        json_decref(table);
        return json_object();
    }
    return table;
}

pare_status pare_tuner_open(pare_ctx *ctx, pare_tuner **out, const pare_plan_options *options)
{
    pare_tuner *t = pare_alloc(ctx, 1, sizeof *t);
    if (!t) return PARE_MEMORY;
    t->ctx = ctx;
    t->machine = machine_hash();
    if (options->cache_dir) {
        size_t n = strlen(options->cache_dir) + sizeof "/timing.json";
        t->path = pare_alloc(ctx, n, 1);
        if (!t->path) {
            pare_free(t);
            return PARE_MEMORY;
        }
        snprintf(t->path, n, "%s/timing.json", options->cache_dir);
    }
    t->table = t->path ? table_read(ctx, t->path) : json_object();
    *out = t;
    return PARE_OK;
}

void pare_tuner_discard(pare_tuner *tuner)
{
    if (!tuner) return;
    json_decref(tuner->table);
    pare_free(tuner->path);
    pare_free(tuner);
}

/* Another process may have added entries meanwhile: they are kept. */
pare_status pare_tuner_close(pare_tuner *tuner)
{
    if (tuner->path && tuner->changed) {
        json_t *now = table_read(tuner->ctx, tuner->path);
        json_object_update(now, tuner->table);
        if (pare_json_write(tuner->ctx, now, tuner->path) != PARE_OK) {
            pare_log(tuner->ctx, PARE_LOG_WARNING, "the timing cache was not written: %s",
                     tuner->ctx->message);
            pare_ctx_clear(tuner->ctx);
        }
        json_decref(now);
    }
    pare_tuner_discard(tuner);
    return PARE_OK;
}

/* --- the key: everything the choice may depend on --- */

static void add(pare_hash *sum, int place, const void *data, size_t bytes)
{
    pare_hash h = pare_hash_bytes(data, bytes);
    h.low = (h.low ^ (uint64_t)place) * 0x9E3779B97F4A7C15u;
    *sum = pare_hash_sum(*sum, h);
}

static void add_view(pare_hash *sum, int place, const pare_view *v)
{
    size_t n = (size_t)v->rank * sizeof *v->dim;
    int facts[3] = {(int)v->dtype, v->rank, v->data != NULL};
    add(sum, place, facts, sizeof facts);
    add(sum, place + 1, v->dim, n);
    add(sum, place + 2, v->stride, n);
}

static void add_attr(pare_hash *sum, const pare_attr *a)
{
    int place = (int)strlen(a->name) + a->name[0] * 64;
    switch (a->kind) {
    case PARE_ATTR_INT: add(sum, place, &a->i, sizeof a->i); break;
    case PARE_ATTR_FLOAT: add(sum, place, &a->f, sizeof a->f); break;
    case PARE_ATTR_STRING: add(sum, place, a->s.data, a->s.size); break;
    case PARE_ATTR_INTS: add(sum, place, a->ints, (size_t)a->count * sizeof *a->ints); break;
    case PARE_ATTR_FLOATS: add(sum, place, a->floats, (size_t)a->count * sizeof *a->floats); break;
    default: break;
    }
}

static void key_of(const pare_tuner *t, const pare_prep *p, char key[33])
{
    pare_hash sum = t->machine;
    const pare_node *n = p->node;
    add(&sum, 1, n->op_type, strlen(n->op_type));
    add(&sum, 2, &p->threads, sizeof p->threads);
    add(&sum, 3, &p->dying, sizeof p->dying);
    add(&sum, 4, &p->canonical, sizeof p->canonical);
    for (int i = 0; i < n->attr_count; i++) add_attr(&sum, &n->attr[i]);
    for (int i = 0; i < p->in_count; i++) add_view(&sum, 100 + 3 * i, &p->in[i]);
    for (int i = 0; i < p->out_count; i++) add_view(&sum, 10000 + 3 * i, &p->out[i]);
    pare_hash_text(sum, key);
}

/* --- the stopwatch --- */

/* Memory for a trial: inputs zeroed, output 0 on a shared input where the kernel asked for it. */
static pare_status trial_views(const pare_prep *p, pare_arena *arena, pare_view *in, pare_view *out)
{
    for (int i = 0; i < p->in_count; i++) {
        in[i] = p->in[i];
        if (in[i].dtype == PARE_NOTYPE || in[i].data) continue;
        in[i].data = pare_arena_alloc(arena, pare_view_bytes(&in[i]) + 64, 1);
        if (!in[i].data) return PARE_MEMORY;
    }
    for (int i = 0; i < p->out_count; i++) {
        out[i] = p->out[i];
        if (out[i].dtype == PARE_NOTYPE) continue;
        out[i].data = i == 0 && p->share >= 0
                          ? in[p->share].data
                          : pare_arena_alloc(arena, pare_view_bytes(&out[i]) + 64, 1);
        if (!out[i].data) return PARE_MEMORY;
    }
    return PARE_OK;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pare_status run_timed(const pare_kernel *k, const pare_call *c, double *took)
{
    double start = seconds();
    PARE_TRY(k->run(c));
    *took = seconds() - start;
    return PARE_OK;
}

/* Best of a few runs after one that is not counted; a kernel far behind `rival`, the best so far, is
   not run again. */
static pare_status trial_time(const pare_kernel *k, const pare_call *c, double rival, double *best)
{
    double took, spent = 0;
    PARE_TRY(run_timed(k, c, best));
    if (*best > HOPELESS * rival) return PARE_OK;
    *best = 1e30;
    for (int i = 0; i < MAX_RUNS && (i < MIN_RUNS || spent < ENOUGH_SECONDS); i++) {
        PARE_TRY(run_timed(k, c, &took));
        spent += took;
        if (took < *best) *best = took;
        if (spent > LONG_SECONDS || *best > BEHIND * rival) break;
    }
    return PARE_OK;
}

static pare_status trial_run(const pare_kernel *k, const pare_prep *prep, pare_arena *arena,
                             double rival, double *best)
{
    pare_prep p = *prep;
    p.arena = arena;
    PARE_TRY(pare_kernel_prepare(k, &p));
    pare_view *in = pare_arena_alloc(arena, (size_t)p.in_count + 1, sizeof *in);
    pare_view *out = pare_arena_alloc(arena, (size_t)p.out_count + 1, sizeof *out);
    pare_status st = in && out ? trial_views(&p, arena, in, out) : PARE_MEMORY;
    pare_call c = {.ctx = p.ctx, .node = p.node, .in = in, .out = out, .in_count = p.in_count,
                   .out_count = p.out_count, .threads = p.threads, .state = p.state};
    c.scratch = pare_arena_alloc(arena, p.scratch + 64, 1);
    if (!c.scratch) st = PARE_MEMORY;
    bool bound = false;
    if (st == PARE_OK && k->bind) {
        st = k->bind(&c, arena);
        bound = st == PARE_OK;
    }
    omp_set_num_threads(p.threads);
    if (st == PARE_OK) st = trial_time(k, &c, rival, best);
    if (bound && k->unbind) k->unbind(c.bound);
    if (k->release) k->release(p.state);
    return st;
}

static pare_status trial(const pare_kernel *k, const pare_prep *prep, double rival, double *best)
{
    pare_arena arena;
    pare_arena_init(&arena, prep->ctx);
    pare_status st = trial_run(k, prep, &arena, rival, best);
    pare_arena_free(&arena);
    return st;
}

/* The plain reference defines what is correct; a user gets it only where nothing else serves. */
static bool worth_a_trial(const pare_kernel *k, const pare_prep *prep, int before)
{
    return !(k->flags & PARE_KERNEL_REF && before) && (!k->can || k->can(prep));
}

pare_status pare_tuner_choose(pare_tuner *tuner, const pare_prep *prep,
                              const pare_kernel *const *list, const pare_kernel **out)
{
    const pare_kernel *able[16];
    int count = 0;
    for (; *list && count < 16; list++)
        if (worth_a_trial(*list, prep, count)) able[count++] = *list;
    if (!count)
        return PARE_FAIL_NODE(prep->node, UNSUPPORTED, "no kernel takes its types");
    *out = able[0];
    if (count == 1) return PARE_OK;
    char key[33];
    key_of(tuner, prep, key);
    const char *known = json_string_value(json_object_get(tuner->table, key));
    for (int i = 0; known && i < count; i++)
        if (!strcmp(able[i]->name, known)) {
            *out = able[i];
            return PARE_OK;
        }
    double best = 1e30;
    for (int i = 0; i < count; i++) {
        double took = 0;
        PARE_TRY(trial(able[i], prep, best, &took));
        if (took < best) {
            best = took;
            *out = able[i];
        }
    }
    json_object_set_new(tuner->table, key, json_string((*out)->name));
    tuner->changed = true;
    return PARE_OK;
}

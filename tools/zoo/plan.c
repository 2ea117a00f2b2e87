/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a zoo: command lines, keys of nodes, nodes, tasks. A key is a chain: each text that
   decides is hashed, and the chain with it. */
#include "tools/zoo/plan.h"

#include "formats/file.h"
#include "formats/onnx.h"
#include "runtime/base/version.h"
#include "runtime/exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- command lines --- */

static void add(pare_zoo_argv *w, const char *word)
{
    if (w->failed ||
        !pare_arena_grow(w->arena, &w->item, &w->capacity, w->count, sizeof *w->item)) {
        w->failed = true;
        return;
    }
    w->item[w->count++] = word;
}

void pare_zoo_argv_add(pare_zoo_argv *w, const char *first, const char *second)
{
    if (!first) w->failed = true;
    add(w, first);
    if (second) add(w, second);
}

pare_status pare_zoo_argv_end(pare_zoo_argv *w, const char ***out, int *count)
{
    const size_t n = w->count;
    add(w, NULL);
    *out = w->item;
    *count = (int)n;
    return w->failed ? PARE_MEMORY : PARE_OK;
}

/* Room of a word in single quotes: an inner ' becomes '\''. */
static size_t quoted_size(const char *word)
{
    size_t n = strlen(word) + 3;
    for (; *word; word++) n += *word == '\'' ? 3 : 0;
    return n;
}

static char *put_word(char *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+./:,=@%";
    if (*word && !word[strspn(word, plain)]) {
        size_t n = strlen(word);
        memcpy(to, word, n);
        return to + n;
    }
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(to, "'\\'", 3);
            to += 3;
        }
        *to++ = *word;
    }
    *to++ = '\'';
    return to;
}

const char *pare_zoo_node_command(pare_arena *arena, const pare_zoo_node *node)
{
    size_t bytes = sizeof "pare";
    for (int i = 0; i < node->word_count; i++) bytes += 1 + quoted_size(node->words[i]);
    char *text = pare_arena_alloc(arena, bytes, 1), *to = text;
    if (!text) return NULL;
    to = put_word(to, "pare");
    for (int i = 0; i < node->word_count; i++) {
        *to++ = ' ';
        to = put_word(to, node->words[i]);
    }
    *to = 0;
    return node->ranks > 1
               ? pare_arena_printf(arena, "%s -n %d %s", node->launcher, node->ranks, text)
               : text;
}

/* --- keys --- */

typedef struct known_file {
    const char *path;
    pare_hash hash;
} known_file;

/* Begins with the first four and zeros; files are read once. */
typedef struct keys {
    pare_arena *arena;
    const char *version, *isa, *machine;
    known_file *known;
    size_t count, capacity;
} keys;

static void fold(pare_hash *key, pare_hash with)
{
    const pare_hash both[2] = {*key, with};
    *key = pare_hash_bytes(both, sizeof both);
}

/* Texts of different lengths cannot be taken for each other: each is hashed apart. */
static void fold_text(pare_hash *key, const char *text)
{
    fold(key, pare_hash_bytes(text, strlen(text)));
}

static pare_status fold_file(keys *k, pare_hash *key, const char *path)
{
    size_t i = 0;
    while (i < k->count && strcmp(k->known[i].path, path) != 0) i++;
    if (i == k->count) {
        pare_hash hash;
        if (!pare_arena_grow(k->arena, &k->known, &k->capacity, k->count, sizeof *k->known))
            return PARE_MEMORY;
        PARE_TRY(pare_file_hash_quick(k->arena->ctx, path, &hash));
        k->known[k->count++] = (known_file){path, hash};
    }
    fold(key, k->known[i].hash);
    return PARE_OK;
}

/* A file that is no model, or cannot be read, is for its first step to refuse. */
static pare_status fold_model(keys *k, pare_hash *key, const char *file)
{
    pare_ctx *ctx = k->arena->ctx;
    char text[33];
    pare_hash bytes;
    pare_status st = pare_onnx_hash(ctx, file, text, NULL);
    if (st == PARE_OK) fold_text(key, text);
    if (st == PARE_OK || st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    pare_ctx_clear(ctx);
    fold_text(key, "no model");
    st = pare_file_hash(ctx, file, &bytes);
    if (st == PARE_OK) fold(key, bytes);
    if (st == PARE_OK || st == PARE_MEMORY || st == PARE_INTERRUPTED) return st;
    pare_ctx_clear(ctx);
    fold_text(key, file);
    return PARE_OK;
}

/* What all steps from a model have in common: program, machine, content of the model. */
static pare_status key_model(keys *k, pare_hash *key, const char *file)
{
    *key = (pare_hash){0};
    fold_text(key, "pare zoo 1");
    fold_text(key, k->version);
    fold_text(key, k->isa);
    fold_text(key, k->machine);
    return fold_model(k, key, file);
}

/* From the key before a step the key after it; the same for the judgement at the end. */
static pare_status key_step(keys *k, pare_hash *key, const pare_zoo_step *step,
                            const pare_zoo_model *model)
{
    fold_text(key, step->command->name);
    if (step->takes_data && model->data) {
        fold_text(key, "data");
        PARE_TRY(fold_file(k, key, model->data));
    }
    for (int i = 0; i < step->option_count; i++) {
        const pare_zoo_option *o = &step->options[i];
        fold_text(key, o->row->name);
        if (o->row->kind == PARE_OPTION_FILE)
            PARE_TRY(fold_file(k, key, o->value));
        else if (o->value)
            fold_text(key, o->value);
    }
    return PARE_OK;
}

static pare_status key_judge(keys *k, pare_hash *key, const pare_zoo *zoo,
                             const pare_zoo_model *model)
{
    char samples[32];
    snprintf(samples, sizeof samples, "%lld", (long long)zoo->samples);
    fold_text(key, "validate");
    fold_text(key, samples);
    fold_text(key, zoo->latency ? "latency" : "");
    if (zoo->any_accuracy) fold_text(key, "any accuracy");
    return fold_file(k, key, model->test);
}

/* --- nodes --- */

/* The plan while it is made. */
typedef struct maker {
    pare_arena *arena;
    const pare_zoo *zoo;
    pare_zoo_plan_options o;
    const char *out; /* without '/' at its end */
    pare_zoo_plan *plan;
    keys keys;
    int *slot; /* hash table of nodes by key: place + 1, 0 where empty */
    size_t slots;
    int *task_nodes;            /* of all tasks, one after the other */
    const pare_zoo_step **step; /* (nodes) NULL: validate */
    const pare_zoo_task **task; /* (nodes) the first that needs it */
} maker;

/* The slot that holds the node of a key, or is to hold it. */
static int *slot_of(const maker *m, pare_hash key, const char *text)
{
    size_t i = (size_t)key.low & (m->slots - 1);
    while (m->slot[i] && strcmp(m->plan->nodes[m->slot[i] - 1].key, text) != 0)
        i = (i + 1) & (m->slots - 1);
    return &m->slot[i];
}

static const char *in_folder(maker *m, const pare_zoo_node *node, const char *name)
{
    return pare_arena_printf(m->arena, "%s/%s", node->folder, name);
}

/* --- words --- */

static void common_words(const maker *m, pare_zoo_argv *w, const pare_zoo_node *node)
{
    pare_zoo_argv_add(w, "--json", node->facts);
    if (m->o.device) pare_zoo_argv_add(w, "--device", m->o.device);
    /* latency of a validation is that of one thread, as long as no one says more */
    if (!m->o.threads || (node->alone && !node->output)) return;
    const int64_t here = node->ranks / m->zoo->variants[node->variant].nodes; /* of a machine */
    const int64_t threads = here > 1 ? m->o.threads / here : m->o.threads;
    pare_zoo_argv_add(w, "--threads",
                      pare_arena_printf(m->arena, "%lld", (long long)(threads ? threads : 1)));
}

/* What the step's author wrote is last, after it nothing of ours: a "--" of his ends options.
 */
static pare_status step_words(maker *m, pare_zoo_node *node, const pare_zoo_step *step,
                              const char *input)
{
    const pare_zoo_model *model = &m->zoo->models[node->model];
    const bool distills = !strcmp(node->verb, "distill");
    pare_zoo_argv w = {.arena = m->arena};
    pare_zoo_argv_add(&w, node->verb, distills ? NULL : input);
    if (distills) {
        pare_zoo_argv_add(&w, "--teacher", model->file);
        pare_zoo_argv_add(&w, "--student", input);
    }
    if (step->trains) {
        pare_zoo_argv_add(&w, "--checkpoint", node->folder);
        pare_zoo_argv_add(&w, "--resume", NULL);
    }
    pare_zoo_argv_add(&w, "-o", node->output);
    if (step->takes_data && model->data) pare_zoo_argv_add(&w, "--data", model->data);
    if (m->o.cache && (step->times || !strcmp(node->verb, "quantize")))
        pare_zoo_argv_add(&w, "--cache", m->o.cache);
    common_words(m, &w, node);
    for (int i = 0; i < step->option_count; i++)
        pare_zoo_argv_add(&w, pare_arena_printf(m->arena, "--%s", step->options[i].row->name),
                          step->options[i].value);
    return pare_zoo_argv_end(&w, &node->words, &node->word_count);
}

static pare_status judge_words(maker *m, pare_zoo_node *node, const char *variant)
{
    const pare_zoo_model *model = &m->zoo->models[node->model];
    pare_zoo_argv w = {.arena = m->arena};
    pare_zoo_argv_add(&w, node->verb, model->file);
    pare_zoo_argv_add(&w, variant, NULL);
    pare_zoo_argv_add(&w, "--data", model->test);
    if (m->zoo->samples > 0)
        pare_zoo_argv_add(&w, "--samples",
                          pare_arena_printf(m->arena, "%lld", (long long)m->zoo->samples));
    if (m->zoo->latency) pare_zoo_argv_add(&w, "--latency", NULL);
    if (m->zoo->any_accuracy) pare_zoo_argv_add(&w, "--any-accuracy", NULL);
    if (m->o.cache && node->ranks < 2) pare_zoo_argv_add(&w, "--cache", m->o.cache);
    if (m->o.append) pare_zoo_argv_add(&w, "--append", m->o.append);
    common_words(m, &w, node);
    return pare_zoo_argv_end(&w, &node->words, &node->word_count);
}

/* --- nodes --- */

/* The node of a key: made where the plan has none yet, then *fresh. */
static pare_status need_node(maker *m, pare_hash key, int parent, const pare_zoo_task *task,
                             const char *verb, bool writes, int *out, bool *fresh)
{
    char text[33];
    pare_hash_text(key, text);
    int *slot = slot_of(m, key, text);
    *fresh = !*slot;
    if (*fresh) *slot = ++m->plan->node_count;
    *out = *slot - 1;
    if (!*fresh) return PARE_OK;
    pare_zoo_node *node = &m->plan->nodes[*out];
    *node = (pare_zoo_node){
        .parent = parent, .model = task->model, .variant = task->variant, .verb = verb};
    memcpy(node->key, text, sizeof text);
    node->folder = pare_arena_printf(m->arena, "%s/steps/%s", m->out, text);
    if (!node->folder) return PARE_MEMORY;
    node->facts = in_folder(m, node, "facts.json");
    node->log = in_folder(m, node, "log.txt");
    node->output = writes ? in_folder(m, node, "model.onnx") : NULL;
    return node->facts && node->log && (node->output || !writes) ? PARE_OK : PARE_MEMORY;
}

/* Who needs the node, and in how many processes; a node that variants share has the fewest. */
static void note(maker *m, int at, const pare_zoo_task *task, const pare_zoo_step *step, int ranks,
                 bool fresh)
{
    pare_zoo_node *node = &m->plan->nodes[at];
    if (fresh || ranks < node->ranks) node->ranks = ranks;
    if (!fresh) return;
    m->step[at] = step;
    m->task[at] = task;
}

static pare_status add_step(maker *m, const pare_zoo_task *task, const pare_zoo_step *step,
                            pare_hash *key, int *at)
{
    const pare_zoo_model *model = &m->zoo->models[task->model];
    const int ranks = step->shares ? m->zoo->variants[task->variant].ranks : 1;
    bool fresh;
    PARE_TRY(key_step(&m->keys, key, step, model));
    PARE_TRY(need_node(m, *key, *at, task, step->command->name, true, at, &fresh));
    note(m, *at, task, step, ranks, fresh);
    if (fresh) m->plan->nodes[*at].alone = step->times;
    return PARE_OK;
}

/* Ranks of a validation: each has a batch at least, and latency is of one process. */
static int judges_of(const pare_zoo *zoo, const pare_zoo_variant *v)
{
    enum { BATCH = 64 };
    const int64_t batches = zoo->samples > 0 ? (zoo->samples + BATCH - 1) / BATCH : v->ranks;
    if (zoo->latency) return 1;
    return batches < v->ranks ? (int)batches : v->ranks;
}

static pare_status add_judgement(maker *m, const pare_zoo_task *task, pare_hash *key, int *at)
{
    const int ranks = judges_of(m->zoo, &m->zoo->variants[task->variant]);
    bool fresh;
    PARE_TRY(key_judge(&m->keys, key, m->zoo, &m->zoo->models[task->model]));
    PARE_TRY(need_node(m, *key, *at, task, "validate", false, at, &fresh));
    note(m, *at, task, NULL, ranks, fresh);
    if (fresh) m->plan->nodes[*at].alone = m->zoo->latency;
    return PARE_OK;
}

/* Once it is known who needs the node. */
static pare_status make_words(maker *m, int at)
{
    pare_zoo_node *node = &m->plan->nodes[at];
    const char *file = m->zoo->models[node->model].file;
    node->launcher = m->o.batch && m->zoo->launcher ? m->zoo->launcher : "mpirun";
    if (!m->step[at]) return judge_words(m, node, m->task[at]->link);
    return step_words(m, node, m->step[at],
                      node->parent < 0 ? file : m->plan->nodes[node->parent].output);
}

static pare_status add_task(maker *m, int model, int variant, pare_hash key)
{
    const pare_zoo_variant *v = &m->zoo->variants[variant];
    pare_zoo_task *task = &m->plan->tasks[m->plan->task_count++];
    *task = (pare_zoo_task){.model = model, .variant = variant, .nodes = m->task_nodes};
    task->link = pare_arena_printf(m->arena, "%s/models/%s.%s.onnx", m->out,
                                   m->zoo->models[model].name, v->name);
    if (!task->link) return PARE_MEMORY;
    int at = -1;
    for (int i = 0; i < v->step_count; i++) {
        PARE_TRY(add_step(m, task, &v->steps[i], &key, &at));
        *m->task_nodes++ = at;
    }
    PARE_TRY(add_judgement(m, task, &key, &at));
    *m->task_nodes++ = at;
    task->node_count = v->step_count + 1;
    return PARE_OK;
}

/* --- the plan --- */

static int by_link(const void *a, const void *b)
{
    return strcmp((*(const pare_zoo_task *const *)a)->link,
                  (*(const pare_zoo_task *const *)b)->link);
}

/* "a.b" with variant "c" and "a" with variant "b.c" would be one file. */
static pare_status check_links(const maker *m)
{
    const int n = m->plan->task_count;
    const pare_zoo_task **list = pare_arena_alloc(m->arena, (size_t)n, sizeof *list);
    if (!list) return PARE_MEMORY;
    for (int i = 0; i < n; i++) list[i] = &m->plan->tasks[i];
    qsort(list, (size_t)n, sizeof *list, by_link);
    for (int i = 1; i < n; i++)
        if (!strcmp(list[i - 1]->link, list[i]->link))
            return PARE_FAIL(m->arena->ctx, INPUT,
                             "%s: %s and %s with their variants '%s' and '%s' would both be %s",
                             m->zoo->file, m->zoo->models[list[i - 1]->model].file,
                             m->zoo->models[list[i]->model].file,
                             m->zoo->variants[list[i - 1]->variant].name,
                             m->zoo->variants[list[i]->variant].name, list[i]->link);
    return PARE_OK;
}

static pare_status reserve(maker *m)
{
    const pare_zoo *zoo = m->zoo;
    size_t steps = 0, models = (size_t)zoo->model_count, variants = (size_t)zoo->variant_count;
    for (int i = 0; i < zoo->variant_count; i++) steps += (size_t)zoo->variants[i].step_count + 1;
    const size_t nodes = models * steps;
    for (m->slots = 16; m->slots < 2 * nodes;) m->slots *= 2;
    m->plan = pare_arena_alloc(m->arena, 1, sizeof *m->plan);
    m->slot = pare_arena_alloc(m->arena, m->slots, sizeof *m->slot);
    m->task_nodes = pare_arena_alloc(m->arena, nodes, sizeof *m->task_nodes);
    if (!m->plan || !m->slot || !m->task_nodes) return PARE_MEMORY;
    m->plan->nodes = pare_arena_alloc(m->arena, nodes, sizeof *m->plan->nodes);
    m->plan->tasks = pare_arena_alloc(m->arena, models * variants, sizeof *m->plan->tasks);
    m->step = pare_arena_alloc(m->arena, nodes, sizeof(const pare_zoo_step *));
    m->task = pare_arena_alloc(m->arena, nodes, sizeof(const pare_zoo_task *));
    return m->plan->nodes && m->plan->tasks && m->step && m->task ? PARE_OK : PARE_MEMORY;
}

pare_status pare_zoo_plan_make(pare_arena *arena, pare_zoo_plan **out, const pare_zoo *zoo,
                               const pare_zoo_plan_options *options)
{
    maker m = {.arena = arena, .zoo = zoo, .o = *options};
    size_t n = strlen(options->out);
    while (n > 1 && options->out[n - 1] == '/') n--;
    m.out =
        pare_arena_printf(arena, "%s%.*s", *options->out == '-' ? "./" : "", (int)n, options->out);
    if (!m.out) return PARE_MEMORY;
    m.keys = (keys){.arena = arena,
                    .version = options->version ? options->version : PARE_VERSION,
                    .isa = options->isa ? options->isa : pare_cpu_isa_name(),
                    .machine = options->machine ? options->machine : "cpu"};
    PARE_TRY(reserve(&m));
    for (int i = 0; i < zoo->model_count; i++) {
        pare_hash key;
        PARE_TRY(key_model(&m.keys, &key, zoo->models[i].file));
        for (int j = 0; j < zoo->variant_count; j++) PARE_TRY(add_task(&m, i, j, key));
    }
    for (int i = 0; i < m.plan->node_count; i++) PARE_TRY(make_words(&m, i));
    PARE_TRY(check_links(&m));
    *out = m.plan;
    return PARE_OK;
}

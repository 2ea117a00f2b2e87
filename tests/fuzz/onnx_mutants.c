/* SPDX-License-Identifier: Apache-2.0 */
/* Runs mutants of the operator tests of the ONNX package: onnx_mutants [--count N] [--seed S]
   [--first I] [--stop I] DIR... A DIR holds one folder a test: model.onnx and
   test_data_set_0/input_K.pb.

   Mutant I comes from the seed, I and one test: inputs made constant or given other values, types
   and shapes; attributes with other values and types; inputs and outputs of nodes dropped, repeated
   and swapped; another opset; other bytes of the file. It is read, planned and run once on the CPU.
   Whatever comes is right, but for a crash, a failure without a message, and more than BYTES of
   memory (in an address sanitizer's build: more in one allocation than ASAN_OPTIONS say). A mutant
   may loop as often as it says, but after SECONDS it is asked to stop, and must within as many.

   Mutants run in a process of their own, which begins again after one that ends it: FAIL and a line
   for each such mutant, which --first I --stop I repeats. */
#include "formats/onnx.h"
#include "runtime/exec/exec.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__
#define CHECKED 1
#else
#define CHECKED 0
#endif

enum { MOST = 16, TEXT = 4096, MOST_TESTS = 4096, SECONDS = 10, MOST_FAILURES = 20 };
static const size_t BYTES = (size_t)3 << 30;

typedef struct mutant {
    pare_ctx ctx;
    pare_arena arena;
    const char *folder;
    uint64_t random;
    pare_tensor *in[MOST];
    int in_count;
    pare_model *model;
    char what[256]; /* what was changed */
} mutant;

/* What the process that runs mutants has come to; shared with its parent. */
typedef struct progress {
    long index, ran, refused;
    char what[512];
} progress;

static uint64_t draw(mutant *m, uint64_t below)
{
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return below ? (m->random >> 33) % below : 0;
}

static void note(mutant *m, const char *word)
{
    size_t n = strlen(m->what);
    snprintf(m->what + n, sizeof m->what - n, " %s", word);
}

/* --- values --- */

static int64_t odd_int(mutant *m, int64_t near)
{
    static const int64_t list[] = {0,         1,         -1,        2,      3,     -2,
                                   7,         99,        -99,       255,    65537, INT32_MAX,
                                   INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20};
    if (draw(m, 3) == 0) return (int64_t)((uint64_t)near + draw(m, 5) - 2);
    return list[draw(m, sizeof list / sizeof *list)];
}

static float odd_float(mutant *m)
{
    static const float list[] = {0, 1, -1, 0.5f, 1e30f, -1e30f, 1e-30f, 2, -0.0f, 1e9f};
    uint64_t k = draw(m, 12);
    return k == 10 ? (float)(0.0 / (double)list[0]) : k == 11 ? 1 / list[0] : list[k];
}

static pare_dtype odd_type(mutant *m)
{
    static const pare_dtype list[] = {PARE_f32,  PARE_f64, PARE_f16, PARE_bf16,  PARE_s8,  PARE_u8,
                                      PARE_s16,  PARE_u16, PARE_s32, PARE_u32,   PARE_s64, PARE_u64,
                                      PARE_bool, PARE_s4,  PARE_u4,  PARE_string};
    return list[draw(m, sizeof list / sizeof *list)];
}

static int64_t odd_dim(mutant *m, int64_t near)
{
    static const int64_t list[] = {0, 1, 2, 3, 5, 8, 17, 33, 64, 65537};
    uint64_t k = draw(m, 40);
    if (k == 0) return INT64_C(1) << (20 + draw(m, 43));
    if (k < 16) return near > 0 ? near + (int64_t)draw(m, 3) - 1 : 1;
    return list[draw(m, sizeof list / sizeof *list)];
}

/* Some elements of a tensor's memory, which the mutant owns. */
static void change_values(mutant *m, pare_tensor *t)
{
    const int bits = pare_type(t->dtype)->bits;
    if (!t->bytes || bits < 8) return;
    const size_t each = (size_t)bits / 8;
    char *data = pare_arena_memdup(&m->arena, t->data, t->bytes);
    if (!data) return;
    for (uint64_t n = 1 + draw(m, 3); n; n--) {
        char *at = data + draw(m, t->bytes / each) * each;
        int64_t i = 0;
        float f = odd_float(m);
        memcpy(&i, at, each < 8 ? each : 8);
        i = odd_int(m, i);
        if (t->dtype == PARE_f32)
            memcpy(at, &f, sizeof f);
        else if (t->dtype == PARE_bool)
            *at = (char)draw(m, 2);
        else
            memcpy(at, &i, each < 8 ? each : 8);
    }
    t->data = data;
    note(m, "values");
}

/* Another shape, whose bytes repeat those that are there. */
static void change_shape(mutant *m, pare_tensor *t, pare_dtype dtype)
{
    int64_t dims[PARE_MAX_RANK + 1], count = 1;
    int rank = t->rank < PARE_MAX_RANK ? t->rank : PARE_MAX_RANK;
    memcpy(dims, t->dims, (size_t)rank * sizeof *dims);
    switch (draw(m, 4)) {
    case 0:
        if (rank < PARE_MAX_RANK) dims[rank++] = odd_dim(m, 1);
        break;
    case 1: rank -= rank > 0; break;
    default:
        if (rank) dims[draw(m, (uint64_t)rank)] = odd_dim(m, dims[0]);
    }
    size_t bytes = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] && count > (1 << 21) / dims[i]) count = 1 << 22;
        count = count > 1 << 21 && dims[i] ? count : count * dims[i];
    }
    if (count > 1 << 21 || !pare_type_bytes(dtype, count, &bytes)) return;
    char *data = pare_arena_alloc(&m->arena, bytes + 1, 1);
    int64_t *copy = pare_arena_memdup(&m->arena, dims, sizeof dims);
    if (!data || !copy) return;
    if (dtype == PARE_string) return;
    for (size_t i = 0; i < bytes && t->bytes; i++) data[i] = ((const char *)t->data)[i % t->bytes];
    if (dtype == PARE_bool)
        for (size_t i = 0; i < bytes; i++) data[i] &= 1;
    t->dtype = dtype;
    t->rank = rank;
    t->dims = copy;
    t->count = count;
    t->bytes = bytes;
    t->data = data;
    note(m, "shape");
}

/* --- nodes --- */

static void change_attribute(mutant *m, pare_node *node)
{
    int64_t ints[16];
    if (!node->attr_count) return;
    pare_attr a = node->attr[draw(m, (uint64_t)node->attr_count)];
    note(m, a.name);
    const uint64_t how = draw(m, 8);
    if (how == 0) {
        pare_node_remove_attr(node, a.name);
        return;
    }
    if (how == 1) { /* another type */
        (void)!pare_node_set_int(node, a.name, odd_int(m, 1));
        return;
    }
    switch (a.kind) {
    case PARE_ATTR_INT: a.i = odd_int(m, a.i); break;
    case PARE_ATTR_FLOAT: a.f = odd_float(m); break;
    case PARE_ATTR_STRING: a.s.size = draw(m, a.s.size + 1); break;
    case PARE_ATTR_INTS:
        if (a.count > 15) return;
        if (a.count) memcpy(ints, a.ints, (size_t)a.count * sizeof *ints);
        if (how == 2) ints[a.count++] = odd_int(m, 1);
        if (how == 3) a.count -= a.count > 0;
        if (how > 3 && a.count) {
            const uint64_t k = draw(m, (uint64_t)a.count);
            ints[k] = odd_int(m, ints[k]);
        }
        a.ints = ints;
        break;
    case PARE_ATTR_FLOATS: a.count -= a.count > 0; break;
    default: return;
    }
    (void)!pare_node_set_attr(node, &a);
}

static void change_inputs(mutant *m, pare_node *node)
{
    const int n = node->in_count;
    if (!n) return;
    const int i = (int)draw(m, (uint64_t)n), k = (int)draw(m, (uint64_t)n);
    pare_value *a = node->in[i], *b = node->in[k];
    switch (draw(m, 4)) {
    case 0: (void)!pare_node_set_in(node, i, NULL); break;
    case 1: (void)!pare_node_set_in(node, i, b); break;
    case 2: (void)!pare_node_set_in(node, n, a); break;
    default: (void)!pare_node_set_in(node, i, b); (void)!pare_node_set_in(node, k, a);
    }
    note(m, "inputs");
}

static void add_output(mutant *m, pare_node *node)
{
    pare_value *fresh, *out[MOST];
    pare_node *other;
    const char *name = pare_graph_fresh_name(m->model->graph, "more");
    if (node->out_count >= MOST || node->graph != m->model->graph || !name) return;
    if (pare_value_new(node->graph, &fresh, name) != PARE_OK) return;
    memcpy(out, node->out, (size_t)node->out_count * sizeof *out);
    out[node->out_count] = fresh;
    const int at = pare_node_index(node), count = node->out_count;
    pare_value *in[MOST];
    const int in_count = node->in_count < MOST ? node->in_count : MOST;
    memcpy(in, node->in, (size_t)in_count * sizeof *in);
    char op[128], domain[64];
    snprintf(op, sizeof op, "%s", node->op_type);
    snprintf(domain, sizeof domain, "%s", node->domain);
    const pare_attr *attr = node->attr;
    const int attr_count = node->attr_count;
    pare_node_remove(node);
    if (pare_node_new(m->model->graph, &other, at, op, domain, "mutant", in, in_count, out,
                      count + 1) != PARE_OK)
        return;
    for (int i = 0; i < attr_count; i++) (void)!pare_node_set_attr(other, &attr[i]);
    note(m, "outputs");
}

/* --- the whole --- */

static void make_constant(mutant *m, int i)
{
    pare_value *v = i < m->model->graph->in.count ? m->model->graph->in.item[i] : NULL;
    if (!v || v->is_init || !m->in[i]) return;
    pare_tensor *copy = pare_arena_memdup(&m->model->arena, m->in[i], sizeof *copy);
    if (!copy) return;
    copy->name = v->name;
    (void)!pare_value_set_init(v, copy);
    note(m, "constant");
}

static void change(mutant *m)
{
    pare_graph *g = m->model->graph;
    pare_node *node = g->node_count ? g->node[draw(m, (uint64_t)g->node_count)] : NULL;
    const int i = m->in_count ? (int)draw(m, (uint64_t)m->in_count) : -1;
    switch (draw(m, 9)) {
    case 0:
    case 1:
        if (node) change_attribute(m, node);
        break;
    case 2:
        if (node) change_inputs(m, node);
        break;
    case 3:
        if (node && draw(m, 3) == 0) add_output(m, node);
        break;
    case 4:
    case 5:
        if (i >= 0) change_shape(m, m->in[i], m->in[i]->dtype);
        break;
    case 6:
        if (i >= 0) change_shape(m, m->in[i], odd_type(m));
        break;
    case 7:
        if (i >= 0) change_values(m, m->in[i]);
        break;
    default:
        (void)!pare_model_set_opset(m->model, "", 1 + (int64_t)draw(m, PARE_NEWEST_OPSET + 2));
        note(m, "opset");
    }
}

/* The model, from bytes of which some may have been changed. */
static pare_status read_model(mutant *m)
{
    char path[TEXT];
    static uint8_t bytes[1 << 20];
    snprintf(path, sizeof path, "%s/model.onnx", m->folder);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    if (draw(m, 6) == 0 && n) {
        for (uint64_t k = 1 + draw(m, 4); k; k--) bytes[draw(m, n)] = (uint8_t)draw(m, 256);
        note(m, "bytes");
    }
    return pare_onnx_read_memory(&m->ctx, &m->model, bytes, n, path);
}

static void read_inputs(mutant *m)
{
    for (m->in_count = 0; m->in_count < MOST; m->in_count++) {
        char path[TEXT];
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", m->folder, m->in_count);
        if (access(path, R_OK) ||
            pare_onnx_read_tensor(&m->ctx, &m->arena, &m->in[m->in_count], path) != PARE_OK)
            break;
    }
    pare_ctx_clear(&m->ctx);
}

static pare_status plan_make(mutant *m, pare_plan **out)
{
    const pare_plan_options options = {.threads = 1, .reference = draw(m, 2) == 0};
    pare_input_shape shapes[MOST];
    int n = 0;
    for (int i = 0; i < m->in_count && i < m->model->graph->in.count; i++) {
        pare_value *v = m->model->graph->in.item[i];
        if (v->is_init || m->in[i]->rank > PARE_MAX_RANK) continue;
        pare_shape shape = {.rank = m->in[i]->rank};
        for (int k = 0; k < shape.rank; k++) shape.dim[k] = m->in[i]->dims[k];
        shapes[n++] = (pare_input_shape){v->name, shape};
        if (m->in[i]->dtype != v->dtype && v->dtype && v->dtype != PARE_bf16)
            pare_value_set_type(v, m->in[i]->dtype, &shape);
    }
    return pare_plan_new(&m->ctx, out, m->model, shapes, n, &options);
}

static pare_status run(mutant *m, pare_plan *plan)
{
    pare_runner *runner = NULL;
    PARE_TRY(pare_runner_new(&m->ctx, &runner, plan));
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        const pare_view view = pare_runner_input(runner, i);
        const size_t bytes = pare_view_bytes(&view);
        for (int k = 0; k < m->in_count && k < m->model->graph->in.count; k++) {
            const pare_tensor *x = m->in[k];
            if (strcmp(m->model->graph->in.item[k]->name, pare_plan_input(plan, i)->name)) continue;
            if (x->dtype == view.dtype && x->bytes)
                memcpy(view.data, x->data, bytes < x->bytes ? bytes : x->bytes);
        }
    }
    pare_status st = pare_runner_run(runner);
    pare_runner_free(runner);
    return st;
}

static pare_status mutant_run(mutant *m)
{
    pare_plan *plan = NULL;
    PARE_TRY(read_model(m));
    read_inputs(m);
    for (uint64_t n = draw(m, 4); n; n--) change(m);
    for (int i = 0; i < m->in_count; i++)
        if (draw(m, 2)) make_constant(m, i);
    pare_status st = plan_make(m, &plan);
    if (st == PARE_OK) st = run(m, plan);
    pare_plan_free(plan);
    return st;
}

/* --- processes --- */

typedef struct all {
    char *folder[MOST_TESTS];
    int tests;
    long first, stop;
    uint64_t seed;
    progress *shared;
} all;

/* The first alarm asks for a stop, as Ctrl-C does; a mutant that goes on ends at the second. */
static volatile int stop_asked;
static void on_alarm(int number)
{
    (void)number;
    stop_asked = 1;
    signal(SIGALRM, SIG_DFL);
    alarm(SECONDS);
}

static void run_from(const all *a, long index)
{
    for (long i = index; i < a->stop; i++) {
        mutant *m = calloc(1, sizeof *m);
        if (!m) _exit(3);
        m->folder = a->folder[(uint64_t)i * 7919u % (uint64_t)a->tests];
        m->random = (a->seed + (uint64_t)i) * 0x9e3779b97f4a7c15u;
        draw(m, 1);
        a->shared->index = i;
        pare_ctx_init(&m->ctx);
        pare_arena_init(&m->arena, &m->ctx);
        m->ctx.interrupted = &stop_asked;
        stop_asked = 0;
        signal(SIGALRM, on_alarm);
        alarm(SECONDS);
        pare_status st = mutant_run(m);
        alarm(0);
        st == PARE_OK ? a->shared->ran++ : a->shared->refused++;
        const bool silent = st != PARE_OK && !m->ctx.message[0] && st != PARE_MEMORY;
        if (a->stop == a->first + 1)
            fprintf(stderr, "%s:%s: %s\n", m->folder, m->what,
                    st == PARE_OK ? "it runs" : m->ctx.message);
        pare_model_free(m->model);
        pare_arena_free(&m->arena);
        free(m);
        if (silent) _exit(2);
    }
    _exit(0);
}

/* Mutants up to the end or to one that ends the process; false where there was one. */
static bool run_part(const all *a, long *index)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (!CHECKED) setrlimit(RLIMIT_AS, &(struct rlimit){BYTES, BYTES});
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        run_from(a, *index);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) exit(3);
    *index = a->shared->index + 1;
    if (WIFEXITED(status) && !WEXITSTATUS(status)) return true;
    const int i = (int)((uint64_t)a->shared->index * 7919u % (uint64_t)a->tests);
    const char *slash = strrchr(a->folder[i], '/');
    printf("FAIL onnx_mutants/%ld: %s: %s\n", a->shared->index, slash ? slash + 1 : a->folder[i],
           WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "it takes too long"
           : WIFSIGNALED(status)                              ? strsignal(WTERMSIG(status))
           : WEXITSTATUS(status) == 2                         ? "a failure without a message"
                                                              : "a sanitizer's report");
    return false;
}

static void add_folder(all *a, const char *path)
{
    struct dirent **entry;
    const int n = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char folder[TEXT];
        snprintf(folder, sizeof folder, "%s/%s", path, entry[i]->d_name);
        if (!strncmp(entry[i]->d_name, "test_", 5) && a->tests < MOST_TESTS)
            a->folder[a->tests++] = strdup(folder);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
}

int main(int argc, char **argv)
{
    static all a = {.seed = 1};
    long count = 20000, index, failures = 0;
    int k = 1;
    for (; k + 1 < argc && !strncmp(argv[k], "--", 2); k += 2) {
        const long value = atol(argv[k + 1]);
        if (!strcmp(argv[k], "--count")) count = value;
        if (!strcmp(argv[k], "--seed")) a.seed = (uint64_t)value;
        if (!strcmp(argv[k], "--first")) a.first = value;
        if (!strcmp(argv[k], "--stop")) count = value + 1 - a.first;
    }
    for (; k < argc; k++) add_folder(&a, argv[k]);
    a.stop = a.first + count;
    a.shared =
        mmap(NULL, sizeof *a.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!a.tests || a.shared == MAP_FAILED) {
        fprintf(stderr,
                "usage: onnx_mutants [--count N] [--seed S] [--first I] [--stop I] DIR...\n");
        return 2;
    }
    for (index = a.first; index < a.stop && failures < MOST_FAILURES;)
        failures += !run_part(&a, &index);
    printf("# %ld mutants of %d tests: %ld ran, %ld were refused, %ld failed\n", index - a.first,
           a.tests, a.shared->ran, a.shared->refused, failures);
    if (!failures) printf("PASS onnx_mutants\n");
    return failures ? 1 : 0;
}

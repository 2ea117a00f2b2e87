/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the operator tests of the ONNX package: onnx_nodes [--only SUBSTRING] [--device NAME]
   [--least N] DIR... A DIR holds one folder a test: model.onnx and
   test_data_set_N/{input,output}_K.pb.

   Each test is run twice, by the plain kernels and as a user would get it, and compared as ONNX's
   own backend runner does: floats within 1e-7 + 1e-3 |expected|, NaN equal to NaN, all else
   exactly. Of Bernoulli's draws type and shape are compared, and that each is 0 or 1; of Dropout's
   in training mode that each is 0 or the scaled input.

   Tests give as graph inputs what models hold as constants (axes, sizes, pads). On a device each
   test is run again with all inputs but one made constant, and with all, so that its kernels see
   them as models give them.

   Prints PASS, FAIL or SKIP (refused, with the message) for each, a table by operator, and how many
   pass. Ends with 1 where one fails or fewer than N pass. On a device the table says of each
   operator how many steps its kernels computed and how many the host did; one that the host alone
   does, without a reason in the list below, is a failure. */
#include "formats/onnx.h"
#include "runtime/exec/exec.h"
#include "runtime/ops/ops.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST = 32, TEXT = 4096, PATH = 2 * TEXT };

typedef enum verdict { PASSED, FAILED, REFUSED } verdict;

typedef struct test {
    pare_ctx ctx;
    pare_arena arena; /* of the test's tensors */
    const char *folder;
    pare_tensor *in[MOST], *out[MOST];
    int in_count, out_count;
    char message[TEXT];
    double limit; /* of a difference where the expected value is 0 */
    bool drawn;   /* the expected values were drawn at random, each 0 or 1 */
    bool scaled;  /* of these, Dropout's: each 0 or the input / (1 - ratio) */
    struct table *table;
    pare_device *device; /* NULL: the CPU */
} test;

typedef struct tally {
    char op[64];
    int count[3];
    int device, host;      /* steps of this operator by who computed them */
    unsigned long on_host; /* bit d: some of the latter made a tensor of dtype d */
} tally;

/* By operator, ours and those without a row. */
typedef struct table {
    tally row[1024];
    int rows;
} table;

/* Where the package expects what the operator does not say: the reason. Such a test does not count
   as passed, but a difference there is no failure. */
static const char *excused(const char *name)
{
    static const char *const cases[][2] = {
        {"cast_FLOAT_to_BFLOAT16", "the expected values were cut off, not rounded to nearest even"},
        {"castlike_FLOAT_to_BFLOAT16", "the expected values were cut off, not rounded"},
        {"castlike_FLOAT_to_BFLOAT16_expanded", "the expected values were cut off, not rounded"},
        {"averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
         "the expected values count taps after the padding; ONNX Runtime does not"},
        {"resize_downsample_scales_cubic_align_corners",
         "the expected values use a length of 3.2; ONNX Runtime rounds it down, too"},
        {"resize_downsample_scales_linear_align_corners",
         "the expected values use a length of 2.4; ONNX Runtime rounds it down, too"},
        {"l2normalization_axis_0", "the expected values divide zero by zero; the operator says 0"},
        {"qlinearmatmul_2D_int8_float16", "the expected values wrap around instead of saturating"},
        {"qlinearmatmul_2D_int8_float32", "the expected values wrap around instead of saturating"},
        {"qlinearmatmul_3D_int8_float16", "the expected values wrap around instead of saturating"},
        {"qlinearmatmul_3D_int8_float32", "the expected values wrap around instead of saturating"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i][0], name)) return cases[i][1];
    return NULL;
}

/* --- reading --- */

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static pare_status tensors_read(test *t, int set, const char *word, pare_tensor **list, int *count)
{
    for (*count = 0; *count < MOST; ++*count) {
        char path[PATH];
        snprintf(path, sizeof path, "%s/test_data_set_%d/%s_%d.pb", t->folder, set, word, *count);
        if (!exists(path)) break;
        PARE_TRY(pare_onnx_read_tensor(&t->ctx, &t->arena, &list[*count], path));
    }
    return PARE_OK;
}

/* --- comparing --- */

static bool close_enough(double a, double b, double limit)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= limit + 1e-3 * fabs(b);
}

static double number(pare_dtype d, const void *data, int64_t i)
{
    const char *at = (const char *)data + i * (pare_type(d)->bits / 8);
    if (d != PARE_f64) return (double)pare_type(d)->to_f32(at);
    double v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* What an element of y is if it is not 0: 1, of Dropout's first output the scaled input. */
static double drawn_value(const test *t, const pare_view *y, int64_t i)
{
    const pare_tensor *x = t->in[0], *ratio = t->in_count > 1 ? t->in[1] : NULL;
    if (!t->scaled) return 1;
    return number(y->dtype, x->data, i) /
           (1 - (ratio ? number(ratio->dtype, ratio->data, 0) : 0.5));
}

/* Draws have the type and shape and are 0 or what is drawn; which of them is the generator's. */
static bool drawn_equal(test *t, const pare_view *y, const char *name)
{
    if (y->dtype == PARE_bool) return true; /* Dropout's mask */
    for (int64_t i = 0; i < pare_view_count(y); i++) {
        const double v = number(y->dtype, y->data, i);
        if (v == 0 || close_enough(v, drawn_value(t, y, i), 0)) continue;
        snprintf(t->message, sizeof t->message, "output '%s' is %.9g at element %" PRId64, name, v,
                 i);
        return false;
    }
    return true;
}

static bool output_equal(test *t, const pare_view *y, const pare_tensor *want, const char *name)
{
    bool same = y->dtype == want->dtype && y->rank == want->rank;
    for (int i = 0; same && i < y->rank; i++) same = y->dim[i] == want->dims[i];
    if (!same) {
        snprintf(t->message, sizeof t->message,
                 "output '%s' has another type or shape: %s, rank %d", name,
                 pare_type(y->dtype)->name, y->rank);
        return false;
    }
    if (t->drawn) return drawn_equal(t, y, name);
    if (!pare_type_is_float(y->dtype)) {
        if (!want->bytes || !memcmp(y->data, want->data, want->bytes)) return true;
        snprintf(t->message, sizeof t->message, "output '%s' differs", name);
        return false;
    }
    for (int64_t i = 0; i < want->count; i++) {
        double a = number(y->dtype, y->data, i), b = number(y->dtype, want->data, i);
        if (close_enough(a, b, t->limit)) continue;
        snprintf(t->message, sizeof t->message,
                 "output '%s' differs at element %" PRId64 ": %.9g, expected %.9g", name, i, a, b);
        return false;
    }
    return true;
}

/* --- running --- */

/* The context's message without the folder it begins with. */
static void refusal_keep(test *t)
{
    const char *text = t->ctx.message;
    size_t n = strlen(t->folder);
    if (!strncmp(text, t->folder, n) && text[n] == '/') text += n + 1;
    snprintf(t->message, sizeof t->message, "%s", text);
}

/* The package stores what it means as bf16 as u16. */
static void bf16_restore(pare_tensor **list, int count, const pare_values *values)
{
    for (int i = 0; i < count && i < values->count; i++)
        if (values->item[i]->dtype == PARE_bf16 && list[i]->dtype == PARE_u16)
            list[i]->dtype = PARE_bf16;
}

/* Inputs from `first` on become constants of the model. */
static pare_status make_constant(test *t, pare_model *m, int first)
{
    for (int i = first; i < t->in_count && i < m->graph->in.count; i++) {
        pare_tensor *copy = pare_arena_memdup(&m->arena, t->in[i], sizeof *copy);
        if (!copy) return PARE_MEMORY;
        copy->name = m->graph->in.item[i]->name;
        PARE_TRY(pare_value_set_init(m->graph->in.item[i], copy));
    }
    return PARE_OK;
}

static const pare_tensor *input_named(const test *t, const pare_model *m, const char *name)
{
    for (int i = 0; i < t->in_count && i < m->graph->in.count; i++)
        if (!strcmp(m->graph->in.item[i]->name, name)) return t->in[i];
    return NULL;
}

static pare_status plan_make(test *t, const pare_model *m, const pare_plan_options *o,
                             pare_plan **out)
{
    pare_input_shape shapes[MOST];
    int n = 0;
    for (int i = 0; i < t->in_count && i < m->graph->in.count; i++) {
        const pare_value *v = m->graph->in.item[i];
        if (v->is_init) continue;
        if (t->in[i]->rank > PARE_MAX_RANK) return PARE_FAIL(&t->ctx, UNSUPPORTED, "rank above 8");
        shapes[n] = (pare_input_shape){v->name, {.rank = t->in[i]->rank}};
        for (int k = 0; k < t->in[i]->rank; k++) shapes[n].shape.dim[k] = t->in[i]->dims[k];
        n++;
    }
    return pare_plan_new(&t->ctx, out, m, shapes, n, o);
}

static verdict plan_run(test *t, const pare_model *m, pare_plan *plan)
{
    pare_runner *runner = NULL;
    verdict v = REFUSED;
    if (pare_runner_new(&t->ctx, &runner, plan) != PARE_OK) return REFUSED;
    for (int i = 0; i < pare_plan_input_count(plan); i++) {
        const pare_tensor *x = input_named(t, m, pare_plan_input(plan, i)->name);
        pare_view view = pare_runner_input(runner, i);
        if (!x || x->dtype != view.dtype) goto done;
        if (x->bytes) memcpy(view.data, x->data, x->bytes);
    }
    if (pare_runner_run(runner) != PARE_OK) goto done;
    v = PASSED;
    for (int i = 0; i < pare_plan_output_count(plan) && i < t->out_count && v == PASSED; i++) {
        pare_view y = pare_runner_output(runner, i);
        if (!output_equal(t, &y, t->out[i], pare_plan_output(plan, i)->name)) v = FAILED;
    }
done:
    pare_runner_free(runner);
    return v;
}

static tally *tally_of(table *t, const char *op)
{
    for (int i = 0; i < t->rows; i++)
        if (!strcmp(t->row[i].op, op)) return &t->row[i];
    snprintf(t->row[t->rows].op, sizeof t->row[0].op, "%s", op);
    return &t->row[t->rows++];
}

/* Who computed the plan's steps. */
static void steps_count(test *t, const pare_plan *plan)
{
    for (int i = 0; i < pare_plan_step_count(plan); i++) {
        pare_step_info step;
        pare_plan_step(plan, i, &step);
        tally *row = tally_of(t->table, step.op_type);
        bool host = !strcmp(step.kernel, "host");
        if (!strcmp(step.kernel, "interpreter")) continue; /* where shapes depend on values */
        host ? row->host++ : row->device++;
        if (host) row->on_host |= 1ul << step.dtype;
    }
}

/* constants: 0 no input is made constant, 1 all but the first, 2 all. */
static verdict try_once(test *t, const char *model, bool reference, int constants)
{
    const pare_plan_options options = {.threads = 1, .reference = reference, .device = t->device};
    pare_model *m = NULL;
    pare_plan *plan = NULL;
    verdict v = REFUSED;
    pare_ctx_clear(&t->ctx);
    t->message[0] = 0;
    if (pare_onnx_read(&t->ctx, &m, model) != PARE_OK) goto done;
    bf16_restore(t->in, t->in_count, &m->graph->in);
    bf16_restore(t->out, t->out_count, &m->graph->out);
    if (constants && make_constant(t, m, constants == 1 ? 1 : 0) != PARE_OK) goto done;
    if (plan_make(t, m, &options, &plan) != PARE_OK) goto done;
    v = plan_run(t, m, plan);
    if (t->device) steps_count(t, plan);
done:
    if (v == REFUSED) refusal_keep(t);
    pare_plan_free(plan);
    pare_model_free(m);
    return v;
}

static verdict try_set(test *t, const char *model)
{
    verdict v = REFUSED;
    char first[TEXT] = "";
    for (int mode = 0; mode < 2; mode++) {
        for (int constants = 0; constants < (t->device ? 3 : 1); constants++) {
            verdict now = try_once(t, model, mode == 0, constants);
            if (now != REFUSED || v == REFUSED) v = now;
            if (!constants) snprintf(first, sizeof first, "%s", t->message);
            if (v == FAILED || (v == PASSED && (constants || !t->device))) break;
        }
        if (v == REFUSED) snprintf(t->message, sizeof t->message, "%s", first);
        if (v != PASSED) return v;
    }
    return v;
}

/* --- one test --- */

static bool all_tensors(test *t, const pare_values *list, const char *what)
{
    for (int i = 0; i < list->count; i++) {
        if (list->item[i]->dtype != PARE_NOTYPE) continue;
        (void)PARE_FAIL(&t->ctx, UNSUPPORTED,
                        "the model's %s '%s' is a sequence or an optional; the library passes "
                        "tensors",
                        what, list->item[i]->name);
        return false;
    }
    return true;
}

/* op gets the operator that the test is about: the model's only node's, or the first's. */
static bool model_reads(test *t, const char *path, char *op, size_t size)
{
    pare_model *m = NULL;
    const bool good = pare_onnx_read(&t->ctx, &m, path) == PARE_OK &&
                      all_tensors(t, &m->graph->in, "input") &&
                      all_tensors(t, &m->graph->out, "output");
    if (good && m->graph->node_count) snprintf(op, size, "%s", m->graph->node[0]->op_type);
    if (!good) refusal_keep(t);
    pare_model_free(m);
    return good;
}

static verdict test_run(test *t, char *op, size_t size)
{
    char model[PATH];
    verdict v = REFUSED;
    snprintf(model, sizeof model, "%s/model.onnx", t->folder);
    /* the inverse DFT's zeros were computed in f32 from values up to 400 */
    t->limit = strstr(t->folder, "/test_dft_inverse") ? 1e-6 : 1e-7;
    t->scaled = strstr(t->folder, "/test_training_dropout") && !strstr(t->folder, "_zero_ratio");
    t->drawn = t->scaled || strstr(t->folder, "/test_bernoulli") != NULL;
    pare_ctx_init(&t->ctx);
    snprintf(op, size, "unreadable");
    if (!model_reads(t, model, op, size)) return REFUSED;
    for (int set = 0;; set++) {
        char folder[PATH];
        snprintf(folder, sizeof folder, "%s/test_data_set_%d", t->folder, set);
        if (!exists(folder)) break;
        pare_arena_init(&t->arena, &t->ctx);
        v = REFUSED;
        if (tensors_read(t, set, "input", t->in, &t->in_count) == PARE_OK &&
            tensors_read(t, set, "output", t->out, &t->out_count) == PARE_OK)
            v = try_set(t, model);
        else
            refusal_keep(t);
        pare_arena_free(&t->arena);
        if (v != PASSED) break;
    }
    return v;
}

/* --- all tests --- */

static void print_row(const tally *row, bool device)
{
    printf("# %-24s %3d pass %3d fail %3d refused", row->op, row->count[PASSED], row->count[FAILED],
           row->count[REFUSED]);
    if (device) printf("; steps: %3d device %3d host", row->device, row->host);
    for (int d = 0; d < PARE_DTYPE_COUNT; d++)
        if (row->on_host >> d & 1) printf(" %s", pare_type((pare_dtype)d)->name);
    printf("\n");
}

/* Why a row may have no kernel on a device. */
static const char *hosted(const char *op)
{
    static const char *const rows[][2] = {
        {"Attention", "the host computes it so far"},
        {"Bernoulli", "the host computes it so far"},
        {"BlackmanWindow", "the host computes it so far"},
        {"BitShift", "no exported net has it"},
        {"BitwiseAnd", "the host computes it so far"},
        {"BitwiseNot", "the host computes it so far"},
        {"BitwiseOr", "the host computes it so far"},
        {"BitwiseXor", "the host computes it so far"},
        {"ConvInteger", "no exported net has it"},
        {"DFT", "the host computes it so far"},
        {"Einsum", "what is left of it is no matrix product"},
        {"EyeLike", "no exported net has it"},
        {"GRU", "the host computes it so far"},
        {"GlobalLpPool", "no exported net has it"},
        {"HammingWindow", "the host computes it so far"},
        {"HannWindow", "the host computes it so far"},
        {"Hardmax", "no exported net has it"},
        {"LSTM", "the host computes it so far"},
        {"LpNormalization", "no exported net has it"},
        {"LpPool", "no exported net has it"},
        {"MatMulInteger", "no exported net has it"},
        {"MelWeightMatrix", "the host computes it so far"},
        {"Multinomial", "the host computes it so far"},
        {"NegativeLogLikelihoodLoss", "no exported net has it"},
        {"NonZero", "how much it makes depends on its values"},
        {"QLinearConv", "no exported net has it"},
        {"QLinearMatMul", "no exported net has it"},
        {"RMSNormalization", "the host computes it so far"},
        {"RandomNormal", "the host computes it so far"},
        {"RandomNormalLike", "the host computes it so far"},
        {"RandomUniform", "the host computes it so far"},
        {"RandomUniformLike", "the host computes it so far"},
        {"RNN", "the host computes it so far"},
        {"ReverseSequence", "no exported net has it"},
        {"RotaryEmbedding", "the host computes it so far"},
        {"STFT", "the host computes it so far"},
        {"SoftmaxCrossEntropyLoss", "no exported net has it"},
        {"TensorScatter", "the host computes it so far"},
        {"TfIdfVectorizer", "no exported net has it"},
        {"RoiAlign", "the host computes it so far"},
        {"MeanVarianceNormalization", "the host computes it so far"},
        {"MaxUnpool", "the host computes it so far"},
        {"GridSample", "the host computes it so far"},
        {"Det", "the host computes it so far"},
        {"DeformConv", "the host computes it so far"},
        {"Col2Im", "the host computes it so far"},
        {"CenterCropPad", "the host computes it so far"},
        {"AffineGrid", "the host computes it so far"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i][0], op)) return rows[i][1];
    return NULL;
}

/* Rows of which the host did every step, one result line each; how many have no reason. */
static int judge_hosted(const table *all)
{
    int failed = 0;
    for (int i = 0; i < all->rows; i++) {
        const tally *row = &all->row[i];
        if (!row->host || row->device) continue;
        const char *why = hosted(row->op);
        printf("%s onnx_row/%s: %s\n", why ? "SKIP" : "FAIL", row->op,
               why ? why : "the device has no kernel that takes any of its tests");
        failed += !why;
    }
    return failed;
}

static verdict test_judge(test *t, const char *name, char *op, size_t size)
{
    static const char *const words[] = {"PASS", "FAIL", "SKIP"};
    verdict v = test_run(t, op, size);
    const char *excuse = v == FAILED ? excused(name) : NULL;
    if (excuse) {
        v = REFUSED;
        snprintf(t->message, sizeof t->message, "%s", excuse);
    }
    bool quiet = v == PASSED;
    printf("%s onnx_node/%s%s%s%s\n", words[v], name, quiet ? "" : ": ",
           v == REFUSED && !excuse ? "refused: " : "", quiet ? "" : t->message);
    return v;
}

/* The tests of a folder; false where it cannot be read. */
static bool folder_run(const char *path, const char *only, table *all, pare_device *device)
{
    struct dirent **entry;
    const int n = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char folder[TEXT + 512], op[128] = "";
        snprintf(folder, sizeof folder, "%s/%s", path, entry[i]->d_name);
        test t = {.folder = folder, .table = all, .device = device};
        if (!strncmp(entry[i]->d_name, "test_", 5) && strstr(entry[i]->d_name, only)) {
            const verdict v = test_judge(&t, entry[i]->d_name + 5, op, sizeof op);
            tally_of(all, op)->count[v]++;
        }
        free(entry[i]);
    }
    if (n < 0) return false;
    free(entry);
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: onnx_nodes [--only SUBSTRING] [--device NAME] [--least N] DIR...\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *only = "", *device_name = "cpu";
    table *all = calloc(1, sizeof *all);
    int count[3] = {0}, first = 1, least = 1;
    pare_ctx ctx;
    pare_device *device;
    for (; first + 1 < argc && !strncmp(argv[first], "--", 2); first += 2) {
        if (!strcmp(argv[first], "--only"))
            only = argv[first + 1];
        else if (!strcmp(argv[first], "--device"))
            device_name = argv[first + 1];
        else if (!strcmp(argv[first], "--least"))
            least = atoi(argv[first + 1]);
        else
            return usage();
    }
    if (first >= argc || !all) return usage();
    pare_ctx_init(&ctx);
    if (pare_device_open(&ctx, &device, device_name) != PARE_OK) {
        fprintf(stderr, "%s: %s\n", device_name, ctx.message);
        return 77;
    }
    for (int i = first; i < argc; i++)
        if (!folder_run(argv[i], only, all, device)) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 77;
        }
    for (int i = 0; i < all->rows; i++) {
        print_row(&all->row[i], device != NULL);
        for (int v = 0; v < 3; v++) count[v] += all->row[i].count[v];
    }
    int unserved = device && !only[0] ? judge_hosted(all) : 0;
    pare_device_close(device);
    printf("# %d of %d pass, %d fail, %d refused\n", count[PASSED],
           count[PASSED] + count[FAILED] + count[REFUSED], count[FAILED], count[REFUSED]);
    const bool enough = only[0] || count[PASSED] >= least;
    if (!enough) printf("FAIL onnx_nodes: expected at least %d that pass\n", least);
    free(all);
    return enough && count[PASSED] && !count[FAILED] && !unserved ? 0 : 1;
}

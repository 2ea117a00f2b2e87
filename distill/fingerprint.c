/* SPDX-License-Identifier: Apache-2.0 */
/* What identifies a training. An option that comes to pare_distill_options and reaches a weight
   gets its row in put_options(). */
#include "distill/trainer.h"
#include "runtime/base/version.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a model: a chain, each part is hashed together with the hash of all before it --- */

static void add(pare_hash *sum, const void *data, size_t bytes)
{
    const pare_hash pair[2] = {*sum, pare_hash_bytes(bytes ? data : "", bytes)};
    *sum = pare_hash_bytes(pair, sizeof pair);
}

static void add_number(pare_hash *sum, int64_t number) { add(sum, &number, sizeof number); }

static void add_text(pare_hash *sum, const char *text) { add(sum, text, text ? strlen(text) : 0); }

static void add_list(pare_hash *sum, const pare_bytes *list, int64_t count)
{
    add_number(sum, count);
    for (int64_t i = 0; i < count; i++) add(sum, list[i].data, list[i].size);
}

static void add_tensor(pare_hash *sum, const pare_tensor *t)
{
    add_number(sum, (int64_t)t->dtype);
    add(sum, t->dims, (size_t)t->rank * sizeof *t->dims);
    if (t->dtype == PARE_string)
        add_list(sum, t->data, t->count);
    else
        add(sum, t->data, t->bytes);
    pare_tensor_give_back(t);
}

static void add_graph(pare_hash *sum, const pare_graph *graph);

static void add_attr(pare_hash *sum, const pare_attr *a)
{
    const int lists = a->kind >= PARE_ATTR_FLOATS && a->kind != PARE_ATTR_SPARSE_TENSOR &&
                      a->kind != PARE_ATTR_TYPE_PROTO;
    const int count = lists ? a->count : 1;
    add_text(sum, a->name);
    add_text(sum, a->ref);
    add_number(sum, (int64_t)a->kind);
    add_number(sum, count);
    switch (a->kind) {
    case PARE_ATTR_FLOAT: add(sum, &a->f, sizeof a->f); break;
    case PARE_ATTR_INT: add_number(sum, a->i); break;
    case PARE_ATTR_STRING: add(sum, a->s.data, a->s.size); break;
    case PARE_ATTR_TENSOR: add_tensor(sum, a->tensor); break;
    case PARE_ATTR_GRAPH: add_graph(sum, a->graph); break;
    case PARE_ATTR_FLOATS: add(sum, a->floats, (size_t)count * sizeof *a->floats); break;
    case PARE_ATTR_INTS: add(sum, a->ints, (size_t)count * sizeof *a->ints); break;
    case PARE_ATTR_STRINGS: add_list(sum, a->strings, count); break;
    case PARE_ATTR_TENSORS:
        for (int i = 0; i < count; i++) add_tensor(sum, a->tensors[i]);
        break;
    case PARE_ATTR_GRAPHS:
        for (int i = 0; i < count; i++) add_graph(sum, a->graphs[i]);
        break;
    default: add_list(sum, a->raw, count); break;
    }
}

static void add_names(pare_hash *sum, pare_value *const *value, int count)
{
    add_number(sum, count);
    for (int i = 0; i < count; i++) add_text(sum, value[i] ? value[i]->name : NULL);
}

static void add_node(pare_hash *sum, const pare_node *node)
{
    add_text(sum, node->op_type);
    add_text(sum, node->domain);
    add_text(sum, node->overload);
    add_text(sum, node->name);
    add_names(sum, node->in, node->in_count);
    add_names(sum, node->out, node->out_count);
    add_number(sum, node->attr_count);
    for (int i = 0; i < node->attr_count; i++) add_attr(sum, &node->attr[i]);
}

static void add_graph(pare_hash *sum, const pare_graph *g)
{
    add_names(sum, g->in.item, g->in.count);
    add_names(sum, g->out.item, g->out.count);
    add_names(sum, g->init.item, g->init.count);
    for (int i = 0; i < g->in.count; i++) {
        const pare_value *v = g->in.item[i];
        add_number(sum, (int64_t)v->dtype);
        add(sum, v->shape.dim, sizeof *v->shape.dim * (v->shape.rank > 0 ? v->shape.rank : 0));
    }
    for (int i = 0; i < g->init.count; i++)
        if (g->init.item[i]->data) add_tensor(sum, g->init.item[i]->data);
    add_number(sum, g->node_count);
    for (int i = 0; i < g->node_count; i++) add_node(sum, g->node[i]);
    add_list(sum, g->sparse_init, g->sparse_init_count);
}

static pare_hash hash_model(const pare_model *model)
{
    pare_hash sum = {0};
    add_number(&sum, model->opset_count);
    for (int i = 0; i < model->opset_count; i++) {
        add_text(&sum, model->opset[i].domain);
        add_number(&sum, model->opset[i].version);
    }
    add_list(&sum, model->function, model->function_count);
    add_graph(&sum, model->graph);
    return sum;
}

enum { MOST = 40, PROBES = 512, BATCH = 64 };

typedef struct facts {
    pare_arena *arena;
    pare_checkpoint_fact item[MOST];
    int count;
} facts;

/* --- values as text --- */

static pare_status put(facts *f, const char *name, const char *value)
{
    assert(f->count < MOST);
    if (!value) return PARE_MEMORY;
    f->item[f->count++] = (pare_checkpoint_fact){name, value};
    return PARE_OK;
}

static pare_status put_number(facts *f, const char *name, int64_t number)
{
    return put(f, name, pare_arena_printf(f->arena, "%" PRId64, number));
}

typedef struct real_text {
    char text[40];
} real_text;

/* The shortest text that reads back as the number. */
static real_text real(double number)
{
    real_text r;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(r.text, sizeof r.text, "%.*g", digits, number);
        if (strtod(r.text, NULL) == number) break;
    }
    return r;
}

static pare_status put_real(facts *f, const char *name, double number)
{
    return put(f, name, pare_arena_strdup(f->arena, real(number).text));
}

static pare_status put_hash(facts *f, const char *name, const char *before, pare_hash hash)
{
    char text[33];
    pare_hash_text(hash, text);
    return put(f, name, pare_arena_printf(f->arena, "%s%s", before, text));
}

/* --- data --- */

/* What is stored of samples, and their labels, a batch's after the others'. */
static pare_status hash_stored(pare_reader *reader, pare_hash part[2])
{
    pare_batch b;
    for (;;) {
        PARE_TRY(pare_reader_next(reader, &b));
        part[0] = pare_reader_hash(reader);
        if (!b.count) return PARE_OK;
        if (!b.label) continue;
        const pare_hash chain[2] = {part[1],
                                    pare_hash_bytes(b.label, (size_t)b.count * sizeof *b.label)};
        part[1] = pare_hash_bytes(chain, sizeof chain);
    }
}

static pare_status put_data(facts *f, const char *name, const pare_trainer *t, pare_data *data,
                            const int64_t *sample, int64_t count)
{
    int64_t few[PROBES];
    const int64_t n = count < PROBES ? count : PROBES;
    pare_hash part[3] = {{0}};
    pare_reader *reader;
    pare_data_spread(0, count, n, few);
    for (int64_t i = 0; i < n; i++) few[i] = sample[few[i]];
    PARE_TRY(pare_reader_open(t->ctx, &reader, data, few, n, BATCH, t->options.threads));
    pare_status st = hash_stored(reader, part);
    pare_reader_close(reader);
    if (st != PARE_OK) return st;
    part[2] = pare_hash_bytes(sample, (size_t)count * sizeof *sample);
    const char *before = pare_arena_printf(f->arena, "%" PRId64 " samples ", count);
    if (!before) return PARE_MEMORY;
    return put_hash(f, name, before, pare_hash_bytes(part, sizeof part));
}

/* --- options --- */

/* "kl:2*0.5,feature:a=b": as pare_distill_parse_loss reads it. */
static const char *loss_text(facts *f, const pare_distill_loss *loss)
{
    static const char *const names[] = {"kl", "mse", "cosine", "feature", "ce"};
    const char *text = loss->count ? "" : "kl:2";
    for (int i = 0; i < loss->count && text; i++) {
        const pare_distill_term *term = &loss->term[i];
        text = pare_arena_printf(f->arena, "%s%s%s", text, i ? "," : "", names[term->kind]);
        if (text && term->kind == PARE_TERM_KL)
            text = pare_arena_printf(f->arena, "%s:%s", text, real(term->temperature).text);
        if (text && term->kind == PARE_TERM_FEATURE)
            text = pare_arena_printf(f->arena, "%s:%s=%s", text, term->student, term->teacher);
        if (text && term->weight != 1)
            text = pare_arena_printf(f->arena, "%s*%s", text, real(term->weight).text);
    }
    return text;
}

static pare_status put_optimizer(facts *f, const pare_distill_options *o)
{
    if (o->optimizer != PARE_OPTIMIZER_ADAMW)
        return put(f, "optimizer",
                   pare_arena_printf(f->arena, "sgd momentum %s", real(o->momentum).text));
    return put(f, "optimizer",
               pare_arena_printf(f->arena, "adamw betas %s, %s epsilon %s", real(o->beta1).text,
                                 real(o->beta2).text, real(o->epsilon).text));
}

static pare_status put_augment(facts *f, const pare_augment *a)
{
    return put(f, "augmentation",
               pare_arena_printf(f->arena, "flip %d, shift %d, mixup %s", a->flip, a->shift,
                                 real(a->mixup).text));
}

static pare_status put_scales(facts *f, const pare_distill_options *o)
{
    pare_hash sum = {0};
    for (int i = 0; i < o->scale_count; i++) {
        const pare_hash chain[3] = {
            sum, pare_hash_bytes(o->scale[i].name, strlen(o->scale[i].name)),
            pare_hash_bytes(&o->scale[i].gradient_scale, sizeof o->scale[i].gradient_scale)};
        sum = pare_hash_bytes(chain, sizeof chain);
    }
    const char *before = pare_arena_printf(f->arena, "%d ", o->scale_count);
    return before ? put_hash(f, "list of learned scales", before, sum) : PARE_MEMORY;
}

static pare_status put_zeros(facts *f, const pare_distill_options *o)
{
    return put(f, "treatment of zeros",
               o->train_zeros
                   ? "train"
                   : pare_arena_printf(f->arena, "keep from %s on", real(o->zeros_from).text));
}

static pare_status put_schedule(facts *f, const pare_trainer *t)
{
    static const char *const schedules[] = {"cosine", "step", "constant"};
    const pare_distill_options *o = &t->options;
    PARE_TRY(put_number(f, "number of steps", t->steps));
    PARE_TRY(put_real(f, "learning rate", o->learning_rate));
    PARE_TRY(put(f, "schedule", schedules[o->schedule]));
    PARE_TRY(put_number(f, "warm-up", o->warmup));
    PARE_TRY(put_real(f, "decay", o->weight_decay));
    PARE_TRY(put_real(f, "clip", o->grad_clip_norm));
    return put_real(f, "EMA", o->ema_decay);
}

static pare_status put_options(facts *f, const pare_trainer *t)
{
    static const char *const norms[] = {"train", "frozen", "half"};
    static const char *const precisions[] = {"f32", "bf16", "fp16"};
    const pare_distill_options *o = &t->options;
    PARE_TRY(put(f, "loss", loss_text(f, &o->loss)));
    PARE_TRY(put_number(f, "batch", t->batch));
    PARE_TRY(put_number(f, "number of microbatches", t->microbatch_count));
    PARE_TRY(put_number(f, "accumulation", o->accumulate));
    PARE_TRY(put_optimizer(f, o));
    PARE_TRY(put_schedule(f, t));
    PARE_TRY(put_zeros(f, o));
    PARE_TRY(put(f, "BatchNormalization", norms[o->batchnorm]));
    PARE_TRY(put(f, "precision", precisions[o->precision]));
    PARE_TRY(put_number(f, "number of samples for statistics", o->bn_recalib_samples));
    PARE_TRY(put_augment(f, &o->augment));
    PARE_TRY(put_scales(f, o));
    PARE_TRY(put(f, "seed", pare_arena_printf(f->arena, "%" PRIu64, o->seed)));
    PARE_TRY(put_number(f, "first sample of the stream", o->start));
    PARE_TRY(put_number(f, "distance of validations", o->validate_every));
    return put_number(f, "patience", o->patience);
}

/* --- where it runs --- */

/* Concats and Splits, which a plan makes in place where it can, change no number. */
static bool only_joins(const char *op)
{
    return !strcmp(op, "Concat") || !strcmp(op, "QConcat") || !strcmp(op, "Split");
}

/* Steps add up: ranks that share a model have the sum of one process. */
static void add_plan(pare_hash *sum, const pare_plan *plan)
{
    for (int i = 0; plan && i < pare_plan_step_count(plan); i++) {
        pare_hash step = {0};
        pare_step_info s;
        pare_plan_step(plan, i, &s);
        if (only_joins(s.op_type)) continue;
        add(&step, s.op_type, strlen(s.op_type));
        add(&step, s.kernel, strlen(s.kernel));
        add(&step, s.output, strlen(s.output));
        for (int k = 0; k < s.shape.rank; k++) add(&step, &s.shape.dim[k], sizeof s.shape.dim[k]);
        *sum = pare_hash_sum(*sum, step);
    }
}

/* The version and the file of cuDNN, where training may use it. */
static pare_status put_dnn(facts *f, const pare_trainer *t)
{
    char text[1024] = "off";
    const pare_device *device = t->options.device;
    if (device && pare_gpu_allows_dnn(device)) PARE_TRY(pare_gpu_dnn(t->ctx, text, sizeof text));
    const char *version = pare_arena_printf(f->arena, "%.*s", (int)strcspn(text, ","), text);
    return version ? put(f, "cuDNN", version) : PARE_MEMORY;
}

static pare_status put_place(facts *f, const pare_trainer *t)
{
    pare_hash sum = {0};
    add_plan(&sum, t->learn.plan);
    add_plan(&sum, t->learn.before);
    add_plan(&sum, t->late.plan);
    add_plan(&sum, t->check.plan);
    add_plan(&sum, t->teacher.plan);
    if (t->pipeline) PARE_TRY(pare_comm_sum_hash(t->options.comm, &sum));
    const pare_device *device = t->options.device;
    PARE_TRY(put(f, "device", device ? device->name : "cpu"));
    PARE_TRY(put(f, "TF32", device && device->tf32 ? "on" : "off"));
    PARE_TRY(put_dnn(f, t));
    PARE_TRY(put(f, "instruction set", pare_cpu_isa_name()));
    return put_hash(f, "choice of kernels", "", sum);
}

static pare_status make(facts *f, const pare_trainer *t)
{
    PARE_TRY(put(f, "version of the program", PARE_VERSION));
    PARE_TRY(put_hash(f, "student", "", hash_model(t->student)));
    PARE_TRY(put_hash(f, "teacher", "", hash_model(t->teacher_file)));
    PARE_TRY(put_options(f, t));
    PARE_TRY(put_data(f, "training data", t, t->data, t->sample, t->sample_count));
    PARE_TRY(put_data(f, "held-out data", t, t->held_out, t->held_sample, t->held_count));
    return put_place(f, t);
}

pare_status pare_fingerprint_make(pare_arena *arena, const pare_trainer *trainer,
                                  pare_checkpoint *out)
{
    facts f = {.arena = arena};
    PARE_TRY(make(&f, trainer));
    out->fact = pare_arena_memdup(arena, f.item, (size_t)f.count * sizeof *f.item);
    out->fact_count = f.count;
    return out->fact ? PARE_OK : PARE_MEMORY;
}

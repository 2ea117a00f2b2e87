/* SPDX-License-Identifier: Apache-2.0 */
/* The loss: its text, and its nodes after the student's. Outputs are compared by position, from the
   logits on where a net ends in a Softmax; named tensors by name. Both sides of a comparison have
   one shape; the teacher's side is an input. Each term is a mean over rows, the loss their weighted
   sum. */
#include "distill/graph.h"
#include "runtime/ops/grad.h"
#include "runtime/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the text --- */

static pare_status refuse(const pare_arena *arena, const char *text, const char *why)
{
    return PARE_FAIL(arena->ctx, USAGE,
                     "loss '%s': %s; expected terms of kl:T, feature:NAME, mse, cosine, ce between "
                     "commas, each with *WEIGHT after it or without",
                     text, why);
}

static bool parse_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && *out > 0;
}

/* "NAME" or "NAME=OTHER" */
static pare_status parse_feature(pare_arena *arena, char *names, const char *text,
                                 pare_distill_term *out)
{
    char *other = strchr(names, '=');
    if (other) *other++ = 0;
    out->student = names;
    out->teacher = other ? other : names;
    if (!*out->student || !*out->teacher) return refuse(arena, text, "a tensor's name is missing");
    return PARE_OK;
}

/* The word of a term, already without its weight. */
static pare_status parse_word(pare_arena *arena, char *word, const char *text,
                              pare_distill_term *out)
{
    static const struct {
        const char *word;
        pare_term_kind kind;
    } plain[] = {{"mse", PARE_TERM_MSE},
                 {"cosine", PARE_TERM_COSINE},
                 {"ce", PARE_TERM_CE},
                 {"kl", PARE_TERM_KL}};
    out->temperature = 2;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(word, plain[i].word)) {
            out->kind = plain[i].kind;
            return PARE_OK;
        }
    if (!strncmp(word, "feature:", 8)) {
        out->kind = PARE_TERM_FEATURE;
        return parse_feature(arena, word + 8, text, out);
    }
    out->kind = PARE_TERM_KL;
    if (strncmp(word, "kl:", 3)) return refuse(arena, text, "there is no such term");
    return parse_number(word + 3, &out->temperature)
               ? PARE_OK
               : refuse(arena, text, "kl's temperature is no number above 0");
}

static pare_status parse_term(pare_arena *arena, char *word, const char *text,
                              pare_distill_term *out)
{
    char *star = strrchr(word, '*');
    *out = (pare_distill_term){.weight = 1};
    if (star) {
        *star = 0;
        if (!parse_number(star + 1, &out->weight))
            return refuse(arena, text, "a term's weight is no number above 0");
    }
    return parse_word(arena, word, text, out);
}

pare_status pare_distill_parse_loss(pare_arena *arena, const char *text, pare_distill_loss *out)
{
    char *word = pare_arena_strdup(arena, text);
    int count = 1;
    for (const char *c = text; *c; c++) count += *c == ',';
    *out = (pare_distill_loss){0};
    pare_distill_term *term = pare_arena_alloc(arena, (size_t)count, sizeof *term);
    if (!word || !term) return PARE_MEMORY;
    for (int i = 0; i < count; i++) {
        char *comma = strchr(word, ',');
        if (comma) *comma = 0;
        PARE_TRY(parse_term(arena, word, text, &term[i]));
        if (comma) word = comma + 1;
    }
    *out = (pare_distill_loss){term, count};
    return PARE_OK;
}

/* --- the nodes --- */

typedef struct builder {
    pare_model *student;
    pare_teacher *teacher;
    pare_loss_nodes *out;
    pare_grad emit;
    pare_value *sum; /* of the terms so far */
    bool tells;      /* is there one that differs from weights to weights? */
} builder;

/* --- what is compared --- */

/* What a last Softmax over the classes reads, else the tensor itself. */
static pare_value *logits_of(pare_value *v)
{
    const pare_node *last = v->producer;
    if (!last || !pare_node_is_softmax(last)) return v;
    int64_t axis = pare_node_int(last, "axis", -1);
    return axis == -1 || axis == v->shape.rank - 1 ? last->in[0] : v;
}

static pare_status refuse_pair(const builder *b, const char *what, const pare_value *s,
                               const pare_value *t)
{
    char of_s[256], of_t[256];
    if (s->dtype == t->dtype && pare_shape_equal(&s->shape, &t->shape))
        return PARE_FAIL(b->student->ctx, INPUT,
                         "%s: %s '%s' %s %s has no axis of samples; expected %" PRId64
                         " rows of it, for that many samples are run at a time",
                         b->student->path, what, s->name, pare_type(s->dtype)->name,
                         pare_shape_text(&s->shape, of_s, sizeof of_s), b->teacher->rows);
    return PARE_FAIL(b->student->ctx, INPUT,
                     "%s: %s '%s' %s %s does not match %s: %s '%s' %s %s; expected one type and "
                     "shape after the batch axis",
                     b->student->path, what, s->name, pare_type(s->dtype)->name,
                     pare_shape_text(&s->shape, of_s, sizeof of_s), b->teacher->file->path, what,
                     t->name, pare_type(t->dtype)->name,
                     pare_shape_text(&t->shape, of_t, sizeof of_t));
}

/* Asks the teacher for t, which is against s. */
static pare_status match(builder *b, const char *what, const pare_value *s, pare_value *t,
                         int *place)
{
    pare_shape shape;
    PARE_TRY(pare_teacher_want(b->teacher, t, place));
    pare_teacher_shape(b->teacher, *place, &shape);
    bool same = s->dtype == t->dtype && pare_shape_known(&shape) && shape.rank > 0 &&
                pare_shape_equal(&shape, &s->shape);
    return same ? PARE_OK : refuse_pair(b, what, s, t);
}

/* The graph's input that holds the teacher's tensor of this place. */
static pare_status input_for(builder *b, int place, pare_value **out)
{
    pare_loss_nodes *n = b->out;
    pare_arena *arena = &b->student->arena;
    pare_graph *graph = b->student->graph;
    pare_shape shape;
    while (n->input_count <= place) {
        if (!pare_arena_grow(arena, &n->input, &n->input_capacity, (size_t)n->input_count,
                             sizeof *n->input))
            return PARE_MEMORY;
        n->input[n->input_count++] = NULL;
    }
    *out = n->input[place];
    if (*out) return PARE_OK;
    const char *base = pare_arena_printf(arena, "teacher.%d", place);
    const char *name = base ? pare_graph_fresh_name(graph, base) : NULL;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(graph, out, name));
    pare_teacher_shape(b->teacher, place, &shape);
    pare_value_set_type(*out, b->teacher->wanted[place]->dtype, &shape);
    (*out)->is_input = true;
    n->input[place] = *out;
    return pare_values_add(graph, &graph->in, *out);
}

/* --- terms --- */

static bool is_trailing(const pare_shape *s)
{
    return s->rank >= 2 && pare_shape_product(s, 2, s->rank) == 1;
}

/* Axis 1 of one or four and more axes after the batch, else the last. */
static int64_t classes_of(const pare_shape *s)
{
    return s->rank < 2 ? 1 : s->dim[is_trailing(s) || s->rank > 3 ? 1 : s->rank - 1];
}

/* [rows, classes] */
static pare_value *rows_of(pare_grad *g, pare_value *v)
{
    if (g->status != PARE_OK) return NULL;
    const int rank = v->shape.rank;
    const bool trailing = is_trailing(&v->shape);
    pare_shape rows = {.rank = 2};
    rows.dim[1] = classes_of(&v->shape);
    int64_t all = pare_shape_count(&v->shape);
    rows.dim[0] = rows.dim[1] ? all / rows.dim[1] : 0;
    if (!trailing && rank > 3) {
        int order[PARE_MAX_RANK] = {0};
        for (int i = 1; i < rank - 1; i++) order[i] = i + 1;
        order[rank - 1] = 1;
        v = pare_grad_permuted(g, v, order);
    }
    return pare_grad_reshaped(g, v, &rows);
}

/* The sum of all elements, times a number, as a scalar. */
static pare_value *total(pare_grad *g, pare_value *v, double factor)
{
    const pare_shape one = {.rank = 0};
    bool axis[PARE_MAX_RANK] = {false};
    if (g->status != PARE_OK) return NULL;
    for (int i = 0; i < v->shape.rank; i++) axis[i] = true;
    return pare_grad_scaled(g, pare_grad_reshaped(g, pare_grad_summed(g, v, axis), &one), factor);
}

static double share(const pare_value *v)
{
    int64_t count = v ? pare_shape_count(&v->shape) : 1;
    return count > 0 ? 1 / (double)count : 0;
}

static pare_value *kl(pare_grad *g, pare_value *s, pare_value *t, double temperature)
{
    pare_value *in[] = {rows_of(g, s), rows_of(g, t)};
    pare_node *node = pare_grad_begin(g, "SoftmaxKL", in, 2, 2);
    pare_grad_float(g, node, "temperature", (float)temperature);
    return pare_grad_end(g, node);
}

static pare_value *squared(pare_grad *g, pare_value *s, pare_value *t)
{
    pare_value *d = PARE_EMIT(g, "Sub", s, t);
    return total(g, PARE_EMIT(g, "Mul", d, d), share(s));
}

/* Rows of length 0 have cosine 0: 1e-12 is added to the product of squared lengths. */
static pare_value *cosine(pare_grad *g, pare_value *s, pare_value *t)
{
    const bool classes[PARE_MAX_RANK] = {false, true};
    s = rows_of(g, s);
    t = rows_of(g, t);
    pare_value *st = pare_grad_summed(g, PARE_EMIT(g, "Mul", s, t), classes);
    pare_value *ss = pare_grad_summed(g, PARE_EMIT(g, "Mul", s, s), classes);
    pare_value *tt = pare_grad_summed(g, PARE_EMIT(g, "Mul", t, t), classes);
    pare_value *small = pare_grad_number(g, PARE_f32, 1e-12);
    pare_value *lengths =
        PARE_EMIT(g, "Sqrt", PARE_EMIT(g, "Add", PARE_EMIT(g, "Mul", ss, tt), small));
    pare_value *mean = total(g, PARE_EMIT(g, "Div", st, lengths), share(st));
    return PARE_EMIT(g, "Sub", pare_grad_number(g, PARE_f32, 1), mean);
}

static void add_term(builder *b, pare_value *term, double weight)
{
    term = pare_grad_scaled(&b->emit, term, weight);
    b->sum = b->sum ? PARE_EMIT(&b->emit, "Add", b->sum, term) : term;
}

/* --- terms of the loss --- */

static pare_status compare(builder *b, const pare_distill_term *term, const char *what,
                           pare_value *s, pare_value *t)
{
    int place;
    pare_grad *g = &b->emit;
    pare_value *other;
    PARE_TRY(match(b, what, s, t, &place));
    PARE_TRY(input_for(b, place, &other));
    if (term->kind == PARE_TERM_KL)
        add_term(b, kl(g, s, other, term->temperature), term->weight);
    else if (term->kind == PARE_TERM_COSINE)
        add_term(b, cosine(g, s, other), term->weight);
    else
        add_term(b, squared(g, s, other), term->weight);
    return g->status;
}

/* Every output of floats. */
static pare_status compare_outputs(builder *b, const pare_distill_term *term)
{
    const pare_values *mine = &b->student->graph->out, *its = &b->teacher->model->graph->out;
    int compared = 0;
    for (int i = 0; i < mine->count; i++) {
        pare_value *s = logits_of(mine->item[i]), *t = logits_of(its->item[i]);
        if (s->dtype == t->dtype && !pare_type_is_float(s->dtype)) continue;
        PARE_TRY(compare(b, term, "output", s, t));
        b->tells = b->tells || term->kind == PARE_TERM_MSE || classes_of(&s->shape) > 1;
        compared++;
    }
    if (compared) return PARE_OK;
    return PARE_FAIL(b->student->ctx, INPUT, "%s: it has no output of floats to compare",
                     b->student->path);
}

static pare_status find_feature(const pare_model *model, const char *name, pare_value **out)
{
    *out = pare_graph_find_own(model->graph, name);
    if (*out && (*out)->producer && !(*out)->data) return PARE_OK;
    return PARE_FAIL(model->ctx, INPUT, "%s: %s '%s' to match (feature:%s)", model->path,
                     *out ? "nothing computes tensor" : "there is no tensor", name, name);
}

static pare_status compare_feature(builder *b, const pare_distill_term *term)
{
    pare_value *s, *t;
    PARE_TRY(find_feature(b->student, term->student, &s));
    PARE_TRY(find_feature(b->teacher->model, term->teacher, &t));
    return compare(b, term, "tensor", s, t);
}

static pare_status add_labels(builder *b, const pare_value *logits)
{
    pare_graph *graph = b->student->graph;
    const pare_shape rows = {.rank = 1, .dim = {logits->shape.dim[0]}};
    const char *name = pare_graph_fresh_name(graph, "labels");
    pare_value *v;
    if (!name) return PARE_MEMORY;
    PARE_TRY(pare_value_new(graph, &v, name));
    pare_value_set_type(v, PARE_s64, &rows);
    v->is_input = true;
    b->out->labels = name;
    return pare_values_add(graph, &graph->in, v);
}

static pare_status compare_labels(builder *b, const pare_distill_term *term)
{
    pare_grad *g = &b->emit;
    if (!b->out->logits)
        return PARE_FAIL(b->student->ctx, INPUT,
                         "%s: output '%s' is no classifier's: expected [samples, classes] for ce",
                         b->student->path, b->student->graph->out.item[0]->name);
    pare_value *logits = pare_graph_find_own(b->student->graph, b->out->logits);
    if (!b->out->labels) PARE_TRY(add_labels(b, logits));
    pare_value *in[] = {rows_of(g, logits), pare_graph_find_own(b->student->graph, b->out->labels)};
    add_term(b, pare_grad_end(g, pare_grad_begin(g, "CrossEntropy", in, 2, 2)), term->weight);
    return g->status;
}

/* --- all of it --- */

/* The first output where it holds one row of at least two classes a sample. */
static pare_status find_logits(builder *b)
{
    pare_value *s = logits_of(b->student->graph->out.item[0]);
    pare_value *t = logits_of(b->teacher->model->graph->out.item[0]);
    const pare_shape *shape = &s->shape;
    if (s->dtype != PARE_f32 || shape->rank < 2 || shape->dim[1] < 2 ||
        pare_shape_product(shape, 2, shape->rank) != 1)
        return PARE_OK;
    PARE_TRY(match(b, "output", s, t, &b->out->teacher_logits));
    b->out->logits = s->name;
    b->out->classes = shape->dim[1];
    return PARE_OK;
}

static pare_status check_outputs(const builder *b)
{
    const pare_values *mine = &b->student->graph->out, *its = &b->teacher->model->graph->out;
    if (mine->count == its->count && mine->count) return PARE_OK;
    return PARE_FAIL(b->student->ctx, INPUT,
                     "%s: it has %d outputs, %s has %d; expected the same number, and at least one",
                     b->student->path, mine->count, b->teacher->file->path, its->count);
}

static pare_status add_terms(builder *b, const pare_distill_loss *loss)
{
    static const pare_distill_term usual = {PARE_TERM_KL, 1, 2, NULL, NULL};
    const pare_distill_term *term = loss->count ? loss->term : &usual;
    for (int i = 0; i < (loss->count ? loss->count : 1); i++) {
        b->tells = b->tells || term[i].kind == PARE_TERM_CE || term[i].kind == PARE_TERM_FEATURE;
        if (term[i].kind == PARE_TERM_CE)
            PARE_TRY(compare_labels(b, &term[i]));
        else if (term[i].kind == PARE_TERM_FEATURE)
            PARE_TRY(compare_feature(b, &term[i]));
        else
            PARE_TRY(compare_outputs(b, &term[i]));
    }
    if (b->tells) return PARE_OK;
    return PARE_FAIL(b->student->ctx, INPUT,
                     "%s: its outputs have one value a row ('%s'), of which kl and cosine are the "
                     "same whatever the weights are; expected another loss, such as mse",
                     b->student->path, b->student->graph->out.item[0]->name);
}

pare_status pare_loss_append(pare_model *student, pare_teacher *teacher,
                             const pare_distill_loss *loss, pare_loss_nodes *out)
{
    builder b = {.student = student,
                 .teacher = teacher,
                 .out = out,
                 .emit = {.graph = student->graph, .base = "distill"}};
    *out = (pare_loss_nodes){.teacher_logits = -1};
    PARE_TRY(check_outputs(&b));
    PARE_TRY(find_logits(&b));
    PARE_TRY(add_terms(&b, loss));
    out->loss = b.sum->name;
    return PARE_OK;
}

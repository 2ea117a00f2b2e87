/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum (12): the equation, and the shape. Every ellipsis stands for as many axes; in the implicit
   form the output has these first and then, in the order of the alphabet, the letters that occur
   once. An axis of length 1 is stretched to the length that its label has elsewhere. */
#include "runtime/ops/einsum.h"
#include "runtime/ops/infer.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

typedef struct parser {
    const pare_node *node;
    pare_einsum *e;
    int id[128];            /* of a letter; -1: not seen yet */
    int seen[128];          /* how often in the inputs */
    int dots;               /* axes of the ellipsis; -1: none yet */
    int dot[PARE_MAX_RANK]; /* their labels */
    bool known;
} parser;

int pare_einsum_find(const pare_einsum_term *term, int label)
{
    for (int i = 0; i < term->rank; i++)
        if (term->label[i] == label) return i;
    return -1;
}

static pare_status wrong(const parser *p, const char *term, const char *what)
{
    return PARE_FAIL_NODE(p->node, INPUT, "term '%s' of equation '%s' %s", term,
                          pare_node_string(p->node, "equation", ""), what);
}

/* Letters of a term, and where its ellipsis is (-1: it has none). */
static pare_status scan(const parser *p, const char *term, int *letters, int *dots)
{
    *letters = 0;
    *dots = -1;
    for (const char *c = term; *c; c++) {
        if (!strncmp(c, "...", 3)) {
            if (*dots >= 0) return wrong(p, term, "has more than one ellipsis");
            *dots = *letters;
            c += 2;
        } else if (isascii((unsigned char)*c) && isalpha((unsigned char)*c)) {
            ++*letters;
        } else {
            return wrong(p, term, "has something else than letters and one ellipsis");
        }
    }
    if (*letters > PARE_MAX_RANK) return wrong(p, term, "has too many axes");
    return PARE_OK;
}

static int new_label(parser *p)
{
    p->e->dim[p->e->labels] = 1;
    return p->e->labels++;
}

/* The ellipsis of an input stands for this many axes. */
static pare_status give_dots(parser *p, const char *term, int count)
{
    if (count < 0 || count > PARE_MAX_RANK) return wrong(p, term, "does not fit its input's rank");
    if (p->dots >= 0 && p->dots != count)
        return wrong(p, term, "has an ellipsis of another number of axes than those before");
    for (int i = 0; p->dots < 0 && i < count; i++) p->dot[i] = new_label(p);
    p->dots = count;
    return PARE_OK;
}

/* The length of an axis joins what its label has so far. */
static pare_status join(parser *p, const char *term, int label, const pare_shape *s, int axis)
{
    int64_t *dim = &p->e->dim[label], d = s->rank < 0 ? -1 : s->dim[axis];
    if (d == *dim && d >= 0) return PARE_OK;
    if (*dim == 1 || (*dim < 0 && d > 1) || (*dim < 0 && d == 0)) {
        *dim = d;
        p->e->name[label] = s->rank < 0 ? NULL : s->name[axis];
        return PARE_OK;
    }
    if (d == 1 || d < 0) return PARE_OK;
    if (*dim < 0) return PARE_OK;
    return PARE_FAIL_NODE(p->node, INPUT,
                          "axis %d of term '%s' has length %" PRId64 ", its label %" PRId64
                          " elsewhere",
                          axis, term, d, *dim);
}

static pare_status parse_input(parser *p, const char *term, int i)
{
    const pare_value *v = p->node->in[i];
    pare_einsum_term *t = &p->e->in[i];
    int letters, dots, axis = 0;
    PARE_TRY(scan(p, term, &letters, &dots));
    const pare_shape *s = &v->shape;
    if (dots >= 0 && s->rank < 0) p->known = false;
    if (!p->known) return PARE_OK;
    if (dots >= 0) PARE_TRY(give_dots(p, term, s->rank - letters));
    if (s->rank >= 0 && dots < 0 && s->rank != letters)
        return PARE_FAIL_NODE(p->node, INPUT, "term '%s' of the equation has %d axes, '%s' %d",
                              term, letters, v->name, s->rank);
    t->rank = letters + (dots >= 0 ? p->dots : 0);
    for (const char *c = term; *c; c++) {
        if (*c == '.') {
            for (int k = 0; k < p->dots; k++) t->label[axis++] = p->dot[k];
            c += 2;
            continue;
        }
        int *id = &p->id[(unsigned char)*c];
        if (*id < 0) *id = new_label(p);
        p->seen[(unsigned char)*c]++;
        t->label[axis++] = *id;
    }
    for (int k = 0; k < t->rank; k++) {
        const int first = pare_einsum_find(t, t->label[k]);
        if (first < k && s->rank >= 0 && s->dim[first] >= 0 && s->dim[k] >= 0 &&
            s->dim[first] != s->dim[k])
            return wrong(p, term, "repeats a letter for axes of different length");
        PARE_TRY(join(p, term, t->label[k], s, k));
    }
    return PARE_OK;
}

static pare_status parse_output(parser *p, const char *term)
{
    pare_einsum_term *t = &p->e->out;
    int letters, dots;
    PARE_TRY(scan(p, term, &letters, &dots));
    if (dots < 0 && p->dots > 0) return wrong(p, term, "lacks the ellipsis that inputs have");
    if (letters + (dots >= 0 && p->dots > 0 ? p->dots : 0) > PARE_MAX_RANK)
        return wrong(p, term, "has too many axes");
    for (const char *c = term; *c; c++) {
        if (*c == '.') {
            for (int k = 0; k < p->dots; k++) t->label[t->rank++] = p->dot[k];
            c += 2;
            continue;
        }
        const int id = p->id[(unsigned char)*c];
        if (id < 0) return wrong(p, term, "has a letter that no input has");
        if (pare_einsum_find(t, id) >= 0) return wrong(p, term, "has a letter twice");
        t->label[t->rank++] = id;
    }
    return PARE_OK;
}

static pare_status imply_output(parser *p)
{
    pare_einsum_term *t = &p->e->out;
    for (int k = 0; k < p->dots; k++) t->label[t->rank++] = p->dot[k];
    for (int c = 0; c < 128; c++) {
        if (p->seen[c] != 1) continue;
        if (t->rank == PARE_MAX_RANK)
            return PARE_FAIL_NODE(p->node, UNSUPPORTED, "its output's rank is above %d",
                                  PARE_MAX_RANK);
        t->label[t->rank++] = p->id[c];
    }
    return PARE_OK;
}

/* The equation without blanks, in memory that may be changed. */
static pare_status equation_of(const pare_node *node, char **out)
{
    const char *from = pare_node_string(node, "equation", NULL);
    if (!from) return PARE_FAIL_NODE(node, INPUT, "attribute 'equation' is missing");
    char *to = *out = pare_arena_alloc(&node->graph->model->arena, strlen(from) + 1, 1);
    if (!to) return PARE_MEMORY;
    for (; *from; from++)
        if (*from != ' ') *to++ = *from;
    *to = 0;
    return PARE_OK;
}

pare_status pare_einsum_of(const pare_node *node, pare_einsum *out, bool *known)
{
    parser p = {.node = node, .e = out, .dots = -1, .known = true};
    char *term = NULL;
    memset(out, 0, sizeof *out);
    memset(p.id, -1, sizeof p.id);
    PARE_TRY(equation_of(node, &term));
    char *arrow = strstr(term, "->");
    if (arrow) *arrow = 0;
    out->inputs = 1;
    for (const char *c = term; *c; c++) out->inputs += *c == ',';
    if (out->inputs != node->in_count)
        return PARE_FAIL_NODE(node, INPUT, "its equation has %d terms for %d inputs", out->inputs,
                              node->in_count);
    if (out->inputs > PARE_EINSUM_INPUTS)
        return PARE_FAIL_NODE(node, UNSUPPORTED, "more than %d inputs", PARE_EINSUM_INPUTS);
    for (int i = 0; i < out->inputs; i++) {
        char *end = strchr(term, ',');
        pare_value *v;
        if (end) *end = 0;
        PARE_TRY(pare_infer_need(node, i, &v));
        PARE_TRY(parse_input(&p, term, i));
        if (end) term = end + 1;
    }
    *known = p.known;
    if (!p.known) return PARE_OK;
    return arrow ? parse_output(&p, arrow + 2) : imply_output(&p);
}

pare_status pare_infer_einsum(pare_node *node)
{
    pare_einsum e;
    bool known;
    PARE_TRY(pare_einsum_of(node, &e, &known));
    for (int i = 1; i < node->in_count; i++) PARE_TRY(pare_infer_same_type(node, 0, i));
    pare_shape s = pare_shape_unknown(known ? e.out.rank : -1);
    for (int i = 0; i < s.rank; i++) {
        s.dim[i] = e.dim[e.out.label[i]];
        s.name[i] = s.dim[i] < 0 ? e.name[e.out.label[i]] : NULL;
    }
    pare_infer_out(node, 0, node->in[0]->dtype, &s);
    return PARE_OK;
}
